/* The network forward, and the gradient of the loss backward through time.
   models/cfc.py has the same forward pass; PyTorch's autograd is what the backward pass is compared with. */
#include "cfc_inside.h"
#include "kernels.h"

void pl_squash(pl_real *a, uint32_t n, pl_real in, pl_real out)
{
    for (uint32_t j = 0; j < n; j++) a[j] = out * pl_tanh(in * a[j]);
}

/* y = b + W in */
static void dense_forward(pl_net *net, const pl_dense *layer, const pl_real *in, pl_real *y)
{
    pl_biases_of(net, layer, y);
    for (uint32_t r = 0, n; r < layer->n_out; r += n) {
        const pl_real *w = pl_rows_of(net, layer, r, &n);
        mv(y + r, w, layer->n_in, in, n, layer->n_in);
    }
}

/* d += W^T delta for the columns from `from` on */
static void dense_backward(pl_net *net, const pl_dense *layer, const pl_real *delta, pl_real *d, uint32_t from)
{
    for (uint32_t r = 0, n; r < layer->n_out; r += n) {
        const pl_real *w = pl_rows_of(net, layer, r, &n);
        tv(d, w + from, layer->n_in, delta + r * PL_SLOTS, n, layer->n_in - from);
    }
}

void pl_step_forward(pl_net *net, pl_real *record, pl_real tau, pl_real *activity)
{
    breathe(net);
    const pl_record *at = &net->at;
    pl_real *z = record + at->z, *s = record + at->s, *outputs[PL_HEADS] = {s, record + at->g, record + at->h};
    uint32_t N = net->shape.hidden, B = net->shape.backbone, M = net->shape.head;

    dense_forward(net, &net->backbone, record + at->c, z);
    lecun(z, B);
    for (unsigned i = 0; i < PL_HEADS; i++) {
        pl_real *u = record + at->u[i];
        if (net->shape.layers[i] == 2) {
            dense_forward(net, &net->first[i], z, u);
            lecun(u, M);
            if (i == PL_F && activity)
                for (uint32_t j = 0; j < M; j++) *activity++ += u[j];
        }
        dense_forward(net, &net->last[i], u, outputs[i]);
    }
    for (uint32_t j = 0; activity && j < N; j++) activity[j] += s[j]; /* F, until it is the gate */
    gate(s, N, tau);
    pl_squash(outputs[PL_G], N, (pl_real)1, (pl_real)1);
    pl_squash(outputs[PL_H], N, (pl_real)1, (pl_real)1);
}

void pl_advance(const pl_net *net, const pl_real *record, pl_real *x)
{
    const pl_real *s = record + net->at.s, *G = record + net->at.g, *H = record + net->at.h;
    for (uint32_t j = 0; j < net->shape.hidden; j++)
        x[j] = net->shape.gated ? s[j] * G[j] + ((pl_real)1 - s[j]) * H[j] : s[j] * G[j] + H[j];
}

/* Runs a whole series; the last state is left in the first record. Keeps what the way back needs, if it will be gone. */
static void series_forward(pl_net *net, const pl_sample *sample, pl_real *activity, int back)
{
    pl_real *record = net->records, *x = record + net->shape.inputs;
    pl_fill(x, 0, net->shape.hidden * sizeof(pl_real));
    for (uint32_t t = 0; t < sample->steps; t++) {
        if (back && keeps_starts(net) && t % net->segment == 0) pl_keep_start(net, t / net->segment, x, 0);
        put_input(net, sample, t, record);
        pl_step_forward(net, record, span_of(net, sample, t), activity);
        if (back && keeps_inside(net)) pl_keep_inside(net, t % net->segment, record, 0);
        pl_advance(net, record, x);
    }
}

pl_real pl_read_out(pl_net *net, const pl_real *x, uint32_t label)
{
    pl_real *p = net->logits, top, sum = 0, loss;
    uint32_t C = net->shape.classes;
    dense_forward(net, &net->out, x, p);
    top = p[0];
    for (uint32_t j = 1; j < C; j++) top = p[j] > top ? p[j] : top;
    loss = top - p[label];
    for (uint32_t j = 0; j < C; j++) sum += p[j] = pl_exp(p[j] - top);
    for (uint32_t j = 0; j < C; j++) p[j] /= sum;
    return loss + pl_log(sum);
}

uint32_t pl_classify(pl_net *net, const pl_sample *sample)
{
    uint32_t best = 0;
    series_forward(net, sample, 0, 0);
    pl_read_out(net, net->records + net->shape.inputs, 0);
    for (uint32_t j = 1; j < net->shape.classes; j++)
        if (net->logits[j] > net->logits[best]) best = j;
    return best;
}

/* One step back: net->dx is the adjoint of the state after it, and becomes that of the state before. The adjoints of
   the layers' arguments are left in the slot, for `fold`. */
static void step_backward(pl_net *net, const pl_real *record, uint32_t slot, pl_real tau)
{
    const pl_record *at = &net->at;
    const pl_real *z = record + at->z, *s = record + at->s, *G = record + at->g, *H = record + at->h;
    uint32_t N = net->shape.hidden, B = net->shape.backbone, M = net->shape.head;
    pl_real *heads[PL_HEADS];

    for (unsigned i = 0; i < PL_HEADS; i++) heads[i] = net->delta + net->last[i].delta * PL_SLOTS + slot;
    for (uint32_t j = 0; j < N; j++) {
        pl_real dx = net->dx[j], other = net->shape.gated ? H[j] : (pl_real)0, share = net->shape.gated ? (pl_real)1 - s[j] : (pl_real)1;
        heads[PL_F][j * PL_SLOTS] = -tau * (dx * (G[j] - other)) * (s[j] * ((pl_real)1 - s[j]));
        heads[PL_G][j * PL_SLOTS] = dx * s[j] * ((pl_real)1 - G[j] * G[j]);
        heads[PL_H][j * PL_SLOTS] = dx * share * ((pl_real)1 - H[j] * H[j]);
    }
    pl_fill(net->dz, 0, B * sizeof(pl_real));
    for (unsigned i = 0; i < PL_HEADS; i++) {
        if (net->shape.layers[i] == 1) {
            dense_backward(net, &net->last[i], heads[i], net->dz, 0);
            continue;
        }
        const pl_real *u = record + at->u[i];
        pl_real *delta = net->delta + net->first[i].delta * PL_SLOTS + slot;
        pl_fill(net->du, 0, M * sizeof(pl_real));
        dense_backward(net, &net->last[i], heads[i], net->du, 0);
        for (uint32_t j = 0; j < M; j++) delta[j * PL_SLOTS] = net->du[j] * lecun_slope(u[j]);
        dense_backward(net, &net->first[i], delta, net->dz, 0);
    }
    pl_real *delta = net->delta + net->backbone.delta * PL_SLOTS + slot;
    for (uint32_t j = 0; j < B; j++) delta[j * PL_SLOTS] = net->dz[j] * lecun_slope(z[j]);
    pl_fill(net->dx, 0, N * sizeof(pl_real));
    dense_backward(net, &net->backbone, delta, net->dx, net->shape.inputs);
}

/* Adds what the slots hold to a layer's gradient: delta in^T and delta, the latest step first. */
static void fold_layer(pl_net *net, const pl_dense *layer, uint32_t in, uint32_t slots)
{
    const pl_real *delta = net->delta + layer->delta * PL_SLOTS, *ins[PL_SLOTS];
    for (uint32_t k = 0; k < PL_SLOTS; k++) ins[k] = net->records + k * net->at.size + in;
    outer(net->gradient + layer->w, delta, ins, slots, layer->n_out, layer->n_in);
    for (uint32_t r = 0; r < layer->n_out; r++)
        for (uint32_t k = 0; k < slots; k++) net->gradient[layer->b + r] += delta[r * PL_SLOTS + k];
}

static void fold(pl_net *net, uint32_t slots)
{
    fold_layer(net, &net->backbone, net->at.c, slots);
    for (unsigned i = 0; i < PL_HEADS; i++) {
        if (net->shape.layers[i] == 2) fold_layer(net, &net->first[i], net->at.z, slots);
        fold_layer(net, &net->last[i], net->at.u[i], slots);
    }
}

/* Runs a segment again from its start, to have its states at hand. */
static void replay(pl_net *net, const pl_sample *sample, uint32_t segment, uint32_t begin, uint32_t end)
{
    pl_real *record = net->records;
    pl_find_start(net, segment, record + net->shape.inputs, 0);
    for (uint32_t t = begin; t < end; t++) {
        pl_keep_inside(net, t - begin, record, 0);
        if (t + 1 == end) break;
        put_input(net, sample, t, record);
        pl_step_forward(net, record, span_of(net, sample, t), 0);
        pl_advance(net, record, record + net->shape.inputs);
    }
}

/* Back through a segment of at most four steps: each is computed once more, in its own slot. */
static void four_backward(pl_net *net, const pl_sample *sample, uint32_t segment, uint32_t begin, uint32_t end)
{
    uint32_t I = net->shape.inputs, n = end - begin;
    pl_real *record = net->records + (n - 1) * net->at.size;
    pl_find_start(net, segment, record + I, 0);
    for (uint32_t t = begin;; record -= net->at.size) { /* the latest step in the first slot */
        put_input(net, sample, t, record);
        pl_step_forward(net, record, span_of(net, sample, t), 0);
        if (++t == end) break;
        pl_advance(net, record, record - net->at.size + I);
    }
    for (uint32_t slot = 0; slot < n; slot++)
        step_backward(net, net->records + slot * net->at.size, slot, span_of(net, sample, end - 1 - slot));
    fold(net, n);
}

static void series_backward(pl_net *net, const pl_sample *sample)
{
    uint32_t last = (sample->steps - 1u) / net->segment;
    for (uint32_t segment = last + 1; segment-- > 0;) {
        uint32_t begin = segment * net->segment, end = begin + net->segment, slot = 0;
        if (end > sample->steps) end = sample->steps;
        if (!keeps_inside(net)) {
            four_backward(net, sample, segment, begin, end);
            continue;
        }
        if (segment != last) replay(net, sample, segment, begin, end);
        for (uint32_t t = end; t-- > begin;) {
            pl_real *record = net->records + slot * net->at.size, tau = span_of(net, sample, t);
            put_input(net, sample, t, record);
            pl_find_inside(net, t - begin, record, 0);
            if (net->shape.keep != PL_KEEP_ALL) pl_step_forward(net, record, tau, 0);
            step_backward(net, record, slot++, tau);
            if (slot == PL_SLOTS || t == begin) {
                fold(net, slot);
                slot = 0;
            }
        }
    }
}

pl_real pl_gradient(pl_net *net, const pl_batch *batch)
{
    const pl_shape *s = &net->shape;
    pl_real loss = 0, share = (pl_real)1 / (pl_real)batch->count;
    pl_fill(net->gradient, 0, net->count * sizeof(pl_real));
    pl_fill(net->activity, 0, ((uint32_t)s->head + s->hidden) * sizeof(pl_real));
    for (uint32_t k = 0; k < batch->count; k++) {
        pl_sample sample = batch->get(batch->context, k);
        series_forward(net, &sample, net->activity, 1);
        loss += pl_read_out(net, net->records + s->inputs, sample.label) * share;
        pl_real *delta = net->delta + net->out.delta * PL_SLOTS;
        for (uint32_t j = 0; j < s->classes; j++)
            delta[j * PL_SLOTS] = (net->logits[j] - (pl_real)(j == sample.label)) * share;
        fold_layer(net, &net->out, s->inputs, 1);
        pl_fill(net->dx, 0, s->hidden * sizeof(pl_real));
        dense_backward(net, &net->out, delta, net->dx, 0);
        series_backward(net, &sample);
    }
    return loss;
}
