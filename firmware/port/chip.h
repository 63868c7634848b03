/* What the ports for real parts share: a ring of received bytes, a clock of milliseconds (SysTick), words of registers.
   A chip's file has: chip_start (clocks, pins, UART with its interrupt), chip_received, chip_feed, and the functions of
   pl_port.h that are not below: also pl_port_noise, from the generator of random numbers where there is one. It is included by exactly one file of an image. */
#ifndef CHIP_H
#define CHIP_H

#include "key.h"
#include "pl_port.h"

#define AT(address) (*(volatile uint32_t *)(address))
#define AT16(address) (*(volatile uint16_t *)(address))
#define AT8(address) (*(volatile uint8_t *)(address))
#ifndef PL_DATA
#error "PL_DATA: must be where the data flash begins"
#endif
enum { PATIENCE = 100000 }; /* loops to wait for a clock, at most */

static void chip_start(void);
static int chip_received(uint8_t *byte); /* 1: the UART had one */
static void chip_feed(void);             /* the watchdog */
void pl_interrupt(void);
void pl_fault(void);

static volatile uint8_t ring[256];
static volatile uint8_t head, tail;
static volatile uint32_t milliseconds;

static inline void wait_for(volatile uint32_t *word, uint32_t bits)
{
    for (uint32_t i = 0; i < PATIENCE && (*word & bits) == 0; i++) {}
}

void pl_interrupt(void)
{
    uint8_t byte;
    if (AT(0xE000E010u) & (1u << 16)) milliseconds++; /* SysTick counted to 0 since the last look */
    while (chip_received(&byte))
        if ((uint8_t)(head + 1) != tail) ring[head++] = byte; /* a full ring loses it; the checksum will tell */
}

/* Held here until the watchdog starts the part anew. */
void pl_fault(void)
{
    for (;;) {}
}

static void start_clock(uint32_t hz)
{
    AT(0xE000E014u) = hz / 1000u - 1u;
    AT(0xE000E018u) = 0;
    AT(0xE000E010u) = 7; /* on, with its interrupt, by the core's clock */
}

static void enable_interrupt(uint32_t number) { AT(0xE000E100u + number / 32u * 4u) = 1u << number % 32u; }

void pl_port_start(int argc, char **argv)
{
    (void)argc, (void)argv;
    chip_start();
}

int pl_port_byte(void) { return head == tail ? -1 : ring[tail++]; }

void pl_port_idle(void)
{
    chip_feed();
    __asm__ volatile("cpsid i" ::: "memory");
    if (head == tail) __asm__ volatile("wfi");
    __asm__ volatile("cpsie i" ::: "memory");
}

int pl_port_pause(void)
{
    chip_feed();
    return 0;
}

uint64_t pl_port_ticks(void) { return milliseconds; }
uint32_t pl_port_rate(void) { return 1000; }
const char *pl_port_name(void) { return PL_BOARD; }
const uint8_t *pl_port_flash(void) { return (const uint8_t *)PL_DATA; }
uint32_t pl_port_flash_size(void) { return PL_FLASH; }

#endif
