/* Actor-critics in double, for updates worked out by the formulas of their papers: batches of
 * sequences, what a network says of their rows, how probable their actions are, and what an
 * optimizer makes of a loss, whose gradient is found by differences. */
#ifndef TESTS_AGENTS_UNROLL_PAPER_H
#define TESTS_AGENTS_UNROLL_PAPER_H

#include <math.h>

#include "study.h"

enum { BATCH = 3, UNROLL = 7, ROWS = UNROLL + 1, ALL = BATCH * ROWS, INPUTS = 4, HIDDEN = 5 };
enum { CORE = 3, STATE = 2 * CORE, SAYS_MAX = 8 };

/* ---- environments that are never stepped ----------------------------------------------------- */

static const int32_t part_sizes[] = {2, 3};
static const float low[] = {-1, -1}, high[] = {1, 1};

static inline trp_env_spec env_of(trp_action_kind kind, bool masked)
{
    trp_env_spec env = {.name = "Paper",
                        .observations = {{.dtype = TRP_FLOAT32, .rank = 1, .shape = {INPUTS}}},
                        .action_kind = kind,
                        .action_count = kind == TRP_ACTION_DISCRETE ? 3 : 2,
                        .masked = masked};
    if (kind == TRP_ACTION_MULTI_DISCRETE)
        env.action_choices = part_sizes;
    if (kind == TRP_ACTION_BOX)
        env.action_low = low, env.action_high = high;
    return env;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Of each item the rows' kinds: s a step, b one that begins an episode, t one whose episode
 * terminates, f a final observation. A truncated episode has 1 for a discount. */
static const char *const kinds[BATCH] = {"ssssssss", "sstfbsss", "bssfbsst"};

static inline bool is_decision(size_t row)
{
    return kinds[row / ROWS][row % ROWS] != 'f' && row % ROWS < UNROLL;
}

static inline size_t decision_count(void)
{
    size_t count = 0;
    for (size_t row = 0; row < ALL; row++)
        count += is_decision(row);
    return count;
}

static inline void fill_choices(struct items *items, const trp_env_spec *env, trp_rng *rng)
{
    int32_t *actions = items_column(items, "action");
    uint8_t *masks = items_column(items, "mask");
    for (size_t row = 0; row < ALL; row++) {
        bool multi = env->action_kind == TRP_ACTION_MULTI_DISCRETE;
        size_t parts = multi ? 2 : 1;
        for (size_t i = 0; i < parts; i++)
            actions[row * parts + i] =
                (int32_t)trp_rng_below(rng, multi ? (uint64_t)part_sizes[i] : 3);
        bool none = kinds[row / ROWS][row % ROWS] == 'f';
        for (size_t i = 0; masks && i < 3; i++)
            masks[row * 3 + i] = !none && ((int32_t)i == actions[row] || trp_rng_below(rng, 2));
    }
}

static inline void items_fill(struct items *items, const trp_env_spec *env, uint64_t seed)
{
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    float *x = items_column(items, "observation"), *rewards = items_column(items, "reward");
    float *discounts = items_column(items, "discount"),
          *log_probs = items_column(items, "log_prob");
    float *samples = items_column(items, "sample"), *cores = items_column(items, "core");
    bool *valid = items_column(items, "valid"), *first = items_column(items, "first");
    for (size_t row = 0; row < ALL; row++) {
        char kind = kinds[row / ROWS][row % ROWS];
        for (size_t i = 0; i < INPUTS; i++)
            x[row * INPUTS + i] = (float)trp_rng_normal(&rng);
        rewards[row] = kind == 'f' ? 0 : (float)trp_rng_normal(&rng);
        discounts[row] = kind == 't' || kind == 'f' ? 0 : 1;
        valid[row] = kind != 'f';
        first[row] = kind == 'b';
        log_probs[row] = -1 - 0.5F * (float)trp_rng_double(&rng);
        for (size_t i = 0; samples && i < 2; i++)
            samples[row * 2 + i] = (float)trp_rng_normal(&rng);
    }
    if (!samples)
        fill_choices(items, env, &rng);
    for (size_t i = 0; cores && i < BATCH * (size_t)STATE; i++)
        cores[i] = (float)trp_rng_normal(&rng) / 2;
}

/* ---- a network ------------------------------------------------------------------------------- */

struct paper_net {
    const trp_env_spec *env;
    const struct items *items;
    const struct study *study;
    bool separate, core;                     /* an LSTM */
    double *params;                          /* in the study's order */
    double says[ALL][SAYS_MAX], values[ALL]; /* of every row, by paper_forward() */
};

static inline const trp_net_tensor *tensor_named(const struct paper_net *net, const char *name)
{
    const trp_vector_spec *vector = &net->study->updater->vectors[0];
    for (size_t i = 0; i < vector->tensor_count; i++)
        if (strcmp(vector->tensors[i].name, name) == 0)
            return &vector->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* Element `n` in PyTorch's order. */
static inline double element(const struct paper_net *net, const trp_net_tensor *tensor, size_t n)
{
    size_t at = tensor->offset;
    for (uint32_t i = tensor->axis_count; i-- > 0; n /= tensor->axes[i].count)
        at += n % tensor->axes[i].count * tensor->axes[i].stride;
    return net->params[at];
}

/* Adds to y; "%s.weight%s" and "%s.bias%s". */
static inline void linear(const struct paper_net *net, const char *name, const char *of,
                          const double *x, size_t inputs, double *y, size_t outputs)
{
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight%s", name, of);
    snprintf(bias, sizeof bias, "%s.bias%s", name, of);
    const trp_net_tensor *w = tensor_named(net, weight), *b = tensor_named(net, bias);
    for (size_t o = 0; o < outputs; o++) {
        y[o] += element(net, b, o);
        for (size_t i = 0; i < inputs; i++)
            y[o] += element(net, w, o * inputs + i) * x[i];
    }
}

static inline double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* PyTorch's LSTM; state is h and then c. */
static inline void remember(const struct paper_net *net, const double *x, double state[STATE])
{
    double gates[4 * CORE] = {0}, *c = state + CORE;
    linear(net, "core", "_ih_l0", x, HIDDEN, gates, 4 * (size_t)CORE);
    linear(net, "core", "_hh_l0", state, CORE, gates, 4 * (size_t)CORE);
    for (size_t i = 0; i < CORE; i++) {
        double in = sigmoid(gates[i]), forget = sigmoid(gates[CORE + i]);
        c[i] = forget * c[i] + in * tanh(gates[2 * CORE + i]);
        state[i] = sigmoid(gates[3 * CORE + i]) * tanh(c[i]);
    }
}

static inline size_t says_of(const trp_env_spec *env)
{
    return env->action_kind == TRP_ACTION_MULTI_DISCRETE ? 5 : (size_t)env->action_count;
}

/* What the network says of a row; `state` as it is before it, and then after it. */
static inline void paper_forward_row(struct paper_net *net, size_t row, double state[STATE])
{
    const float *observed = items_column(net->items, "observation");
    double x[INPUTS], h[HIDDEN] = {0}, g[HIDDEN] = {0};
    const double *policy = h, *value = g;
    size_t width = net->core ? CORE : HIDDEN;
    for (size_t i = 0; i < INPUTS; i++)
        x[i] = (double)observed[row * INPUTS + i];
    linear(net, "body.0", "", x, INPUTS, h, HIDDEN);
    linear(net, net->separate ? "value.0" : "body.0", "", x, INPUTS, g, HIDDEN);
    for (size_t i = 0; i < HIDDEN; i++)
        h[i] = tanh(h[i]), g[i] = tanh(g[i]);
    if (net->core) {
        remember(net, h, state);
        policy = value = state;
    }
    memset(net->says[row], 0, sizeof net->says[row]);
    net->values[row] = 0;
    linear(net, net->env->action_kind == TRP_ACTION_BOX ? "mean" : "policy", "", policy, width,
           net->says[row], says_of(net->env));
    linear(net, "value", "", value, width, &net->values[row], 1);
}

/* Of all rows, each item from the state that it came with, which an episode does not begin with. */
static inline void paper_forward(struct paper_net *net)
{
    const float *cores = items_column(net->items, "core");
    for (size_t item = 0; item < BATCH; item++) {
        double state[STATE] = {0};
        for (size_t i = 0; net->core && i < STATE; i++)
            state[i] = (double)cores[item * STATE + i];
        for (size_t step = 0; step < ROWS; step++) {
            if (kinds[item][step] == 'b')
                memset(state, 0, sizeof state);
            paper_forward_row(net, item * ROWS + step, state);
        }
    }
}

/* ---- actions --------------------------------------------------------------------------------- */

/* Adds the log-probability and the entropy of one choice of `count`. */
static inline void judge_choice(const double *logits, const uint8_t *mask, size_t count,
                                size_t taken, double *log_prob, double *entropy)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += mask && !mask[i] ? 0 : exp(logits[i]);
    *log_prob += logits[taken] - log(sum);
    for (size_t i = 0; i < count; i++)
        if (!mask || mask[i])
            *entropy -= exp(logits[i]) / sum * (logits[i] - log(sum));
}

static inline void paper_judge(const struct paper_net *net, size_t row, double *log_prob,
                               double *entropy)
{
    const int32_t *actions = items_column(net->items, "action");
    const uint8_t *masks = items_column(net->items, "mask");
    const double *says = net->says[row];
    *log_prob = *entropy = 0;
    if (net->env->action_kind == TRP_ACTION_DISCRETE)
        judge_choice(says, masks ? masks + row * 3 : NULL, 3, (size_t)actions[row], log_prob,
                     entropy);
    if (net->env->action_kind == TRP_ACTION_MULTI_DISCRETE) {
        judge_choice(says, NULL, 2, (size_t)actions[row * 2], log_prob, entropy);
        judge_choice(says + 2, NULL, 3, (size_t)actions[row * 2 + 1], log_prob, entropy);
    }
    if (net->env->action_kind != TRP_ACTION_BOX)
        return;
    const float *samples = items_column(net->items, "sample");
    for (size_t i = 0; i < 2; i++) {
        double log_std = element(net, tensor_named(net, "log_std"), i);
        double z = ((double)samples[row * 2 + i] - says[i]) / exp(log_std);
        *log_prob -= z * z / 2 + log_std + log(2 * acos(-1)) / 2;
        *entropy += 0.5 + log(2 * acos(-1)) / 2 + log_std;
    }
}

/* ---- learning -------------------------------------------------------------------------------- */

typedef double (*paper_loss)(void *context);

/* The gradient of the loss in the network's parameters, scaled down to a norm of `most` (<= 0:
 * any).
 */
static inline double *paper_gradient(struct paper_net *net, paper_loss loss, void *context,
                                     double most)
{
    size_t count = net->study->count;
    double *grads = xcalloc(count, sizeof *grads), norm = 0;
    for (size_t i = 0; i < count; i++) {
        double kept = net->params[i], step = 1e-6;
        net->params[i] = kept + step;
        grads[i] = loss(context);
        net->params[i] = kept - step;
        grads[i] = (grads[i] - loss(context)) / (2 * step);
        net->params[i] = kept;
        norm += grads[i] * grads[i];
    }
    loss(context);
    for (size_t i = 0; i < count && most > 0 && sqrt(norm) > most; i++)
        grads[i] *= most / sqrt(norm);
    return grads;
}

struct paper_adam {
    double *m, *v, beta1, beta2, epsilon;
    uint64_t steps;
};

static inline void paper_adam_step(struct paper_adam *adam, struct paper_net *net,
                                   const double *grads, double rate)
{
    double step = (double)++adam->steps;
    for (size_t i = 0; i < net->study->count; i++) {
        double g = grads[i], b1 = adam->beta1, b2 = adam->beta2;
        adam->m[i] = b1 * adam->m[i] + (1 - b1) * g;
        adam->v[i] = b2 * adam->v[i] + (1 - b2) * g * g;
        double root = sqrt(adam->v[i] / (1 - pow(b2, step)));
        net->params[i] -= rate * adam->m[i] / (1 - pow(b1, step)) / (root + adam->epsilon);
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

static inline void paper_begin(struct paper_net *net, struct paper_adam *adam)
{
    size_t count = net->study->count;
    net->params = xcalloc(count, sizeof(double));
    adam->m = xcalloc(count, sizeof(double));
    adam->v = xcalloc(count, sizeof(double));
    for (size_t i = 0; i < count; i++)
        net->params[i] = (double)net->study->params[i];
}

static inline void paper_end(struct paper_net *net, struct paper_adam *adam)
{
    free(net->params);
    free(adam->m);
    free(adam->v);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* `create` makes the study of one agent, of that seed. */
static inline void assert_resumes(struct study *(*create)(const trp_env_spec *, uint64_t seed))
{
    enum { STEPS = 12, SAVED_AT = 5 };
    trp_env_spec env = env_of(TRP_ACTION_BOX, false);
    struct study *whole = create(&env, 3), *resumed = create(&env, 99);
    struct items *items[STEPS];
    for (size_t i = 0; i < STEPS; i++) {
        items[i] = items_create(&whole->updater->sources[0], BATCH);
        items_fill(items[i], &env, i);
    }
    study_assert_resumes(whole, resumed, items, STEPS, SAVED_AT);
    for (size_t i = 0; i < STEPS; i++)
        items_destroy(items[i]);
    study_destroy(whole);
    study_destroy(resumed);
}

static inline void assert_nan_in_params_is_refused(struct study *(*create)(const trp_env_spec *,
                                                                           uint64_t seed))
{
    trp_env_spec env = env_of(TRP_ACTION_DISCRETE, false);
    bool more = true;
    for (size_t tensor = 0; more; tensor++) {
        struct study *study = create(&env, 3);
        struct items *items = items_create(&study->updater->sources[0], BATCH);
        items_fill(items, &env, 1);
        if ((more = study_spoil(study, 0, 0, tensor)))
            study_assert_refuses_nan(study, items, study->updater->vectors[0].tensors[tensor].name);
        items_destroy(items);
        study_destroy(study);
    }
}

#endif
