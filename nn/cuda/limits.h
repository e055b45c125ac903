/* Bounds of nn/cuda/ that are no option, with their arithmetic. */
#ifndef TRP_NN_CUDA_LIMITS_H
#define TRP_NN_CUDA_LIMITS_H

enum {
    /* schedule.c: an actor-critic's networks side by side, and a target's; a small network's
     * kernels leave most of a GPU idle. */
    SCHEDULE_LANES = 4,
    /* plan.c: patches of a convolution's images; Nature's first layer has 410 KB an image. */
    PLAN_PATCHES_BYTES = 64 << 20,
    /* lower_dnn.c: what a library may have beside a convolution; IMPALA's second one, of 5120
     * images in TF32, is on tensor cores from 551 MiB on (cuDNN 9.19, for an H100). */
    PLAN_WORKSPACE_BYTES = 640 << 20,
    PLAN_SUM_ROWS = 256, /* lower.c: of a sum over rows that a block makes */
    /* queue.c: lists of a learner's step with one and the other set of buffers, those of an
     * evaluator, and changes between them. A graph of 200 nodes is some 200 KB. */
    QUEUE_GRAPHS_MAX = 32,
    /* queue.c: lists that were met once; a step that differs each time is never captured. */
    QUEUE_MET_MAX = 64,
    /* queue.c: works of a list, after which it is run: 60 000 bytes of arguments. */
    QUEUE_WORKS_MAX = 4096,
    /* queue.c: pinned memory for copies from and to the host; a batch of 512 stacks of frames is
     * 14.5 MB, and two are under way. A larger copy goes in pieces. */
    QUEUE_STAGING_BYTES = 64 << 20,
    /* queue.c: marks that nobody waited for yet. */
    QUEUE_MARKS_MAX = 64,
    /* module/blas.c: of each lane with products, so at most 4 of each graph; cuBLASLt wants 4 to
     * 32 MB for what splits long sums. */
    BLAS_WORKSPACE_BYTES = 8 << 20,
    BLAS_WAYS_MAX = 256, /* module/blas.c: shapes of products; a network has some 30 */
    /* module/dnn.c: shapes of convolutions; ResNet's 15 have three parts each, for a learner's, an
     * actor's and a test's number of rows. Plans stay, some 100 KB each. */
    DNN_WAYS_MAX = 512,
    DNN_CONFIGS_MAX = 64,      /* module/dnn.c: that a heuristic is asked for; it knows 40 */
    DNN_DESCRIPTORS_MAX = 160, /* module/dnn.c: of a search, with two heuristics' configurations */
    /* load.c: GPUs of a host. */
    CUDA_DEVICES_MAX = 16,
    /* queue.c: device.h says how long a wait is. */
    QUEUE_SYNC_MS = 60000,
};

#endif
