/* SHA-256 (FIPS 180-4), HMAC, and the tags of frames; engines/serial/seal.py is the same on the host. */
#include "pl_lock.h"

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turned(uint32_t a, unsigned by) { return (a >> by) | (a << (32u - by)); }

/* Sixteen words at a time: the schedule of 64 would need four times the stack. */
static void compress(uint32_t *h, const uint8_t *block)
{
    uint32_t w[16], v[8];
    for (unsigned i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (unsigned i = 0; i < 8; i++) v[i] = h[i];
    for (unsigned i = 0; i < 64; i++) {
        if (i >= 16) {
            uint32_t a = w[(i + 1) % 16], b = w[(i + 14) % 16];
            w[i % 16] += (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + w[(i + 9) % 16] + (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
        }
        uint32_t e = v[4], a = v[0], one = v[7] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + K[i] + w[i % 16];
        uint32_t two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        for (unsigned k = 7; k > 0; k--) v[k] = v[k - 1];
        v[4] += one;
        v[0] = one + two;
    }
    for (unsigned i = 0; i < 8; i++) h[i] += v[i];
}

void pl_sha256_begin(pl_sha256 *s)
{
    static const uint32_t START[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    for (unsigned i = 0; i < 8; i++) s->h[i] = START[i];
    s->bytes = 0;
}

void pl_sha256_add(pl_sha256 *s, const void *bytes, size_t n)
{
    const uint8_t *from = bytes;
    for (size_t i = 0; i < n; i++) {
        s->block[s->bytes++ % 64] = from[i];
        if (s->bytes % 64 == 0) compress(s->h, s->block);
    }
}

void pl_sha256_end(pl_sha256 *s, uint8_t *digest)
{
    static const uint8_t PAD[64] = {0x80};
    uint64_t bits = s->bytes * 8u;
    uint8_t length[8];
    for (unsigned i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    pl_sha256_add(s, PAD, (size_t)(64u - (s->bytes + 8u) % 64u));
    pl_sha256_add(s, length, 8);
    for (unsigned i = 0; i < PL_DIGEST; i++) digest[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

static void pad(pl_sha256 *s, const uint8_t *key, uint8_t with)
{
    uint8_t block[64];
    for (unsigned i = 0; i < 64; i++) block[i] = (uint8_t)((i < PL_KEY_BYTES ? key[i] : 0) ^ with);
    pl_sha256_begin(s);
    pl_sha256_add(s, block, sizeof block);
}

void pl_hmac(const uint8_t *key, const void *first, size_t n, const void *then, size_t m, uint8_t *digest)
{
    pl_sha256 s;
    pad(&s, key, 0x36);
    pl_sha256_add(&s, first, n);
    if (m) pl_sha256_add(&s, then, m);
    pl_sha256_end(&s, digest);
    pad(&s, key, 0x5c);
    pl_sha256_add(&s, digest, PL_DIGEST);
    pl_sha256_end(&s, digest);
}

void pl_lock_init(pl_lock *lock, const uint8_t *key, const void *noise, size_t n)
{
    uint8_t digest[PL_DIGEST];
    pl_fill(lock, 0, sizeof *lock);
    lock->key = key;
    if (!key) return;
    pl_hmac(key, noise, n, 0, 0, digest);
    pl_copy(&lock->fresh, digest, sizeof lock->fresh);
    lock->board = lock->fresh++; /* no host has this one: nothing is accepted before a HELLO */
    lock->host = ~0ull;
    lock->counter = 0xffffffffu;
}

void pl_lock_greet(pl_lock *lock, uint64_t host)
{
    if (!lock->key || host == lock->host) return; /* asked again: the same conversation */
    lock->host = host;
    lock->board = lock->fresh++;
    lock->counter = 0;
}

enum { FROM_HOST, FROM_BOARD };

static void tag_of(const pl_lock *lock, uint8_t from, const uint8_t *frame, size_t n, uint8_t *tag)
{
    uint8_t digest[PL_DIGEST], told[17];
    pl_copy(told, &lock->host, 8);
    pl_copy(told + 8, &lock->board, 8);
    told[16] = from;
    pl_hmac(lock->key, told, sizeof told, frame, n, digest);
    pl_copy(tag, digest, PL_TAG);
}

int pl_lock_open(pl_lock *lock, uint8_t *frame)
{
    uint8_t tag[PL_TAG], differ = 0;
    uint32_t counter, end = (uint32_t)PL_FRAME_HEAD + frame[3];
    if (frame[3] < PL_TAIL) return 0;
    pl_copy(&counter, frame + end - PL_TAIL, 4);
    tag_of(lock, FROM_HOST, frame, end - PL_TAG, tag);
    for (unsigned i = 0; i < PL_TAG; i++) differ |= (uint8_t)(tag[i] ^ frame[end - PL_TAG + i]); /* all of it: no timing */
    if (differ || counter < lock->counter) return 0;
    lock->counter = counter;
    frame[3] = (uint8_t)(frame[3] - PL_TAIL);
    return 1;
}

uint8_t pl_lock_seal(const pl_lock *lock, uint8_t *frame, uint8_t kind, uint8_t seq, uint8_t length)
{
    if (!lock->key) return length;
    size_t end = (size_t)PL_FRAME_HEAD + length;
    frame[0] = PL_VERSION;
    frame[1] = kind;
    frame[2] = seq;
    frame[3] = (uint8_t)(length + PL_TAIL);
    pl_copy(frame + end, &lock->counter, 4);
    tag_of(lock, FROM_BOARD, frame, end + 4, frame + end + 4);
    return frame[3];
}
