/* The port for QEMU's mps2-an386 (Cortex-M4F): CMSDK UART 0 with interrupts, CMSDK timer 0, and flash in the machine's
   PSRAM, kept in a file of the host through semihosting (its name is the image's first argument). */
#include "key.h"
#include "nor.h"
#include "pl_client.h"

#define UART ((volatile uint32_t *)0x40004000u)  /* data, state, control, interrupts, baud divider */
#define TIMER ((volatile uint32_t *)0x40000000u) /* control, value, reload */
#define ENABLE ((volatile uint32_t *)0xE000E100u)
#define FLASH ((uint8_t *)0x21000000u)
enum { HZ = 25000000 };
enum { SYS_OPEN = 1, SYS_WRITE = 5, SYS_READ = 6, SYS_SEEK = 10, SYS_FLEN = 12, SYS_TIME = 17, SYS_GET_CMDLINE = 21, SYS_EXIT = 24 };

static volatile uint8_t ring[256];
static volatile uint8_t head, tail;
static volatile uint32_t wraps;
static int32_t file = -1;

static int32_t host(uint32_t what, const void *how)
{
    register uint32_t r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = how;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return (int32_t)r0;
}

void pl_fault(void);
void pl_fault(void)
{
    host(SYS_EXIT, (const void *)0x20023u); /* ADP_Stopped_RunTimeErrorUnknown */
    for (;;) {}
}

void pl_interrupt(void);
void pl_interrupt(void)
{
    while (UART[1] & 2u) { /* something came */
        uint8_t byte = (uint8_t)UART[0];
        UART[3] = 2;
        if ((uint8_t)(head + 1) != tail) ring[head++] = byte; /* a full ring loses it; the checksum will tell */
    }
    UART[3] = 2;
    if (TIMER[3] & 1u) {
        TIMER[3] = 1;
        wraps++;
    }
}

static void open_flash(void)
{
    pl_fill(FLASH, 0xff, PL_FLASH); /* as new */
    char *line = (char *)FLASH + PL_FLASH; /* behind the flash: no RAM of the board */
    uint32_t ask[2] = {(uint32_t)line, 1024};
    if (host(SYS_GET_CMDLINE, ask) != 0) return;
    char *name = line;
    while (*name && *name != ' ') name++;
    if (!*name++) return;
    uint32_t length = 0;
    while (name[length]) length++;
    uint32_t open[3] = {(uint32_t)name, 3 /* r+b */, length};
    file = host(SYS_OPEN, open);
    if (file < 0) return;
    int32_t bytes = host(SYS_FLEN, &file);
    if (bytes > (int32_t)PL_FLASH) bytes = (int32_t)PL_FLASH;
    uint32_t read[3] = {(uint32_t)file, (uint32_t)FLASH, (uint32_t)(bytes > 0 ? bytes : 0)};
    host(SYS_READ, read);
}

void pl_port_start(int argc, char **argv)
{
    (void)argc, (void)argv;
    open_flash();
    TIMER[2] = TIMER[1] = 0xffffffffu; /* counts down, over and over */
    TIMER[0] = 9;                      /* on, with its interrupt */
    UART[4] = 16;
    UART[2] = 11; /* send, receive, interrupt on receipt */
    ENABLE[0] = (1u << 0) | (1u << 8); /* UART 0 receive, timer 0 */
}

int pl_port_byte(void) { return head == tail ? -1 : ring[tail++]; }

void pl_port_idle(void)
{
    __asm__ volatile("cpsid i" ::: "memory");
    if (head == tail) __asm__ volatile("wfi");
    __asm__ volatile("cpsie i" ::: "memory");
}

void pl_port_send(uint8_t byte)
{
    while (UART[1] & 1u) {} /* full */
    UART[0] = byte;
}

uint64_t pl_port_ticks(void)
{
    uint32_t high, low;
    do {
        high = wraps;
        low = ~TIMER[1];
    } while (high != wraps);
    return ((uint64_t)high << 32) | low;
}

uint32_t pl_port_rate(void) { return HZ; }
uint64_t pl_port_noise(void) { return (uint64_t)(uint32_t)host(SYS_TIME, 0); }
int pl_port_pause(void) { return 0; }
const char *pl_port_name(void) { return PL_BOARD; }
const uint8_t *pl_port_flash(void) { return FLASH; }
uint32_t pl_port_flash_size(void) { return PL_FLASH; }

/* The file has what the memory has. */
static int saved(uint32_t at, uint32_t n)
{
    if (file < 0) return 1; /* no file: it lasts as long as the machine */
    uint32_t seek[2] = {(uint32_t)file, at}, write[3] = {(uint32_t)file, (uint32_t)(FLASH + at), n};
    return host(SYS_SEEK, seek) == 0 && host(SYS_WRITE, write) == 0;
}

int pl_port_flash_erase(uint32_t at) { return nor_erase(FLASH, PL_FLASH, at) && saved(at, PL_PAGE); }

int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n)
{
    return nor_program(FLASH, PL_FLASH, at, bytes, n) && saved(at, n);
}
