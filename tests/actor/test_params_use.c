/* One version after the other for one policy: each that is of another network is refused, also
 * after some that fitted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actor/params_use.h"

enum { COUNT = 6 };

static const trp_net_tensor mine = {.name = "w", .rank = 2, .shape = {2, 3}, .count = COUNT};
static const trp_net_tensor other = {.name = "w", .rank = 2, .shape = {3, 2}, .count = COUNT};

struct loads {
    trp_policy base;
    int count;
};

static trp_status loads_load(trp_policy *policy, const float *params, size_t count)
{
    (void)params;
    assert_int_equal(count, COUNT);
    ((struct loads *)policy)->count++;
    return TRP_OK;
}

static const trp_policy_impl impl = {.load = loads_load};

static void a_version_of_another_network_is_refused_after_those_that_fitted(void **state)
{
    (void)state;
    struct loads policy = {
        .base = {.impl = &impl, .tensors = &mine, .tensor_count = 1, .param_count = COUNT}};
    struct params_fit fit = {0};
    char *fits = trp_net_layout(&mine, 1, 0), *differs = trp_net_layout(&other, 1, 0);
    float params[COUNT + 1] = {0};
    trp_params_state version = {.version = 1, .params = params, .count = COUNT, .layout = fits};
    for (; version.version <= 3; version.version++)
        assert_int_equal(params_fit_use(&fit, &version, &policy.base), TRP_OK);
    version.layout = differs;
    assert_int_equal(params_fit_use(&fit, &version, &policy.base), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "version 4"));
    version =
        (trp_params_state){.version = 5, .params = params, .count = COUNT + 1, .layout = fits};
    assert_int_equal(params_fit_use(&fit, &version, &policy.base), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "version 5"));
    assert_int_equal(policy.count, 3);
    version.count = COUNT;
    assert_int_equal(params_fit_use(&fit, &version, &policy.base), TRP_OK);
    version.layout = NULL; /* it does not say */
    assert_int_equal(params_fit_use(&fit, &version, &policy.base), TRP_OK);
    version.layout = differs;
    assert_int_equal(params_fit_use(&fit, &version, &policy.base), TRP_FAILED_PRECONDITION);
    params_fit_cleanup(&fit);
    free(fits);
    free(differs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_of_another_network_is_refused_after_those_that_fitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
