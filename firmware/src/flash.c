/* What survives a power cut: weights, settings and the number of their task, in a ring of slots at the start of flash.

       slot 0 | slot 1 | ... | samples (shelf.c)

   A slot is whole pages: a header, then weights and scales. A store takes the next slot, erases its pages, programs the
   weights and then the header, whose checksum covers everything. A cut on the way leaves the slot before it whole. After
   a start every page is looked at for a header, so that slots are found whatever network they are of. The ring takes a
   quarter of the flash: each page is erased once in `pl_slots` stores, not in every second one. */
#include "pl_client.h"

enum { LEAST_SLOTS = 2, MOST_SLOTS = 16 };
#define MAGIC 0x504c4b32u /* the layout of this header; another layout has another number */
#define PAGE ((uint32_t)PL_PAGE)
#define UNIT ((uint32_t)PL_UNIT)

_Static_assert(PL_PAGE > 0 && PL_UNIT > 0 && PL_UNIT <= PL_UNIT_MOST && PL_UNIT_MOST % PL_UNIT == 0 && PL_UNIT % 4 == 0,
               "PL_UNIT: must be 4, 8, 16 or 32");
_Static_assert(PL_PAGE % PL_UNIT_MOST == 0 && PL_PAGE >= 256, "PL_PAGE: must be a multiple of 32, at least 256");

/* Words and bytes only: no compiler puts anything between them. */
typedef struct {
    uint32_t magic, sequence, task, samples, shelf_crc, bytes, data_crc;
    uint8_t setup[PL_SETUP_SIZE + (4 - PL_SETUP_SIZE % 4) % 4]; /* as on the wire */
    float scaler[2 * PL_MAX_CHANNELS];
    uint32_t crc;
} header;

enum { HEAD = (sizeof(header) + PL_UNIT_MOST - 1) / PL_UNIT_MOST * PL_UNIT_MOST };

static uint32_t pages(uint32_t bytes) { return (bytes + PAGE - 1u) / PAGE * PAGE; }

static uint32_t weight_bytes(const pl_net *net)
{
    return (pl_numbers(net) * (net->shape.weights == PL_INT8 ? 1u : 4u) + 3u) & ~3u;
}

static uint32_t scale_bytes(const pl_net *net) { return net->shape.weights == PL_INT8 ? net->tensors * 4u : 0; }
static uint32_t slot_for(uint32_t bytes) { return pages(HEAD + bytes); }
static uint32_t quarter(void) { return pages(pl_port_flash_size() / 4u); }

static uint32_t slots_for(uint32_t bytes)
{
    uint32_t n = quarter() / slot_for(bytes);
    return n < LEAST_SLOTS ? LEAST_SLOTS : n > MOST_SLOTS ? MOST_SLOTS : n;
}

static uint32_t data_bytes(const pl_net *net) { return weight_bytes(net) + scale_bytes(net); }
uint32_t pl_slot_bytes(const pl_net *net) { return slot_for(data_bytes(net)); }
uint32_t pl_slots(const pl_net *net) { return slots_for(data_bytes(net)); }

/* The same for all networks of which at least two fit into the quarter: samples stay where they are. */
uint32_t pl_shelf_at(const pl_net *net)
{
    uint32_t ring = LEAST_SLOTS * pl_slot_bytes(net);
    return ring > quarter() ? ring : quarter();
}

int pl_program(uint32_t at, const void *bytes, uint32_t n)
{
    uint32_t whole = n / UNIT * UNIT;
    uint8_t last[PL_UNIT_MOST];
    if (whole && !pl_port_flash_write(at, bytes, whole)) return 0;
    if (whole == n) return 1;
    pl_fill(last, 0xff, sizeof last);
    pl_copy(last, (const uint8_t *)bytes + whole, n - whole);
    return pl_port_flash_write(at + whole, last, UNIT);
}

static int set_up_layers(pl_client *client, const pl_setup *setup)
{
    pl_chain *chain = &client->chain;
    pl_net *net = &client->net;
    pl_chain_shape shape = {(const uint8_t *)setup->layers, setup->steps, setup->inputs, setup->classes, setup->extras, setup->weights};
    switch (pl_chain_init(chain, &shape, client->arena, client->arena_bytes)) {
    case PL_OK: break;
    case PL_NO_ROOM: return PL_TROUBLE_NO_ROOM;
    default: return PL_TROUBLE_BAD_SHAPE;
    }
    pl_fill(net, 0, sizeof *net);
    net->shape.inputs = setup->inputs;
    net->shape.steps = setup->steps;
    net->shape.classes = setup->classes;
    net->count = chain->count;
    net->shape.weights = setup->weights;
    net->shape.extras = setup->extras;
    net->weights = chain->small ? (void *)chain->small : (void *)chain->weights;
    net->scales = chain->scales;
    net->gradient = chain->gradient;
    net->velocity = chain->velocity;
    net->pull = chain->pull;
    net->tensors = chain->tensors;
    net->used = chain->used;
    if (pl_shelf_at(net) > pl_port_flash_size()) return PL_TROUBLE_NO_ROOM;
    chain->pause = pl_breathe;
    chain->context = client;
    client->setup = *setup;
    client->is_set = 1;
    return 0;
}

int pl_set_up(pl_client *client, const pl_setup *setup)
{
    pl_shape shape = {setup->inputs, setup->hidden, setup->backbone, setup->head, setup->classes, setup->steps,
                      {setup->layers_f, setup->layers_g, setup->layers_h}, setup->gated, setup->timed, setup->keep,
                      setup->weights, setup->kept, setup->extras};
    pl_terms terms = {setup->lambda_d, setup->lambda_m, setup->lambda_a, setup->v, setup->lr, setup->clip, setup->ra_form,
                      setup->lud};
    /* whatever is wrong leaves nothing set up, not half of it */
    client->is_set = client->installed = client->shelved = client->dirty = client->answers = 0;
    client->setups++;
    client->course.alone = 0;
    client->trained = client->kept = PL_NO_TASK;
    client->share = (pl_share){.task = PL_NO_TASK};
    client->train = client->valid = 0;
    client->shelf_crc = client->written = 0;
    client->live = client->live_next = 0;
    pl_fill(client->scaler, 0, sizeof client->scaler);
    if (setup->wire > PL_INT8 || setup->ra_form > PL_PRINTED || setup->lud > PL_TASK || setup->epochs == 0 || setup->epochs > PL_MAX_EPOCHS)
        return PL_TROUBLE_BAD_VALUE;
    if (setup->network > 1) return PL_TROUBLE_BAD_VALUE;
    if (setup->network == 1) return set_up_layers(client, setup);
    switch (pl_net_init(&client->net, &shape, client->arena, client->arena_bytes)) {
    case PL_OK: break;
    case PL_NO_ROOM: return PL_TROUBLE_NO_ROOM;
    default: return PL_TROUBLE_BAD_SHAPE;
    }
    if (pl_shelf_at(&client->net) > pl_port_flash_size()) return PL_TROUBLE_NO_ROOM;
    client->net.pause = pl_breathe;
    client->net.context = client;
    client->setup = *setup;
    client->terms = terms;
    client->is_set = 1;
    return 0;
}

/* The slot after the last one; of another network's slots the newest is spared where that can be. */
static uint32_t next_slot(const pl_client *client)
{
    uint32_t n = pl_slots(&client->net), bytes = pl_slot_bytes(&client->net), slot = (client->slot + 1u) % n;
    for (uint32_t tries = 0; tries < n; tries++, slot = (slot + 1u) % n) {
        uint32_t at = slot * bytes;
        if (at + bytes <= client->stored_at || at >= client->stored_at + client->stored_bytes) break;
    }
    return slot;
}

/* Weights, then scales, programmed behind the header's place; pieces begin at whole units. */
static int program_data(const pl_net *net, uint32_t at)
{
    uint32_t weights = weight_bytes(net), whole = weights / UNIT * UNIT, held = weights - whole, scales = scale_bytes(net);
    uint8_t seam[PL_UNIT_MOST];
    if (whole && !pl_port_flash_write(at, net->weights, whole)) return 0;
    if (!held) return !scales || pl_program(at + whole, net->scales, scales);
    pl_copy(seam, (const uint8_t *)net->weights + whole, held);
    uint32_t more = UNIT - held < scales ? UNIT - held : scales;
    if (more) pl_copy(seam + held, net->scales, more);
    if (!pl_program(at + whole, seam, held + more)) return 0;
    return scales == more || pl_program(at + whole + UNIT, (const uint8_t *)net->scales + more, scales - more);
}

static uint32_t crc_of(const header *h) { return pl_crc32(0, (const uint8_t *)h, offsetof(header, crc)); }

int pl_store(pl_client *client, uint32_t task)
{
    const pl_net *net = &client->net;
    uint32_t slot = next_slot(client), bytes = pl_slot_bytes(net), at = slot * bytes;
    header h;
    pl_fill(&h, 0, sizeof h);
    h.magic = MAGIC;
    h.sequence = client->sequence + 1u;
    h.task = task;
    h.samples = (uint32_t)client->train | (uint32_t)client->valid << 16;
    h.shelf_crc = client->shelf_crc;
    h.bytes = data_bytes(net);
    h.data_crc = pl_crc32(0, net->weights, weight_bytes(net));
    if (scale_bytes(net)) h.data_crc = pl_crc32(h.data_crc, (const uint8_t *)net->scales, scale_bytes(net));
    pl_setup_write(h.setup, &client->setup);
    for (unsigned i = 0; i < 2 * PL_MAX_CHANNELS; i++) h.scaler[i] = (float)client->scaler[i];
    h.crc = crc_of(&h);
    for (uint32_t page = at; page < at + bytes; page += PAGE)
        if (!pl_port_flash_erase(page)) return 0;
    client->slot = slot; /* also when what follows fails: the next try takes another one */
    if (!program_data(net, at + HEAD) || !pl_program(at, &h, sizeof h)) return 0;
    client->sequence++;
    client->stored_at = at;
    client->stored_bytes = bytes;
    client->kept = task;
    client->installed = 1;
    client->dirty = PL_CLEAN;
    return 1;
}

/* The header at a page, if what it heads is whole. */
static int whole(uint32_t at, header *h)
{
    uint32_t size = pl_port_flash_size();
    if (size - at < sizeof *h) return 0;
    pl_copy(h, pl_port_flash() + at, sizeof *h);
    if (h->magic != MAGIC || h->crc != crc_of(h) || h->bytes > size) return 0;
    uint32_t bytes = slot_for(h->bytes);
    if (at % bytes || at / bytes >= slots_for(h->bytes) || bytes > size - at) return 0;
    return pl_crc32(0, pl_port_flash() + at + HEAD, h->bytes) == h->data_crc;
}

/* The newest whole slot; 1 if there is one. */
static int newest(header *best, uint32_t *where)
{
    header h;
    int found = 0;
    for (uint32_t at = 0, size = pl_port_flash_size(); at < size; at += PAGE)
        if (whole(at, &h) && (!found || h.sequence > best->sequence)) {
            *best = h;
            *where = at;
            found = 1;
        }
    return found;
}

static int take_weights(pl_client *client, uint32_t at, const header *h)
{
    pl_net *net = &client->net;
    const uint8_t *data = pl_port_flash() + at + HEAD;
    if (h->bytes != data_bytes(net)) return 0;
    pl_copy(net->weights, data, weight_bytes(net));
    if (scale_bytes(net)) pl_copy(net->scales, data + weight_bytes(net), scale_bytes(net));
    client->trained = client->kept = h->task;
    client->installed = 1;
    client->dirty = PL_CLEAN;
    client->answers = client->share.ready = 0;
    return 1;
}

int pl_go_back(pl_client *client)
{
    header h;
    return client->installed && client->stored_bytes && whole(client->stored_at, &h) && h.sequence == client->sequence &&
           take_weights(client, client->stored_at, &h);
}

int pl_recall(pl_client *client)
{
    header h;
    pl_setup setup;
    uint32_t at = 0;
    if (!newest(&h, &at)) return 0;
    client->sequence = h.sequence; /* what is stored next must be newer, whatever this is worth */
    client->stored_at = at;
    client->stored_bytes = slot_for(h.bytes);
    client->slot = at / client->stored_bytes;
    pl_setup_read(&setup, h.setup);
    if (pl_set_up(client, &setup)) return 0;
    if (!take_weights(client, at, &h)) {
        client->is_set = 0;
        return 0;
    }
    for (unsigned i = 0; i < 2 * PL_MAX_CHANNELS; i++) client->scaler[i] = h.scaler[i];
    pl_check_samples(client, h.samples & 0xffffu, h.samples >> 16, h.shelf_crc);
    return 1;
}
