/* What the files of `troupe` share: the table of commands, from which parsing, --help, man pages
 * and completion all come. */
#ifndef TRP_CLI_CLI_H
#define TRP_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <troupe/status.h>

/* Exit statuses; cli_exit_words has them in words. */
enum { EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_NOTHING, EXIT_DAMAGED, EXIT_COUNT };
extern const char *const cli_exit_words[EXIT_COUNT];

/* What an option's value is, and the type of the variable that it sets. */
enum cli_kind {
    CLI_FLAG,    /* bool */
    CLI_TEXT,    /* const char * */
    CLI_CHOICE,  /* uint32_t: the index in `words` */
    CLI_U64,     /* uint64_t from min to max */
    CLI_NUMBER,  /* double, finite */
    CLI_SECONDS, /* double, from 0 to CLI_SECONDS_MAX */
    CLI_PERIOD,  /* the same, and not 0 */
    CLI_TIMEOUT, /* the same as CLI_SECONDS, or -1: for ever */
    CLI_BYTES,   /* uint64_t > 0, with K, M, G or T */
    CLI_LIST,    /* struct cli_list: may be given many times */
};

struct cli_list {
    const char **words;
    size_t count;
};

struct cli_option {
    const char *name; /* without --; NULL ends a group */
    char letter;      /* '\0': none */
    enum cli_kind kind;
    const char *value; /* placeholder of the value */
    const char *help;
    size_t at;            /* offset of its variable in the command's arguments */
    size_t given;         /* offset of a bool that says it was given; 0: none (0 is `json`) */
    uint64_t min, max;    /* CLI_U64; CLI_BYTES: min alone */
    const char *words;    /* CLI_CHOICE: separated by spaces */
    const char *fallback; /* the value when it is not given, as one would type it */
    bool needed;          /* CLI_TEXT: it has to be given */
};

enum { CLI_GROUPS_MAX = 5 };

struct command;

/* A command that runs. */
struct cli_call {
    const struct command *command;
    const char *name; /* all words so far: "troupe replay ls" */
    const void *args; /* command.args_size bytes that the options set */
    char **words;     /* what is no option; then NULL */
    size_t word_count;
};

struct command {
    const char *name;
    const char *summary;        /* one line */
    const char *arguments;      /* e.g. "TARGET [TABLE]", "TARGET TABLE KEY..." */
    const char *details;        /* paragraphs; lines that begin with a space are kept as they are */
    void (*listing)(FILE *out); /* prints what follows the details; NULL: nothing does */
    const struct cli_option *options[CLI_GROUPS_MAX]; /* groups, NULL-ended */
    size_t args_size;
    int (*run)(const struct cli_call *call);
    bool stops; /* options end at the first word: what follows belongs to somebody else */
    const struct command *commands; /* instead: subcommands, ended by a NULL name */
};

/* All of `troupe`. */
extern const struct command cli_root;

/* Does what argv[1] and on say of `command`; `name` is all words so far. An exit status. */
int command_run(const struct command *command, const char *name, int argc, char **argv);

/* Prints "NAME: message", one line; EXIT_USAGE. */
int cli_wrong(const char *name, const char *format, ...) TRP_PRINTF(2, 3);

/* Prints "NAME: " and the last error; the exit status for `status`, which is not TRP_OK. */
int cli_failed(const char *name, trp_status status);

/* A size as options take it; numbers: core/flags.h. */
bool cli_parse_bytes(const char *text, uint64_t *value);

int64_t seconds_ms(double seconds); /* of a CLI_TIMEOUT, for calls that take -1, too */

/* ---- help.c, man.c, completion.c: texts made of the table --------------------------------- */

void help_print(FILE *out, const struct command *command, const char *name);

/* What follows the name of a command that runs: " --dir=PATH TARGET [OPTION...]". Caller frees. */
char *help_usage(const struct command *command);

/* Paragraphs that commands with such arguments share, e.g. what a TARGET is; NULL: none. */
const char *help_of_arguments(const struct command *command);

int man_command(const struct cli_call *call);
struct man_args {
    bool roff;
    const char *dir;
};
int completion_command(const struct cli_call *call);

/* ---- the commands -------------------------------------------------------------------------- */

int launch_command(const struct cli_call *call);
int options_command(const struct cli_call *call);
void options_listing(FILE *out);
extern const struct command replay_commands[];

#endif
