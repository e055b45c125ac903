/* What tests want of the NCCL of tests, and what it saw: fake_nccl, a symbol of the library. */
#ifndef TRP_TESTS_FAKE_NCCL_H
#define TRP_TESTS_FAKE_NCCL_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/nvidia.h"

struct fake_nccl {
    atomic_int polls;        /* so often a call, or joining, is said to be in progress */
    atomic_int never_joins;  /* this rank, counted from 1 */
    atomic_int refuses;      /* joining, likewise: with unhandled cuda error */
    atomic_int no_graphs;    /* this rank, likewise, puts nothing on a stream that is captured */
    atomic_int elsewhere;    /* this rank, likewise, joins with another GPU than cuda:0 */
    atomic_int hangs_at;     /* the collective of that number of each communicator, as its stream
                                comes to them, from 1 on behind the meeting's */
    atomic_int remote_error; /* on this rank, from 1 on, instead of hanging */
    atomic_int abort_hangs;  /* once what was on its way has ended */
    /* Seen: */
    atomic_int calls;    /* collectives that were put on a stream */
    atomic_int captured; /* of those, on one that was captured, and how often that was launched */
    atomic_int launched;
    atomic_int going_on; /* answers that a call is in progress */
    atomic_int grouped;
    atomic_int misuses; /* of a communicator in progress, by two threads at once, out of place; one
                           that is left in order and has graphs */
    atomic_int aborts, destroys, live;
};

/* That of the library in `root`, where NVIDIA's libraries are looked for from here on. */
static inline struct fake_nccl *fake_nccl_load(const char *root)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/lib/libnccl.so.2", root);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct fake_nccl *fake = library ? (struct fake_nccl *)dlsym(library, "fake_nccl") : NULL;
    if (!fake) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    nvidia_look_under(root);
    return fake;
}

#endif
