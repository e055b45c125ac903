/* Virtual ranks: one device's vectors, each on a queue of its own, summed where they lie. On a
 * device that works late and holds everybody to what they named, and on a GPU of tests, by the
 * kernel's twin. There one thread calls for all of them; threads of their own share a device that
 * is locked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "learner/collective/collective.h"
#include "nn/cuda/module/code.h"
#include "tests/core/captured.h"
#include "tests/nn/cuda/real_gpu.h"
#include "tests/nn/cuda/twin_machine.h"
#include "ranks.h"
#include "shared_device.h"
#include "vectors.h"

enum { RANKS_MOST = 6 };

struct virtual_ranks {
    uint32_t size;
    trp_device *device;
    trp_collective *groups[RANKS_MOST];
    struct vector vectors[RANKS_MOST];
};

static void ranks_begin(struct virtual_ranks *ranks, trp_device *device, uint32_t size,
                        uint32_t timeout_ms)
{
    *ranks = (struct virtual_ranks){.size = size, .device = device};
    OR_FAIL(trp_collective_local_create(
        ranks->groups, size,
        &(trp_collective_options){.group = "test", .device = device, .timeout_ms = timeout_ms}));
    for (uint32_t rank = 0; rank < size; rank++)
        vector_create(&ranks->vectors[rank], device);
}

static void ranks_end(struct virtual_ranks *ranks)
{
    for (uint32_t rank = 0; rank < ranks->size; rank++)
        trp_collective_destroy(ranks->groups[rank]);
    for (uint32_t rank = 0; rank < ranks->size; rank++)
        vector_destroy(&ranks->vectors[rank], ranks->device);
}

static void check_operation(struct virtual_ranks *ranks, enum what what, size_t count,
                            trp_collective_type type, trp_collective_op op)
{
    uint64_t tickets[RANKS_MOST];
    for (uint32_t rank = 0; rank < ranks->size; rank++)
        vector_give(&ranks->vectors[rank], rank, count, type);
    for (uint32_t i = 0; i < ranks->size; i++) {
        uint32_t rank = (i + (uint32_t)count) % ranks->size; /* whoever is first */
        tickets[rank] = begin(ranks->groups[rank], &ranks->vectors[rank], what, count, type, op);
    }
    for (uint32_t rank = 0; rank < ranks->size; rank++)
        OR_FAIL(trp_collective_wait(ranks->groups[rank], tickets[rank]));
    for (uint32_t rank = 0; rank < ranks->size; rank++)
        assert_int_equal(
            vector_wrong(&ranks->vectors[rank], ranks->groups[rank], what, count, type, op), 0);
}

static void check_operations(struct virtual_ranks *ranks)
{
    for (int type = TRP_COLLECTIVE_F32; type <= TRP_COLLECTIVE_U64; type++)
        for (int op = TRP_COLLECTIVE_SUM; op <= TRP_COLLECTIVE_MAX; op++)
            for (enum what what = ALLREDUCE; what < WHATS; what++)
                for (size_t i = 0; i < COUNTS; i++)
                    check_operation(ranks, what, counts[i], (trp_collective_type)type,
                                    (trp_collective_op)op);
}

static uint64_t bytes_sent(const struct virtual_ranks *ranks)
{
    uint64_t bytes = 0;
    for (uint32_t rank = 0; rank < ranks->size; rank++)
        bytes += trp_collective_read(ranks->groups[rank]).bytes_sent;
    return bytes;
}

static void sums_lie_where_the_ranks_vectors_do(void **state)
{
    (void)state;
    for (uint32_t size = 1; size < LATE_QUEUES; size++) {
        struct virtual_ranks ranks;
        struct late_device *late = late_create(size);
        ranks_begin(&ranks, &late->base, size, 20000);
        check_operations(&ranks);
        assert_true(bytes_sent(&ranks) == 0); /* calls alone went round */
        ranks_end(&ranks);
        late_destroy(late);
    }
}

static const struct cuda_kernel *learner_kernel(const char *name)
{
    for (size_t i = 0; learner_kernels[i]; i++)
        if (strcmp(learner_kernels[i]->name, name) == 0)
            return learner_kernels[i];
    return NULL;
}

static void a_gpus_kernel_makes_the_same(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= RANKS_MOST; size += 2) {
        struct virtual_ranks ranks;
        struct twin_device *twin = xcalloc(1, sizeof *twin);
        trp_device *device = twin_device_init(twin, size);
        twin->machine.more = learner_kernel;
        ranks_begin(&ranks, device, size, 20000);
        check_operations(&ranks);
        ranks_end(&ranks);
        free(twin);
    }
}

static void sums_on_a_gpu_are_the_same(void **state)
{
    trp_device *device = real_gpu();
    (void)state;
    for (uint32_t size = 1; size <= RANKS_MOST; size++) {
        struct virtual_ranks ranks;
        ranks_begin(&ranks, device, size, 20000);
        check_operations(&ranks);
        ranks_end(&ranks);
    }
}

/* Another order would round otherwise. */
static void numbers_are_summed_in_the_order_of_ranks(void **state)
{
    static const float numbers[] = {1e8F, 1, -1e8F};
    struct virtual_ranks ranks;
    struct late_device *late = late_create(9);
    uint64_t tickets[3];
    (void)state;
    ranks_begin(&ranks, &late->base, 3, 20000);
    for (uint32_t i = 0; i < 3; i++) {
        struct vector *vector = &ranks.vectors[2 - i];
        memcpy(vector->here, &numbers[2 - i], sizeof(float));
        trp_queue_copy(vector->queue, vector->there, vector->here, sizeof(float));
        tickets[2 - i] = begin(ranks.groups[2 - i], vector, ALLREDUCE, 1, TRP_COLLECTIVE_F32,
                               TRP_COLLECTIVE_SUM);
    }
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct vector *vector = &ranks.vectors[rank];
        OR_FAIL(trp_collective_wait(ranks.groups[rank], tickets[rank]));
        trp_queue_copy(vector->queue, vector->here, vector->there, sizeof(float));
        OR_FAIL(trp_queue_sync(vector->queue, trp_queue_mark(vector->queue)));
        float sum, expected = (numbers[0] + numbers[1]) + numbers[2];
        memcpy(&sum, vector->here, sizeof sum);
        assert_true(sum == expected);
    }
    ranks_end(&ranks);
    late_destroy(late);
}

/* Of one rank, `kinds` of all: each fails in the same words, and no vector is touched. */
static void check_failing(uint32_t callers, bool differ, trp_status status, const char *words)
{
    struct virtual_ranks ranks;
    struct late_device *late = late_create(4);
    ranks_begin(&ranks, &late->base, 3, 300);
    uint64_t tickets[3];
    for (uint32_t rank = 0; rank < 3; rank++)
        vector_give(&ranks.vectors[rank], rank, 100, TRP_COLLECTIVE_F32);
    for (uint32_t rank = 0; rank < callers; rank++)
        tickets[rank] = begin(ranks.groups[rank], &ranks.vectors[rank],
                              differ && rank == 1 ? GATHER : ALLREDUCE, 100, TRP_COLLECTIVE_F32,
                              TRP_COLLECTIVE_SUM);
    for (uint32_t rank = 0; rank < callers; rank++) {
        assert_int_equal(trp_collective_wait(ranks.groups[rank], tickets[rank]), status);
        if (!strstr(trp_last_error(), words))
            fail_msg("'%s' is not in: %s", words, trp_last_error());
    }
    for (uint32_t rank = 0; rank < 3; rank++) {
        float values[100];
        struct vector *vector = &ranks.vectors[rank];
        trp_queue_copy(vector->queue, values, vector->there, sizeof values);
        OR_FAIL(trp_queue_sync(vector->queue, trp_queue_mark(vector->queue)));
        for (size_t i = 0; i < 100; i++)
            assert_true(values[i] == (float)given(rank, i));
    }
    ranks_end(&ranks);
    late_destroy(late);
}

/* ---- threads -----------------------------------------------------------------------------------
 */

static void run_operations(struct rank *rank)
{
    struct vector vector;
    vector_create(&vector, rank->context);
    for (size_t i = 0; i < 40 && rank->status == TRP_OK; i++) {
        enum what what = (enum what)(i % WHATS);
        size_t count = counts[i / WHATS % COUNTS];
        vector_give(&vector, rank->rank, count, TRP_COLLECTIVE_F32);
        uint64_t ticket =
            begin(rank->group, &vector, what, count, TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM);
        if (rank_wait(rank, ticket) == TRP_OK)
            rank->wrong += vector_wrong(&vector, rank->group, what, count, TRP_COLLECTIVE_F32,
                                        TRP_COLLECTIVE_SUM);
    }
    trp_collective_destroy(rank->group);
    vector_destroy(&vector, rank->context);
}

static void ranks_are_threads_of_their_own(void **state)
{
    (void)state;
    for (uint32_t size = 1; size < LATE_QUEUES; size++) {
        struct shared_device device;
        struct ranks ranks = {.size = size};
        trp_collective *groups[RANKS_MAX];
        shared_device_init(&device, size);
        OR_FAIL(trp_collective_local_create(groups, size,
                                            &(trp_collective_options){.device = &device.base}));
        for (uint32_t rank = 0; rank < size; rank++)
            ranks.at[rank] = (struct rank){.group = groups[rank], .rank = rank, .size = size};
        ranks_run(&ranks, run_operations, &device.base);
        ranks_expect_right(&ranks);
        shared_device_cleanup(&device);
    }
}

static struct shared_device *shared;

static void use_shared(trp_collective_options *options)
{
    options->device = &shared->base;
}

/* As learners do with --launch=threads. */
static void connect_all(struct ranks *ranks, struct shared_device *device, uint32_t size,
                        uint64_t generation)
{
    shared = device;
    ranks_kind = RANKS_TCP;
    ranks->size = size;
    for (uint32_t rank = 0; rank < size; rank++)
        ranks->at[rank] = (struct rank){.rank = rank, .size = size};
    ranks_connect(
        ranks,
        &(trp_collective_options){.group = "t", .generation = generation, .timeout_ms = 5000},
        use_shared);
    for (uint32_t rank = 0; rank < size; rank++)
        if (!ranks->at[rank].group)
            fail_msg("rank %u: %s", rank, ranks->at[rank].words);
}

static void ranks_of_one_process_that_connect_sum_up_on_their_device(void **state)
{
    (void)state;
    for (uint32_t size = 2; size < LATE_QUEUES; size++) {
        struct shared_device device;
        struct ranks ranks;
        struct captured log;
        shared_device_init(&device, size);
        capture_begin(&log);
        connect_all(&ranks, &device, size, size);
        capture_end(&log);
        assert_int_equal(captured_count(&log, "are threads of this process"), size);
        for (uint32_t rank = 0; rank < size; rank++)
            assert_non_null(ranks.at[rank].group->carrier);
        ranks_run(&ranks, run_operations, &device.base);
        ranks_expect_right(&ranks);
        shared_device_cleanup(&device);
    }
}

/* Ranks 0 and 1 are those of one group, 2 and 3 of another one. */
static void use_shared_in_two_groups(trp_collective_options *options)
{
    use_shared(options);
    options->group = options->rank < 2 ? "a" : "b";
    options->addresses += options->rank / 2 * 2;
    options->rank %= 2;
    options->size = 2;
}

static void sum_ones_own(struct rank *rank)
{
    struct vector vector;
    float number = (float)(1 << rank->rank), sum = 0;
    vector_create(&vector, rank->context);
    trp_queue_copy(vector.queue, vector.there, &number, sizeof number);
    rank_wait(rank,
              begin(rank->group, &vector, ALLREDUCE, 1, TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM));
    trp_queue_copy(vector.queue, &sum, vector.there, sizeof sum);
    OR_FAIL(trp_queue_sync(vector.queue, trp_queue_mark(vector.queue)));
    rank->wrong += sum != (rank->rank < 2 ? 1 + 2 : 4 + 8);
    trp_collective_destroy(rank->group);
    vector_destroy(&vector, rank->context);
}

/* Which differ in nothing but their names, and meet at the same time. */
static void groups_of_one_process_are_kept_apart(void **state)
{
    struct shared_device device;
    struct ranks ranks = {.size = 4};
    (void)state;
    shared_device_init(&device, 7);
    shared = &device;
    ranks_kind = RANKS_TCP;
    for (uint64_t generation = 1; generation <= 20; generation++) {
        for (uint32_t rank = 0; rank < 4; rank++)
            ranks.at[rank] = (struct rank){.rank = rank, .size = 4};
        ranks_connect(&ranks,
                      &(trp_collective_options){.generation = generation, .timeout_ms = 5000},
                      use_shared_in_two_groups);
        ranks_expect_right(&ranks);
        ranks_run(&ranks, sum_ones_own, &device.base);
        ranks_expect_right(&ranks);
    }
    shared_device_cleanup(&device);
}

static void leave_or_sum(struct rank *rank)
{
    struct vector vector;
    if (rank->rank == 1) {
        trp_collective_destroy(rank->group);
        return;
    }
    vector_create(&vector, rank->context);
    vector_give(&vector, rank->rank, 100, TRP_COLLECTIVE_F32);
    rank_wait(rank,
              begin(rank->group, &vector, ALLREDUCE, 100, TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM));
    trp_collective_destroy(rank->group);
    vector_destroy(&vector, rank->context);
}

static void who_waits_for_one_that_left_is_told(void **state)
{
    struct shared_device device;
    struct ranks ranks;
    (void)state;
    shared_device_init(&device, 3);
    for (uint64_t generation = 1; generation < 4; generation++) {
        connect_all(&ranks, &device, 3, generation);
        ranks_run(&ranks, leave_or_sum, &device.base);
        for (uint32_t rank = 0; rank < 3; rank += 2) {
            assert_int_equal(ranks.at[rank].status, TRP_UNAVAILABLE);
            assert_non_null(strstr(ranks.at[rank].words, "rank 1 of 3"));
        }
    }
    connect_all(&ranks, &device, 3, 4);
    ranks_run(&ranks, run_operations, &device.base);
    ranks_expect_right(&ranks);
    shared_device_cleanup(&device);
}

/* ---- failures ----------------------------------------------------------------------------------
 */

static void different_operations_are_found(void **state)
{
    (void)state;
    check_failing(3, true, TRP_FAILED_PRECONDITION, "ranks started different operations");
}

/* The device fails who frees memory that a sum uses, or drops a queue with one. */
static void who_leaves_waits_for_the_sums_that_are_put(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct virtual_ranks ranks;
        struct late_device *late = late_create(seed);
        ranks_begin(&ranks, &late->base, 3, 20000);
        for (uint32_t rank = 0; rank < 3; rank++) {
            vector_give(&ranks.vectors[rank], rank, 100, TRP_COLLECTIVE_F32);
            begin(ranks.groups[rank], &ranks.vectors[rank], ALLREDUCE, 100, TRP_COLLECTIVE_F32,
                  TRP_COLLECTIVE_SUM);
        }
        for (uint32_t rank = 0; rank < 3; rank++) {
            trp_collective_destroy(ranks.groups[rank]);
            vector_destroy(&ranks.vectors[rank], ranks.device);
        }
        late_destroy(late);
    }
}

static void who_does_not_come_is_named(void **state)
{
    (void)state;
    check_failing(2, false, TRP_DEADLINE_EXCEEDED, "rank 2");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_lie_where_the_ranks_vectors_do),
        cmocka_unit_test(a_gpus_kernel_makes_the_same),
        cmocka_unit_test(sums_on_a_gpu_are_the_same),
        cmocka_unit_test(numbers_are_summed_in_the_order_of_ranks),
        cmocka_unit_test(ranks_are_threads_of_their_own),
        cmocka_unit_test(ranks_of_one_process_that_connect_sum_up_on_their_device),
        cmocka_unit_test(groups_of_one_process_are_kept_apart),
        cmocka_unit_test(who_waits_for_one_that_left_is_told),
        cmocka_unit_test(different_operations_are_found),
        cmocka_unit_test(who_does_not_come_is_named),
        cmocka_unit_test(who_leaves_waits_for_the_sums_that_are_put),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
