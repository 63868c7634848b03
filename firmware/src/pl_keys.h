/* Randomness as a pure function of a key: src/potluck/keys.py in C, bit for bit. */
#ifndef PL_KEYS_H
#define PL_KEYS_H

#include "pl_real.h"

PL_BEGIN

uint64_t pl_number_text(const char *text);  /* keys.number("text") */
uint64_t pl_number(uint32_t value);         /* keys.number(value) */
uint64_t pl_fold(uint64_t key, uint64_t part);
uint64_t pl_draw(uint64_t key, uint32_t i); /* the i-th word of keys._bits */
pl_real pl_uniform(uint64_t key, uint32_t i);  /* the i-th number of keys.uniform: in [0, 1) */

/* The random order of 0..n-1 that keys.permutation gives, one after the other and without memory for it: what comes
   after `last` (before the first: n). */
uint32_t pl_next_in_order(uint64_t key, uint32_t n, uint32_t last);

PL_END

#endif
