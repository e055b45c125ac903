/* CUDA's runtime for tests of nn/cuda/module: GPUs of any age, and what is put on their streams is
 * done on the host, when somebody asks, in any order that streams, events and graphs allow. Kernels
 * are their twins. For any threads. */
#ifndef TRP_TESTS_FAKE_CUDA_H
#define TRP_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda_runtime_api.h>

#include <troupe/rng.h>

struct fake_cuda {
    int driver, devices, major; /* 0: there is no driver */
    const char *const *names;   /* of the GPUs; NULL: all are "NVIDIA Fake" */
    size_t memory_bytes, used_bytes;
    bool stuck;           /* nothing is done any more */
    bool refuses_capture; /* of kernels */
    unsigned lacks;       /* the kernel of that number, from 1 on, has no code for the GPU */
    unsigned loaded;      /* kernels, before anything was put anywhere */
    unsigned fails_at;    /* the work of that number, from 1 on, ends with an illegal address */
    unsigned works;       /* that were done */
    unsigned graphs;      /* that there are */
    unsigned graph_launches, kernels, allocations; /* kernels: put on streams, or captured */
    trp_rng rng;
};

extern struct fake_cuda fake_cuda;

/* A new GPU H200; where works go follows from the seed. */
void fake_cuda_begin(uint64_t seed);

#endif
