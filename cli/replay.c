/* `troupe replay`: its subcommands. */
#include "cli.h"

static const struct command commands[] = {
    {"serve", replay_serve, "serve tables over Reverb's protocol"},
    {"ls", replay_ls, "list the tables of a server, running or stopped"},
    {"info", replay_info, "a table's options, limiter and who is blocked; the store"},
    {"items", replay_items, "the items that a table's sampler likes best"},
    {"peek", replay_peek, "one item's columns"},
    {0},
};

int replay_command(int argc, char **argv)
{
    return command_run(commands, argc, argv);
}
