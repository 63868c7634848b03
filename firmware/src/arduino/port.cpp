/* The port for Arduino: the line is a Stream. Flash is the chip's own on mbed cores (Nano 33 BLE, Portenta), reached by
   mbed's FlashIAP, on the RP2040 core of E. Philhower, and on Espressif's core (ESP32-S3): there it is the data partition
   named `potluck` of the sketch's partition table. Other cores get a block of RAM: what it holds is gone after a power cut,
   and the sketch is told so by a warning. */
#ifdef ARDUINO
#include "Potluck.h"

#ifndef PL_FLASH
#define PL_FLASH (64u * PL_PAGE)
#endif

static Potluck *board;
extern "C" {
void pl_port_start(int, char **) {}
int pl_port_byte(void) { return board ? board->line().read() : -1; }
void pl_port_idle(void) { yield(); }
void pl_port_send(uint8_t byte) { board->line().write(byte); }
uint64_t pl_port_ticks(void) /* asked for at least once in the 49 days in which millis() begins anew */
{
    static uint32_t before, wraps;
    uint32_t now = millis();
    wraps += now < before;
    before = now;
    return (uint64_t)wraps << 32 | now;
}
uint32_t pl_port_rate(void) { return 1000; }
uint32_t pl_port_stack(void) { return 0; }
uint32_t pl_port_static(void) { return 0; }
__attribute__((weak)) const char *pl_port_name(void) { return "arduino"; }
__attribute__((weak)) const uint8_t *pl_port_key(void) { return nullptr; } /* a sketch may define its own: 32 bytes */
__attribute__((weak)) uint64_t pl_port_noise(void) { return micros(); }
__attribute__((weak)) int pl_port_pause(void) /* a sketch may define its own: feed a watchdog, or return 1 to stop */
{
    yield();
    return 0;
}

#if defined(ARDUINO_ARCH_MBED)
}
#include <FlashIAP.h>
static mbed::FlashIAP chip;
static uint32_t start_of_data(void)
{
    static uint32_t at;
    if (!at) {
        chip.init();
        at = chip.get_flash_start() + chip.get_flash_size() - PL_FLASH; /* the last part of the flash */
    }
    return at;
}
extern "C" {
const uint8_t *pl_port_flash(void) { return (const uint8_t *)start_of_data(); }
int pl_port_flash_erase(uint32_t at) { return chip.erase(start_of_data() + at, PL_PAGE) == 0; }
int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n)
{
    return chip.program(bytes, start_of_data() + at, n) == 0;
}
#elif defined(ARDUINO_ARCH_RP2040)
}
#include <hardware/flash.h>
#include <hardware/sync.h>
#include <string.h>
static uint32_t data_offset(void) { return PICO_FLASH_SIZE_BYTES - PL_FLASH - 4096u; }
extern "C" {
const uint8_t *pl_port_flash(void) { return (const uint8_t *)(XIP_BASE + data_offset()); }
int pl_port_flash_erase(uint32_t at)
{
    uint32_t state = save_and_disable_interrupts();
    flash_range_erase(data_offset() + at, PL_PAGE);
    restore_interrupts(state);
    return 1;
}
int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n)
{
    uint8_t page[FLASH_PAGE_SIZE]; /* the chip programs 256 bytes; 0xff leaves what is there */
    for (uint32_t done = 0; done < n;) {
        uint32_t in = (at + done) % FLASH_PAGE_SIZE, room = FLASH_PAGE_SIZE - in, some = n - done < room ? n - done : room;
        memset(page, 0xff, sizeof page);
        memcpy(page + in, (const uint8_t *)bytes + done, some);
        uint32_t state = save_and_disable_interrupts();
        flash_range_program(data_offset() + at + done - in, page, sizeof page);
        restore_interrupts(state);
        done += some;
    }
    return memcmp(pl_port_flash() + at, bytes, n) == 0;
}
#elif defined(ARDUINO_ARCH_ESP32)
}
#include <esp_partition.h>
static const esp_partition_t *partition;
static const void *mapped;
static bool find_partition(void)
{
    static esp_partition_mmap_handle_t handle;
    if (mapped) return true;
    partition = esp_partition_find_first(ESP_PARTITION_TYPE_DATA, ESP_PARTITION_SUBTYPE_ANY, "potluck");
    if (partition && esp_partition_mmap(partition, 0, partition->size, ESP_PARTITION_MMAP_DATA, &mapped, &handle) != ESP_OK)
        mapped = nullptr;
    return mapped != nullptr;
}
extern "C" {
/* Without the partition there is no flash: the client then refuses every network with NO_ROOM. */
const uint8_t *pl_port_flash(void) { return find_partition() ? (const uint8_t *)mapped : nullptr; }
int pl_port_flash_erase(uint32_t at) { return find_partition() && esp_partition_erase_range(partition, at, PL_PAGE) == ESP_OK; }
int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n)
{
    return find_partition() && esp_partition_write(partition, at, bytes, n) == ESP_OK;
}
uint32_t pl_port_flash_size(void) { return find_partition() ? partition->size / PL_PAGE * PL_PAGE : 0; }
#else
#warning "Potluck: this core's flash is not known; weights and samples are in RAM and do not survive a power cut"
static uint8_t memory[PL_FLASH] __attribute__((aligned(8)));
static bool begun;
const uint8_t *pl_port_flash(void)
{
    if (!begun) pl_fill(memory, 0xff, sizeof memory);
    begun = true;
    return memory;
}
int pl_port_flash_erase(uint32_t at)
{
    pl_fill(memory + at, 0xff, PL_PAGE);
    return 1;
}
int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n)
{
    pl_copy(memory + at, bytes, n);
    return 1;
}
#endif
#ifndef ARDUINO_ARCH_ESP32
uint32_t pl_port_flash_size(void) { return PL_FLASH; }
#endif
}

void Potluck::begin()
{
    board = this;
    pl_client_init(&client_, arena_, bytes_);
}

void Potluck::poll()
{
    for (int byte; (byte = line_.read()) >= 0;) pl_client_byte(&client_, (uint8_t)byte);
}

bool Potluck::learn(float lr, uint8_t epochs, uint64_t key)
{
    pl_recipe recipe = {lr, 0, 0, 0, 0, client_.net.count};
    return pl_alone_begin(&client_, &recipe, 8, epochs, key) == 0;
}

bool Potluck::ready() const { return client_.is_set && client_.installed; }
#endif
