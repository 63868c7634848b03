/* NOR flash in memory: a page is erased to 0xff; a unit can be programmed once, and only when it is erased. */
#ifndef NOR_H
#define NOR_H

#include "pl_port.h"

static inline int nor_erase(uint8_t *flash, uint32_t size, uint32_t at)
{
    if (at % PL_PAGE || at >= size || size - at < PL_PAGE) return 0;
    pl_fill(flash + at, 0xff, PL_PAGE);
    return 1;
}

static inline int nor_program(uint8_t *flash, uint32_t size, uint32_t at, const void *bytes, uint32_t n)
{
    if (at % PL_UNIT || n % PL_UNIT || at > size || n > size - at) return 0;
    for (uint32_t i = 0; i < n; i++)
        if (flash[at + i] != 0xff) return 0;
    pl_copy(flash + at, bytes, n);
    return 1;
}

#endif
