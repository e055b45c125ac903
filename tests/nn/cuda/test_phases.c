/* Phases of learning on a machine of tests, beside the host: measured, stepped by every optimizer,
 * refused where a number is not finite. */
#include <troupe/optimizer.h>

#include "nn/backend.h"
#include "nn/optimizer.h"
#include "real_gpu.h"
#include "twin_machine.h"

enum { SIZES = 5, STEPS = 100 };
static const size_t sizes[SIZES] = {1, 31, 257, 1000, 70000};

/* A learned vector on one device. */
struct learned {
    trp_device *device;
    trp_queue *queue;
    size_t count;
    float *params, *grads, *state[TRP_OPTIMIZER_STATES_MAX], *watched;
    trp_phases *phases;
};

static float *floats_on(trp_device *device, size_t count)
{
    void *memory;
    OR_FAIL(trp_device_alloc(device, count * sizeof(float), &memory));
    return memory;
}

static void put(const struct learned *l, float *to, const float *from, size_t count)
{
    trp_queue_copy(l->queue, to, from, count * sizeof *from);
}

static void learned_init(struct learned *l, trp_device *device, size_t count)
{
    *l = (struct learned){.device = device, .count = count};
    OR_FAIL(trp_queue_create(&l->queue, device));
    l->params = floats_on(device, count);
    l->grads = floats_on(device, count);
    l->watched = floats_on(device, 1);
    for (size_t i = 0; i < TRP_OPTIMIZER_STATES_MAX; i++)
        l->state[i] = floats_on(device, count);
    l->phases = (trp_phases *)(void *)floats_on(device, sizeof *l->phases / sizeof(float));
}

static void learned_cleanup(const struct learned *l)
{
    trp_device_free(l->device, l->params);
    trp_device_free(l->device, l->grads);
    trp_device_free(l->device, l->watched);
    for (size_t i = 0; i < TRP_OPTIMIZER_STATES_MAX; i++)
        trp_device_free(l->device, l->state[i]);
    trp_device_free(l->device, l->phases);
    trp_queue_destroy(l->queue);
}

static void phase(const struct learned *l, const trp_optimizer *optimizer, const float *grads)
{
    put(l, l->grads, grads, l->count);
    trp_phase_measure(l->queue, optimizer, l->grads, l->count, l->watched, l->phases);
    trp_phase_step(l->queue, optimizer, l->params, l->grads, l->state, 0, l->count, l->phases);
    trp_phase_end(l->queue, l->grads, l->count, l->phases);
}

static void fetch(const struct learned *l, void *to, const void *from, size_t bytes)
{
    trp_queue_copy(l->queue, to, from, bytes);
    OR_FAIL(trp_queue_sync(l->queue, trp_queue_mark(l->queue)));
}

static trp_phases phases_of(const struct learned *l)
{
    trp_phases phases;
    fetch(l, &phases, l->phases, sizeof phases);
    return phases;
}

/* The same bits; a GPU makes NaNs of its own. */
static void assert_same_numbers(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isnan(a[i]) || !isnan(b[i]))
            assert_memory_equal(&a[i], &b[i], sizeof a[i]);
}

/* Both have the same bits, but for the norm, whose sum has another order. */
static void assert_same(const struct learned *got, const struct learned *want, bool exact)
{
    size_t bytes = got->count * sizeof(float);
    float *a = xmalloc(bytes), *b = xmalloc(bytes);
    for (size_t i = 0; i <= TRP_OPTIMIZER_STATES_MAX; i++) {
        fetch(got, a, i == 0 ? got->params : got->state[i - 1], bytes);
        fetch(want, b, i == 0 ? want->params : want->state[i - 1], bytes);
        if (exact)
            assert_same_numbers(a, b, got->count);
        else
            assert_close(a, b, got->count, 1e-5, "a clipped step");
    }
    trp_phases x = phases_of(got), y = phases_of(want);
    assert_int_equal(x.steps, y.steps);
    assert_int_equal(x.left_out, y.left_out);
    assert_int_equal(x.refused, y.refused);
    assert_int_equal(x.skipped, y.skipped);
    assert_int_equal(x.place, y.place);
    if (isfinite(y.norm2))
        assert_float_equal(x.norm2, y.norm2, 1e-12 * y.norm2);
    free(a);
    free(b);
}

struct both {
    struct twin_device twin;
    struct learned there, here;
};

static trp_device *gpu; /* NULL: a machine of tests */

static struct both *both_create(size_t count)
{
    struct both *both = xcalloc(1, sizeof *both);
    trp_device *cpu;
    OR_FAIL(trp_device_find(&cpu, "cpu"));
    learned_init(&both->there, gpu ? gpu : twin_device_init(&both->twin, count), count);
    learned_init(&both->here, cpu, count);
    return both;
}

static void both_destroy(struct both *both)
{
    learned_cleanup(&both->there);
    learned_cleanup(&both->here);
    free(both);
}

static void check_steps(const trp_optimizer *optimizer, size_t count)
{
    struct both *both = both_create(count);
    trp_rng rng;
    trp_rng_init(&rng, count, 1);
    float *params = random_floats(&rng, count, 1);
    put(&both->there, both->there.params, params, count);
    put(&both->here, both->here.params, params, count);
    for (int step = 0; step < (count > 1000 ? 4 : STEPS); step++) {
        float *grads = random_floats(&rng, count, 1);
        phase(&both->there, optimizer, grads);
        phase(&both->here, optimizer, grads);
        free(grads);
    }
    assert_same(&both->there, &both->here, !gpu && optimizer->max_norm == 0);
    assert_int_equal(both->twin.machine.host_works, 0);
    free(params);
    both_destroy(both);
}

/* LAMB's ratio is of sums in double, in another order, which are the same when they are floats. */
static void every_optimizer_makes_the_bits_of_the_host(void **state)
{
    static const trp_optimizer optimizers[] = {
        {.kind = TRP_ADAM},
        {.kind = TRP_ADAM, .weight_decay = 0.1, .warmup_steps = 10},
        {.kind = TRP_ADAMW, .weight_decay = 0.1, .schedule = TRP_RATE_COSINE, .schedule_steps = 50},
        {.kind = TRP_SGD},
        {.kind = TRP_SGD, .momentum = 0.9, .nesterov = true},
        {.kind = TRP_RMSPROP},
        {.kind = TRP_RMSPROP, .centered = true, .momentum = 0.5, .epsilon_inside = true},
        {.kind = TRP_LAMB, .weight_decay = 0.01},
        {.kind = TRP_ADAM, .max_norm = 0.5},
    };
    (void)state;
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        for (size_t k = 0; k < SIZES; k++)
            check_steps(&optimizers[i], sizes[k]);
}

/* A vector of one learner in double, stepped by the reference. */
static void step_in_double(const trp_optimizer *optimizer, uint64_t step, size_t count,
                           const float *grads, double *const *vectors)
{
    for (size_t i = 0; i < count; i++)
        vectors[1][i] = (double)grads[i];
    struct optimizer_range range = {.params = vectors[0],
                                    .grads = vectors[1],
                                    .state = {vectors[2], vectors[3]},
                                    .count = count,
                                    .scale = 1};
    optimizer_run(backend_ref_f64.step, optimizer, step, &range);
}

/* Tensors that are a part of one block, and those of many rounds of all blocks. */
static void lamb_is_float64s_but_for_rounding(void **state)
{
    static const trp_optimizer lamb = {
        .kind = TRP_LAMB, .learning_rate = 0.01, .weight_decay = 0.1};
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        size_t count = sizes[i];
        struct both *both = both_create(count);
        double *vectors[4];
        trp_rng rng;
        trp_rng_init(&rng, count, 2);
        float *params = random_floats(&rng, count, 1);
        for (size_t k = 0; k < 4; k++)
            vectors[k] = xcalloc(count, sizeof(double));
        for (size_t k = 0; k < count; k++)
            vectors[0][k] = (double)params[k];
        put(&both->there, both->there.params, params, count);
        for (uint64_t step = 1; step <= 10; step++) {
            float *grads = random_floats(&rng, count, 1);
            phase(&both->there, &lamb, grads);
            step_in_double(&lamb, step, count, grads, vectors);
            fetch(&both->there, params, both->there.params, count * sizeof *params);
            free(grads);
        }
        double apart = 0, all = 0;
        for (size_t k = 0; k < count; k++) {
            apart += pow((double)params[k] - vectors[0][k], 2);
            all += vectors[0][k] * vectors[0][k];
        }
        if (!(sqrt(apart) <= 1e-5 * sqrt(all)))
            fail_msg("%zu parameters are %g off, of %g", count, sqrt(apart), sqrt(all));
        for (size_t k = 0; k < 4; k++)
            free(vectors[k]);
        free(params);
        both_destroy(both);
    }
}

static void a_number_that_is_not_finite_is_found_by_its_place(void **state)
{
    static const float odd[] = {NAN, INFINITY};
    (void)state;
    for (size_t i = 0; i < SIZES; i++)
        for (size_t k = 0; k < 8; k++) {
            struct both *both = both_create(sizes[i]);
            trp_optimizer optimizer = {.kind = TRP_ADAM, .skip_not_finite = k % 4 == 3};
            float *grads = xcalloc(sizes[i], sizeof *grads), bad = odd[k % 2];
            grads[k < 4 ? sizes[i] - 1 : sizes[i] / 2] = bad;
            if (k % 4 == 2) { /* it comes first */
                put(&both->there, both->there.watched, &bad, 1);
                put(&both->here, both->here.watched, &bad, 1);
            }
            phase(&both->there, &optimizer, grads);
            phase(&both->here, &optimizer, grads);
            memset(grads, 0, sizes[i] * sizeof *grads);
            phase(&both->there, &optimizer, grads); /* refused for good, or not */
            phase(&both->here, &optimizer, grads);
            assert_same(&both->there, &both->here, true);
            free(grads);
            both_destroy(both);
        }
}

/* As learners of a group do. */
static void measure_in_ranges(const struct learned *l, const float *rows, const float *grads)
{
    trp_optimizer optimizer = {.kind = TRP_ADAM};
    void *parts;
    size_t third = l->count / 3;
    OR_FAIL(trp_device_alloc(l->device, 2 * sizeof(trp_phase_part), &parts));
    trp_phase_part *part = parts;
    put(l, l->watched, rows, 1);
    put(l, l->grads, grads, l->count);
    trp_phase_measure_range(l->queue, l->grads, 0, third, l->watched, 8, &part[0]);
    trp_phase_measure_range(l->queue, l->grads, third, 2 * third, l->watched, 8, &part[0]);
    trp_phase_measure_range(l->queue, l->grads, 2 * third, l->count, l->watched, 8, &part[1]);
    trp_phase_measure_parts(l->queue, &optimizer, part, 2, l->count, NULL, l->phases);
    OR_FAIL(trp_queue_sync(l->queue, trp_queue_mark(l->queue)));
    trp_device_free(l->device, parts);
}

static void ranges_of_several_learners_are_measured_alike(void **state)
{
    trp_rng rng;
    (void)state;
    trp_rng_init(&rng, 9, 0);
    for (size_t i = 1; i < SIZES; i++)
        for (int odd = 0; odd < 2; odd++) {
            struct both *both = both_create(sizes[i]);
            float *grads = random_floats(&rng, sizes[i], 1), rows = 12;
            float *a = xmalloc(sizes[i] * sizeof *a), *b = xmalloc(sizes[i] * sizeof *b);
            grads[sizes[i] - 2] = odd ? NAN : 1;
            measure_in_ranges(&both->there, &rows, grads);
            measure_in_ranges(&both->here, &rows, grads);
            fetch(&both->there, a, both->there.grads, sizes[i] * sizeof *a);
            fetch(&both->here, b, both->here.grads, sizes[i] * sizeof *b);
            assert_same_numbers(a, b, sizes[i]);
            assert_same(&both->there, &both->here, true);
            free(a);
            free(b);
            free(grads);
            both_destroy(both);
        }
}

static void targets_follow_as_on_the_host(void **state)
{
    trp_rng rng;
    (void)state;
    trp_rng_init(&rng, 2, 0);
    struct both *both = both_create(1000);
    float *values = random_floats(&rng, 1000, 1);
    struct learned *const sides[] = {&both->there, &both->here};
    for (size_t i = 0; i < 2; i++) {
        put(sides[i], sides[i]->grads, values, 1000);
        for (int k = 0; k < 5; k++)
            trp_polyak_update(sides[i]->queue, sides[i]->params, sides[i]->grads, 0.1F, 1000);
    }
    assert_same(&both->there, &both->here, true);
    free(values);
    both_destroy(both);
}

/* All of the above: its powers and roots in double may be rounded otherwise. */
static void phases_on_a_gpu_are_those_of_the_host(void **state)
{
    gpu = real_gpu();
    every_optimizer_makes_the_bits_of_the_host(state);
    lamb_is_float64s_but_for_rounding(state);
    a_number_that_is_not_finite_is_found_by_its_place(state);
    ranges_of_several_learners_are_measured_alike(state);
    targets_follow_as_on_the_host(state);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_makes_the_bits_of_the_host),
        cmocka_unit_test(lamb_is_float64s_but_for_rounding),
        cmocka_unit_test(a_number_that_is_not_finite_is_found_by_its_place),
        cmocka_unit_test(ranges_of_several_learners_are_measured_alike),
        cmocka_unit_test(targets_follow_as_on_the_host),
        cmocka_unit_test(phases_on_a_gpu_are_those_of_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
