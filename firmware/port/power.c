/* Power cuts and lost answers on NOR flash: `power FEDERATIONS SEED`, or `power every` for a cut at each write in turn.

   A small host talks to the client frame by frame, as engines/serial/board.py does, through whole federations: settings,
   samples, weights, tasks. The flash counts erasures, refuses a second program of a unit, and may lose power within an
   erasure or a program: what was being written is then left half done, and all RAM is lost. Answers get lost as well;
   the host then asks again. Between two tasks the board works by itself now and then: it records windows and learns in
   slices. After every start it must have what it had said it keeps: the weights of the last task that was answered with
   KEPT, or of the one that was being kept, or what it learnt by itself; the samples; and the recordings. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include "nor.h"
#include "pl_client.h"
#include "pl_keys.h"

#ifndef PL_FLASH
#define PL_FLASH (16 * PL_PAGE)
#endif
enum { SAMPLES = 7, TRAIN = 5, STEPS = 20, ROUNDS = 3, MOST_RECORDED = 12, SIZE = PL_SAMPLE_HEAD + 4 * STEPS };

static _Alignas(8) uint8_t arena[PL_ARENA];
static _Alignas(8) uint8_t flash[PL_FLASH];
static uint8_t programmed[PL_FLASH / PL_UNIT];
static uint32_t erased[PL_FLASH / PL_PAGE];
static uint32_t cuts, writes, federations, losses, ticks;
static int64_t cut_at = -1; /* at this many erasures and programs from here the power goes */
static jmp_buf dark;
static pl_client client;
static pl_reader heard;
static uint64_t seed = 1;
static uint32_t drawn;
static uint32_t one_answer, deaf;

static void wrong(const char *what)
{
    printf("wrong: %s (federation %u, cut %u, write %u)\n", what, (unsigned)federations, (unsigned)cuts, (unsigned)writes);
    exit(1);
}

static uint32_t any(uint32_t below) { return (uint32_t)(pl_draw(seed, drawn++) >> 33) % below; }

void pl_port_start(int argc, char **argv) { (void)argc, (void)argv; }
int pl_port_byte(void) { return -1; }
void pl_port_idle(void) {}
uint64_t pl_port_ticks(void) { return ticks += 1000; }
uint32_t pl_port_rate(void) { return 1000000; }
uint32_t pl_port_stack(void) { return 0; }
uint32_t pl_port_static(void) { return 0; }
int pl_port_pause(void) { return 0; }
const uint8_t *pl_port_key(void) { return 0; }
uint64_t pl_port_noise(void) { return 0; }
const char *pl_port_name(void) { return "power"; }
const uint8_t *pl_port_flash(void) { return flash; }
uint32_t pl_port_flash_size(void) { return PL_FLASH; }

/* 1: the power goes during this one */
static int goes(void)
{
    writes++;
    return cut_at >= 0 && cut_at-- == 0;
}

int pl_port_flash_erase(uint32_t at)
{
    int cut = goes();
    if (at % PL_PAGE || at >= PL_FLASH) wrong("an erasure outside");
    if (cut) { /* some bits are erased, some are not */
        for (uint32_t i = 0; i < PL_PAGE; i++) flash[at + i] |= (uint8_t)any(256);
        longjmp(dark, 1);
    }
    nor_erase(flash, PL_FLASH, at);
    pl_fill(programmed + at / PL_UNIT, 0, PL_PAGE / PL_UNIT);
    erased[at / PL_PAGE]++;
    return 1;
}

int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n)
{
    const uint8_t *from = bytes;
    uint32_t cut = goes() ? any(n / PL_UNIT) : n; /* in which unit */
    if (at % PL_UNIT || n % PL_UNIT || n == 0 || at > PL_FLASH || n > PL_FLASH - at) wrong("a program outside");
    for (uint32_t unit = 0; unit < n / PL_UNIT; unit++) {
        uint32_t here = at + unit * PL_UNIT;
        if (programmed[here / PL_UNIT]) wrong("a unit is programmed twice");
        programmed[here / PL_UNIT] = 1;
        for (uint32_t i = 0; i < PL_UNIT; i++) {
            if (flash[here + i] != 0xff) wrong("a unit is programmed that was not erased");
            flash[here + i] = (uint8_t)(from[unit * PL_UNIT + i] | (unit == cut ? any(256) : 0)); /* cut: not all its zeros */
        }
        if (unit == cut) longjmp(dark, 1);
    }
    return 1;
}

void pl_port_send(uint8_t byte)
{
    if (pl_read_byte(&heard, byte) == PL_FRAME && heard.bytes[1] != PL_KIND_PROGRESS) one_answer = 1;
}

static void to_client(uint8_t byte) { pl_client_byte(&client, byte); }

/* Asks until there is an answer: its length, or minus the trouble. Answers get lost now and then, and are asked for
   again, as the host does it. */
static int asked(uint8_t kind, const void *payload, uint32_t n, uint8_t *answer)
{
    static uint8_t seq;
    uint8_t frame[PL_FRAME_MAX];
    seq++;
    do {
        pl_copy(frame + PL_FRAME_HEAD, payload, n);
        one_answer = 0;
        pl_send_frame(frame, kind, seq, (uint8_t)n, to_client);
        if (!one_answer) wrong("no answer");
        deaf = any(8) == 0;
        losses += deaf;
    } while (deaf);
    if (heard.bytes[1] == PL_KIND_ERROR) return -(int)heard.bytes[PL_FRAME_HEAD];
    if (heard.bytes[1] != (kind | PL_ANSWER)) wrong("another answer");
    if (answer) pl_copy(answer, heard.bytes + PL_FRAME_HEAD, heard.bytes[3]);
    return heard.bytes[3];
}

static void must(uint8_t kind, const void *payload, uint32_t n)
{
    int got = asked(kind, payload, n, 0);
    if (got < 0) {
        printf("kind %u was refused with %d\n", kind, -got);
        wrong("a refusal");
    }
}

/* What the host knows: the samples it sent, what the board acknowledged. */
static uint8_t samples[SAMPLES][SIZE];
static uint32_t acknowledged, asked_to_keep; /* tasks */
static uint32_t weights_of[2];               /* checksums of their weights */

static uint32_t weights_now(void) { return pl_crc32(0, client.net.weights, client.net.count * 4u); }

static void draw_samples(void)
{
    for (uint32_t i = 0; i < SAMPLES; i++) {
        uint8_t *one = samples[i];
        uint16_t head[2] = {STEPS, (uint16_t)(i % 2)};
        pl_copy(one, head, 4);
        for (uint32_t t = 0; t < STEPS; t++) {
            float x = (float)any(1000) / 500.0f - 1.0f;
            pl_copy(one + PL_SAMPLE_HEAD + 4 * t, &x, 4);
        }
        uint32_t crc = pl_crc32(pl_crc32(0, one, 4), one + PL_SAMPLE_HEAD, SIZE - PL_SAMPLE_HEAD);
        pl_copy(one + 4, &crc, 4);
    }
}

static uint32_t samples_crc(void) { return pl_crc32(0, samples[0], sizeof samples); }

static void install(uint32_t session)
{
    pl_setup setup = {session, 1, 3, 3, 3, 2, STEPS, 1, 1, 1, 0, 0, PL_KEEP_SEGMENTS, PL_FLOAT32, PL_FLOAT32, PL_FLOAT32, 0, 0, 1,
                      0.6f, 0.2f, 0.2f, 1.59f, 0.05f, 5.0f, 0, 0, {0}};
    uint8_t bytes[PL_PAYLOAD], ready[PL_READY_SIZE];
    uint32_t count;
    pl_setup_write(bytes, &setup);
    if (asked(PL_KIND_SETUP, bytes, PL_SETUP_SIZE, ready) < 0) wrong("the setup is refused");
    pl_copy(&count, ready + 4, 4);
    uint8_t shelve[PL_SHELVE_SIZE] = {TRAIN, 0, SAMPLES - TRAIN, 0};
    uint32_t crc = samples_crc();
    pl_copy(shelve + 4, &crc, 4);
    if (asked(PL_KIND_SHELVE, shelve, sizeof shelve, 0) < 0) {
        for (uint32_t i = 0; i < SAMPLES; i++)
            for (uint32_t at = 0; at < SIZE; at += 2 * PL_PIECE) {
                uint32_t n = SIZE - at < 2 * PL_PIECE ? SIZE - at : 2 * PL_PIECE, offset = i * SIZE + at;
                bytes[0] = PL_REGION_SHELF;
                pl_copy(bytes + 1, &offset, 4);
                pl_copy(bytes + PL_WRITE_SIZE, samples[i] + at, n);
                must(PL_KIND_WRITE, bytes, PL_WRITE_SIZE + n);
            }
        must(PL_KIND_SHELVE, shelve, sizeof shelve);
    }
    for (uint32_t at = 0; at < count * 4u; at += 200) {
        uint32_t n = count * 4u - at < 200 ? count * 4u - at : 200;
        bytes[0] = PL_REGION_WEIGHTS;
        pl_copy(bytes + 1, &at, 4);
        for (uint32_t i = 0; i < n; i += 4) {
            float w = (float)any(1000) / 1000.0f - 0.5f;
            pl_copy(bytes + PL_WRITE_SIZE + i, &w, 4);
        }
        must(PL_KIND_WRITE, bytes, PL_WRITE_SIZE + n);
    }
}

static void keep(uint32_t task)
{
    asked_to_keep = task;
    weights_of[1] = weights_now();
    must(PL_KIND_KEEP, &task, 4);
    acknowledged = task;
    weights_of[0] = weights_of[1];
}

static void train(uint32_t task)
{
    pl_train m = {task, 77u + task, -1.0f, 0, 2, 0};
    uint8_t bytes[PL_TRAIN_SIZE] = {0};
    pl_copy(bytes, &m.task, 4);
    pl_copy(bytes + 4, &m.key, 8);
    pl_copy(bytes + 12, &m.cum, 4);
    bytes[20] = 2;
    must(PL_KIND_TRAIN, bytes, sizeof bytes);
}

/* What the board recorded by itself, oldest first; the first number of a window tells it from all others. */
static uint32_t recorded, recording, forgetting, recordings, learnings; /* `recording`: one is being written */
static float tag_of[PL_MAX_LIVE], next_tag;

static void check_recordings(void)
{
    if (forgetting) { /* some of them are gone */
        pl_forget_live(&client);
        forgetting = recorded = recording = 0;
    }
    if (client.live != recorded && !(recording && client.live == recorded + 1u)) wrong("recordings are lost");
    if (client.live > recorded) tag_of[recorded++] = next_tag;
    recording = 0;
    for (uint32_t i = 0; i < recorded; i++) {
        pl_sample one = pl_sample_at(&client, SAMPLES + i);
        if (one.x_TI[0] != tag_of[i] || one.label != (uint16_t)tag_of[i] % 2) wrong("another recording");
    }
}

static void record(void)
{
    float x[STEPS];
    next_tag = (float)++recordings;
    x[0] = next_tag;
    for (uint32_t t = 1; t < STEPS; t++) x[t] = (float)any(1000) / 500.0f - 1.0f;
    recording = recorded < MOST_RECORDED;
    int trouble = recording ? pl_record_sample(&client, x, (uint16_t)recordings % 2) : PL_TROUBLE_NO_ROOM;
    if (trouble == PL_TROUBLE_NO_ROOM) {
        recording = 0;
        forgetting = 1;
        if (pl_forget_live(&client)) wrong("recordings cannot be forgotten");
        forgetting = recorded = 0;
        return;
    }
    if (trouble) wrong("a window is not recorded");
    tag_of[recorded++] = next_tag;
    recording = 0;
}

static void learn(void)
{
    pl_recipe recipe = {0.001f, 0, 0, 0, 0, client.net.count};
    if (pl_alone_begin(&client, &recipe, 3, 2, recordings)) wrong("it does not learn by itself");
    int said;
    do {
        weights_of[1] = weights_now(); /* what the last slice stores, under the same task */
        said = pl_alone_slice(&client);
        if (any(40) == 0 && said == PL_LEARNING) pl_alone_stop(&client);
    } while (said == PL_LEARNING && client.course.alone);
    if (said < 0) wrong("it stops learning by itself");
    learnings += said == PL_LEARNT;
    if (said == PL_LEARNT) weights_of[0] = weights_of[1];
    if (weights_now() != weights_of[0]) wrong("a training that was stopped left a trace");
}

/* The board as it starts: what it remembers must be what it said. */
static void start(int is_installed)
{
    for (uint32_t i = 0; i < PL_ARENA; i++) arena[i] = (uint8_t)any(256);
    pl_fill(&client, (int)any(256), sizeof client);
    pl_fill(&heard, 0, sizeof heard);
    pl_client_init(&client, arena, sizeof arena);
    if (!is_installed) return;
    if (!client.is_set || !client.installed || !client.shelved) wrong("the board lost what it kept");
    if (client.train != TRAIN || client.valid != SAMPLES - TRAIN || client.shelf_crc != samples_crc()) wrong("lost samples");
    int old = client.kept == acknowledged && weights_now() == weights_of[0];
    int new = client.kept == asked_to_keep && weights_now() == weights_of[1];
    if (!old && !new) wrong("the weights are of no task that was kept");
    check_recordings();
    if (new) {
        acknowledged = asked_to_keep;
        weights_of[0] = weights_of[1];
    }
}

/* A federation: the settings once, then rounds; whatever is interrupted is done again. */
static void federation(uint32_t session, int64_t first_cut, uint32_t more)
{
    static volatile uint32_t done;
    static volatile int installed;
    static volatile uint32_t left;
    done = 0;
    installed = 0;
    left = more;
    cut_at = first_cut;
    if (session % 3 == 1) draw_samples(); /* others find their samples in place */
    if (setjmp(dark)) {
        cuts++;
        cut_at = left ? (int64_t)any(16) : -1;
        left = left ? left - 1u : 0;
        start(installed);
        if (installed && client.kept == session * 100u + done + 1u) done++; /* kept before the power went */
    }
    while (done < ROUNDS) {
        if (!installed) {
            install(session);
            acknowledged = asked_to_keep = PL_NO_TASK;
            weights_of[0] = weights_of[1] = weights_now();
            keep(PL_NO_TASK);
            installed = 1;
            check_recordings();
        }
        uint32_t task = session * 100u + done + 1u;
        train(task);
        keep(task);
        done++;
        if (any(2)) record();
        if (any(4) == 0) learn();
    }
    cut_at = -1;
    federations++;
}

int main(int argc, char **argv)
{
    int every = argc > 1 && argv[1][0] == 'e';
    uint32_t count = argc > 1 && !every ? (uint32_t)strtoul(argv[1], 0, 10) : 100, most = 0;
    seed = argc > 2 ? strtoull(argv[2], 0, 10) : 1;
    pl_fill(flash, 0xff, sizeof flash);
    pl_client_init(&client, arena, sizeof arena);
    draw_samples();
    if (every) {
        uint32_t session = 1;
        for (int64_t at = 0;; at++, session += 3) { /* new samples each time */
            uint32_t before = cuts;
            federation(session, at, 0);
            if (cuts == before) break; /* beyond the last write */
        }
    } else {
        for (uint32_t i = 1; i <= count; i++) federation(i, any(16), any(4));
    }
    for (uint32_t i = 0; i < PL_FLASH / PL_PAGE; i++) most = erased[i] > most ? erased[i] : most;
    printf("%u federations, %u cuts, %u lost answers, %u writes, %u stores in %u slots, %u erasures of a page, "
           "%u recordings, %u trainings by itself\n",
           (unsigned)federations, (unsigned)cuts, (unsigned)losses, (unsigned)writes, (unsigned)client.sequence,
           (unsigned)pl_slots(&client.net), (unsigned)most, (unsigned)recordings, (unsigned)learnings);
    return 0;
}
