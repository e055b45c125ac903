/* A server for tests of writers that knows no mercy: it keeps chunks exactly as Reverb's does,
 * checks every byte of every row that an item refers to, and confirms when it is told to. */
#ifndef TRP_TESTS_REPLAY_WRITER_PEER_H
#define TRP_TESTS_REPLAY_WRITER_PEER_H

#include <troupe/writer.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "replay/wire/tensor.h"
#include "replay/wire/wire.h"

enum { COLUMNS = 4, BIG = 700, ITEMS_MAX = 8192, SPAN_MAX = 16, KEPT_MAX = 1024 };

static const trp_tensor_spec step_columns[COLUMNS] = {
    {.name = "number", .dtype = TRP_INT64},
    {.name = "obs", .dtype = TRP_FLOAT32, .rank = 1, .shape = {3}},
    {.name = "zeros", .dtype = TRP_UINT8, .rank = 2, .shape = {BIG / 2, 2}}, /* compressible */
    {.name = "noise", .dtype = TRP_UINT8, .rank = 1, .shape = {BIG}},
};

struct step {
    int64_t number;
    float obs[3];
    uint8_t zeros[BIG], noise[BIG];
};

static inline struct step make_step(int64_t number)
{
    struct step step = {.number = number};
    uint32_t noise = (uint32_t)number * 7919 + 1;
    for (int i = 0; i < 3; i++)
        step.obs[i] = (float)number + 0.25f * (float)i;
    step.zeros[number % BIG] = 1;
    for (int i = 0; i < BIG; i++)
        step.noise[i] = (uint8_t)((noise = noise * 1664525 + 1013904223) >> 24);
    return step;
}

static const void *step_column(const struct step *step, size_t column, size_t *size)
{
    const void *data[COLUMNS] = {&step->number, step->obs, step->zeros, step->noise};
    *size = trp_tensor_bytes(&step_columns[column]);
    return data[column];
}

static inline void append(trp_writer *writer, int64_t number)
{
    struct step step = make_step(number);
    const void *columns[COLUMNS];
    size_t size;
    for (size_t i = 0; i < COLUMNS; i++)
        columns[i] = step_column(&step, i, &size);
    assert_int_equal(trp_writer_append(writer, columns), TRP_OK);
}

/* ---- the server ------------------------------------------------------------------------------ */

struct kept {
    uint64_t key;
    uint8_t *bytes;
    size_t size;
    struct wire_chunk chunk;
};

struct got_column {
    uint32_t index, length;
    bool squeeze;
    int64_t numbers[SPAN_MAX];
};

struct got_item {
    uint64_t key;
    char table[32];
    double priority;
    uint32_t column_count;
    struct got_column columns[COLUMNS];
};

struct peer {
    trp_server *server;
    trp_channel *channel;
    trp_server_call *call; /* the last stream */
    struct got_item *items;
    uint32_t item_count, message_count, stream_count, chunk_count, rows, compressed;
    uint32_t message_items; /* of the largest message */
    uint64_t *unconfirmed;
    uint32_t unconfirmed_count;
    bool hold;         /* keep confirmations */
    bool shuffle;      /* confirm newest first */
    bool no_read;      /* take one message, then none */
    uint32_t break_at; /* end the stream with `break_status` at this message; 0: never */
    trp_status break_status;
    uint32_t keep_max; /* the longest keep list */
};

struct stream_state {
    struct kept kept[KEPT_MAX];
    uint32_t count;
};

static inline void drop_kept(struct stream_state *state, uint32_t index)
{
    free(state->kept[index].bytes);
    state->kept[index] = state->kept[--state->count];
}

static inline struct kept *find_kept(struct stream_state *state, uint64_t key)
{
    for (uint32_t i = 0; i < state->count; i++)
        if (state->kept[i].key == key)
            return &state->kept[i];
    return NULL;
}

/* Copies what the message says, so that it outlives the message. */
static inline void keep_chunk(struct peer *peer, struct stream_state *state,
                              const struct wire_chunk *from)
{
    assert_null(find_kept(state, from->key)); /* ours never sends one twice */
    assert_true(state->count < KEPT_MAX);
    struct kept *kept = &state->kept[state->count++];
    kept->key = from->key;
    kept->size = from->head.size + from->tail.size;
    kept->bytes = xmalloc(kept->size);
    assert_int_equal(from->head.size, 0);
    memcpy(kept->bytes, from->tail.data, from->tail.size);
    kept->chunk = (struct wire_chunk){.key = from->key, .tail = {kept->bytes, kept->size}};
    peer->chunk_count++;
}

/* Tensor `index` of the chunk, decompressed into memory that the caller frees. */
static inline uint8_t *tensor_rows(struct peer *peer, const struct wire_chunk *chunk,
                                   uint32_t index, int64_t *rows)
{
    struct wire_tensor_reader reader;
    struct wire_tensor tensor;
    bool more = true;
    wire_tensors_open(&reader, chunk);
    for (uint32_t i = 0; i <= index; i++) {
        assert_int_equal(wire_tensor_next(&reader, &tensor, &more), TRP_OK);
        assert_true(more);
    }
    const trp_tensor_spec *spec = &step_columns[index];
    assert_int_equal(tensor.dtype, spec->dtype);
    assert_int_equal(tensor.rank, spec->rank + 1);
    for (uint32_t i = 0; i < spec->rank; i++)
        assert_int_equal(tensor.dims[i + 1], spec->shape[i]);
    *rows = tensor.dims[0];
    size_t size = (size_t)*rows * trp_tensor_bytes(spec);
    uint8_t *out = xmalloc(size + 1);
    assert_int_equal(block_decompress(tensor.content, out, size), TRP_OK);
    peer->compressed += tensor.content.size < size;
    return out;
}

/* The numbers of the steps that a slice covers; every row has to be its step's. */
static inline void check_slice(struct peer *peer, const struct wire_chunk *chunk,
                               const struct wire_slice *slice, int64_t *numbers)
{
    int64_t rows, number_rows;
    uint8_t *all_numbers = tensor_rows(peer, chunk, 0, &number_rows);
    uint8_t *data = tensor_rows(peer, chunk, (uint32_t)slice->index, &rows);
    assert_int_equal(rows, number_rows);
    assert_true(slice->offset >= 0 && slice->length > 0 && slice->offset + slice->length <= rows);
    for (int32_t i = 0; i < slice->length; i++) {
        size_t size, row = (size_t)(slice->offset + i);
        memcpy(&numbers[i], all_numbers + row * sizeof numbers[i], sizeof numbers[i]);
        struct step step = make_step(numbers[i]);
        const void *expected = step_column(&step, (size_t)slice->index, &size);
        assert_memory_equal(data + row * size, expected, size);
    }
    peer->rows += (uint32_t)slice->length;
    free(all_numbers);
    free(data);
}

static inline void take_item(struct peer *peer, struct stream_state *state,
                             struct wire_lists *lists, struct wire_item *item)
{
    assert_int_equal(wire_item_columns(lists, item), TRP_OK);
    assert_true(peer->item_count < ITEMS_MAX);
    struct got_item *got = &peer->items[peer->item_count++];
    *got = (struct got_item){.key = item->key, .priority = item->priority};
    assert_true(item->table.size < sizeof got->table);
    memcpy(got->table, item->table.data, item->table.size);
    got->column_count = item->column_count;
    for (uint32_t i = 0; i < item->column_count; i++) {
        const struct wire_column *column = &lists->columns[item->column_first + i];
        struct got_column *to = &got->columns[i];
        to->squeeze = column->squeeze;
        for (uint32_t j = 0; j < column->slice_count; j++) {
            const struct wire_slice *slice = &lists->slices[column->slice_first + j];
            struct kept *kept = find_kept(state, slice->chunk_key);
            assert_non_null(kept); /* Reverb: INTERNAL, could not find sequence chunk */
            assert_true(to->length + (uint32_t)slice->length <= SPAN_MAX);
            check_slice(peer, &kept->chunk, slice, to->numbers + to->length);
            to->length += (uint32_t)slice->length;
            to->index = (uint32_t)slice->index;
        }
    }
    peer->unconfirmed[peer->unconfirmed_count++] = item->key;
}

static inline void confirm_all(struct peer *peer)
{
    uint64_t *keys = peer->unconfirmed;
    uint32_t count = peer->unconfirmed_count;
    trp_message *message;
    if (count == 0)
        return;
    for (uint32_t i = 0; peer->shuffle && i < count / 2; i++) {
        uint64_t key = keys[i];
        keys[i] = keys[count - 1 - i];
        keys[count - 1 - i] = key;
    }
    assert_int_equal(
        wire_insert_response_encode(&(struct wire_keys){.keys = keys, .count = count}, &message),
        TRP_OK);
    trp_server_call_send(peer->call, message);
    peer->unconfirmed_count = 0;
}

/* Step 5 of Reverb's server: exactly the keys that were named stay. */
static inline void release_chunks(struct peer *peer, struct stream_state *state,
                                  const struct wire_keys *keep)
{
    for (uint32_t i = 0; i < keep->count; i++) {
        assert_non_null(find_kept(state, keep->keys[i]));
        for (uint32_t j = 0; j < i; j++)
            assert_true(keep->keys[i] != keep->keys[j]);
    }
    for (uint32_t i = state->count; i-- > 0;) {
        bool named = false;
        for (uint32_t j = 0; j < keep->count; j++)
            named |= keep->keys[j] == state->kept[i].key;
        if (!named)
            drop_kept(state, i);
    }
    if (keep->count > peer->keep_max)
        peer->keep_max = keep->count;
}

static inline void opened(void *service, trp_server_call *call)
{
    struct peer *peer = service;
    peer->call = call;
    peer->stream_count++;
    peer->unconfirmed_count = 0;
    trp_server_call_set_state(call, xcalloc(1, sizeof(struct stream_state)));
    trp_server_call_read(call);
}

static inline void received(void *service, trp_server_call *call, trp_message *message)
{
    struct peer *peer = service;
    struct stream_state *state = trp_server_call_state(call);
    struct wire_insert_request request = {0};
    trp_bytes bytes = {trp_message_data(message), trp_message_size(message)};
    if (++peer->message_count == peer->break_at) {
        trp_server_call_finish(call, peer->break_status, "the peer said so");
        trp_message_destroy(message);
        return;
    }
    assert_int_equal(wire_insert_request_decode(&bytes, 1, &request), TRP_OK);
    assert_true(request.lists.item_count > 0);
    if (request.lists.item_count > peer->message_items)
        peer->message_items = request.lists.item_count;
    for (uint32_t i = 0; i < request.lists.chunk_count; i++)
        keep_chunk(peer, state, &request.lists.chunks[i]);
    for (uint32_t i = 0; i < request.lists.item_count; i++)
        take_item(peer, state, &request.lists, &request.lists.items[i]);
    release_chunks(peer, state, &request.keep);
    wire_insert_request_cleanup(&request);
    trp_message_destroy(message);
    if (!peer->hold)
        confirm_all(peer);
    if (!peer->no_read)
        trp_server_call_read(call);
}

static inline void half_closed(void *service, trp_server_call *call)
{
    (void)service;
    trp_server_call_finish(call, TRP_OK, NULL);
}

static inline void closed(void *service, trp_server_call *call)
{
    struct peer *peer = service;
    struct stream_state *state = trp_server_call_state(call);
    while (state->count > 0)
        drop_kept(state, 0);
    free(state);
    if (peer->call == call)
        peer->call = NULL;
}

static const trp_raw_method method = {
    .path = "/deepmind.reverb.ReverbService/InsertStream",
    .any_size = true,
    .opened = opened,
    .received = received,
    .half_closed = half_closed,
    .closed = closed,
};

/* ---- fixtures -------------------------------------------------------------------------------- */

static inline struct peer *peer_create(bool local)
{
    struct peer *peer = xcalloc(1, sizeof *peer);
    peer->items = xcalloc(ITEMS_MAX, sizeof *peer->items);
    peer->unconfirmed = xcalloc(ITEMS_MAX, sizeof *peer->unconfirmed);
    assert_int_equal(trp_server_create(&peer->server, NULL), TRP_OK);
    assert_int_equal(trp_server_add_raw(peer->server, &method, 1, peer, NULL), TRP_OK);
    if (local) {
        peer->channel = trp_channel_create_local(peer->server);
        return peer;
    }
    assert_int_equal(trp_server_start(peer->server), TRP_OK);
    assert_int_equal(trp_channel_create(&peer->channel, trp_server_address(peer->server), NULL),
                     TRP_OK);
    return peer;
}

static inline int setup_remote(void **state)
{
    *state = peer_create(false);
    return 0;
}

static inline int setup_local(void **state)
{
    *state = peer_create(true);
    return 0;
}

static inline int teardown(void **state)
{
    struct peer *peer = *state;
    trp_channel_destroy(peer->channel);
    trp_server_destroy(peer->server);
    free(peer->items);
    free(peer->unconfirmed);
    free(peer);
    return 0;
}

static inline void nothing(void *arg)
{
    (void)arg;
}

/* What the server did so far, seen from here: its handlers run under its lock. */
static inline struct peer *look(struct peer *peer)
{
    trp_server_run(peer->server, nothing, NULL);
    return peer;
}

static inline trp_writer *writer_create(struct peer *peer, trp_writer_options options)
{
    trp_writer *writer;
    options.columns = step_columns;
    options.column_count = COLUMNS;
    options.seed = 7;
    if (peer->server)
        look(peer);
    assert_int_equal(trp_writer_create(&writer, peer->channel, &options), TRP_OK);
    return writer;
}

static inline trp_status newest_step(trp_writer *writer, int64_t timeout_ms)
{
    static const trp_item_column columns[] = {
        {.column = 0, .length = 1, .squeeze = true},
        {.column = 1, .length = 1, .squeeze = true},
        {.column = 2, .length = 1},
        {.column = 3, .length = 1},
    };
    return trp_writer_create_item(writer, "t", 1.5, columns, COLUMNS, timeout_ms, NULL);
}

static inline void set_flag(void *flag)
{
    *(bool *)flag = true;
}

static inline void clear_flag(void *flag)
{
    *(bool *)flag = false;
}

static inline void confirm_work(void *peer)
{
    confirm_all(peer);
}

#define BOTH(test)                                                                                 \
    cmocka_unit_test_setup_teardown(test, setup_remote, teardown),                                 \
        cmocka_unit_test_setup_teardown(test, setup_local, teardown)

#endif
