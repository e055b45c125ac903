/* The environment interface, with the built-in environments and with ones made for the test. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/env.h>
#include "core/alloc.h"
#include "tests/golden/cartpole.h"

enum { COPIES_MAX = 64, ROW_MAX = 64 };

struct fixture {
    trp_env *env;
    float observations[COPIES_MAX * ROW_MAX], finals[COPIES_MAX * ROW_MAX];
    float rewards[COPIES_MAX];
    bool terminated[COPIES_MAX], truncated[COPIES_MAX];
    trp_env_buffers buffers;
    void *observation_rows[1], *final_rows[1];
};

static struct fixture *fixture_create(const char *name, trp_env_options options)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    assert_int_equal(trp_env_create(&f->env, name, &options), TRP_OK);
    assert_true(trp_env_count(f->env) <= COPIES_MAX);
    assert_true(trp_tensor_bytes(&trp_env_get_spec(f->env)->observations[0]) <=
                ROW_MAX * sizeof(float));
    f->observation_rows[0] = f->observations;
    f->final_rows[0] = f->finals;
    f->buffers = (trp_env_buffers){f->observation_rows, f->final_rows, f->rewards, f->terminated,
                                   f->truncated,        NULL,          NULL};
    return f;
}

static void fixture_destroy(struct fixture *f)
{
    trp_env_destroy(f->env);
    free(f);
}

static void reset(struct fixture *f)
{
    assert_int_equal(trp_env_reset(f->env, f->observation_rows), TRP_OK);
}

static void step(struct fixture *f, const void *actions)
{
    assert_int_equal(trp_env_step(f->env, actions, &f->buffers), TRP_OK);
}

/* ---- CartPole ---------------------------------------------------------------------------- */

static void set_state(struct fixture *f, const double state[4])
{
    assert_int_equal(trp_env_set_state(f->env, 0, NULL, state, f->observation_rows), TRP_OK);
}

static void assert_observation(const float *observation, const double state[4])
{
    for (int i = 0; i < 4; i++)
        assert_true(observation[i] == (float)state[i]);
}

/* The policy of make_cartpole.py. */
static int32_t balance(const struct fixture *f)
{
    double s[4];
    assert_int_equal(trp_env_get_state(f->env, 0, NULL, s), TRP_OK);
    return 0.1 * s[0] + 0.3 * s[1] + 3 * s[2] + s[3] > 0;
}

static void cartpole_moves_as_gymnasiums_bit_for_bit(void **state)
{
    (void)state;
    enum { ROWS = sizeof golden_cartpole / sizeof golden_cartpole[0] };
    struct fixture *f = fixture_create("CartPole-v1", (trp_env_options){.count = 1});
    int trajectories = 0, ends = 0;
    for (size_t i = 0; i < ROWS; i++) {
        const double *expected = golden_cartpole[i].state;
        if (golden_cartpole[i].action < 0) {
            set_state(f, expected);
            assert_observation(f->observations, expected);
            trajectories++;
            continue;
        }
        int32_t steps = golden_cartpole[i].steps;
        for (int32_t j = 0; j < steps; j++) {
            int32_t action = steps == 1 ? golden_cartpole[i].action : balance(f);
            step(f, &action);
            assert_true(f->rewards[0] == 1);
        }
        bool end = golden_cartpole[i].terminated || golden_cartpole[i].truncated;
        assert_int_equal(f->terminated[0], golden_cartpole[i].terminated);
        assert_int_equal(f->truncated[0], golden_cartpole[i].truncated);
        assert_observation(end ? f->finals : f->observations, expected);
        if (!end) {
            double actual[4];
            assert_int_equal(trp_env_get_state(f->env, 0, NULL, actual), TRP_OK);
            assert_memory_equal(actual, expected, sizeof actual);
        }
        ends += end;
    }
    assert_int_equal(trajectories, 17);
    assert_true(ends >= 10);
    fixture_destroy(f);
}

static void cartpole_starts_within_its_bounds_and_never_twice_alike(void **state)
{
    (void)state;
    struct fixture *f = fixture_create("CartPole-v1", (trp_env_options){.count = 64, .seed = 3});
    reset(f);
    for (int i = 0; i < 64; i++) {
        for (int j = 0; j < 4; j++) {
            assert_true(fabsf(f->observations[i * 4 + j]) <= 0.05f);
            if (i > 0)
                assert_true(f->observations[i * 4 + j] != f->observations[i * 4 - 4 + j]);
        }
    }
    fixture_destroy(f);
}

/* ---- the automatic reset ----------------------------------------------------------------- */

static void an_ended_episode_gives_its_last_and_the_next_first_observation(void **state)
{
    (void)state;
    struct fixture *f = fixture_create("CartPole-v1", (trp_env_options){.count = 2, .seed = 1});
    reset(f);
    const double falling[4] = {0, 0, 0.2, 3};
    set_state(f, falling);
    memset(f->finals, 0x55, sizeof f->finals);
    uint8_t untouched[4 * sizeof(float)];
    memset(untouched, 0x55, sizeof untouched);
    const int32_t actions[2] = {1, 1};
    step(f, actions);
    assert_true(f->terminated[0] && !f->truncated[0]);
    assert_true(!f->terminated[1] && !f->truncated[1]);
    assert_true(f->finals[2] > 0.25f);
    assert_true(fabsf(f->observations[2]) <= 0.05f);
    assert_memory_equal(f->finals + 4, untouched, sizeof untouched);
    trp_env_progress progress;
    double now[4];
    assert_int_equal(trp_env_get_state(f->env, 0, &progress, now), TRP_OK);
    assert_int_equal(progress.steps, 0);
    assert_observation(f->observations, now);
    fixture_destroy(f);
}

static void final_observations_may_be_unwanted(void **state)
{
    (void)state;
    struct fixture *f = fixture_create("CartPole-v1", (trp_env_options){.count = 1});
    f->buffers.final_observations = NULL;
    set_state(f, (const double[4]){3, 0, 0, 0});
    step(f, &(int32_t){0});
    assert_true(f->terminated[0]);
    assert_true(fabsf(f->observations[0]) <= 0.05f);
    fixture_destroy(f);
}

static void the_time_limit_truncates_and_is_kept_apart_from_termination(void **state)
{
    (void)state;
    struct fixture *f =
        fixture_create("CartPole-v1", (trp_env_options){.count = 1, .max_episode_steps = 3});
    const double upright[4] = {0}, falling[4] = {0, 0, 0.2, 3};
    const int32_t actions[3] = {0, 1, 0};
    set_state(f, upright);
    for (int i = 0; i < 3; i++) {
        step(f, &actions[i]);
        assert_false(f->terminated[0]);
        assert_int_equal(f->truncated[0], i == 2);
    }
    trp_env_progress progress;
    double ignored[4];
    assert_int_equal(trp_env_get_state(f->env, 0, &progress, ignored), TRP_OK);
    assert_int_equal(progress.steps, 0);
    progress.steps = 2;
    assert_int_equal(trp_env_set_state(f->env, 0, &progress, falling, NULL), TRP_OK);
    step(f, &actions[1]);
    assert_true(f->terminated[0] && f->truncated[0]); /* both, as Gymnasium's wrapper */
    fixture_destroy(f);
}

static void a_negative_time_limit_is_none(void **state)
{
    (void)state;
    struct fixture *f =
        fixture_create("CartPole-v1", (trp_env_options){.count = 1, .max_episode_steps = -1});
    set_state(f, (const double[4]){0.03, -0.02, 0.04, 0.01});
    for (int i = 0; i < 700; i++) {
        int32_t action = balance(f);
        step(f, &action);
        assert_true(!f->terminated[0] && !f->truncated[0]);
    }
    fixture_destroy(f);
}

/* ---- seeds and state --------------------------------------------------------------------- */

static void run_randomly(struct fixture *f, uint64_t seed, int steps)
{
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    int32_t actions[COPIES_MAX];
    uint32_t choices = (uint32_t)trp_env_get_spec(f->env)->action_count;
    for (int i = 0; i < steps; i++) {
        for (uint32_t j = 0; j < trp_env_count(f->env); j++)
            actions[j] = (int32_t)trp_rng_below(&rng, choices);
        step(f, actions);
    }
}

static void the_same_seed_repeats_a_run(void **state)
{
    (void)state;
    const char *const names[] = {"CartPole-v1", "Catch"};
    for (size_t i = 0; i < 2; i++) {
        struct fixture *a = fixture_create(names[i], (trp_env_options){.count = 8, .seed = 5});
        struct fixture *b = fixture_create(names[i], (trp_env_options){.count = 8, .seed = 5});
        struct fixture *c = fixture_create(names[i], (trp_env_options){.count = 8, .seed = 6});
        reset(a);
        reset(b);
        reset(c);
        assert_memory_not_equal(a->observations, c->observations, sizeof a->observations);
        run_randomly(a, 1, 300);
        run_randomly(b, 1, 300);
        assert_memory_equal(a->observations, b->observations, sizeof a->observations);
        assert_memory_equal(a->finals, b->finals, sizeof a->finals);
        fixture_destroy(a);
        fixture_destroy(b);
        fixture_destroy(c);
    }
}

static void a_copy_given_a_seed_starts_as_the_only_copy_of_that_seed(void **state)
{
    (void)state;
    struct fixture *many = fixture_create("CartPole-v1", (trp_env_options){.count = 3, .seed = 5});
    struct fixture *one = fixture_create("CartPole-v1", (trp_env_options){.count = 1, .seed = 9});
    trp_env_seed(many->env, 2, 9);
    reset(many);
    reset(one);
    assert_memory_equal(many->observations + 8, one->observations, 4 * sizeof(float));
    fixture_destroy(many);
    fixture_destroy(one);
}

static void a_saved_copy_resumes_bit_for_bit(void **state)
{
    (void)state;
    const char *const names[] = {"CartPole-v1", "Catch"};
    for (size_t i = 0; i < 2; i++) {
        struct fixture *a = fixture_create(names[i], (trp_env_options){.count = 4, .seed = 5});
        struct fixture *b = fixture_create(names[i], (trp_env_options){.count = 4, .seed = 77});
        reset(a);
        run_randomly(a, 2, 33);
        uint8_t saved[64];
        assert_in_range(trp_env_state_bytes(a->env), 1, sizeof saved);
        for (uint32_t copy = 0; copy < 4; copy++) {
            trp_env_progress progress;
            assert_int_equal(trp_env_get_state(a->env, copy, &progress, saved), TRP_OK);
            size_t bytes = trp_tensor_bytes(&trp_env_get_spec(b->env)->observations[0]);
            void *row[] = {(uint8_t *)b->observations + copy * bytes};
            assert_int_equal(trp_env_set_state(b->env, copy, &progress, saved, row), TRP_OK);
        }
        assert_memory_equal(a->observations, b->observations, sizeof a->observations);
        run_randomly(a, 3, 200);
        run_randomly(b, 3, 200);
        assert_memory_equal(a->observations, b->observations, sizeof a->observations);
        fixture_destroy(a);
        fixture_destroy(b);
    }
}

/* ---- Catch ------------------------------------------------------------------------------- */

static void catch_drops_the_ball_in_nine_steps_and_pays_at_the_end(void **state)
{
    (void)state;
    struct fixture *f = fixture_create("Catch", (trp_env_options){.count = 1, .seed = 4});
    reset(f);
    assert_true(f->observations[9 * 5 + 2] == 1);
    int outcomes[2] = {0};
    for (int episode = 0; episode < 200; episode++) {
        int ball = 0;
        while (f->observations[ball] == 0)
            ball++;
        assert_in_range(ball, 0, 4);
        int paddle = 2;
        for (int i = 1; i <= 9; i++) {
            int32_t action = episode % 3;
            paddle += action - 1;
            paddle = paddle < 0 ? 0 : paddle > 4 ? 4 : paddle;
            step(f, &action);
            const float *board = i < 9 ? f->observations : f->finals;
            float ones = 0;
            for (int cell = 0; cell < 50; cell++)
                ones += board[cell];
            assert_true(board[i * 5 + ball] == 1);
            assert_true(board[9 * 5 + paddle] == 1);
            bool caught = i == 9 && paddle == ball;
            assert_true(ones == (caught ? 1 : 2));
            assert_true(f->rewards[0] == (i < 9 ? 0 : caught ? 1 : -1));
            assert_int_equal(f->terminated[0], i == 9);
            assert_false(f->truncated[0]);
        }
        outcomes[f->rewards[0] > 0]++;
    }
    assert_true(outcomes[0] > 100 && outcomes[1] > 15);
    fixture_destroy(f);
}

static void catch_starts_the_ball_in_every_column_alike(void **state)
{
    (void)state;
    struct fixture *f = fixture_create("Catch", (trp_env_options){.count = 1, .seed = 4});
    int columns[5] = {0};
    for (int i = 0; i < 5000; i++) {
        reset(f);
        for (int column = 0; column < 5; column++)
            columns[column] += f->observations[column] == 1;
    }
    for (int column = 0; column < 5; column++)
        assert_in_range(columns[column], 890, 1110); /* 4 deviations: 113 */
    fixture_destroy(f);
}

/* ---- bad input --------------------------------------------------------------------------- */

static void an_unknown_name_lists_the_known_ones(void **state)
{
    (void)state;
    trp_env *env = (trp_env *)1;
    const trp_env_spec *spec;
    assert_int_equal(trp_env_find("Pong", &spec), TRP_NOT_FOUND);
    assert_int_equal(trp_env_create(&env, "Pong", NULL), TRP_NOT_FOUND);
    assert_null(env);
    assert_non_null(strstr(trp_last_error(), "'Pong'"));
    assert_non_null(strstr(trp_last_error(), "CartPole-v1"));
    assert_non_null(strstr(trp_last_error(), "Catch"));
}

static void an_action_that_does_not_exist_moves_no_copy(void **state)
{
    (void)state;
    struct fixture *f = fixture_create("CartPole-v1", (trp_env_options){.count = 3});
    reset(f);
    const int32_t rows[][3] = {{0, 1, 2}, {0, -1, 0}, {INT32_MAX, 0, 0}, {INT32_MIN, 0, 0}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(trp_env_step(f->env, rows[i], &f->buffers), TRP_INVALID_ARGUMENT);
        trp_env_progress progress;
        double now[4];
        assert_int_equal(trp_env_get_state(f->env, 0, &progress, now), TRP_OK);
        assert_int_equal(progress.steps, 0);
        assert_observation(f->observations, now);
    }
    assert_int_equal(trp_env_step(f->env, rows[1], &f->buffers), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "CartPole-v1: action -1 of copy 1; there are 0 to 1");
    fixture_destroy(f);
}

static void an_action_that_does_not_exist_is_found_at_every_copy(void **state)
{
    static const int32_t none[] = {2, -1, INT32_MAX, INT32_MIN};
    enum { COPIES = 11 };
    (void)state;
    struct fixture *f = fixture_create("CartPole-v1", (trp_env_options){.count = COPIES});
    reset(f);
    for (int32_t i = 0; i < 4 * COPIES; i++) {
        int32_t actions[COPIES] = {0}, copy = i % COPIES;
        char words[64];
        actions[copy] = none[i / COPIES];
        snprintf(words, sizeof words, "action %d of copy %d;", none[i / COPIES], copy);
        assert_int_equal(trp_env_step(f->env, actions, &f->buffers), TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(trp_last_error(), words));
    }
    fixture_destroy(f);
}

static void a_step_needs_a_reset_or_a_state_for_every_copy(void **state)
{
    (void)state;
    struct fixture *f = fixture_create("CartPole-v1", (trp_env_options){.count = 2});
    const int32_t actions[2] = {0};
    double upright[4] = {0};
    assert_int_equal(trp_env_step(f->env, actions, &f->buffers), TRP_FAILED_PRECONDITION);
    assert_int_equal(trp_env_get_state(f->env, 0, NULL, upright), TRP_FAILED_PRECONDITION);
    set_state(f, upright);
    set_state(f, upright);
    assert_int_equal(trp_env_step(f->env, actions, &f->buffers), TRP_FAILED_PRECONDITION);
    assert_int_equal(trp_env_set_state(f->env, 1, NULL, upright, NULL), TRP_OK);
    step(f, actions);
    fixture_destroy(f);
}

static void states_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct fixture *f = fixture_create("CartPole-v1", (trp_env_options){.count = 1});
    const double bad[4] = {0, NAN, 0, 0}, upright[4] = {0};
    trp_env_progress progress = {.steps = 500};
    assert_int_equal(trp_env_set_state(f->env, 0, NULL, bad, NULL), TRP_INVALID_ARGUMENT);
    assert_int_equal(trp_env_set_state(f->env, 0, &progress, upright, NULL), TRP_INVALID_ARGUMENT);
    fixture_destroy(f);

    f = fixture_create("Catch", (trp_env_options){.count = 1});
    const int32_t boards[][3] = {{5, 0, 0}, {-1, 0, 0}, {0, 9, 0}, {0, -1, 0}, {0, 0, 5}};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(trp_env_set_state(f->env, 0, NULL, boards[i], NULL), TRP_INVALID_ARGUMENT);
    fixture_destroy(f);
}

static void too_many_copies_are_refused(void **state)
{
    (void)state;
    trp_env *env;
    trp_env_options options = {.count = (1 << 20) + 1};
    assert_int_equal(trp_env_create(&env, "Catch", &options), TRP_INVALID_ARGUMENT);
    assert_null(env);
}

/* ---- environments of users --------------------------------------------------------------- */

/* Counts steps; ends or fails when told to by its action. Owns a byte on the heap. */
struct counter {
    uint8_t *owned;
    uint8_t steps;
};

static int counters_alive, counters_that_may_be_created = 1000;

static trp_status counter_create(void *state, const void *arguments, void *user)
{
    (void)arguments;
    (void)user;
    struct counter *c = state;
    if (counters_that_may_be_created-- == 0)
        return trp_fail(TRP_UNAVAILABLE, "no more counters");
    c->owned = xmalloc(1);
    counters_alive++;
    return TRP_OK;
}

static void counter_destroy(void *state)
{
    struct counter *c = state;
    counters_alive -= c->owned != NULL;
    free(c->owned);
}

static trp_status counter_reset(void *state, trp_rng *rng)
{
    (void)rng;
    ((struct counter *)state)->steps = 0;
    return TRP_OK;
}

static trp_status counter_step(void *state, trp_rng *rng, const void *action,
                               trp_env_outcome *outcome)
{
    (void)rng;
    const float *numbers = action;
    struct counter *c = state;
    c->steps++;
    if (numbers[0] > 2)
        return trp_fail(TRP_INTERNAL, "counter broke");
    outcome->reward = numbers[1];
    outcome->truncated = numbers[0] > 1;
    return TRP_OK;
}

static void counter_save(const void *state, void *saved)
{
    memcpy(saved, state, sizeof(struct counter));
}

static void counter_observe(const void *state, void *const *observations)
{
    const struct counter *c = state;
    *(uint8_t *)observations[0] = c->steps;
}

static const float low[] = {0, -1}, high[] = {1, 1};

static const trp_env_impl counter_impl = {
    .spec = {.name = "Counter",
             .observations = {{.name = "steps", .dtype = TRP_UINT8, .rank = 0}},
             .action_kind = TRP_ACTION_BOX,
             .action_count = 2,
             .action_low = low,
             .action_high = high},
    .state_bytes = sizeof(struct counter),
    .create = counter_create,
    .destroy = counter_destroy,
    .reset = counter_reset,
    .step = counter_step,
    .observe = counter_observe,
};

static void register_counter(void)
{
    const trp_env_spec *spec;
    if (trp_env_find("Counter", &spec) != TRP_OK)
        assert_int_equal(trp_env_register(&counter_impl), TRP_OK);
    counters_that_may_be_created = 1000;
}

static void a_registered_environment_is_known_once(void **state)
{
    (void)state;
    register_counter();
    assert_int_equal(trp_env_register(&counter_impl), TRP_ALREADY_EXISTS);
    const trp_env_spec *spec;
    assert_int_equal(trp_env_find("Counter", &spec), TRP_OK);
    assert_string_equal(spec->name, "Counter");
    size_t count = 0;
    while (trp_env_at(count))
        count++;
    assert_true(count >= 3);
    assert_string_equal(trp_env_at(0)->name, "CartPole-v1");
    assert_ptr_equal(trp_env_at(count - 1), &counter_impl.spec);
}

static void a_users_environment_steps_and_cuts_episodes_itself(void **state)
{
    (void)state;
    register_counter();
    trp_env *env;
    assert_int_equal(trp_env_create(&env, "Counter", &(trp_env_options){.count = 2}), TRP_OK);
    assert_int_equal(counters_alive, 2);
    assert_int_equal(trp_env_action_bytes(env), 8);
    assert_int_equal(trp_env_state_bytes(env), 0);
    uint8_t observations[2], finals[2] = {99, 99};
    float rewards[2];
    bool terminated[2], truncated[2];
    void *rows[] = {observations}, *final_rows[] = {finals};
    trp_env_buffers buffers = {rows, final_rows, rewards, terminated, truncated, NULL, NULL};
    assert_int_equal(trp_env_reset(env, rows), TRP_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(trp_env_step(env, (const float[]){0, 0.5f, 0, -2}, &buffers), TRP_OK);
    assert_int_equal(observations[1], 3);
    assert_true(rewards[0] == 0.5f && rewards[1] == -2);
    assert_int_equal(trp_env_step(env, (const float[]){0, 0, 1.5f, 0}, &buffers), TRP_OK);
    assert_true(!truncated[0] && truncated[1] && !terminated[1]);
    assert_int_equal(finals[0], 99);
    assert_int_equal(finals[1], 4);
    assert_int_equal(observations[0], 4);
    assert_int_equal(observations[1], 0);
    uint8_t state_bytes[64];
    assert_int_equal(trp_env_get_state(env, 0, NULL, state_bytes), TRP_UNIMPLEMENTED);
    assert_int_equal(trp_env_set_state(env, 0, NULL, state_bytes, NULL), TRP_UNIMPLEMENTED);
    trp_env_destroy(env);
    assert_int_equal(counters_alive, 0);
}

static void a_failed_step_asks_for_a_reset(void **state)
{
    (void)state;
    register_counter();
    trp_env *env;
    assert_int_equal(trp_env_create(&env, "Counter", NULL), TRP_OK);
    uint8_t observation, final;
    float reward;
    bool terminated, truncated;
    void *rows[] = {&observation}, *final_rows[] = {&final};
    trp_env_buffers buffers = {rows, final_rows, &reward, &terminated, &truncated, NULL, NULL};
    assert_int_equal(trp_env_reset(env, rows), TRP_OK);
    assert_int_equal(trp_env_step(env, (const float[]){NAN, 0}, &buffers), TRP_INVALID_ARGUMENT);
    assert_int_equal(trp_env_step(env, (const float[]){0, 0}, &buffers), TRP_OK);
    assert_int_equal(trp_env_step(env, (const float[]){3, 0}, &buffers), TRP_INTERNAL);
    assert_string_equal(trp_last_error(), "counter broke");
    assert_int_equal(trp_env_step(env, (const float[]){0, 0}, &buffers), TRP_FAILED_PRECONDITION);
    assert_int_equal(trp_env_reset(env, rows), TRP_OK);
    assert_int_equal(trp_env_step(env, (const float[]){0, 0}, &buffers), TRP_OK);
    trp_env_destroy(env);
}

static void a_failed_create_leaves_nothing_behind(void **state)
{
    (void)state;
    register_counter();
    counters_that_may_be_created = 2;
    trp_env *env;
    assert_int_equal(trp_env_create(&env, "Counter", &(trp_env_options){.count = 4}),
                     TRP_UNAVAILABLE);
    assert_null(env);
    assert_int_equal(counters_alive, 0);
}

static void counter_mask(const void *state, bool *allowed)
{
    (void)state;
    (void)allowed;
}

static void wrong_specs_are_refused_by_name(void **state)
{
    (void)state;
    enum { ROWS = 16 };
    static trp_env_impl rows[ROWS];
    const char *const faults[ROWS] = {
        "a name",       "TRP_FLOAT32",     "no elements",     "no elements",       "action_kind",
        "action_count", "action_low",      "low <= high",     "max_episode_steps", "reset, step",
        "reset, step",  "belong together", "belong together", "mask is for",       "action_choices",
        "a name has no"};
    for (int i = 0; i < ROWS; i++) {
        rows[i] = counter_impl;
        rows[i].spec.name = "Wrong";
    }
    rows[0].spec.name = "";
    rows[1].spec.observations[0].dtype = TRP_FLOAT64;
    rows[2].spec.observations[0].rank = 9;
    rows[3].spec.observations[0].rank = 1; /* shape {0} */
    rows[4].spec.action_kind = (trp_action_kind)7;
    rows[5].spec.action_count = 0;
    rows[6].spec.action_low = NULL;
    rows[7].spec.action_low = high;
    rows[7].spec.action_high = low;
    rows[8].spec.max_episode_steps = -1;
    rows[9].reset = NULL;
    rows[10].observe = NULL;
    rows[11].saved_bytes = 4;
    rows[12].save = counter_save;
    rows[13].mask = counter_mask;
    rows[14].spec.action_kind = TRP_ACTION_MULTI_DISCRETE;
    rows[15].spec.name = "Wrong?size=1";
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(trp_env_register(&rows[i]), TRP_INVALID_ARGUMENT);
        assert_non_null(strstr(trp_last_error(), faults[i]));
    }
}

/* ---- how many there are ------------------------------------------------------------------- */

static void there_are_at_most_256_environments(void **state)
{
    (void)state;
    enum { MORE = 300 };
    static trp_env_impl impls[MORE];
    static char names[MORE][32];
    register_counter(); /* the other cases need it, in whatever order they run */
    trp_status status = TRP_OK;
    int i = 0;
    for (; i < MORE && status == TRP_OK; i++) {
        impls[i] = counter_impl;
        snprintf(names[i], sizeof names[i], "Many-%d", i);
        impls[i].spec.name = names[i];
        status = trp_env_register(&impls[i]);
    }
    assert_int_equal(status, TRP_RESOURCE_EXHAUSTED);
    assert_in_range(i, 200, 256); /* the last one was refused */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cartpole_moves_as_gymnasiums_bit_for_bit),
        cmocka_unit_test(cartpole_starts_within_its_bounds_and_never_twice_alike),
        cmocka_unit_test(an_ended_episode_gives_its_last_and_the_next_first_observation),
        cmocka_unit_test(final_observations_may_be_unwanted),
        cmocka_unit_test(the_time_limit_truncates_and_is_kept_apart_from_termination),
        cmocka_unit_test(a_negative_time_limit_is_none),
        cmocka_unit_test(the_same_seed_repeats_a_run),
        cmocka_unit_test(a_copy_given_a_seed_starts_as_the_only_copy_of_that_seed),
        cmocka_unit_test(a_saved_copy_resumes_bit_for_bit),
        cmocka_unit_test(catch_drops_the_ball_in_nine_steps_and_pays_at_the_end),
        cmocka_unit_test(catch_starts_the_ball_in_every_column_alike),
        cmocka_unit_test(an_unknown_name_lists_the_known_ones),
        cmocka_unit_test(an_action_that_does_not_exist_moves_no_copy),
        cmocka_unit_test(an_action_that_does_not_exist_is_found_at_every_copy),
        cmocka_unit_test(a_step_needs_a_reset_or_a_state_for_every_copy),
        cmocka_unit_test(states_that_cannot_be_are_refused),
        cmocka_unit_test(too_many_copies_are_refused),
        cmocka_unit_test(a_registered_environment_is_known_once),
        cmocka_unit_test(a_users_environment_steps_and_cuts_episodes_itself),
        cmocka_unit_test(a_failed_step_asks_for_a_reset),
        cmocka_unit_test(a_failed_create_leaves_nothing_behind),
        cmocka_unit_test(wrong_specs_are_refused_by_name),
        cmocka_unit_test(there_are_at_most_256_environments),
    };
    return cmocka_run_group_tests_name("env", tests, NULL, NULL);
}
