#include <zephyr/kernel.h>
struct flash_area { uint8_t fa_id; off_t fa_off; size_t fa_size; };
#ifdef ZEPHYR_BEFORE_4_4
#define FIXED_PARTITION_ID(label) 1
#else
#define PARTITION_ID(label) 1
#endif
int flash_area_open(uint8_t id, const struct flash_area **fa);
int flash_area_erase(const struct flash_area *fa, off_t off, size_t len);
int flash_area_write(const struct flash_area *fa, off_t off, const void *src, size_t len);
