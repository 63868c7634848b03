/* What the module uses of Zephyr, with Zephyr's signatures. For compiling only. */
#ifndef KERNEL_STUB_H
#define KERNEL_STUB_H
#include <stddef.h>
#include <stdint.h>
typedef long off_t;
typedef struct { int64_t ticks; } k_timeout_t;
#define K_MSEC(ms) ((k_timeout_t){ms})
struct k_sem { int count; };
#define K_SEM_DEFINE(name, initial, limit) struct k_sem name = {initial}
int k_sem_take(struct k_sem *sem, k_timeout_t timeout);
void k_sem_give(struct k_sem *sem);
void k_yield(void);
int64_t k_uptime_get(void);
uint32_t k_cycle_get_32(void);
void k_oops(void);
#define __aligned(n) __attribute__((aligned(n)))
#define K_LOWEST_APPLICATION_THREAD_PRIO 14
#define K_FP_REGS 2
#define K_THREAD_DEFINE(name, stack, entry, a, b, c, prio, options, delay) \
    void (*const name)(void *, void *, void *) = entry
#endif
