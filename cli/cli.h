/* What the files of `troupe` share. Exit statuses: 0 done, 1 it failed, 2 wrong usage. */
#ifndef TRP_CLI_CLI_H
#define TRP_CLI_CLI_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>
#include <troupe/status.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is all words so far: "troupe replay ls" */
    const char *words;                 /* what it does, for --help */
};

/* Runs the command that argv[1] names; the rows end with a NULL name. */
int command_run(const struct command *commands, int argc, char **argv);

int launch_command(int argc, char **argv);
int replay_command(int argc, char **argv);
int replay_serve(int argc, char **argv);
int replay_ls(int argc, char **argv);
int replay_info(int argc, char **argv);
int replay_items(int argc, char **argv);
int replay_peek(int argc, char **argv);

/* argp_parse() without argp's extra lines: what is wrong takes one line. 0 or an exit status. */
int cli_parse(const struct argp *argp, int argc, char **argv, void *input);

/* In an argp parser: prints "troupe ...: message" and returns FLAGS_REFUSED (core/flags.h). */
error_t cli_wrong(const struct argp_state *state, const char *format, ...) TRP_PRINTF(2, 3);

/* A whole number from min to max; FLAGS_REFUSED after a line that says so. */
error_t cli_parse_u64(const struct argp_state *state, const char *flag, const char *text,
                      uint64_t min, uint64_t max, uint64_t *value);

/* Prints "troupe ...: " and the last error; EXIT_FAILED. */
int cli_failed(const char *command);

/* ---- tables of text ---------------------------------------------------------------------- */

/* Rows of cells, printed in columns as wide as their widest cell. A zeroed struct is empty. */
struct grid {
    char **cells;
    size_t columns, count, capacity;
    const bool *right; /* columns that are aligned right; NULL: none */
};

/* Formats the next cell. */
void grid_add(struct grid *grid, const char *format, ...) TRP_PRINTF(2, 3);
void grid_print(struct grid *grid);
void grid_cleanup(struct grid *grid);

#endif
