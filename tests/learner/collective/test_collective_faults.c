/* Collective operations that fail: with the same words on all ranks, and in time. */
#include "ranks.h"

#include <poll.h>
#include <stdatomic.h>

#include "../../core/patience.h"
#include "core/alloc.h"

enum { COUNT = 50000, SHORT_MS = 500 };

static void expect_all(const struct ranks *ranks, trp_status status, const char *words)
{
    for (uint32_t rank = 0; rank < ranks->size; rank++) {
        const struct rank *it = &ranks->at[rank];
        if (it->status != status || strcmp(it->words, words) != 0)
            fail_msg("rank %u: %s: %s", rank, trp_status_name(it->status), it->words);
    }
}

/* ---- different calls ------------------------------------------------------------------------ */

struct calls {
    void (*usual)(struct rank *rank, float *values);
    void (*other)(struct rank *rank, float *values);
    uint32_t who; /* calls the other */
};

static void reduce(struct rank *rank, float *values)
{
    rank_wait(rank, trp_collective_allreduce(rank->group, NULL, values, COUNT, TRP_COLLECTIVE_F32,
                                             TRP_COLLECTIVE_SUM));
}

static void reduce_fewer(struct rank *rank, float *values)
{
    rank_wait(rank, trp_collective_allreduce(rank->group, NULL, values, 10, TRP_COLLECTIVE_F32,
                                             TRP_COLLECTIVE_SUM));
}

static void reduce_integers(struct rank *rank, float *values)
{
    rank_wait(rank, trp_collective_allreduce(rank->group, NULL, values, COUNT, TRP_COLLECTIVE_I32,
                                             TRP_COLLECTIVE_SUM));
}

static void reduce_max(struct rank *rank, float *values)
{
    rank_wait(rank, trp_collective_allreduce(rank->group, NULL, values, COUNT, TRP_COLLECTIVE_F32,
                                             TRP_COLLECTIVE_MAX));
}

static void scatter(struct rank *rank, float *values)
{
    rank_wait(rank, trp_collective_reduce_scatter(rank->group, NULL, values, COUNT,
                                                  TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM));
}

static void gather(struct rank *rank, float *values)
{
    rank_wait(rank,
              trp_collective_all_gather(rank->group, NULL, values, COUNT, TRP_COLLECTIVE_F32));
}

static void broadcast_first(struct rank *rank, float *values)
{
    rank_wait(rank,
              trp_collective_broadcast(rank->group, NULL, values, COUNT, TRP_COLLECTIVE_F32, 0));
}

static void broadcast_last(struct rank *rank, float *values)
{
    rank_wait(rank, trp_collective_broadcast(rank->group, NULL, values, COUNT, TRP_COLLECTIVE_F32,
                                             rank->size - 1));
}

static void broadcast_little(struct rank *rank, float *values)
{
    rank_wait(rank, trp_collective_broadcast(rank->group, NULL, values, 4, TRP_COLLECTIVE_F32,
                                             rank->size - 1));
}

static void shift_one(struct rank *rank, float *values)
{
    rank_wait(rank, trp_collective_shift(rank->group, values, 10, TRP_COLLECTIVE_F32, 1));
}

static void meet(struct rank *rank, float *values)
{
    (void)values;
    rank_wait(rank, trp_collective_barrier(rank->group));
}

static void call_one(struct rank *rank)
{
    const struct calls *calls = rank->context;
    float *values = xcalloc(COUNT, sizeof *values);
    reduce_fewer(rank, values); /* all go well before */
    (rank->rank == calls->who ? calls->other : calls->usual)(rank, values);
    for (int i = 0; i < 3 && rank->status == TRP_OK; i++)
        meet(rank, values); /* a root waits for nobody: it is told at a later call */
    char words[sizeof rank->words];
    memcpy(words, rank->words, sizeof words);
    trp_status status = rank->status;
    reduce(rank, values); /* it stays */
    rank->wrong += rank->status != status || strcmp(rank->words, words) != 0;
    free(values);
}

static const struct {
    void (*usual)(struct rank *rank, float *values);
    void (*other)(struct rank *rank, float *values);
    const char *words[2]; /* of both */
} differences[] = {
    {reduce, reduce_fewer, {"allreduce of 50000 f32 (sum)", "allreduce of 10 f32 (sum)"}},
    {reduce, reduce_integers, {"allreduce of 50000 f32 (sum)", "allreduce of 50000 i32 (sum)"}},
    {reduce, reduce_max, {"allreduce of 50000 f32 (sum)", "allreduce of 50000 f32 (max)"}},
    {reduce, scatter, {"allreduce of 50000 f32 (sum)", "reduce-scatter of 50000 f32 (sum)"}},
    {reduce, gather, {"allreduce of 50000 f32 (sum)", "all-gather of 50000 f32"}},
    {reduce, meet, {"allreduce of 50000 f32 (sum)", "barrier"}},
    {reduce, shift_one, {"allreduce of 50000 f32 (sum)", "shift of 10 f32 by 1 ranks"}},
    {reduce_fewer, meet, {"allreduce of 10 f32 (sum)", "barrier"}},
    {meet, broadcast_little, {"barrier", "broadcast of 4 f32 from rank *"}},
    {gather, broadcast_little, {"all-gather of 50000 f32", "broadcast of 4 f32 from rank *"}},
    {broadcast_first,
     broadcast_last,
     {"broadcast of 50000 f32 from rank 0", "broadcast of 50000 f32 from rank *"}},
};

/* Words with the last rank's number for the star. */
static char *said(const char *words, uint32_t size)
{
    const char *star = strchr(words, '*');
    return star ? xasprintf("%.*s%u", (int)(star - words), words, size - 1) : xstrdup(words);
}

static void expect_difference(const struct ranks *ranks, size_t index, uint32_t who)
{
    char *usual = said(differences[index].words[0], ranks->size);
    char *other = said(differences[index].words[1], ranks->size);
    const char *words = ranks->at[0].words;
    expect_all(ranks, TRP_FAILED_PRECONDITION, words);
    /* Of a broadcast its root may be done, and be found in a later call. */
    bool is_done = strchr(differences[index].words[1], '*') != NULL;
    char *mine = is_done ? xasprintf("rank %u ", who) : xasprintf("rank %u %s (its 2)", who, other);
    if (!strstr(words, mine) || (!is_done && !strstr(words, usual)))
        fail_msg("'%s' names neither %s nor %s", words, mine, usual);
    free(usual);
    free(other);
    free(mine);
}

static void ranks_that_call_different_things_all_say_so(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++)
        for (uint32_t size = 2; size <= 4; size++)
            for (uint32_t who = 0; who < size; who += size - 1) {
                struct calls calls = {differences[i].usual, differences[i].other, who};
                struct ranks ranks;
                ranks_create_with(&ranks, size, &(trp_collective_options){.timeout_ms = 10000});
                ranks_run(&ranks, call_one, &calls);
                expect_difference(&ranks, i, who);
                for (uint32_t rank = 0; rank < size; rank++)
                    assert_int_equal(ranks.at[rank].wrong, 0);
                ranks_destroy(&ranks);
            }
}

/* ---- who does not come ---------------------------------------------------------------------- */

static void reduce_unless_last(struct rank *rank)
{
    float *values = xcalloc(COUNT, sizeof *values);
    reduce_fewer(rank, values);
    if (rank->rank < rank->size - 1)
        reduce(rank, values);
    free(values);
}

static void a_rank_that_does_not_call_is_named_by_all(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= 5; size += 1 + size / 3) {
        struct ranks ranks;
        ranks_create_with(&ranks, size, &(trp_collective_options){.timeout_ms = SHORT_MS});
        int64_t before = clock_now_ns(&clock_monotonic);
        ranks_run(&ranks, reduce_unless_last, NULL);
        int64_t ms = (clock_now_ns(&clock_monotonic) - before) / 1000000;
        assert_in_range(ms, SHORT_MS - 10, SHORT_MS + 2000);
        struct rank *last = &ranks.at[size - 1];
        meet(last, NULL); /* it is told at its next call */
        char *words = xasprintf("rank %u of %u is waited for in operation 2, allreduce of 50000 "
                                "f32 (sum), for %d ms",
                                size - 1, size, SHORT_MS);
        expect_all(&ranks, TRP_DEADLINE_EXCEEDED, words);
        free(words);
        ranks_destroy(&ranks);
    }
}

/* Ranks whose calls come at moments of a group's time, which one of them begins. A busy machine may
 * miss them: then the group proves nothing, and is made again. */
struct moments {
    atomic_llong begins_ns; /* 0: not yet */
    atomic_bool missed;
};

enum { MOMENTS_MS = 1000, MOMENTS_TRIES = 5 };

static void begin_moments(struct moments *moments)
{
    atomic_store(&moments->begins_ns, clock_now_ns(&clock_monotonic));
}

/* Until so many milliseconds of it are over. */
static void await_moment(struct moments *moments, int64_t ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, PATIENCE_MS);
    int64_t begins_ns, now;
    do {
        poll(NULL, 0, 1);
        now = clock_now_ns(&clock_monotonic);
        begins_ns = atomic_load(&moments->begins_ns);
    } while ((begins_ns == 0 || now < begins_ns + ms * 1000000) &&
             !deadline_passed(deadline, &clock_monotonic));
}

/* That has to be so before the moment. */
static void reduce_before(struct rank *rank, float *values, int64_t ms)
{
    struct moments *moments = rank->context;
    uint64_t ticket = trp_collective_allreduce(rank->group, NULL, values, COUNT, TRP_COLLECTIVE_F32,
                                               TRP_COLLECTIVE_SUM);
    if (clock_now_ns(&clock_monotonic) > atomic_load(&moments->begins_ns) + ms * 1000000)
        atomic_store(&moments->missed, true);
    rank_wait(rank, ticket);
}

static void expect_last_named(void (*run)(struct rank *rank), uint32_t size, int operation)
{
    bool missed = true;
    for (int i = 0; i < MOMENTS_TRIES && missed; i++) {
        struct moments moments = {0};
        struct ranks ranks;
        ranks_create_with(&ranks, size, &(trp_collective_options){.timeout_ms = MOMENTS_MS});
        ranks_run(&ranks, run, &moments);
        meet(&ranks.at[size - 1], NULL);
        char *words = xasprintf("rank %u of %u is waited for in operation %d, allreduce of 50000 "
                                "f32 (sum), for %d ms",
                                size - 1, size, operation, MOMENTS_MS);
        missed = atomic_load(&moments.missed);
        if (!missed)
            expect_all(&ranks, TRP_DEADLINE_EXCEEDED, words);
        free(words);
        ranks_destroy(&ranks);
    }
    if (missed)
        skip();
}

/* Rank 1 waits for rank 0, which waits for the last one. */
static void reduce_at_last_moment(struct rank *rank)
{
    float *values = xcalloc(COUNT, sizeof *values);
    reduce_fewer(rank, values);
    if (rank->rank == 1) {
        begin_moments(rank->context);
        reduce(rank, values);
    } else if (rank->rank == 0) {
        await_moment(rank->context, MOMENTS_MS - 60);
        reduce_before(rank, values, MOMENTS_MS);
    }
    free(values);
}

static void a_rank_that_called_at_the_last_moment_is_not_named(void **state)
{
    (void)state;
    expect_last_named(reduce_at_last_moment, 3, 2);
}

/* In operation 2 the last rank waits for rank 2, and tells so while ranks 0 and 1 are in operation
 * 3 already, in which rank 1 waits for rank 0, which waits for the last one. */
static void reduce_after_a_long_wait(struct rank *rank)
{
    bool is_last = rank->rank == rank->size - 1;
    float *values = xcalloc(COUNT, sizeof *values);
    reduce_fewer(rank, values);
    if (rank->rank == 2)
        await_moment(rank->context, MOMENTS_MS / 2);
    if (is_last)
        begin_moments(rank->context);
    rank_wait(rank, trp_collective_broadcast(rank->group, NULL, values, 4, TRP_COLLECTIVE_F32, 0));
    if (rank->rank == 0)
        await_moment(rank->context, 60);
    if (!is_last)
        reduce_before(rank, values, MOMENTS_MS - 100);
    free(values);
}

static void a_wait_that_is_over_misleads_nobody(void **state)
{
    (void)state;
    expect_last_named(reduce_after_a_long_wait, 4, 3);
}

static void leave_or_reduce(struct rank *rank)
{
    float *values = xcalloc(COUNT, sizeof *values);
    reduce_fewer(rank, values);
    if (rank->rank == 0) {
        trp_collective_destroy(rank->group);
        rank->group = NULL;
    } else {
        reduce(rank, values);
    }
    free(values);
}

static void a_rank_that_left_is_named_at_once(void **state)
{
    (void)state;
    struct ranks ranks;
    ranks_create(&ranks, 3);
    ranks_run(&ranks, leave_or_reduce, NULL);
    for (uint32_t rank = 1; rank < 3; rank++) {
        assert_int_equal(ranks.at[rank].status, TRP_UNAVAILABLE);
        assert_string_equal(ranks.at[rank].words, "rank 0 of 3 has left");
    }
    ranks_destroy(&ranks);
}

/* ---- abort ---------------------------------------------------------------------------------- */

static void a_waiting_rank_is_aborted_from_another_thread(void **state)
{
    (void)state;
    for (uint32_t who = 0; who < 3; who++) {
        struct ranks ranks;
        ranks_create(&ranks, 3);
        ranks_start(&ranks, reduce_unless_last, NULL);
        trp_collective_abort(ranks.at[who].group, "the run was stopped");
        trp_collective_abort(ranks.at[who].group, "again");
        ranks_join(&ranks);
        struct rank *last = &ranks.at[2];
        rank_wait(last, trp_collective_barrier(last->group));
        expect_all(&ranks, TRP_UNAVAILABLE, "the run was stopped");
        ranks_destroy(&ranks);
    }
}

/* All others have begun it already. */
static void what_begins_after_an_abort_is_never_done(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct ranks ranks;
        ranks_create(&ranks, 2);
        struct rank *first = &ranks.at[0], *last = &ranks.at[1];
        uint64_t ticket = trp_collective_barrier(first->group);
        trp_collective_abort(last->group, "it is enough");
        rank_wait(last, trp_collective_barrier(last->group));
        rank_wait(first, ticket);
        expect_all(&ranks, TRP_UNAVAILABLE, "it is enough");
        ranks_destroy(&ranks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_call_different_things_all_say_so),
        cmocka_unit_test(a_rank_that_does_not_call_is_named_by_all),
        cmocka_unit_test(a_rank_that_called_at_the_last_moment_is_not_named),
        cmocka_unit_test(a_wait_that_is_over_misleads_nobody),
        cmocka_unit_test(a_rank_that_left_is_named_at_once),
        cmocka_unit_test(a_waiting_rank_is_aborted_from_another_thread),
        cmocka_unit_test(what_begins_after_an_abort_is_never_done),
    };
    RANKS_TESTS(tests);
}
