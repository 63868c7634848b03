/* The port for Zephyr: a UART by interrupts, a flash partition that is mapped into memory, a thread that trains. */
#include <zephyr/device.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>
#include <zephyr/storage/flash_map.h>

#include "Potluck.h"

#ifndef PARTITION_ID /* before Zephyr 4.4 */
#define PARTITION_ID FIXED_PARTITION_ID
#endif

static const struct device *const line = DEVICE_DT_GET(DT_CHOSEN(zephyr_potluck_uart));
static const struct flash_area *area;
static volatile uint8_t ring[256];
static volatile uint8_t head, tail;
static uint8_t arena[CONFIG_POTLUCK_ARENA] __aligned(8);
static pl_client client;
K_SEM_DEFINE(potluck_heard, 0, 1);

static void received(const struct device *dev, void *unused)
{
    uint8_t byte;
    (void)unused;
    uart_irq_update(dev);
    while (uart_irq_rx_ready(dev) > 0 && uart_fifo_read(dev, &byte, 1) == 1)
        if ((uint8_t)(head + 1) != tail) ring[head++] = byte;
    k_sem_give(&potluck_heard);
}

void pl_port_start(int argc, char **argv)
{
    (void)argc, (void)argv;
    if (flash_area_open(PARTITION_ID(potluck_partition), &area) != 0) k_oops();
    uart_irq_callback_user_data_set(line, received, NULL);
    uart_irq_rx_enable(line);
}

int pl_port_byte(void) { return head == tail ? -1 : ring[tail++]; }
void pl_port_idle(void) { k_sem_take(&potluck_heard, K_MSEC(100)); }
void pl_port_send(uint8_t byte) { uart_poll_out(line, byte); }

__attribute__((weak)) int pl_port_pause(void) /* an application may define its own: feed a watchdog, or return 1 to stop */
{
    k_yield();
    return 0;
}

uint64_t pl_port_ticks(void) { return (uint64_t)k_uptime_get(); }
uint32_t pl_port_rate(void) { return 1000; }
uint32_t pl_port_stack(void) { return 0; }
uint32_t pl_port_static(void) { return sizeof arena + sizeof client; }
__attribute__((weak)) const uint8_t *pl_port_key(void) { return NULL; } /* an application may define its own: 32 bytes */
__attribute__((weak)) uint64_t pl_port_noise(void) { return (uint64_t)k_cycle_get_32(); } /* its own: from an entropy driver */
const char *pl_port_name(void) { return CONFIG_BOARD; }
const uint8_t *pl_port_flash(void) { return (const uint8_t *)(CONFIG_POTLUCK_FLASH_AT + (uintptr_t)area->fa_off); }
uint32_t pl_port_flash_size(void) { return (uint32_t)area->fa_size / PL_PAGE * PL_PAGE; }
int pl_port_flash_erase(uint32_t at) { return flash_area_erase(area, (off_t)at, PL_PAGE) == 0; }

int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n)
{
    return flash_area_write(area, (off_t)at, bytes, n) == 0;
}

static void run(void *a, void *b, void *c)
{
    (void)a, (void)b, (void)c;
    pl_port_start(0, 0);
    pl_client_init(&client, arena, sizeof arena);
    for (;;) {
        int byte = pl_port_byte();
        if (byte < 0)
            pl_port_idle();
        else
            pl_client_byte(&client, (uint8_t)byte);
    }
}

K_THREAD_DEFINE(potluck, 3072, run, NULL, NULL, NULL, K_LOWEST_APPLICATION_THREAD_PRIO, K_FP_REGS, 0);
