/* The image: one arena, one client, one loop. PL_ARENA comes from `potluck firmware build`. */
#include "pl_client.h"

#ifdef __arm__ /* in RAM of its own, where a part has more than one */
#define PLACED __attribute__((section(".bss.pl_arena")))
#else
#define PLACED
#endif
static _Alignas(8) uint8_t PLACED arena[PL_ARENA];
static pl_client client;

int main(int argc, char **argv)
{
    pl_port_start(argc, argv);
    pl_client_init(&client, arena, sizeof arena);
    for (;;) {
        int byte = pl_port_byte();
        if (byte < 0)
            pl_port_idle();
        else
            pl_client_byte(&client, (uint8_t)byte);
    }
}
