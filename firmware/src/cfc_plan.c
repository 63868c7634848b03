/* The layout: where every weight, every activation of a step and every buffer lies, and how much memory that takes.
   `pl_memory_needed` and `pl_net_init` run the same arithmetic, so asking and having cannot differ. */
#include "cfc_inside.h"

/* Hands out memory one piece after the other; with base 0 it only counts. */
typedef struct {
    uint8_t *base;
    size_t used;
} arena;

static void *piece(arena *from, size_t count, size_t size)
{
    void *at = from->base ? from->base + from->used : 0;
    from->used += (count * size + 7u) & ~(size_t)7u;
    return at;
}

static pl_dense dense(pl_net *net, uint32_t n_in, uint32_t n_out)
{
    pl_dense layer = {(uint16_t)n_out, (uint16_t)n_in, net->count, net->count + n_in * n_out,
                      (uint16_t)net->deltas, (uint8_t)net->tensors};
    net->count += n_in * n_out + n_out;
    net->deltas += n_out;
    net->tensors += 2;
    return layer;
}

static int plausible(const pl_shape *s)
{
    const uint16_t units[] = {s->inputs, s->hidden, s->backbone, s->head, s->classes};
    for (unsigned i = 0; i < 5; i++)
        if (units[i] == 0 || units[i] > PL_MAX_UNITS) return 0;
    for (unsigned i = 0; i < PL_HEADS; i++)
        if (s->layers[i] != 1 && s->layers[i] != 2) return 0;
    if (s->extras > (PL_VELOCITY | PL_PULL | PL_LOSS_ALONE | PL_SHARE)) return 0;
    if ((s->extras & PL_SHARE) && s->weights != PL_FLOAT32) return 0;
    return s->steps > 0 && s->steps <= PL_MAX_STEPS && s->gated <= 1 && s->timed <= 1 && s->keep <= PL_KEEP_FOURS &&
           (s->weights == PL_FLOAT32 || s->weights == PL_INT8) && (s->kept == PL_FLOAT32 || s->kept == PL_INT8);
}

static uint32_t most(uint32_t a, uint32_t b) { return a > b ? a : b; }

static uint16_t placed(uint32_t *at, uint32_t n)
{
    uint16_t here = (uint16_t)*at;
    *at += n;
    return here;
}

static size_t plan(pl_net *net, const pl_shape *s, void *memory)
{
    arena from = {memory, 0};
    pl_fill(net, 0, sizeof *net);
    net->shape = *s;

    /* weights, in the order of Cfc's parameters */
    net->backbone = dense(net, (uint32_t)s->inputs + s->hidden, s->backbone);
    for (unsigned i = 0; i < PL_HEADS; i++) {
        uint32_t in = s->backbone;
        if (s->layers[i] == 2) {
            net->first[i] = dense(net, in, s->head);
            in = s->head;
        }
        net->last[i] = dense(net, in, s->hidden);
    }
    net->out = dense(net, s->hidden, s->classes);
    int alone = (s->extras & PL_LOSS_ALONE) != 0; /* nothing is exchanged, and nothing has a tangent */
    net->vector = alone ? 0 : (uint32_t)net->last[PL_F].n_in * net->last[PL_F].n_out;

    /* the record of a step: c = [i; x], z, u of f, g, h, then s, G, H */
    uint32_t at = 0;
    net->at.c = placed(&at, (uint32_t)s->inputs + s->hidden);
    net->at.z = placed(&at, s->backbone);
    for (unsigned i = 0; i < PL_HEADS; i++) /* what the last layer reads */
        net->at.u[i] = s->layers[i] == 2 ? placed(&at, s->head) : net->at.z;
    net->at.s = placed(&at, s->hidden);
    net->at.g = placed(&at, s->hidden);
    net->at.h = placed(&at, s->hidden);
    net->at.size = (uint16_t)at;

    /* what is kept for the way back: about sqrt(T) segments of sqrt(T) states, or one segment of all. Segments of four
       steps need no states of their own: their steps fit into the records at hand */
    int fours = s->keep == PL_KEEP_FOURS;
    net->segment = fours ? PL_SLOTS : s->steps;
    if (s->keep == PL_KEEP_SEGMENTS)
        for (net->segment = 1; net->segment * net->segment < s->steps;) net->segment++;
    net->segments = (s->steps + net->segment - 1) / net->segment;
    uint32_t wide = s->keep == PL_KEEP_ALL ? at - s->inputs : s->hidden;
    uint32_t starts = net->segments > 1 || fours ? net->segments * s->hidden : 0, inside = fours ? 0 : net->segment * wide;
    size_t kept = s->kept == PL_INT8 ? 1 : sizeof(pl_real);

    net->weights = piece(&from, pl_numbers(net), s->weights == PL_INT8 ? 1 : sizeof(pl_real));
    net->scales = piece(&from, s->weights == PL_INT8 ? net->tensors : 0, sizeof(pl_real));
    net->gradient = piece(&from, net->count, sizeof(pl_real));
    if (s->extras & PL_VELOCITY) net->velocity = piece(&from, net->count, sizeof(pl_real));
    if (s->extras & PL_PULL) net->pull = piece(&from, net->count, sizeof(pl_real));
    net->cud = piece(&from, net->vector, sizeof(pl_real));
    net->lud = piece(&from, net->vector, sizeof(pl_real));
    net->direction = piece(&from, net->vector, sizeof(pl_real));
    net->starts = piece(&from, starts, kept);
    net->inside = piece(&from, inside, kept);
    net->starts_t = piece(&from, alone ? 0 : starts, sizeof(pl_real));
    net->inside_t = piece(&from, alone ? 0 : inside, sizeof(pl_real));
    net->records = piece(&from, (size_t)PL_SLOTS * at, sizeof(pl_real));
    net->delta = piece(&from, (size_t)PL_SLOTS * net->deltas, sizeof(pl_real));
    net->dx = piece(&from, s->hidden, sizeof(pl_real));
    net->dx_t = piece(&from, alone ? 0 : s->hidden, sizeof(pl_real));
    net->dz = piece(&from, s->backbone, sizeof(pl_real));
    net->dz_t = piece(&from, alone ? 0 : s->backbone, sizeof(pl_real));
    net->du = piece(&from, s->head, sizeof(pl_real));
    net->du_t = piece(&from, alone ? 0 : s->head, sizeof(pl_real));
    net->logits = piece(&from, s->classes, sizeof(pl_real));
    net->logits_t = piece(&from, alone ? 0 : s->classes, sizeof(pl_real));
    net->activity = piece(&from, (uint32_t)s->head + s->hidden, sizeof(pl_real));
    uint32_t widest = most(most((uint32_t)s->inputs + s->hidden, s->backbone), s->head);
    net->panel = piece(&from, s->weights == PL_INT8 ? (size_t)PANEL * widest : 0, sizeof(pl_real));
    net->used = from.used;
    return from.used;
}

size_t pl_memory_needed(const pl_shape *shape)
{
    pl_net net;
    return plausible(shape) ? plan(&net, shape, 0) : 0;
}

pl_status pl_net_init(pl_net *net, const pl_shape *shape, void *memory, size_t bytes)
{
    size_t needed = pl_memory_needed(shape);
    if (needed == 0) return PL_BAD_SHAPE;
    if (needed > bytes) return PL_NO_ROOM;
    plan(net, shape, memory);
    pl_fill(memory, 0, needed);
    return PL_OK;
}
