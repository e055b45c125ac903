/* Kernels of our own for GPUs, as text that the host runs, too; forms.h has what most of them look
 * like. A kernel NAME is
 *     struct NAME_arguments      what it is given, by value
 *     NAME_shape(arguments)      how many threads run it, worked out on the host
 *     NAME_reaches(arguments, r) the memory that it reads and writes
 *     NAME_body(arguments, at, shared)
 *                                what one thread does, in the part of C that is C++, too
 * in a header of its family under bodies/, and a line in its family's list:
 *     KERNEL(NAME)                     one of nn/'s own
 *     NAMED_KERNEL(NAME, "words")      the code of a trp_kernel, whose operands come with the call
 *     FITTING_KERNEL(NAME, "words", OTHER)
 *                                      the same for arguments of which NAME_fits() is true, and
 *                                      OTHER for all others
 *     FIRST_KERNEL(NAME, "words", NEXT) the same, and NEXT on the same arguments behind it
 * The list
 * makes it a __global__ function of libtroupe_cuda.so and a loop over the same index space for the
 * host: what tests see there is the text that a GPU runs, with the same order of sums.
 *
 * A body never names CUDA. Threads of a block wait for each other between phases: the body is
 * called once for each phase, and what it keeps from one to the next is in `shared`, of which a
 * block has its own. No two threads write the same place, but in different phases; nothing is
 * atomic. So the same bits come out each time. */
#ifndef TRP_NN_CUDA_KERNEL_H
#define TRP_NN_CUDA_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/device.h>

#ifdef __CUDACC__
#define KERNEL_BODY static inline __host__ __device__
#else
#define KERNEL_BODY static inline
#endif

struct kernel_shape {
    uint32_t blocks, threads; /* at least one; a block has at most KERNEL_THREADS_MAX threads */
    uint32_t phases;          /* at least one */
    uint32_t shared_bytes;    /* of a block, zeroed by nobody */
};

enum {
    KERNEL_THREADS = 256, /* of a block, where nothing speaks for another number */
    KERNEL_THREADS_MAX = 1024,
    KERNEL_SHARED_MAX = 48 << 10,
    KERNEL_ARGUMENTS_MAX = 1024, /* bytes */
    KERNEL_REACHES_MAX = 24,
};

/* Where in the index space a body is called. */
struct kernel_at {
    uint32_t block, blocks, thread, threads, phase;
};

struct kernel_reach {
    const void *memory; /* NULL: nothing */
    size_t bytes;
    int access; /* TRP_READ, TRP_WRITE */
};

struct cuda_kernel {
    const char *name; /* of a trp_kernel, where it is the same function of the same arguments */
    size_t argument_bytes;
    struct kernel_shape (*shape)(const void *arguments);
    /* Returns how many there are; NULL where operands come with the call (trp_queue_run()). */
    size_t (*reaches)(const void *arguments, struct kernel_reach reaches[KERNEL_REACHES_MAX]);
    void (*twin)(const void *arguments, const struct kernel_at *at, void *shared);
    void (*settle)(void *arguments);     /* zeroes what lies between the members */
    bool (*fits)(const void *arguments); /* NULL: any */
    const struct cuda_kernel *other;     /* for those that do not */
    const struct cuda_kernel *then; /* runs behind it, on the same arguments; NULL: that was all */
};

/* Bytes between members have any value, and two lists that do the same are to be the same bytes. A
 * compiler that cannot do that costs graphs (queue.c), no results: then LISTS_REPEAT is 0. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
#define CLEAR_PADDING(pointer) __builtin_clear_padding(pointer)
#define LISTS_REPEAT           1
#endif
#endif
#ifndef CLEAR_PADDING
#define CLEAR_PADDING(pointer) ((void)(pointer))
#define LISTS_REPEAT           0
#endif

/* One thread for each of `count` things, of which thread_index() is the one at hand. */
KERNEL_BODY struct kernel_shape kernel_of(size_t count)
{
    struct kernel_shape shape = {(uint32_t)((count + KERNEL_THREADS - 1) / KERNEL_THREADS),
                                 KERNEL_THREADS, 1, 0};
    if (shape.blocks == 0)
        shape.blocks = 1;
    return shape;
}

KERNEL_BODY size_t thread_index(const struct kernel_at *at)
{
    return (size_t)at->block * at->threads + at->thread;
}

/* kernel_NAME, for the host, with more of its members. */
#define MAKE_KERNEL(NAME, words, ...)                                                              \
    static struct kernel_shape NAME##_shape_of(const void *arguments)                              \
    {                                                                                              \
        return NAME##_shape(arguments);                                                            \
    }                                                                                              \
    static void NAME##_twin(const void *arguments, const struct kernel_at *at, void *shared)       \
    {                                                                                              \
        NAME##_body(arguments, at, shared);                                                        \
    }                                                                                              \
    static void NAME##_settle(void *arguments)                                                     \
    {                                                                                              \
        CLEAR_PADDING((struct NAME##_arguments *)arguments);                                       \
    }                                                                                              \
    const struct cuda_kernel kernel_##NAME = {.name = words,                                       \
                                              .argument_bytes = sizeof(struct NAME##_arguments),   \
                                              .shape = NAME##_shape_of,                            \
                                              .twin = NAME##_twin,                                 \
                                              .settle = NAME##_settle,                             \
                                              __VA_ARGS__};

#endif
