/* Learners together on devices that work late (tests/nn/late_device.h), and on machines whose lists
 * become graphs (tests/nn/cuda/twin_machine.h): the bits are those of hosts, by an NCCL of tests
 * (collective/fake_nccl.h), where all of them are on one device, and through the host where a group
 * has some of each. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/nn/cuda/twin_machine.h"
#include "tests/nn/late_device.h"

#include "tests/learner/collective/fake_nccl.h"
#include "tests/learner/collective/shared_device.h"
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

/* A step and its sums are graphs; those of a generation that is over are of no use. */
static void check_on_machines(struct plan plan)
{
    struct run *hosts = run_all(&plan);
    struct twin_device *twins[2];
    for (uint32_t i = 0; i < 2; i++) {
        twins[i] = xcalloc(1, sizeof *twins[i]);
        plan.device[i] = twin_device_init(twins[i], i + 1);
        twins[i]->machine.checks_waits = true;
    }
    fake->captured = fake->launched = 0;
    struct run *machines = run_all(&plan);
    check_all(machines, &hosts->members[0]);
    assert_true(fake->captured > 0);
    assert_true(fake->launched > fake->captured || !LISTS_REPEAT);
    run_free(hosts);
    run_free(machines);
    for (uint32_t i = 0; i < 2; i++)
        free(twins[i]);
    assert_int_equal(fake->misuses, 0);
    assert_int_equal(fake->live, 0);
}

static void in_graphs_they_are_those_of_hosts_too(void **state)
{
    (void)state;
    for (int sharded = 0; sharded < 2; sharded++) {
        *fake = (struct fake_nccl){.polls = sharded};
        check_on_machines((struct plan){.members = 2,
                                        .steps = 6,
                                        .rows = 3,
                                        .mode = sharded ? "sharded" : NULL,
                                        .optimizer = {.kind = TRP_ADAM, .learning_rate = 0.01},
                                        .second = true,
                                        .bucket_bytes = 1024});
    }
}

static void what_breaks_in_graphs_leaves_no_trace(void **state)
{
    (void)state;
    for (enum moment place = BEFORE_READY; place <= AT_THE_END; place++) {
        *fake = (struct fake_nccl){.polls = 0};
        check_on_machines((struct plan){.members = 2,
                                        .steps = 6,
                                        .optimizer = {.kind = TRP_ADAM, .learning_rate = 0.125},
                                        .second = true,
                                        .constant = true,
                                        .breaks = {.member = 1, .step = 4, .place = place}});
    }
}

/* Threads of one process, as with --launch=threads: nothing of their vectors is sent. */
static void learners_of_one_device_sum_up_there(void **state)
{
    (void)state;
    for (int sharded = 0; sharded < 2; sharded++) {
        struct plan plan = {.members = 2,
                            .steps = 6,
                            .rows = 3,
                            .mode = sharded ? "sharded" : NULL,
                            .optimizer = {.kind = TRP_ADAM, .learning_rate = 0.01, .max_norm = 0.3},
                            .second = true,
                            .bucket_bytes = 1024};
        struct run *hosts = run_all(&plan);
        struct shared_device device;
        shared_device_init(&device, 5);
        plan.device[0] = plan.device[1] = &device.base;
        fake->calls = 0;
        struct run *shared = run_all(&plan);
        check_all(shared, &hosts->members[0]);
        assert_int_equal(fake->calls, 0);
        assert_true(shared->members[0].sent[5].bytes_sent < hosts->members[0].sent[5].bytes_sent);
        run_free(hosts);
        run_free(shared);
        shared_device_cleanup(&device);
    }
}

static void what_breaks_on_one_device_leaves_no_trace(void **state)
{
    (void)state;
    for (enum moment place = BEFORE_READY; place <= AT_THE_END; place++) {
        struct plan plan = {.members = 2,
                            .steps = 6,
                            .optimizer = {.kind = TRP_ADAM, .learning_rate = 0.125},
                            .second = true,
                            .constant = true,
                            .breaks = {.member = 1, .step = 4, .place = place}};
        struct run *hosts = run_all(&plan);
        struct shared_device device;
        shared_device_init(&device, 5);
        plan.device[0] = plan.device[1] = &device.base;
        struct run *shared = run_all(&plan);
        check_all(shared, &hosts->members[0]);
        run_free(hosts);
        run_free(shared);
        shared_device_cleanup(&device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_hosts),
        cmocka_unit_test(what_breaks_leaves_no_trace),
        cmocka_unit_test(in_graphs_they_are_those_of_hosts_too),
        cmocka_unit_test(what_breaks_in_graphs_leaves_no_trace),
        cmocka_unit_test(learners_of_one_device_sum_up_there),
        cmocka_unit_test(what_breaks_on_one_device_leaves_no_trace),
    };
    fake = fake_nccl_load(FAKE_NCCL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
