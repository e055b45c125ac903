/* Four ways in which a node reacts to the program's stop. Whatever ends the program (its work is
 * done, a node failed, Ctrl-C), every node's trp_context_stop() is requested: users first, then
 * what they use. A body that does not return within the grace period (--grace) is killed.
 *
 *     troupe launch waiting.c work.proto --
 */
#include <stdio.h>

#include <troupe/troupe.h>

#include "work.pb-c.h"

/* 1. There is nothing to do but serve: wait for the stop. */
static void server_solve(Work__Worker_Service *service, const Work__Task *task,
                         Work__Result_Closure closure, void *closure_data)
{
    (void)service;
    trp_stop *never = trp_stop_create();
    while (!trp_call_cancelled()) /* an answer that never comes, until the caller gives up */
        trp_stop_wait(never, 5);
    trp_stop_destroy(never);
    Work__Result result = WORK__RESULT__INIT;
    result.number = task->number;
    closure(&result, closure_data);
}

static trp_status server_run(trp_context *context, const void *arg)
{
    (void)arg;
    static const char *const blocking[] = {"Solve", NULL};
    static Work__Worker_Service service = WORK__WORKER__INIT(server_);
    TRP_TRY(trp_context_serve(context, &service.base, &(trp_serve_options){.blocking = blocking}));
    trp_stop_wait(trp_context_stop(context), -1);
    printf("waited for the stop\n");
    return TRP_OK;
}

/* 2. There is work in pieces: look between them. */
static trp_status worker_run(trp_context *context, const void *arg)
{
    (void)arg;
    uint64_t pieces = 0;
    while (!trp_stop_requested(trp_context_stop(context)))
        pieces++; /* a piece that takes milliseconds, not seconds */
    printf("did %s pieces of work\n", pieces > 0 ? "some" : "no");
    return TRP_OK;
}

/* 3. It waits for a peer, to serve and to answer: both end when the stop is requested. That is no
 * failure. */
static trp_status caller_run(trp_context *context, const void *arg)
{
    const trp_node *server = arg;
    ProtobufCService *service;
    Work__Task task = WORK__TASK__INIT;
    trp_status status = trp_dial(context, *server, 0, &work__worker__descriptor, &service);
    if (status == TRP_OK)
        status =
            trp_call(service, "Solve", &task.base, NULL,
                     &(trp_call_options){.timeout_ms = -1, .cancel = trp_context_stop(context)});
    if (status != TRP_CANCELLED)
        return status;
    printf("the call was cancelled\n");
    return TRP_OK;
}

/* 4. It is the one that knows when the work is done: it ends the program, and is stopped itself. It
 * works in turns with a pause, which the stop cuts short. */
static trp_status leader_run(trp_context *context, const void *arg)
{
    (void)arg;
    for (int turn = 0; turn < 10; turn++)
        if (trp_stop_wait(trp_context_stop(context), 20))
            return TRP_OK; /* somebody else ended the program */
    trp_context_stop_program(context, true, "ten turns are over");
    return TRP_OK;
}

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 0));
    trp_node server = trp_add_node(program, "server", &(trp_node_options){.run = server_run});
    trp_add_node(program, "worker", &(trp_node_options){.run = worker_run});
    trp_add_node(program, "caller",
                 &(trp_node_options){.run = caller_run,
                                     .arg = &server,
                                     .arg_size = sizeof server,
                                     .uses = &server,
                                     .use_count = 1});
    trp_add_node(program, "leader", &(trp_node_options){.run = leader_run});
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "waiting", build);
}
