/* NCCL itself, of one rank, on the GPU of this machine: it joins, captures, and leaves. For one
 * rank sums in place are nothing to do, so vectors have to stay as they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "learner/collective/nccl_api.h"
#include "tests/core/captured.h"
#include "tests/nn/cuda/real_gpu.h"
#include "vectors.h"

enum { GENERATIONS = 2, TIMES = 3 };

/* What the log says while a rank connects, which is said again, however that ends. */
static struct captured joining;
static bool joins;

static int end_joining(void **state)
{
    (void)state;
    if (joins) {
        capture_end(&joining);
        fputs(joining.text, stderr);
    }
    joins = false;
    return 0;
}

static trp_collective *connect_alone(trp_device *device, uint64_t generation)
{
    trp_collective *group = NULL;
    trp_collective_listener *listener;
    OR_FAIL(trp_collective_listener_create(&listener, NULL, false));
    const char *address = trp_collective_listener_address(listener);
    capture_begin(&joining);
    joins = true;
    trp_status status = trp_collective_connect(&group, listener,
                                               &(trp_collective_options){.group = "alone",
                                                                         .generation = generation,
                                                                         .size = 1,
                                                                         .addresses = &address,
                                                                         .device = device});
    end_joining(NULL);
    OR_FAIL(status);
    trp_collective_listener_destroy(listener);
    return group;
}

/* Each list comes several times: it is captured, and launched again. */
static void check_all(trp_collective *group, trp_device *device)
{
    struct vector vector;
    vector_create(&vector, device);
    for (int type = TRP_COLLECTIVE_F32; type <= TRP_COLLECTIVE_U64; type++)
        for (enum what what = ALLREDUCE; what < WHATS; what++)
            for (int time = 0; time < TIMES; time++) {
                vector_give(&vector, 0, LARGEST, (trp_collective_type)type);
                OR_FAIL(trp_collective_wait(group,
                                            begin(group, &vector, what, LARGEST,
                                                  (trp_collective_type)type, TRP_COLLECTIVE_SUM)));
                assert_int_equal(vector_wrong(&vector, group, what, LARGEST,
                                              (trp_collective_type)type, TRP_COLLECTIVE_SUM),
                                 0);
            }
    vector_destroy(&vector, device);
}

/* A next generation joins as the first one did. */
static void one_rank_joins_by_nccl_and_leaves_again_and_again(void **state)
{
    trp_device *device = real_gpu();
    struct nccl_api api;
    (void)state;
    if (nccl_open(&api) != TRP_OK) {
        printf("NCCL of one rank\tskipped: %s\n", trp_last_error());
        return;
    }
    for (uint64_t generation = 1; generation <= GENERATIONS; generation++) {
        trp_collective *group = connect_alone(device, generation);
        assert_int_equal(captured_count(&joining, "go by NCCL"), 1);
        check_all(group, device);
        assert_true(trp_collective_read(group).bytes_sent == 0);
        trp_collective_destroy(group);
    }
    printf("NCCL of one rank\t%d.%d.%d (%s)\n", api.version / 10000, api.version / 100 % 100,
           api.version % 100, api.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(one_rank_joins_by_nccl_and_leaves_again_and_again, end_joining),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
