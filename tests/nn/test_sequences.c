/* Plans with recurrent layers on several threads: each part takes some sequences through all
 * steps. */
#include "graph_case.h"

enum { SEQUENCES = 21, STEPS = 3, ROWS = SEQUENCES * STEPS };

/* Sequences [from, to) of all steps, or back to their places. */
static void move_sequences(void *all, void *own, size_t bytes, uint32_t steps, uint32_t sequences,
                           struct rows share, bool back)
{
    size_t part = (share.to - share.from) * bytes;
    for (uint32_t step = 0; step < steps; step++) {
        char *there = (char *)all + (step * (size_t)sequences + share.from) * bytes;
        char *here = (char *)own + step * part;
        memcpy(back ? there : here, back ? here : there, part);
    }
}

/* What `whole` was given for some sequences, through a plan of one thread; what that writes goes
 * where it belongs in `whole`, and its gradients are added. */
static void run_share(struct graph_case *whole, struct rows share, float *grads)
{
    struct graph_case c;
    uint32_t count = share.to - share.from, rows = count * STEPS;
    size_t width = trp_net_state_width(&whole->spec) * sizeof(float);
    graph_case_init(&c, &whole->spec, whole->backend, rows, 1);
    host_net(c.net)->has_noise = true;
    memcpy(host_net(c.net)->noise, host_net(whole->net)->noise,
           c.net->program.graph.noise_count * sizeof(float));
    memcpy(c.params, whole->params, c.count * sizeof(float));
    move_sequences(whole->resets, c.resets, 1, STEPS, SEQUENCES, share, false);
    move_sequences(whole->state, c.state, width, 1, SEQUENCES, share, false);
    move_sequences(whole->end_state_grad, c.end_state_grad, width, 1, SEQUENCES, share, false);
    for (uint32_t i = 0; i < input_count(&c.spec); i++)
        move_sequences(whole->inputs[i], c.inputs[i],
                       trp_net_input_width(&c.spec, i) * trp_dtype_size(input_dtype(&c.spec, i)),
                       STEPS, SEQUENCES, share, false);
    for (uint32_t i = 0; i < c.spec.output_count; i++)
        move_sequences(whole->output_grads[i], c.output_grads[i],
                       trp_net_output_width(&c.spec, i) * sizeof(float), STEPS, SEQUENCES, share,
                       false);
    net_forward(c.net, &c.pass, rows);
    net_backward(c.net, &c.pass);
    for (size_t i = 0; i < c.count; i++)
        grads[i] += ((float *)c.grads)[i];
    move_sequences(whole->end_state, c.end_state, width, 1, SEQUENCES, share, true);
    move_sequences(whole->state_grad, c.state_grad, width, 1, SEQUENCES, share, true);
    for (uint32_t i = 0; i < input_count(&c.spec); i++)
        if (has_grad(&c.spec, i))
            move_sequences(whole->input_grads[i], c.input_grads[i],
                           trp_net_input_width(&c.spec, i) * sizeof(float), STEPS, SEQUENCES, share,
                           true);
    for (uint32_t i = 0; i < c.spec.output_count; i++)
        move_sequences(whole->outputs[i], c.outputs[i],
                       trp_net_output_width(&c.spec, i) * sizeof(float), STEPS, SEQUENCES, share,
                       true);
    graph_case_cleanup(&c);
}

/* But for signs of zeros: what adds to zero may have lost one. */
static void assert_bits(const float *got, const float *want, size_t floats)
{
    for (size_t i = 0; i < floats; i++)
        if (!(got[i] == want[i]))
            fail_msg("%zu of %zu is %.9g, should be %.9g", i, floats, (double)got[i],
                     (double)want[i]);
}

static void assert_same_bits(const struct graph_case *got, const struct graph_case *want)
{
    assert_bits(got->grads, want->grads, got->count);
    assert_bits(got->end_state, want->end_state, got->state_count);
    assert_bits(got->state_grad, want->state_grad, got->state_count);
    for (uint32_t i = 0; i < got->spec.output_count; i++)
        assert_bits(got->outputs[i], want->outputs[i],
                    (size_t)got->rows * trp_net_output_width(&got->spec, i));
    for (uint32_t i = 0; i < input_count(&got->spec); i++)
        if (has_grad(&got->spec, i))
            assert_bits(got->input_grads[i], want->input_grads[i],
                        (size_t)got->rows * trp_net_input_width(&got->spec, i));
}

static void assert_parts_are_plans_of_one_thread(const trp_net_spec *spec, uint32_t threads)
{
    struct graph_case got, want;
    uint32_t each = (SEQUENCES + threads - 1) / threads;
    graph_case_init(&got, spec, backend_simd(), ROWS, threads);
    for (uint32_t i = (SEQUENCES + each - 1) / each; i < threads; i++) /* they have no share */
        memset(host_net(got.net)->parts[i].grads, 0x3f, got.count * sizeof(float));
    net_forward(got.net, &got.pass, ROWS);
    net_backward(got.net, &got.pass);
    graph_case_init(&want, spec, backend_simd(), ROWS, 1);
    for (uint32_t from = 0; from < SEQUENCES; from += each)
        run_share(&want, (struct rows){from, from + each < SEQUENCES ? from + each : SEQUENCES},
                  want.grads);
    assert_same_bits(&got, &want);
    graph_case_cleanup(&got);
    graph_case_cleanup(&want);
}

static void each_part_of_a_random_graph_has_the_bits_of_a_plan_for_its_sequences(void **state)
{
    (void)state;
    uint32_t recurrent = 0;
    for (uint64_t seed = 0; seed < 2 * GRAPHS; seed++) {
        trp_rng rng;
        trp_rng_init(&rng, seed, 5);
        trp_net_spec spec = random_spec(&rng);
        if (trp_net_state_width(&spec) == 0)
            continue;
        recurrent++;
        for (uint32_t threads = 2; threads <= 10;
             threads += 4) /* 11 and 10; 4, ... and 1; 3, ... */
            assert_parts_are_plans_of_one_thread(&spec, threads);
    }
    assert_true(recurrent > 20);
}

static void each_part_of_an_image_network_has_the_bits_of_a_plan_for_its_sequences(void **state)
{
    (void)state;
    trp_net_spec spec = trp_impala_resnet(&(trp_cnn_options){.height = 9,
                                                             .width = 8,
                                                             .channels = 2,
                                                             .outputs = 3,
                                                             .value = true,
                                                             .core = TRP_CORE_LSTM,
                                                             .core_size = 24});
    assert_parts_are_plans_of_one_thread(&spec, 2);
    assert_parts_are_plans_of_one_thread(&spec, 3);
}

static void few_sequences_are_one_parts_however_long(void **state)
{
    (void)state;
    static const uint32_t steps[] = {ROWS, ROWS / 3}; /* 1 and 3 sequences for 2 threads */
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        trp_rng rng;
        trp_rng_init(&rng, seed, 5);
        trp_net_spec spec = random_spec(&rng);
        for (int i = 0; i < 2 && trp_net_state_width(&spec) > 0; i++) {
            struct graph_case one, two;
            graph_case_init(&one, &spec, backend_simd(), ROWS, 1);
            graph_case_init(&two, &spec, backend_simd(), ROWS, 2);
            one.pass.steps = two.pass.steps = steps[i];
            net_forward(one.net, &one.pass, ROWS);
            net_backward(one.net, &one.pass);
            net_forward(two.net, &two.pass, ROWS);
            net_backward(two.net, &two.pass);
            assert_same_bits(&two, &one);
            graph_case_cleanup(&one);
            graph_case_cleanup(&two);
        }
    }
}

/* ---- by the public interface ----------------------------------------------------------------- */

enum { IN = 5, OUT = 3, CORE = 16 };

struct lstm {
    trp_net_spec spec;
    trp_net *net;
    size_t count, width;
    float *params, *in, *dout, *out, *state;
};

static struct lstm lstm_create(uint32_t threads, bool forward_only)
{
    struct lstm c = {.spec = trp_mlp(&(trp_mlp_options){.inputs = IN,
                                                        .outputs = OUT,
                                                        .hidden = {20},
                                                        .core = TRP_CORE_LSTM,
                                                        .core_size = CORE})};
    trp_rng rng;
    trp_rng_init(&rng, 3, 1);
    c.count = trp_net_param_count(&c.spec);
    c.width = trp_net_state_width(&c.spec);
    c.params = trp_floats_create(c.count);
    trp_net_init(&c.spec, &rng, c.params);
    c.in = random_floats(&rng, ROWS * IN, 1);
    c.dout = random_floats(&rng, ROWS * OUT, 1);
    c.out = xcalloc(ROWS * OUT, sizeof *c.out);
    c.state = xcalloc(SEQUENCES * c.width, sizeof *c.state);
    OR_FAIL(trp_net_create(&c.net, &(trp_net_options){.spec = &c.spec,
                                                      .batch = ROWS,
                                                      .threads = threads,
                                                      .forward_only = forward_only}));
    poison(c.net);
    for (uint32_t i = 1; i < threads && !forward_only; i++) /* as planned: zero between tensors */
        memset(host_net(c.net)->parts[i].grads, 0, c.count * sizeof(float));
    return c;
}

static void lstm_destroy(struct lstm *c)
{
    trp_net_destroy(c->net);
    trp_floats_destroy(c->params);
    free(c->in);
    free(c->dout);
    free(c->out);
    free(c->state);
}

static trp_net_rows lstm_rows(const struct lstm *c, uint32_t first_step, uint32_t steps)
{
    return (trp_net_rows){.rows = SEQUENCES * steps,
                          .steps = steps,
                          .inputs = {c->in + (size_t)first_step * SEQUENCES * IN},
                          .outputs = {c->out + (size_t)first_step * SEQUENCES * OUT},
                          .state = c->state,
                          .end_state = c->state};
}

static void sequences_cut_anywhere_have_the_same_bits_on_several_threads(void **state)
{
    (void)state;
    for (uint32_t threads = 2; threads <= 4; threads++)
        for (uint32_t cut = 1; cut < STEPS; cut++) {
            struct lstm whole = lstm_create(threads, false), parts = lstm_create(threads, true);
            trp_net_rows all = lstm_rows(&whole, 0, STEPS), begin = lstm_rows(&parts, 0, cut),
                         end = lstm_rows(&parts, cut, STEPS - cut);
            trp_net_forward(whole.net, whole.params, &all);
            trp_net_forward(parts.net, parts.params, &begin);
            trp_net_forward(parts.net, parts.params, &end);
            assert_bits(parts.out, whole.out, ROWS * OUT);
            assert_bits(parts.state, whole.state, SEQUENCES * whole.width);
            lstm_destroy(&whole);
            lstm_destroy(&parts);
        }
}

struct ready_log {
    const float *grads;
    float *final;
    size_t lo, calls;
};

static void note_ready(void *context, size_t lo)
{
    struct ready_log *log = context;
    assert_true(lo < log->lo);
    memcpy(log->final + lo, log->grads + lo, (log->lo - lo) * sizeof(float));
    log->lo = lo;
    log->calls++;
}

/* No states, no resets, no gradients of inputs. */
static void backward_reports_suffixes_that_are_final_and_repeats_its_bits(void **state)
{
    (void)state;
    struct lstm c = lstm_create(2, false), one = lstm_create(1, false);
    trp_net_rows rows = lstm_rows(&c, 0, STEPS);
    rows.state = rows.end_state = NULL;
    float *grads[3];
    for (int i = 0; i < 3; i++) {
        struct lstm *by = i < 2 ? &c : &one;
        grads[i] = trp_floats_create(c.count);
        struct ready_log log = {
            .grads = grads[i], .lo = c.count, .final = trp_floats_create(c.count)};
        trp_net_forward(by->net, c.params, &rows);
        trp_net_backward(
            by->net, c.params, &rows,
            &(trp_net_grads){
                .outputs = {c.dout}, .params = grads[i], .ready = note_ready, .context = &log});
        assert_int_equal(log.lo, 0);
        assert_int_equal(log.calls, 3); /* body.0, core, head */
        assert_bits(log.final, grads[i], c.count);
        trp_floats_destroy(log.final);
    }
    assert_bits(grads[1], grads[0], c.count);
    assert_close(grads[2], grads[0], c.count, 1e-5, "gradient");
    for (int i = 0; i < 3; i++)
        trp_floats_destroy(grads[i]);
    lstm_destroy(&c);
    lstm_destroy(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_of_a_random_graph_has_the_bits_of_a_plan_for_its_sequences),
        cmocka_unit_test(each_part_of_an_image_network_has_the_bits_of_a_plan_for_its_sequences),
        cmocka_unit_test(few_sequences_are_one_parts_however_long),
        cmocka_unit_test(sequences_cut_anywhere_have_the_same_bits_on_several_threads),
        cmocka_unit_test(backward_reports_suffixes_that_are_final_and_repeats_its_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
