/* Vectors of devices by an NCCL of tests (fake_nccl.h), on devices that work late: what comes of
 * it, and everything that may go wrong. At the end the real one, if there is any. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <sys/wait.h>

#include "tests/core/captured.h"
#include "tests/nn/late_device.h"

#include "core/nvidia.h"
#include "alone.h"
#include "fake_nccl.h"
#include "learner/collective/limits.h"
#include "learner/collective/nccl_api.h"
#include "ranks.h"
#include "vectors.h"

static struct fake_nccl *fake;

enum { HANG_MS = 600 };

/* ---- ranks with devices -------------------------------------------------------------------- */

struct scene {
    struct ranks ranks;
    struct late_device *late[RANKS_MAX];
    const char *sets; /* of a test */
};

static struct scene *scene_now;
static uint32_t without_device; /* this rank, from 1 on */

static void use_device(trp_collective_options *options)
{
    if (without_device != options->rank + 1)
        options->device = &scene_now->late[options->rank]->base;
}

static int reset(void **state)
{
    (void)state;
    *fake = (struct fake_nccl){.polls = 0};
    without_device = 0;
    ranks_kind = RANKS_TCP;
    return 0;
}

static void scene_begin(struct scene *scene, uint32_t size, trp_collective_options options)
{
    *scene = (struct scene){.ranks.size = size};
    scene_now = scene;
    options.group = "test";
    if (options.timeout_ms == 0)
        options.timeout_ms = 20000;
    for (uint32_t rank = 0; rank < size; rank++) {
        scene->ranks.at[rank] = (struct rank){.rank = rank, .size = size};
        scene->late[rank] = late_create(rank + 1);
        scene->late[rank]->base.name = "cuda:0"; /* of another host each */
    }
    ranks_connect(&scene->ranks, &options, use_device);
}

/* They have come together. */
static void scene_create(struct scene *scene, uint32_t size, trp_collective_options options)
{
    scene_begin(scene, size, options);
    for (uint32_t rank = 0; rank < size; rank++)
        if (!scene->ranks.at[rank].group)
            fail_msg("rank %u of %u: %s", rank, size, scene->ranks.at[rank].words);
}

static void leave_group(struct rank *rank)
{
    trp_collective_destroy(rank->group);
    rank->group = NULL;
}

/* Before its queue goes. */
static void leave_with(struct rank *rank, struct vector *vector)
{
    struct scene *scene = rank->context;
    leave_group(rank);
    vector_destroy(vector, &scene->late[rank->rank]->base);
}

static void scene_end(struct scene *scene)
{
    ranks_run(&scene->ranks, leave_group, scene);
    for (uint32_t rank = 0; rank < scene->ranks.size; rank++)
        late_destroy(scene->late[rank]);
    assert_int_equal(fake->live, 0);
    assert_int_equal(fake->misuses, 0);
}

static void expect_same_failure(const struct scene *scene, trp_status status, const char *words)
{
    for (uint32_t rank = 0; rank < scene->ranks.size; rank++) {
        const struct rank *at = &scene->ranks.at[rank];
        if (at->status != status || !strstr(at->words, words))
            fail_msg("rank %u: %s (%d)", rank, at->words, at->status);
        assert_string_equal(at->words, scene->ranks.at[0].words);
    }
}

/* ---- operations ---------------------------------------------------------------------------- */

static void check_one(struct rank *rank, struct vector *vector, enum what what, size_t count,
                      trp_collective_type type, trp_collective_op op)
{
    vector_give(vector, rank->rank, count, type);
    if (rank_wait(rank, begin(rank->group, vector, what, count, type, op)) == TRP_OK)
        rank->wrong += vector_wrong(vector, rank->group, what, count, type, op);
}

static void check_all(struct rank *rank)
{
    struct scene *scene = rank->context;
    struct vector vector;
    vector_create(&vector, &scene->late[rank->rank]->base);
    for (int type = TRP_COLLECTIVE_F32; type <= TRP_COLLECTIVE_U64; type++)
        for (int op = TRP_COLLECTIVE_SUM; op <= TRP_COLLECTIVE_MAX; op++)
            for (enum what what = ALLREDUCE; what < WHATS; what++)
                for (size_t i = 0; i < COUNTS && rank->status == TRP_OK; i++)
                    check_one(rank, &vector, what, counts[i], (trp_collective_type)type,
                              (trp_collective_op)op);
    leave_with(rank, &vector);
}

static void vectors_of_devices_go_by_nccl(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 4; size++)
        for (int polls = 0; polls < 4; polls += 3) {
            struct scene scene;
            fake->calls = fake->grouped = 0;
            fake->polls = polls;
            scene_create(&scene, size, (trp_collective_options){0});
            assert_int_equal(fake->calls, 2 * size); /* the meeting's */
            fake->calls = 0;
            ranks_run(&scene.ranks, check_all, &scene);
            ranks_expect_right(&scene.ranks);
            assert_true(fake->calls > 0);
            assert_int_equal(fake->grouped > 0, size > 1);
            scene_end(&scene);
            assert_int_equal(fake->aborts, 0);
        }
}

/* Several at once, of which some are the host's. */
static void run_mixed(struct rank *rank)
{
    struct scene *scene = rank->context;
    struct vector vector;
    float host[40], *values;
    uint64_t ticket = 0;
    vector_create(&vector, &scene->late[rank->rank]->base);
    for (int i = 0; i < 40; i++)
        host[i] = 1;
    memcpy(vector.here, host, sizeof host);
    trp_queue_copy(vector.queue, vector.there, vector.here, sizeof host);
    values = (float *)(void *)vector.there;
    for (int i = 0; i < 10; i++) {
        trp_collective_allreduce(rank->group, vector.queue, values + (i % 3) * 10, 10,
                                 TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM);
        ticket = trp_collective_allreduce(rank->group, NULL, host + (i % 3) * 10, 10,
                                          TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM);
    }
    if (rank_wait(rank, ticket) == TRP_OK) {
        trp_queue_copy(vector.queue, vector.here, vector.there, sizeof host);
        OR_FAIL(trp_queue_sync(vector.queue, trp_queue_mark(vector.queue)));
        rank->wrong += memcmp(vector.here, host, sizeof host) != 0 || host[0] <= 1;
    }
    leave_with(rank, &vector);
}

static void those_of_the_host_go_between_them_as_ever(void **state)
{
    (void)state;
    for (int polls = 0; polls < 4; polls += 3) {
        struct scene scene;
        fake->calls = 0;
        fake->polls = polls;
        scene_create(&scene, 3, (trp_collective_options){0});
        ranks_run(&scene.ranks, run_mixed, &scene);
        ranks_expect_right(&scene.ranks);
        assert_int_equal(fake->calls, 3 * 12);
        scene_end(&scene);
    }
}

/* ---- without it ---------------------------------------------------------------------------- */

static void check_ring(uint32_t size, trp_collective_options options)
{
    struct scene scene;
    scene_create(&scene, size, options);
    fake->calls = 0;
    ranks_run(&scene.ranks, check_all, &scene);
    ranks_expect_right(&scene.ranks);
    assert_int_equal(fake->calls, 0);
    scene_end(&scene);
}

static void where_one_rank_has_no_device_all_use_the_host(void **state)
{
    (void)state;
    without_device = 2;
    check_ring(3, (trp_collective_options){0});
}

static void where_one_rank_cannot_join_all_use_the_host(void **state)
{
    (void)state;
    for (int rank = 1; rank <= 3; rank++) {
        fake->refuses = rank;
        check_ring(3, (trp_collective_options){0});
    }
    assert_true(fake->aborts > 0);
}

static void where_one_rank_joined_with_another_gpu_all_use_the_host(void **state)
{
    (void)state;
    for (int rank = 1; rank <= 3; rank++) {
        struct captured log;
        struct scene scene;
        fake->elsewhere = rank;
        capture_begin(&log);
        scene_create(&scene, 3, (trp_collective_options){0});
        capture_end(&log);
        fake->calls = 0;
        ranks_run(&scene.ranks, check_all, &scene);
        ranks_expect_right(&scene.ranks);
        assert_int_equal(fake->calls, 0);
        assert_true(captured_count(&log, "NCCL joined with GPU 7, and not with cuda:0") > 0);
        scene_end(&scene);
    }
}

static void a_fixed_order_of_sums_is_the_hosts(void **state)
{
    (void)state;
    check_ring(2, (trp_collective_options){.deterministic = true});
}

static void libraries_that_cannot_be_used_are_named(void **state)
{
    struct nccl_api api;
    (void)state;
    nvidia_look_under(FAKE_NCCL "_old");
    assert_int_equal(nccl_open(&api), TRP_UNAVAILABLE);
    assert_non_null(strstr(trp_last_error(), "fake_nccl_old/lib/libnccl.so.2 is NCCL 2.27.7"));
    nvidia_look_under(FAKE_NCCL "_lacking");
    assert_int_equal(nccl_open(&api), TRP_UNAVAILABLE);
    assert_non_null(strstr(trp_last_error(), "has no ncclBroadcast"));
    nvidia_look_under(FAKE_NCCL);
    assert_int_equal(nccl_open(&api), TRP_OK);
    assert_int_equal(api.version, 22809);
}

/* ---- failures ------------------------------------------------------------------------------ */

static void joining_that_never_ends_is_over_in_time(void **state)
{
    (void)state;
    for (int rank = 1; rank <= 2; rank++) {
        struct scene scene;
        reset(NULL);
        fake->never_joins = rank;
        scene_begin(&scene, 3, (trp_collective_options){.connect_timeout_ms = 1500});
        expect_same_failure(&scene, TRP_DEADLINE_EXCEEDED, "has not met the others in time");
        scene_end(&scene);
        assert_int_equal(fake->aborts, 3);
    }
}

/* Sums again and again until that fails. */
static void run_until_it_fails(struct rank *rank)
{
    struct scene *scene = rank->context;
    struct vector vector;
    vector_create(&vector, &scene->late[rank->rank]->base);
    rank->status = TRP_OK;
    while (rank->status == TRP_OK)
        rank_wait(rank, begin(rank->group, &vector, ALLREDUCE, 100, TRP_COLLECTIVE_F32,
                              TRP_COLLECTIVE_SUM));
    leave_with(rank, &vector);
}

static void check_failure(int polls, trp_status status, const char *words)
{
    struct scene scene;
    fake->polls = polls;
    scene_create(&scene, 3, (trp_collective_options){.timeout_ms = HANG_MS});
    ranks_run(&scene.ranks, run_until_it_fails, &scene);
    expect_same_failure(&scene, status, words);
    scene_end(&scene);
    assert_int_equal(fake->aborts, 3);
}

static void one_that_hangs_is_over_in_time(void **state)
{
    (void)state;
    for (int polls = 0; polls < 4; polls += 3) {
        reset(NULL);
        fake->hangs_at = 3;
        check_failure(polls, TRP_DEADLINE_EXCEEDED,
                      "NCCL is not done with operation 3, allreduce of 100 f32 (sum)");
    }
}

static void what_nccl_says_all_say(void **state)
{
    (void)state;
    for (int rank = 1; rank <= 3; rank++) {
        char words[64];
        reset(NULL);
        fake->hangs_at = 3;
        fake->remote_error = rank;
        snprintf(words, sizeof words, "rank %d of 3: NCCL: remote error", rank - 1);
        check_failure(3, TRP_UNAVAILABLE, words);
    }
}

static void run_differing(struct rank *rank)
{
    struct scene *scene = rank->context;
    struct vector vector;
    vector_create(&vector, &scene->late[rank->rank]->base);
    rank_wait(rank, begin(rank->group, &vector, rank->rank == 1 ? GATHER : ALLREDUCE, 100,
                          TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM));
    leave_with(rank, &vector);
}

static void different_operations_are_found(void **state)
{
    struct scene scene;
    (void)state;
    scene_create(&scene, 3, (trp_collective_options){0});
    fake->hangs_at = 1; /* as they would */
    ranks_run(&scene.ranks, run_differing, &scene);
    expect_same_failure(&scene, TRP_FAILED_PRECONDITION, "ranks started different operations");
    scene_end(&scene);
}

static void run_leaving(struct rank *rank)
{
    struct scene *scene = rank->context;
    if (rank->rank > 0) {
        run_until_it_fails(rank);
        return;
    }
    struct vector vector;
    vector_create(&vector, &scene->late[0]->base);
    rank_wait(rank,
              begin(rank->group, &vector, ALLREDUCE, 100, TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM));
    trp_collective_abort(rank->group, "it is enough");
    rank_wait(rank,
              begin(rank->group, &vector, ALLREDUCE, 100, TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM));
    leave_with(rank, &vector);
}

static void who_gives_up_ends_what_the_others_wait_for(void **state)
{
    struct scene scene;
    (void)state;
    scene_create(&scene, 3, (trp_collective_options){0});
    fake->hangs_at = 2;
    ranks_run(&scene.ranks, run_leaving, &scene);
    expect_same_failure(&scene, TRP_UNAVAILABLE, "it is enough");
    scene_end(&scene);
}

static void a_process_that_cannot_abort_ends(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct scene scene;
        fake->hangs_at = 1;
        scene_create(&scene, 1, (trp_collective_options){.timeout_ms = 100});
        fake->abort_hangs = 1;
        ranks_run(&scene.ranks, run_until_it_fails, &scene);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), COLLECTIVE_HUNG_EXIT);
}

/* ---- one rank ------------------------------------------------------------------------------ */

/* What test_nccl_gpu.c wants of NVIDIA's; this one knows vectors in place alone. */
static void one_rank_joins_and_leaves_again_and_again(void **state)
{
    struct late_device *late = late_create(1);
    struct nccl_api api;
    (void)state;
    OR_FAIL(nccl_open(&api));
    check_generations(&late->base);
    check_kernel(&late->base, &api, true);
    assert_int_equal(fake->misuses, 0);
    assert_int_equal(fake->live, 0);
    late_destroy(late);
}

/* ---- the real one -------------------------------------------------------------------------- */

/* Its id is made by one process and used by the other; there is no GPU that could join by it. */
static void the_real_one_is_done_without(void **state)
{
    trp_collective_listener *listeners[2];
    const char *addresses[2];
    int status;
    (void)state;
    ranks_listen(listeners, addresses, 2, RANKS_TCP);
    pid_t child = fork();
    assert_true(child >= 0);
    nvidia_look_under("");
    struct late_device *late = late_create(1);
    struct scene scene = {.ranks.size = 2, .late = {late, late}};
    struct rank rank = {.rank = child == 0, .size = 2, .context = &scene};
    OR_FAIL(trp_collective_connect(&rank.group, listeners[rank.rank],
                                   &(trp_collective_options){.rank = rank.rank,
                                                             .size = 2,
                                                             .addresses = addresses,
                                                             .connect_timeout_ms = 60000,
                                                             .device = &late->base}));
    check_all(&rank);
    bool right = rank.status == TRP_OK && rank.wrong == 0;
    trp_collective_destroy(rank.group);
    if (child == 0)
        _exit(right ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(right);
    assert_int_equal(status, 0);
    nvidia_look_under(FAKE_NCCL);
    late_destroy(late);
    for (int i = 0; i < 2; i++)
        trp_collective_listener_destroy(listeners[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_process_that_cannot_abort_ends, reset),
        cmocka_unit_test_setup(the_real_one_is_done_without, reset),
        cmocka_unit_test_setup(vectors_of_devices_go_by_nccl, reset),
        cmocka_unit_test_setup(those_of_the_host_go_between_them_as_ever, reset),
        cmocka_unit_test_setup(where_one_rank_has_no_device_all_use_the_host, reset),
        cmocka_unit_test_setup(where_one_rank_cannot_join_all_use_the_host, reset),
        cmocka_unit_test_setup(where_one_rank_joined_with_another_gpu_all_use_the_host, reset),
        cmocka_unit_test_setup_teardown(one_rank_joins_and_leaves_again_and_again, reset,
                                        end_joining),
        cmocka_unit_test_setup(a_fixed_order_of_sums_is_the_hosts, reset),
        cmocka_unit_test_setup(libraries_that_cannot_be_used_are_named, reset),
        cmocka_unit_test_setup(joining_that_never_ends_is_over_in_time, reset),
        cmocka_unit_test_setup(one_that_hangs_is_over_in_time, reset),
        cmocka_unit_test_setup(what_nccl_says_all_say, reset),
        cmocka_unit_test_setup(different_operations_are_found, reset),
        cmocka_unit_test_setup(who_gives_up_ends_what_the_others_wait_for, reset),
    };
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_RAS_ENABLE", "0", 0); /* else it listens on a port for everybody */
    fake = fake_nccl_load(FAKE_NCCL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
