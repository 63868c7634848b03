/* nRF52840, nRF52832 (and nRF51822, which QEMU emulates): UART 0, NVMC, watchdog, by Nordic's product specifications.
   Pins are those of an Arduino Nano 33 BLE: TX P1.03, RX P1.10. */
#include "chip.h"

#ifndef PL_TX_PIN
#define PL_TX_PIN 35u
#define PL_RX_PIN 42u
#endif
#ifndef PL_HZ
#define PL_HZ 64000000u
#endif
#define UART 0x40002000u
#define NVMC 0x4001E000u
#define WDT 0x40010000u
#define RNG 0x4000D000u
enum { UART_IRQ = 2, READ_ONLY = 0, WRITING = 1, ERASING = 2 };

static void chip_start(void)
{
    AT(0x40000000u) = 1; /* the crystal: the UART's rate depends on it */
    AT(UART + 0x50Cu) = PL_TX_PIN;
    AT(UART + 0x514u) = PL_RX_PIN;
    AT(UART + 0x524u) = 0x01D7E000u; /* 115,200 baud */
    AT(UART + 0x500u) = 4;           /* on */
    AT(UART + 0x304u) = 1u << 2;     /* interrupt on receipt */
    AT(UART + 0x000u) = 1;           /* receive */
    AT(UART + 0x008u) = 1;           /* send */
    enable_interrupt(UART_IRQ);
    start_clock(PL_HZ);
#ifndef PL_NO_WATCHDOG
    AT(WDT + 0x504u) = 32768u * 8u; /* eight seconds */
    AT(WDT + 0x508u) = 1;
    AT(WDT + 0x000u) = 1;
#endif
}

static int chip_received(uint8_t *byte)
{
    if (!AT(UART + 0x108u)) return 0;
    AT(UART + 0x108u) = 0;
    *byte = (uint8_t)AT(UART + 0x518u);
    return 1;
}

static void chip_feed(void) { AT(WDT + 0x600u) = 0x6E524635u; }

void pl_port_send(uint8_t byte)
{
    AT(UART + 0x11Cu) = 0;
    AT(UART + 0x51Cu) = byte;
    wait_for(&AT(UART + 0x11Cu), 1);
}

uint64_t pl_port_noise(void)
{
    uint64_t all = 0;
    AT(RNG) = 1;
    for (unsigned i = 0; i < 8; i++) {
        AT(RNG + 0x100u) = 0;
        wait_for(&AT(RNG + 0x100u), 1);
        all = all << 8 | (AT(RNG + 0x508u) & 0xffu);
    }
    AT(RNG + 4u) = 1;
    return all;
}

static void mode(uint32_t to)
{
    AT(NVMC + 0x504u) = to;
    wait_for(&AT(NVMC + 0x400u), 1);
}

int pl_port_flash_erase(uint32_t at)
{
    mode(ERASING);
    AT(NVMC + 0x508u) = PL_DATA + at;
    wait_for(&AT(NVMC + 0x400u), 1);
    mode(READ_ONLY);
    return AT(PL_DATA + at) == 0xffffffffu;
}

int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n)
{
    int same = 1;
    mode(WRITING);
    for (uint32_t i = 0; i < n; i += 4) {
        uint32_t word;
        pl_copy(&word, (const uint8_t *)bytes + i, 4);
        AT(PL_DATA + at + i) = word;
        wait_for(&AT(NVMC + 0x400u), 1);
        same &= AT(PL_DATA + at + i) == word;
    }
    mode(READ_ONLY);
    return same;
}
