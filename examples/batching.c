/* Calls of many clients handled together, as a server of a neural network does.
 *
 * Every handler puts its task into the open batch and waits. The batch is worked on by whoever
 * makes it full, or by whoever has waited for LINGER_MS. Handlers wait, so the method is named in
 * `blocking`, and each task of a batch has a thread.
 *
 *     troupe launch batching.c work.proto --
 */
#include <stdatomic.h>
#include <stdio.h>
#include <threads.h>
#include <time.h>

#include <troupe/troupe.h>

#include "work.pb-c.h"

enum { CLIENTS = 8, CALLS = 25, BATCH = 8, LINGER_MS = 100 };

struct batch {
    int size, done; /* done: the results are there */
    int waiting;    /* handlers that still look at it */
    int64_t tasks[BATCH], results[BATCH];
};

/* One object of the process: `open` is the batch that tasks go into. */
static struct {
    mtx_t mutex;
    cnd_t changed;
    struct batch batches[BATCH + 1], *open; /* more than handlers can look at */
    atomic_int calls, runs;
} batcher;

/* With the mutex held: the only place where work is done, for all tasks at once. */
static void run_batch(struct batch *batch)
{
    for (int i = 0; i < batch->size; i++)
        batch->results[i] = batch->tasks[i] * batch->tasks[i];
    batch->done = 1;
    batcher.open = NULL;
    batcher.runs++;
    batcher.calls += batch->size;
    cnd_broadcast(&batcher.changed);
}

static struct batch *open_batch(void)
{
    for (struct batch *batch = batcher.batches; !batcher.open; batch++)
        if (batch->waiting == 0) {
            *batch = (struct batch){0};
            batcher.open = batch;
        }
    return batcher.open;
}

static int64_t handle_together(int64_t task)
{
    struct timespec until;
    timespec_get(&until, TIME_UTC);
    until.tv_nsec += LINGER_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    mtx_lock(&batcher.mutex);
    struct batch *batch = open_batch();
    int place = batch->size++;
    batch->tasks[place] = task;
    batch->waiting++;
    if (batch->size == BATCH)
        run_batch(batch);
    while (!batch->done)
        if (cnd_timedwait(&batcher.changed, &batcher.mutex, &until) != thrd_success && !batch->done)
            run_batch(batch);
    int64_t result = batch->results[place];
    batch->waiting--;
    mtx_unlock(&batcher.mutex);
    return result;
}

static void batcher_solve(Work__Worker_Service *service, const Work__Task *task,
                          Work__Result_Closure closure, void *closure_data)
{
    (void)service;
    Work__Result result = WORK__RESULT__INIT;
    result.number = handle_together(task->number);
    closure(&result, closure_data);
}

static trp_status server_run(trp_context *context, const void *arg)
{
    (void)arg;
    static const char *const blocking[] = {"Solve", NULL};
    static Work__Worker_Service service = WORK__WORKER__INIT(batcher_);
    mtx_init(&batcher.mutex, mtx_plain);
    cnd_init(&batcher.changed);
    TRP_TRY(trp_context_serve(context, &service.base,
                              &(trp_serve_options){.blocking = blocking, .threads = BATCH}));
    trp_stop_wait(trp_context_stop(context), -1);
    printf("%d calls in %d batches\n", batcher.calls, batcher.runs);
    return TRP_OK;
}

static trp_status client_run(trp_context *context, const void *arg)
{
    const trp_node *server = arg;
    ProtobufCService *service;
    TRP_TRY(trp_dial(context, *server, 0, &work__worker__descriptor, &service));
    for (int i = 0; i < CALLS; i++) {
        Work__Task task = WORK__TASK__INIT;
        task.number = i;
        ProtobufCMessage *reply;
        TRP_TRY(trp_call(service, "Solve", &task.base, &reply, NULL));
        int64_t number = ((Work__Result *)reply)->number;
        protobuf_c_message_free_unpacked(reply, NULL);
        if (number != (int64_t)i * i)
            return trp_fail(TRP_INTERNAL, "%d squared is not %lld", i, (long long)number);
    }
    return TRP_OK;
}

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 0));
    trp_node server = trp_add_node(program, "server", &(trp_node_options){.run = server_run});
    trp_add_node(program, "client",
                 &(trp_node_options){.run = client_run,
                                     .arg = &server,
                                     .arg_size = sizeof server,
                                     .uses = &server,
                                     .use_count = 1,
                                     .count = CLIENTS});
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "batching", build);
}
