/* A vector on the wire: float32, float16, or int8 with one scale. methods/parts/vector.py is the same in PyTorch. */
#include "pl_client.h"

uint32_t pl_wire_bytes(uint8_t wire) { return wire == PL_FLOAT32 ? 4 : wire == PL_FLOAT16 ? 2 : 1; }

/* To the nearest float16, ties to even. */
static uint16_t to_half(float value)
{
    uint32_t u = pl_bits(value), sign = (u >> 16) & 0x8000u, m = u & 0x7fffffffu;
    if (m >= 0x7f800000u) return (uint16_t)(sign | (m > 0x7f800000u ? 0x7e00u : 0x7c00u));
    if (m >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to beyond 65504 */
    if (m < 0x38800000u) { /* below 2^-14 steps are 2^-24: a whole number of them, rounded by the addition of 0.5 */
        return (uint16_t)(sign | (pl_bits(pl_from_bits(m) + 0.5f) - pl_bits(0.5f)));
    }
    m += 0xfffu + ((m >> 13) & 1u) - 0x38000000u;
    return (uint16_t)(sign | (m >> 13));
}

static float from_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, m = h & 0x7fffu;
    if (m >= 0x7c00u) return pl_from_bits(sign | 0x7f800000u | ((m & 0x3ffu) << 13));
    if (m < 0x400u) return pl_from_bits(sign | pl_bits((float)m * (1.0f / 16777216.0f)));
    return pl_from_bits(sign | ((m << 13) + 0x38000000u));
}

pl_real pl_wire_scale(const pl_real *from, uint32_t n, uint8_t wire)
{
    pl_real largest = 0;
    if (wire != PL_INT8) return 0;
    for (uint32_t i = 0; i < n; i++) {
        pl_real a = from[i] < 0 ? -from[i] : from[i];
        largest = a > largest ? a : largest;
    }
    largest /= 127.0f;
    return largest > 1e-30f ? largest : 1e-30f;
}

void pl_to_wire(uint8_t *to, const pl_real *from, uint32_t n, uint8_t wire, pl_real scale)
{
    for (uint32_t i = 0; i < n; i++) {
        if (wire == PL_FLOAT32) {
            pl_copy(to + 4 * i, from + i, 4);
        } else if (wire == PL_FLOAT16) {
            uint16_t h = to_half(from[i]);
            pl_copy(to + 2 * i, &h, 2);
        } else {
            pl_real a = from[i] / scale;
            a = a > 127.0f ? 127.0f : a > -127.0f ? a : -127.0f;
            to[i] = (uint8_t)(int8_t)((a + 12582912.0f) - 12582912.0f); /* 1.5 * 2^23: to the nearest, ties to even */
        }
    }
}

/* An int8 vector comes without its scale: only the direction of a CUD matters. */
void pl_from_wire(pl_real *to, const uint8_t *from, uint32_t n, uint8_t wire)
{
    for (uint32_t i = 0; i < n; i++) {
        if (wire == PL_FLOAT32) {
            pl_copy(to + i, from + 4 * i, 4);
        } else if (wire == PL_FLOAT16) {
            uint16_t h;
            pl_copy(&h, from + 2 * i, 2);
            to[i] = from_half(h);
        } else {
            to[i] = (pl_real)(int8_t)from[i];
        }
    }
}
