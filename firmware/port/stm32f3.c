/* STM32F303xE, as on a Nucleo-F303RE: USART2 (PA2, PA3: the ST-LINK's serial line), flash, watchdog; 72 MHz from the
   internal oscillator. Registers by ST's reference manual RM0316. */
#include "chip.h"

#define RCC 0x40021000u
#define FLASH 0x40022000u
#define GPIOA 0x48000000u
#define USART 0x40004400u
#define IWDG 0x40003000u
enum { HZ = 72000000, USART2_IRQ = 38, BSY = 1, PG = 1, PER = 2, STRT = 1 << 6, LOCK = 1 << 7, FAILED = 0x14 };
#define REPORTED 0x34u
#include "stm32_flash.h"

static void chip_start(void)
{
    AT(FLASH) = 0x12u;                                          /* two wait states, prefetch */
    AT(RCC + 4u) = (1u << 15) | (7u << 18) | (4u << 8);         /* HSI x 9; APB1 at half */
    AT(RCC) |= 1u << 24;                                        /* PLL on */
    wait_for(&AT(RCC), 1u << 25);
    AT(RCC + 4u) |= 2u;                                         /* and used */
    AT(RCC + 0x14u) |= 1u << 17;                                /* port A */
    AT(RCC + 0x1Cu) |= 1u << 17;                                /* USART2 */
    AT(GPIOA) = (AT(GPIOA) & ~0xF0u) | 0xA0u;                   /* PA2, PA3: alternate */
    AT(GPIOA + 0x20u) = (AT(GPIOA + 0x20u) & ~0xFF00u) | 0x7700u;
    AT(USART + 0x0Cu) = 313;                                    /* 36 MHz / 115,200 */
    AT(USART) = (1u << 5) | (1u << 3) | (1u << 2) | 1u;         /* interrupt on receipt, send, receive, on */
    enable_interrupt(USART2_IRQ);
    start_clock(HZ);
#ifndef PL_NO_WATCHDOG
    AT(IWDG) = 0xCCCCu;
    AT(IWDG) = 0x5555u;
    AT(IWDG + 4u) = 6;     /* 40 kHz / 256 */
    AT(IWDG + 8u) = 1250u; /* eight seconds */
#endif
}

static int chip_received(uint8_t *byte)
{
    uint32_t state = AT(USART + 0x1Cu);
    if (state & 8u) AT(USART + 0x20u) = 8u; /* overrun: forget it */
    if (!(state & (1u << 5))) return 0;
    *byte = (uint8_t)AT(USART + 0x24u);
    return 1;
}

void pl_port_send(uint8_t byte)
{
    wait_for(&AT(USART + 0x1Cu), 1u << 7);
    AT(USART + 0x28u) = byte;
}

uint64_t pl_port_noise(void) { return AT(0x1FFFF7ACu); } /* no generator: the part's number; the rest is what RAM holds */

int pl_port_flash_erase(uint32_t at)
{
    unlock();
    AT(FLASH + 0x10u) = PER;
    AT(FLASH + 0x14u) = PL_DATA + at;
    AT(FLASH + 0x10u) = PER | STRT;
    return done();
}

int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n)
{
    unlock();
    AT(FLASH + 0x10u) = PG;
    for (uint32_t i = 0; i < n; i += 2) {
        uint16_t half;
        pl_copy(&half, (const uint8_t *)bytes + i, 2);
        AT16(PL_DATA + at + i) = half;
        while (AT(FLASH + 0x0Cu) & BSY) {}
    }
    return done();
}
