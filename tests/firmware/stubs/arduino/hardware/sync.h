/* pico-sdk's hardware/sync.h. For compiling only. */
#include <stdint.h>
extern "C" {
uint32_t save_and_disable_interrupts(void);
void restore_interrupts(uint32_t status);
}
