/* learn.py's `fit` on this board's samples: for a host at once, without one in slices. */
#include "pl_client.h"
#include "pl_keys.h"

static uint32_t crc_of(const pl_real *numbers, uint32_t n) { return pl_crc32(0, (const uint8_t *)numbers, n * sizeof(pl_real)); }

static uint32_t weights_crc(const pl_client *client)
{
    const pl_net *net = &client->net; /* it knows the weights of either network */
    if (net->shape.extras & PL_SHARE) return crc_of((const pl_real *)net->weights + net->count, net->count); /* the common ones */
    if (net->shape.weights != PL_INT8) return crc_of(net->weights, net->count);
    return pl_crc32(pl_crc32(0, net->weights, net->count), (const uint8_t *)net->scales, net->tensors * sizeof(pl_real));
}

/* What a network has no memory or code for; 0 if it has all. */
static int lacking(const pl_client *client, const pl_recipe *r)
{
    const pl_net *net = &client->net;
    if (r->first > r->last || r->last > net->count || !(r->lr > 0) || !(r->clip >= 0) || !(r->momentum >= 0) || !(r->mu >= 0))
        return 1;
    return (r->momentum > 0 && !net->velocity) || (r->mu > 0 && !net->pull);
}

/* Without a pull of the task's own: -mu times the weights that there are. */
static void begin_pull(pl_client *client, pl_real mu)
{
    pl_net *net = &client->net;
    for (uint32_t i = 0; i < net->count; i++)
        net->pull[i] = -mu * (client->setup.network ? pl_chain_weight(&client->chain, i) : pl_weight(net, i));
}

static void begin(pl_client *client, const pl_recipe *recipe, uint16_t batch, uint32_t epochs, uint64_t key)
{
    pl_course *c = &client->course;
    uint32_t n = pl_samples(client);
    pl_fill(c, 0, sizeof *c);
    c->recipe = *recipe;
    c->key = key;
    c->samples = c->at = n;
    c->size = batch < n ? batch : n;
    c->epochs = epochs;
    client->answers = client->share.ready = client->share.told = 0;
    client->dirty = PL_TRAINED;
    client->told = pl_port_ticks();
    client->step = 0;
    client->steps = (n ? (n + c->size - 1) / c->size : 0) * epochs;
    pl_fill(&client->fitted, 0, sizeof client->fitted);
    if (client->net.velocity) pl_fill(client->net.velocity, 0, client->net.count * sizeof(pl_real));
}

/* The next mini-batch's samples; 0 when all passes are done. */
static int fill(pl_client *client)
{
    pl_course *c = &client->course;
    if (c->at == c->samples) {
        if (c->samples == 0 || c->epoch == c->epochs) return 0;
        c->order = pl_fold(c->key, pl_number(c->epoch++));
        c->at = 0;
        c->last = c->samples;
    }
    for (c->filled = 0; c->filled < c->size && c->at < c->samples; c->filled++, c->at++)
        client->picks[c->filled] = (uint16_t)(c->last = pl_next_in_order(c->order, c->samples, c->last));
    c->done = 0;
    c->loss = 0;
    if (client->setup.network) pl_chain_clear(&client->chain);
    return 1;
}

/* For what is rounded at random; without that a step needs none, and a key is dear. */
static uint64_t step_key(const pl_client *client)
{
    if (client->net.shape.weights != PL_INT8 && client->net.shape.kept != PL_INT8) return 0;
    return pl_fold(pl_fold(client->course.key, pl_number_text("step")), pl_number(client->step));
}

/* A CFC's mini-batch: the gradient of the loss alone. */
static void cfc_batch(pl_client *client, pl_batch *batch)
{
    pl_net *net = &client->net;
    pl_course *c = &client->course;
    net->draws = pl_fold(step_key(client), pl_number_text("kept"));
    net->drawn = 0;
    client->batch = batch;
    c->loss = pl_gradient(net, batch);
    client->batch = 0;
    c->done = c->filled;
}

static void cfc_descend(pl_client *client)
{
    pl_net *net = &client->net;
    const pl_recipe *r = &client->course.recipe;
    for (uint32_t i = 0; i < net->count; i++)
        if (i < r->first || i >= r->last) net->gradient[i] = 0; /* these may not move */
    pl_clip(net, r->clip);
    pl_descend(net, r, step_key(client));
}

/* One sample more, of a CFC one mini-batch; behind the last of a mini-batch the weights move. 0: that was all. */
static int go_on(pl_client *client)
{
    pl_course *c = &client->course;
    if (c->done == c->filled && !fill(client)) return 0;
    if (client->setup.network) {
        pl_sample sample = pl_picked(client, c->done++);
        c->loss += pl_chain_add(&client->chain, &sample, (pl_real)1 / (pl_real)c->filled);
    } else {
        pl_batch batch = {pl_picked, client, c->filled};
        cfc_batch(client, &batch);
    }
    if (client->stop || c->done < c->filled) return 1;
    client->fitted.loss += c->loss;
    if (client->setup.network)
        pl_chain_descend(&client->chain, &c->recipe, step_key(client));
    else
        cfc_descend(client);
    client->step++;
    return 1;
}

int pl_fit_task(pl_client *client, const pl_fit *task)
{
    const pl_net *net = &client->net;
    pl_recipe recipe = {task->lr, task->momentum, task->mu, task->clip, task->first, task->last};
    uint64_t began = pl_port_ticks();
    if (!client->is_set || !client->shelved) return PL_TROUBLE_NOT_READY;
    if (client->answers && task->task == client->trained) return 0; /* asked again: answered again, not done again */
    if (task->batch == 0 || task->batch > PL_MAX_BATCH || task->task == PL_NO_TASK || task->epochs == 0 ||
        lacking(client, &recipe) || (task->pull && !net->pull))
        return PL_TROUBLE_BAD_VALUE;
    int begun = client->share.ready || !(net->shape.extras & PL_SHARE);
    if (!begun || weights_crc(client) != task->crc) return PL_TROUBLE_OTHER_WEIGHTS;
    if (task->pull && crc_of(net->pull, net->count) != task->pull) return PL_TROUBLE_OTHER_PULL;
    if (net->pull && !task->pull) begin_pull(client, task->mu);
    begin(client, &recipe, task->batch, task->epochs, task->key);
    client->trained = task->task;
    client->busy = 1;
    client->stop = 0;
    while (!client->stop && go_on(client)) {}
    if (!client->stop) client->fitted.valid = pl_accuracy(client);
    client->busy = 0;
    if (client->stop) return PL_TROUBLE_STOPPED;
    client->fitted.task = task->task;
    client->fitted.steps = client->step;
    if (client->step) client->fitted.loss /= (pl_real)client->step;
    client->fitted.crc = weights_crc(client);
    client->fitted.ticks = pl_port_ticks() - began;
    client->answers = 1;
    return 0;
}

int pl_alone_begin(pl_client *client, const pl_recipe *recipe, uint16_t batch, uint8_t epochs, uint64_t key)
{
    if (client->busy) return PL_TROUBLE_BUSY;
    pl_alone_stop(client);
    if (!client->is_set || !client->installed || pl_samples(client) == 0) return PL_TROUBLE_NOT_READY;
    if (client->dirty != PL_CLEAN) { /* weights of a host, which has not kept them: perhaps it will */
        if (pl_port_ticks() - client->heard < (uint64_t)PL_PATIENCE * pl_port_rate()) return PL_TROUBLE_BUSY;
        if (!pl_go_back(client)) return PL_TROUBLE_NOT_READY;
    }
    if (batch == 0 || batch > PL_MAX_BATCH || epochs == 0 || lacking(client, recipe)) return PL_TROUBLE_BAD_VALUE;
    if (client->net.pull) begin_pull(client, recipe->mu);
    begin(client, recipe, batch, epochs, key);
    client->course.alone = 1;
    return 0;
}

/* A step that was too large leaves infinities and what is no number: nothing that a board should keep. */
static int finite(const pl_net *net)
{
    const pl_real *w = net->weights;
    for (uint32_t i = 0; net->shape.weights == PL_FLOAT32 && i < net->count; i++)
        if (!(w[i] - w[i] == 0)) return 0;
    return 1;
}

int pl_alone_slice(pl_client *client)
{
    if (client->busy) return -PL_TROUBLE_BUSY;
    if (!client->course.alone) return -PL_TROUBLE_NOT_READY;
    client->busy = 1;
    client->stop = 0;
    int more = go_on(client);
    client->busy = 0;
    if (client->stop) {
        pl_alone_stop(client);
        return -PL_TROUBLE_STOPPED;
    }
    if (more) return PL_LEARNING;
    if (!finite(&client->net)) {
        pl_alone_stop(client);
        return -PL_TROUBLE_BAD_VALUE;
    }
    client->course.alone = 0;
    return pl_store(client, client->kept) ? PL_LEARNT : -PL_TROUBLE_FLASH_FAILED;
}

void pl_alone_stop(pl_client *client)
{
    if (!client->course.alone) return;
    client->course.alone = 0;
    pl_go_back(client);
}

int pl_learn_alone(pl_client *client, const pl_recipe *recipe, uint16_t batch, uint8_t epochs, uint64_t key)
{
    int said = -pl_alone_begin(client, recipe, batch, epochs, key);
    if (said) return -said;
    while ((said = pl_alone_slice(client)) == PL_LEARNING) {}
    return said < 0 ? -said : 0;
}
