/* Learners together whose threads share one GPU, beside hosts: one queue waits for another's, lists
 * become graphs while others run, and what is summed and scaled is the device's. */
#include <math.h>

#include "tests/nn/cuda/real_gpu.h"

#include "tests/learner/group_fixture.h"

/* Norms: roots are rounded otherwise there. */
static void check_near(const float *got, const float *want, size_t count, const char *what)
{
    double apart = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        apart += pow((double)got[i] - (double)want[i], 2);
        all += pow((double)want[i], 2);
    }
    if (!(sqrt(apart) <= 1e-5 * sqrt(all)))
        fail_msg("%s: %g off, of %g", what, sqrt(apart), sqrt(all));
}

static void check_member(const struct member *got, const struct member *want, const char *what)
{
    if (got->status != want->status)
        fail_msg("%s: %s", what, got->words ? got->words : "it was to fail");
    if (want->status != TRP_OK)
        return;
    assert_int_equal(got->counters.steps, want->counters.steps);
    check_near(got->params, want->params, NUMBERS, what);
    for (size_t k = 0; k < TRP_OPTIMIZER_STATES_MAX; k++)
        if (want->state[k])
            check_near(got->state[k], want->state[k], NUMBERS, what);
    check_near(got->second, want->second, NUMBERS / 2 + 1, what);
    check_near(got->target, want->target, NUMBERS, what);
}

static void check_on(trp_device *device, struct plan plan, const char *what)
{
    struct run *hosts = run_all(&plan);
    for (uint32_t i = 0; i < plan.members; i++)
        plan.device[i] = device;
    struct run *shared = run_all(&plan);
    for (uint32_t i = 0; i < plan.members; i++)
        check_member(&shared->members[i], &hosts->members[i], what);
    run_free(hosts);
    run_free(shared);
}

/* Few rows, means, and means with momentum ask for kernels of their own. */
static void check_modes(trp_device *device)
{
    const struct plan plan = {.members = 2,
                              .steps = 20,
                              .optimizer = {.kind = TRP_ADAM, .learning_rate = 0.01},
                              .second = true};
    struct plan few = plan, means = plan, sharded = plan;
    check_on(device, plan, "synchronous");
    few.rows_of = half_of_one;
    check_on(device, few, "few rows");
    sharded.mode = "sharded";
    check_on(device, sharded, "sharded");
    means.mode = "local_sgd";
    means.local_steps = 2;
    check_on(device, means, "means");
    means.outer_momentum = 0.5F;
    check_on(device, means, "slow momentum");
}

static void learners_that_share_a_device_are_those_of_hosts(void **state)
{
    trp_device *device;
    (void)state;
    OR_FAIL(trp_device_find(&device, "cpu"));
    check_modes(device);
}

static void learners_that_share_a_gpu_are_those_of_hosts(void **state)
{
    (void)state;
    check_modes(real_gpu());
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(learners_that_share_a_device_are_those_of_hosts),
        cmocka_unit_test(learners_that_share_a_gpu_are_those_of_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
