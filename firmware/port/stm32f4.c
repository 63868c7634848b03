/* STM32F405: USART1 (PA9, PA10), flash, watchdog; 168 MHz from the internal oscillator. Registers by ST's reference
   manual RM0090. Data lie in the seven sectors of 128 kB, from 0x08020000 on. */
#include "chip.h"

#define RCC 0x40023800u
#define FLASH 0x40023C00u
#define GPIOA 0x40020000u
#define USART 0x40011000u
#define IWDG 0x40003000u
#define RNG 0x50060800u
enum { USART1_IRQ = 37, FIRST_SECTOR = 5, PG = 1, SER = 2, WORDS = 2 << 8, STRT = 1 << 16, FAILED = 0xF2 };
#define BSY (1u << 16)
#define LOCK (1u << 31)
#define REPORTED 0xF3u
#include "stm32_flash.h"

static void chip_start(void)
{
    uint32_t hz = 16000000u, baud_clock = hz;
    AT(FLASH) = 0x705u;                                       /* five wait states, prefetch, caches */
    AT(RCC + 4u) = 16u | (336u << 6) | (7u << 24);            /* HSI / 16 x 336 / 2 */
    AT(RCC) |= 1u << 24;
    wait_for(&AT(RCC), 1u << 25);
    if (AT(RCC) & (1u << 25)) {
        AT(RCC + 8u) = (5u << 10) | (4u << 13) | 2u;          /* APB1 at a quarter, APB2 at half, PLL used */
        hz = 168000000u;
        baud_clock = hz / 2u;
    }
    AT(RCC + 0x30u) |= 1u;                                    /* port A */
    AT(RCC + 0x44u) |= 1u << 4;                               /* USART1 */
    AT(GPIOA) = (AT(GPIOA) & ~(0xFu << 18)) | (0xAu << 18);   /* PA9, PA10: alternate */
    AT(GPIOA + 0x24u) = (AT(GPIOA + 0x24u) & ~0xFF0u) | 0x770u;
    AT(USART + 8u) = (baud_clock + 57600u) / 115200u;
    AT(USART + 0x0Cu) = (1u << 13) | (1u << 5) | (1u << 3) | (1u << 2);
    enable_interrupt(USART1_IRQ);
    start_clock(hz);
#ifndef PL_NO_WATCHDOG
    AT(IWDG) = 0xCCCCu;
    AT(IWDG) = 0x5555u;
    AT(IWDG + 4u) = 6;     /* 32 kHz / 256 */
    AT(IWDG + 8u) = 1000u; /* eight seconds */
#endif
}

static int chip_received(uint8_t *byte)
{
    if (!(AT(USART) & (1u << 5))) return 0;
    *byte = (uint8_t)AT(USART + 4u);
    return 1;
}

void pl_port_send(uint8_t byte)
{
    wait_for(&AT(USART), 1u << 7);
    AT(USART + 4u) = byte;
}

/* Its clock is the PLL's third output: 168 x 2 / 7 = 48 MHz. */
uint64_t pl_port_noise(void)
{
    uint64_t all = 0;
    AT(RCC + 0x34u) |= 1u << 6;
    AT(RNG) = 1u << 2;
    for (unsigned i = 0; i < 2; i++) {
        wait_for(&AT(RNG + 4u), 1);
        all = all << 32 | AT(RNG + 8u);
    }
    return all;
}

int pl_port_flash_erase(uint32_t at)
{
    uint32_t sector = FIRST_SECTOR + at / PL_PAGE;
    unlock();
    AT(FLASH + 0x10u) = SER | WORDS | (sector << 3);
    AT(FLASH + 0x10u) |= STRT;
    int fine = done();
    AT(FLASH) &= ~(1u << 10); /* the data cache may hold what was there: off, emptied, on */
    AT(FLASH) |= 1u << 12;
    AT(FLASH) = (AT(FLASH) & ~(1u << 12)) | (1u << 10);
    return fine && AT(PL_DATA + at) == 0xffffffffu;
}

int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n)
{
    int same = 1;
    unlock();
    AT(FLASH + 0x10u) = PG | WORDS;
    for (uint32_t i = 0; i < n; i += 4) {
        uint32_t word;
        pl_copy(&word, (const uint8_t *)bytes + i, 4);
        AT(PL_DATA + at + i) = word;
        while (AT(FLASH + 0x0Cu) & BSY) {}
        same &= AT(PL_DATA + at + i) == word;
    }
    return done() && same;
}
