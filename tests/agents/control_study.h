/* What the updaters and policies of all agents of continuous actions do alike, as tests look at it,
 * upon networks of paper.h. */
#ifndef TESTS_AGENTS_CONTROL_STUDY_H
#define TESTS_AGENTS_CONTROL_STUDY_H

#include "paper.h"

/* ---- vectors ------------------------------------------------------------------------------- */

/* As they are before a step. */
struct control_before {
    float *params, *critics, *target_params, *target_critics;
    trp_rng rng;
};

static inline struct control_before control_before_step(struct study *study)
{
    return (struct control_before){paper_copy(study, "params"), paper_copy(study, "critics"),
                                   paper_copy(study, "target_params"),
                                   paper_copy(study, "target_critics"), study->run.rng};
}

static inline void control_forget(struct control_before *before)
{
    trp_floats_destroy(before->params);
    trp_floats_destroy(before->critics);
    trp_floats_destroy(before->target_params);
    trp_floats_destroy(before->target_critics);
}

static inline bool control_is_as_before(struct study *study, const char *vector_name,
                                        const float *before)
{
    size_t vector = paper_vector(study, vector_name);
    size_t bytes = study->updater->vectors[vector].count * sizeof(float);
    return memcmp(study->run.values[vector], before, bytes) == 0;
}

static inline bool control_targets_are_copies(struct study *study)
{
    return control_is_as_before(study, "target_params",
                                study->run.values[paper_vector(study, "params")]) &&
           control_is_as_before(study, "target_critics",
                                study->run.values[paper_vector(study, "critics")]);
}

/* Targets stay as they are but for every `period`-th step, after which they are copies. */
static inline void control_assert_copied_every(struct study *study, uint64_t period)
{
    struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
    paper_fill(items, 11);
    for (uint64_t step = 1; step <= 2 * period + 1; step++) {
        bool copied = step % period == 0;
        struct control_before before = control_before_step(study);
        assert_int_equal(study_step(study, &items->batch), TRP_OK);
        assert_int_equal(control_targets_are_copies(study), copied);
        assert_int_equal(control_is_as_before(study, "target_params", before.target_params),
                         !copied);
        assert_int_equal(control_is_as_before(study, "target_critics", before.target_critics),
                         !copied);
        control_forget(&before);
    }
    items_destroy(items);
}

/* The tensors of a vector that have these lines of its layout, "body.0.weight [300][2]". */
static inline void control_assert_layers(struct study *study, const char *vector_name,
                                         const char *const *lines)
{
    const trp_vector_spec *vector = &study->updater->vectors[paper_vector(study, vector_name)];
    char *layout = trp_net_layout(vector->tensors, vector->tensor_count, 0);
    for (size_t i = 0; lines[i]; i++) {
        char line[80];
        snprintf(line, sizeof line, "%s at ", lines[i]);
        if (!strstr(layout, line))
            fail_msg("%s has no %s:\n%s", vector_name, lines[i], layout);
    }
    free(layout);
}

/* ---- steps --------------------------------------------------------------------------------- */

static inline void control_assert_resumes(const trp_agent *agent)
{
    enum { STEPS = 12 };
    struct study *whole = study_create(agent, &paper_env, PAPER_ROWS, 3);
    struct study *resumed = study_create(agent, &paper_env, PAPER_ROWS, 99);
    struct items *items[STEPS];
    for (size_t i = 0; i < STEPS; i++) {
        items[i] = items_create(&whole->updater->sources[0], PAPER_ROWS);
        paper_fill(items[i], i);
    }
    study_assert_resumes(whole, resumed, items, STEPS, 5);
    for (size_t i = 0; i < STEPS; i++)
        items_destroy(items[i]);
    study_destroy(whole);
    study_destroy(resumed);
}

/* A NaN in a column or vector, and the words of the step that fails of it. */
struct control_nan {
    const char *place, *words;
};

/* `rows` end with a place of NULL. */
static inline void control_assert_nan_is_named(const trp_agent *agent,
                                               const struct control_nan *rows)
{
    for (; rows->place; rows++) {
        struct study *study = study_create(agent, &paper_env, PAPER_ROWS, 3);
        struct items *items = items_create(&study->updater->sources[0], PAPER_ROWS);
        paper_fill(items, 11);
        float *column = items_column(items, rows->place);
        if (column)
            column[2] = NAN;
        else
            study->run.values[paper_vector(study, rows->place)][0] = NAN;
        assert_int_equal(study_step(study, &items->batch), TRP_INTERNAL);
        if (!strstr(trp_last_error(), rows->words))
            fail_msg("%s: '%s' does not say '%s'", rows->place, trp_last_error(), rows->words);
        items_destroy(items);
        study_destroy(study);
    }
}

/* ---- pairings ------------------------------------------------------------------------------ */

static inline void control_assert_refused(const trp_agent *agent, const trp_env_spec *env,
                                          const char *words)
{
    assert_int_equal(agent->impl->check(agent, env), TRP_INVALID_ARGUMENT);
    if (!strstr(trp_last_error(), words))
        fail_msg("'%s' does not say '%s'", trp_last_error(), words);
}

/* What no agent of continuous actions can do with. */
static inline void control_assert_pairings(const trp_agent *agent)
{
    static const float endless = INFINITY, one = 1, zero = 0, tiny = 1e-38F;
    const char *who = agent->impl->name;
    char words[80];
    trp_env_spec choices = paper_env, unbounded = paper_env, point = paper_env, two = paper_env;
    trp_env_spec image = paper_env, narrow = paper_env;
    choices.action_kind = TRP_ACTION_DISCRETE;
    unbounded.action_count = point.action_count = 1;
    unbounded.action_high = &endless;
    point.action_low = point.action_high = &one;
    narrow.action_count = 1;
    narrow.action_low = &zero;
    narrow.action_high = &tiny;
    two.observations[1] = two.observations[0];
    image.observations[0] = (trp_tensor_spec){.dtype = TRP_UINT8, .rank = 3, .shape = {36, 36, 3}};
    snprintf(words, sizeof words, "%s: Paper has one choice for an action, needs numbers", who);
    control_assert_refused(agent, &choices, words);
    control_assert_refused(agent, &unbounded,
                           "number 0 of an action of Paper lies in [-1, inf], needs finite bounds");
    control_assert_refused(agent, &point, "lies in [1, 1], needs finite bounds that differ");
    control_assert_refused(agent, &narrow, "lies in [0, 1e-38], needs finite bounds that differ");
    snprintf(words, sizeof words, "%s: Paper observes 2 tensors, needs one", who);
    control_assert_refused(agent, &two, words);
    snprintf(words, sizeof words, "%s: Paper observes uint8 [36][36][3], needs float32", who);
    control_assert_refused(agent, &image, words);
    assert_int_equal(agent->impl->check(agent, &paper_env), TRP_OK);
}

/* ---- acting -------------------------------------------------------------------------------- */

enum { CONTROL_ACTING = 4000 };

/* Actions at states of 0. */
struct control_acting {
    const trp_agent *agent;
    bool greedy;
    uint64_t steps;                 /* that all actors took before */
    const float *params;            /* NULL: zeros, but for */
    const char *names[2];           /* biases, */
    float biases[2];                /* all numbers of each alike */
    float (*actions)[PAPER_ACTION]; /* [CONTROL_ACTING], written */
};

static inline void control_act(const struct control_acting *acting)
{
    static const float observations[CONTROL_ACTING][PAPER_STATE];
    trp_policy *policy;
    assert_int_equal(acting->agent->impl->policy(
                         acting->agent, &paper_env,
                         &(trp_policy_options){.rows = CONTROL_ACTING, .greedy = acting->greedy},
                         &policy),
                     TRP_OK);
    float *params = trp_floats_create(policy->param_count);
    for (size_t i = 0; i < policy->tensor_count; i++)
        for (size_t k = 0; k < 2 && acting->names[k]; k++)
            if (strcmp(policy->tensors[i].name, acting->names[k]) == 0)
                trp_net_tensor_set(&policy->tensors[i],
                                   (float[]){acting->biases[k], acting->biases[k]}, params);
    assert_int_equal(
        policy->impl->load(policy, acting->params ? acting->params : params, policy->param_count),
        TRP_OK);
    trp_rng rng;
    trp_rng_init(&rng, 5, 0);
    assert_int_equal(
        policy->impl->act(policy, &(trp_act){.rows = CONTROL_ACTING,
                                             .observations = (const void *const[]){observations},
                                             .steps = acting->steps,
                                             .rng = &rng,
                                             .actions = acting->actions}),
        TRP_OK);
    trp_floats_destroy(params);
    trp_policy_destroy(policy);
}

/* Of a number of all actions, in halves of the distance between its bounds, from their middle; each
 * lies between them. */
static inline void control_assert_moments(const struct control_acting *acting, double mean,
                                          double deviation, double tolerance)
{
    for (size_t i = 0; i < PAPER_ACTION; i++) {
        double half = ((double)paper_high[i] - (double)paper_low[i]) / 2, sum = 0, squares = 0;
        for (size_t row = 0; row < CONTROL_ACTING; row++) {
            float action = acting->actions[row][i];
            assert_true(action >= paper_low[i] && action <= paper_high[i]);
            double place = ((double)action - (double)paper_low[i]) / half - 1;
            sum += place / CONTROL_ACTING;
            squares += place * place / CONTROL_ACTING;
        }
        assert_float_equal(sum, mean, tolerance);
        assert_float_equal(sqrt(fmax(0, squares - sum * sum)), deviation, tolerance);
    }
}

#endif
