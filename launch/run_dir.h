/* The directory of one run:
 *
 *   config.json         what was started: command, seed, life, graph, every option (config.h)
 *   config-0.json       that of life 0, kept when it was resumed
 *   lock                held by the launcher; has its process id
 *   logs/actor-2.log    what a node printed; what it logged when it is a thread
 *   metrics.csv         what nodes reported; metrics.csv.1: before that
 *   addresses           where nodes serve, one "NODE ADDRESS" a line
 *   sockets/            unix sockets, unless the path is too long for them
 *   params.safetensors  the version that reached the target
 *   evaluator/          parameters of the best evaluations (best.h)
 *   ...                 what other nodes keep: replay/, learner/, which may be links to directories
 *                       elsewhere
 *
 * Where the program makes files of its own, here and in those, a link is refused and named: it may
 * lead anywhere. */
#ifndef TRP_LAUNCH_RUN_DIR_H
#define TRP_LAUNCH_RUN_DIR_H

#include <stdio.h>

#include "graph.h"
#include "options.h"

#define RUN_CONFIG "config.json"

struct run_dir {
    char *path;       /* absolute */
    char *shown_path; /* relative to the working directory where that is shorter */
    char *socket_dir; /* absolute, mode 0700 */
    bool socket_dir_is_temporary;
    uint64_t life; /* 0: the run begins; then one more at each --resume */
    int lock_fd;
};

/* Whether run_dir_open() would be refused for what is there or not there, as far as that can be
 * seen: nothing is made or changed. */
TRP_MUST_USE trp_status run_dir_check(const struct launch_options *options,
                                      const trp_program *program);

/* Makes a new run directory, or opens one to resume: then options->seed becomes that run's, unless
 * it was set. ALREADY_EXISTS: there is a run in it and no --resume; NOT_FOUND: nothing to resume;
 * FAILED_PRECONDITION: a run of another program, one that was started with other values of what it
 * has stored (named), or one that is still running (its process is named, also
 * without --resume). Other failures name the path. */
TRP_MUST_USE trp_status run_dir_open(struct run_dir *dir, struct launch_options *options,
                                     const trp_program *program);

/* runs/latest leads to this run, where there is a runs. Only a convenience: a failure is nobody's.
 */
void run_dir_point_latest(const struct run_dir *dir);

/* Removes the sockets and gives the lock back. A struct that is zeroed but for lock_fd -1 is fine.
 */
void run_dir_close(struct run_dir *dir);

/* Writes config.json; that of the life before is kept. */
TRP_MUST_USE trp_status run_dir_write_config(const struct run_dir *dir,
                                             const struct launch_options *options,
                                             const trp_program *program, int argc, char **argv);

/* Replaces `name` in the directory by `text`, whole or not at all. */
TRP_MUST_USE trp_status run_dir_write(const struct run_dir *dir, const char *name,
                                      const char *text);

/* The same, also if the machine dies: it is on the disk when this returns. */
TRP_MUST_USE trp_status run_dir_keep(const struct run_dir *dir, const char *name, const char *text);

/* "DIR/logs/GROUP-INDEX.log"; caller frees. */
char *run_dir_log_path(const char *dir, const struct node_group *group, uint32_t index);

/* Opens that file to append to; close-on-exec. Failures name it. */
TRP_MUST_USE trp_status run_dir_open_log(const char *dir, const struct node_group *group,
                                         uint32_t index, int *fd);

/* A log that has reached LOG_FILE_BYTES_MAX becomes LOG.1, in place of the one before, and `fd` a
 * new one. For whoever writes to it, now and then. */
void run_dir_bound_log(const char *dir, const struct node_group *group, uint32_t index, int fd);

/* "DIR/GROUP-INDEX.sock"; caller frees. Fits sun_path for a directory from run_dir_open(). */
char *run_dir_socket_path(const char *socket_dir, const struct node_group *group, uint32_t index);

/* "DIR/GROUP-INDEX.ring", where the others of its group reach a learner; caller frees. As long. */
char *run_dir_ring_path(const char *socket_dir, const struct node_group *group, uint32_t index);

#endif
