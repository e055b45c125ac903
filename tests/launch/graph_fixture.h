/* A program of every kind of node of an agent. */
#ifndef TESTS_LAUNCH_GRAPH_FIXTURE_H
#define TESTS_LAUNCH_GRAPH_FIXTURE_H

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

static inline int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    fixture->program = trp_program_create("cartpole");
    fixture->agent = trp_dqn(NULL);
    *state = fixture;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *fixture = *state;
    trp_program_destroy(fixture->program);
    free(fixture);
    return 0;
}

struct nodes {
    trp_node replay, learner, actors, evaluator;
};

static inline struct nodes add_all(trp_program *program, const trp_agent *agent)
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

static inline trp_status run_nothing(trp_context *context, const void *arg)
{
    (void)context;
    (void)arg;
    return TRP_OK;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
