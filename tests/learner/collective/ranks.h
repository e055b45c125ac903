/* All ranks of a group in one test: a thread each, joined within a test's patience by the deadlines
 * of what they do. Their findings are kept for the test's own thread, which may fail. A test runs
 * over each kind of group: main() calls RANKS_TESTS(). */
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
#include <unistd.h>

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

/* ---- groups -------------------------------------------------------------------------------- */

enum ranks_kind { RANKS_LOCAL, RANKS_TCP, RANKS_UNIX, RANKS_SHARED, RANKS_KINDS };

static enum ranks_kind ranks_kind; /* of the groups that are made */
static uint32_t ranks_hosts = 1;   /* over which ranks of RANKS_TCP are spread, in turn */

/* Of one rank that connects. */
struct ranks_connecting {
    trp_collective_options options;
    trp_collective_listener *listener;
};

static inline void rank_connect(struct rank *rank)
{
    struct ranks_connecting *connecting = (struct ranks_connecting *)rank->context + rank->rank;
    rank_keep(rank,
              trp_collective_connect(&rank->group, connecting->listener, &connecting->options));
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

/* A listener of each rank in a folder of the test's own, or on free ports. */
static inline void ranks_listen(trp_collective_listener **listeners, const char **addresses,
                                uint32_t size, enum ranks_kind kind)
{
    for (uint32_t rank = 0; rank < size; rank++) {
        char address[64];
        snprintf(address, sizeof address, "127.0.0.%u:0", 1 + rank % ranks_hosts);
        if (kind == RANKS_UNIX)
            snprintf(address, sizeof address, "unix:/tmp/troupe-ranks-%d-%u", (int)getpid(), rank);
        assert_int_equal(trp_collective_listener_create(&listeners[rank], address, false), TRP_OK);
        addresses[rank] = trp_collective_listener_address(listeners[rank]);
    }
}

/* Each rank's options are the same but for rank, size and addresses, until `change`. */
static inline void ranks_connect(struct ranks *ranks, const trp_collective_options *options,
                                 void (*change)(trp_collective_options *options))
{
    trp_collective_listener *listeners[RANKS_MAX];
    const char *addresses[RANKS_MAX];
    struct ranks_connecting connecting[RANKS_MAX];
    ranks_listen(listeners, addresses, ranks->size, ranks_kind);
    for (uint32_t rank = 0; rank < ranks->size; rank++) {
        connecting[rank] = (struct ranks_connecting){*options, listeners[rank]};
        connecting[rank].options.rank = rank;
        connecting[rank].options.size = ranks->size;
        connecting[rank].options.addresses = addresses;
        connecting[rank].options.no_share = ranks_kind != RANKS_SHARED;
        if (options->connect_timeout_ms ==
            0) /* a busy machine needs longer than a test of late ranks */
            connecting[rank].options.connect_timeout_ms = 20000;
        if (change)
            change(&connecting[rank].options);
    }
    ranks_run(ranks, rank_connect, connecting);
    for (uint32_t rank = 0; rank < ranks->size; rank++)
        trp_collective_listener_destroy(listeners[rank]);
}

static inline void ranks_create_with(struct ranks *ranks, uint32_t size,
                                     const trp_collective_options *options)
{
    *ranks = (struct ranks){.size = size};
    trp_collective *groups[RANKS_MAX] = {0};
    if (ranks_kind == RANKS_LOCAL)
        assert_int_equal(trp_collective_local_create(groups, size, options), TRP_OK);
    for (uint32_t rank = 0; rank < size; rank++)
        ranks->at[rank] = (struct rank){.group = groups[rank], .rank = rank, .size = size};
    if (ranks_kind != RANKS_LOCAL)
        ranks_connect(ranks, options, NULL);
    for (uint32_t rank = 0; rank < size; rank++)
        if (!ranks->at[rank].group)
            fail_msg("rank %u of %u: %s", rank, size, ranks->at[rank].words);
    for (uint32_t rank = 0; rank < size; rank++)
        assert_int_equal(trp_collective_read(ranks->at[rank].group).shared_ranks,
                         ranks_kind == RANKS_SHARED ? size - 1 : 0);
}

static inline void ranks_create(struct ranks *ranks, uint32_t size)
{
    ranks_create_with(ranks, size, &(trp_collective_options){.group = "test", .timeout_ms = 20000});
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

/* Runs an array of tests over each kind of group. */
#define RANKS_TESTS(tests)                                                                         \
    do {                                                                                           \
        int ranks_failed = 0;                                                                      \
        for (ranks_kind = RANKS_LOCAL; ranks_kind < RANKS_KINDS; ranks_kind++)                     \
            ranks_failed += cmocka_run_group_tests(tests, NULL, NULL);                             \
        return ranks_failed;                                                                       \
    } while (0)

#endif
