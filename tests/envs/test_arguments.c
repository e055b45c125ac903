/* What an environment may be beyond the built-in ones: arguments in its name, a step of all copies
 * at once, every kind of action, masks, infos and discounts. All of it is one toy. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/env.h>

enum { COPIES = 3, WIDTH = 4 };

/* A walk on `size` places; a step moves by the action. */
typedef struct {
    uint32_t size;
    float pay;
    uint32_t kind;
    const char *around; /* another environment that must exist */
    float low[2], high[2];
    int32_t choices[2];
} walk_arguments;

static const char *const kinds[] = {"choice", "box", "choices", "bits", NULL};

static const trp_option walk_rows[] = {
    {TRP_OPTION(walk_arguments, size), .fallback = "8", .min = 2, .max = 64, .unit = "places",
     .help = "of the walk"},
    {TRP_OPTION(walk_arguments, pay), .fallback = "1", .min = 0, .max = 10, .help = "of a step"},
    {TRP_OPTION(walk_arguments, kind), .choices = kinds, .help = "of action"},
    {TRP_OPTION(walk_arguments, around), .help = "an environment"},
};
static const trp_option_table walk_table = TRP_OPTION_TABLE("Walk", walk_rows, walk_arguments);

struct walk {
    const walk_arguments *arguments;
    const int *user;
    uint32_t place;
    uint32_t noise;
    float discount;
};

static const int registered = 42;
static int steps_of_all;

static trp_status walk_configure(void *arguments, void *user, trp_env_spec *spec)
{
    walk_arguments *walk = arguments;
    const trp_env_spec *inner;
    assert_ptr_equal(user, &registered);
    if (walk->around)
        TRP_TRY(trp_env_find(walk->around, &inner));
    if (walk->size == 13)
        return trp_fail(TRP_INVALID_ARGUMENT, "size is 13, must be another");
    spec->observations[0].shape[0] = walk->size;
    spec->action_kind = (trp_action_kind)walk->kind;
    if (walk->kind == TRP_ACTION_DISCRETE)
        return TRP_OK;
    spec->action_count = 2;
    walk->high[0] = walk->high[1] = walk->pay;
    walk->choices[0] = 2;
    walk->choices[1] = (int32_t)walk->size;
    spec->action_low = walk->low;
    spec->action_high = walk->high;
    spec->action_choices = walk->choices;
    return TRP_OK;
}

static trp_status walk_create(void *state, const void *arguments, void *user)
{
    struct walk *walk = state;
    walk->arguments = arguments;
    walk->user = user;
    return TRP_OK;
}

static trp_status walk_reset(void *state, trp_rng *rng)
{
    struct walk *walk = state;
    walk->place = 0;
    walk->noise = (uint32_t)trp_rng_below(rng, 1000);
    return TRP_OK;
}

static int32_t walk_length(const struct walk *walk, const void *action)
{
    switch (walk->arguments->kind) {
    case TRP_ACTION_BOX:
        return (int32_t)((const float *)action)[1];
    case TRP_ACTION_MULTI_BINARY:
        return ((const uint8_t *)action)[1];
    case TRP_ACTION_MULTI_DISCRETE:
        return ((const int32_t *)action)[1];
    default:
        return *(const int32_t *)action;
    }
}

static trp_status walk_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    struct walk *walk = state;
    walk->noise = (uint32_t)trp_rng_below(rng, 1000);
    walk->place += (uint32_t)walk_length(walk, action);
    if (walk->place == 5)
        return trp_fail(TRP_INTERNAL, "walk: place 5 is broken");
    outcome->reward = walk->arguments->pay;
    outcome->terminated = walk->place + 1 >= walk->arguments->size;
    if (walk->place == 2)
        outcome->discount = 0.25F;
    assert_true(isnan(outcome->infos[0]) && isnan(outcome->infos[1]));
    outcome->infos[0] = walk->place;
    if (walk->place % 2)
        outcome->infos[1] = walk->place;
    return TRP_OK;
}

static trp_status walk_step_all(const trp_env_steps *steps)
{
    steps_of_all++;
    for (uint32_t i = 0; i < steps->count; i++)
        TRP_TRY(walk_step((uint8_t *)steps->states + i * steps->stride, &steps->rngs[i],
                          (const uint8_t *)steps->actions + i * sizeof(int32_t),
                          &steps->outcomes[i]));
    return TRP_OK;
}

static void walk_observe(const void *state, void *const *observations)
{
    const struct walk *walk = state;
    float *row = observations[0];
    memset(row, 0, walk->arguments->size * sizeof *row);
    row[walk->place % walk->arguments->size] = 1 + (float)walk->noise;
}

/* To the even places only; one has to leave 2, and where it is 6 there is no way out. */
static void walk_mask(const void *state, bool *allowed)
{
    const struct walk *walk = state;
    for (uint32_t i = 0; i < WIDTH && walk->place != 6; i++)
        allowed[i] = (walk->place + i) % 2 == 0 && (walk->place != 2 || i > 0);
}

static const trp_env_impl walk_impl = {
    .spec = {.name = "Stroll",
             .observations = {{.name = "place", .dtype = TRP_FLOAT32, .rank = 1, .shape = {0}}},
             .action_count = WIDTH,
             .infos = {{"place", TRP_INFO_LAST}, {"odd_place", TRP_INFO_MEAN}}},
    .state_bytes = sizeof(struct walk),
    .options = &walk_table,
    .user = (void *)&registered,
    .configure = walk_configure,
    .create = walk_create,
    .reset = walk_reset,
    .step = walk_step,
    .observe = walk_observe,
};

struct fixture {
    trp_env *env;
    float observations[COPIES * 64], finals[COPIES * 64], rewards[COPIES], discounts[COPIES];
    bool terminated[COPIES], truncated[COPIES];
    void *rows[1], *final_rows[1];
    trp_env_buffers buffers;
};

static void fixture_init(struct fixture *f, const char *name)
{
    *f = (struct fixture){0};
    if (trp_env_create(&f->env, name, &(trp_env_options){.count = COPIES, .seed = 3}) != TRP_OK)
        fail_msg("%s", trp_last_error());
    f->rows[0] = f->observations;
    f->final_rows[0] = f->finals;
    f->buffers = (trp_env_buffers){.observations = f->rows,
                                   .final_observations = f->final_rows,
                                   .rewards = f->rewards,
                                   .terminated = f->terminated,
                                   .truncated = f->truncated,
                                   .discounts = f->discounts};
    assert_int_equal(trp_env_reset(f->env, f->rows), TRP_OK);
}

static void arguments_in_the_name_reach_the_environment_and_its_spec(void **state)
{
    struct fixture f;
    const trp_env_spec *spec, *again;
    (void)state;
    fixture_init(&f, "Stroll?size=20&pay=2.5");
    assert_int_equal(trp_env_get_spec(f.env)->observations[0].shape[0], 20);
    assert_string_equal(trp_env_get_spec(f.env)->name, "Stroll?size=20&pay=2.5");
    assert_int_equal(trp_env_step(f.env, (const int32_t[]){1, 0, 3}, &f.buffers), TRP_OK);
    assert_true(f.rewards[0] == 2.5F);
    assert_true(f.observations[1] >= 1 && f.observations[20] >= 1 && f.observations[43] >= 1);
    trp_env_destroy(f.env);
    assert_int_equal(trp_env_find("Stroll", &spec), TRP_OK);
    assert_int_equal(spec->observations[0].shape[0], 8);
    assert_int_equal(trp_env_find("Stroll", &again), TRP_OK);
    assert_ptr_equal(again, spec);
    assert_int_equal(trp_env_find("Stroll?around=Stroll", &spec), TRP_OK);
}

static void a_wrong_argument_is_refused_with_what_is_allowed(void **state)
{
    static const struct {
        const char *name, *words;
    } rows[] = {
        {"Stroll?size=1",
         "'Stroll?size=1': size is 1, must be a whole number of places in [2, 64]"},
        {"Stroll?size=big", "size is big, must be a whole number of places in [2, 64]"},
        {"Stroll?sise=9", "did you mean 'size'? there are: size "},
        {"Stroll?SIZE=9", "no wrapper is 'SIZE'; there are: size "},
        {"Stroll?SIZE=9", " time_limit"},
        {"Stroll?size=9&", "'' is no KEY=VALUE"},
        {"Stroll?", "'' is no KEY=VALUE"},
        {"Stroll?size", "'size' is no KEY=VALUE"},
        {"Stroll?size&pay=1", "'size' is no KEY=VALUE"},
        {"Stroll?size=13", "size is 13, must be another"},
        {"Stroll?kind=bitz", "kind is bitz"},
        {"Catch?size=9", "'Catch?size=9': no argument and no wrapper is 'size'; did you mean "
                         "'resize'? there are: "},
        {"Catch?frame_stak=4", "did you mean 'frame_stack'?"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const trp_env_spec *spec;
        assert_int_equal(trp_env_find(rows[i].name, &spec), TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), rows[i].words))
            fail_msg("'%s' is not in '%s'", rows[i].words, trp_last_error());
    }
    const trp_env_spec *spec;
    assert_int_equal(trp_env_find("Strol?size=9", &spec), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "did you mean 'Stroll'?"));
    assert_int_equal(trp_env_find("Stroll?around=Stro", &spec), TRP_NOT_FOUND);
    char name[700];
    snprintf(name, sizeof name, "Stroll?%0600d=1", 0);
    assert_int_equal(trp_env_find(name, &spec), TRP_INVALID_ARGUMENT);
}

static void stepping_all_at_once_does_what_stepping_each_does(void **state)
{
    struct fixture one, all;
    trp_rng rng;
    (void)state;
    fixture_init(&one, "Stroll");
    fixture_init(&all, "StrollAll");
    trp_rng_init(&rng, 1, 0);
    steps_of_all = 0;
    for (int i = 0; i < 500; i++) {
        int32_t actions[COPIES];
        for (int copy = 0; copy < COPIES; copy++)
            actions[copy] = 2 * (int32_t)trp_rng_below(&rng, 2);
        assert_int_equal(trp_env_step(one.env, actions, &one.buffers), TRP_OK);
        assert_int_equal(trp_env_step(all.env, actions, &all.buffers), TRP_OK);
        assert_memory_equal(one.observations, all.observations, sizeof one.observations);
        assert_memory_equal(one.finals, all.finals, sizeof one.finals);
        assert_memory_equal(one.rewards, all.rewards, sizeof one.rewards);
        assert_memory_equal(one.discounts, all.discounts, sizeof one.discounts);
        assert_memory_equal(one.terminated, all.terminated, sizeof one.terminated);
        assert_memory_equal(trp_env_infos(one.env), trp_env_infos(all.env),
                            2 * COPIES * sizeof(double));
    }
    assert_int_equal(steps_of_all, 500);
    assert_int_equal(trp_env_step(all.env, (const int32_t[]){0, 0, 4}, &all.buffers),
                     TRP_INVALID_ARGUMENT);
    assert_int_equal(steps_of_all, 500);
    assert_int_equal(trp_env_reset(all.env, all.rows), TRP_OK);
    assert_int_equal(trp_env_step(all.env, (const int32_t[]){0, 2, 2}, &all.buffers), TRP_OK);
    assert_int_equal(trp_env_step(all.env, (const int32_t[]){0, 3, 0}, &all.buffers), TRP_INTERNAL);
    assert_int_equal(trp_env_step(all.env, (const int32_t[]){0, 0, 0}, &all.buffers),
                     TRP_FAILED_PRECONDITION);
    trp_env_destroy(one.env);
    trp_env_destroy(all.env);
}

static void discounts_and_infos_are_those_of_the_step(void **state)
{
    struct fixture f;
    (void)state;
    fixture_init(&f, "Stroll?size=3");
    assert_int_equal(trp_env_step(f.env, (const int32_t[]){0, 1, 2}, &f.buffers), TRP_OK);
    assert_true(f.discounts[0] == 1 && f.discounts[1] == 1);
    assert_true(f.discounts[2] == 0 && f.terminated[2]); /* it said 0.25 */
    const double *infos = trp_env_infos(f.env);
    assert_true(infos[0] == 0 && isnan(infos[1]));
    assert_true(infos[2] == 1 && infos[3] == 1 && infos[4] == 2 && isnan(infos[5]));
    trp_env_destroy(f.env);
    fixture_init(&f, "Stroll");
    assert_int_equal(trp_env_step(f.env, (const int32_t[]){2, 1, 2}, &f.buffers), TRP_OK);
    assert_true(f.discounts[0] == 0.25F && f.discounts[1] == 1);
    trp_env_destroy(f.env);
}

static void assert_refused(struct fixture *f, const void *actions, const char *words)
{
    float before[COPIES * 64];
    memcpy(before, f->observations, sizeof before);
    assert_int_equal(trp_env_step(f->env, actions, &f->buffers), TRP_INVALID_ARGUMENT);
    if (!strstr(trp_last_error(), words))
        fail_msg("'%s' is not in '%s'", words, trp_last_error());
    assert_memory_equal(before, f->observations, sizeof before);
}

static void every_kind_of_action_is_checked_by_copy_dimension_and_value(void **state)
{
    struct fixture f;
    (void)state;
    fixture_init(&f, "Stroll?kind=choices");
    trp_tensor_spec action = trp_env_action_spec(trp_env_get_spec(f.env));
    assert_int_equal(action.dtype, TRP_INT32);
    assert_int_equal(action.shape[0], 2);
    assert_int_equal(trp_env_step(f.env, (const int32_t[]){0, 0, 1, 4, 0, 0}, &f.buffers), TRP_OK);
    assert_true(f.observations[8 + 4] >= 1);
    assert_refused(&f, (const int32_t[]){0, 0, 0, 8, 0, 0},
                   "number 1 of copy 1's action is 8, must be 0 to 7");
    assert_refused(&f, (const int32_t[]){0, 0, 0, 0, -1, 0},
                   "number 0 of copy 2's action is -1, must be 0 to 1");
    trp_env_destroy(f.env);

    fixture_init(&f, "Stroll?kind=bits");
    action = trp_env_action_spec(trp_env_get_spec(f.env));
    assert_int_equal(action.dtype, TRP_UINT8);
    assert_int_equal(trp_env_action_bytes(f.env), 2);
    assert_int_equal(trp_env_step(f.env, (const uint8_t[]){0, 0, 1, 1, 0, 0}, &f.buffers), TRP_OK);
    assert_true(f.observations[8 + 1] >= 1);
    assert_refused(&f, (const uint8_t[]){0, 0, 0, 0, 0, 2},
                   "number 1 of copy 2's action is 2, must be 0 to 1");
    trp_env_destroy(f.env);

    fixture_init(&f, "Stroll?kind=box&pay=3");
    assert_true(trp_env_get_spec(f.env)->action_high[1] == 3);
    assert_refused(&f, (const float[]){0, 0, 0, NAN, 0, 0}, "number 1 of copy 1's action is NaN");
    trp_env_destroy(f.env);
}

static void a_masked_choice_is_refused_and_masks_follow_the_state(void **state)
{
    struct fixture f;
    bool masks[COPIES * WIDTH];
    (void)state;
    fixture_init(&f, "Stroll");
    assert_false(trp_env_get_spec(f.env)->masked);
    trp_env_destroy(f.env);
    fixture_init(&f, "StrollMasked");
    assert_true(trp_env_get_spec(f.env)->masked);
    assert_int_equal(trp_env_masks(f.env, masks), TRP_OK);
    assert_memory_equal(masks, ((const bool[]){1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0}), sizeof masks);
    assert_refused(&f, (const int32_t[]){0, 2, 1}, "action 1 of copy 2 is not allowed now");
    assert_int_equal(trp_env_step(f.env, (const int32_t[]){0, 2, 2}, &f.buffers), TRP_OK);
    assert_int_equal(trp_env_step(f.env, (const int32_t[]){0, 2, 2}, &f.buffers), TRP_OK);
    assert_int_equal(trp_env_step(f.env, (const int32_t[]){0, 2, 0}, &f.buffers), TRP_OK);
    assert_int_equal(trp_env_masks(f.env, masks), TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "copy 1 may do nothing at step 3"));
    trp_env_destroy(f.env);
}

/* Whoever bootstraps asks about the state that was cut, not about the next episode's. */
static void a_cut_episode_says_what_could_have_been_done(void **state)
{
    struct fixture f;
    bool finals[COPIES * WIDTH];
    (void)state;
    fixture_init(&f, "StrollMasked?time_limit=2");
    f.buffers.final_masks = finals;
    memset(finals, 0, sizeof finals);
    assert_int_equal(trp_env_step(f.env, (const int32_t[]){0, 0, 0}, &f.buffers), TRP_OK);
    assert_null(memchr(finals, true, sizeof finals));
    assert_int_equal(trp_env_step(f.env, (const int32_t[]){0, 2, 2}, &f.buffers), TRP_OK);
    assert_memory_equal(finals, ((const bool[]){1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0}),
                        sizeof finals);
    trp_env_destroy(f.env);

    fixture_init(&f, "StrollMasked?time_limit=3");
    f.buffers.final_masks = finals;
    assert_int_equal(trp_env_step(f.env, (const int32_t[]){0, 2, 0}, &f.buffers), TRP_OK);
    assert_int_equal(trp_env_step(f.env, (const int32_t[]){0, 2, 0}, &f.buffers), TRP_OK);
    assert_int_equal(trp_env_step(f.env, (const int32_t[]){0, 2, 0}, &f.buffers),
                     TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "copy 1 may do nothing at step 3"));
    trp_env_destroy(f.env);
}

/* Nothing follows: no loss needs to look whether a mask allows anything. */
static void everything_is_allowed_where_an_episode_terminated(void **state)
{
    struct fixture f;
    bool finals[COPIES * WIDTH] = {0};
    (void)state;
    fixture_init(&f, "StrollMasked?size=3");
    f.buffers.final_masks = finals;
    assert_int_equal(trp_env_step(f.env, (const int32_t[]){0, 2, 0}, &f.buffers), TRP_OK);
    assert_true(f.terminated[1]);
    assert_memory_equal(finals, ((const bool[]){0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0}),
                        sizeof finals);
    trp_env_destroy(f.env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_in_the_name_reach_the_environment_and_its_spec),
        cmocka_unit_test(a_wrong_argument_is_refused_with_what_is_allowed),
        cmocka_unit_test(stepping_all_at_once_does_what_stepping_each_does),
        cmocka_unit_test(discounts_and_infos_are_those_of_the_step),
        cmocka_unit_test(every_kind_of_action_is_checked_by_copy_dimension_and_value),
        cmocka_unit_test(a_masked_choice_is_refused_and_masks_follow_the_state),
        cmocka_unit_test(a_cut_episode_says_what_could_have_been_done),
        cmocka_unit_test(everything_is_allowed_where_an_episode_terminated),
    };
    static trp_env_impl all, masked;
    all = masked = walk_impl;
    all.spec.name = "StrollAll";
    all.step = NULL;
    all.step_all = walk_step_all;
    masked.spec.name = "StrollMasked";
    masked.mask = walk_mask;
    if (trp_env_register(&walk_impl) != TRP_OK || trp_env_register(&all) != TRP_OK ||
        trp_env_register(&masked) != TRP_OK)
        return 1;
    return cmocka_run_group_tests_name("env_arguments", tests, NULL, NULL);
}
