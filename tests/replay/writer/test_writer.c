/* The writer against a server that knows no mercy: it keeps chunks exactly as Reverb's does, checks
 * every byte of every row that an item refers to, and confirms when it is told to. */
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

enum { COLUMNS = 4, BIG = 700, ITEMS_MAX = 8192, SPAN_MAX = 16 };

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

static struct step make_step(int64_t number)
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

static void append(trp_writer *writer, int64_t number)
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
    struct kept kept[256];
    uint32_t count;
};

static void drop_kept(struct stream_state *state, uint32_t index)
{
    free(state->kept[index].bytes);
    state->kept[index] = state->kept[--state->count];
}

static struct kept *find_kept(struct stream_state *state, uint64_t key)
{
    for (uint32_t i = 0; i < state->count; i++)
        if (state->kept[i].key == key)
            return &state->kept[i];
    return NULL;
}

/* Copies what the message says, so that it outlives the message. */
static void keep_chunk(struct peer *peer, struct stream_state *state, const struct wire_chunk *from)
{
    assert_null(find_kept(state, from->key)); /* ours never sends one twice */
    assert_true(state->count < 256);
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
static uint8_t *tensor_rows(struct peer *peer, const struct wire_chunk *chunk, uint32_t index,
                            int64_t *rows)
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
static void check_slice(struct peer *peer, const struct wire_chunk *chunk,
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

static void take_item(struct peer *peer, struct stream_state *state, struct wire_lists *lists,
                      struct wire_item *item)
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

static void confirm_all(struct peer *peer)
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
static void release_chunks(struct peer *peer, struct stream_state *state,
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

static void opened(void *service, trp_server_call *call)
{
    struct peer *peer = service;
    peer->call = call;
    peer->stream_count++;
    peer->unconfirmed_count = 0;
    trp_server_call_set_state(call, xcalloc(1, sizeof(struct stream_state)));
    trp_server_call_read(call);
}

static void received(void *service, trp_server_call *call, trp_message *message)
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

static void half_closed(void *service, trp_server_call *call)
{
    (void)service;
    trp_server_call_finish(call, TRP_OK, NULL);
}

static void closed(void *service, trp_server_call *call)
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

static struct peer *peer_create(bool local)
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

static int setup_remote(void **state)
{
    *state = peer_create(false);
    return 0;
}

static int setup_local(void **state)
{
    *state = peer_create(true);
    return 0;
}

static int teardown(void **state)
{
    struct peer *peer = *state;
    trp_channel_destroy(peer->channel);
    trp_server_destroy(peer->server);
    free(peer->items);
    free(peer->unconfirmed);
    free(peer);
    return 0;
}

static void nothing(void *arg)
{
    (void)arg;
}

/* What the server did so far, seen from here: its handlers run under its lock. */
static struct peer *look(struct peer *peer)
{
    trp_server_run(peer->server, nothing, NULL);
    return peer;
}

static trp_writer *writer_create(struct peer *peer, trp_writer_options options)
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

static trp_status newest_step(trp_writer *writer, int64_t timeout_ms)
{
    static const trp_item_column columns[] = {
        {.column = 0, .length = 1, .squeeze = true},
        {.column = 1, .length = 1, .squeeze = true},
        {.column = 2, .length = 1},
        {.column = 3, .length = 1},
    };
    return trp_writer_create_item(writer, "t", 1.5, columns, COLUMNS, timeout_ms, NULL);
}

static void set_flag(void *flag)
{
    *(bool *)flag = true;
}

static void clear_flag(void *flag)
{
    *(bool *)flag = false;
}

static void confirm_work(void *peer)
{
    confirm_all(peer);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void single_steps_arrive_confirmed_and_in_order(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer = writer_create(peer, (trp_writer_options){.batch_items = 8});
    for (int i = 0; i < 100; i++) {
        append(writer, i);
        assert_int_equal(newest_step(writer, 1000), TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
    look(peer);
    assert_int_equal(trp_writer_confirmed(writer), 100);
    assert_int_equal(peer->item_count, 100);
    assert_true(peer->message_count <= 100 / 8 + 2); /* items share messages */
    assert_int_equal(peer->chunk_count, 100);
    for (int i = 0; i < 100; i++) {
        const struct got_item *item = &peer->items[i];
        assert_string_equal(item->table, "t");
        assert_true(item->priority == 1.5);
        assert_int_equal(item->column_count, COLUMNS);
        for (uint32_t c = 0; c < COLUMNS; c++) {
            assert_int_equal(item->columns[c].index, c);
            assert_int_equal(item->columns[c].length, 1);
            assert_int_equal(item->columns[c].numbers[0], i);
            assert_int_equal(item->columns[c].squeeze, c < 2);
        }
    }
    assert_true(peer->compressed > 0);
    trp_writer_destroy(writer);
}

/* obs n steps back, rewards in between, the newest obs: what an n-step adder asks for. */
static void n_step_items_refer_to_chunks_sent_before(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer = writer_create(peer, (trp_writer_options){.history = 6, .batch_items = 5});
    uint64_t keys[95];
    for (int i = 0; i < 100; i++) {
        append(writer, i);
        if (i < 5)
            continue;
        const trp_item_column columns[] = {
            {.column = 1, .age = 5, .length = 1, .squeeze = true},
            {.column = 0, .age = 5, .length = 5},
            {.column = 1, .age = 0, .length = 1, .squeeze = true},
        };
        assert_int_equal(trp_writer_create_item(writer, "n", 1, columns, 3, 1000, &keys[i - 5]),
                         TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
    look(peer);
    assert_int_equal(peer->item_count, 95);
    assert_int_equal(peer->chunk_count, 100); /* each sent once */
    assert_in_range(peer->keep_max, 5, 6);
    for (int i = 0; i < 95; i++) {
        const struct got_item *item = &peer->items[i];
        assert_true(item->key == keys[i]);
        assert_int_equal(item->columns[0].numbers[0], i);
        assert_int_equal(item->columns[1].length, 5);
        for (int j = 0; j < 5; j++)
            assert_int_equal(item->columns[1].numbers[j], i + j);
        assert_int_equal(item->columns[2].numbers[0], i + 5);
    }
    trp_writer_destroy(writer);
}

static void chunks_of_several_steps_are_sliced(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer = writer_create(
        peer, (trp_writer_options){.history = 8, .chunk_length = 4, .batch_items = 2});
    for (int i = 0; i < 42; i++) {
        append(writer, i);
        if (i < 7)
            continue;
        const trp_item_column columns[] = {{.column = 0, .age = 7, .length = 8},
                                           {.column = 3, .age = 2, .length = 2}};
        assert_int_equal(trp_writer_create_item(writer, "s", 1, columns, 2, 1000, NULL), TRP_OK);
    }
    assert_true(trp_writer_confirmed(writer) < 35); /* the last wait for their chunk */
    assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
    look(peer);
    assert_int_equal(peer->item_count, 35);
    assert_int_equal(peer->chunk_count, 11); /* ten of 4 steps and one of 2 */
    for (int i = 0; i < 35; i++) {
        for (int j = 0; j < 8; j++)
            assert_int_equal(peer->items[i].columns[0].numbers[j], i + j);
        assert_int_equal(peer->items[i].columns[1].numbers[0], i + 5);
        assert_int_equal(peer->items[i].columns[1].numbers[1], i + 6);
    }
    trp_writer_destroy(writer);
}

static void an_episode_ends_confirmed_and_forgotten(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer = writer_create(peer, (trp_writer_options){.history = 4, .chunk_length = 3});
    const trp_item_column two = {.column = 0, .age = 1, .length = 2};
    for (int episode = 0; episode < 3; episode++) {
        for (int i = 0; i < 5; i++)
            append(writer, 10 * episode + i);
        assert_int_equal(trp_writer_create_item(writer, "e", 1, &two, 1, 1000, NULL), TRP_OK);
        assert_int_equal(trp_writer_end_episode(writer, false, 5000), TRP_OK);
        look(peer);
        assert_int_equal(trp_writer_confirmed(writer), episode + 1);
        assert_int_equal(peer->items[episode].columns[0].numbers[1], 10 * episode + 4);
        append(writer, 99);
        assert_int_equal(trp_writer_create_item(writer, "e", 1, &two, 1, 1000, NULL),
                         TRP_INVALID_ARGUMENT);
        assert_int_equal(trp_writer_end_episode(writer, false, 5000), TRP_OK);
    }
    trp_writer_destroy(writer);
}

static void items_that_no_steps_can_make_are_refused(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer = writer_create(peer, (trp_writer_options){.history = 2});
    for (int i = 0; i < 3; i++)
        append(writer, i);
    static const trp_item_column wrong[] = {
        {.column = COLUMNS, .length = 1},                      /* no such column */
        {.column = 0, .age = 2, .length = 1},                  /* left the history */
        {.column = 0, .age = 0, .length = 2},                  /* the future */
        {.column = 0, .age = 0, .length = 0},                  /* nothing */
        {.column = 0, .age = 1, .length = 2, .squeeze = true}, /* two steps squeezed */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(trp_writer_create_item(writer, "t", 1, &wrong[i], 1, 0, NULL),
                         TRP_INVALID_ARGUMENT);
    const trp_item_column fine = {.column = 0, .length = 1};
    assert_int_equal(trp_writer_create_item(writer, "t", 1, &fine, 0, 0, NULL),
                     TRP_INVALID_ARGUMENT);
    double nan = __builtin_nan("");
    assert_int_equal(trp_writer_create_item(writer, "t", nan, &fine, 1, 0, NULL),
                     TRP_INVALID_ARGUMENT);
    assert_int_equal(trp_writer_flush(writer, 0, 1000), TRP_OK);
    look(peer);
    assert_int_equal(peer->item_count, 0);
    trp_writer_destroy(writer);
}

static void columns_that_are_no_tensors_are_refused(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer;
    trp_tensor_spec column = {.name = "x", .dtype = (trp_dtype)7};
    trp_writer_options options = {.columns = &column, .column_count = 1};
    assert_int_equal(trp_writer_create(&writer, peer->channel, &options), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "(x)"));
    column = (trp_tensor_spec){.dtype = TRP_FLOAT32, .rank = 1, .shape = {1 << 30}};
    options.chunk_length = 4;
    assert_int_equal(trp_writer_create(&writer, peer->channel, &options), TRP_INVALID_ARGUMENT);
    options.column_count = 0;
    assert_int_equal(trp_writer_create(&writer, peer->channel, &options), TRP_INVALID_ARGUMENT);
    assert_null(writer);
}

static void a_full_window_blocks_until_its_deadline_and_loses_nothing(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer =
        writer_create(peer, (trp_writer_options){.max_in_flight = 10, .batch_items = 4});
    trp_server_run(peer->server, set_flag, &peer->hold);
    for (int i = 0; i < 10; i++) {
        append(writer, i);
        assert_int_equal(newest_step(writer, 1000), TRP_OK);
    }
    append(writer, 10);
    assert_int_equal(newest_step(writer, 30), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "table 't'"));
    assert_int_equal(newest_step(writer, 0), TRP_DEADLINE_EXCEEDED);
    assert_int_equal(trp_writer_flush(writer, 3, 30), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "table 't'"));
    assert_int_equal(trp_writer_end_episode(writer, false, 0), TRP_DEADLINE_EXCEEDED);
    trp_server_run(peer->server, clear_flag, &peer->hold);
    trp_server_run(peer->server, confirm_work, peer);
    assert_int_equal(newest_step(writer, 5000), TRP_OK);
    assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
    look(peer);
    assert_int_equal(peer->item_count, 11);
    assert_int_equal(peer->items[10].columns[0].numbers[0], 10);
    trp_writer_destroy(writer);
}

static uint32_t room_while_held(struct peer *peer, trp_writer *writer)
{
    uint32_t room = 0;
    trp_server_run(peer->server, set_flag, &peer->hold);
    for (append(writer, 0); newest_step(writer, 0) == TRP_OK; append(writer, 0))
        room++;
    trp_server_run(peer->server, clear_flag, &peer->hold);
    trp_server_run(peer->server, confirm_work, peer);
    return room;
}

static void a_window_grows_while_the_server_confirms_fast(void **state)
{
    enum { USUAL = 10, FAST = 40, BURST = 200, ROUNDS = 100 };
    struct peer *peer = *state;
    trp_writer *writer =
        writer_create(peer, (trp_writer_options){.max_in_flight = USUAL, .fast_in_flight = FAST});
    uint32_t room = room_while_held(peer, writer);
    assert_int_equal(room, USUAL);
    /* A moment of a busy machine may look like a slow server. */
    for (int round = 0; room == USUAL && round < ROUNDS; round++) {
        for (int i = 0; i < BURST; append(writer, i++))
            assert_int_equal(newest_step(writer, 5000), TRP_OK);
        assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
        look(peer)->item_count = 0;
        room = room_while_held(peer, writer);
    }
    assert_in_range(room, USUAL + 1, FAST);
    trp_writer_destroy(writer);
}

static void a_flush_may_leave_items_in_flight(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer = writer_create(peer, (trp_writer_options){.batch_items = 4});
    trp_server_run(peer->server, set_flag, &peer->hold);
    for (int i = 0; i < 6; i++) {
        append(writer, i);
        assert_int_equal(newest_step(writer, 1000), TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 6, 1000), TRP_OK);
    assert_int_equal(trp_writer_flush(writer, 5, 20), TRP_DEADLINE_EXCEEDED);
    trp_server_run(peer->server, confirm_work, peer);
    assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
    look(peer);
    assert_int_equal(trp_writer_confirmed(writer), 6);
    trp_writer_destroy(writer);
}

static void confirmations_in_any_order_count_once(void **state)
{
    struct peer *peer = *state;
    peer->shuffle = true;
    trp_writer *writer =
        writer_create(peer, (trp_writer_options){.max_in_flight = 16, .batch_items = 8});
    for (int i = 0; i < 300; i++) {
        append(writer, i);
        assert_int_equal(newest_step(writer, 5000), TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
    look(peer);
    assert_int_equal(trp_writer_confirmed(writer), 300);
    assert_int_equal(peer->item_count, 300);
    trp_writer_destroy(writer);
}

static void every_item_arrived(const struct peer *peer, const uint64_t *keys, int count)
{
    for (int i = 0; i < count; i++) {
        bool found = false;
        for (uint32_t j = 0; j < peer->item_count && !found; j++)
            found = peer->items[j].key == keys[i] && peer->items[j].columns[0].numbers[0] == i;
        assert_true(found);
    }
}

static void a_lost_stream_is_reopened_and_nothing_is_lost(void **state)
{
    struct peer *peer = *state;
    const trp_status transient[] = {TRP_UNAVAILABLE, TRP_CANCELLED, TRP_OK};
    for (size_t t = 0; t < 3; t++) {
        uint64_t keys[200];
        peer->item_count = peer->message_count = 0;
        peer->break_at = 7;
        peer->break_status = transient[t];
        trp_writer *writer = writer_create(
            peer, (trp_writer_options){.history = 3, .chunk_length = 2, .batch_items = 4});
        for (int i = 0; i < 200; i++) {
            append(writer, i);
            const trp_item_column column = {
                .column = 0, .age = i < 2 ? 0 : 2, .length = i < 2 ? 1 : 3};
            const trp_item_column numbers[] = {{.column = 0, .length = 1, .squeeze = true}, column};
            assert_int_equal(trp_writer_create_item(writer, "r", 1, numbers, 2, 5000, &keys[i]),
                             TRP_OK);
        }
        assert_int_equal(trp_writer_flush(writer, 0, 5000), TRP_OK);
        look(peer);
        assert_int_equal(trp_writer_confirmed(writer), 200);
        every_item_arrived(peer, keys, 200);
        trp_writer_destroy(writer);
        look(peer);
    }
}

static void other_ends_of_the_stream_are_final_and_keep_their_words(void **state)
{
    struct peer *peer = *state;
    peer->break_at = 1;
    peer->break_status = TRP_NOT_FOUND;
    trp_writer *writer = writer_create(peer, (trp_writer_options){.batch_items = 1});
    append(writer, 1);
    trp_status status = newest_step(writer, 1000);
    assert_true(status == TRP_OK || status == TRP_NOT_FOUND);
    assert_int_equal(trp_writer_flush(writer, 0, 1000), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "the peer said so"));
    assert_int_equal(newest_step(writer, 1000), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "the peer said so"));
    assert_int_equal(trp_writer_end_episode(writer, false, 1000), TRP_NOT_FOUND);
    struct step step = make_step(0);
    const void *columns[COLUMNS] = {&step.number, step.obs, step.zeros, step.noise};
    assert_int_equal(trp_writer_append(writer, columns), TRP_NOT_FOUND);
    trp_writer_destroy(writer);
}

static void a_server_that_is_not_there_costs_the_deadline_only(void **state)
{
    (void)state;
    struct peer none = {0};
    assert_int_equal(trp_channel_create(&none.channel, "unix:/tmp/troupe-no-such-socket", NULL),
                     TRP_OK);
    trp_writer *writer = writer_create(&none, (trp_writer_options){.max_in_flight = 2});
    for (int i = 0; i < 2; i++) {
        append(writer, i);
        assert_int_equal(newest_step(writer, 0), TRP_OK);
    }
    assert_int_equal(newest_step(writer, 50), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "unix:/tmp/troupe-no-such-socket"));
    assert_int_equal(trp_writer_flush(writer, 0, 50), TRP_DEADLINE_EXCEEDED);
    trp_writer_destroy(writer);
    trp_channel_destroy(none.channel);
}

static void a_server_that_takes_no_more_does_not_block_creation(void **state)
{
    struct peer *peer = *state;
    peer->no_read = true;
    trp_writer *writer =
        writer_create(peer, (trp_writer_options){.max_in_flight = 64, .batch_items = 4});
    for (int i = 0; i < 64; i++) {
        append(writer, i);
        assert_int_equal(newest_step(writer, 0), TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, 50), TRP_DEADLINE_EXCEEDED);
    trp_writer_destroy(writer);
}

static void equal_seeds_give_equal_keys(void **state)
{
    struct peer *peer = *state;
    uint64_t keys[2];
    const trp_item_column column = {.column = 0, .length = 1};
    for (int i = 0; i < 2; i++) {
        trp_writer *writer = writer_create(peer, (trp_writer_options){0});
        append(writer, 1);
        assert_int_equal(trp_writer_create_item(writer, "t", 1, &column, 1, 0, &keys[i]), TRP_OK);
        trp_writer_destroy(writer);
    }
    assert_true(keys[0] == keys[1]);
}

static void big_messages_are_cut_by_size(void **state)
{
    struct peer *peer = *state;
    trp_writer *writer = writer_create(
        peer, (trp_writer_options){
                  .chunk_length = 16, .history = 16, .batch_items = 1000, .max_in_flight = 4000});
    const trp_item_column whole = {.column = 3, .age = 15, .length = 16};
    for (int i = 0; i < 1600; i++) {
        append(writer, i);
        if (i % 16 == 15)
            assert_int_equal(trp_writer_create_item(writer, "b", 1, &whole, 1, 0, NULL), TRP_OK);
    }
    assert_int_equal(trp_writer_flush(writer, 0, 10000), TRP_OK);
    look(peer);
    assert_int_equal(peer->item_count, 100);
    assert_true(peer->message_count >= 2); /* 1.2 MB of noise */
    trp_writer_destroy(writer);
}

#define BOTH(test)                                                                                 \
    cmocka_unit_test_setup_teardown(test, setup_remote, teardown),                                 \
        cmocka_unit_test_setup_teardown(test, setup_local, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(single_steps_arrive_confirmed_and_in_order),
        BOTH(n_step_items_refer_to_chunks_sent_before),
        BOTH(chunks_of_several_steps_are_sliced),
        BOTH(an_episode_ends_confirmed_and_forgotten),
        BOTH(items_that_no_steps_can_make_are_refused),
        BOTH(columns_that_are_no_tensors_are_refused),
        BOTH(a_full_window_blocks_until_its_deadline_and_loses_nothing),
        BOTH(a_window_grows_while_the_server_confirms_fast),
        BOTH(a_flush_may_leave_items_in_flight),
        BOTH(confirmations_in_any_order_count_once),
        BOTH(a_lost_stream_is_reopened_and_nothing_is_lost),
        BOTH(other_ends_of_the_stream_are_final_and_keep_their_words),
        BOTH(a_server_that_takes_no_more_does_not_block_creation),
        BOTH(equal_seeds_give_equal_keys),
        BOTH(big_messages_are_cut_by_size),
        cmocka_unit_test(a_server_that_is_not_there_costs_the_deadline_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
