/* A GPU as the rest of nn/cuda sees it: libtroupe_cuda.so has real ones, tests have one that runs
 * lists on the host (tests/nn/cuda/twin_machine.h). Streams do what is put on them in order, later;
 * nothing waits but event_wait(). What fails on the way fails that, and all later ones.
 *
 * All functions but event_wait() are called by one thread at a time for each stream, and from any
 * thread for the machine. */
#ifndef TRP_NN_CUDA_MACHINE_H
#define TRP_NN_CUDA_MACHINE_H

#include <troupe/device.h>

#include "schedule.h"

struct machine;
struct machine_stream;
struct machine_event;
struct machine_graph;

struct machine_impl {
    /* Zeroed memory of the GPU, at a multiple of 256 bytes. RESOURCE_EXHAUSTED: how much there is.
     */
    trp_status (*alloc)(struct machine *machine, size_t bytes, void **memory);
    void (*free)(struct machine *machine, void *memory);
    trp_device_bytes (*memory)(struct machine *machine);
    bool (*owns)(const struct machine *machine, const void *memory); /* it is the GPU's */
    /* Memory of the host that copies are quick from and to. */
    trp_status (*pin)(struct machine *machine, size_t bytes, void **memory);
    void (*unpin)(struct machine *machine, void *memory);
    /* Its code for a kernel of that name; NULL: it has none. */
    const struct cuda_kernel *(*find_kernel)(const struct machine *machine, const char *name);

    /* Whether a library makes that convolution, of which places are not looked at, with at most
     * `workspace_most` bytes of workspace, and how many it takes. The first time takes a while. */
    bool (*convolves)(struct machine *machine, const struct conv_job *job, size_t *workspace_bytes);

    trp_status (*stream_create)(struct machine *machine, struct machine_stream **stream);
    void (*stream_destroy)(struct machine *machine, struct machine_stream *stream);
    /* CUDA's own name of it. */
    void *(*stream_native)(struct machine *machine, struct machine_stream *stream);
    /* One side is pinned memory. */
    void (*copy)(struct machine *machine, struct machine_stream *stream, void *to, const void *from,
                 size_t bytes);
    /* The works of a list one after the other. The list may change at once. */
    void (*run)(struct machine *machine, struct machine_stream *stream,
                const struct cuda_list *list);

    /* The same as a graph, which copies the list. Calls of other libraries are put now, on streams
     * that are captured. NULL: it cannot be one; then it is run. */
    struct machine_graph *(*capture)(struct machine *machine, const struct cuda_schedule *schedule);
    void (*launch)(struct machine *machine, struct machine_stream *stream,
                   struct machine_graph *graph);
    void (*forget)(struct machine *machine, struct machine_graph *graph); /* nobody runs it */

    struct machine_event *(*event_create)(struct machine *machine);
    void (*event_destroy)(struct machine *machine, struct machine_event *event);
    /* When the stream has come so far. */
    void (*event_record)(struct machine *machine, struct machine_stream *stream,
                         struct machine_event *event);
    /* What follows on the stream comes after what the event was recorded behind. */
    void (*stream_wait)(struct machine *machine, struct machine_stream *stream,
                        struct machine_event *event);
    /* DEADLINE_EXCEEDED: not yet. Else what the GPU says is wrong: INTERNAL, UNAVAILABLE,
     * RESOURCE_EXHAUSTED. */
    trp_status (*event_wait)(struct machine *machine, struct machine_event *event,
                             int64_t timeout_ms);
};

/* The first member of every machine. */
struct machine {
    const struct machine_impl *impl;
    char name[16]; /* "cuda:0" */
};

#endif
