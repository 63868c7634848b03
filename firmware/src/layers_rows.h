/* Rows of weights, in float32 or in int8 with one scale for each tensor: what the layers do with them.

   With int8 weights the forward pass is whole numbers: a layer's inputs are rounded to int8 with a scale of their own,
   products are summed in 32 bits, and the two scales are applied to the sum. A Cortex-M4 multiplies two pairs in one
   instruction. Gradients stay float32. New weights are rounded up or down at random, with the right mean. */
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

/* sum of w[i] x[i] */
static inline int32_t dot_int8(const int8_t *restrict w, const int8_t *restrict x, uint32_t n)
{
    int32_t sum = 0;
    uint32_t i = 0;
#if defined(__ARM_FEATURE_DSP) && !defined(PL_PLAIN)
    for (; i + 4 <= n; i += 4) {
        uint32_t a, b, a_odd, b_odd;
        pl_copy(&a, w + i, 4);
        pl_copy(&b, x + i, 4);
        __asm__("sxtb16 %0, %1, ror #8" : "=r"(a_odd) : "r"(a));
        __asm__("sxtb16 %0, %1, ror #8" : "=r"(b_odd) : "r"(b));
        __asm__("sxtb16 %0, %0" : "+r"(a));
        __asm__("sxtb16 %0, %0" : "+r"(b));
        __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(a), "r"(b));
        __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(a_odd), "r"(b_odd));
    }
#endif
    for (; i < n; i++) sum += (int32_t)w[i] * x[i];
    return sum;
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
    pl_real by = net->scales[tensor] * net->rounded_scale;
    for (uint32_t r = 0; r < rows; r++) to[r] += (pl_real)dot_int8(net->small + w + r * columns, net->rounded + at, columns) * by;
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
