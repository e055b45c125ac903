/* All nodes in this process: the host that a child of the launcher runs for one node runs them all,
 * on a thread of its own, over the same control messages. So a debugger or sanitizer sees the whole
 * program, and the launcher does not know the difference.
 *
 * A thread cannot be killed: a node that does not end is reported, and the process ends around it.
 * Where the process is somebody else's (trp_run()), the thread is left: the host goes on, with
 * everything that nodes use, until the last one has ended, and then tears that down itself. A
 * thread that calls exit() ends them all: that is a failure of the run, whatever status was meant
 * for it. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "host.h"
#include "run.h"
#include "limits.h"

enum { RUNS, ENDED, LEFT };

struct threads {
    struct host *host;
    struct thread thread;
    struct process_link *link;
    atomic_int phase; /* who comes second tears down */
    /* Of a host that was left: */
    trp_program *program;
    struct run_dir dir;
};

static void run_host(void *arg)
{
    struct threads *threads = arg;
    host_run(threads->host, false);
    if (atomic_exchange(&threads->phase, ENDED) != LEFT)
        return;
    host_destroy(threads->host);
    run_dir_close(&threads->dir);
    trp_program_destroy(threads->program);
    free(threads);
}

/* Whom a node that was left calls need not be left for that, too. */
static int64_t callers_grace_ms(const struct run *run)
{
    return (int64_t)(run->options->grace_seconds * (run->embedded ? 500 : 1000));
}

static trp_status start_host(struct run *run, struct threads *threads)
{
    int pair[2];
    TRP_TRY(control_pair(pair));
    trp_status status = link_create(&threads->link, run, pair[0], 0, run->program->node_count);
    if (status != TRP_OK) {
        close(pair[1]);
        return status;
    }
    return host_create(&threads->host, &(struct host_options){
                                           .program = run->program,
                                           .run_dir = run->dir.path,
                                           .socket_dir = run->dir.socket_dir,
                                           .seed = run->seed,
                                           .resume = run->options->resume,
                                           .deterministic = run->options->deterministic,
                                           .keep_logs = true,
                                           .grace_ms = callers_grace_ms(run),
                                           .count = run->program->node_count,
                                           .control_fd = pair[1],
                                       });
}

static struct run *_Atomic exit_ends; /* the run that an exit() would end; NULL: none */

static void refuse_exit(int status, void *arg)
{
    (void)arg;
    const struct run *run = atomic_exchange(&exit_ends, NULL);
    if (!run)
        return;
    fflush(NULL); /* what nodes have printed */
    summary_print_exit(run, status);
    _exit(1);
}

static trp_status threads_start(struct run *run)
{
    static atomic_bool is_registered; /* by the first run of the process */
    struct threads *threads = xcalloc(1, sizeof *threads);
    run->state = threads;
    if (!atomic_exchange(&is_registered, true))
        on_exit(refuse_exit, NULL);
    atomic_store(&exit_ends, run);
    TRP_TRY(start_host(run, threads));
    TRP_TRY(thread_start(&threads->thread, "host", run_host, threads));
    for (uint32_t i = 0; i < run->program->node_count; i++)
        run_node_started(run, &run->nodes[i], getpid());
    return TRP_OK;
}

static void threads_stop(struct run *run, struct run_node *node)
{
    struct threads *threads = run->state;
    if (threads->link->watch.fd < 0)
        return;
    trp_status status =
        control_send(threads->link->watch.fd, CONTROL_SEND_MS, CONTROL_STOP, node->number, "-");
    if (status != TRP_OK)
        trp_log(TRP_WARN, "%s was not asked to stop: %s", node->name, trp_last_error());
}

static trp_status threads_restart(struct run *run, struct run_node *node)
{
    struct threads *threads = run->state;
    TRP_TRY(control_send(threads->link->watch.fd, CONTROL_SEND_MS, CONTROL_START, node->number,
                         "%" PRIu64, run_node_seed(run, node)));
    run_node_started(run, node, getpid());
    return TRP_OK;
}

static void threads_kill(struct run *run, struct run_node *node)
{
    if (!run->embedded) {
        run->abandoned = true;
        return;
    }
    run->left++;
    run_node_ended(run, node, NULL);
}

/* False: all have ended by now. */
static bool leave_host(struct run *run)
{
    struct threads *threads = run->state;
    struct thread thread = threads->thread;
    threads->program = program_keep(run->program);
    threads->dir = run->dir; /* and its lock: nodes still write there */
    if (atomic_exchange(&threads->phase, LEFT) == ENDED) {
        trp_program_destroy(run->program);
        return false;
    }
    thread_detach(&thread);
    run->dir = (struct run_dir){.lock_fd = -1};
    return true;
}

static void threads_finish(struct run *run)
{
    struct threads *threads = run->state;
    atomic_store(&exit_ends, NULL);
    if (run->left > 0 && leave_host(run))
        return;
    thread_stop(&threads->thread);
    host_destroy(threads->host);
    free(threads);
    run->state = NULL;
}

const struct launch_target threads_target = {
    .start = threads_start,
    .stop = threads_stop,
    .kill = threads_kill,
    .restart = threads_restart,
    .finish = threads_finish,
};
