/* Answers frames. Whatever is not well formed is dropped or answered with the trouble; nothing is fatal. */
#include "pl_live.h"

void pl_client_tell(pl_client *client, uint8_t kind, uint8_t seq, uint8_t length)
{
    length = pl_lock_seal(&client->lock, client->out, kind, seq, length);
    pl_send_frame(client->out, kind, seq, length, pl_port_send);
}

void pl_answer(pl_client *client, uint8_t kind, uint8_t length)
{
    client->answered++;
    pl_client_tell(client, kind, client->seq, length);
}

static void refuse(pl_client *client, int trouble)
{
    client->out[PL_FRAME_HEAD] = (uint8_t)trouble;
    pl_answer(client, PL_KIND_ERROR, PL_ERROR_SIZE);
}

static int on_setup(pl_client *client, const uint8_t *payload)
{
    pl_setup setup;
    pl_setup_read(&setup, payload);
    int trouble = pl_set_up(client, &setup);
    if (trouble) return trouble;
    const pl_net *net = &client->net;
    pl_ready m = {(uint32_t)net->used, net->count, net->vector, net->tensors, pl_sample_bytes(&net->shape), pl_shelf_room(net)};
    pl_ready_write(client->out + PL_FRAME_HEAD, &m);
    pl_answer(client, PL_KIND_SETUP | PL_ANSWER, PL_READY_SIZE);
    return 0;
}

static int on_shelve(pl_client *client, const uint8_t *payload)
{
    pl_shelve m;
    pl_shelve_read(&m, payload);
    if (!client->is_set) return PL_TROUBLE_NOT_READY;
    if (!pl_check_samples(client, m.train, m.valid, m.crc)) return PL_TROUBLE_BAD_SHELF;
    pl_answer(client, PL_KIND_SHELVE | PL_ANSWER, 0);
    return 0;
}

static int on_train(pl_client *client, const uint8_t *payload)
{
    pl_train m;
    uint8_t seq = client->seq; /* others may come while it trains */
    pl_train_read(&m, payload);
    int trouble = pl_carry_out(client, &m);
    client->seq = seq;
    if (trouble) return trouble;
    pl_trained_write(client->out + PL_FRAME_HEAD, &client->answer);
    pl_answer(client, PL_KIND_TRAIN | PL_ANSWER, PL_TRAINED_SIZE);
    return 0;
}

static int on_fit(pl_client *client, const uint8_t *payload)
{
    pl_fit m;
    uint8_t seq = client->seq;
    pl_fit_read(&m, payload);
    int trouble = pl_fit_task(client, &m);
    client->seq = seq;
    if (trouble) return trouble;
    pl_fitted_write(client->out + PL_FRAME_HEAD, &client->fitted);
    pl_answer(client, PL_KIND_FIT | PL_ANSWER, PL_FITTED_SIZE);
    return 0;
}

static int on_shift(pl_client *client, const uint8_t *payload)
{
    pl_shift m;
    pl_shift_read(&m, payload);
    int trouble = pl_shift_common(client, &m);
    if (!trouble) pl_answer(client, PL_KIND_SHIFT | PL_ANSWER, 0);
    return trouble;
}

static int on_tell(pl_client *client, const uint8_t *payload)
{
    pl_tell m;
    pl_tell_read(&m, payload);
    int trouble = pl_tell_change(client, &m);
    if (trouble) return trouble;
    pl_told told = {client->share.bytes, pl_crc32(0, (const uint8_t *)client->net.gradient, client->share.bytes)};
    pl_told_write(client->out + PL_FRAME_HEAD, &told);
    pl_answer(client, PL_KIND_TELL | PL_ANSWER, PL_TOLD_SIZE);
    return 0;
}

static int on_keep(pl_client *client, const uint8_t *payload)
{
    pl_keep m;
    pl_keep_read(&m, payload);
    if (!client->is_set) return PL_TROUBLE_NOT_READY;
    if (client->dirty == PL_CLEAN && (!client->installed || m.task != client->kept)) return PL_TROUBLE_STALE_TASK;
    if (client->dirty == PL_TRAINED && (!client->answers || m.task != client->trained)) return PL_TROUBLE_STALE_TASK;
    if (client->dirty != PL_CLEAN) {
        if (!pl_store(client, m.task)) return PL_TROUBLE_FLASH_FAILED;
        if (!client->answers) client->trained = m.task;
    }
    pl_kept k = {m.task};
    pl_kept_write(client->out + PL_FRAME_HEAD, &k);
    pl_answer(client, PL_KIND_KEEP | PL_ANSWER, PL_KEPT_SIZE);
    return 0;
}

static int on_infer(pl_client *client, const uint8_t *payload)
{
    pl_infer m;
    pl_infer_read(&m, payload);
    if (!client->is_set || !client->shelved) return PL_TROUBLE_NOT_READY;
    if (m.sample >= (uint32_t)client->train + client->valid) return PL_TROUBLE_BAD_VALUE;
    pl_sample sample = pl_sample_at(client, m.sample);
    pl_inferred found = {(uint16_t)pl_label(client, &sample), sample.label};
    pl_inferred_write(client->out + PL_FRAME_HEAD, &found);
    pl_answer(client, PL_KIND_INFER | PL_ANSWER, PL_INFERRED_SIZE);
    return 0;
}

/* Somebody on the line says what the last window of the sensor was. */
static int on_label(pl_client *client, const uint8_t *payload)
{
    pl_label_request m;
    pl_label_request_read(&m, payload);
    if (!client->sensor) return PL_TROUBLE_NOT_READY;
    pl_inferred found = {(uint16_t)client->sensor->label, m.label};
    int trouble = pl_live_record(client->sensor, m.label);
    if (trouble) return trouble;
    pl_inferred_write(client->out + PL_FRAME_HEAD, &found);
    pl_answer(client, PL_KIND_LABEL | PL_ANSWER, PL_INFERRED_SIZE);
    return 0;
}

static int on_hello(pl_client *client, const uint8_t *payload, uint32_t length)
{
    const char *name = pl_port_name();
    if (length == PL_GREET_SIZE) {
        pl_greet greet;
        pl_greet_read(&greet, payload);
        pl_lock_greet(&client->lock, greet.nonce);
    }
    pl_hello m = {PL_VERSION, PL_PAYLOAD, client->arena_bytes, pl_port_flash_size(), pl_port_rate(),
                  client->is_set ? client->setup.session : 0, client->trained, client->kept, client->train, client->valid,
                  client->shelf_crc, (uint8_t)(client->is_set && client->installed && client->shelved), {0},
                  client->lock.board, (uint8_t)(client->lock.key != 0)};
    for (unsigned i = 0; i < sizeof m.board && name[i]; i++) m.board[i] = name[i];
    pl_hello_write(client->out + PL_FRAME_HEAD, &m);
    pl_answer(client, PL_KIND_HELLO | PL_ANSWER, PL_HELLO_SIZE);
    return 0;
}

static int on_stats(pl_client *client)
{
    uint32_t slots = client->is_set ? pl_slots(&client->net) : 0;
    pl_stats m = {pl_port_stack(), pl_port_static(), client->dropped, client->answered, client->sequence, slots};
    pl_stats_write(client->out + PL_FRAME_HEAD, &m);
    pl_answer(client, PL_KIND_STATS | PL_ANSWER, PL_STATS_SIZE);
    return 0;
}

/* Stops a training that is under way; without one there is nothing to do. */
static int on_abort(pl_client *client)
{
    client->stop = client->busy;
    if (!client->busy) pl_alone_stop(client);
    pl_answer(client, PL_KIND_ABORT | PL_ANSWER, 0);
    return 0;
}

/* The host goes before a training without it: what needs the kept weights ends that. 1: not at once, the board trains. */
static int between(pl_client *client, uint8_t kind)
{
    int harmless = kind == PL_KIND_INFER || kind == PL_KIND_LABEL;
    if (client->busy && client->course.alone && !harmless) client->stop = 1;
    if (!client->busy && !harmless) pl_alone_stop(client);
    return client->busy;
}

static int handled(pl_client *client, uint8_t kind, const uint8_t *payload, uint32_t length)
{
    static const uint8_t SIZES[] = {[PL_KIND_SETUP] = PL_SETUP_SIZE, [PL_KIND_WRITE] = PL_WRITE_SIZE,
                                    [PL_KIND_READ] = PL_READ_SIZE,   [PL_KIND_SHELVE] = PL_SHELVE_SIZE,
                                    [PL_KIND_TRAIN] = PL_TRAIN_SIZE, [PL_KIND_KEEP] = PL_KEEP_SIZE,
                                    [PL_KIND_INFER] = PL_INFER_SIZE, [PL_KIND_STATS] = 0,
                                    [PL_KIND_ABORT] = 0, [PL_KIND_FIT] = PL_FIT_SIZE,
                                    [PL_KIND_LABEL] = PL_LABEL_REQUEST_SIZE,
                                    [PL_KIND_SHIFT] = PL_SHIFT_SIZE, [PL_KIND_TELL] = PL_TELL_SIZE};
    if (kind == 0 || kind >= sizeof SIZES) return PL_TROUBLE_UNKNOWN_KIND;
    if (kind != PL_KIND_ABORT && kind != PL_KIND_HELLO && kind != PL_KIND_STATS && between(client, kind)) return PL_TROUBLE_BUSY;
    int least = kind == PL_KIND_WRITE || (kind == PL_KIND_HELLO && length == PL_GREET_SIZE);
    if (least ? length < SIZES[kind] : length != SIZES[kind]) return PL_TROUBLE_BAD_LENGTH;
    switch (kind) {
    case PL_KIND_HELLO: return on_hello(client, payload, length);
    case PL_KIND_SETUP: return on_setup(client, payload);
    case PL_KIND_WRITE: return pl_region_write(client, payload, length);
    case PL_KIND_READ: return pl_region_read(client, payload);
    case PL_KIND_SHELVE: return on_shelve(client, payload);
    case PL_KIND_TRAIN: return on_train(client, payload);
    case PL_KIND_KEEP: return on_keep(client, payload);
    case PL_KIND_INFER: return on_infer(client, payload);
    case PL_KIND_ABORT: return on_abort(client);
    case PL_KIND_FIT: return on_fit(client, payload);
    case PL_KIND_LABEL: return on_label(client, payload);
    case PL_KIND_SHIFT: return on_shift(client, payload);
    case PL_KIND_TELL: return on_tell(client, payload);
    default: return on_stats(client);
    }
}

/* What no host knows: the part's own noise, the clock, and what the memory holds after the power came. */
static void init_lock(pl_client *client, const void *arena, uint32_t bytes)
{
    const uint8_t *key = pl_port_key();
    uint64_t noise[3] = {0, 0, 0};
    if (key) {
        noise[0] = pl_port_noise();
        noise[1] = pl_port_ticks();
        noise[2] = pl_crc32(0, arena, bytes);
    }
    pl_lock_init(&client->lock, key, noise, sizeof noise);
}

void pl_client_init(pl_client *client, void *arena, uint32_t bytes)
{
    pl_fill(client, 0, sizeof *client);
    init_lock(client, arena, bytes);
    client->arena = arena;
    client->arena_bytes = bytes;
    client->trained = client->kept = PL_NO_TASK;
    pl_recall(client);
}

void pl_client_byte(pl_client *client, uint8_t byte)
{
    pl_reader *reader = &client->reader;
    switch (pl_read_byte(reader, byte)) {
    case PL_FRAME: {
        client->seq = reader->bytes[2];
        client->heard = pl_port_ticks();
        int open = !client->lock.key || reader->bytes[1] == PL_KIND_HELLO || pl_lock_open(&client->lock, reader->bytes);
        int trouble = !open ? PL_TROUBLE_NO_TAG : handled(client, reader->bytes[1], reader->bytes + PL_FRAME_HEAD, reader->bytes[3]);
        if (trouble) refuse(client, trouble);
        break;
    }
    case PL_FOREIGN:
        client->seq = reader->bytes[2];
        refuse(client, PL_TROUBLE_OTHER_VERSION);
        break;
    case PL_SPOILT: client->dropped++; break;
    case PL_NOTHING: break;
    }
}
