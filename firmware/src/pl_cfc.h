/* The FedCFC client's arithmetic: one mini-batch of fBind at a time, in memory the caller hands over.
   Not here: the link (pl_client.h, port/), any allocation, any operating system.

   Dai and Tan, "FedCFC", section 4.3, checked against src/potluck/models/cfc.py and src/potluck/methods/parts/bind.py:
       z  = lecun(B [i; x] + b)                        backbone
       x' = s * g(z) + h(z), s = sigmoid(-f(z) tau)    or s * g(z) + (1 - s) * h(z) when gated
       L  = l + ld R_d + lm R_m + la R_a               personal layers follow l, f follows L
   T = time steps, I = inputs, N = hidden units, B = backbone units, C = classes; V = weights of f's last layer, N x M. */
#ifndef PL_CFC_H
#define PL_CFC_H

#include "pl_real.h"

PL_BEGIN

typedef enum {
    PL_OK = 0,
    PL_BAD_SHAPE,  /* a size is 0 or beyond the limits below */
    PL_NO_ROOM,    /* the memory handed over is too small */
    PL_NO_SAMPLES, /* nothing to train on */
} pl_status;

enum { PL_F, PL_G, PL_H, PL_HEADS };
enum { PL_KEEP_ALL, PL_KEEP_STATES, PL_KEEP_SEGMENTS, PL_KEEP_FOURS };
enum { PL_FLOAT32, PL_FLOAT16, PL_INT8 };
enum { PL_HINGE, PL_PRINTED };
enum { PL_BOUND, PL_TASK };
enum { PL_VELOCITY = 1, PL_PULL = 2, PL_LOSS_ALONE = 4, PL_SHARE = 8 }; /* what a recipe needs beside the gradient; no terms of
   fBind; common weights, and what rounding left out of their changes (share.c) */
enum { PL_MAX_UNITS = 512, PL_MAX_STEPS = 4096, PL_MAX_LAYERS = 8, PL_SLOTS = 4 };

/* All dimensions are fields: one image serves every network that its memory can hold. */
typedef struct {
    uint16_t inputs, hidden, backbone, head, classes, steps; /* head: width of the first layers of two-layer heads */
    uint8_t layers[PL_HEADS];                                /* of f, g, h: 1 or 2 */
    uint8_t gated;                                           /* x' = s g + (1 - s) h */
    uint8_t timed;                                           /* samples bring their time spans; 1 otherwise */
    uint8_t keep;                                            /* what backward finds: PL_KEEP_... */
    uint8_t weights;                                         /* stored as PL_FLOAT32 or PL_INT8 */
    uint8_t kept;                                            /* activations for backward: PL_FLOAT32 or PL_INT8 */
    uint8_t extras;                                          /* momentum, a pull; memory for the loss alone */
} pl_shape;

typedef struct {
    pl_real lambda_d, lambda_m, lambda_a, v; /* weights of the three terms, and the activity wished for */
    pl_real lr, clip;                        /* step size; largest norm of a step's gradient, 0: no limit */
    uint8_t ra_form;                      /* PL_HINGE raises activity, PL_PRINTED is the paper's formula */
    uint8_t lud;                          /* PL_BOUND: dL/dV is summed up; PL_TASK: dl/dV */
} pl_terms;

/* A training by learn.py's `fit`: for either kind of network. */
typedef struct {
    pl_real lr, momentum, mu, clip; /* mu w + pull is added to the gradient, where there is a pull */
    uint32_t first, last;           /* the weights that may move */
} pl_recipe;

/* One labelled series as it lies in flash: spans[T] only where the shape is timed. */
typedef struct {
    const pl_real *x_TI, *spans;
    uint16_t steps, label;
} pl_sample;

/* Where batches come from: the k-th sample of the mini-batch at hand. */
typedef struct {
    pl_sample (*get)(void *context, uint32_t k);
    void *context;
    uint32_t count;
} pl_batch;

typedef struct {
    uint16_t n_out, n_in;
    uint32_t w, b;    /* where its weights and biases begin among all weights */
    uint16_t delta;   /* where its adjoints begin in a slot */
    uint8_t tensor;   /* the weights' scale; the biases' is the next */
} pl_dense;

/* Offsets within the record of one step: what its layers gave. */
typedef struct {
    uint16_t c, z, u[PL_HEADS], s, g, h, size;
} pl_record;

typedef struct {
    pl_shape shape;
    pl_dense backbone, first[PL_HEADS], last[PL_HEADS], out;
    pl_record at;
    uint32_t count, vector;            /* weights in all; those of V: D numbers, what is exchanged */
    uint32_t segment, segments, deltas, tensors;
    uint64_t draws;                    /* key of the stochastic rounding, and its counter */
    uint32_t drawn;
    void *weights;                     /* pl_real or int8_t [count]; with PL_SHARE c and e lie behind them */
    pl_real *scales;                      /* [tensors], of int8 weights */
    pl_real *gradient;                    /* [count] */
    pl_real *velocity, *pull;             /* [count] each, only where asked for */
    pl_real *cud, *lud, *direction;       /* [vector] each: CUD; sum of dL/dV; u = dR/dq, put in V's place */
    void *starts, *inside;             /* kept states: at the start of every segment, and of the segment at hand */
    pl_real *starts_t, *inside_t;         /* their tangents */
    pl_real *records;                     /* [PL_SLOTS][at.size] */
    pl_real *delta;                       /* [deltas][PL_SLOTS]: adjoints of the layers' arguments */
    pl_real *dx, *dx_t, *dz, *dz_t, *du, *du_t;
    pl_real *logits, *logits_t;           /* [classes] */
    pl_real *activity;                    /* sums of f's outputs, layer after layer */
    pl_real *panel;                       /* rows of int8 weights as numbers */
    size_t used;                       /* bytes of the memory handed over */
    void (*pause)(void *);             /* called once in a time step, if there is one */
    void *context;
} pl_net;

/* What one mini-batch came to. */
typedef struct {
    pl_real loss, activity, norm; /* l; the least active of f's layers by its most active unit; ||q|| */
} pl_result;

/* Ask first, then hand over that much; 0 for a shape that cannot be. The memory must be aligned to 8 bytes. */
size_t pl_memory_needed(const pl_shape *shape);
pl_status pl_net_init(pl_net *net, const pl_shape *shape, void *memory, size_t bytes);

/* One step of fBind. cum < 0: none yet; net->cud all zero: none yet. Adds the (clipped) dL/dV, or dl/dV, to net->lud. */
pl_status pl_step(pl_net *net, const pl_terms *terms, pl_real cum, const pl_batch *batch, uint64_t key, pl_result *result);

/* The class with the largest logit; logits stay in net->logits. */
uint32_t pl_classify(pl_net *net, const pl_sample *sample);

pl_real pl_weight(const pl_net *net, uint32_t i); /* as a number */

/* Numbers at `weights`, that flash keeps. */
static inline uint32_t pl_numbers(const pl_net *net) { return net->count * (net->shape.extras & PL_SHARE ? 3u : 1u); }

/* The stages of pl_step, for the tests that compare each with PyTorch's. */
pl_real pl_gradient(pl_net *net, const pl_batch *batch);
pl_real pl_direction(pl_net *net, const pl_terms *terms, pl_real cum);
pl_real pl_least_active(pl_net *net, const pl_batch *batch, uint32_t *where);
void pl_bind(pl_net *net, const pl_terms *terms, const pl_batch *batch, pl_real activity, uint32_t where);
pl_real pl_clip(pl_net *net, pl_real most);
void pl_descend(pl_net *net, const pl_recipe *recipe, uint64_t key);

PL_END

#endif
