/* One step of gradient descent on L: the stages in the order of methods/fedcfc.py's `train`. */
#include "cfc_inside.h"

/* Shortens the gradient to the norm `most` where it is longer. */
pl_real pl_clip(pl_net *net, pl_real most)
{
    pl_real norm = pl_sqrt(product_sum(net->gradient, net->gradient, net->count));
    if (most > 0 && norm > most) {
        pl_real by = most / norm;
        for (uint32_t i = 0; i < net->count; i++) net->gradient[i] *= by;
    }
    return norm;
}

enum { MOST_LAYERS = 2 + 2 * PL_HEADS };

/* The layers in the order of their weights. */
static uint32_t layers_of(const pl_net *net, const pl_dense *to[MOST_LAYERS])
{
    uint32_t n = 0;
    to[n++] = &net->backbone;
    for (unsigned i = 0; i < PL_HEADS; i++) {
        if (net->shape.layers[i] == 2) to[n++] = &net->first[i];
        to[n++] = &net->last[i];
    }
    to[n++] = &net->out;
    return n;
}

static pl_real weight_of(const pl_net *net, uint32_t tensor, uint32_t i)
{
    return net->shape.weights == PL_INT8 ? (pl_real)((const int8_t *)net->weights)[i] * net->scales[tensor] : ((const pl_real *)net->weights)[i];
}

pl_real pl_weight(const pl_net *net, uint32_t i)
{
    const pl_dense *layers[MOST_LAYERS];
    uint32_t n = layers_of(net, layers), k = 0;
    while (k + 1 < n && i >= layers[k + 1]->w) k++;
    return weight_of(net, layers[k]->tensor + (uint32_t)(i >= layers[k]->b), i);
}

/* int8 weights move to one of the two whole numbers around the new value, at random with the right mean: steps are
   far smaller than the distance between two of them, and rounding to the nearest would stop all learning. */
static int8_t one_of_two(pl_real value, pl_real draw)
{
    pl_real moved = value + draw;
    moved = moved > (pl_real)127 ? (pl_real)127 : moved;
    moved = moved > (pl_real)-127 ? moved : (pl_real)-127; /* also what is no number */
    int32_t whole = (int32_t)moved;
    return (int8_t)((pl_real)whole > moved ? whole - 1 : whole); /* floor */
}

/* The tensor of `n` weights from `from` on, as far as they may move. The key is for int8 ones. */
static void descend_tensor(pl_net *net, uint32_t tensor, uint32_t from, uint32_t n, const pl_recipe *r, uint64_t key)
{
    uint32_t begin = from > r->first ? from : r->first, end = from + n < r->last ? from + n : r->last;
    pl_real *plain = net->shape.weights == PL_INT8 || net->pull || net->velocity ? 0 : net->weights;
    for (uint32_t i = begin; plain && i < end; i++) plain[i] -= r->lr * net->gradient[i];
    if (plain) return;
    for (uint32_t i = begin; i < end; i++) {
        pl_real w = weight_of(net, tensor, i), slope = net->gradient[i];
        if (net->pull) slope += r->mu * w + net->pull[i];
        if (r->momentum != 0 && net->velocity) slope = net->velocity[i] = r->momentum * net->velocity[i] + slope;
        if (net->shape.weights == PL_INT8)
            ((int8_t *)net->weights)[i] = one_of_two((w - r->lr * slope) / net->scales[tensor], pl_uniform(key, i - from));
        else
            ((pl_real *)net->weights)[i] = w - r->lr * slope;
    }
}

/* The key of a tensor's draws, by its name; float32 draws nothing, and a key is dear. */
static uint64_t named(const pl_net *net, uint64_t key, const char *layer, const char *end)
{
    char name[20];
    size_t n = 0;
    if (net->shape.weights != PL_INT8) return 0;
    while (*layer) name[n++] = *layer++;
    do name[n++] = *end;
    while (*end++);
    return pl_fold(key, pl_number_text(name));
}

static void descend_layer(pl_net *net, const pl_dense *layer, const char *name, const pl_recipe *recipe, uint64_t key)
{
    descend_tensor(net, layer->tensor, layer->w, (uint32_t)layer->n_in * layer->n_out, recipe, named(net, key, name, ".weight"));
    descend_tensor(net, layer->tensor + 1u, layer->b, layer->n_out, recipe, named(net, key, name, ".bias"));
}

void pl_descend(pl_net *net, const pl_recipe *recipe, uint64_t key)
{
    char name[] = "f.1";
    if (net->shape.weights == PL_INT8) key = pl_fold(key, pl_number_text("round"));
    descend_layer(net, &net->backbone, "backbone", recipe, key);
    for (unsigned i = 0; i < PL_HEADS; i++) {
        name[0] = "fgh"[i];
        name[2] = '1';
        if (net->shape.layers[i] == 2) {
            descend_layer(net, &net->first[i], name, recipe, key);
            name[2] = '2';
        }
        descend_layer(net, &net->last[i], name, recipe, key);
    }
    descend_layer(net, &net->out, "fc", recipe, key);
}

pl_status pl_step(pl_net *net, const pl_terms *terms, pl_real cum, const pl_batch *batch, uint64_t key, pl_result *result)
{
    uint32_t where = 0;
    pl_recipe recipe = {terms->lr, 0, 0, terms->clip, 0, net->count};
    if (net->shape.extras & PL_LOSS_ALONE) return PL_BAD_SHAPE;
    if (batch->count == 0) return PL_NO_SAMPLES;
    net->draws = net->shape.kept == PL_INT8 ? pl_fold(key, pl_number_text("kept")) : 0;
    net->drawn = 0;
    result->loss = pl_gradient(net, batch);
    const pl_real *q = net->gradient + net->last[PL_F].w;
    for (uint32_t i = 0; terms->lud == PL_TASK && i < net->vector; i++) net->lud[i] += q[i];
    result->activity = pl_least_active(net, batch, &where);
    result->norm = pl_direction(net, terms, cum);
    if (terms->lambda_d != 0 || terms->lambda_m != 0 || terms->lambda_a != 0)
        pl_bind(net, terms, batch, result->activity, where);
    pl_clip(net, recipe.clip);
    for (uint32_t i = 0; terms->lud == PL_BOUND && i < net->vector; i++) net->lud[i] += q[i];
    pl_descend(net, &recipe, key);
    return PL_OK;
}
