/* The samples in flash, behind the slots. They lie in blocks of whole pages, and none lies in two blocks: erasing one
   block cannot tear a sample of another. A sample begins with its steps (u16), label (u16) and CRC-32 (u32, over steps,
   label and values); then come its values, and its time spans where the network is timed. */
#include "pl_client.h"

#define PAGE ((uint32_t)PL_PAGE)
#define UNIT ((uint32_t)PL_UNIT)

typedef struct {
    uint32_t record, bytes, holds; /* bytes of a sample, of a block; samples in a block */
} blocks;

uint32_t pl_sample_bytes(const pl_shape *s)
{
    return PL_SAMPLE_HEAD + 4u * (uint32_t)s->steps * (s->inputs + (uint32_t)s->timed);
}

/* The smallest block that wastes at most an eighth, or of the first few the one that wastes least. */
static blocks layout(const pl_net *net)
{
    uint32_t record = (pl_sample_bytes(&net->shape) + UNIT - 1u) / UNIT * UNIT, first = (record + PAGE - 1u) / PAGE;
    blocks best = {record, first * PAGE, first * PAGE / record};
    for (uint32_t n = first + 1u; n < first + 8u; n++) {
        uint32_t waste = best.bytes - best.holds * record, bytes = n * PAGE, holds = bytes / record;
        if (waste <= best.bytes / 8u) break;
        if ((uint64_t)(bytes - holds * record) * best.bytes < (uint64_t)waste * bytes) best = (blocks){record, bytes, holds};
    }
    return best;
}

uint32_t pl_shelf_room(const pl_net *net)
{
    blocks b = layout(net);
    uint32_t at = pl_shelf_at(net), size = pl_port_flash_size();
    return at < size ? (size - at) / b.bytes * b.holds : 0;
}

static uint32_t place(const pl_net *net, const blocks *b, uint32_t i)
{
    return pl_shelf_at(net) + i / b->holds * b->bytes + i % b->holds * b->record;
}

pl_sample pl_sample_at(const pl_client *client, uint32_t i)
{
    const pl_shape *s = &client->net.shape;
    blocks b = layout(&client->net);
    const uint8_t *at = pl_port_flash() + place(&client->net, &b, i);
    pl_sample sample;
    pl_copy(&sample.steps, at, 2);
    pl_copy(&sample.label, at + 2, 2);
    sample.x_TI = (const pl_real *)(const void *)(at + PL_SAMPLE_HEAD); /* whole words from an aligned start */
    sample.spans = sample.x_TI + (size_t)s->steps * s->inputs;
    return sample;
}

/* One that may be trained on: whole, no longer than the network's series, of a class that exists. */
static int sound(const pl_net *net, const uint8_t *at)
{
    const pl_shape *s = &net->shape;
    uint16_t steps, label;
    uint32_t crc;
    pl_copy(&steps, at, 2);
    pl_copy(&label, at + 2, 2);
    pl_copy(&crc, at + 4, 4);
    if (steps == 0 || steps > s->steps || label >= s->classes) return 0;
    return pl_crc32(pl_crc32(0, at, 4), at + PL_SAMPLE_HEAD, pl_sample_bytes(s) - PL_SAMPLE_HEAD) == crc;
}

int pl_check_samples(pl_client *client, uint32_t train, uint32_t valid, uint32_t crc)
{
    const pl_net *net = &client->net;
    blocks b = layout(net);
    uint32_t found = 0;
    client->shelved = 0;
    if (train + valid > pl_shelf_room(net)) return 0;
    for (uint32_t i = 0; i < train + valid; i++) {
        const uint8_t *at = pl_port_flash() + place(net, &b, i);
        if (!sound(net, at)) return 0;
        found = pl_crc32(found, at, pl_sample_bytes(&net->shape));
    }
    if (found != crc) return 0;
    client->train = (uint16_t)train;
    client->valid = (uint16_t)valid;
    client->shelf_crc = crc;
    client->shelved = 1;
    return 1;
}

/* Pieces come in order. One that is there already was sent again, because its answer was lost: nothing is programmed
   twice. A first piece that differs begins anew. */
int pl_shelf_write(pl_client *client, uint32_t offset, const uint8_t *bytes, uint32_t n)
{
    const pl_net *net = &client->net;
    uint32_t size = pl_sample_bytes(&net->shape), i = offset / size, from = offset % size;
    blocks b = layout(net);
    if (n == 0 || from % PL_PIECE || n > size - from || (n % PL_PIECE && from + n != size)) return PL_TROUBLE_BAD_REGION;
    if (i >= pl_shelf_room(net) || offset > client->written) return PL_TROUBLE_BAD_REGION;
    uint32_t at = place(net, &b, i) + from;
    if (offset < client->written) {
        int same = offset + n <= client->written;
        for (uint32_t k = 0; same && k < n; k++) same = pl_port_flash()[at + k] == bytes[k];
        if (same) return 0;
        if (offset) return PL_TROUBLE_BAD_REGION;
    }
    client->shelved = 0;
    client->written = 0; /* until it is in place: what failed half way is not programmed again without an erasure */
    if (from == 0 && i % b.holds == 0)
        for (uint32_t page = at; page < at + b.bytes; page += PAGE)
            if (!pl_port_flash_erase(page)) return PL_TROUBLE_FLASH_FAILED;
    if (!pl_program(at, bytes, n)) return PL_TROUBLE_FLASH_FAILED;
    client->written = offset + n;
    return 0;
}
