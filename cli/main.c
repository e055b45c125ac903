/* `troupe`: the table of its commands. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const struct cli_option man_rows[] = {
    {"dir", 0, CLI_TEXT, "DIR", "writes the pages of the command and all below it to DIR",
     offsetof(struct man_args, dir), 0, 0, 0, NULL, NULL},
    {0},
};

static const struct command commands[] = {
    {.name = "launch",
     .summary = "compile a launch file and run it",
     .arguments = "FILE.c [-- ARGS...]",
     .details = "Compiles a launch file with $CC or cc and runs the program with ARGS. "
                "`troupe launch FILE.c -- --help` shows the program's own options.",
     .stops = true,
     .run = launch_command},
    {.name = "replay",
     .summary = "serve, look at and change replay tables",
     .commands = replay_commands},
    {.name = "completion",
     .summary = "a script that completes troupe's command lines",
     .arguments = "bash",
     .details = "Load it with: source <(troupe completion bash)",
     .run = completion_command},
    {.name = "man",
     .summary = "manual pages",
     .arguments = "[COMMAND...]",
     .details = "Prints the page of a command, e.g. troupe man replay ls | man -l -",
     .options = {man_rows},
     .args_size = sizeof(struct man_args),
     .run = man_command},
    {0},
};

const struct command cli_root = {.name = "troupe",
                                 .summary = "distributed reinforcement learning: run programs, and "
                                            "look at their replay servers",
                                 .commands = commands};

int main(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)) {
        printf("troupe %s\n", trp_version());
        return 0;
    }
    return command_run(&cli_root, cli_root.name, argc, argv);
}
