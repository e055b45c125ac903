/* The graph that a launch file builds: what is accepted, what is refused by name, how it is shown,
 * and that its hash changes with everything that decides what nodes do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/dqn.h>
#include "launch/graph.h"

struct fixture {
    trp_program *program;
    trp_agent agent;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    fixture->program = trp_program_create("cartpole");
    fixture->agent = trp_dqn(NULL);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    trp_program_destroy(fixture->program);
    free(fixture);
    return 0;
}

struct nodes {
    trp_node replay, learner, actors, evaluator;
};

static struct nodes add_all(trp_program *program, const trp_agent *agent)
{
    struct nodes nodes;
    nodes.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = agent});
    nodes.learner = trp_add_learner(program, "learner",
                                    &(trp_learner_options){.agent = agent, .replay = nodes.replay});
    trp_actor_options acting = {
        .agent = agent, .env = "CartPole-v1", .replay = nodes.replay, .params = nodes.learner};
    nodes.actors = trp_add_actors(program, "actor", 4, &acting);
    nodes.evaluator = trp_add_evaluator(program, "evaluator", &acting);
    return nodes;
}

static trp_status run_nothing(trp_context *context, const void *arg)
{
    (void)context;
    (void)arg;
    return TRP_OK;
}

static void assert_refused(trp_program *program, const char *words)
{
    trp_status status = program_check(program);
    assert_true(status == TRP_INVALID_ARGUMENT || status == TRP_NOT_FOUND);
    if (!strstr(trp_last_error(), words))
        fail_msg("'%s' is not in '%s'", words, trp_last_error());
}

static char *printed(const trp_program *program,
                     void (*print)(const trp_program *program, FILE *out))
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    print(program, out);
    fclose(out);
    return text;
}

/* ---- accepted ---------------------------------------------------------------------------- */

static void a_whole_program_is_accepted(void **state)
{
    struct fixture *fixture = *state;
    add_all(fixture->program, &fixture->agent);
    assert_int_equal(program_check(fixture->program), TRP_OK);
    assert_int_equal(fixture->program->node_count, 7);
}

static void nodes_are_found_by_name_and_number(void **state)
{
    struct fixture *fixture = *state;
    add_all(fixture->program, &fixture->agent);
    uint32_t number, index;
    assert_int_equal(program_find(fixture->program, "actor/3", &number), TRP_OK);
    assert_int_equal(number, 5);
    assert_string_equal(program_node(fixture->program, 5, &index)->name, "actor");
    assert_int_equal(index, 3);
    assert_null(program_node(fixture->program, 7, &index));
    static const char *const wrong[] = {"actor/4", "actor", "actor/", "actor/x", "act/0", "/0", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(program_find(fixture->program, wrong[i], &number), TRP_NOT_FOUND);
}

static void users_have_a_lower_stop_level_than_what_they_use(void **state)
{
    struct fixture *fixture = *state;
    add_all(fixture->program, &fixture->agent);
    assert_int_equal(program_check(fixture->program), TRP_OK);
    static const uint32_t levels[] = {2, 1, 0, 0};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(fixture->program->groups[i]->level, levels[i]);
}

static void replay_and_learner_get_the_environment_of_their_users(void **state)
{
    struct fixture *fixture = *state;
    add_all(fixture->program, &fixture->agent);
    assert_int_equal(program_check(fixture->program), TRP_OK);
    assert_string_equal(fixture->program->groups[0]->env, "CartPole-v1");
    assert_string_equal(fixture->program->groups[1]->env, "CartPole-v1");
}

static void options_are_copied(void **state)
{
    struct fixture *fixture = *state;
    char name[] = "replay", table[] = "mine", arg[] = "before";
    trp_table_options tables = {.name = table};
    trp_node replay = trp_add_replay(fixture->program, name,
                                     &(trp_replay_options){.tables = &tables, .table_count = 1});
    trp_add_node(fixture->program, "own",
                 &(trp_node_options){.run = run_nothing,
                                     .arg = arg,
                                     .arg_size = sizeof arg,
                                     .uses = &replay,
                                     .use_count = 1});
    memset(name, 'x', sizeof name - 1);
    memset(table, 'x', sizeof table - 1);
    memset(arg, 'x', sizeof arg - 1);
    assert_int_equal(program_check(fixture->program), TRP_OK);
    struct node_group **groups = fixture->program->groups;
    assert_string_equal(groups[0]->name, "replay");
    assert_string_equal(groups[0]->options.replay.tables[0].name, "mine");
    assert_string_equal(groups[1]->options.own.arg, "before");
}

/* ---- refused ----------------------------------------------------------------------------- */

static void an_empty_program_is_refused(void **state)
{
    struct fixture *fixture = *state;
    assert_refused(fixture->program, "the program has no nodes");
}

static void a_name_used_twice_is_refused(void **state)
{
    struct fixture *fixture = *state;
    trp_replay_options options = {.agent = &fixture->agent};
    trp_add_replay(fixture->program, "replay", &options);
    assert_int_equal(trp_add_replay(fixture->program, "replay", &options).id, 0);
    assert_refused(fixture->program, "replay 'replay': this name is used twice");
}

static void wrong_names_are_refused(void **state)
{
    struct fixture *fixture = *state;
    static const char *const names[] = {
        "",  "Replay", "9", "a b", "a/b", "a\"b", "ab-much-too-long-for-a-name-that-has-to-fit-in",
        NULL};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        trp_program *program = trp_program_create("p");
        trp_add_replay(program, names[i], &(trp_replay_options){.agent = &fixture->agent});
        assert_refused(program, "a name is a lower-case letter");
        trp_program_destroy(program);
    }
}

static void a_node_that_does_not_serve_what_is_needed_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct nodes nodes = add_all(fixture->program, &fixture->agent);
    trp_add_learner(fixture->program, "second",
                    &(trp_learner_options){.agent = &fixture->agent, .replay = nodes.learner});
    assert_refused(fixture->program,
                   "learner 'second': .replay is learner 'learner', which does not serve "
                   "deepmind.reverb.ReverbService");
}

static void a_node_of_ones_own_stands_for_a_learner_if_it_serves_parameters(void **state)
{
    struct fixture *fixture = *state;
    const ProtobufCServiceDescriptor *serves[] = {trp_params_descriptor()};
    trp_node_options options = {.run = run_nothing};
    trp_node deaf = trp_add_node(fixture->program, "deaf", &options);
    options.serves = serves;
    options.serve_count = 1;
    trp_node own = trp_add_node(fixture->program, "own", &options);
    trp_actor_options acting = {.agent = &fixture->agent, .env = "Catch", .params = own};
    serves[0] = NULL; /* the list was copied */
    trp_add_evaluator(fixture->program, "evaluator", &acting);
    assert_int_equal(program_check(fixture->program), TRP_OK);
    acting.params = deaf;
    trp_add_evaluator(fixture->program, "other", &acting);
    assert_refused(fixture->program,
                   "evaluator 'other': .params is node 'deaf', which does not serve troupe.Params");
}

static void a_missing_node_is_refused(void **state)
{
    struct fixture *fixture = *state;
    trp_add_learner(fixture->program, "learner", &(trp_learner_options){.agent = &fixture->agent});
    assert_refused(fixture->program, "learner 'learner': .replay is not set");
}

static void a_learner_has_one_place_to_get_batches_from(void **state)
{
    struct fixture *fixture = *state;
    trp_learner_options offline = {
        .agent = &fixture->agent, .env = "CartPole-v1", .dataset = "runs/1/replay"};
    trp_add_learner(fixture->program, "offline", &offline);
    assert_int_equal(program_check(fixture->program), TRP_OK);
    offline.replay =
        trp_add_replay(fixture->program, "replay", &(trp_replay_options){.agent = &fixture->agent});
    trp_add_learner(fixture->program, "both", &offline);
    assert_refused(fixture->program, "learner 'both': .replay and .dataset are set");
    program_find_group(fixture->program, "both", 4)->options.learner.envs = 4;
    assert_refused(fixture->program, "learner 'both': .replay and .dataset and .envs are set");
}

static void an_edge_to_no_node_is_refused(void **state)
{
    struct fixture *fixture = *state;
    trp_add_node(fixture->program, "own",
                 &(trp_node_options){.run = run_nothing, .uses = &(trp_node){7}, .use_count = 1});
    assert_refused(fixture->program, "node 'own': .uses[0] is not a node of this program");
}

static void missing_parts_are_refused(void **state)
{
    struct fixture *fixture = *state;
    trp_program *program = fixture->program;
    trp_add_node(program, "own", &(trp_node_options){.arg_size = 0});
    assert_refused(program, "node 'own': .run is not set");
    trp_program_destroy(program);

    fixture->program = program = trp_program_create("cartpole");
    trp_add_replay(program, "replay", NULL);
    assert_refused(program, "replay 'replay': .agent is not set");
}

/* Nothing is ever above NaN, and everything is above minus infinity. */
static void a_target_that_is_no_number_is_refused(void **state)
{
    static const double targets[] = {NAN, -INFINITY, INFINITY};
    struct fixture *fixture = *state;
    for (size_t i = 0; i < 3; i++) {
        trp_program *program = trp_program_create("cartpole");
        struct nodes nodes = add_all(program, &fixture->agent);
        trp_add_evaluator(program, "second",
                          &(trp_actor_options){.agent = &fixture->agent,
                                               .env = "CartPole-v1",
                                               .params = nodes.learner,
                                               .target_return = targets[i]});
        assert_refused(program, "evaluator 'second': target_return is ");
        trp_program_destroy(program);
    }
}

static void an_unknown_environment_is_refused_with_those_there_are(void **state)
{
    struct fixture *fixture = *state;
    struct nodes nodes = add_all(fixture->program, &fixture->agent);
    trp_add_actors(fixture->program, "more", 1,
                   &(trp_actor_options){.agent = &fixture->agent,
                                        .env = "CartPole-v9",
                                        .replay = nodes.replay,
                                        .params = nodes.learner});
    assert_refused(fixture->program, "actor 'more': ");
    assert_refused(fixture->program, "CartPole-v1");
}

static void a_learner_without_an_environment_is_refused(void **state)
{
    struct fixture *fixture = *state;
    trp_node replay =
        trp_add_replay(fixture->program, "replay",
                       &(trp_replay_options){.agent = &fixture->agent, .env = "CartPole-v1"});
    trp_add_learner(fixture->program, "learner",
                    &(trp_learner_options){.agent = &fixture->agent, .replay = replay});
    assert_refused(fixture->program, "learner 'learner': no actor says which environment");
}

static void an_actor_without_an_environment_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct nodes nodes = add_all(fixture->program, &fixture->agent);
    trp_add_actors(fixture->program, "more", 1,
                   &(trp_actor_options){
                       .agent = &fixture->agent, .replay = nodes.replay, .params = nodes.learner});
    assert_refused(fixture->program, "actor 'more': .env is not set");
}

static void too_many_nodes_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct nodes nodes = add_all(fixture->program, &fixture->agent);
    trp_add_actors(fixture->program, "crowd", 5000,
                   &(trp_actor_options){.agent = &fixture->agent,
                                        .env = "CartPole-v1",
                                        .replay = nodes.replay,
                                        .params = nodes.learner});
    assert_refused(fixture->program, "actor 'crowd': 5000 nodes are too many");
}

static void an_empty_group_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct nodes nodes = add_all(fixture->program, &fixture->agent);
    trp_add_actors(fixture->program, "nobody", 0,
                   &(trp_actor_options){.agent = &fixture->agent,
                                        .env = "CartPole-v1",
                                        .replay = nodes.replay,
                                        .params = nodes.learner});
    assert_refused(fixture->program, "actor 'nobody': a group of 0 nodes");
}

static void the_first_mistake_is_the_one_reported(void **state)
{
    struct fixture *fixture = *state;
    trp_add_replay(fixture->program, "Bad", &(trp_replay_options){.agent = &fixture->agent});
    trp_add_learner(fixture->program, "learner", NULL);
    assert_refused(fixture->program, "replay 'Bad'");
}

/* ---- shown ------------------------------------------------------------------------------- */

static const char golden_dot[] =
    "digraph \"cartpole\" {\n"
    "    rankdir=LR;\n"
    "    \"replay\" [shape=cylinder, label=\"replay\"];\n"
    "    \"learner\" [shape=box, label=\"learner\"];\n"
    "    \"actor\" [shape=ellipse, label=\"actor x 4\"];\n"
    "    \"evaluator\" [shape=ellipse, label=\"evaluator\"];\n"
    "    \"learner\" -> \"replay\" [label=\"sample, update priorities\"];\n"
    "    \"actor\" -> \"replay\" [label=\"insert\"];\n"
    "    \"actor\" -> \"learner\" [label=\"pull parameters\"];\n"
    "    \"evaluator\" -> \"learner\" [label=\"pull parameters\"];\n"
    "}\n";

static void dot_is_as_it_always_was(void **state)
{
    struct fixture *fixture = *state;
    add_all(fixture->program, &fixture->agent);
    assert_int_equal(program_check(fixture->program), TRP_OK);
    char *text = printed(fixture->program, program_print_dot);
    assert_string_equal(text, golden_dot);
    free(text);
}

static void text_names_groups_edges_and_stop_order(void **state)
{
    struct fixture *fixture = *state;
    add_all(fixture->program, &fixture->agent);
    assert_int_equal(program_check(fixture->program), TRP_OK);
    char *text = printed(fixture->program, program_print_text);
    static const char *const parts[] = {
        "cartpole: 7 nodes in 4 groups, hash ", "actor            actor         4 nodes",
        "on CartPole-v1  uses replay, learner\n",
        "stops in the order: actor, evaluator; then learner; then replay\n"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!strstr(text, parts[i]))
            fail_msg("'%s' is not in:\n%s", parts[i], text);
    free(text);
    trp_program *program = trp_program_create("p");
    trp_add_node(program, "one", &(trp_node_options){.run = run_nothing});
    assert_int_equal(program_check(program), TRP_OK);
    text = printed(program, program_print_text);
    assert_non_null(strstr(text, "p: 1 node in 1 group, hash "));
    free(text);
    trp_program_destroy(program);
}

/* ---- hash -------------------------------------------------------------------------------- */

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

static void add_an_agent(trp_program *program, const void *options)
{
    trp_agent agent = trp_dqn(options);
    trp_add_learner(program, "x", &(trp_learner_options){.agent = &agent, .replay = {1}});
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
        OTHER(trp_learner_options, prefetch, {1}),
        OTHER(trp_learner_options, publish_every, {1}),
        OTHER(trp_learner_options, checkpoint_every_s, {1}),
        OTHER(trp_learner_options, max_steps, {1}),
    };
    other_agent = trp_dqn(&(trp_dqn_options){.n_step = 4});
    ASSERT_HASHED(trp_learner_options, fields, add_a_learner,
                  (&(trp_learner_options){.agent = &fixture->agent, .replay = {1}}));
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
        OTHER(trp_actor_options, sync_every_items, {1}),
        OTHER(trp_actor_options, max_lag, {1}),
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
        {FIELD(trp_actor_options, sync_every_items), NULL},
        {FIELD(trp_actor_options, max_lag), NULL},
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

/* Its table has a row for every field, and a value that is no field's default by the row's type. */
static void every_option_of_dqn_is_hashed(void **state)
{
    (void)state;
    static const union {
        uint32_t list[TRP_NET_HIDDEN_MAX]; /* all whole numbers begin with a 1 */
        float f32;
    } whole = {{1}}, third = {.f32 = 1.0F / 3};
    const trp_option_table *table = trp_dqn_option_table();
    struct field fields[64];
    assert_true(table->count <= sizeof fields / sizeof *fields);
    for (size_t i = 0; i < table->count; i++) {
        const trp_option *option = &table->options[i];
        bool fraction = option->type == TRP_OPTION_F32;
        fields[i] = (struct field){option->name, option->offset, option->bytes,
                                   fraction ? (const void *)&third : &whole};
    }
    const trp_dqn_options options = {.hidden = {64, 64}, .activation = TRP_TANH};
    trp_dqn_options used;
    memset(&used, 0xff, sizeof used);
    CLEAR_PADDING(&used);
    assert_every_field_has_a_row(fields, table->count, (const unsigned char *)&used, sizeof used);
    assert_every_field_is_hashed(fields, table->count, add_an_agent, &options, sizeof options);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_whole_program_is_accepted),
        TEST(nodes_are_found_by_name_and_number),
        TEST(users_have_a_lower_stop_level_than_what_they_use),
        TEST(replay_and_learner_get_the_environment_of_their_users),
        TEST(options_are_copied),
        TEST(an_empty_program_is_refused),
        TEST(a_name_used_twice_is_refused),
        TEST(wrong_names_are_refused),
        TEST(a_node_that_does_not_serve_what_is_needed_is_refused),
        TEST(a_node_of_ones_own_stands_for_a_learner_if_it_serves_parameters),
        TEST(a_missing_node_is_refused),
        TEST(a_learner_has_one_place_to_get_batches_from),
        TEST(an_edge_to_no_node_is_refused),
        TEST(missing_parts_are_refused),
        TEST(a_target_that_is_no_number_is_refused),
        TEST(an_unknown_environment_is_refused_with_those_there_are),
        TEST(a_learner_without_an_environment_is_refused),
        TEST(an_actor_without_an_environment_is_refused),
        TEST(too_many_nodes_are_refused),
        TEST(an_empty_group_is_refused),
        TEST(the_first_mistake_is_the_one_reported),
        TEST(dot_is_as_it_always_was),
        TEST(text_names_groups_edges_and_stop_order),
        TEST(equal_programs_have_equal_hashes),
        TEST(hashes_differ_with_names_counts_and_kinds),
        TEST(every_option_of_a_replay_is_hashed),
        TEST(every_option_of_a_table_is_hashed),
        TEST(long_options_are_hashed_to_their_end),
        TEST(every_option_of_a_learner_is_hashed),
        TEST(every_option_of_an_actor_is_hashed),
        TEST(every_option_of_an_evaluator_is_hashed),
        TEST(every_option_of_a_node_is_hashed),
        TEST(every_option_of_dqn_is_hashed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
