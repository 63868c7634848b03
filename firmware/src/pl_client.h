/* The client: answers frames, trains when told to, and keeps its weights and samples in flash.
   docs/firmware/protocol.md is the conversation; methods/fedcfc.py's `train` is what TRAIN does. */
#ifndef PL_CLIENT_H
#define PL_CLIENT_H

#include "pl_cfc.h"
#include "pl_frame.h"
#include "pl_layers.h"
#include "pl_lock.h"
#include "pl_port.h"

PL_BEGIN

enum { PL_CLEAN, PL_WRITTEN, PL_TRAINED };
enum { PL_MAX_LIVE = 256, PL_MAX_CHANNELS = 16 };
enum { PL_MAX_BATCH = 64, PL_MAX_EPOCHS = 16 };
enum { PL_PATIENCE = 30 }; /* seconds that a host has for its next frame, before what it left half done is given up */

struct pl_live; /* pl_live.h */

/* How far a training by a recipe is (fit.c). */
typedef struct {
    pl_recipe recipe;
    uint64_t key, order;              /* of the whole; of the samples in this pass */
    uint32_t samples, size;           /* to train on; of a mini-batch */
    uint32_t at, last;                /* samples of this pass in mini-batches so far; the newest one's number */
    uint32_t done, filled;            /* of the mini-batch at hand */
    uint32_t epoch, epochs;
    pl_real loss;                     /* of the mini-batch at hand */
    uint8_t alone;                    /* without a host, in slices: more of it is to come */
} pl_course;

/* Where an exchange of changes is (share.c). */
typedef struct {
    uint32_t task, shifts, bytes;     /* whose SHIFTs these are, and how many were done; of the change to be read */
    uint8_t ready, told;              /* weights begin from the common ones; the change is there */
} pl_share;

typedef struct pl_client {
    pl_net net;                         /* a CFC; of layers only what all networks have: sizes, weights, their number */
    pl_chain chain;
    pl_setup setup;
    uint32_t setups;                    /* how many there were since the start */
    pl_terms terms;
    uint8_t *arena;
    uint32_t arena_bytes;
    uint8_t is_set, installed, shelved; /* set up; weights are in flash; samples are on the shelf */
    uint8_t dirty;                      /* the weights at hand are not those in flash: PL_WRITTEN or PL_TRAINED */
    uint8_t answers;                    /* `answer` and LUD are those of task `trained` */
    uint8_t busy, stop, seq;            /* training; told to stop; number of the request at hand */
    pl_batch *batch;                    /* the mini-batch at hand, while training */
    uint32_t trained, kept, shelf_crc;
    uint32_t sequence, slot;            /* of the newest stored weights: how many there have been; which slot has them */
    uint32_t stored_at, stored_bytes;   /* where they lie; 0 bytes: nowhere */
    uint32_t written;                   /* bytes of the samples being sent that are in flash already */
    uint16_t train, valid;
    pl_trained answer;                  /* to the last task, for when it is asked again */
    pl_fitted fitted;
    pl_course course;
    pl_share share;
    uint16_t live, live_next;           /* samples that the board recorded itself; where the next one goes */
    struct pl_live *sensor;             /* the readings of its own, if it has any */
    uint8_t live_whole[PL_MAX_LIVE / 8];
    pl_real scaler[2 * PL_MAX_CHANNELS]; /* mean of each channel, then 1 / deviation; all 0: readings come as they are */
    uint16_t picks[PL_MAX_BATCH];
    uint32_t step, steps;
    uint64_t told, heard;               /* when progress was last sent; when the last frame came */
    uint32_t dropped, answered;
    pl_lock lock;
    pl_reader reader;
    uint8_t out[PL_FRAME_MAX];
} pl_client;

/* Takes over the memory; goes on with what flash holds, if it holds anything. */
void pl_client_init(pl_client *client, void *arena, uint32_t bytes);
void pl_client_byte(pl_client *client, uint8_t byte);
void pl_client_tell(pl_client *client, uint8_t kind, uint8_t seq, uint8_t length); /* what `out` has; sealed if there is a key */
void pl_answer(pl_client *client, uint8_t kind, uint8_t length); /* the same, to the request at hand */

/* regions.c: WRITE and READ; 0, or the trouble */
int pl_region_write(pl_client *client, const uint8_t *payload, uint32_t length);
int pl_region_read(pl_client *client, const uint8_t *payload);

/* flash.c: a ring of slots for weights and settings */
uint32_t pl_slots(const pl_net *net);
uint32_t pl_slot_bytes(const pl_net *net);
uint32_t pl_shelf_at(const pl_net *net); /* where the samples begin */
int pl_program(uint32_t at, const void *bytes, uint32_t n); /* n bytes, filled up to a whole unit; 0 when it failed */
int pl_store(pl_client *client, uint32_t task);
int pl_recall(pl_client *client);  /* settings, weights and samples, after a start */
int pl_go_back(pl_client *client); /* to the weights that were kept last */
int pl_set_up(pl_client *client, const pl_setup *setup); /* 0, or the trouble */

/* shelf.c: the samples */
enum { PL_SAMPLE_HEAD = 8, PL_PIECE = 32 }; /* a piece of a sample begins at a multiple of PL_PIECE within it */
uint32_t pl_sample_bytes(const pl_shape *shape);
uint32_t pl_shelf_room(const pl_net *net); /* samples that fit */
pl_sample pl_sample_at(const pl_client *client, uint32_t i);
int pl_check_samples(pl_client *client, uint32_t train, uint32_t valid, uint32_t crc); /* 1: they are all there */
int pl_shelf_write(pl_client *client, uint32_t offset, const uint8_t *bytes, uint32_t n); /* 0, or the trouble */

/* live samples, behind those of the host from the next block on */
void pl_find_live(pl_client *client);
int pl_record_sample(pl_client *client, const pl_real *x_TI, uint16_t label); /* standardised values; 0, or the trouble */
int pl_forget_live(pl_client *client); /* erases them; 0, or the trouble */

/* train.c */
void pl_breathe(void *client); /* while it trains: the port's pause, and requests that come meanwhile */
int pl_carry_out(pl_client *client, const pl_train *task); /* 0, or the trouble */
uint32_t pl_label(pl_client *client, const pl_sample *sample); /* by either network */
uint32_t pl_samples(const pl_client *client); /* to train on: the host's, and the board's own */
pl_sample pl_picked(void *client, uint32_t k); /* the k-th of the mini-batch at hand */
pl_real pl_accuracy(pl_client *client); /* on the samples for validation; -1 without any */

/* fit.c: by a recipe. Without a host, a training comes in slices: between two of them the board classifies, records and
   answers. A request that needs the kept weights ends it, and so do pl_port_pause and ABORT; the weights are then those in
   flash. */
enum { PL_LEARNT, PL_LEARNING };
int pl_fit_task(pl_client *client, const pl_fit *task); /* 0, or the trouble */
int pl_alone_begin(pl_client *client, const pl_recipe *recipe, uint16_t batch, uint8_t epochs, uint64_t key); /* 0, or the trouble */
int pl_alone_slice(pl_client *client); /* one sample (of a CFC: one mini-batch). PL_LEARNING, PL_LEARNT: stored; or -trouble, and the weights are those of before */
void pl_alone_stop(pl_client *client);
int pl_learn_alone(pl_client *client, const pl_recipe *recipe, uint16_t batch, uint8_t epochs, uint64_t key); /* all slices */

/* share.c: common weights by changes of a few bits a number; 0, or the trouble */
int pl_shift_common(pl_client *client, const pl_shift *m);
int pl_tell_change(pl_client *client, const pl_tell *m);

/* wire.c: numbers on the wire in float32, float16 or int8 */
uint32_t pl_wire_bytes(uint8_t wire);
void pl_to_wire(uint8_t *to, const pl_real *from, uint32_t n, uint8_t wire, pl_real scale);
void pl_from_wire(pl_real *to, const uint8_t *from, uint32_t n, uint8_t wire);
pl_real pl_wire_scale(const pl_real *from, uint32_t n, uint8_t wire);

PL_END

#endif
