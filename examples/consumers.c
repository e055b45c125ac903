/* Producers and a consumer: the consumer keeps one call to each producer under way, as futures,
 * takes what they made, and ends the program when it has enough.
 *
 *     troupe launch consumers.c work.proto --
 */
#include <stdio.h>
#include <stdlib.h>

#include <troupe/troupe.h>

#include "work.pb-c.h"

enum { PRODUCERS = 3, ROUNDS = 10, WORK_MS = 5 };

/* It blocks, so it is named in `blocking` below: then it runs on a thread of the server's pool,
 * also for callers in this process. It ends early when nobody waits for the answer any more. */
static void producer_solve(Work__Worker_Service *service, const Work__Task *task,
                           Work__Result_Closure closure, void *closure_data)
{
    (void)service;
    trp_stop *never = trp_stop_create();
    for (int i = 0; i < WORK_MS && !trp_call_cancelled(); i++)
        trp_stop_wait(never, 1); /* here it would work */
    trp_stop_destroy(never);
    Work__Result result = WORK__RESULT__INIT;
    result.number = task->number * task->number;
    closure(&result, closure_data);
}

static void service_free(ProtobufCService *service)
{
    free(service);
}

/* An object for every producer, as several may be in one process: who serves it ends it. */
static trp_status producer_run(trp_context *context, const void *arg)
{
    (void)arg;
    static const char *const blocking[] = {"Solve", NULL};
    Work__Worker_Service *service = malloc(sizeof *service);
    *service = (Work__Worker_Service)WORK__WORKER__INIT(producer_);
    service->base.destroy = service_free;
    TRP_TRY(trp_context_serve(context, &service->base, &(trp_serve_options){.blocking = blocking}));
    trp_stop_wait(trp_context_stop(context), -1);
    return TRP_OK;
}

static trp_future *start(trp_context *context, ProtobufCService *producer, int64_t number)
{
    Work__Task task = WORK__TASK__INIT;
    task.number = number;
    return trp_call_async(producer, "Solve", &task.base,
                          &(trp_call_options){.cancel = trp_context_stop(context)});
}

/* Waits for a future, which it destroys, and adds what it brings. */
static trp_status finish(trp_future *future, int64_t *sum)
{
    ProtobufCMessage *reply = NULL;
    trp_status status = trp_future_wait(future, -1, &reply);
    trp_future_destroy(future);
    if (status != TRP_OK)
        return status;
    *sum += ((Work__Result *)reply)->number;
    protobuf_c_message_free_unpacked(reply, NULL);
    return TRP_OK;
}

static trp_status consumer_run(trp_context *context, const void *arg)
{
    const trp_node *producers = arg;
    ProtobufCService *services[PRODUCERS];
    for (uint32_t i = 0; i < PRODUCERS; i++)
        TRP_TRY(trp_dial(context, *producers, i, &work__worker__descriptor, &services[i]));
    int64_t sum = 0;
    trp_status status = TRP_OK;
    for (int round = 0; round < ROUNDS && status == TRP_OK; round++) {
        trp_future *futures[PRODUCERS];
        for (uint32_t i = 0; i < PRODUCERS; i++) /* all of them work at once */
            futures[i] = start(context, services[i], round * PRODUCERS + i);
        for (uint32_t i = 0; i < PRODUCERS; i++) {
            trp_status each = finish(futures[i], &sum);
            status = status == TRP_OK ? each : status;
        }
        trp_context_report(context, "sum", (double)sum);
    }
    if (status != TRP_OK)
        return status;
    char reason[64];
    snprintf(reason, sizeof reason, "the squares add up to %lld", (long long)sum);
    trp_context_stop_program(context, true, reason);
    return TRP_OK;
}

static trp_status build(trp_program *program, int argc, char **argv)
{
    TRP_TRY(trp_arguments_check(argc, argv, 0));
    trp_node producers = trp_add_node(program, "producer",
                                      &(trp_node_options){.run = producer_run, .count = PRODUCERS});
    trp_add_node(program, "consumer",
                 &(trp_node_options){.run = consumer_run,
                                     .arg = &producers,
                                     .arg_size = sizeof producers,
                                     .uses = &producers,
                                     .use_count = 1});
    return TRP_OK;
}

int main(int argc, char **argv)
{
    return trp_main(argc, argv, "consumers", build);
}
