/* NCCL in graphs: ranks on machines of tests (tests/nn/cuda/twin_machine.h) by an NCCL of tests
 * (fake_nccl.h), which sees what is captured, what is launched, and what is launched too late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/core/captured.h"
#include "tests/core/patience.h"
#include "tests/nn/cuda/twin_machine.h"

#include "fake_nccl.h"
#include "learner/collective/limits.h"
#include "ranks.h"

static struct fake_nccl *fake;

enum { NUMBERS = 100, VECTORS = 2, STEPS = 6, HANG_MS = 600 };

/* A rank's machine, with a queue and vectors that outlive generations. */
struct seat {
    struct twin_device *twin;
    trp_device *device;
    trp_queue *queue;
    float *values[VECTORS], *results[VECTORS];
    uint64_t step;
    uint64_t graphs, launches, runs; /* of the machine, when the generation began */
};

struct scene {
    struct ranks ranks;
    struct seat seats[RANKS_MAX];
    uint64_t generation;
    uint32_t timeout_ms;
    atomic_int put; /* ranks that have put a step which an abort is to meet */
};

static struct scene *scene_now;
/* The rank of that number, from 1 on, gets no graph of what it took down. */
static uint32_t spoiler;

static int reset(void **state)
{
    (void)state;
    spoiler = 0;
    *fake = (struct fake_nccl){.polls = 0};
    ranks_kind = RANKS_TCP;
    return 0;
}

static void use_device(trp_collective_options *options)
{
    options->device = scene_now->seats[options->rank].device;
}

/* The next generation. */
static void scene_meet(struct scene *scene)
{
    const trp_collective_options options = {.group = "test",
                                            .generation = ++scene->generation,
                                            .timeout_ms =
                                                scene->timeout_ms ? scene->timeout_ms : 20000};
    scene_now = scene;
    ranks_connect(&scene->ranks, &options, use_device);
    for (uint32_t rank = 0; rank < scene->ranks.size; rank++) {
        if (!scene->ranks.at[rank].group)
            fail_msg("rank %u: %s", rank, scene->ranks.at[rank].words);
        struct seat *seat = &scene->seats[rank];
        seat->graphs = seat->twin->machine.graphs;
        seat->launches = seat->twin->machine.launches;
        seat->runs = seat->twin->machine.runs;
    }
}

static void scene_begin(struct scene *scene, uint32_t size, uint32_t timeout_ms)
{
    *scene = (struct scene){.ranks.size = size, .timeout_ms = timeout_ms};
    for (uint32_t rank = 0; rank < size; rank++) {
        struct seat *seat = &scene->seats[rank];
        scene->ranks.at[rank] = (struct rank){.rank = rank, .size = size};
        seat->twin = xcalloc(1, sizeof *seat->twin);
        seat->device = twin_device_init(seat->twin, rank + 1);
        seat->twin->machine.checks_waits = true;
        seat->twin->machine.spoils = spoiler == rank + 1;
        OR_FAIL(trp_queue_create(&seat->queue, seat->device));
        for (size_t i = 0; i < VECTORS; i++) {
            size_t bytes = NUMBERS * sizeof(float);
            OR_FAIL(trp_device_alloc(seat->device, bytes, (void **)&seat->values[i]));
            OR_FAIL(trp_device_alloc(seat->device, bytes, (void **)&seat->results[i]));
        }
    }
    scene_meet(scene);
}

static void leave(struct rank *rank)
{
    trp_collective_destroy(rank->group);
    rank->group = NULL;
}

static void scene_leave(struct scene *scene)
{
    ranks_run(&scene->ranks, leave, scene);
    assert_int_equal(fake->live, 0);
    assert_int_equal(fake->misuses, 0);
}

static void scene_end(struct scene *scene)
{
    scene_leave(scene);
    for (uint32_t rank = 0; rank < scene->ranks.size; rank++) {
        struct seat *seat = &scene->seats[rank];
        trp_status passed = trp_queue_sync(seat->queue, trp_queue_mark(seat->queue));
        (void)passed;
        trp_queue_destroy(seat->queue);
        for (size_t i = 0; i < VECTORS; i++) {
            trp_device_free(seat->device, seat->values[i]);
            trp_device_free(seat->device, seat->results[i]);
        }
        free(seat->twin);
    }
}

/* ---- a step ------------------------------------------------------------------------------------
 */

/* result += sum, of which the machine has no code. */
struct adding {
    float *result;
    const float *sum;
};

static void add_sum(void *arguments)
{
    const struct adding *adding = arguments;
    for (size_t i = 0; i < NUMBERS; i++)
        adding->result[i] += adding->sum[i];
}

static float given(uint32_t rank, size_t vector, uint64_t step, size_t i)
{
    return (float)((rank + 1) * (vector + 1) * (step % 7 + 1) + i % 5);
}

/* What goes up is no part of the list. */
static void put_values(struct rank *rank, struct seat *seat)
{
    for (size_t k = 0; k < VECTORS; k++) {
        float values[NUMBERS];
        for (size_t i = 0; i < NUMBERS; i++)
            values[i] = given(rank->rank, k, seat->step, i);
        trp_queue_copy(seat->queue, seat->values[k], values, sizeof values);
    }
}

/* Two sums, which have nothing to do with each other, and what is made of each: one list. Returns
 * the last one's ticket. */
static uint64_t put_step(struct rank *rank, struct seat *seat)
{
    static const trp_kernel kernel = {.name = "test.add", .run = add_sum};
    size_t bytes = NUMBERS * sizeof(float);
    uint64_t ticket = 0;
    put_values(rank, seat);
    for (size_t k = 0; k < VECTORS; k++) {
        trp_queue_zero(seat->queue, seat->results[k], bytes);
        ticket = trp_collective_allreduce(rank->group, seat->queue, seat->values[k], NUMBERS,
                                          TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM);
        rank->wrong += !trp_collective_queued(rank->group, ticket);
        struct adding adding = {seat->results[k], seat->values[k]};
        trp_operand operands[] = {{offsetof(struct adding, result), bytes, TRP_READ | TRP_WRITE},
                                  {offsetof(struct adding, sum), bytes, TRP_READ}};
        trp_queue_run(seat->queue, &kernel, &adding, sizeof adding, operands, 2);
    }
    return ticket;
}

static float expected(const struct rank *rank, size_t vector, uint64_t step, size_t i)
{
    float sum = 0;
    for (uint32_t other = 0; other < rank->size; other++)
        sum += given(other, vector, step, i);
    return sum;
}

static void check_step(struct rank *rank, struct seat *seat)
{
    for (size_t k = 0; k < VECTORS; k++) {
        float got[NUMBERS];
        trp_queue_copy(seat->queue, got, seat->results[k], sizeof got);
        OR_FAIL(trp_queue_sync(seat->queue, trp_queue_mark(seat->queue)));
        for (size_t i = 0; i < NUMBERS; i++)
            rank->wrong += got[i] != expected(rank, k, seat->step, i);
    }
}

static void run_steps(struct rank *rank)
{
    struct scene *scene = rank->context;
    struct seat *seat = &scene->seats[rank->rank];
    rank->status = TRP_OK;
    for (uint64_t end = seat->step + STEPS; seat->step < end && rank->status == TRP_OK;
         seat->step++)
        if (rank_wait(rank, put_step(rank, seat)) == TRP_OK)
            check_step(rank, seat);
}

/* Since the generation began: lists that were captured, launches of them, and lists that were run.
 */
static void expect_graphs(const struct scene *scene, uint64_t graphs, uint64_t launches)
{
    for (uint32_t rank = 0; rank < scene->ranks.size; rank++) {
        const struct seat *seat = &scene->seats[rank];
        const struct twin_machine *now = &seat->twin->machine;
        assert_int_equal(now->graphs - seat->graphs, graphs);
        assert_int_equal(now->launches - seat->launches, launches);
        assert_int_equal(now->runs - seat->runs, 0);
    }
}

/* ---- what is recorded --------------------------------------------------------------------------
 */

/* The machine fails where two works meet in no order, or a wait could be left out. */
static void sums_are_a_part_of_the_graph_of_what_is_around_them(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 3; size++)
        for (int polls = 0; polls < 4; polls += 3) {
            struct scene scene;
            reset(NULL);
            fake->polls = polls;
            scene_begin(&scene, size, 0);
            assert_int_equal(fake->captured, size); /* the meeting's second one */
            ranks_run(&scene.ranks, run_steps, &scene);
            ranks_expect_right(&scene.ranks);
            assert_int_equal(fake->captured, size * (1 + VECTORS));
            assert_int_equal(fake->launched, size * (1 + VECTORS * STEPS));
            if (LISTS_REPEAT)
                expect_graphs(&scene, 1, STEPS);
            scene_end(&scene);
            assert_int_equal(fake->aborts, 0);
        }
}

/* The second one is handed over before the first is, on some ranks. */
static void sum_on_two_queues(struct rank *rank)
{
    struct scene *scene = rank->context;
    struct seat *seat = &scene->seats[rank->rank];
    trp_queue *queues[VECTORS] = {seat->queue};
    uint64_t ticket = 0;
    OR_FAIL(trp_queue_create(&queues[1], seat->device));
    put_values(rank, seat);
    OR_FAIL(trp_queue_sync(seat->queue, trp_queue_mark(seat->queue)));
    for (size_t k = 0; k < VECTORS; k++)
        ticket = trp_collective_allreduce(rank->group, queues[k], seat->values[k], NUMBERS,
                                          TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM);
    if (rank->rank % 2)
        (void)trp_queue_mark(queues[1]);
    rank_wait(rank, ticket);
    for (size_t k = 0; k < VECTORS; k++) {
        float got[NUMBERS];
        trp_queue_copy(queues[k], got, seat->values[k], sizeof got);
        OR_FAIL(trp_queue_sync(queues[k], trp_queue_mark(queues[k])));
        for (size_t i = 0; i < NUMBERS; i++)
            rank->wrong += got[i] != expected(rank, k, seat->step, i);
    }
    trp_collective_destroy(rank->group);
    rank->group = NULL;
    trp_queue_destroy(queues[1]);
}

static void sums_on_two_queues_go_in_the_order_of_all_ranks(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, 3, 2000);
    ranks_run(&scene.ranks, sum_on_two_queues, &scene);
    ranks_expect_right(&scene.ranks);
    scene_end(&scene);
}

static void where_a_rank_cannot_capture_all_use_the_host(void **state)
{
    (void)state;
    for (int rank = 1; rank <= 2; rank++) {
        struct captured log;
        struct scene scene;
        reset(NULL);
        fake->no_graphs = rank;
        capture_begin(&log);
        scene_begin(&scene, 2, 0);
        capture_end(&log);
        assert_true(captured_count(&log, "go through the host's memory group=test reason=rank") >
                    0);
        scene_end(&scene);
    }
}

/* It was put on a stream that was captured, and again on one that was not. */
static void where_a_rank_gets_no_graph_all_use_the_host(void **state)
{
    struct captured log;
    struct scene scene;
    (void)state;
    spoiler = 2;
    capture_begin(&log);
    scene_begin(&scene, 2, 0);
    capture_end(&log);
    assert_true(captured_count(&log, "go through the host's memory group=test reason=rank 1 of 2: "
                                     "NCCL's operations do not go into a graph of twin") > 0);
    scene_end(&scene);
}

/* ---- what goes wrong ---------------------------------------------------------------------------
 */

static void expect_same_failure(const struct scene *scene, trp_status status, const char *words)
{
    for (uint32_t rank = 0; rank < scene->ranks.size; rank++) {
        const struct rank *at = &scene->ranks.at[rank];
        if (at->status != status || !strstr(at->words, words))
            fail_msg("rank %u: %s (%d)", rank, at->words, at->status);
        assert_string_equal(at->words, scene->ranks.at[0].words);
    }
}

/* Its graph was launched before: NCCL, which waits for graphs, is aborted all the same. */
static void one_that_hangs_in_a_graph_is_over_in_time(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, 3, HANG_MS);
    fake->hangs_at = 2 * VECTORS + 1;
    ranks_run(&scene.ranks, run_steps, &scene);
    expect_same_failure(&scene, TRP_DEADLINE_EXCEEDED,
                        "NCCL is not done with operation 5, allreduce of 100 f32 (sum)");
    scene_end(&scene);
    assert_int_equal(fake->aborts, 3);
    assert_int_equal(fake->destroys, 0);
}

static void what_nccl_says_of_a_graph_all_say(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, 3, 0);
    fake->hangs_at = 2 * VECTORS + 1;
    fake->remote_error = 2;
    ranks_run(&scene.ranks, run_steps, &scene);
    expect_same_failure(&scene, TRP_UNAVAILABLE, "rank 1 of 3: NCCL: remote error");
    scene_end(&scene);
    assert_int_equal(fake->aborts, 3);
}

/* On any thread: false after a test's patience. */
static bool await_count(const atomic_int *count, int least)
{
    struct deadline deadline = patience();
    while (*count < least && !deadline_passed(deadline, &clock_monotonic))
        sched_yield();
    return *count >= least;
}

static _Thread_local int64_t slow_ms; /* a step's kernel takes so long on this rank */

static void take_long(void *arguments)
{
    (void)arguments;
    struct deadline end = deadline_in_ms(&clock_monotonic, slow_ms);
    while (!deadline_passed(end, &clock_monotonic))
        sched_yield();
}

static void put_slow_step(struct rank *rank, struct seat *seat)
{
    static const trp_kernel kernel = {.name = "test.slow", .run = take_long};
    struct adding adding = {seat->results[0], seat->values[0]};
    trp_operand operand = {offsetof(struct adding, result), sizeof(float), TRP_READ | TRP_WRITE};
    put_step(rank, seat);
    trp_queue_run(seat->queue, &kernel, &adding, sizeof adding, &operand, 1);
}

static void abort_a_slow_step(struct rank *rank)
{
    struct scene *scene = rank->context;
    struct seat *seat = &scene->seats[rank->rank];
    bool is_slow = rank->rank + 1 == rank->size;
    put_slow_step(rank, seat);
    OR_FAIL(trp_queue_sync(seat->queue, trp_queue_mark(seat->queue)));
    slow_ms = is_slow ? COLLECTIVE_ABORT_MS + 4 * COLLECTIVE_GUARD_MS : 0;
    put_slow_step(rank, seat);
    (void)trp_queue_mark(seat->queue);
    scene->put++;
    if (is_slow) {
        rank->wrong += !await_count(&scene->put, (int)rank->size);
        trp_collective_abort(rank->group, "it is enough");
    }
    if (!is_slow) /* that of the one that is alone, and the slow one's */
        rank->wrong += !await_count(&fake->aborts, 2);
    struct deadline soon = deadline_in_ms(&clock_monotonic, COLLECTIVE_ABORT_MS);
    leave(rank); /* waits for the step, and NCCL with it; for the other's, if it ended before */
    rank->wrong += is_slow && !deadline_passed(soon, &clock_monotonic);
}

/* Else the process would end. Of two ranks in a process one is waited for by the other. */
static void a_step_may_take_longer_than_aborting(void **state)
{
    struct scene alone, two;
    (void)state;
    scene_begin(&alone, 1, 0);
    scene_begin(&two, 2, 0);
    ranks_start(&alone.ranks, abort_a_slow_step, &alone);
    bool aborted = await_count(&fake->aborts, 1);
    ranks_start(&two.ranks, abort_a_slow_step, &two);
    ranks_join(&alone.ranks);
    ranks_join(&two.ranks);
    assert_true(aborted);
    ranks_expect_right(&alone.ranks);
    ranks_expect_right(&two.ranks);
    scene_end(&alone);
    scene_end(&two);
    assert_int_equal(fake->aborts, 3);
}

/* NCCL says for good that it goes on: the rank that is in its call has the deadline of all. */
static void what_nccl_never_puts_is_over_in_time(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, 3, 2000);
    fake->polls = 1 << 30;
    struct deadline late = deadline_in_ms(&clock_monotonic, 12000);
    ranks_run(&scene.ranks, run_steps, &scene);
    assert_false(deadline_passed(late, &clock_monotonic));
    expect_same_failure(
        &scene, TRP_UNAVAILABLE,
        "allreduce of 100 f32 (sum): NCCL has not put it on its stream within 2000 ms");
    scene_end(&scene);
    assert_int_equal(fake->aborts, 3);
}

static void sum_on_another_queue(struct rank *rank)
{
    struct scene *scene = rank->context;
    struct seat *seat = &scene->seats[rank->rank];
    trp_queue *other;
    OR_FAIL(trp_queue_create(&other, seat->device));
    trp_collective_allreduce(rank->group, seat->queue, seat->values[0], NUMBERS, TRP_COLLECTIVE_F32,
                             TRP_COLLECTIVE_SUM);
    rank_wait(rank, trp_collective_allreduce(rank->group, other, seat->values[1], NUMBERS,
                                             TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM));
    leave(rank);
    trp_queue_destroy(other);
}

/* The first queue is handed over when the second one's turn comes, to an NCCL that goes on. */
static void who_waits_for_a_queue_hears_that_it_is_over(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, 2, 20000);
    trp_collective *group = scene.ranks.at[0].group;
    struct deadline late = deadline_in_ms(&clock_monotonic, 15000);
    fake->polls = 1 << 30;
    fake->going_on = 0;
    ranks_start(&scene.ranks, sum_on_another_queue, &scene);
    while (fake->going_on < 600 && !deadline_passed(late, &clock_monotonic))
        sched_yield();
    trp_collective_abort(group, "it is enough");
    ranks_join(&scene.ranks);
    assert_false(deadline_passed(late, &clock_monotonic));
    expect_same_failure(&scene, TRP_UNAVAILABLE, "it is enough");
    scene_end(&scene);
}

static atomic_int recorded; /* ranks */

/* The queue goes on without the sum, which is not taken for one. */
static void what_nccl_does_not_take_is_no_sum(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, 3, 0);
    fake->no_graphs = 2;
    ranks_run(&scene.ranks, run_steps, &scene);
    expect_same_failure(&scene, TRP_UNAVAILABLE,
                        "rank 1 of 3: allreduce of 100 f32 (sum): unhandled error");
    scene_end(&scene);
}

/* A step is recorded when another rank ends the generation: it is handed over then. */
static void run_abandoned(struct rank *rank)
{
    struct scene *scene = rank->context;
    struct seat *seat = &scene->seats[rank->rank];
    uint64_t ticket = put_step(rank, seat), launches = seat->twin->machine.launches;
    recorded++;
    rank->wrong += !await_count(&recorded, (int)rank->size);
    if (rank->rank == 0)
        trp_collective_abort(rank->group, "it is enough");
    struct deadline deadline = patience();
    while (!trp_collective_done(rank->group, ticket) &&
           !deadline_passed(deadline, &clock_monotonic))
        sched_yield();
    rank->wrong += trp_collective_queued(rank->group, ticket);
    OR_FAIL(trp_queue_sync(seat->queue, trp_queue_mark(seat->queue)));
    rank->wrong += seat->twin->machine.launches != launches;
    rank_wait(rank, ticket);
    seat->step++;
}

static void a_graph_of_a_generation_that_is_over_is_never_launched_again(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, 2, 0);
    ranks_run(&scene.ranks, run_steps, &scene);
    ranks_expect_right(&scene.ranks);
    for (int generation = 2; generation < 5; generation++) {
        int launched = fake->launched;
        recorded = 0;
        ranks_run(&scene.ranks, run_abandoned, &scene);
        expect_same_failure(&scene, TRP_UNAVAILABLE, "it is enough");
        assert_int_equal(fake->launched, launched);
        scene_leave(&scene);
        scene_meet(&scene);
        ranks_run(&scene.ranks, run_steps, &scene);
        ranks_expect_right(&scene.ranks);
        if (LISTS_REPEAT)
            expect_graphs(&scene, 1, STEPS);
        assert_int_equal(fake->captured, 2 * generation * (1 + VECTORS));
    }
    scene_end(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sums_are_a_part_of_the_graph_of_what_is_around_them, reset),
        cmocka_unit_test_setup(sums_on_two_queues_go_in_the_order_of_all_ranks, reset),
        cmocka_unit_test_setup(where_a_rank_cannot_capture_all_use_the_host, reset),
        cmocka_unit_test_setup(where_a_rank_gets_no_graph_all_use_the_host, reset),
        cmocka_unit_test_setup(one_that_hangs_in_a_graph_is_over_in_time, reset),
        cmocka_unit_test_setup(a_step_may_take_longer_than_aborting, reset),
        cmocka_unit_test_setup(what_nccl_says_of_a_graph_all_say, reset),
        cmocka_unit_test_setup(what_nccl_does_not_take_is_no_sum, reset),
        cmocka_unit_test_setup(what_nccl_never_puts_is_over_in_time, reset),
        cmocka_unit_test_setup(who_waits_for_a_queue_hears_that_it_is_over, reset),
        cmocka_unit_test_setup(a_graph_of_a_generation_that_is_over_is_never_launched_again, reset),
    };
    fake = fake_nccl_load(FAKE_NCCL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
