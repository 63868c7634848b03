/* What a board must give the client: a byte stream, a clock, and memory that survives a power cut. */
#ifndef PL_PORT_H
#define PL_PORT_H

#include "pl_real.h"

void pl_port_start(int argc, char **argv); /* once, before all else; a board has no arguments */
int pl_port_byte(void);          /* the next byte received, -1 when there is none */
void pl_port_idle(void);         /* nothing to do until another byte may have come */
void pl_port_send(uint8_t byte);
uint64_t pl_port_ticks(void);
uint32_t pl_port_rate(void);     /* ticks per second */
uint32_t pl_port_stack(void);    /* bytes of stack at its deepest since reset */
uint32_t pl_port_static(void);   /* bytes of .data and .bss */
const char *pl_port_name(void);  /* of the board, at most 16 characters */

/* Flash: read through the pointer, written in pieces of whole words at word offsets, in rising order within a page of
   PL_PAGE bytes. A piece at the start of a page erases that page first. */
enum { PL_PAGE = 4096 };
const uint8_t *pl_port_flash(void);
uint32_t pl_port_flash_size(void);
int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n); /* 0 when it failed */

#endif
