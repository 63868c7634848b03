/* The protocol's constants, and the records that install a network. Written from src/potluck/engines/serial/messages.py:
       python -m potluck.engines.serial.header
   A test compares the two; change the Python classes, then write this file again. */
#ifndef PL_INSTALL_H
#define PL_INSTALL_H

#include "pl_real.h"

PL_BEGIN

enum { PL_VERSION = 3, PL_PAYLOAD = 228, PL_TAIL = 12, PL_ANSWER = 128 };
#define PL_NO_TASK 0xffffffffu

enum {
    PL_KIND_HELLO = 1, PL_KIND_SETUP = 2, PL_KIND_WRITE = 3, PL_KIND_READ = 4, PL_KIND_SHELVE = 5,
    PL_KIND_TRAIN = 6, PL_KIND_KEEP = 7, PL_KIND_INFER = 8, PL_KIND_STATS = 9, PL_KIND_ABORT = 10,
    PL_KIND_FIT = 11, PL_KIND_LABEL = 12, PL_KIND_SHIFT = 13, PL_KIND_TELL = 14, PL_KIND_PROGRESS = 254,
    PL_KIND_ERROR = 255
};

enum {
    PL_REGION_WEIGHTS = 0, PL_REGION_SCALES = 1, PL_REGION_CUD = 2, PL_REGION_LUD = 3, PL_REGION_SCALER = 5,
    PL_REGION_PULL = 6, PL_REGION_SHELF = 4, PL_REGION_CHANGE = 7
};

enum {
    PL_TROUBLE_UNKNOWN_KIND = 1, PL_TROUBLE_BAD_LENGTH = 2, PL_TROUBLE_BAD_SHAPE = 3, PL_TROUBLE_NO_ROOM = 4,
    PL_TROUBLE_NOT_READY = 5, PL_TROUBLE_BAD_REGION = 6, PL_TROUBLE_BAD_SHELF = 7, PL_TROUBLE_STALE_TASK = 8,
    PL_TROUBLE_OTHER_CUD = 9, PL_TROUBLE_BAD_VALUE = 10, PL_TROUBLE_FLASH_FAILED = 11,
    PL_TROUBLE_OTHER_VERSION = 12, PL_TROUBLE_STOPPED = 13, PL_TROUBLE_BUSY = 14,
    PL_TROUBLE_OTHER_WEIGHTS = 15, PL_TROUBLE_OTHER_PULL = 16, PL_TROUBLE_NO_TAG = 17,
    PL_TROUBLE_OTHER_CHANGE = 18
};

typedef struct {
    uint16_t version, payload;
    uint32_t arena, flash, rate, session, trained, kept;
    uint16_t train, valid;
    uint32_t shelf;
    uint8_t ready;
    char board[16];
    uint64_t nonce;
    uint8_t locked;
} pl_hello; enum { PL_HELLO_SIZE = 62 };
static inline void pl_hello_write(uint8_t *b, const pl_hello *m)
{
    pl_copy(b, &m->version, 2);
    pl_copy(b + 2, &m->payload, 2);
    pl_copy(b + 4, &m->arena, 4);
    pl_copy(b + 8, &m->flash, 4);
    pl_copy(b + 12, &m->rate, 4);
    pl_copy(b + 16, &m->session, 4);
    pl_copy(b + 20, &m->trained, 4);
    pl_copy(b + 24, &m->kept, 4);
    pl_copy(b + 28, &m->train, 2);
    pl_copy(b + 30, &m->valid, 2);
    pl_copy(b + 32, &m->shelf, 4);
    pl_copy(b + 36, &m->ready, 1);
    pl_copy(b + 37, m->board, 16);
    pl_copy(b + 53, &m->nonce, 8);
    pl_copy(b + 61, &m->locked, 1);
}

typedef struct {
    uint64_t nonce;
} pl_greet; enum { PL_GREET_SIZE = 8 };
static inline void pl_greet_read(pl_greet *m, const uint8_t *b)
{
    pl_copy(&m->nonce, b, 8);
}

typedef struct {
    uint32_t session;
    uint16_t inputs, hidden, backbone, head, classes, steps;
    uint8_t layers_f, layers_g, layers_h, gated, timed, keep, weights, kept, wire, ra_form, lud, epochs;
    float lambda_d, lambda_m, lambda_a, v, lr, clip;
    uint8_t network, extras;
    char layers[48];
} pl_setup; enum { PL_SETUP_SIZE = 102 };
static inline void pl_setup_read(pl_setup *m, const uint8_t *b)
{
    pl_copy(&m->session, b, 4);
    pl_copy(&m->inputs, b + 4, 2);
    pl_copy(&m->hidden, b + 6, 2);
    pl_copy(&m->backbone, b + 8, 2);
    pl_copy(&m->head, b + 10, 2);
    pl_copy(&m->classes, b + 12, 2);
    pl_copy(&m->steps, b + 14, 2);
    pl_copy(&m->layers_f, b + 16, 1);
    pl_copy(&m->layers_g, b + 17, 1);
    pl_copy(&m->layers_h, b + 18, 1);
    pl_copy(&m->gated, b + 19, 1);
    pl_copy(&m->timed, b + 20, 1);
    pl_copy(&m->keep, b + 21, 1);
    pl_copy(&m->weights, b + 22, 1);
    pl_copy(&m->kept, b + 23, 1);
    pl_copy(&m->wire, b + 24, 1);
    pl_copy(&m->ra_form, b + 25, 1);
    pl_copy(&m->lud, b + 26, 1);
    pl_copy(&m->epochs, b + 27, 1);
    pl_copy(&m->lambda_d, b + 28, 4);
    pl_copy(&m->lambda_m, b + 32, 4);
    pl_copy(&m->lambda_a, b + 36, 4);
    pl_copy(&m->v, b + 40, 4);
    pl_copy(&m->lr, b + 44, 4);
    pl_copy(&m->clip, b + 48, 4);
    pl_copy(&m->network, b + 52, 1);
    pl_copy(&m->extras, b + 53, 1);
    pl_copy(m->layers, b + 54, 48);
}

static inline void pl_setup_write(uint8_t *b, const pl_setup *m)
{
    pl_copy(b, &m->session, 4);
    pl_copy(b + 4, &m->inputs, 2);
    pl_copy(b + 6, &m->hidden, 2);
    pl_copy(b + 8, &m->backbone, 2);
    pl_copy(b + 10, &m->head, 2);
    pl_copy(b + 12, &m->classes, 2);
    pl_copy(b + 14, &m->steps, 2);
    pl_copy(b + 16, &m->layers_f, 1);
    pl_copy(b + 17, &m->layers_g, 1);
    pl_copy(b + 18, &m->layers_h, 1);
    pl_copy(b + 19, &m->gated, 1);
    pl_copy(b + 20, &m->timed, 1);
    pl_copy(b + 21, &m->keep, 1);
    pl_copy(b + 22, &m->weights, 1);
    pl_copy(b + 23, &m->kept, 1);
    pl_copy(b + 24, &m->wire, 1);
    pl_copy(b + 25, &m->ra_form, 1);
    pl_copy(b + 26, &m->lud, 1);
    pl_copy(b + 27, &m->epochs, 1);
    pl_copy(b + 28, &m->lambda_d, 4);
    pl_copy(b + 32, &m->lambda_m, 4);
    pl_copy(b + 36, &m->lambda_a, 4);
    pl_copy(b + 40, &m->v, 4);
    pl_copy(b + 44, &m->lr, 4);
    pl_copy(b + 48, &m->clip, 4);
    pl_copy(b + 52, &m->network, 1);
    pl_copy(b + 53, &m->extras, 1);
    pl_copy(b + 54, m->layers, 48);
}

typedef struct {
    uint32_t needed, count, vector, tensors, sample, room;
} pl_ready; enum { PL_READY_SIZE = 24 };
static inline void pl_ready_write(uint8_t *b, const pl_ready *m)
{
    pl_copy(b, &m->needed, 4);
    pl_copy(b + 4, &m->count, 4);
    pl_copy(b + 8, &m->vector, 4);
    pl_copy(b + 12, &m->tensors, 4);
    pl_copy(b + 16, &m->sample, 4);
    pl_copy(b + 20, &m->room, 4);
}

typedef struct {
    uint8_t region;
    uint32_t offset;
} pl_write; enum { PL_WRITE_SIZE = 5 };
static inline void pl_write_read(pl_write *m, const uint8_t *b)
{
    pl_copy(&m->region, b, 1);
    pl_copy(&m->offset, b + 1, 4);
}

typedef struct {
    uint8_t region;
    uint32_t offset;
    uint8_t length, more;
} pl_read; enum { PL_READ_SIZE = 7 };
static inline void pl_read_read(pl_read *m, const uint8_t *b)
{
    pl_copy(&m->region, b, 1);
    pl_copy(&m->offset, b + 1, 4);
    pl_copy(&m->length, b + 5, 1);
    pl_copy(&m->more, b + 6, 1);
}

typedef struct {
    uint16_t train, valid;
    uint32_t crc;
} pl_shelve; enum { PL_SHELVE_SIZE = 8 };
static inline void pl_shelve_read(pl_shelve *m, const uint8_t *b)
{
    pl_copy(&m->train, b, 2);
    pl_copy(&m->valid, b + 2, 2);
    pl_copy(&m->crc, b + 4, 4);
}

PL_END

#endif
