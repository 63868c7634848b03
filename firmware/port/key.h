/* The board's key, in the image: `potluck firmware build --key FILE` writes it behind the marker. All ones: no key. */
#ifndef KEY_H
#define KEY_H

#include "pl_lock.h"

enum { KEY_MARK = 16 };
static const volatile struct {
    uint8_t mark[KEY_MARK], key[PL_KEY_BYTES];
} key_slot __attribute__((used)) = {
    {'p', 'l', '-', 'k', 'e', 'y', '-', 's', 'l', 'o', 't', '-', '0', '0', '0', '1'},
    {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
     0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
};

const uint8_t *pl_port_key(void)
{
    uint8_t all = 0xff;
    for (unsigned i = 0; i < PL_KEY_BYTES; i++) all &= key_slot.key[i];
    return all == 0xff ? 0 : (const uint8_t *)(uintptr_t)key_slot.key;
}

#endif
