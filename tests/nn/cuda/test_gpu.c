/* libtroupe_cuda.so's own code, but for the kernels that nvcc compiles, with CUDA's runtime and
 * cuBLASLt of tests: which GPUs are taken, lists and graphs of them, products, and failures. */
#include "fake_cuda.h"
#include "plan_case.h"
#include "twin_kernel.h"

#include "agents/bodies/moves.h"
#include "nn/cuda/bodies/gemm.h"
#include "nn/cuda/device.h"
#include "nn/cuda/module/code.h"
#include "nn/cuda/module/module.h"
#include "tests/core/captured.h"

#include <dlfcn.h>

extern const struct cuda_module troupe_cuda_module;

enum { SIDE = 17, FLOATS = SIDE * SIDE, BUFFERS = 7, WORKS = 120 };

struct scene {
    struct machine *machine;
    struct cuda_device device;
    trp_queue *queue;
    float *there[BUFFERS], *here[BUFFERS];
    trp_rng rng;
};

static struct module_host host = {trp_fail, trp_log, ""};

/* Machines are for the life of a process. */
static struct machine *machines[256];
static size_t machine_count;

static trp_status open_gpu(struct machine **machine, const char *prefix)
{
    struct captured log;
    host.prefixes = prefix;
    capture_begin(&log);
    trp_status status = troupe_cuda_module.open(&host, 0, machine);
    capture_end(&log);
    if (status != TRP_OK)
        return status;
    assert_true(machine_count < sizeof machines / sizeof *machines);
    machines[machine_count++] = *machine;
    assert_int_equal(
        captured_count(&log, "device cuda:0 is NVIDIA Fake, of compute capability 9.1"), 1);
    bool has_blas = strcmp(prefix, WITH_BLAS) == 0;
    assert_int_equal(captured_count(&log, "cuBLASLt 13.1.2 (" WITH_BLAS "/lib/libcublasLt.so.13)"),
                     has_blas);
    assert_int_equal(captured_count(&log, "products: our own (" WITHOUT_BLAS
                                          "/lib/libcublasLt.so.13 does not work)"),
                     !has_blas);
    return TRP_OK;
}

static void scene_begin(struct scene *scene, uint64_t seed, const char *prefixes)
{
    *scene = (struct scene){0};
    fake_cuda_begin(seed);
    trp_rng_init(&scene->rng, seed, 1);
    OR_FAIL(open_gpu(&scene->machine, prefixes));
    cuda_device_init(&scene->device, scene->machine);
    OR_FAIL(trp_queue_create(&scene->queue, &scene->device.base));
    for (size_t i = 0; i < BUFFERS; i++) {
        OR_FAIL(trp_device_alloc(&scene->device.base, FLOATS * sizeof(float),
                                 (void **)&scene->there[i]));
        scene->here[i] = random_floats(&scene->rng, FLOATS, 1);
        for (size_t k = 0; k < FLOATS; k++)
            assert_true(scene->there[i][k] == 0);
        trp_queue_copy(scene->queue, scene->there[i], scene->here[i], FLOATS * sizeof(float));
    }
}

/* Nothing of CUDA's is left behind. */
static void scene_end(struct scene *scene)
{
    trp_queue_destroy(scene->queue);
    for (size_t i = 0; i < BUFFERS; i++) {
        trp_device_free(&scene->device.base, scene->there[i]);
        free(scene->here[i]);
    }
    assert_int_equal(fake_cuda.allocations, 0);
    assert_int_equal(fake_cuda.graphs, 0);
}

static trp_status sync_all(const struct scene *scene)
{
    return trp_queue_sync(scene->queue, trp_queue_mark(scene->queue));
}

/* ---- which GPUs ---------------------------------------------------------------------------- */

static void assert_refused(const char *words)
{
    struct machine *machine;
    assert_int_equal(open_gpu(&machine, WITHOUT_BLAS), TRP_UNAVAILABLE);
    assert_non_null(strstr(trp_last_error(), "cuda:0"));
    if (!strstr(trp_last_error(), words))
        fail_msg("'%s' is not in: %s", words, trp_last_error());
}

static void assert_counted(trp_status status, uint32_t wanted)
{
    uint32_t count = 99;
    assert_int_equal(troupe_cuda_module.count(&host, &count), status);
    assert_int_equal(status == TRP_OK ? count : 0, wanted);
}

static void what_cannot_be_used_is_refused_by_name(void **state)
{
    (void)state;
    fake_cuda_begin(1);
    fake_cuda.driver = 0;
    assert_counted(TRP_UNAVAILABLE, 0);
    assert_non_null(strstr(trp_last_error(), "GPUs: this host has no driver"));
    assert_refused("this host has no driver of NVIDIA's");
    fake_cuda.driver = 12040;
    assert_refused("driver is for CUDA 12.4; one for CUDA 13.0 (driver 580) or newer is needed");
    fake_cuda.driver = 13010;
    fake_cuda.devices = 0;
    assert_counted(TRP_OK, 0);
    assert_refused("CUDA sees 0 GPUs here");
    fake_cuda.devices = 1;
    assert_counted(TRP_OK, 1);
    fake_cuda.major = 7;
    assert_refused("is NVIDIA Fake, of compute capability 7.1: at least 8.0 is needed");
    fake_cuda.major = 9;
    fake_cuda.lacks = 5;
    assert_refused(": the code of the kernel ");
}

static size_t count_kernels(const struct cuda_kernel *const *kernels)
{
    size_t count = 0;
    while (kernels[count])
        count++;
    return count;
}

static void all_code_is_there_before_anything_runs(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, 2, WITHOUT_BLAS);
    assert_int_equal(fake_cuda.loaded, count_kernels(nn_kernels) + count_kernels(agents_kernels) +
                                           count_kernels(learner_kernels));
    scene_end(&scene);
}

static void memory_that_is_not_there_is_told_with_what_is(void **state)
{
    struct scene scene;
    void *memory;
    (void)state;
    scene_begin(&scene, 1, WITHOUT_BLAS);
    fake_cuda.memory_bytes = fake_cuda.used_bytes + (3 << 20);
    assert_int_equal(trp_device_alloc(&scene.device.base, 4 << 20, &memory),
                     TRP_RESOURCE_EXHAUSTED);
    assert_string_equal(trp_last_error(),
                        "device cuda:0 has no 4.0 MiB of memory left: 3.0 of 3.0 MiB are free");
    OR_FAIL(trp_device_alloc(&scene.device.base, 2 << 20, &memory)); /* it goes on */
    const struct machine_impl *impl = scene.machine->impl;
    assert_true(impl->owns(scene.machine, (char *)memory + (2 << 20) - 1));
    assert_false(impl->owns(scene.machine, (char *)memory + (2 << 20)));
    assert_false(impl->owns(scene.machine, (char *)memory - 1));
    trp_device_bytes bytes = trp_device_memory(&scene.device.base);
    assert_int_equal(bytes.used, BUFFERS * FLOATS * sizeof(float) + (2 << 20));
    assert_int_equal(bytes.left, 1 << 20);
    trp_device_free(&scene.device.base, memory);
    assert_false(impl->owns(scene.machine, memory));
    OR_FAIL(sync_all(&scene));
    scene_end(&scene);
}

/* ---- kernels by their names --------------------------------------------------------------------
 */

static const char *const kernel_words[] = {
#define NAMED_KERNEL(NAME, words) words,
#include "agents/kernels_agents.def"
#undef NAMED_KERNEL
};

static void kernels_of_agents_are_found_by_name_with_their_code(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, 3, WITHOUT_BLAS);
    for (size_t i = 0; i < sizeof kernel_words / sizeof *kernel_words; i++) {
        const struct cuda_kernel *kernel =
            scene.machine->impl->find_kernel(scene.machine, kernel_words[i]);
        if (!kernel)
            fail_msg("%s is not found", kernel_words[i]);
        assert_string_equal(kernel->name, kernel_words[i]);
    }
    assert_null(scene.machine->impl->find_kernel(scene.machine, "critics.los"));
    scene_end(&scene);
}

/* What the host would do is not there to be called. */
static void never(void *arguments)
{
    (void)arguments;
    fail_msg("the host was asked");
}

static void a_kernel_of_agents_runs_on_the_device(void **state)
{
    static const trp_kernel kernel = {.name = "critics.add", .run = never};
    struct scene scene;
    (void)state;
    scene_begin(&scene, 4, WITHOUT_BLAS);
    struct add_actions_arguments job = {FLOATS, scene.there[0], scene.there[1]};
    trp_operand operands[] = {
        {offsetof(struct add_actions_arguments, from), FLOATS * sizeof(float), TRP_READ},
        {offsetof(struct add_actions_arguments, to), FLOATS * sizeof(float), TRP_READ | TRP_WRITE}};
    unsigned kernels = fake_cuda.kernels;
    trp_queue_run(scene.queue, &kernel, &job, sizeof job, operands, 2);
    OR_FAIL(trp_queue_sync(scene.queue, trp_queue_mark(scene.queue)));
    assert_int_equal(fake_cuda.kernels, kernels + 1);
    scene_end(&scene);
}

/* ---- lists --------------------------------------------------------------------------------- */

struct mixing {
    float *to;
    const float *a, *b;
    double rate;
};

static void mix(void *arguments)
{
    const struct mixing *mixing = arguments;
    for (size_t i = 0; i < FLOATS; i++)
        mixing->to[i] += (float)mixing->rate * (mixing->a[i] - mixing->b[i]);
}

static void put_mix(struct cuda_list *list, float *to, const float *a, const float *b, float rate)
{
    static const trp_kernel kernel = {.name = "test.mix", .run = mix};
    struct mixing mixing = {to, a, b, rate};
    trp_operand operands[] = {{offsetof(struct mixing, to), FLOATS * 4, TRP_READ | TRP_WRITE},
                              {offsetof(struct mixing, a), FLOATS * 4, TRP_READ},
                              {offsetof(struct mixing, b), FLOATS * 4, TRP_READ}};
    work_run(list, NULL, &kernel, &mixing, sizeof mixing, operands, 3);
}

static void put_product(struct cuda_list *list, float *to, const float *a, const float *b,
                        const float *bias, uint64_t how)
{
    bool accumulate = how % 2 == 0;
    work_gemm(list, &(struct gemm_job){
                        .a = a,
                        .b = b,
                        .bias = accumulate ? NULL : bias,
                        .c = to,
                        .a_stride = SIDE,
                        .b_stride = SIDE,
                        .c_stride = SIDE,
                        .m = SIDE,
                        .n = SIDE,
                        .k = SIDE,
                        .a_turned = how / 2 % 2,
                        .b_turned = how / 4 % 2,
                        .accumulate = accumulate,
                        .activation = accumulate ? ACTIVATION_NONE : (enum activation)(how / 8 % 4),
                        .precision = how / 32 % 2 ? TRP_BF16 : TRP_F32,
                    });
}

static void put_add(struct cuda_list *list, float *to, const float *a, const float *b)
{
    work_kernel(list, &kernel_add_rows,
                &(struct add_rows_arguments){.a = a,
                                             .b = b,
                                             .to = to,
                                             .a_stride = FLOATS,
                                             .b_stride = FLOATS,
                                             .to_stride = FLOATS,
                                             .rows = 1,
                                             .columns = FLOATS});
}

/* Or sums and products would grow out of bounds. */
static void put_tanh(struct cuda_list *list, float *at)
{
    work_kernel(list, &kernel_activate_rows,
                &(struct activate_rows_arguments){.in = at,
                                                  .out = at,
                                                  .in_stride = FLOATS,
                                                  .out_stride = FLOATS,
                                                  .rows = 1,
                                                  .columns = FLOATS,
                                                  .activation = ACTIVATION_TANH});
}

/* The same works for the same seed, on either side. */
static void put_works(struct cuda_list *list, float *const buffers[BUFFERS], uint64_t seed)
{
    trp_rng rng;
    trp_rng_init(&rng, seed, 2);
    for (uint32_t i = 0; i < WORKS; i++) {
        float *at[4];
        uint64_t first = trp_rng_below(&rng, BUFFERS), how = trp_rng_below(&rng, 64);
        for (size_t k = 0; k < 4; k++)
            at[k] = buffers[(first + k * (1 + how % 2)) % BUFFERS];
        switch (trp_rng_below(&rng, 8)) {
        case 0:
            work_zero(list, at[0], FLOATS * sizeof(float));
            break;
        case 1:
            work_copy(list, at[0], at[1], FLOATS * sizeof(float));
            break;
        case 2:
        case 3:
            put_add(list, at[0], at[1], at[2]);
            break;
        case 4:
        case 5:
            put_mix(list, at[0], at[1], at[2], 0.01 * (double)how);
            break;
        default:
            put_product(list, at[0], at[1], at[2], at[3], how);
            break;
        }
        if (how % 3)
            put_tanh(list, at[how % 2]);
    }
}

/* One after the other, on the host. */
static void run_here(trp_rng *rng, const struct cuda_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct cuda_work *work = &list->works[i];
        const void *arguments = work_arguments(list, work);
        const struct copy_job *copy = arguments;
        const struct host_job *job = arguments;
        if (work->kind == WORK_KERNEL)
            twin_kernel(rng, work->kernel, arguments);
        else if (work->kind == WORK_GEMM)
            twin_kernel(rng, &kernel_tiled_gemm, arguments);
        else if (work->kind == WORK_COPY)
            memcpy(copy->to, copy->from, copy->bytes);
        else if (work->kind == WORK_ZERO)
            memset(copy->to, 0, copy->bytes);
        else
            job->run((void *)(uintptr_t)host_job_arguments(job));
    }
}

static void assert_both_sides(struct scene *scene, bool exactly)
{
    for (size_t i = 0; i < BUFFERS; i++) {
        float got[FLOATS];
        trp_queue_copy(scene->queue, got, scene->there[i], sizeof got);
        OR_FAIL(sync_all(scene));
        if (exactly)
            assert_memory_equal(got, scene->here[i], sizeof got);
        assert_close(got, scene->here[i], FLOATS, 1e-4, "a buffer");
    }
}

static void refill(struct scene *scene)
{
    for (size_t i = 0; i < BUFFERS; i++) {
        for (size_t k = 0; k < FLOATS; k++)
            scene->here[i][k] = (float)(0.1 * trp_rng_normal(&scene->rng));
        trp_queue_copy(scene->queue, scene->there[i], scene->here[i], FLOATS * sizeof(float));
    }
}

/* A list, then the same as a graph, several times. */
static void check_lists(uint64_t seed, const char *prefixes)
{
    struct scene scene;
    scene_begin(&scene, seed, prefixes);
    for (unsigned i = 0; i < 4; i++) {
        struct cuda_list here = {0};
        refill(&scene);
        put_works(&here, scene.here, seed);
        run_here(&scene.rng, &here);
        work_list_cleanup(&here);
        put_works(cuda_queue_list(scene.queue), scene.there, seed);
        trp_queue_mark(scene.queue);
        assert_int_equal(fake_cuda.graph_launches, i);
        assert_both_sides(&scene, true);
    }
    scene_end(&scene);
}

static void lists_and_their_graphs_are_what_the_host_makes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++)
        check_lists(seed, WITHOUT_BLAS);
}

static void they_are_with_products_by_cublas_too(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++)
        check_lists(seed, WITH_BLAS);
}

static void another_library_puts_what_it_has_between(void **state)
{
    struct scene scene;
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        float got[FLOATS];
        scene_begin(&scene, seed, WITHOUT_BLAS);
        put_add(cuda_queue_list(scene.queue), scene.there[0], scene.there[1], scene.there[2]);
        cudaStream_t stream = trp_queue_native(scene.queue);
        assert_int_equal(cudaMemcpyAsync(scene.there[3], scene.there[0], FLOATS * sizeof(float),
                                         cudaMemcpyDeviceToDevice, stream),
                         cudaSuccess);
        put_add(cuda_queue_list(scene.queue), scene.there[4], scene.there[3], scene.there[1]);
        trp_queue_copy(scene.queue, got, scene.there[4], sizeof got);
        OR_FAIL(sync_all(&scene));
        for (size_t i = 0; i < FLOATS; i++)
            assert_true(got[i] == scene.here[1][i] + scene.here[2][i] + scene.here[1][i]);
        scene_end(&scene);
    }
}

/* A library that copies, and how often it was asked to. */
struct copying {
    unsigned *puts;
    float *to;
    const float *from;
};

static bool put_copying(void *owner, void *stream, const void *arguments)
{
    const struct copying *copying = arguments;
    unsigned *puts = owner;
    (*puts)++;
    return cudaMemcpyAsync(copying->to, copying->from, FLOATS * sizeof(float),
                           cudaMemcpyDeviceToDevice, stream) == cudaSuccess;
}

static bool is_never_over(const void *owner)
{
    (void)owner;
    return false;
}

static void another_librarys_call_is_in_the_graph(void **state)
{
    static const trp_library_call call = {"test.copy", put_copying, is_never_over};
    struct scene scene;
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        unsigned puts = 0;
        float got[FLOATS];
        scene_begin(&scene, seed, WITHOUT_BLAS);
        struct copying copying = {&puts, scene.there[3], scene.there[0]};
        trp_operand operands[] = {
            {offsetof(struct copying, to), sizeof got, TRP_WRITE},
            {offsetof(struct copying, from), sizeof got, TRP_READ},
        };
        for (unsigned i = 0; i < 4; i++) {
            put_add(cuda_queue_list(scene.queue), scene.there[0], scene.there[1], scene.there[2]);
            trp_queue_call(scene.queue, &call, &puts, &copying, sizeof copying, operands, 2);
            put_add(cuda_queue_list(scene.queue), scene.there[4], scene.there[3], scene.there[1]);
            trp_queue_copy(scene.queue, got, scene.there[4], sizeof got);
            OR_FAIL(sync_all(&scene));
            for (size_t k = 0; k < FLOATS; k++)
                assert_true(got[k] == scene.here[1][k] + scene.here[2][k] + scene.here[1][k]);
        }
        assert_int_equal(fake_cuda.graph_launches, 4);
        if (LISTS_REPEAT)
            assert_int_equal(puts, 1);
        trp_queue_forget(scene.queue, &puts);
        assert_int_equal(fake_cuda.graphs, 0);
        scene_end(&scene);
    }
}

static void a_list_that_cannot_be_captured_is_run(void **state)
{
    struct captured log;
    struct scene scene;
    (void)state;
    scene_begin(&scene, 3, WITHOUT_BLAS);
    fake_cuda.refuses_capture = true;
    capture_begin(&log);
    for (unsigned i = 0; i < 4; i++) {
        put_add(cuda_queue_list(scene.queue), scene.there[0], scene.there[1], scene.there[2]);
        put_mix(cuda_queue_list(scene.queue), scene.there[3], scene.there[1], scene.there[2], 1);
        OR_FAIL(sync_all(&scene));
    }
    for (unsigned i = 0; i < 2; i++) {
        put_add(cuda_queue_list(scene.queue), scene.there[0], scene.there[1], scene.there[2]);
        OR_FAIL(sync_all(&scene));
    }
    capture_end(&log);
    assert_int_equal(captured_count(&log, "device cuda:0: a list of 2 works is no graph, and is "
                                          "run work by work"),
                     1);
    assert_int_equal(captured_count(&log, ": cudaLaunchKernel of add_rows: "), 1);
    assert_int_equal(fake_cuda.graph_launches, 0);
    assert_int_equal(fake_cuda.kernels, 6);
    scene_end(&scene);
}

/* ---- products ------------------------------------------------------------------------------ */

/* A variable of the cuBLASLt of tests, which stays open. */
static void *blas_variable(const char *name)
{
    void *library = dlopen(WITH_BLAS "/lib/libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    void *variable = dlsym(library, name);
    assert_non_null(variable);
    return variable;
}

static unsigned matmuls(void)
{
    return *(const unsigned *)blas_variable("fake_matmuls");
}

/* A product in the middle of larger matrices, not aligned. */
static struct gemm_job job_at(float *const at[BUFFERS], const uint32_t sizes[3], uint64_t how)
{
    return (struct gemm_job){
        .a = at[0] + how % 3,
        .b = at[1] + how % 2,
        .bias = how & 8 ? at[2] + 1 : NULL,
        .c = at[3] + how % 4,
        .a_stride = SIDE,
        .b_stride = SIDE,
        .c_stride = SIDE,
        .m = sizes[0],
        .n = sizes[1],
        .k = sizes[2],
        .a_turned = how & 1,
        .b_turned = how & 2,
        .accumulate = (how & 4) && !(how & 8),
        .activation = how & 8 && how & 16 ? ACTIVATION_RELU : ACTIVATION_NONE,
        .precision = how & 32 ? TRP_BF16 : TRP_F32,
    };
}

static void products_of_all_kinds_are_our_own(void **state)
{
    static const uint32_t sizes[][3] = {{1, 1, 1},  {3, 5, 7},  {7, 3, 5},
                                        {16, 1, 9}, {1, 16, 2}, {13, 15, 14}};
    struct scene scene;
    (void)state;
    scene_begin(&scene, 7, WITH_BLAS);
    unsigned before = matmuls();
    for (uint64_t how = 0; how < 64; how++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct gemm_job here = job_at(scene.here, sizes[i], how);
            struct gemm_job there = job_at(scene.there, sizes[i], how);
            twin_kernel(&scene.rng, &kernel_tiled_gemm, &here);
            work_gemm(cuda_queue_list(scene.queue), &there);
            OR_FAIL(sync_all(&scene));
        }
    assert_both_sides(&scene, false);
    assert_int_equal(matmuls() - before, 64 * sizeof sizes / sizeof *sizes);
    assert_int_equal(fake_cuda.kernels, 0);
    scene_end(&scene);
}

/* Near enough, and not the same: cuBLASLt may leave bits of factors out. */
static void factors_have_ten_bits_where_that_is_asked(void **state)
{
    static const uint32_t sizes[] = {13, 15, 14};
    struct scene scene;
    double apart = 0, all = 0;
    float got[FLOATS];
    (void)state;
    scene_begin(&scene, 9, WITH_BLAS);
    struct gemm_job here = job_at(scene.here, sizes, 0), there = job_at(scene.there, sizes, 0);
    there.precision = TRP_TF32;
    twin_kernel(&scene.rng, &kernel_tiled_gemm, &here);
    work_gemm(cuda_queue_list(scene.queue), &there);
    OR_FAIL(sync_all(&scene));
    trp_queue_copy(scene.queue, got, scene.there[3], sizeof got);
    OR_FAIL(sync_all(&scene));
    for (size_t i = 0; i < FLOATS; i++) {
        apart += pow((double)got[i] - (double)scene.here[3][i], 2);
        all += pow((double)scene.here[3][i], 2);
    }
    assert_true(sqrt(apart) <= 2e-3 * sqrt(all));
    assert_true(sqrt(apart) >= 1e-5 * sqrt(all));
    scene_end(&scene);
}

/* Rows that overlap are not for cuBLASLt; ours does not mind. */
static void what_cublas_does_not_take_is_our_own(void **state)
{
    static const uint32_t sizes[] = {2, 3, 4};
    struct scene scene;
    (void)state;
    scene_begin(&scene, 8, WITH_BLAS);
    unsigned before = matmuls();
    struct gemm_job here = job_at(scene.here, sizes, 0), there = job_at(scene.there, sizes, 0);
    here.a_stride = there.a_stride = 1;
    twin_kernel(&scene.rng, &kernel_tiled_gemm, &here);
    work_gemm(cuda_queue_list(scene.queue), &there);
    assert_both_sides(&scene, true);
    assert_int_equal(matmuls(), before);
    assert_int_equal(fake_cuda.kernels, 1);
    scene_end(&scene);
}

/* It is said, once: nothing else tells that products are slow. */
static void what_cublas_has_no_way_for_is_our_own_and_said_once(void **state)
{
    static const uint32_t sizes[] = {2, 3, 4};
    bool *has_no_way = blas_variable("fake_has_no_way");
    struct captured log;
    struct scene scene;
    (void)state;
    scene_begin(&scene, 10, WITH_BLAS);
    *has_no_way = true;
    capture_begin(&log);
    for (uint64_t how = 32; how < 34; how++) {
        struct gemm_job here = job_at(scene.here, sizes, how);
        struct gemm_job there = job_at(scene.there, sizes, how);
        twin_kernel(&scene.rng, &kernel_tiled_gemm, &here);
        work_gemm(cuda_queue_list(scene.queue), &there);
    }
    assert_both_sides(&scene, true);
    capture_end(&log);
    *has_no_way = false;
    assert_int_equal(captured_count(&log, "device cuda:0: cuBLASLt has no way for a product of 2x4 "
                                          "by 4x3 in bfloat16: our own kernel makes it"),
                     1);
    assert_int_equal(captured_count(&log, "cuBLASLt"), 1);
    assert_int_equal(fake_cuda.kernels, 2);
    scene_end(&scene);
}

/* All else goes on: the product is our own. */
static void where_there_is_no_workspace_products_are_our_own(void **state)
{
    static const uint32_t sizes[] = {2, 3, 4};
    struct captured log;
    struct scene scene;
    (void)state;
    scene_begin(&scene, 11, WITH_BLAS);
    OR_FAIL(sync_all(&scene));
    fake_cuda.memory_bytes = fake_cuda.used_bytes;
    capture_begin(&log);
    struct gemm_job here = job_at(scene.here, sizes, 0), there = job_at(scene.there, sizes, 0);
    twin_kernel(&scene.rng, &kernel_tiled_gemm, &here);
    work_gemm(cuda_queue_list(scene.queue), &there);
    assert_both_sides(&scene, true);
    capture_end(&log);
    assert_int_equal(captured_count(&log, "device cuda:0: cuBLASLt has no room for a product of "),
                     1);
    assert_int_equal(fake_cuda.kernels, 1);
    scene_end(&scene);
}

/* ---- NaNs ---------------------------------------------------------------------------------- */

static bool has_nan(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (isnan(values[i]))
            return true;
    return false;
}

/* The gradient of the first layer's weights after a pass with a NaN in a float of it. */
static bool nan_is_found(size_t input, size_t param)
{
    enum { INPUTS = 5, HIDDEN = 7 };
    trp_net_spec spec =
        trp_mlp(&(trp_mlp_options){.inputs = INPUTS, .hidden = {HIDDEN, 6}, .outputs = 3});
    struct scene scene;
    struct graph_case c;
    scene_begin(&scene, 3, WITH_BLAS);
    graph_case_init(&c, &spec, &backend_ref_f32, 4, 1);
    if (input != SIZE_MAX)
        ((float *)c.inputs[0])[input] = NAN;
    if (param != SIZE_MAX)
        ((float *)c.params)[param] = NAN;
    run_there(&c, &scene.device.base, TRP_F32);
    assert_false(has_nan(c.outputs[0], 4 * 3)); /* ReLU has hidden it */
    bool found = has_nan(c.grads, INPUTS * HIDDEN);
    graph_case_cleanup(&c);
    scene_end(&scene);
    return found;
}

/* cuBLASLt's ReLU may make a zero of one. Products with the gradients, which are zeros there, make
 * NaNs again. */
static void a_nan_that_relu_hides_is_in_the_gradients(void **state)
{
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    trp_net_spec spec = trp_mlp(&(trp_mlp_options){.inputs = 5, .hidden = {7, 6}, .outputs = 3});
    (void)state;
    assert_true(trp_net_tensors(&spec, tensors) >= 3);
    assert_false(nan_is_found(SIZE_MAX, SIZE_MAX));
    for (size_t input = 0; input < 4 * 5; input++)
        assert_true(nan_is_found(input, SIZE_MAX));
    for (size_t i = 0; i < tensors[2].count; i++)
        assert_true(nan_is_found(SIZE_MAX, tensors[2].offset + i));
}

/* ---- failures ------------------------------------------------------------------------------ */

static void what_fails_on_the_way_fails_each_wait_from_then_on(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, 9, WITHOUT_BLAS);
    OR_FAIL(sync_all(&scene));
    fake_cuda.fails_at = fake_cuda.works + 2;
    for (int i = 0; i < 3; i++)
        put_add(cuda_queue_list(scene.queue), scene.there[0], scene.there[1], scene.there[2]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sync_all(&scene), TRP_INTERNAL);
        assert_non_null(strstr(trp_last_error(), "device cuda:0: "));
        assert_non_null(strstr(trp_last_error(), "an illegal memory access was encountered "
                                                 "(cudaErrorIllegalAddress)"));
    }
    void *memory;
    assert_int_equal(trp_device_alloc(&scene.device.base, 100, &memory), TRP_INTERNAL);
    scene_end(&scene);
}

static void a_wait_ends_at_its_deadline(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, 10, WITHOUT_BLAS);
    OR_FAIL(sync_all(&scene));
    const struct machine_impl *impl = scene.machine->impl;
    struct machine_stream *stream;
    OR_FAIL(impl->stream_create(scene.machine, &stream));
    struct machine_event *event = impl->event_create(scene.machine);
    struct cuda_list list = {0};
    work_zero(&list, scene.there[0], 4);
    fake_cuda.stuck = true;
    impl->run(scene.machine, stream, &list);
    impl->event_record(scene.machine, stream, event);
    assert_int_equal(impl->event_wait(scene.machine, event, 5), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "cuda:0"));
    fake_cuda.stuck = false;
    OR_FAIL(impl->event_wait(scene.machine, event, 60000));
    work_list_cleanup(&list);
    impl->event_destroy(scene.machine, event);
    impl->stream_destroy(scene.machine, stream);
    scene_end(&scene);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_used_is_refused_by_name),
        cmocka_unit_test(all_code_is_there_before_anything_runs),
        cmocka_unit_test(memory_that_is_not_there_is_told_with_what_is),
        cmocka_unit_test(kernels_of_agents_are_found_by_name_with_their_code),
        cmocka_unit_test(a_kernel_of_agents_runs_on_the_device),
        cmocka_unit_test(lists_and_their_graphs_are_what_the_host_makes),
        cmocka_unit_test(they_are_with_products_by_cublas_too),
        cmocka_unit_test(another_library_puts_what_it_has_between),
        cmocka_unit_test(another_librarys_call_is_in_the_graph),
        cmocka_unit_test(a_list_that_cannot_be_captured_is_run),
        cmocka_unit_test(products_of_all_kinds_are_our_own),
        cmocka_unit_test(factors_have_ten_bits_where_that_is_asked),
        cmocka_unit_test(what_cublas_does_not_take_is_our_own),
        cmocka_unit_test(what_cublas_has_no_way_for_is_our_own_and_said_once),
        cmocka_unit_test(where_there_is_no_workspace_products_are_our_own),
        cmocka_unit_test(a_nan_that_relu_hides_is_in_the_gradients),
        cmocka_unit_test(what_fails_on_the_way_fails_each_wait_from_then_on),
        cmocka_unit_test(a_wait_ends_at_its_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
