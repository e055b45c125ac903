/* DQN's update by the numbers, which goes on after a checkpoint as if nothing had happened. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/dqn.h>
#include <troupe/log.h>
#include "agents/dqn.h"
#include "core/alloc.h"
#include "learner/save.h"
#include "learner/update.h"

enum { BATCH = 8, COLUMNS = 7 };

/* A batch of random CartPole items, as a sampler would give it. */
struct items {
    float observations[BATCH][4], next_observations[BATCH][4];
    float rewards[BATCH], discounts[BATCH];
    int32_t actions[BATCH];
    int64_t versions[BATCH], sizes[BATCH];
    uint64_t keys[BATCH];
    double probabilities[BATCH];
    void *columns[COLUMNS];
    trp_batch batch;
};

static void items_fill(struct items *items, trp_rng *rng)
{
    memset(items, 0, sizeof *items);
    for (size_t i = 0; i < BATCH; i++) {
        for (size_t k = 0; k < 4; k++) {
            items->observations[i][k] = (float)trp_rng_normal(rng);
            items->next_observations[i][k] = (float)trp_rng_normal(rng);
        }
        items->rewards[i] = (float)trp_rng_below(rng, 4);
        items->discounts[i] = trp_rng_below(rng, 3) == 0 ? 0 : 0.9F;
        items->actions[i] = (int32_t)trp_rng_below(rng, 2);
        items->sizes[i] = 1000;
        items->probabilities[i] = 1e-4 * (double)(1 + trp_rng_below(rng, 100));
    }
    void *columns[COLUMNS] = {items->observations, items->actions,           items->rewards,
                              items->discounts,    items->next_observations, items->versions};
    memcpy(items->columns, columns, sizeof columns);
    items->batch = (trp_batch){.rows = BATCH,
                               .columns = items->columns,
                               .keys = items->keys,
                               .probabilities = items->probabilities,
                               .table_sizes = items->sizes};
}

static void items_fill_seeded(struct items *items)
{
    trp_rng rng;
    trp_rng_init(&rng, 11, 0);
    items_fill(items, &rng);
}

/* An updater and what a learner keeps for it. */
struct study {
    trp_updater *updater;
    struct trp_update_run run;
    uint64_t steps;
    size_t count; /* of parameters */
    float *params, *target;
};

static struct study *study_of(const trp_env_spec *env, const trp_dqn_options *options,
                              uint64_t seed)
{
    trp_agent agent = trp_dqn(options);
    struct study *study = xcalloc(1, sizeof *study);
    assert_int_equal(agent.impl->updater(&agent, env, &(trp_updater_options){.batch_size = BATCH},
                                         &study->updater),
                     TRP_OK);
    assert_int_equal(update_prepare(&study->run, study->updater, seed), TRP_OK);
    study->count = study->updater->vectors[0].count;
    study->params = study->run.values[0];
    study->target = study->run.values[1];
    return study;
}

static struct study *study_create(const trp_dqn_options *options, uint64_t seed)
{
    const trp_env_spec *env;
    assert_int_equal(trp_env_find("CartPole-v1", &env), TRP_OK);
    return study_of(env, options, seed);
}

static void study_destroy(struct study *study)
{
    update_cleanup(&study->run);
    trp_updater_destroy(study->updater);
    free(study);
}

static trp_status study_step(struct study *study, const struct items *items)
{
    trp_status status = update_step(&study->run, study->steps + 1, &items->batch);
    study->steps += status == TRP_OK;
    return status;
}

/* The tensor `name` of its state. */
static const float *tensor(struct study *study, const char *name)
{
    trp_checkpoint_tensor tensors[UPDATE_TENSORS_MAX];
    size_t count = update_state(&study->run, tensors);
    for (size_t i = 0; i < count; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return tensors[i].data;
    fail_msg("no tensor %s", name);
    return NULL;
}

static double reported(const struct study *study, const char *name)
{
    for (size_t i = 0; i < study->run.metric_count; i++)
        if (strcmp(study->run.metrics[i].name, name) == 0)
            return study->run.metrics[i].value;
    fail_msg("no metric %s", name);
    return 0;
}

/* What the formulas have to be told, and the rest as the updater has it. */
struct formulas {
    trp_dqn_options options;
    double gamma, beta, huber_delta, clip, learning_rate, adam_epsilon;
    trp_net_spec spec;
    trp_net *net;
    size_t count;
    float *target, *grads, *before[3]; /* params, m and v of the updater before a step */
    double errors[BATCH];
    double loss, mean_q, grad_norm;
};

/* Errors, loss and gradient for the parameters before[0]. */
static void formulas_differentiate(struct formulas *f, const struct items *items)
{
    float q[BATCH][2], online[BATCH][2], target[BATCH][2], dq[BATCH][2] = {{0}};
    double weights[BATCH], largest = 0;
    trp_net_rows after = {
        .rows = BATCH, .inputs = {items->next_observations}, .outputs = {target[0]}};
    trp_net_rows rows = {.rows = BATCH, .inputs = {items->observations}, .outputs = {q[0]}};
    trp_net_forward(f->net, f->target, &after);
    after.outputs[0] = online[0];
    trp_net_forward(f->net, f->before[0], &after);
    trp_net_forward(f->net, f->before[0], &rows);
    f->loss = f->mean_q = f->grad_norm = 0;
    for (size_t i = 0; i < BATCH; i++) {
        const float *judge = f->options.no_double ? target[i] : online[i];
        double next = (double)target[i][judge[1] > judge[0]];
        f->errors[i] = (double)items->rewards[i] + f->gamma * (double)items->discounts[i] * next -
                       (double)q[i][items->actions[i]];
        f->mean_q += (double)q[i][items->actions[i]] / BATCH;
        weights[i] = pow(1000 * items->probabilities[i], -f->beta);
        largest = fmax(largest, weights[i]);
    }
    for (size_t i = 0; i < BATCH; i++) {
        double size = fabs(f->errors[i]), delta = f->huber_delta, share = weights[i] / largest;
        double huber = size <= delta ? 0.5 * size * size : delta * (size - 0.5 * delta);
        f->loss += share * huber / BATCH;
        dq[i][items->actions[i]] =
            (float)(-share * copysign(fmin(size, delta), f->errors[i]) / BATCH);
    }
    memset(f->grads, 0, f->count * sizeof *f->grads);
    trp_net_backward(f->net, f->before[0], &rows,
                     &(trp_net_grads){.outputs = {dq[0]}, .params = f->grads});
    for (size_t i = 0; i < f->count; i++)
        f->grad_norm += (double)f->grads[i] * (double)f->grads[i];
    f->grad_norm = sqrt(f->grad_norm);
}

/* Adam from before[] by the gradient of formulas_differentiate(), against what the updater has. */
static void formulas_assert_applied(const struct formulas *f, uint64_t step,
                                    const float *const after[3])
{
    double norm = f->grad_norm, scale = f->clip > 0 && norm > f->clip ? f->clip / norm : 1;
    for (size_t i = 0; i < f->count; i++) {
        double g = scale * (double)f->grads[i];
        double m = 0.9 * (double)f->before[1][i] + 0.1 * g;
        double v = 0.999 * (double)f->before[2][i] + 0.001 * g * g;
        double root = sqrt(v / (1 - pow(0.999, (double)step))) + f->adam_epsilon;
        double change = f->learning_rate * m / (1 - pow(0.9, (double)step)) / root;
        assert_float_equal(after[0][i], (double)f->before[0][i] - change, 1e-6);
        assert_float_equal(after[1][i], m, 1e-6);
        assert_float_equal(after[2][i], v, 1e-7);
    }
}

static void check_steps(const struct items *items, struct formulas f)
{
    f.spec = trp_mlp(&(trp_mlp_options){
        .inputs = 4, .outputs = 2, .hidden = {64, 64}, .dueling = f.options.dueling});
    f.options.optimizer_epsilon = (float)f.adam_epsilon;
    struct study *study = study_create(&f.options, 3);
    assert_int_equal(trp_net_create(&f.net, &(trp_net_options){.spec = &f.spec, .batch = BATCH}),
                     TRP_OK);
    f.count = study->count;
    const float *after[3] = {study->params, tensor(study, "params.adam.m"),
                             tensor(study, "params.adam.v")};
    for (size_t i = 0; i < 3; i++)
        f.before[i] = trp_floats_create(f.count);
    f.grads = trp_floats_create(f.count);
    f.target = study->target; /* as if it were an old copy */
    trp_rng rng;
    trp_rng_init(&rng, 99, 0);
    trp_net_init(&f.spec, &rng, f.target);
    for (uint64_t step = 1; step <= 3; step++) {
        for (size_t i = 0; i < 3; i++)
            memcpy(f.before[i], after[i], f.count * sizeof(float));
        formulas_differentiate(&f, items);
        assert_int_equal(study_step(study, items), TRP_OK);
        assert_float_equal(reported(study, "loss"), f.loss, 1e-5);
        assert_float_equal(reported(study, "mean_q"), f.mean_q, 1e-5);
        assert_float_equal(reported(study, "grad_norm"), f.grad_norm, 1e-5);
        const double *priorities = update_of_step(&study->run, study->steps)->priorities[0];
        for (size_t i = 0; i < BATCH; i++)
            assert_float_equal(priorities[i], fabs(f.errors[i]) + 1e-3, 1e-5);
        formulas_assert_applied(&f, step, after);
    }
    for (size_t i = 0; i < 3; i++)
        trp_floats_destroy(f.before[i]);
    trp_floats_destroy(f.grads);
    trp_net_destroy(f.net);
    study_destroy(study);
}

static void steps_are_those_of_the_formulas(void **state)
{
    (void)state;
    struct items items;
    items_fill_seeded(&items);
    /* With a larger epsilon the change is smooth in the gradient, which differs in its last bits.
     */
    const struct formulas defaults = {.gamma = 0.99,
                                      .beta = 0.4,
                                      .huber_delta = 1,
                                      .clip = 10,
                                      .learning_rate = 1e-3,
                                      .adam_epsilon = 1e-3};
    struct formulas rows[11];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        rows[i] = defaults;
    rows[1].options.discount = 0.5F, rows[1].gamma = 0.5;
    rows[2].options.importance_exponent = 1, rows[2].beta = 1;
    rows[3].options.importance_exponent = -1, rows[3].beta = 0;
    rows[4].options.no_double = true;
    rows[5].options.dueling = true;
    rows[6].options.huber_delta = 0.25F, rows[6].huber_delta = 0.25;
    rows[7].options.max_gradient_norm = 0.125F, rows[7].clip = 0.125;
    rows[8].options.max_gradient_norm = -1, rows[8].clip = 0;
    rows[9].options.learning_rate = 0.01F, rows[9].learning_rate = 0.01;
    rows[10].adam_epsilon = 1e-2;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_steps(&items, rows[i]);
}

static void step_once(struct study *study, const struct items *items)
{
    assert_int_equal(study_step(study, items), TRP_OK);
}

static void the_target_network_is_copied_every_period(void **state)
{
    (void)state;
    struct items items;
    items_fill_seeded(&items);
    struct study *study = study_create(&(trp_dqn_options){.target_period = 3}, 3);
    size_t bytes = study->count * sizeof(float);
    for (int step = 1; step <= 7; step++) {
        step_once(study, &items);
        bool equal = memcmp(study->target, study->params, bytes) == 0;
        assert_int_equal(equal, step % 3 == 0);
    }
    study_destroy(study);
}

static void a_target_rate_moves_the_target_every_step(void **state)
{
    (void)state;
    struct items items;
    items_fill_seeded(&items);
    struct study *study = study_create(&(trp_dqn_options){.target_rate = 0.25F}, 3);
    const float *target = study->target;
    float *before = trp_floats_create(study->count);
    memcpy(before, target, study->count * sizeof *before);
    step_once(study, &items);
    for (size_t i = 0; i < study->count; i++)
        assert_float_equal(target[i], before[i] + 0.25F * (study->params[i] - before[i]), 1e-7);
    trp_floats_destroy(before);
    study_destroy(study);
}

static void batches_from_a_broken_peer_are_refused(void **state)
{
    (void)state;
    struct items items;
    items_fill_seeded(&items);
    struct study *study = study_create(NULL, 3);
    const int32_t wrong[] = {-1, 2, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        items.actions[5] = wrong[i];
        assert_int_equal(study_step(study, &items), TRP_DATA_LOSS);
    }
    study_destroy(study);
}

/* In a column, or in a tensor of one of the networks. */
static void what_is_not_finite_ends_the_run_and_is_not_applied(void **state)
{
    (void)state;
    bool more = true;
    for (size_t i = 0; more; i++) {
        struct items items;
        items_fill_seeded(&items);
        struct study *study = study_create(NULL, 3);
        const trp_vector_spec *spec = &study->updater->vectors[0];
        float *const columns[] = {&items.rewards[2], &items.discounts[2], items.observations[2],
                                  items.next_observations[2]};
        size_t tensor = i / 2;
        if (i < 4)
            *columns[i] = NAN;
        else if ((more = (tensor -= 2) < spec->tensor_count))
            for (size_t k = 0; k < spec->tensors[tensor].count; k++)
                study->run.values[i % 2][spec->tensors[tensor].offset + k] = NAN;
        float *before = trp_floats_create(study->count);
        memcpy(before, study->params, study->count * sizeof *before);
        if (more && study_step(study, &items) != TRP_INTERNAL)
            fail_msg("place %zu: a NaN is learned from", i);
        if (more && !strstr(trp_last_error(), "nan"))
            fail_msg("place %zu: '%s'", i, trp_last_error());
        assert_memory_equal(study->params, before, study->count * sizeof *before);
        trp_floats_destroy(before);
        study_destroy(study);
    }
}

static void masks_from_a_broken_peer_are_refused(void **state)
{
    (void)state;
    struct items items;
    uint8_t masks[BATCH][2];
    const trp_env_spec *cartpole;
    items_fill_seeded(&items);
    assert_int_equal(trp_env_find("CartPole-v1", &cartpole), TRP_OK);
    trp_env_spec masked = *cartpole;
    masked.masked = true;
    struct study *study = study_of(&masked, NULL, 3);
    assert_int_equal(trp_columns_find(&study->updater->sources[0].columns, "next_mask"), 5);
    memset(masks, 1, sizeof masks);
    items.columns[5] = masks;
    assert_int_equal(study_step(study, &items), TRP_OK);
    masks[5][1] = 2;
    assert_int_equal(study_step(study, &items), TRP_DATA_LOSS);
    masks[5][0] = masks[5][1] = 0;
    assert_int_equal(study_step(study, &items), TRP_DATA_LOSS);
    study_destroy(study);
}

/* A hidden layer of 2e38, which the last layer multiplies by 0: the values are 0 and the loss a
 * number, but the last layer's gradient is 2e38 times the error. */
static void a_gradient_that_is_not_finite_is_not_applied(void **state)
{
    (void)state;
    struct items items;
    items_fill_seeded(&items);
    struct study *study = study_create(&(trp_dqn_options){.hidden = {16}, .huber_delta = 1000}, 3);
    float *params = study->params;
    for (size_t i = 0; i < study->count; i++)
        params[i] = i < 16 * 4 ? 1 : 0;
    float *before = trp_floats_create(study->count);
    memcpy(before, params, study->count * sizeof *before);
    for (size_t i = 0; i < BATCH; i++) {
        items.rewards[i] = 1000;
        for (size_t k = 0; k < 4; k++)
            items.observations[i][k] = 5e37F;
    }
    assert_int_equal(study_step(study, &items), TRP_INTERNAL);
    assert_non_null(strstr(trp_last_error(), "the gradient of 'params' is not finite in step 1"));
    assert_memory_equal(params, before, study->count * sizeof *before);
    trp_floats_destroy(before);
    study_destroy(study);
}

static void make_dir(char dir[32])
{
    memcpy(dir, "/tmp/test_dqn.XXXXXX", sizeof "/tmp/test_dqn.XXXXXX");
    assert_non_null(mkdtemp(dir));
}

static void remove_dir(const char *dir)
{
    char *command = xasprintf("rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    free(command);
}

static void assert_equal_states(struct study *a, struct study *b)
{
    trp_checkpoint_tensor left[UPDATE_TENSORS_MAX], right[UPDATE_TENSORS_MAX];
    size_t count = update_state(&a->run, left);
    assert_int_equal(update_state(&b->run, right), count);
    for (size_t i = 0; i < count; i++) {
        size_t element = left[i].type == TRP_CHECKPOINT_F32 ? sizeof(float) : sizeof(uint64_t);
        assert_memory_equal(left[i].data, right[i].data, left[i].shape[0] * element);
    }
}

static void learning_goes_on_after_a_checkpoint_bit_for_bit(void **state)
{
    (void)state;
    enum { STEPS = 40, SAVED_AT = 17 };
    char dir[32];
    make_dir(dir);
    struct items *items = xcalloc(STEPS, sizeof *items);
    trp_rng rng;
    trp_rng_init(&rng, 12, 0);
    for (size_t i = 0; i < STEPS; i++)
        items_fill(&items[i], &rng);
    const trp_dqn_options options = {.target_period = 10, .dueling = true};
    trp_publisher *publisher = trp_publisher_create(1);
    struct study *whole = study_create(&options, 3), *resumed = study_create(&options, 99);
    struct learner_progress progress = {.steps = SAVED_AT};
    for (size_t i = 0; i < STEPS; i++) {
        step_once(whole, &items[i]);
        if (i + 1 == SAVED_AT)
            assert_int_equal(save_write(dir, &whole->run, publisher, &progress), TRP_OK);
    }
    bool found;
    assert_int_equal(save_load(dir, &resumed->run, publisher, &progress, &found), TRP_OK);
    resumed->steps = progress.steps;
    for (size_t i = progress.steps; i < STEPS; i++)
        step_once(resumed, &items[i]);
    assert_equal_states(whole, resumed);
    study_destroy(whole);
    study_destroy(resumed);
    trp_publisher_destroy(publisher);
    free(items);
    remove_dir(dir);
}

int main(void)
{
    trp_log_set_level(TRP_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_the_formulas),
        cmocka_unit_test(the_target_network_is_copied_every_period),
        cmocka_unit_test(a_target_rate_moves_the_target_every_step),
        cmocka_unit_test(batches_from_a_broken_peer_are_refused),
        cmocka_unit_test(what_is_not_finite_ends_the_run_and_is_not_applied),
        cmocka_unit_test(masks_from_a_broken_peer_are_refused),
        cmocka_unit_test(a_gradient_that_is_not_finite_is_not_applied),
        cmocka_unit_test(learning_goes_on_after_a_checkpoint_bit_for_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
