/* Frames over Bluetooth Low Energy: a stream of bytes in packets that a write or a notification carries.

   A packet is a head and up to `mtu` - 4 bytes of the stream (3 are the protocol's own, one is the head). The head counts
   packets, modulo 128; its highest bit marks the first packet of a frame. No packet has bytes of two frames. Radios do not
   lose packets, but the queues of operating systems do: after a gap a reader waits for the next first packet, and the
   host asks again. docs/firmware/protocol.md has the service. */
#ifndef PL_BLE_H
#define PL_BLE_H

#include "pl_client.h"

PL_BEGIN

enum { PL_BLE_LEAST = 23, PL_BLE_MOST = 247, PL_BLE_FIRST = 0x80 }; /* ATT's least MTU; the most that one radio packet holds */

typedef struct {
    void (*notify)(const uint8_t *packet, uint16_t n); /* hands one packet to the radio */
    uint16_t mtu;
    uint16_t filled;       /* bytes in `packet` */
    uint8_t out, in, lost; /* the next head to send, the next to expect; waiting for a first packet */
    uint8_t packet[PL_BLE_MOST - 3];
} pl_ble;

void pl_ble_init(pl_ble *ble, void (*notify)(const uint8_t *packet, uint16_t n)); /* at every connection */
void pl_ble_mtu(pl_ble *ble, uint16_t mtu);                                       /* what the two sides agreed on */
void pl_ble_send(pl_ble *ble, uint8_t byte);                                      /* for pl_port_send */
/* Bytes of the stream in a packet that came; 0 for one that is dropped. */
uint16_t pl_ble_taken(pl_ble *ble, const uint8_t *packet, uint16_t n, const uint8_t **bytes);

PL_END

#endif
