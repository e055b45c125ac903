/* Learners together on machines of tests (tests/nn/cuda/twin_machine.h), each on one of its own:
 * the bits are those of hosts, and of a step nothing is the host's but the sums over ranks. Their
 * kernels beside float64. */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>

#include "tests/nn/cuda/twin_machine.h"

#include "core/nvidia.h"
#include "learner/modes/kernels.h"
#include "nn/cuda/module/code.h"
#include "tests/learner/group_fixture.h"
#include "tests/learner/summing_kernel.h"

/* ---- kernels -----------------------------------------------------------------------------------
 */

extern const struct cuda_kernel kernel_test_add;
MAKE_KERNEL(test_add, "test.add", .then = NULL)

enum { NAMES = 4, SIZES = 4 };
static const char *const names[NAMES] = {"mode.weigh", "mode.keep", "mode.head", "mode.outer"};
static atomic_int asked[NAMES];

static const struct cuda_kernel *kernel_of_learners(const char *name)
{
    for (size_t i = 0; learner_kernels[i]; i++)
        if (strcmp(learner_kernels[i]->name, name) == 0)
            return learner_kernels[i];
    return strcmp(name, kernel_test_add.name) == 0 ? &kernel_test_add : NULL;
}

static const struct cuda_kernel *find_and_count(const char *name)
{
    for (size_t i = 0; i < NAMES; i++)
        asked[i] += strcmp(names[i], name) == 0;
    return kernel_of_learners(name);
}

/* ---- groups ------------------------------------------------------------------------------------
 */

/* Members that were lost on hosts are lost on devices. */
static void check_members(const struct run *got, const struct run *want)
{
    for (uint32_t i = 0; i < want->plan.members; i++) {
        const struct member *a = &got->members[i], *b = &want->members[i];
        if (a->status != b->status)
            fail_msg("member %u: %s", i, a->words ? a->words : "it was to fail");
        if (b->status != TRP_OK)
            continue;
        assert_int_equal(a->counters.steps, b->counters.steps);
        check_same(a, b);
    }
}

static void check_on_gpus(struct plan plan, const char *what)
{
    struct run *hosts = run_all(&plan);
    struct twin_device *twins = xcalloc(plan.members, sizeof *twins);
    for (uint32_t i = 0; i < plan.members; i++) {
        plan.device[i] = twin_device_init(&twins[i], i + 1);
        twins[i].machine.more = find_and_count;
    }
    struct run *gpus = run_all(&plan);
    check_members(gpus, hosts);
    for (uint32_t i = 0; i < plan.members; i++)
        if (twins[i].machine.host_works > 0)
            fail_msg("%s: %" PRIu64 " works of member %u are the host's", what,
                     twins[i].machine.host_works, i);
    run_free(hosts);
    run_free(gpus);
    free(twins);
}

static void a_step_of_learners_together_has_no_work_for_the_host(void **state)
{
    (void)state;
    const struct plan plan = {.members = 2,
                              .steps = 6,
                              .optimizer = {.kind = TRP_ADAM, .learning_rate = 0.01},
                              .second = true};
    for (size_t i = 0; i < NAMES; i++)
        asked[i] = 0;
    struct plan few = plan, lost = plan, means = plan, slow, short_ways;
    few.rows_of = half_of_one;
    check_on_gpus(few, "few rows");
    lost.members = 3; /* two go on with the batches of three: they keep gradients */
    lost.constant = true;
    lost.dies.member = 2;
    lost.dies.step = 3;
    lost.dies.place = AT_BATCH;
    check_on_gpus(lost, "a lost member");
    means.mode = "local_sgd";
    means.local_steps = 2;
    check_on_gpus(means, "means");
    slow = short_ways = means;
    slow.outer_momentum = 0.5F;
    check_on_gpus(slow, "slow momentum");
    short_ways.compression = (trp_compression_options){.kind = "bf16"};
    check_on_gpus(short_ways, "compressed means");
    for (size_t i = 0; i < NAMES; i++)
        if (asked[i] == 0)
            fail_msg("nobody asked for %s", names[i]);
}

/* ---- where no more is pinned -----------------------------------------------------------------
 */

static struct machine_impl pins_some;
static atomic_int pins_left;

static trp_status pin_some(struct machine *machine, size_t bytes, void **memory)
{
    if (pins_left-- > 0)
        return twin_pin(machine, bytes, memory);
    return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: %zu bytes", machine->name, bytes);
}

/* Of a learner's two queues each has a ring: for what a step changes, and for its batches. */
static void a_learner_whose_batches_were_not_copied_says_so(void **state)
{
    enum { RINGS = 2 };
    struct plan plan = {.members = 1,
                        .mode = "gossip",
                        .steps = 6,
                        .optimizer = {.kind = TRP_ADAM, .learning_rate = 0.01}};
    (void)state;
    for (int pins = 0; pins <= RINGS; pins++) {
        struct twin_device *twin = xcalloc(1, sizeof *twin);
        plan.device[0] = twin_device_init(twin, 1);
        twin->machine.more = find_and_count;
        pins_some = *twin->machine.base.impl;
        pins_some.pin = pin_some;
        twin->machine.base.impl = &pins_some;
        pins_left = pins;
        struct run *run = run_all(&plan);
        assert_int_equal(run->members[0].status, pins < RINGS ? TRP_RESOURCE_EXHAUSTED : TRP_OK);
        run_free(run);
        free(twin);
    }
}

/* ---- what crosses the bus ----------------------------------------------------------------------
 */

struct crossing {
    uint64_t down, up; /* bytes of the first member's GPU */
};

static struct crossing crossing_of(struct plan plan, uint64_t steps)
{
    struct twin_device *twins = xcalloc(plan.members, sizeof *twins);
    plan.steps = steps;
    for (uint32_t i = 0; i < plan.members; i++) {
        plan.device[i] = twin_device_init(&twins[i], i + 1);
        twins[i].machine.more = find_and_count;
    }
    struct run *run = run_all(&plan);
    for (uint32_t i = 0; i < plan.members; i++)
        assert_int_equal(run->members[i].status, TRP_OK);
    struct crossing crossing = {twins[0].machine.delivered, twins[0].machine.received};
    run_free(run);
    free(twins);
    return crossing;
}

/* In a step. */
static struct crossing crossing_each(const struct plan *plan)
{
    enum { FEW = 6, MORE = 10 };
    struct crossing few = crossing_of(*plan, FEW), more = crossing_of(*plan, MORE);
    assert_int_equal((more.down - few.down) % (MORE - FEW), 0);
    assert_int_equal((more.up - few.up) % (MORE - FEW), 0);
    return (struct crossing){(more.down - few.down) / (MORE - FEW),
                             (more.up - few.up) / (MORE - FEW)};
}

/* More than one has that gossips with nobody, as docs/gpu.md says: bytes each way, in a step. */
static void what_crosses_the_bus_is_what_the_manual_says(void **state)
{
    (void)state;
    enum { SECOND = NUMBERS / 2 + 1, LEARNED = NUMBERS + SECOND, ALL = LEARNED + NUMBERS };
    enum { HEADS = 2 * HEAD_NUMBERS, STEPS = 2 };
    enum { WORDS = 2 * sizeof(float) + 2 * sizeof(trp_phase_part) }; /* of a vector, two members */
    static const struct {
        const char *mode, *kind;
        uint64_t bytes;
    } rows[] = {{"synchronous", NULL, 4 * (LEARNED + HEADS)},
                {"synchronous", "qsgd", 4 * (LEARNED + HEADS)},
                {"sharded", NULL, 8 * (LEARNED + HEADS) + 2 * WORDS},
                {"local_sgd", NULL, 4 * ALL / STEPS},
                {"local_sgd", "bf16", 4 * (ALL + HEADS) / STEPS},
                {"gossip", NULL, 4 * ALL}};
    const struct plan one = {.members = 1,
                             .mode = "gossip",
                             .optimizer = {.kind = TRP_ADAM, .learning_rate = 0.01},
                             .second = true};
    struct crossing alone = crossing_each(&one);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct plan plan = one;
        plan.members = 2;
        plan.mode = rows[i].mode;
        plan.local_steps = STEPS;
        plan.compression.kind = rows[i].kind;
        struct crossing each = crossing_each(&plan);
        uint64_t bytes = rows[i].bytes;
        if (each.down - alone.down != bytes || each.up - alone.up != bytes)
            fail_msg("%s, %s: %" PRIu64 " bytes down and %" PRIu64 " up, not %" PRIu64, plan.mode,
                     plan.compression.kind ? plan.compression.kind : "as it is",
                     each.down - alone.down, each.up - alone.up, bytes);
    }
}

/* ---- beside float64 ----------------------------------------------------------------------------
 */

static trp_rng draws;

static float *some_floats(size_t count)
{
    return random_floats(&draws, count, 1);
}

static void assert_number(float got, double want, const char *what, size_t i)
{
    if (!(fabs((double)got - want) <= 1e-6 * fmax(1, fabs(want))))
        fail_msg("%s: number %zu is %.9g, should be %.9g", what, i, (double)got, want);
}

static void check_sums(size_t count)
{
    float *grads = some_floats(count), *more = some_floats(count), *here = copy_of(grads, count);
    float *before = copy_of(grads, count);
    struct mode_weigh_arguments weigh = {grads, count, 0.3F};
    struct mode_keep_arguments keep = {grads, more, count, -1.7F};
    twin_kernel(&draws, kernel_of_learners("mode.weigh"), &weigh);
    twin_kernel(&draws, kernel_of_learners("mode.keep"), &keep);
    weigh.grads = keep.kept = here;
    mode_weigh_run(&weigh);
    mode_keep_run(&keep);
    for (size_t i = 0; i < count; i++)
        assert_number(grads[i], 0.3 * (double)before[i] - 1.7 * (double)more[i], "a sum", i);
    assert_memory_equal(grads, here, count * sizeof *here);
    free(grads);
    free(more);
    free(here);
    free(before);
}

/* With and without momentum, of values and of ways. */
static void check_outer(size_t count, bool slow, bool ways)
{
    float *values = some_floats(count), *way = some_floats(count), *last = some_floats(count),
          *average = some_floats(count);
    float *x = copy_of(last, count), *u = copy_of(average, count), *sum = copy_of(values, count);
    float *here = copy_of(values, count), *last_here = copy_of(last, count),
          *average_here = copy_of(average, count);
    struct mode_outer_arguments outer = {.values = values,
                                         .way = ways ? way : NULL,
                                         .last = slow || ways ? last : NULL,
                                         .average = slow ? average : NULL,
                                         .count = count,
                                         .batches = 3,
                                         .momentum = 0.9F};
    twin_kernel(&draws, kernel_of_learners("mode.outer"), &outer);
    outer.values = here;
    outer.last = outer.last ? last_here : NULL;
    outer.average = outer.average ? average_here : NULL;
    mode_outer_run(&outer);
    for (size_t i = 0; i < count; i++) {
        double mean = ways ? (double)x[i] - (double)way[i] / 3 : (double)sum[i] / 3;
        double moved = 0.9 * (double)u[i] + (double)x[i] - mean;
        double next = slow ? (double)x[i] - moved : mean;
        assert_number(values[i], next, "a mean", i);
        assert_number(last[i], slow || ways ? next : (double)x[i], "the last mean", i);
        assert_number(average[i], slow ? moved : (double)u[i], "the momentum", i);
    }
    assert_memory_equal(values, here, count * sizeof *here);
    float *all[] = {values, way, last, average, x, u, sum, here, last_here, average_here};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void check_head(const float *watched, const float *more, float rows, float odd)
{
    float head[HEAD_NUMBERS] = {0}, here[HEAD_NUMBERS] = {0};
    struct mode_head_arguments job = {head, watched, more, 5};
    twin_kernel(&draws, kernel_of_learners("mode.head"), &job);
    job.head = here;
    mode_head_run(&job);
    assert_memory_equal(head, here, sizeof here);
    assert_true(head[HEAD_ROWS] == rows);
    assert_true(isnan(odd) ? isnan(head[HEAD_WATCHED]) : head[HEAD_WATCHED] == odd);
}

static void their_kernels_compute_what_float64_does(void **state)
{
    static const size_t sizes[SIZES] = {1, 31, 257, 5000};
    static const float well = 7, odd = INFINITY, none = NAN;
    static const float more[HEAD_NUMBERS] = {3, 0}, odd_more[HEAD_NUMBERS] = {3, NAN};
    (void)state;
    trp_rng_init(&draws, 1, 0);
    for (size_t i = 0; i < SIZES; i++) {
        check_sums(sizes[i]);
        for (int slow = 0; slow < 2; slow++)
            for (int ways = 0; ways < 2; ways++)
                check_outer(sizes[i], slow, ways);
    }
    check_head(NULL, NULL, 5, 0);
    check_head(&well, NULL, 5, 0);
    check_head(&odd, NULL, 5, INFINITY);
    check_head(&none, more, 8, NAN);
    check_head(&well, more, 8, 0);
    check_head(NULL, odd_more, 8, NAN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_of_learners_together_has_no_work_for_the_host),
        cmocka_unit_test(a_learner_whose_batches_were_not_copied_says_so),
        cmocka_unit_test(what_crosses_the_bus_is_what_the_manual_says),
        cmocka_unit_test(their_kernels_compute_what_float64_does),
    };
    nvidia_look_under(FAKE_NCCL "_old"); /* none that works: sums go through the host */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
