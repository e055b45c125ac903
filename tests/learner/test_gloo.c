/* The collective beside gloo, on the same values: processes of a group each do every operation with
 * both and compare what they have then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <signal.h>

#include <cmocka.h>

#include <troupe/collective.h>
#include <troupe/rng.h>
#include "core/alloc.h"

#ifdef TROUPE_GLOO
#include "gloo_group.h"

enum { RANKS_MAX = 4, ADDRESS_BYTES = 128, COUNT_MAX = 300007, TIMEOUT_MS = 20000 };

static const size_t counts[] = {1, 2, 31, 33, 64, 100, 1000, 4097, 20000, 65537, COUNT_MAX};

/* What the processes have in common. */
struct meeting {
    _Atomic uint32_t arrived;
    char addresses[RANKS_MAX][ADDRESS_BYTES];
};

struct rank {
    uint32_t rank, size;
    trp_collective *ours;
    struct gloo_group *gloo;
    trp_rng rng;
    uint8_t *values, *expected;
};

/* In a process of its own: nothing of cmocka's works there. */
static void require(bool right, const struct rank *rank, const char *what, size_t count)
{
    if (right)
        return;
    fprintf(stderr, "rank %u of %u: %s of %zu: %s\n", rank->rank, rank->size, what, count,
            trp_last_error());
    _exit(1);
}

static const struct {
    const char *name;
    trp_collective_type ours;
    gloo_type gloo;
    size_t bytes;
} types[] = {
    {"f32", TRP_COLLECTIVE_F32, GLOO_F32, 4},
    {"i32", TRP_COLLECTIVE_I32, GLOO_I32, 4},
    {"u64", TRP_COLLECTIVE_U64, GLOO_U64, 8},
};
enum { TYPES = sizeof types / sizeof *types };

/* Floats of which sums are exact in any order, or (two ranks add in one order) any. */
static void fill(struct rank *rank, size_t type, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int64_t whole = (int64_t)trp_rng_below(&rank->rng, 2000001) - 1000000;
        float real = rank->size == 2 ? (float)trp_rng_normal(&rank->rng) : (float)whole;
        if (types[type].ours == TRP_COLLECTIVE_F32)
            memcpy(rank->values + 4 * i, &real, 4);
        else
            memcpy(rank->values + types[type].bytes * i, &whole, types[type].bytes);
    }
    memcpy(rank->expected, rank->values, count * types[type].bytes);
}

static void finish(struct rank *rank, uint64_t ticket, const char *what, size_t count)
{
    require(trp_collective_wait(rank->ours, ticket) == TRP_OK, rank, what, count);
}

static void compare_reductions(struct rank *rank, size_t type, size_t count)
{
    for (int op = TRP_COLLECTIVE_SUM; op <= TRP_COLLECTIVE_MAX; op++) {
        fill(rank, type, count);
        gloo_allreduce(rank->gloo, rank->expected, count, types[type].gloo,
                       op == TRP_COLLECTIVE_SUM ? GLOO_SUM : GLOO_MAX);
        finish(rank,
               trp_collective_allreduce(rank->ours, NULL, rank->values, count, types[type].ours,
                                        (trp_collective_op)op),
               "allreduce", count);
        require(memcmp(rank->values, rank->expected, count * types[type].bytes) == 0, rank,
                types[type].name, count);
    }
}

static void compare_copies(struct rank *rank, size_t type, size_t count, const size_t *ranges)
{
    uint32_t root = (uint32_t)(count % rank->size);
    fill(rank, type, count);
    gloo_broadcast(rank->gloo, rank->expected, count, types[type].gloo, root);
    finish(rank,
           trp_collective_broadcast(rank->ours, NULL, rank->values, count, types[type].ours, root),
           "broadcast", count);
    require(memcmp(rank->values, rank->expected, count * types[type].bytes) == 0, rank, "broadcast",
            count);
    fill(rank, type, count);
    gloo_all_gather(rank->gloo, rank->expected, ranges, types[type].gloo);
    finish(rank, trp_collective_all_gather(rank->ours, NULL, rank->values, count, types[type].ours),
           "all-gather", count);
    require(memcmp(rank->values, rank->expected, count * types[type].bytes) == 0, rank,
            "all-gather", count);
}

static void compare_reduce_scatter(struct rank *rank, size_t count, const size_t *ranges,
                                   size_t low)
{
    fill(rank, 0, count);
    gloo_reduce_scatter(rank->gloo, (float *)(void *)rank->expected, ranges);
    finish(rank,
           trp_collective_reduce_scatter(rank->ours, NULL, rank->values, count, TRP_COLLECTIVE_F32,
                                         TRP_COLLECTIVE_SUM),
           "reduce-scatter", count);
    require(memcmp(rank->values + low * sizeof(float), rank->expected,
                   ranges[rank->rank] * sizeof(float)) == 0,
            rank, "reduce-scatter", count);
}

static void compare_all(struct rank *rank)
{
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t ranges[RANKS_MAX], low, high, mine = 0;
        for (uint32_t other = 0; other < rank->size; other++) {
            trp_collective_range(rank->ours, counts[i], other, &low, &high);
            ranges[other] = high - low;
            mine = other == rank->rank ? low : mine;
        }
        for (size_t type = 0; type < TYPES; type++) {
            compare_reductions(rank, type, counts[i]);
            compare_copies(rank, type, counts[i], ranges);
        }
        compare_reduce_scatter(rank, counts[i], ranges, mine);
    }
}

static void connect_rank(struct rank *rank, struct meeting *meeting)
{
    trp_collective_listener *listener;
    const char *addresses[RANKS_MAX];
    require(trp_collective_listener_create(&listener, NULL, false) == TRP_OK, rank, "listener", 0);
    snprintf(meeting->addresses[rank->rank], ADDRESS_BYTES, "%s",
             trp_collective_listener_address(listener));
    atomic_fetch_add(&meeting->arrived, 1);
    while (atomic_load(&meeting->arrived) < rank->size)
        ;
    for (uint32_t i = 0; i < rank->size; i++)
        addresses[i] = meeting->addresses[i];
    trp_collective_options options = {.group = "oracle",
                                      .generation = 1,
                                      .nonce = 7,
                                      .rank = rank->rank,
                                      .size = rank->size,
                                      .addresses = addresses,
                                      .timeout_ms = TIMEOUT_MS};
    require(trp_collective_connect(&rank->ours, listener, &options) == TRP_OK, rank, "connect", 0);
    trp_collective_listener_destroy(listener);
}

static _Noreturn void run_process(struct rank *rank, struct meeting *meeting, const char *dir)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    trp_rng_init(&rank->rng, 5, rank->rank);
    rank->values = xmalloc(COUNT_MAX * sizeof(uint64_t));
    rank->expected = xmalloc(COUNT_MAX * sizeof(uint64_t));
    connect_rank(rank, meeting);
    rank->gloo = gloo_group_create(dir, rank->rank, rank->size);
    compare_all(rank);
    trp_collective_destroy(rank->ours);
    gloo_group_destroy(rank->gloo);
    free(rank->values);
    free(rank->expected);
    _exit(0);
}

static void remove_files(const char *dir)
{
    char *command = xasprintf("rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
    free(command);
}

static void compare_processes(uint32_t size)
{
    char dir[] = "/tmp/troupe_gloo-XXXXXX";
    pid_t children[RANKS_MAX];
    assert_non_null(mkdtemp(dir));
    struct meeting *meeting =
        mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(meeting != MAP_FAILED);
    for (uint32_t i = 0; i < size; i++) {
        children[i] = fork();
        if (children[i] == 0)
            run_process(&(struct rank){.rank = i, .size = size}, meeting, dir);
        assert_true(children[i] > 0);
    }
    int failed = 0, status;
    for (uint32_t i = 0; i < size; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        failed |= status;
    }
    munmap(meeting, sizeof *meeting);
    remove_files(dir);
    assert_int_equal(failed, 0);
}
#endif

static void results_are_those_of_gloo(void **state)
{
    (void)state;
#ifdef TROUPE_GLOO
    for (uint32_t size = 2; size <= 3; size++)
        compare_processes(size);
#else
    print_message("skipped: no gloo\n");
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_gloo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
