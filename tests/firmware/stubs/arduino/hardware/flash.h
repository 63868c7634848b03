/* pico-sdk's hardware/flash.h. For compiling only. */
#include <stddef.h>
#include <stdint.h>
#define FLASH_PAGE_SIZE (1u << 8)
#define PICO_FLASH_SIZE_BYTES (2u * 1024u * 1024u)
#define XIP_BASE 0x10000000u
extern "C" {
void flash_range_erase(uint32_t flash_offs, size_t count);
void flash_range_program(uint32_t flash_offs, const uint8_t *data, size_t count);
}
