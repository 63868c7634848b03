/* The samples in flash, behind the slots. They lie in blocks of whole pages, and none lies in two blocks: erasing one
   block cannot tear a sample of another. A sample begins with its steps (u16), label (u16) and CRC-32 (u32, over steps,
   label and values); then come its values, and its time spans where the network is timed. */
#include "pl_client.h"

#define PAGE ((uint32_t)PL_PAGE)
#define UNIT ((uint32_t)PL_UNIT)
#define FIRST ((uint32_t)(PL_PIECE - PL_SAMPLE_HEAD)) /* bytes of values in the first piece */
#define RECORDED 0x4C495645u /* seed of the checksum of what the board recorded itself */

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

static uint32_t live_place(const pl_client *client, const blocks *b, uint32_t which);

/* Those of the host first, then those that the board recorded. */
pl_sample pl_sample_at(const pl_client *client, uint32_t i)
{
    const pl_shape *s = &client->net.shape;
    blocks b = layout(&client->net);
    uint32_t own = (uint32_t)client->train + client->valid;
    const uint8_t *at = pl_port_flash() + place(&client->net, &b, i < own ? i : live_place(client, &b, i - own));
    pl_sample sample;
    pl_copy(&sample.steps, at, 2);
    pl_copy(&sample.label, at + 2, 2);
    sample.x_TI = (const pl_real *)(const void *)(at + PL_SAMPLE_HEAD); /* whole words from an aligned start */
    sample.spans = sample.x_TI + (size_t)s->steps * s->inputs;
    return sample;
}

/* One that may be trained on: whole, no longer than the network's series, of a class that exists. */
static int sound(const pl_net *net, const uint8_t *at, uint32_t seed)
{
    const pl_shape *s = &net->shape;
    uint16_t steps, label;
    uint32_t crc;
    pl_copy(&steps, at, 2);
    pl_copy(&label, at + 2, 2);
    pl_copy(&crc, at + 4, 4);
    if (steps == 0 || steps > s->steps || label >= s->classes) return 0;
    return pl_crc32(pl_crc32(seed, at, 4), at + PL_SAMPLE_HEAD, pl_sample_bytes(s) - PL_SAMPLE_HEAD) == crc;
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
        if (!sound(net, at, 0)) return 0;
        found = pl_crc32(found, at, pl_sample_bytes(&net->shape));
    }
    if (found != crc) return 0;
    client->train = (uint16_t)train;
    client->valid = (uint16_t)valid;
    client->shelf_crc = crc;
    client->shelved = 1;
    pl_find_live(client);
    return 1;
}

/* The first place that a recorded sample may have: a block of its own. */
static uint32_t live_base(const pl_client *client, const blocks *b)
{
    uint32_t n = (uint32_t)client->train + client->valid;
    return (n + b->holds - 1u) / b->holds * b->holds;
}

static int blank(const uint8_t *at, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (at[i] != 0xff) return 0;
    return 1;
}

/* Which places hold whole recordings, and the first one behind them. Their checksum begins with a number of its own:
   samples that a host sent once are not taken for them. */
void pl_find_live(pl_client *client)
{
    const pl_net *net = &client->net;
    blocks b = layout(net);
    uint32_t base = live_base(client, &b), room = pl_shelf_room(net);
    client->live = client->live_next = 0;
    pl_fill(client->live_whole, 0, sizeof client->live_whole);
    for (uint32_t i = 0; i < PL_MAX_LIVE && base + i < room; i++) {
        const uint8_t *at = pl_port_flash() + place(net, &b, base + i);
        if (!sound(net, at, RECORDED)) continue; /* torn, or what lay there before */
        client->live_next = (uint16_t)(i + 1u);
        client->live_whole[i / 8] |= (uint8_t)(1u << i % 8);
        client->live++;
    }
}

static uint32_t live_place(const pl_client *client, const blocks *b, uint32_t which)
{
    uint32_t i = 0;
    for (uint32_t seen = 0; i < PL_MAX_LIVE; i++)
        if (((uint32_t)client->live_whole[i / 8] >> i % 8 & 1u) && seen++ == which) break;
    return live_base(client, b) + i;
}

/* The checksum is programmed with the rest: a torn sample does not match it, and its place is left. */
int pl_record_sample(pl_client *client, const pl_real *x_TI, uint16_t label)
{
    const pl_net *net = &client->net;
    const pl_shape *s = &net->shape;
    blocks b = layout(net);
    uint32_t base = live_base(client, &b), i = base + client->live_next, bytes = pl_sample_bytes(s) - PL_SAMPLE_HEAD;
    uint8_t head[PL_PIECE];
    if (!client->is_set || client->busy || s->timed) return PL_TROUBLE_NOT_READY;
    if (label >= s->classes) return PL_TROUBLE_BAD_VALUE;
    while (i % b.holds && i < pl_shelf_room(net) && !blank(pl_port_flash() + place(net, &b, i), b.record)) i++; /* torn */
    if (i - base >= PL_MAX_LIVE || i >= pl_shelf_room(net)) return PL_TROUBLE_NO_ROOM;
    client->live_next = (uint16_t)(i - base);
    uint32_t at = place(net, &b, i), first = FIRST < bytes ? FIRST : bytes;
    pl_copy(head, &s->steps, 2);
    pl_copy(head + 2, &label, 2);
    uint32_t crc = pl_crc32(pl_crc32(RECORDED, head, 4), (const uint8_t *)x_TI, bytes);
    pl_copy(head + 4, &crc, 4);
    pl_copy(head + PL_SAMPLE_HEAD, x_TI, first);
    if (i % b.holds == 0)
        for (uint32_t page = at; page < at + b.bytes; page += PAGE)
            if (!pl_port_flash_erase(page)) return PL_TROUBLE_FLASH_FAILED;
    client->live_next++; /* whatever comes of it: this place is used */
    if (!pl_program(at, head, PL_SAMPLE_HEAD + first)) return PL_TROUBLE_FLASH_FAILED;
    if (bytes > first && !pl_program(at + PL_PIECE, (const uint8_t *)x_TI + first, bytes - first)) return PL_TROUBLE_FLASH_FAILED;
    i = client->live_next - 1u;
    client->live_whole[i / 8] |= (uint8_t)(1u << i % 8);
    client->live++;
    return 0;
}

int pl_forget_live(pl_client *client)
{
    blocks b = layout(&client->net);
    uint32_t base = live_base(client, &b), n = client->live_next;
    if (!client->is_set || client->busy) return PL_TROUBLE_NOT_READY;
    for (uint32_t i = 0; i < n; i += b.holds)
        for (uint32_t at = place(&client->net, &b, base + i), page = at; page < at + b.bytes; page += PAGE)
            if (!pl_port_flash_erase(page)) return PL_TROUBLE_FLASH_FAILED;
    pl_find_live(client);
    return 0;
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
