/* NCCL itself, of one rank, on the GPU of this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/nn/cuda/real_gpu.h"
#include "alone.h"

/* Its version is a row of scripts/gpu-check; that there is none is a test's that is skipped. */
static void need_nccl(struct nccl_api *api)
{
    if (nccl_open(api) != TRP_OK) {
        print_message("skipped: no NCCL (%s)\n", trp_last_error());
        skip();
    }
    printf("NCCL of one rank\t%d.%d.%d (%s)\n", api->version / 10000, api->version / 100 % 100,
           api->version % 100, api->path);
}

static void one_rank_joins_by_nccl_and_leaves_again_and_again(void **state)
{
    trp_device *device = real_gpu();
    struct nccl_api api;
    (void)state;
    need_nccl(&api);
    check_generations(device);
}

static void a_kernel_of_it_is_captured_and_launched_again(void **state)
{
    trp_device *device = real_gpu();
    struct nccl_api api;
    (void)state;
    need_nccl(&api);
    check_kernel(device, &api, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(one_rank_joins_by_nccl_and_leaves_again_and_again, end_joining),
        cmocka_unit_test(a_kernel_of_it_is_captured_and_launched_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
