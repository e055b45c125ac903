/* Learners together on devices that work late (tests/nn/late_device.h): the bits are those of
 * hosts, by an NCCL of tests (collective/fake_nccl.h), and through the host where a group has some
 * of each. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <dlfcn.h>

#include "tests/nn/late_device.h"

#include "core/nvidia.h"
#include "tests/learner/collective/fake_nccl.h"
#include "tests/learner/group_fixture.h"

static struct fake_nccl *fake;

static void check_on_devices(struct plan plan, uint32_t late_count)
{
    struct run *hosts = run_all(&plan);
    struct late_device *late[MEMBERS_MAX] = {NULL};
    for (uint32_t i = 0; i < late_count; i++) {
        late[i] = late_create(i + 1);
        plan.device[i] = &late[i]->base;
    }
    struct run *devices = run_all(&plan);
    check_all(devices, &hosts->members[0]);
    run_free(hosts);
    run_free(devices);
    for (uint32_t i = 0; i < late_count; i++)
        late_destroy(late[i]);
}

static void the_bits_are_those_of_hosts(void **state)
{
    (void)state;
    const struct plan plan = {
        .members = 2,
        .steps = 6,
        .rows = 3,
        .optimizer = {.kind = TRP_ADAM, .learning_rate = 0.01, .max_norm = 0.3},
        .second = true,
        .bucket_bytes = 1024};
    for (uint32_t late = 1; late <= 2; late++)
        for (int sharded = 0; sharded < 2; sharded++) {
            struct plan own = plan;
            own.mode = sharded ? "sharded" : NULL;
            fake->calls = 0;
            fake->polls = sharded;
            check_on_devices(own, late);
            assert_int_equal(fake->calls > 0, late == 2);
        }
}

/* A generation breaks; the state before the step is the device's, too. */
static void what_breaks_leaves_no_trace(void **state)
{
    (void)state;
    for (enum moment place = BEFORE_READY; place <= AT_THE_END; place++)
        check_on_devices((struct plan){.members = 2,
                                       .steps = 6,
                                       .optimizer = {.kind = TRP_ADAM, .learning_rate = 0.125},
                                       .second = true,
                                       .constant = true,
                                       .breaks = {.member = 1, .step = 4, .place = place}},
                         2);
    assert_int_equal(fake->misuses, 0);
    assert_int_equal(fake->live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_hosts),
        cmocka_unit_test(what_breaks_leaves_no_trace),
    };
    void *library = dlopen(FAKE_NCCL "/lib/libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    fake = library ? dlsym(library, "fake_nccl") : NULL;
    if (!fake)
        return 1;
    nvidia_look_under(FAKE_NCCL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
