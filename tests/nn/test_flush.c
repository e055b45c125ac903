/* On processors that compute subnormal numbers slowly, networks, optimizers and kernels on a host's
 * queue take them for zeros; their callers keep them. */
#include <troupe/device.h>
#include <troupe/optimizer.h>

#include "nn_tools.h"

#ifdef __x86_64__
static const bool flushes = true;
#else
static const bool flushes = false;
#endif

static const float half = 0x1p-64F; /* two of them make a subnormal product */
static const float least = 0x1p-126F;

static void assert_flushed(float value)
{
    assert_true(flushes == (value == 0));
}

/* The test's own arithmetic after whatever was called. */
static void assert_callers_keep_theirs(void)
{
    volatile float factor = half;
    assert_true(factor * factor > 0);
}

static void means_that_decay_end_at_zero(void **state)
{
    (void)state;
    trp_optimizer adam = {.kind = TRP_ADAM};
    float params[3] = {1, 1, 1}, grads[3] = {0};
    float mean[3] = {least, least, least}, square[3] = {least, least, least};
    trp_optimizer_step(&adam, 1, 1, params, grads, (float *[]){mean, square}, 0, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_flushed(mean[i]);
        assert_flushed(square[i]);
    }
    assert_callers_keep_theirs();
}

static void norms_take_them_for_zeros(void **state)
{
    (void)state;
    volatile float factor = half;
    float values[3] = {factor * factor, factor * factor, factor * factor};
    assert_flushed((float)(trp_norm2(values, 0, 3) * 0x1p200));
    assert_callers_keep_theirs();
}

static void passes_forward_and_backward_take_them_for_zeros(void **state)
{
    (void)state;
    enum { ROWS = 32, COUNT = 32 }; /* a weight and, aligned, a bias */
    trp_net_spec spec = trp_mlp(&(trp_mlp_options){.inputs = 1, .outputs = 1});
    assert_int_equal(trp_net_param_count(&spec), COUNT);
    for (uint32_t threads = 1; threads <= 2; threads++) {
        trp_net *net;
        OR_FAIL(trp_net_create(
            &net, &(trp_net_options){.spec = &spec, .batch = ROWS, .threads = threads}));
        float params[COUNT] = {half}, grads[COUNT] = {0}, in[ROWS], out[ROWS], slopes[ROWS];
        for (size_t i = 0; i < ROWS; i++)
            in[i] = slopes[i] = half;
        trp_net_rows rows = {.rows = ROWS, .inputs = {in}, .outputs = {out}};
        trp_net_forward(net, params, &rows);
        assert_flushed(out[0]);
        assert_flushed(out[ROWS - 1]);
        trp_net_backward(net, params, &rows,
                         &(trp_net_grads){.outputs = {slopes}, .params = grads});
        assert_flushed(grads[0]);
        assert_callers_keep_theirs();
        trp_net_destroy(net);
    }
}

static void note_ready(void *context, size_t lo)
{
    (void)lo;
    ++*(uint32_t *)context;
    assert_callers_keep_theirs();
}

static void who_hears_of_gradients_within_a_pass_keeps_its_own(void **state)
{
    (void)state;
    enum { ROWS = 32, COUNT = 32 };
    trp_net_spec spec = trp_mlp(&(trp_mlp_options){.inputs = 1, .outputs = 1});
    for (uint32_t threads = 1; threads <= 2; threads++) {
        trp_net *net;
        OR_FAIL(trp_net_create(
            &net, &(trp_net_options){.spec = &spec, .batch = ROWS, .threads = threads}));
        float params[COUNT] = {half}, grads[COUNT] = {0}, in[ROWS] = {half}, out[ROWS];
        uint32_t calls = 0;
        trp_net_rows rows = {.rows = ROWS, .inputs = {in}, .outputs = {out}};
        trp_net_forward(net, params, &rows);
        trp_net_backward(
            net, params, &rows,
            &(trp_net_grads){
                .outputs = {in}, .params = grads, .ready = note_ready, .context = &calls});
        assert_int_equal(calls, 1);
        assert_callers_keep_theirs();
        trp_net_destroy(net);
    }
}

struct square {
    const float *of;
    float *to;
};

static void square_run(void *arguments)
{
    struct square *square = arguments;
    *square->to = *square->of * *square->of;
}

static void kernels_on_a_queue_take_them_for_zeros(void **state)
{
    (void)state;
    static const trp_kernel kernel = {.name = "test.square", .run = square_run};
    trp_device *device;
    trp_queue *queue;
    OR_FAIL(trp_device_find(&device, "cpu"));
    OR_FAIL(trp_queue_create(&queue, device));
    float of = half, to = 1;
    trp_queue_run(queue, &kernel, &(struct square){&of, &to}, sizeof(struct square), NULL, 0);
    assert_flushed(to);
    assert_callers_keep_theirs();
    trp_queue_destroy(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_that_decay_end_at_zero),
        cmocka_unit_test(norms_take_them_for_zeros),
        cmocka_unit_test(passes_forward_and_backward_take_them_for_zeros),
        cmocka_unit_test(who_hears_of_gradients_within_a_pass_keeps_its_own),
        cmocka_unit_test(kernels_on_a_queue_take_them_for_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
