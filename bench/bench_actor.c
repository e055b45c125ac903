/* A whole actor on CartPole (epsilon-greedy policy, n-step adder, writer over a unix socket to a
 * replay server with threads of its own), next to the same environment and policy in a bare loop
 * that keeps nothing; then samples of what the actors wrote. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/agent.h>
#include <troupe/adder.h>
#include <troupe/dqn.h>
#include <troupe/log.h>
#include <troupe/sampler.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "scratch.h"

enum { STEPS = 400000, COPIES_MAX = 64, REPEATS = 3, BATCH = 256 };

struct bench {
    trp_agent agent;
    char *dir;
    const char *table;
    trp_replay_server *server;
    trp_channel *channel;
    trp_learner *learner; /* never runs: its service has the first parameters */
    uint64_t runs;
};

static void check(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "bench_actor: %s: %s\n", trp_status_name(status), trp_last_error());
    exit(1);
}

static void start(struct bench *bench)
{
    bench->agent = trp_dqn(&(trp_dqn_options){.samples_per_insert = -1, .min_replay_size = 1});
    bench->dir = make_dir("/dev/shm");
    trp_agent_table_list tables;
    check(trp_agent_tables(&bench->agent, "CartPole-v1", &tables));
    bench->table = tables.tables[0].name;
    char *address = xasprintf("unix:%s/socket", bench->dir);
    char *store = xasprintf("%s/store", bench->dir);
    check(trp_replay_server_create(&bench->server, &(trp_replay_server_options){
                                                       .dir = store,
                                                       .durability = TRP_DURABLE_MEMORY,
                                                       .max_bytes = 1 << 30,
                                                       .tables = tables.tables,
                                                       .table_count = tables.count,
                                                       .server = {.address = address},
                                                   }));
    check(trp_replay_server_start(bench->server));
    check(trp_channel_create(&bench->channel, address, NULL));
    check(trp_agent_learner_create(&bench->learner, &bench->agent,
                                   &(trp_agent_learner_options){.env = "CartPole-v1",
                                                                .replays = &bench->channel,
                                                                .replay_count = 1}));
    trp_agent_table_list_cleanup(&tables);
    free(address);
    free(store);
}

static void end(struct bench *bench)
{
    trp_learner_destroy(bench->learner);
    trp_channel_destroy(bench->channel);
    trp_replay_server_destroy(bench->server);
    remove_dir(bench->dir);
}

static double actor_rate(struct bench *bench, uint32_t copies)
{
    trp_actor *actor;
    char name[32]; /* another one each time: limits count what all did together */
    snprintf(name, sizeof name, "actor/%llu", (unsigned long long)bench->runs++);
    check(trp_agent_actor_create(&actor, &bench->agent,
                                 &(trp_agent_actor_options){
                                     .env = "CartPole-v1",
                                     .copies = copies,
                                     .replay = bench->channel,
                                     .params = trp_learner_service(bench->learner),
                                     .seed = 1,
                                     .name = name,
                                     .max_steps = bench->runs * STEPS,
                                 }));
    int64_t since = clock_now_ns(&clock_monotonic);
    check(trp_actor_run(actor)); /* everything confirmed */
    int64_t ns = clock_now_ns(&clock_monotonic) - since;
    uint64_t steps = trp_actor_read(actor).steps;
    trp_actor_destroy(actor);
    return (double)steps / ((double)ns * 1e-9);
}

static double bare_rate(struct bench *bench, uint32_t copies)
{
    static float observations[COPIES_MAX * 4], rewards[COPIES_MAX];
    static bool terminated[COPIES_MAX], truncated[COPIES_MAX];
    static int32_t actions[COPIES_MAX];
    trp_env *env;
    trp_policy *policy;
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    check(trp_env_create(&env, "CartPole-v1", &(trp_env_options){.count = copies, .seed = 1}));
    check(trp_agent_policy_create(&policy, &bench->agent, "CartPole-v1",
                                  &(trp_policy_options){.rows = copies, .greedy = true}));
    void *rows[] = {observations};
    trp_act act = {
        .observations = (const void *const *)rows, .rows = copies, .rng = &rng, .actions = actions};
    trp_env_buffers buffers = {
        .observations = rows, .rewards = rewards, .terminated = terminated, .truncated = truncated};
    check(trp_env_reset(env, rows));
    int64_t since = clock_now_ns(&clock_monotonic);
    for (uint64_t steps = 0; steps < STEPS; steps += copies) {
        check(policy->impl->act(policy, &act));
        check(trp_env_step(env, actions, &buffers));
    }
    int64_t ns = clock_now_ns(&clock_monotonic) - since;
    trp_policy_destroy(policy);
    trp_env_destroy(env);
    return STEPS / ((double)ns * 1e-9);
}

static double sample_rate(struct bench *bench, uint32_t samples)
{
    const trp_env_spec *env;
    trp_columns columns = {0};
    trp_sampler *sampler;
    trp_batch batch;
    check(trp_env_find("CartPole-v1", &env));
    trp_nstep_columns(env, NULL, &columns);
    check(trp_sampler_create(&sampler, bench->channel,
                             &(trp_sampler_options){.table = bench->table,
                                                    .columns = columns.specs,
                                                    .column_count = columns.count,
                                                    .batch_size = BATCH}));
    int64_t since = clock_now_ns(&clock_monotonic);
    for (uint32_t sampled = 0; sampled < samples; sampled += BATCH)
        check(trp_sampler_next(sampler, &batch, 10000));
    int64_t ns = clock_now_ns(&clock_monotonic) - since;
    trp_sampler_destroy(sampler);
    trp_columns_cleanup(&columns);
    return samples / ((double)ns * 1e-9);
}

static double best(double (*rate)(struct bench *, uint32_t), struct bench *bench, uint32_t copies)
{
    double most = 0;
    for (int i = 0; i < REPEATS; i++) {
        double one = rate(bench, copies);
        most = one > most ? one : most;
    }
    return most;
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    struct bench bench = {0};
    start(&bench);
    const uint32_t copies[] = {1, 16};
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
        printf(
            "actor, CartPole-v1, %u at once\t%.0f\tsteps/s\t%.0f\tenvironment and policy alone\n",
            copies[i], best(actor_rate, &bench, copies[i]), best(bare_rate, &bench, copies[i]));
    printf("samples of them, batches of %d\t%.0f\tsamples/s\n", BATCH,
           best(sample_rate, &bench, 4 * STEPS));
    end(&bench);
    return 0;
}
