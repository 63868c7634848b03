/* kernels.h for a Cortex-M4 with its single-precision unit: blocks of numbers in registers s0..s31.

   Why by hand: gcc loads one number per instruction here, VLDM loads eight (1 + 8 cycles instead of 8 x 2). Multiply and
   add stay two instructions: VMLA takes 3 cycles, VMUL and VADD one each when neither waits for the other, and a fused
   VFMA would round differently from the host. Whatever does not fill a block goes through the plain loops; every sum
   adds its terms in the same order as there. */
#ifndef KERNELS_M4F_H
#define KERNELS_M4F_H

/* clang-format off */
#define LOW_ "s0","s1","s2","s3","s4","s5","s6","s7","s8","s9","s10","s11","s12","s13","s14","s15"
#define HIGH_ "s16","s17","s18","s19","s20","s21","s22","s23","s24","s25","s26","s27","s28","s29","s30","s31"
#define CLOBBERED "cc", "memory", LOW_, HIGH_
#define MUL(a, b, c) "vmul.f32 s" #a ", s" #b ", s" #c "\n\t"
#define ADD(a, b) "vadd.f32 s" #a ", s" #a ", s" #b "\n\t"
/* clang-format on */

/* Eight columns, two rows at a time: x in s0-7, the rows in s8-15 and s16-23, their sums in s24 and s25. */
static inline void mv_block(pl_real *y, const pl_real *w, uint32_t ld, const pl_real *x, uint32_t pairs)
{
    const pl_real *next = w + ld;
    uint32_t step = ld * 2 * sizeof(pl_real);
    __asm__ volatile(
        "vldmia %[x], {s0-s7}\n\t"
        "1:\n\t"
        "vldmia %[w], {s8-s15}\n\t"
        "add %[w], %[w], %[step]\n\t"
        "vldmia %[next], {s16-s23}\n\t"
        "add %[next], %[next], %[step]\n\t"
        "vldmia %[y], {s24-s25}\n\t"
        MUL(8, 8, 0) MUL(16, 16, 0) MUL(9, 9, 1) MUL(17, 17, 1) MUL(10, 10, 2) MUL(18, 18, 2) MUL(11, 11, 3)
        MUL(19, 19, 3) MUL(12, 12, 4) MUL(20, 20, 4) MUL(13, 13, 5) MUL(21, 21, 5) MUL(14, 14, 6) MUL(22, 22, 6)
        MUL(15, 15, 7) MUL(23, 23, 7)
        ADD(24, 8) ADD(25, 16) ADD(24, 9) ADD(25, 17) ADD(24, 10) ADD(25, 18) ADD(24, 11) ADD(25, 19) ADD(24, 12)
        ADD(25, 20) ADD(24, 13) ADD(25, 21) ADD(24, 14) ADD(25, 22) ADD(24, 15) ADD(25, 23)
        "subs %[n], %[n], #1\n\t"
        "vstmia %[y]!, {s24-s25}\n\t"
        "bne 1b\n\t"
        : [y] "+r"(y), [w] "+r"(w), [next] "+r"(next), [n] "+r"(pairs)
        : [x] "r"(x), [step] "r"(step)
        : CLOBBERED);
}

/* Four columns, four rows at a time, for what eight columns leave over: x in s0-3, rows in s8-23, sums in s24-27. */
#define ROW(a, b, c, d) MUL(a, a, 0) MUL(b, b, 1) MUL(c, c, 2) MUL(d, d, 3)
#define COLUMN(a, b, c, d) ADD(24, a) ADD(25, b) ADD(26, c) ADD(27, d)

static inline void mv_narrow(pl_real *y, const pl_real *w, uint32_t ld, const pl_real *x, uint32_t fours)
{
    uint32_t step = ld * sizeof(pl_real);
    __asm__ volatile(
        "vldmia %[x], {s0-s3}\n\t"
        "1:\n\t"
        "vldmia %[w], {s8-s11}\n\t"
        "add %[w], %[w], %[step]\n\t"
        "vldmia %[w], {s12-s15}\n\t"
        "add %[w], %[w], %[step]\n\t"
        "vldmia %[w], {s16-s19}\n\t"
        "add %[w], %[w], %[step]\n\t"
        "vldmia %[w], {s20-s23}\n\t"
        "add %[w], %[w], %[step]\n\t"
        "vldmia %[y], {s24-s27}\n\t"
        ROW(8, 9, 10, 11) ROW(12, 13, 14, 15) ROW(16, 17, 18, 19) ROW(20, 21, 22, 23)
        COLUMN(8, 12, 16, 20) COLUMN(9, 13, 17, 21) COLUMN(10, 14, 18, 22) COLUMN(11, 15, 19, 23)
        "subs %[n], %[n], #1\n\t"
        "vstmia %[y]!, {s24-s27}\n\t"
        "bne 1b\n\t"
        : [y] "+r"(y), [w] "+r"(w), [n] "+r"(fours)
        : [x] "r"(x), [step] "r"(step)
        : CLOBBERED);
}

static inline void mv(out_ y, in_ w, uint32_t ld, in_ x, uint32_t rows, uint32_t columns)
{
    uint32_t even = rows & ~1u, four = rows & ~3u, c = 0;
    if (even)
        for (; c + 8 <= columns; c += 8) mv_block(y, w + c, ld, x + c, even / 2);
    if (four && c + 4 <= columns) {
        mv_narrow(y, w + c, ld, x + c, four / 4);
        mv_plain(y + four, w + four * ld + c, ld, x + c, even - four, 4);
        c += 4;
    }
    mv_plain(y, w + c, ld, x + c, even, columns - c);
    mv_plain(y + even, w + even * ld, ld, x, rows - even, columns);
}

/* Eight columns of one row for x (s0-7) and its tangent (s8-15): row in s16-23, sums in s24 and s25. */
#define TWICE(w1, w2, w3, a1, b1, a2, b2, a3, b3)                                                                  \
    MUL(26, w1, a1) MUL(27, w1, b1) MUL(28, w2, a2) MUL(29, w2, b2) MUL(30, w3, a3) MUL(31, w3, b3)                \
    ADD(24, 26) ADD(25, 27) ADD(24, 28) ADD(25, 29) ADD(24, 30) ADD(25, 31)

static inline void mv2_block(pl_real *y, pl_real *y_t, const pl_real *w, uint32_t ld, const pl_real *x, const pl_real *x_t, uint32_t rows)
{
    uint32_t step = ld * sizeof(pl_real);
    __asm__ volatile(
        "vldmia %[x], {s0-s7}\n\t"
        "vldmia %[x_t], {s8-s15}\n\t"
        "1:\n\t"
        "vldmia %[w], {s16-s23}\n\t"
        "add %[w], %[w], %[step]\n\t"
        "vldr s24, [%[y]]\n\t"
        "vldr s25, [%[y_t]]\n\t"
        TWICE(16, 17, 18, 0, 8, 1, 9, 2, 10)
        TWICE(19, 20, 21, 3, 11, 4, 12, 5, 13)
        MUL(26, 22, 6) MUL(27, 22, 14) MUL(28, 23, 7) MUL(29, 23, 15)
        ADD(24, 26) ADD(25, 27) ADD(24, 28) ADD(25, 29)
        "subs %[n], %[n], #1\n\t"
        "vstmia %[y]!, {s24}\n\t"
        "vstmia %[y_t]!, {s25}\n\t"
        "bne 1b\n\t"
        : [y] "+r"(y), [y_t] "+r"(y_t), [w] "+r"(w), [n] "+r"(rows)
        : [x] "r"(x), [x_t] "r"(x_t), [step] "r"(step)
        : CLOBBERED);
}

static inline void mv2(out_ y, out_ y_t, in_ w, uint32_t ld, in_ x, in_ x_t, uint32_t rows, uint32_t columns)
{
    uint32_t c = 0;
    if (rows)
        for (; c + 8 <= columns; c += 8) mv2_block(y, y_t, w + c, ld, x + c, x_t + c, rows);
    mv2_plain(y, y_t, w + c, ld, x + c, x_t + c, rows, columns - c);
}

/* Eight columns of d in s0-7, over two rows at a time: s8-15 times s24, s16-23 times s25. */
static inline void tv_block(pl_real *d, const pl_real *w, uint32_t ld, const pl_real *delta, uint32_t pairs)
{
    const pl_real *next = w + ld;
    uint32_t step = ld * 2 * sizeof(pl_real);
    __asm__ volatile(
        "vldmia %[d], {s0-s7}\n\t"
        "1:\n\t"
        "vldmia %[w], {s8-s15}\n\t"
        "add %[w], %[w], %[step]\n\t"
        "vldmia %[next], {s16-s23}\n\t"
        "add %[next], %[next], %[step]\n\t"
        "vldr s24, [%[e]]\n\t"
        "vldr s25, [%[e], #16]\n\t"
        "add %[e], %[e], #32\n\t"
        MUL(8, 8, 24) MUL(9, 9, 24) MUL(10, 10, 24) MUL(11, 11, 24) MUL(12, 12, 24) MUL(13, 13, 24) MUL(14, 14, 24)
        MUL(15, 15, 24) MUL(16, 16, 25) MUL(17, 17, 25) MUL(18, 18, 25) MUL(19, 19, 25) MUL(20, 20, 25)
        MUL(21, 21, 25) MUL(22, 22, 25) MUL(23, 23, 25)
        ADD(0, 8) ADD(1, 9) ADD(2, 10) ADD(3, 11) ADD(4, 12) ADD(5, 13) ADD(6, 14) ADD(7, 15)
        ADD(0, 16) ADD(1, 17) ADD(2, 18) ADD(3, 19) ADD(4, 20) ADD(5, 21) ADD(6, 22) ADD(7, 23)
        "subs %[n], %[n], #1\n\t"
        "bne 1b\n\t"
        "vstmia %[d], {s0-s7}\n\t"
        : [w] "+r"(w), [next] "+r"(next), [e] "+r"(delta), [n] "+r"(pairs)
        : [d] "r"(d), [step] "r"(step)
        : CLOBBERED);
}

static inline void tv(out_ d, in_ w, uint32_t ld, in_ delta, uint32_t rows, uint32_t columns)
{
    uint32_t even = rows & ~1u, c = 0;
    if (even)
        for (; c + 8 <= columns; c += 8) tv_block(d + c, w + c, ld, delta, even / 2);
    tv_plain(d + c, w + c, ld, delta, even, columns - c);
    tv_plain(d, w + even * ld, ld, delta + even * PL_SLOTS, rows - even, columns);
}

/* Eight columns of d in s0-7 and of its tangent in s8-15, row in s16-23, adjoint in s25 and its tangent in s24. */
#define BOTH(w1, w2, w3, a1, b1, a2, b2, a3, b3)                                                                   \
    MUL(26, w1, 25) MUL(27, w1, 24) MUL(28, w2, 25) MUL(29, w2, 24) MUL(30, w3, 25) MUL(31, w3, 24)                \
    ADD(a1, 26) ADD(b1, 27) ADD(a2, 28) ADD(b2, 29) ADD(a3, 30) ADD(b3, 31)

static inline void tv2_block(pl_real *d, pl_real *d_t, const pl_real *w, uint32_t ld, const pl_real *pair, uint32_t rows)
{
    uint32_t step = ld * sizeof(pl_real);
    __asm__ volatile(
        "vldmia %[d], {s0-s7}\n\t"
        "vldmia %[d_t], {s8-s15}\n\t"
        "1:\n\t"
        "vldmia %[w], {s16-s23}\n\t"
        "add %[w], %[w], %[step]\n\t"
        "vldmia %[e], {s24-s25}\n\t"
        "add %[e], %[e], #16\n\t"
        BOTH(16, 17, 18, 0, 8, 1, 9, 2, 10)
        BOTH(19, 20, 21, 3, 11, 4, 12, 5, 13)
        MUL(26, 22, 25) MUL(27, 22, 24) MUL(28, 23, 25) MUL(29, 23, 24)
        ADD(6, 26) ADD(14, 27) ADD(7, 28) ADD(15, 29)
        "subs %[n], %[n], #1\n\t"
        "bne 1b\n\t"
        "vstmia %[d], {s0-s7}\n\t"
        "vstmia %[d_t], {s8-s15}\n\t"
        : [w] "+r"(w), [e] "+r"(pair), [n] "+r"(rows)
        : [d] "r"(d), [d_t] "r"(d_t), [step] "r"(step)
        : CLOBBERED);
}

static inline void tv2(out_ d, out_ d_t, in_ w, uint32_t ld, in_ pair, uint32_t rows, uint32_t columns)
{
    uint32_t c = 0;
    if (rows)
        for (; c + 8 <= columns; c += 8) tv2_block(d + c, d_t + c, w + c, ld, pair, rows);
    tv2_plain(d + c, d_t + c, w + c, ld, pair, rows, columns - c);
}

/* Four columns of four slots' inputs in s16-31; each row adds its four adjoints (s4-7) times them. */
#define SLOT(i1, i2, i3, i4, e, t1, t2, t3, t4) MUL(t1, i1, e) MUL(t2, i2, e) MUL(t3, i3, e) MUL(t4, i4, e)
#define SUM(t1, t2, t3, t4) ADD(0, t1) ADD(1, t2) ADD(2, t3) ADD(3, t4)

static inline void outer_block(pl_real *w, uint32_t ld, const pl_real *delta, const pl_real *const *in, uint32_t c, uint32_t rows)
{
    uint32_t step = ld * sizeof(pl_real);
    __asm__ volatile(
        "vldmia %[a], {s16-s19}\n\t"
        "vldmia %[b], {s20-s23}\n\t"
        "vldmia %[c], {s24-s27}\n\t"
        "vldmia %[d], {s28-s31}\n\t"
        "1:\n\t"
        "vldmia %[e]!, {s4-s7}\n\t"
        "vldmia %[w], {s0-s3}\n\t"
        SLOT(16, 17, 18, 19, 4, 8, 9, 10, 11) SLOT(20, 21, 22, 23, 5, 12, 13, 14, 15)
        SUM(8, 9, 10, 11) SUM(12, 13, 14, 15)
        SLOT(24, 25, 26, 27, 6, 8, 9, 10, 11) SLOT(28, 29, 30, 31, 7, 12, 13, 14, 15)
        SUM(8, 9, 10, 11) SUM(12, 13, 14, 15)
        "vstmia %[w], {s0-s3}\n\t"
        "add %[w], %[w], %[step]\n\t"
        "subs %[n], %[n], #1\n\t"
        "bne 1b\n\t"
        : [w] "+r"(w), [e] "+r"(delta), [n] "+r"(rows)
        : [a] "r"(in[0] + c), [b] "r"(in[1] + c), [c] "r"(in[2] + c), [d] "r"(in[3] + c), [step] "r"(step)
        : CLOBBERED);
}

static inline void outer(out_ w, in_ delta, const pl_real *const *in, uint32_t slots, uint32_t rows, uint32_t columns)
{
    uint32_t c = 0;
    if (slots < PL_SLOTS) {
        outer_plain(w, delta, in, slots, rows, columns);
        return;
    }
    if (rows)
        for (; c + 4 <= columns; c += 4) outer_block(w + c, columns, delta, in, c, rows);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t left = c; left < columns; left++)
            for (uint32_t k = 0; k < PL_SLOTS; k++) w[r * columns + left] += delta[r * PL_SLOTS + k] * in[k][left];
}

/* Eight numbers at a time: what is added in s0-7, what it is added to in s8-15, the factor in s24. */
#define AXPY(x, y) "vmul.f32 s" #x ", s" #x ", s24\n\t"
#define AXPY_ADD(x, y) "vadd.f32 s" #y ", s" #y ", s" #x "\n\t"
#define AXPY_ALL(do) do(0, 8) do(1, 9) do(2, 10) do(3, 11) do(4, 12) do(5, 13) do(6, 14) do(7, 15)

static inline void axpy(out_ y, pl_real a, in_ x, uint32_t columns)
{
    uint32_t blocks = columns / 8u, done = blocks * 8u;
    if (blocks) {
        pl_real *to = y;
        const pl_real *from = x;
        __asm__ volatile("vmov s24, %[a]\n\t"
                         "1:\n\t"
                         "vldmia %[from]!, {s0-s7}\n\t"
                         "vldmia %[to], {s8-s15}\n\t" AXPY_ALL(AXPY) AXPY_ALL(AXPY_ADD) "vstmia %[to]!, {s8-s15}\n\t"
                         "subs %[n], #1\n\t"
                         "bne 1b\n\t"
                         : [from] "+r"(from), [to] "+r"(to), [n] "+r"(blocks)
                         : [a] "r"(pl_bits(a))
                         : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15", "s24",
                           "cc", "memory");
    }
    axpy_plain(y + done, a, x + done, columns - done);
}

#endif
