/* `troupe`: the table of its commands. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static const struct cli_option man_rows[] = {
    {.name = "roff",
     .at = offsetof(struct man_args, roff),
     .help = "prints the page's source: troupe man --roff replay ls | man -l -"},
    {.name = "dir",
     .kind = CLI_TEXT,
     .value = "DIR",
     .at = offsetof(struct man_args, dir),
     .help = "writes the pages of the command and all below it to DIR"},
    {0},
};

static const struct command commands[] = {
    {.name = "launch",
     .summary = "compile a launch file and run it",
     .arguments = "FILE.c [FILE...] [-- ARGS...]",
     .details = "Compiles a launch file with $CC or cc and runs the program with ARGS. It may be "
                "several .c files, and .proto files: protoc-c makes NAME.pb-c.h and its code of "
                "NAME.proto, and the .c files find the header. `troupe launch FILE.c -- --help` "
                "shows the program's own options.",
     .stops = true,
     .run = launch_command},
    {.name = "options",
     .summary = "what may be set on built-in agents and nodes",
     .arguments = "[KIND...]",
     .details = "Prints the options of an agent (dqn, ppo, ...) or a kind of node (replay, server, "
                "learner, cache, actor, evaluator), or all. A program takes them as --set "
                "GROUP.OPTION=VALUE, those of its agents as --set agent.OPTION=VALUE, and in a "
                "file as --config FILE; PROGRAM --options prints its own, with their values.",
     .listing = options_listing,
     .run = options_command},
    {.name = "replay",
     .summary = "serve, look at and change replay tables",
     .commands = replay_commands},
    {.name = "completion",
     .summary = "a script that completes troupe's command lines",
     .arguments = "bash|zsh|fish",
     .details = "Load it with: source <(troupe completion bash), the same with zsh, or troupe "
                "completion fish | source",
     .run = completion_command},
    {.name = "man",
     .summary = "manual pages",
     .arguments = "[COMMAND...]",
     .details =
         "Prints a command's page as plain text, wherever it goes. Where troupe is installed, man "
         "troupe-replay-ls shows the same page.",
     .options = {man_rows},
     .args_size = sizeof(struct man_args),
     .run = man_command},
    {0},
};

const struct command cli_root = {.name = "troupe",
                                 .summary = "distributed reinforcement learning: run programs, and "
                                            "look at their replay servers",
                                 .commands = commands};

/* What did not get out is a failure: on a full disk a script would go on with half of a list. Why
 * it did not is known where the last write failed; otherwise another byte tells. */
static int output_check(int status)
{
    if (fflush(stdout) == 0 && (!ferror(stdout) || write(STDOUT_FILENO, "\n", 1) == 1) &&
        !ferror(stdout))
        return status;
    fprintf(stderr, "%s: standard output: %s\n", cli_root.name, strerror(errno));
    return status == EXIT_DONE ? EXIT_FAILED : status;
}

int main(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)) {
        printf("troupe %s\n", trp_version());
        return output_check(EXIT_DONE);
    }
    return output_check(command_run(&cli_root, cli_root.name, argc, argv));
}
