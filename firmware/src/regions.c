/* WRITE and READ: the regions of a board's memory, each within its bounds. A READ may be answered in many pieces. */
#include "pl_client.h"

/* The bytes of a region that may be read or written as they are; 0 for none. */
static uint8_t *plain_region(pl_client *client, uint8_t region, uint32_t *bytes)
{
    pl_net *net = &client->net;
    if (region == PL_REGION_WEIGHTS) {
        *bytes = pl_numbers(net) * (net->shape.weights == PL_INT8 ? 1u : 4u);
        return net->weights;
    }
    if (region == PL_REGION_SCALER && net->shape.inputs <= PL_MAX_CHANNELS && sizeof(pl_real) == 4) {
        *bytes = 2u * net->shape.inputs * 4u;
        return (uint8_t *)client->scaler;
    }
    if (region == PL_REGION_SCALES && net->shape.weights == PL_INT8) {
        *bytes = net->tensors * 4u;
        return (uint8_t *)net->scales;
    }
    return 0;
}

static int within(uint32_t offset, uint32_t n, uint32_t bytes) { return offset <= bytes && n <= bytes - offset; }

/* The piece of CUD or LUD that a range of its bytes is: which number it begins with, how many they are. */
static int vector_piece(const pl_client *client, uint32_t offset, uint32_t n, uint32_t *first, uint32_t *count)
{
    uint32_t each = pl_wire_bytes(client->setup.wire);
    *first = offset / each;
    *count = n / each;
    return offset % each == 0 && n % each == 0 && within(offset, n, client->net.vector * each);
}

int pl_region_write(pl_client *client, const uint8_t *payload, uint32_t length)
{
    pl_write m;
    uint32_t n = length - PL_WRITE_SIZE, bytes, first, count;
    pl_write_read(&m, payload);
    payload += PL_WRITE_SIZE;
    if (!client->is_set) return PL_TROUBLE_NOT_READY;
    uint8_t *to = plain_region(client, m.region, &bytes);
    if (to) {
        if (!within(m.offset, n, bytes)) return PL_TROUBLE_BAD_REGION;
        pl_copy(to + m.offset, payload, n);
        client->dirty = PL_WRITTEN;
        client->answers = 0;
    } else if (m.region == PL_REGION_CUD) {
        if (!vector_piece(client, m.offset, n, &first, &count)) return PL_TROUBLE_BAD_REGION;
        pl_from_wire(client->net.cud + first, payload, count, client->setup.wire);
    } else if (m.region == PL_REGION_PULL && client->net.pull) {
        if (!within(m.offset, n, client->net.count * sizeof(pl_real))) return PL_TROUBLE_BAD_REGION;
        pl_copy((uint8_t *)client->net.pull + m.offset, payload, n);
    } else if (m.region == PL_REGION_CHANGE && (client->setup.extras & PL_SHARE)) {
        if (!within(m.offset, n, client->net.count * sizeof(pl_real))) return PL_TROUBLE_BAD_REGION;
        pl_copy((uint8_t *)client->net.gradient + m.offset, payload, n);
        client->share.bytes = 0;
    } else if (m.region == PL_REGION_SHELF) {
        int trouble = pl_shelf_write(client, m.offset, payload, n);
        if (trouble) return trouble;
    } else {
        return PL_TROUBLE_BAD_REGION;
    }
    pl_answer(client, PL_KIND_WRITE | PL_ANSWER, 0);
    return 0;
}

/* The bytes of a region that lie in memory as they are sent; 0 for others. */
static const uint8_t *sent_region(pl_client *client, uint8_t region, uint32_t *bytes)
{
    if (region != PL_REGION_CHANGE) return plain_region(client, region, bytes);
    *bytes = client->share.bytes;
    return client->share.told ? (const uint8_t *)client->net.gradient : 0;
}

int pl_region_read(pl_client *client, const uint8_t *payload)
{
    pl_read m;
    uint32_t bytes, first, count;
    pl_read_read(&m, payload);
    if (!client->is_set) return PL_TROUBLE_NOT_READY;
    const uint8_t *from = sent_region(client, m.region, &bytes);
    uint32_t end = m.offset + (uint32_t)m.more * PL_PAYLOAD + m.length;
    if (m.length > PL_PAYLOAD || end < m.offset) return PL_TROUBLE_BAD_REGION;
    if (!from) {
        if (m.region != PL_REGION_LUD) return PL_TROUBLE_BAD_REGION;
        if (!client->answers || client->setup.network) return PL_TROUBLE_NOT_READY;
        if (!vector_piece(client, m.offset, end - m.offset, &first, &count)) return PL_TROUBLE_BAD_REGION;
    } else if (!within(m.offset, end - m.offset, bytes)) {
        return PL_TROUBLE_BAD_REGION;
    }
    uint8_t *to = client->out + PL_FRAME_HEAD, seq = client->seq;
    for (uint32_t k = 0, at = m.offset, n; k <= m.more; k++, at += n) {
        n = k < m.more ? (uint32_t)PL_PAYLOAD : m.length;
        if (from) {
            pl_copy(to, from + at, n);
        } else {
            vector_piece(client, at, n, &first, &count);
            pl_to_wire(to, client->net.lud + first, count, client->setup.wire, client->answer.scale);
        }
        client->seq = (uint8_t)(seq + k);
        pl_answer(client, PL_KIND_READ | PL_ANSWER, (uint8_t)n);
    }
    return 0;
}
