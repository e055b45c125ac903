/* Layers that read nothing: a learned row, the same in every row of a batch. Random graphs have
 * them, too (test_nn_graph.c), and a file of PyTorch's (tests/actor/test_params_file.c). */
#include "nn_tools.h"

/* Two outputs: a mean, and what reads nothing. */
static trp_net_spec mean_and_parameter(float begins_at)
{
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    uint32_t x = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {2}});
    x = trp_net_add(&spec, (trp_layer){.kind = TRP_LINEAR, .name = "mean", .from = {x}, .size = 3});
    trp_net_output(&spec, x);
    x = trp_net_add(
        &spec,
        (trp_layer){.kind = TRP_PARAMETER, .name = "log_std", .size = 3, .value = begins_at});
    trp_net_output(&spec, x);
    return spec;
}

static void a_parameter_begins_at_its_value_under_its_own_name(void **state)
{
    (void)state;
    trp_net_spec spec = mean_and_parameter(-0.5F);
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    assert_int_equal(trp_net_tensors(&spec, tensors), 3);
    assert_string_equal(tensors[2].name, "log_std");
    assert_int_equal(tensors[2].rank, 1);
    assert_int_equal(tensors[2].shape[0], 3);
    float *params = trp_floats_create(trp_net_param_count(&spec));
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    trp_net_init(&spec, &rng, params);
    for (size_t i = 0; i < 3; i++)
        assert_true(params[tensors[2].offset + i] == -0.5F);
    trp_floats_destroy(params);
}

static void a_parameters_gradient_is_the_sum_over_the_rows_of_all_threads(void **state)
{
    (void)state;
    enum { ROWS = 80 }; /* enough for two parts */
    trp_net_spec spec = mean_and_parameter(0);
    size_t count = trp_net_param_count(&spec), at = count - 16;
    float in[ROWS * 2] = {0}, mean[ROWS * 3], log_std[ROWS * 3], dlog_std[ROWS * 3];
    for (size_t i = 0; i < ROWS * 3; i++)
        dlog_std[i] = (float)(i / 3 * (i % 3 + 1));
    for (int which = 0; which < 4; which++) {
        float *params = trp_floats_create(count), *grads = trp_floats_create(count);
        for (size_t i = 0; i < 3; i++)
            params[at + i] = (float)i;
        trp_net *net;
        trp_device *device;
        OR_FAIL(trp_device_find(&device, which % 2 ? "ref" : "cpu"));
        OR_FAIL(trp_net_create(&net, &(trp_net_options){.spec = &spec,
                                                        .batch = ROWS,
                                                        .device = device,
                                                        .threads = which / 2 ? 2 : 1}));
        trp_net_rows pass = {.rows = ROWS, .inputs = {in}, .outputs = {mean, log_std}};
        for (int time = 1; time < 3; time++) {
            trp_net_forward(net, params, &pass);
            for (size_t i = 0; i < ROWS * 3; i++)
                assert_true(log_std[i] == (float)(i % 3));
            trp_net_backward(net, params, &pass,
                             &(trp_net_grads){.outputs = {NULL, dlog_std}, .params = grads});
            for (size_t i = 0; i < 3; i++)
                assert_true(grads[at + i] == (float)time * (float)(i + 1) * ROWS * (ROWS - 1) / 2);
        }
        trp_net_destroy(net);
        trp_floats_destroy(params);
        trp_floats_destroy(grads);
    }
}

static void a_name_that_another_layer_gives_a_tensor_is_refused(void **state)
{
    (void)state;
    trp_layer parameter = {.kind = TRP_PARAMETER, .name = "l.bias", .size = 3};
    for (int first = 0; first < 2; first++) {
        trp_layer linear = {.kind = TRP_LINEAR, .name = "l", .size = 3};
        trp_net_spec twice = {0};
        trp_net_add(&twice, (trp_layer){.kind = TRP_INPUT, .shape = {2}});
        trp_net_output(&twice, trp_net_add(&twice, first ? parameter : linear));
        trp_net_add(&twice, first ? linear : parameter);
        assert_int_equal(trp_net_spec_check(&twice), TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(trp_last_error(), "layer 1 has a tensor l.bias, too"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_parameter_begins_at_its_value_under_its_own_name),
        cmocka_unit_test(a_parameters_gradient_is_the_sum_over_the_rows_of_all_threads),
        cmocka_unit_test(a_name_that_another_layer_gives_a_tensor_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
