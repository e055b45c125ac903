/* The sampler, the priority writer and the unary calls against a server of our own that answers as
 * Reverb's does, or worse. */
#include <troupe/sampler.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/thread.h"
#include "hex.h"
#include "replay/wire.h"
#include "sample_message.h"

static const char limiter_text[] =
    "Rate Limiter: Timeout exceeded before the right to insert was acquired.";

struct peer {
    trp_server *server;
    trp_channel *channel;
    trp_server_call *sampling; /* the open stream */
    int64_t next;              /* sample to give next */
    int64_t available;         /* samples that the limiter allows in all */
    int64_t wanted;            /* of the request being served */
    int64_t requested, given;
    uint32_t request_count, stream_count;
    int64_t timeout_ms;  /* of the last request */
    int per_message;     /* samples in a message; 0: each in five messages */
    bool too_many;       /* one more than was asked for */
    int64_t break_after; /* end the stream after this many samples, with `break_status` */
    trp_status break_status;
    const char *signature; /* hex; of table "t" */
    struct mutex mutex;
    struct cond changed;
    int open_streams; /* guarded by `mutex` */
    struct wire_mutate_request mutated;
    uint32_t mutations;
    bool mute; /* do not answer mutations */
    trp_server_call *unanswered[8];
    uint32_t unanswered_count;
    char reset[16];
};

/* ---- SampleStream ---------------------------------------------------------------------------- */

static void send_buffer(trp_server_call *call, struct buffer *buffer)
{
    trp_message *message = trp_message_create(buffer->size);
    if (buffer->size)
        memcpy(trp_message_data(message), buffer->data, buffer->size);
    trp_server_call_send(call, message);
    buffer_clear(buffer);
}

static void send_in_parts(struct peer *peer, struct buffer *buffer, int64_t n)
{
    for (int part = 0; part < 5; part++) {
        add_sample_part(buffer, n, part);
        if (part == 4) /* the next sample's first part comes along with the last one's end */
            continue;
        send_buffer(peer->sampling, buffer);
        send_buffer(peer->sampling, buffer); /* an empty one between */
    }
}

static void serve(struct peer *peer)
{
    struct buffer buffer = {0};
    int in_message = 0;
    while (peer->sampling && peer->wanted > 0 && peer->next < peer->available) {
        if (peer->break_after && peer->given == peer->break_after) {
            if (buffer.size)
                send_buffer(peer->sampling, &buffer);
            trp_server_call_finish(peer->sampling, peer->break_status, "the peer said so");
            peer->break_after = 0;
            peer->wanted = 0;
            break;
        }
        peer->wanted--;
        peer->given++;
        if (peer->per_message == 0) {
            send_in_parts(peer, &buffer, peer->next++);
        } else {
            add_sample(&buffer, peer->next++);
            if (++in_message % peer->per_message == 0)
                send_buffer(peer->sampling, &buffer);
        }
    }
    if (peer->too_many)
        add_sample(&buffer, peer->next++);
    if (buffer.size)
        send_buffer(peer->sampling, &buffer);
    buffer_cleanup(&buffer);
    if (peer->sampling && peer->wanted == 0)
        trp_server_call_read(peer->sampling);
    else if (peer->sampling && peer->timeout_ms >= 0)
        trp_server_call_finish(peer->sampling, TRP_DEADLINE_EXCEEDED, limiter_text);
}

static void count_streams(struct peer *peer, int more)
{
    mutex_lock(&peer->mutex);
    peer->open_streams += more;
    cond_broadcast(&peer->changed);
    mutex_unlock(&peer->mutex);
}

static void nothing(void *arg)
{
    (void)arg;
}

/* Handlers run under the server's lock: they see what was written here before, and the other way
 * round. */
static void look(struct peer *peer)
{
    trp_server_run(peer->server, nothing, NULL);
}

/* Until the server has seen the end of every sampler: then its fields are the test's. */
static void settle(struct peer *peer)
{
    mutex_lock(&peer->mutex);
    struct deadline deadline = deadline_in_ms(&clock_monotonic, 5000);
    while (peer->open_streams > 0 && cond_wait(&peer->changed, &peer->mutex, deadline))
        continue;
    assert_int_equal(peer->open_streams, 0);
    mutex_unlock(&peer->mutex);
    look(peer);
}

static void sample_opened(void *service, trp_server_call *call)
{
    struct peer *peer = service;
    count_streams(peer, 1);
    peer->sampling = call;
    peer->wanted = 0;
    peer->stream_count++;
    trp_server_call_read(call);
}

static void sample_received(void *service, trp_server_call *call, trp_message *message)
{
    struct peer *peer = service;
    struct wire_sample_request request;
    trp_bytes bytes = {trp_message_data(message), trp_message_size(message)};
    (void)call;
    assert_int_equal(wire_sample_request_decode(bytes, &request), TRP_OK);
    assert_true(request.has_timeout);
    assert_int_equal(request.table.size, 1);
    peer->timeout_ms = request.timeout_ms;
    peer->wanted = request.num_samples;
    peer->requested += request.num_samples;
    peer->request_count++;
    trp_message_destroy(message);
    serve(peer);
}

static void finish_ok(void *service, trp_server_call *call)
{
    (void)service;
    trp_server_call_finish(call, TRP_OK, NULL);
}

static void sample_closed(void *service, trp_server_call *call)
{
    struct peer *peer = service;
    if (peer->sampling == call)
        peer->sampling = NULL;
    count_streams(peer, -1);
}

/* ---- unary calls ----------------------------------------------------------------------------- */

static void unary_opened(void *service, trp_server_call *call)
{
    (void)service;
    trp_server_call_read(call);
}

static void unary_half_closed(void *service, trp_server_call *call)
{
    (void)service;
    (void)call;
}

static void unary_closed(void *service, trp_server_call *call)
{
    struct peer *peer = service;
    for (uint32_t i = 0; i < peer->unanswered_count; i++)
        if (peer->unanswered[i] == call)
            peer->unanswered[i] = NULL;
}

static void info_received(void *service, trp_server_call *call, trp_message *message)
{
    struct peer *peer = service;
    struct buffer info = {0}, table = {0}, limiter = {0}, stats = {0};
    assert_int_equal(trp_message_size(message), 0);
    trp_message_destroy(message);
    pb_number(&table, 3, 100);
    pb_double(&limiter, 1, 2);
    pb_double(&limiter, 2, -4);
    pb_double(&limiter, 3, 8);
    pb_number(&limiter, 4, 5);
    pb_number(&stats, 2, 9);
    pb_part(&limiter, 5, &stats);
    pb_part(&limiter, 6, &stats);
    pb_part(&table, 5, &limiter);
    if (peer->signature) {
        uint8_t bytes[512];
        trp_bytes signature = hex_bytes(peer->signature, bytes);
        pb_bytes(&table, 6, signature.data, signature.size);
    }
    pb_number(&table, 7, 6);
    pb_bytes(&table, 8, "t", 1);
    pb_part(&info, 2, &table);
    pb_bytes(&table, 8, "other", 5);
    pb_part(&info, 2, &table);
    send_buffer(call, &info);
    buffer_cleanup(&info);
    trp_server_call_finish(call, TRP_OK, NULL);
}

static void answer(trp_server_call *call, bool fail)
{
    if (fail) {
        trp_server_call_finish(call, TRP_NOT_FOUND, "Priority table gone was not found");
        return;
    }
    trp_server_call_send(call, trp_message_create(0));
    trp_server_call_finish(call, TRP_OK, NULL);
}

static void mutate_received(void *service, trp_server_call *call, trp_message *message)
{
    struct peer *peer = service;
    static char table[16];
    trp_bytes bytes = {trp_message_data(message), trp_message_size(message)};
    assert_int_equal(wire_mutate_request_decode(bytes, &peer->mutated), TRP_OK);
    memset(table, 0, sizeof table);
    memcpy(table, peer->mutated.table.data, peer->mutated.table.size);
    trp_message_destroy(message);
    peer->mutations++;
    if (peer->mute)
        peer->unanswered[peer->unanswered_count++] = call;
    else
        answer(call, strcmp(table, "gone") == 0);
}

static void answer_all(void *service)
{
    struct peer *peer = service;
    for (uint32_t i = 0; i < peer->unanswered_count; i++)
        if (peer->unanswered[i])
            answer(peer->unanswered[i], false);
    peer->unanswered_count = 0;
}

static void reset_received(void *service, trp_server_call *call, trp_message *message)
{
    struct peer *peer = service;
    const uint8_t *data = trp_message_data(message);
    assert_int_equal(data[0], 0x0a);
    memcpy(peer->reset, data + 2, data[1]);
    trp_message_destroy(message);
    answer(call, strcmp(peer->reset, "gone") == 0);
}

static const trp_raw_method methods[] = {
    {.path = "/deepmind.reverb.ReverbService/SampleStream",
     .opened = sample_opened,
     .received = sample_received,
     .half_closed = finish_ok,
     .closed = sample_closed},
    {.path = "/deepmind.reverb.ReverbService/ServerInfo",
     .opened = unary_opened,
     .received = info_received,
     .half_closed = unary_half_closed,
     .closed = unary_closed},
    {.path = "/deepmind.reverb.ReverbService/MutatePriorities",
     .opened = unary_opened,
     .received = mutate_received,
     .half_closed = unary_half_closed,
     .closed = unary_closed},
    {.path = "/deepmind.reverb.ReverbService/Reset",
     .opened = unary_opened,
     .received = reset_received,
     .half_closed = unary_half_closed,
     .closed = unary_closed},
};

/* ---- fixtures -------------------------------------------------------------------------------- */

static struct peer *peer_create(bool local)
{
    struct peer *peer = xcalloc(1, sizeof *peer);
    peer->available = 1000000;
    peer->per_message = 3;
    mutex_init(&peer->mutex);
    cond_init(&peer->changed);
    assert_int_equal(trp_server_create(&peer->server, NULL), TRP_OK);
    assert_int_equal(trp_server_add_raw(peer->server, methods, 4, peer, NULL), TRP_OK);
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
    wire_mutate_request_cleanup(&peer->mutated);
    cond_cleanup(&peer->changed);
    mutex_cleanup(&peer->mutex);
    free(peer);
    return 0;
}

static trp_sampler_options options_of(uint32_t batch_size, uint32_t prefetch)
{
    return (trp_sampler_options){.table = "t",
                                 .columns = sample_columns,
                                 .column_count = SAMPLE_COLUMNS,
                                 .batch_size = batch_size,
                                 .prefetch = prefetch,
                                 .limiter_timeout_ms = -1};
}

/* Destroys, and waits for the server to notice. */
static void sampler_end(struct peer *peer, trp_sampler *sampler)
{
    trp_sampler_destroy(sampler);
    settle(peer);
}

static trp_sampler *sampler_create(struct peer *peer, trp_sampler_options options)
{
    trp_sampler *sampler;
    look(peer);
    assert_int_equal(trp_sampler_create(&sampler, peer->channel, &options), TRP_OK);
    return sampler;
}

static void check_row(const trp_batch *batch, uint32_t row, int64_t n)
{
    struct sample_row expected = sample_row(n);
    assert_int_equal(((const int64_t *)batch->columns[0])[row], expected.x);
    assert_memory_equal((const uint8_t *)batch->columns[1] + row * sizeof expected.frames,
                        expected.frames, sizeof expected.frames);
    assert_memory_equal((const uint8_t *)batch->columns[2] + row * sizeof expected.y, expected.y,
                        sizeof expected.y);
    assert_memory_equal((const uint8_t *)batch->columns[3] + row * sizeof expected.d, expected.d,
                        sizeof expected.d);
    assert_int_equal(batch->keys[row], 1000 + n);
    assert_true(batch->priorities[row] == 0.5 + (double)n);
    assert_true(batch->probabilities[row] == 1.0 / (double)(n + 1));
    assert_int_equal(batch->table_sizes[row], 77);
    assert_int_equal(batch->times_sampled[row], 3);
}

/* ---- batches --------------------------------------------------------------------------------- */

static void batches_come_full_and_in_order(struct peer *peer, uint32_t prefetch)
{
    trp_sampler *sampler = sampler_create(peer, options_of(16, prefetch));
    trp_batch batch;
    for (int64_t i = 0; i < 20; i++) {
        assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_OK);
        assert_int_equal(batch.rows, 16);
        for (uint32_t row = 0; row < 16; row++)
            check_row(&batch, row, 16 * i + row);
    }
    sampler_end(peer, sampler);
}

static void samples_fill_batches_without_a_thread(void **state)
{
    struct peer *peer = *state;
    batches_come_full_and_in_order(peer, 0);
    assert_int_equal(peer->requested, 320); /* exactly what was wanted */
}

static void samples_fill_batches_ahead(void **state)
{
    struct peer *peer = *state;
    batches_come_full_and_in_order(peer, 3);
    assert_true(peer->requested <= 320 + (3 + 2) * 16);
}

static void samples_in_parts_are_joined(void **state)
{
    struct peer *peer = *state;
    peer->per_message = 0;
    batches_come_full_and_in_order(peer, 0);
    peer->next = 0;
    batches_come_full_and_in_order(peer, 1);
}

static void messages_need_not_end_with_batches(void **state)
{
    struct peer *peer = *state;
    peer->per_message = 1000;
    batches_come_full_and_in_order(peer, 2);
}

/* ---- limiters -------------------------------------------------------------------------------- */

static void allow(void *peer)
{
    ((struct peer *)peer)->available += 24;
    serve(peer);
}

static void allow_quietly(void *peer)
{
    ((struct peer *)peer)->available += 24;
}

static void a_batch_held_back_is_waited_for_and_kept(struct peer *peer, uint32_t prefetch)
{
    peer->available = 24;
    trp_sampler *sampler = sampler_create(peer, options_of(16, prefetch));
    trp_batch batch;
    assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_OK);
    assert_int_equal(trp_sampler_next(sampler, &batch, 20), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "'t'"));
    assert_int_equal(trp_sampler_next(sampler, &batch, 0), TRP_DEADLINE_EXCEEDED);
    trp_server_run(peer->server, allow, peer);
    assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_OK);
    for (uint32_t row = 0; row < 16; row++)
        check_row(&batch, row, 16 + row); /* the 8 rows that had come are the first */
    sampler_end(peer, sampler);
}

static void a_limiter_holds_a_caller_back(void **state)
{
    a_batch_held_back_is_waited_for_and_kept(*state, 0);
}

static void a_limiter_holds_the_thread_back(void **state)
{
    a_batch_held_back_is_waited_for_and_kept(*state, 2);
}

static void a_limiters_timeout_is_passed_on_and_partial_batches_are_kept(struct peer *peer,
                                                                         uint32_t prefetch)
{
    trp_sampler_options options = options_of(16, prefetch);
    options.limiter_timeout_ms = 0;
    peer->available = 24;
    trp_sampler *sampler = sampler_create(peer, options);
    trp_batch batch;
    assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_DEADLINE_EXCEEDED);
        assert_non_null(strstr(trp_last_error(), "limiter"));
    }
    trp_server_run(peer->server, allow_quietly, peer);
    assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_OK);
    for (uint32_t row = 0; row < 16; row++)
        check_row(&batch, row, 16 + row);
    sampler_end(peer, sampler);
    assert_true(peer->stream_count <= 6); /* asked again only when somebody waits */
}

static void a_limiters_timeout_reaches_a_caller(void **state)
{
    a_limiters_timeout_is_passed_on_and_partial_batches_are_kept(*state, 0);
}

static void a_limiters_timeout_reaches_a_waiter(void **state)
{
    a_limiters_timeout_is_passed_on_and_partial_batches_are_kept(*state, 1);
}

/* ---- the server goes away -------------------------------------------------------------------- */

/* Number of the sample in a row, which has to be that sample's. */
static int64_t check_some_row(const trp_batch *batch, uint32_t row)
{
    int64_t n = ((const int64_t *)batch->columns[0])[row] / 10;
    check_row(batch, row, n);
    return n;
}

static void a_lost_stream_is_reopened(struct peer *peer, uint32_t prefetch)
{
    const trp_status transient[] = {TRP_UNAVAILABLE, TRP_OK, TRP_CANCELLED};
    for (size_t t = 0; t < 3; t++) {
        peer->next = peer->given = 0;
        peer->break_after = 40;
        peer->break_status = transient[t];
        trp_sampler *sampler = sampler_create(peer, options_of(16, prefetch));
        trp_batch batch;
        int64_t last = -1;
        for (int64_t i = 0; i < 5; i++) {
            trp_status status = trp_sampler_next(sampler, &batch, 5000);
            if (status == TRP_UNAVAILABLE) { /* at most once; passing */
                assert_non_null(strstr(trp_last_error(), "went away"));
                status = trp_sampler_next(sampler, &batch, 5000);
            }
            assert_int_equal(status, TRP_OK);
            for (uint32_t row = 0; row < 16; row++) {
                int64_t n = check_some_row(&batch, row);
                /* What a cancelled stream had on its way may be lost, never more. */
                assert_in_range(n, last + 1, transient[t] == TRP_CANCELLED ? last + 41 : last + 1);
                last = n;
            }
        }
        sampler_end(peer, sampler);
    }
}

static void a_caller_survives_a_lost_stream(void **state)
{
    a_lost_stream_is_reopened(*state, 0);
}

static void the_thread_survives_a_lost_stream(void **state)
{
    a_lost_stream_is_reopened(*state, 2);
}

static void another_end_of_the_stream_is_final(void **state)
{
    struct peer *peer = *state;
    for (uint32_t prefetch = 0; prefetch < 2; prefetch++) {
        peer->given = 0;
        peer->break_after = 5;
        peer->break_status = TRP_INTERNAL;
        trp_sampler *sampler = sampler_create(peer, options_of(16, prefetch));
        trp_batch batch;
        for (int i = 0; i < 2; i++) {
            assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_INTERNAL);
            assert_non_null(strstr(trp_last_error(), "the peer said so"));
        }
        sampler_end(peer, sampler);
    }
}

static void more_samples_than_asked_for_are_an_error(void **state)
{
    struct peer *peer = *state;
    peer->too_many = true;
    trp_sampler *sampler = sampler_create(peer, options_of(16, 0));
    trp_batch batch;
    trp_status status = TRP_OK;
    for (int i = 0; i < 3 && status == TRP_OK; i++)
        status = trp_sampler_next(sampler, &batch, 5000);
    assert_int_equal(status, TRP_INTERNAL);
    sampler_end(peer, sampler);
}

/* ---- stop ------------------------------------------------------------------------------------ */

static void next_until_cancelled(void *arg)
{
    trp_sampler *sampler = arg;
    trp_batch batch;
    trp_status status;
    do
        status = trp_sampler_next(sampler, &batch, -1);
    while (status == TRP_OK);
    assert_int_equal(status, TRP_CANCELLED);
}

static void a_stop_ends_the_wait_of_another_thread(void **state)
{
    struct peer *peer = *state;
    for (uint32_t prefetch = 0; prefetch < 2; prefetch++) {
        struct thread thread = {0};
        peer->next = 0;
        peer->available = 16;
        trp_sampler *sampler = sampler_create(peer, options_of(16, prefetch));
        trp_batch batch;
        assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_OK);
        assert_int_equal(thread_start(&thread, "next", next_until_cancelled, sampler), TRP_OK);
        trp_sampler_stop(sampler);
        thread_stop(&thread);
        assert_int_equal(trp_sampler_next(sampler, &batch, 0), TRP_CANCELLED);
        sampler_end(peer, sampler);
    }
}

/* ---- columns --------------------------------------------------------------------------------- */

static void columns_that_the_samples_do_not_have_are_named(void **state)
{
    struct peer *peer = *state;
    static const struct {
        size_t column;
        trp_tensor_spec spec;
    } rows[] = {
        {0, {.name = "x", .dtype = TRP_FLOAT64}},
        {0, {.name = "x", .dtype = TRP_INT64, .rank = 1, .shape = {1}}},
        {1, {.name = "frames", .dtype = TRP_UINT8, .rank = 2, .shape = {2, 40}}},
        {1, {.name = "frames", .dtype = TRP_UINT8, .rank = 2, .shape = {4, 40}}},
        {1, {.name = "frames", .dtype = TRP_UINT8, .rank = 2, .shape = {3, 41}}},
        {1, {.name = "frames", .dtype = TRP_UINT8, .rank = 3, .shape = {3, 40, 1}}},
        {2, {.name = "y", .dtype = TRP_FLOAT32}},
        {3, {.name = "d", .dtype = TRP_UINT32, .rank = 2, .shape = {2, 2}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_tensor_spec columns[SAMPLE_COLUMNS];
        memcpy(columns, sample_columns, sizeof columns);
        columns[rows[i].column] = rows[i].spec;
        trp_sampler_options options = options_of(4, (uint32_t)i % 2);
        options.columns = columns;
        trp_sampler *sampler = sampler_create(peer, options);
        trp_batch batch;
        assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(trp_last_error(), rows[i].spec.name));
        sampler_end(peer, sampler);
    }
    trp_sampler_options options = options_of(4, 0);
    options.column_count = 3;
    trp_sampler *sampler = sampler_create(peer, options);
    trp_batch batch;
    assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "3 columns were asked for, but the sample has 4"));
    sampler_end(peer, sampler);
}

static void a_signature_is_checked_before_the_first_sample(void **state)
{
    struct peer *peer = *state;
    trp_sampler *sampler;
    trp_sampler_options options = options_of(4, 1);
    look(peer);
    peer->signature = "8a0211120d120b08ffffffffffffffffff011809"; /* int64[?] */
    look(peer);
    assert_int_equal(trp_sampler_create(&sampler, peer->channel, &options), TRP_INVALID_ARGUMENT);
    assert_non_null(
        strstr(trp_last_error(), "column 0 (x) is int64[], but table 't' has int64[?]"));
    look(peer);
    peer->signature = "8a02";
    look(peer);
    assert_int_equal(trp_sampler_create(&sampler, peer->channel, &options), TRP_INVALID_ARGUMENT);
    options.table = "nope";
    assert_int_equal(trp_sampler_create(&sampler, peer->channel, &options), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "'nope'"));
    assert_null(sampler);
    look(peer);
    assert_int_equal(peer->stream_count, 0);
}

static void options_that_make_no_batch_are_refused(void **state)
{
    struct peer *peer = *state;
    trp_sampler *sampler;
    trp_sampler_options options = options_of(0, 0);
    assert_int_equal(trp_sampler_create(&sampler, peer->channel, &options), TRP_INVALID_ARGUMENT);
    options = options_of(1, UINT32_MAX);
    assert_int_equal(trp_sampler_create(&sampler, peer->channel, &options), TRP_INVALID_ARGUMENT);
    options = options_of(UINT32_MAX, 0);
    trp_tensor_spec huge = {
        .name = "huge", .dtype = TRP_UINT8, .rank = 2, .shape = {INT64_C(1) << 40, 1 << 20}};
    options.columns = &huge;
    options.column_count = 1;
    assert_int_equal(trp_sampler_create(&sampler, peer->channel, &options), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "huge"));
    options.table = "";
    assert_int_equal(trp_sampler_create(&sampler, peer->channel, &options), TRP_INVALID_ARGUMENT);
}

/* ---- priorities and tables ------------------------------------------------------------------- */

static void priorities_go_out_without_waiting(void **state)
{
    struct peer *peer = *state;
    trp_priority_writer *writer;
    uint64_t keys[256];
    double priorities[256];
    for (int i = 0; i < 256; i++) {
        keys[i] = (uint64_t)i << 50;
        priorities[i] = i;
    }
    assert_int_equal(trp_priority_writer_create(&writer, peer->channel, "t", 2), TRP_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(trp_priority_writer_update(writer, keys, priorities, 256, 5000), TRP_OK);
    assert_int_equal(trp_priority_writer_update(writer, keys, priorities, 0, 0), TRP_OK);
    assert_int_equal(trp_priority_writer_flush(writer, 5000), TRP_OK);
    look(peer);
    assert_int_equal(peer->mutations, 10);
    assert_int_equal(peer->mutated.update_count, 256);
    assert_int_equal(peer->mutated.updates[255].key, keys[255]);
    assert_true(peer->mutated.updates[255].priority == 255);
    trp_priority_writer_destroy(writer);
}

static void a_full_window_of_priorities_has_a_deadline(void **state)
{
    struct peer *peer = *state;
    trp_priority_writer *writer;
    uint64_t key = 1;
    double priority = 2;
    peer->mute = true;
    look(peer);
    assert_int_equal(trp_priority_writer_create(&writer, peer->channel, "t", 2), TRP_OK);
    assert_int_equal(trp_priority_writer_update(writer, &key, &priority, 1, 0), TRP_OK);
    assert_int_equal(trp_priority_writer_update(writer, &key, &priority, 1, 0), TRP_OK);
    assert_int_equal(trp_priority_writer_update(writer, &key, &priority, 1, 20),
                     TRP_DEADLINE_EXCEEDED);
    assert_int_equal(trp_priority_writer_flush(writer, 20), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "2 requests are unanswered"));
    look(peer);
    peer->mute = false;
    look(peer);
    trp_server_run(peer->server, answer_all, peer);
    assert_int_equal(trp_priority_writer_update(writer, &key, &priority, 1, 5000), TRP_OK);
    assert_int_equal(trp_priority_writer_flush(writer, 5000), TRP_OK);
    trp_priority_writer_destroy(writer);
}

static void a_refused_priority_is_reported_once(void **state)
{
    struct peer *peer = *state;
    trp_priority_writer *writer;
    uint64_t key = 1;
    double priority = 2;
    assert_int_equal(trp_priority_writer_create(&writer, peer->channel, "gone", 4), TRP_OK);
    assert_int_equal(trp_priority_writer_update(writer, &key, &priority, 1, 5000), TRP_OK);
    assert_int_equal(trp_priority_writer_flush(writer, 5000), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "Priority table gone was not found"));
    assert_int_equal(trp_priority_writer_flush(writer, 5000), TRP_OK);
    trp_priority_writer_destroy(writer);
    assert_int_equal(trp_priority_writer_create(&writer, peer->channel, "", 4),
                     TRP_INVALID_ARGUMENT);
}

static void items_are_deleted_and_tables_reset(void **state)
{
    struct peer *peer = *state;
    const uint64_t keys[] = {12, 13};
    assert_int_equal(trp_replay_delete(peer->channel, "t", keys, 2, 5000), TRP_OK);
    look(peer);
    assert_int_equal(peer->mutated.deletes.count, 2);
    assert_int_equal(peer->mutated.deletes.keys[1], 13);
    look(peer);
    assert_int_equal(trp_replay_delete(peer->channel, "gone", keys, 2, 5000), TRP_NOT_FOUND);
    assert_int_equal(trp_replay_reset(peer->channel, "t", 5000), TRP_OK);
    look(peer);
    assert_string_equal(peer->reset, "t");
    assert_int_equal(trp_replay_reset(peer->channel, "gone", 5000), TRP_NOT_FOUND);
}

static void an_unanswered_call_ends_at_its_deadline(void **state)
{
    struct peer *peer = *state;
    peer->mute = true;
    look(peer);
    const uint64_t key = 1;
    assert_int_equal(trp_replay_delete(peer->channel, "t", &key, 1, 30), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "MutatePriorities"));
}

static void tables_tell_their_state(void **state)
{
    struct peer *peer = *state;
    trp_table_info tables[1];
    size_t count;
    assert_int_equal(trp_replay_info(peer->channel, tables, 1, &count, 5000), TRP_OK);
    assert_int_equal(count, 2);
    assert_string_equal(tables[0].name, "t");
    assert_int_equal(tables[0].size, 6);
    assert_int_equal(tables[0].max_size, 100);
    assert_int_equal(tables[0].inserts, 9);
    assert_int_equal(tables[0].min_size, 5);
    assert_true(tables[0].samples_per_insert == 2);
    assert_true(tables[0].min_diff == -4);
    assert_true(tables[0].max_diff == 8);
}

#define BOTH(test)                                                                                 \
    cmocka_unit_test_setup_teardown(test, setup_remote, teardown),                                 \
        cmocka_unit_test_setup_teardown(test, setup_local, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(samples_fill_batches_without_a_thread),
        BOTH(samples_fill_batches_ahead),
        BOTH(samples_in_parts_are_joined),
        BOTH(messages_need_not_end_with_batches),
        BOTH(a_limiter_holds_a_caller_back),
        BOTH(a_limiter_holds_the_thread_back),
        BOTH(a_limiters_timeout_reaches_a_caller),
        BOTH(a_limiters_timeout_reaches_a_waiter),
        BOTH(a_caller_survives_a_lost_stream),
        BOTH(the_thread_survives_a_lost_stream),
        BOTH(another_end_of_the_stream_is_final),
        BOTH(more_samples_than_asked_for_are_an_error),
        BOTH(a_stop_ends_the_wait_of_another_thread),
        BOTH(columns_that_the_samples_do_not_have_are_named),
        BOTH(a_signature_is_checked_before_the_first_sample),
        BOTH(options_that_make_no_batch_are_refused),
        BOTH(priorities_go_out_without_waiting),
        BOTH(a_full_window_of_priorities_has_a_deadline),
        BOTH(a_refused_priority_is_reported_once),
        BOTH(items_are_deleted_and_tables_reset),
        BOTH(an_unanswered_call_ends_at_its_deadline),
        BOTH(tables_tell_their_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
