/* One task: methods/fedcfc.py's `train` for a single client. */
#include "pl_client.h"
#include "pl_keys.h"

static void tell(pl_client *client)
{
    uint64_t now = pl_port_ticks();
    if (now - client->told < pl_port_rate() / 2u) return;
    client->told = now;
    pl_progress m = {client->trained, client->step, client->steps};
    pl_progress_write(client->out + PL_FRAME_HEAD, &m);
    pl_client_tell(client, PL_KIND_PROGRESS, 0, PL_PROGRESS_SIZE);
}

void pl_breathe(void *context)
{
    pl_client *client = context;
    if (!client->busy) return;
    tell(client);
    if (pl_port_pause()) client->stop = 1;
    for (int byte; (byte = pl_port_byte()) >= 0;) pl_client_byte(client, (uint8_t)byte);
    if (client->stop && client->batch) client->batch->count = 0; /* no sample after this one */
}

pl_sample pl_picked(void *context, uint32_t k)
{
    pl_client *client = context;
    uint32_t i = client->picks[k]; /* recorded ones are behind those for validation */
    return pl_sample_at(client, i < client->train ? i : i + client->valid);
}

/* To train on: the host's, and the board's own. */
uint32_t pl_samples(const pl_client *client) { return (uint32_t)client->train + client->live; }

uint32_t pl_label(pl_client *client, const pl_sample *sample)
{
    return client->setup.network ? pl_chain_classify(&client->chain, sample) : pl_classify(&client->net, sample);
}

pl_real pl_accuracy(pl_client *client)
{
    uint32_t right = 0;
    if (client->valid == 0) return -1.0f;
    for (uint32_t i = 0; i < client->valid; i++) {
        pl_sample sample = pl_sample_at(client, client->train + i);
        if (client->stop) break;
        right += pl_label(client, &sample) == sample.label;
    }
    return (pl_real)right / (pl_real)client->valid;
}

/* The passes over the samples; 0 when it was told to stop. */
static int learnt(pl_client *client, const pl_train *task, uint32_t size);

int pl_carry_out(pl_client *client, const pl_train *task)
{
    pl_net *net = &client->net;
    uint32_t n = pl_samples(client), size = task->batch < n ? task->batch : n;
    uint64_t began = pl_port_ticks();

    if (!client->is_set || !client->installed || !client->shelved || client->setup.network) return PL_TROUBLE_NOT_READY;
    if (client->setup.extras & PL_LOSS_ALONE) return PL_TROUBLE_NOT_READY;
    if (client->answers && task->task == client->trained) return 0; /* asked again: answered again, not done again */
    if (client->kept != PL_NO_TASK && task->task <= client->kept) return PL_TROUBLE_STALE_TASK;
    if (task->batch == 0 || task->batch > PL_MAX_BATCH || task->task == PL_NO_TASK) return PL_TROUBLE_BAD_VALUE;
    if (!task->aimed) pl_fill(net->cud, 0, net->vector * sizeof(pl_real));
    if (task->aimed && pl_crc32(0, (const uint8_t *)net->cud, net->vector * sizeof(pl_real)) != task->crc)
        return PL_TROUBLE_OTHER_CUD;
    if (client->dirty && !pl_go_back(client)) return PL_TROUBLE_NOT_READY; /* what was not taken was not done */
    client->trained = task->task;
    client->answers = 0;
    client->dirty = PL_TRAINED;
    client->told = began;
    client->step = 0;
    uint32_t per_epoch = n ? (n + size - 1) / size : 0;
    client->steps = per_epoch * client->setup.epochs;
    pl_trained *answer = &client->answer;
    pl_fill(answer, 0, sizeof *answer);
    pl_fill(net->lud, 0, net->vector * sizeof(pl_real));
    client->busy = 1;
    client->stop = 0;
    int whole = learnt(client, task, size);
    if (whole) answer->valid = pl_accuracy(client);
    client->busy = 0;
    client->batch = 0;
    if (client->stop || !whole) return PL_TROUBLE_STOPPED; /* the next task begins from the kept weights */
    answer->task = task->task;
    answer->steps = client->step;
    pl_real share = client->step ? 1.0f / (pl_real)client->step : 0.0f;
    answer->loss *= share;
    answer->norm *= share;
    answer->activity *= share;
    for (uint32_t i = 0; i < net->vector && client->step; i++) net->lud[i] /= (pl_real)client->step;
    answer->scale = pl_wire_scale(net->lud, net->vector, client->setup.wire);
    answer->ticks = pl_port_ticks() - began;
    client->answers = 1;
    return 0;
}

static int learnt(pl_client *client, const pl_train *task, uint32_t size)
{
    pl_batch batch = {pl_picked, client, 0};
    uint32_t n = pl_samples(client);
    uint64_t by_step = pl_fold(task->key, pl_number_text("step"));
    client->batch = &batch;
    for (uint32_t epoch = 0; epoch < client->setup.epochs; epoch++) {
        uint64_t order = pl_fold(task->key, pl_number(epoch));
        for (uint32_t i = 0, last = n; i < n; client->step++) {
            pl_result result;
            for (batch.count = 0; batch.count < size && i < n; batch.count++, i++)
                client->picks[batch.count] = (uint16_t)(last = pl_next_in_order(order, n, last));
            if (client->stop) return 0;
            pl_step(&client->net, &client->terms, task->cum, &batch, pl_fold(by_step, pl_number(client->step)), &result);
            client->answer.loss += result.loss;
            client->answer.norm += result.norm;
            client->answer.activity += result.activity;
        }
    }
    return 1;
}
