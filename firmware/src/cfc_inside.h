/* What the parts of the network share and nobody else needs. */
#ifndef CFC_INSIDE_H
#define CFC_INSIDE_H

#include "pl_cfc.h"
#include "pl_keys.h"

enum { PANEL = 8 }; /* rows of int8 weights that are turned into numbers at a time */

/* LeCun's tanh, 1.7159 tanh(0.666 a). Slope and its derivative are functions of the output y, so that no argument has
   to be kept: slope = 0.666 (1.7159 - y*y / 1.7159), bend = -2 * 0.666 y / 1.7159. */
#define CEILING ((pl_real)1.7159)
#define STEEPNESS ((pl_real)0.666)
static inline pl_real lecun_slope(pl_real y) { return STEEPNESS * (CEILING - y * y * ((pl_real)1 / CEILING)); }
static inline pl_real lecun_bend(pl_real y) { return y * ((pl_real)-2 * STEEPNESS / CEILING); }

/* a[j] = out * tanh(in * a[j]) */
void pl_squash(pl_real *a, uint32_t n, pl_real in, pl_real out);
static inline void lecun(pl_real *a, uint32_t n) { pl_squash(a, n, STEEPNESS, CEILING); }
/* s = sigmoid(-F tau) = (1 - tanh(F tau / 2)) / 2, in place of F */
static inline void gate(pl_real *s, uint32_t n, pl_real tau)
{
    pl_squash(s, n, (pl_real)0.5 * tau, (pl_real)1);
    for (uint32_t j = 0; j < n; j++) s[j] = (pl_real)0.5 - (pl_real)0.5 * s[j];
}

/* Long sums are taken in short pieces: float32 loses less. */
static inline pl_real product_sum(const pl_real *a, const pl_real *b, uint32_t n)
{
    pl_real total = 0;
    for (uint32_t i = 0; i < n;) {
        pl_real piece = 0;
        for (uint32_t end = i + 16 < n ? i + 16 : n; i < end; i++) piece += a[i] * b[i];
        total += piece;
    }
    return total;
}

/* Rows r..r+*n of a layer's weights as numbers; at most `PANEL` of int8 ones at a time. */
const pl_real *pl_rows_of(pl_net *net, const pl_dense *layer, uint32_t r, uint32_t *n);
void pl_biases_of(const pl_net *net, const pl_dense *layer, pl_real *b);

/* Kept states: `from` may be rounded on the way in. */
void pl_keep_start(pl_net *net, uint32_t segment, const pl_real *x, const pl_real *x_t);
void pl_find_start(const pl_net *net, uint32_t segment, pl_real *x, pl_real *x_t);
void pl_keep_inside(pl_net *net, uint32_t step, const pl_real *record, const pl_real *record_t);
void pl_find_inside(const pl_net *net, uint32_t step, pl_real *record, pl_real *record_t);

/* One step forward: `record` holds c = [i; x] and gets all the rest; f's outputs are added to `activity`, if wanted. */
void pl_step_forward(pl_net *net, pl_real *record, pl_real tau, pl_real *activity);
/* The new state. */
void pl_advance(const pl_net *net, const pl_real *record, pl_real *x);
/* Whether states at the starts of segments are kept, and those within them. */
static inline int keeps_starts(const pl_net *net) { return net->segments > 1 || net->shape.keep == PL_KEEP_FOURS; }
static inline int keeps_inside(const pl_net *net) { return net->shape.keep != PL_KEEP_FOURS; }

static inline void breathe(const pl_net *net)
{
    if (net->pause) net->pause(net->context);
}

static inline pl_real span_of(const pl_net *net, const pl_sample *sample, uint32_t t)
{
    return net->shape.timed ? sample->spans[t] : (pl_real)1;
}

static inline void put_input(const pl_net *net, const pl_sample *sample, uint32_t t, pl_real *record)
{
    pl_copy(record, sample->x_TI + (size_t)t * net->shape.inputs, net->shape.inputs * sizeof(pl_real));
}

/* The readout and its softmax: probabilities in net->logits, the loss; count is the size of the mini-batch. */
pl_real pl_read_out(pl_net *net, const pl_real *x, uint32_t label);

#endif
