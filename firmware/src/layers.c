/* The forward and backward pass of a chain of layers, and one step of descent. Convolutions and GRUs have files of their own. */
#include "layers_rows.h"

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
        if (d_in && d != 0) add_row(net, d_in, d, l->tensor, w, n);
    }
    rest(net);
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
        case PL_CONV: pl_conv_forward(net, l, in, out); break;
        case PL_GRU: pl_gru_forward(net, l, in, sample->steps, out); break;
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
        case PL_CONV: pl_conv_backward(net, l, in, d, d_in); break;
        case PL_GRU: pl_gru_backward(net, l, in, sample->steps, d); break;
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
