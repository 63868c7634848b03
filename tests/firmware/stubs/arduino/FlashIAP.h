/* mbed::FlashIAP as mbed OS declares it. For compiling only. */
#include <stdint.h>
namespace mbed {
class FlashIAP {
public:
    int init();
    int program(const void *buffer, uint32_t addr, uint32_t size);
    int erase(uint32_t addr, uint32_t size);
    uint32_t get_flash_start() const;
    uint32_t get_flash_size() const;
};
}
