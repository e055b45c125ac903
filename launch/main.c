/* trp_main(): one entry for the launcher, for its children, and for the subcommands that start
 * nothing. Which of them this process is follows from its arguments alone. */
#include <troupe/program.h>

#include <stdio.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/log.h"
#include "core/nvidia.h"
#include "core/printable.h"
#include "child.h"
#include "config.h"
#include "eval.h"
#include "graph.h"
#include "options.h"
#include "run.h"
#include "settings.h"

/* Messages of config.h begin with the path. */
static trp_status config_failed(trp_status status)
{
    return trp_fail(status, "--config=%s", trp_last_error());
}

/* What the file says of how to launch; a child is told that by flags. */
static trp_status take_config(struct config *config, struct launch_options *options,
                              const char *program)
{
    trp_status status = config_read(config, options->config, program);
    if (status == TRP_OK && !options->node)
        status = config_launch(config, options);
    return status == TRP_OK ? TRP_OK : config_failed(status);
}

/* The user's build, what files and flags change of it, then our checks. A child is given all that
 * in the run's config.json. */
static trp_status make_graph(trp_program *program, struct launch_options *options,
                             struct config *config, trp_build build)
{
    if (options->config)
        TRP_TRY(take_config(config, options, program->name));
    TRP_TRY(build(program, options->build_argc, options->build_argv));
    trp_status status = config->json && !program->error ? config_apply(config, program) : TRP_OK;
    if (status != TRP_OK)
        return config_failed(status);
    if (!program->error)
        TRP_TRY(launch_options_apply(options, program));
    return program_check(program);
}

static int print_graph(const trp_program *program, const struct launch_options *options)
{
    if (options->dot)
        program_print_dot(program, stdout);
    else
        program_print_text(program, stdout);
    return 0;
}

static int list_options(const trp_program *program, const char *filter)
{
    if (program_print_options(program, filter, stdout) == TRP_OK)
        return 0;
    print_text(stderr, "%s: --options=%s: %s\n", program->name, filter, trp_last_error());
    return PROGRAM_REFUSED;
}

/* What a command prints is all that it is for. */
static int check_printed(const trp_program *program, int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    print_text(stderr, "%s: what it printed could not be written to standard output\n",
               program->name);
    return status == 0 ? PROGRAM_FAILED : status;
}

static int run_command(trp_program *program, struct launch_options *options, int argc, char **argv)
{
    if (options->node)
        return child_run(program, options);
    if (options->print_options)
        return check_printed(program, list_options(program, options->filter));
    if (options->command == COMMAND_GRAPH)
        return check_printed(program, print_graph(program, options));
    if (options->command == COMMAND_EVAL)
        return check_printed(program, eval_run(program, options));
    return run_program(program, options, argc, argv);
}

int trp_main(int argc, char **argv, const char *name, trp_build build)
{
    struct launch_options options;
    struct config config = {0};
    trp_program *program = trp_program_create(name);
    int exit_status = PROGRAM_REFUSED;
    if (launch_options_parse(&options, argc, argv) != TRP_OK)
        goto out;
    trp_log_set_level(options.log_level);
    log_set_shown(options.shown_level);
    nvidia_look_about(getenv);
    if (options.node && !child_attach(&options))
        goto out;
    if (make_graph(program, &options, &config, build) == TRP_OK)
        exit_status = run_command(program, &options, argc, argv);
    else if (options.node)
        child_refuse(trp_last_error());
    else
        print_text(stderr, "%s: %s\n", name, trp_last_error());
out:
    launch_options_cleanup(&options);
    config_cleanup(&config);
    trp_program_destroy(program);
    return exit_status;
}
