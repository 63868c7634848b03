/* Hostile frames into the client: `fuzz COUNT` mutates a conversation that a board would have, with a generator of its
   own, and feeds it byte by byte. Half of the mutants get a fresh checksum, so that their fields are looked at and not
   only their frame. Built with sanitizers; ends well when the client still answers HELLO. */
#include <stdio.h>
#include <stdlib.h>

#include "nor.h"
#include "pl_client.h"
#include "pl_keys.h"

static _Alignas(8) uint8_t arena[PL_ARENA];
static _Alignas(8) uint8_t flash[PL_FLASH];
static pl_client client;
static pl_reader heard;
static uint32_t answers, hellos, troubles, trained, fitted, told, dropped, ticks;

void pl_port_start(int argc, char **argv) { (void)argc, (void)argv; }
int pl_port_byte(void) { return -1; }
void pl_port_idle(void) {}
uint64_t pl_port_ticks(void) { return ticks += 1000; }
uint32_t pl_port_rate(void) { return 1000000; }
uint32_t pl_port_stack(void) { return 0; }
uint32_t pl_port_static(void) { return sizeof arena; }
int pl_port_pause(void) { return 0; }
const uint8_t *pl_port_key(void) { return 0; }
uint64_t pl_port_noise(void) { return 0; }
const char *pl_port_name(void) { return "fuzz"; }
const uint8_t *pl_port_flash(void) { return flash; }
uint32_t pl_port_flash_size(void) { return sizeof flash; }

/* The client checks, not the port: what NOR flash would refuse is a fault of the client. */
int pl_port_flash_erase(uint32_t at)
{
    if (!nor_erase(flash, sizeof flash, at)) abort();
    return 1;
}

int pl_port_flash_write(uint32_t at, const void *bytes, uint32_t n)
{
    if (!nor_program(flash, sizeof flash, at, bytes, n)) abort();
    return 1;
}

void pl_port_send(uint8_t byte)
{
    if (pl_read_byte(&heard, byte) != PL_FRAME) return;
    answers++;
    hellos += heard.bytes[1] == (PL_KIND_HELLO | PL_ANSWER);
    troubles += heard.bytes[1] == PL_KIND_ERROR;
    trained += heard.bytes[1] == (PL_KIND_TRAIN | PL_ANSWER);
    fitted += heard.bytes[1] == (PL_KIND_FIT | PL_ANSWER);
    told += heard.bytes[1] == (PL_KIND_TELL | PL_ANSWER);
}

static uint64_t seed = 1;
static uint32_t drawn;
static uint32_t any(uint32_t below) { return (uint32_t)(pl_draw(seed, drawn++) >> 33) % below; }

/* The frames of a conversation, before their checksum: kind, payload. */
/* A CFC by TRAIN; three networks by FIT; the GRU again, with common weights. */
enum { LAYERED = 17, EACH = 8, KINDS = 3, SHARED = LAYERED + KINDS * EACH, LAST = 11, FRAMES = SHARED + LAST };
static uint8_t frames[FRAMES][PL_FRAME_MAX];
static uint32_t sizes[FRAMES];

static void frame(unsigned i, uint8_t kind, const void *payload, uint32_t n)
{
    frames[i][0] = PL_VERSION;
    frames[i][1] = kind;
    frames[i][2] = (uint8_t)i;
    frames[i][3] = (uint8_t)n;
    pl_copy(frames[i] + PL_FRAME_HEAD, payload, n);
    sizes[i] = PL_FRAME_HEAD + n;
}

static void feed(const uint8_t *bytes, uint32_t n, int checked)
{
    static uint8_t copy[2 * PL_FRAME_MAX];
    pl_copy(copy, bytes, n);
    if (checked && n <= PL_FRAME_MAX - 2) {
        if (n >= PL_FRAME_HEAD) copy[3] = (uint8_t)(n - PL_FRAME_HEAD);
        uint16_t crc = pl_crc16(copy, n);
        copy[n++] = (uint8_t)crc;
        copy[n++] = (uint8_t)(crc >> 8);
    }
    for (uint32_t begin = 0; begin <= n;) { /* in blocks without zeros, as pl_send_frame does it */
        uint32_t end = begin;
        while (end < n && copy[end] && end - begin < 253) end++;
        pl_client_byte(&client, (uint8_t)(end - begin + 1));
        for (; begin < end; begin++) pl_client_byte(&client, copy[begin]);
        begin = end + 1;
    }
    pl_client_byte(&client, 0);
}

static void conversation(void)
{
    /* a network of 2 units on series of 3 steps; SETUP as the wire has it */
    static const uint8_t shape[] = {1, 0, 0, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 3, 0, 2, 1, 1, 0, 1, 2, 0, 0, 0, 0, 0, 1};
    static const float terms[] = {0.6f, 0.2f, 0.2f, 1.59f, 0.05f, 5.0f};
    uint8_t bytes[PL_PAYLOAD] = {0};
    pl_copy(bytes, shape, sizeof shape);
    pl_copy(bytes + sizeof shape, terms, sizeof terms);
    frame(0, PL_KIND_HELLO, bytes, 0);
    frame(1, PL_KIND_SETUP, bytes, PL_SETUP_SIZE);
    uint8_t shelf[2 * 44] = {3, 0, 1, 0};
    for (unsigned k = 0; k < 2; k++) {
        uint8_t *one = shelf + 44 * k;
        one[0] = 3;
        for (unsigned i = 8; i < 44; i++) one[i] = (i % 4 == 3) ? 0x3e : 0;
        uint32_t own = pl_crc32(pl_crc32(0, one, 4), one + 8, 36);
        pl_copy(one + 4, &own, 4);
        pl_fill(bytes, 0, sizeof bytes);
        bytes[0] = PL_REGION_SHELF;
        bytes[1] = (uint8_t)(44 * k);
        pl_copy(bytes + PL_WRITE_SIZE, one, 44);
        frame(k ? 16 : 2, PL_KIND_WRITE, bytes, PL_WRITE_SIZE + 44);
    }
    uint32_t crc = pl_crc32(0, shelf, sizeof shelf);
    uint8_t shelve[PL_SHELVE_SIZE] = {1, 0, 1, 0};
    pl_copy(shelve + 4, &crc, 4);
    frame(3, PL_KIND_SHELVE, shelve, sizeof shelve);
    pl_fill(bytes, 0, sizeof bytes);
    for (unsigned i = PL_WRITE_SIZE; i < 120; i++) bytes[i] = (i % 4 == 0) ? 0x3e : 7;
    frame(4, PL_KIND_WRITE, bytes, 117);
    static const uint8_t none[4] = {0xff, 0xff, 0xff, 0xff}, first[4] = {1}, one[PL_INFER_SIZE] = {1};
    frame(5, PL_KIND_KEEP, none, 4);
    pl_fill(bytes, 0, sizeof bytes);
    bytes[0] = PL_REGION_CUD;
    pl_fill(bytes + PL_WRITE_SIZE, 0x3d, 16);
    frame(6, PL_KIND_WRITE, bytes, PL_WRITE_SIZE + 16);
    uint8_t train[PL_TRAIN_SIZE] = {1, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0x80, 0xbf};
    train[PL_TRAIN_SIZE - 3] = 2;
    frame(7, PL_KIND_TRAIN, train, sizeof train);
    crc = pl_crc32(0, bytes + PL_WRITE_SIZE, 16);
    train[0] = 2;
    pl_copy(train + 16, &crc, 4);
    train[PL_TRAIN_SIZE - 1] = 1;
    frame(8, PL_KIND_TRAIN, train, sizeof train);
    uint8_t read[PL_READ_SIZE] = {PL_REGION_LUD, 0, 0, 0, 0, 16};
    frame(9, PL_KIND_READ, read, sizeof read);
    read[0] = PL_REGION_WEIGHTS;
    frame(10, PL_KIND_READ, read, sizeof read);
    frame(11, PL_KIND_KEEP, first, 4);
    frame(12, PL_KIND_INFER, one, sizeof one);
    frame(13, PL_KIND_STATS, one, 0);
    read[0] = PL_REGION_SCALES;
    frame(14, PL_KIND_READ, read, sizeof read);
    frame(15, PL_KIND_SHELVE, shelve, sizeof shelve);
}

/* Networks that FIT trains: a GRU and a dense layer in float32; a convolution, pooling and a dense layer in int8; a CFC. */
enum { OF_GRU, OF_CONV, OF_CFC };

static void layered(unsigned at, unsigned kind)
{
    static const uint32_t counts[] = {42, 20, 40};
    int small = kind == OF_CONV;
    static const uint8_t links[2][18] = {{4, 0, 0, 0, 2, 0, 1, 0, 0, 0, 2, 0}, {2 | 1 << 4, 2, 1, 1, 2, 0, 3, 2, 2, 0, 2, 0, 1, 0, 0, 0, 2, 0}};
    uint8_t bytes[PL_PAYLOAD] = {0}, shelf[2 * 32] = {0};
    uint32_t n = counts[kind] * (small ? 1 : 4);
    pl_setup m;
    pl_copy(bytes, frames[1] + PL_FRAME_HEAD, PL_SETUP_SIZE);
    pl_setup_read(&m, bytes);
    m.timed = 0;
    m.network = kind != OF_CFC;
    m.extras = PL_VELOCITY | PL_PULL | (kind == OF_CFC ? PL_LOSS_ALONE : 0);
    m.keep = PL_KEEP_FOURS;
    m.weights = small ? PL_INT8 : PL_FLOAT32;
    if (kind != OF_CFC) pl_copy(m.layers, links[small], 18);
    pl_setup_write(bytes, &m);
    frame(at, PL_KIND_SETUP, bytes, PL_SETUP_SIZE);
    for (unsigned k = 0; k < 2; k++) {
        uint8_t *one = shelf + 32 * k;
        one[0] = 3;
        for (unsigned i = 11; i < 32; i += 4) one[i] = 0x3e;
        uint32_t own = pl_crc32(pl_crc32(0, one, 4), one + 8, 24);
        pl_copy(one + 4, &own, 4);
        pl_write where = {PL_REGION_SHELF, 32 * k};
        pl_fill(bytes, 0, sizeof bytes);
        bytes[0] = where.region;
        pl_copy(bytes + 1, &where.offset, 4);
        pl_copy(bytes + PL_WRITE_SIZE, one, 32);
        frame(at + 1 + k, PL_KIND_WRITE, bytes, PL_WRITE_SIZE + 32);
    }
    uint32_t crc = pl_crc32(0, shelf, sizeof shelf);
    uint8_t shelve[PL_SHELVE_SIZE] = {1, 0, 1, 0};
    pl_copy(shelve + 4, &crc, 4);
    frame(at + 3, PL_KIND_SHELVE, shelve, sizeof shelve);
    static uint8_t weights[42 * 4 + 16];
    pl_fill(weights, 0, sizeof weights);
    for (unsigned i = 3; i < n; i += 4) weights[i] = 0x3e;
    for (unsigned i = 3; i < 16; i += 4) weights[n + i] = 0x3d; /* scales, where they are read */
    pl_fill(bytes, 0, sizeof bytes);
    pl_copy(bytes + PL_WRITE_SIZE, weights, n);
    frame(at + 4, PL_KIND_WRITE, bytes, PL_WRITE_SIZE + n);
    bytes[0] = small ? PL_REGION_SCALES : PL_REGION_PULL;
    pl_copy(bytes + PL_WRITE_SIZE, weights + n, 16);
    frame(at + 5, PL_KIND_WRITE, bytes, PL_WRITE_SIZE + 16);
    pl_fill(bytes, 0, sizeof bytes);
    float numbers[4] = {0.1f, 0.5f, 0.1f, 1.0f};
    uint32_t range[3] = {0, counts[kind], 0}, task = 1;
    crc = pl_crc32(0, weights, small ? n + 16 : n);
    pl_copy(bytes, &task, 4);
    pl_copy(bytes + 12, &crc, 4);
    pl_copy(bytes + 16, numbers, 16);
    pl_copy(bytes + 32, range, 12);
    bytes[44] = 2;
    bytes[46] = 2;
    frame(at + 6, PL_KIND_FIT, bytes, PL_FIT_SIZE);
    frame(at + 7, PL_KIND_LABEL, bytes, PL_LABEL_REQUEST_SIZE);
}

/* The GRU again, all of its weights shared in seven bits a number. */
static void shared(void)
{
    const uint8_t *before = frames[LAYERED] + PL_FRAME_HEAD;
    uint8_t bytes[PL_PAYLOAD] = {0}, nothing[42 * 4] = {0};
    uint32_t task = 1, last = 42, crc = pl_crc32(0, nothing, 61), common = pl_crc32(0, nothing, sizeof nothing);
    pl_setup m;
    pl_setup_read(&m, before);
    m.extras = PL_SHARE;
    pl_setup_write(bytes, &m);
    frame(SHARED, PL_KIND_SETUP, bytes, PL_SETUP_SIZE);
    for (unsigned i = 1; i < 5; i++) {
        const uint8_t *same = frames[LAYERED + i];
        frame(SHARED + i, same[1], same + PL_FRAME_HEAD, same[3]);
    }
    static const uint8_t none[4] = {0xff, 0xff, 0xff, 0xff};
    frame(SHARED + 5, PL_KIND_KEEP, none, 4);
    pl_fill(bytes, 0, sizeof bytes);
    bytes[0] = PL_REGION_CHANGE;
    frame(SHARED + 6, PL_KIND_WRITE, bytes, PL_WRITE_SIZE + 61);
    pl_fill(bytes, 0, sizeof bytes);
    pl_copy(bytes, &task, 4);
    pl_copy(bytes + 8, &crc, 4);
    pl_copy(bytes + 16, &last, 4);
    bytes[20] = 7;
    frame(SHARED + 7, PL_KIND_SHIFT, bytes, PL_SHIFT_SIZE);
    pl_copy(bytes, frames[LAYERED + 6] + PL_FRAME_HEAD, PL_FIT_SIZE);
    pl_copy(bytes + 12, &common, 4);
    pl_fill(bytes + 20, 0, 8); /* no momentum, no pull */
    frame(SHARED + 8, PL_KIND_FIT, bytes, PL_FIT_SIZE);
    pl_fill(bytes, 0, sizeof bytes);
    pl_copy(bytes, &task, 4);
    pl_copy(bytes + 8, &last, 4);
    bytes[12] = 7;
    frame(SHARED + 9, PL_KIND_TELL, bytes, PL_TELL_SIZE);
    uint8_t read[PL_READ_SIZE] = {PL_REGION_CHANGE, 0, 0, 0, 0, 61};
    frame(SHARED + 10, PL_KIND_READ, read, sizeof read);
}

static uint32_t mutated(uint8_t *to, unsigned i)
{
    uint32_t n = sizes[i];
    pl_copy(to, frames[i], n);
    for (uint32_t k = any(4); k-- > 0;) {
        uint32_t at = any(n ? n : 1);
        switch (any(6)) {
        case 0: to[at] ^= (uint8_t)(1u << any(8)); break;
        case 1: to[at] = (uint8_t)any(256); break;
        case 2: to[at] = (uint8_t[]){0, 1, 0x7f, 0x80, 0xff, 0xfe}[any(6)]; break;
        case 3: n = any(n + 1); break;
        case 4:
            for (uint32_t more = any(64); more-- > 0 && n < PL_FRAME_MAX;) to[n++] = (uint8_t)any(256);
            break;
        default:
            if (n > 8) pl_copy(to + at, frames[any(FRAMES)] + any(8), at + 4 <= n ? 4 : 1);
        }
    }
    return n;
}

int main(int argc, char **argv)
{
    uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], 0, 10) : 1000;
    uint8_t mutant[2 * PL_FRAME_MAX];
    conversation();
    for (unsigned kind = OF_GRU; kind <= OF_CFC; kind++) layered(LAYERED + kind * EACH, kind);
    shared();
    pl_client_init(&client, arena, sizeof arena);
    for (uint32_t done = 0; done < count; done++) {
        if (done % 32 == 0 && done / 32 % 2) { /* as it should be, so that mutants meet a client that is set up */
            unsigned which = done / 64 % (KINDS + 1), first = LAYERED + which * EACH, n = which == KINDS ? LAST : EACH;
            for (unsigned i = 0; i < n; i++) feed(frames[first + i], sizes[first + i], 1);
        } else if (done % 32 == 0)
            for (unsigned i = 0; i < 9; i++) { /* the second sample after the first */
                unsigned k = i < 3 ? i : i == 3 ? 16 : i - 1;
                feed(frames[k], sizes[k], 1);
            }
        if (done % 1000 == 999) { /* and one that was started anew */
            dropped += client.dropped;
            pl_client_init(&client, arena, sizeof arena);
        }
        uint32_t n = mutated(mutant, any(FRAMES));
        if (any(2))
            feed(mutant, n, 1);
        else
            for (uint32_t i = 0; i < n; i++) pl_client_byte(&client, mutant[i]);
    }
    pl_client_byte(&client, 0);
    uint32_t before = hellos;
    feed(frames[0], sizes[0], 1);
    printf("%u mutants, %u answers, %u of them troubles, %u trained, %u fitted and %u told, %u frames dropped, HELLO %s\n", (unsigned)count,
           (unsigned)answers, (unsigned)troubles, (unsigned)trained, (unsigned)fitted, (unsigned)told, (unsigned)(dropped + client.dropped),
           hellos > before ? "answered" : "unanswered");
    return hellos > before ? 0 : 1;
}
