/* Frames on a byte stream: COBS( version, kind, seq, length, payload, [counter, tag,] crc16 ) 0x00.
   A zero byte never occurs inside a frame, so a reader that has lost its place finds it again at the next zero.
   The checksum is CRC-16/CCITT-FALSE (0x1021, from 0xffff) over version..payload, little-endian. */
#ifndef PL_FRAME_H
#define PL_FRAME_H

#include "pl_messages.h"

PL_BEGIN

enum { PL_FRAME_HEAD = 4, PL_FRAME_MAX = PL_FRAME_HEAD + PL_PAYLOAD + PL_TAIL + 2 };

/* Collects one frame, byte by byte. */
typedef struct {
    uint8_t bytes[PL_FRAME_MAX];
    uint16_t n;
    uint8_t left, block; /* of the COBS block at hand: bytes still to come, and its length */
    uint8_t spoilt;      /* wait for the next zero */
} pl_reader;

typedef enum { PL_NOTHING, PL_FRAME, PL_SPOILT, PL_FOREIGN } pl_found; /* FOREIGN: well formed, another version */

pl_found pl_read_byte(pl_reader *reader, uint8_t byte);

/* The frame as bytes for the line, at most PL_FRAME_MAX + 2 of them, given one by one to `send`. `frame` has room for
   PL_FRAME_MAX; its payload is in place already. */
void pl_send_frame(uint8_t *frame, uint8_t kind, uint8_t seq, uint8_t length, void (*send)(uint8_t));

uint16_t pl_crc16(const uint8_t *bytes, size_t n);
uint32_t pl_crc32(uint32_t crc, const uint8_t *bytes, size_t n); /* begin with 0; as zlib's */

PL_END

#endif
