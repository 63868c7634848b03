/* The layout of a chain of layers: how they join, and where everything lies in the memory handed over. */
#include "pl_layers.h"

typedef struct {
    uint8_t *base;
    size_t used;
} arena;

static void *bytes_of(arena *from, size_t bytes)
{
    void *at = from->base ? from->base + from->used : 0;
    from->used += (bytes + 7u) & ~(size_t)7u;
    return at;
}

static void *piece(arena *from, size_t count) { return bytes_of(from, count * sizeof(pl_real)); }

static uint32_t most(uint32_t a, uint32_t b) { return a > b ? a : b; }

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

/* Joins the layers; 0 for a chain that cannot be. `values` counts their outputs, `widest` is the most of one. */
static int chained(pl_chain *net, const pl_chain_shape *s, uint32_t *values, uint32_t *widest)
{
    for (; net->depth < PL_MAX_LINKS && s->links[net->depth * PL_LINK_BYTES]; net->depth++) {
        pl_link *l = &net->links[net->depth];
        *l = (pl_link){.length = s->steps, .channels = s->inputs, .by_time = s->inputs, .by_channel = 1};
        if (!joined(l, s->links + net->depth * PL_LINK_BYTES, net->depth ? l - 1 : 0)) return 0;
        uint32_t all = weights_of(l), biases = l->kind == PL_GRU ? 6u * l->channels_out : l->kind == PL_POOL ? 0 : l->channels_out;
        l->w = net->count;
        l->b = net->count + all - biases;
        l->tensor = (uint8_t)net->tensors;
        net->tensors += l->kind == PL_GRU ? 4u : l->kind == PL_POOL ? 0u : 2u;
        net->count += all;
        l->at = *values;
        l->n = (uint32_t)l->length_out * l->channels_out;
        *values += l->n;
        *widest = most(*widest, l->n);
        if (*values > PL_MAX_VALUES || net->count > PL_MAX_VALUES) return 0;
    }
    const pl_link *last = &net->links[net->depth - (net->depth != 0)];
    return net->depth && last->kind == PL_DENSE && last->n == s->classes;
}

static size_t plan(pl_chain *net, const pl_chain_shape *s, void *memory)
{
    arena from = {memory, 0};
    uint32_t values = 0, widest = 0;
    pl_fill(net, 0, sizeof *net);
    if (s->steps == 0 || s->steps > PL_MAX_STEPS || s->inputs == 0 || s->inputs > PL_MAX_UNITS || s->classes < 2) return 0;
    if (s->weights != PL_FLOAT32 && s->weights != PL_INT8) return 0;
    if (s->extras & ~(PL_VELOCITY | PL_PULL | PL_SHARE) || ((s->extras & PL_SHARE) && s->weights != PL_FLOAT32)) return 0;
    net->inputs = (uint32_t)s->steps * s->inputs;
    net->classes = s->classes;
    if (!chained(net, s, &values, &widest)) return 0;
    uint32_t hidden = net->links[0].kind == PL_GRU ? net->links[0].channels_out : 0;
    uint32_t patch = 0, product = hidden, adjoints = 6u * hidden; /* of a GRU's gates: by its inputs, and by its own state */
    for (uint32_t i = 0; i < net->depth; i++) {
        const pl_link *l = &net->links[i];
        uint32_t met = (uint32_t)l->channels * (l->kind == PL_CONV ? l->kernel : l->kind == PL_DENSE ? l->length : 1u);
        product = most(product, met); /* inputs of one row of weights */
        if (l->kind != PL_CONV) continue;
        patch = most(patch, met);
        adjoints = most(adjoints, l->channels_out);
    }
    if (s->weights == PL_INT8) {
        net->small = bytes_of(&from, net->count);
        net->scales = piece(&from, net->tensors);
        net->rounded = bytes_of(&from, most(net->inputs, widest));
        net->patch = bytes_of(&from, product * sizeof *net->patch);
    } else {
        net->weights = piece(&from, net->count * (s->extras & PL_SHARE ? 3u : 1u));
    }
    net->gradient = piece(&from, net->count);
    net->velocity = s->extras & PL_VELOCITY ? piece(&from, net->count) : 0;
    net->pull = s->extras & PL_PULL ? piece(&from, net->count) : 0;
    net->values = piece(&from, values);
    net->delta[0] = piece(&from, widest);
    net->delta[1] = piece(&from, widest);
    net->states = piece(&from, hidden ? (s->steps + 1u) * hidden : 0);
    net->gates = piece(&from, 12u * hidden);
    net->patches = piece(&from, (PL_SLOTS + 1u) * patch);
    net->adjoints = piece(&from, PL_SLOTS * adjoints);
    return net->used = from.used;
}

size_t pl_chain_needed(const pl_chain_shape *shape)
{
    pl_chain net;
    return plan(&net, shape, 0);
}

pl_status pl_chain_init(pl_chain *net, const pl_chain_shape *shape, void *memory, size_t bytes)
{
    size_t needed = plan(net, shape, 0);
    if (needed == 0) return PL_BAD_SHAPE;
    if (needed > bytes) return PL_NO_ROOM;
    plan(net, shape, memory);
    pl_fill(memory, 0, needed);
    return PL_OK;
}
