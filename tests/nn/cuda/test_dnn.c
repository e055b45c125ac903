/* Convolutions by cuDNN (nn/cuda/module/dnn.c), with CUDA's runtime and a cuDNN of tests: networks
 * beside the reference, which engines are taken, and what is said where there is none, or a call
 * fails. Where NVIDIA's own library is, it plans for an H100 that is described to it. */
#include "fake_cuda.h"
#include "fake_dnn.h"
#include "nvidia_leaks.h"
#include "plan_case.h"

#include "nn/cuda/device.h"
#include "nn/cuda/module/module.h"
#include "tests/core/captured.h"

#include <dlfcn.h>

extern const struct cuda_module troupe_cuda_module;

/* Devices are for the life of a process. */
enum { DEVICES_MAX = 1024 };
static struct cuda_device *devices[DEVICES_MAX];
static size_t device_count;

/* A new GPU, whose libraries are under those directories. */
static trp_device *open_device(const char *prefixes)
{
    static struct module_host host = {trp_fail, trp_log, NULL};
    struct machine *machine;
    fake_cuda_begin(5);
    host.prefixes = prefixes;
    OR_FAIL(troupe_cuda_module.open(&host, 0, &machine));
    assert_true(device_count < DEVICES_MAX);
    struct cuda_device *device = devices[device_count++] = xcalloc(1, sizeof *device);
    cuda_device_init(device, machine);
    return &device->base;
}

/* A network's passes on it, and what they left in the log. */
struct tried {
    const trp_net_spec *spec;
    uint32_t rows, batch;
    trp_precision precision;
    const char *prefixes;
    struct graph_case got;
    struct captured log;
};

static trp_status try(struct tried *tried)
{
    uint32_t batch = tried->batch ? tried->batch : tried->rows;
    graph_case_init(&tried->got, tried->spec, &backend_ref_f32, tried->rows, 1);
    capture_begin(&tried->log);
    trp_status status =
        run_plan(&tried->got, open_device(tried->prefixes), tried->precision, batch);
    capture_end(&tried->log);
    return status;
}

/* Beside the reference, as near as the precision lets it be. */
static void compare_tried(const struct tried *tried)
{
    static const double bounds[] = {[TRP_F32] = 1e-5, [TRP_BF16] = 1.6e-2, [TRP_TF32] = 4e-3};
    struct graph_case want;
    if (tried->precision == TRP_BF16)
        run_rounded(&want, tried->spec, tried->rows);
    else
        graph_case_run(&want, tried->spec, &backend_ref_f64, tried->rows, 1);
    compare_all(&(struct compared){&tried->got, &want, bounds[tried->precision]});
    graph_case_cleanup(&want);
}

static void check(struct tried *tried)
{
    OR_FAIL(try(tried));
    compare_tried(tried);
    graph_case_cleanup(&tried->got);
}

static void assert_said(const struct tried *tried, const char *words, unsigned times)
{
    if (captured_count(&tried->log, words) != times)
        fail_msg("'%s' is not %u times in: %s", words, times, tried->log.text);
}

/* A variable of a library of tests. */
static void *variable_of(const char *path, const char *name)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *variable;
    assert_non_null(library);
    variable = dlsym(library, name);
    assert_non_null(variable); /* it stays open */
    return variable;
}

static struct fake_dnn *fake_begin(void)
{
    struct fake_dnn *fake = variable_of(WITH_DNN "/lib/libcudnn.so.9", "fake_dnn");
    *fake = (struct fake_dnn){0};
    return fake;
}

static const char with_dnn[] = WITH_DNN ":" WITHOUT_BLAS;

/* All runs were of that engine. */
static void assert_runs(const struct fake_dnn *fake, enum fake_engine engine)
{
    for (int i = 0; i < FAKE_ENGINES; i++)
        assert_true((fake->runs[i] > 0) == (i == (int)engine));
}

static trp_net_spec small_spec(void)
{
    trp_net_spec spec = {0};
    trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .dtype = TRP_FLOAT32, .shape = {6, 7, 4}});
    trp_net_add(&spec, (trp_layer){.kind = TRP_CONV2D,
                                   .name = "conv",
                                   .size = 4,
                                   .kernel = 3,
                                   .stride = 2,
                                   .padding = 1,
                                   .activation = TRP_TANH});
    spec.outputs[spec.output_count++] = 1;
    return spec;
}

/* ---- networks ------------------------------------------------------------------------------ */

static void windows_of_all_kinds_are_the_reference(void **state)
{
    trp_rng rng;
    (void)state;
    trp_rng_init(&rng, 11, 0);
    for (uint32_t i = 0; i < 24; i++) {
        trp_net_spec spec = windows_spec(&rng);
        struct fake_dnn *fake = fake_begin();
        struct tried tried = {.spec = &spec,
                              .rows = 1 + i % 5,
                              .precision = (trp_precision)(i % 3),
                              .prefixes = with_dnn};
        check(&tried);
        assert_runs(fake, tried.precision == TRP_F32 ? FAKE_EXACT : FAKE_TF32);
        assert_true(fake_cuda.graph_launches > 0 || !LISTS_REPEAT);
        assert_said(&tried, "products of patches", 0);
        assert_said(&tried,
                    "device cuda:0: convolutions: cuDNN 9.12.3 (" WITH_DNN "/lib/libcudnn.so.9)",
                    1);
    }
}

static void residual_networks_are_the_reference(void **state)
{
    trp_net_spec spec = trp_impala_resnet(
        &(trp_cnn_options){.height = 12, .width = 10, .channels = 2, .outputs = 3, .value = true});
    struct fake_dnn *fake = fake_begin();
    (void)state;
    check(&(struct tried){.spec = &spec, .rows = 2, .prefixes = with_dnn});
    assert_runs(fake, FAKE_EXACT);
}

/* A plan's workspace is that of its batch, which has to do: even batches have none, and the engine
 * that is best for odd rows wants some. */
static void fewer_rows_than_a_batch_are_the_reference(void **state)
{
    trp_net_spec spec = small_spec();
    (void)state;
    for (uint32_t rows = 1; rows < 5; rows++)
        for (uint32_t batch = rows + 1; batch < 7; batch++) {
            struct fake_dnn *fake = fake_begin();
            struct tried tried = {
                .spec = &spec, .rows = rows, .batch = batch, .prefixes = with_dnn};
            check(&tried);
            assert_runs(fake, rows % 2 > batch % 2 ? FAKE_PLAIN : FAKE_EXACT);
            assert_said(&tried, "products of patches", 0);
        }
}

/* ---- where there is none --------------------------------------------------------------------- */

static void the_other_heuristic_is_asked_too(void **state)
{
    trp_net_spec spec = small_spec();
    struct fake_dnn *fake = fake_begin();
    (void)state;
    fake->only_fallback = true;
    check(&(struct tried){.spec = &spec, .rows = 3, .prefixes = with_dnn});
    assert_runs(fake, FAKE_PLAIN);
}

static void what_has_no_engine_is_products_and_said_once(void **state)
{
    trp_net_spec spec = small_spec();
    struct fake_dnn *fake = fake_begin();
    struct tried tried = {.spec = &spec, .rows = 3, .prefixes = with_dnn};
    (void)state;
    fake->none = true;
    check(&tried);
    assert_int_equal(fake->plans, 0);
    assert_int_equal(fake->descriptors, 0);
    assert_said(&tried,
                "cuDNN has no way for a convolution of 3 images 6x7x4 by 4 filters 3x3, with at "
                "most 640.0 MiB of workspace (none of its engines suits)",
                1);
    assert_said(&tried, "cuDNN has no way", 1);
}

static void without_the_library_they_are_products(void **state)
{
    trp_net_spec spec = small_spec();
    struct tried tried = {.spec = &spec, .rows = 3, .prefixes = WITHOUT_DNN ":" WITHOUT_BLAS};
    (void)state;
    check(&tried);
    assert_said(&tried,
                "device cuda:0: convolutions: products of patches (" WITHOUT_DNN
                "/lib/libcudnn.so.9 does not work)",
                1);
}

/* ---- calls that fail ------------------------------------------------------------------------- */

/* Another engine does it; or products do, or the list is no graph, and the log says why; or the
 * queue says that it failed. */
static void check_failure(const trp_net_spec *spec, const struct graph_case *want, unsigned call)
{
    struct fake_dnn *fake = fake_begin();
    struct tried tried = {.spec = spec, .rows = 3, .prefixes = with_dnn};
    fake->fails_at = call;
    trp_status status = try(&tried);
    if (status == TRP_OK) {
        bool products = captured_count(&tried.log, "products of patches") > 0;
        compare_all(&(struct compared){&tried.got, want, 1e-5});
        assert_said(&tried, "CUDNN_STATUS_FAKE",
                    products + captured_count(&tried.log, " is no graph, and is run"));
        assert_true(products || fake->runs[FAKE_EXACT] > 0);
    } else {
        const char *said = trp_last_error();
        if (status != TRP_INTERNAL || !strstr(said, "device cuda:0: cudnn") ||
            !strstr(said, "CUDNN_STATUS_FAKE: made to fail"))
            fail_msg("call %u: %s: %s", call, trp_status_name(status), said);
    }
    graph_case_cleanup(&tried.got);
}

static void each_call_may_fail(void **state)
{
    trp_net_spec spec = small_spec();
    struct graph_case want;
    struct fake_dnn *fake = fake_begin();
    (void)state;
    graph_case_run(&want, &spec, &backend_ref_f64, 3, 1);
    check_failure(&spec, &want, 0);
    unsigned calls = fake->calls;
    assert_in_range(calls, 100, DEVICES_MAX - 100);
    for (unsigned call = 1; call <= calls; call++)
        check_failure(&spec, &want, call);
    graph_case_cleanup(&want);
}

/* ---- NVIDIA's own ---------------------------------------------------------------------------- */

#ifdef REAL_DNN
/* Passes of which nothing is computed. */
static void plan_with_the_real_one(const trp_net_spec *spec, uint32_t rows, trp_precision precision)
{
    const unsigned *executions = variable_of(REAL_DNN "/lib/libcudnn.so.9", "real_dnn_executions");
    struct tried tried = {
        .spec = spec, .rows = rows, .precision = precision, .prefixes = REAL_DNN ":" WITHOUT_BLAS};
    unsigned convolutions = 0, before = *executions;
    for (uint32_t i = 0; i < spec->layer_count; i++)
        convolutions += spec->layers[i].kind == TRP_CONV2D;
    OR_FAIL(try(&tried));
    graph_case_cleanup(&tried.got);
    assert_said(&tried, "convolutions: cuDNN 9.", 1);
    assert_said(&tried, "products of patches", 0);
    /* Run once and captured once, forward, and gradients of weights and, but of bytes, of inputs.
     */
    bool bytes = input_dtype(spec, 0) == TRP_UINT8;
    if (LISTS_REPEAT)
        assert_int_equal(*executions - before, 2 * (3 * convolutions - bytes));
    else
        assert_true(*executions - before >= 2 * (3 * convolutions - bytes));
}

static void the_real_library_plans_what_networks_have(void **state)
{
    trp_cnn_options options = {.height = 84, .width = 84, .channels = 4, .outputs = 6};
    trp_net_spec nature = trp_nature_cnn(&options), small = small_spec();
    (void)state;
    for (trp_precision precision = TRP_F32; precision <= TRP_TF32; precision++) {
        plan_with_the_real_one(&small, 3, precision);
        plan_with_the_real_one(&nature, 2, precision);
    }
}

static void the_real_library_plans_odd_windows(void **state)
{
    trp_rng rng;
    (void)state;
    trp_rng_init(&rng, 12, 0);
    for (int i = 0; i < 6; i++) {
        trp_net_spec spec = windows_spec(&rng);
        plan_with_the_real_one(&spec, 1 + (uint32_t)i, (trp_precision)(i % 3));
    }
}
#endif

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_of_all_kinds_are_the_reference),
        cmocka_unit_test(residual_networks_are_the_reference),
        cmocka_unit_test(fewer_rows_than_a_batch_are_the_reference),
        cmocka_unit_test(the_other_heuristic_is_asked_too),
        cmocka_unit_test(what_has_no_engine_is_products_and_said_once),
        cmocka_unit_test(without_the_library_they_are_products),
        cmocka_unit_test(each_call_may_fail),
#ifdef REAL_DNN
        cmocka_unit_test(the_real_library_plans_what_networks_have),
        cmocka_unit_test(the_real_library_plans_odd_windows),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
