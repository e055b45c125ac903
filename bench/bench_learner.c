/* What the learner itself costs: steps with an updater that does nothing, of batches that are in
 * memory, next to the optimizer alone; of batches from a replay server, next to the sampler alone;
 * and environment steps of a learner that makes its own rollouts, next to the same environment and
 * policy in a bare loop. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <troupe/agent.h>
#include <troupe/dqn.h>
#include <troupe/log.h>
#include <troupe/nn.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "scratch.h"

enum { BATCH = 128, COPIES = 16, STEPS = 200000, ITEMS = 10000, REPEATS = 3 };

struct bench {
    trp_agent agent;
    trp_columns columns;
    size_t params; /* of its network */
    char *dir;
    trp_replay_server *server;
    trp_channel *channel;
};

static void check(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "bench_learner: %s: %s\n", trp_status_name(status), trp_last_error());
    exit(1);
}

static double seconds_since(int64_t ns)
{
    return (double)(clock_now_ns(&clock_monotonic) - ns) * 1e-9;
}

/* ---- an updater and a source that do nothing ---------------------------------------------------
 */

static trp_status idle_step(trp_updater *updater, const trp_update *update)
{
    (void)updater;
    return trp_update_apply(update, 0);
}

static trp_updater *idle_updater(const struct bench *bench)
{
    static const trp_updater_impl impl = {.step = idle_step};
    trp_updater *updater = xcalloc(1, sizeof *updater);
    *updater = (trp_updater){.impl = &impl, .source_count = 1, .vector_count = 1};
    updater->sources[0] = (trp_batch_spec){.table = "transitions", .batch_size = BATCH};
    trp_columns_add_all(&updater->sources[0].columns, &bench->columns);
    updater->vectors[0] =
        (trp_vector_spec){.name = "params", .count = bench->params, .learned = true};
    return updater;
}

static trp_status ready_open(trp_source *source, const trp_source_use *use)
{
    (void)source, (void)use;
    return TRP_OK;
}

static trp_status ready_next(trp_source *source, trp_batch *batch, int64_t timeout_ms)
{
    (void)source, (void)timeout_ms;
    *batch = (trp_batch){.rows = BATCH};
    return TRP_OK;
}

static void ready_destroy(trp_source *source)
{
    (void)source;
}

static trp_source *ready_source(void)
{
    static const trp_source_impl impl = {
        .open = ready_open, .next = ready_next, .destroy = ready_destroy};
    static trp_source source = {.impl = &impl};
    return &source;
}

/* ---- rates -------------------------------------------------------------------------------------
 */

/* Steps a second of the learner's loop over `source`. */
static double learner_rate(const struct bench *bench, trp_source *source, uint64_t steps)
{
    trp_learner *learner;
    check(trp_learner_create(&learner,
                             &(trp_learner_loop_options){.updater = idle_updater(bench),
                                                         .sources = (trp_source *const[]){source},
                                                         .source_count = 1,
                                                         .max_steps = steps}));
    int64_t since = clock_now_ns(&clock_monotonic);
    check(trp_learner_run(learner));
    double seconds = seconds_since(since);
    trp_learner_destroy(learner);
    return (double)steps / seconds;
}

static double memory_rate(const struct bench *bench)
{
    return learner_rate(bench, ready_source(), STEPS);
}

static double optimizer_rate(const struct bench *bench)
{
    static const trp_optimizer adam;
    float *params = trp_floats_create(bench->params), *grads = trp_floats_create(bench->params);
    float *state[] = {trp_floats_create(bench->params), trp_floats_create(bench->params)};
    int64_t since = clock_now_ns(&clock_monotonic);
    for (uint64_t step = 1; step <= STEPS; step++) {
        float scale = trp_clip_scale(trp_norm2(grads, 0, bench->params), 0);
        trp_optimizer_step(&adam, step, scale, params, grads, state, 0, bench->params);
    }
    double seconds = seconds_since(since);
    trp_floats_destroy(params);
    trp_floats_destroy(grads);
    trp_floats_destroy(state[0]);
    trp_floats_destroy(state[1]);
    return STEPS / seconds;
}

static double replay_rate(const struct bench *bench)
{
    trp_source *source;
    check(trp_sampler_source_create(
        &source, &(trp_sampler_source_options){.shards = &bench->channel, .shard_count = 1}));
    return learner_rate(bench, source, STEPS / 10);
}

static double sampler_rate(const struct bench *bench)
{
    trp_sampler *sampler;
    trp_batch batch;
    check(trp_sampler_create(&sampler, bench->channel,
                             &(trp_sampler_options){.table = "transitions",
                                                    .columns = bench->columns.specs,
                                                    .column_count = bench->columns.count,
                                                    .batch_size = BATCH,
                                                    .prefetch = 2,
                                                    .limiter_timeout_ms = -1}));
    int64_t since = clock_now_ns(&clock_monotonic);
    for (int i = 0; i < STEPS / 10; i++)
        check(trp_sampler_next(sampler, &batch, -1));
    double seconds = seconds_since(since);
    trp_sampler_destroy(sampler);
    return STEPS / 10 / seconds;
}

/* Environment steps a second. */
static double rollout_rate(const struct bench *bench)
{
    trp_source *source;
    check(trp_agent_rollout_source_create(&source, &bench->agent, "CartPole-v1", 1,
                                          &(trp_agent_rollout_options){.copies = COPIES}));
    return learner_rate(bench, source, STEPS / 50) * BATCH;
}

static double bare_rate(const struct bench *bench)
{
    static float observations[COPIES * 4], rewards[COPIES];
    static bool terminated[COPIES], truncated[COPIES];
    static int32_t actions[COPIES];
    trp_env *env;
    trp_policy *policy;
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    check(trp_env_create(&env, "CartPole-v1", &(trp_env_options){.count = COPIES, .seed = 1}));
    check(trp_agent_policy_create(&policy, &bench->agent, "CartPole-v1",
                                  &(trp_policy_options){.rows = COPIES, .greedy = true}));
    void *rows[] = {observations};
    trp_act act = {
        .observations = (const void *const *)rows, .rows = COPIES, .rng = &rng, .actions = actions};
    trp_env_buffers buffers = {
        .observations = rows, .rewards = rewards, .terminated = terminated, .truncated = truncated};
    check(trp_env_reset(env, rows));
    int64_t since = clock_now_ns(&clock_monotonic);
    for (uint64_t steps = 0; steps < STEPS; steps += COPIES) {
        check(policy->impl->act(policy, &act));
        check(trp_env_step(env, actions, &buffers));
    }
    double seconds = seconds_since(since);
    trp_policy_destroy(policy);
    trp_env_destroy(env);
    return STEPS / seconds;
}

static double best(double (*rate)(const struct bench *), const struct bench *bench)
{
    double most = 0;
    for (int i = 0; i < REPEATS; i++) {
        double one = rate(bench);
        most = one > most ? one : most;
    }
    return most;
}

/* ---- the replay server
 * --------------------------------------------------------------------------- */

static void fill(const struct bench *bench)
{
    static const char zeros[256];
    const void *row[16];
    trp_item_column item[16];
    trp_writer *writer;
    check(trp_writer_create(&writer, bench->channel,
                            &(trp_writer_options){.columns = bench->columns.specs,
                                                  .column_count = bench->columns.count}));
    for (uint32_t c = 0; c < bench->columns.count; c++) {
        row[c] = zeros;
        item[c] = (trp_item_column){.column = c, .length = 1, .squeeze = true};
    }
    for (int i = 0; i < ITEMS; i++) {
        check(trp_writer_append(writer, row));
        check(
            trp_writer_create_item(writer, "transitions", 1, item, bench->columns.count, -1, NULL));
    }
    check(trp_writer_flush(writer, 0, -1));
    trp_writer_destroy(writer);
}

/* DQN's network says how many parameters there are. */
static void start(struct bench *bench)
{
    const trp_env_spec *env;
    trp_updater *updater;
    check(trp_env_find("CartPole-v1", &env));
    trp_nstep_columns(env, NULL, &bench->columns);
    bench->agent = trp_dqn(&(trp_dqn_options){.n_step = 1});
    check(bench->agent.impl->updater(&bench->agent, env, &(trp_updater_options){0}, &updater));
    bench->params = updater->vectors[0].count;
    trp_updater_destroy(updater);
    bench->dir = make_dir("/dev/shm");
    trp_table_options table = {
        .name = "transitions", .sampler = {.kind = TRP_UNIFORM}, .max_size = 2 * ITEMS};
    check(trp_replay_server_create(&bench->server,
                                   &(trp_replay_server_options){.dir = bench->dir,
                                                                .durability = TRP_DURABLE_MEMORY,
                                                                .max_bytes = 1 << 28,
                                                                .tables = &table,
                                                                .table_count = 1}));
    check(trp_replay_server_start(bench->server));
    bench->channel = trp_channel_create_local(trp_replay_server_rpc(bench->server));
    fill(bench);
}

static void end(struct bench *bench)
{
    trp_channel_destroy(bench->channel);
    trp_replay_server_destroy(bench->server);
    remove_dir(bench->dir);
    trp_columns_cleanup(&bench->columns);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    struct bench bench = {.agent = {0}};
    start(&bench);
    printf("learner, batches in memory\t%.0f\tsteps/s\t%.0f\tAdam alone\n",
           best(memory_rate, &bench), best(optimizer_rate, &bench));
    printf("learner, batches of 128 from replay\t%.0f\tsteps/s\t%.0f\tsampler "
           "alone\n",
           best(replay_rate, &bench), best(sampler_rate, &bench));
    printf("learner's own rollouts, CartPole-v1, 16 at once\t%.0f\tsteps/s\t%.0f\tenvironment and "
           "policy alone\n",
           best(rollout_rate, &bench), best(bare_rate, &bench));
    end(&bench);
    return 0;
}
