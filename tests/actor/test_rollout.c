/* Rollouts against tables: the same steps, by the same adder, once through a replay server and once
 * into batches, give the same items in the same order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/adder.h>
#include <troupe/rng.h>
#include <troupe/rollout.h>
#include <troupe/sampler.h>
#include "tests/actor/table_server.h"

enum { COPIES = 3, STEPS = 400, BATCH = 7, WAIT_MS = 30000 };

static const trp_env_spec env = {
    .name = "test",
    .observations = {{.name = "o", .dtype = TRP_FLOAT32, .rank = 1, .shape = {3}}},
    .action_kind = TRP_ACTION_DISCRETE,
    .action_count = 4};
static trp_tensor_spec extra = {.name = "value", .dtype = TRP_FLOAT32};
static const trp_columns extras = {&extra, 1};

/* ---- adders ---------------------------------------------------------------------------------- */

struct way {
    trp_sequence_options sequence; /* length 0: n-step transitions */
    trp_nstep_options nstep;
};

static trp_adder *make_adder(const struct way *way, trp_channel *channel, trp_rollout *rollout)
{
    trp_adder *adder;
    trp_adder_options options = {.replay = channel,
                                 .rollout = rollout,
                                 .table = "t",
                                 .env = &env,
                                 .extras = &extras,
                                 .copies = COPIES,
                                 .priority = 2};
    trp_status status = way->sequence.length > 0
                            ? trp_sequence_adder_create(&adder, &options, &way->sequence)
                            : trp_nstep_adder_create(&adder, &options, &way->nstep);
    assert_int_equal(status, TRP_OK);
    return adder;
}

static void columns_of(const struct way *way, trp_columns *columns)
{
    if (way->sequence.length > 0)
        trp_sequence_columns(&env, &extras, &way->sequence, columns);
    else
        trp_nstep_columns(&env, &extras, columns);
}

/* ---- a play ---------------------------------------------------------------------------------- */

/* One step of every copy, the same for every player that is as far. */
struct player {
    trp_adder *adder;
    trp_rng rng;
    uint64_t steps;
    bool begun;
};

static void observe(struct player *player, float observation[3])
{
    for (int i = 0; i < 3; i++)
        observation[i] = (float)trp_rng_double(&player->rng);
}

static void play_step(struct player *player)
{
    trp_adder *adder = player->adder;
    float observation[3], next[3];
    for (uint32_t copy = 0; copy < COPIES; copy++) {
        if (!player->begun) {
            observe(player, observation);
            adder->impl->first(adder, copy, (const void *[]){observation});
        }
        uint64_t draw = trp_rng_below(&player->rng, 12);
        int32_t action = (int32_t)(draw % 4);
        float value = (float)trp_rng_double(&player->rng);
        bool terminated = draw == 0, truncated = draw == 1;
        observe(player, next);
        adder->impl->add(adder, copy,
                         &(trp_transition){.action = &action,
                                           .reward = value / 2,
                                           .discount = terminated ? 0 : 1,
                                           .next_observations = (const void *[]){next},
                                           .extras = (const void *[]){&value},
                                           .last = terminated || truncated,
                                           .version = ++player->steps});
        if (terminated || truncated) {
            observe(player, observation);
            adder->impl->first(adder, copy, (const void *[]){observation});
        }
    }
    player->begun = true;
}

/* The next batch; `kept`: the adder has items of the last step. */
static trp_batch next_rollout(struct player *player, trp_rollout *rollout, bool *kept)
{
    trp_rollout_begin(rollout);
    while (!trp_rollout_is_full(rollout)) {
        if (!*kept)
            play_step(player);
        trp_status status = player->adder->impl->push(player->adder, 0);
        *kept = status == TRP_DEADLINE_EXCEEDED;
        assert_true(status == TRP_OK || *kept);
        assert_true(!*kept || trp_rollout_is_full(rollout));
    }
    return trp_rollout_batch(rollout);
}

static void assert_rows_equal(const trp_columns *columns, const trp_batch *a, uint32_t row_a,
                              const trp_batch *b, uint32_t row_b)
{
    for (size_t c = 0; c < columns->count; c++) {
        size_t bytes = trp_tensor_bytes(&columns->specs[c]);
        assert_memory_equal((const uint8_t *)a->columns[c] + row_a * bytes,
                            (const uint8_t *)b->columns[c] + row_b * bytes, bytes);
    }
    assert_int_equal(a->policy_versions[row_a], b->policy_versions[row_b]);
    assert_true(a->priorities[row_a] == b->priorities[row_b]);
}

static void assert_as_the_table(const struct way *way)
{
    trp_columns columns = {0};
    columns_of(way, &columns);
    struct table_server at;
    table_server_start(&at, true, &columns);
    struct player writes = {.adder = make_adder(way, at.channel, NULL)};
    trp_rng_init(&writes.rng, 5, 0);
    for (int step = 0; step < STEPS; step++) {
        play_step(&writes);
        assert_int_equal(writes.adder->impl->flush(writes.adder, WAIT_MS), TRP_OK); /* in order */
    }
    uint64_t items = writes.adder->impl->items(writes.adder) / BATCH * BATCH;
    assert_true(items > STEPS / 4);

    trp_sampler *sampler;
    assert_int_equal(trp_sampler_create(&sampler, at.channel,
                                        &(trp_sampler_options){.table = "t",
                                                               .columns = columns.specs,
                                                               .column_count = columns.count,
                                                               .batch_size = BATCH}),
                     TRP_OK);
    trp_rollout *rollout;
    assert_int_equal(trp_rollout_create(&rollout, &(trp_rollout_options){.columns = &columns,
                                                                         .batch_size = BATCH}),
                     TRP_OK);
    struct player rolls = {.adder = make_adder(way, NULL, rollout)};
    trp_rng_init(&rolls.rng, 5, 0);
    bool kept = false;
    for (uint64_t i = 0; i < items; i += BATCH) {
        trp_batch sampled, rolled = next_rollout(&rolls, rollout, &kept);
        assert_int_equal(trp_sampler_next(sampler, &sampled, WAIT_MS), TRP_OK);
        assert_int_equal(rolled.rows, BATCH);
        for (uint32_t row = 0; row < BATCH; row++)
            assert_rows_equal(&columns, &sampled, row, &rolled, row);
    }
    trp_adder_destroy(writes.adder);
    trp_adder_destroy(rolls.adder);
    trp_sampler_destroy(sampler);
    trp_rollout_destroy(rollout);
    table_server_end(&at);
    trp_columns_cleanup(&columns);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void transitions_are_those_of_a_table(void **state)
{
    (void)state;
    assert_as_the_table(&(struct way){.nstep = {.n_step = 1, .discount = 0.9}});
    assert_as_the_table(&(struct way){.nstep = {.n_step = 3, .discount = 0.9}});
}

static void sequences_are_those_of_a_table(void **state)
{
    static const trp_sequence_end ends[] = {TRP_END_PAD, TRP_END_WRITE, TRP_END_CONTINUE};
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        assert_as_the_table(&(struct way){.sequence = {.length = 5, .end = ends[i]}});
        assert_as_the_table(&(struct way){.sequence = {.length = 6, .period = 2, .end = ends[i]}});
    }
}

static void a_batch_that_is_held_stays_as_it_is(void **state)
{
    (void)state;
    struct way way = {.nstep = {.n_step = 1, .discount = 1}};
    trp_columns columns = {0};
    columns_of(&way, &columns);
    trp_rollout *rollout;
    assert_int_equal(
        trp_rollout_create(
            &rollout, &(trp_rollout_options){.columns = &columns, .batch_size = COPIES, .held = 2}),
        TRP_OK);
    struct player player = {.adder = make_adder(&way, NULL, rollout)};
    trp_rng_init(&player.rng, 1, 0);
    bool kept = false;
    trp_batch first = next_rollout(&player, rollout, &kept);
    uint64_t key = first.keys[0];
    trp_batch second = next_rollout(&player, rollout, &kept);
    assert_int_equal(first.keys[0], key);
    assert_int_equal(second.keys[0], key + COPIES);
    next_rollout(&player, rollout, &kept);
    assert_int_equal(first.keys[0], key + 2 * COPIES); /* its memory is the third one's */
    trp_adder_destroy(player.adder);
    trp_rollout_destroy(rollout);
    trp_columns_cleanup(&columns);
}

static void what_no_batch_can_hold_is_refused(void **state)
{
    (void)state;
    struct way way = {.sequence = {.length = 5, .end = TRP_END_TRUNCATE}};
    trp_columns columns = {0};
    columns_of(&way, &columns);
    trp_rollout *rollout;
    trp_rollout_options options = {.columns = &columns, .batch_size = BATCH};
    assert_int_equal(trp_rollout_create(&rollout, &options), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "column 'observation' is of any length"));
    trp_columns_cleanup(&columns);
    way.sequence.end = TRP_END_PAD;
    columns_of(&way, &columns);
    options.batch_size = 0;
    assert_int_equal(trp_rollout_create(&rollout, &options), TRP_INVALID_ARGUMENT);
    options.batch_size = 1 << 20;
    extra.rank = 1;
    extra.shape[0] = 1 << 28;
    trp_columns_add(&columns, "huge", &extra);
    extra.rank = 0;
    assert_int_equal(trp_rollout_create(&rollout, &options), TRP_RESOURCE_EXHAUSTED);
    assert_null(rollout);
    assert_non_null(strstr(trp_last_error(), "rollout: batch_size 1048576 makes batches of "));
    options.batch_size = UINT32_MAX;
    assert_int_equal(trp_rollout_create(&rollout, &options), TRP_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(trp_last_error(), "rollout: batch_size 4294967295"));
    trp_columns_cleanup(&columns);
}

static void an_item_of_other_columns_is_refused_by_name(void **state)
{
    (void)state;
    struct way wanted = {.sequence = {.length = 4}}, made = {.sequence = {.length = 5}};
    trp_columns columns = {0};
    columns_of(&wanted, &columns);
    trp_rollout *rollout;
    assert_int_equal(trp_rollout_create(&rollout, &(trp_rollout_options){.columns = &columns,
                                                                         .batch_size = BATCH}),
                     TRP_OK);
    struct player player = {.adder = make_adder(&made, NULL, rollout)};
    trp_rng_init(&player.rng, 1, 0);
    trp_status status = TRP_OK;
    for (int step = 0; step < STEPS && status == TRP_OK; step++) {
        play_step(&player);
        status = player.adder->impl->push(player.adder, 0);
    }
    assert_int_equal(status, TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "column 'observation' of an item has 60 bytes"));
    trp_adder_destroy(player.adder);
    trp_rollout_destroy(rollout);
    trp_columns_cleanup(&columns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transitions_are_those_of_a_table),
        cmocka_unit_test(sequences_are_those_of_a_table),
        cmocka_unit_test(a_batch_that_is_held_stays_as_it_is),
        cmocka_unit_test(what_no_batch_can_hold_is_refused),
        cmocka_unit_test(an_item_of_other_columns_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
