/* A GRU: the gates in PyTorch's order, and back through time. */
#include "layers_rows.h"

/* One step of a GRU: r, z, n and q = W_hn h + b_hn in rows of N; the new state may take the old one's place. */
static void gru_step(const pl_chain *net, const pl_link *l, const pl_real *x, uint32_t t, const pl_real *h, pl_real *next)
{
    uint32_t I = l->channels, N = l->channels_out, wi = l->w, wh = wi + 3u * N * I, bi = l->b, bh = bi + 3u * N;
    pl_real *r = net->gates, *z = r + N, *n = z + N, *q = n + N, *in = net->gates + 6u * N, *own = in + 3u * N;
    for (uint32_t j = 0; j < 3u * N; j++) {
        in[j] = weight(net, l->tensor + 2u, bi + j);
        own[j] = weight(net, l->tensor + 3u, bh + j);
    }
    plus_product(net, in, l->tensor, wi, x, t * I, 3u * N, I);
    if (net->small) { /* the state is within -1..1 */
        for (uint32_t j = 0; j < N; j++)
            net->patch[place_of(j, N)] = (int16_t)(int32_t)(h[j] * (pl_real)127 + (pl_real)(h[j] < 0 ? -0.5f : 0.5f));
        plus_dots(own, net->small + wh, net->patch, 3u * N, N, net->scales[l->tensor + 1] / (pl_real)127);
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

void pl_gru_forward(pl_chain *net, const pl_link *l, const pl_real *x, uint32_t steps, pl_real *out)
{
    uint32_t N = l->channels_out;
    pl_fill(net->states, 0, N * sizeof(pl_real));
    round_inputs(net, x, steps * l->channels);
    for (uint32_t t = 0; t < steps; t++) gru_step(net, l, x, t, net->states + t * N, net->states + (t + 1u) * N);
    pl_copy(out, net->states + steps * N, N * sizeof(pl_real));
}

/* Adds what the slots hold to the gradient: adjoints times the readings and times the states before, the latest step first. */
static void fold(pl_chain *net, const pl_link *l, const pl_real *const *in, const pl_real *const *h, uint32_t slots)
{
    uint32_t I = l->channels, N = l->channels_out, rows = 3u * N;
    const pl_real *d_in = net->adjoints, *d_own = d_in + rows * PL_SLOTS;
    outer(net->gradient + l->w, d_in, in, slots, rows, I);
    outer(net->gradient + l->w + rows * I, d_own, h, slots, rows, N);
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t k = 0; k < slots; k++) {
            net->gradient[l->b + row] += d_in[row * PL_SLOTS + k];
            net->gradient[l->b + rows + row] += d_own[row * PL_SLOTS + k];
        }
}

/* Back through time: `dh` is the adjoint of the last state, and work space. A step's gates are computed again. */
void pl_gru_backward(pl_chain *net, const pl_link *l, const pl_real *x, uint32_t steps, pl_real *dh)
{
    uint32_t I = l->channels, N = l->channels_out, wh = l->w + 3u * N * I, slot = 0;
    pl_real *r = net->gates, *z = r + N, *n = z + N, *q = n + N, *before = q + N, *scratch = before + N;
    const pl_real *ins[PL_SLOTS], *states[PL_SLOTS];
    for (uint32_t t = steps; t-- > 0;) {
        const pl_real *h = net->states + t * N;
        pl_real *d_in = net->adjoints + slot, *d_own = d_in + 3u * N * PL_SLOTS;
        ins[slot] = x + t * I;
        states[slot] = h;
        gru_step(net, l, x, t, h, scratch);
        for (uint32_t j = 0; j < N; j++) {
            pl_real dn = dh[j] * ((pl_real)1 - z[j]) * ((pl_real)1 - n[j] * n[j]);
            pl_real dz = dh[j] * (h[j] - n[j]) * z[j] * ((pl_real)1 - z[j]), dr = dn * q[j] * r[j] * ((pl_real)1 - r[j]);
            const pl_real of_in[3] = {dr, dz, dn}, of_own[3] = {dr, dz, dn * r[j]};
            for (uint32_t g = 0; g < 3; g++) {
                d_in[(g * N + j) * PL_SLOTS] = of_in[g];
                d_own[(g * N + j) * PL_SLOTS] = of_own[g];
            }
            before[j] = dh[j] * z[j];
        }
        plus_transposed(net, before, l->tensor + 1u, wh, d_own, 3u * N, N);
        pl_copy(dh, before, N * sizeof(pl_real));
        if (++slot == PL_SLOTS || t == 0) {
            fold(net, l, ins, states, slot);
            slot = 0;
        }
    }
}
