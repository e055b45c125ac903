/* Lists as graphs: the lanes of a schedule become streams, its waits events, and CUDA takes down
 * what would have run. What a graph's works need besides their operands belongs to the graph. */
#include <stdio.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "gpu.h"

/* A list while it is taken down. */
struct capturing {
    struct gpu *gpu;
    const struct cuda_schedule *schedule;
    struct machine_graph *graph;
    cudaEvent_t began, ended;
    cudaEvent_t *done; /* of each work that another lane waits for; NULL: nobody does */
    bool failed;
    char words[160]; /* what did first; "": a call of another library, whose owner knows why */
};

static void capture_fail(struct capturing *c, const char *words)
{
    if (!c->failed)
        snprintf(c->words, sizeof c->words, "%s", words);
    c->failed = true;
}

static void capture_check(struct capturing *c, cudaError_t error, const char *call)
{
    char words[sizeof c->words];
    if (error == cudaSuccess)
        return;
    (void)cudaGetLastError();
    cuda_words(words, sizeof words, error, call, NULL);
    capture_fail(c, words);
}

#define CAPTURE(c, CALL, ...) capture_check(c, CALL(__VA_ARGS__), #CALL)

static cudaEvent_t capture_event(struct capturing *c)
{
    cudaEvent_t event = NULL;
    CAPTURE(c, cudaEventCreateWithFlags, &event, cudaEventDisableTiming);
    return event;
}

/* Streams of the lanes that have works, and events of works that are waited for. */
static void capture_prepare(struct capturing *c)
{
    const struct cuda_schedule *schedule = c->schedule;
    c->began = capture_event(c);
    c->ended = capture_event(c);
    for (uint32_t i = 0; i < schedule->list->count; i++) {
        const struct cuda_step *step = &schedule->steps[i];
        struct gpu_lane *lane = &c->graph->lanes[step->lane];
        lane->captured = true;
        if (!lane->stream)
            CAPTURE(c, cudaStreamCreateWithFlags, &lane->stream, cudaStreamNonBlocking);
        for (uint32_t k = 0; k < step->wait_count; k++)
            if (!c->done[step->waits[k]])
                c->done[step->waits[k]] = capture_event(c);
    }
}

static void capture_works(struct capturing *c)
{
    const struct cuda_schedule *schedule = c->schedule;
    for (uint32_t i = 0; i < schedule->list->count; i++) {
        const struct cuda_step *step = &schedule->steps[i];
        struct gpu_lane *lane = &c->graph->lanes[step->lane];
        for (uint32_t k = 0; k < step->wait_count; k++)
            CAPTURE(c, cudaStreamWaitEvent, lane->stream, c->done[step->waits[k]], 0);
        gpu_work(c->gpu, lane, schedule->list, &schedule->list->works[i]);
        if (lane->failed)
            capture_fail(c, lane->words);
        if (c->done[i])
            CAPTURE(c, cudaEventRecord, c->done[i], lane->stream);
    }
}

/* The first work's lane begins; the others leave it and come back to it. */
static cudaGraph_t capture_all(struct capturing *c)
{
    struct gpu_lane *lanes = c->graph->lanes;
    cudaStream_t first = lanes[c->schedule->steps[0].lane].stream;
    cudaGraph_t graph = NULL;
    CAPTURE(c, cudaStreamBeginCapture, first, cudaStreamCaptureModeRelaxed);
    if (c->failed)
        return NULL;
    CAPTURE(c, cudaEventRecord, c->began, first);
    for (uint32_t i = 0; i < SCHEDULE_LANES; i++)
        if (lanes[i].stream && lanes[i].stream != first)
            CAPTURE(c, cudaStreamWaitEvent, lanes[i].stream, c->began, 0);
    capture_works(c);
    for (uint32_t i = 0; i < SCHEDULE_LANES; i++)
        if (lanes[i].stream && lanes[i].stream != first) {
            CAPTURE(c, cudaEventRecord, c->ended, lanes[i].stream);
            CAPTURE(c, cudaStreamWaitEvent, first, c->ended, 0);
        }
    CAPTURE(c, cudaStreamEndCapture, first, &graph);
    return graph;
}

/* Events and streams are not needed once it is a graph. */
static void capture_cleanup(struct capturing *c)
{
    for (uint32_t i = 0; i < c->schedule->list->count; i++)
        if (c->done[i])
            CAPTURE(c, cudaEventDestroy, c->done[i]);
    if (c->began)
        CAPTURE(c, cudaEventDestroy, c->began);
    if (c->ended)
        CAPTURE(c, cudaEventDestroy, c->ended);
    for (uint32_t i = 0; i < SCHEDULE_LANES; i++)
        if (c->graph->lanes[i].stream) {
            CAPTURE(c, cudaStreamDestroy, c->graph->lanes[i].stream);
            c->graph->lanes[i].stream = NULL;
        }
    free(c->done);
}

/* What is run instead is right, and slower: nobody would know why. */
static void tell_no_graph(const struct capturing *c)
{
    mutex_lock(&c->gpu->mutex);
    bool told = c->gpu->told;
    c->gpu->told = true;
    mutex_unlock(&c->gpu->mutex);
    if (!told)
        c->gpu->host->log(TRP_WARN,
                          "device %s: a list of %u works is no graph, and is run work by work, as "
                          "others may be of which nothing is said: %s",
                          c->gpu->machine.name, c->schedule->list->count, c->words);
}

struct machine_graph *graph_capture(struct machine *machine, const struct cuda_schedule *schedule)
{
    struct gpu *gpu = gpu_enter(machine);
    struct capturing c = {.gpu = gpu, .schedule = schedule};
    c.graph = xcalloc(1, sizeof *c.graph);
    c.done = xcalloc(schedule->list->count, sizeof(cudaEvent_t));
    capture_prepare(&c);
    mutex_lock(&gpu->still);
    cudaGraph_t graph = c.failed ? NULL : capture_all(&c);
    mutex_unlock(&gpu->still);
    if (graph && !c.failed)
        CAPTURE(&c, cudaGraphInstantiate, &c.graph->exec, graph, 0);
    if (graph)
        CAPTURE(&c, cudaGraphDestroy, graph);
    capture_cleanup(&c);
    if (!c.failed)
        return c.graph;
    if (c.words[0] != '\0')
        tell_no_graph(&c);
    graph_forget(machine, c.graph);
    return NULL;
}

void graph_launch(struct machine *machine, struct machine_stream *stream,
                  struct machine_graph *graph)
{
    gpu_check(gpu_enter(machine), cudaGraphLaunch(graph->exec, stream->lane.stream),
              "cudaGraphLaunch", NULL);
}

void graph_forget(struct machine *machine, struct machine_graph *graph)
{
    struct gpu *gpu = gpu_enter(machine);
    if (graph->exec)
        gpu_check(gpu, cudaGraphExecDestroy(graph->exec), "cudaGraphExecDestroy", NULL);
    for (uint32_t i = 0; i < SCHEDULE_LANES; i++)
        gpu_lane_cleanup(gpu, &graph->lanes[i]);
    free(graph);
}
