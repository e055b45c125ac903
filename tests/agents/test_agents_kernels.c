/* Kernels of agents on a machine of tests: their code is what runs, and the bits are the host's. */
#include "agents/bodies/moves.h"
#include "agents/tile.h"
#include "agents/torso.h"
#include "gpu_kernels.h"
#include "tests/nn/cuda/twin_machine.h"

static uint32_t asked;

static const struct cuda_kernel *find_of_agents(const char *name)
{
    const struct cuda_kernel *kernel = find_agents_kernel(name);
    asked += kernel != NULL;
    return kernel;
}

static const struct cuda_kernel *kernel_named(const char *name)
{
    const struct cuda_kernel *kernel = find_of_agents(name);
    assert_non_null(kernel);
    return kernel;
}

enum { SIZES = 4 };
static const uint32_t sizes[SIZES] = {1, 31, 33, 257};

static void *on_device(trp_device *device, size_t bytes)
{
    void *memory;
    OR_FAIL(trp_device_alloc(device, bytes, &memory));
    return memory;
}

/* Gathers `rows` rows of `bytes` backwards, and tiles those of floats. */
static void check_moves(trp_device *device, uint32_t rows, size_t bytes)
{
    trp_queue *queue;
    int32_t *order = xcalloc(rows, sizeof *order);
    uint8_t *from = xcalloc(rows, bytes), *to = xcalloc(3 * rows, bytes);
    OR_FAIL(trp_queue_create(&queue, device));
    for (size_t i = 0; i < rows * bytes; i++)
        from[i] = (uint8_t)(i * 7 + i / 256);
    for (uint32_t i = 0; i < rows; i++)
        order[i] = (int32_t)(rows - 1 - i);
    void *there[] = {on_device(device, rows * sizeof *order), on_device(device, rows * bytes),
                     on_device(device, 3 * rows * bytes)};
    trp_queue_copy(queue, there[0], order, rows * sizeof *order);
    trp_queue_copy(queue, there[1], from, rows * bytes);
    trp_queue_gather(queue, &(trp_row_order){there[0], rows, rows}, there[1], there[2], bytes);
    trp_queue_copy(queue, to, there[2], rows * bytes);
    OR_FAIL(trp_queue_sync(queue, trp_queue_mark(queue)));
    for (uint32_t i = 0; i < rows; i++)
        assert_memory_equal(to + i * bytes, from + (size_t)order[i] * bytes, bytes);
    if (bytes % sizeof(float) == 0) {
        tile_on(queue, &(struct tile){rows, 3, bytes / sizeof(float)}, there[1], there[2]);
        trp_queue_copy(queue, to, there[2], 3 * rows * bytes);
        OR_FAIL(trp_queue_sync(queue, trp_queue_mark(queue)));
        for (uint32_t i = 0; i < 3 * rows; i++)
            assert_memory_equal(to + i * bytes, from + i / 3 * bytes, bytes);
    }
    for (size_t i = 0; i < 3; i++)
        trp_device_free(device, there[i]);
    trp_queue_destroy(queue);
    free(order);
    free(from);
    free(to);
}

static void rows_are_moved_by_the_code_of_a_gpu(void **state)
{
    struct twin_device *twin = xcalloc(1, sizeof *twin);
    trp_device *device = twin_device_init(twin, 1);
    (void)state;
    twin->machine.more = find_of_agents;
    asked = 0;
    for (size_t i = 0; i < SIZES; i++) {
        check_moves(device, sizes[i], 12);
        check_moves(device, sizes[i], 7);
    }
    assert_int_equal(asked, SIZES); /* tiles: nn/ has the code that gathers */
    free(twin);
}

static void frames_are_sorted_by_the_code_of_a_gpu(void **state)
{
    static const struct torso_image images[] = {{4, 3, 5, 1}, {3, 4, 1, 3}, {2, 1, 1, 1}};
    struct twin_device *twin = xcalloc(1, sizeof *twin);
    trp_device *device = twin_device_init(twin, 1);
    trp_queue *queue;
    (void)state;
    twin->machine.more = find_of_agents;
    asked = 0;
    OR_FAIL(trp_queue_create(&queue, device));
    for (size_t i = 0; i < 3 * SIZES; i++) {
        const struct torso_image *image = &images[i % 3];
        uint32_t rows = sizes[i / 3];
        size_t bytes = rows * torso_pixels_bytes(image);
        uint8_t *from = xcalloc(bytes, 1), *here = xcalloc(bytes, 1), *back = xcalloc(bytes, 1);
        for (size_t k = 0; k < bytes; k++)
            from[k] = (uint8_t)(k * 7 + k / 256);
        void *there[] = {on_device(device, bytes), on_device(device, bytes)};
        trp_queue_copy(queue, there[0], from, bytes);
        assert_ptr_equal(torso_pixels_on(queue, image, rows, there[0], there[1]), there[1]);
        trp_queue_copy(queue, back, there[1], bytes);
        OR_FAIL(trp_queue_sync(queue, trp_queue_mark(queue)));
        torso_pixels(image, rows, from, here);
        assert_memory_equal(back, here, bytes);
        trp_device_free(device, there[0]);
        trp_device_free(device, there[1]);
        free(from);
        free(here);
        free(back);
    }
    assert_int_equal(asked, 3 * SIZES);
    trp_queue_destroy(queue);
    free(twin);
}

static void numbers_are_those_of_the_host(void **state)
{
    float from[257], to[258], before[258];
    trp_rng rng;
    (void)state;
    trp_rng_init(&rng, 3, 0);
    for (size_t i = 0; i < SIZES; i++) {
        uint32_t count = sizes[i];
        for (size_t k = 0; k < 258; k++)
            to[k] = before[k] = (float)trp_rng_double(&rng);
        for (size_t k = 0; k < 257; k++)
            from[k] = (float)trp_rng_double(&rng);
        twin_kernel(&rng, kernel_named("critics.add"),
                    &(struct add_actions_arguments){count, from, to});
        for (size_t k = 0; k < 258; k++)
            assert_true(to[k] == (k < count ? before[k] + from[k] : before[k]));
        memcpy(to, before, sizeof to);
        twin_kernel(&rng, kernel_named("control.discounts"),
                    &(struct discounts_arguments){count, 0.99F, from, to});
        for (size_t k = 0; k < 258; k++)
            assert_true(to[k] == (k < count ? 0.99F * from[k] : before[k]));
        memcpy(to, before, sizeof to);
        twin_kernel(
            &rng, kernel_named("states.normalize"),
            &(struct normalize_arguments){count / 2, 2, (float[]){3, 5, 0.5F, 8}, from, to});
        for (size_t k = 0; k < 258; k++)
            assert_true(to[k] == (k >= count / 2 * 2 ? before[k]
                                  : k % 2 == 0       ? (from[k] - 3) / 0.5F
                                                     : (from[k] - 5) / 8));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_moved_by_the_code_of_a_gpu),
        cmocka_unit_test(frames_are_sorted_by_the_code_of_a_gpu),
        cmocka_unit_test(numbers_are_those_of_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
