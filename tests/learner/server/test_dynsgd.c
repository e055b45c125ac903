/* DynSGD (Jiang et al. 2017) where its arithmetic is at its limits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "learner/server/shard.h"

enum { COUNT = 5, WORKERS = 2 };

/* Their difference has no float, and their mean is 0. */
static void gradients_near_the_largest_have_a_mean(void **state)
{
    static const float sides[WORKERS] = {3e38F, -3e38F};
    const struct shard_range all = {0, COUNT};
    struct param_shard shard;
    float values[COUNT] = {0}, grads[COUNT];
    (void)state;
    assert_int_equal(
        shard_create(&shard,
                     &(struct shard_options){.rule = TRP_SERVER_DYNSGD,
                                             .optimizer = {.kind = TRP_SGD, .learning_rate = 0.5},
                                             .workers = WORKERS},
                     values, COUNT),
        TRP_OK);
    for (uint32_t worker = 0; worker < WORKERS; worker++) {
        for (size_t i = 0; i < COUNT; i++)
            grads[i] = sides[worker];
        const struct shard_push push = {
            .worker = worker, .scale = 1, .ranges = &all, .range_count = 1, .grads = grads};
        assert_int_equal(shard_push(&shard, &push), SHARD_TAKEN);
    }
    for (size_t i = 0; i < COUNT; i++)
        assert_true(fabsf(values[i]) < 1e32F); /* 0 but for what rounding left */
    shard_destroy(&shard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_near_the_largest_have_a_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
