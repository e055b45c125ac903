/* A stop goes level by level: actors and evaluators first, then the learner, which checkpoints,
 * then replay, so that nobody loses the peer it is flushing to. Each level has the grace period,
 * the whole has three of them; what is left then is killed. A second signal kills at once, unless
 * it comes so soon that it is the first one, sent to the process and to its group.
 *
 * With no stop decided the same rule ends a program whose last users have ended by themselves. */
#include "run.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"

enum { WHOLE_STOP_GRACES = 3 };

static int64_t grace_ms(const struct run *run)
{
    return (int64_t)(run->options->grace_seconds * 1000);
}

static bool level_runs(const struct run *run, uint32_t level)
{
    for (uint32_t i = 0; i < run->program->node_count; i++)
        if ((run->nodes[i].running || run->nodes[i].paused) && run->nodes[i].group->level <= level)
            return true;
    return false;
}

static void ask_level(struct run *run)
{
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        struct run_node *node = &run->nodes[i];
        if (!node->running || node->stop_requested || node->group->level > run->level)
            continue;
        node->stop_requested = true;
        run->target->stop(run, node);
    }
    run->level_deadline = deadline_in_ms(&clock_monotonic, grace_ms(run));
}

void run_stop(struct run *run, bool success, const char *reason)
{
    if (!run->stop_decided) {
        run->stop_decided = true;
        run->success = success;
        run->reason = xstrdup(reason);
    }
    if (run->phase == STOPPING)
        return;
    run->phase = STOPPING;
    run->level = 0;
    run->stop_deadline = deadline_in_ms(&clock_monotonic, WHOLE_STOP_GRACES * grace_ms(run));
    ask_level(run);
}

void run_fail(struct run *run, const char *error)
{
    if (run->error)
        return;
    run->error = xstrdup(error);
    run_stop(run, false, error);
}

void run_stop_by_signal(struct run *run, int signal)
{
    if (run->signals_seen > 0 && !deadline_passed(run->signal_echo, &clock_monotonic))
        return;
    if (run->signals_seen++ > 0) {
        run->kill_all = true;
        run->signal = signal;
        output_print(run->output, STDERR_FILENO, "%s: %s again: killing the nodes",
                     run->program->name, strsignal(signal));
        return;
    }
    run->signal_echo = deadline_in_ms(&clock_monotonic, SIGNAL_ECHO_MS);
    output_print(run->output, STDERR_FILENO, "%s: %s: stopping the nodes; once more kills them",
                 run->program->name, strsignal(signal));
    if (run->stop_decided)
        return;
    char reason[64];
    snprintf(reason, sizeof reason, "stopped by signal %d (%s)", signal, strsignal(signal));
    run->signal = signal;
    run_stop(run, false, reason);
}

static void kill_node(struct run *run, struct run_node *node, const char *why)
{
    if (!node->running || node->killed)
        return;
    if (why)
        run_node_failed(run, node, TRP_DEADLINE_EXCEEDED, why);
    node->killed = true;
    run->target->kill(run, node);
}

/* Kills what runs up to `level`. */
static void kill_level(struct run *run, uint32_t level, const char *why)
{
    for (uint32_t i = 0; i < run->program->node_count; i++)
        if (run->nodes[i].group->level <= level)
            kill_node(run, &run->nodes[i], why);
}

void run_stop_tick(struct run *run)
{
    if (run->kill_all)
        kill_level(run, UINT32_MAX, NULL);
    if (run->phase == RUNNING) {
        if (!level_runs(run, 0))
            run_stop(run, true, "every node that no other uses has ended");
        return;
    }
    char why[80];
    snprintf(why, sizeof why, "it did not stop within %g s and %s", run->options->grace_seconds,
             run->embedded ? "goes on as a thread" : "was killed");
    if (deadline_passed(run->stop_deadline, &clock_monotonic))
        kill_level(run, UINT32_MAX, why);
    else if (deadline_passed(run->level_deadline, &clock_monotonic))
        kill_level(run, run->level, why);
    while (run->running > 0 && !level_runs(run, run->level)) {
        run->level++;
        ask_level(run);
    }
}
