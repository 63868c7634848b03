/* What a board must give the client: a byte stream, a clock, and memory that survives a power cut. */
#ifndef PL_PORT_H
#define PL_PORT_H

#include "pl_real.h"

PL_BEGIN

void pl_port_start(int argc, char **argv); /* once, before all else; a board has no arguments */
int pl_port_byte(void);          /* the next byte received, -1 when there is none */
void pl_port_idle(void);         /* nothing to do until another byte may have come */
void pl_port_send(uint8_t byte);
int pl_port_pause(void);         /* called often while the board trains: feed the watchdog, let others run; 1: stop */
uint64_t pl_port_ticks(void);
uint32_t pl_port_rate(void);     /* ticks per second */
uint32_t pl_port_stack(void);    /* bytes of stack at its deepest since reset */
uint32_t pl_port_static(void);   /* bytes of .data and .bss */
const char *pl_port_name(void);  /* of the board, at most 16 characters */

/* The board's key for frames (pl_lock.h): 32 bytes, or 0 for an open line. What pl_port_noise gives should differ at
   every start; with a key, the client adds to it what its memory happens to hold. */
const uint8_t *pl_port_key(void);
uint64_t pl_port_noise(void);

/* Flash as it is: erased in pages to 0xff, then programmed once in whole units at their own multiples. It is read through
   the pointer. The client never programs a unit twice between two erasures, and keeps its own order; a port only does
   what it is told. Build settings: PL_PAGE bytes are erased at a time, PL_UNIT bytes are the least that is programmed. */
#ifndef PL_PAGE
#define PL_PAGE 4096
#endif
#ifndef PL_UNIT
#define PL_UNIT 4
#endif
enum { PL_UNIT_MOST = 32 }; /* of the parts known so far: STM32H7 */
const uint8_t *pl_port_flash(void);
uint32_t pl_port_flash_size(void); /* whole pages */
int pl_port_flash_erase(uint32_t at); /* the page that begins at `at`; 0 when it failed */
int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n); /* whole units; 0 when it failed */

PL_END

#endif
