/* R2D2's update by the formulas of its papers, worked out here in double (the network's own passes
 * and its gradient are trp_net's, one item at a time), and its policy's memory. */
#include <math.h>

#include <troupe/log.h>
#include <troupe/r2d2.h>
#include "study.h"

enum { BATCH = 4, BURN_IN = 3, TRACE = 6, ROWS = BURN_IN + TRACE + 1, INPUTS = 2, ACTIONS = 3 };
enum { HIDDEN = 4, CORE = 3, STATE = 2 * CORE, N_STEP = 2 };
static const double gamma_ = 0.9, rescaling = 1e-2, eta = 0.7, beta = 0.6;

static trp_env_spec env_of(bool masked)
{
    return (trp_env_spec){.name = "Paper",
                          .observations = {{.dtype = TRP_FLOAT32, .rank = 1, .shape = {INPUTS}}},
                          .action_kind = TRP_ACTION_DISCRETE,
                          .action_count = ACTIONS,
                          .masked = masked};
}

static trp_r2d2_options options_of(int32_t burn_in)
{
    return (trp_r2d2_options){.hidden = {HIDDEN},
                              .core_size = CORE,
                              .burn_in = burn_in > 0 ? burn_in : -1,
                              .trace = ROWS - 1 - (uint32_t)burn_in,
                              .period = 1,
                              .n_step = N_STEP,
                              .discount = (float)gamma_,
                              .rescaling_epsilon = (float)rescaling,
                              .huber_delta = 0.5F,
                              .priority_eta = (float)eta,
                              .importance_exponent = (float)beta,
                              .max_gradient_norm = -1,
                              .target_period = 3};
}

/* Of each item the rows' kinds: s a step, b one that begins an episode, t one whose episode
 * terminates, f a final observation, 0 padding. A truncated episode has a discount of 1. */
static const char *const kinds[BATCH] = {"ssssssssss", "bsssstf000", "ssssssf000", "sf00000000"};

static char kind_of(size_t row)
{
    return kinds[row / ROWS][row % ROWS];
}

static bool is_step(char kind)
{
    return kind != 'f' && kind != '0';
}

static void items_fill(struct items *items, uint64_t seed)
{
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    float *x = items_column(items, "observation"), *rewards = items_column(items, "reward");
    float *discounts = items_column(items, "discount"), *cores = items_column(items, "core_state");
    bool *valid = items_column(items, "valid"), *first = items_column(items, "first");
    bool *mask = items_column(items, "mask");
    int32_t *actions = items_column(items, "action");
    for (size_t row = 0; row < BATCH * (size_t)ROWS; row++) {
        char kind = kind_of(row);
        for (size_t i = 0; i < INPUTS; i++)
            x[row * INPUTS + i] = kind == '0' ? 0 : 2 * (float)trp_rng_normal(&rng);
        valid[row] = is_step(kind);
        first[row] = kind == 'b';
        actions[row] = valid[row] ? (int32_t)trp_rng_below(&rng, ACTIONS) : 0;
        rewards[row] = valid[row] ? 2 * (float)trp_rng_normal(&rng) : 0;
        discounts[row] = valid[row] && kind != 't';
        for (int32_t i = 0; mask && i < ACTIONS; i++)
            mask[row * ACTIONS + (size_t)i] =
                valid[row] && (i == actions[row] || trp_rng_below(&rng, 2));
    }
    for (size_t i = 0; i < BATCH * (size_t)STATE; i++)
        cores[i] = (float)trp_rng_normal(&rng) / 2;
    for (size_t i = 0; i < BATCH; i++)
        ((double *)(uintptr_t)items->batch.probabilities)[i] = 0.001 * (double)(i + 1);
}

/* ---- the paper ------------------------------------------------------------------------------- */

struct paper {
    const struct items *items;
    int32_t burn_in;
    double delta; /* beyond it errors count linearly */
    trp_net *net;
    float *params, *target, *grads; /* before a step */
    size_t count;
    double loss, mean_q, priorities[BATCH];
};

static double h(double x)
{
    return copysign(sqrt(fabs(x) + 1) - 1, x) + rescaling * x;
}

static double h_inverse(double y)
{
    double root = (sqrt(1 + 4 * rescaling * (fabs(y) + 1 + rescaling)) - 1) / (2 * rescaling);
    return copysign(root * root - 1, y);
}

/* Steps [begin, end) of an item. */
static trp_net_rows rows_of(const struct paper *paper, size_t item, int32_t begin, int32_t end,
                            float *q)
{
    const float *x = items_column(paper->items, "observation");
    const bool *first = items_column(paper->items, "first");
    size_t at = item * ROWS + (size_t)begin;
    return (trp_net_rows){.rows = (uint32_t)(end - begin),
                          .steps = (uint32_t)(end - begin),
                          .inputs = {x + at * INPUTS},
                          .outputs = {q},
                          .resets = (const uint8_t *)first + at};
}

/* Values of an item's rows behind the burn-in, whose pass is returned. */
static trp_net_rows say(const struct paper *paper, size_t item, const float *params, float *q,
                        float state[STATE])
{
    const float *stored = items_column(paper->items, "core_state");
    float ignored[ROWS][ACTIONS];
    memcpy(state, stored + item * STATE, STATE * sizeof *state);
    trp_net_rows burn = rows_of(paper, item, 0, paper->burn_in, ignored[0]);
    burn.state = burn.end_state = state;
    if (paper->burn_in > 0)
        trp_net_forward(paper->net, params, &burn);
    trp_net_rows rest = rows_of(paper, item, paper->burn_in, ROWS, q);
    rest.state = state;
    trp_net_forward(paper->net, params, &rest);
    return rest;
}

static size_t best(const float *q, const bool *mask)
{
    size_t found = ACTIONS;
    for (size_t i = 0; i < ACTIONS; i++)
        if ((!mask || mask[i]) && (found == ACTIONS || q[i] > q[found]))
            found = i;
    return found;
}

/* h(the sum of n discounted rewards and what the state behind them is worth) of a step. */
static double target_of(const struct paper *paper, size_t item, size_t step,
                        const float (*online)[ACTIONS], const float (*target)[ACTIONS])
{
    const float *rewards = items_column(paper->items, "reward");
    const float *discounts = items_column(paper->items, "discount");
    const bool *masks = items_column(paper->items, "mask");
    double sum = 0, factor = 1;
    size_t at = step;
    for (size_t n = 0; n < N_STEP && at < ROWS - 1 && is_step(kinds[item][at]); n++, at++) {
        sum += factor * (double)rewards[item * ROWS + at];
        factor *= gamma_ * (double)discounts[item * ROWS + at];
    }
    size_t row = at - (size_t)paper->burn_in;
    const bool *mask =
        masks && is_step(kinds[item][at]) ? masks + (item * ROWS + at) * ACTIONS : NULL;
    return h(sum + factor * h_inverse((double)target[row][best(online[row], mask)]));
}

/* Largest weight of the batch: that of the item that is drawn least. */
static double weight_of(const struct paper *paper, size_t item)
{
    double weights[BATCH], largest = 0;
    for (size_t i = 0; i < BATCH; i++) {
        weights[i] = pow(1000 * paper->items->batch.probabilities[i], -beta);
        largest = fmax(largest, weights[i]);
    }
    return weights[item] / largest;
}

/* Adds an item's loss, gradient and value; returns how many of its steps there are. */
static size_t judge(struct paper *paper, size_t item)
{
    float online[ROWS][ACTIONS], target[ROWS][ACTIONS], dq[ROWS][ACTIONS] = {{0}}, state[STATE];
    const int32_t *actions = items_column(paper->items, "action");
    double largest = 0, sum = 0, weight = weight_of(paper, item), delta = paper->delta;
    size_t steps = 0;
    say(paper, item, paper->target, target[0], state);
    trp_net_rows rest = say(paper, item, paper->params, online[0], state);
    for (size_t step = (size_t)paper->burn_in; step < ROWS - 1; step++) {
        if (!is_step(kinds[item][step]))
            continue;
        size_t row = step - (size_t)paper->burn_in;
        size_t action = (size_t)actions[item * ROWS + step];
        double error = target_of(paper, item, step, online, target) - (double)online[row][action];
        double size = fabs(error);
        paper->loss +=
            weight / BATCH * (size <= delta ? size * size / 2 : delta * (size - delta / 2));
        dq[row][action] = (float)(-weight / BATCH * copysign(fmin(size, delta), error));
        paper->mean_q += (double)online[row][action];
        largest = fmax(largest, size);
        sum += size;
        steps++;
    }
    paper->priorities[item] = eta * largest + (1 - eta) * sum / fmax((double)steps, 1);
    trp_net_backward(paper->net, paper->params, &rest,
                     &(trp_net_grads){.outputs = {dq[0]}, .params = paper->grads});
    return steps;
}

static void judge_all(struct paper *paper)
{
    size_t steps = 0;
    paper->loss = paper->mean_q = 0;
    memset(paper->grads, 0, paper->count * sizeof *paper->grads);
    for (size_t item = 0; item < BATCH; item++)
        steps += judge(paper, item);
    paper->mean_q /= (double)steps;
}

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

/* The first step's mean of gradients is a tenth of them, and Adam follows it. */
static void compare(struct study *study, const struct paper *paper)
{
    const float *mean = tensor(study, "params.adam.m");
    const double *priorities = update_of_step(&study->run, study->steps)->priorities[0];
    assert_float_equal(study_reported(study, "loss"), paper->loss, 1e-5);
    assert_float_equal(study_reported(study, "mean_q"), paper->mean_q, 1e-5);
    for (size_t i = 0; i < BATCH; i++)
        assert_float_equal(priorities[i], paper->priorities[i], 1e-5);
    for (size_t i = 0; i < paper->count; i++) {
        double g = (double)paper->grads[i];
        assert_float_equal((double)mean[i], 0.1 * g, 1e-6);
        assert_float_equal((double)study->params[i],
                           (double)paper->params[i] - 1e-3 * g / (fabs(g) + 1e-3), 2e-6);
    }
}

static void check_step(int32_t burn_in, bool masked, float huber_delta)
{
    trp_r2d2_options options = options_of(burn_in);
    options.huber_delta = huber_delta;
    trp_agent agent = trp_r2d2(&options);
    trp_env_spec env = env_of(masked);
    struct study *study = study_create(&agent, &env, BATCH, 3);
    struct items *items = items_create(&study->updater->sources[0], BATCH);
    trp_net_spec spec = trp_mlp(&(trp_mlp_options){.inputs = INPUTS,
                                                   .hidden = {HIDDEN},
                                                   .outputs = ACTIONS,
                                                   .core = TRP_CORE_LSTM,
                                                   .core_size = CORE});
    struct paper paper = {.items = items, .burn_in = burn_in, .count = study->count};
    paper.delta = huber_delta > 0 ? (double)huber_delta : (double)INFINITY;
    paper.params = trp_floats_create(study->count);
    paper.target = trp_floats_create(study->count);
    paper.grads = trp_floats_create(study->count);
    trp_rng rng;
    trp_rng_init(&rng, 8, 0);
    trp_net_init(&spec, &rng, study->run.values[1]); /* as if it were an old copy */
    memcpy(paper.params, study->params, study->count * sizeof(float));
    memcpy(paper.target, study->run.values[1], study->count * sizeof(float));
    items_fill(items, 5);
    assert_int_equal(trp_net_create(&paper.net, &(trp_net_options){.spec = &spec, .batch = ROWS}),
                     TRP_OK);
    judge_all(&paper);
    assert_int_equal(study_step(study, &items->batch), TRP_OK);
    compare(study, &paper);
    trp_net_destroy(paper.net);
    trp_floats_destroy(paper.params);
    trp_floats_destroy(paper.target);
    trp_floats_destroy(paper.grads);
    items_destroy(items);
    study_destroy(study);
}

static void a_step_is_that_of_the_paper(void **state)
{
    (void)state;
    for (int burnt = 0; burnt < 2; burnt++) {
        check_step(burnt ? BURN_IN : 0, false, 0);
        check_step(burnt ? BURN_IN : 0, true, 0);
        check_step(burnt ? BURN_IN : 0, true, 0.5F);
    }
}

static void the_target_network_is_copied_every_period(void **state)
{
    (void)state;
    trp_r2d2_options options = options_of(BURN_IN);
    trp_agent agent = trp_r2d2(&options);
    trp_env_spec env = env_of(false);
    struct study *study = study_create(&agent, &env, BATCH, 3);
    struct items *items = items_create(&study->updater->sources[0], BATCH);
    items_fill(items, 5);
    for (int step = 1; step <= 7; step++) {
        assert_int_equal(study_step(study, &items->batch), TRP_OK);
        bool equal = memcmp(study->run.values[1], study->params, study->count * sizeof(float)) == 0;
        assert_int_equal(equal, step % 3 == 0);
    }
    items_destroy(items);
    study_destroy(study);
}

static void learning_goes_on_after_a_checkpoint_bit_for_bit(void **state)
{
    (void)state;
    enum { STEPS = 12 };
    trp_r2d2_options options = options_of(BURN_IN);
    trp_agent agent = trp_r2d2(&options);
    trp_env_spec env = env_of(false);
    struct study *whole = study_create(&agent, &env, BATCH, 3);
    struct study *resumed = study_create(&agent, &env, BATCH, 99);
    struct items *items[STEPS];
    for (size_t i = 0; i < STEPS; i++) {
        items[i] = items_create(&whole->updater->sources[0], BATCH);
        items_fill(items[i], i);
    }
    study_assert_resumes(whole, resumed, items, STEPS, 5);
    for (size_t i = 0; i < STEPS; i++)
        items_destroy(items[i]);
    study_destroy(whole);
    study_destroy(resumed);
}

static void a_batch_that_is_too_large_is_refused(void **state)
{
    (void)state; /* the learner's batch_size stands in for the agent's, which was checked */
    trp_env_spec env = env_of(false);
    trp_agent agent = trp_r2d2(&(trp_r2d2_options){.hidden = {HIDDEN}, .trace = 4055});
    study_assert_too_large(&agent, &env, 1 << 20,
                           "r2d2: 4096 rows of an item times batch_size 1048576 are more than");
}

static void batches_from_a_broken_peer_are_refused_with_the_items_key(void **state)
{
    (void)state;
    trp_r2d2_options options = options_of(BURN_IN);
    trp_agent agent = trp_r2d2(&options);
    trp_env_spec env = env_of(true);
    struct study *study = study_create(&agent, &env, BATCH, 3);
    struct items *items = items_create(&study->updater->sources[0], BATCH);
    items_fill(items, 5);
    int32_t *actions = items_column(items, "action");
    uint8_t *valid = items_column(items, "valid"), *first = items_column(items, "first");
    uint8_t *mask = items_column(items, "mask");
    actions[2 * ROWS + 1] = ACTIONS;
    assert_int_equal(study_step(study, &items->batch), TRP_DATA_LOSS);
    assert_non_null(strstr(trp_last_error(), "r2d2: item 102 has action 3 of 3"));
    actions[2 * ROWS + 1] = 0;
    uint8_t *const flags[] = {&valid[ROWS], &first[ROWS + 1], &mask[ROWS * ACTIONS]};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        uint8_t before = *flags[i];
        *flags[i] = 2;
        assert_int_equal(study_step(study, &items->batch), TRP_DATA_LOSS);
        assert_non_null(strstr(trp_last_error(), "r2d2: item 101 has "));
        *flags[i] = before;
    }
    assert_int_equal(study->steps, 0);
    items_destroy(items);
    study_destroy(study);
}

/* In a column, at its first step that counts, or in a tensor of one of the networks. */
static void what_is_not_finite_ends_the_run_and_is_not_applied(void **state)
{
    (void)state;
    static const struct {
        const char *column;
        size_t at;
    } rows[] = {{"reward", BURN_IN},
                {"discount", BURN_IN},
                {"observation", BURN_IN * INPUTS},
                {"core_state", 0}};
    enum { COLUMNS = sizeof rows / sizeof *rows };
    trp_r2d2_options options = options_of(BURN_IN);
    trp_agent agent = trp_r2d2(&options);
    trp_env_spec env = env_of(false);
    bool more = true;
    for (size_t i = 0; more; i++) {
        struct study *study = study_create(&agent, &env, BATCH, 3);
        struct items *items = items_create(&study->updater->sources[0], BATCH);
        items_fill(items, 5);
        char where[64] = "";
        if (i < COLUMNS) {
            snprintf(where, sizeof where, "%s", rows[i].column);
            ((float *)items_column(items, where))[rows[i].at] = NAN;
        } else if ((more = study_spoil(study, i % 2, 0, (i - COLUMNS) / 2))) {
            snprintf(where, sizeof where, "tensor %zu of vector %zu", (i - COLUMNS) / 2, i % 2);
        }
        if (more)
            study_assert_refuses_nan(study, items, where);
        items_destroy(items);
        study_destroy(study);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void what_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    trp_env_spec box = env_of(false), two = env_of(false), tokens = env_of(false);
    box.action_kind = TRP_ACTION_BOX;
    two.observations[1] = two.observations[0];
    tokens.observations[0].dtype = TRP_INT32;
    const struct {
        trp_r2d2_options options;
        trp_env_spec env;
        const char *words;
    } rows[] = {
        {{0}, box, "r2d2: Paper has continuous actions, needs one choice"},
        {{0}, two, "r2d2: Paper observes 2 tensors, needs one"},
        {{0}, tokens, "r2d2: Paper observes integers"},
        {{.network = TRP_TORSO_NATURE}, env_of(false), "the network nature reads images"},
        {{.replay_size = 10}, env_of(false), "r2d2: min_replay_size is 1250, must be in [1, 10]"},
        {{.trace = 20}, env_of(false), "r2d2: period is 40, must be in [1, 20]"},
        {{.trace = 65536}, env_of(false), "r2d2: burn_in + trace is 65576 steps"},
        {{.trace = 60000, .batch_size = 4096},
         env_of(false),
         "r2d2: 60041 rows of an item times batch_size 4096"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_agent agent = trp_r2d2(&rows[i].options);
        assert_int_equal(agent.impl->check(&agent, &rows[i].env), TRP_INVALID_ARGUMENT);
        if (!strstr(trp_last_error(), rows[i].words))
            fail_msg("'%s' is not in '%s'", rows[i].words, trp_last_error());
    }
    trp_agent none = trp_r2d2(NULL);
    trp_env_spec env = env_of(false);
    assert_int_equal(none.impl->check(&none, &env), TRP_OK);
    assert_int_equal(trp_options_set(trp_r2d2_option_table(), none.options.bytes, "core", "none"),
                     TRP_OK);
    assert_int_equal(none.impl->check(&none, &env), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "r2d2: core is none, must be lstm or gru"));
}

/* ---- the policy ------------------------------------------------------------------------------ */

enum { SLOTS = 5, CALLS = 6 };

static trp_policy *policy_of(const trp_env_spec *env, uint32_t rows, bool greedy)
{
    trp_r2d2_options options = options_of(BURN_IN);
    trp_agent agent = trp_r2d2(&options);
    trp_policy *policy;
    trp_rng rng;
    trp_net_spec spec = trp_mlp(&(trp_mlp_options){.inputs = INPUTS,
                                                   .hidden = {HIDDEN},
                                                   .outputs = ACTIONS,
                                                   .core = TRP_CORE_LSTM,
                                                   .core_size = CORE});
    float *params = trp_floats_create(trp_net_param_count(&spec));
    trp_rng_init(&rng, 8, 0);
    trp_net_init(&spec, &rng, params);
    assert_int_equal(
        agent.impl->policy(
            &agent, env,
            &(trp_policy_options){.rows = rows, .slots = SLOTS, .count = 1, .greedy = greedy},
            &policy),
        TRP_OK);
    assert_int_equal(policy->impl->load(policy, params, trp_net_param_count(&spec)), TRP_OK);
    trp_floats_destroy(params);
    return policy;
}

/* What slot `slot` sees at call `call`. */
static void observe(uint32_t slot, uint32_t call, float x[INPUTS])
{
    trp_rng rng;
    trp_rng_init(&rng, slot, call);
    for (size_t i = 0; i < INPUTS; i++)
        x[i] = 3 * (float)trp_rng_normal(&rng);
}

/* One row a slot of `slots`; actions and states in the same order. */
static void act(trp_policy *policy, const uint32_t *slots, uint32_t rows, uint32_t call,
                int32_t *actions, float (*states)[STATE])
{
    float x[SLOTS][INPUTS], rewards[SLOTS] = {0};
    bool first[SLOTS], masks[SLOTS][ACTIONS];
    int32_t last[SLOTS] = {0};
    trp_rng rng;
    trp_rng_init(&rng, 1, call);
    for (uint32_t i = 0; i < rows; i++) {
        observe(slots[i], call, x[i]);
        first[i] = call == 0 || (slots[i] == 2 && call == 3);
        memset(masks[i], 1, sizeof masks[i]);
    }
    void *extras[] = {states, masks};
    assert_int_equal(policy->impl->act(policy, &(trp_act){.rows = rows,
                                                          .slots = slots,
                                                          .observations = (const void *const[]){x},
                                                          .first = first,
                                                          .rewards = rewards,
                                                          .last_actions = last,
                                                          .rng = &rng,
                                                          .actions = actions,
                                                          .extras = extras}),
                     TRP_OK);
}

static void every_slot_remembers_its_own_episode_in_any_rows(void **state)
{
    (void)state;
    trp_env_spec env = env_of(false);
    trp_policy *together = policy_of(&env, SLOTS, true), *apart = policy_of(&env, 2, true);
    for (uint32_t call = 0; call < CALLS; call++) {
        static const uint32_t all[] = {0, 1, 2, 3, 4};
        static const uint32_t parts[][2] = {{4, 1}, {2, 0}, {3, 3}};
        int32_t actions[SLOTS];
        float states[SLOTS][STATE], some[2][STATE];
        act(together, all, SLOTS, call, actions, states);
        for (size_t k = 0; k < 3; k++) {
            int32_t chosen[2];
            uint32_t rows = k < 2 ? 2 : 1;
            act(apart, parts[k], rows, call, chosen, some);
            for (uint32_t i = 0; i < rows; i++) {
                assert_int_equal(chosen[i], actions[parts[k][i]]);
                for (size_t j = 0; j < STATE; j++)
                    assert_float_equal(some[i][j], states[parts[k][i]][j], 1e-6);
            }
        }
        for (size_t j = 0; j < STATE; j++) {
            assert_int_equal(states[2][j] == 0, call == 0 || call == 3);
            assert_int_equal(states[1][j] == 0, call == 0);
        }
    }
    trp_policy_destroy(together);
    trp_policy_destroy(apart);
}

static void a_row_that_explores_remembers_what_it_saw(void **state)
{
    (void)state;
    trp_env_spec env = env_of(false);
    trp_policy *explores = policy_of(&env, SLOTS, false), *greedy = policy_of(&env, SLOTS, true);
    static const uint32_t slots[] = {0, 1, 2, 3, 4};
    bool differs = false;
    for (uint32_t call = 0; call < CALLS; call++) {
        int32_t drawn[SLOTS], best_ones[SLOTS];
        float states[SLOTS][STATE], others[SLOTS][STATE];
        act(explores, slots, SLOTS, call, drawn, states);
        act(greedy, slots, SLOTS, call, best_ones, others);
        assert_memory_equal(states, others, sizeof states);
        differs = differs || memcmp(drawn, best_ones, sizeof drawn) != 0;
    }
    assert_true(differs);
    trp_policy_destroy(explores);
    trp_policy_destroy(greedy);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_that_of_the_paper),
        cmocka_unit_test(the_target_network_is_copied_every_period),
        cmocka_unit_test(learning_goes_on_after_a_checkpoint_bit_for_bit),
        cmocka_unit_test(a_batch_that_is_too_large_is_refused),
        cmocka_unit_test(batches_from_a_broken_peer_are_refused_with_the_items_key),
        cmocka_unit_test(what_is_not_finite_ends_the_run_and_is_not_applied),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
        cmocka_unit_test(every_slot_remembers_its_own_episode_in_any_rows),
        cmocka_unit_test(a_row_that_explores_remembers_what_it_saw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
