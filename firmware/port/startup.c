/* From reset to main on a Cortex-M: floating point on where there is one, .data and .bss, a painted stack. With PL_FENCE
   (the emulator, which has more RAM than the board) the memory protection unit makes touching what the board does not
   have a fault, as on the part. Every interrupt goes to the port's one handler. */
#include "pl_real.h"

extern uint32_t _data_load[], _data[], _edata[], _bss[], _ebss[], _stack_top[], _ram_end[], _arena[], _earena[];
int main(int argc, char **argv);
void pl_fault(void);
void pl_interrupt(void);
void pl_reset(void);

#define CPACR (*(volatile uint32_t *)0xE000ED88u)
#define VTOR (*(volatile uint32_t *)0xE000ED08u)
#define PAINT 0xA5A5A5A5u
enum { INTERRUPTS = 144 }; /* SAMD51 has 137 */

extern void (*const pl_vectors[16 + INTERRUPTS])(void);
__attribute__((section(".vectors"), used, aligned(1024))) void (*const pl_vectors[16 + INTERRUPTS])(void) = {
    (void (*)(void))_stack_top, pl_reset, [2 ... 14] = pl_fault, [15 ... 15 + INTERRUPTS] = pl_interrupt,
};

#ifdef PL_FENCE
#define MPU ((volatile uint32_t *)0xE000ED90u) /* type, control, region, base, attributes */
#define MACHINE_RAM 0x00400000u                /* bytes that mps2-an386 has from 0x20000000 on */
static void fence(void)
{
    uint32_t region = 0, at = (uint32_t)_ram_end;
    for (uint32_t offset = at - 0x20000000u; offset < MACHINE_RAM;) {
        uint32_t size = offset & -offset; /* regions are powers of two at their own multiples */
        if (region == ((MPU[0] >> 8) & 0xffu)) pl_fault();
        MPU[2] = region++;
        MPU[3] = 0x20000000u + offset;
        MPU[4] = (1u << 28) | ((31u - (uint32_t)__builtin_clz(size) - 1u) << 1) | 1u; /* no access, never code */
        offset += size;
    }
    MPU[1] = 5; /* on; everything else as without it */
}
#endif

__attribute__((noreturn)) void pl_reset(void)
{
#ifdef __ARM_FP
    CPACR |= 0xfu << 20;
    __asm__ volatile("dsb\n\tisb");
#endif
    VTOR = (uint32_t)pl_vectors; /* a boot loader may have left its own */
    for (uint32_t *to = _data, *from = _data_load; to < _edata;) *to++ = *from++;
    for (uint32_t *at = _bss; at < _ebss;) *at++ = 0;
    uint32_t *here = (uint32_t *)__builtin_frame_address(0) - 16;
    for (uint32_t *at = _ebss; at < here;) *at++ = PAINT;
#ifdef PL_FENCE
    fence();
#endif
    __asm__ volatile("cpsie i");
    main(0, 0);
    for (;;) pl_fault();
}

uint32_t pl_port_stack(void)
{
    uint32_t *at = _ebss;
    while (at < _stack_top && *at == PAINT) at++;
    return (uint32_t)((uint8_t *)_stack_top - (uint8_t *)at);
}

uint32_t pl_port_static(void)
{
    return (uint32_t)(((uint8_t *)_earena - (uint8_t *)_arena) + ((uint8_t *)_ebss - (uint8_t *)_data));
}

/* What the compiler may call; it must not turn these loops into calls of themselves. */
#define LOOP __attribute__((used, optimize("no-tree-loop-distribute-patterns")))
void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int value, size_t n);
void *memmove(void *to, const void *from, size_t n);
LOOP void *memcpy(void *to, const void *from, size_t n)
{
    uint8_t *t = to;
    const uint8_t *f = from;
    if ((((uintptr_t)t | (uintptr_t)f) & 3u) == 0)
        for (; n >= 4; n -= 4, t += 4, f += 4) *(uint32_t *)(void *)t = *(const uint32_t *)(const void *)f;
    while (n--) *t++ = *f++;
    return to;
}

LOOP void *memset(void *to, int value, size_t n)
{
    uint8_t *t = to;
    uint32_t word = (uint8_t)value * 0x01010101u;
    if (((uintptr_t)t & 3u) == 0)
        for (; n >= 4; n -= 4, t += 4) *(uint32_t *)(void *)t = word;
    while (n--) *t++ = (uint8_t)value;
    return to;
}

LOOP void *memmove(void *to, const void *from, size_t n)
{
    uint8_t *at = to;
    const uint8_t *source = from;
    if (at <= source) return memcpy(to, from, n);
    while (n--) at[n] = source[n];
    return to;
}
