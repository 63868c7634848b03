/* Frames that only holders of the board's key can make: HMAC-SHA-256 (RFC 2104), cut to eight bytes.

   A HELLO names a number of the host; the answer names a number of the board. Both are part of every tag until the next
   HELLO with another number, so that nothing recorded before can be sent again. A counter in every frame keeps frames
   of one conversation in order: a frame may come again as it was (its answer was lost), but none that is older. */
#ifndef PL_LOCK_H
#define PL_LOCK_H

#include "pl_frame.h"

PL_BEGIN

enum { PL_KEY_BYTES = 32, PL_DIGEST = 32, PL_TAG = 8 }; /* a tail is the counter, then the tag */

typedef struct {
    const uint8_t *key;   /* 0: the line is open to all */
    uint64_t host, board; /* the two numbers of this conversation */
    uint64_t fresh;       /* the board's next number */
    uint32_t counter;     /* of the newest frame accepted */
} pl_lock;

typedef struct {
    uint32_t h[8];
    uint64_t bytes;
    uint8_t block[64];
} pl_sha256;

void pl_sha256_begin(pl_sha256 *s);
void pl_sha256_add(pl_sha256 *s, const void *bytes, size_t n);
void pl_sha256_end(pl_sha256 *s, uint8_t *digest);
void pl_hmac(const uint8_t *key, const void *first, size_t n, const void *then, size_t m, uint8_t *digest);

/* `noise` is whatever differs from one start to the next. */
void pl_lock_init(pl_lock *lock, const uint8_t *key, const void *noise, size_t n);
void pl_lock_greet(pl_lock *lock, uint64_t host); /* a HELLO came */
/* 1 if this frame's tag and counter are right; its length is then that of what it says. `frame` is head and payload. */
int pl_lock_open(pl_lock *lock, uint8_t *frame);
/* Appends counter and tag to an answer; returns its new length. */
uint8_t pl_lock_seal(const pl_lock *lock, uint8_t *frame, uint8_t kind, uint8_t seq, uint8_t length);

PL_END

#endif
