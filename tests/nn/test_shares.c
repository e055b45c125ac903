/* Where a thread has plans of several threads, these share long kernels and the sums of gradients,
 * and what comes out is the same to the bit. */
#include <stdatomic.h>

#include <troupe/device.h>
#include <troupe/optimizer.h>

#include "nn_tools.h"

enum { THREADS = 3, COUNT = 200007, FROM = 3, WIDTH = 300, ROWS = 96 };

static trp_net *plan_of(uint32_t threads, trp_net_spec *spec)
{
    trp_net *net;
    *spec = trp_mlp(&(trp_mlp_options){.inputs = WIDTH, .hidden = {WIDTH}, .outputs = WIDTH});
    OR_FAIL(
        trp_net_create(&net, &(trp_net_options){.spec = spec, .batch = ROWS, .threads = threads}));
    return net;
}

static trp_queue *host_queue(void)
{
    trp_device *device;
    trp_queue *queue;
    OR_FAIL(trp_device_find(&device, "cpu"));
    OR_FAIL(trp_queue_create(&queue, device));
    return queue;
}

static float *drawn(size_t count, uint64_t seed)
{
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    float *values = trp_floats_create(count);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)trp_rng_normal(&rng);
    return values;
}

/* ---- kernels ------------------------------------------------------------------------------- */

struct marks {
    unsigned char *values;
    atomic_uint *whole, *shares, *seen; /* calls; shares of THREADS, of which each is a bit */
};

static void mark_all(void *arguments)
{
    const struct marks *marks = arguments;
    atomic_fetch_add(marks->whole, 1);
}

static void mark_share(void *arguments, uint32_t share, uint32_t shares)
{
    const struct marks *marks = arguments;
    atomic_fetch_add(marks->shares, shares == THREADS); /* any thread: no assertions */
    atomic_fetch_or(marks->seen, 1U << share);
}

/* How a kernel over so many bytes is called: as a whole, or in how many different shares. */
static void run_marks(size_t bytes, uint32_t *whole, uint32_t *shares)
{
    static const trp_kernel kernel = {
        .name = "test.marks", .run = mark_all, .run_share = mark_share};
    atomic_uint counts[3] = {0};
    struct marks marks = {xcalloc(bytes, 1), &counts[0], &counts[1], &counts[2]};
    trp_operand operand = {offsetof(struct marks, values), bytes, TRP_READ | TRP_WRITE};
    trp_queue *queue = host_queue();
    trp_queue_run(queue, &kernel, &marks, sizeof marks, &operand, 1);
    *whole = counts[0];
    *shares = counts[1];
    assert_int_equal(counts[2], counts[1] ? (1 << THREADS) - 1 : 0);
    trp_queue_destroy(queue);
    free(marks.values);
}

static void a_long_kernel_is_shared_by_the_threads_of_the_plans_here(void **state)
{
    (void)state;
    uint32_t whole, shares;
    trp_net_spec spec;
    run_marks(1 << 20, &whole, &shares);
    assert_true(whole == 1 && shares == 0); /* nobody is there */
    trp_net *few = plan_of(2, &spec), *net = plan_of(THREADS, &spec);
    run_marks(1 << 20, &whole, &shares);
    assert_true(whole == 0 && shares == THREADS);
    run_marks(1 << 10, &whole, &shares);
    assert_true(whole == 1 && shares == 0); /* too short */
    trp_net_destroy(net);
    trp_net_destroy(few);
    run_marks(1 << 20, &whole, &shares);
    assert_true(whole == 1 && shares == 0);
}

/* ---- optimizers and targets ---------------------------------------------------------------- */

static void learn(trp_optimizer_kind kind, float *params, float *target)
{
    trp_optimizer optimizer = {.kind = kind, .learning_rate = 0.01, .max_norm = 1};
    float *grads = drawn(COUNT, 7), *moments[TRP_OPTIMIZER_STATES_MAX];
    trp_queue *queue = host_queue();
    trp_phases phases = {0};
    for (size_t i = 0; i < TRP_OPTIMIZER_STATES_MAX; i++)
        moments[i] = trp_floats_create(COUNT);
    for (int step = 0; step < 2; step++) {
        trp_phase_measure(queue, &optimizer, grads, COUNT, NULL, &phases);
        trp_phase_step(queue, &optimizer, params, grads, moments, FROM, COUNT, &phases);
        trp_polyak_update(queue, target, params, 0.1F, COUNT);
    }
    for (size_t i = 0; i < TRP_OPTIMIZER_STATES_MAX; i++)
        trp_floats_destroy(moments[i]);
    trp_floats_destroy(grads);
    trp_queue_destroy(queue);
}

static void steps_of_every_optimizer_and_targets_keep_their_bits(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < TRP_OPTIMIZER_KINDS; kind++) {
        float *params[2], *targets[2];
        trp_net_spec spec;
        trp_net *net = NULL;
        for (int shared = 0; shared < 2; shared++) {
            net = shared ? plan_of(THREADS, &spec) : NULL;
            params[shared] = drawn(COUNT, 1);
            targets[shared] = drawn(COUNT, 2);
            learn((trp_optimizer_kind)kind, params[shared], targets[shared]);
        }
        assert_memory_equal(params[0], params[1], COUNT * sizeof(float));
        assert_memory_equal(targets[0], targets[1], COUNT * sizeof(float));
        float *before = drawn(COUNT, 1);
        size_t moved = 0; /* some by less than they show */
        for (size_t k = FROM; k < COUNT; k++)
            moved += params[0][k] != before[k];
        assert_true(moved > COUNT / 10 * 9);
        assert_memory_equal(params[0], before, FROM * sizeof(float));
        trp_floats_destroy(before);
        for (int shared = 0; shared < 2; shared++) {
            trp_floats_destroy(params[shared]);
            trp_floats_destroy(targets[shared]);
        }
        trp_net_destroy(net);
    }
}

/* ---- gradients ----------------------------------------------------------------------------- */

static void note_range(void *context, size_t lo)
{
    size_t *last = context;
    assert_true(lo < *last);
    *last = lo;
}

static float *gradient_by(uint32_t threads, size_t *count)
{
    trp_net_spec spec;
    trp_net *net = plan_of(threads, &spec);
    *count = trp_net_param_count(&spec);
    float *params = drawn(*count, 3), *x = drawn((size_t)ROWS * WIDTH, 4);
    float *y = trp_floats_create((size_t)ROWS * WIDTH), *grads = trp_floats_create(*count);
    trp_net_rows rows = {.rows = ROWS, .inputs = {x}, .outputs = {y}};
    size_t last = *count;
    trp_net_forward(net, params, &rows);
    trp_net_backward(
        net, params, &rows,
        &(trp_net_grads){.outputs = {x}, .params = grads, .ready = note_range, .context = &last});
    assert_int_equal(last, 0);
    trp_floats_destroy(params);
    trp_floats_destroy(x);
    trp_floats_destroy(y);
    trp_net_destroy(net);
    return grads;
}

static void gradients_of_all_threads_are_added_up_once(void **state)
{
    (void)state;
    size_t count;
    float *alone = gradient_by(1, &count), *together = gradient_by(THREADS, &count);
    float *again = gradient_by(THREADS, &count);
    double error = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        error += ((double)together[i] - alone[i]) * ((double)together[i] - alone[i]);
        size += (double)alone[i] * alone[i];
    }
    assert_true(size > 0 && error <= 1e-12 * size);
    assert_memory_equal(together, again, count * sizeof(float));
    trp_floats_destroy(alone);
    trp_floats_destroy(together);
    trp_floats_destroy(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_kernel_is_shared_by_the_threads_of_the_plans_here),
        cmocka_unit_test(steps_of_every_optimizer_and_targets_keep_their_bits),
        cmocka_unit_test(gradients_of_all_threads_are_added_up_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
