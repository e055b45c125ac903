/* What tests of runs with several learners look at: their processes, steps and generations. */
#ifndef TESTS_E2E_LEARNERS_H
#define TESTS_E2E_LEARNERS_H

#include "tests/launch/launch_tools.h"

#include <inttypes.h>

/* The newest process of the node with that log. */
static inline pid_t pid_in(const struct scene *scene, const char *name)
{
    char *log = scene_read(scene, name);
    const char *last = NULL;
    for (const char *at = log; (at = strstr(at, " as=processes pid="));)
        last = at += strlen(" as=processes pid=");
    pid_t pid = last ? (pid_t)strtol(last, NULL, 10) : 0;
    free(log);
    return pid;
}

static inline pid_t await_pid(const struct scene *scene, const char *name)
{
    struct deadline deadline = patience();
    pid_t pid;
    while ((pid = pid_in(scene, name)) == 0)
        look_again_soon(deadline, name);
    return pid;
}

static inline pid_t pid_of(const struct scene *scene, uint32_t index)
{
    char *name = xasprintf("run/logs/learner-%u.log", index);
    pid_t pid = pid_in(scene, name);
    free(name);
    return pid;
}

/* The last value of a metric that a learner reported; 0: none yet. */
static inline double reported(const struct scene *scene, uint32_t index, const char *metric)
{
    char *node = xasprintf("learner/%u", index);
    double value = value_of(scene, node, metric);
    free(node);
    return value;
}

static inline void await_steps(const struct scene *scene, uint32_t index, double steps)
{
    struct deadline deadline = patience();
    while (reported(scene, index, "learner_steps") < steps)
        look_again_soon(deadline, "steps of a learner");
}

/* Behind which one more number is kept. */
static inline uint64_t last_generation(const struct scene *scene)
{
    char *text = scene_read(scene, "run/generations");
    uint64_t number = 0;
    sscanf(text, "learner %" SCNu64, &number);
    free(text);
    return number > 0 ? number - 1 : 0;
}

static inline void await_generation(const struct scene *scene, uint64_t number)
{
    struct deadline deadline = patience();
    while (last_generation(scene) < number)
        look_again_soon(deadline, "a generation");
}

/* Waits until there is another process of that learner. */
static inline void await_restart(const struct scene *scene, uint32_t index, pid_t old)
{
    struct deadline deadline = patience();
    while (pid_of(scene, index) == old)
        look_again_soon(deadline, "a learner that is started again");
}

#endif
