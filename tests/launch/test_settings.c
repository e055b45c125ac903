/* Options by name: which of a program's structs is meant, and the configuration that is written,
 * read, applied and compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/dqn.h>
#include "actor/limits.h"
#include "core/alloc.h"
#include "core/option_table.h"
#include "launch/config.h"
#include "launch/settings.h"
#include "learner/limits.h"
#include "nn/limits.h"

struct fixture {
    trp_program *program;
};

static trp_program *make_program(const trp_dqn_options *options, const trp_dqn_options *others)
{
    trp_program *program = trp_program_create("cartpole");
    trp_agent agent = trp_dqn(options), other = trp_dqn(others);
    trp_actor_options acting = {.agent = &agent, .env = "Catch"};
    acting.replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    acting.params = trp_add_learner(
        program, "learner", &(trp_learner_options){.agent = &agent, .replay = acting.replay});
    trp_add_actors(program, "actor", 4, &acting);
    acting.agent = &other;
    trp_add_evaluator(program, "evaluator", &acting);
    return program;
}

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    fixture->program = make_program(NULL, NULL);
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

static trp_status run_nothing(trp_context *context, const void *arg)
{
    (void)context;
    (void)arg;
    return TRP_OK;
}

static const struct node_group *group_of(const trp_program *program, const char *name)
{
    const struct node_group *group = program_find_group(program, name, strlen(name));
    assert_non_null(group);
    return group;
}

static uint32_t n_step_of(const trp_program *program, const char *name)
{
    trp_dqn_options options;
    memcpy(&options, group_of(program, name)->agent.options.bytes, sizeof options);
    return options.n_step;
}

/* ---- setting ----------------------------------------------------------------------------- */

static void an_option_is_set_where_its_name_says(void **state)
{
    struct fixture *fixture = *state;
    trp_program *program = fixture->program;
    assert_int_equal(program_set_word(program, "actor.envs=8"), TRP_OK);
    assert_int_equal(group_of(program, "actor")->options.actor.envs, 8);
    assert_int_equal(group_of(program, "evaluator")->options.actor.envs, 0);
    assert_int_equal(program_set_word(program, "agent.n_step=5"), TRP_OK);
    assert_int_equal(n_step_of(program, "learner"), 5);
    assert_int_equal(n_step_of(program, "evaluator"), 5);
    assert_int_equal(program_set_word(program, "evaluator.agent.n_step=7"), TRP_OK);
    assert_int_equal(n_step_of(program, "learner"), 5);
    assert_int_equal(n_step_of(program, "evaluator"), 7);
    assert_int_equal(program_set_word(program, "replay.address=unix:/a=b.c"), TRP_OK);
    assert_string_equal(group_of(program, "replay")->options.replay.address, "unix:/a=b.c");
    assert_int_equal(program_set_word(program, "agent.learning_rate=0"), TRP_OK);
    assert_int_equal(program_check(program), TRP_OK);
}

static void an_environment_that_is_set_is_everybodys(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(program_set_word(fixture->program, "actor.env=CartPole-v1"), TRP_OK);
    assert_int_equal(program_set_word(fixture->program, "evaluator.env=CartPole-v1"), TRP_OK);
    assert_int_equal(program_check(fixture->program), TRP_OK);
    assert_string_equal(group_of(fixture->program, "learner")->env, "CartPole-v1");
    assert_string_equal(group_of(fixture->program, "replay")->env, "CartPole-v1");
}

static void what_cannot_be_set_is_refused_by_name(void **state)
{
    struct fixture *fixture = *state;
    trp_add_node(fixture->program, "own", &(trp_node_options){.run = run_nothing});
    static const char *const rows[][2] = {
        {"actor", "--set actor: use GROUP.OPTION=VALUE"},
        {"actor=8", "--set actor=8: use GROUP.OPTION=VALUE"},
        {"=a.b", "use GROUP.OPTION=VALUE"},
        {"n_step=5", "--set n_step=5: use GROUP.OPTION=VALUE; agent.n_step is an option"},
        {"n_stepp=5", "--set n_stepp=5: use GROUP.OPTION=VALUE; did you mean 'n_step'?"},
        {"evns=5", "--set evns=5: use GROUP.OPTION=VALUE; did you mean 'envs'?"},
        {"actr.envs=8", "--set actr.envs=8: cartpole has no nodes 'actr'; did you mean 'actor'?"},
        {"gent.n_step=8", "no nodes 'gent'; did you mean 'agent'?"},
        {"actor.evns=8", "--set actor.evns=8: actor has no option 'evns'; did you mean 'envs'?"},
        {"actor.episodes=8", "actor has no option 'episodes'; evaluator.episodes is one"},
        {"learner.n_step=8", "learner has no option 'n_step'; agent.n_step is one"},
        {"agent.envs=8", "dqn has no option 'envs'; learner.envs is one"},
        {"agent.n_stepp=8", "'n_stepp'; did you mean 'n_step'? (--options lists them)"},
        {"agent.clip=0.2", "dqn has no option 'clip' (--options lists them)"},
        {"actor.envs=0", "actor.envs is 0, must be a whole number of copies in [1, 65536]"},
        {"actor.envs=many", "actor.envs is many, must be a whole number"},
        {"agent.n_step=2000", "agent.n_step is 2000, must be a whole number of steps in [1, 1024]"},
        {"learner.agent.discount=2", "learner.agent.discount is 2, must be a number in [0, 1]"},
        {"replay.durability=none", "replay.durability is none, must be process, memory or system"},
        {"own.x=1", "--set own.x=1: node 'own' has no options"},
        {"own.agent.x=1", "node 'own' has no options of an agent"},
    };
    uint64_t hash = program_hash(fixture->program);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(program_set_word(fixture->program, rows[i][0]), TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), rows[i][1]))
            fail_msg("'%s' is not in '%s'", rows[i][1], trp_last_error());
    }
    assert_true(program_hash(fixture->program) == hash);
}

static void no_group_is_called_agent(void **state)
{
    struct fixture *fixture = *state;
    trp_add_node(fixture->program, "agent", &(trp_node_options){.run = run_nothing});
    assert_int_equal(program_check(fixture->program), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(),
                        "node 'agent': --set agent.OPTION means the program's agents");
}

/* Who makes a learner or an actor without a program gets the same. */
static void nodes_have_the_defaults_and_limits_of_their_parts(void **state)
{
    (void)state;
    const struct {
        const char *kind, *name;
        double fallback, max;
    } rows[] = {
        {"learner", "prefetch", LEARNER_PREFETCH, LEARNER_PREFETCH_MAX},
        {"learner", "publish_every", LEARNER_PUBLISH_EVERY, UINT32_MAX},
        {"learner", "checkpoint_every_s", 0, UINT32_MAX},
        {"actor", "envs", 1, ACTOR_COPIES_MAX},
        {"evaluator", "envs", 0, ACTOR_COPIES_MAX},
        {"evaluator", "episodes", EVALUATE_EPISODES, EVALUATE_EPISODES_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const trp_option *option = option_find(trp_node_option_table(rows[i].kind), rows[i].name);
        char *fallback = option_default(option);
        assert_true(strtod(fallback, NULL) == rows[i].fallback);
        assert_true(option->max == rows[i].max);
        free(fallback);
    }
    assert_true(option_find(trp_dqn_option_table(), "hidden")->max == NET_WIDTH_MAX);
    assert_null(trp_node_option_table("node"));
}

/* ---- nodes of one's own ------------------------------------------------------------------ */

struct game {
    uint32_t rounds;
    int32_t padded[3]; /* no option */
    const char *title;
};

static const trp_option game_rows[] = {
    {TRP_OPTION(struct game, rounds), .fallback = "3", .min = 1, .max = 9, .help = "to play"},
    {TRP_OPTION(struct game, title), .help = "of the game"},
};
static const trp_option_table game_table = TRP_OPTION_TABLE("game", game_rows, struct game);

static const struct game *add_a_game(trp_program *program, const struct game *game)
{
    trp_node node = trp_add_node(program, "game",
                                 &(trp_node_options){.run = run_nothing,
                                                     .arg = game,
                                                     .arg_size = game ? sizeof *game : 0,
                                                     .options = &game_table});
    return program->error ? NULL : program_group(program, node)->options.own.arg;
}

static void the_options_of_a_node_of_ones_own_are_resolved_and_hashed(void **state)
{
    (void)state;
    trp_program *program = trp_program_create("p"), *other = trp_program_create("p");
    const struct game *defaults = add_a_game(program, NULL);
    assert_int_equal(defaults->rounds, 3);
    assert_null(defaults->title);
    char title[] = "go";
    const struct game *game =
        add_a_game(other, &(struct game){.title = title, .padded = {1, 2, 3}});
    title[0] = 'n';
    assert_string_equal(game->title, "go");
    assert_int_equal(game->padded[2], 3);
    assert_true(program_hash(other) != program_hash(program));
    assert_int_equal(program_set_word(other, "game.title="), TRP_OK);
    assert_null(game->title);
    assert_true(program_hash(other) == program_hash(program));
    assert_int_equal(program_set_word(other, "game.rounds=9"), TRP_OK);
    assert_int_equal(game->rounds, 9);
    assert_true(program_hash(other) != program_hash(program));
    assert_int_equal(program_check(other), TRP_OK);
    trp_program_destroy(other);
    trp_program_destroy(program);
}

static void wrong_options_of_a_node_of_ones_own_are_refused(void **state)
{
    struct fixture *fixture = *state;
    add_a_game(fixture->program, &(struct game){.rounds = 10});
    assert_int_equal(program_check(fixture->program), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(),
                        "node 'game': rounds is 10, must be a whole number in [1, 9]");
    trp_program *other = trp_program_create("p");
    trp_add_node(
        other, "game",
        &(trp_node_options){.run = run_nothing, .arg = "x", .arg_size = 2, .options = &game_table});
    assert_int_equal(program_check(other), TRP_INVALID_ARGUMENT);
    assert_non_null(
        strstr(trp_last_error(), "node 'game': .arg_size is 2, the struct of .options"));
    trp_program_destroy(other);
}

/* ---- agents of one's own ----------------------------------------------------------------- */

struct my_options {
    uint32_t rounds;
    float clip;
};

static const trp_option my_rows[] = {
    {TRP_OPTION(struct my_options, rounds), .fallback = "4", .min = 1, .max = 8, .help = "of it"},
    {TRP_OPTION(struct my_options, clip), .max = 1, .help = "of it"},
};
static const trp_option_table my_table = TRP_OPTION_TABLE("mine", my_rows, struct my_options);

static trp_status my_check(const trp_agent *agent, const trp_env_spec *env)
{
    (void)agent;
    (void)env;
    return TRP_OK;
}

static const trp_agent_impl my_impl = {.name = "mine", .options = &my_table, .check = my_check};

static const struct my_options *my_options_of(const trp_program *program)
{
    return (const void *)group_of(program, "mine")->agent.options.bytes;
}

static void agents_of_several_kinds_have_options_of_their_own(void **state)
{
    struct fixture *fixture = *state;
    trp_program *program = fixture->program;
    trp_agent mine = trp_agent_make(&my_impl, &(struct my_options){.clip = 0.5F});
    trp_add_learner(program, "mine",
                    &(trp_learner_options){.agent = &mine, .env = "Catch", .replay = {1}});
    assert_int_equal(my_options_of(program)->rounds, 4);
    assert_int_equal(program_set_word(program, "agent.rounds=5"), TRP_OK);
    assert_int_equal(program_set_word(program, "agent.n_step=6"), TRP_OK);
    assert_int_equal(my_options_of(program)->rounds, 5);
    assert_int_equal(n_step_of(program, "actor"), 6);
    assert_int_equal(program_set_word(program, "mine.agent.n_step=7"), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "mine has no option 'n_step'; "
                                             "replay.agent.n_step is one"));
    assert_int_equal(program_set_word(program, "actor.agent.clip=1"), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "dqn has no option 'clip'; mine.agent.clip is one"));
    assert_int_equal(program_check(program), TRP_OK);
    mine = trp_agent_make(&my_impl, &(struct my_options){.rounds = 9});
    assert_int_equal(trp_agent_check(&mine, "Catch"), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "mine: rounds is 9, must be a whole number in [1, 8]");
}

/* ---- the configuration ------------------------------------------------------------------- */

static char *text_of(const trp_program *program)
{
    char name[] = "program", *argv[] = {name, NULL};
    struct launch_options options = {.build_argc = 1, .build_argv = argv, .seed = UINT64_MAX};
    return config_text(program, &options,
                       &(struct config_facts){.socket_dir = "", .argc = 1, .argv = argv});
}

static trp_status apply_text(trp_program *program, const char *text)
{
    struct config config;
    trp_status status = config_parse(&config, "FILE", text, strlen(text) + 1, "cartpole");
    if (status == TRP_OK)
        status = config_apply(&config, program);
    config_cleanup(&config);
    return status;
}

static trp_status compare_text(const trp_program *program, const char *text)
{
    struct config config;
    trp_status status = config_parse(&config, "FILE", text, strlen(text) + 1, "cartpole");
    if (status == TRP_OK)
        status = config_compare(&config, program);
    config_cleanup(&config);
    return status;
}

static void a_configuration_that_was_written_makes_the_same_program(void **state)
{
    struct fixture *fixture = *state;
    const trp_dqn_options one = {.learning_rate = 0.3F,
                                 .epsilon_steps = UINT64_MAX - 1,
                                 .optimizer_epsilon = 1.17549435e-38F,
                                 .priority_epsilon = 16777215,
                                 .hidden = {1, 2, 3, 4, 5, 6, 7, 8},
                                 .activation = TRP_TANH,
                                 .dueling = true,
                                 .priority_exponent = -1};
    const trp_dqn_options two = {.n_step = 9};
    for (int differ = 0; differ < 2; differ++) {
        trp_program *program = make_program(&one, differ ? &two : &one);
        static const char *const words[] = {"evaluator.target_return=0.30000000000000004",
                                            "replay.max_bytes=18446744073709551615",
                                            "replay.address=unix:/a \"b\"", "actor.envs=65536"};
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            assert_int_equal(program_set_word(program, words[i]), TRP_OK);
        char *text = text_of(program);
        assert_int_equal(apply_text(fixture->program, text), TRP_OK);
        assert_true(program_hash(fixture->program) == program_hash(program));
        char *again = text_of(fixture->program);
        assert_string_equal(again, text);
        assert_int_equal(compare_text(program, text), TRP_OK);
        free(again);
        free(text);
        trp_program_destroy(program);
    }
}

static void a_file_need_not_say_everything(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(
        apply_text(
            fixture->program,
            "{\"name\": \"cartpole\", \"options\": {\"agent\": {\"n_step\": 4, \"hidden\": []},"
            "\"learner\": {\"agent\": {\"n_step\": 5}, \"max_steps\": \"7\"},"
            "\"actor\": {\"envs\": 2.0}}}"),
        TRP_OK);
    assert_int_equal(n_step_of(fixture->program, "actor"), 4);
    assert_int_equal(n_step_of(fixture->program, "learner"), 5);
    assert_int_equal(group_of(fixture->program, "learner")->options.learner.max_steps, 7);
    assert_int_equal(group_of(fixture->program, "actor")->options.actor.envs, 2);
    assert_int_equal(program_check(fixture->program), TRP_OK);
}

static void wrong_configurations_are_refused_with_path_and_name(void **state)
{
    struct fixture *fixture = *state;
#define OPTIONS(text) "{\"name\": \"cartpole\", \"options\": {" text "}}"
    static const char *const rows[][2] = {
        {"", "FILE: line 1: this is not JSON"},
        {"{\"name\":\n\"cartpole\",\n}", "FILE: line 3: this is not JSON"},
        {OPTIONS("") "x", "this is not JSON"},
        {"[]", "FILE: not an object"},
        {"{}", "FILE: name is missing, must be the name of a program"},
        {"{\"name\": 5}", "FILE: name is something else, must be the name of a program"},
        {"{\"name\": \"catch\", \"options\": {}}",
         "FILE: the configuration of a run of program 'catch', not of 'cartpole'"},
        {"{\"name\": \"cartpole\"}", "FILE: options is missing, must be an object"},
        {"{\"name\": \"cartpole\", \"optoins\": {}}",
         "FILE: a configuration has no 'optoins'; did you mean 'options'?"},
        {OPTIONS("\"actor\": 5"), "FILE: options.actor is not an object"},
        {OPTIONS("\"actr\": {\"envs\": 5}"),
         "FILE: cartpole has no nodes 'actr'; did you mean 'actor'?"},
        {OPTIONS("\"actr\": {}"), "FILE: cartpole has no nodes 'actr'; did you mean 'actor'?"},
        {"{\"name\": \"cartpole\", \"options\": {}, \"options\": {}}",
         "FILE: 'options' stands there twice"},
        {OPTIONS("\"actor\": {}, \"actor\": {}"), "FILE: 'actor' stands there twice"},
        {OPTIONS("\"actor\": {\"envs\": 5, \"envs\": 6}"), "FILE: 'envs' stands there twice"},
        {OPTIONS("\"agent\": {\"n_step\": 5, \"n_step\": 6}"), "FILE: 'n_step' stands there twice"},
        {OPTIONS("\"actor\": {\"evns\": 5}"),
         "FILE: actor has no option 'evns'; did you mean 'envs'?"},
        {OPTIONS("\"actor\": {\"envs\": 0}"), "FILE: actor.envs is 0, must be a whole number"},
        {OPTIONS("\"actor\": {\"envs\": 1.5}"), "FILE: actor.envs is 1.5, must be a whole number"},
        {OPTIONS("\"actor\": {\"envs\": true}"), "FILE: actor.envs is true, must be"},
        {OPTIONS("\"actor\": {\"envs\": null}"), "FILE: actor.envs is null, must be"},
        {OPTIONS("\"actor\": {\"envs\": [1, 2]}"), "FILE: actor.envs is [1,2], must be a whole"},
        {OPTIONS("\"actor\": {\"envs\": [2]}"), "FILE: actor.envs is [2], must be a whole"},
        {OPTIONS("\"actor\": {\"envs\": [[2]]}"), "FILE: actor.envs is [[2]], must be a whole"},
        {OPTIONS("\"actor\": {\"env\": [\"Catch\"]}"), "FILE: actor.env is [\"Catch\"], must be"},
        {OPTIONS("\"actor\": {\"max_steps\": 9007199254740993}"),
         "must be a whole number of actor steps, at least 0; as a text in quotes"},
        {OPTIONS("\"agent\": {\"hidden\": [[64], 64]}"), "FILE: agent.hidden is [[64],64], must"},
        {OPTIONS("\"agent\": {\"hidden\": [[64, 64]]}"), "FILE: agent.hidden is [[64,64]], must"},
        {OPTIONS("\"agent\": {\"hidden\": [\"64,64\"]}"), "FILE: agent.hidden is [\"64,64\"]"},
        {OPTIONS("\"agent\": {\"hidden\": {\"0\": 64}}"), "FILE: agent.hidden is {\"0\":64}, must"},
        {OPTIONS("\"agent\": {\"hidden\": [null]}"), "FILE: agent.hidden is [null], must be at"},
        {OPTIONS("\"agent\": {\"dueling\": [true]}"), "FILE: agent.dueling is [true], must be"},
        {OPTIONS("\"agent\": {\"activation\": [\"relu\"]}"),
         "agent.activation is [\"relu\"], must"},
        {OPTIONS("\"evaluator\": {\"agent\": {\"n_step\": [5]}}"),
         "FILE: evaluator.agent.n_step is [5], must be"},
        {OPTIONS("\"actor\": {\"envs\": {\"a\": 1}}"), "FILE: actor.envs is {\"a\":1}, must be"},
        {OPTIONS("\"actor\": {\"env\": 5}"), "FILE: actor.env is 5, must be text"},
        {OPTIONS("\"agent\": {\"dueling\": 1}"), "FILE: agent.dueling is 1, must be true or false"},
        {OPTIONS("\"agent\": {\"discount\": 1e999}"), "FILE: agent.discount is inf, must be"},
        {OPTIONS("\"agent\": {\"hidden\": [64, -1]}"), "FILE: agent.hidden is 64,-1, must be"},
        {OPTIONS("\"agent\": {\"agent\": {\"x\": 1}}"), "FILE: dqn has no option 'agent.x'"},
        {OPTIONS("\"agent\": {\"activation\": 1}"), "FILE: agent.activation is 1, must be none"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_not_equal(apply_text(fixture->program, rows[i][0]), TRP_OK);
        if (strncmp(trp_last_error(), rows[i][1], strlen(rows[i][1])) != 0 &&
            !strstr(trp_last_error(), rows[i][1]))
            fail_msg("'%s' is not in '%s'", rows[i][1], trp_last_error());
    }
}

static void a_run_does_not_go_on_with_other_values_of_what_it_stored(void **state)
{
    struct fixture *fixture = *state;
    char *text = text_of(fixture->program);
    static const char *const free_words[] = {"agent.learning_rate=1", "actor.envs=3",
                                             "learner.max_steps=9", "evaluator.target_return=2"};
    for (size_t i = 0; i < sizeof free_words / sizeof *free_words; i++) {
        assert_int_equal(program_set_word(fixture->program, free_words[i]), TRP_OK);
        assert_int_equal(compare_text(fixture->program, text), TRP_OK);
    }
    assert_int_equal(program_set_word(fixture->program, "agent.n_step=5"), TRP_OK);
    assert_int_equal(program_set_word(fixture->program, "agent.hidden=32"), TRP_OK);
    assert_int_equal(program_set_word(fixture->program, "actor.env=CartPole-v1"), TRP_OK);
    assert_int_equal(compare_text(fixture->program, text), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(),
                           "agent.hidden is 32, was 64,64; agent.n_step is 5, was "
                           "3; actor.env is CartPole-v1, was Catch: give"));
    free(text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(an_option_is_set_where_its_name_says),
        TEST(an_environment_that_is_set_is_everybodys),
        TEST(what_cannot_be_set_is_refused_by_name),
        TEST(no_group_is_called_agent),
        TEST(nodes_have_the_defaults_and_limits_of_their_parts),
        TEST(the_options_of_a_node_of_ones_own_are_resolved_and_hashed),
        TEST(wrong_options_of_a_node_of_ones_own_are_refused),
        TEST(agents_of_several_kinds_have_options_of_their_own),
        TEST(a_configuration_that_was_written_makes_the_same_program),
        TEST(a_file_need_not_say_everything),
        TEST(wrong_configurations_are_refused_with_path_and_name),
        TEST(a_run_does_not_go_on_with_other_values_of_what_it_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
