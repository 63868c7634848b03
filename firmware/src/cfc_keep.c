/* What the forward pass keeps for the backward pass, and int8 weights as numbers.

   Kept values are bounded by construction, so their int8 scales are fixed: |x| < 2, LeCun's tanh < 1.7159, gate and
   tanh < 1. Rounding is up or down at random with the right mean. Tangents are not bounded and stay as they are. */
#include "cfc_inside.h"

#define STATE_ROOM ((pl_real)2)

static void pack(pl_net *net, int8_t *to, const pl_real *from, uint32_t n, pl_real room)
{
    pl_real scale = room / (pl_real)127;
    for (uint32_t i = 0; i < n; i++) {
        pl_real a = from[i] / scale + (pl_real)128 + pl_uniform(net->draws, net->drawn++); /* > 0: truncation is floor */
        a = a > (pl_real)255 ? (pl_real)255 : a > (pl_real)1 ? a : (pl_real)1;
        int32_t whole = (int32_t)a - 128;
        to[i] = (int8_t)whole;
    }
}

static void unpack(pl_real *to, const int8_t *from, uint32_t n, pl_real room)
{
    pl_real scale = room / (pl_real)127;
    for (uint32_t i = 0; i < n; i++) to[i] = (pl_real)from[i] * scale;
}

static void put(pl_net *net, void *kept, size_t at, const pl_real *from, uint32_t n, pl_real room)
{
    if (net->shape.kept == PL_INT8)
        pack(net, (int8_t *)kept + at, from, n, room);
    else
        pl_copy((pl_real *)kept + at, from, n * sizeof(pl_real));
}

static void get(const pl_net *net, const void *kept, size_t at, pl_real *to, uint32_t n, pl_real room)
{
    if (net->shape.kept == PL_INT8)
        unpack(to, (const int8_t *)kept + at, n, room);
    else
        pl_copy(to, (const pl_real *)kept + at, n * sizeof(pl_real));
}

void pl_keep_start(pl_net *net, uint32_t segment, const pl_real *x, const pl_real *x_t)
{
    uint32_t N = net->shape.hidden;
    put(net, net->starts, (size_t)segment * N, x, N, STATE_ROOM);
    if (x_t) pl_copy(net->starts_t + (size_t)segment * N, x_t, N * sizeof(pl_real));
}

void pl_find_start(const pl_net *net, uint32_t segment, pl_real *x, pl_real *x_t)
{
    uint32_t N = net->shape.hidden;
    get(net, net->starts, (size_t)segment * N, x, N, STATE_ROOM);
    if (x_t) pl_copy(x_t, net->starts_t + (size_t)segment * N, N * sizeof(pl_real));
}

/* The parts of a record that are kept: the state alone, or all that follows the input. */
static uint32_t width(const pl_net *net)
{
    return net->shape.keep == PL_KEEP_ALL ? (uint32_t)net->at.size - net->shape.inputs : net->shape.hidden;
}

void pl_keep_inside(pl_net *net, uint32_t step, const pl_real *record, const pl_real *record_t)
{
    uint32_t I = net->shape.inputs, N = net->shape.hidden, wide = width(net);
    size_t at = (size_t)step * wide;
    put(net, net->inside, at, record + I, N, STATE_ROOM);
    if (wide > N) {
        put(net, net->inside, at + N, record + net->at.z, (uint32_t)net->at.s - net->at.z, CEILING);
        put(net, net->inside, at + net->at.s - I, record + net->at.s, 3u * N, (pl_real)1);
    }
    if (record_t) pl_copy(net->inside_t + at, record_t + I, wide * sizeof(pl_real));
}

void pl_find_inside(const pl_net *net, uint32_t step, pl_real *record, pl_real *record_t)
{
    uint32_t I = net->shape.inputs, N = net->shape.hidden, wide = width(net);
    size_t at = (size_t)step * wide;
    get(net, net->inside, at, record + I, N, STATE_ROOM);
    if (wide > N) {
        get(net, net->inside, at + N, record + net->at.z, (uint32_t)net->at.s - net->at.z, CEILING);
        get(net, net->inside, at + net->at.s - I, record + net->at.s, 3u * N, (pl_real)1);
    }
    if (record_t) pl_copy(record_t + I, net->inside_t + at, wide * sizeof(pl_real));
}

const pl_real *pl_rows_of(pl_net *net, const pl_dense *layer, uint32_t r, uint32_t *n)
{
    uint32_t left = layer->n_out - r, columns = layer->n_in;
    *n = left;
    if (net->shape.weights == PL_FLOAT32) return (const pl_real *)net->weights + layer->w + r * columns;
    *n = left < PANEL ? left : PANEL;
    const int8_t *from = (const int8_t *)net->weights + layer->w + r * columns;
    pl_real scale = net->scales[layer->tensor];
    for (uint32_t i = 0; i < *n * columns; i++) net->panel[i] = (pl_real)from[i] * scale;
    return net->panel;
}

void pl_biases_of(const pl_net *net, const pl_dense *layer, pl_real *b)
{
    if (net->shape.weights == PL_FLOAT32) {
        pl_copy(b, (const pl_real *)net->weights + layer->b, layer->n_out * sizeof(pl_real));
        return;
    }
    const int8_t *from = (const int8_t *)net->weights + layer->b;
    for (uint32_t i = 0; i < layer->n_out; i++) b[i] = (pl_real)from[i] * net->scales[layer->tensor + 1];
}
