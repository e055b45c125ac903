/* Networks: the reference in double against finite differences, every backend against the
 * reference, and what a plan promises about bits, rows, threads and memory. */
#include "nn_tools.h"

#include <dirent.h>
#include <stdio.h>

static const trp_mlp_options specs[] = {
    {.inputs = 4, .hidden = {64, 64}, .outputs = 2},
    {.inputs = 4, .hidden = {64, 64}, .outputs = 2, .dueling = true},
    {.inputs = 3, .outputs = 5},
    {.inputs = 3, .outputs = 4, .dueling = true},
    {.inputs = 1, .hidden = {1}, .outputs = 1},
    {.inputs = 17, .hidden = {33, 65, 7}, .outputs = 6, .activation = TRP_TANH},
    {.inputs = 50, .hidden = {31}, .outputs = 9, .activation = TRP_TANH, .dueling = true},
    {.inputs = 5, .hidden = {130, 127}, .outputs = 18},
    {.inputs = 200, .hidden = {300, 20}, .outputs = 3},
};
enum { SPECS = sizeof specs / sizeof specs[0] };

/* ---- the reference ----------------------------------------------------------------------- */

struct double_case {
    trp_net *net;
    size_t count;
    uint32_t rows, outputs;
    double *params, *in, *dout, *out, *grads;
};

static double *random_doubles(trp_rng *rng, size_t count, double scale)
{
    double *values = xmalloc(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = scale * trp_rng_normal(rng);
    return values;
}

static void double_case_init(struct double_case *c, const trp_mlp_options *spec, uint32_t rows)
{
    trp_rng rng;
    trp_net_spec net_spec = trp_mlp(spec);
    trp_rng_init(&rng, 7, 1);
    OR_FAIL(net_create(&c->net, &(trp_net_options){.spec = &net_spec, .batch = rows},
                       &backend_ref_f64));
    c->rows = rows;
    c->count = trp_net_param_count(&net_spec);
    c->outputs = spec->outputs;
    c->params = random_doubles(&rng, c->count, 0.5);
    c->in = random_doubles(&rng, (size_t)rows * spec->inputs, 1);
    c->dout = random_doubles(&rng, (size_t)rows * spec->outputs, 1);
    c->out = random_doubles(&rng, (size_t)rows * spec->outputs, 1);
    c->grads = xcalloc(c->count, sizeof *c->grads);
    poison(c->net);
}

static void double_case_cleanup(struct double_case *c)
{
    trp_net_destroy(c->net);
    free(c->params);
    free(c->in);
    free(c->dout);
    free(c->out);
    free(c->grads);
}

static struct pass double_pass(struct double_case *c)
{
    struct pass pass = {.params = c->params, .grads = c->grads};
    pass.external[external_index(PLACE_INPUT, 0)] = c->in;
    pass.external[external_index(PLACE_OUTPUT, 0)] = c->out;
    pass.external[external_index(PLACE_OUTPUT_GRAD, 0)] = c->dout;
    return pass;
}

static double objective(struct double_case *c)
{
    struct pass pass = double_pass(c);
    net_forward(c->net, &pass, c->rows);
    double sum = 0;
    for (size_t i = 0; i < (size_t)c->rows * c->outputs; i++)
        sum += c->out[i] * c->dout[i];
    return sum;
}

static void gradients_are_those_of_finite_differences(void **state)
{
    (void)state;
    static const trp_mlp_options small[] = {
        {.inputs = 3, .hidden = {5, 4}, .outputs = 2},
        {.inputs = 3, .hidden = {5, 4}, .outputs = 3, .activation = TRP_TANH},
        {.inputs = 3, .hidden = {6, 4}, .outputs = 3, .dueling = true},
        {.inputs = 2, .hidden = {4}, .outputs = 2, .activation = TRP_TANH, .dueling = true},
        {.inputs = 4, .outputs = 3, .dueling = true},
        {.inputs = 2, .hidden = {4}, .outputs = 6, .dueling = true, .atoms = 3},
        {.inputs = 2, .hidden = {3, 3, 3, 3, 3, 3, 3, 3}, .outputs = 1},
    };
    for (size_t s = 0; s < sizeof small / sizeof small[0]; s++) {
        struct double_case c;
        double_case_init(&c, &small[s], 7);
        objective(&c);
        struct pass pass = double_pass(&c);
        net_backward(c.net, &pass);
        const double h = 1e-6;
        for (size_t i = 0; i < c.count; i++) {
            double value = c.params[i];
            c.params[i] = value + h;
            double above = objective(&c);
            c.params[i] = value - h;
            double below = objective(&c);
            c.params[i] = value;
            double difference = (above - below) / (2 * h);
            if (!(fabs(difference - c.grads[i]) <= 1e-7 * fmax(1, fabs(difference))))
                fail_msg("spec %zu, parameter %zu: %.12g, finite difference %.12g", s, i,
                         c.grads[i], difference);
        }
        double_case_cleanup(&c);
    }
}

static void a_dueling_head_has_the_mean_of_its_values(void **state)
{
    (void)state;
    /* V = 1 + 2 x, A = {x, 3 x, -x}; x = 2: V = 5, A - mean A = {0, 4, -4}. */
    trp_net_spec spec = trp_mlp(&(trp_mlp_options){.inputs = 1, .outputs = 3, .dueling = true});
    float *params = trp_floats_create(trp_net_param_count(&spec));
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    assert_int_equal(trp_net_tensors(&spec, tensors), 4);
    params[tensors[0].offset] = 2;
    params[tensors[1].offset] = 1;
    memcpy(params + tensors[2].offset, (float[]){1, 3, -1}, 3 * sizeof(float));
    for (const struct backend *const *b = every_backend(); *b; b++) {
        trp_net *net;
        float in = 2, out[3];
        OR_FAIL(net_create(&net, &(trp_net_options){.spec = &spec}, *b));
        forward_one(net, params, &in, 1, out);
        assert_close(out, (float[]){5, 9, 1}, 3, 1e-6, (*b)->name);
        trp_net_destroy(net);
    }
    trp_floats_destroy(params);
}

/* V = {1, 10}, A = {{2, 0}, {4, 30}, {0, 60}}: mean A = {2, 30}. */
static void a_dueling_head_of_atoms_has_the_mean_of_each(void **state)
{
    (void)state;
    trp_net_spec spec =
        trp_mlp(&(trp_mlp_options){.inputs = 1, .outputs = 6, .dueling = true, .atoms = 2});
    float *params = trp_floats_create(trp_net_param_count(&spec));
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    assert_int_equal(trp_net_tensors(&spec, tensors), 4);
    assert_int_equal(tensors[1].count, 2);
    memcpy(params + tensors[1].offset, (float[]){1, 10}, 2 * sizeof(float));
    memcpy(params + tensors[3].offset, (float[]){2, 0, 4, 30, 0, 60}, 6 * sizeof(float));
    for (const struct backend *const *b = every_backend(); *b; b++) {
        trp_net *net;
        float in = 2, out[6];
        OR_FAIL(net_create(&net, &(trp_net_options){.spec = &spec}, *b));
        forward_one(net, params, &in, 1, out);
        assert_close(out, (float[]){1, -20, 3, 10, -1, 40}, 6, 1e-6, (*b)->name);
        trp_net_destroy(net);
    }
    trp_floats_destroy(params);
}

/* ---- every backend against it ------------------------------------------------------------ */

struct float_case {
    trp_mlp_options mlp;
    trp_net_spec spec;
    size_t count;
    uint32_t rows;
    float *params, *in, *dout, *before; /* `before`: what the gradient holds first */
};

static struct float_case float_case_create(const trp_mlp_options *mlp, uint32_t rows)
{
    trp_rng rng;
    trp_rng_init(&rng, 11, rows);
    struct float_case c = {.mlp = *mlp, .spec = trp_mlp(mlp), .rows = rows};
    c.count = trp_net_param_count(&c.spec);
    c.params = xmalloc(c.count * sizeof *c.params);
    trp_net_init(&c.spec, &rng, c.params);
    c.in = random_floats(&rng, (size_t)rows * mlp->inputs, 1);
    c.dout = random_floats(&rng, (size_t)rows * mlp->outputs, 1.0 / rows);
    c.before = random_floats(&rng, c.count, 0.1);
    return c;
}

static void float_case_destroy(struct float_case *c)
{
    free(c->params);
    free(c->in);
    free(c->dout);
    free(c->before);
}

/* Forward and backward on a fresh, poisoned plan; `out` and `grads` are exact allocations. Without
 * a backend the plan chooses. */
static void float_case_run(const struct float_case *c, const struct backend *backend,
                           uint32_t batch, uint32_t threads, float **out, float **grads)
{
    trp_net *net;
    trp_net_options options = {.spec = &c->spec, .batch = batch, .threads = threads};
    OR_FAIL(backend ? net_create(&net, &options, backend) : trp_net_create(&net, &options));
    poison(net);
    *out = xmalloc((size_t)c->rows * c->mlp.outputs * sizeof(float));
    *grads = xmalloc(c->count * sizeof(float));
    memcpy(*grads, c->before, c->count * sizeof(float));
    for (uint32_t i = 1; i < threads; i++) /* as planned: zero between tensors */
        memset(host_net(net)->parts[i].grads, 0, c->count * sizeof(float));
    forward_one(net, c->params, c->in, c->rows, *out);
    backward_one(net, c->params, c->in, c->dout, *grads);
    trp_net_destroy(net);
}

/* What the reference makes of a case. */
struct reference {
    float *out, *grads;
};

static struct reference reference_create(const struct float_case *c)
{
    struct reference want;
    float_case_run(c, &backend_ref_f32, c->rows, 1, &want.out, &want.grads);
    return want;
}

static void reference_destroy(struct reference *want)
{
    free(want->out);
    free(want->grads);
}

static void assert_case_agrees(const struct float_case *c, const struct reference *want,
                               const struct backend *backend, uint32_t batch, uint32_t threads)
{
    float *out, *grads;
    const char *name = backend ? backend->name : "the fastest";
    float_case_run(c, backend, batch, threads, &out, &grads);
    assert_close(out, want->out, (size_t)c->rows * c->mlp.outputs, 1e-5, name);
    assert_close(grads, want->grads, c->count, 1e-5, name);
    free(out);
    free(grads);
}

static void every_backend_agrees_with_the_reference(void **state)
{
    (void)state;
    static const uint32_t rows[] = {1, 2, 3, 5, 8, 13, 64, 131};
    for (size_t s = 0; s < SPECS; s++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            struct float_case c = float_case_create(&specs[s], rows[r]);
            struct reference want = reference_create(&c);
            for (const struct backend *const *b = every_backend(); *b; b++)
                assert_case_agrees(&c, &want, *b, rows[r] + 9 * (r % 2), 1);
            reference_destroy(&want);
            float_case_destroy(&c);
        }
}

static void several_threads_agree_with_the_reference(void **state)
{
    (void)state;
    static const uint32_t rows[] = {1, 9, 20, 131};
    for (size_t s = 0; s < SPECS; s++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            struct float_case c = float_case_create(&specs[s], rows[r]);
            struct reference want = reference_create(&c);
            for (uint32_t threads = 2; threads <= 5; threads++)
                assert_case_agrees(&c, &want, backend_simd(), 131, threads);
            reference_destroy(&want);
            float_case_destroy(&c);
        }
}

static size_t thread_count(void)
{
    size_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    while (readdir(tasks))
        count++;
    closedir(tasks);
    return count;
}

static bool is_loaded(const char *library)
{
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (!found && fgets(line, sizeof line, maps))
        found = strstr(line, library) != NULL;
    fclose(maps);
    return found;
}

/* The big one's size is one that oneDNN is faster for with every instruction set (nn/cpu.c). */
static void only_plans_with_big_layers_load_onednn_which_starts_no_threads(void **state)
{
    (void)state;
    static const trp_mlp_options mlps[] = {{.inputs = 8, .hidden = {64, 64}, .outputs = 4},
                                           {.inputs = 8, .hidden = {256, 260}, .outputs = 4}};
    assert_false(is_loaded("libdnnl"));
    for (int big = 0; big < 2; big++) {
        struct float_case c = float_case_create(&mlps[big], 4);
        struct reference want = reference_create(&c);
        size_t before = thread_count();
        assert_case_agrees(&c, &want, NULL, 4, 1);
        assert_true(is_loaded("libdnnl") == (bool)big);
        assert_int_equal(thread_count(), before);
        reference_destroy(&want);
        float_case_destroy(&c);
    }
}

/* ---- what a plan promises ---------------------------------------------------------------- */

static void a_row_has_the_same_bits_in_every_batch_of_several(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPECS; s++) {
        struct float_case c = float_case_create(&specs[s], 37);
        trp_net *net;
        OR_FAIL(trp_net_create(&net, &(trp_net_options){.spec = &c.spec, .batch = 37}));
        size_t width = c.mlp.outputs;
        float *all = xmalloc(37 * width * sizeof *all), *some = xmalloc(37 * width * sizeof *some);
        forward_one(net, c.params, c.in, 37, all);
        poison(net);
        forward_one(net, c.params, c.in, 5, some);
        forward_one(net, c.params, c.in + 5 * (size_t)c.mlp.inputs, 32, some + 5 * width);
        assert_memory_equal(all, some, 37 * width * sizeof *all);
        free(all);
        free(some);
        trp_net_destroy(net);
        float_case_destroy(&c);
    }
}

static void gradients_of_parts_add_up_to_that_of_the_batch(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPECS; s++) {
        struct float_case c = float_case_create(&specs[s], 40);
        memset(c.before, 0, c.count * sizeof *c.before);
        float *out, *whole, *parts = trp_floats_create(c.count);
        float_case_run(&c, backend_simd(), 40, 1, &out, &whole);
        trp_net *net;
        OR_FAIL(trp_net_create(&net, &(trp_net_options){.spec = &c.spec, .batch = 40}));
        static const uint32_t cuts[] = {0, 1, 12, 40};
        for (size_t i = 0; i < 3; i++) {
            const float *in = c.in + (size_t)cuts[i] * c.mlp.inputs;
            forward_one(net, c.params, in, cuts[i + 1] - cuts[i], out);
            backward_one(net, c.params, in, c.dout + (size_t)cuts[i] * c.mlp.outputs, parts);
        }
        assert_close(parts, whole, c.count, 1e-6, "gradient");
        trp_net_destroy(net);
        trp_floats_destroy(parts);
        free(whole);
        free(out);
        float_case_destroy(&c);
    }
}

static void a_plan_repeats_its_bits(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct float_case c = float_case_create(&specs[5], 100);
        float *out[2], *grads[2];
        for (int i = 0; i < 2; i++)
            float_case_run(&c, backend_simd(), 100, threads, &out[i], &grads[i]);
        assert_memory_equal(out[0], out[1], 100 * (size_t)c.mlp.outputs * sizeof(float));
        assert_memory_equal(grads[0], grads[1], c.count * sizeof(float));
        for (int i = 0; i < 2; i++) {
            free(out[i]);
            free(grads[i]);
        }
        float_case_destroy(&c);
    }
}

static void space_between_tensors_stays_zero(void **state)
{
    (void)state;
    struct float_case c = float_case_create(&specs[6], 21);
    bool *used = xcalloc(c.count, sizeof *used);
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    size_t tensor_count = trp_net_tensors(&c.spec, tensors);
    for (size_t i = 0; i < tensor_count; i++) {
        assert_int_equal(tensors[i].offset % ALIGNMENT_FLOATS, 0);
        for (size_t j = 0; j < tensors[i].count; j++)
            used[tensors[i].offset + j] = true;
    }
    memset(c.before, 0, c.count * sizeof *c.before);
    float *out, *grads;
    size_t unused = 0;
    float_case_run(&c, backend_simd(), 21, 2, &out, &grads);
    for (size_t i = 0; i < c.count; i++)
        if (!used[i]) {
            unused++;
            assert_true(c.params[i] == 0);
            assert_true(grads[i] == 0);
        }
    assert_true(unused > 0);
    free(out);
    free(grads);
    free(used);
    float_case_destroy(&c);
}

struct ready_log {
    const float *grads;
    float *final; /* what was there when it was reported */
    size_t count, lo, calls;
};

static void note_ready(void *context, size_t lo)
{
    struct ready_log *log = context;
    assert_true(lo < log->lo);
    memcpy(log->final + lo, log->grads + lo, (log->lo - lo) * sizeof(float));
    log->lo = lo;
    log->calls++;
}

static void backward_reports_suffixes_that_are_final(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        struct float_case c = float_case_create(&specs[1], 32);
        trp_net *net;
        OR_FAIL(trp_net_create(
            &net, &(trp_net_options){.spec = &c.spec, .batch = 32, .threads = threads}));
        float *out = xmalloc(64 * sizeof *out), *grads = trp_floats_create(c.count);
        struct ready_log log = {.grads = grads, .lo = c.count, .final = trp_floats_create(c.count)};
        forward_one(net, c.params, c.in, 32, out);
        trp_net_backward(
            net, c.params, &(trp_net_rows){.rows = 32, .inputs = {c.in}},
            &(trp_net_grads){
                .outputs = {c.dout}, .params = grads, .ready = note_ready, .context = &log});
        assert_int_equal(log.lo, 0);
        assert_int_equal(log.calls, 4); /* body.0, body.1, value, advantage */
        assert_memory_equal(log.final, grads, c.count * sizeof(float));
        trp_floats_destroy(log.final);
        trp_floats_destroy(grads);
        free(out);
        trp_net_destroy(net);
        float_case_destroy(&c);
    }
}

static void a_nan_in_the_input_is_not_hidden(void **state)
{
    (void)state;
    for (const struct backend *const *b = every_backend(); *b; b++)
        for (size_t s = 0; s < SPECS; s++) {
            struct float_case c = float_case_create(&specs[s], 9);
            trp_net *net;
            float *out = xmalloc(9 * (size_t)c.mlp.outputs * sizeof *out);
            c.in[3 * (size_t)c.mlp.inputs] = NAN;
            OR_FAIL(net_create(&net, &(trp_net_options){.spec = &c.spec, .batch = 9}, *b));
            forward_one(net, c.params, c.in, 9, out);
            for (size_t i = 0; i < 9 * (size_t)c.mlp.outputs; i++)
                assert_int_equal(isnan(out[i]) != 0, i / c.mlp.outputs == 3);
            free(out);
            trp_net_destroy(net);
            float_case_destroy(&c);
        }
}

/* `count` values are spread over +-`bound`. */
static void assert_uniform(const float *values, size_t count, float bound)
{
    float largest = 0;
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmaxf(largest, fabsf(values[i]));
        sum += (double)values[i];
    }
    assert_true(largest <= bound);
    assert_true(largest > 0.9F * bound);
    assert_true(fabs(sum / (double)count) < 0.2 * (double)bound);
}

static void initial_parameters_fill_pytorchs_range(void **state)
{
    (void)state;
    trp_net_spec spec = trp_mlp(
        &(trp_mlp_options){.inputs = 16, .hidden = {200, 120}, .outputs = 100, .dueling = true});
    float *params = trp_floats_create(trp_net_param_count(&spec));
    trp_rng rng;
    trp_rng_init(&rng, 1, 1);
    trp_net_init(&spec, &rng, params);
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    assert_int_equal(trp_net_tensors(&spec, tensors), 8);
    for (size_t i = 0; i < 8; i += 2) {
        float bound = 1 / sqrtf((float)tensors[i].shape[1]);
        const float *weights = params + tensors[i].offset, *biases = params + tensors[i + 1].offset;
        assert_uniform(weights, tensors[i].count, bound);
        if (tensors[i + 1].count >= 100) /* the value has one bias */
            assert_uniform(biases, tensors[i + 1].count, bound);
        else
            assert_true(biases[0] != 0 && fabsf(biases[0]) <= bound);
    }
    trp_floats_destroy(params);
}

/* Only the gate that forgets, and by nothing that was drawn. */
static void an_lstm_may_begin_by_remembering(void **state)
{
    (void)state;
    enum { CORE = 5 };
    trp_mlp_options options = {.inputs = 3, .outputs = 2, .core = TRP_CORE_LSTM, .core_size = CORE};
    trp_net_spec plain = trp_mlp(&options);
    options.core_value = 1;
    trp_net_spec spec = trp_mlp(&options);
    size_t count = trp_net_param_count(&spec);
    float *params[] = {trp_floats_create(count), trp_floats_create(count)};
    for (size_t i = 0; i < 2; i++) {
        trp_rng rng;
        trp_rng_init(&rng, 1, 1);
        trp_net_init(i == 0 ? &plain : &spec, &rng, params[i]);
    }
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    trp_net_tensors(&spec, tensors);
    assert_string_equal(tensors[2].name, "core.bias_ih_l0");
    for (size_t i = 0; i < count; i++) {
        size_t gate = i - tensors[2].offset;
        bool forgets = i >= tensors[2].offset && gate >= CORE && gate < (size_t)2 * CORE;
        assert_float_equal(params[1][i], params[0][i] + (forgets ? 1 : 0), 0);
    }
    options.core = TRP_CORE_GRU;
    spec = trp_mlp(&options);
    assert_int_equal(trp_net_spec_check(&spec), TRP_OK);
    for (size_t i = 0; i < 2; i++)
        trp_floats_destroy(params[i]);
}

static void bad_options_are_named(void **state)
{
    (void)state;
    static const struct {
        trp_mlp_options mlp;
        trp_net_options options;
        const char *word;
    } rows[] = {
        {{.inputs = 0, .outputs = 1}, {0}, "input has no shape"},
        {{.inputs = 1, .outputs = 0}, {0}, "(head): size is 0"},
        {{.inputs = 1, .outputs = 1 << 20}, {0}, "(head): size is 1048576"},
        {{.inputs = 1, .outputs = 1, .hidden = {4, 0, 4}}, {0}, "(body.1): size is 0"},
        {{.inputs = 1, .outputs = 1, .hidden = {70000}}, {0}, "(body.0): size is 70000"},
        {{.inputs = 1, .outputs = 1, .hidden = {4}, .activation = (trp_activation)99},
         {0},
         "(body.0): activation 99"},
        {{.inputs = 60000, .outputs = 60000}, {0}, "parameters"},
        {{.inputs = 1, .outputs = 1}, {.threads = 100000}, "threads"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        trp_net *net = NULL;
        trp_net_spec spec = trp_mlp(&rows[i].mlp);
        trp_net_options options = rows[i].options;
        options.spec = &spec;
        assert_int_equal(trp_net_create(&net, &options), TRP_INVALID_ARGUMENT);
        assert_null(net);
        assert_non_null(strstr(trp_last_error(), rows[i].word));
    }
    trp_net *net = NULL;
    trp_net_spec wide = trp_mlp(&(trp_mlp_options){.inputs = 1, .hidden = {65536}, .outputs = 1});
    trp_net_options huge = {.spec = &wide, .batch = UINT32_MAX};
    assert_int_equal(trp_net_create(&net, &huge), TRP_RESOURCE_EXHAUSTED);
    trp_net_destroy(NULL);
    trp_floats_destroy(NULL);
}

static void flops_count_every_product_once(void **state)
{
    (void)state;
    /* 4-64-64-2: 256 weights twice (no gradient of the input), 4096 and 128 three times. */
    trp_net_spec spec = trp_mlp(&specs[0]);
    assert_true(trp_net_step_flops(&spec, 10) == 2.0 * 10 * (2 * 256 + 3 * (4096 + 128)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first: the others load it */
        cmocka_unit_test(only_plans_with_big_layers_load_onednn_which_starts_no_threads),
        cmocka_unit_test(gradients_are_those_of_finite_differences),
        cmocka_unit_test(a_dueling_head_has_the_mean_of_its_values),
        cmocka_unit_test(a_dueling_head_of_atoms_has_the_mean_of_each),
        cmocka_unit_test(every_backend_agrees_with_the_reference),
        cmocka_unit_test(several_threads_agree_with_the_reference),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_batch_of_several),
        cmocka_unit_test(gradients_of_parts_add_up_to_that_of_the_batch),
        cmocka_unit_test(a_plan_repeats_its_bits),
        cmocka_unit_test(space_between_tensors_stays_zero),
        cmocka_unit_test(backward_reports_suffixes_that_are_final),
        cmocka_unit_test(a_nan_in_the_input_is_not_hidden),
        cmocka_unit_test(initial_parameters_fill_pytorchs_range),
        cmocka_unit_test(an_lstm_may_begin_by_remembering),
        cmocka_unit_test(bad_options_are_named),
        cmocka_unit_test(flops_count_every_product_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
