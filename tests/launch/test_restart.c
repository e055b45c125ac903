/* When nodes that failed begin again, with a target that starts nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/dqn.h>
#include "core/alloc.h"
#include "launch/run.h"
#include "tests/core/captured.h"

enum { RESTARTS = 12, LASTED_MS = 60000 };

struct scene {
    char dir[32];
    struct launch_options options;
    struct run run;
    struct run_node *node;   /* the only one that runs: an actor */
    struct run_node *server; /* of the learner */
};

static uint32_t starts;
static bool none_can_start;

static trp_status start_nothing(struct run *run, struct run_node *node)
{
    if (none_can_start)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s cannot be started: no room", node->name);
    run_node_started(run, node, getpid());
    starts++;
    return TRP_OK;
}

static void stop_nothing(struct run *run, struct run_node *node)
{
    (void)run;
    (void)node;
}

static const struct launch_target nothing = {.restart = start_nothing, .stop = stop_nothing};

/* An actor, and learners that go on without each other. */
static trp_program *actors_and_learners(void)
{
    trp_program *program = trp_program_create("actors");
    trp_agent agent = trp_dqn(&(trp_dqn_options){.hidden = {8}});
    trp_node replay = trp_add_replay(program, "replay", &(trp_replay_options){.agent = &agent});
    trp_node server = trp_add_parameter_server(
        program, "server", 1, &(trp_parameter_server_options){.restarts = RESTARTS});
    trp_node learner = trp_add_learner(program, "learner",
                                       &(trp_learner_options){.agent = &agent,
                                                              .replay = replay,
                                                              .count = 2,
                                                              .mode = TRP_LEARNERS_SERVER,
                                                              .server = server,
                                                              .on_failure = TRP_ON_FAILURE_CONTINUE,
                                                              .restarts = RESTARTS});
    trp_add_actors(program, "actor", 1,
                   &(trp_actor_options){.agent = &agent,
                                        .env = "Catch",
                                        .replay = replay,
                                        .params = learner,
                                        .restarts = RESTARTS});
    return program;
}

static int setup(void **state)
{
    struct scene *scene = xcalloc(1, sizeof *scene);
    struct run *run = &scene->run;
    starts = 0;
    none_can_start = false;
    strcpy(scene->dir, "/tmp/test_restart.XXXXXX");
    assert_non_null(mkdtemp(scene->dir));
    scene->options.grace_seconds = 20;
    scene->options.program = "actors";
    run_init(run, actors_and_learners(), &scene->options);
    assert_int_equal(program_check(run->program), TRP_OK);
    run->target = &nothing;
    run->dir.path = run->dir.shown_path = scene->dir;
    assert_int_equal(output_create(&run->output, true), TRP_OK);
    run->nodes = xcalloc(run->program->node_count, sizeof *run->nodes);
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        struct run_node *node = &run->nodes[i];
        node->number = i;
        node->group = program_node(run->program, i, &node->index);
        snprintf(node->name, sizeof node->name, "%s/%u", node->group->name, node->index);
        if (node->group->kind == NODE_ACTOR)
            scene->node = node;
        if (node->group->kind == NODE_SERVER)
            scene->server = node;
    }
    run_node_started(run, scene->node, getpid());
    *state = scene;
    return 0;
}

static int teardown(void **state)
{
    struct scene *scene = *state;
    struct run *run = &scene->run;
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        free(run->nodes[i].failure);
        free(run->nodes[i].excuse);
    }
    free(run->nodes);
    free(run->reason);
    output_destroy(run->output, 1000);
    gangs_destroy(run);
    trp_program_destroy(run->program);
    char *command = xasprintf("rm -rf %s", scene->dir);
    assert_int_equal(system(command), 0);
    free(command);
    free(scene);
    return 0;
}

/* It has ended, and its pause, if it has one, is over soon. */
static void fail_once(struct scene *scene)
{
    run_node_ended(&scene->run, scene->node, "it broke");
}

static void end_pause(struct scene *scene)
{
    scene->node->pause.at_ns = clock_now_ns(&clock_monotonic);
    restarts_tick(&scene->run);
}

static void who_fails_at_once_waits_longer_each_time(void **state)
{
    struct scene *scene = *state;
    static const int64_t pauses[] = {0, 100, 200, 400, 800, 1600, 3200, 5000, 5000};
    for (uint32_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
        fail_once(scene);
        assert_int_equal(scene->node->pause_ms, pauses[i]);
        assert_int_equal(scene->run.phase, RUNNING);
        assert_int_equal(scene->node->running, pauses[i] == 0);
        restarts_tick(&scene->run);
        assert_true(scene->node->paused || pauses[i] < 5000); /* which are over on a slow host */
        end_pause(scene);
        assert_int_equal(starts, i + 1);
        assert_true(scene->node->running && !scene->node->paused);
    }
}

/* Whoever is left then is not taken for the last one. */
static void a_pause_is_no_end_of_the_program(void **state)
{
    struct scene *scene = *state;
    fail_once(scene);
    fail_once(scene);
    assert_false(scene->node->running);
    assert_int_equal(starts, 1);
    run_stop_tick(&scene->run);
    assert_int_equal(scene->run.phase, RUNNING);
    assert_int_equal(scene->run.paused, 1);
}

static void who_lasted_begins_again_at_once(void **state)
{
    struct scene *scene = *state;
    fail_once(scene);
    fail_once(scene);
    end_pause(scene);
    scene->node->started_ns -= LASTED_MS * INT64_C(1000000);
    fail_once(scene);
    assert_int_equal(scene->node->pause_ms, 0);
    fail_once(scene); /* the first one that does not last */
    assert_int_equal(scene->node->pause_ms, 0);
    fail_once(scene);
    assert_int_equal(scene->node->pause_ms, 100);
}

static void a_stop_ends_a_pause_and_nothing_begins(void **state)
{
    struct scene *scene = *state;
    for (uint32_t i = 0; i < 2; i++)
        fail_once(scene);
    assert_int_equal(scene->run.paused, 1);
    run_stop(&scene->run, false, "stopped");
    restarts_tick(&scene->run); /* long before its time */
    assert_int_equal(scene->run.paused, 0);
    assert_int_equal(starts, 1);
    assert_false(scene->node->running);
}

/* The learners, who are asked to end before it, save what it has. */
static void a_stop_begins_a_server_that_pauses(void **state)
{
    struct scene *scene = *state;
    run_node_started(&scene->run, scene->server, getpid());
    for (uint32_t i = 0; i < 2; i++)
        run_node_ended(&scene->run, scene->server, "it broke");
    assert_true(scene->server->paused);
    assert_int_equal(starts, 1);
    run_stop(&scene->run, true, "the time is over");
    restarts_tick(&scene->run);
    assert_int_equal(starts, 2);
    assert_true(scene->server->running && !scene->server->paused);
    run_node_ended(&scene->run, scene->server, "it broke again");
    restarts_tick(&scene->run);
    assert_int_equal(starts, 2);
}

static void a_server_that_pauses_is_killed_with_the_others(void **state)
{
    struct scene *scene = *state;
    run_node_started(&scene->run, scene->server, getpid());
    for (uint32_t i = 0; i < 2; i++)
        run_node_ended(&scene->run, scene->server, "it broke");
    run_stop(&scene->run, true, "the time is over");
    scene->run.kill_all = true;
    restarts_tick(&scene->run);
    assert_int_equal(starts, 1);
    assert_int_equal(scene->run.paused, 0);
}

/* Learners fail twice, and the program is stopped while they pause. */
static void stop_in_pauses(struct scene *scene, uint32_t pausing)
{
    struct run *run = &scene->run;
    assert_int_equal(gangs_create(run), TRP_OK);
    while (scene->node->group->kind != NODE_LEARNER || scene->node->index > 0)
        scene->node--;
    for (uint32_t i = 0; i < 2; i++)
        run_node_started(run, scene->node + i, getpid());
    for (uint32_t i = 0; i < 2 * pausing; i++)
        run_node_ended(run, scene->node + i % pausing, "it broke");
    assert_int_equal(run->paused, pausing);
    run_stop(run, true, "the time is over");
}

/* What they learned is nowhere else. */
static void a_stop_while_all_learners_pause_has_no_last_checkpoint(void **state)
{
    struct scene *scene = *state;
    stop_in_pauses(scene, 2);
    for (size_t i = 0; i < scene->run.program->group_count; i++)
        if (scene->run.program->groups[i]->kind == NODE_LEARNER)
            scene->run.program->groups[i]->options.learner.mode = TRP_LEARNERS_LOCAL_SGD;
    restarts_tick(&scene->run);
    const struct run_node *first = run_first_failure(&scene->run);
    assert_ptr_equal(first, scene->node);
    assert_string_equal(first->failure,
                        "the last checkpoint was not written: it was about to begin again when the "
                        "program stopped, as it had failed: it broke");
    assert_int_equal(summary_print(&scene->run), 1);
}

static void where_servers_save_a_stop_while_all_learners_pause_ends_well(void **state)
{
    struct scene *scene = *state;
    run_node_started(&scene->run, scene->server, getpid());
    stop_in_pauses(scene, 2);
    restarts_tick(&scene->run);
    assert_int_equal(scene->run.paused, 0);
    assert_null(run_first_failure(&scene->run));
    run_node_ended(&scene->run, scene->server, NULL);
    assert_int_equal(summary_print(&scene->run), 0);
}

static void where_a_server_has_failed_too_it_does_not(void **state)
{
    struct scene *scene = *state;
    run_node_started(&scene->run, scene->server, getpid());
    stop_in_pauses(scene, 2);
    run_node_failed(&scene->run, scene->server, TRP_UNAVAILABLE, "the disk is full");
    restarts_tick(&scene->run);
    assert_true(scene->node->failed && (scene->node + 1)->failed);
}

static void a_learner_that_goes_on_writes_the_last_checkpoint(void **state)
{
    struct scene *scene = *state;
    stop_in_pauses(scene, 1);
    restarts_tick(&scene->run);
    assert_int_equal(scene->run.paused, 0);
    assert_null(run_first_failure(&scene->run));
}

static void who_cannot_be_started_again_fails_of_that(void **state)
{
    struct scene *scene = *state;
    none_can_start = true;
    fail_once(scene);
    assert_int_equal(scene->run.phase, STOPPING);
    const struct run_node *first = run_first_failure(&scene->run);
    assert_ptr_equal(first, scene->node);
    assert_string_equal(first->failure,
                        "it is not started again: actor/0 cannot be started: no room");
}

/* Also where the others do without it: else it would seem to be on its way. */
static void a_learner_that_cannot_be_started_again_is_told_of(void **state)
{
    struct scene *scene = *state;
    struct run *run = &scene->run;
    struct captured captured;
    output_destroy(run->output, 1000);
    assert_int_equal(output_create(&run->output, false), TRP_OK);
    assert_int_equal(gangs_create(run), TRP_OK);
    while (scene->node->group->kind != NODE_LEARNER)
        scene->node--;
    run_node_started(run, scene->node, getpid());
    none_can_start = true;
    capture_begin(&captured);
    fail_once(scene);
    output_destroy(run->output, 20000);
    run->output = NULL;
    capture_end(&captured);
    assert_int_equal(run->phase, RUNNING);
    assert_int_equal(captured_count(&captured, "learner/1 failed: it broke: the others go on"), 1);
    assert_int_equal(
        captured_count(&captured, "/1: it is not started again: learner/1 cannot be started: no "),
        1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(who_fails_at_once_waits_longer_each_time),
        TEST(a_pause_is_no_end_of_the_program),
        TEST(who_lasted_begins_again_at_once),
        TEST(a_stop_ends_a_pause_and_nothing_begins),
        TEST(a_stop_begins_a_server_that_pauses),
        TEST(a_server_that_pauses_is_killed_with_the_others),
        TEST(a_stop_while_all_learners_pause_has_no_last_checkpoint),
        TEST(where_servers_save_a_stop_while_all_learners_pause_ends_well),
        TEST(where_a_server_has_failed_too_it_does_not),
        TEST(a_learner_that_goes_on_writes_the_last_checkpoint),
        TEST(who_cannot_be_started_again_fails_of_that),
        TEST(a_learner_that_cannot_be_started_again_is_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
