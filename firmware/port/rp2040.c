/* RP2040, as on a Raspberry Pi Pico: UART 0 (GP0, GP1: TX, RX), external flash, watchdog; 125 MHz from the crystal of
   12 MHz. Registers and functions of the boot ROM by Raspberry Pi's RP2040 data sheet. A Cortex-M0+ has no floating-point
   unit: arithmetic is libgcc's.

   The first 256 bytes of flash are a second stage of the boot loader, which the ROM copies to RAM and calls if its
   checksum is right (`potluck firmware build` writes it). Flash is erased and programmed by the ROM; meanwhile it cannot
   be read, so that the code which does it lies in RAM, with interrupts off. */
#include "chip.h"

#define RESETS 0x4000C000u
#define CLOCKS 0x40008000u
#define XOSC 0x40024000u
#define PLL 0x40028000u
#define IO 0x40014000u
#define UART 0x40034000u
#define WATCHDOG 0x40058000u
#define SSI 0x18000000u
#define XIP 0x10000000u
#define RANDOM_BIT 0x4006001Cu
enum { HZ = 125000000, UART0_IRQ = 20, PIECE = 256, WHOLE = 4096, ERASE_4K = 0x20 };

extern void (*const pl_vectors[])(void);

/* Reads by the command 03h, which all such chips know: one bit at a time, at a quarter of the clock. */
__attribute__((section(".boot2"), used, naked)) static void second_stage(void)
{
    __asm__ volatile(
        "ldr r0, =0x18000000\n"
        "movs r1, #0\n"
        "str r1, [r0, #8]\n"          /* off */
        "movs r1, #4\n"
        "str r1, [r0, #0x14]\n"       /* clock / 4 */
        "ldr r1, =0x001f0300\n"       /* 32 bits, read as from an EEPROM */
        "str r1, [r0]\n"
        "movs r1, #0\n"
        "str r1, [r0, #4]\n"
        "movs r2, #0xf4\n"
        "ldr r1, =0x03000218\n"       /* 03h, command of 8 bits, address of 24 */
        "str r1, [r0, r2]\n"
        "movs r1, #1\n"
        "str r1, [r0, #8]\n"          /* on */
        "ldr r0, =pl_vectors\n"
        "ldr r1, =0xe000ed08\n"
        "str r0, [r1]\n"
        "ldmia r0, {r0, r1}\n"
        "msr msp, r0\n"
        "bx r1\n"
        ".ltorg\n");
}

static void unreset(uint32_t bits)
{
    AT(RESETS) &= ~bits;
    for (uint32_t i = 0; i < PATIENCE && (~AT(RESETS + 8u) & bits); i++) {}
}

static void start_clocks(void)
{
    AT(XOSC) = 0xAA0u;
    AT(XOSC + 0x0Cu) = 47; /* a millisecond */
    AT(XOSC) = 0xFABAA0u;
    wait_for(&AT(XOSC + 4u), 1u << 31);
    AT(CLOCKS + 0x30u) = 2; /* reference: the crystal */
    wait_for(&AT(CLOCKS + 0x38u), 1u << 2);
    unreset(1u << 12);
    AT(PLL) = 1;
    AT(PLL + 8u) = 125; /* 1500 MHz */
    AT(PLL + 4u) &= ~0x21u;
    wait_for(&AT(PLL), 1u << 31);
    AT(PLL + 0x0Cu) = (6u << 16) | (2u << 12); /* / 12 */
    AT(PLL + 4u) &= ~8u;
    AT(CLOCKS + 0x3Cu) = 1; /* system: the PLL */
    wait_for(&AT(CLOCKS + 0x44u), 2);
    AT(CLOCKS + 0x48u) = 1u << 11; /* the UART's: the system's */
}

static void chip_start(void)
{
    start_clocks();
    unreset((1u << 5) | (1u << 8) | (1u << 22)); /* pins, pads, UART 0 */
    AT(IO + 4u) = 2;
    AT(IO + 12u) = 2;
    AT(UART + 0x24u) = 67; /* 125 MHz / 16 / 115,200 = 67 + 52/64 */
    AT(UART + 0x28u) = 52;
    AT(UART + 0x2Cu) = 3u << 5; /* eight bits, no queue: an interrupt for each byte */
    AT(UART + 0x30u) = 0x301;
    AT(UART + 0x38u) = 1u << 4;
    enable_interrupt(UART0_IRQ);
    start_clock(HZ);
#ifndef PL_NO_WATCHDOG
    AT(0x40010008u) = 0x1FFFCu;            /* it resets all but the oscillators */
    AT(WATCHDOG + 0x2Cu) = (1u << 9) | 12; /* microseconds */
    AT(WATCHDOG + 4u) = 0xFFFFFFu;         /* counted twice in each: eight seconds */
    AT(WATCHDOG) = 1u << 30;
#endif
}

static int chip_received(uint8_t *byte)
{
    if (AT(UART + 0x18u) & (1u << 4)) return 0;
    *byte = (uint8_t)AT(UART);
    return 1;
}

static void chip_feed(void) { AT(WATCHDOG + 4u) = 0xFFFFFFu; }

void pl_port_send(uint8_t byte)
{
    for (uint32_t i = 0; i < PATIENCE && (AT(UART + 0x18u) & (1u << 5)); i++) {}
    AT(UART) = byte;
}

uint64_t pl_port_noise(void)
{
    uint64_t all = 0;
    for (unsigned i = 0; i < 64 * 32; i++) all = (all << 1 | all >> 63) ^ (AT(RANDOM_BIT) & 1u);
    return all;
}

typedef void *(*looked_up)(uint16_t *table, uint32_t code);
typedef void (*plain)(void);
typedef void (*erasing)(uint32_t at, uint32_t n, uint32_t block, uint8_t command);
typedef void (*programming)(uint32_t at, const uint8_t *bytes, uint32_t n);

static uintptr_t rom_pointer(uint32_t at)
{
    __asm__("" : "+r"(at)); /* the compiler takes addresses this low for those of no object */
    return AT16(at);
}

static void *rom(char a, char b)
{
    looked_up find = (looked_up)rom_pointer(0x18u);
    return find((uint16_t *)rom_pointer(0x14u), (uint32_t)a | (uint32_t)b << 8);
}

/* From RAM: one piece is programmed, or a page is erased where there are no bytes. */
#define IN_RAM __attribute__((section(".data.in_ram"), noinline))
IN_RAM static void change(plain connect, plain leave, plain flush, plain enter, erasing erase, programming program,
                          uint32_t at, const uint8_t *bytes)
{
    __asm__ volatile("cpsid i" ::: "memory");
    connect();
    leave();
    if (bytes)
        program(at, bytes, PIECE);
    else
        erase(at, PL_PAGE, WHOLE, ERASE_4K);
    flush();
    enter();
    __asm__ volatile("cpsie i" ::: "memory");
}

static void changed(uint32_t at, const uint8_t *bytes)
{
    void (*volatile by)(plain, plain, plain, plain, erasing, programming, uint32_t, const uint8_t *) = change;
    by((plain)rom('I', 'F'), (plain)rom('E', 'X'), (plain)rom('F', 'C'), (plain)rom('C', 'X'), (erasing)rom('R', 'E'),
       (programming)rom('R', 'P'), PL_DATA - XIP + at, bytes);
}

int pl_port_flash_erase(uint32_t at)
{
    changed(at, 0);
    return AT(PL_DATA + at) == 0xffffffffu;
}

int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n)
{
    const uint8_t *from = bytes;
    static uint8_t piece[PIECE]; /* the chip programs 256 bytes; ones leave what is there */
    for (uint32_t done = 0; done < n;) {
        uint32_t in = (at + done) % PIECE, some = n - done < PIECE - in ? n - done : PIECE - in;
        pl_fill(piece, 0xff, sizeof piece);
        pl_copy(piece + in, from + done, some);
        changed(at + done - in, piece);
        done += some;
    }
    for (uint32_t i = 0; i < n; i++)
        if (pl_port_flash()[at + i] != from[i]) return 0;
    return 1;
}
