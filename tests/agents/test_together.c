/* Agents with two learners in one process. A group of DQN learners with prioritized batches is one
 * with batches of twice the size, but for rounding; learners that step environments of their own
 * end with the same parameters to the bit. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/troupe.h>
#include "core/alloc.h"
#include "core/thread.h"
#include "params.pb-c.h"

enum { LEARNERS = 2, ROWS = 8, STEPS = 12 };

/* ---- rows that follow from their numbers ------------------------------------------------------
 */

struct row_source {
    trp_source base;
    const trp_batch_spec *spec;
    uint64_t given;
    uint32_t index, learners; /* who has so many of each step's 2 * ROWS in a batch: */
    uint32_t rows;
    void **columns;
    uint64_t keys[LEARNERS * ROWS];
    int64_t table_sizes[LEARNERS * ROWS];
    double probabilities[LEARNERS * ROWS];
};

static trp_status rows_open(trp_source *base, const trp_source_use *use)
{
    struct row_source *source = (struct row_source *)base;
    source->spec = use->spec;
    source->columns = xcalloc(use->spec->columns.count, sizeof(void *));
    for (size_t i = 0; i < use->spec->columns.count; i++)
        source->columns[i] = xcalloc(source->rows, trp_tensor_bytes(&use->spec->columns.specs[i]));
    return TRP_OK;
}

static void fill_row(const trp_tensor_spec *spec, trp_rng *rng, void *row)
{
    size_t count = trp_tensor_bytes(spec) / trp_dtype_size(spec->dtype);
    for (size_t i = 0; i < count; i++)
        if (spec->dtype == TRP_INT32)
            ((int32_t *)row)[i] = (int32_t)trp_rng_below(rng, 2);
        else if (spec->dtype == TRP_FLOAT32)
            ((float *)row)[i] = (float)trp_rng_double(rng);
        else
            ((uint8_t *)row)[i] = 1;
}

static trp_status rows_next(trp_source *base, trp_batch *batch, int64_t timeout_ms)
{
    (void)timeout_ms;
    struct row_source *source = (struct row_source *)base;
    const trp_columns *columns = &source->spec->columns;
    uint64_t first = (source->given++ * source->learners + source->index) * source->rows;
    for (uint32_t row = 0; row < source->rows; row++) {
        trp_rng rng;
        trp_rng_init(&rng, 3, first + row);
        for (size_t i = 0; i < columns->count; i++)
            fill_row(&columns->specs[i], &rng,
                     (char *)source->columns[i] + row * trp_tensor_bytes(&columns->specs[i]));
        source->table_sizes[row] = 100;
        source->probabilities[row] = 0.001 + 0.02 * trp_rng_double(&rng);
    }
    *batch = (trp_batch){.rows = source->rows,
                         .columns = source->columns,
                         .keys = source->keys,
                         .table_sizes = source->table_sizes,
                         .probabilities = source->probabilities};
    return TRP_OK;
}

static trp_status rows_take(trp_source *base, const trp_batch *batch, const double *priorities,
                            int64_t timeout_ms)
{
    (void)base, (void)timeout_ms;
    for (uint32_t row = 0; row < batch->rows; row++)
        assert_true(priorities[row] > 0);
    return TRP_OK;
}

static void rows_destroy(trp_source *base)
{
    struct row_source *source = (struct row_source *)base;
    for (size_t i = 0; source->columns && i < source->spec->columns.count; i++)
        free(source->columns[i]);
    free(source->columns);
    free(source);
}

static const trp_source_impl rows_impl = {
    .open = rows_open, .next = rows_next, .update_priorities = rows_take, .destroy = rows_destroy};

/* ---- learners ---------------------------------------------------------------------------------
 */

struct together {
    trp_agent agent;
    trp_gang *gang;
    const char *mode;
    bool acts;
    uint32_t index, learners, rounds; /* batches of each in a step; 0: 1 */
    struct thread thread;
    trp_status status;
    char *words;
    float *params;
    size_t count;
    trp_learner_counters counters;
};

static trp_learner_loop_options loop_of(struct together *own)
{
    trp_learner_loop_options options = {.max_steps = STEPS, .seed = 1, .publish_every = STEPS};
    if (own->gang)
        options.group =
            (trp_learner_group_options){.rendezvous = trp_gang_member(own->gang, own->index),
                                        .mode = own->mode,
                                        .count = own->learners * own->rounds,
                                        .bucket_bytes = 1024};
    return options;
}

static trp_status create_with_rows(struct together *own, trp_learner **out)
{
    uint32_t rows = ROWS * LEARNERS / own->learners / own->rounds;
    const trp_env_spec *env;
    struct row_source *source = xcalloc(1, sizeof *source);
    trp_source *sources[] = {&source->base};
    *source = (struct row_source){
        .base.impl = &rows_impl, .index = own->index, .learners = own->learners, .rows = rows};
    trp_learner_loop_options loop = loop_of(own);
    TRP_TRY(trp_env_find("CartPole-v1", &env));
    TRP_TRY(own->agent.impl->updater(&own->agent, env, &(trp_updater_options){.batch_size = rows},
                                     &loop.updater));
    loop.sources = sources;
    loop.source_count = 1;
    return trp_learner_create(out, &loop);
}

static trp_status create_acting(struct together *own, trp_learner **out)
{
    return trp_agent_learner_create(
        out, &own->agent,
        &(trp_agent_learner_options){
            .env = "CartPole-v1",
            .rollout = {.name = "learner", .copies = 2, .index = own->index},
            .seed = 1,
            .loop = loop_of(own)});
}

static void keep_params(struct together *own, trp_learner *learner)
{
    Troupe__PullRequest request = TROUPE__PULL_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.client = "test";
    assert_int_equal(trp_call(trp_learner_service(learner), "Pull", &request.base, &reply, NULL),
                     TRP_OK);
    const Troupe__PullReply *pulled = (Troupe__PullReply *)reply;
    own->count = pulled->params.len / sizeof(float);
    own->params = own->count > 0 ? xmemdup(pulled->params.data, pulled->params.len) : NULL;
    protobuf_c_message_free_unpacked(reply, NULL);
}

static void learn_together(void *argument)
{
    struct together *own = argument;
    trp_learner *learner = NULL;
    own->status = own->acts ? create_acting(own, &learner) : create_with_rows(own, &learner);
    if (own->status == TRP_OK)
        own->status = trp_learner_run(learner);
    if (own->status != TRP_OK)
        own->words = xstrdup(trp_last_error());
    if (learner) {
        own->counters = trp_learner_read(learner);
        keep_params(own, learner);
    }
    if (own->gang)
        trp_gang_left(own->gang, own->index, own->words);
    trp_learner_destroy(learner);
}

/* `own` are the learners of one group; of one without a group there is no gang. */
static void run_together(struct together *own, uint32_t learners, struct together how)
{
    trp_gang *gang =
        learners > 1 ? trp_gang_create(&(trp_gang_options){.name = "learner", .count = learners})
                     : NULL;
    for (uint32_t i = 0; i < learners; i++) {
        own[i] = how;
        own[i].gang = gang;
        own[i].index = i;
        own[i].learners = learners;
        own[i].rounds = how.rounds && learners > 1 ? how.rounds : 1;
        assert_int_equal(thread_start(&own[i].thread, "learner", learn_together, &own[i]), TRP_OK);
    }
    for (uint32_t i = 0; i < learners; i++) {
        thread_stop(&own[i].thread);
        if (own[i].status != TRP_OK)
            fail_msg("learner %u: %s", i, own[i].words);
        assert_int_equal(own[i].counters.steps, STEPS);
    }
    trp_gang_destroy(gang);
}

static void free_together(struct together *own, uint32_t learners)
{
    for (uint32_t i = 0; i < learners; i++)
        free(own[i].params);
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void check_two_are_one(struct together how)
{
    struct together two[LEARNERS], one[1];
    run_together(two, LEARNERS, how);
    run_together(one, 1, how);
    assert_true(one[0].count > 0);
    assert_int_equal(two[0].count, one[0].count);
    for (size_t i = 0; i < one[0].count; i++)
        assert_float_equal(two[0].params[i], one[0].params[i],
                           1e-6 + 1e-5 * fabs((double)one[0].params[i]));
    free_together(two, LEARNERS);
    free_together(one, 1);
}

/* As where of four learners two are left. Target networks follow once a step. Weights would be over
 * the largest of each round. */
static void steps_may_be_of_several_batches_of_each(void **state)
{
    (void)state;
    check_two_are_one((struct together){
        .agent = trp_dqn(&(trp_dqn_options){
            .hidden = {16}, .target_rate = 0.25F, .importance_exponent = -1, .min_replay_size = 1}),
        .rounds = 2});
}

/* Weights are over the largest of both batches, or the two would not weigh alike. */
static void two_dqn_learners_are_one_with_batches_of_twice_the_size(void **state)
{
    (void)state;
    for (int sharded = 0; sharded < 2; sharded++)
        check_two_are_one(
            (struct together){.agent = trp_dqn(&(trp_dqn_options){.hidden = {16},
                                                                  .priority_exponent = 0.6F,
                                                                  .importance_exponent = 0.8F,
                                                                  .target_period = 4,
                                                                  .max_gradient_norm = 1,
                                                                  .min_replay_size = 1}),
                              .mode = sharded ? "sharded" : NULL});
}

static void learners_that_act_end_with_the_same_parameters(void **state)
{
    (void)state;
    const trp_agent agents[] = {
        trp_dqn(&(trp_dqn_options){.hidden = {16}, .batch_size = 16, .min_replay_size = 1}),
        trp_ppo(&(trp_ppo_options){
            .hidden = {16}, .unroll = 16, .batch_size = 2, .minibatches = 2, .target_kl = 1e-4F}),
        trp_a3c(&(trp_a3c_options){.hidden = {16}, .unroll = 8, .batch_size = 2}),
    };
    for (size_t i = 0; i < sizeof agents / sizeof *agents; i++)
        for (int sharded = 0; sharded < 2; sharded++) {
            struct together two[LEARNERS];
            run_together(two, LEARNERS,
                         (struct together){
                             .agent = agents[i], .mode = sharded ? "sharded" : NULL, .acts = true});
            assert_true(two[0].count > 0);
            assert_int_equal(two[0].count, two[1].count);
            assert_memory_equal(two[0].params, two[1].params, two[0].count * sizeof(float));
            assert_true(two[0].counters.actor_steps > 0);
            assert_true(two[1].counters.actor_steps > 0);
            free_together(two, LEARNERS);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_dqn_learners_are_one_with_batches_of_twice_the_size),
        cmocka_unit_test(steps_may_be_of_several_batches_of_each),
        cmocka_unit_test(learners_that_act_end_with_the_same_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
