/* Keys: BLAKE2b (RFC 7693) of a short text with a digest of 8 bytes, and the finaliser of SplitMix64. */
#include "pl_keys.h"

static const uint64_t GOLDEN = 0x9E3779B97F4A7C15u;

static uint64_t turned(uint64_t a, unsigned by) { return (a >> by) | (a << (64u - by)); }

static const uint8_t ORDER[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};
static const uint64_t START[8] = {
    0x6A09E667F3BCC908u, 0xBB67AE8584CAA73Bu, 0x3C6EF372FE94F82Bu, 0xA54FF53A5F1D36F1u,
    0x510E527FADE682D1u, 0x9B05688C2B3E6C1Fu, 0x1F83D9ABFB41BD6Bu, 0x5BE0CD19137E2179u,
};

static void quarter(uint64_t *v, unsigned a, unsigned b, unsigned c, unsigned d, uint64_t x, uint64_t y)
{
    v[a] += v[b] + x;
    v[d] = turned(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = turned(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 63);
}

/* One block is enough: no text here is longer than 128 bytes. */
static uint64_t hashed(const char *text, size_t n)
{
    uint64_t m[16] = {0}, v[16], first = START[0] ^ 0x01010000u ^ 8u;
    for (size_t i = 0; i < n; i++) m[i / 8] |= (uint64_t)(uint8_t)text[i] << (8 * (i % 8));
    for (unsigned i = 0; i < 8; i++) v[i] = v[i + 8] = START[i];
    v[0] = first;
    v[12] ^= n;
    v[14] = ~v[14];
    for (unsigned round = 0; round < 12; round++) {
        const uint8_t *o = ORDER[round % 10];
        for (unsigned i = 0; i < 4; i++) quarter(v, i, 4 + i, 8 + i, 12 + i, m[o[2 * i]], m[o[2 * i + 1]]);
        for (unsigned i = 0; i < 4; i++)
            quarter(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[o[8 + 2 * i]], m[o[9 + 2 * i]]);
    }
    return first ^ v[0] ^ v[8];
}

uint64_t pl_number_text(const char *text)
{
    char told[64] = "str:";
    size_t n = 4;
    while (*text && n < sizeof told) told[n++] = *text++;
    return hashed(told, n);
}

uint64_t pl_number(uint32_t value)
{
    char told[16] = "int:", digits[10];
    size_t n = 4, k = 0;
    do digits[k++] = (char)('0' + value % 10u);
    while (value /= 10u);
    while (k) told[n++] = digits[--k];
    return hashed(told, n);
}

static uint64_t mixed(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t pl_fold(uint64_t key, uint64_t part) { return mixed((key ^ part) + GOLDEN); }
uint64_t pl_draw(uint64_t key, uint32_t i) { return mixed(key + GOLDEN * (i + 1ull)); }
pl_real pl_uniform(uint64_t key, uint32_t i) { return (pl_real)(uint32_t)(pl_draw(key, i) >> 40) * (pl_real)(1.0f / 16777216.0f); }

/* Signed and less two bits, as keys.permutation sorts; the sign bit turned makes the order that of plain numbers. */
static uint64_t rank(uint64_t key, uint32_t i) { return (pl_draw(key, i) ^ (1ull << 63)) >> 2; }

uint32_t pl_next_in_order(uint64_t key, uint32_t n, uint32_t last)
{
    uint64_t floor = last < n ? rank(key, last) : 0, best = ~0ull;
    uint32_t next = n;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t here = rank(key, i);
        int after = last >= n || here > floor || (here == floor && i > last);
        if (after && here < best) {
            best = here;
            next = i;
        }
    }
    return next;
}
