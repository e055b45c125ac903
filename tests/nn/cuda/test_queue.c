/* Queues of a GPU, on a machine that runs them on the host: what becomes a graph, what is copied
 * when, how queues wait for each other, and how failures come out. */
#include "twin_machine.h"

enum { COUNT = 100 };

struct scene {
    struct twin_device twin;
    trp_device *device;
    trp_queue *queue, *other;
    float *memory[3], host[COUNT], result[COUNT];
};

static int setup(void **state)
{
    struct scene *scene = xcalloc(1, sizeof *scene);
    scene->device = twin_device_init(&scene->twin, 5);
    OR_FAIL(trp_queue_create(&scene->queue, scene->device));
    OR_FAIL(trp_queue_create(&scene->other, scene->device));
    for (size_t i = 0; i < 3; i++)
        OR_FAIL(trp_device_alloc(scene->device, COUNT * sizeof(float), (void **)&scene->memory[i]));
    for (size_t i = 0; i < COUNT; i++)
        scene->host[i] = (float)i;
    *state = scene;
    return 0;
}

static int teardown(void **state)
{
    struct scene *scene = *state;
    scene->twin.machine.lost = false;
    trp_queue_destroy(scene->queue);
    trp_queue_destroy(scene->other);
    for (size_t i = 0; i < 3; i++)
        trp_device_free(scene->device, scene->memory[i]);
    free(scene);
    return 0;
}

/* to += from, a function that the machine has no code for. */
struct adding {
    float *to;
    const float *from;
};

static void add_floats(void *arguments)
{
    const struct adding *adding = arguments;
    for (size_t i = 0; i < COUNT; i++)
        adding->to[i] += adding->from[i];
}

static void add_on(trp_queue *queue, float *to, const float *from)
{
    static const trp_kernel kernel = {"test.add", add_floats};
    struct adding adding = {to, from};
    trp_operand operands[] = {
        {offsetof(struct adding, to), COUNT * sizeof *to, TRP_READ | TRP_WRITE},
        {offsetof(struct adding, from), COUNT * sizeof *from, TRP_READ}};
    trp_queue_run(queue, &kernel, &adding, sizeof adding, operands, 2);
}

static trp_status wait_for_all(trp_queue *queue)
{
    return trp_queue_sync(queue, trp_queue_mark(queue));
}

static void assert_result(const struct scene *scene, float factor)
{
    for (size_t i = 0; i < COUNT; i++)
        assert_float_equal(scene->result[i], factor * (float)i, 0);
}

static void bytes_go_there_and_back(void **state)
{
    struct scene *scene = *state;
    trp_queue_copy(scene->queue, scene->memory[0], scene->host, sizeof scene->host);
    trp_queue_copy(scene->queue, scene->memory[1], scene->memory[0], sizeof scene->host);
    trp_queue_copy(scene->queue, scene->result, scene->memory[1], sizeof scene->host);
    OR_FAIL(wait_for_all(scene->queue));
    assert_result(scene, 1);
    trp_queue_zero(scene->queue, scene->memory[1], sizeof scene->host);
    trp_queue_copy(scene->queue, scene->result, scene->memory[1], sizeof scene->host);
    OR_FAIL(wait_for_all(scene->queue));
    assert_result(scene, 0);
}

static void what_came_back_can_be_sent_again_before_anybody_waited(void **state)
{
    struct scene *scene = *state;
    trp_queue_copy(scene->queue, scene->memory[0], scene->host, sizeof scene->host);
    trp_queue_copy(scene->queue, scene->result, scene->memory[0], sizeof scene->host);
    trp_queue_copy(scene->queue, scene->memory[1], scene->result, sizeof scene->host);
    memset(scene->result, 0, sizeof scene->result);
    trp_queue_copy(scene->queue, scene->result, scene->memory[1], sizeof scene->host);
    OR_FAIL(wait_for_all(scene->queue));
    assert_result(scene, 1);
}

static void copies_larger_than_the_ring_come_whole(void **state)
{
    struct scene *scene = *state;
    size_t bytes = (size_t)3 * QUEUE_STAGING_BYTES / 2 + 4, count = bytes / sizeof(uint32_t);
    uint32_t *from = xmalloc(bytes), *to = xcalloc(1, bytes);
    void *memory;
    for (size_t i = 0; i < count; i++)
        from[i] = (uint32_t)i * 2654435761u;
    OR_FAIL(trp_device_alloc(scene->device, bytes, &memory));
    trp_queue_copy(scene->queue, memory, from, bytes);
    trp_queue_copy(scene->queue, to, memory, bytes);
    OR_FAIL(wait_for_all(scene->queue));
    assert_memory_equal(to, from, bytes);
    trp_device_free(scene->device, memory);
    free(to);
    free(from);
}

static void a_function_of_the_host_sees_copies_of_its_operands(void **state)
{
    struct scene *scene = *state;
    trp_queue_copy(scene->queue, scene->memory[0], scene->host, sizeof scene->host);
    for (int i = 0; i < 3; i++)
        add_on(scene->queue, scene->memory[1], scene->memory[0]);
    trp_queue_copy(scene->queue, scene->result, scene->memory[1], sizeof scene->host);
    OR_FAIL(wait_for_all(scene->queue));
    assert_result(scene, 3);
}

static void a_list_that_comes_again_is_a_graph_and_another_one_is_not(void **state)
{
    struct scene *scene = *state;
    const struct twin_machine *machine = &scene->twin.machine;
    trp_queue_copy(scene->queue, scene->memory[0], scene->host, sizeof scene->host);
    for (uint64_t i = 0; i < 5; i++) {
        add_on(scene->queue, scene->memory[1], scene->memory[0]);
        OR_FAIL(wait_for_all(scene->queue));
        assert_int_equal(machine->runs, 1);
        assert_int_equal(machine->graphs, i > 0);
        assert_int_equal(machine->launches, i);
    }
    add_on(scene->queue, scene->memory[2], scene->memory[0]);
    OR_FAIL(wait_for_all(scene->queue));
    assert_int_equal(machine->runs, 2);
    trp_queue_copy(scene->queue, scene->result, scene->memory[1], sizeof scene->host);
    OR_FAIL(wait_for_all(scene->queue));
    assert_result(scene, 5);
}

/* More lists than are remembered: the oldest go, and come again as if they were new. */
static void graphs_are_bounded(void **state)
{
    struct scene *scene = *state;
    float *many;
    enum { LISTS = 3 * QUEUE_GRAPHS_MAX };
    OR_FAIL(trp_device_alloc(scene->device, LISTS * COUNT * sizeof(float), (void **)&many));
    trp_queue_copy(scene->queue, scene->memory[0], scene->host, sizeof scene->host);
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < LISTS; i++)
            for (int k = 0; k < 3; k++) {
                add_on(scene->queue, many + i * COUNT, scene->memory[0]);
                OR_FAIL(wait_for_all(scene->queue));
            }
    for (size_t i = 0; i < LISTS; i++) {
        trp_queue_copy(scene->queue, scene->result, many + i * COUNT, sizeof scene->host);
        OR_FAIL(wait_for_all(scene->queue));
        assert_result(scene, 6);
    }
    trp_device_free(scene->device, many);
}

static void a_queue_waits_for_another(void **state)
{
    struct scene *scene = *state;
    for (int i = 0; i < 20; i++) {
        trp_queue_copy(scene->other, scene->memory[0], scene->host, sizeof scene->host);
        trp_queue_wait(scene->queue, scene->other);
        add_on(scene->queue, scene->memory[1], scene->memory[0]);
        trp_queue_wait(scene->other, scene->queue); /* and back: it is overwritten afterwards */
        trp_queue_zero(scene->other, scene->memory[0], sizeof scene->host);
    }
    trp_queue_copy(scene->queue, scene->result, scene->memory[1], sizeof scene->host);
    OR_FAIL(wait_for_all(scene->other));
    OR_FAIL(wait_for_all(scene->queue));
    assert_result(scene, 20);
}

static void more_marks_than_are_kept_are_fine(void **state)
{
    struct scene *scene = *state;
    uint64_t first = trp_queue_mark(scene->queue), last = 0;
    trp_queue_copy(scene->queue, scene->memory[0], scene->host, sizeof scene->host);
    for (int i = 0; i < 3 * QUEUE_MARKS_MAX; i++) {
        add_on(scene->queue, scene->memory[1], scene->memory[0]);
        uint64_t mark = trp_queue_mark(scene->queue);
        assert_true(mark > last);
        last = mark;
    }
    OR_FAIL(trp_queue_sync(scene->queue, first));
    trp_queue_copy(scene->queue, scene->result, scene->memory[1], sizeof scene->host);
    OR_FAIL(wait_for_all(scene->queue));
    OR_FAIL(trp_queue_sync(scene->queue, last));
    assert_result(scene, 3 * QUEUE_MARKS_MAX);
}

static void a_device_that_is_lost_fails_this_wait_and_all_later_ones(void **state)
{
    struct scene *scene = *state;
    OR_FAIL(wait_for_all(scene->queue));
    add_on(scene->queue, scene->memory[1], scene->memory[0]);
    uint64_t mark = trp_queue_mark(scene->queue);
    scene->twin.machine.lost = true;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(trp_queue_sync(scene->queue, mark), TRP_UNAVAILABLE);
        assert_string_equal(trp_last_error(), "device twin is lost");
    }
    scene->twin.machine.lost = false; /* so that the test can clean up */
    OR_FAIL(trp_queue_sync(scene->queue, mark));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(bytes_go_there_and_back),
        TEST(what_came_back_can_be_sent_again_before_anybody_waited),
        TEST(copies_larger_than_the_ring_come_whole),
        TEST(a_function_of_the_host_sees_copies_of_its_operands),
        TEST(a_list_that_comes_again_is_a_graph_and_another_one_is_not),
        TEST(graphs_are_bounded),
        TEST(a_queue_waits_for_another),
        TEST(more_marks_than_are_kept_are_fine),
        TEST(a_device_that_is_lost_fails_this_wait_and_all_later_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
