/* The forward and backward pass of a chain of layers, and one step of descent. */
#include "layers_rows.h"

static void rest(const pl_chain *net)
{
    if (net->pause) net->pause(net->context);
}

/* The first input that a place of the output meets, and how many of the kernel's are inside. */
static uint32_t window(const pl_link *l, uint32_t t, uint32_t *first, uint32_t *from)
{
    uint32_t begin = t * l->stride, end = begin + l->kernel, most = (uint32_t)l->length + l->pad;
    *from = begin < l->pad ? l->pad - begin : 0;
    *first = begin + *from - l->pad;
    return (end > most ? most : end) - begin - *from;
}

/* In whole numbers: what a place of the output meets is gathered once for all channels, in the order of the weights. */
static void conv_forward_int8(pl_chain *net, const pl_link *l, const pl_real *in, pl_real *out)
{
    uint32_t n = (uint32_t)l->channels * l->kernel;
    pl_real by;
    round_inputs(net, in, (uint32_t)l->length * l->channels);
    by = net->scales[l->tensor] * net->rounded_scale;
    for (uint32_t t = 0, first, from; t < l->length_out; t++) {
        uint32_t inside = window(l, t, &first, &from);
        pl_fill(net->patch, 0, n);
        for (uint32_t i = 0; i < l->channels; i++)
            for (uint32_t j = 0; j < inside; j++)
                net->patch[i * l->kernel + from + j] = net->rounded[(first + j) * l->by_time + i * l->by_channel];
        for (uint32_t o = 0; o < l->channels_out; o++)
            out[o * l->length_out + t] = weight(net, l->tensor + 1u, l->b + o) +
                                         (pl_real)dot_int8(net->small + l->w + o * n, net->patch, n) * by;
        rest(net);
    }
}

static void conv_forward(pl_chain *net, const pl_link *l, const pl_real *in, pl_real *out)
{
    if (net->small) {
        conv_forward_int8(net, l, in, out);
        return;
    }
    for (uint32_t o = 0; o < l->channels_out; o++) {
        uint32_t w = l->w + o * l->channels * l->kernel;
        rest(net);
        for (uint32_t t = 0, first, from; t < l->length_out; t++) {
            uint32_t n = window(l, t, &first, &from);
            pl_real sum = weight(net, l->tensor + 1u, l->b + o);
            for (uint32_t i = 0; i < l->channels; i++)
                for (uint32_t j = 0; j < n; j++)
                    sum += net->weights[w + i * l->kernel + from + j] * in[(first + j) * l->by_time + i * l->by_channel];
            out[o * l->length_out + t] = sum;
        }
    }
}

static void conv_backward(pl_chain *net, const pl_link *l, const pl_real *in, const pl_real *d_out, pl_real *d_in)
{
    for (uint32_t o = 0; o < l->channels_out; o++) {
        uint32_t w = l->w + o * l->channels * l->kernel;
        rest(net);
        for (uint32_t t = 0, first, from; t < l->length_out; t++) {
            uint32_t n = window(l, t, &first, &from);
            pl_real d = d_out[o * l->length_out + t];
            net->gradient[l->b + o] += d;
            for (uint32_t i = 0; d != 0 && i < l->channels; i++) {
                uint32_t x = first * l->by_time + i * l->by_channel, k = w + i * l->kernel + from;
                for (uint32_t j = 0; j < n; j++) net->gradient[k + j] += d * in[x + j * l->by_time];
                if (d_in) add_row(net, d_in + x, l->by_time, d, l->tensor, k, n);
            }
        }
    }
}

static uint32_t largest(const pl_link *l, const pl_real *in, uint32_t c, uint32_t t)
{
    uint32_t best = t * l->stride * l->by_time + c * l->by_channel;
    for (uint32_t j = 1, x = best + l->by_time; j < l->kernel; j++, x += l->by_time)
        if (in[x] > in[best]) best = x;
    return best;
}

static void dense_forward(pl_chain *net, const pl_link *l, const pl_real *in, pl_real *out)
{
    uint32_t n = (uint32_t)l->length * l->channels;
    round_inputs(net, in, n);
    for (uint32_t o = 0; o < l->channels_out; o++) out[o] = weight(net, l->tensor + 1u, l->b + o);
    plus_product(net, out, l->tensor, l->w, in, 0, l->channels_out, n);
    rest(net);
}

static void dense_backward(pl_chain *net, const pl_link *l, const pl_real *in, const pl_real *d_out, pl_real *d_in)
{
    uint32_t n = (uint32_t)l->length * l->channels;
    for (uint32_t o = 0; o < l->channels_out; o++) {
        uint32_t w = l->w + o * n;
        pl_real d = d_out[o];
        net->gradient[l->b + o] += d;
        if (d != 0) axpy(net->gradient + w, d, in, n);
        if (d_in && d != 0) add_row(net, d_in, 1, d, l->tensor, w, n);
    }
    rest(net);
}

/* One step of a GRU: r, z, n and q = W_hn h + b_hn in rows of N; the new state may take the old one's place. */
static void gru_step(const pl_chain *net, const pl_link *l, const pl_real *x, uint32_t t, const pl_real *h, pl_real *next)
{
    uint32_t I = l->channels, N = l->channels_out, wi = l->w, wh = wi + 3u * N * I, bi = l->b, bh = bi + 3u * N;
    pl_real *r = net->gates, *z = r + N, *n = z + N, *q = n + N, *in = net->gates + 6u * N, *own = in + 3u * N;
    int8_t *state = net->small ? net->patch : 0; /* it is within -1..1 */
    for (uint32_t j = 0; j < 3u * N; j++) {
        in[j] = weight(net, l->tensor + 2u, bi + j);
        own[j] = weight(net, l->tensor + 3u, bh + j);
    }
    plus_product(net, in, l->tensor, wi, x, t * I, 3u * N, I);
    if (state) {
        pl_real by = net->scales[l->tensor + 1] / (pl_real)127;
        for (uint32_t j = 0; j < N; j++) state[j] = (int8_t)(int32_t)(h[j] * (pl_real)127 + (pl_real)(h[j] < 0 ? -0.5f : 0.5f));
        for (uint32_t j = 0; j < 3u * N; j++) own[j] += (pl_real)dot_int8(net->small + wh + j * N, state, N) * by;
    } else {
        mv(own, net->weights + wh, N, h, 3u * N, N);
    }
    for (uint32_t j = 0; j < 2u * N; j++) r[j] = (pl_real)0.5 + (pl_real)0.5 * pl_tanh((pl_real)0.5 * (in[j] + own[j]));
    for (uint32_t j = 0; j < N; j++) {
        q[j] = own[2u * N + j];
        n[j] = pl_tanh(in[2u * N + j] + r[j] * q[j]);
    }
    for (uint32_t j = 0; j < N; j++) next[j] = ((pl_real)1 - z[j]) * n[j] + z[j] * h[j];
    rest(net);
}

static void gru_forward(pl_chain *net, const pl_link *l, const pl_real *x, uint32_t steps, pl_real *out)
{
    uint32_t N = l->channels_out;
    pl_fill(net->states, 0, N * sizeof(pl_real));
    round_inputs(net, x, steps * l->channels);
    for (uint32_t t = 0; t < steps; t++) gru_step(net, l, x, t, net->states + t * N, net->states + (t + 1u) * N);
    pl_copy(out, net->states + steps * N, N * sizeof(pl_real));
}

/* Back through time: `dh` is the adjoint of the last state, and work space. A step's gates are computed again. */
static void gru_backward(pl_chain *net, const pl_link *l, const pl_real *x, uint32_t steps, pl_real *dh)
{
    uint32_t I = l->channels, N = l->channels_out, wi = l->w, wh = wi + 3u * N * I, bi = l->b, bh = bi + 3u * N;
    pl_real *r = net->gates, *z = r + N, *n = z + N, *q = n + N, *before = q + N, *scratch = before + N;
    for (uint32_t t = steps; t-- > 0;) {
        const pl_real *h = net->states + t * N, *in = x + t * I;
        gru_step(net, l, x, t, h, scratch);
        for (uint32_t j = 0; j < N; j++) before[j] = dh[j] * z[j];
        for (uint32_t j = 0; j < N; j++) {
            pl_real dn = dh[j] * ((pl_real)1 - z[j]) * ((pl_real)1 - n[j] * n[j]);
            pl_real dz = dh[j] * (h[j] - n[j]) * z[j] * ((pl_real)1 - z[j]), dr = dn * q[j] * r[j] * ((pl_real)1 - r[j]);
            const pl_real d_in[3] = {dr, dz, dn}, d_own[3] = {dr, dz, dn * r[j]};
            for (uint32_t g = 0; g < 3; g++) {
                uint32_t row = g * N + j;
                net->gradient[bi + row] += d_in[g];
                net->gradient[bh + row] += d_own[g];
                axpy(net->gradient + wi + row * I, d_in[g], in, I);
                axpy(net->gradient + wh + row * N, d_own[g], h, N);
                add_row(net, before, 1, d_own[g], l->tensor + 1u, wh + row * N, N);
            }
        }
        pl_copy(dh, before, N * sizeof(pl_real));
    }
}

static const pl_real *inputs_of(const pl_chain *net, uint32_t i, const pl_sample *sample)
{
    return i ? net->values + net->links[i - 1].at : sample->x_TI;
}

static void forward(pl_chain *net, const pl_sample *sample)
{
    for (uint32_t i = 0; i < net->depth; i++) {
        const pl_link *l = &net->links[i];
        const pl_real *in = inputs_of(net, i, sample);
        pl_real *out = net->values + l->at;
        switch (l->kind) {
        case PL_DENSE: dense_forward(net, l, in, out); break;
        case PL_CONV: conv_forward(net, l, in, out); break;
        case PL_GRU: gru_forward(net, l, in, sample->steps, out); break;
        default:
            for (uint32_t c = 0; c < l->channels_out; c++)
                for (uint32_t t = 0; t < l->length_out; t++) out[c * l->length_out + t] = in[largest(l, in, c, t)];
        }
        for (uint32_t j = 0; j < l->n; j++) {
            if (l->act == PL_RELU) out[j] = out[j] > 0 ? out[j] : (pl_real)0;
            if (l->act == PL_TANH) out[j] = pl_tanh(out[j]);
        }
    }
}

static void backward(pl_chain *net, const pl_sample *sample)
{
    pl_real *d = net->delta[0], *next = net->delta[1];
    for (uint32_t i = net->depth; i-- > 0;) {
        const pl_link *l = &net->links[i];
        const pl_real *in = inputs_of(net, i, sample), *out = net->values + l->at;
        pl_real *d_in = i ? next : 0;
        for (uint32_t j = 0; j < l->n; j++) {
            if (l->act == PL_RELU && !(out[j] > 0)) d[j] = 0;
            if (l->act == PL_TANH) d[j] *= (pl_real)1 - out[j] * out[j];
        }
        if (d_in) pl_fill(d_in, 0, (size_t)l->length * l->channels * sizeof(pl_real));
        switch (l->kind) {
        case PL_DENSE: dense_backward(net, l, in, d, d_in); break;
        case PL_CONV: conv_backward(net, l, in, d, d_in); break;
        case PL_GRU: gru_backward(net, l, in, sample->steps, d); break;
        default:
            for (uint32_t c = 0; d_in && c < l->channels_out; c++)
                for (uint32_t t = 0; t < l->length_out; t++) d_in[largest(l, in, c, t)] += d[c * l->length_out + t];
        }
        next = d;
        d = d_in;
    }
}

void pl_chain_clear(pl_chain *net) { pl_fill(net->gradient, 0, net->count * sizeof(pl_real)); }

pl_real pl_chain_add(pl_chain *net, const pl_sample *sample, pl_real share)
{
    const pl_real *p = pl_chain_logits(net);
    forward(net, sample);
    pl_real top = p[0], sum = 0, *d = net->delta[0];
    for (uint32_t j = 1; j < net->classes; j++) top = p[j] > top ? p[j] : top;
    for (uint32_t j = 0; j < net->classes; j++) sum += d[j] = pl_exp(p[j] - top);
    pl_real loss = (top - p[sample->label] + pl_log(sum)) * share;
    for (uint32_t j = 0; j < net->classes; j++) d[j] = (d[j] / sum - (pl_real)(j == sample->label)) * share;
    backward(net, sample);
    return loss;
}

/* The tensor that a weight is of, from the first one on that may be. */
static uint32_t tensor_of(const pl_chain *net, uint32_t i)
{
    uint32_t k = 0;
    while (k + 1 < net->depth && i >= net->links[k + 1].w) k++;
    const pl_link *l = &net->links[k];
    uint32_t N = l->channels_out;
    if (l->kind == PL_GRU) return l->tensor + (uint32_t)(i >= l->w + 3u * N * l->channels) + (i >= l->b) + (i >= l->b + 3u * N);
    return l->tensor + (uint32_t)(i >= l->b);
}

void pl_chain_descend(pl_chain *net, const pl_recipe *recipe, uint64_t key)
{
    pl_real *g = net->gradient, *v = net->velocity, total = 0, by = 1;
    for (uint32_t i = recipe->first; recipe->clip > 0 && i < recipe->last;) {
        pl_real some = 0; /* in short pieces: float32 loses less */
        for (uint32_t end = i + 16 < recipe->last ? i + 16 : recipe->last; i < end; i++) some += g[i] * g[i];
        total += some;
    }
    if (recipe->clip > 0 && pl_sqrt(total) > recipe->clip) by = recipe->clip / pl_sqrt(total);
    for (uint32_t i = recipe->first; i < recipe->last; i++) {
        uint32_t tensor = net->small ? tensor_of(net, i) : 0;
        pl_real slope = g[i] * by, w = weight(net, tensor, i);
        if (net->pull) slope += recipe->mu * w + net->pull[i];
        if (recipe->momentum != 0 && v) slope = v[i] = recipe->momentum * v[i] + slope;
        if (net->small)
            net->small[i] = rounded_at_random((w - recipe->lr * slope) / net->scales[tensor], pl_uniform(key, i));
        else
            net->weights[i] = w - recipe->lr * slope;
    }
}

pl_real pl_chain_weight(const pl_chain *net, uint32_t i) { return weight(net, net->small ? tensor_of(net, i) : 0, i); }
const pl_real *pl_chain_logits(const pl_chain *net) { return net->values + net->links[net->depth - 1].at; }

uint32_t pl_chain_classify(pl_chain *net, const pl_sample *sample)
{
    const pl_real *logits = pl_chain_logits(net);
    uint32_t best = 0;
    forward(net, sample);
    for (uint32_t j = 1; j < net->classes; j++)
        if (logits[j] > logits[best]) best = j;
    return best;
}
