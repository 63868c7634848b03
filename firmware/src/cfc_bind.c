/* fBind's local terms, exactly: the gradient of ld R_d + lm R_m + la R_a over f, by forward-over-reverse.
   methods/parts/bind.py is the same in PyTorch; its names are used here.

   R_d and R_m depend on the weights through q = dl/dV alone, so their gradient is the derivative of grad_f l along
   u = ld dR_d/dq + lm dR_m/dq put in V's place. A tangent, marked _t, is carried beside every value: first along the
   series, then back. The adjoint's tangent is a linear stream, so R_a's own adjoint, one constant at the output of the
   unit that matters, is simply added to it. All of it goes straight into the gradient of f, which needs no buffer. */
#include "cfc_inside.h"
#include "kernels.h"

#define SMALLEST ((pl_real)1e-12) /* a shorter gradient has no direction */

pl_real pl_direction(pl_net *net, const pl_terms *terms, pl_real cum)
{
    const pl_real *q = net->gradient + net->last[PL_F].w, *c = net->cud;
    uint32_t D = net->vector;
    pl_real norm = pl_sqrt(product_sum(q, q, D)), length = pl_sqrt(product_sum(c, c, D));
    pl_real of_c = 0, of_q = 0;
    if (norm >= SMALLEST) {
        if (length > 0) { /* dR_d/dq = -(c^ - cos q^) / |q| */
            of_c = -terms->lambda_d / (norm * length);
            of_q = terms->lambda_d * (product_sum(q, c, D) / (norm * length)) / (norm * norm);
        }
        if (cum >= 0 && norm > cum) of_q += terms->lambda_m / norm; /* dR_m/dq = q^ */
    }
    for (uint32_t i = 0; i < D; i++) net->direction[i] = of_c * c[i] + of_q * q[i];
    return norm;
}

/* The least active of f's layers, by its most active unit; `where` counts units layer after layer. */
pl_real pl_least_active(pl_net *net, const pl_batch *batch, uint32_t *where)
{
    uint32_t widths[2] = {net->shape.head, net->shape.hidden}, at = 0, steps = 0;
    pl_real least = 0;
    for (uint32_t k = 0; k < batch->count; k++) steps += batch->get(batch->context, k).steps;
    for (unsigned layer = net->shape.layers[PL_F] == 2 ? 0 : 1; layer < 2; at += widths[layer++]) {
        uint32_t best = at;
        for (uint32_t j = at; j < at + widths[layer]; j++)
            if (net->activity[j] > net->activity[best]) best = j;
        pl_real top = net->activity[best] / (pl_real)steps;
        if (at == 0 || top < least) {
            least = top;
            *where = best;
        }
    }
    return least;
}

/* y = b + W in and y_t = W in_t, where in_t is 0 before column `from` */
static void dense_forward_t(pl_net *net, const pl_dense *layer, const pl_real *in, const pl_real *in_t, pl_real *y, pl_real *y_t,
                            uint32_t from)
{
    pl_biases_of(net, layer, y);
    pl_fill(y_t, 0, layer->n_out * sizeof(pl_real));
    for (uint32_t r = 0, n; r < layer->n_out; r += n) {
        const pl_real *w = pl_rows_of(net, layer, r, &n);
        mv(y + r, w, layer->n_in, in, n, from);
        mv2(y + r, y_t + r, w + from, layer->n_in, in + from, in_t + from, n, layer->n_in - from);
    }
}

static void step_forward_t(pl_net *net, pl_real *record, pl_real *record_t, pl_real tau)
{
    breathe(net);
    const pl_record *at = &net->at;
    pl_real *z = record + at->z, *z_t = record_t + at->z;
    const uint16_t outputs[PL_HEADS] = {at->s, at->g, at->h};
    uint32_t N = net->shape.hidden, M = net->shape.head;

    dense_forward_t(net, &net->backbone, record + at->c, record_t + at->c, z, z_t, net->shape.inputs);
    lecun(z, net->shape.backbone);
    for (uint32_t j = 0; j < net->shape.backbone; j++) z_t[j] *= lecun_slope(z[j]);
    for (unsigned i = 0; i < PL_HEADS; i++) {
        pl_real *u = record + at->u[i], *u_t = record_t + at->u[i];
        if (net->shape.layers[i] == 2) {
            dense_forward_t(net, &net->first[i], z, z_t, u, u_t, 0);
            lecun(u, M);
            for (uint32_t j = 0; j < M; j++) u_t[j] *= lecun_slope(u[j]);
        }
        dense_forward_t(net, &net->last[i], u, u_t, record + outputs[i], record_t + outputs[i], 0);
        if (i == PL_F) mv(record_t + at->s, net->direction, net->last[i].n_in, u, N, net->last[i].n_in); /* + u of V */
    }
    pl_real *s = record + at->s, *G = record + at->g, *H = record + at->h;
    pl_real *s_t = record_t + at->s, *G_t = record_t + at->g, *H_t = record_t + at->h;
    gate(s, N, tau);
    pl_squash(G, N, (pl_real)1, (pl_real)1);
    pl_squash(H, N, (pl_real)1, (pl_real)1);
    for (uint32_t j = 0; j < N; j++) {
        s_t[j] *= -tau * (s[j] * ((pl_real)1 - s[j]));
        G_t[j] *= (pl_real)1 - G[j] * G[j];
        H_t[j] *= (pl_real)1 - H[j] * H[j];
    }
}

static void advance_t(const pl_net *net, const pl_real *record, const pl_real *record_t, pl_real *x, pl_real *x_t)
{
    const pl_real *s = record + net->at.s, *G = record + net->at.g, *H = record + net->at.h;
    const pl_real *s_t = record_t + net->at.s, *G_t = record_t + net->at.g, *H_t = record_t + net->at.h;
    for (uint32_t j = 0; j < net->shape.hidden; j++) {
        pl_real other = net->shape.gated ? H[j] : (pl_real)0, share = net->shape.gated ? (pl_real)1 - s[j] : (pl_real)1;
        x_t[j] = s_t[j] * (G[j] - other) + s[j] * G_t[j] + share * H_t[j];
    }
    pl_advance(net, record, x);
}

/* Runs the steps begin..end-1 with tangents from the state in the first records, keeping what the way back needs. */
static void run_t(pl_net *net, const pl_sample *sample, uint32_t begin, uint32_t end, int again)
{
    pl_real *record = net->records, *record_t = record + net->at.size;
    uint32_t I = net->shape.inputs;
    for (uint32_t t = begin; t < end; t++) {
        if (!again && keeps_starts(net) && t % net->segment == 0)
            pl_keep_start(net, t / net->segment, record + I, record_t + I);
        if (again) pl_keep_inside(net, t - begin, record, record_t);
        if (again && t + 1 == end) return;
        put_input(net, sample, t, record);
        step_forward_t(net, record, record_t, span_of(net, sample, t));
        if (!again && keeps_inside(net)) pl_keep_inside(net, t % net->segment, record, record_t);
        advance_t(net, record, record_t, record + I, record_t + I);
    }
}

/* d += W^T delta and d_t += W^T delta_t for the columns from `from` on; pair: delta_t, delta */
static void dense_backward_t(pl_net *net, const pl_dense *layer, const pl_real *pair, pl_real *d, pl_real *d_t, uint32_t from)
{
    for (uint32_t r = 0, n; r < layer->n_out; r += n) {
        const pl_real *w = pl_rows_of(net, layer, r, &n);
        tv2(d, d_t, w + from, layer->n_in, pair + r * PL_SLOTS, n, layer->n_in - from);
    }
}

static void put_pair(pl_real *pair, uint32_t j, pl_real delta_t, pl_real delta)
{
    pair[j * PL_SLOTS] = delta_t;
    pair[j * PL_SLOTS + 1] = delta;
}

/* One step back with tangents. R_a's adjoint `push` enters at the unit `where` of f's outputs. */
static void step_backward_t(pl_net *net, const pl_real *record, const pl_real *record_t, uint32_t slot, pl_real tau, pl_real push,
                            uint32_t where)
{
    const pl_record *at = &net->at;
    const pl_real *z = record + at->z, *s = record + at->s, *G = record + at->g, *H = record + at->h;
    const pl_real *z_t = record_t + at->z, *s_t = record_t + at->s, *G_t = record_t + at->g, *H_t = record_t + at->h;
    uint32_t N = net->shape.hidden, B = net->shape.backbone, M = net->shape.head;
    uint32_t before = net->shape.layers[PL_F] == 2 ? M : 0; /* units of f's first layer */
    pl_real *heads[PL_HEADS];

    for (unsigned i = 0; i < PL_HEADS; i++) heads[i] = net->delta + net->last[i].delta * PL_SLOTS + slot;
    for (uint32_t j = 0; j < N; j++) {
        pl_real dx = net->dx[j], dx_t = net->dx_t[j];
        pl_real edge = G[j] - (net->shape.gated ? H[j] : (pl_real)0), edge_t = G_t[j] - (net->shape.gated ? H_t[j] : (pl_real)0);
        pl_real ds = dx * edge, ds_t = dx_t * edge + dx * edge_t;
        pl_real slope = s[j] * ((pl_real)1 - s[j]), slope_t = s_t[j] * ((pl_real)1 - (pl_real)2 * s[j]);
        pl_real dG = dx * s[j], dG_t = dx_t * s[j] + dx * s_t[j];
        pl_real dH = dx, dH_t = dx_t;
        if (net->shape.gated) {
            dH = dx * ((pl_real)1 - s[j]);
            dH_t = dx_t * ((pl_real)1 - s[j]) - dx * s_t[j];
        }
        pl_real dF_t = -tau * (ds_t * slope + ds * slope_t) + (where == before + j ? push : (pl_real)0);
        put_pair(heads[PL_F], j, dF_t, -tau * ds * slope);
        pl_real sg = (pl_real)1 - G[j] * G[j], sh = (pl_real)1 - H[j] * H[j];
        put_pair(heads[PL_G], j, dG_t * sg + dG * ((pl_real)-2 * G[j]) * G_t[j], dG * sg);
        put_pair(heads[PL_H], j, dH_t * sh + dH * ((pl_real)-2 * H[j]) * H_t[j], dH * sh);
    }
    pl_fill(net->dz, 0, B * sizeof(pl_real));
    pl_fill(net->dz_t, 0, B * sizeof(pl_real));
    for (unsigned i = 0; i < PL_HEADS; i++) {
        int two = net->shape.layers[i] == 2;
        pl_real *d = two ? net->du : net->dz, *d_t = two ? net->du_t : net->dz_t;
        if (two) {
            pl_fill(d, 0, M * sizeof(pl_real));
            pl_fill(d_t, 0, M * sizeof(pl_real));
        }
        dense_backward_t(net, &net->last[i], heads[i], d, d_t, 0);
        if (i == PL_F) tv(d_t, net->direction, net->last[i].n_in, heads[i] + 1, N, net->last[i].n_in);
        if (!two) continue;
        const pl_real *u = record + at->u[i], *u_t = record_t + at->u[i];
        pl_real *pair = net->delta + net->first[i].delta * PL_SLOTS + slot;
        if (i == PL_F && where < before) d_t[where] += push;
        for (uint32_t j = 0; j < M; j++) {
            pl_real slope = lecun_slope(u[j]);
            put_pair(pair, j, d_t[j] * slope + d[j] * lecun_bend(u[j]) * u_t[j], d[j] * slope);
        }
        dense_backward_t(net, &net->first[i], pair, net->dz, net->dz_t, 0);
    }
    pl_real *pair = net->delta + net->backbone.delta * PL_SLOTS + slot;
    for (uint32_t j = 0; j < B; j++) {
        pl_real slope = lecun_slope(z[j]);
        put_pair(pair, j, net->dz_t[j] * slope + net->dz[j] * lecun_bend(z[j]) * z_t[j], net->dz[j] * slope);
    }
    pl_fill(net->dx, 0, N * sizeof(pl_real));
    pl_fill(net->dx_t, 0, N * sizeof(pl_real));
    dense_backward_t(net, &net->backbone, pair, net->dx, net->dx_t, net->shape.inputs);
}

/* (dW)_t += delta_t in^T + delta in_t^T: the records of a step and of its tangents lie in the slots of that pair. */
static void fold_t(pl_net *net, const pl_dense *layer, uint32_t in, uint32_t slots)
{
    const pl_real *delta = net->delta + layer->delta * PL_SLOTS, *ins[PL_SLOTS];
    for (uint32_t k = 0; k < PL_SLOTS; k++) ins[k] = net->records + k * net->at.size + in;
    outer(net->gradient + layer->w, delta, ins, slots, layer->n_out, layer->n_in);
    for (uint32_t r = 0; r < layer->n_out; r++)
        for (uint32_t k = 0; k < slots; k += 2) net->gradient[layer->b + r] += delta[r * PL_SLOTS + k];
}

/* What the slots hold, added to f's gradient. */
static void fold_f(pl_net *net, uint32_t slots)
{
    if (net->shape.layers[PL_F] == 2) fold_t(net, &net->first[PL_F], net->at.z, slots);
    fold_t(net, &net->last[PL_F], net->at.u[PL_F], slots);
}

/* Back through a segment of at most four steps, two at a time: a step and its tangents take two records. */
static void four_backward_t(pl_net *net, const pl_sample *sample, uint32_t segment, uint32_t begin, uint32_t end, pl_real push,
                            uint32_t where)
{
    uint32_t I = net->shape.inputs, size = net->at.size;
    for (uint32_t first = end - begin > 2 ? begin + 2 : begin, n;; end = first, first = begin) {
        n = end - first;
        pl_real *record = net->records + 2 * (n - 1) * size;
        pl_find_start(net, segment, record + I, record + size + I);
        for (uint32_t t = begin;;) {
            put_input(net, sample, t, record);
            step_forward_t(net, record, record + size, span_of(net, sample, t));
            if (++t == end) break;
            pl_real *next = t > first ? record - 2 * size : record; /* steps before the first one need no record */
            advance_t(net, record, record + size, next + I, next + size + I);
            record = next;
        }
        for (uint32_t k = 0; k < n; k++, record += 2 * size)
            step_backward_t(net, record, record + size, 2 * k, span_of(net, sample, end - 1 - k), push, where);
        fold_f(net, 2 * n);
        if (first == begin) return;
    }
}

/* Back through a series whose net->dx and net->dx_t are set. */
static void series_backward_t(pl_net *net, const pl_sample *sample, pl_real push, uint32_t where)
{
    uint32_t I = net->shape.inputs, last = (sample->steps - 1u) / net->segment;
    for (uint32_t segment = last + 1; segment-- > 0;) {
        uint32_t begin = segment * net->segment, end = begin + net->segment, slot = 0;
        if (end > sample->steps) end = sample->steps;
        if (!keeps_inside(net)) {
            four_backward_t(net, sample, segment, begin, end, push, where);
            continue;
        }
        if (segment != last) {
            pl_find_start(net, segment, net->records + I, net->records + net->at.size + I);
            run_t(net, sample, begin, end, 1);
        }
        for (uint32_t t = end; t-- > begin;) {
            pl_real *record = net->records + slot * net->at.size, *record_t = record + net->at.size;
            pl_real tau = span_of(net, sample, t);
            put_input(net, sample, t, record);
            pl_find_inside(net, t - begin, record, record_t);
            if (net->shape.keep != PL_KEEP_ALL) step_forward_t(net, record, record_t, tau);
            step_backward_t(net, record, record_t, slot, tau, push, where);
            slot += 2;
            if (slot == PL_SLOTS || t == begin) {
                fold_f(net, slot);
                slot = 0;
            }
        }
    }
}

/* Adjoint of the last state and its tangent, from the readout: p - onehot, and p (l_t - sum p l_t). */
static void readout_t(pl_net *net, const pl_sample *sample, pl_real share)
{
    const pl_shape *s = &net->shape;
    const pl_real *x = net->records + s->inputs, *x_t = x + net->at.size;
    pl_real *pair = net->delta + net->out.delta * PL_SLOTS, *l_t = net->logits_t, mean = 0;
    pl_read_out(net, x, sample->label);
    pl_fill(l_t, 0, s->classes * sizeof(pl_real));
    for (uint32_t r = 0, n; r < s->classes; r += n) {
        const pl_real *w = pl_rows_of(net, &net->out, r, &n);
        mv(l_t + r, w, s->hidden, x_t, n, s->hidden);
    }
    for (uint32_t j = 0; j < s->classes; j++) mean += net->logits[j] * l_t[j];
    for (uint32_t j = 0; j < s->classes; j++)
        put_pair(pair, j, net->logits[j] * (l_t[j] - mean) * share, (net->logits[j] - (pl_real)(j == sample->label)) * share);
    pl_fill(net->dx, 0, s->hidden * sizeof(pl_real));
    pl_fill(net->dx_t, 0, s->hidden * sizeof(pl_real));
    dense_backward_t(net, &net->out, pair, net->dx, net->dx_t, 0);
}

/* Adds the gradient of the three terms to that of l, over f. */
void pl_bind(pl_net *net, const pl_terms *terms, const pl_batch *batch, pl_real activity, uint32_t where)
{
    const pl_shape *s = &net->shape;
    uint32_t steps = 0;
    pl_real slope = terms->lambda_a; /* la dR_a/dY: R_a = max(0, v - Y), or Y - v as printed */
    if (terms->ra_form == PL_HINGE) slope = activity < terms->v ? -slope : (pl_real)0;
    for (uint32_t k = 0; k < batch->count; k++) steps += batch->get(batch->context, k).steps;
    pl_real push = slope / (pl_real)steps, share = (pl_real)1 / (pl_real)batch->count;
    for (uint32_t k = 0; k < batch->count; k++) {
        pl_sample sample = batch->get(batch->context, k);
        pl_fill(net->records + s->inputs, 0, s->hidden * sizeof(pl_real));
        pl_fill(net->records + net->at.size + s->inputs, 0, s->hidden * sizeof(pl_real));
        run_t(net, &sample, 0, sample.steps, 0);
        readout_t(net, &sample, share);
        series_backward_t(net, &sample, push, where);
    }
}
