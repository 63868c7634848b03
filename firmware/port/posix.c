/* The client as an ordinary process: the line on standard input and output, flash in a file (argv[1]), the key of the
   line as 64 digits (argv[2], if there is one).
   For tests with sanitizers, and for boards that run Linux. Ends when the line is closed. */
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nor.h"
#include "pl_client.h"

#ifndef PL_FLASH
#define PL_FLASH (1u << 20)
#endif

static uint8_t *flash;
static uint8_t waiting[4096], going[512];
static size_t waits, taken, gone;

static void flush(void)
{
    for (size_t at = 0; at < gone;) {
        ssize_t n = write(1, going + at, gone - at);
        if (n <= 0) exit(0);
        at += (size_t)n;
    }
    gone = 0;
}

int pl_port_byte(void) { return taken < waits ? waiting[taken++] : -1; }

void pl_port_idle(void)
{
    flush();
    ssize_t n = read(0, waiting, sizeof waiting);
    if (n <= 0) exit(0);
    waits = (size_t)n;
    taken = 0;
}

void pl_port_send(uint8_t byte)
{
    going[gone++] = byte;
    if (byte == 0 || gone == sizeof going) flush();
}

uint64_t pl_port_ticks(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

uint32_t pl_port_rate(void) { return 1000000; }
uint32_t pl_port_stack(void) { return 0; }
uint32_t pl_port_static(void) { return (uint32_t)sizeof(pl_client) + PL_ARENA; }
/* Now and then: has anything come? */
int pl_port_pause(void)
{
    static unsigned calls;
    struct pollfd line = {0, POLLIN, 0};
    if (++calls % 64 || taken < waits || poll(&line, 1, 0) <= 0) return 0;
    ssize_t n = read(0, waiting, sizeof waiting);
    if (n <= 0) exit(0);
    waits = (size_t)n;
    taken = 0;
    return 0;
}

static uint8_t key[PL_KEY_BYTES];
static int has_key;
const uint8_t *pl_port_key(void) { return has_key ? key : 0; }
uint64_t pl_port_noise(void) { return (uint64_t)getpid() << 32 | (uint64_t)time(0); }
const char *pl_port_name(void) { return "posix"; }
const uint8_t *pl_port_flash(void) { return flash; }
uint32_t pl_port_flash_size(void) { return PL_FLASH; }

/* As NOR flash does it: see nor.h. */
int pl_port_flash_erase(uint32_t at)
{
    return nor_erase(flash, PL_FLASH, at) && msync(flash, PL_FLASH, MS_ASYNC) == 0;
}

int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n)
{
    return nor_program(flash, PL_FLASH, at, bytes, n) && msync(flash, PL_FLASH, MS_ASYNC) == 0;
}

void pl_port_start(int argc, char **argv)
{
    struct stat before = {0};
    for (unsigned i = 0; argc > 2 && i < PL_KEY_BYTES; i++) {
        char digits[3] = {argv[2][2 * i], argv[2][2 * i + 1], 0};
        key[i] = (uint8_t)strtoul(digits, 0, 16);
        has_key = 1;
    }
    int file = argc > 1 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
    int shared = file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    if (argc > 1 && (file < 0 || fstat(file, &before) != 0 || ftruncate(file, PL_FLASH) != 0)) exit(2);
    flash = mmap(0, PL_FLASH, PROT_READ | PROT_WRITE, shared, file, 0);
    if (flash == MAP_FAILED) exit(2);
    if (before.st_size < (off_t)PL_FLASH) pl_fill(flash + before.st_size, 0xff, PL_FLASH - (size_t)before.st_size); /* new */
}
