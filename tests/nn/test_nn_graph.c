/* Graphs of layers: random ones against finite differences in double, every backend against the
 * reference, several inputs and outputs, gradients of inputs, tensors in PyTorch's order, how
 * networks begin, and specs that are none. */
#include "graph_case.h"

static double case_objective(struct graph_case *c)
{
    double sum = 0;
    net_forward(c->net, &c->pass, c->rows);
    for (uint32_t i = 0; i < c->spec.output_count; i++)
        for (size_t j = 0; j < (size_t)c->rows * trp_net_output_width(&c->spec, i); j++)
            sum += ((double *)c->outputs[i])[j] * ((double *)c->output_grads[i])[j];
    for (size_t i = 0; i < c->state_count; i++)
        sum += ((double *)c->end_state)[i] * ((double *)c->end_state_grad)[i];
    return sum;
}

static void assert_differences(struct graph_case *c, double *values, const double *grads,
                               size_t count, const char *what, uint64_t seed)
{
    const double h = 1e-5;
    for (size_t i = 0; i < count; i++) {
        double value = values[i];
        values[i] = value + h;
        double above = case_objective(c);
        values[i] = value - h;
        double below = case_objective(c);
        values[i] = value;
        double difference = (above - below) / (2 * h);
        if (!(fabs(difference - grads[i]) <= 1e-6 * fmax(1, fabs(difference))))
            fail_msg("graph %llu, %s %zu: %.12g, finite difference %.12g", (unsigned long long)seed,
                     what, i, grads[i], difference);
    }
}

static void random_graphs_have_the_gradients_of_finite_differences(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        trp_rng rng;
        trp_rng_init(&rng, seed, 5);
        trp_net_spec spec = random_spec(&rng);
        struct graph_case c;
        graph_case_init(&c, &spec, &backend_ref_f64, 3, 1);
        case_objective(&c);
        net_backward(c.net, &c.pass);
        assert_differences(&c, c.params, c.grads, c.count, "parameter", seed);
        for (uint32_t i = 0; i < input_count(&spec); i++)
            if (has_grad(&spec, i))
                assert_differences(&c, c.inputs[i], c.input_grads[i],
                                   c.rows * (size_t)trp_net_input_width(&spec, i), "input", seed);
        assert_differences(&c, c.state, c.state_grad, c.state_count, "state", seed);
        graph_case_cleanup(&c);
    }
}

static void every_backend_and_any_number_of_threads_agree_on_random_graphs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        trp_rng rng;
        trp_rng_init(&rng, seed, 5);
        trp_net_spec spec = random_spec(&rng);
        struct graph_case want, got;
        graph_case_run(&want, &spec, &backend_ref_f32, 21, 1);
        for (const struct backend *const *b = every_backend(); *b; b++)
            for (uint32_t threads = 1; threads <= 2; threads++) {
                graph_case_run(&got, &spec, *b, 21, threads);
                assert_same_results(&got, &want, 3e-4, false); /* sums of 21 slopes */
                graph_case_cleanup(&got);
            }
        graph_case_cleanup(&want);
    }
}

static void a_graph_repeats_its_bits(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        trp_rng rng;
        trp_rng_init(&rng, seed, 6);
        trp_net_spec spec = random_spec(&rng);
        struct graph_case first, second;
        graph_case_run(&first, &spec, backend_simd(), 17, 1);
        graph_case_run(&second, &spec, backend_simd(), 17, 1);
        assert_same_results(&second, &first, 0, true);
        graph_case_cleanup(&first);
        graph_case_cleanup(&second);
    }
}

/* ---- what is not asked for ------------------------------------------------------------------- */

/* A critic: observation and action in, two values out. */
static trp_net_spec critic_spec(void)
{
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    uint32_t x = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {3}});
    uint32_t a = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {2}});
    uint32_t both =
        trp_net_add(&spec, (trp_layer){.kind = TRP_CONCAT, .from = {x, a}, .from_count = 2});
    for (uint32_t i = 0; i < 2; i++) {
        trp_layer body = {.kind = TRP_LINEAR, .from = {both}, .size = 8, .activation = TRP_TANH};
        snprintf(body.name, sizeof body.name, "q%u.0", i);
        trp_layer head = {.kind = TRP_LINEAR, .from = {trp_net_add(&spec, body)}, .size = 1};
        snprintf(head.name, sizeof head.name, "q%u.1", i);
        trp_net_output(&spec, trp_net_add(&spec, head));
    }
    return spec;
}

static void what_is_not_asked_for_is_left_out(void **state)
{
    (void)state;
    enum { ROWS = 5 };
    trp_net_spec spec = critic_spec();
    size_t count = trp_net_param_count(&spec);
    float *params = trp_floats_create(count), *all = trp_floats_create(count),
          *some = trp_floats_create(count);
    float x[ROWS * 3], a[ROWS * 2], q[2][ROWS], dq[ROWS], zeros[ROWS] = {0};
    float dx[ROWS * 3], da[2][ROWS * 2];
    trp_rng rng;
    trp_rng_init(&rng, 3, 3);
    trp_net_init(&spec, &rng, params);
    for (int i = 0; i < ROWS * 3; i++)
        x[i] = (float)trp_rng_normal(&rng);
    for (int i = 0; i < ROWS * 2; i++)
        a[i] = (float)trp_rng_normal(&rng);
    for (int i = 0; i < ROWS; i++)
        dq[i] = (float)trp_rng_normal(&rng);
    trp_net *net;
    OR_FAIL(trp_net_create(&net, &(trp_net_options){.spec = &spec, .batch = ROWS}));
    trp_net_rows rows = {.rows = ROWS, .inputs = {x, a}, .outputs = {q[0], q[1]}};
    trp_net_forward(net, params, &rows);
    trp_net_backward(
        net, params, &rows,
        &(trp_net_grads){.outputs = {dq, zeros}, .params = all, .inputs = {dx, da[0]}});
    trp_net_forward(net, params, &rows);
    /* No gradient of the second value, none for parameters and observations. */
    trp_net_backward(net, params, &rows,
                     &(trp_net_grads){.outputs = {dq}, .inputs = {NULL, da[1]}});
    assert_memory_equal(da[0], da[1], sizeof da[0]);
    trp_net_forward(net, params, &rows);
    trp_net_backward(net, params, &rows, &(trp_net_grads){.outputs = {dq}, .params = some});
    assert_memory_equal(all, some, count * sizeof *all);
    float size = 0;
    for (int i = 0; i < ROWS * 2; i++)
        size += fabsf(da[0][i]);
    assert_true(size > 0);
    trp_net_destroy(net);
    trp_floats_destroy(params);
    trp_floats_destroy(all);
    trp_floats_destroy(some);
}

static void a_plan_that_only_runs_forward_gives_the_same_bits_in_less_memory(void **state)
{
    (void)state;
    trp_net_spec spec = trp_mlp(
        &(trp_mlp_options){.inputs = 4, .hidden = {64, 64, 64, 64}, .outputs = 3, .dueling = true});
    trp_net *nets[2];
    float *params = trp_floats_create(trp_net_param_count(&spec)), out[2][9 * 3];
    trp_rng rng;
    trp_rng_init(&rng, 4, 4);
    trp_net_init(&spec, &rng, params);
    float *in = random_floats(&rng, 9 * 4, 1);
    for (int i = 0; i < 2; i++) {
        OR_FAIL(trp_net_create(
            &nets[i], &(trp_net_options){.spec = &spec, .batch = 9, .forward_only = i == 1}));
        poison(nets[i]);
        forward_one(nets[i], params, in, 9, out[i]);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    assert_true(nets[1]->program.arena_row * 2 < nets[0]->program.arena_row);
    trp_net_destroy(nets[0]);
    trp_net_destroy(nets[1]);
    trp_floats_destroy(params);
    free(in);
}

static void bytes_are_scaled(void **state)
{
    (void)state;
    const uint8_t bytes[2][4] = {{0, 255, 51, 102}, {1, 2, 3, 4}};
    for (int given = 0; given < 2; given++) {
        trp_net_spec spec =
            trp_mlp(&(trp_mlp_options){.inputs = 4, .outputs = 1, .dtype = TRP_UINT8});
        spec.layers[0].scale = given ? 0.5F : 0;
        float params[32] = {1, 10, 100, 1000}, out[2];
        float scale = given ? 0.5F : 1.0F / 255;
        trp_net *net;
        OR_FAIL(trp_net_create(&net, &(trp_net_options){.spec = &spec, .batch = 2}));
        assert_int_equal(trp_net_param_count(&spec), 32);
        forward_one(net, params, bytes, 2, out);
        assert_close(out, (float[]){scale * 109650, scale * 4321}, 2, 1e-6, "value");
        trp_net_destroy(net);
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void tensors_have_pytorchs_names_shapes_and_order(void **state)
{
    (void)state;
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    uint32_t image = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {2, 3, 2}});
    trp_net_output(
        &spec,
        trp_net_add(&spec,
                    (trp_layer){.kind = TRP_LINEAR, .name = "body.0", .from = {image}, .size = 5}));
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    assert_int_equal(trp_net_tensors(&spec, tensors), 2);
    assert_string_equal(tensors[0].name, "body.0.weight");
    assert_string_equal(tensors[1].name, "body.0.bias");
    assert_int_equal(tensors[0].rank, 2);
    assert_int_equal(tensors[0].shape[0], 5);
    assert_int_equal(tensors[0].shape[1], 12);
    float params[80], torch[60], back[80] = {0};
    for (int i = 0; i < 60; i++)
        params[i] = (float)i;
    trp_net_tensor_get(&tensors[0], params, torch);
    /* PyTorch flattens [channel][row][column]; here it is [row][column][channel]. */
    for (size_t out = 0; out < 5; out++)
        for (size_t c = 0; c < 2; c++)
            for (size_t y = 0; y < 2; y++)
                for (size_t x = 0; x < 3; x++)
                    assert_true(torch[out * 12 + (c * 2 + y) * 3 + x] ==
                                params[((y * 3 + x) * 2 + c) * 5 + out]);
    trp_net_tensor_set(&tensors[0], torch, back);
    assert_memory_equal(params, back, 60 * sizeof(float));
}

/* ---- how networks begin ---------------------------------------------------------------------- */

static trp_net_spec one_linear(uint32_t inputs, uint32_t outputs, trp_initializer init, float gain)
{
    trp_net_spec spec = trp_mlp(&(trp_mlp_options){.inputs = inputs, .outputs = outputs});
    spec.layers[1].init = init;
    spec.layers[1].gain = gain;
    return spec;
}

static void orthogonal_weights_are_orthogonal(void **state)
{
    (void)state;
    static const uint32_t sizes[][2] = {{6, 9}, {9, 6}, {7, 7}};
    for (size_t s = 0; s < 3; s++) {
        uint32_t inputs = sizes[s][0], outputs = sizes[s][1];
        trp_net_spec spec = one_linear(inputs, outputs, TRP_INIT_ORTHOGONAL, 2);
        float *params = trp_floats_create(trp_net_param_count(&spec));
        trp_rng rng;
        trp_rng_init(&rng, s, 0);
        trp_net_init(&spec, &rng, params);
        bool tall = inputs >= outputs;
        uint32_t count = tall ? outputs : inputs, width = tall ? inputs : outputs;
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t j = 0; j < count; j++) {
                float dot = 0;
                for (uint32_t k = 0; k < width; k++)
                    dot += tall ? params[k * outputs + i] * params[k * outputs + j]
                                : params[i * outputs + k] * params[j * outputs + k];
                assert_true(fabsf(dot - (i == j ? 4.0F : 0.0F)) < 1e-5F);
            }
        assert_true(params[round_up((size_t)inputs * outputs, 16)] == 0); /* a bias */
        trp_floats_destroy(params);
    }
}

static void weights_have_the_bound_or_variance_of_their_initialiser(void **state)
{
    (void)state;
    enum { INPUTS = 64, OUTPUTS = 128, COUNT = INPUTS * OUTPUTS };
    for (int variance = 0; variance < 2; variance++) {
        trp_net_spec spec = one_linear(
            INPUTS, OUTPUTS, variance ? TRP_INIT_VARIANCE : TRP_INIT_UNIFORM, variance ? 2 : 0);
        float *params = trp_floats_create(trp_net_param_count(&spec)), most = 0;
        double squares = 0;
        trp_rng rng;
        trp_rng_init(&rng, 8, 0);
        trp_net_init(&spec, &rng, params);
        for (int i = 0; i < COUNT; i++) {
            most = fmaxf(most, fabsf(params[i]));
            squares += (double)params[i] * (double)params[i] / COUNT;
        }
        double deviation = sqrt(2.0 / INPUTS) / 0.8796;
        double want = variance ? 2.0 / INPUTS : 3e-3 * 3e-3 / 3;
        assert_true(fabs(squares / want - 1) < 0.05);
        assert_true((double)most <= (variance ? 2 * deviation : 3e-3));
        trp_floats_destroy(params);
    }
}

/* ---- specs that are none --------------------------------------------------------------------- */

static trp_net_spec spec_of_two(trp_layer layer)
{
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {4}});
    trp_net_output(&spec, trp_net_add(&spec, layer));
    return spec;
}

static void wrong_layers_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        trp_layer layer;
        const char *words;
    } rows[] = {
        {{.kind = (trp_layer_kind)99}, "network layer 1: kind 99 is unknown"},
        {{.kind = TRP_LINEAR, .size = 3}, "network layer 1: has parameters and no name"},
        {{.kind = TRP_LINEAR, .name = "a b", .size = 3}, "the name has a byte"},
        {{.kind = TRP_LINEAR, .name = "l", .from = {1}, .size = 3}, "(l): reads layer 1, which"},
        {{.kind = TRP_LINEAR, .name = "l", .from_count = 2, .size = 3}, "reads 2 others"},
        {{.kind = TRP_LINEAR, .name = "l", .size = 3, .gain = -1}, "gain is -1"},
        {{.kind = TRP_LINEAR, .name = "l", .size = 3, .init = (trp_initializer)9}, "initialiser 9"},
        {{.kind = TRP_ADD}, "a layer of kind add reads 1 others; it must be 2 to 2"},
        {{.kind = TRP_SLICE, .first = 3, .size = 2}, "columns 3 and 2 more of 4"},
        {{.kind = TRP_SLICE, .first = UINT32_MAX, .size = 2}, "more of 4"},
        {{.kind = TRP_CONCAT, .activation = TRP_RELU}, "kind concat has no activation"},
        {{.kind = TRP_LINEAR, .name = "l", .size = 4, .kernel = 3}, "kind linear has no kernel"},
        {{.kind = TRP_ADD, .from_count = 2, .size = 4}, "kind add has no size"},
        {{.kind = TRP_MEAN_POOL, .kernel = 2, .gain = 2}, "kind mean pool has no gain"},
        {{.kind = TRP_LSTM, .name = "l", .size = 4, .sigma = 1}, "kind lstm has no sigma"},
        {{.kind = TRP_DUELING, .size = 3}, "a dueling head of"},
        {{.kind = TRP_ACTIVATION}, "without an activation"},
        {{.kind = TRP_INPUT, .shape = {3, 4}}, "has a shape of 2"},
        {{.kind = TRP_INPUT, .shape = {60000, 60000, 3}}, "columns; at most"},
        {{.kind = TRP_INPUT, .shape = {4}, .dtype = TRP_FLOAT64}, "the input is float64"},
        {{.kind = TRP_INPUT, .shape = {4}}, "network output 0 is an input"},
        {{.kind = TRP_CONV2D, .name = "c", .size = 3, .kernel = 2}, "(c): reads 4 columns, not"},
        {{.kind = TRP_EMBEDDING, .name = "e", .size = 3, .vocabulary = 5}, "an input of int32"},
        {{.kind = TRP_EMBEDDING, .name = "e", .size = 3}, "vocabulary is 0"},
        {{.kind = TRP_LSTM, .size = 3}, "has parameters and no name"},
        {{.kind = TRP_PARAMETER, .name = "p"}, "(p): size is 0"},
        {{.kind = TRP_PARAMETER, .name = "p", .size = 3, .value = NAN}, "(p): value is"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        trp_net_spec spec = spec_of_two(rows[i].layer);
        assert_int_equal(trp_net_spec_check(&spec), TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), rows[i].words))
            fail_msg("\"%s\" is not in: %s", rows[i].words, trp_last_error());
    }
    trp_net_spec spec = {0};
    for (uint32_t i = 0; i < TRP_NET_LAYERS_MAX + 5; i++)
        trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {1}});
    assert_int_equal(trp_net_spec_check(&spec), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "network has 69 layers; it must be 1 to 64"));
}

/* One field of a good spec becomes anything. */
static void spoil(trp_net_spec *spec, trp_rng *rng)
{
    uint32_t values[] = {0, 1, 2, 3, 7, 64, 65536, 65537, 1U << 31, UINT32_MAX};
    uint32_t value = values[trp_rng_below(rng, sizeof values / sizeof values[0])];
    size_t words = sizeof *spec / sizeof value;
    size_t layers = spec->layer_count < TRP_NET_LAYERS_MAX ? spec->layer_count : 1;
    size_t used = layers * sizeof(trp_layer) / sizeof value;
    size_t tail = sizeof spec->layers / (sizeof value);
    size_t place = trp_rng_below(rng, used + words - tail);
    place = place < used ? place : place - used + tail;
    memcpy((char *)spec + place * sizeof value, &value, sizeof value);
}

static void a_spoilt_spec_is_refused_or_works(void **state)
{
    (void)state;
    uint32_t refused = 0;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        trp_rng rng;
        trp_rng_init(&rng, seed, 9);
        trp_net_spec spec = random_spec(&rng);
        for (uint64_t i = trp_rng_below(&rng, 3) + 1; i > 0; i--)
            spoil(&spec, &rng);
        trp_net *net = NULL;
        if (trp_net_spec_check(&spec) != TRP_OK) {
            refused++;
            assert_non_null(strstr(trp_last_error(), "network"));
            assert_int_equal(trp_net_create(&net, &(trp_net_options){.spec = &spec}),
                             TRP_INVALID_ARGUMENT);
            continue;
        }
        if (trp_net_param_count(&spec) > 100000)
            continue;
        struct graph_case c;
        graph_case_run(&c, &spec, backend_simd(), 2, 1);
        graph_case_cleanup(&c);
    }
    assert_true(refused > 100);
    assert_true(refused < 950);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_have_the_gradients_of_finite_differences),
        cmocka_unit_test(every_backend_and_any_number_of_threads_agree_on_random_graphs),
        cmocka_unit_test(a_graph_repeats_its_bits),
        cmocka_unit_test(what_is_not_asked_for_is_left_out),
        cmocka_unit_test(a_plan_that_only_runs_forward_gives_the_same_bits_in_less_memory),
        cmocka_unit_test(bytes_are_scaled),
        cmocka_unit_test(tensors_have_pytorchs_names_shapes_and_order),
        cmocka_unit_test(orthogonal_weights_are_orthogonal),
        cmocka_unit_test(weights_have_the_bound_or_variance_of_their_initialiser),
        cmocka_unit_test(wrong_layers_are_refused_by_name),
        cmocka_unit_test(a_spoilt_spec_is_refused_or_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
