/* All ranks of a group in one test: a thread each, joined within a test's patience by the deadlines
 * of what they do. Their findings are kept for the test's own thread, which may fail. */
#ifndef TRP_TESTS_LEARNER_RANKS_H
#define TRP_TESTS_LEARNER_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/collective.h>

#include "core/alloc.h"
#include "core/thread.h"

enum { RANKS_MAX = 8 };

struct rank {
    trp_collective *group;
    uint32_t rank, size;
    void *context;     /* of the test, shared */
    trp_status status; /* what a wait said, and its words */
    char words[1024];
    uint64_t wrong; /* findings */
    /* ranks.h's: */
    void (*run)(struct rank *rank);
    struct thread thread;
};

struct ranks {
    uint32_t size;
    struct rank at[RANKS_MAX];
};

/* Keeps what the last call said. */
static inline trp_status rank_keep(struct rank *rank, trp_status status)
{
    rank->status = status;
    if (status != TRP_OK)
        snprintf(rank->words, sizeof rank->words, "%s", trp_last_error());
    return status;
}

static inline trp_status rank_wait(struct rank *rank, uint64_t ticket)
{
    return rank_keep(rank, trp_collective_wait(rank->group, ticket));
}

static inline void ranks_create_with(struct ranks *ranks, uint32_t size,
                                     const trp_collective_options *options)
{
    *ranks = (struct ranks){.size = size};
    trp_collective *groups[RANKS_MAX];
    assert_int_equal(trp_collective_local_create(groups, size, options), TRP_OK);
    for (uint32_t rank = 0; rank < size; rank++)
        ranks->at[rank] = (struct rank){.group = groups[rank], .rank = rank, .size = size};
}

static inline void ranks_create(struct ranks *ranks, uint32_t size)
{
    ranks_create_with(ranks, size, &(trp_collective_options){.group = "test", .timeout_ms = 20000});
}

static inline void rank_main(void *arg)
{
    struct rank *rank = arg;
    rank->run(rank);
}

static inline void ranks_start(struct ranks *ranks, void (*run)(struct rank *rank), void *context)
{
    for (uint32_t rank = 0; rank < ranks->size; rank++) {
        ranks->at[rank].run = run;
        ranks->at[rank].context = context;
        assert_int_equal(thread_start(&ranks->at[rank].thread, "rank", rank_main, &ranks->at[rank]),
                         TRP_OK);
    }
}

static inline void ranks_join(struct ranks *ranks)
{
    for (uint32_t rank = 0; rank < ranks->size; rank++)
        thread_stop(&ranks->at[rank].thread);
}

static inline void ranks_run(struct ranks *ranks, void (*run)(struct rank *rank), void *context)
{
    ranks_start(ranks, run, context);
    ranks_join(ranks);
}

static inline void ranks_destroy(struct ranks *ranks)
{
    for (uint32_t rank = 0; rank < ranks->size; rank++)
        trp_collective_destroy(ranks->at[rank].group);
}

/* Every rank found nothing wrong, and nothing failed. */
static inline void ranks_expect_right(const struct ranks *ranks)
{
    for (uint32_t rank = 0; rank < ranks->size; rank++) {
        if (ranks->at[rank].status != TRP_OK)
            fail_msg("rank %u of %u: %s", rank, ranks->size, ranks->at[rank].words);
        if (ranks->at[rank].wrong > 0)
            fail_msg("rank %u of %u found %llu wrong", rank, ranks->size,
                     (unsigned long long)ranks->at[rank].wrong);
    }
}

#endif
