/* The last lines of a run. Whoever reads only the last one knows whether it worked and, if not,
 * which node failed first, of what, and where to look; the exit status says the same. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/log.h"
#include "core/words.h"
#include "eval.h"
#include "run.h"
#include "limits.h"

static double last_total(const struct run *run, const char *metric)
{
    double sum = 0;
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        double value;
        if (gangs_counts(run, &run->nodes[i], metric) &&
            metrics_last(&run->nodes[i].metrics, metric, &value))
            sum += value;
    }
    return sum;
}

/* Failures that others of a group went on after are part of a run that ended well, too. */
static void print_excused(const struct run *run, int fd)
{
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        const struct run_node *node = &run->nodes[i];
        if (node->excused == 0)
            continue;
        char *name = xasprintf("%s:", node->name);
        uint32_t failures = node->excused + node->failed; /* the last one, of which it ended */
        output_print(run->output, fd, "  %-15s failed %u time%s, began again %u time%s: %s", name,
                     failures, plural(failures), node->restarts, plural(node->restarts),
                     node->failed ? node->failure : node->excuse);
        free(name);
    }
}

static void print_figures(const struct run *run, int fd)
{
    double seconds = (double)(clock_now_ns(&clock_monotonic) - run->started_ns) / 1e9;
    double actor_steps = last_total(run, "actor_steps");
    double learner_steps = last_total(run, "learner_steps");
    if (actor_steps + learner_steps > 0)
        output_print(run->output, fd,
                     "  time:           %.1f s, %.0f actor steps, %.0f learner "
                     "steps%s",
                     seconds, actor_steps, learner_steps,
                     run->options->resume ? " in all lives" : "");
    else
        output_print(run->output, fd, "  time:           %.1f s", seconds);
    print_excused(run, fd);
    output_print(run->output, fd, "  run directory:  %s", run->dir.shown_path);
}

char *run_checkpoint(const struct run *run)
{
    for (size_t i = 0; i < run->program->group_count; i++) {
        const struct node_group *group = run->program->groups[i];
        if (group->kind != NODE_LEARNER)
            continue;
        char *dir = xasprintf("%s/%s", run->dir.shown_path, group->name), *path;
        trp_status status = trp_learner_checkpoint_find(dir, &path);
        free(dir);
        if (status == TRP_OK)
            return path;
    }
    return NULL;
}

/* The parameters that this run saved: those that reached the target, else the learner's newest.
 * NULL: none. Caller frees. */
static char *saved_params(const struct run *run)
{
    char *path = xasprintf("%s/params.safetensors", run->dir.shown_path);
    if (access(path, R_OK) == 0)
        return path;
    free(path);
    return run_checkpoint(run);
}

/* The command that goes on with this run as it was; caller frees. */
static char *resume_command(const struct run *run)
{
    const struct launch_options *options = run->options;
    char *dir = shell_word(run->dir.shown_path), *arguments = launch_options_arguments(options);
    char *program = launch_options_program(options);
    char *command = xasprintf("%s --resume=%s%s%s", program, dir,
                              options->flags ? options->flags : "", arguments);
    free(program);
    free(dir);
    free(arguments);
    return command;
}

static void print_params(const struct run *run, int fd)
{
    char *path = saved_params(run);
    if (!path)
        return;
    char *arguments = launch_options_arguments(run->options), *file = shell_word(path);
    char *program = launch_options_program(run->options);
    char *settings = eval_settings(run->program, run->options);
    output_print(run->output, fd, "  parameters:     %s", path);
    if (settings)
        output_print(run->output, fd, "  try them:       %s eval --params=%s%s%s", program, file,
                     settings, arguments);
    free(settings);
    free(program);
    free(file);
    free(arguments);
    free(path);
}

static void print_last_log_lines(const struct run *run, const struct run_node *node)
{
    uint32_t count = node->line_count < LAST_LINES_MAX ? node->line_count : LAST_LINES_MAX;
    if (count == 0)
        return;
    output_print(run->output, STDERR_FILENO, "the last lines of %s:", node->name);
    for (uint32_t i = node->line_count - count; i < node->line_count; i++)
        output_print(run->output, STDERR_FILENO, "  | %s", node->last_lines[i % LAST_LINES_MAX]);
}

/* What went wrong besides `first`: a learner that could not write its checkpoint is not hidden by
 * whatever failed before it. */
static void print_other_failures(const struct run *run, const struct run_node *first)
{
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        const struct run_node *node = &run->nodes[i];
        if (node != first && run_failed_by_itself(node))
            output_print(run->output, STDERR_FILENO, "%s while stopping: %s", node->name,
                         node->failure);
    }
}

static void print_way_on(const struct run *run, bool refused)
{
    char *command = resume_command(run);
    output_print(run->output, STDERR_FILENO, "  %-15s %s",
                 refused ? "once mended:" : "go on with:", command);
    free(command);
}

/* Nodes only ended of it. */
static void print_own_failure(const struct run *run)
{
    print_other_failures(run, NULL);
    print_figures(run, STDERR_FILENO);
    print_way_on(run, true);
    output_print(run->output, STDERR_FILENO, "%s: failed: %s", run->program->name, run->error);
}

static void print_failure(const struct run *run, const struct run_node *node)
{
    print_last_log_lines(run, node);
    print_other_failures(run, node);
    print_figures(run, STDERR_FILENO);
    print_way_on(run, node->refuses);
    char *log = run_dir_log_path(run->dir.shown_path, node->group, node->index);
    output_print(run->output, STDERR_FILENO, "%s: failed: %s: %s; log: %s", run->program->name,
                 node->name, node->failure, log);
    free(log);
}

static void print_stopped(const struct run *run)
{
    const struct run_node *failure = run_first_failure(run);
    if (failure)
        output_print(run->output, STDERR_FILENO, "%s while stopping: %s", failure->name,
                     failure->failure);
    print_other_failures(run, failure);
    print_figures(run, STDERR_FILENO);
    print_params(run, STDERR_FILENO);
    char *command = resume_command(run);
    output_print(run->output, STDERR_FILENO, "%s: stopped by signal %d (%s); go on with: %s",
                 run->program->name, run->signal, strsignal(run->signal), command);
    free(command);
}

int summary_print(struct run *run)
{
    if (run->error) {
        print_own_failure(run);
        return 1;
    }
    if (run->signal != 0) {
        print_stopped(run);
        return 128 + run->signal;
    }
    const struct run_node *failure = run_first_failure(run);
    if (failure) {
        print_failure(run, failure);
        return 1;
    }
    output_print(run->output, STDOUT_FILENO, "%s: done: %s", run->program->name, run->reason);
    print_figures(run, STDOUT_FILENO);
    print_params(run, STDOUT_FILENO);
    return 0;
}

/* Straight to standard error: the thread is not the one that owns the output. */
void summary_print_exit(const struct run *run, int status)
{
    const char *node = log_origin_get().node;
    char *command = resume_command(run);
    dprintf(STDERR_FILENO,
            "  go on with:     %s\n%s: failed: %s: it called exit(%d), which ends "
            "every node of this process: a node ends when its body returns\n",
            command, run->program->name, node[0] ? node : "a thread", status);
    free(command);
}
