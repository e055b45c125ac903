/* Three things end a child whose launcher is gone, as no single one is enough: the parent-death
 * signal (TERM, so that it can close its store), the check of the parent's id after asking for it
 * (it may have died before), and the end of file on the control socket, after which the host kills
 * the process when it does not end in time. */
#include "child.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "control.h"
#include "host.h"
#include "orphans.h"
#include "limits.h"

enum { HELD_SIGNALS = 4 };
static const int held_signals[HELD_SIGNALS] = {SIGINT, SIGQUIT, SIGHUP, SIGTSTP};

void child_held_signals(sigset_t *held)
{
    sigemptyset(held);
    for (size_t i = 0; i < HELD_SIGNALS; i++)
        sigaddset(held, held_signals[i]);
}

/* To ignore a signal discards one that waits. */
static void drop_held_signals(void)
{
    sigset_t held;
    child_held_signals(&held);
    for (size_t i = 0; i < HELD_SIGNALS; i++) {
        signal(held_signals[i], SIG_IGN);
        signal(held_signals[i], SIG_DFL);
    }
    sigprocmask(SIG_UNBLOCK, &held, NULL);
}

bool child_attach(const struct launch_options *options)
{
    drop_held_signals();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    trp_log_set_level(options->log_level);
    return getppid() == (pid_t)options->parent;
}

void child_refuse(const char *failure)
{
    trp_log(TRP_ERROR, "%s", failure);
    trp_status status = control_send(CHILD_CONTROL_FD, CONTROL_SEND_MS, CONTROL_FAILED, 0, "%d %s",
                                     (int)TRP_FAILED_PRECONDITION, failure);
    if (status != TRP_OK)
        trp_log(TRP_WARN, "the launcher was not told");
}

int child_run(trp_program *program, const struct launch_options *options)
{
    struct host *host = NULL;
    uint32_t number = 0;
    char build[32];
    control_build_id(build, sizeof build);
    trp_status found = program_find(program, options->node, &number);
    if (found == TRP_OK)
        orphans_mark(options->run_dir, number);
    if (found != TRP_OK ||
        control_send(CHILD_CONTROL_FD, CONTROL_SEND_MS, CONTROL_HELLO, number, "%016" PRIx64 " %s",
                     program_hash(program), build) != TRP_OK ||
        host_create(&host, &(struct host_options){
                               .program = program,
                               .run_dir = options->run_dir,
                               .socket_dir = options->socket_dir,
                               .seed = options->seed,
                               .resume = options->resume,
                               .first = number,
                               .count = 1,
                               .control_fd = CHILD_CONTROL_FD,
                               .launcher = options->parent,
                           }) != TRP_OK) {
        child_refuse(trp_last_error());
        return 1;
    }
    int exit_status = host_run(host, true);
    host_destroy(host);
    return exit_status;
}
