/* 1-D convolutions. What a place of the output meets is gathered in a patch, in the order of the weights: then a place is a
   product of the weights with its patch, and the gradient is a sum of outer products, as in a dense layer (kernels.h). */
#include "layers_rows.h"

/* The first input that a place of the output meets, and how many of the kernel's are inside. */
static uint32_t window(const pl_link *l, uint32_t t, uint32_t *first, uint32_t *from)
{
    uint32_t begin = t * l->stride, end = begin + l->kernel, most = (uint32_t)l->length + l->pad;
    *from = begin < l->pad ? l->pad - begin : 0;
    *first = begin + *from - l->pad;
    return (end > most ? most : end) - begin - *from;
}

static uint32_t patch_size(const pl_link *l) { return (uint32_t)l->channels * l->kernel; }

static void gather(pl_real *patch, const pl_link *l, const pl_real *in, uint32_t t)
{
    uint32_t first, from, inside = window(l, t, &first, &from);
    if (inside < l->kernel) pl_fill(patch, 0, patch_size(l) * sizeof(pl_real));
    for (uint32_t i = 0; i < l->channels; i++) {
        const pl_real *next = in + first * l->by_time + i * l->by_channel;
        pl_real *to = patch + i * l->kernel + from;
        for (uint32_t j = 0; j < inside; j++, next += l->by_time) to[j] = *next;
    }
}

/* The reverse: the adjoint of a patch goes back to the inputs it was gathered from. */
static void scatter(const pl_real *patch, const pl_link *l, pl_real *d_in, uint32_t t)
{
    uint32_t first, from, inside = window(l, t, &first, &from);
    for (uint32_t i = 0; i < l->channels; i++) {
        pl_real *next = d_in + first * l->by_time + i * l->by_channel;
        const pl_real *own = patch + i * l->kernel + from;
        for (uint32_t j = 0; j < inside; j++, next += l->by_time) *next += own[j];
    }
}

/* In whole numbers: the inputs are rounded once. */
static void forward_int8(pl_chain *net, const pl_link *l, const pl_real *in, pl_real *out)
{
    uint32_t n = patch_size(l), O = l->channels_out;
    pl_real *column = net->adjoints;
    round_inputs(net, in, (uint32_t)l->length * l->channels);
    pl_real by = net->scales[l->tensor] * net->rounded_scale;
    for (uint32_t t = 0, first, from; t < l->length_out; t++) {
        uint32_t inside = window(l, t, &first, &from);
        if (inside < l->kernel) pl_fill(net->patch, 0, n * sizeof *net->patch);
        for (uint32_t i = 0; i < l->channels; i++) {
            const int8_t *next = net->rounded + first * l->by_time + i * l->by_channel;
            for (uint32_t j = 0, k = i * l->kernel + from; j < inside; j++, k++, next += l->by_time) net->patch[place_of(k, n)] = *next;
        }
        for (uint32_t o = 0; o < O; o++) column[o] = weight(net, l->tensor + 1u, l->b + o);
        plus_dots(column, net->small + l->w, net->patch, O, n, by);
        for (uint32_t o = 0; o < O; o++) out[o * l->length_out + t] = column[o];
        rest(net);
    }
}

void pl_conv_forward(pl_chain *net, const pl_link *l, const pl_real *in, pl_real *out)
{
    uint32_t n = patch_size(l);
    pl_real *patch = net->patches, *column = net->adjoints;
    if (net->small) {
        forward_int8(net, l, in, out);
        return;
    }
    for (uint32_t t = 0; t < l->length_out; t++) {
        gather(patch, l, in, t);
        for (uint32_t o = 0; o < l->channels_out; o++) column[o] = net->weights[l->b + o];
        mv(column, net->weights + l->w, n, patch, l->channels_out, n);
        for (uint32_t o = 0; o < l->channels_out; o++) out[o * l->length_out + t] = column[o];
        rest(net);
    }
}

/* Four places at a time, so that a gradient is loaded and stored once for four. */
void pl_conv_backward(pl_chain *net, const pl_link *l, const pl_real *in, const pl_real *d_out, pl_real *d_in)
{
    uint32_t n = patch_size(l), O = l->channels_out;
    pl_real *delta = net->adjoints, *d_patch = net->patches + PL_SLOTS * n;
    const pl_real *patches[PL_SLOTS];
    for (uint32_t k = 0; k < PL_SLOTS; k++) patches[k] = net->patches + k * n;
    for (uint32_t t = 0, slots; t < l->length_out; t += slots) {
        slots = l->length_out - t < PL_SLOTS ? l->length_out - t : PL_SLOTS;
        for (uint32_t k = 0; k < slots; k++) gather(net->patches + k * n, l, in, t + k);
        for (uint32_t o = 0; o < O; o++)
            for (uint32_t k = 0; k < slots; k++)
                net->gradient[l->b + o] += delta[o * PL_SLOTS + k] = d_out[o * l->length_out + t + k];
        outer(net->gradient + l->w, delta, patches, slots, O, n);
        for (uint32_t k = 0; d_in && k < slots; k++) {
            pl_fill(d_patch, 0, n * sizeof(pl_real));
            plus_transposed(net, d_patch, l->tensor, l->w, delta + k, O, n);
            scatter(d_patch, l, d_in, t + k);
        }
        rest(net);
    }
}
