/* Writers whose chunks lie in memory that the server sees: what is stored is what was appended,
 * through the memory or beside it, and whatever a writer does to its memory harms nobody.
 *
 * The other processes are this program again: `--write ADDRESS` inserts until it is killed,
 * `--serve DIR ADDRESS` serves until then. */
#include "tests/replay/host_fixture.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <snappy-c.h>

#include "replay.pb-c.h"
#include "replay/writer/shm_arena.h"
#include "replay/wire/tensor.h"
#include "replay/wire/parts.h"
#include "replay/service/limits.h"

extern char **environ;

static const trp_tensor_spec columns[] = {
    {.name = "frame", .dtype = TRP_UINT8, .rank = 1, .shape = {FRAME_BYTES}},
    {.name = "seed", .dtype = TRP_INT64},
    {.name = "text", .dtype = TRP_UINT8, .rank = 1, .shape = {TEXT_BYTES}},
};
enum { COLUMNS = 3 };

/* ---- what there is of segments ----------------------------------------------------------------
 */

static const char segment_name[] = "/memfd:troupe segment";

/* The server's file, if this process has one: pages of it that exist. */
static bool find_segment(uint64_t *pages)
{
    struct dirent *entry;
    bool found = false;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        char target[64] = "";
        struct stat info;
        if (readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1) < 0 ||
            strncmp(target, segment_name, strlen(segment_name)) != 0 ||
            fstatat(dirfd(dir), entry->d_name, &info, 0) != 0)
            continue;
        found = true;
        *pages = (uint64_t)info.st_blocks / 8;
    }
    closedir(dir);
    return found;
}

/* Mappings of segments in this process. */
static uint32_t segment_maps(void)
{
    char line[512];
    uint32_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, segment_name) != NULL;
    fclose(maps);
    return count;
}

static void assert_no_damage(const char *dir)
{
    trp_replay_report report;
    assert_int_equal(trp_replay_verify(dir, &report), TRP_OK);
    assert_int_equal(report.damaged, 0);
    trp_replay_report_cleanup(&report);
}

/* ---- writers --------------------------------------------------------------------------------- */

static void open_host(struct host *host, const char *table, bool no_share)
{
    host->columns = columns;
    host->column_count = COLUMNS;
    host->steps = 1;
    host_open(host, table, (trp_replay_server_options){.no_share = no_share});
}

/* Instead of the host's own: over TCP. */
static void remote_writer(struct host *host, trp_writer_options options)
{
    trp_writer_destroy(host->writer);
    options.columns = host->columns;
    options.column_count = host->column_count;
    options.history = host->steps;
    assert_int_equal(trp_writer_create(&host->writer, host->remote, &options), TRP_OK);
}

static void assert_rows(const struct host *host, const trp_batch *batch, int64_t *last)
{
    for (uint32_t row = 0; row < batch->rows; row++) {
        int64_t seed;
        memcpy(&seed, (const uint8_t *)batch->columns[1] + row * sizeof seed, sizeof seed);
        for (uint32_t c = 0; c < host->column_count; c++) {
            size_t size = trp_tensor_bytes(&host->columns[c]);
            uint8_t *expected = xmalloc(size);
            column_fill(&host->columns[c], expected, seed);
            assert_memory_equal((const uint8_t *)batch->columns[c] + row * size, expected, size);
            free(expected);
        }
        *last = seed;
    }
}

static trp_sampler *open_sampler(const struct host *host, uint32_t batch_size)
{
    trp_sampler *sampler;
    assert_int_equal(trp_sampler_create(&sampler, host->remote,
                                        &(trp_sampler_options){.table = "t",
                                                               .columns = host->columns,
                                                               .column_count = host->column_count,
                                                               .batch_size = batch_size,
                                                               .prefetch = 1,
                                                               .limiter_timeout_ms = -1}),
                     TRP_OK);
    return sampler;
}

static void assert_samples(const struct host *host, uint32_t batches)
{
    trp_sampler *sampler = open_sampler(host, BATCH);
    trp_batch batch;
    int64_t last;
    for (uint32_t i = 0; i < batches; i++) {
        assert_int_equal(trp_sampler_next(sampler, &batch, DEADLINE_MS), TRP_OK);
        assert_rows(host, &batch, &last);
    }
    trp_sampler_destroy(sampler);
}

static void steps_that_go_through_the_segment_are_what_they_were(void **state)
{
    struct host *host = *state;
    uint64_t pages = 0;
    open_host(host, "", false);
    remote_writer(host, (trp_writer_options){.batch_items = 4});
    insert(host, 3 * TABLE_ITEMS);
    assert_true(find_segment(&pages));
    assert_true(pages > 8); /* more than the nonce's */
    assert_int_equal(segment_maps(), 2);
    assert_samples(host, 8);
    remote_writer(host, (trp_writer_options){.batch_items = 4, .chunk_length = 5});
    insert(host, 3 * TABLE_ITEMS);
    assert_samples(host, 8);
    remote_writer(host, (trp_writer_options){.batch_items = 4, .tuned = true});
    insert(host, 3 * TABLE_ITEMS);
    assert_samples(host, 8);
    host_close(host);
    assert_int_equal(segment_maps(), 0);
    assert_no_damage(host->replay.dir);
    open_host(host, "", false);
}

static void a_server_that_shares_nothing_is_sent_everything(void **state)
{
    struct host *host = *state;
    uint64_t pages;
    open_host(host, "", true);
    remote_writer(host, (trp_writer_options){.batch_items = 4});
    insert(host, 2 * TABLE_ITEMS);
    assert_false(find_segment(&pages));
    assert_samples(host, 4);
}

static void small_steps_ask_for_no_segment(void **state)
{
    struct host *host = *state;
    uint64_t pages;
    open_host(host, "", false);
    host->columns = &columns[1];
    host->column_count = 1;
    remote_writer(host, (trp_writer_options){.batch_items = 4});
    insert(host, 2 * TABLE_ITEMS);
    assert_false(find_segment(&pages));
}

static void a_chunk_larger_than_the_segment_is_sent(void **state)
{
    static const trp_tensor_spec large[] = {
        {.name = "frame", .dtype = TRP_UINT8, .rank = 1, .shape = {SHM_SEGMENT_BYTES + 1}},
        {.name = "seed", .dtype = TRP_INT64},
    };
    struct host *host = *state;
    open_host(host, "", false);
    host->columns = large;
    host->column_count = 2;
    remote_writer(host, (trp_writer_options){.max_in_flight = 2});
    insert(host, 3);
    trp_sampler *sampler = open_sampler(host, 2);
    trp_batch batch;
    int64_t last;
    assert_int_equal(trp_sampler_next(sampler, &batch, DEADLINE_MS), TRP_OK);
    assert_rows(host, &batch, &last);
    trp_sampler_destroy(sampler);
}

/* A queue holds inserts back until more is on its way than the segment takes. */
static void what_does_not_fit_into_the_segment_is_sent(void **state)
{
    enum { ITEMS = 2 * SHM_SEGMENT_BYTES / (FRAME_BYTES + TEXT_BYTES) };
    struct host *host = *state;
    trp_item_column item[COLUMNS];
    void *step[COLUMNS];
    trp_batch batch;
    uint64_t pages = 0;
    open_host(host, "limiter=queue(8) max_times_sampled=1", false);
    remote_writer(host, (trp_writer_options){.batch_items = 4, .max_in_flight = ITEMS + 1});
    for (uint32_t c = 0; c < COLUMNS; c++) {
        item[c] = (trp_item_column){.column = c, .length = 1, .squeeze = true};
        step[c] = xmalloc(trp_tensor_bytes(&columns[c]));
    }
    for (int64_t seed = 1; seed <= ITEMS; seed++) {
        for (uint32_t c = 0; c < COLUMNS; c++)
            column_fill(&columns[c], step[c], seed);
        assert_int_equal(trp_writer_append(host->writer, (const void *const *)step), TRP_OK);
        assert_int_equal(
            trp_writer_create_item(host->writer, "t", 1, item, COLUMNS, DEADLINE_MS, NULL), TRP_OK);
        if (seed == 4) /* the answer with the segment */
            assert_int_equal(trp_writer_flush(host->writer, 0, DEADLINE_MS), TRP_OK);
    }
    assert_true(find_segment(&pages));
    assert_true(pages > SHM_SEGMENT_BYTES / 4096 / 2);
    trp_sampler *sampler = open_sampler(host, 1);
    uint8_t seen[ITEMS + 1] = {0};
    for (int64_t i = 0, seed; i < ITEMS; i++) {
        trp_status status = trp_writer_flush(host->writer, 0, 0);
        assert_true(status == TRP_OK || status == TRP_DEADLINE_EXCEEDED);
        assert_int_equal(trp_sampler_next(sampler, &batch, DEADLINE_MS), TRP_OK);
        assert_rows(host, &batch, &seed);
        assert_in_range(seed, 1, ITEMS);
        assert_false(seen[seed]);
        seen[seed] = 1;
    }
    trp_sampler_destroy(sampler);
    for (uint32_t c = 0; c < COLUMNS; c++)
        free(step[c]);
}

/* ---- whoever does as it likes ---------------------------------------------------------------- */

enum {
    ROW_BYTES = 20000,
    PACKED_BYTES = 4000, /* of a row that compresses: the rest is 0 */
    CALM_BYTES = 200,    /* of the memory, which nobody scribbles over */
};

struct raw {
    struct replay *replay;
    trp_stream *stream;
    struct shared_segment segment;
    struct shm_arena *arena;
    uint8_t *memory;
};

static void put_number(struct buffer *out, uint64_t value)
{
    uint8_t bytes[10];
    buffer_append(out, (trp_bytes){bytes, (size_t)(varint_write(bytes, value) - bytes)});
}

static void put_field(struct buffer *out, uint32_t number, const void *data, size_t size)
{
    put_number(out, TAG(number, LEN));
    put_number(out, size);
    buffer_append(out, (trp_bytes){data, size});
}

static void raw_send(struct raw *raw, struct buffer *bytes)
{
    trp_message *message = trp_message_create(bytes->size);
    assert_non_null(message);
    memcpy(trp_message_data(message), bytes->data, bytes->size);
    buffer_clear(bytes);
    assert_int_equal(trp_stream_send(raw->stream, message, WAIT_MS), TRP_OK);
}

/* An item of table `t` with one row of chunk `key`. */
static void put_raw_item(struct buffer *bytes, uint64_t key)
{
    struct built *built = built_create(0);
    trp_message *message;
    add_simple_item(built, key, "t", 1, key);
    assert_int_equal(wire_insert_request_encode(&built->request, &message), TRP_OK);
    buffer_append(bytes, bytes_of(message));
    trp_message_destroy(message);
    built_destroy(built);
}

static void put_hello(struct buffer *bytes)
{
    struct shared_hello hello = {.window = 0};
    trp_message *message;
    boot_id_read(hello.boot_id);
    assert_int_equal(shared_hello_encode(&hello, &message), TRP_OK);
    put_field(bytes, SHM_HELLO_FIELD, trp_message_data(message), trp_message_size(message));
    trp_message_destroy(message);
}

static struct raw raw_open(struct replay *replay)
{
    struct raw raw = {.replay = replay, .stream = open_stream(replay, "InsertStream")};
    struct buffer bytes = {0};
    trp_message *message;
    put_hello(&bytes);
    struct built *built = built_create(0);
    add_chunk(built, (struct chunk_spec){.key = 1, .value = 1});
    assert_int_equal(wire_insert_request_encode(&built->request, &message), TRP_OK);
    buffer_append(&bytes, bytes_of(message));
    trp_message_destroy(message);
    built_destroy(built);
    raw_send(&raw, &bytes);
    assert_int_equal(trp_stream_receive(raw.stream, &message, WAIT_MS), TRP_OK);
    assert_int_equal(
        shared_segment_decode(wire_insert_segment_decode(bytes_of(message)), &raw.segment), TRP_OK);
    trp_message_destroy(message);
    assert_int_equal(shm_arena_open(&raw.arena, &raw.segment), TRP_OK);
    raw.memory = shm_arena_take(raw.arena, SHM_SEGMENT_BYTES / 2);
    assert_non_null(raw.memory);
    buffer_cleanup(&bytes);
    return raw;
}

static void raw_close(struct raw *raw)
{
    trp_stream_destroy(raw->stream);
    shm_arena_give(raw->arena, raw->memory, SHM_SEGMENT_BYTES / 2);
    shm_arena_unref(raw->arena);
}

static uint32_t offset_of(const struct raw *raw, const uint8_t *at)
{
    return (uint32_t)(at - shm_arena_memory(raw->arena));
}

static void put_place_of(struct buffer *out, uint64_t offset, uint64_t size)
{
    uint64_t place = offset << 32 | size;
    put_number(out, TAG(2, FIXED64));
    buffer_append(out, (trp_bytes){(const uint8_t *)&place, sizeof place});
}

/* What a well-behaved writer says of a chunk of one row. */
static void put_placed_content(struct raw *raw, struct buffer *bytes, uint64_t key, size_t row,
                               trp_bytes content)
{
    uint8_t field[256];
    struct wire_tensor tensor = {
        .dtype = TRP_UINT8, .rank = 2, .dims = {1, (int64_t)row}, .content = content};
    struct wire_steps steps = {.tensors = &tensor, .tensor_count = 1};
    struct wire_chunk chunk = {.key = key, .steps = &steps};
    struct writer writer = writer_of(field, sizeof field);
    put_chunk_reference(&writer, &chunk, shm_arena_memory(raw->arena));
    buffer_append(bytes, writer_bytes(&writer));
}

/* A plain row of any size, whatever is in the memory. */
static void put_placed_row(struct raw *raw, struct buffer *bytes, uint64_t key, size_t row)
{
    uint8_t *rows = raw->memory + CALM_BYTES;
    uint8_t *block = block_literal_header(rows, (uint32_t)row);
    put_placed_content(raw, bytes, key, row, (trp_bytes){block, (size_t)(rows - block) + row});
}

/* A chunk of one row, plain or compressed, in the memory. */
static void put_placed(struct raw *raw, struct buffer *bytes, uint64_t key, bool packed)
{
    uint8_t *rows = raw->memory + CALM_BYTES, row[ROW_BYTES] = {0};
    if (!packed) {
        fixture_fill(rows, ROW_BYTES, key);
        put_placed_row(raw, bytes, key, ROW_BYTES);
        return;
    }
    size_t size = SHM_SEGMENT_BYTES / 4;
    fixture_fill(row, PACKED_BYTES, key);
    assert_int_equal(snappy_compress((char *)row, sizeof row, (char *)rows, &size), SNAPPY_OK);
    put_placed_content(raw, bytes, key, ROW_BYTES, (trp_bytes){rows, size});
}

/* The same, headers and all in the memory. */
static void put_placed_whole(struct raw *raw, struct buffer *bytes, uint64_t key)
{
    struct built *built = built_create(2 * ROW_BYTES);
    struct buffer pieces = {0};
    trp_message *message;
    add_chunk(built, (struct chunk_spec){.key = key, .value = (int64_t)key, .bytes = ROW_BYTES});
    assert_int_equal(wire_insert_request_encode(&built->request, &message), TRP_OK);
    trp_bytes whole = bytes_of(message);
    struct reader reader = reader_of(whole);
    struct field field;
    assert_true(read_field(&reader, &field)); /* the chunk, without its header */
    memcpy(raw->memory + CALM_BYTES, field.bytes.data, field.bytes.size);
    put_place_of(&pieces, offset_of(raw, raw->memory + CALM_BYTES), field.bytes.size);
    put_field(bytes, SHM_REFERENCE_FIELD, pieces.data, pieces.size);
    buffer_cleanup(&pieces);
    trp_message_destroy(message);
    built_destroy(built);
}

static void placed_chunks_of_every_kind_are_inserted(void **state)
{
    struct replay *replay = *state;
    struct buffer bytes = {0};
    OPEN("name=t sampler=fifo max_times_sampled=1");
    struct raw raw = raw_open(replay);
    for (uint64_t key = 10; key < 13; key++) {
        if (key == 12)
            put_placed_whole(&raw, &bytes, key);
        else
            put_placed(&raw, &bytes, key, key == 11);
        put_raw_item(&bytes, key);
        raw_send(&raw, &bytes);
        assert_confirmed(raw.stream, &key, 1);
        memset(raw.memory, 0xff, 4 * ROW_BYTES); /* it is ours again */
    }
    static const trp_tensor_spec row = {.dtype = TRP_UINT8, .rank = 2, .shape = {1, ROW_BYTES}};
    trp_sampler *sampler;
    trp_batch batch;
    assert_int_equal(trp_sampler_create(&sampler, replay->channel,
                                        &(trp_sampler_options){.table = "t",
                                                               .columns = &row,
                                                               .column_count = 1,
                                                               .batch_size = 1,
                                                               .limiter_timeout_ms = -1}),
                     TRP_OK);
    for (uint64_t key = 10; key < 13; key++) {
        uint8_t expected[ROW_BYTES] = {0};
        assert_int_equal(trp_sampler_next(sampler, &batch, WAIT_MS), TRP_OK);
        fixture_fill(expected, key == 11 ? PACKED_BYTES : ROW_BYTES, key);
        assert_memory_equal(batch.columns[0], expected, ROW_BYTES);
    }
    trp_sampler_destroy(sampler);
    raw_close(&raw);
    buffer_cleanup(&bytes);
    replay_close(replay);
    assert_no_damage(replay->dir);
}

/* Ends the stream, and nothing else. */
static void assert_refused(struct raw *raw, struct buffer *pieces, const char *text)
{
    struct buffer bytes = {0};
    put_field(&bytes, SHM_REFERENCE_FIELD, pieces->data, pieces->size);
    put_raw_item(&bytes, 50);
    raw_send(raw, &bytes);
    trp_message *message;
    assert_int_equal(trp_stream_receive(raw->stream, &message, WAIT_MS), TRP_INVALID_ARGUMENT);
    if (!strstr(trp_last_error(), text))
        print_error("expected '%s' in '%s'\n", text, trp_last_error());
    assert_non_null(strstr(trp_last_error(), text));
    buffer_cleanup(&bytes);
    buffer_clear(pieces);
}

static void places_outside_of_the_segment_end_the_stream(void **state)
{
    static const struct {
        uint64_t offset, size;
    } places[] = {{SHM_SEGMENT_BYTES, 1},
                  {SHM_SEGMENT_BYTES - 1, 2},
                  {0, SHM_SEGMENT_BYTES + 1},
                  {UINT32_MAX, UINT32_MAX},
                  {1, UINT32_MAX}};
    struct replay *replay = *state;
    struct buffer pieces = {0};
    OPEN("name=t sampler=fifo");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct raw raw = raw_open(replay);
        put_field(&pieces, 1, "\x08\x32", 2); /* a key */
        put_place_of(&pieces, places[i].offset, places[i].size);
        assert_refused(&raw, &pieces, "is beyond the 8388608 bytes of memory");
        raw_close(&raw);
    }
    struct raw none = {.replay = replay, .stream = open_stream(replay, "InsertStream")};
    put_place_of(&pieces, 0, 1);
    assert_refused(&none, &pieces, "is beyond the 0 bytes of memory");
    trp_stream_destroy(none.stream);
    struct raw twice = raw_open(replay); /* else a few bytes would make any number */
    put_place_of(&pieces, 0, SHM_SEGMENT_BYTES / 2 + 1);
    put_place_of(&pieces, 0, SHM_SEGMENT_BYTES / 2);
    assert_refused(&twice, &pieces, "is beyond the 8388608 bytes of memory");
    raw_close(&twice);
    struct raw torn = raw_open(replay);
    put_field(&pieces, 1, "\x08\x32\x2a\x64\x0a", 5); /* a tensor that ends nowhere */
    put_place_of(&pieces, 4096, 50);
    assert_refused(&torn, &pieces,
                   "a referenced chunk of 16 bytes is not a valid protobuf message");
    raw_close(&torn);
    buffer_cleanup(&pieces);
    insert_items(replay, "t", 100, 1);
}

/* Groups that the store committed. */
static uint64_t groups_of(trp_channel *channel)
{
    Troupe__ReplayTablesRequest request = TROUPE__REPLAY_TABLES_REQUEST__INIT;
    ProtobufCService *service;
    ProtobufCMessage *reply;
    assert_int_equal(trp_channel_service(channel, &troupe__replay__descriptor, &service), TRP_OK);
    assert_int_equal(trp_call(service, "Tables", &request.base, &reply, NULL), TRP_OK);
    uint64_t groups = ((Troupe__ReplayTablesResponse *)reply)->store->groups;
    protobuf_c_message_free_unpacked(reply, NULL);
    return groups;
}

/* Tiny messages that stand for megabytes: nobody waits until all of them are copied. */
static void what_lies_in_a_segment_counts_towards_its_group(void **state)
{
    enum { MESSAGES = 40, PLACED_BYTES = SHM_SEGMENT_BYTES / 4, GROUP_MESSAGES_MAX = 3 };
    struct host *host = *state;
    struct buffer bytes = {0};
    trp_message *message;
    open_host(host, "", false);
    struct replay remote = host->replay;
    remote.channel = host->remote;
    struct raw raw = raw_open(&remote);
    uint64_t before = groups_of(host->remote);
    for (uint64_t key = 10; key < 10 + MESSAGES; key++) {
        put_placed_row(&raw, &bytes, key, PLACED_BYTES);
        put_raw_item(&bytes, key);
        raw_send(&raw, &bytes);
    }
    for (uint64_t confirmed = 0; confirmed < MESSAGES;) {
        struct wire_keys got = {0};
        assert_int_equal(trp_stream_receive(raw.stream, &message, WAIT_MS), TRP_OK);
        assert_int_equal(wire_insert_response_decode(bytes_of(message), &got), TRP_OK);
        confirmed += got.count;
        wire_keys_cleanup(&got);
        trp_message_destroy(message);
    }
    assert_in_range(groups_of(host->remote) - before, MESSAGES / GROUP_MESSAGES_MAX, UINT32_MAX);
    raw_close(&raw);
    buffer_cleanup(&bytes);
}

struct scribbler {
    uint8_t *memory; /* the same, mapped once more */
    _Atomic bool stop;
    struct thread thread;
};

static void scribble(void *arg)
{
    struct scribbler *scribbler = arg;
    volatile uint8_t *memory = scribbler->memory;
    for (uint64_t at = 0; !atomic_load(&scribbler->stop); at += 37)
        memory[CALM_BYTES + at % (2 * ROW_BYTES)] += 1;
}

/* True: it was confirmed. */
static bool insert_scribbled(struct raw *raw, uint64_t key, bool whole, bool packed)
{
    struct buffer bytes = {0};
    struct wire_keys got = {0};
    trp_message *message;
    if (whole)
        put_placed_whole(raw, &bytes, key);
    else
        put_placed(raw, &bytes, key, packed);
    put_raw_item(&bytes, key);
    raw_send(raw, &bytes);
    buffer_cleanup(&bytes);
    trp_status status = trp_stream_receive(raw->stream, &message, WAIT_MS);
    if (status != TRP_OK) {
        assert_true(status == TRP_INVALID_ARGUMENT || status == TRP_NOT_FOUND ||
                    status == TRP_FAILED_PRECONDITION);
        return false;
    }
    assert_int_equal(wire_insert_response_decode(bytes_of(message), &got), TRP_OK);
    assert_int_equal(got.count, 1);
    wire_keys_cleanup(&got);
    trp_message_destroy(message);
    return true;
}

static void scribbling_while_it_is_inserted_makes_no_damage(void **state)
{
    enum { ITEMS = 200 };
    struct replay *replay = *state;
    OPEN("name=t sampler=uniform max_size=100");
    struct raw raw = raw_open(replay);
    struct shm_arena *again;
    assert_int_equal(shm_arena_open(&again, &raw.segment), TRP_OK);
    struct scribbler scribbler = {.memory = shm_arena_take(again, SHM_SEGMENT_BYTES / 2)};
    uint64_t key = 10;
    assert_int_equal(thread_start(&scribbler.thread, "scribbler", scribble, &scribbler), TRP_OK);
    for (; key < 10 + ITEMS; key++) /* what means nothing but itself cannot be wrong */
        assert_true(insert_scribbled(&raw, key, false, false));
    bool alive = true;
    for (; key < 10 + 3 * ITEMS && alive; key++)
        alive = insert_scribbled(&raw, key, key % 2, true);
    atomic_store(&scribbler.stop, true);
    thread_stop(&scribbler.thread);
    shm_arena_give(again, scribbler.memory, SHM_SEGMENT_BYTES / 2);
    shm_arena_unref(again);
    raw_close(&raw);
    insert_items(replay, "t", 9000, 1);
    replay_close(replay);
    assert_no_damage(replay->dir);
}

/* ---- processes ------------------------------------------------------------------------------- */

static trp_status write_one(trp_writer *writer, int64_t seed, void **step)
{
    trp_item_column item[COLUMNS];
    for (uint32_t c = 0; c < COLUMNS; c++) {
        item[c] = (trp_item_column){.column = c, .length = 1, .squeeze = true};
        column_fill(&columns[c], step[c], seed);
    }
    TRP_TRY(trp_writer_append(writer, (const void *const *)step));
    return trp_writer_create_item(writer, "t", 1, item, COLUMNS, DEADLINE_MS, NULL);
}

static int write_for_ever(const char *address)
{
    trp_channel *channel;
    trp_writer *writer;
    static uint8_t frame[FRAME_BYTES], text[TEXT_BYTES];
    int64_t number;
    void *step[COLUMNS] = {frame, &number, text};
    if (trp_channel_create(&channel, address, NULL) != TRP_OK)
        return 2;
    if (trp_writer_create(
            &writer, channel,
            &(trp_writer_options){.columns = columns, .column_count = COLUMNS, .batch_items = 4}) !=
        TRP_OK)
        return 3;
    for (int64_t seed = 1;; seed++) {
        if (write_one(writer, seed, step) != TRP_OK)
            return 4;
        if (trp_writer_confirmed(writer) > 40 && seed % 10 == 0 && write(STDOUT_FILENO, "w", 1) < 0)
            return 0;
    }
}

static int serve_for_ever(const char *dir, const char *address)
{
    trp_table_options *table;
    trp_replay_server *server;
    if (trp_table_options_parse("name=t sampler=fifo max_size=10000 max_times_sampled=1", &table) !=
            TRP_OK ||
        trp_replay_server_create(
            &server,
            &(trp_replay_server_options){
                .dir = dir, .tables = table, .table_count = 1, .server.address = address}) !=
            TRP_OK ||
        trp_replay_server_start(server) != TRP_OK)
        return 2;
    while (pause() != 0)
        continue;
    return 0;
}

static pid_t run(char *const *arguments, int out)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    if (out >= 0)
        posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static void kill_process(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_killed_writer_costs_nothing(void **state)
{
    struct host *host = *state;
    uint64_t pages;
    char byte;
    open_host(host, "", false);
    char *address = (char *)trp_server_address(trp_replay_server_rpc(host->replay.server));
    for (int round = 0; round < 3; round++) {
        char *arguments[] = {"test", "--write", address, NULL};
        int pipes[2];
        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        pid_t pid = run(arguments, pipes[1]);
        close(pipes[1]);
        struct pollfd ready = {.fd = pipes[0], .events = POLLIN};
        assert_int_equal(poll(&ready, 1, DEADLINE_MS), 1);
        assert_int_equal(read(pipes[0], &byte, 1), 1);
        assert_true(find_segment(&pages));
        kill_process(pid);
        close(pipes[0]);
        struct deadline deadline = deadline_in_ms(&clock_monotonic, DEADLINE_MS);
        while (find_segment(&pages)) {
            assert_false(deadline_passed(deadline, &clock_monotonic));
            insert_items(&host->replay, "t", 1, 1);
        }
    }
    assert_int_equal(segment_maps(), 0);
    insert(host, TABLE_ITEMS);
    assert_samples(host, 4);
    host_close(host);
    assert_no_damage(host->replay.dir);
    open_host(host, "", false);
}

static void a_killed_server_loses_nothing_that_was_in_its_segment(void **state)
{
    enum { ITEMS = 300 };
    struct host *host = *state;
    static uint8_t frame[FRAME_BYTES], text[TEXT_BYTES];
    int64_t number;
    void *step[COLUMNS] = {frame, &number, text};
    char *address = xasprintf("unix:%s/socket", host->replay.dir);
    char *arguments[] = {"test", "--serve", host->replay.dir, address, NULL};
    trp_writer *writer;
    pid_t pid = run(arguments, -1);
    host->columns = columns;
    host->column_count = COLUMNS;
    assert_int_equal(trp_channel_create(&host->remote, address, NULL), TRP_OK);
    assert_int_equal(
        trp_writer_create(
            &writer, host->remote,
            &(trp_writer_options){.columns = columns, .column_count = COLUMNS, .batch_items = 4}),
        TRP_OK);
    for (int64_t seed = 1; seed <= ITEMS; seed++) {
        assert_int_equal(write_one(writer, seed, step), TRP_OK);
        if (seed % 100 != 60)
            continue;
        assert_int_equal(segment_maps(), 1);
        kill_process(pid);
        pid = run(arguments, -1);
    }
    assert_int_equal(trp_writer_flush(writer, 0, DEADLINE_MS), TRP_OK);
    assert_int_equal(segment_maps(), 1);
    assert_int_equal(trp_writer_confirmed(writer), ITEMS);
    trp_writer_destroy(writer);
    assert_int_equal(segment_maps(), 0);
    trp_table_info info;
    size_t count;
    assert_int_equal(trp_replay_info(host->remote, &info, 1, &count, DEADLINE_MS), TRP_OK);
    assert_int_equal(info.size, ITEMS);
    trp_sampler *sampler = open_sampler(host, 1);
    for (int64_t seed = 1, last; seed <= ITEMS; seed++) {
        trp_batch batch;
        assert_int_equal(trp_sampler_next(sampler, &batch, DEADLINE_MS), TRP_OK);
        assert_rows(host, &batch, &last);
    }
    trp_sampler_destroy(sampler);
    trp_channel_destroy(host->remote);
    host->remote = NULL;
    kill_process(pid);
    free(address);
    assert_no_damage(host->replay.dir);
    open_host(host, "", false);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(steps_that_go_through_the_segment_are_what_they_were,
                                        host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(a_server_that_shares_nothing_is_sent_everything, host_setup,
                                        host_teardown),
        cmocka_unit_test_setup_teardown(small_steps_ask_for_no_segment, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(a_chunk_larger_than_the_segment_is_sent, host_setup,
                                        host_teardown),
        cmocka_unit_test_setup_teardown(what_does_not_fit_into_the_segment_is_sent, host_setup,
                                        host_teardown),
        cmocka_unit_test_setup_teardown(placed_chunks_of_every_kind_are_inserted, replay_setup,
                                        replay_teardown),
        cmocka_unit_test_setup_teardown(places_outside_of_the_segment_end_the_stream, replay_setup,
                                        replay_teardown),
        cmocka_unit_test_setup_teardown(what_lies_in_a_segment_counts_towards_its_group, host_setup,
                                        host_teardown),
        cmocka_unit_test_setup_teardown(scribbling_while_it_is_inserted_makes_no_damage,
                                        replay_setup, replay_teardown),
        cmocka_unit_test_setup_teardown(a_killed_writer_costs_nothing, host_setup, host_teardown),
        cmocka_unit_test_setup_teardown(a_killed_server_loses_nothing_that_was_in_its_segment,
                                        host_setup, host_teardown),
    };
    if (argc > 2 && prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return 1;
    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_for_ever(argv[2]);
    if (argc == 4 && strcmp(argv[1], "--serve") == 0)
        return serve_for_ever(argv[2], argv[3]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
