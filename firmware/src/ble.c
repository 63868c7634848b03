/* Packets of Bluetooth Low Energy; engines/serial/packets.py is the host's side. */
#include "pl_ble.h"

void pl_ble_init(pl_ble *ble, void (*notify)(const uint8_t *packet, uint16_t n))
{
    pl_fill(ble, 0, sizeof *ble);
    ble->notify = notify;
    ble->mtu = PL_BLE_LEAST;
    ble->lost = 1;
}

void pl_ble_mtu(pl_ble *ble, uint16_t mtu)
{
    if (ble->filled) return; /* not within a frame */
    ble->mtu = mtu < PL_BLE_LEAST ? PL_BLE_LEAST : mtu > PL_BLE_MOST ? PL_BLE_MOST : mtu;
}

/* A frame ends with a zero, and only there is one. */
void pl_ble_send(pl_ble *ble, uint8_t byte)
{
    if (ble->filled == 0) {
        ble->packet[0] = (uint8_t)(PL_BLE_FIRST | ble->out);
        ble->filled = 1;
    }
    ble->packet[ble->filled++] = byte;
    if (byte && ble->filled < ble->mtu - 3) return;
    ble->notify(ble->packet, ble->filled);
    ble->out = (uint8_t)((ble->out + 1u) % PL_BLE_FIRST);
    ble->packet[0] = ble->out;
    ble->filled = byte ? 1 : 0;
}

uint16_t pl_ble_taken(pl_ble *ble, const uint8_t *packet, uint16_t n, const uint8_t **bytes)
{
    if (n < 2) return 0;
    uint8_t number = packet[0] & (PL_BLE_FIRST - 1u), first = packet[0] & PL_BLE_FIRST;
    if (number != ble->in) ble->lost = 1;
    ble->in = (uint8_t)((number + 1u) % PL_BLE_FIRST);
    if (first) ble->lost = 0;
    *bytes = packet + 1;
    return ble->lost ? 0 : (uint16_t)(n - 1u);
}
