/* The protocol's other records. Written from src/potluck/engines/serial/messages.py:
       python -m potluck.engines.serial.header
   A test compares the two; change the Python classes, then write this file again. */
#ifndef PL_MESSAGES_H
#define PL_MESSAGES_H

#include "pl_install.h"

PL_BEGIN

typedef struct {
    uint32_t task;
    uint64_t key;
    float cum;
    uint32_t crc;
    uint16_t batch;
    uint8_t aimed;
} pl_train; enum { PL_TRAIN_SIZE = 23 };
static inline void pl_train_read(pl_train *m, const uint8_t *b)
{
    pl_copy(&m->task, b, 4);
    pl_copy(&m->key, b + 4, 8);
    pl_copy(&m->cum, b + 12, 4);
    pl_copy(&m->crc, b + 16, 4);
    pl_copy(&m->batch, b + 20, 2);
    pl_copy(&m->aimed, b + 22, 1);
}

typedef struct {
    uint32_t task, steps;
    uint64_t ticks;
    float loss, norm, activity, valid, scale;
} pl_trained; enum { PL_TRAINED_SIZE = 36 };
static inline void pl_trained_write(uint8_t *b, const pl_trained *m)
{
    pl_copy(b, &m->task, 4);
    pl_copy(b + 4, &m->steps, 4);
    pl_copy(b + 8, &m->ticks, 8);
    pl_copy(b + 16, &m->loss, 4);
    pl_copy(b + 20, &m->norm, 4);
    pl_copy(b + 24, &m->activity, 4);
    pl_copy(b + 28, &m->valid, 4);
    pl_copy(b + 32, &m->scale, 4);
}

typedef struct {
    uint32_t task;
    uint64_t key;
    uint32_t crc;
    float lr, momentum, mu, clip;
    uint32_t first, last, pull;
    uint16_t batch;
    uint8_t epochs;
} pl_fit; enum { PL_FIT_SIZE = 47 };
static inline void pl_fit_read(pl_fit *m, const uint8_t *b)
{
    pl_copy(&m->task, b, 4);
    pl_copy(&m->key, b + 4, 8);
    pl_copy(&m->crc, b + 12, 4);
    pl_copy(&m->lr, b + 16, 4);
    pl_copy(&m->momentum, b + 20, 4);
    pl_copy(&m->mu, b + 24, 4);
    pl_copy(&m->clip, b + 28, 4);
    pl_copy(&m->first, b + 32, 4);
    pl_copy(&m->last, b + 36, 4);
    pl_copy(&m->pull, b + 40, 4);
    pl_copy(&m->batch, b + 44, 2);
    pl_copy(&m->epochs, b + 46, 1);
}

typedef struct {
    uint32_t task, steps;
    uint64_t ticks;
    float loss, valid;
    uint32_t crc;
} pl_fitted; enum { PL_FITTED_SIZE = 28 };
static inline void pl_fitted_write(uint8_t *b, const pl_fitted *m)
{
    pl_copy(b, &m->task, 4);
    pl_copy(b + 4, &m->steps, 4);
    pl_copy(b + 8, &m->ticks, 8);
    pl_copy(b + 16, &m->loss, 4);
    pl_copy(b + 20, &m->valid, 4);
    pl_copy(b + 24, &m->crc, 4);
}

typedef struct {
    uint32_t task, number, crc, first, last;
    uint8_t bits;
} pl_shift; enum { PL_SHIFT_SIZE = 21 };
static inline void pl_shift_read(pl_shift *m, const uint8_t *b)
{
    pl_copy(&m->task, b, 4);
    pl_copy(&m->number, b + 4, 4);
    pl_copy(&m->crc, b + 8, 4);
    pl_copy(&m->first, b + 12, 4);
    pl_copy(&m->last, b + 16, 4);
    pl_copy(&m->bits, b + 20, 1);
}

typedef struct {
    uint32_t task, first, last;
    uint8_t bits;
} pl_tell; enum { PL_TELL_SIZE = 13 };
static inline void pl_tell_read(pl_tell *m, const uint8_t *b)
{
    pl_copy(&m->task, b, 4);
    pl_copy(&m->first, b + 4, 4);
    pl_copy(&m->last, b + 8, 4);
    pl_copy(&m->bits, b + 12, 1);
}

typedef struct {
    uint32_t bytes, crc;
} pl_told; enum { PL_TOLD_SIZE = 8 };
static inline void pl_told_write(uint8_t *b, const pl_told *m)
{
    pl_copy(b, &m->bytes, 4);
    pl_copy(b + 4, &m->crc, 4);
}

typedef struct {
    uint32_t task;
} pl_keep; enum { PL_KEEP_SIZE = 4 };
static inline void pl_keep_read(pl_keep *m, const uint8_t *b)
{
    pl_copy(&m->task, b, 4);
}

typedef struct {
    uint32_t task;
} pl_kept; enum { PL_KEPT_SIZE = 4 };
static inline void pl_kept_write(uint8_t *b, const pl_kept *m)
{
    pl_copy(b, &m->task, 4);
}

typedef struct {
    uint16_t sample;
} pl_infer; enum { PL_INFER_SIZE = 2 };
static inline void pl_infer_read(pl_infer *m, const uint8_t *b)
{
    pl_copy(&m->sample, b, 2);
}

typedef struct {
    uint16_t label;
} pl_label_request; enum { PL_LABEL_REQUEST_SIZE = 2 };
static inline void pl_label_request_read(pl_label_request *m, const uint8_t *b)
{
    pl_copy(&m->label, b, 2);
}

typedef struct {
    uint16_t label, truth;
} pl_inferred; enum { PL_INFERRED_SIZE = 4 };
static inline void pl_inferred_write(uint8_t *b, const pl_inferred *m)
{
    pl_copy(b, &m->label, 2);
    pl_copy(b + 2, &m->truth, 2);
}

typedef struct {
    uint32_t stack, fixed, dropped, answered, stores, slots;
} pl_stats; enum { PL_STATS_SIZE = 24 };
static inline void pl_stats_write(uint8_t *b, const pl_stats *m)
{
    pl_copy(b, &m->stack, 4);
    pl_copy(b + 4, &m->fixed, 4);
    pl_copy(b + 8, &m->dropped, 4);
    pl_copy(b + 12, &m->answered, 4);
    pl_copy(b + 16, &m->stores, 4);
    pl_copy(b + 20, &m->slots, 4);
}

typedef struct {
    uint32_t task, step, steps;
} pl_progress; enum { PL_PROGRESS_SIZE = 12 };
static inline void pl_progress_write(uint8_t *b, const pl_progress *m)
{
    pl_copy(b, &m->task, 4);
    pl_copy(b + 4, &m->step, 4);
    pl_copy(b + 8, &m->steps, 4);
}

typedef struct {
    uint8_t trouble;
} pl_error; enum { PL_ERROR_SIZE = 1 };
static inline void pl_error_write(uint8_t *b, const pl_error *m)
{
    pl_copy(b, &m->trouble, 1);
}

PL_END

#endif
