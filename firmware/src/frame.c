/* Frames: engines/serial/frames.py in C. */
#include "pl_frame.h"

uint16_t pl_crc16(const uint8_t *bytes, size_t n)
{
    uint32_t crc = 0xffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= (uint32_t)bytes[i] << 8;
        for (unsigned bit = 0; bit < 8; bit++) crc = crc & 0x8000u ? (crc << 1) ^ 0x1021u : crc << 1;
    }
    return (uint16_t)crc;
}

uint32_t pl_crc32(uint32_t crc, const uint8_t *bytes, size_t n)
{
    static const uint32_t BY_FOUR[16] = {/* what four bits make of it: weights are long, and a table of 256 is a kilobyte */
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc = crc >> 4 ^ BY_FOUR[(crc ^ bytes[i]) & 15u];
        crc = crc >> 4 ^ BY_FOUR[(crc ^ bytes[i] >> 4) & 15u];
    }
    return ~crc;
}

static pl_found judged(const pl_reader *r)
{
    if (r->spoilt || r->left || r->n < PL_FRAME_HEAD + 2 || r->bytes[3] != r->n - PL_FRAME_HEAD - 2) return PL_SPOILT;
    uint16_t crc = pl_crc16(r->bytes, r->n - 2u);
    if (r->bytes[r->n - 2] != (crc & 0xff) || r->bytes[r->n - 1] != crc >> 8) return PL_SPOILT;
    return r->bytes[0] == PL_VERSION ? PL_FRAME : PL_FOREIGN;
}

static void push(pl_reader *r, uint8_t byte)
{
    if (r->n < PL_FRAME_MAX)
        r->bytes[r->n++] = byte;
    else
        r->spoilt = 1;
}

/* COBS (Cheshire and Baker, 1999): each block begins with its length; between two blocks stood a zero, unless the block
   was the longest there is. */
pl_found pl_read_byte(pl_reader *r, uint8_t byte)
{
    if (byte == 0) {
        pl_found found = r->block ? judged(r) : PL_NOTHING; /* zeros in a row are nothing */
        uint16_t n = r->n;
        r->left = r->block = r->spoilt = 0;
        r->n = 0;
        if (found == PL_FRAME || found == PL_FOREIGN) r->n = n; /* until the next byte */
        return found;
    }
    if (r->block == 0) r->n = 0;
    if (r->left) {
        push(r, byte);
        r->left--;
    } else {
        if (r->block && r->block != 0xff) push(r, 0);
        r->block = byte;
        r->left = (uint8_t)(byte - 1);
    }
    return PL_NOTHING;
}

void pl_send_frame(uint8_t *frame, uint8_t kind, uint8_t seq, uint8_t length, void (*send)(uint8_t))
{
    frame[0] = PL_VERSION;
    frame[1] = kind;
    frame[2] = seq;
    frame[3] = length;
    size_t n = (size_t)PL_FRAME_HEAD + length;
    uint16_t crc = pl_crc16(frame, n);
    frame[n++] = (uint8_t)crc;
    frame[n++] = (uint8_t)(crc >> 8);
    for (size_t begin = 0; begin <= n;) { /* shorter than 254 bytes: no block is the longest */
        size_t end = begin;
        while (end < n && frame[end]) end++;
        send((uint8_t)(end - begin + 1));
        for (; begin < end; begin++) send(frame[begin]);
        begin = end + 1;
    }
    send(0);
}
