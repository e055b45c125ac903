/* Each wrapper against a naive reference that steps the bare environment. A wrapper draws nothing
 * of its own, so both see the same episodes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/wrapper.h>

enum { HIGH = 7, WIDE = 5, PIXELS = HIGH * WIDE, NUMBERS = 2, STACK = 4, STEPS = 600, TENSORS = 3 };

/* ---- pictures that are drawn, and two numbers --------------------------------------------------
 */

struct film {
    uint8_t pixels[PIXELS * 3];
    float numbers[NUMBERS];
};

static void film_draw(struct film *film, trp_rng *rng)
{
    for (size_t i = 0; i < sizeof film->pixels; i++)
        film->pixels[i] = (uint8_t)trp_rng_below(rng, 256);
    for (size_t i = 0; i < NUMBERS; i++)
        film->numbers[i] = (float)trp_rng_normal(rng);
}

static trp_status film_reset(void *state, trp_rng *rng)
{
    film_draw(state, rng);
    return TRP_OK;
}

static trp_status film_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    film_draw(state, rng);
    outcome->reward = 3 * (float)trp_rng_normal(rng) + (float)*(const int32_t *)action;
    outcome->discount = (float)trp_rng_double(rng);
    outcome->terminated = trp_rng_below(rng, 15) == 0;
    outcome->truncated = trp_rng_below(rng, 15) == 0;
    return TRP_OK;
}

static void film_observe(const void *state, void *const *observations)
{
    const struct film *film = state;
    memcpy(observations[0], film->pixels, sizeof film->pixels);
    memcpy(observations[1], film->numbers, sizeof film->numbers);
}

static const trp_env_impl film_impl = {
    .spec = {.name = "Film",
             .observations =
                 {{.name = "picture", .dtype = TRP_UINT8, .rank = 3, .shape = {HIGH, WIDE, 3}},
                  {.name = "numbers", .dtype = TRP_FLOAT32, .rank = 1, .shape = {NUMBERS}}},
             .action_count = 3,
             .max_episode_steps = 20},
    .state_bytes = sizeof(struct film),
    .reset = film_reset,
    .step = film_step,
    .observe = film_observe,
};

/* ---- one copy, bare or wrapped -----------------------------------------------------------------
 */

struct scene {
    trp_env *env;
    union {
        struct film film;
        uint8_t bytes[STACK * sizeof(struct film)];
    } now[TENSORS], last[TENSORS];
    float reward, discount;
    bool terminated, truncated;
    trp_env_buffers buffers;
    void *rows[TENSORS], *finals[TENSORS];
};

static struct scene *scene_create(const char *name)
{
    struct scene *scene = calloc(1, sizeof *scene);
    assert_non_null(scene);
    if (trp_env_create(&scene->env, name, &(trp_env_options){.seed = 5}) != TRP_OK)
        fail_msg("%s", trp_last_error());
    for (size_t i = 0; i < TENSORS; i++) {
        scene->rows[i] = scene->now[i].bytes;
        scene->finals[i] = scene->last[i].bytes;
    }
    scene->buffers = (trp_env_buffers){
        scene->rows,      scene->finals, &scene->reward, &scene->terminated, &scene->truncated,
        &scene->discount, NULL};
    assert_int_equal(trp_env_reset(scene->env, scene->rows), TRP_OK);
    return scene;
}

static void scene_destroy(struct scene *scene)
{
    trp_env_destroy(scene->env);
    free(scene);
}

static bool scene_step(struct scene *scene, int32_t action)
{
    assert_int_equal(trp_env_step(scene->env, &action, &scene->buffers), TRP_OK);
    return scene->terminated || scene->truncated;
}

/* What the last step showed: of an episode that ended, its final observation. */
static const void *seen(const struct scene *scene, size_t tensor)
{
    bool over = scene->terminated || scene->truncated;
    return over ? scene->last[tensor].bytes : scene->now[tensor].bytes;
}

static void assert_outcomes(const struct scene *a, const struct scene *b)
{
    assert_true(a->reward == b->reward && a->discount == b->discount);
    assert_int_equal(a->terminated, b->terminated);
    assert_int_equal(a->truncated, b->truncated);
}

/* ---- time
 * ---------------------------------------------------------------------------------------- */

/* Repeats by hand; the larger of the last two frames goes to `larger`. */
static void repeat(struct scene *bare, int32_t action, int times, struct film *larger)
{
    float reward = 0, discount = 1;
    struct film before = {0};
    bool two = false, over = false;
    for (int i = 0; i < times && !over; i++) {
        memcpy(before.pixels, bare->now[0].bytes, sizeof before.pixels);
        memcpy(before.numbers, bare->now[1].bytes, sizeof before.numbers);
        over = scene_step(bare, action);
        two = i > 0 && i == times - 1;
        reward += bare->reward;
        discount *= bare->terminated ? 0 : bare->discount;
    }
    bare->reward = reward;
    bare->discount = discount;
    memcpy(larger->pixels, seen(bare, 0), sizeof larger->pixels);
    memcpy(larger->numbers, seen(bare, 1), sizeof larger->numbers);
    for (size_t i = 0; two && i < sizeof larger->pixels; i++)
        if (before.pixels[i] > larger->pixels[i])
            larger->pixels[i] = before.pixels[i];
    for (size_t i = 0; two && i < NUMBERS; i++)
        larger->numbers[i] = fmaxf(larger->numbers[i], before.numbers[i]);
}

static void an_action_is_repeated_until_the_episode_ends(void **state)
{
    (void)state;
    struct scene *bare = scene_create("Film"), *wrapped = scene_create("Film?action_repeat=3");
    struct film ignored;
    for (int i = 0; i < STEPS; i++) {
        repeat(bare, i % 3, 3, &ignored);
        scene_step(wrapped, i % 3);
        assert_outcomes(bare, wrapped);
        assert_memory_equal(seen(bare, 0), seen(wrapped, 0), PIXELS * 3);
        assert_memory_equal(bare->now, wrapped->now, sizeof bare->now);
    }
    scene_destroy(bare);
    scene_destroy(wrapped);
}

static void skipped_frames_leave_the_larger_of_the_last_two(void **state)
{
    (void)state;
    for (int times = 1; times <= 4; times++) {
        char name[] = "Film?frame_skip=N";
        name[sizeof name - 2] = (char)('0' + times);
        struct scene *bare = scene_create("Film"), *wrapped = scene_create(name);
        struct film larger;
        for (int i = 0; i < STEPS; i++) {
            repeat(bare, i % 3, times, &larger);
            scene_step(wrapped, i % 3);
            assert_outcomes(bare, wrapped);
            assert_memory_equal(larger.pixels, seen(wrapped, 0), sizeof larger.pixels);
            assert_memory_equal(larger.numbers, seen(wrapped, 1), sizeof larger.numbers);
        }
        scene_destroy(bare);
        scene_destroy(wrapped);
    }
}

/* ---- a lift: it goes up (1) or down (0) a floor, and neither through the roof nor the ground
 * ------
 */

enum { FLOORS = 5 };

static trp_status lift_reset(void *state, trp_rng *rng)
{
    (void)rng;
    *(int32_t *)state = 0;
    return TRP_OK;
}

static trp_status lift_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    int32_t *floor = state;
    (void)rng;
    *floor += *(const int32_t *)action ? 1 : -1;
    if (*floor < 0 || *floor >= FLOORS)
        return trp_fail(TRP_INTERNAL, "lift: there is no floor %d", *floor);
    outcome->reward = 1;
    return TRP_OK;
}

static void lift_observe(const void *state, void *const *observations)
{
    *(float *)observations[0] = (float)*(const int32_t *)state;
}

static void lift_mask(const void *state, bool *allowed)
{
    int32_t floor = *(const int32_t *)state;
    allowed[0] = floor > 0;
    allowed[1] = floor + 1 < FLOORS;
}

static const trp_env_impl lift_impl = {
    .spec = {.name = "Lift",
             .observations = {{.name = "floor", .dtype = TRP_FLOAT32, .rank = 1, .shape = {1}}},
             .action_kind = TRP_ACTION_DISCRETE,
             .action_count = 2},
    .state_bytes = sizeof(int32_t),
    .reset = lift_reset,
    .step = lift_step,
    .observe = lift_observe,
    .mask = lift_mask,
};

/* Four floors up: three steps and one; frame_skip sees the larger of the last two where there are
 * three. */
static void an_action_is_repeated_as_long_as_its_mask_allows_it(void **state)
{
    static const char *const names[] = {"Lift?action_repeat=3", "Lift?frame_skip=3",
                                        "Lift?action_repeat=3&time_limit=100",
                                        "Lift?frame_stack=1&action_repeat=3"};
    static const struct {
        int32_t action;
        float reward, floor, larger;
    } steps[] = {{1, 3, 3, 3}, {1, 1, 4, 4}, {0, 3, 1, 2}, {0, 1, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        trp_env *env;
        float floor, reward, discount, before;
        bool terminated, truncated, masks[2];
        void *now[] = {&floor}, *last[] = {&before};
        trp_env_buffers buffers = {.observations = now,
                                   .final_observations = last,
                                   .rewards = &reward,
                                   .discounts = &discount,
                                   .terminated = &terminated,
                                   .truncated = &truncated};
        assert_int_equal(trp_env_create(&env, names[i], &(trp_env_options){.count = 1}), TRP_OK);
        assert_int_equal(trp_env_reset(env, now), TRP_OK);
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            if (trp_env_step(env, &steps[k].action, &buffers) != TRP_OK)
                fail_msg("%s, step %zu: %s", names[i], k, trp_last_error());
            assert_true(reward == steps[k].reward);
            assert_true(floor == (i == 1 ? steps[k].larger : steps[k].floor));
            assert_int_equal(trp_env_masks(env, masks), TRP_OK);
            assert_int_equal(masks[0], steps[k].floor > 0);
            assert_int_equal(masks[1], steps[k].floor < FLOORS - 1);
        }
        trp_env_destroy(env);
    }
}

static void a_time_limit_takes_the_place_of_the_last_one(void **state)
{
    (void)state;
    struct scene *scene = scene_create("CartPole-v1?time_limit=5");
    for (int i = 1; i <= 50; i++) {
        scene_step(scene, i % 2);
        assert_int_equal(scene->truncated, i % 5 == 0);
    }
    scene_destroy(scene);
    scene = scene_create("CartPole-v1?time_limit=5&action_repeat=2"); /* 2, 2 and 1 */
    for (int i = 1; i <= 30; i++) {
        scene_step(scene, i % 2);
        assert_int_equal(scene->truncated, i % 3 == 0);
        assert_true(scene->reward == (i % 3 == 0 ? 1 : 2));
    }
    scene_destroy(scene);
    scene = scene_create("CartPole-v1?action_repeat=2&time_limit=3");
    for (int i = 1; i <= 30; i++) {
        scene_step(scene, i % 2);
        assert_int_equal(scene->truncated, i % 3 == 0);
        assert_true(scene->reward == 2);
    }
    scene_destroy(scene);
}

/* ---- observations and rewards
 * -------------------------------------------------------------------- */

static void a_stack_has_the_last_observations_the_oldest_first(void **state)
{
    (void)state;
    struct scene *bare = scene_create("Film"), *wrapped = scene_create("Film?frame_stack=4");
    const trp_env_spec *spec = trp_env_get_spec(wrapped->env);
    assert_int_equal(spec->observations[0].rank, 4);
    assert_int_equal(spec->observations[0].shape[0], STACK);
    assert_int_equal(spec->observations[0].shape[3], 3);
    assert_int_equal(spec->observations[1].shape[1], NUMBERS);
    uint8_t pictures[STACK][PIXELS * 3];
    for (size_t k = 0; k < STACK; k++)
        memcpy(pictures[k], bare->now[0].bytes, sizeof pictures[k]);
    for (int i = 0; i < STEPS; i++) {
        assert_memory_equal(pictures, wrapped->now[0].bytes, sizeof pictures);
        bool over = scene_step(bare, i % 3);
        assert_int_equal(scene_step(wrapped, i % 3), over);
        assert_outcomes(bare, wrapped);
        memmove(pictures[0], pictures[1], sizeof pictures - sizeof pictures[0]);
        memcpy(pictures[STACK - 1], seen(bare, 0), sizeof pictures[0]);
        assert_memory_equal(pictures, seen(wrapped, 0), sizeof pictures);
        for (size_t k = 0; over && k < STACK; k++)
            memcpy(pictures[k], bare->now[0].bytes, sizeof pictures[k]);
    }
    scene_destroy(bare);
    scene_destroy(wrapped);
}

static void a_clipped_reward_is_within_its_bound(void **state)
{
    (void)state;
    struct scene *bare = scene_create("Film"), *wrapped = scene_create("Film?clip_reward=1.5");
    for (int i = 0; i < STEPS; i++) {
        scene_step(bare, 0);
        scene_step(wrapped, 0);
        bare->reward = fminf(fmaxf(bare->reward, -1.5F), 1.5F);
        assert_outcomes(bare, wrapped);
        assert_memory_equal(bare->now, wrapped->now, sizeof bare->now);
    }
    scene_destroy(bare);
    scene_destroy(wrapped);
}

static void gray_pictures_are_the_brightness_of_coloured_ones(void **state)
{
    (void)state;
    struct scene *bare = scene_create("Film"), *wrapped = scene_create("Film?grayscale=1");
    assert_int_equal(trp_env_get_spec(wrapped->env)->observations[0].rank, 2);
    for (int i = 0; i < STEPS; i++) {
        scene_step(bare, 0);
        scene_step(wrapped, 0);
        const uint8_t *from = seen(bare, 0), *to = seen(wrapped, 0);
        for (size_t k = 0; k < PIXELS; k++) {
            double gray = 0.299 * from[3 * k] + 0.587 * from[3 * k + 1] + 0.114 * from[3 * k + 2];
            assert_true(fabs(gray - to[k]) <= 0.5 + 1e-9);
        }
        assert_memory_equal(seen(bare, 1), seen(wrapped, 1), NUMBERS * sizeof(float));
    }
    scene_destroy(bare);
    scene_destroy(wrapped);
}

/* The mean of a pixel's share of a picture in which every pixel was drawn HIGH x WIDE times. */
static double area(const uint8_t *from, size_t high, size_t wide, size_t y, size_t x,
                   size_t channel)
{
    size_t sum = 0;
    for (size_t i = 0; i < HIGH; i++)
        for (size_t k = 0; k < WIDE; k++)
            sum += from[((y * HIGH + i) / high * WIDE + (x * WIDE + k) / wide) * 3 + channel];
    return (double)sum / PIXELS;
}

static void a_resized_pixel_is_the_mean_of_its_area(void **state)
{
    static const struct {
        const char *name;
        size_t high, wide;
    } sizes[] = {{"Film?resize=3,2", 3, 2}, {"Film?resize=9", 9, 9}, {"Film?resize=7,5", 7, 5}};
    (void)state;
    for (size_t size = 0; size < 3; size++) {
        struct scene *bare = scene_create("Film"), *wrapped = scene_create(sizes[size].name);
        size_t high = sizes[size].high, wide = sizes[size].wide;
        assert_int_equal(trp_env_get_spec(wrapped->env)->observations[0].shape[1], wide);
        for (int i = 0; i < STEPS / 6; i++) {
            scene_step(bare, 0);
            scene_step(wrapped, 0);
            const uint8_t *to = seen(wrapped, 0);
            for (size_t y = 0; y < high; y++)
                for (size_t x = 0; x < wide; x++)
                    for (size_t channel = 0; channel < 3; channel++)
                        assert_true(fabs(area(seen(bare, 0), high, wide, y, x, channel) - *to++) <=
                                    0.5 + 1e-9);
        }
        scene_destroy(bare);
        scene_destroy(wrapped);
    }
}

/* ---- integers ------------------------------------------------------------------------------ */

enum { WORDS = 5, TOKENS = 3 };

struct words {
    int32_t tokens[TOKENS];
    int64_t page;
    float weight;
};

static trp_status words_reset(void *state, trp_rng *rng)
{
    struct words *words = state;
    for (size_t i = 0; i < TOKENS; i++)
        words->tokens[i] = (int32_t)trp_rng_below(rng, WORDS);
    words->page = (int64_t)trp_rng_below(rng, WORDS);
    words->weight = (float)trp_rng_normal(rng);
    return TRP_OK;
}

/* Action 1 is beyond the last word, 2 below the first, 3 far beyond. */
static trp_status words_step(void *state, trp_rng *rng, const void *action,
                             trp_env_outcome *outcome)
{
    struct words *words = state;
    int32_t chosen = *(const int32_t *)action;
    TRP_TRY(words_reset(state, rng));
    outcome->terminated = trp_rng_below(rng, 15) == 0;
    if (chosen == 1)
        words->tokens[2] = WORDS;
    if (chosen == 2)
        words->page = -1;
    if (chosen == 3)
        words->page = (int64_t)1 << 32;
    return TRP_OK;
}

static void words_observe(const void *state, void *const *observations)
{
    const struct words *words = state;
    memcpy(observations[0], words->tokens, sizeof words->tokens);
    memcpy(observations[1], &words->page, sizeof words->page);
    memcpy(observations[2], &words->weight, sizeof words->weight);
}

static const trp_env_impl words_impl = {
    .spec = {.name = "Words",
             .observations = {{.name = "tokens", .dtype = TRP_INT32, .rank = 1, .shape = {TOKENS}},
                              {.name = "page", .dtype = TRP_INT64},
                              {.name = "weight", .dtype = TRP_FLOAT32, .rank = 1, .shape = {1}}},
             .action_count = 4},
    .state_bytes = sizeof(struct words),
    .reset = words_reset,
    .step = words_step,
    .observe = words_observe,
};

static void assert_one_hot(const float *row, int64_t integer)
{
    for (int64_t i = 0; i < WORDS; i++)
        assert_true(row[i] == (i == integer ? 1.0F : 0.0F));
}

static void integers_become_ones_in_their_places(void **state)
{
    (void)state;
    struct scene *bare = scene_create("Words"), *wrapped = scene_create("Words?one_hot=5");
    const trp_tensor_spec *specs = trp_env_get_spec(wrapped->env)->observations;
    assert_true(specs[0].dtype == TRP_FLOAT32 && specs[1].dtype == TRP_FLOAT32);
    assert_true(specs[0].rank == 2 && specs[0].shape[0] == TOKENS && specs[0].shape[1] == WORDS);
    assert_true(specs[1].rank == 1 && specs[1].shape[0] == WORDS);
    for (int i = 0; i < STEPS; i++) {
        scene_step(bare, 0);
        scene_step(wrapped, 0);
        assert_outcomes(bare, wrapped);
        for (size_t k = 0; k < TOKENS; k++)
            assert_one_hot((const float *)seen(wrapped, 0) + k * WORDS,
                           ((const int32_t *)seen(bare, 0))[k]);
        assert_one_hot(seen(wrapped, 1), *(const int64_t *)seen(bare, 1));
        assert_memory_equal(seen(bare, 2), seen(wrapped, 2), sizeof(float));
    }
    scene_destroy(bare);
    scene_destroy(wrapped);
}

static void an_integer_that_has_no_place_is_refused_by_name(void **state)
{
    static const char *const words[] = {"one_hot=5: number 2 of 'tokens' is 5, must be 0 to 4",
                                        "one_hot=5: number 0 of 'page' is -1, must be 0 to 4",
                                        "number 0 of 'page' is 4294967296, must be 0 to 4"};
    (void)state;
    for (int32_t action = 1; action <= 3; action++) {
        struct scene *scene = scene_create("Words?one_hot=5");
        assert_int_equal(trp_env_step(scene->env, &action, &scene->buffers), TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), words[action - 1]))
            fail_msg("'%s' is not in '%s'", words[action - 1], trp_last_error());
        scene_destroy(scene);
    }
}

/* ---- together
 * ------------------------------------------------------------------------------------ */

static void wrappers_compose_from_left_to_right_and_can_be_resumed(void **state)
{
    static const char name[] = "Film?frame_skip=2&grayscale=1&resize=4,6&frame_stack=4";
    (void)state;
    struct scene *a = scene_create(name), *b = scene_create(name);
    const trp_tensor_spec *picture = &trp_env_get_spec(a->env)->observations[0];
    assert_int_equal(picture->rank, 3);
    assert_int_equal(picture->shape[0], 4);
    assert_int_equal(picture->shape[1], 4);
    assert_int_equal(picture->shape[2], 6);
    void *saved = malloc(trp_env_state_bytes(a->env));
    trp_env_progress progress;
    for (int i = 0; i < 33; i++)
        scene_step(a, 1);
    assert_int_equal(trp_env_get_state(a->env, 0, &progress, saved), TRP_OK);
    assert_int_equal(trp_env_set_state(b->env, 0, &progress, saved, b->rows), TRP_OK);
    for (int i = 0; i < STEPS; i++) {
        assert_memory_equal(a->now, b->now, 96);
        scene_step(a, i % 3);
        scene_step(b, i % 3);
        assert_outcomes(a, b);
    }
    free(saved);
    scene_destroy(a);
    scene_destroy(b);
}

static void what_a_wrapper_cannot_be_around_is_refused(void **state)
{
    static const char *const rows[][2] = {
        {"Catch?frame_stack=0", "frame_stack is 0, must be"},
        {"Catch?frame_stack=2&frame_stack=65", "frame_stack is 65, must be"},
        {"Catch?clip_reward=-1", "clip_reward is -1, must be"},
        {"Catch?grayscale=1", "no observation is uint8 [h, w, 3]"},
        {"Film?grayscale=1&grayscale=1", "no observation is uint8 [h, w, 3]"},
        {"Catch?one_hot=4", "one_hot: no observation is int32 or int64"},
        {"FrozenLake-v1?one_hot=16&one_hot=2", "one_hot: no observation is int32 or int64"},
        {"FrozenLake-v1?one_hot=0", "one_hot is 0, must be"},
        {"Catch?resize=4,4", "resize: no observation is uint8"},
        {"Film?resize=4,4,4", "resize is 4,4,4, must be"},
        {"Film?frame_stack=2&frame_stack=2&frame_stack=2&frame_stack=2&frame_stack=2&frame_stack=2",
         "frame_stack: 'picture' has 8 dimensions already"},
        {"Film?resize=4096&frame_stack=64",
         "frame_stack=64: an observation has 3221225472 bytes, at most 67108864"},
        {"Catch?frame_stack=64&frame_stack=64&frame_stack=64&frame_stack=64&frame_stack=64",
         "frame_stack=64: an observation has"},
        {"Film?framestack=4", "did you mean 'frame_stack'?"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const trp_env_spec *spec;
        assert_int_equal(trp_env_find(rows[i][0], &spec), TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), rows[i][1]))
            fail_msg("'%s' is not in '%s'", rows[i][1], trp_last_error());
    }
}

/* ---- a wrapper of one's own ---------------------------------------------------------------------
 */

/* The reward of the step before, times `late`; keeps the observation of then, too. */
typedef struct {
    trp_wrapping wrapping;
    float late;
} late_arguments;

struct late {
    trp_wrapped wrapped;
    float owed;
};

static const trp_option late_rows[] = {
    {TRP_OPTION(late_arguments, late), .min = -9, .max = 9, .help = "times the reward"},
};
static const trp_option_table late_table = TRP_OPTION_TABLE("late", late_rows, late_arguments);

static trp_status late_configure(void *arguments, void *user, trp_env_spec *spec)
{
    assert_ptr_equal(user, &late_table);
    trp_wrapping_keep_frames(&((late_arguments *)arguments)->wrapping, 2);
    return spec->max_episode_steps == 7 ? trp_fail(TRP_INVALID_ARGUMENT, "late: not 7") : TRP_OK;
}

static trp_status late_reset(void *state, trp_rng *rng)
{
    ((struct late *)state)->owed = 0;
    TRP_TRY(trp_wrapped_reset(state, rng));
    trp_wrapped_look(state, 0);
    trp_wrapped_look(state, 1);
    return TRP_OK;
}

static trp_status late_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    struct late *late = state;
    const trp_wrapping *wrapping = late->wrapped.wrapping;
    TRP_TRY(trp_wrapped_step(state, rng, action, outcome));
    float now = outcome->reward;
    outcome->reward = late->owed * ((const late_arguments *)(const void *)wrapping)->late;
    late->owed = now;
    for (size_t i = 0; i < wrapping->tensors; i++)
        memcpy(trp_wrapped_frame(state, i, 0), trp_wrapped_frame(state, i, 1),
               wrapping->frame_bytes[i]);
    trp_wrapped_look(state, 1);
    return TRP_OK;
}

static void late_observe(const void *state, void *const *observations)
{
    const trp_wrapping *wrapping = ((const trp_wrapped *)state)->wrapping;
    for (size_t i = 0; i < wrapping->tensors; i++)
        memcpy(observations[i], trp_wrapped_frame(state, i, 0), wrapping->frame_bytes[i]);
}

static const trp_env_impl late_impl = {.state_bytes = sizeof(struct late),
                                       .options = &late_table,
                                       .user = (void *)(uintptr_t)&late_table,
                                       .configure = late_configure,
                                       .reset = late_reset,
                                       .step = late_step,
                                       .observe = late_observe};

static void a_wrapper_of_ones_own_composes_with_others(void **state)
{
    (void)state;
    struct scene *bare = scene_create("Film"),
                 *wrapped = scene_create("Film?late=-2&clip_reward=1.5");
    float owed = 0;
    for (int i = 0; i < STEPS; i++) {
        struct film before;
        memcpy(before.pixels, bare->now[0].bytes, sizeof before.pixels);
        bool over = scene_step(bare, 1);
        float now = bare->reward;
        bare->reward = fminf(fmaxf(-2 * owed, -1.5F), 1.5F);
        owed = over ? 0 : now;
        scene_step(wrapped, 1);
        assert_outcomes(bare, wrapped);
        assert_memory_equal(seen(wrapped, 0), before.pixels, sizeof before.pixels);
    }
    scene_destroy(bare);
    scene_destroy(wrapped);
}

static void a_key_that_nobody_registered_has_its_nearest_name(void **state)
{
    const trp_env_spec *spec;
    (void)state;
    static const struct {
        const char *name, *words;
    } rows[] = {
        {"Film?lage=1", "no argument and no wrapper is 'lage'; did you mean 'late'?"},
        {"Film?late=10", "late is 10, must be a number in [-9, 9]"},
        {"Film?time_limit=7&late=1", "late: not 7"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(trp_env_find(rows[i].name, &spec), TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), rows[i].words))
            fail_msg("'%s' does not say '%s'", trp_last_error(), rows[i].words);
    }
}

static void what_is_no_wrapper_is_refused(void **state)
{
    (void)state;
    typedef struct {
        trp_wrapping wrapping;
        float clip_reward;
    } clipping;
    static const trp_option clipped[] = {{TRP_OPTION(clipping, clip_reward)}};
    static const trp_option_table taken = TRP_OPTION_TABLE("taken", clipped, clipping);
    trp_env_impl rows[] = {late_impl, late_impl, late_impl, late_impl, late_impl, late_impl};
    static const trp_status expected[] = {TRP_ALREADY_EXISTS,   TRP_ALREADY_EXISTS,
                                          TRP_INVALID_ARGUMENT, TRP_INVALID_ARGUMENT,
                                          TRP_INVALID_ARGUMENT, TRP_INVALID_ARGUMENT};
    rows[1].options = &taken;
    rows[2].options = NULL;
    rows[3].state_bytes = 0;
    rows[4].step = NULL;
    rows[5].destroy = free;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(trp_env_wrapper_register(&rows[i]), expected[i]);
    trp_env_impl other = film_impl;
    other.spec.name = "Late";
    other.options = &late_table;
    assert_int_equal(trp_env_register(&other), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "an option has the name of a wrapper"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_action_is_repeated_until_the_episode_ends),
        cmocka_unit_test(skipped_frames_leave_the_larger_of_the_last_two),
        cmocka_unit_test(an_action_is_repeated_as_long_as_its_mask_allows_it),
        cmocka_unit_test(a_time_limit_takes_the_place_of_the_last_one),
        cmocka_unit_test(a_stack_has_the_last_observations_the_oldest_first),
        cmocka_unit_test(a_clipped_reward_is_within_its_bound),
        cmocka_unit_test(gray_pictures_are_the_brightness_of_coloured_ones),
        cmocka_unit_test(a_resized_pixel_is_the_mean_of_its_area),
        cmocka_unit_test(integers_become_ones_in_their_places),
        cmocka_unit_test(an_integer_that_has_no_place_is_refused_by_name),
        cmocka_unit_test(wrappers_compose_from_left_to_right_and_can_be_resumed),
        cmocka_unit_test(what_a_wrapper_cannot_be_around_is_refused),
        cmocka_unit_test(a_wrapper_of_ones_own_composes_with_others),
        cmocka_unit_test(a_key_that_nobody_registered_has_its_nearest_name),
        cmocka_unit_test(what_is_no_wrapper_is_refused),
    };
    if (trp_env_register(&film_impl) != TRP_OK || trp_env_register(&lift_impl) != TRP_OK ||
        trp_env_register(&words_impl) != TRP_OK || trp_env_wrapper_register(&late_impl) != TRP_OK)
        return 1;
    return cmocka_run_group_tests_name("env_wrappers", tests, NULL, NULL);
}
