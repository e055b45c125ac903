/* The hash of a graph changes with everything that decides what nodes do. */
#include <troupe/ppo.h>
#include <troupe/r2d2.h>
#include "graph_fixture.h"

static void equal_programs_have_equal_hashes(void **state)
{
    struct fixture *fixture = *state;
    trp_program *other = trp_program_create("cartpole");
    add_all(fixture->program, &fixture->agent);
    trp_agent agent = trp_dqn(&(trp_dqn_options){.n_step = 3});
    add_all(other, &agent);
    assert_int_equal(program_check(fixture->program), TRP_OK);
    assert_int_equal(program_check(other), TRP_OK);
    assert_true(program_hash(fixture->program) == program_hash(other));
    trp_program_destroy(other);
}

/* Of two replays and two learners to choose from, and then what `add` makes of some options. */
typedef void (*add_node)(trp_program *program, const void *options);

static uint64_t hash_with(const char *name, add_node add, const void *options)
{
    trp_agent agent = trp_dqn(NULL);
    trp_program *program = trp_program_create(name);
    trp_replay_options replay = {.agent = &agent, .env = "Catch"};
    trp_learner_options learner = {
        .agent = &agent, .env = "Catch", .replay = trp_add_replay(program, "one", &replay)};
    trp_add_replay(program, "two", &replay);
    trp_add_learner(program, "three", &learner);
    trp_add_learner(program, "four", &learner);
    if (add)
        add(program, options);
    if (program->error)
        fail_msg("%s", program->error);
    uint64_t hash = program_hash(program);
    trp_program_destroy(program);
    return hash;
}

static void add_a_replay(trp_program *program, const void *options)
{
    trp_add_replay(program, "x", options);
}

static void add_a_table(trp_program *program, const void *options)
{
    trp_add_replay(program, "x", &(trp_replay_options){.tables = options, .table_count = 1});
}

static void add_a_learner(trp_program *program, const void *options)
{
    trp_add_learner(program, "x", options);
}

static void add_a_parameter_server(trp_program *program, const void *options)
{
    trp_add_parameter_server(program, "x", 1, options);
}

static void add_an_actor(trp_program *program, const void *options)
{
    trp_add_actors(program, "x", 1, options);
}

static void add_two_actors(trp_program *program, const void *options)
{
    trp_add_actors(program, "x", 2, options);
}

static void add_an_evaluator(trp_program *program, const void *options)
{
    trp_add_evaluator(program, "x", options);
}

static void add_a_node(trp_program *program, const void *options)
{
    trp_add_node(program, "x", options);
}

static void add_a_node_y(trp_program *program, const void *options)
{
    trp_add_node(program, "y", options);
}

static void add_agent(trp_program *program, trp_agent agent)
{
    trp_add_learner(program, "x", &(trp_learner_options){.agent = &agent, .replay = {1}});
}

static void add_dqn(trp_program *program, const void *options)
{
    add_agent(program, trp_dqn(options));
}

static void add_ppo(trp_program *program, const void *options)
{
    add_agent(program, trp_ppo(options));
}

static void add_r2d2(trp_program *program, const void *options)
{
    add_agent(program, trp_r2d2(options));
}

static void hashes_differ_with_names_counts_and_kinds(void **state)
{
    struct fixture *fixture = *state;
    trp_node_options node = {.run = run_nothing};
    trp_actor_options actor = {
        .agent = &fixture->agent, .env = "Catch", .replay = {1}, .params = {3}};
    const uint64_t hashes[] = {
        hash_with("p", NULL, NULL),
        hash_with("q", NULL, NULL),
        hash_with("p", add_a_node, &node),
        hash_with("p", add_a_node_y, &node),
        hash_with("p", add_an_actor, &actor),
        hash_with("p", add_two_actors, &actor),
        hash_with("p", add_an_evaluator, &actor),
    };
    for (size_t i = 0; i < sizeof hashes / sizeof *hashes; i++)
        for (size_t k = 0; k < i; k++)
            assert_true(hashes[i] != hashes[k]);
}

/* One field of an options struct and another value for it. NULL: another value changes nothing,
 * and why is said beside it. */
struct field {
    const char *name;
    size_t offset, size;
    const void *other;
};

#define FIELD(type, field) #field, offsetof(type, field), sizeof((type){0}.field)
#define OTHER(type, field, ...)                                                                    \
    {                                                                                              \
        FIELD(type, field), &(const __typeof__((type){0}.field))__VA_ARGS__                        \
    }

/* `used` has a byte other than 0 for each byte of the struct that is no padding: a field without a
 * row is found here. */
static void assert_every_field_has_a_row(const struct field *fields, size_t count,
                                         const unsigned char *used, size_t size)
{
    for (size_t at = 0; at < size; at++) {
        bool has_row = false;
        for (size_t i = 0; i < count; i++)
            has_row = has_row || at - fields[i].offset < fields[i].size;
        if (used[at] && !has_row)
            fail_msg("no row for what is at byte %zu of the options", at);
    }
}

static void assert_every_field_is_hashed(const struct field *fields, size_t count, add_node add,
                                         const void *options, size_t size)
{
    const uint64_t hash = hash_with("p", add, options);
    assert_true(hash == hash_with("p", add, options));
    unsigned char *changed = malloc(size);
    for (size_t i = 0; i < count; i++) {
        if (!fields[i].other)
            continue;
        memcpy(changed, options, size);
        memcpy(changed + fields[i].offset, fields[i].other, fields[i].size);
        if (hash_with("p", add, changed) == hash)
            fail_msg("another .%s has the same hash", fields[i].name);
    }
    free(changed);
}

#if defined(__GNUC__) && !defined(__clang__)
#define CLEAR_PADDING(value) __builtin_clear_padding(value)
#else
#define CLEAR_PADDING(value) memset(value, 0, sizeof *(value)) /* the other compiler looks */
#endif

#define ASSERT_HASHED(type, fields, add, options)                                                  \
    do {                                                                                           \
        type used;                                                                                 \
        memset(&used, 0xff, sizeof used);                                                          \
        CLEAR_PADDING(&used);                                                                      \
        const size_t count = sizeof(fields) / sizeof *(fields);                                    \
        assert_every_field_has_a_row(fields, count, (const unsigned char *)&used, sizeof used);    \
        assert_every_field_is_hashed(fields, count, add, options, sizeof used);                    \
    } while (0)

static trp_agent other_agent;
static const trp_table_options tables[] = {{.name = "a"}, {.name = "b"}};

static void every_option_of_a_replay_is_hashed(void **state)
{
    struct fixture *fixture = *state;
    const struct field fields[] = {
        OTHER(trp_replay_options, agent, {&other_agent}),
        OTHER(trp_replay_options, env, {"CartPole-v1"}),
        OTHER(trp_replay_options, tables, {tables + 1}),
        OTHER(trp_replay_options, table_count, {2}),
        OTHER(trp_replay_options, shards, {2}),
        OTHER(trp_replay_options, durability, {TRP_DURABLE_SYSTEM}),
        OTHER(trp_replay_options, max_bytes, {1}),
        OTHER(trp_replay_options, address, {"127.0.0.1:1"}),
        OTHER(trp_replay_options, insecure, {true}),
        OTHER(trp_replay_options, dir, {"elsewhere"}),
        OTHER(trp_replay_options, restore, {"checkpoint"}),
        OTHER(trp_replay_options, checkpoint_dir, {"elsewhere"}),
        OTHER(trp_replay_options, keep_checkpoints, {1}),
        OTHER(trp_replay_options, shrink, {true}),
        OTHER(trp_replay_options, verify, {true}),
        OTHER(trp_replay_options, in_flight_bytes, {1}),
        OTHER(trp_replay_options, lease_ms, {1}),
        OTHER(trp_replay_options, no_share, {true}),
    };
    other_agent = trp_dqn(&(trp_dqn_options){.n_step = 4});
    ASSERT_HASHED(
        trp_replay_options, fields, add_a_replay,
        (&(trp_replay_options){.agent = &fixture->agent, .tables = tables, .table_count = 1}));
}

static void every_option_of_a_table_is_hashed(void **state)
{
    (void)state;
    const struct field fields[] = {
        OTHER(trp_table_options, name, {"y"}),
        OTHER(trp_table_options, sampler.kind, {TRP_LIFO}),
        OTHER(trp_table_options, sampler.exponent, {0.5000001}),
        OTHER(trp_table_options, remover.kind, {TRP_LIFO}),
        OTHER(trp_table_options, remover.exponent, {0.5000001}),
        OTHER(trp_table_options, remover_set, {false}),
        OTHER(trp_table_options, max_size, {7}),
        OTHER(trp_table_options, max_times_sampled, {7}),
        OTHER(trp_table_options, max_bytes, {7}),
        OTHER(trp_table_options, insert_on_sample, {"y"}),
        OTHER(trp_table_options, no_replacement, {true}),
        OTHER(trp_table_options, seed, {7}),
        OTHER(trp_table_options, limiter.samples_per_insert, {4.0000001}),
        OTHER(trp_table_options, limiter.min_size, {101}),
        OTHER(trp_table_options, limiter.min_diff, {349.99999}),
        OTHER(trp_table_options, limiter.max_diff, {450.00001}),
        OTHER(trp_table_options, signature, {(const uint8_t *)"y", 1}),
        OTHER(trp_table_options, line, {"y"}),
    };
    const trp_table_options options = {
        .name = "x",
        .sampler = {TRP_PRIORITIZED, 0.5},
        .remover = {TRP_PRIORITIZED, 0.5},
        .remover_set = true,
        .limiter = trp_limiter_samples_per_insert(4, 100, 50),
        .signature = {(const uint8_t *)"x", 1},
    };
    ASSERT_HASHED(trp_table_options, fields, add_a_table, &options);
}

/* What differs after so many characters differs. */
static void long_options_are_hashed_to_their_end(void **state)
{
    (void)state;
    char one[2000] = "unix:", other[2000];
    memset(one + 5, 'a', sizeof one - 6);
    memcpy(other, one, sizeof one);
    other[sizeof other - 2] = 'b';
    assert_true(
        hash_with("p", add_a_table, &(trp_table_options){.name = "x", .insert_on_sample = one}) !=
        hash_with("p", add_a_table, &(trp_table_options){.name = "x", .insert_on_sample = other}));
    trp_replay_options replay = {.tables = tables, .table_count = 1, .address = one};
    uint64_t hash = hash_with("p", add_a_replay, &replay);
    replay.address = other;
    assert_true(hash_with("p", add_a_replay, &replay) != hash);
}

static void every_option_of_a_learner_is_hashed(void **state)
{
    struct fixture *fixture = *state;
    const struct field fields[] = {
        OTHER(trp_learner_options, agent, {&other_agent}),
        OTHER(trp_learner_options, env, {"CartPole-v1"}),
        OTHER(trp_learner_options, replay, {2}),
        OTHER(trp_learner_options, dataset, {"runs/1/replay"}),
        OTHER(trp_learner_options, envs, {8}),
        OTHER(trp_learner_options, dataset_shuffle, {1}),
        OTHER(trp_learner_options, dataset_epochs, {1}),
        OTHER(trp_learner_options, batch_size, {1}),
        OTHER(trp_learner_options, device, {"ref"}),
        OTHER(trp_learner_options, gpus, {"1"}),
        OTHER(trp_learner_options, threads, {2}),
        OTHER(trp_learner_options, prefetch, {1}),
        OTHER(trp_learner_options, publish_every, {1}),
        OTHER(trp_learner_options, checkpoint_every_s, {1}),
        OTHER(trp_learner_options, max_steps, {1}),
        OTHER(trp_learner_options, count, {2}),
        OTHER(trp_learner_options, mode, {TRP_LEARNERS_SHARDED}),
        OTHER(trp_learner_options, sites, {"east"}),
        OTHER(trp_learner_options, significance, {0.5}),
        OTHER(trp_learner_options, site_slack, {1}),
        OTHER(trp_learner_options, local_steps, {1}),
        OTHER(trp_learner_options, outer_momentum, {1}),
        {FIELD(trp_learner_options, server), NULL}, /* an edge, as .replay; of no node here */
        OTHER(trp_learner_options, bucket_bytes, {1}),
        OTHER(trp_learner_options, compression, {TRP_COMPRESSION_QSGD}),
        OTHER(trp_learner_options, compression_ratio, {0.5}),
        OTHER(trp_learner_options, compression_warmup_steps, {1}),
        OTHER(trp_learner_options, compression_momentum, {0.5}),
        OTHER(trp_learner_options, compression_keep_momentum, {true}),
        OTHER(trp_learner_options, compression_rank, {1}),
        OTHER(trp_learner_options, compression_bits, {4}),
        OTHER(trp_learner_options, on_failure, {TRP_ON_FAILURE_CONTINUE}),
        OTHER(trp_learner_options, min_learners, {2}),
        OTHER(trp_learner_options, restarts, {1}),
        OTHER(trp_learner_options, collective_timeout_ms, {1}),
        OTHER(trp_learner_options, no_share, {true}),
    };
    other_agent = trp_dqn(&(trp_dqn_options){.n_step = 4});
    ASSERT_HASHED(trp_learner_options, fields, add_a_learner,
                  (&(trp_learner_options){.agent = &fixture->agent, .replay = {1}}));
}

static void every_option_of_a_parameter_server_is_hashed(void **state)
{
    (void)state;
    const struct field fields[] = {
        OTHER(trp_parameter_server_options, rule, {TRP_SERVER_ASYNC}),
        OTHER(trp_parameter_server_options, slack, {1}),
        OTHER(trp_parameter_server_options, softness, {2}),
        OTHER(trp_parameter_server_options, max_staleness, {1}),
        OTHER(trp_parameter_server_options, push_every, {2}),
        OTHER(trp_parameter_server_options, fetch_every, {2}),
        OTHER(trp_parameter_server_options, idle_hosts, {1}),
        OTHER(trp_parameter_server_options, durability, {TRP_SERVER_KEEPS_CHECKPOINTS}),
        OTHER(trp_parameter_server_options, restarts, {1}),
        OTHER(trp_parameter_server_options, threads, {1}),
        OTHER(trp_parameter_server_options, in_flight_bytes, {1}),
        OTHER(trp_parameter_server_options, no_share, {true}),
    };
    ASSERT_HASHED(trp_parameter_server_options, fields, add_a_parameter_server,
                  (&(trp_parameter_server_options){0}));
}

static void every_option_of_an_actor_is_hashed(void **state)
{
    struct fixture *fixture = *state;
    const struct field fields[] = {
        OTHER(trp_actor_options, agent, {&other_agent}),
        OTHER(trp_actor_options, env, {"CartPole-v1"}),
        OTHER(trp_actor_options, replay, {2}),
        OTHER(trp_actor_options, params, {4}),
        OTHER(trp_actor_options, envs, {2}),
        OTHER(trp_actor_options, max_steps, {1}),
        OTHER(trp_actor_options, max_episodes, {1}),
        OTHER(trp_actor_options, pull_every_steps, {1}),
        OTHER(trp_actor_options, sync_every_items, {1}),
        OTHER(trp_actor_options, max_lag, {1}),
        OTHER(trp_actor_options, device, {"ref"}),
        OTHER(trp_actor_options, gpus, {"1"}),
        OTHER(trp_actor_options, max_age_s, {0.5}),
        OTHER(trp_actor_options, params_precision, {TRP_PARAMS_BF16}),
        OTHER(trp_actor_options, restarts, {1}),
        {FIELD(trp_actor_options, episodes), NULL}, /* this and the next: no options of an actor */
        {FIELD(trp_actor_options, best), NULL},
        {FIELD(trp_actor_options, stochastic), NULL},
        {FIELD(trp_actor_options, target_return), NULL},
    };
    other_agent = trp_dqn(&(trp_dqn_options){.n_step = 4});
    ASSERT_HASHED(trp_actor_options, fields, add_an_actor,
                  (&(trp_actor_options){
                      .agent = &fixture->agent, .env = "Catch", .replay = {1}, .params = {3}}));
}

static void every_option_of_an_evaluator_is_hashed(void **state)
{
    struct fixture *fixture = *state;
    const struct field fields[] = {
        OTHER(trp_actor_options, agent, {&other_agent}),
        OTHER(trp_actor_options, env, {"CartPole-v1"}),
        {FIELD(trp_actor_options, replay), NULL}, /* this and .max_steps: no options of it */
        OTHER(trp_actor_options, params, {4}),
        OTHER(trp_actor_options, envs, {1}),
        {FIELD(trp_actor_options, max_steps), NULL},
        {FIELD(trp_actor_options, max_episodes), NULL},
        {FIELD(trp_actor_options, pull_every_steps), NULL},
        {FIELD(trp_actor_options, sync_every_items), NULL},
        {FIELD(trp_actor_options, max_lag), NULL},
        OTHER(trp_actor_options, device, {"ref"}),
        OTHER(trp_actor_options, gpus, {"1"}),
        {FIELD(trp_actor_options, max_age_s), NULL},
        OTHER(trp_actor_options, params_precision, {TRP_PARAMS_BF16}),
        {FIELD(trp_actor_options, restarts), NULL},
        OTHER(trp_actor_options, episodes, {1}),
        OTHER(trp_actor_options, best, {3}),
        OTHER(trp_actor_options, stochastic, {true}),
        OTHER(trp_actor_options, target_return, {1e-9}),
    };
    other_agent = trp_dqn(&(trp_dqn_options){.n_step = 4});
    ASSERT_HASHED(trp_actor_options, fields, add_an_evaluator,
                  (&(trp_actor_options){.agent = &fixture->agent, .env = "Catch", .params = {3}}));
}

static void every_option_of_a_node_is_hashed(void **state)
{
    (void)state;
    const trp_node uses[] = {{1}, {2}};
    const ProtobufCServiceDescriptor other = {.name = "Other"};
    const ProtobufCServiceDescriptor *const serves[] = {trp_params_descriptor(), &other};
    const struct field fields[] = {
        {FIELD(trp_node_options, run), NULL}, /* an address, another one in each process */
        OTHER(trp_node_options, arg, {"arh"}),
        OTHER(trp_node_options, arg_size, {2}),
        OTHER(trp_node_options, uses, {uses + 1}),
        OTHER(trp_node_options, use_count, {2}),
        OTHER(trp_node_options, serves, {serves + 1}),
        OTHER(trp_node_options, serve_count, {2}),
        OTHER(trp_node_options, count, {2}),
        {FIELD(trp_node_options, options), NULL}, /* then options are hashed, not bytes */
    };
    ASSERT_HASHED(trp_node_options, fields, add_a_node,
                  (&(trp_node_options){.run = run_nothing,
                                       .arg = "arg",
                                       .arg_size = 3,
                                       .uses = uses,
                                       .use_count = 1,
                                       .serves = serves,
                                       .serve_count = 1}));
}

/* A table that has a row for every field, and a value that is no field's default by the row's type.
 * `used` has a 1 in every byte that is no padding. */
static void assert_every_option_is_hashed(const trp_option_table *table,
                                          void (*add)(trp_program *, const void *),
                                          const void *options, const unsigned char *used)
{
    static const union {
        uint32_t list[TRP_NET_HIDDEN_MAX]; /* all whole numbers begin with a 1 */
        float f32;
    } whole = {{1}}, third = {.f32 = 1.0F / 3};
    struct field fields[64];
    assert_true(table->count <= sizeof fields / sizeof *fields);
    for (size_t i = 0; i < table->count; i++) {
        const trp_option *option = &table->options[i];
        bool fraction = option->type == TRP_OPTION_F32;
        fields[i] = (struct field){option->name, option->offset, option->bytes,
                                   fraction ? (const void *)&third : &whole};
    }
    assert_every_field_has_a_row(fields, table->count, used, table->bytes);
    assert_every_field_is_hashed(fields, table->count, add, options, table->bytes);
}

#define ASSERT_OPTIONS_HASHED(options_type, table, add, ...)                                       \
    do {                                                                                           \
        const options_type options_ = __VA_ARGS__;                                                 \
        options_type used_;                                                                        \
        memset(&used_, 0xff, sizeof used_);                                                        \
        CLEAR_PADDING(&used_);                                                                     \
        assert_every_option_is_hashed(table, add, &options_, (const unsigned char *)&used_);       \
    } while (0)

/* What is no default of these, and no 1 either. */
static void every_option_of_an_agent_is_hashed(void **state)
{
    (void)state;
    ASSERT_OPTIONS_HASHED(trp_dqn_options, trp_dqn_option_table(), add_dqn,
                          {.hidden = {64, 64}, .activation = TRP_TANH});
    ASSERT_OPTIONS_HASHED(trp_ppo_options, trp_ppo_option_table(), add_ppo,
                          {.hidden = {64, 64}, .rate_schedule = TRP_RATE_COSINE});
    ASSERT_OPTIONS_HASHED(trp_r2d2_options, trp_r2d2_option_table(), add_r2d2,
                          {.hidden = {64, 64}, .activation = TRP_TANH, .core = TRP_CORE_GRU});
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(equal_programs_have_equal_hashes),
        TEST(hashes_differ_with_names_counts_and_kinds),
        TEST(every_option_of_a_replay_is_hashed),
        TEST(every_option_of_a_table_is_hashed),
        TEST(long_options_are_hashed_to_their_end),
        TEST(every_option_of_a_learner_is_hashed),
        TEST(every_option_of_an_actor_is_hashed),
        TEST(every_option_of_an_evaluator_is_hashed),
        TEST(every_option_of_a_node_is_hashed),
        TEST(every_option_of_an_agent_is_hashed),
        TEST(every_option_of_a_parameter_server_is_hashed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
