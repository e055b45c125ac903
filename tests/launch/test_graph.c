/* The graph that a launch file builds: what is accepted, what is refused by name, how it is shown.
 */
#include "graph_fixture.h"
#include "launch/settings.h"

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

static void learners_are_as_many_as_were_set_last(void **state)
{
    struct fixture *fixture = *state;
    struct nodes nodes = add_all(fixture->program, &fixture->agent);
    uint32_t number, index;
    assert_int_equal(program_check(fixture->program), TRP_OK);
    assert_false(group_is_gang(program_group(fixture->program, nodes.learner)));
    assert_int_equal(program_set_word(fixture->program, "learner.count=3"), TRP_OK);
    assert_int_equal(program_check(fixture->program), TRP_OK);
    assert_true(group_is_gang(program_group(fixture->program, nodes.learner)));
    assert_int_equal(fixture->program->node_count, 9);
    assert_int_equal(program_find(fixture->program, "learner/2", &number), TRP_OK);
    assert_int_equal(number, 3);
    assert_int_equal(program_find(fixture->program, "actor/0", &number), TRP_OK);
    assert_int_equal(number, 4);
    assert_string_equal(program_node(fixture->program, 8, &index)->name, "evaluator");
    char *text = printed(fixture->program, program_print_text);
    assert_non_null(strstr(text, "cartpole: 9 nodes in 4 groups"));
    assert_non_null(strstr(text, "learner          learner       3 nodes"));
    assert_non_null(strstr(text, "learner.count=3"));
    free(text);
    text = printed(fixture->program, program_print_dot);
    assert_non_null(strstr(text, "\"learner\" [shape=box, label=\"learner x 3\"];"));
    free(text);
}

static void compression_is_refused_by_modes_without_it(void **state)
{
    struct fixture *fixture = *state;
    struct nodes nodes = add_all(fixture->program, &fixture->agent);
    trp_add_learner(fixture->program, "pair",
                    &(trp_learner_options){.agent = &fixture->agent,
                                           .env = "CartPole-v1",
                                           .replay = nodes.replay,
                                           .mode = TRP_LEARNERS_HOGWILD,
                                           .compression = TRP_COMPRESSION_TOP_K});
    assert_refused(fixture->program,
                   "learner 'pair': compression is top-k, which the mode hogwild has "
                   "not: its learners send nothing");
    assert_int_equal(program_set_word(fixture->program, "pair.mode=local_sgd"), TRP_OK);
    assert_int_equal(program_check(fixture->program), TRP_OK);
    assert_int_equal(program_set_word(fixture->program, "pair.compression_momentum=0.5"), TRP_OK);
    assert_refused(fixture->program,
                   "which the mode local_sgd has not: compression_momentum is of gradients");
    assert_int_equal(program_set_word(fixture->program, "pair.mode=server"), TRP_OK);
    assert_int_equal(program_set_word(fixture->program, "pair.compression=powersgd"), TRP_OK);
    assert_refused(fixture->program,
                   "compression is powersgd, which the mode server has not: its factors");
    assert_int_equal(program_set_word(fixture->program, "pair.mode=synchronous"), TRP_OK);
    assert_int_equal(program_check(fixture->program), TRP_OK);
    const char *const wrong[] = {"pair.compression=gzip", "pair.compression_ratio=1.1",
                                 "pair.compression_momentum=1", "pair.compression_rank=33",
                                 "pair.compression_bits=1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(program_set_word(fixture->program, wrong[i]), TRP_INVALID_ARGUMENT);
}

static void wrong_numbers_of_learners_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct nodes nodes = add_all(fixture->program, &fixture->agent);
    trp_add_learner(fixture->program, "pair",
                    &(trp_learner_options){.agent = &fixture->agent,
                                           .env = "CartPole-v1",
                                           .replay = nodes.replay,
                                           .count = 2,
                                           .min_learners = 3});
    assert_refused(fixture->program, "learner 'pair': .min_learners is 3, of 2 learners");
    assert_int_equal(program_set_word(fixture->program, "pair.min_learners=2"), TRP_OK);
    assert_int_equal(program_check(fixture->program), TRP_OK);
    assert_int_equal(program_set_word(fixture->program, "pair.count=0"), TRP_INVALID_ARGUMENT);
    assert_int_equal(program_set_word(fixture->program, "pair.count=257"), TRP_INVALID_ARGUMENT);
    trp_add_actors(fixture->program, "crowd", 4080,
                   &(trp_actor_options){.agent = &fixture->agent,
                                        .env = "CartPole-v1",
                                        .replay = nodes.replay,
                                        .params = nodes.learner});
    assert_int_equal(program_check(fixture->program), TRP_OK);
    assert_int_equal(program_set_word(fixture->program, "pair.count=10"), TRP_OK);
    assert_refused(fixture->program, "actor 'crowd': 4080 nodes are too many");
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
        TEST(learners_are_as_many_as_were_set_last),
        TEST(compression_is_refused_by_modes_without_it),
        TEST(wrong_numbers_of_learners_are_refused),
        TEST(an_empty_group_is_refused),
        TEST(the_first_mistake_is_the_one_reported),
        TEST(dot_is_as_it_always_was),
        TEST(text_names_groups_edges_and_stop_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
