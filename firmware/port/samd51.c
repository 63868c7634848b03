/* ATSAMD51J19, as on a Feather M4 Express: SERCOM5 (PB16, PB17: TX, RX), flash, watchdog. Registers by Microchip's data
   sheet DS60001507. The core stays at the 48 MHz it starts with: the 120 MHz of its PLL are not set up here. */
#include "chip.h"

#define NVMCTRL 0x41004000u
#define PORTB 0x41008080u
#define SERCOM5 0x43000400u
#define WDT 0x40002000u
#define TRNG 0x42002800u
enum { HZ = 48000000, SERCOM5_IRQ = 66, KEY = 0xA500, ERASE_BLOCK = 1, WRITE_QUAD = 4, CLEAR_BUFFER = 0x15 };

static void settled(void)
{
    for (uint32_t i = 0; i < PATIENCE && AT(SERCOM5 + 0x1Cu); i++) {}
}

static void chip_start(void)
{
    AT16(NVMCTRL) = (uint16_t)((AT16(NVMCTRL) & ~0x30u) | 0xC000u); /* write by command; no cache of its lines */
    AT(0x40000820u) |= 1u << 1;                 /* the clock of SERCOM5's registers */
    AT(0x40001C80u + 35u * 4u) = 1u << 6;       /* its own clock: generator 0 */
    AT8(PORTB + 0x30u + 8u) = 0x22;             /* PB16, PB17: function C */
    AT8(PORTB + 0x40u + 16u) = 1;
    AT8(PORTB + 0x40u + 17u) = 3;
    AT(SERCOM5 + 4u) = (1u << 16) | (1u << 17); /* send, receive */
    settled();
    AT16(SERCOM5 + 0x0Cu) = 63019;              /* 115,200 baud of 48 MHz */
    AT8(SERCOM5 + 0x16u) = 4;                   /* interrupt on receipt */
    AT(SERCOM5) = (1u << 30) | (1u << 20) | (1u << 2) | 2u;
    settled();
    for (uint32_t i = 0; i < 4; i++) enable_interrupt(SERCOM5_IRQ + i);
    start_clock(HZ);
#ifndef PL_NO_WATCHDOG
    AT8(WDT + 1u) = 10; /* 8192 cycles of 1 kHz */
    AT8(WDT) = 2;
#endif
}

static int chip_received(uint8_t *byte)
{
    if (!(AT8(SERCOM5 + 0x18u) & 4u)) return 0;
    *byte = (uint8_t)AT(SERCOM5 + 0x28u);
    return 1;
}

static void chip_feed(void)
{
    if (!(AT(WDT + 8u) & 0x20u)) AT8(WDT + 0x0Cu) = 0xA5; /* not while the last one is on its way */
}

void pl_port_send(uint8_t byte)
{
    for (uint32_t i = 0; i < PATIENCE && !(AT8(SERCOM5 + 0x18u) & 1u); i++) {}
    AT(SERCOM5 + 0x28u) = byte;
}

uint64_t pl_port_noise(void)
{
    uint64_t all = 0;
    AT(0x4000081Cu) |= 1u << 10; /* the clock of its registers, on bus C */
    AT8(TRNG) = 2;
    for (unsigned i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < PATIENCE && !(AT8(TRNG + 0x0Au) & 1u); k++) {}
        all = all << 32 | AT(TRNG + 0x20u);
    }
    return all;
}

static int carried_out(uint32_t command)
{
    while (!(AT16(NVMCTRL + 0x12u) & 1u)) {}
    AT16(NVMCTRL + 0x10u) = 0x7E; /* what was reported before */
    AT16(NVMCTRL + 4u) = (uint16_t)(KEY | command);
    while (!(AT16(NVMCTRL + 0x12u) & 1u)) {}
    return (AT16(NVMCTRL + 0x10u) & 0x7Eu) == 0;
}

int pl_port_flash_erase(uint32_t at)
{
    AT(NVMCTRL + 0x14u) = PL_DATA + at;
    return carried_out(ERASE_BLOCK);
}

int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n)
{
    int fine = 1;
    for (uint32_t i = 0; i < n; i += 16) {
        fine &= carried_out(CLEAR_BUFFER);
        for (uint32_t k = 0; k < 16; k += 4) {
            uint32_t word;
            pl_copy(&word, (const uint8_t *)bytes + i + k, 4);
            AT(PL_DATA + at + i + k) = word;
        }
        AT(NVMCTRL + 0x14u) = PL_DATA + at + i;
        fine &= carried_out(WRITE_QUAD);
    }
    return fine;
}
