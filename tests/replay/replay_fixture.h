/* A replay server in this process and raw streams to it: messages are made and read by the wire
 * codec, so that tests can also say what no well-behaved client would. */
#ifndef TRP_TESTS_REPLAY_FIXTURE_H
#define TRP_TESTS_REPLAY_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>

#include <cmocka.h>
#include <reverb.pb-c.h>

#include <troupe/replay.h>
#include "core/alloc.h"
#include "core/buffer.h"
#include "replay/wire/wire.h"
#include "store_fixture.h"

enum { TABLES_MAX = 4, WAIT_MS = 10000 };

#define LINES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define OPEN(...)  replay_open(replay, LINES(__VA_ARGS__))

struct replay {
    char *dir;
    trp_replay_server *server;
    trp_channel *channel;
    trp_server_options rpc; /* the server's; zeroed: its own choice */
};

/* Opens `dir` with the table lines, which end with NULL. */
static inline trp_status replay_try_open(struct replay *replay, uint64_t max_bytes,
                                         const char *const *lines)
{
    trp_table_options tables[TABLES_MAX], *owned[TABLES_MAX];
    size_t count = 0;
    for (; lines[count]; ++count) {
        assert_int_equal(trp_table_options_parse(lines[count], &owned[count]), TRP_OK);
        tables[count] = *owned[count];
    }
    trp_replay_server_options options = {.dir = replay->dir,
                                         .max_bytes = max_bytes,
                                         .tables = tables,
                                         .table_count = count,
                                         .seed = 7,
                                         .server = replay->rpc};
    trp_status status = trp_replay_server_create(&replay->server, &options);
    for (size_t i = 0; i < count; ++i)
        trp_table_options_destroy(owned[i]);
    if (status == TRP_OK)
        replay->channel = trp_channel_create_local(trp_replay_server_rpc(replay->server));
    return status;
}

static inline void replay_open(struct replay *replay, const char *const *lines)
{
    trp_status status = replay_try_open(replay, 0, lines);
    if (status != TRP_OK)
        print_error("%s\n", trp_last_error());
    assert_int_equal(status, TRP_OK);
}

static inline void replay_close(struct replay *replay)
{
    trp_channel_destroy(replay->channel);
    trp_replay_server_destroy(replay->server);
    replay->channel = NULL;
    replay->server = NULL;
}

static inline int replay_setup(void **state)
{
    struct replay *replay = xcalloc(1, sizeof *replay);
    replay->dir = fixture_dir("/tmp");
    *state = replay;
    return 0;
}

static inline int replay_teardown(void **state)
{
    struct replay *replay = *state;
    replay_close(replay);
    fixture_remove(replay->dir);
    free(replay);
    return 0;
}

/* ---- streams ----------------------------------------------------------------------------- */

static inline trp_stream *open_stream(const struct replay *replay, const char *method)
{
    trp_stream *stream;
    char *path = xasprintf("/deepmind.reverb.ReverbService/%s", method);
    assert_int_equal(trp_stream_open(&stream, replay->channel, path, NULL), TRP_OK);
    free(path);
    return stream;
}

static inline trp_bytes bytes_of(trp_message *message)
{
    return (trp_bytes){trp_message_data(message), trp_message_size(message)};
}

static inline void assert_ends(trp_stream *stream, trp_status expected, const char *text)
{
    trp_message *message = NULL;
    trp_status status = trp_stream_receive(stream, &message, WAIT_MS);
    assert_int_equal(status, expected == TRP_OK ? TRP_OUT_OF_RANGE : expected);
    if (text && !strstr(trp_last_error(), text))
        print_error("expected '%s' in '%s'\n", text, trp_last_error());
    if (text)
        assert_non_null(strstr(trp_last_error(), text));
    trp_stream_destroy(stream);
}

/* ---- inserts ----------------------------------------------------------------------------- */

/* A chunk of `rows` rows of `tensors` int64 scalars, value `value` in row 0, one more in each next,
 * as snappy literals; or, with bytes > 0, one uint8 tensor of rows of so many bytes. */
struct chunk_spec {
    uint64_t key;
    int64_t value;
    uint32_t rows, tensors;
    size_t bytes;
};

struct built {
    struct wire_insert_request request;
    struct buffer contents; /* of all tensors; reserved ahead so that it does not move */
    struct wire_tensor tensors[1024];
    struct wire_steps steps[512];
    uint32_t tensor_count, step_count;
};

static inline struct built *built_create(size_t content_bytes)
{
    struct built *built = xcalloc(1, sizeof *built);
    buffer_reserve(&built->contents, content_bytes + 65536);
    return built;
}

static inline void built_destroy(struct built *built)
{
    wire_insert_request_cleanup(&built->request);
    buffer_cleanup(&built->contents);
    free(built);
}

static inline trp_bytes literal_block(struct buffer *out, const void *data, size_t size)
{
    size_t start = out->size;
    uint8_t head[10];
    size_t n = 0;
    for (size_t rest = size;; rest >>= 7) {
        head[n++] = (uint8_t)(rest < 128 ? rest : (rest & 127) | 128);
        if (rest < 128)
            break;
    }
    if (size) {
        head[n++] = 0xfc; /* a literal whose length follows in four bytes */
        for (int i = 0; i < 4; ++i)
            head[n++] = (uint8_t)((size - 1) >> (8 * i));
    }
    assert_true(out->capacity - out->size >= n + size);
    buffer_append(out, (trp_bytes){head, n});
    buffer_append(out, (trp_bytes){data, size});
    return (trp_bytes){out->data + start, out->size - start};
}

static inline void add_chunk(struct built *built, struct chunk_spec spec)
{
    struct wire_steps *steps = &built->steps[built->step_count++];
    uint32_t rows = spec.rows ? spec.rows : 1, tensors = spec.tensors ? spec.tensors : 1;
    steps->tensors = &built->tensors[built->tensor_count];
    steps->tensor_count = tensors;
    for (uint32_t t = 0; t < tensors; ++t) {
        struct wire_tensor *tensor = &built->tensors[built->tensor_count++];
        if (spec.bytes) {
            uint8_t *data = xmalloc(rows * spec.bytes);
            fixture_fill(data, rows * spec.bytes, (uint64_t)spec.value);
            *tensor = (struct wire_tensor){
                .dtype = TRP_UINT8,
                .rank = 2,
                .dims = {rows, (int64_t)spec.bytes},
                .content = literal_block(&built->contents, data, rows * spec.bytes)};
            free(data);
            continue;
        }
        int64_t values[64];
        for (uint32_t row = 0; row < rows; ++row)
            values[row] = spec.value + row + 1000 * t;
        *tensor = (struct wire_tensor){
            .dtype = TRP_INT64,
            .rank = 1,
            .dims = {rows},
            .content = literal_block(&built->contents, values, rows * sizeof *values)};
    }
    *wire_push_chunk(&built->request.lists) = (struct wire_chunk){.key = spec.key, .steps = steps};
}

static inline void add_item(struct built *built, uint64_t key, const char *table, double priority)
{
    struct wire_item *item = wire_push_item(&built->request.lists);
    item->key = key;
    item->table = text_bytes(table);
    item->priority = priority;
}

static inline void add_slice(struct built *built, uint64_t chunk, int32_t offset, int32_t length,
                             int32_t index)
{
    *wire_push_slice(&built->request.lists) =
        (struct wire_slice){.chunk_key = chunk, .offset = offset, .length = length, .index = index};
}

/* An item of one column that is row 0 of one chunk. */
static inline void add_simple_item(struct built *built, uint64_t key, const char *table,
                                   double priority, uint64_t chunk)
{
    add_item(built, key, table, priority);
    wire_push_column(&built->request.lists);
    add_slice(built, chunk, 0, 1, 0);
}

/* Sends and empties what was built. */
static inline trp_status try_send_built(trp_stream *stream, struct built *built, int64_t timeout_ms)
{
    trp_message *message;
    assert_int_equal(wire_insert_request_encode(&built->request, &message), TRP_OK);
    wire_insert_request_clear(&built->request);
    buffer_clear(&built->contents);
    built->tensor_count = built->step_count = 0;
    return trp_stream_send(stream, message, timeout_ms);
}

static inline void send_built(trp_stream *stream, struct built *built)
{
    assert_int_equal(try_send_built(stream, built, WAIT_MS), TRP_OK);
}

/* Chunk `key` with `value`, and an item of the same key; nothing is kept. */
static inline void send_simple(trp_stream *stream, uint64_t key, const char *table, double priority,
                               int64_t value)
{
    struct built *built = built_create(0);
    add_chunk(built, (struct chunk_spec){.key = key, .value = value});
    add_simple_item(built, key, table, priority, key);
    send_built(stream, built);
    built_destroy(built);
}

/* Receives until `count` keys came, and compares them. */
static inline void assert_confirmed(trp_stream *stream, const uint64_t *keys, uint32_t count)
{
    struct wire_keys got = {0};
    while (got.count < count) {
        trp_message *message;
        trp_status status = trp_stream_receive(stream, &message, WAIT_MS);
        if (status != TRP_OK)
            print_error("%s\n", trp_last_error());
        assert_int_equal(status, TRP_OK);
        assert_int_equal(wire_insert_response_decode(bytes_of(message), &got), TRP_OK);
        trp_message_destroy(message);
    }
    assert_int_equal(got.count, count);
    for (uint32_t i = 0; i < count; ++i)
        assert_true(got.keys[i] == keys[i]);
    wire_keys_cleanup(&got);
}

/* Items `first` to `first + count - 1` of one chunk each, confirmed. */
static inline void insert_items(const struct replay *replay, const char *table, uint64_t first,
                                uint32_t count)
{
    trp_stream *stream = open_stream(replay, "InsertStream");
    for (uint32_t i = 0; i < count; ++i) {
        uint64_t key = first + i;
        send_simple(stream, key, table, (double)key, (int64_t)key * 10);
        assert_confirmed(stream, &key, 1);
    }
    trp_stream_destroy(stream);
}

/* ---- samples ----------------------------------------------------------------------------- */

static inline void send_sample_request(trp_stream *stream, const char *table, int64_t count,
                                       int64_t timeout_ms)
{
    struct wire_sample_request request = {.table = text_bytes(table),
                                          .num_samples = count,
                                          .has_timeout = true,
                                          .timeout_ms = timeout_ms};
    trp_message *message;
    assert_int_equal(wire_sample_request_encode(&request, &message), TRP_OK);
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
}

struct sampled {
    uint64_t key;
    double priority, probability;
    int64_t table_size, value; /* value: the first row of the first tensor, when int64 */
    int32_t times_sampled;
    bool rate_limited;
};

static inline int64_t chunk_value(const struct wire_chunk *chunk)
{
    struct wire_tensor_reader reader;
    struct wire_tensor tensor;
    bool more;
    int64_t value = -1;
    wire_tensors_open(&reader, chunk);
    assert_int_equal(wire_tensor_next(&reader, &tensor, &more), TRP_OK);
    assert_true(more);
    if (tensor.dtype == TRP_INT64 && tensor.content.size >= sizeof value + 6)
        memcpy(&value, tensor.content.data + 6, sizeof value);
    return value;
}

/* One whole sample per entry in this message; how many. */
static inline uint32_t read_samples(trp_message *message, struct sampled *out, uint32_t capacity)
{
    struct wire_sample_response response = {0};
    assert_int_equal(wire_sample_response_decode(bytes_of(message), &response), TRP_OK);
    uint32_t count = response.entry_count;
    assert_in_range(count, 1, capacity);
    for (uint32_t i = 0; i < count; ++i) {
        const struct wire_entry *entry = &response.entries[i];
        assert_true(entry->has_info);
        assert_true(entry->end_of_sequence);
        struct wire_item *item = &response.lists.items[entry->item];
        assert_int_equal(wire_item_columns(&response.lists, item), TRP_OK);
        assert_in_range(item->column_count, 1, 100);
        assert_true(item->inserted_at_ns > 0);
        out[i] = (struct sampled){.key = item->key,
                                  .priority = item->priority,
                                  .probability = entry->draw.probability,
                                  .table_size = entry->draw.table_size,
                                  .times_sampled = item->times_sampled,
                                  .rate_limited = entry->draw.rate_limited,
                                  .value = chunk_value(&response.lists.chunks[entry->chunk_first])};
    }
    wire_sample_response_cleanup(&response);
    trp_message_destroy(message);
    return count;
}

/* Receives exactly `count` samples. */
static inline void receive_samples(trp_stream *stream, struct sampled *out, uint32_t count)
{
    for (uint32_t got = 0; got < count;) {
        trp_message *message;
        trp_status status = trp_stream_receive(stream, &message, WAIT_MS);
        if (status != TRP_OK)
            print_error("%s\n", trp_last_error());
        assert_int_equal(status, TRP_OK);
        got += read_samples(message, out + got, count - got);
    }
}

/* ---- unary calls ------------------------------------------------------------------------- */

static inline trp_status unary(const struct replay *replay, const char *method,
                               trp_message *request, trp_message **reply)
{
    trp_stream *stream = open_stream(replay, method);
    trp_message *answer = NULL, *end = NULL;
    trp_status status = trp_stream_send(stream, request, WAIT_MS);
    if (status == TRP_OK)
        status = trp_stream_half_close(stream);
    if (status == TRP_OK)
        status = trp_stream_receive(stream, &answer, WAIT_MS);
    if (status == TRP_OK)
        assert_int_equal(trp_stream_receive(stream, &end, WAIT_MS), TRP_OUT_OF_RANGE);
    if (reply)
        *reply = answer;
    else
        trp_message_destroy(answer);
    trp_stream_destroy(stream);
    return status;
}

static inline trp_status reset_table(const struct replay *replay, const char *table)
{
    Deepmind__Reverb__ResetRequest request = DEEPMIND__REVERB__RESET_REQUEST__INIT;
    request.table = (char *)table;
    trp_message *message =
        trp_message_create(deepmind__reverb__reset_request__get_packed_size(&request));
    deepmind__reverb__reset_request__pack(&request, trp_message_data(message));
    return unary(replay, "Reset", message, NULL);
}

/* Updates key -> priority when `update`, deletes it when `delete`. */
static inline trp_status mutate_key(const struct replay *replay, const char *table, uint64_t key,
                                    bool update, double priority, bool delete)
{
    struct wire_mutate_request request = {.table = text_bytes(table)};
    trp_message *message;
    if (update)
        *wire_push_update(&request) = (struct wire_update){key, priority};
    if (delete)
        wire_push_key(&request.deletes, key);
    assert_int_equal(wire_mutate_request_encode(&request, &message), TRP_OK);
    wire_mutate_request_cleanup(&request);
    return unary(replay, "MutatePriorities", message, NULL);
}

struct table_state {
    int64_t size, inserts, samples, unique;
};

static inline struct table_state table_state(const struct replay *replay, const char *table)
{
    trp_message *reply;
    struct table_state state = {.size = -1};
    assert_int_equal(unary(replay, "ServerInfo", trp_message_create(0), &reply), TRP_OK);
    Deepmind__Reverb__ServerInfoResponse *info = deepmind__reverb__server_info_response__unpack(
        NULL, trp_message_size(reply), trp_message_data(reply));
    assert_non_null(info);
    for (size_t i = 0; i < info->n_table_info; ++i) {
        const Deepmind__Reverb__TableInfo *each = info->table_info[i];
        if (strcmp(each->name, table) == 0)
            state =
                (struct table_state){.size = each->current_size,
                                     .inserts = each->rate_limiter_info->insert_stats->completed,
                                     .samples = each->rate_limiter_info->sample_stats->completed,
                                     .unique = each->num_unique_samples};
    }
    deepmind__reverb__server_info_response__free_unpacked(info, NULL);
    trp_message_destroy(reply);
    return state;
}

/* ---- crashes ----------------------------------------------------------------------------- */

/* The data file is as long as its map: holes stay holes. */
static inline void copy_file(const char *from, const char *to)
{
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0666);
    struct stat stat_of;
    assert_true(in >= 0 && out >= 0 && fstat(in, &stat_of) == 0);
    assert_int_equal(ftruncate(out, stat_of.st_size), 0);
    for (off_t at = 0, end; (at = lseek(in, at, SEEK_DATA)) >= 0; at = end) {
        end = lseek(in, at, SEEK_HOLE);
        assert_true(lseek(out, at, SEEK_SET) == at);
        for (off_t done = at; done < end;)
            assert_true(sendfile(out, in, &done, (size_t)(end - done)) > 0);
    }
    close(in);
    close(out);
}

/* A copy of the live directory. */
static inline char *copy_dir(const char *dir)
{
    char *copy = fixture_dir("/tmp");
    DIR *entries = opendir(dir);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (entry->d_name[0] == '.')
            continue;
        char *from = fixture_path(dir, entry->d_name);
        char *to = fixture_path(copy, entry->d_name);
        copy_file(from, to);
        free(from);
        free(to);
    }
    closedir(entries);
    return copy;
}

/* Goes on as if the server had been killed now; `stream` is of the server that was. */
static inline void crash(struct replay *replay, trp_stream *stream)
{
    char *copy = copy_dir(replay->dir);
    trp_stream_destroy(stream);
    replay_close(replay);
    fixture_remove(replay->dir);
    replay->dir = copy;
}

static inline struct sampled sample_one(const struct replay *replay, const char *table)
{
    struct sampled sample;
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, table, 1, WAIT_MS);
    receive_samples(stream, &sample, 1);
    trp_stream_destroy(stream);
    return sample;
}

#endif
