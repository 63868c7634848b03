/* The board by itself, on this machine: `live WINDOWS EVERY EPOCHS RATE` reads a SETUP record, a scaler and weights, then
   readings from standard input, as a sensor gives them. It prints the label of each window. After WINDOWS windows it
   records each further one with the label that stands before its readings (every second one by a frame), learns from them
   without a host, is started anew, and prints what it says of the same readings then. At last it begins to learn twice more,
   and is stopped; it learns with a step that is far too large; it gets another network. Flash is a block of memory (nor.h). */
#include <stdio.h>
#include <stdlib.h>

#include "nor.h"
#include "pl_live.h"

static _Alignas(8) uint8_t arena[PL_ARENA];
static uint8_t flash[PL_FLASH];
static pl_client client;
static pl_live live;
static uint64_t ticks;

void pl_port_start(int argc, char **argv) { (void)argc, (void)argv; }
int pl_port_byte(void) { return -1; }
void pl_port_idle(void) {}
static int tired;
int pl_port_pause(void) { return tired; }
static pl_reader heard;
static uint8_t answer_kind;
void pl_port_send(uint8_t byte)
{
    if (pl_read_byte(&heard, byte) == PL_FRAME) answer_kind = heard.bytes[1];
}
uint64_t pl_port_ticks(void) { return ticks++; }
uint32_t pl_port_rate(void) { return 1000; }
uint32_t pl_port_stack(void) { return 0; }
uint32_t pl_port_static(void) { return 0; }
const uint8_t *pl_port_key(void) { return 0; }
uint64_t pl_port_noise(void) { return 0; }
const char *pl_port_name(void) { return "live"; }
const uint8_t *pl_port_flash(void) { return flash; }
uint32_t pl_port_flash_size(void) { return sizeof flash; }
int pl_port_flash_erase(uint32_t at) { return nor_erase(flash, sizeof flash, at); }
int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n) { return nor_program(flash, sizeof flash, at, bytes, n); }

static void to_client(uint8_t byte) { pl_client_byte(&client, byte); }

/* A request by the line, as a host sends it; 0, or the trouble. */
static int asked(uint8_t kind, const void *payload, uint8_t bytes)
{
    uint8_t frame[PL_FRAME_MAX];
    pl_copy(frame + PL_FRAME_HEAD, payload, bytes);
    pl_send_frame(frame, kind, 1, bytes, to_client);
    return answer_kind == (kind | PL_ANSWER) ? 0 : heard.bytes[PL_FRAME_HEAD];
}

static int kept(const uint8_t *before) { return pl_crc32(0, client.net.weights, client.net.count * 4u) == pl_crc32(0, before, client.net.count * 4u); }

/* Learns anew in slices, which a host, then the port, end on the way: 0 if neither left a trace. */
static int stopped_twice(const pl_recipe *recipe)
{
    static uint8_t before[PL_ARENA];
    pl_copy(before, client.net.weights, client.net.count * 4u);
    if (pl_alone_begin(&client, recipe, 4, 3, 6)) return 1;
    for (unsigned i = 0; i < 9; i++)
        if (pl_alone_slice(&client) != PL_LEARNING) return 2;
    if (kept(before)) return 3; /* it has learnt something */
    if (asked(PL_KIND_STATS, "", 0) || !client.course.alone) return 4;
    if (asked(PL_KIND_ABORT, "", 0) || client.course.alone || !kept(before)) return 5;
    if (pl_alone_slice(&client) != -PL_TROUBLE_NOT_READY) return 6;
    if (pl_alone_begin(&client, recipe, 4, 3, 6)) return 7;
    for (unsigned i = 0; i < 9; i++)
        if (pl_alone_slice(&client) != PL_LEARNING) return 8;
    tired = 1;
    if (pl_alone_slice(&client) != -PL_TROUBLE_STOPPED || client.course.alone || !kept(before)) return 9;
    tired = 0;
    uint8_t write[PL_WRITE_SIZE + 4] = {PL_REGION_WEIGHTS};
    if (asked(PL_KIND_WRITE, write, sizeof write) || kept(before)) return 10;
    if (pl_alone_begin(&client, recipe, 4, 3, 6) != PL_TROUBLE_BUSY) return 11; /* a host is at work */
    ticks += (PL_PATIENCE + 1u) * pl_port_rate();
    if (pl_alone_begin(&client, recipe, 4, 3, 6) || !kept(before)) return 12; /* it has gone */
    pl_alone_stop(&client);
    return 0;
}

/* A step that is far too large ends in no numbers: 0 if the board keeps what it had. */
static int kept_numbers(const pl_recipe *recipe)
{
    static uint8_t before[PL_ARENA];
    pl_recipe wild = *recipe;
    wild.lr = (pl_real)3e38;
    pl_copy(before, client.net.weights, client.net.count * 4u);
    return pl_learn_alone(&client, &wild, 4, 3, 6) != PL_TROUBLE_BAD_VALUE || !kept(before);
}

/* A network with shorter, wider windows under the same session, while a window is half full: 0 if nothing is written behind the
   ring (the sanitizer looks), and the first label comes after a whole window of the new kind. */
static int another_network(const pl_setup *old, const pl_real *reading)
{
    static const uint8_t dense[] = {PL_DENSE, 0, 0, 0};
    for (uint32_t t = 0; t + 1u < old->steps; t++) pl_live_feed(&live, reading);
    pl_setup setup = *old;
    setup.network = 1;
    setup.steps = 2;
    setup.inputs = 300;
    pl_fill(setup.layers, 0, sizeof setup.layers);
    pl_copy(setup.layers, dense, sizeof dense);
    pl_copy(setup.layers + 4, &setup.classes, 2);
    if (pl_set_up(&client, &setup) || !pl_store(&client, PL_NO_TASK)) return 1;
    return pl_live_feed(&live, reading) != PL_NO_LABEL || pl_live_feed(&live, reading) == PL_NO_LABEL;
}

static int get(void *to, size_t n) { return fread(to, 1, n, stdin) == n; }

int main(int argc, char **argv)
{
    static pl_real ring[2 * 64 * 16], reading[300];
    uint8_t record[PL_SETUP_SIZE];
    pl_setup setup;
    if (argc < 5) return 2;
    uint32_t windows = (uint32_t)atoi(argv[1]), every = (uint32_t)atoi(argv[2]), epochs = (uint32_t)atoi(argv[3]);
    pl_fill(flash, 0xff, sizeof flash);
    pl_client_init(&client, arena, sizeof arena);
    if (!get(record, sizeof record)) return 2;
    pl_setup_read(&setup, record);
    if (pl_set_up(&client, &setup)) return 3;
    uint32_t I = setup.inputs, T = setup.steps;
    if (!get(client.scaler, 2 * I * sizeof(float)) || !get(client.net.weights, client.net.count * sizeof(float))) return 2;
    if (!pl_store(&client, PL_NO_TASK)) return 4;
    pl_live_init(&live, &client, ring, sizeof ring / sizeof *ring, (uint16_t)every);
    for (uint32_t seen = 0; seen < windows && get(reading, I * sizeof(float));) {
        int32_t label = pl_live_feed(&live, reading);
        if (label == PL_NO_LABEL) continue;
        printf("%d ", (int)label);
        seen++;
    }
    printf("\n");
    uint16_t labels[256];
    static pl_real kept[256][64 * 16];
    uint32_t n = 0;
    for (; n < 256 && get(&labels[n], 2) && get(kept[n], T * I * sizeof(float)); n++) {
        pl_live_init(&live, &client, ring, sizeof ring / sizeof *ring, (uint16_t)T);
        for (uint32_t t = 0; t < T; t++) pl_live_feed(&live, kept[n] + t * I);
        int trouble = n % 2 ? asked(PL_KIND_LABEL, &labels[n], 2) : pl_live_record(&live, labels[n]);
        if (trouble) return 10 + trouble;
    }
    pl_recipe recipe = {(pl_real)atof(argv[4]), 0, 0, 0, 0, client.net.count};
    uint32_t right[2] = {0, 0};
    for (unsigned round = 0; round < 2; round++) {
        pl_live_init(&live, &client, ring, sizeof ring / sizeof *ring, (uint16_t)T);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t t = 0; t < T; t++) right[round] += pl_live_feed(&live, kept[i] + t * I) == (int32_t)labels[i];
        if (round == 0) {
            int trouble = pl_learn_alone(&client, &recipe, 4, (uint8_t)epochs, 5);
            if (trouble) return 40 + trouble;
            pl_fill(arena, 0x55, sizeof arena); /* the power goes: flash alone is left */
            pl_client_init(&client, arena, sizeof arena);
        }
    }
    int trouble = stopped_twice(&recipe);
    if (trouble) return 60 + trouble;
    if (kept_numbers(&recipe)) return 80;
    uint32_t found = client.live;
    if (another_network(&setup, reading)) return 81;
    printf("%u recorded, %u right before, %u after learning and a start, %u found in flash\n", (unsigned)n, (unsigned)right[0],
           (unsigned)right[1], (unsigned)found);
    return 0;
}
