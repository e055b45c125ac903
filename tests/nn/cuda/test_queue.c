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
    static const trp_kernel kernel = {.name = "test.add", .run = add_floats};
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

/* Numbers come to the device as they are when it copies them, which this one does late. */
static void assert_copied_late(struct scene *scene, float *memory, size_t count, bool late)
{
    float seen[COUNT] = {0};
    for (size_t i = 0; i < count; i++)
        memory[i] = 1;
    trp_queue_copy(scene->queue, scene->memory[0], memory, count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        memory[i] = 2;
    trp_queue_copy(scene->queue, seen, scene->memory[0], count * sizeof(float));
    OR_FAIL(wait_for_all(scene->queue));
    for (size_t i = 0; i < count; i++)
        assert_float_equal(seen[i], late ? 2 : 1, 0);
}

static void memory_for_it_is_copied_from_where_it_lies(void **state)
{
    struct scene *scene = *state;
    const trp_allocator *allocator = trp_device_host_memory(scene->device);
    float *blocks[3];
    for (size_t i = 0; i < 3; i++)
        blocks[i] = allocator->allocate(allocator->context, COUNT * sizeof(float));
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal((uintptr_t)blocks[i] % 64, 0);
        assert_copied_late(scene, blocks[i], COUNT, true);
        assert_copied_late(scene, blocks[i] + 7, COUNT - 7, true);
    }
    assert_copied_late(scene, scene->host, COUNT, false);
    allocator->release(allocator->context, blocks[1]);
    assert_copied_late(scene, blocks[0], COUNT, true);
    assert_copied_late(scene, blocks[2], COUNT, true);
    allocator->release(allocator->context, blocks[0]);
    allocator->release(allocator->context, blocks[2]);
}

static struct machine_impl pins_no_more;

static trp_status refuse_pin(struct machine *machine, size_t bytes, void **memory)
{
    (void)memory;
    return trp_fail(TRP_RESOURCE_EXHAUSTED, "%s: %zu bytes", machine->name, bytes);
}

static void forbid_unpin(struct machine *machine, void *memory)
{
    (void)machine, (void)memory;
    fail_msg("it was not pinned");
}

static void where_nothing_more_is_pinned_memory_is_the_hosts_own(void **state)
{
    struct scene *scene = *state;
    struct machine *machine = &scene->twin.machine.base;
    const trp_allocator *allocator = trp_device_host_memory(scene->device);
    assert_copied_late(scene, scene->host, COUNT, false); /* the ring is there */
    const struct machine_impl *before = machine->impl;
    pins_no_more = *before;
    pins_no_more.pin = refuse_pin;
    pins_no_more.unpin = forbid_unpin;
    machine->impl = &pins_no_more;
    float *memory = allocator->allocate(allocator->context, COUNT * sizeof(float));
    assert_non_null(memory);
    assert_copied_late(scene, memory, COUNT, false);
    allocator->release(allocator->context, memory);
    machine->impl = before;
}

/* The first copy has no ring. */
static void bytes_that_were_not_copied_fail_whoever_waits(void **state)
{
    struct scene *scene = *state;
    struct machine *machine = &scene->twin.machine.base;
    const struct machine_impl *before = machine->impl;
    pins_no_more = *before;
    pins_no_more.pin = refuse_pin;
    machine->impl = &pins_no_more;
    trp_queue_copy(scene->queue, scene->memory[0], scene->host, sizeof scene->host);
    machine->impl = before;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wait_for_all(scene->queue), TRP_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(trp_last_error(), "twin: "));
    }
    assert_true(trp_queue_done(scene->queue, trp_queue_mark(scene->queue)));
    OR_FAIL(wait_for_all(scene->other));
}

static trp_status never(struct machine *machine, struct machine_event *event, int64_t timeout_ms)
{
    (void)event;
    return trp_fail(TRP_DEADLINE_EXCEEDED, "%s: %d ms", machine->name, (int)timeout_ms);
}

/* What the device still reads may be overwritten then. */
static void a_wait_of_its_own_that_does_not_end_fails_the_queue(void **state)
{
    struct scene *scene = *state;
    struct machine *machine = &scene->twin.machine.base;
    const struct machine_impl *before = machine->impl;
    struct machine_impl waits_in_vain = *before;
    trp_queue_copy(scene->queue, scene->memory[0], scene->host, sizeof scene->host);
    waits_in_vain.event_wait = never;
    machine->impl = &waits_in_vain;
    for (int i = 0; i <= QUEUE_MARKS_MAX; i++)
        trp_queue_mark(scene->queue);
    machine->impl = before;
    assert_int_equal(wait_for_all(scene->queue), TRP_DEADLINE_EXCEEDED);
    assert_non_null(strstr(trp_last_error(), "device twin is not done within 60 s"));
    assert_true(trp_queue_done(scene->queue, trp_queue_mark(scene->queue)));
    trp_queue_wait(scene->other, scene->queue); /* it works on */
    OR_FAIL(wait_for_all(scene->other));
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

/* It goes up before the list that it has nothing to do with, and in its place among works that it
 * has. */
static void a_copy_from_the_host_parts_a_list_only_where_it_has_to(void **state)
{
    struct scene *scene = *state;
    const struct twin_machine *machine = &scene->twin.machine;
    trp_queue_copy(scene->queue, scene->memory[0], scene->host, sizeof scene->host);
    add_on(scene->queue, scene->memory[2], scene->memory[0]);
    trp_queue_copy(scene->queue, scene->memory[1], scene->host, sizeof scene->host);
    add_on(scene->queue, scene->memory[2], scene->memory[1]);
    assert_int_equal(machine->runs, 0);
    trp_queue_copy(scene->queue, scene->memory[0], scene->result, sizeof scene->host); /* zeros */
    assert_int_equal(machine->runs, 1);
    add_on(scene->queue, scene->memory[2], scene->memory[0]);
    trp_queue_copy(scene->queue, scene->memory[2] + COUNT - 1, scene->result, sizeof(float));
    assert_int_equal(machine->runs, 2);
    trp_queue_copy(scene->queue, scene->result, scene->memory[2], sizeof scene->host);
    OR_FAIL(wait_for_all(scene->queue));
    assert_true(scene->result[COUNT - 1] == 0);
    scene->result[COUNT - 1] = 2 * (COUNT - 1);
    assert_result(scene, 2);
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

/* ---- calls of another library ------------------------------------------------------------------
 */

enum { DOUBLINGS = 256 };

/* A library that doubles vectors, and what it saw. */
struct guest {
    bool over, refuses; /* what is captured */
    unsigned puts, ends, count;
    const float *doubled[DOUBLINGS];
};

struct doubling {
    struct guest *guest;
    float *values;
};

static bool double_values(void *argument)
{
    const struct doubling *doubling = argument;
    struct guest *guest = doubling->guest;
    for (size_t i = 0; i < COUNT; i++)
        doubling->values[i] *= 2;
    guest->doubled[guest->count++ % DOUBLINGS] = doubling->values;
    return true;
}

static void end_doubling(void *argument)
{
    struct doubling *doubling = argument;
    doubling->guest->ends++;
    free(doubling);
}

static bool put_doubling(void *owner, void *stream, const void *arguments)
{
    struct guest *guest = owner;
    struct native_stream *native = stream;
    const struct doubling *doubling = arguments;
    if (guest->over || (guest->refuses && native->captured))
        return false;
    guest->puts++;
    native->put(native, doubling->values, COUNT * sizeof(float), double_values, end_doubling,
                xmemdup(doubling, sizeof *doubling));
    return true;
}

static bool guest_is_over(const void *owner)
{
    return ((const struct guest *)owner)->over;
}

static void double_on(trp_queue *queue, struct guest *guest, float *values)
{
    static const trp_library_call call = {"test.double", put_doubling, guest_is_over};
    struct doubling doubling = {guest, values};
    trp_operand operand = {offsetof(struct doubling, values), COUNT * sizeof *values,
                           TRP_READ | TRP_WRITE};
    trp_queue_call(queue, &call, guest, &doubling, sizeof doubling, &operand, 1);
}

/* A list: memory[2] becomes twice what went up. */
static void put_doubled(struct scene *scene, struct guest *guest)
{
    trp_queue_zero(scene->queue, scene->memory[1], sizeof scene->host);
    add_on(scene->queue, scene->memory[1], scene->memory[0]);
    double_on(scene->queue, guest, scene->memory[1]);
    trp_queue_zero(scene->queue, scene->memory[2], sizeof scene->host);
    add_on(scene->queue, scene->memory[2], scene->memory[1]);
}

static void assert_doubled(struct scene *scene, float factor)
{
    trp_queue_copy(scene->queue, scene->result, scene->memory[2], sizeof scene->host);
    OR_FAIL(wait_for_all(scene->queue));
    assert_result(scene, factor);
}

static void a_call_is_captured_at_once_with_what_is_around_it(void **state)
{
    struct scene *scene = *state;
    struct guest guest = {0};
    const struct twin_machine *machine = &scene->twin.machine;
    scene->twin.machine.checks_waits = true;
    trp_queue_copy(scene->queue, scene->memory[0], scene->host, sizeof scene->host);
    for (unsigned i = 0; i < 5; i++) {
        put_doubled(scene, &guest);
        assert_doubled(scene, 2);
        assert_int_equal(guest.count, i + 1);
        assert_int_equal(machine->launches, i + 1);
        if (LISTS_REPEAT)
            assert_int_equal(machine->graphs, 1);
    }
    assert_int_equal(machine->runs, 0);
    trp_queue_forget(scene->queue, &guest);
    assert_int_equal(guest.ends, guest.puts);
}

static void calls_of_one_owner_keep_their_order(void **state)
{
    struct scene *scene = *state;
    struct guest guest = {0};
    for (unsigned i = 0; i < 60; i++) {
        for (size_t k = 0; k < 3; k++)
            trp_queue_zero(scene->queue, scene->memory[k], sizeof scene->host);
        for (size_t k = 0; k < 3; k++)
            double_on(scene->queue, &guest, scene->memory[2 - k]);
        OR_FAIL(wait_for_all(scene->queue));
    }
    for (unsigned i = 0; i < guest.count; i++)
        assert_ptr_equal(guest.doubled[i], scene->memory[2 - i % 3]);
    trp_queue_forget(scene->queue, &guest);
}

static void what_an_owner_that_is_over_has_put_is_not_launched(void **state)
{
    struct scene *scene = *state;
    struct guest guest = {0};
    const struct twin_machine *machine = &scene->twin.machine;
    trp_queue_copy(scene->queue, scene->memory[0], scene->host, sizeof scene->host);
    put_doubled(scene, &guest);
    assert_doubled(scene, 2);
    put_doubled(scene, &guest);
    guest.over = true;
    assert_doubled(scene, 1); /* all but the call */
    assert_int_equal(machine->launches, 1);
    assert_int_equal(machine->runs, 1);
    assert_int_equal(guest.count, 1);
    trp_queue_forget(scene->queue, &guest);
    assert_int_equal(guest.ends, 1);
}

static void who_is_forgotten_leaves_no_graph(void **state)
{
    struct scene *scene = *state;
    struct guest guests[2] = {{0}, {0}};
    const struct twin_machine *machine = &scene->twin.machine;
    trp_queue_copy(scene->queue, scene->memory[0], scene->host, sizeof scene->host);
    for (unsigned i = 0; i < 6; i++) {
        put_doubled(scene, &guests[i % 2]);
        if (i == 3) { /* with a list that was not handed over */
            trp_queue_forget(scene->queue, &guests[1]);
            assert_int_equal(guests[1].count, 2);
            assert_int_equal(guests[1].ends, guests[1].puts);
            if (LISTS_REPEAT)
                assert_int_equal(guests[0].ends, 0);
        }
        assert_doubled(scene, 2);
    }
    if (LISTS_REPEAT)
        assert_int_equal(machine->graphs, 3);
    trp_queue_forget(scene->queue, &guests[0]);
    trp_queue_forget(scene->queue, &guests[1]);
    assert_int_equal(guests[0].ends + guests[1].ends, guests[0].puts + guests[1].puts);
}

static void graphs_of_calls_make_room_for_each_other(void **state)
{
    struct scene *scene = *state;
    struct guest guest = {0};
    enum { LISTS = 2 * QUEUE_GRAPHS_MAX };
    for (uint64_t i = 0; i < LISTS; i++) {
        for (uint64_t k = 0; k <= i; k++)
            trp_queue_zero(scene->queue, scene->memory[0], sizeof scene->host);
        double_on(scene->queue, &guest, scene->memory[0]);
        trp_queue_wait(scene->other, scene->queue); /* handed over, and not waited for */
    }
    OR_FAIL(wait_for_all(scene->queue));
    OR_FAIL(wait_for_all(scene->other));
    assert_int_equal(scene->twin.machine.launches, LISTS);
    assert_int_equal(guest.count, LISTS);
    assert_int_equal(guest.ends, LISTS - QUEUE_GRAPHS_MAX);
    trp_queue_forget(scene->queue, &guest);
}

static void what_cannot_be_captured_is_put_each_time(void **state)
{
    struct scene *scene = *state;
    struct guest guest = {.refuses = true};
    trp_queue_copy(scene->queue, scene->memory[0], scene->host, sizeof scene->host);
    for (unsigned i = 0; i < 4; i++) {
        put_doubled(scene, &guest);
        assert_doubled(scene, 2);
    }
    assert_int_equal(scene->twin.machine.launches, 0);
    assert_int_equal(guest.puts, 4);
    assert_int_equal(guest.ends, 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(bytes_go_there_and_back),
        TEST(what_came_back_can_be_sent_again_before_anybody_waited),
        TEST(copies_larger_than_the_ring_come_whole),
        TEST(memory_for_it_is_copied_from_where_it_lies),
        TEST(where_nothing_more_is_pinned_memory_is_the_hosts_own),
        TEST(bytes_that_were_not_copied_fail_whoever_waits),
        TEST(a_wait_of_its_own_that_does_not_end_fails_the_queue),
        TEST(a_function_of_the_host_sees_copies_of_its_operands),
        TEST(a_list_that_comes_again_is_a_graph_and_another_one_is_not),
        TEST(a_copy_from_the_host_parts_a_list_only_where_it_has_to),
        TEST(graphs_are_bounded),
        TEST(a_queue_waits_for_another),
        TEST(more_marks_than_are_kept_are_fine),
        TEST(a_device_that_is_lost_fails_this_wait_and_all_later_ones),
        TEST(a_call_is_captured_at_once_with_what_is_around_it),
        TEST(calls_of_one_owner_keep_their_order),
        TEST(what_an_owner_that_is_over_has_put_is_not_launched),
        TEST(who_is_forgotten_leaves_no_graph),
        TEST(graphs_of_calls_make_room_for_each_other),
        TEST(what_cannot_be_captured_is_put_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
