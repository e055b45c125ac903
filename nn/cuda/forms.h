/* Two forms that kernels have (kernel.h), each written once for the host and for GPUs.
 *
 * EACH_KERNEL(NAME) does things that have nothing to do with each other:
 *     NAME_count(arguments)        how many there are
 *     NAME_each(arguments, i)      does one
 *
 * ROUNDS_KERNEL(NAME, rounds) adds up over things, as losses over rows, several times if what comes
 * next has to know the sums:
 *     NAME_items(arguments, round) how many things a round has; 0: it is left out
 *     NAME_item(arguments, round, i, before, sums)
 *                                  does one, and adds to `sums`; `before` has the totals of the
 *                                  round before, zeros in the first
 *     NAME_end(arguments, round, before, totals)
 *                                  what is made of the totals, which it may change for the next
 *
 * Both make NAME_run(), the function of a trp_kernel, which does all of it in order (on a copy of
 * the arguments, which a compiler sees no store change), and the shape and body of a kernel. That
 * of rounds is one block, whose threads add up what is theirs; these sums are added in an order
 * that follows from the number of threads alone. */
#ifndef TRP_NN_CUDA_FORMS_H
#define TRP_NN_CUDA_FORMS_H

#include "kernel.h"
#include "nn/loss/batch.h"

#define EACH_KERNEL(NAME)                                                                          \
    static inline struct kernel_shape NAME##_shape(const struct NAME##_arguments *a)               \
    {                                                                                              \
        return kernel_of(NAME##_count(a));                                                         \
    }                                                                                              \
    KERNEL_BODY void NAME##_body(const struct NAME##_arguments *a, const struct kernel_at *at,     \
                                 void *shared)                                                     \
    {                                                                                              \
        (void)shared;                                                                              \
        if (thread_index(at) < NAME##_count(a))                                                    \
            NAME##_each(a, thread_index(at));                                                      \
    }                                                                                              \
    static inline void NAME##_run(void *arguments)                                                 \
    {                                                                                              \
        const struct NAME##_arguments a = *(const struct NAME##_arguments *)arguments;             \
        size_t count = NAME##_count(&a);                                                           \
        for (size_t i = 0; i < count; i++)                                                         \
            NAME##_each(&a, i);                                                                    \
    }

enum {
    ROUND_THREADS_MAX = 512,
    ROUND_GROUPS = 32, /* whose sums are made side by side, each of ROUND_THREADS_MAX / 32 */
    ROUND_PHASES = 3,  /* things; the sums of groups; those of all */
};

/* What the threads of the block share. */
struct round_memory {
    struct loss_sums before;
    struct loss_sums threads[ROUND_THREADS_MAX];
};

/* Threads in whole groups, as many as have something to do. */
KERNEL_BODY struct kernel_shape rounds_shape(size_t items, uint32_t rounds)
{
    size_t most = items < ROUND_THREADS_MAX ? items : ROUND_THREADS_MAX;
    size_t groups = (most + ROUND_GROUPS - 1) / ROUND_GROUPS;
    struct kernel_shape shape = {1, (uint32_t)((groups > 0 ? groups : 1) * ROUND_GROUPS),
                                 rounds * ROUND_PHASES, sizeof(struct round_memory)};
    return shape;
}

/* Into the first of `count` sums those of all. */
KERNEL_BODY void rounds_add(struct loss_sums *sums, uint32_t count, uint32_t apart)
{
    for (uint32_t i = 1; i < count; i++)
        loss_sums_add(&sums[0], &sums[i * apart]);
}

#define ROUNDS_KERNEL(NAME, rounds)                                                                \
    static inline struct kernel_shape NAME##_shape(const struct NAME##_arguments *a)               \
    {                                                                                              \
        size_t most = 0;                                                                           \
        for (uint32_t round = 0; round < (rounds); round++)                                        \
            most = NAME##_items(a, round) > most ? NAME##_items(a, round) : most;                  \
        return rounds_shape(most, rounds);                                                         \
    }                                                                                              \
    KERNEL_BODY void NAME##_body(const struct NAME##_arguments *a, const struct kernel_at *at,     \
                                 void *shared)                                                     \
    {                                                                                              \
        struct round_memory *memory = (struct round_memory *)shared;                               \
        struct loss_sums none = {0, 0, 0, 0, 0, 0}, *mine = &memory->threads[at->thread];          \
        uint32_t round = at->phase / ROUND_PHASES, group = at->threads / ROUND_GROUPS;             \
        size_t items = NAME##_items(a, round);                                                     \
        if (at->phase % ROUND_PHASES == 0) {                                                       \
            struct loss_sums before = round > 0 ? memory->before : none, sums = none;              \
            for (size_t i = at->thread; i < items; i += at->threads)                               \
                NAME##_item(a, round, i, &before, &sums);                                          \
            *mine = sums;                                                                          \
        } else if (at->phase % ROUND_PHASES == 1 && at->thread % group == 0) {                     \
            rounds_add(mine, group, 1);                                                            \
        } else if (at->phase % ROUND_PHASES == 2 && at->thread == 0) {                             \
            rounds_add(mine, ROUND_GROUPS, group);                                                 \
            if (round == 0)                                                                        \
                memory->before = none;                                                             \
            NAME##_end(a, round, &memory->before, mine);                                           \
            memory->before = *mine;                                                                \
        }                                                                                          \
    }                                                                                              \
    static inline void NAME##_run(void *arguments)                                                 \
    {                                                                                              \
        const struct NAME##_arguments *a = (const struct NAME##_arguments *)arguments;             \
        struct loss_sums before = {0, 0, 0, 0, 0, 0};                                              \
        for (uint32_t round = 0; round < (rounds); round++) {                                      \
            struct loss_sums sums = {0, 0, 0, 0, 0, 0};                                            \
            size_t items = NAME##_items(a, round);                                                 \
            for (size_t i = 0; i < items; i++)                                                     \
                NAME##_item(a, round, i, &before, &sums);                                          \
            NAME##_end(a, round, &before, &sums);                                                  \
            before = sums;                                                                         \
        }                                                                                          \
    }

#endif
