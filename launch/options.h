/* The command line of every program that calls trp_main(). */
#ifndef TRP_LAUNCH_OPTIONS_H
#define TRP_LAUNCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/log.h>
#include "graph.h"

enum launch_command { COMMAND_RUN, COMMAND_GRAPH, COMMAND_EVAL };
enum launch_mode { LAUNCH_PROCESSES, LAUNCH_THREADS };

/* Exit statuses besides 0 and 128 + a signal: something failed that had begun; or it was refused,
 * and nothing had. */
enum { PROGRAM_FAILED = 1, PROGRAM_REFUSED };

/* 30 million years: some of them in milliseconds are still a time. */
#define LAUNCH_SECONDS_MAX 1e15

/* Strings point into argv. */
struct launch_options {
    const char *program; /* argv[0] */
    enum launch_command command;
    enum launch_mode mode;
    const char *run_dir;    /* NULL: a new one under ./runs */
    const char *resume_dir; /* that --resume names, which is run_dir then. Ours */
    bool resume, deterministic, seed_set, mode_set, max_seconds_set, grace_set;
    uint64_t seed;
    double max_seconds; /* 0: no limit */
    uint64_t max_steps; /* of the learner; 0: as in the graph */
    double target_return;
    bool target_set;
    double grace_seconds;
    trp_log_level log_level, shown_level; /* of nodes: what is logged; from where on it is shown */
    const char *device;                   /* --device; NULL: as nodes say */
    const char *config;                   /* --config; NULL: none */
    const char **sets;                    /* --set, in this order */
    size_t set_count;
    bool print_options;
    const char *filter; /* of them; NULL: all */
    bool verbose;       /* of a run inside another program: prints what trp_main() prints */
    bool dot;           /* graph */
    const char *params; /* eval */
    uint32_t episodes;
    bool stochastic;
    const char *returns, *record; /* .npz files; NULL: none */
    /* A child of the launcher only. */
    const char *node; /* NULL: this is the launcher */
    const char *socket_dir;
    int64_t parent;
    /* For `build`: argv[0], then what came after "--". */
    int build_argc;
    char **build_argv; /* freed by launch_options_cleanup() */
    char *flags;       /* " --max-steps=5 ...": what a resume has to repeat; NULL: none. Ours */
    int stopped_at;    /* what argp would have read next. Ours */
};

/* Parses; prints what is wrong and returns INVALID_ARGUMENT. --help, -h and --version print and
 * exit 0. */
TRP_MUST_USE trp_status launch_options_parse(struct launch_options *options, int argc, char **argv);
void launch_options_cleanup(struct launch_options *options);

/* Adds " --NAME=VALUE", as a shell takes it, to `*flags`, on the heap or NULL; without VALUE, NULL,
 * a flag that has none. */
void flags_append(char **flags, const char *name, const char *value);

/* " -- ARGS" for `build`, as a shell takes them, or "". Caller frees. */
char *launch_options_arguments(const struct launch_options *options);

/* By `troupe launch`, which makes argv[0] a command. */
bool launch_options_by_tool(const struct launch_options *options);

/* How a shell starts the program: argv[0], quoted where that is needed. What `troupe launch`
 * started has a whole command there. Caller frees. */
char *launch_options_program(const struct launch_options *options);

/* What --device, --set, --max-steps and --target-return change in the graph. INVALID_ARGUMENT: as
 * devices_set() and program_set(), or it has no learner or evaluator that they could apply to. */
TRP_MUST_USE trp_status launch_options_apply(const struct launch_options *options,
                                             trp_program *program);

const char *launch_mode_word(enum launch_mode mode);
const char *log_level_word(trp_log_level level);

#endif
