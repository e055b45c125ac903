/* Stacks of frames on their way to a device: what arrives is what was there, and how many frames
 * that took. */
#include <stdio.h>

#include "learner/frames.h"
#include "tests/nn/late_device.h"

enum { FRAME = 35, STACK = 4, ROWS = 5, STEPS = 12 };

/* A batch of columns of stacks, [ROWS][steps][STACK][FRAME] each. */
struct scene {
    trp_batch_spec spec;
    uint32_t steps;
    uint8_t *columns[FRAMES_COLUMNS_MAX];
    trp_rng rng;
};

static void scene_begin(struct scene *scene, uint32_t steps, bool next)
{
    static const char *const names[] = {"observation", "next_observation"};
    *scene = (struct scene){
        .spec = {.table = "t", .batch_size = ROWS, .stacks = {.frames = STACK, .bytes = FRAME}},
        .steps = steps};
    trp_tensor_spec stack = {.dtype = TRP_UINT8, .rank = 3, .shape = {STACK, 5, 7}};
    for (int i = 0; i <= next; i++) {
        trp_columns_add_steps(&scene->spec.columns, names[i], &stack, steps);
        scene->columns[i] = xcalloc(ROWS * steps, STACK * FRAME);
    }
    trp_rng_init(&scene->rng, 1, 0);
}

static void scene_end(struct scene *scene)
{
    trp_columns_cleanup(&scene->spec.columns);
    free(scene->columns[0]);
    free(scene->columns[1]);
}

static uint8_t *stack_at(const struct scene *scene, size_t column, size_t row, size_t step)
{
    return scene->columns[column] + (row * scene->steps + step) * STACK * FRAME;
}

static void draw(struct scene *scene, uint8_t *frame)
{
    for (size_t i = 0; i < FRAME; i++)
        frame[i] = (uint8_t)trp_rng_below(&scene->rng, 256);
}

/* The stack of the step after `before`: a frame later. */
static void move_on(struct scene *scene, const uint8_t *before, uint8_t *stack)
{
    memcpy(stack, before + FRAME, (STACK - 1) * FRAME);
    draw(scene, stack + (STACK - 1) * FRAME);
}

/* The first one of an episode: its frame again and again. */
static void begin(struct scene *scene, uint8_t *stack)
{
    draw(scene, stack);
    for (size_t i = 1; i < STACK; i++)
        memcpy(stack + i * FRAME, stack, FRAME);
}

/* Sends `rows` of the batch and looks at what is there; returns how many frames went. */
static size_t frames_sent(struct scene *scene, uint32_t rows)
{
    struct late_device *late = late_create(rows);
    struct frames frames;
    trp_queue *queues[2];
    void *columns[FRAMES_COLUMNS_MAX] = {NULL}, *batch[] = {scene->columns[0], scene->columns[1]};
    size_t bytes = (size_t)ROWS * scene->steps * STACK * FRAME, part = bytes / ROWS * rows;
    OR_FAIL(frames_check(&scene->spec));
    OR_FAIL(frames_create(&frames, &late->base, &scene->spec));
    for (size_t i = 0; i < 2; i++)
        OR_FAIL(trp_queue_create(&queues[i], &late->base));
    for (size_t i = 0; i < scene->spec.columns.count; i++) {
        assert_true(frames_has(&frames, i));
        OR_FAIL(trp_device_alloc(&late->base, bytes, &columns[i]));
    }
    size_t sent = frames_send(&frames, queues[0], &(trp_batch){.rows = rows, .columns = batch});
    trp_queue_wait(queues[1], queues[0]);
    frames_stack(&frames, queues[1], rows, columns);
    uint8_t *back = xcalloc(bytes, 1);
    for (size_t i = 0; i < scene->spec.columns.count; i++) {
        trp_queue_copy(queues[1], back, columns[i], part);
        OR_FAIL(trp_queue_sync(queues[1], trp_queue_mark(queues[1])));
        assert_memory_equal(back, scene->columns[i], part);
        trp_device_free(&late->base, columns[i]);
    }
    free(back);
    OR_FAIL(trp_queue_sync(queues[0], trp_queue_mark(queues[0])));
    for (size_t i = 0; i < 2; i++)
        trp_queue_destroy(queues[i]);
    frames_cleanup(&frames);
    late_destroy(late);
    sent -= scene->spec.columns.count * rows * scene->steps * STACK * sizeof(int32_t);
    assert_int_equal(sent % FRAME, 0);
    return sent / FRAME;
}

static void a_step_of_a_sequence_is_one_frame(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, STEPS, false);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t step = 0; step < STEPS; step++)
            if (step == 0)
                for (size_t i = 0; i < STACK; i++)
                    draw(&scene, stack_at(&scene, 0, row, 0) + i * FRAME);
            else
                move_on(&scene, stack_at(&scene, 0, row, step - 1), stack_at(&scene, 0, row, step));
    assert_int_equal(frames_sent(&scene, ROWS), ROWS * (STACK + STEPS - 1));
    assert_int_equal(frames_sent(&scene, 1), STACK + STEPS - 1);
    scene_end(&scene);
}

/* An episode begins in the middle, and what comes behind its end is zeros: a frame each. */
static void beginnings_and_padding_are_one_frame_each(void **state)
{
    enum { BEGINS = 4, ENDS = 9 };
    struct scene scene;
    (void)state;
    scene_begin(&scene, STEPS, false);
    for (size_t step = 0; step < ENDS; step++)
        if (step % BEGINS == 0)
            begin(&scene, stack_at(&scene, 0, 0, step));
        else
            move_on(&scene, stack_at(&scene, 0, 0, step - 1), stack_at(&scene, 0, 0, step));
    assert_int_equal(frames_sent(&scene, 1), ENDS + 1);
    scene_end(&scene);
}

/* What lies behind a transition of n steps has n frames of its own. */
static void a_transition_has_the_frames_of_both_its_ends_once(void **state)
{
    (void)state;
    for (size_t n = 0; n <= STACK; n++) {
        struct scene scene;
        scene_begin(&scene, 1, true);
        for (size_t row = 0; row < ROWS; row++) {
            uint8_t *from = stack_at(&scene, 0, row, 0), *to = stack_at(&scene, 1, row, 0);
            for (size_t i = 0; i < STACK; i++)
                draw(&scene, from + i * FRAME);
            memcpy(to, from + n * FRAME, (STACK - n) * FRAME);
            for (size_t i = STACK - n; i < STACK; i++)
                draw(&scene, to + i * FRAME);
        }
        assert_int_equal(frames_sent(&scene, ROWS), ROWS * (STACK + n));
        scene_end(&scene);
    }
}

static void stacks_that_share_nothing_arrive_as_they_are(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, STEPS, true);
    for (size_t column = 0; column < 2; column++)
        for (size_t i = 0; i < (size_t)ROWS * STEPS * STACK; i++)
            draw(&scene, scene.columns[column] + i * FRAME);
    assert_int_equal(frames_sent(&scene, ROWS), 2 * ROWS * STEPS * STACK);
    scene_end(&scene);
}

/* The last byte of a frame is its own. */
static void one_byte_makes_another_frame(void **state)
{
    struct scene scene;
    (void)state;
    scene_begin(&scene, 2, false);
    uint8_t *first = stack_at(&scene, 0, 0, 0), *second = stack_at(&scene, 0, 0, 1);
    for (size_t i = 0; i < STACK; i++)
        draw(&scene, first + i * FRAME);
    move_on(&scene, first, second);
    second[(STACK - 1) * FRAME - 1] ^= 1;
    assert_int_equal(frames_sent(&scene, 1), 2 * STACK);
    scene_end(&scene);
}

static void columns_that_are_no_stacks_are_refused_or_left_alone(void **state)
{
    struct scene scene;
    struct frames frames;
    trp_device *cpu;
    (void)state;
    OR_FAIL(trp_device_find(&cpu, NULL));
    scene_begin(&scene, 3, false);
    scene.spec.stacks.bytes = FRAME + 1;
    assert_int_equal(frames_check(&scene.spec), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(),
                        "updater: column 'observation' of 't', 420 bytes of uint8, "
                        "is no stacks of 4 frames of 36 bytes");
    scene.spec.stacks = (trp_frame_stacks){0};
    OR_FAIL(frames_check(&scene.spec));
    OR_FAIL(frames_create(&frames, cpu, &scene.spec));
    assert_false(frames_has(&frames, 0));
    assert_int_equal(frames_send(&frames, NULL, NULL), 0);
    frames_cleanup(&frames);
    scene_end(&scene);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_of_a_sequence_is_one_frame),
        cmocka_unit_test(beginnings_and_padding_are_one_frame_each),
        cmocka_unit_test(a_transition_has_the_frames_of_both_its_ends_once),
        cmocka_unit_test(stacks_that_share_nothing_arrive_as_they_are),
        cmocka_unit_test(one_byte_makes_another_frame),
        cmocka_unit_test(columns_that_are_no_stacks_are_refused_or_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
