/* trp_run(): a whole program inside a test. It is a run as any other, with all nodes as threads,
 * but the process is somebody else's: its signals, its streams and its arguments are left alone. */
#include <troupe/program.h>

#include <stdio.h>
#include <stdlib.h>

#include "core/buffer.h"
#include "core/log.h"
#include "core/status.h"
#include "graph.h"
#include "run.h"

enum { EMBEDDED_GRACE_S = 20, GRACE_S_MAX = 1000000 };

static trp_status check_program(trp_program *program, const struct launch_options *options)
{
    if (!program->error)
        TRP_TRY(launch_options_apply(options, program));
    return program_check(program);
}

/* ", b/0, c/1", the nodes that were left besides `named`; caller frees. */
static char *others_left(const struct run *run, const struct run_node *named)
{
    struct buffer text = {0};
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        const struct run_node *node = &run->nodes[i];
        if (!node->killed || node == named)
            continue;
        buffer_append(&text, text_bytes(text.size ? ", " : "; did not stop either: "));
        buffer_append(&text, text_bytes(node->name));
    }
    return buffer_text(&text);
}

static trp_status outcome(struct run *run, trp_run_result *result)
{
    snprintf(result->reason, sizeof result->reason, "%s", run->reason ? run->reason : "");
    if (run->error)
        return trp_fail(TRP_INTERNAL, "%s", run->error);
    const struct run_node *failure = run_first_failure(run);
    if (!failure)
        return TRP_OK;
    char *left = others_left(run, failure);
    trp_status status = trp_fail(failure->code ? failure->code : TRP_INTERNAL, "%s: %s%s",
                                 failure->name, failure->failure, left);
    free(left);
    return status;
}

static trp_status run_embedded(trp_program *program, struct launch_options *options,
                               trp_run_result *result)
{
    struct run run;
    char *argv[] = {program->name, NULL};
    run_init(&run, program, options);
    run.embedded = true;
    trp_status status = run_prepare(&run, 1, argv);
    if (status == TRP_OK) {
        run_nodes(&run);
        status = outcome(&run, result);
    }
    if (run.dir.path)
        snprintf(result->run_dir, sizeof result->run_dir, "%s", run.dir.path);
    char *kept = status == TRP_OK ? NULL : error_keep();
    run_cleanup(&run);
    return status == TRP_OK ? TRP_OK : error_back(status, kept);
}

trp_status trp_run(trp_program *program, const trp_run_options *options, trp_run_result *result)
{
    static const trp_run_options none;
    const trp_run_options *wanted = options ? options : &none;
    trp_run_result ignored;
    char *arguments[] = {program->name, NULL};
    struct launch_options launch = {
        .program = program->name,
        .mode = LAUNCH_THREADS,
        .run_dir = wanted->run_dir,
        .resume = wanted->resume,
        .deterministic = wanted->deterministic,
        .seed_set = wanted->seed != 0,
        .seed = wanted->seed,
        .max_seconds = wanted->max_seconds,
        .grace_seconds = wanted->grace_seconds > 0 ? wanted->grace_seconds : EMBEDDED_GRACE_S,
        .sets = (const char **)(uintptr_t)wanted->sets,
        .set_count = wanted->set_count,
        .verbose = wanted->verbose,
        .build_argc = 1,
        .build_argv = arguments,
    };
    trp_run_result *to = result ? result : &ignored;
    *to = (trp_run_result){0};
    if (!(wanted->max_seconds >= 0))
        return trp_fail(TRP_INVALID_ARGUMENT, "trp_run: max_seconds is %g", wanted->max_seconds);
    if (!(wanted->grace_seconds >= 0 && wanted->grace_seconds <= GRACE_S_MAX))
        return trp_fail(TRP_INVALID_ARGUMENT, "trp_run: grace_seconds is %g, expected 0 to %d",
                        wanted->grace_seconds, GRACE_S_MAX);
    TRP_TRY(check_program(program, &launch));
    log_set_shown(TRP_WARN); /* what nodes log is in logs/, as with trp_main() */
    trp_status status = run_embedded(program, &launch, to);
    if (status != TRP_OK)
        snprintf(to->reason, sizeof to->reason, "%s", trp_last_error());
    return status;
}
