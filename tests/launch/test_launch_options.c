/* Options of a program as a user sets, prints, keeps and repeats them: tests/launch/nodes_program.c
 * in its scenarios. */
#include "launch_tools.h"

/* No actor waits at the end for a learner that has ended. */
#define FREELY "--set=agent.samples_per_insert=0"

/* The program with these flags (NULL-ended) and then "-- SCENARIO"; NULL: without. */
static int run_flags(struct scene *scene, const char *scenario, const char *const *flags)
{
    const char *argv[16] = {NODES_PROGRAM};
    size_t count = 1;
    while (*flags)
        argv[count++] = *flags++;
    if (scenario) {
        argv[count++] = "--";
        argv[count++] = scenario;
    }
    return scene_run(scene, argv);
}

#define RUN(scene, scenario, ...)                                                                  \
    run_flags(scene, scenario, (const char *const[]){__VA_ARGS__, NULL})

static void write_file(const struct scene *scene, const char *name, const char *text)
{
    char *path = scene_path(scene, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    free(path);
}

static void assert_absent(const struct scene *scene, const char *name)
{
    char *path = scene_path(scene, name);
    assert_int_equal(access(path, F_OK), -1);
    free(path);
}

static void assert_told(const struct scene *scene, const char *dir, const char *words)
{
    char *name = xasprintf("%s/told", dir);
    assert_file_contains(scene, name, words);
    free(name);
}

static void assert_one_error(const struct scene *scene, const char *words)
{
    char *text = scene_read(scene, "err");
    assert_contains(text, words);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    free(text);
}

/* ---- setting ----------------------------------------------------------------------------- */

static void what_is_set_reaches_the_node_in_threads_and_processes(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        char *dir = xasprintf("--run-dir=%zu", i);
        assert_int_equal(RUN(scene, "tells", launch_modes[i], dir), 0);
        assert_told(scene, dir + strlen("--run-dir="),
                    "rounds=3 rate=0x1.99999ap-4 widths=2,0,0 title=go ");
        free(dir);
        dir = xasprintf("--run-dir=set%zu", i);
        assert_int_equal(RUN(scene, "tells", launch_modes[i], dir, "--set", "teller.rate=0",
                             "--set=teller.rounds=9", "--set=teller.widths=1,2,3",
                             "--set=teller.title=it's a \"b\"", "--set=teller.rounds=8"),
                         0);
        assert_told(scene, dir + strlen("--run-dir="),
                    "rounds=8 rate=0x0p+0 widths=1,2,3 title=it's a \"b\" ");
        free(dir);
    }
}

static void the_agents_options_are_set_in_threads_and_processes(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        char *dir = xasprintf("--run-dir=%zu", i), *config = xasprintf("%zu/config.json", i);
        assert_int_equal(RUN(scene, "plays", launch_modes[i], dir, "--set=agent.hidden=4,4",
                             "--set=learner.max_steps=20", "--set=actor.envs=2", FREELY),
                         0);
        assert_file_contains(scene, "out", "20 learner steps done");
        assert_file_contains(scene, config, "\"hidden\":\t[4, 4]");
        assert_file_contains(scene, config, "\"envs\":\t2");
        assert_file_contains(scene, "out", ".safetensors --set=agent.hidden=4,4 --set=agent.");
        free(config);
        free(dir);
    }
    const char *eval[] = {NODES_PROGRAM,
                          "eval",
                          "--params=0/learner/learner-00000000000000000020.safetensors",
                          "--config=0/config.json",
                          "--episodes=5",
                          NULL};
    assert_int_equal(scene_run(scene, eval), 0);
}

static void wrong_settings_are_one_line_and_status_2(void **state)
{
    struct scene *scene = *state;
    static const char *const rows[][2] = {
        {"--set=actor.envs", "coin: --set actor.envs: use GROUP.OPTION=VALUE"},
        {"--set=actr.envs=2", "--set actr.envs=2: coin has no nodes 'actr'; did you mean 'actor'?"},
        {"--set=actor.evns=2", "actor has no option 'evns'; did you mean 'envs'?"},
        {"--set=actor.envs=0", "actor.envs is 0, must be a whole number of copies in [1, 65536]"},
        {"--set=agent.discount=x\033[2J",
         "agent.discount is x\\x1b[2J, must be a number in [0, 1]"},
        {"--set=agent.replay_size=10",
         "coin: the agent: dqn: min_replay_size is 64, must be in [1, 10]"},
        {"--set=learner.agent.replay_size=10", "coin: the agent of learner 'learner': dqn: min"},
        {"--set=actor.env=Nowhere",
         "coin: actor 'actor': no environment 'Nowhere'; there are: CartPole-v1 Catch "},
        {"--set=actor.env=CartPol-v1",
         "no environment 'CartPol-v1'; did you mean 'CartPole-v1'? there are: CartPole-v1 Catch "},
        {"--config=nowhere.json", "coin: --config=nowhere.json: No such file or directory"},
        {"--config=.", "coin: --config=.: Is a directory"},
        {"--config=other.json",
         "other.json: the configuration of a run of program 'catch', not of 'coin'"},
        {"--config=seed.json",
         "--config=seed.json: seed is something else, must be a whole number"},
        {"--config=mode.json", "mode.json: launch is something else, must be processes or threads"},
    };
    write_file(scene, "other.json", "{\"name\": \"catch\", \"options\": {}}");
    write_file(scene, "seed.json", "{\"name\": \"coin\", \"options\": {}, \"seed\": \"x\"}");
    write_file(scene, "mode.json", "{\"name\": \"coin\", \"options\": {}, \"launch\": \"x\"}");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(RUN(scene, "plays", rows[i][0]), 2);
        assert_one_error(scene, rows[i][1]);
    }
    assert_absent(scene, "runs");
}

/* As other options: nothing has begun. */
static void places_that_are_not_there_are_one_line_and_status_2(void **state)
{
    struct scene *scene = *state;
    static const char *const rows[][2] = {
        {"--set=replay.restore=no/checkpoint",
         "coin: replay 'replay': .restore is no/checkpoint: No such file or directory"},
        {"--set=replay.address=0.0.0.0:0",
         "coin: replay 'replay': address 0.0.0.0:0 is open to other hosts without TLS"},
        {"--set=replay.address=here", "coin: replay 'replay': address here"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(RUN(scene, "plays", rows[i][0]), 2);
        assert_one_error(scene, rows[i][1]);
    }
    assert_absent(scene, "runs");
}

static void what_nobody_reads_is_said_at_the_start_with_what_it_needs(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(RUN(scene, "plays", launch_modes[0], "--set=agent.atoms=21",
                         "--set=agent.optimizer=sgd", "--set=agent.momentum=0.5",
                         "--set=agent.adam_beta2=0.99", "--set=learner.max_steps=20", FREELY),
                     0);
    assert_file_contains(scene, "err", "coin: nobody reads agent.atoms=21; it needs loss=c51\n");
    assert_file_contains(scene, "err",
                         "agent.adam_beta2=0.99; it needs optimizer=adam or adamw or lamb\n");
    char *said = scene_read(scene, "err");
    assert_null(strstr(said, "momentum"));
    assert_null(strstr(said, "quantiles"));
    free(said);
}

/* ---- printing ---------------------------------------------------------------------------- */

static void options_are_printed_and_nothing_is_started(void **state)
{
    struct scene *scene = *state;
    static const char *const lines[] = {
        "agent (dqn)\n",
        ("  agent.n_step=4\n      rewards of an item before it bootstraps\n"
         "      a whole number of steps in [1, 1024]; default 3; a resume keeps it\n"),
        "  actor.envs=1\n",
        "  collector.envs=7\n",
        "  examiner.target_return=0.5\n",
        "      a whole number of copies in [1, 65536]; default 1\n",
    };
    assert_int_equal(RUN(scene, "plays", "--options", "--set=agent.n_step=4",
                         "--set=collector.envs=7", "--target-return=0.5"),
                     0);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        assert_file_contains(scene, "out", lines[i]);
    assert_absent(scene, "runs");
    assert_int_equal(RUN(scene, "plays", "graph", "--set=agent.n_step=4"), 0);
    assert_file_contains(scene, "out", "  other than by default:\n    agent.hidden=32\n");
    assert_file_contains(scene, "out", "    agent.n_step=4\n");
}

static void options_are_printed_by_what_is_in_their_names(void **state)
{
    struct scene *scene = *state;
    static const char *const rows[][3] = {/* flag, who is there, who is not */
                                          {"--options=learner", "  learner.max_steps=", "actor."},
                                          {"--options=LEARNER.c", "  learner.count=1", "max_steps"},
                                          {"--options=n_step", "  agent.n_step=", "hidden"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(RUN(scene, "plays", rows[i][0]), 0);
        assert_file_contains(scene, "out", rows[i][1]);
        char *text = scene_read(scene, "out");
        assert_null(strstr(text, rows[i][2]));
        assert_int_equal(RUN(scene, "plays", "--options", rows[i][0] + strlen("--options=")), 0);
        char *same = scene_read(scene, "out"); /* with a word behind it */
        assert_string_equal(same, text);
        free(same);
        free(text);
    }
    assert_int_equal(RUN(scene, "plays", "--options=lerner"), 2);
    assert_one_error(scene, "coin: --options=lerner: no option has that in its name; did you mean "
                            "'learner'? (--options lists all)");
}

/* A learner's network is made for one environment. */
static void an_environment_unlike_the_learners_is_refused_by_both_names(void **state)
{
    struct scene *scene = *state;
    static const struct {
        const char *set, *words;
    } rows[] = {
        {"--set=examiner.env=Catch", "evaluator 'examiner': its environment 'Catch' has 3 actions, "
                                     "but 'Coin' of learner 'learner' 2"},
        {"--set=collector.env=Coin?frame_stack=2",
         "actor 'collector': its environment 'Coin?frame_stack=2' is not like 'Coin' "
         "of learner '"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(RUN(scene, "plays", "graph", rows[i].set), 2);
        assert_file_contains(scene, "err", rows[i].words);
    }
    assert_int_equal(RUN(scene, "plays", "graph", "--set=examiner.env=Coin?time_limit=9"), 0);
}

/* ---- configurations ---------------------------------------------------------------------- */

static void the_configuration_of_a_run_repeats_it(void **state)
{
    struct scene *scene = *state;
    for (size_t i = 0; i < 2; i++) {
        char *dir = xasprintf("--run-dir=%zu", i), *again = xasprintf("--run-dir=again%zu", i);
        char *config = xasprintf("--config=%zu/config.json", i);
        assert_int_equal(RUN(scene, "tells", launch_modes[i], dir, "--set=teller.rate=0.3",
                             "--set=teller.title="),
                         0);
        assert_int_equal(RUN(scene, NULL, config, again), 0);
        char *first = xasprintf("%zu/told", i), *second = xasprintf("again%zu/told", i);
        char *told = scene_read(scene, first);
        assert_contains(told, "rounds=3 rate=0x1.333334p-2 widths=2,0,0 title=(none) seed=");
        char *repeated = scene_read(scene, second);
        assert_string_equal(repeated, told);
        assert_file_contains(scene, "out", i == 0 ? " as processes, " : " as threads, ");
        free(repeated);
        free(told);
        free(first);
        free(second);
        free(config);
        free(again);
        free(dir);
    }
}

static void a_deterministic_run_is_repeated_bit_for_bit_from_its_configuration(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(RUN(scene, "plays", "--launch=threads", "--deterministic", "--run-dir=a",
                         "--set=learner.max_steps=40", "--set=agent.learning_rate=0.03", FREELY),
                     0);
    assert_int_equal(RUN(scene, NULL, "--config=a/config.json", "--run-dir=b"), 0);
    const char *compare[] = {"/usr/bin/cmp", "a/learner/learner-00000000000000000040.safetensors",
                             "b/learner/learner-00000000000000000040.safetensors", NULL};
    assert_int_equal(scene_run(scene, compare), 0);
}

static void the_command_line_goes_before_the_file(void **state)
{
    struct scene *scene = *state;
    write_file(
        scene, "my.json",
        "{\"name\": \"coin\", \"seed\": 5, \"launch\": \"threads\", \"arguments\": [\"plays\"],"
        "\"options\": {\"teller\": {\"rounds\": 7, \"rate\": 0.5}}}");
    assert_int_equal(RUN(scene, "tells", "--config=my.json", "--set=teller.rounds=4",
                         "--launch=processes", "--run-dir=run"),
                     0);
    assert_told(scene, "run", "rounds=4 rate=0x1p-1 widths=2,0,0 title=go seed=5\n");
    assert_file_contains(scene, "out", " as processes, seed 5,");
}

/* ---- resuming ---------------------------------------------------------------------------- */

static void a_refusal_to_resume_names_the_option_and_both_values(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(RUN(scene, "tells", "--run-dir=run", "--set=teller.widths=5"), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(RUN(scene, "tells", "--run-dir=run", "--resume", launch_modes[i],
                             "--set=teller.title=chess"),
                         2);
        assert_one_error(scene,
                         "run/config.json: the run cannot go on with other values of what it "
                         "has stored: teller.widths is 2, was 5: give the old ones with "
                         "--set, or start a new run");
    }
}

static void a_resume_tells_what_changed_and_keeps_the_first_configuration(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(RUN(scene, "tells", "--run-dir=run", "--set=teller.rounds=5"), 0);
    char *first = scene_read(scene, "run/config.json");
    assert_int_equal(RUN(scene, "tells", "--run-dir=run", "--resume", "--set=teller.title=chess"),
                     0);
    assert_file_contains(scene, "err", "coin: resumed with teller.rounds=3, it was 5\n");
    assert_file_contains(scene, "err", "coin: resumed with teller.title=chess, it was go\n");
    char *kept = scene_read(scene, "run/config-0.json");
    assert_string_equal(kept, first);
    assert_contains(kept, "\"--set=teller.rounds=5\"");
    assert_file_contains(scene, "run/config.json", "\"title\":\t\"chess\"");
    assert_int_equal(RUN(scene, "tells", "--run-dir=run", "--resume", "--set=teller.title=chess"),
                     0);
    char *text = scene_read(scene, "err");
    assert_string_equal(text, ""); /* nothing changed */
    free(text);
    free(kept);
    free(first);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(what_is_set_reaches_the_node_in_threads_and_processes),
        TEST(the_agents_options_are_set_in_threads_and_processes),
        TEST(wrong_settings_are_one_line_and_status_2),
        TEST(places_that_are_not_there_are_one_line_and_status_2),
        TEST(what_nobody_reads_is_said_at_the_start_with_what_it_needs),
        TEST(options_are_printed_and_nothing_is_started),
        TEST(options_are_printed_by_what_is_in_their_names),
        TEST(an_environment_unlike_the_learners_is_refused_by_both_names),
        TEST(the_configuration_of_a_run_repeats_it),
        TEST(a_deterministic_run_is_repeated_bit_for_bit_from_its_configuration),
        TEST(the_command_line_goes_before_the_file),
        TEST(a_refusal_to_resume_names_the_option_and_both_values),
        TEST(a_resume_tells_what_changed_and_keeps_the_first_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
