/* The inner loops: products with a matrix, with its transpose, and sums of outer products, and a multiple of a row; six functions in all.

   Plain C below is what they mean, and what the host runs. A Cortex-M4F gets the same sums in the same order from
   blocks that stay in its 32 registers (kernels_m4f.h), hence the same bits; -DPL_PLAIN gives it the plain loops, for
   comparison. Matrices are row-major with `ld` numbers to a row. Adjoints of one layer lie PL_SLOTS apart: a slot per
   step, or one for an adjoint's tangent and one for the adjoint. */
#ifndef KERNELS_H
#define KERNELS_H

#include "pl_cfc.h"

typedef const pl_real *restrict in_;
typedef pl_real *restrict out_;

/* y[r] += sum_c w[r][c] x[c] */
static inline void mv_plain(out_ y, in_ w, uint32_t ld, in_ x, uint32_t rows, uint32_t columns)
{
    for (uint32_t r = 0; r < rows; r++) {
        pl_real sum = y[r];
        for (uint32_t c = 0; c < columns; c++) sum += w[r * ld + c] * x[c];
        y[r] = sum;
    }
}

/* the same for x and its tangent */
static inline void mv2_plain(out_ y, out_ y_t, in_ w, uint32_t ld, in_ x, in_ x_t, uint32_t rows, uint32_t columns)
{
    mv_plain(y, w, ld, x, rows, columns);
    mv_plain(y_t, w, ld, x_t, rows, columns);
}

/* d[c] += sum_r w[r][c] delta[r] */
static inline void tv_plain(out_ d, in_ w, uint32_t ld, in_ delta, uint32_t rows, uint32_t columns)
{
    for (uint32_t r = 0; r < rows; r++) {
        pl_real by = delta[r * PL_SLOTS];
        for (uint32_t c = 0; c < columns; c++) d[c] += w[r * ld + c] * by;
    }
}

/* the same for the tangent, at pair[0], and the adjoint itself, at pair[1] */
static inline void tv2_plain(out_ d, out_ d_t, in_ w, uint32_t ld, in_ pair, uint32_t rows, uint32_t columns)
{
    tv_plain(d_t, w, ld, pair, rows, columns);
    tv_plain(d, w, ld, pair + 1, rows, columns);
}

/* w[r][c] += sum over the first `slots` k of delta[r][k] in[k][c]; rows as long as `columns` */
static inline void outer_plain(out_ w, in_ delta, const pl_real *const *in, uint32_t slots, uint32_t rows, uint32_t columns)
{
    for (uint32_t k = 0; k < slots; k++)
        for (uint32_t r = 0; r < rows; r++) {
            pl_real by = delta[r * PL_SLOTS + k];
            for (uint32_t c = 0; c < columns; c++) w[r * columns + c] += by * in[k][c];
        }
}

/* y[c] += a x[c] */
static inline void axpy_plain(out_ y, pl_real a, in_ x, uint32_t columns)
{
    for (uint32_t c = 0; c < columns; c++) y[c] += a * x[c];
}

#if defined(__thumb2__) && defined(__ARM_FP) && !defined(PL_PLAIN) && !defined(PL_DOUBLE)
#include "kernels_m4f.h"
#else
#define mv mv_plain
#define mv2 mv2_plain
#define tv tv_plain
#define tv2 tv2_plain
#define outer outer_plain
#define axpy axpy_plain
#endif

#endif
