/* Plans of a GPU, run on the host by the kernels' twins, against the reference: every kind of layer
 * in random graphs, and the usual networks; as lists, and as graphs in any order that their waits
 * allow. */
#include "plan_case.h"
#include "real_gpu.h"
#include "twin_machine.h"

static uint64_t waits; /* of all graphs of the machine, each of which was needed */

/* ---- tests, each on the device that it is given -------------------------------------------------
 */

static void check_random_graphs(trp_device *device)
{
    trp_rng rng;
    trp_rng_init(&rng, 3, 0);
    for (uint32_t i = 0; i < 2 * GRAPHS; i++) {
        trp_net_spec spec = random_spec(&rng);
        check_numbers(device, &spec, 1 + i % ROWS_MAX);
    }
}

static void check_odd_sizes(trp_device *device)
{
    static const uint32_t sizes[] = {1, 31, 33, 257};
    for (size_t i = 0; i < 4; i++) {
        trp_net_spec spec = trp_mlp(&(trp_mlp_options){
            .inputs = sizes[3 - i], .hidden = {sizes[i], 33}, .outputs = 5, .dueling = i % 2});
        check_spec(device, &spec, i == 0 ? 1 : 33);
    }
}

static void check_sequences(trp_device *device)
{
    static const uint32_t sizes[] = {1, 31, 33};
    for (trp_core core = TRP_CORE_LSTM; core <= TRP_CORE_GRU; core++)
        for (size_t i = 0; i < 3; i++) {
            trp_net_spec spec = trp_mlp(&(trp_mlp_options){
                .inputs = 5, .hidden = {9}, .outputs = 3, .core = core, .core_size = sizes[i]});
            check_spec(device, &spec, 33); /* 3 steps of 11 */
            check_spec(device, &spec, 1);
        }
}

static void check_frames(trp_device *device)
{
    trp_net_spec spec = trp_impala_resnet(
        &(trp_cnn_options){.height = 12, .width = 10, .channels = 2, .outputs = 3, .value = true});
    check_spec(device, &spec, 3);
}

typedef void rounding_check(trp_device *device, const trp_net_spec *spec, uint32_t rows);

/* Smooth: a unit on the other side of ReLU's corner has another gradient at once. */
static void check_smooth(trp_device *device, rounding_check *check)
{
    static const uint32_t sizes[] = {31, 33, 257};
    for (size_t i = 0; i < 3; i++) {
        trp_net_spec spec = trp_mlp(&(trp_mlp_options){
            .inputs = sizes[i], .hidden = {sizes[2 - i]}, .outputs = 5, .activation = TRP_TANH});
        check(device, &spec, 33);
    }
}

static void check_halves(trp_device *device)
{
    check_smooth(device, check_half);
}

/* Windows of all kinds, in images of floats and of bytes. */
static void check_windows_by(trp_device *device, rounding_check *check)
{
    trp_rng rng;
    trp_rng_init(&rng, 5, 0);
    for (uint32_t i = 0; i < 12; i++) {
        trp_net_spec spec = windows_spec(&rng);
        check_spec(device, &spec, 1 + i % 5);
        check(device, &spec, 1 + i % 5);
    }
}

static void check_windows(trp_device *device)
{
    check_windows_by(device, check_half);
}

/* On a machine of tests, which looks whether each wait is needed, with or without a library that
 * makes convolutions. */
static void check_on_machine(void (*check)(trp_device *device), bool convolves)
{
    struct twin_device *twin = xcalloc(1, sizeof *twin);
    trp_device *device = twin_device_init(twin, 7);
    twin->machine.checks_waits = true;
    twin->machine.convolves = convolves;
    check(device);
    assert_true(twin->machine.launches > 0 || !LISTS_REPEAT);
    assert_true(!convolves == (twin->machine.convolutions == 0));
    waits += twin->machine.waits;
    free(twin);
}

static void check_on_twin(void (*check)(trp_device *device))
{
    check_on_machine(check, false);
}

static void random_graphs_are_the_reference(void **state)
{
    (void)state;
    check_on_twin(check_random_graphs);
}

static void odd_sizes_are_the_reference(void **state)
{
    (void)state;
    check_on_twin(check_odd_sizes);
}

static void sequences_are_the_reference(void **state)
{
    (void)state;
    check_on_twin(check_sequences);
}

static void frames_are_the_reference(void **state)
{
    (void)state;
    check_on_twin(check_frames);
}

static void windows_are_the_reference(void **state)
{
    (void)state;
    check_on_twin(check_windows);
}

static void random_graphs_by_a_library_are_the_reference(void **state)
{
    (void)state;
    check_on_machine(check_random_graphs, true);
}

static void frames_by_a_library_are_the_reference(void **state)
{
    (void)state;
    check_on_machine(check_frames, true);
}

static void windows_by_a_library_are_the_reference(void **state)
{
    (void)state;
    check_on_machine(check_windows, true);
}

/* The convolutions on the queue, of which nothing is done. */
static uint32_t find_convolutions(trp_queue *queue, struct conv_job *jobs, uint32_t most)
{
    const struct cuda_list *list = cuda_queue_list(queue);
    uint32_t count = 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->works[i].kind == WORK_CONV && count < most)
            memcpy(&jobs[count++], work_arguments(list, &list->works[i]), sizeof *jobs);
    return count;
}

/* 16 of them fit into the room that there is. */
static void large_images_go_some_at_a_time(void **state)
{
    enum { ROWS = 17, MEMORY = 32 << 20 };
    struct twin_device *twin = xcalloc(1, sizeof *twin);
    trp_device *device = twin_device_init(twin, 7);
    trp_queue *queue = queue_on(device);
    trp_net_spec spec = {0};
    struct conv_job jobs[5];
    void *memory;
    trp_net *net;
    (void)state;
    twin->machine.convolves = true;
    trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .dtype = TRP_UINT8, .shape = {1024, 512, 2}});
    trp_net_add(
        &spec, (trp_layer){.kind = TRP_CONV2D, .name = "c", .size = 4, .kernel = 2, .stride = 255});
    spec.outputs[spec.output_count++] = 1;
    OR_FAIL(
        trp_net_create(&net, &(trp_net_options){.spec = &spec, .batch = ROWS, .device = device}));
    OR_FAIL(trp_device_alloc(device, MEMORY, &memory));
    struct pass pass = {.params = memory, .grads = memory};
    pass.external[external_index(PLACE_INPUT, 0)] = memory;
    pass.external[external_index(PLACE_OUTPUT, 0)] = memory;
    pass.external[external_index(PLACE_OUTPUT_GRAD, 0)] = memory;
    net->impl->forward(net, queue, &pass, ROWS);
    net->impl->backward(net, queue, &pass, ROWS);
    assert_int_equal(find_convolutions(queue, jobs, 5), 4);
    for (uint32_t i = 0; i < 4; i++) {
        const struct conv_job *before = &jobs[i / 2 * 2];
        assert_int_equal(jobs[i].images, i % 2 ? 1 : 16);
        assert_int_equal(jobs[i].makes, i < 2 ? CONV_FORWARD : CONV_WEIGHTS);
        assert_ptr_equal(jobs[i].x, before->x);
        assert_ptr_equal(jobs[i].y, before->y + i % 2 * 16 * before->y_stride);
    }
    work_list_clear(cuda_queue_list(queue));
    trp_net_destroy(net);
    trp_device_free(device, memory);
    trp_queue_destroy(queue);
    free(twin);
}

static void halves_are_near_the_reference(void **state)
{
    (void)state;
    check_on_twin(check_halves);
}

static void random_graphs_on_a_gpu_are_the_reference(void **state)
{
    (void)state;
    check_random_graphs(real_gpu());
}

static void odd_sizes_on_a_gpu_are_the_reference(void **state)
{
    (void)state;
    check_odd_sizes(real_gpu());
}

static void sequences_on_a_gpu_are_the_reference(void **state)
{
    (void)state;
    check_sequences(real_gpu());
}

static void frames_on_a_gpu_are_the_reference(void **state)
{
    (void)state;
    check_frames(real_gpu());
}

static void windows_on_a_gpu_are_the_reference(void **state)
{
    (void)state;
    check_windows_by(real_gpu(), check_half_by_library);
}

static void halves_on_a_gpu_are_near_the_reference(void **state)
{
    (void)state;
    check_smooth(real_gpu(), check_half_by_library);
}

static void tf32_on_a_gpu_is_near_the_reference(void **state)
{
    (void)state;
    check_smooth(real_gpu(), check_tf32_by_library);
}

/* Products of which libraries have their fastest kernels. TF32 is float32 where there is none. */
static void check_usual_sizes(trp_device *device)
{
    const trp_net_spec spec = trp_mlp(&(trp_mlp_options){.inputs = 512, .outputs = 256});
    check_spec(device, &spec, 32);
    print_message("bfloat16 on %s, the output that differs most\t%.3g\n", trp_device_name(device),
                  check_rounding(device, &spec, 32, TRP_BF16, 1e-4, 1.6e-2));
    print_message("TF32 on %s, the output that differs most\t%.3g\n", trp_device_name(device),
                  check_rounding(device, &spec, 32, TRP_TF32, 0, 2e-3));
}

static void usual_sizes_are_the_reference(void **state)
{
    (void)state;
    check_on_twin(check_usual_sizes);
}

static void usual_sizes_on_a_gpu_are_the_reference(void **state)
{
    (void)state;
    check_usual_sizes(real_gpu());
}

/* ---- what libraries do where they are there, by ourselves -------------------------------------
 */

enum { SIDE = 70 };

/* Of three tiles each way; the places are those of `at`: a, b, c. */
static struct gemm_job own_job(float *const at[3], int how)
{
    return (struct gemm_job){.a = at[0],
                             .b = at[1],
                             .c = at[2],
                             .a_stride = SIDE,
                             .b_stride = SIDE,
                             .c_stride = SIDE,
                             .m = 65,
                             .n = 33,
                             .k = 67,
                             .a_turned = how & 1,
                             .b_turned = how & 2,
                             .accumulate = how & 4,
                             .precision = how & 8 ? TRP_BF16 : TRP_F32};
}

static void check_own_products(trp_device *device)
{
    enum { WAYS = 16, FLOATS = SIDE * SIDE };
    trp_rng rng;
    trp_queue *queue;
    float *here[3], *there[3], *got = xmalloc(FLOATS * sizeof *got);
    const struct cuda_kernel *kernel =
        machine_of(device)->impl->find_kernel(machine_of(device), kernel_tiled_gemm.name);
    assert_non_null(kernel);
    trp_rng_init(&rng, 6, 0);
    OR_FAIL(trp_queue_create(&queue, device));
    for (size_t i = 0; i < 3; i++) {
        here[i] = random_floats(&rng, FLOATS, 1);
        OR_FAIL(trp_device_alloc(device, FLOATS * sizeof(float), (void **)&there[i]));
        trp_queue_copy(queue, there[i], here[i], FLOATS * sizeof(float));
    }
    for (int how = 0; how < WAYS; how++) {
        struct gemm_job job = own_job(here, how), job_there = own_job(there, how);
        twin_kernel(&rng, &kernel_tiled_gemm, &job);
        work_kernel(cuda_queue_list(queue), kernel, &job_there);
        trp_queue_copy(queue, got, there[2], FLOATS * sizeof(float));
        OR_FAIL(trp_queue_sync(queue, trp_queue_mark(queue)));
        assert_memory_equal(got, here[2], FLOATS * sizeof(float));
    }
    for (size_t i = 0; i < 3; i++) {
        free(here[i]);
        trp_device_free(device, there[i]);
    }
    free(got);
    trp_queue_destroy(queue);
}

static void our_own_products_are_those_of_the_host(void **state)
{
    (void)state;
    struct twin_device *twin = xmalloc(sizeof *twin);
    check_own_products(twin_device_init(twin, 7));
    free(twin);
}

static void our_own_products_on_a_gpu_are_those_of_the_host(void **state)
{
    (void)state;
    check_own_products(real_gpu());
}

static bool convolves_nothing(struct machine *machine, const struct conv_job *job, size_t *bytes)
{
    (void)machine, (void)job, (void)bytes;
    return false;
}

static void windows_by_patches_on_a_gpu_are_the_reference(void **state)
{
    (void)state;
    trp_device *device = real_gpu();
    struct machine *machine = machine_of(device);
    const struct machine_impl *before = machine->impl;
    struct machine_impl ours = *before;
    ours.convolves = convolves_nothing;
    machine->impl = &ours;
    check_windows_by(device, check_half_by_library);
    machine->impl = before;
}

/* Of the graphs above: the machine has left out each of them once, and found what is not ordered
 * then. */
static void no_wait_can_be_left_out(void **state)
{
    (void)state;
    assert_true(waits > 100);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_are_the_reference),
        cmocka_unit_test(odd_sizes_are_the_reference),
        cmocka_unit_test(sequences_are_the_reference),
        cmocka_unit_test(frames_are_the_reference),
        cmocka_unit_test(windows_are_the_reference),
        cmocka_unit_test(random_graphs_by_a_library_are_the_reference),
        cmocka_unit_test(frames_by_a_library_are_the_reference),
        cmocka_unit_test(windows_by_a_library_are_the_reference),
        cmocka_unit_test(large_images_go_some_at_a_time),
        cmocka_unit_test(halves_are_near_the_reference),
        cmocka_unit_test(usual_sizes_are_the_reference),
        cmocka_unit_test(our_own_products_are_those_of_the_host),
        cmocka_unit_test(no_wait_can_be_left_out),
        cmocka_unit_test(random_graphs_on_a_gpu_are_the_reference),
        cmocka_unit_test(odd_sizes_on_a_gpu_are_the_reference),
        cmocka_unit_test(sequences_on_a_gpu_are_the_reference),
        cmocka_unit_test(frames_on_a_gpu_are_the_reference),
        cmocka_unit_test(windows_on_a_gpu_are_the_reference),
        cmocka_unit_test(halves_on_a_gpu_are_near_the_reference),
        cmocka_unit_test(tf32_on_a_gpu_is_near_the_reference),
        cmocka_unit_test(usual_sizes_on_a_gpu_are_the_reference),
        cmocka_unit_test(our_own_products_on_a_gpu_are_those_of_the_host),
        cmocka_unit_test(windows_by_patches_on_a_gpu_are_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
