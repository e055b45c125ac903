/* Toy texts have the transitions of Gymnasium's tables, with their probabilities, and
 * are solved to the optimum that these have. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/env.h>
#include "tests/golden/toy_text.h"

struct copy {
    trp_env *env;
    int32_t observation, last;
    float reward;
    bool terminated, truncated;
    void *rows[1], *lasts[1];
};

static void copy_create(struct copy *copy, const char *name)
{
    *copy = (struct copy){.rows = {&copy->observation}, .lasts = {&copy->last}};
    assert_int_equal(trp_env_create(&copy->env, name, NULL), TRP_OK);
}

static trp_status copy_step(struct copy *copy, int32_t action)
{
    const trp_env_buffers buffers = {
        copy->rows, copy->lasts, &copy->reward, &copy->terminated, &copy->truncated, NULL, NULL};
    return trp_env_step(copy->env, &action, &buffers);
}

/* A saved state is the observation; Taxi's fickle passenger follows. */
static trp_status copy_set(struct copy *copy, int32_t number, int32_t fickle, const trp_rng *rng)
{
    const int32_t saved[2] = {number, fickle};
    static const trp_rng none;
    const trp_env_progress progress = {.rng = *(rng ? rng : &none)};
    return trp_env_set_state(copy->env, 0, rng ? &progress : NULL, saved, copy->rows);
}

struct golden {
    const char *name;
    const int32_t *outcomes; /* of the states, of the actions of each */
    const double *probabilities;
    size_t outcomes_count, probability_count, actions;
    size_t refused; /* states that no episode goes on in */
};

/* Which outcome Gymnasium's categorical_sample() would take for the generator's next number. */
static size_t drawn_outcome(const struct golden *golden, const int32_t *outcomes, trp_rng rng)
{
    double number = trp_rng_double(&rng), sum = 0;
    for (size_t i = 0; i < golden->probability_count; i++) {
        sum += golden->probabilities[i];
        if (sum > number)
            return outcomes[i] == 0 ? 0 : i;
    }
    return 0;
}

static void assert_transition(struct copy *copy, const struct golden *golden, int32_t state,
                              int32_t action, const int32_t *outcomes, trp_rng *rng)
{
    trp_rng_u64(rng);
    int32_t expected = outcomes[drawn_outcome(golden, outcomes, *rng)];
    assert_int_equal(copy_set(copy, state, 0, rng), TRP_OK);
    assert_int_equal(copy->observation, state);
    assert_int_equal(copy_step(copy, action), TRP_OK);
    assert_int_equal(copy->terminated, expected >> 20);
    assert_false(copy->truncated);
    assert_int_equal(copy->terminated ? copy->last : copy->observation, expected >> 8 & 0xfff);
    assert_true(copy->reward == (float)((expected & 0xff) - 128));
}

/* Every action in every state, often enough that every outcome comes. */
static void assert_transitions(const struct golden *golden)
{
    enum { DRAWS = 16 };
    struct copy copy;
    trp_rng rng;
    size_t row = golden->probability_count, refused = 0;
    trp_rng_init(&rng, 5, 0);
    copy_create(&copy, golden->name);
    assert_int_equal(trp_env_get_spec(copy.env)->action_count, golden->actions);
    size_t states = golden->outcomes_count / row / golden->actions;
    for (size_t i = 0; i < states; i++) {
        /* Of the rainy taxi there is one state with and one without a passenger in each cell. */
        int32_t state = states == 50 ? (int32_t)(i / 2 * 20 + (i % 2 ? 17 : 2)) : (int32_t)i;
        if (copy_set(&copy, state, 0, NULL) != TRP_OK) {
            refused++;
            continue;
        }
        for (size_t action = 0; action < golden->actions; action++)
            for (size_t draw = 0; draw < (row > 1 ? DRAWS : 1); draw++)
                assert_transition(&copy, golden, state, (int32_t)action,
                                  golden->outcomes + (i * golden->actions + action) * row, &rng);
    }
    assert_int_equal(refused, golden->refused);
    assert_int_not_equal(copy_set(&copy, (int32_t)(states == 50 ? 500 : states), 0, NULL), TRP_OK);
    assert_int_not_equal(copy_set(&copy, -1, 0, NULL), TRP_OK);
    trp_env_destroy(copy.env);
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define GOLDEN(table)                                                                              \
    golden_##table, golden_##table##_probabilities, COUNT(golden_##table),                         \
        COUNT(golden_##table##_probabilities)

static void frozen_lakes_have_gymnasiums_transitions(void **state)
{
    (void)state;
    assert_transitions(
        &(struct golden){"FrozenLake-v1?is_slippery=false", GOLDEN(frozen_lake), 4, 5});
    assert_transitions(&(struct golden){"FrozenLake-v1", GOLDEN(frozen_lake_slippery), 4, 5});
    assert_transitions(&(struct golden){"FrozenLake8x8-v1", GOLDEN(frozen_lake_8x8), 4, 11});
    assert_transitions(&(struct golden){"FrozenLake-v1?map_name=8x8&success_rate=0.8",
                                        GOLDEN(frozen_lake_8x8_steady), 4, 11});
}

static void cliffs_have_gymnasiums_transitions(void **state)
{
    (void)state;
    assert_transitions(&(struct golden){"CliffWalking-v1", GOLDEN(cliff_walking), 4, 11});
    assert_transitions(
        &(struct golden){"CliffWalkingSlippery-v1", GOLDEN(cliff_walking_slippery), 4, 11});
}

static void taxis_have_gymnasiums_transitions(void **state)
{
    (void)state;
    assert_transitions(&(struct golden){"Taxi-v4", GOLDEN(taxi), 6, 0});
    assert_transitions(&(struct golden){"Taxi-v4?is_rainy=true", GOLDEN(taxi_rainy), 6, 0});
}

/* ---- Taxi --------------------------------------------------------------------------------- */

static void a_taxi_allows_what_gymnasium_says_where_it_was_asked_to(void **state)
{
    (void)state;
    struct copy copy;
    copy_create(&copy, "Taxi-v4?action_mask=true");
    assert_true(trp_env_get_spec(copy.env)->masked);
    for (int32_t i = 0; i < (int32_t)COUNT(golden_taxi_masks); i++) {
        bool allowed[6];
        assert_int_equal(copy_set(&copy, i, 0, NULL), TRP_OK);
        assert_int_equal(trp_env_masks(copy.env, allowed), TRP_OK);
        for (int action = 0; action < 6; action++)
            assert_int_equal(allowed[action], golden_taxi_masks[i] >> action & 1);
    }
    assert_int_equal(copy_set(&copy, 2, 0, NULL), TRP_OK); /* at the passenger's place */
    assert_int_equal(copy_step(&copy, 1), TRP_INVALID_ARGUMENT);
    trp_env_destroy(copy.env);
    copy_create(&copy, "Taxi-v4");
    assert_false(trp_env_get_spec(copy.env)->masked);
    trp_env_destroy(copy.env);
    copy_create(&copy, "Taxi-v4?frame_stack=2");
    assert_false(trp_env_get_spec(copy.env)->masked);
    trp_env_destroy(copy.env);
}

static void a_fickle_passenger_changes_its_destination_once_on_the_first_move(void **state)
{
    (void)state;
    struct copy copy;
    int changed[4] = {0};
    trp_rng rng;
    trp_rng_init(&rng, 1, 0);
    copy_create(&copy, "Taxi-v4?fickle_passenger=true");
    for (int i = 0; i < 300; i++) {
        trp_rng_u64(&rng);
        assert_int_equal(copy_set(&copy, 2, 1, &rng), TRP_OK); /* to 2, taken at 0 */
        assert_int_equal(copy_step(&copy, 4), TRP_OK);
        assert_int_equal(copy.observation, 4 * 4 + 2);
        assert_int_equal(copy_step(&copy, 1), TRP_OK); /* a wall: nothing moves */
        assert_int_equal(copy.observation, 4 * 4 + 2);
        assert_int_equal(copy_step(&copy, 0), TRP_OK);
        int32_t destination = copy.observation % 4;
        changed[destination]++;
        assert_int_equal(copy_step(&copy, 0), TRP_OK);
        assert_int_equal(copy.observation % 4, destination);
    }
    assert_int_equal(changed[2], 0);
    for (int i = 0; i < 4; i++)
        assert_true(i == 2 || changed[i] > 60);
    trp_env_destroy(copy.env);
}

static void fickle_passengers_are_as_frequent_as_was_asked(void **state)
{
    (void)state;
    struct copy copy;
    int fickle = 0;
    copy_create(&copy, "Taxi-v4?fickle_passenger=true&fickle_probability=0.25");
    for (int i = 0; i < 2000; i++) {
        int32_t saved[2];
        assert_int_equal(trp_env_reset(copy.env, copy.rows), TRP_OK);
        assert_int_equal(trp_env_get_state(copy.env, 0, NULL, saved), TRP_OK);
        fickle += saved[1];
    }
    assert_true(fickle > 400 && fickle < 600);
    trp_env_destroy(copy.env);
}

/* ---- starts and limits -------------------------------------------------------------------- */

static void a_taxi_starts_anywhere_with_another_destination(void **state)
{
    (void)state;
    enum { EPISODES = 30000 };
    static int seen[500];
    struct copy copy;
    int kinds = 0;
    copy_create(&copy, "Taxi-v4");
    for (int i = 0; i < EPISODES; i++) {
        assert_int_equal(trp_env_reset(copy.env, copy.rows), TRP_OK);
        assert_true(copy.observation >= 0 && copy.observation < 500);
        assert_true(copy.observation / 4 % 5 < 4);
        assert_true(copy.observation / 4 % 5 != copy.observation % 4);
        kinds += seen[copy.observation]++ == 0;
    }
    assert_int_equal(kinds, 300); /* each of them 100 times on average */
    for (int i = 0; i < 500; i++)
        assert_true(seen[i] == 0 || (seen[i] > 50 && seen[i] < 150));
    trp_env_destroy(copy.env);
}

/* Steps of an episode that nothing ends but its limit; 0: none within 500. */
static int steps_to_limit(const char *name, int32_t start, int32_t action)
{
    struct copy copy;
    copy_create(&copy, name);
    assert_int_equal(trp_env_reset(copy.env, copy.rows), TRP_OK);
    assert_int_equal(copy.observation, start);
    int steps = 0;
    do {
        assert_int_equal(copy_step(&copy, action), TRP_OK);
        assert_false(copy.terminated);
    } while (++steps < 500 && !copy.truncated);
    bool truncated = copy.truncated;
    trp_env_destroy(copy.env);
    return truncated ? steps : 0;
}

static void step_limits_are_truncations(void **state)
{
    (void)state;
    assert_int_equal(steps_to_limit("FrozenLake-v1?is_slippery=false", 0, 0), 100);
    assert_int_equal(steps_to_limit("FrozenLake-v1?is_slippery=false&map_name=8x8", 0, 0), 100);
    assert_int_equal(steps_to_limit("FrozenLake8x8-v1?is_slippery=false", 0, 0), 200);
    assert_int_equal(steps_to_limit("CliffWalking-v1", 36, 1), 0);
    assert_int_equal(trp_env_create(&(trp_env *){NULL}, "Taxi-v4?is_rainy=2", NULL),
                     TRP_INVALID_ARGUMENT);
    const trp_env_spec *spec;
    assert_int_equal(trp_env_find("Taxi-v4", &spec), TRP_OK);
    assert_int_equal(spec->max_episode_steps, 200);
}

/* ---- solved ---------------------------------------------------------------------------------- */

enum { STATES_MAX = 500, ACTIONS_MAX = 6, OUTCOMES_MAX = 3, STEPS_MAX = 200 };

/* What somebody who may only play a task finds out about it, and does best then. */
struct plan {
    struct outcome {
        int32_t next;
        bool ends;
        float reward;
        double share;
    } outcomes[STATES_MAX][ACTIONS_MAX][OUTCOMES_MAX];
    int32_t best[STEPS_MAX + 1][STATES_MAX]; /* with so many steps to go */
    double values[2][STATES_MAX];
    size_t states, actions, steps;
};

static void plan_count(struct outcome outcomes[OUTCOMES_MAX], const struct copy *copy, double share)
{
    int32_t next = copy->terminated ? copy->last : copy->observation;
    size_t i = 0;
    while (i < OUTCOMES_MAX && outcomes[i].share > 0 && outcomes[i].next != next)
        i++;
    assert_in_range(i, 0, OUTCOMES_MAX - 1);
    share += outcomes[i].share;
    outcomes[i] = (struct outcome){next, copy->terminated, copy->reward, share};
}

/* Tries every action in every state so often. */
static void plan_try(struct plan *plan, struct copy *copy, size_t tries)
{
    trp_rng rng;
    trp_rng_init(&rng, 7, 0);
    for (size_t s = 0; s < plan->states; s++)
        for (size_t a = 0; a < plan->actions; a++)
            for (size_t i = 0; i < tries; i++) {
                trp_rng_u64(&rng);
                if (copy_set(copy, (int32_t)s, 0, &rng) != TRP_OK)
                    break;
                assert_int_equal(copy_step(copy, (int32_t)a), TRP_OK);
                plan_count(plan->outcomes[s][a], copy, 1.0 / (double)tries);
            }
}

static double plan_value(const struct outcome outcomes[OUTCOMES_MAX], const double *values)
{
    double value = 0;
    for (size_t i = 0; i < OUTCOMES_MAX; i++) {
        const struct outcome *o = &outcomes[i];
        value += o->share * ((double)o->reward + (o->ends ? 0 : values[o->next]));
    }
    return value;
}

/* Value iteration, from the last step backwards. */
static void plan_ahead(struct plan *plan)
{
    for (size_t left = 1; left <= plan->steps; left++) {
        const double *after = plan->values[(left - 1) % 2];
        for (size_t s = 0; s < plan->states; s++) {
            double *value = &plan->values[left % 2][s];
            for (size_t a = 0; a < plan->actions; a++) {
                double found = plan_value(plan->outcomes[s][a], after);
                if (a > 0 && found <= *value)
                    continue;
                *value = found;
                plan->best[left][s] = (int32_t)a;
            }
        }
    }
}

/* The return of an episode from here. */
static double plan_play(const struct plan *plan, struct copy *copy, int32_t start)
{
    double sum = 0;
    size_t steps = 0;
    assert_int_equal(copy_set(copy, start, 0, NULL), TRP_OK);
    do {
        assert_in_range(steps, 0, plan->steps - 1);
        assert_int_equal(copy_step(copy, plan->best[plan->steps - steps++][copy->observation]),
                         TRP_OK);
        sum += (double)copy->reward;
    } while (!copy->terminated && !copy->truncated);
    return sum;
}

static struct plan *plan_create(struct copy *copy, const char *name, size_t states, size_t tries)
{
    struct plan *plan = test_calloc(1, sizeof *plan);
    copy_create(copy, name);
    const trp_env_spec *spec = trp_env_get_spec(copy->env);
    plan->states = states;
    plan->actions = spec->action_count;
    plan->steps = (size_t)spec->max_episode_steps;
    assert_in_range(plan->steps, 1, STEPS_MAX);
    plan_try(plan, copy, tries);
    plan_ahead(plan);
    return plan;
}

/* `optimum`: what value iteration over Gymnasium's own table of the task says that its start is
 * worth within the task's steps. Four standard deviations of what is either 0 or 1 are allowed. */
static void assert_lake_solved(const char *name, size_t states, size_t tries, double optimum)
{
    enum { EPISODES = 20000 };
    struct copy copy;
    struct plan *plan = plan_create(&copy, name, states, tries);
    double sum = 0;
    for (size_t i = 0; i < EPISODES; i++)
        sum += plan_play(plan, &copy, 0);
    double allowed = 4 * sqrt(optimum * (1 - optimum) / EPISODES);
    assert_true(fabs(sum / EPISODES - optimum) <= allowed);
    trp_env_destroy(copy.env);
    test_free(plan);
}

static void frozen_lakes_are_solved_to_their_optimum(void **state)
{
    (void)state;
    assert_lake_solved("FrozenLake-v1?is_slippery=false", 16, 1, 1);
    assert_lake_solved("FrozenLake-v1", 16, 3000, 0.7441902878292689);
    assert_lake_solved("FrozenLake8x8-v1", 64, 3000, 0.9132201502016288);
}

/* From each of the 300 states that an episode starts in, which are equally likely: 7.93 on average
 * by Gymnasium's table. */
static void a_taxi_is_solved_to_its_optimum(void **state)
{
    struct copy copy;
    struct plan *plan = plan_create(&copy, "Taxi-v4", STATES_MAX, 1);
    double sum = 0;
    (void)state;
    for (int32_t s = 0; s < STATES_MAX; s++) {
        int32_t passenger = s / 4 % 5, destination = s % 4;
        if (passenger < 4 && passenger != destination)
            sum += plan_play(plan, &copy, s);
    }
    assert_true(sum == 2379); /* 300 * 7.93 */
    trp_env_destroy(copy.env);
    test_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_lakes_have_gymnasiums_transitions),
        cmocka_unit_test(cliffs_have_gymnasiums_transitions),
        cmocka_unit_test(taxis_have_gymnasiums_transitions),
        cmocka_unit_test(a_taxi_allows_what_gymnasium_says_where_it_was_asked_to),
        cmocka_unit_test(a_fickle_passenger_changes_its_destination_once_on_the_first_move),
        cmocka_unit_test(fickle_passengers_are_as_frequent_as_was_asked),
        cmocka_unit_test(a_taxi_starts_anywhere_with_another_destination),
        cmocka_unit_test(step_limits_are_truncations),
        cmocka_unit_test(frozen_lakes_are_solved_to_their_optimum),
        cmocka_unit_test(a_taxi_is_solved_to_its_optimum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
