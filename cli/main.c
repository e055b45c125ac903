/* `troupe`: one file per subcommand; this one has the table of them. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const struct command commands[] = {
    {"launch", launch_command, "compile a launch file and run it"},
    {"replay", replay_command, "serve and look at replay servers"},
    {0},
};

int main(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)) {
        printf("troupe %s\n", trp_version());
        return 0;
    }
    argv[0] = "troupe";
    return command_run(commands, argc, argv);
}
