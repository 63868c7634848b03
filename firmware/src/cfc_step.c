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

/* int8 weights move to one of the two whole numbers around the new value, at random with the right mean: steps are
   far smaller than the distance between two of them, and rounding to the nearest would stop all learning. */
static void descend_int8(pl_net *net, uint32_t from, uint32_t n, pl_real scale, pl_real lr, uint64_t key)
{
    int8_t *w = (int8_t *)net->weights + from;
    for (uint32_t i = 0; i < n; i++) {
        pl_real moved = ((pl_real)w[i] * scale - lr * net->gradient[from + i]) / scale + pl_uniform(key, i);
        moved = moved > (pl_real)127 ? (pl_real)127 : moved;
        moved = moved > (pl_real)-127 ? moved : (pl_real)-127; /* also what is no number */
        int32_t whole = (int32_t)moved;
        w[i] = (int8_t)((pl_real)whole > moved ? whole - 1 : whole); /* floor */
    }
}

static void descend_layer(pl_net *net, const pl_dense *layer, const char *name, pl_real lr, uint64_t key)
{
    char bias[16];
    size_t n = 0;
    for (; name[n] != '.' || name[n + 1] != 'w'; n++) bias[n] = name[n];
    pl_copy(bias + n, ".bias", 6);
    descend_int8(net, layer->w, (uint32_t)layer->n_in * layer->n_out, net->scales[layer->tensor], lr,
                 pl_fold(key, pl_number_text(name)));
    descend_int8(net, layer->b, layer->n_out, net->scales[layer->tensor + 1], lr, pl_fold(key, pl_number_text(bias)));
}

void pl_descend(pl_net *net, pl_real lr, uint64_t key)
{
    if (net->shape.weights == PL_FLOAT32) {
        pl_real *w = net->weights;
        for (uint32_t i = 0; i < net->count; i++) w[i] -= lr * net->gradient[i];
        return;
    }
    char name[] = "f.1.weight";
    key = pl_fold(key, pl_number_text("round"));
    descend_layer(net, &net->backbone, "backbone.weight", lr, key);
    for (unsigned i = 0; i < PL_HEADS; i++) {
        name[0] = "fgh"[i];
        name[2] = '1';
        if (net->shape.layers[i] == 2) {
            descend_layer(net, &net->first[i], name, lr, key);
            name[2] = '2';
        }
        descend_layer(net, &net->last[i], name, lr, key);
    }
    descend_layer(net, &net->out, "fc.weight", lr, key);
}

pl_status pl_step(pl_net *net, const pl_terms *terms, pl_real cum, const pl_batch *batch, uint64_t key, pl_result *result)
{
    uint32_t where = 0;
    if (batch->count == 0) return PL_NO_SAMPLES;
    net->draws = pl_fold(key, pl_number_text("kept"));
    net->drawn = 0;
    result->loss = pl_gradient(net, batch);
    const pl_real *q = net->gradient + net->last[PL_F].w;
    for (uint32_t i = 0; terms->lud == PL_TASK && i < net->vector; i++) net->lud[i] += q[i];
    result->activity = pl_least_active(net, batch, &where);
    result->norm = pl_direction(net, terms, cum);
    if (terms->lambda_d != 0 || terms->lambda_m != 0 || terms->lambda_a != 0)
        pl_bind(net, terms, batch, result->activity, where);
    pl_clip(net, terms->clip);
    for (uint32_t i = 0; terms->lud == PL_BOUND && i < net->vector; i++) net->lud[i] += q[i];
    pl_descend(net, terms->lr, key);
    return PL_OK;
}
