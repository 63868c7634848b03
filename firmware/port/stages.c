/* The stages of one step of fBind on what standard input says, each written to standard output as it is done: what
   tests/firmware compares with PyTorch. `stages needed` prints the memory that a SETUP record takes:
   in all, weights, gradient, what else is as long as they or as a LUD, kept states, work space.
   Input: SETUP record, key, cum, samples; weights, scales, CUD; then per sample steps, label, x, spans. */
#include <stdio.h>
#include <stdlib.h>

#include "pl_cfc.h"
#include "pl_layers.h"
#include "pl_messages.h"

static uint16_t labels[256], lengths[256];
static pl_real *values[256];
static size_t spans_at;

static void get(void *to, size_t n)
{
    if (n && fread(to, 1, n, stdin) != n) {
        fprintf(stderr, "stages: the input ends too early\n");
        exit(2);
    }
}

static void put(const void *from, size_t n) { fwrite(from, 1, n, stdout); }

static pl_sample sample(void *context, uint32_t k)
{
    (void)context;
    pl_sample s = {values[k], values[k] + spans_at, lengths[k], labels[k]};
    return s;
}

/* In all, weights, gradient, momentum with pull, outputs with states, adjoints with gates. */
static int layers_needed(const pl_setup *m)
{
    pl_chain net;
    pl_chain_shape shape = {(const uint8_t *)m->layers, m->steps, m->inputs, m->classes, m->extras, m->weights};
    size_t needed = pl_chain_needed(&shape);
    char *memory = malloc(needed ? needed : 1);
    if (!memory || pl_chain_init(&net, &shape, memory, needed) != PL_OK) return 3;
    char *extras = net.velocity ? (char *)net.velocity : net.pull ? (char *)net.pull : (char *)net.values;
    size_t outputs = (size_t)((char *)net.delta[0] - (char *)net.values), states = (size_t)((char *)net.gates - (char *)net.states);
    size_t before = (size_t)((char *)net.values - memory);
    printf("%zu %zu %zu %zu %zu %zu\n", needed, (size_t)((char *)net.gradient - memory),
           (size_t)(extras - (char *)net.gradient), (size_t)((char *)net.values - extras), outputs + states,
           needed - before - outputs - states);
    free(memory);
    return 0;
}

int main(int argc, char **argv)
{
    uint8_t record[PL_SETUP_SIZE];
    pl_setup m;
    pl_net net;
    get(record, sizeof record);
    pl_setup_read(&m, record);
    pl_shape shape = {m.inputs, m.hidden, m.backbone, m.head, m.classes, m.steps, {m.layers_f, m.layers_g, m.layers_h},
                      m.gated, m.timed, m.keep, m.weights, m.kept, m.extras};
    pl_terms terms = {(pl_real)m.lambda_d, (pl_real)m.lambda_m, (pl_real)m.lambda_a, (pl_real)m.v, (pl_real)m.lr, (pl_real)m.clip, m.ra_form,
                      m.lud};
    if (m.network == 1) return layers_needed(&m);
    size_t needed = pl_memory_needed(&shape);
    void *memory = malloc(needed ? needed : 1);
    if (!memory || pl_net_init(&net, &shape, memory, needed) != PL_OK) return 3;
    if (argc > 1 && argv[1][0] == 'n') {
        const char *extras = net.velocity ? (char *)net.velocity : net.pull ? (char *)net.pull : (char *)net.cud;
        const char *ends[] = {(char *)net.gradient, extras, (char *)net.starts, (char *)net.records};
        const char *from = net.weights;
        printf("%zu", needed);
        for (unsigned i = 0; i < 4; from = ends[i++]) printf(" %zu", (size_t)(ends[i] - from));
        printf(" %zu\n", needed - (size_t)(from - (char *)net.weights));
        free(memory);
        return 0;
    }

    uint64_t key;
    pl_real cum;
    uint32_t count;
    get(&key, sizeof key);
    get(&cum, sizeof cum);
    get(&count, sizeof count);
    if (count > 256) return 3;
    get(net.weights, net.count * (m.weights == PL_INT8 ? 1 : sizeof(pl_real)));
    if (m.weights == PL_INT8) get(net.scales, net.tensors * sizeof(pl_real));
    get(net.cud, net.vector * sizeof(pl_real));
    spans_at = (size_t)m.steps * m.inputs;
    size_t width = spans_at + (m.timed ? m.steps : 0u);
    for (uint32_t k = 0; k < count; k++) {
        values[k] = malloc(width * sizeof(pl_real));
        get(&lengths[k], 2);
        get(&labels[k], 2);
        get(values[k], width * sizeof(pl_real));
    }

    pl_batch batch = {sample, 0, count};
    uint32_t where = 0;
    net.draws = key;
    pl_real loss = pl_gradient(&net, &batch);
    put(&loss, sizeof loss);
    put(net.gradient, net.count * sizeof(pl_real));
    pl_real activity = pl_least_active(&net, &batch, &where), norm = pl_direction(&net, &terms, cum);
    put(&activity, sizeof activity);
    put(&norm, sizeof norm);
    put(net.direction, net.vector * sizeof(pl_real));
    pl_bind(&net, &terms, &batch, activity, where);
    put(net.gradient, net.count * sizeof(pl_real));
    pl_clip(&net, terms.clip);
    put(net.gradient, net.count * sizeof(pl_real));
    pl_recipe recipe = {terms.lr, 0, 0, 0, 0, net.count};
    pl_descend(&net, &recipe, key);
    put(net.weights, net.count * (m.weights == PL_INT8 ? 1 : sizeof(pl_real)));
    for (uint32_t k = 0; k < count; k++) free(values[k]);
    free(memory);
    return 0;
}
