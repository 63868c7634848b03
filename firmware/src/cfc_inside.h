/* What the parts of the network share and nobody else needs. */
#ifndef CFC_INSIDE_H
#define CFC_INSIDE_H

#include "pl_cfc.h"
#include "pl_keys.h"

enum { PANEL = 8 }; /* rows of int8 weights that are turned into numbers at a time */

/* LeCun's tanh, 1.7159 tanh(0.666 a). Slope and its derivative are functions of the output y, so that no argument has
   to be kept: slope = 0.666 (1.7159 - y*y / 1.7159), bend = -2 * 0.666 y / 1.7159. */
#define CEILING ((real)1.7159)
#define STEEPNESS ((real)0.666)
static inline real lecun_slope(real y) { return STEEPNESS * (CEILING - y * y * ((real)1 / CEILING)); }
static inline real lecun_bend(real y) { return y * ((real)-2 * STEEPNESS / CEILING); }

/* a[j] = out * tanh(in * a[j]) */
void squash(real *a, uint32_t n, real in, real out);
static inline void lecun(real *a, uint32_t n) { squash(a, n, STEEPNESS, CEILING); }
/* s = sigmoid(-F tau) = (1 - tanh(F tau / 2)) / 2, in place of F */
static inline void gate(real *s, uint32_t n, real tau)
{
    squash(s, n, (real)0.5 * tau, (real)1);
    for (uint32_t j = 0; j < n; j++) s[j] = (real)0.5 - (real)0.5 * s[j];
}

/* Long sums are taken in short pieces: float32 loses less. */
static inline real product_sum(const real *a, const real *b, uint32_t n)
{
    real total = 0;
    for (uint32_t i = 0; i < n;) {
        real piece = 0;
        for (uint32_t end = i + 16 < n ? i + 16 : n; i < end; i++) piece += a[i] * b[i];
        total += piece;
    }
    return total;
}

/* Rows r..r+*n of a layer's weights as numbers; at most `PANEL` of int8 ones at a time. */
const real *rows_of(pl_net *net, const pl_dense *layer, uint32_t r, uint32_t *n);
void biases_of(const pl_net *net, const pl_dense *layer, real *b);

/* Kept states: `from` may be rounded on the way in. */
void keep_start(pl_net *net, uint32_t segment, const real *x, const real *x_t);
void find_start(const pl_net *net, uint32_t segment, real *x, real *x_t);
void keep_inside(pl_net *net, uint32_t step, const real *record, const real *record_t);
void find_inside(const pl_net *net, uint32_t step, real *record, real *record_t);

/* One step forward: `record` holds c = [i; x] and gets all the rest; f's outputs are added to `activity`, if wanted. */
void step_forward(pl_net *net, real *record, real tau, real *activity);
/* The new state, in place of the old one. */
void advance(const pl_net *net, real *record);

static inline real span_of(const pl_net *net, const pl_sample *sample, uint32_t t)
{
    return net->shape.timed ? sample->spans[t] : (real)1;
}

static inline void put_input(const pl_net *net, const pl_sample *sample, uint32_t t, real *record)
{
    memcpy(record, sample->x_TI + (size_t)t * net->shape.inputs, net->shape.inputs * sizeof(real));
}

/* The readout and its softmax: probabilities in net->logits, the loss; count is the size of the mini-batch. */
real read_out(pl_net *net, const real *x, uint32_t label);

#endif
