/* Numbers: the scalar type, and exp, tanh, log and sqrt from + - * / and bit moves.
   Not here: libm. The same operations in the same order on every machine give the same bits, so the host's build is
   the device's (compile with -ffp-contract=off, never -ffast-math). PL_DOUBLE is a build for tests only: it parts
   mistakes in the maths from rounding. */
#ifndef PL_REAL_H
#define PL_REAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define PL_BEGIN extern "C" {
#define PL_END }
#else
#define PL_BEGIN
#define PL_END
#endif

/* Arduino chooses the flags, and gcc's own default fuses multiply and add. (PlatformIO takes those of library.json; the pragma
   would make gcc forget -ffreestanding, and call strlen.) */
#if defined(ARDUINO) && !defined(PLATFORMIO) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("-ffp-contract=off")
#endif

#define pl_copy __builtin_memcpy /* a few bytes are moved in place, also where -ffreestanding would call the function */
#define pl_fill __builtin_memset

PL_BEGIN

#ifdef PL_DOUBLE
typedef double pl_real;
double exp(double), tanh(double), log(double);
static inline pl_real pl_exp(pl_real a) { return exp(a); }
static inline pl_real pl_tanh(pl_real a) { return tanh(a); }
static inline pl_real pl_log(pl_real a) { return log(a); }
static inline pl_real pl_sqrt(pl_real a) { return __builtin_sqrt(a); }
#else
typedef float pl_real;

static inline uint32_t pl_bits(float a)
{
    uint32_t u;
    pl_copy(&u, &a, sizeof u);
    return u;
}

static inline float pl_from_bits(uint32_t u)
{
    float a;
    pl_copy(&a, &u, sizeof a);
    return a;
}

/* e^a = 2^n e^r with |r| <= ln(2)/2; ln 2 in two parts, the first of nine bits, so that n ln 2 loses nothing. */
static inline pl_real pl_exp(pl_real a)
{
    if (!(a < 88.0f)) return a == a ? pl_from_bits(0x7f800000u) : a;
    if (a < -87.0f) return 0.0f;
    int32_t n = (int32_t)(a * 1.44269504f + (a < 0.0f ? -0.5f : 0.5f));
    pl_real r = (a - (pl_real)n * 0.693359375f) - (pl_real)n * -2.12194440e-4f;
    pl_real p = 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return pl_from_bits(pl_bits(p) + ((uint32_t)n << 23));
}

/* a P(a*a) / Q(a*a), fitted to tanh on 0..8.5 by weighted least squares: 1.2e-8 off, 3.3e-7 with float32's rounding.
   Beyond 8.5 it is 1 to seven digits. */
static inline pl_real pl_tanh(pl_real a)
{
    pl_real q = a * a;
    if (!(q < 72.25f)) return a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : a; /* the last: no number */
    pl_real top = 1.42692196e-08f, bottom = 8.14511964e-07f;
    top = top * q + 2.12510367e-05f;
    bottom = bottom * q + 0.000334886397f;
    top = top * q + 0.00353402644f;
    bottom = bottom * q + 0.026022749f;
    top = top * q + 0.13413246f;
    bottom = bottom * q + 0.467465699f;
    top = top * q + 1.0f;
    bottom = bottom * q + 1.0f;
    return a * top / bottom;
}

/* ln a for a > 0 and normal: a = 2^n m with m around 1, then 2 artanh((m-1)/(m+1)). */
static inline pl_real pl_log(pl_real a)
{
    int32_t n = (int32_t)(pl_bits(a) >> 23) - 127;
    pl_real m = pl_from_bits((pl_bits(a) & 0x007fffffu) | 0x3f800000u);
    if (m > 1.41421356f) {
        m *= 0.5f;
        n += 1;
    }
    pl_real s = (m - 1.0f) / (m + 1.0f), q = s * s;
    pl_real series = 2.0f * s * (1.0f + q * (1.0f / 3.0f + q * (1.0f / 5.0f + q * (1.0f / 7.0f + q * (1.0f / 9.0f)))));
    return (pl_real)n * 0.693147181f + series;
}

/* Bit by bit and rounded to the nearest, as the instruction does it, for cores that have none. */
static inline pl_real pl_sqrt_whole(pl_real a)
{
    uint32_t x = pl_bits(a), q = 0, s = 0;
    int32_t power = (int32_t)(x >> 23);
    if (!(a > 0.0f) || power == 0xff) return a == 0.0f || a > 0.0f ? a : pl_from_bits(0x7fc00000u);
    if (power == 0)
        for (power = 1; !(x & 0x00800000u); power--) x <<= 1;
    x = (x & 0x007fffffu) | 0x00800000u;
    power -= 127;
    if (power & 1) x += x;
    x += x;
    for (uint32_t r = 0x01000000u; r; r >>= 1, x += x)
        if (s + r <= x) {
            x -= s + r;
            s += r + r;
            q += r;
        }
    if (x) q += q & 1u;
    return pl_from_bits((q >> 1) + 0x3f000000u + ((uint32_t)(power >> 1) << 23));
}

#if (defined(__arm__) && !defined(__ARM_FP)) || defined(__xtensa__) || (defined(__riscv) && !defined(__riscv_flen))
static inline pl_real pl_sqrt(pl_real a) { return pl_sqrt_whole(a); }
#else
static inline pl_real pl_sqrt(pl_real a) { return __builtin_sqrtf(a); }
#endif
#endif

PL_END

#endif
