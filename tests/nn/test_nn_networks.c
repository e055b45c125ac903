/* Whole networks: a recurrent one over a time axis, and the usual ones, which learn. */
#include "nn_tools.h"

#include <troupe/optimizer.h>
#include <troupe/policy_losses.h>

static void a_sequence_cut_anywhere_gives_the_same_bits(void **state)
{
    (void)state;
    enum { STEPS = 6, SEQUENCES = 3, INPUTS = 4, OUT = 2, HIDDEN = 5 };
    for (int gru = 0; gru < 2; gru++) {
        trp_net_spec spec = trp_mlp(&(trp_mlp_options){.inputs = INPUTS,
                                                       .hidden = {8},
                                                       .outputs = OUT,
                                                       .core = gru ? TRP_CORE_GRU : TRP_CORE_LSTM,
                                                       .core_size = HIDDEN});
        uint32_t width = trp_net_state_width(&spec);
        assert_int_equal(width, gru ? HIDDEN : 2 * HIDDEN);
        trp_rng rng;
        trp_rng_init(&rng, 21, 0);
        float *params = trp_floats_create(trp_net_param_count(&spec));
        trp_net_init(&spec, &rng, params);
        float *in = random_floats(&rng, STEPS * SEQUENCES * INPUTS, 1);
        uint8_t resets[STEPS * SEQUENCES] = {[4] = 1, [9] = 1, [10] = 1};
        float whole[STEPS * SEQUENCES * OUT], parts[STEPS * SEQUENCES * OUT];
        float end[2][SEQUENCES * 2 * HIDDEN];
        trp_net *net;
        OR_FAIL(trp_net_create(&net, &(trp_net_options){.spec = &spec, .batch = 18}));
        trp_net_forward(net, params,
                        &(trp_net_rows){.rows = STEPS * SEQUENCES,
                                        .steps = STEPS,
                                        .resets = resets,
                                        .inputs = {in},
                                        .outputs = {whole},
                                        .end_state = end[0]});
        /* The first row is the first sequence, whose reset at step 3 is row 9: from there on it is
         * as if it began there. */
        trp_net_forward(net, params,
                        &(trp_net_rows){.rows = 3 * SEQUENCES,
                                        .steps = 3,
                                        .inputs = {in + 9 * INPUTS},
                                        .outputs = {parts}});
        for (size_t step = 0; step < 3; step++)
            assert_memory_equal(parts + step * SEQUENCES * OUT,
                                whole + (9 + step * SEQUENCES) * OUT, OUT * sizeof(float));
        for (uint32_t cut = 1; cut < STEPS; cut++) {
            poison(net);
            trp_net_rows rows = {.rows = cut * SEQUENCES,
                                 .steps = cut,
                                 .resets = resets,
                                 .inputs = {in},
                                 .outputs = {parts},
                                 .end_state = end[1]};
            trp_net_forward(net, params, &rows);
            rows.rows = (STEPS - cut) * SEQUENCES;
            rows.steps = STEPS - cut;
            rows.resets = resets + cut * SEQUENCES;
            rows.inputs[0] = in + cut * SEQUENCES * INPUTS;
            rows.outputs[0] = parts + cut * SEQUENCES * OUT;
            rows.state = end[1]; /* in place */
            trp_net_forward(net, params, &rows);
            assert_memory_equal(parts, whole, sizeof whole);
            assert_memory_equal(end[0], end[1], SEQUENCES * width * sizeof(float));
        }
        trp_net_destroy(net);
        trp_floats_destroy(params);
        free(in);
    }
}

/* ---- usual networks -------------------------------------------------------------------------- */

/* Mean squared error of a head that learns one batch by heart. */
static float overfit(const trp_net_spec *spec, uint32_t rows, uint32_t steps, int updates)
{
    enum { OUT = 3 };
    size_t count = trp_net_param_count(spec), pixels = (size_t)rows * trp_net_input_width(spec, 0);
    float *vectors[4], q[16 * OUT], dq[16 * OUT], value[16], zeros[16] = {0}, loss = 0;
    uint8_t *images = xmalloc(pixels);
    trp_rng rng;
    trp_rng_init(&rng, 31, 0);
    for (int i = 0; i < 4; i++)
        vectors[i] = trp_floats_create(count);
    trp_net_init(spec, &rng, vectors[0]);
    for (size_t i = 0; i < pixels; i++)
        images[i] = (uint8_t)trp_rng_below(&rng, 256);
    trp_net *net;
    OR_FAIL(trp_net_create(&net, &(trp_net_options){.spec = spec, .batch = rows}));
    trp_net_rows batch = {.rows = rows, .steps = steps, .inputs = {images}, .outputs = {q, value}};
    for (int update = 1; update <= updates; update++) {
        memset(vectors[1], 0, count * sizeof(float));
        trp_net_forward(net, vectors[0], &batch);
        loss = 0;
        for (uint32_t i = 0; i < rows * OUT; i++) {
            float error = q[i] - (float)(i * 7 % 5) / 5;
            loss += error * error / (float)(rows * OUT);
            dq[i] = 2 * error / (float)(rows * OUT);
        }
        trp_net_backward(net, vectors[0], &batch,
                         &(trp_net_grads){.outputs = {dq, zeros}, .params = vectors[1]});
        trp_optimizer_step(&(trp_optimizer){.learning_rate = 1e-3}, (uint64_t)update, 1, vectors[0],
                           vectors[1], (float *[]){vectors[2], vectors[3]}, 0, count);
    }
    trp_net_destroy(net);
    free(images);
    for (int i = 0; i < 4; i++)
        trp_floats_destroy(vectors[i]);
    return loss;
}

static void usual_networks_learn_a_batch_by_heart(void **state)
{
    (void)state;
    trp_cnn_options options = {.height = 36, .width = 36, .channels = 2, .outputs = 3};
    trp_net_spec nature = trp_nature_cnn(&options);
    options.value = true;
    options.core = TRP_CORE_LSTM;
    options.core_size = 64;
    options.height = options.width = 16;
    trp_net_spec impala = trp_impala_resnet(&options);
    assert_true(overfit(&nature, 4, 1, 40) < 1e-3F);
    assert_true(overfit(&impala, 6, 3, 180) < 1e-3F);
}

/* ---- Gaussian heads -------------------------------------------------------------------------- */

enum { SEEN = 64, UPDATES = 1500 };

/* What is done at x: 2 x, and noise that is larger where x is. */
static void demonstrate(trp_rng *rng, float *xs, float *actions)
{
    for (int i = 0; i < SEEN; i++) {
        xs[i] = (float)(2 * trp_rng_double(rng) - 1);
        actions[i] = 2 * xs[i] + expf(0.7F * xs[i] - 1.6F) * (float)trp_rng_normal(rng);
    }
}

/* A clone's mean and deviation at both ends of x. */
static void clone(bool shared, float mean[2], float log_std[2])
{
    trp_net_spec spec;
    memset(&spec, 0, sizeof spec);
    uint32_t x = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {1}});
    x = trp_net_add(
        &spec,
        (trp_layer){
            .kind = TRP_LINEAR, .name = "body", .from = {x}, .size = 16, .activation = TRP_TANH});
    trp_net_add_gaussian(&spec, x, 1, shared);
    size_t count = trp_net_param_count(&spec);
    float *vectors[4], xs[SEEN], actions[SEEN], means[SEEN], log_stds[SEEN], log_probs[SEEN];
    trp_rng rng;
    trp_rng_init(&rng, 41, 0);
    for (int i = 0; i < 4; i++)
        vectors[i] = trp_floats_create(count);
    trp_net_init(&spec, &rng, vectors[0]);
    trp_net *net;
    OR_FAIL(trp_net_create(&net, &(trp_net_options){.spec = &spec, .batch = SEEN}));
    trp_net_rows batch = {.rows = SEEN, .inputs = {xs}, .outputs = {means, log_stds}};
    trp_gaussian policy = {.rows = SEEN, .size = 1, .mean = means, .log_std = log_stds};
    trp_optimizer optimizer = {
        .learning_rate = 0.01, .schedule = TRP_RATE_LINEAR, .schedule_steps = UPDATES};
    for (int update = 1; update <= UPDATES; update++) {
        demonstrate(&rng, xs, actions);
        memset(vectors[1], 0, count * sizeof(float));
        trp_net_forward(net, vectors[0], &batch);
        trp_gaussian_log_prob(&policy, actions, log_probs);
        trp_cloning_loss(SEEN, NULL, log_probs, log_probs);
        trp_gaussian_backward(&policy, &(trp_gaussian_grads){.actions = actions,
                                                             .log_probs = log_probs,
                                                             .mean = means,
                                                             .log_std = log_stds});
        trp_net_backward(net, vectors[0], &batch,
                         &(trp_net_grads){.outputs = {means, log_stds}, .params = vectors[1]});
        trp_optimizer_step(&optimizer, (uint64_t)update, 1, vectors[0], vectors[1],
                           (float *[]){vectors[2], vectors[3]}, 0, count);
    }
    static const float ends[2] = {-0.8F, 0.8F};
    trp_net_forward(net, vectors[0],
                    &(trp_net_rows){.rows = 2, .inputs = {ends}, .outputs = {mean, log_std}});
    trp_net_destroy(net);
    for (int i = 0; i < 4; i++)
        trp_floats_destroy(vectors[i]);
}

static void a_gaussian_head_learns_means_and_deviations(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        float mean[2], log_std[2];
        clone(shared, mean, log_std);
        assert_float_equal(mean[0], -1.6, 0.15);
        assert_float_equal(mean[1], 1.6, 0.15);
        if (shared) { /* their mean square */
            assert_true(log_std[0] == log_std[1]);
            assert_float_equal(expf(log_std[0]), sqrt(exp(-3.2) * sinh(1.4) / 1.4), 0.03);
        } else {
            assert_float_equal(log_std[0], -2.16, 0.15);
            assert_float_equal(log_std[1], -1.04, 0.15);
        }
    }
}

static void the_usual_networks_have_the_papers_sizes(void **state)
{
    (void)state;
    trp_cnn_options options = {.height = 84, .width = 84, .channels = 4, .outputs = 18};
    trp_net_spec specs[] = {trp_nature_cnn(&options), trp_impala_resnet(&options)};
    static const size_t want[] = {1693362, 1093858};
    for (size_t s = 0; s < 2; s++) {
        trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
        size_t count = trp_net_tensors(&specs[s], tensors), elements = 0;
        for (size_t i = 0; i < count; i++)
            elements += tensors[i].count;
        assert_int_equal(elements, want[s]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_cut_anywhere_gives_the_same_bits),
        cmocka_unit_test(usual_networks_learn_a_batch_by_heart),
        cmocka_unit_test(a_gaussian_head_learns_means_and_deviations),
        cmocka_unit_test(the_usual_networks_have_the_papers_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
