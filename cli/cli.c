/* Choosing subcommands, flags with one-line complaints, and text in columns. */
#include "cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/flags.h"

static void print_commands(FILE *out, const struct command *commands, const char *so_far)
{
    fprintf(out, "Usage: %s COMMAND ...\n\n", so_far);
    for (const struct command *command = commands; command->name; ++command)
        fprintf(out, "  %-8s %s\n", command->name, command->words);
    fprintf(out, "\n%s COMMAND --help says more.\n", so_far);
}

int command_run(const struct command *commands, int argc, char **argv)
{
    if (argc < 2) {
        print_commands(stderr, commands, argv[0]);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_commands(stdout, commands, argv[0]);
        return 0;
    }
    for (const struct command *command = commands; command->name; ++command) {
        if (strcmp(command->name, argv[1]) != 0)
            continue;
        char *name = xasprintf("%s %s", argv[0], argv[1]);
        argv[1] = name;
        int status = command->run(argc - 1, argv + 1);
        free(name);
        return status;
    }
    fprintf(stderr, "%s: there is no command '%s'; use one of:", argv[0], argv[1]);
    for (const struct command *command = commands; command->name; ++command)
        fprintf(stderr, " %s", command->name);
    fputc('\n', stderr);
    return EXIT_USAGE;
}

int cli_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    flags_accept_h(argc, argv);
    error_t error = argp_parse(argp, argc, argv, 0, NULL, input);
    flags_hint(argv[0], error);
    return error == 0 ? 0 : EXIT_USAGE;
}

error_t cli_wrong(const struct argp_state *state, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", state->argv[0]);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return FLAGS_REFUSED;
}

error_t cli_parse_u64(const struct argp_state *state, const char *flag, const char *text,
                      uint64_t min, uint64_t max, uint64_t *value)
{
    if (!flags_u64(text, min, max, value))
        return cli_wrong(state, "--%s=%s: not a whole number from %llu to %llu", flag, text,
                         (unsigned long long)min, (unsigned long long)max);
    return 0;
}

int cli_failed(const char *command)
{
    fprintf(stderr, "%s: %s\n", command, trp_last_error());
    return EXIT_FAILED;
}

void grid_add(struct grid *grid, const char *format, ...)
{
    va_list args;
    char *text;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = xstrdup("?");
    va_end(args);
    if (grid->count == grid->capacity) {
        grid->capacity = grid->capacity ? 2 * grid->capacity : 64;
        grid->cells = xrealloc(grid->cells, grid->capacity * sizeof *grid->cells);
    }
    grid->cells[grid->count++] = text;
}

void grid_print(struct grid *grid)
{
    size_t *widths = xcalloc(grid->columns, sizeof *widths);
    for (size_t i = 0; i < grid->count; ++i) {
        size_t width = strlen(grid->cells[i]);
        if (width > widths[i % grid->columns])
            widths[i % grid->columns] = width;
    }
    for (size_t i = 0; i < grid->count; ++i) {
        size_t column = i % grid->columns;
        bool last = column + 1 == grid->columns;
        int width = (int)widths[column];
        if (grid->right && grid->right[column])
            printf("%*s", width, grid->cells[i]);
        else
            printf("%-*s", last ? 0 : width, grid->cells[i]);
        fputs(last ? "\n" : "  ", stdout);
    }
    free(widths);
}

void grid_cleanup(struct grid *grid)
{
    for (size_t i = 0; i < grid->count; ++i)
        free(grid->cells[i]);
    free(grid->cells);
    *grid = (struct grid){0};
}
