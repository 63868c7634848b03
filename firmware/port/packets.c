/* The port of posix.c with a line of packets, as a radio has it: standard input and output are a socket that keeps packets
   apart. PL_MTU is what the two sides agreed on. */
#define pl_port_send stream_send /* posix.c's own goes nowhere here */
#define pl_port_byte stream_byte
#define pl_port_idle stream_idle
#define pl_port_pause stream_pause
#include "posix.c"
#undef pl_port_send
#undef pl_port_byte
#undef pl_port_idle
#undef pl_port_pause

#include "pl_ble.h"

static pl_ble ble;
static uint8_t packet[PL_BLE_MOST];
static const uint8_t *bytes;
static uint16_t left;

static void notify(const uint8_t *some, uint16_t n)
{
    if (n > PL_MTU - 3 || write(1, some, n) != (ssize_t)n) exit(3);
}

static void begin(void)
{
    if (ble.notify) return;
    pl_ble_init(&ble, notify);
    pl_ble_mtu(&ble, PL_MTU);
}

void pl_port_send(uint8_t byte)
{
    begin();
    pl_ble_send(&ble, byte);
}

int pl_port_byte(void)
{
    if (left == 0) return -1;
    left--;
    return *bytes++;
}

static void hear(void)
{
    begin();
    ssize_t n = read(0, packet, sizeof packet);
    if (n <= 0) exit(0);
    left = pl_ble_taken(&ble, packet, (uint16_t)n, &bytes);
}

void pl_port_idle(void) { hear(); }

int pl_port_pause(void)
{
    struct pollfd line = {0, POLLIN, 0};
    if (left == 0 && poll(&line, 1, 0) > 0) hear();
    return 0;
}
