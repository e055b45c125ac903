/* Devices of the host: found by name, with memory and queues; and "ref" against "cpu". */
#include <troupe/device.h>
#include <troupe/optimizer.h>

#include "nn_tools.h"

static const char *const hosts[] = {"cpu", "ref"};

static trp_device *found(const char *name)
{
    trp_device *device;
    OR_FAIL(trp_device_find(&device, name));
    return device;
}

static void a_device_is_found_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(trp_device_name(found(hosts[i])), hosts[i]);
        assert_true(trp_device_is_host(found(hosts[i])));
        assert_ptr_equal(found(hosts[i]), found(hosts[i]));
    }
    assert_ptr_equal(found(NULL), found("cpu"));
    trp_device *device;
    assert_int_equal(trp_device_find(&device, "tpu:1"), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "'tpu:1'"));
    assert_non_null(strstr(trp_last_error(), "cpu, ref"));
    assert_null(device);
}

static void memory_is_zeroed_and_aligned_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        void *memory;
        OR_FAIL(trp_device_alloc(found(hosts[i]), 1000, &memory));
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t k = 0; k < 1000; k++)
            assert_int_equal(((char *)memory)[k], 0);
        trp_device_free(found(hosts[i]), memory);
        trp_device_free(found(hosts[i]), NULL);
        assert_int_equal(trp_device_alloc(found(hosts[i]), SIZE_MAX - 8, &memory),
                         TRP_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(trp_last_error(), hosts[i]));
        assert_null(memory);
    }
}

struct sum {
    const float *a, *b;
    float *to;
};

static void add(void *arguments)
{
    struct sum *sum = arguments;
    *sum->to = *sum->a + *sum->b;
}

static void a_host_has_done_what_was_put_on_a_queue(void **state)
{
    (void)state;
    static const trp_kernel kernel = {.name = "test.add", .run = add};
    trp_queue *queue;
    OR_FAIL(trp_queue_create(&queue, found("cpu")));
    assert_ptr_equal(trp_queue_device(queue), found("cpu"));
    float a = 1, b = 2, to = 0, copy;
    struct sum sum = {&a, &b, &to};
    trp_operand operands[] = {{offsetof(struct sum, a), sizeof a, TRP_READ},
                              {offsetof(struct sum, b), sizeof b, TRP_READ},
                              {offsetof(struct sum, to), sizeof to, TRP_WRITE}};
    trp_queue_run(queue, &kernel, &sum, sizeof sum, operands, 3);
    assert_true(to == 3);
    trp_queue_copy(queue, &copy, &to, sizeof to);
    assert_true(copy == 3);
    trp_queue_zero(queue, &to, sizeof to);
    assert_true(to == 0);
    assert_ptr_equal(trp_queue_upload(queue, NULL, &a, sizeof a), &a);
    assert_null(trp_queue_native(queue));
    OR_FAIL(trp_queue_sync(queue, trp_queue_mark(queue)));
    trp_queue_destroy(queue);
    trp_queue_destroy(NULL);
}

static void both_devices_say_the_same_of_a_network(void **state)
{
    (void)state;
    enum { ROWS = 5, IN = 7, OUT = 3 };
    trp_net_spec spec =
        trp_mlp(&(trp_mlp_options){.inputs = IN, .hidden = {9}, .outputs = OUT, .noisy = true});
    size_t count = trp_net_param_count(&spec);
    float *params = trp_floats_create(count), *grads[2], out[2][ROWS * OUT];
    trp_rng rng;
    trp_rng_init(&rng, 3, 0);
    trp_net_init(&spec, &rng, params);
    float *in = random_floats(&rng, ROWS * IN, 1), *slopes = random_floats(&rng, ROWS * OUT, 1);
    for (size_t i = 0; i < 2; i++) {
        trp_net *net;
        trp_queue *queue;
        OR_FAIL(trp_queue_create(&queue, found(hosts[i])));
        OR_FAIL(trp_net_create(
            &net, &(trp_net_options){.spec = &spec, .batch = ROWS, .device = found(hosts[i])}));
        trp_rng_init(&rng, 4, 0);
        trp_net_resample(net, queue, &rng);
        grads[i] = trp_floats_create(count);
        trp_net_rows rows = {.rows = ROWS, .queue = queue, .inputs = {in}, .outputs = {out[i]}};
        trp_net_forward(net, params, &rows);
        trp_net_backward(net, params, &rows,
                         &(trp_net_grads){.outputs = {slopes}, .params = grads[i]});
        trp_net_destroy(net);
        trp_queue_destroy(queue);
    }
    assert_close(out[0], out[1], ROWS * OUT, 1e-5, "output");
    assert_close(grads[0], grads[1], count, 1e-5, "gradient");
    free(in);
    free(slopes);
    trp_floats_destroy(params);
    trp_floats_destroy(grads[0]);
    trp_floats_destroy(grads[1]);
}

/* ---- phases ---------------------------------------------------------------------------------- */

enum { COUNT = 20 };

struct learned {
    trp_optimizer optimizer;
    float params[COUNT], grads[COUNT], velocity[COUNT], loss;
    trp_phases phases;
};

/* A phase in two ranges, with a gradient of `value` but for one number. */
static void learn(struct learned *learned, float value, size_t place, float other, float loss)
{
    trp_queue *queue;
    float *state[] = {learned->velocity, NULL, NULL};
    OR_FAIL(trp_queue_create(&queue, found("cpu")));
    for (size_t i = 0; i < COUNT; i++)
        learned->grads[i] = i == place ? other : value;
    learned->loss = loss;
    trp_phase_measure(queue, &learned->optimizer, learned->grads, COUNT, &learned->loss,
                      &learned->phases);
    trp_phase_step(queue, &learned->optimizer, learned->params, learned->grads, state, 7, COUNT,
                   &learned->phases);
    trp_phase_step(queue, &learned->optimizer, learned->params, learned->grads, state, 0, 7,
                   &learned->phases);
    trp_phase_end(queue, learned->grads, COUNT, &learned->phases);
    trp_queue_destroy(queue);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(learned->grads[i] == 0);
}

static void assert_params(const struct learned *learned, float value, uint64_t steps)
{
    for (size_t i = 0; i < COUNT; i++)
        assert_true(learned->params[i] == value);
    assert_int_equal(learned->phases.steps, steps);
}

static void a_phase_is_clipped_stepped_and_counted(void **state)
{
    (void)state;
    struct learned learned = {.optimizer = {.kind = TRP_SGD, .learning_rate = 1}};
    learn(&learned, 2, COUNT, 0, 0);
    assert_params(&learned, -2, 1);
    assert_true(learned.phases.norm2 == 4 * COUNT);
    learned.optimizer.max_norm = 0.5 * sqrt(COUNT);
    learn(&learned, -8, COUNT, 0, 0);
    assert_params(&learned, -1.5F, 2);
    learned = (struct learned){
        .optimizer = {.kind = TRP_SGD, .learning_rate = 1, .momentum = 0.5, .warmup_steps = 4}};
    learn(&learned, 4, COUNT, 0, 0); /* of rates 1/4 and 1/2 */
    learn(&learned, 4, COUNT, 0, 0);
    assert_params(&learned, -4, 2);
}

static void a_phase_that_is_refused_changes_nothing_and_neither_does_any_after_it(void **state)
{
    (void)state;
    static const struct {
        float gradient, loss;
        uint64_t place;
        bool by_watched;
    } rows[] = {{NAN, 0, 11, false},
                {INFINITY, 0, 3, false},
                {1, NAN, COUNT, true},
                {NAN, -INFINITY, COUNT, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct learned learned = {.optimizer = {.kind = TRP_SGD, .learning_rate = 1}};
        size_t place = rows[i].by_watched ? 11 : rows[i].place;
        learn(&learned, 1, COUNT, 0, 0);
        learn(&learned, 1, place, rows[i].gradient, rows[i].loss);
        assert_true(learned.phases.refused);
        assert_int_equal(learned.phases.place, rows[i].place);
        float value = rows[i].by_watched ? rows[i].loss : rows[i].gradient;
        assert_memory_equal(&learned.phases.value, &value, sizeof value);
        learn(&learned, 1, 2, NAN, 0);
        learn(&learned, 1, COUNT, 0, 0);
        assert_params(&learned, -1, 1);
        assert_int_equal(learned.phases.place, rows[i].place); /* the first one's */
        assert_int_equal(learned.phases.left_out, 0);
    }
}

static void a_phase_that_is_left_out_is_counted_and_the_next_one_is_not(void **state)
{
    (void)state;
    struct learned learned = {
        .optimizer = {.kind = TRP_SGD, .learning_rate = 1, .skip_not_finite = true}};
    learn(&learned, 1, COUNT, 0, 0);
    learn(&learned, 1, 5, NAN, 0);
    learn(&learned, 1, COUNT, 0, NAN);
    assert_params(&learned, -1, 1);
    assert_int_equal(learned.phases.left_out, 2);
    assert_false(learned.phases.refused);
    learn(&learned, 1, COUNT, 0, 0);
    assert_params(&learned, -2, 2);
}

static void a_target_follows_by_its_rate(void **state)
{
    (void)state;
    trp_queue *queue;
    OR_FAIL(trp_queue_create(&queue, found("cpu")));
    float target[3] = {0, 8, 8}, params[3] = {4, 4, 4};
    trp_polyak_update(queue, target, params, 0.25F, 2);
    assert_true(target[0] == 1 && target[1] == 7 && target[2] == 8);
    trp_queue_destroy(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_is_found_by_name),
        cmocka_unit_test(memory_is_zeroed_and_aligned_or_refused),
        cmocka_unit_test(a_host_has_done_what_was_put_on_a_queue),
        cmocka_unit_test(both_devices_say_the_same_of_a_network),
        cmocka_unit_test(a_phase_is_clipped_stepped_and_counted),
        cmocka_unit_test(a_phase_that_is_refused_changes_nothing_and_neither_does_any_after_it),
        cmocka_unit_test(a_phase_that_is_left_out_is_counted_and_the_next_one_is_not),
        cmocka_unit_test(a_target_follows_by_its_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
