/* One running program as its launcher sees it.
 *
 *   run.c        the loop, signals, limits of time        failure.c   which failure was the first
 *   stop.c       the order of a stop                      summary.c   the last lines
 *   link.c       messages to and from the nodes           progress.c  a line a second, metrics.csv
 *   processes.c  a process per node                       threads.c   all nodes in this process
 *   gangs.c      groups of learners                       restart.c   when a node begins again
 *   embedded.c   a run inside a test
 *
 * Everything belongs to the main thread. */
#ifndef TRP_LAUNCH_RUN_H
#define TRP_LAUNCH_RUN_H

#include <sys/types.h>

#include "core/clock.h"
#include "control.h"
#include "graph.h"
#include "loop.h"
#include "metrics.h"
#include "options.h"
#include "output.h"
#include "run_dir.h"
#include "core/limits.h"
#include "limits.h"

struct run;

struct run_node {
    const struct node_group *group;
    uint32_t number, index;
    char name[NODE_NAME_BYTES_MAX];
    char *address; /* NULL: it does not serve (yet) */
    bool running;
    bool said_hello, stop_requested, killed;
    bool failed, refuses;  /* refuses: it will fail of the same if it begins again */
    uint32_t failed_order; /* 0 was the first of the run */
    trp_status code;
    char *failure; /* what the node said, or how it ended */
    struct metrics metrics;
    char last_lines[LAST_LINES_MAX][LAST_LINE_BYTES_MAX]; /* a ring */
    uint32_t line_count;
    uint32_t restarts; /* so far */
    int64_t started_ns, serves_ns;
    uint32_t short_lives; /* in a row (restart.c) */
    int64_t pause_ms;     /* before it begins again */
    bool paused;          /* until then: */
    struct deadline pause;
    uint32_t excused; /* failures that the others of its group went on after */
    char *excuse;     /* the last of them */
};

/* The launcher's end of the control socket of one process and the nodes in it. */
struct process_link {
    struct watch watch;
    struct run *run;
    uint32_t first, count;
    uint8_t *told;            /* per node of the program: TOLD_* */
    uint32_t *told_publisher; /* per group: 1 + its number; 0: none */
    bool pending;             /* there was no room for all */
};

/* How nodes are run. Everything is given the run; `node` is one that runs. */
struct launch_target {
    /* Starts every node. On failure the run is stopped as usual. */
    trp_status (*start)(struct run *run);
    void (*stop)(struct run *run, struct run_node *node); /* asks it to end */
    void (*kill)(struct run *run, struct run_node *node); /* makes it */
    void (*suspend)(struct run *run, bool on); /* every node; NULL: they are in this process */
    /* One that has ended. */
    trp_status (*restart)(struct run *run, struct run_node *node);
    void (*tick)(struct run *run);   /* now and then; may be NULL */
    void (*finish)(struct run *run); /* every node has ended, or was left */
};

extern const struct launch_target processes_target, threads_target;

enum stop_phase { RUNNING, STOPPING };

struct run {
    trp_program *program;
    struct launch_options *options;
    struct run_dir dir;
    uint64_t seed; /* of this life */
    struct loop loop;
    struct watch signals;
    struct output *output;
    const struct launch_target *target;
    void *state; /* the target's */
    struct run_node *nodes;
    struct process_link **links; /* one per process */
    uint32_t link_count;
    struct run_gang **gangs;
    uint32_t gang_count;
    uint32_t running, paused, failures;
    bool child_ended; /* SIGCHLD came since the target's last tick */
    bool unlisted;    /* `addresses` was not written the last time */
    bool abandoned;   /* threads that never ended: leave by _exit() */
    uint32_t left;    /* the same in a program that goes on: these threads do, too */
    bool embedded;    /* in a program that goes on after it: its signals and streams stay its own */

    enum stop_phase phase;
    bool stop_decided; /* why and how it ends is settled */
    bool success;
    char *reason;
    char *error; /* of the launcher itself; NULL: none */
    int signal;  /* that stopped it; 0: none did */
    uint32_t signals_seen;
    struct deadline signal_echo; /* until then another one is the first one again */
    uint32_t level;              /* nodes up to this one have been asked to end */
    struct deadline level_deadline, stop_deadline;
    bool kill_all;

    int64_t started_ns, continued_ns; /* of which suspensions are no part; since the last one */
    struct deadline next_tick, next_progress;
    struct run_progress *progress;
};

/* Runs the program to its end; returns the exit status. */
int run_program(trp_program *program, struct launch_options *options, int argc, char **argv);

/* ---- its parts, in this order (run.c) ---------------------------------------------------- */

void run_init(struct run *run, trp_program *program, struct launch_options *options);

/* Run directory, configuration, signals, output. */
TRP_MUST_USE trp_status run_prepare(struct run *run, int argc, char **argv);

/* Starts the nodes and returns when all have ended, or threads were abandoned. */
void run_nodes(struct run *run);

/* Ends this process around threads that still run in what would be torn down. */
_Noreturn void run_abandon(struct run *run, int exit_status);

/* Also after a failed run_prepare(). */
void run_cleanup(struct run *run);

/* What a node draws its random numbers from: one that began again does not draw them again. */
uint64_t run_node_seed(const struct run *run, const struct run_node *node);

struct run_node *run_node(struct run *run, const struct node_group *group, uint32_t index);

/* ---- what happens to nodes (run.c) ------------------------------------------------------- */

void run_node_started(struct run *run, struct run_node *node, pid_t pid);
void run_node_serves(struct run *run, struct run_node *node, const char *address);
void run_node_printed(struct run *run, struct run_node *node, int fd, const char *line,
                      size_t size);

/* `failure` (copied) NULL: it ended as it should. What the node said itself counts more than how
 * its process ended. */
void run_node_ended(struct run *run, struct run_node *node, const char *failure);

/* It does not run: the program goes on without it, or it begins again, or its failure is the
 * program's. */
void run_node_is_gone(struct run *run, struct run_node *node);

/* ---- stop.c ------------------------------------------------------------------------------ */

/* Begins to stop the program; `reason` (copied) of the first call counts. */
void run_stop(struct run *run, bool success, const char *reason);

/* Stops it as the launcher itself cannot go on, for this reason (copied). */
void run_fail(struct run *run, const char *error);

/* A signal: the first stops, the second kills. */
void run_stop_by_signal(struct run *run, int signal);

/* Goes on with a stop: next level, deadlines. */
void run_stop_tick(struct run *run);

/* ---- failure.c --------------------------------------------------------------------------- */

/* Records that a node failed; the first record of a node counts. */
void run_node_failed(struct run *run, struct run_node *node, trp_status code, const char *failure);

/* The earliest failure among what `node` uses; NULL: none. */
const struct run_node *run_failed_use(const struct run *run, const struct run_node *node);

/* Takes its failure back: others go on, and so does the run. */
void run_node_excuse(struct run_node *node);

/* Not only of another's failure. */
bool run_failed_by_itself(const struct run_node *node);

/* The node to name: the one that failed first, or what it depends on when that failed too and
 * the node only noticed. NULL: none failed. */
const struct run_node *run_first_failure(const struct run *run);

/* ---- restart.c --------------------------------------------------------------------------- */

enum { RESTART_WORDS_BYTES = 64 };

/* Whether it has run for so long that what it failed of is not what it began with. */
bool run_node_lasted(const struct run_node *node);

/* When a node that has just failed is to begin again, and words for it, which are returned. */
const char *restart_plan(struct run_node *node, char words[RESTART_WORDS_BYTES]);

/* Has it begin again then. False: it cannot, and has failed of that. */
bool restart_node(struct run *run, struct run_node *node);

/* Begins those whose pause is over. A stop is the end of all pauses: then only servers that others
 * need begin once more, and learners have failed if none of their group saves what it learned. */
void restarts_tick(struct run *run);

/* ---- link.c ------------------------------------------------------------------------------ */

/* `fd` is taken. */
TRP_MUST_USE trp_status link_create(struct process_link **out, struct run *run, int fd,
                                    uint32_t first, uint32_t count);
void link_destroy(struct process_link *link); /* NULL is fine */

/* Reads every message that has arrived. */
void link_drain(struct process_link *link);

/* Tells every process what it has to know of nodes whose state changed. */
void links_update(struct run *run);

/* What was told of `node` was of a life of it that is over. */
void links_forget(struct run *run, const struct run_node *node);

/* Sends one message to a node's process. False: there is no room. */
bool link_tell(struct run *run, const struct run_node *node, enum control_verb verb,
               const char *format, ...) TRP_PRINTF(4, 5);

/* ---- gangs.c ----------------------------------------------------------------------------- */

/* INVALID_ARGUMENT: the run is deterministic, and learners would learn together. */
TRP_MUST_USE trp_status gangs_check(const struct run *run);

/* One for each group of learners of several. DATA_LOSS: the run directory does not say which
 * numbers of generations were used. */
TRP_MUST_USE trp_status gangs_create(struct run *run);
void gangs_destroy(struct run *run);

/* The messages of members (control.h). */
void gangs_announced(struct run *run, const struct run_node *node, const char *address);
void gangs_broken(struct run *run, const struct run_node *node, uint64_t number, const char *why);
void gangs_over(struct run *run, const struct run_node *node, uint64_t number);

/* Tells members of new generations, ends those that hang. */
void gangs_tick(struct run *run);

/* Members could say nothing for so long. */
void gangs_put_off(struct run *run, int64_t ns);

/* A learner has had no answer of a server for collective_timeout_ms. One that has served for as
 * long has failed, and is ended, since it may only hang. */
void gangs_miss_server(struct run *run, const struct run_node *learner, struct run_node *server,
                       const char *why);

/* A node has failed. True: it is a learner, the others of its group go on, and it may have been
 * started again; or a server that was; and the run has not failed. */
bool gangs_go_on(struct run *run, struct run_node *node);

/* Whether what a node reports counts in totals: of a group that learns together each tells of the
 * same steps and versions. */
bool gangs_counts(const struct run *run, const struct run_node *node, const char *metric);

/* The node that publishes for a group; NULL: the group is no gang, or has none yet. */
const struct run_node *gangs_publisher(const struct run *run, const struct node_group *group);

/* ---- progress.c, summary.c --------------------------------------------------------------- */

struct run_progress *run_progress_create(struct run *run);
void run_progress_destroy(struct run_progress *progress);
void run_progress_tick(struct run *run); /* one line, one set of rows */
/* The rows of what is left; then nodes have the steps of all lives among their metrics, but of
 * those before a life that began anew. */
void run_progress_end(struct run *run);

/* The newest checkpoint of a learner of this run; NULL: there is none. Caller frees. */
char *run_checkpoint(const struct run *run);

/* The last lines; returns the exit status. */
int summary_print(struct run *run);

/* The last lines where a thread of this process, which runs all nodes, called exit(`status`). */
void summary_print_exit(const struct run *run, int status);

#endif
