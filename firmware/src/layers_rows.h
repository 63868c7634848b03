/* Rows of weights, in float32 or in int8 with one scale for each tensor: what the layers do with them.

   With int8 weights the forward pass is whole numbers: a layer's inputs are rounded to int8 with a scale of their own,
   products are summed in 32 bits, and the two scales are applied to the sum. A Cortex-M4 multiplies two pairs in one
   instruction (SMLAD). Gradients stay float32. New weights are rounded up or down at random, with the right mean. */
#ifndef LAYERS_ROWS_H
#define LAYERS_ROWS_H

#include "kernels.h"
#include "pl_keys.h"
#include "pl_layers.h"

/* layers_conv.c, layers_gru.c; an adjoint `d_in` of 0 is not wanted */
void pl_conv_forward(pl_chain *net, const pl_link *l, const pl_real *in, pl_real *out);
void pl_conv_backward(pl_chain *net, const pl_link *l, const pl_real *in, const pl_real *d_out, pl_real *d_in);
void pl_gru_forward(pl_chain *net, const pl_link *l, const pl_real *x, uint32_t steps, pl_real *out);
void pl_gru_backward(pl_chain *net, const pl_link *l, const pl_real *x, uint32_t steps, pl_real *dh);

static inline void rest(const pl_chain *net)
{
    if (net->pause) net->pause(net->context);
}

/* Where the i-th of n inputs of whole-number products lies. Of each four, the second and the third are exchanged: four weights
   fall apart into pairs of the first with the third and of the second with the fourth. */
static inline uint32_t place_of(uint32_t i, uint32_t n)
{
    return i < (n & ~3u) ? (i & ~3u) | (i & 1u) << 1 | (i >> 1 & 1u) : i;
}

#if defined(__ARM_FEATURE_DSP) && !defined(PL_PLAIN)
/* Four products: the weights of a word with the inputs of two. */
static inline int32_t four_products(int32_t sum, uint32_t w, uint32_t even, uint32_t odd)
{
    uint32_t w_odd;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(w_odd) : "r"(w));
    __asm__("sxtb16 %0, %0" : "+r"(w));
    __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(w), "r"(even));
    __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(w_odd), "r"(odd));
    return sum;
}
#endif

/* to[r] += by * (row r of the weights times the inputs). A Cortex-M4 takes two rows at a time, to load inputs once for two. */
static inline void plus_dots(pl_real *to, const int8_t *w, const int16_t *x, uint32_t rows, uint32_t n, pl_real by)
{
    uint32_t r = 0;
#if defined(__ARM_FEATURE_DSP) && !defined(PL_PLAIN)
    for (; r + 2 <= rows; r += 2, w += 2 * n) {
        int32_t sum = 0, next = 0;
        uint32_t i = 0;
        for (; i + 4 <= n; i += 4) {
            uint32_t a, b, pair[2];
            pl_copy(&a, w + i, 4);
            pl_copy(&b, w + n + i, 4);
            pl_copy(pair, x + i, 8);
            sum = four_products(sum, a, pair[0], pair[1]);
            next = four_products(next, b, pair[0], pair[1]);
        }
        for (; i < n; i++) {
            sum += (int32_t)w[i] * x[i];
            next += (int32_t)w[n + i] * x[i];
        }
        to[r] += (pl_real)sum * by;
        to[r + 1] += (pl_real)next * by;
    }
#endif
    for (; r < rows; r++, w += n) {
        int32_t sum = 0;
        for (uint32_t i = 0; i < n; i++) sum += (int32_t)w[i] * x[place_of(i, n)];
        to[r] += (pl_real)sum * by;
    }
}

/* Rounds a layer's inputs, all with one scale; nothing to do with float32 weights. */
static inline void round_inputs(pl_chain *net, const pl_real *in, uint32_t n)
{
    pl_real most = 0;
    if (!net->small) return;
    for (uint32_t i = 0; i < n; i++) {
        pl_real size = in[i] < 0 ? -in[i] : in[i];
        most = size > most ? size : most;
    }
    net->rounded_scale = most > 0 ? most / (pl_real)127 : (pl_real)1;
    pl_real by = (pl_real)1 / net->rounded_scale;
    for (uint32_t i = 0; i < n; i++) {
        pl_real q = in[i] * by;
        net->rounded[i] = (int8_t)(int32_t)(q < 0 ? q - (pl_real)0.5 : q + (pl_real)0.5);
    }
}

/* to[r] += rows of weights from w on, `columns` long, times the inputs from `at` on; `tensor` is theirs */
static inline void plus_product(const pl_chain *net, pl_real *to, uint32_t tensor, uint32_t w, const pl_real *in, uint32_t at,
                                uint32_t rows, uint32_t columns)
{
    if (!net->small) {
        mv(to, net->weights + w, columns, in + at, rows, columns);
        return;
    }
    for (uint32_t i = 0; i < columns; i++) net->patch[place_of(i, columns)] = net->rounded[at + i];
    plus_dots(to, net->small + w, net->patch, rows, columns, net->scales[tensor] * net->rounded_scale);
}

static inline pl_real weight(const pl_chain *net, uint32_t tensor, uint32_t i)
{
    return net->small ? (pl_real)net->small[i] * net->scales[tensor] : net->weights[i];
}

/* to[i] += d * weight w + i */
static inline void add_row(const pl_chain *net, pl_real *to, pl_real d, uint32_t tensor, uint32_t w, uint32_t n)
{
    if (!net->small) {
        axpy(to, d, net->weights + w, n);
        return;
    }
    d *= net->scales[tensor];
    for (uint32_t i = 0; i < n; i++) to[i] += d * (pl_real)net->small[w + i];
}

/* d[c] += sum_r w[r][c] delta[r * PL_SLOTS] for the rows of weights from w on */
static inline void plus_transposed(const pl_chain *net, pl_real *d, uint32_t tensor, uint32_t w, const pl_real *delta, uint32_t rows,
                                   uint32_t columns)
{
    if (!net->small) {
        tv(d, net->weights + w, columns, delta, rows, columns);
        return;
    }
    for (uint32_t r = 0; r < rows; r++) {
        pl_real by = delta[r * PL_SLOTS] * net->scales[tensor];
        if (by == 0) continue;
        for (uint32_t c = 0; c < columns; c++) d[c] += by * (pl_real)net->small[w + r * columns + c];
    }
}

static inline int8_t rounded_at_random(pl_real value, pl_real draw)
{
    value += draw;
    value = value > (pl_real)127 ? (pl_real)127 : value;
    value = value > (pl_real)-127 ? value : (pl_real)-127; /* also what is no number */
    int32_t whole = (int32_t)value;
    return (int8_t)((pl_real)whole > value ? whole - 1 : whole); /* floor */
}

#endif
