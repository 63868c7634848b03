/* What a board shares by changes of a few bits a number: the client of methods/fedbits.py, whose rounding is
   methods/parts/few_bits.py's.

   Beside its weights w the board keeps c, the common weights as the server knows them, and e, what rounding left out.
   SHIFT takes the change that was written: c <- c + change, and w <- c where weights are shared. FIT trains w. TELL says
   how w changed: v = w - c + e, Q(v) is there to be read, e <- v - Q(v). KEEP stores all three; until then the kept ones
   count, and the first SHIFT of a task begins from them. */
#include "pl_client.h"

enum { MOST_ENDS = 4 + 2 * PL_MAX_LINKS, WHOLE = 32, MOST_BITS = 8 };

/* Where all tensors end, in the order of the weights. */
static uint32_t all_ends(const pl_client *client, uint32_t *ends)
{
    const pl_net *net = &client->net;
    uint32_t n = 0;
    for (uint32_t i = 0; client->setup.network && i < client->chain.depth; i++) {
        const pl_link *l = &client->chain.links[i];
        uint32_t three = 3u * l->channels_out;
        if (l->kind == PL_POOL) continue;
        if (l->kind == PL_GRU) ends[n++] = l->b - three * l->channels_out;
        ends[n++] = l->b;
        if (l->kind == PL_GRU) ends[n++] = l->b + three;
        ends[n++] = l->b + (l->kind == PL_GRU ? 2u * three : l->channels_out);
    }
    if (client->setup.network) return n;
    const pl_dense *layers[2 + 2 * PL_HEADS] = {&net->backbone};
    uint32_t depth = 1;
    for (unsigned i = 0; i < PL_HEADS; i++) {
        if (net->shape.layers[i] == 2) layers[depth++] = &net->first[i];
        layers[depth++] = &net->last[i];
    }
    layers[depth++] = &net->out;
    for (uint32_t i = 0; i < depth; i++) {
        ends[n++] = layers[i]->b;
        ends[n++] = layers[i]->b + layers[i]->n_out;
    }
    return n;
}

/* The ends of the tensors between two weights, and their number; 0 where these are not ends themselves. */
static uint32_t ends_between(const pl_client *client, uint32_t first, uint32_t last, uint32_t *ends)
{
    uint32_t all[MOST_ENDS], count = all_ends(client, all), n = 0, at = 0, begins = 0;
    for (uint32_t k = 0; k < count; at = all[k++]) {
        begins |= at == first;
        if (at >= first && all[k] <= last) ends[n++] = all[k];
    }
    return begins && n && ends[n - 1] == last ? n : 0;
}

/* The bytes of a change: a scale for each tensor, then the numbers without a gap; or weights as they are. */
static uint32_t change_bytes(uint32_t tensors, uint32_t numbers, uint32_t bits)
{
    return bits == WHOLE ? 4u * numbers : bits ? 4u * tensors + (numbers * bits + 7u) / 8u : 0;
}

static pl_real most_of(uint32_t bits) { return (pl_real)((1u << (bits - 1u)) - 1u); }

static uint32_t number_at(const uint8_t *bytes, uint32_t i, uint32_t bits)
{
    uint32_t at = i * bits, two = bytes[at / 8u];
    if (at % 8u + bits > 8u) two |= (uint32_t)bytes[at / 8u + 1u] << 8;
    return two >> at % 8u & ((1u << bits) - 1u);
}

/* Into bytes that were 0. */
static void put_number(uint8_t *bytes, uint32_t i, uint32_t bits, uint32_t q)
{
    uint32_t at = i * bits, two = q << at % 8u;
    bytes[at / 8u] |= (uint8_t)two;
    if (at % 8u + bits > 8u) bytes[at / 8u + 1u] |= (uint8_t)(two >> 8);
}

static pl_real value_of(uint32_t q, uint32_t bits, pl_real scale)
{
    return (bits == 1 ? (pl_real)2 * (pl_real)q - (pl_real)1 : (pl_real)q - most_of(bits)) * scale;
}

static pl_real scale_at(const uint8_t *change, uint32_t k)
{
    float scale;
    pl_copy(&scale, change + 4u * k, 4);
    return (pl_real)scale;
}

int pl_shift_common(pl_client *client, const pl_shift *m)
{
    pl_net *net = &client->net;
    const uint8_t *change = (const uint8_t *)net->gradient; /* free between two trainings */
    uint32_t ends[MOST_ENDS], n, bytes;
    if (!client->is_set || !client->installed || !(client->setup.extras & PL_SHARE)) return PL_TROUBLE_NOT_READY;
    if (m->task == client->share.task && m->number < client->share.shifts) return 0; /* asked again: not done again */
    if (m->number != (m->task == client->share.task ? client->share.shifts : 0)) return PL_TROUBLE_STALE_TASK;
    if ((m->bits > MOST_BITS && m->bits != WHOLE) || m->task == PL_NO_TASK) return PL_TROUBLE_BAD_VALUE;
    if (!(n = ends_between(client, m->first, m->last, ends))) return PL_TROUBLE_BAD_VALUE;
    bytes = change_bytes(n, m->last - m->first, m->bits);
    if (bytes > net->count * sizeof(pl_real)) return PL_TROUBLE_BAD_VALUE;
    if (pl_crc32(0, change, bytes) != m->crc) return PL_TROUBLE_OTHER_CHANGE;
    if (!m->number && client->dirty && !pl_go_back(client)) return PL_TROUBLE_NOT_READY; /* what was not taken was not done */
    pl_real *w = net->weights, *c = w + net->count;
    for (uint32_t k = 0, i = m->first; k < n; k++)
        for (; i < ends[k]; i++) {
            if (m->bits == WHOLE)
                c[i] = scale_at(change, i - m->first);
            else if (m->bits)
                c[i] += value_of(number_at(change + 4u * n, i - m->first, m->bits), m->bits, scale_at(change, k));
            w[i] = c[i];
        }
    client->share = (pl_share){m->task, m->number + 1u, 0, 1, 0};
    client->dirty = PL_WRITTEN;
    client->answers = 0;
    return 0;
}

/* few_bits.py's `_scale` of v = w - c + e. */
static float scale_of(const pl_real *w, const pl_real *c, const pl_real *e, uint32_t n, uint32_t bits)
{
    static const float BEST[] = {1.224f, 0.651f, 0.353f, 0.193f}; /* for 2 to 5 bits */
    pl_real sum = 0, squares = 0, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        pl_real v = w[i] - c[i] + e[i], size = v < 0 ? -v : v;
        sum += size;
        squares += v * v;
        most = size > most ? size : most;
    }
    if (bits == 1) return (float)(sum / (pl_real)n);
    pl_real fits = most / most_of(bits), best = fits;
    if (bits <= 5) best = (pl_real)BEST[bits - 2] * pl_sqrt(squares / (pl_real)n);
    return (float)(best < fits ? best : fits);
}

static uint32_t rounded(pl_real v, pl_real scale, uint32_t bits)
{
    pl_real least = (pl_real)1e-30, most = most_of(bits), x = v / (scale > least ? scale : least);
    if (bits == 1) return x >= 0;
    x += (pl_real)0.5;
    x = x > most ? most : x;
    x = x > -most ? x : -most; /* also what is no number */
    int32_t whole = (int32_t)x;
    return (uint32_t)(((pl_real)whole > x ? whole - 1 : whole) + (int32_t)most); /* floor */
}

int pl_tell_change(pl_client *client, const pl_tell *m)
{
    pl_net *net = &client->net;
    uint8_t *change = (uint8_t *)net->gradient;
    uint32_t ends[MOST_ENDS], n, i = m->first;
    if (!client->is_set || !(client->setup.extras & PL_SHARE) || !client->answers || m->task != client->trained)
        return PL_TROUBLE_NOT_READY;
    if (client->share.told) return 0; /* asked again */
    if (m->bits == 0 || m->bits > MOST_BITS || !(n = ends_between(client, m->first, m->last, ends))) return PL_TROUBLE_BAD_VALUE;
    client->share.bytes = change_bytes(n, m->last - m->first, m->bits);
    if (client->share.bytes > net->count * sizeof(pl_real)) return PL_TROUBLE_BAD_VALUE;
    pl_fill(change, 0, client->share.bytes);
    const pl_real *w = net->weights, *c = w + net->count;
    pl_real *e = (pl_real *)net->weights + 2u * net->count;
    for (uint32_t k = 0; k < n; k++) {
        float scale = scale_of(w + i, c + i, e + i, ends[k] - i, m->bits);
        pl_copy(change + 4u * k, &scale, 4);
        for (; i < ends[k]; i++) {
            pl_real v = w[i] - c[i] + e[i];
            uint32_t q = rounded(v, (pl_real)scale, m->bits);
            put_number(change + 4u * n, i - m->first, m->bits, q);
            e[i] = v - value_of(q, m->bits, (pl_real)scale);
        }
    }
    client->share.told = 1;
    return 0;
}
