/* trp_main(): one entry for the launcher, for its children, and for the subcommands that start
 * nothing. Which of them this process is follows from its arguments alone. */
#include <troupe/program.h>

#include <stdio.h>

#include "core/printable.h"
#include "child.h"
#include "eval.h"
#include "graph.h"
#include "options.h"
#include "run.h"

enum { EXIT_USAGE = 2 };

/* The user's build, then our checks. */
static trp_status make_graph(trp_program *program, const struct launch_options *options,
                             trp_build build)
{
    TRP_TRY(build(program, options->build_argc, options->build_argv));
    TRP_TRY(program_check(program));
    return launch_options_apply(options, program);
}

static int print_graph(const trp_program *program, const struct launch_options *options)
{
    if (options->dot)
        program_print_dot(program, stdout);
    else
        program_print_text(program, stdout);
    return fflush(stdout) == 0 ? 0 : 1;
}

static int run_command(trp_program *program, struct launch_options *options, int argc, char **argv)
{
    if (options->node)
        return child_run(program, options);
    if (options->command == COMMAND_GRAPH)
        return print_graph(program, options);
    if (options->command == COMMAND_EVAL)
        return eval_run(program, options);
    return run_program(program, options, argc, argv);
}

int trp_main(int argc, char **argv, const char *name, trp_build build)
{
    struct launch_options options;
    trp_program *program = program_create(name);
    int exit_status = EXIT_USAGE;
    if (launch_options_parse(&options, argc, argv) != TRP_OK)
        goto out;
    trp_log_set_level(options.log_level);
    if (options.node && !child_attach(&options))
        goto out;
    if (make_graph(program, &options, build) == TRP_OK)
        exit_status = run_command(program, &options, argc, argv);
    else if (options.node)
        child_refuse(trp_last_error());
    else
        print_text(stderr, "%s: %s\n", name, trp_last_error());
out:
    launch_options_cleanup(&options);
    program_destroy(program);
    return exit_status;
}
