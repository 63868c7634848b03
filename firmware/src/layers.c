/* The layout of a chain of layers, its forward and backward pass, and one step of descent. */
#include "pl_layers.h"

typedef struct {
    uint8_t *base;
    size_t used;
} arena;

static void *piece(arena *from, size_t count)
{
    void *at = from->base ? from->base + from->used : 0;
    from->used += (count * sizeof(pl_real) + 7u) & ~(size_t)7u;
    return at;
}

static uint32_t weights_of(const pl_link *l)
{
    uint32_t in = l->channels, out = l->channels_out;
    if (l->kind == PL_DENSE) return (uint32_t)l->length * in * out + out;
    if (l->kind == PL_CONV) return in * out * l->kernel + out;
    return l->kind == PL_GRU ? 3u * out * (in + out + 2u) : 0;
}

/* Reads one layer behind another; 0 for one that cannot be. */
static int joined(pl_link *l, const uint8_t *from, const pl_link *before)
{
    uint16_t out;
    pl_copy(&out, from + 4, 2);
    l->kind = from[0] & 15u;
    l->act = from[0] >> 4;
    l->kernel = from[1];
    l->stride = from[2];
    l->pad = from[3];
    if (before) {
        l->length = before->length_out;
        l->channels = before->channels_out;
        l->by_time = 1;
        l->by_channel = l->length;
    }
    if (l->act > PL_TANH) return 0;
    if (l->kind == PL_DENSE || l->kind == PL_GRU) {
        if (out == 0 || out > PL_MAX_UNITS || (l->kind == PL_GRU && (before || l->act))) return 0;
        l->length_out = 1;
        l->channels_out = out;
        return 1;
    }
    if (l->kernel == 0 || l->stride == 0 || l->pad >= l->kernel) return 0;
    int32_t room = (int32_t)l->length + 2 * l->pad - l->kernel;
    if (room < 0 || (l->kind != PL_CONV && l->kind != PL_POOL)) return 0;
    if (l->kind == PL_CONV ? out == 0 || out > PL_MAX_UNITS : l->pad != 0) return 0;
    l->length_out = (uint16_t)(room / l->stride + 1);
    l->channels_out = l->kind == PL_CONV ? out : l->channels;
    return 1;
}

static size_t plan(pl_chain *net, const uint8_t *links, uint16_t steps, uint16_t inputs, uint16_t classes, uint8_t extras,
                   void *memory)
{
    arena from = {memory, 0};
    uint32_t at = 0, widest = 0, hidden = 0;
    pl_fill(net, 0, sizeof *net);
    if (steps == 0 || steps > PL_MAX_STEPS || inputs == 0 || inputs > PL_MAX_UNITS || classes < 2) return 0;
    net->inputs = (uint32_t)steps * inputs;
    net->classes = classes;
    for (; net->depth < PL_MAX_LINKS && links[net->depth * PL_LINK_BYTES]; net->depth++) {
        pl_link *l = &net->links[net->depth];
        *l = (pl_link){.length = steps, .channels = inputs, .by_time = inputs, .by_channel = 1};
        if (!joined(l, links + net->depth * PL_LINK_BYTES, net->depth ? l - 1 : 0)) return 0;
        uint32_t all = weights_of(l), biases = l->kind == PL_GRU ? 6u * l->channels_out : l->kind == PL_POOL ? 0 : l->channels_out;
        l->w = net->count;
        l->b = net->count + all - biases;
        net->count += all;
        l->at = at;
        l->n = (uint32_t)l->length_out * l->channels_out;
        at += l->n;
        widest = l->n > widest ? l->n : widest;
        if (l->kind == PL_GRU) hidden = l->channels_out;
        if (at > PL_MAX_VALUES || net->count > PL_MAX_VALUES) return 0;
    }
    if (net->depth == 0 || net->links[net->depth - 1].kind != PL_DENSE || net->links[net->depth - 1].n != classes) return 0;
    net->weights = piece(&from, net->count);
    net->gradient = piece(&from, net->count);
    net->velocity = extras & PL_VELOCITY ? piece(&from, net->count) : 0;
    net->anchor = extras & PL_ANCHOR ? piece(&from, net->count) : 0;
    net->values = piece(&from, at);
    net->delta[0] = piece(&from, widest);
    net->delta[1] = piece(&from, widest);
    net->states = piece(&from, hidden ? (steps + 1u) * hidden : 0);
    net->gates = piece(&from, 8u * hidden);
    return net->used = from.used;
}

size_t pl_chain_needed(const uint8_t *links, uint16_t steps, uint16_t inputs, uint16_t classes, uint8_t extras)
{
    pl_chain net;
    return plan(&net, links, steps, inputs, classes, extras, 0);
}

pl_status pl_chain_init(pl_chain *net, const uint8_t *links, uint16_t steps, uint16_t inputs, uint16_t classes,
                        uint8_t extras, void *memory, size_t bytes)
{
    size_t needed = plan(net, links, steps, inputs, classes, extras, 0);
    if (needed == 0) return PL_BAD_SHAPE;
    if (needed > bytes) return PL_NO_ROOM;
    plan(net, links, steps, inputs, classes, extras, memory);
    pl_fill(memory, 0, needed);
    return PL_OK;
}

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

static void conv_forward(const pl_chain *net, const pl_link *l, const pl_real *in, pl_real *out)
{
    for (uint32_t o = 0; o < l->channels_out; o++) {
        const pl_real *w = net->weights + l->w + o * l->channels * l->kernel;
        rest(net);
        for (uint32_t t = 0, first, from; t < l->length_out; t++) {
            uint32_t n = window(l, t, &first, &from);
            pl_real sum = net->weights[l->b + o];
            for (uint32_t i = 0; i < l->channels; i++) {
                const pl_real *x = in + first * l->by_time + i * l->by_channel, *k = w + i * l->kernel + from;
                for (uint32_t j = 0; j < n; j++) sum += k[j] * x[j * l->by_time];
            }
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
                for (uint32_t j = 0; d_in && j < n; j++) d_in[x + j * l->by_time] += d * net->weights[k + j];
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

static void dense_forward(const pl_chain *net, const pl_link *l, const pl_real *in, pl_real *out)
{
    uint32_t n = (uint32_t)l->length * l->channels;
    for (uint32_t o = 0; o < l->channels_out; o++) {
        const pl_real *w = net->weights + l->w + o * n;
        pl_real sum = net->weights[l->b + o];
        for (uint32_t i = 0; i < n; i++) sum += w[i] * in[i];
        out[o] = sum;
    }
    rest(net);
}

static void dense_backward(pl_chain *net, const pl_link *l, const pl_real *in, const pl_real *d_out, pl_real *d_in)
{
    uint32_t n = (uint32_t)l->length * l->channels;
    for (uint32_t o = 0; o < l->channels_out; o++) {
        uint32_t w = l->w + o * n;
        pl_real d = d_out[o];
        net->gradient[l->b + o] += d;
        for (uint32_t i = 0; d != 0 && i < n; i++) net->gradient[w + i] += d * in[i];
        for (uint32_t i = 0; d_in && d != 0 && i < n; i++) d_in[i] += d * net->weights[w + i];
    }
    rest(net);
}

/* One step of a GRU: r, z, n and q = W_hn h + b_hn in rows of N; the new state may take the old one's place. */
static void gru_step(const pl_chain *net, const pl_link *l, const pl_real *x, const pl_real *h, pl_real *next)
{
    uint32_t I = l->channels, N = l->channels_out;
    const pl_real *wi = net->weights + l->w, *wh = wi + 3u * N * I, *bi = net->weights + l->b, *bh = bi + 3u * N;
    pl_real *r = net->gates, *z = r + N, *n = z + N, *q = n + N;
    for (uint32_t j = 0; j < 3u * N; j++) {
        pl_real in = bi[j], own = bh[j];
        for (uint32_t i = 0; i < I; i++) in += wi[j * I + i] * x[i];
        for (uint32_t i = 0; i < N; i++) own += wh[j * N + i] * h[i];
        if (j < 2u * N) {
            r[j] = (pl_real)0.5 + (pl_real)0.5 * pl_tanh((pl_real)0.5 * (in + own));
        } else {
            q[j - 2u * N] = own;
            n[j - 2u * N] = pl_tanh(in + r[j - 2u * N] * own);
        }
    }
    for (uint32_t j = 0; j < N; j++) next[j] = ((pl_real)1 - z[j]) * n[j] + z[j] * h[j];
    rest(net);
}

static void gru_forward(const pl_chain *net, const pl_link *l, const pl_real *x, uint32_t steps, pl_real *out)
{
    uint32_t N = l->channels_out;
    pl_fill(net->states, 0, N * sizeof(pl_real));
    for (uint32_t t = 0; t < steps; t++)
        gru_step(net, l, x + t * l->channels, net->states + t * N, net->states + (t + 1u) * N);
    pl_copy(out, net->states + steps * N, N * sizeof(pl_real));
}

/* Back through time: `dh` is the adjoint of the last state, and work space. A step's gates are computed again. */
static void gru_backward(pl_chain *net, const pl_link *l, const pl_real *x, uint32_t steps, pl_real *dh)
{
    uint32_t I = l->channels, N = l->channels_out, wi = l->w, wh = wi + 3u * N * I, bi = l->b, bh = bi + 3u * N;
    pl_real *r = net->gates, *z = r + N, *n = z + N, *q = n + N, *before = q + N, *scratch = before + N;
    for (uint32_t t = steps; t-- > 0;) {
        const pl_real *h = net->states + t * N, *in = x + t * I;
        gru_step(net, l, in, h, scratch);
        for (uint32_t j = 0; j < N; j++) before[j] = dh[j] * z[j];
        for (uint32_t j = 0; j < N; j++) {
            pl_real dn = dh[j] * ((pl_real)1 - z[j]) * ((pl_real)1 - n[j] * n[j]);
            pl_real dz = dh[j] * (h[j] - n[j]) * z[j] * ((pl_real)1 - z[j]), dr = dn * q[j] * r[j] * ((pl_real)1 - r[j]);
            const pl_real d_in[3] = {dr, dz, dn}, d_own[3] = {dr, dz, dn * r[j]};
            for (uint32_t g = 0; g < 3; g++) {
                uint32_t row = g * N + j;
                net->gradient[bi + row] += d_in[g];
                net->gradient[bh + row] += d_own[g];
                for (uint32_t i = 0; i < I; i++) net->gradient[wi + row * I + i] += d_in[g] * in[i];
                for (uint32_t i = 0; i < N; i++) {
                    net->gradient[wh + row * N + i] += d_own[g] * h[i];
                    before[i] += d_own[g] * net->weights[wh + row * N + i];
                }
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

pl_real pl_chain_gradient(pl_chain *net, const pl_batch *batch)
{
    pl_real loss = 0, share = (pl_real)1 / (pl_real)batch->count;
    pl_fill(net->gradient, 0, net->count * sizeof(pl_real));
    for (uint32_t k = 0; k < batch->count; k++) {
        pl_sample sample = batch->get(batch->context, k);
        const pl_real *p = pl_chain_logits(net);
        forward(net, &sample);
        pl_real top = p[0], sum = 0, *d = net->delta[0];
        for (uint32_t j = 1; j < net->classes; j++) top = p[j] > top ? p[j] : top;
        for (uint32_t j = 0; j < net->classes; j++) sum += d[j] = pl_exp(p[j] - top);
        loss += (top - p[sample.label] + pl_log(sum)) * share;
        for (uint32_t j = 0; j < net->classes; j++) d[j] = (d[j] / sum - (pl_real)(j == sample.label)) * share;
        backward(net, &sample);
    }
    return loss;
}

void pl_chain_descend(pl_chain *net, const pl_recipe *recipe)
{
    pl_real *w = net->weights, *g = net->gradient, *v = net->velocity, total = 0, by = 1;
    for (uint32_t i = recipe->first; recipe->clip > 0 && i < recipe->last;) {
        pl_real some = 0; /* in short pieces: float32 loses less */
        for (uint32_t end = i + 16 < recipe->last ? i + 16 : recipe->last; i < end; i++) some += g[i] * g[i];
        total += some;
    }
    if (recipe->clip > 0 && pl_sqrt(total) > recipe->clip) by = recipe->clip / pl_sqrt(total);
    for (uint32_t i = recipe->first; i < recipe->last; i++) {
        pl_real slope = g[i] * by;
        if (recipe->mu != 0 && net->anchor) slope += recipe->mu * (w[i] - net->anchor[i]);
        if (recipe->momentum != 0 && v) slope = v[i] = recipe->momentum * v[i] + slope;
        w[i] -= recipe->lr * slope;
    }
}

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
