/* What the flash controllers and the watchdogs of STM32F3 and STM32F4 share. The port defines FLASH, IWDG, LOCK, BSY,
   FAILED and REPORTED (the status bits to clear) before it includes this file. */
#ifndef PL_STM32_FLASH_H
#define PL_STM32_FLASH_H

static void chip_feed(void) { AT(IWDG) = 0xAAAAu; }

static void unlock(void)
{
    if (AT(FLASH + 0x10u) & LOCK) {
        AT(FLASH + 4u) = 0x45670123u;
        AT(FLASH + 4u) = 0xCDEF89ABu;
    }
    AT(FLASH + 0x0Cu) = REPORTED; /* what was reported before */
}

static int done(void)
{
    while (AT(FLASH + 0x0Cu) & BSY) {}
    int fine = (AT(FLASH + 0x0Cu) & FAILED) == 0;
    AT(FLASH + 0x10u) = LOCK;
    return fine;
}

#endif
