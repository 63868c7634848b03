#include "pl_live.h"

static uint16_t steps_of(const pl_live *live) { return live->client->net.shape.steps; }
static uint16_t inputs_of(const pl_live *live) { return live->client->net.shape.inputs; }

static int usable(const pl_live *live)
{
    const pl_client *client = live->client;
    return client->is_set && client->installed && !client->net.shape.timed &&
           live->room >= 2u * (uint32_t)steps_of(live) * inputs_of(live);
}

static void begin(pl_live *live)
{
    live->at = 0;
    live->wait = usable(live) ? steps_of(live) : 0;
    live->setups = live->client->setups;
    live->label = PL_NO_LABEL;
}

void pl_live_init(pl_live *live, pl_client *client, pl_real *ring, uint32_t room, uint16_t every)
{
    live->client = client;
    client->sensor = live;
    live->ring = ring;
    live->room = room;
    live->every = every ? every : 1;
    begin(live);
}

int32_t pl_live_feed(pl_live *live, const pl_real *reading)
{
    pl_client *client = live->client;
    if (!usable(live)) return PL_NO_LABEL;
    if (live->setups != client->setups || live->wait == 0) begin(live); /* another network since the last one */
    uint32_t T = steps_of(live), I = inputs_of(live);
    const pl_real *mean = client->scaler, *by = client->scaler + I;
    pl_real *to = live->ring + live->at * I;
    int scaled = 0;
    for (uint32_t i = 0; I <= PL_MAX_CHANNELS && i < I; i++) scaled |= by[i] != 0;
    for (uint32_t i = 0; i < I; i++) to[i] = to[T * I + i] = scaled ? (reading[i] - mean[i]) * by[i] : reading[i];
    live->at = (uint16_t)((live->at + 1u) % T);
    if (--live->wait) return PL_NO_LABEL;
    live->wait = live->every;
    if (client->busy) return PL_NO_LABEL; /* the work space is the training's */
    pl_sample window = {live->ring + live->at * I, 0, (uint16_t)T, 0};
    return live->label = (int32_t)pl_label(client, &window);
}

int pl_live_record(pl_live *live, uint16_t label)
{
    if (!usable(live) || live->setups != live->client->setups || live->label == PL_NO_LABEL) return PL_TROUBLE_NOT_READY;
    return pl_record_sample(live->client, live->ring + live->at * inputs_of(live), label);
}
