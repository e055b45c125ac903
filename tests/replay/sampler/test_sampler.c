/* The sampler against a server of our own that answers as Reverb's does, or worse. */
#include <troupe/sampler.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/replay/sampler_peer.h"

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

static void held_batches_stay(struct peer *peer, uint32_t prefetch)
{
    enum { HELD = 3 };
    trp_batch batches[HELD];
    trp_sampler_options options = options_of(16, prefetch);
    options.held = HELD;
    peer->next = 0;
    trp_sampler *sampler = sampler_create(peer, options);
    for (int64_t i = 0; i < 12; i++) {
        assert_int_equal(trp_sampler_next(sampler, &batches[i % HELD], 5000), TRP_OK);
        for (int64_t j = i < HELD ? 0 : i - HELD + 1; j <= i; j++)
            for (uint32_t row = 0; row < 16; row++)
                check_row(&batches[j % HELD], row, 16 * j + row);
    }
    sampler_end(peer, sampler);
}

static void a_batch_stays_for_as_many_calls_as_it_is_held(void **state)
{
    held_batches_stay(*state, 0);
    held_batches_stay(*state, 2);
}

struct arena {
    void *memory[64];
    size_t count, released;
};

static void *arena_allocate(void *context, size_t bytes)
{
    struct arena *arena = context;
    assert_true(arena->count < 64);
    return arena->memory[arena->count++] = aligned_alloc(64, bytes);
}

static void arena_release(void *context, void *memory)
{
    ((struct arena *)context)->released++;
    free(memory);
}

static void columns_lie_in_the_users_memory(void **state)
{
    struct peer *peer = *state;
    struct arena arena = {0};
    trp_sampler_options options = options_of(16, 0);
    options.held = 2;
    options.allocator = &(trp_allocator){arena_allocate, arena_release, &arena};
    trp_sampler *sampler = sampler_create(peer, options);
    assert_int_equal(arena.count, 2 * SAMPLE_COLUMNS);
    trp_batch batch;
    assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_OK);
    for (size_t c = 0; c < SAMPLE_COLUMNS; c++) {
        size_t found = 0;
        for (size_t i = 0; i < arena.count; i++)
            found += arena.memory[i] == batch.columns[c];
        assert_int_equal(found, 1);
    }
    sampler_end(peer, sampler);
    assert_int_equal(arena.released, arena.count);
}

static void *nothing_left(void *context, size_t bytes)
{
    (void)context, (void)bytes;
    return NULL;
}

struct given {
    const struct peer *peer;
    int64_t count;
};

static void see_given(void *arg)
{
    struct given *given = arg;
    given->count = given->peer->given;
}

static void wait_until_given(struct peer *peer, int64_t count)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, 5000);
    struct given given = {.peer = peer};
    while (given.count < count && !deadline_passed(deadline, &clock_monotonic))
        trp_server_run(peer->server, see_given, &given);
    assert_true(given.count >= count);
}

static void batches_are_made_for_a_caller_that_stays_away(void **state)
{
    struct peer *peer = *state;
    trp_sampler *sampler = sampler_create(peer, options_of(16, 3));
    trp_batch batch;
    for (int64_t i = 0; i < 3; i++) {
        assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_OK);
        wait_until_given(peer, 16 * (i + 1 + 3));
        check_row(&batch, 0, 16 * i);
    }
    sampler_end(peer, sampler);
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

/* So that it fills batches itself; then the limiter stops it. */
static void a_caller_that_is_back_at_once_is_not_held_for_longer_than_it_waits(void **state)
{
    struct peer *peer = *state;
    peer->available = 16 * 50 + 8;
    trp_sampler *sampler = sampler_create(peer, options_of(16, 2));
    trp_batch batch;
    for (int64_t i = 0; i < 51; i++) {
        if (i == 50) {
            assert_int_equal(trp_sampler_next(sampler, &batch, 20), TRP_DEADLINE_EXCEEDED);
            assert_int_equal(trp_sampler_next(sampler, &batch, 0), TRP_DEADLINE_EXCEEDED);
            trp_server_run(peer->server, allow, peer);
        }
        assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_OK);
        for (uint32_t row = 0; row < 16; row++)
            check_row(&batch, row, 16 * i + row);
    }
    sampler_end(peer, sampler);
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
    for (uint32_t round = 0; round < 3; round++) {
        struct thread thread = {0};
        uint32_t prefetch = round > 0;
        peer->next = 0;
        peer->available = round < 2 ? 16 : 16 * 50; /* the last time it fills batches itself */
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

static void columns_and_steps_that_the_samples_are_short_of_are_named(void **state)
{
    struct peer *peer = *state;
    trp_tensor_spec columns[SAMPLE_COLUMNS + 1];
    memcpy(columns, sample_columns, sizeof sample_columns);
    columns[SAMPLE_COLUMNS] = (trp_tensor_spec){.name = "extra", .dtype = TRP_FLOAT32};
    trp_sampler_options options = options_of(4, 0);
    options.columns = columns;
    options.column_count = SAMPLE_COLUMNS + 1;
    trp_sampler *sampler = sampler_create(peer, options);
    trp_batch batch;
    assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "column 4 (extra) was asked for as float32[], but the "
                                          "sample ends before it");
    sampler_end(peer, sampler);
    columns[1].shape[0]++;
    options.column_count = SAMPLE_COLUMNS;
    sampler = sampler_create(peer, options);
    assert_int_equal(trp_sampler_next(sampler, &batch, 5000), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "column 1 (frames) was asked for as uint8[4,40], but the "
                                          "sample has 3 steps there");
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
    assert_int_equal(trp_sampler_create(&sampler, peer->channel, &options), TRP_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(trp_last_error(), "batch_size 4294967295 makes batches of "));
    options = options_of(4, 0);
    options.allocator = &(trp_allocator){nothing_left, arena_release, NULL};
    assert_int_equal(trp_sampler_create(&sampler, peer->channel, &options), TRP_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(trp_last_error(), "sampler: batch_size 4: no memory for a batch of "));
    options.held = 1000;
    assert_int_equal(trp_sampler_create(&sampler, peer->channel, &options), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "1000 batches held, at most 64"));
    options.table = "";
    assert_int_equal(trp_sampler_create(&sampler, peer->channel, &options), TRP_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(samples_fill_batches_without_a_thread),
        BOTH(samples_fill_batches_ahead),
        BOTH(a_batch_stays_for_as_many_calls_as_it_is_held),
        BOTH(columns_lie_in_the_users_memory),
        BOTH(batches_are_made_for_a_caller_that_stays_away),
        BOTH(a_caller_that_is_back_at_once_is_not_held_for_longer_than_it_waits),
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
        BOTH(columns_and_steps_that_the_samples_are_short_of_are_named),
        BOTH(a_signature_is_checked_before_the_first_sample),
        BOTH(options_that_make_no_batch_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
