/* What bench_gpu_feed measures, on a machine of tests that counts what is copied to it, and on the
 * host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "bench/gpu_feed.h"
#include "tests/agents/gpu_kernels.h"
#include "tests/nn/cuda/twin_machine.h"

enum { SIDE = 36, ROWS = 6, STACK = 4, FEW = 3, MORE = 7 };

static const struct feed_shape shape = {.side = SIDE, .sequences = 1, .rows = ROWS, .items = 8};

/* ---- a machine that counts ---------------------------------------------------------------------
 */

static struct machine_impl counting;
static const struct machine_impl *counted;
static uint64_t copied, staged; /* bytes, to it; of them those that queues copied once more */
static uint64_t pinned, unpinned;
static struct pinned *count_pinned; /* the device's, but for its queues' own */

static void count_copy(struct machine *machine, struct machine_stream *stream, void *to,
                       const void *from, size_t bytes)
{
    bool arrives = counted->owns(machine, to);
    copied += arrives ? bytes : 0;
    staged += arrives && !pinned_has(count_pinned, from, bytes) ? bytes : 0;
    counted->copy(machine, stream, to, from, bytes);
}

static trp_status count_pin(struct machine *machine, size_t bytes, void **memory)
{
    pinned++;
    return counted->pin(machine, bytes, memory);
}

static void count_unpin(struct machine *machine, void *memory)
{
    unpinned++;
    counted->unpin(machine, memory);
}

static trp_device *counting_device(struct twin_device *twin)
{
    trp_device *device = twin_device_init(twin, 1);
    twin->machine.more = find_agents_kernel;
    counted = twin->machine.base.impl;
    counting = *counted;
    counting.copy = count_copy;
    counting.pin = count_pin;
    counting.unpin = count_unpin;
    twin->machine.base.impl = &counting;
    count_pinned = pinned_of(device);
    return device;
}

/* ---- what it counts ----------------------------------------------------------------------------
 */

static void fed_steps(struct feed *feed, uint64_t steps)
{
    struct fed fed = feed_learner(feed, steps);
    assert_true(fed.rate > 0);
    assert_true(fed.bytes == (double)feed_sent_bytes(feed));
}

static void resident_steps(struct feed *feed, uint64_t steps)
{
    assert_true(feed_resident(feed, steps) > 0);
}

/* What a step more copies; vectors go once, whatever follows. */
static uint64_t bytes_of_step(struct feed *feed, void (*run)(struct feed *feed, uint64_t steps))
{
    uint64_t few;
    copied = 0;
    run(feed, FEW);
    few = copied;
    copied = 0;
    run(feed, MORE);
    assert_int_equal((copied - few) % (MORE - FEW), 0);
    return (copied - few) / (MORE - FEW);
}

static void bytes_are_those_that_are_copied(void **state)
{
    const size_t frame = SIDE * SIDE, stacks = ROWS * STACK * frame;
    const size_t own = ROWS * sizeof(int32_t); /* the updater's: where each row lies */
    (void)state;
    struct twin_device *twin = xcalloc(1, sizeof *twin);
    struct feed *feed = feed_begin(&shape, counting_device(twin));
    size_t rest = feed_batch_bytes(feed) - stacks; /* of a batch, such as rewards */
    assert_in_range(rest, ROWS * 4 * sizeof(float), ROWS * 64 * sizeof(float));
    uint64_t fed = bytes_of_step(feed, fed_steps), resident = bytes_of_step(feed, resident_steps);
    assert_int_equal(fed, own + rest + (ROWS + STACK - 1) * frame + ROWS * STACK * sizeof(int32_t));
    assert_int_equal(resident, own + rest);
    feed_end(feed);
    free(twin);
}

/* What the updater itself sends lies in ordinary memory. */
static void batches_are_copied_from_where_replay_left_them(void **state)
{
    (void)state;
    struct twin_device *twin = xcalloc(1, sizeof *twin);
    struct feed *feed = feed_begin(&shape, counting_device(twin));
    copied = staged = 0;
    fed_steps(feed, FEW);
    uint64_t few = staged, few_copied = copied;
    copied = staged = 0;
    fed_steps(feed, MORE);
    assert_int_equal(staged - few, (MORE - FEW) * ROWS * sizeof(int32_t));
    assert_true(copied - few_copied > 4 * (staged - few));
    feed_end(feed);
    free(twin);
}

static void copies_are_of_pinned_memory(void **state)
{
    enum { BYTES = 12345, COPIES = 5, ONCE = 1 };
    (void)state;
    struct twin_device *twin = xcalloc(1, sizeof *twin);
    struct feed *feed = feed_begin(&shape, counting_device(twin));
    copied = pinned = unpinned = 0;
    assert_true(feed_bus(feed, BYTES, COPIES) > 0);
    assert_int_equal(copied, (COPIES + ONCE) * BYTES);
    assert_int_equal(pinned, 1);
    assert_true(feed_replay(feed, COPIES) > 0);
    assert_true(pinned > 1); /* its columns are */
    assert_int_equal(pinned, unpinned);
    assert_int_equal(copied, (COPIES + ONCE) * BYTES);
    feed_end(feed);
    free(twin);
}

static void a_host_is_fed_without_copies(void **state)
{
    trp_device *device;
    (void)state;
    assert_int_equal(trp_device_find(&device, "cpu"), TRP_OK);
    struct feed *feed = feed_begin(&shape, device);
    struct fed fed = feed_learner(feed, FEW);
    assert_true(fed.rate > 0 && fed.bytes == 0);
    assert_true(feed_resident(feed, FEW) > 0);
    assert_true(feed_bus(feed, feed_sent_bytes(feed), FEW) > 0);
    assert_true(feed_replay(feed, FEW) > 0);
    feed_end(feed);
}

static void the_least_of_the_bounds_is_one_of_them(void **state)
{
    static const struct feed_bounds rows[] = {{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {3, 1, 2},
                                              {2, 3, 1}, {3, 2, 1}, {1, 1, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(feed_least(&rows[i]) == 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_that_are_copied),
        cmocka_unit_test(batches_are_copied_from_where_replay_left_them),
        cmocka_unit_test(copies_are_of_pinned_memory),
        cmocka_unit_test(a_host_is_fed_without_copies),
        cmocka_unit_test(the_least_of_the_bounds_is_one_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
