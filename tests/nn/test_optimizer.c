/* Optimizers: what PyTorch makes of the same numbers, every backend against the reference in
 * double, ranges of any size and place, rates, clipping, and what is refused. */
#include "nn_tools.h"

#include "layer_case.h"
#include "nn/optimizer.h"

enum { GOLDEN_STEPS = 5, GOLDEN_COUNT = 7, FIRST_TENSOR = 3 };

struct golden_steps {
    const char *name;
    double params[GOLDEN_STEPS][GOLDEN_COUNT];
};

#include "golden_optimizers.h"

/* Those of make_optimizers.py, by the same names. */
static const struct {
    const char *name;
    trp_optimizer optimizer;
    bool zeros; /* where parameters begin */
} golden_options[] = {
    {"sgd", {.kind = TRP_SGD}, false},
    {"sgd decay", {.kind = TRP_SGD, .weight_decay = 0.2}, false},
    {"momentum", {.kind = TRP_SGD, .momentum = 0.9}, false},
    {"nesterov", {.kind = TRP_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.2}, false},
    {"adam", {.kind = TRP_ADAM}, false},
    {"adam options", {.beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.1, .weight_decay = 0.2}, false},
    {"adam no beta1", {.beta1 = -1, .beta2 = 0.75}, false},
    {"adamw", {.kind = TRP_ADAMW, .weight_decay = 0.2}, false},
    {"rmsprop", {.kind = TRP_RMSPROP}, false},
    {"rmsprop decay",
     {.kind = TRP_RMSPROP, .alpha = 0.5, .epsilon = 0.1, .weight_decay = 0.2},
     false},
    {"rmsprop momentum", {.kind = TRP_RMSPROP, .alpha = 0.5, .momentum = 0.9}, false},
    {"rmsprop centered",
     {.kind = TRP_RMSPROP, .alpha = 0.5, .epsilon = 0.01, .centered = true},
     false},
    {"rmsprop centered momentum",
     {.kind = TRP_RMSPROP, .alpha = 0.75, .epsilon = 0.01, .centered = true, .momentum = 0.5},
     false},
    {"rmsprop inside",
     {.kind = TRP_RMSPROP, .alpha = 0.5, .epsilon = 0.1, .epsilon_inside = true},
     false},
    {"rmsprop inside all",
     {.kind = TRP_RMSPROP,
      .alpha = 0.75,
      .epsilon = 0.01,
      .centered = true,
      .momentum = 0.5,
      .epsilon_inside = true},
     false},
    {"lamb", {.kind = TRP_LAMB}, false},
    {"lamb decay", {.kind = TRP_LAMB, .weight_decay = 0.2}, false},
    {"lamb from zero", {.kind = TRP_LAMB}, true},
    {"clipped", {.kind = TRP_SGD, .max_norm = 0.5}, false},
    {"linear",
     {.kind = TRP_SGD, .schedule = TRP_RATE_LINEAR, .final_rate = 0.025, .schedule_steps = 4},
     false},
};
enum { OPTIMIZERS = sizeof golden_options / sizeof golden_options[0] };

static trp_optimizer optimizer_at(size_t index)
{
    trp_optimizer optimizer = golden_options[index].optimizer;
    optimizer.learning_rate = 0.1;
    OR_FAIL(trp_optimizer_check(&optimizer, golden_options[index].name));
    return optimizer;
}

/* ---- vectors -------------------------------------------------------------------------------- */

/* Elements of a backend on the heap, so that a sanitizer sees the one before and the one behind. */
struct stepped {
    size_t count, element_bytes;
    void *vectors[2 + TRP_OPTIMIZER_STATES_MAX]; /* parameters, gradients, state */
};

static struct stepped stepped_create(size_t count, size_t element_bytes, bool zeros)
{
    struct stepped s = {.count = count, .element_bytes = element_bytes};
    for (size_t i = 0; i < 2 + TRP_OPTIMIZER_STATES_MAX; i++)
        s.vectors[i] = xcalloc(count, element_bytes);
    for (size_t i = 0; i < count && !zeros; i++) {
        bool second = i >= FIRST_TENSOR;
        double value = case_number(second, (uint32_t)(second ? i - FIRST_TENSOR : i));
        set_element(s.vectors[0], element_bytes, i, value);
    }
    return s;
}

static void stepped_cleanup(struct stepped *s)
{
    for (size_t i = 0; i < 2 + TRP_OPTIMIZER_STATES_MAX; i++)
        free(s->vectors[i]);
}

static double set_gradients(struct stepped *s, uint64_t step)
{
    double norm2 = 0;
    for (size_t i = 0; i < s->count; i++) {
        double value = case_number((uint32_t)(10 + step), (uint32_t)i);
        set_element(s->vectors[1], s->element_bytes, i, value);
        norm2 += value * value;
    }
    return norm2;
}

static void step_range(const struct backend *backend, const trp_optimizer *optimizer,
                       struct stepped *s, uint64_t step, double scale, size_t lo, size_t hi)
{
    struct optimizer_range range = {.count = hi - lo, .scale = scale};
    size_t bytes = lo * s->element_bytes;
    range.params = (char *)s->vectors[0] + bytes;
    range.grads = (char *)s->vectors[1] + bytes;
    for (size_t i = 0; i < trp_optimizer_states(optimizer); i++)
        range.state[i] = (char *)s->vectors[2 + i] + bytes;
    optimizer_run(backend->step, optimizer, step, &range);
}

/* ---- against PyTorch and the reference ------------------------------------------------------- */

static const struct golden_steps *golden_of(const char *name)
{
    for (size_t i = 0; i < sizeof golden_steps / sizeof golden_steps[0]; i++)
        if (strcmp(golden_steps[i].name, name) == 0)
            return &golden_steps[i];
    fail_msg("PyTorch has not made '%s'", name);
    return NULL;
}

static void steps_are_those_of_pytorch(void **state)
{
    (void)state;
    assert_int_equal(OPTIMIZERS, sizeof golden_steps / sizeof golden_steps[0]);
    for (size_t row = 0; row < OPTIMIZERS; row++) {
        trp_optimizer optimizer = optimizer_at(row);
        const struct golden_steps *golden = golden_of(golden_options[row].name);
        struct stepped s = stepped_create(GOLDEN_COUNT, sizeof(double), golden_options[row].zeros);
        /* PyTorch adds 1e-6 to the norm that it clips. */
        double tolerance = optimizer.max_norm > 0 ? 1e-6 : 1e-13;
        for (uint64_t step = 1; step <= GOLDEN_STEPS; step++) {
            double norm = sqrt(set_gradients(&s, step));
            double scale =
                optimizer.max_norm > 0 && norm > optimizer.max_norm ? optimizer.max_norm / norm : 1;
            step_range(&backend_ref_f64, &optimizer, &s, step, scale, 0, FIRST_TENSOR);
            step_range(&backend_ref_f64, &optimizer, &s, step, scale, FIRST_TENSOR, GOLDEN_COUNT);
            for (size_t i = 0; i < GOLDEN_COUNT; i++) {
                double got = ((double *)s.vectors[0])[i], want = golden->params[step - 1][i];
                if (!(fabs(got - want) <= tolerance * fmax(1, fabs(want))))
                    fail_msg("%s: parameter %zu is %.15g after step %d, PyTorch has %.15g",
                             golden->name, i, got, (int)step, want);
            }
        }
        stepped_cleanup(&s);
    }
}

/* Five steps of `count` numbers as one tensor. */
static struct stepped steps_of(const struct backend *backend, size_t row, size_t count)
{
    trp_optimizer optimizer = optimizer_at(row);
    struct stepped s = stepped_create(count, backend->element_bytes, golden_options[row].zeros);
    for (uint64_t step = 1; step <= GOLDEN_STEPS; step++) {
        set_gradients(&s, step);
        step_range(backend, &optimizer, &s, step, 0.5, 0, count);
    }
    return s;
}

static void check_vector(const char *who, size_t row, size_t index, const struct stepped *got,
                         const struct stepped *want)
{
    for (size_t i = 0; i < got->count; i++) {
        double value = element(got->vectors[index], got->element_bytes, i);
        double exact = element(want->vectors[index], want->element_bytes, i);
        if (!(fabs(value - exact) <= 4e-6 * fmax(1, fabs(exact))))
            fail_msg("%s: %s, %zu numbers: vector %zu has %.9g at %zu, should be %.9g", who,
                     golden_options[row].name, got->count, index, value, i, exact);
    }
}

static void every_backend_steps_as_the_reference_does(void **state)
{
    (void)state;
    for (size_t row = 0; row < OPTIMIZERS; row++)
        for (size_t count = 1; count <= 71; count += count < 36 ? 1 : 7) {
            struct stepped exact = steps_of(&backend_ref_f64, row, count);
            struct stepped first = steps_of(&backend_ref_f32, row, count);
            bool bits = golden_options[row].optimizer.kind != TRP_LAMB; /* which sums */
            for (const struct backend *const *b = every_backend(); *b; b++) {
                if (!(*b)->step)
                    continue;
                struct stepped got = steps_of(*b, row, count);
                for (size_t i = 0; i < 2 + TRP_OPTIMIZER_STATES_MAX; i++) {
                    check_vector((*b)->name, row, i, &got, &exact);
                    if (bits)
                        assert_memory_equal(got.vectors[i], first.vectors[i],
                                            count * sizeof(float));
                }
                stepped_cleanup(&got);
            }
            stepped_cleanup(&first);
            stepped_cleanup(&exact);
        }
}

/* ---- ranges --------------------------------------------------------------------------------- */

static void assert_same_bits(const struct stepped *a, const struct stepped *b, size_t row)
{
    for (size_t i = 0; i < 2 + TRP_OPTIMIZER_STATES_MAX; i++)
        if (memcmp(a->vectors[i], b->vectors[i], a->count * a->element_bytes) != 0)
            fail_msg("%s: vector %zu has other bits", golden_options[row].name, i);
}

static void ranges_cut_anywhere_give_the_same_bits(void **state)
{
    (void)state;
    enum { COUNT = 53 };
    for (size_t row = 0; row < OPTIMIZERS; row++) {
        trp_optimizer optimizer = optimizer_at(row);
        if (trp_optimizer_is_layerwise(&optimizer))
            continue;
        for (const struct backend *const *b = every_backend(); *b; b++) {
            if (!(*b)->step)
                continue;
            struct stepped whole = steps_of(*b, row, COUNT);
            for (size_t cut = 0; cut <= COUNT; cut++) {
                struct stepped s = stepped_create(COUNT, sizeof(float), golden_options[row].zeros);
                for (uint64_t step = 1; step <= GOLDEN_STEPS; step++) {
                    set_gradients(&s, step);
                    step_range(*b, &optimizer, &s, step, 0.5, cut, COUNT);
                    step_range(*b, &optimizer, &s, step, 0.5, 0, cut);
                }
                assert_same_bits(&s, &whole, row);
                stepped_cleanup(&s);
            }
            stepped_cleanup(&whole);
        }
    }
}

static void the_public_step_leaves_what_is_outside_of_its_range(void **state)
{
    (void)state;
    enum { COUNT = 37, LO = 5, HI = 30 };
    for (size_t row = 0; row < OPTIMIZERS; row++) {
        trp_optimizer optimizer = optimizer_at(row);
        struct stepped s = stepped_create(COUNT, sizeof(float), false);
        struct stepped inner = stepped_create(COUNT, sizeof(float), false);
        set_gradients(&s, 1);
        set_gradients(&inner, 1);
        float *state_of[TRP_OPTIMIZER_STATES_MAX];
        for (size_t i = 0; i < TRP_OPTIMIZER_STATES_MAX; i++)
            state_of[i] = s.vectors[2 + i];
        trp_optimizer_step(&optimizer, 3, 0.5F, s.vectors[0], s.vectors[1], state_of, LO, HI);
        step_range(backend_simd(), &optimizer, &inner, 3, 0.5, LO, HI);
        assert_same_bits(&s, &inner, row);
        for (size_t i = 0; i < trp_optimizer_states(&optimizer); i++)
            for (size_t k = 0; k < COUNT; k++)
                assert_int_equal(state_of[i][k] != 0, LO <= k && k < HI);
        stepped_cleanup(&s);
        stepped_cleanup(&inner);
    }
}

/* Parameters that nothing was ever said about stay what they were: between tensors there are zeros.
 */
static void zeros_without_a_gradient_stay_zeros(void **state)
{
    (void)state;
    for (size_t row = 0; row < OPTIMIZERS; row++) {
        trp_optimizer optimizer = optimizer_at(row);
        float params[5] = {0}, grads[5] = {0}, memory[TRP_OPTIMIZER_STATES_MAX][5] = {{0}};
        float *states[] = {memory[0], memory[1], memory[2]};
        for (uint64_t step = 1; step <= 3; step++)
            trp_optimizer_step(&optimizer, step, 1, params, grads, states, 0, 5);
        for (size_t i = 0; i < 5; i++)
            assert_true(params[i] == 0);
    }
}

/* PyTorch's Adagrad: the sum of squares never forgets, and epsilon is beside the root. */
static void adagrad_divides_by_the_root_of_all_squares(void **state)
{
    (void)state;
    const trp_optimizer adagrad = {.kind = TRP_ADAGRAD, .learning_rate = 0.5, .epsilon = 1e-3};
    float params[3] = {1, 2, 3}, square[3] = {0};
    double expected[3] = {1, 2, 3}, sum[3] = {0};
    assert_int_equal(trp_optimizer_states(&adagrad), 1);
    for (uint64_t step = 1; step <= 20; step++) {
        float grads[3];
        for (size_t i = 0; i < 3; i++) {
            double g = (double)(step % 4) - (double)i / 2;
            grads[i] = (float)g;
            sum[i] += g * g;
            expected[i] -= 0.5 * g / (sqrt(sum[i]) + 1e-3);
        }
        trp_optimizer_step(&adagrad, step, 1, params, grads, (float *[]){square}, 0, 3);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_float_equal(square[i], sum[i], 1e-4);
        assert_float_equal(params[i], expected[i], 1e-5);
    }
}

static void lambs_step_is_as_long_as_the_tensor(void **state)
{
    (void)state;
    const trp_optimizer lamb = {.kind = TRP_LAMB, .learning_rate = 0.25};
    assert_true(trp_optimizer_is_layerwise(&lamb));
    assert_false(trp_optimizer_is_layerwise(&(trp_optimizer){0}));
    float params[2] = {3, -4}, grads[2] = {1e-3F, 20}, m[2] = {0}, v[2] = {0};
    trp_optimizer_step(&lamb, 1, 1, params, grads, (float *[]){m, v}, 0, 2);
    /* |p| = 5 and |u| = |(1, 1)| = sqrt(2), whatever the gradient */
    double step = 0.25 * 5 / sqrt(2);
    assert_float_equal(params[0], 3 - step, 4e-3); /* epsilon is felt in 1e-3 */
    assert_float_equal(params[1], -4 - step, 4e-3);
}

/* ---- clipping, rates, names -------------------------------------------------------------------
 */

static void clipping_scales_to_the_largest_norm(void **state)
{
    (void)state;
    float values[40];
    for (int i = 0; i < 40; i++)
        values[i] = i == 2 ? 3 : i == 39 ? -4 : i < 2 ? 100 : 0;
    for (const struct backend *const *b = every_backend(); *b; b++) {
        assert_true((*b)->norm2(values + 2, 38) == 25);
        assert_true((*b)->norm2(values, 40) == 20025);
    }
    assert_true(trp_norm2(values, 2, 40) == 25);
    assert_true(trp_norm2(values, 3, 3) == 0);
    assert_true(trp_clip_scale(25, 10) == 1);
    assert_true(trp_clip_scale(25, 2.5f) == 0.5f);
    assert_true(trp_clip_scale(25, 0) == 1);
}

static void rates_follow_their_schedule(void **state)
{
    (void)state;
    trp_optimizer o = {.learning_rate = 1, .final_rate = 0.2, .schedule_steps = 4};
    assert_float_equal(trp_optimizer_rate(&o, 100), 1, 0);
    o.schedule = TRP_RATE_LINEAR;
    assert_float_equal(trp_optimizer_rate(&o, 1), 1, 1e-12);
    assert_float_equal(trp_optimizer_rate(&o, 3), 0.6, 1e-12);
    assert_float_equal(trp_optimizer_rate(&o, 9), 0.2, 1e-12);
    o.schedule = TRP_RATE_COSINE;
    assert_float_equal(trp_optimizer_rate(&o, 2), 0.2 + 0.8 * (1 + cos(M_PI / 4)) / 2, 1e-12);
    o.schedule = TRP_RATE_CONSTANT;
    o.warmup_steps = 10;
    assert_float_equal(trp_optimizer_rate(&o, 1), 0.1, 1e-12);
    assert_float_equal(trp_optimizer_rate(&o, 10), 1, 1e-12);
}

static void states_have_names_of_their_own(void **state)
{
    (void)state;
    for (size_t row = 0; row < OPTIMIZERS; row++) {
        const trp_optimizer *optimizer = &golden_options[row].optimizer;
        const char *name = trp_optimizer_name(optimizer->kind);
        size_t count = trp_optimizer_states(optimizer);
        assert_true(count <= TRP_OPTIMIZER_STATES_MAX);
        for (size_t i = 0; i < count; i++) {
            const char *vector = trp_optimizer_state_name(optimizer, i);
            assert_memory_equal(vector, name, strlen(name));
            assert_int_equal(vector[strlen(name)], '.');
            for (size_t k = 0; k < i; k++)
                assert_string_not_equal(vector, trp_optimizer_state_name(optimizer, k));
        }
    }
    assert_int_equal(trp_optimizer_states(&(trp_optimizer){.kind = TRP_SGD}), 0);
    assert_int_equal(trp_optimizer_states(&(trp_optimizer){.kind = TRP_SGD, .momentum = 0.9}), 1);
    assert_int_equal(trp_optimizer_states(
                         &(trp_optimizer){.kind = TRP_RMSPROP, .momentum = 0.9, .centered = true}),
                     3);
}

static void assert_refused(trp_optimizer optimizer, const char *words)
{
    assert_int_equal(trp_optimizer_check(&optimizer, "params"), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), words);
}

static void an_optimizer_that_is_none_is_refused_by_name(void **state)
{
    (void)state;
    assert_int_equal(trp_optimizer_check(&(trp_optimizer){0}, "params"), TRP_OK);
    assert_refused((trp_optimizer){.beta1 = 1},
                   "params: the optimizer's beta1 is 1, must be in [0, 0.999999]");
    assert_refused((trp_optimizer){.max_norm = NAN},
                   "params: the optimizer's max_norm is nan, must be in [0, 1e+30]");
    assert_refused((trp_optimizer){.kind = (trp_optimizer_kind)TRP_OPTIMIZER_KINDS},
                   "params: the optimizer's kind is 6, must be in [0, 5]");
    assert_refused((trp_optimizer){.weight_decay = -1},
                   "params: the optimizer's weight_decay is -1, must be in [0, 1e+06]");
    assert_refused((trp_optimizer){.momentum = 0.9},
                   "params: the optimizer adam has no option momentum");
    assert_refused((trp_optimizer){.kind = TRP_SGD, .centered = true},
                   "params: the optimizer sgd has no option centered");
    assert_refused((trp_optimizer){.kind = TRP_LAMB, .epsilon_inside = true},
                   "params: the optimizer lamb has no option epsilon_inside");
    assert_refused((trp_optimizer){.kind = TRP_RMSPROP, .momentum = 0.5, .nesterov = true},
                   "params: the optimizer rmsprop has no option nesterov");
    assert_refused((trp_optimizer){.kind = TRP_SGD, .nesterov = true},
                   "params: the optimizer's nesterov needs a momentum");
    assert_refused(
        (trp_optimizer){.schedule = TRP_RATE_COSINE},
        "params: the optimizer's schedule_steps is 0, must be how long its rate changes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_pytorch),
        cmocka_unit_test(every_backend_steps_as_the_reference_does),
        cmocka_unit_test(ranges_cut_anywhere_give_the_same_bits),
        cmocka_unit_test(the_public_step_leaves_what_is_outside_of_its_range),
        cmocka_unit_test(zeros_without_a_gradient_stay_zeros),
        cmocka_unit_test(adagrad_divides_by_the_root_of_all_squares),
        cmocka_unit_test(lambs_step_is_as_long_as_the_tensor),
        cmocka_unit_test(clipping_scales_to_the_largest_norm),
        cmocka_unit_test(rates_follow_their_schedule),
        cmocka_unit_test(states_have_names_of_their_own),
        cmocka_unit_test(an_optimizer_that_is_none_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
