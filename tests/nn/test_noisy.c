/* Noisy linear layers of a plan: against PyTorch's numbers, the paper's formula and a plain linear
 * layer; where noise comes from and when it is not there; how they begin and what they are called.
 */
#include "layer_case.h"

#include "golden_layers.h"

enum { INPUTS = 3, OUTPUTS = 4, ROWS = INPUTS + 1, STEP = 16, COUNT = 4 * STEP };

static trp_net_spec one_layer(trp_layer_kind kind)
{
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    uint32_t x = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {INPUTS}});
    trp_net_output(
        &spec,
        trp_net_add(&spec, (trp_layer){.kind = kind, .name = "l", .from = {x}, .size = OUTPUTS}));
    return spec;
}

static trp_net *plan_of(trp_layer_kind kind, const struct backend *backend)
{
    trp_net *net;
    trp_net_spec spec = one_layer(kind);
    OR_FAIL(net_create(&net, &(trp_net_options){.spec = &spec, .batch = ROWS}, backend));
    return net;
}

/* ---- against PyTorch ---------------------------------------------------------------------------
 */

static const double *golden_of(const char *tensor)
{
    for (size_t i = 0; i < sizeof golden_layers / sizeof golden_layers[0]; i++)
        if (strcmp(golden_layers[i].layer, "noisy") == 0 &&
            strcmp(golden_layers[i].tensor, tensor) == 0)
            return golden_layers[i].values;
    fail_msg("PyTorch has not made %s", tensor);
    return NULL;
}

static void assert_golden(const double *got, const char *tensor, size_t count)
{
    const double *want = golden_of(tensor);
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-12))
            fail_msg("%s[%zu] is %.15g, PyTorch has %.15g", tensor, i, got[i], want[i]);
}

/* Rows are the unit vectors and 0, so that outputs are weights plus biases, and biases. */
static void a_plan_has_the_numbers_of_pytorch(void **state)
{
    (void)state;
    trp_net *net = plan_of(TRP_NOISY_LINEAR, &backend_ref_f64);
    double params[COUNT] = {0}, grads[COUNT] = {0}, x[ROWS][INPUTS] = {{0}};
    double y[ROWS][OUTPUTS], dy[ROWS][OUTPUTS], dbias;
    static const uint32_t counts[] = {INPUTS * OUTPUTS, INPUTS * OUTPUTS, OUTPUTS, OUTPUTS};
    for (uint32_t t = 0; t < 4; t++)
        for (uint32_t i = 0; i < counts[t]; i++)
            params[t * STEP + i] = case_number(t, i);
    trp_rng rng;
    trp_rng_init(&rng, 0, 0);
    trp_net_resample(net, NULL, &rng);
    for (uint32_t i = 0; i < INPUTS + OUTPUTS; i++)
        ((double *)host_net(net)->noise)[i] = case_number(8, i);
    for (uint32_t o = 0; o < OUTPUTS; o++) {
        dbias = case_number(105, o);
        for (uint32_t i = 0; i < INPUTS; i++) {
            x[i][i] = 1;
            dy[i][o] = case_number(104, i * OUTPUTS + o);
            dbias -= dy[i][o];
        }
        dy[INPUTS][o] = dbias;
    }
    struct pass pass = {.params = params, .grads = grads, .steps = 1};
    pass.external[external_index(PLACE_INPUT, 0)] = x;
    pass.external[external_index(PLACE_OUTPUT, 0)] = y;
    pass.external[external_index(PLACE_OUTPUT_GRAD, 0)] = dy;
    net_forward(net, &pass, ROWS);
    net_backward(net, &pass);
    assert_golden(y[INPUTS], "bias", OUTPUTS);
    for (uint32_t i = 0; i < INPUTS; i++)
        for (uint32_t o = 0; o < OUTPUTS; o++)
            y[i][o] -= y[INPUTS][o];
    assert_golden(y[0], "w", INPUTS * OUTPUTS);
    assert_golden(grads, "w_mean", INPUTS * OUTPUTS);
    assert_golden(grads + STEP, "w_sigma", INPUTS * OUTPUTS);
    assert_golden(grads + 2 * STEP, "bias_mean", OUTPUTS);
    assert_golden(grads + 3 * STEP, "bias_sigma", OUTPUTS);
    trp_net_destroy(net);
}

/* ---- noise ---------------------------------------------------------------------------------- */

static double noise_of(trp_rng *rng)
{
    double x = trp_rng_normal(rng);
    return x < 0 ? -sqrt(-x) : sqrt(x);
}

static void noise_is_the_root_of_normal_numbers_of_the_stream(void **state)
{
    (void)state;
    trp_net *net = plan_of(TRP_NOISY_LINEAR, backend_simd());
    trp_rng rng;
    trp_rng_init(&rng, 6, 1);
    float *params = random_floats(&rng, COUNT, 1), *x = random_floats(&rng, INPUTS, 1);
    trp_rng stream = rng, same = rng;
    for (int draw = 0; draw < 2; draw++) {
        double in[INPUTS], out[OUTPUTS];
        float y[OUTPUTS];
        trp_net_resample(net, NULL, &stream);
        for (size_t i = 0; i < INPUTS; i++)
            in[i] = noise_of(&same);
        for (size_t o = 0; o < OUTPUTS; o++)
            out[o] = noise_of(&same);
        forward_one(net, params, x, 1, y);
        for (size_t o = 0; o < OUTPUTS; o++) {
            double want = (double)params[2 * STEP + o] + (double)params[3 * STEP + o] * out[o];
            for (size_t i = 0; i < INPUTS; i++) {
                size_t at = i * OUTPUTS + o;
                want += (double)x[i] *
                        ((double)params[at] + (double)params[STEP + at] * in[i] * out[o]);
            }
            assert_float_equal(y[o], want, 1e-5);
        }
    }
    assert_memory_equal(&stream, &same, sizeof stream);
    free(params);
    free(x);
    trp_net_destroy(net);
}

static void without_noise_it_is_a_linear_layer_with_its_means(void **state)
{
    (void)state;
    trp_net *noisy = plan_of(TRP_NOISY_LINEAR, backend_simd());
    trp_net *plain = plan_of(TRP_LINEAR, backend_simd());
    trp_rng rng;
    trp_rng_init(&rng, 7, 1);
    float *params = random_floats(&rng, COUNT, 1), *x = random_floats(&rng, ROWS * INPUTS, 1);
    float *dy = random_floats(&rng, ROWS * OUTPUTS, 1), means[2 * STEP];
    memcpy(means, params, STEP * sizeof *params);
    memcpy(means + STEP, params + 2 * STEP, STEP * sizeof *params);
    for (int round = 0; round < 2; round++) { /* a new plan, and one whose noise was taken away */
        float y[2][ROWS * OUTPUTS], grads[COUNT] = {0}, want[2 * STEP] = {0};
        forward_one(noisy, params, x, ROWS, y[0]);
        forward_one(plain, means, x, ROWS, y[1]);
        backward_one(noisy, params, x, dy, grads);
        backward_one(plain, means, x, dy, want);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        assert_memory_equal(grads, want, STEP * sizeof(float));
        assert_memory_equal(grads + 2 * STEP, want + STEP, STEP * sizeof(float));
        for (size_t i = 0; i < STEP; i++)
            assert_true(grads[STEP + i] == 0 && grads[3 * STEP + i] == 0);
        trp_net_resample(noisy, NULL, &rng);
        forward_one(noisy, params, x, ROWS, y[0]);
        assert_memory_not_equal(y[0], y[1], sizeof y[0]);
        trp_net_resample(noisy, NULL, NULL);
    }
    trp_rng before = rng;
    trp_net_resample(plain, NULL, &rng);
    assert_memory_equal(&before, &rng, sizeof rng);
    free(params);
    free(x);
    free(dy);
    trp_net_destroy(noisy);
    trp_net_destroy(plain);
}

/* ---- beginnings and names ---------------------------------------------------------------------
 */

static void it_begins_as_in_the_paper(void **state)
{
    (void)state;
    trp_net_spec spec =
        trp_mlp(&(trp_mlp_options){.inputs = 100, .hidden = {50}, .outputs = 2, .noisy = true});
    spec.layers[2].sigma = 0.1F;
    float *params = trp_floats_create(trp_net_param_count(&spec)), most = 0;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    trp_net_init(&spec, &rng, params);
    static const char *const names[] = {
        "body.0.weight_mu", "body.0.weight_sigma", "body.0.bias_mu", "body.0.bias_sigma",
        "head.weight_mu",   "head.weight_sigma",   "head.bias_mu",   "head.bias_sigma"};
    assert_int_equal(trp_net_tensors(&spec, tensors), 8);
    for (size_t t = 0; t < 8; t++) {
        assert_string_equal(tensors[t].name, names[t]);
        assert_int_equal(tensors[t].rank, t % 4 < 2 ? 2 : 1);
        assert_int_equal(tensors[t].shape[0], t < 4 ? 50 : 2);
        double inputs = t < 4 ? 100 : 50, sigma = t < 4 ? 0.5 : 0.1;
        const float *values = params + tensors[t].offset;
        for (size_t i = 0; i < tensors[t].count; i++)
            if (t % 2 == 1)
                assert_float_equal(values[i], sigma / sqrt(inputs), 1e-7);
            else
                assert_true(fabs((double)values[i]) <= 1 / sqrt(inputs));
        for (size_t i = 0; t == 0 && i < tensors[t].count; i++)
            most = fmaxf(most, fabsf(values[i]));
    }
    assert_true(most > 0.099F);
    trp_floats_destroy(params);
    spec.layers[2].sigma = -1;
    assert_int_equal(trp_net_spec_check(&spec), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "(head): sigma is -1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_has_the_numbers_of_pytorch),
        cmocka_unit_test(noise_is_the_root_of_normal_numbers_of_the_stream),
        cmocka_unit_test(without_noise_it_is_a_linear_layer_with_its_means),
        cmocka_unit_test(it_begins_as_in_the_paper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
