/* What survives a power cut. Flash holds two slots and the shelf:
       slot 0 | slot 1 | shelf: samples to train on, then those for validation
   A slot is weights, scales, and in its last page a header with a checksum over everything. Stores go to the two slots
   in turn, the header last: a cut on the way leaves the other slot whole. */
#include "pl_client.h"

#define MAGIC 0x504c4b31u

typedef struct {
    uint32_t magic, sequence, task, train, valid, shelf_crc, data;
    pl_setup setup;
    uint32_t crc;
} header;

static uint32_t pages(uint32_t bytes) { return (bytes + PL_PAGE - 1u) & ~(PL_PAGE - 1u); }
static uint32_t slot_bytes(const pl_client *client) { return pages(client->arena_bytes) + PL_PAGE; }
uint32_t pl_shelf_at(const pl_client *client) { return 2 * slot_bytes(client); }

static uint32_t weight_bytes(const pl_net *net)
{
    return (net->count * (net->shape.weights == PL_INT8 ? 1u : 4u) + 3u) & ~3u;
}

static uint32_t scale_bytes(const pl_net *net) { return net->shape.weights == PL_INT8 ? net->tensors * 4u : 0; }

uint32_t pl_sample_bytes(const pl_shape *s) { return 4u + 4u * (uint32_t)s->steps * (s->inputs + (uint32_t)s->timed); }

pl_sample pl_sample_at(const pl_client *client, uint32_t i)
{
    const pl_shape *s = &client->net.shape;
    const uint8_t *at = pl_port_flash() + pl_shelf_at(client) + i * pl_sample_bytes(s);
    pl_sample sample;
    memcpy(&sample.steps, at, 2);
    memcpy(&sample.label, at + 2, 2);
    sample.x_TI = (const real *)(const void *)(at + 4); /* whole words from an aligned start */
    sample.spans = sample.x_TI + (size_t)s->steps * s->inputs;
    return sample;
}

int pl_look_at_shelf(pl_client *client, uint32_t train, uint32_t valid, uint32_t crc)
{
    const pl_shape *s = &client->net.shape;
    uint64_t bytes = (uint64_t)(train + valid) * pl_sample_bytes(s);
    client->shelved = 0;
    if (pl_shelf_at(client) + bytes > pl_port_flash_size()) return 0;
    if (pl_crc32(0, pl_port_flash() + pl_shelf_at(client), (size_t)bytes) != crc) return 0;
    for (uint32_t i = 0; i < train + valid; i++) {
        pl_sample sample = pl_sample_at(client, i);
        if (sample.steps == 0 || sample.steps > s->steps || sample.label >= s->classes) return 0;
    }
    client->train = (uint16_t)train;
    client->valid = (uint16_t)valid;
    client->shelf_crc = crc;
    client->shelved = 1;
    return 1;
}

int pl_set_up(pl_client *client, const pl_setup *setup)
{
    pl_shape shape = {setup->inputs, setup->hidden, setup->backbone, setup->head, setup->classes, setup->steps,
                      {setup->layers_f, setup->layers_g, setup->layers_h}, setup->gated, setup->timed, setup->keep,
                      setup->weights, setup->kept};
    pl_terms terms = {setup->lambda_d, setup->lambda_m, setup->lambda_a, setup->v, setup->lr, setup->clip, setup->ra_form};
    /* whatever is wrong leaves nothing set up, not half of it */
    client->is_set = client->installed = client->shelved = client->dirty = client->answers = 0;
    client->trained = client->kept = PL_NO_TASK;
    client->train = client->valid = 0;
    client->shelf_crc = 0;
    if (setup->wire > PL_INT8 || setup->ra_form > PL_PRINTED || setup->epochs == 0 || setup->epochs > PL_MAX_EPOCHS)
        return PL_TROUBLE_BAD_VALUE;
    switch (pl_net_init(&client->net, &shape, client->arena, client->arena_bytes)) {
    case PL_OK: break;
    case PL_NO_ROOM: return PL_TROUBLE_NO_ROOM;
    default: return PL_TROUBLE_BAD_SHAPE;
    }
    client->setup = *setup;
    client->terms = terms;
    client->is_set = 1;
    return 0;
}

static uint32_t header_at(const pl_client *client, uint32_t slot) { return (slot + 1) * slot_bytes(client) - PL_PAGE; }

static uint32_t crc_of(const header *h, const uint8_t *weights, uint32_t bytes, const uint8_t *scales, uint32_t more)
{
    uint32_t crc = pl_crc32(0, (const uint8_t *)h, offsetof(header, crc));
    crc = pl_crc32(crc, weights, bytes);
    return more ? pl_crc32(crc, scales, more) : crc;
}

int pl_store(pl_client *client, uint32_t task)
{
    const pl_net *net = &client->net;
    uint32_t slot = (client->sequence + 1) % 2, at = slot * slot_bytes(client);
    uint32_t weights = weight_bytes(net), scales = scale_bytes(net);
    header h;
    memset(&h, 0, sizeof h); /* padding too: it is under the checksum */
    h.magic = MAGIC;
    h.sequence = client->sequence + 1;
    h.task = task;
    h.train = client->train;
    h.valid = client->valid;
    h.shelf_crc = client->shelf_crc;
    h.data = weights + scales;
    memcpy(&h.setup, &client->setup, sizeof h.setup);
    h.crc = crc_of(&h, net->weights, weights, (const uint8_t *)net->scales, scales);
    if (pl_shelf_at(client) > pl_port_flash_size()) return 0;
    for (uint32_t done = 0, n; done < weights + scales; done += n) {
        const uint8_t *from = done < weights ? (const uint8_t *)net->weights + done
                                             : (const uint8_t *)net->scales + (done - weights);
        uint32_t left = done < weights ? weights - done : weights + scales - done, room = PL_PAGE - done % PL_PAGE;
        n = left < room ? left : room;
        if (!pl_port_flash_write(at + done, from, n)) return 0;
    }
    if (!pl_port_flash_write(header_at(client, slot), &h, sizeof h)) return 0;
    client->sequence++;
    client->kept = task;
    client->installed = 1;
    client->dirty = PL_CLEAN;
    return 1;
}

/* The header of a slot, if the slot is whole. */
static int whole(const pl_client *client, uint32_t slot, header *h)
{
    const uint8_t *data = pl_port_flash() + slot * slot_bytes(client);
    memcpy(h, pl_port_flash() + header_at(client, slot), sizeof *h);
    return h->magic == MAGIC && h->data <= client->arena_bytes && crc_of(h, data, h->data, 0, 0) == h->crc;
}

/* The newest whole slot, 2 for none. */
static uint32_t newest(const pl_client *client, header *h)
{
    header other;
    if (pl_shelf_at(client) > pl_port_flash_size()) return 2;
    int first = whole(client, 0, h), second = whole(client, 1, &other);
    if (!second || (first && h->sequence > other.sequence)) return first ? 0 : 2;
    *h = other;
    return 1;
}

static int take_weights(pl_client *client, uint32_t slot, const header *h)
{
    pl_net *net = &client->net;
    const uint8_t *data = pl_port_flash() + slot * slot_bytes(client);
    if (h->data != weight_bytes(net) + scale_bytes(net)) return 0;
    memcpy(net->weights, data, weight_bytes(net));
    if (scale_bytes(net)) memcpy(net->scales, data + weight_bytes(net), scale_bytes(net));
    client->trained = client->kept = h->task;
    client->installed = 1;
    client->dirty = PL_CLEAN;
    client->answers = 0;
    return 1;
}

int pl_go_back(pl_client *client)
{
    header h;
    uint32_t slot = newest(client, &h);
    return slot < 2 && h.sequence == client->sequence && take_weights(client, slot, &h);
}

int pl_recall(pl_client *client)
{
    header h;
    uint32_t slot = newest(client, &h);
    if (slot == 2) return 0;
    client->sequence = h.sequence; /* what is stored next must be newer, whatever this is worth */
    if (pl_set_up(client, &h.setup)) return 0;
    if (!take_weights(client, slot, &h)) {
        client->is_set = 0;
        return 0;
    }
    pl_look_at_shelf(client, h.train, h.valid, h.shelf_crc);
    return 1;
}
