/* Networks of one hidden layer in double, forward and backward by the chain rule, and a study's
 * vectors beside them: for tests that work out an update by the formulas of its paper. */
#ifndef TESTS_AGENTS_PAPER_H
#define TESTS_AGENTS_PAPER_H

#include <math.h>

#include "study.h"

enum { PAPER_WIDTH_MAX = 8, PAPER_OUTPUTS_MAX = 8 };

/* y = w1 tanh(w0 x + b0) + b1; `squashed`: tanh of that. */
struct paper_net {
    size_t inputs, hidden, outputs;
    bool squashed;
    double w0[PAPER_WIDTH_MAX][PAPER_WIDTH_MAX], b0[PAPER_WIDTH_MAX];
    double w1[PAPER_OUTPUTS_MAX][PAPER_WIDTH_MAX], b1[PAPER_OUTPUTS_MAX];
};

/* What a pass leaves for the way back. */
struct paper_pass {
    double x[PAPER_WIDTH_MAX], h[PAPER_WIDTH_MAX], y[PAPER_OUTPUTS_MAX];
};

static inline void paper_forward(const struct paper_net *net, struct paper_pass *pass)
{
    for (size_t i = 0; i < net->hidden; i++) {
        double sum = net->b0[i];
        for (size_t k = 0; k < net->inputs; k++)
            sum += net->w0[i][k] * pass->x[k];
        pass->h[i] = tanh(sum);
    }
    for (size_t i = 0; i < net->outputs; i++) {
        double sum = net->b1[i];
        for (size_t k = 0; k < net->hidden; k++)
            sum += net->w1[i][k] * pass->h[k];
        pass->y[i] = net->squashed ? tanh(sum) : sum;
    }
}

/* Adds to `grads` (NULL: not wanted); writes dx (NULL: not wanted). */
static inline void paper_backward(const struct paper_net *net, const struct paper_pass *pass,
                                  const double *dy, struct paper_net *grads, double *dx)
{
    double dh[PAPER_WIDTH_MAX] = {0}, ignored[PAPER_WIDTH_MAX];
    struct paper_net none = {0};
    grads = grads ? grads : &none;
    dx = dx ? dx : ignored;
    for (size_t i = 0; i < net->outputs; i++) {
        double d = net->squashed ? dy[i] * (1 - pass->y[i] * pass->y[i]) : dy[i];
        grads->b1[i] += d;
        for (size_t k = 0; k < net->hidden; k++) {
            grads->w1[i][k] += d * pass->h[k];
            dh[k] += d * net->w1[i][k];
        }
    }
    memset(dx, 0, net->inputs * sizeof *dx);
    for (size_t i = 0; i < net->hidden; i++) {
        double d = dh[i] * (1 - pass->h[i] * pass->h[i]);
        grads->b0[i] += d;
        for (size_t k = 0; k < net->inputs; k++) {
            grads->w0[i][k] += d * pass->x[k];
            dx[k] += d * net->w0[i][k];
        }
    }
}

/* What a step draws from in one place of its draw `number`, where `before` is the learner's stream
 * as it was before the step. */
static inline trp_rng paper_draw(const trp_rng *before, uint64_t number, uint64_t place)
{
    trp_rng stream = *before, rng;
    trp_rng_init(&rng, trp_rng_u64(&stream), number << 32 | place);
    return rng;
}

/* What a network says at a row of states alone. */
static inline void paper_say(const struct paper_net *net, const float *states, size_t row,
                             struct paper_pass *pass)
{
    for (size_t i = 0; i < net->inputs; i++)
        pass->x[i] = (double)states[row * net->inputs + i];
    paper_forward(net, pass);
}

/* ---- vectors ------------------------------------------------------------------------------- */

static inline size_t paper_vector(const struct study *study, const char *name)
{
    for (size_t i = 0; i < study->updater->vector_count; i++)
        if (strcmp(study->updater->vectors[i].name, name) == 0)
            return i;
    fail_msg("no vector %s", name);
    return 0;
}

/* What a checkpoint has under that name. */
static inline const float *paper_saved(struct study *study, const char *name)
{
    trp_checkpoint_tensor tensors[UPDATE_TENSORS_MAX];
    size_t count = update_state(&study->run, tensors);
    for (size_t i = 0; i < count; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return tensors[i].data;
    fail_msg("nothing is saved as %s", name);
    return NULL;
}

/* Visits the numbers of the linear layer `layer`, in `flat` and in the paper's weights and biases.
 */
static inline void paper_layer(const trp_vector_spec *vector, const char *layer, const float *flat,
                               size_t outputs, size_t inputs, double (*w)[PAPER_WIDTH_MAX],
                               double *b)
{
    char weight[80], bias[80];
    size_t found = 0;
    snprintf(weight, sizeof weight, "%s.weight", layer);
    snprintf(bias, sizeof bias, "%s.bias", layer);
    for (size_t i = 0; i < vector->tensor_count; i++) {
        const trp_net_tensor *tensor = &vector->tensors[i];
        float values[PAPER_WIDTH_MAX * PAPER_WIDTH_MAX];
        bool is_weight = strcmp(tensor->name, weight) == 0;
        if (!is_weight && strcmp(tensor->name, bias) != 0)
            continue;
        assert_int_equal(tensor->shape[0], outputs);
        trp_net_tensor_get(tensor, flat, values);
        for (size_t k = 0; k < outputs * (is_weight ? inputs : 1); k++)
            *(is_weight ? &w[k / inputs][k % inputs] : &b[k]) = (double)values[k];
        found++;
    }
    if (found != 2)
        fail_msg("there is no layer %s", layer);
}

/* The network whose hidden layer is BODY.0 and whose outputs are the layers of `heads`, of as many
 * each, out of `flat`, a vector as `vector` says. */
static inline struct paper_net paper_read(const trp_vector_spec *vector, const float *flat,
                                          const char *body, const char *const *heads,
                                          const struct paper_net *shape)
{
    struct paper_net net = {.inputs = shape->inputs,
                            .hidden = shape->hidden,
                            .outputs = shape->outputs,
                            .squashed = shape->squashed};
    char name[64];
    size_t count = 0;
    while (heads[count])
        count++;
    snprintf(name, sizeof name, "%s.0", body);
    paper_layer(vector, name, flat, net.hidden, net.inputs, net.w0, net.b0);
    for (size_t i = 0; i < count; i++) {
        size_t each = net.outputs / count;
        paper_layer(vector, heads[i], flat, each, net.hidden, net.w1 + i * each, net.b1 + i * each);
    }
    return net;
}

/* ---- comparing ----------------------------------------------------------------------------- */

static inline void paper_assert_close(double is, double should, const char *what)
{
    if (!(fabs(is - should) <= 2e-5 * (1 + fabs(should))))
        fail_msg("%s is %.9g, should be %.9g", what, is, should);
}

static inline void paper_each(const struct paper_net *is, const struct paper_net *should,
                              const char *what, double factor)
{
    for (size_t i = 0; i < is->hidden; i++) {
        paper_assert_close(is->b0[i], factor * should->b0[i], what);
        for (size_t k = 0; k < is->inputs; k++)
            paper_assert_close(is->w0[i][k], factor * should->w0[i][k], what);
    }
    for (size_t i = 0; i < is->outputs; i++) {
        paper_assert_close(is->b1[i], factor * should->b1[i], what);
        for (size_t k = 0; k < is->hidden; k++)
            paper_assert_close(is->w1[i][k], factor * should->w1[i][k], what);
    }
}

/* The first phase of Adam leaves a tenth of the gradient as its mean, whose sign it steps along. */
static inline void paper_assert_stepped(struct study *study, const char *vector_name,
                                        const char *body, const char *const *heads,
                                        const float *before, const struct paper_net *grads,
                                        double rate)
{
    size_t vector = paper_vector(study, vector_name);
    const trp_vector_spec *spec = &study->updater->vectors[vector];
    char name[64];
    snprintf(name, sizeof name, "%s.adam.m", vector_name);
    struct paper_net mean = paper_read(spec, paper_saved(study, name), body, heads, grads);
    paper_each(&mean, grads, name, 0.1);
    struct paper_net old = paper_read(spec, before, body, heads, grads);
    struct paper_net now = paper_read(spec, study->run.values[vector], body, heads, grads);
    for (size_t i = 0; i < grads->outputs; i++) {
        double g = grads->b1[i];
        paper_assert_close(now.b1[i], old.b1[i] - rate * g / (fabs(g) + 1e-8), vector_name);
    }
}

/* target, before the step, went `rate` of the way to where params are now. */
static inline void paper_assert_followed(struct study *study, const char *target,
                                         const float *before, const char *params, double rate)
{
    size_t vector = paper_vector(study, target);
    const float *now = study->run.values[vector];
    const float *to = study->run.values[paper_vector(study, params)];
    for (size_t i = 0; i < study->updater->vectors[vector].count; i++) {
        double from = (double)before[i];
        paper_assert_close((double)now[i], from + rate * ((double)to[i] - from), target);
    }
}

static inline float *paper_copy(struct study *study, const char *vector_name)
{
    size_t vector = paper_vector(study, vector_name);
    size_t count = study->updater->vectors[vector].count;
    float *copy = trp_floats_create(count);
    memcpy(copy, study->run.values[vector], count * sizeof *copy);
    return copy;
}

/* Other numbers than at the beginning, so that a target is told from what it follows, whose tensors
 * it has. */
static inline void paper_shake(struct study *study, const char *vector_name, const char *like,
                               uint64_t seed, float size)
{
    float values[PAPER_WIDTH_MAX * PAPER_WIDTH_MAX];
    float *flat = study->run.values[paper_vector(study, vector_name)];
    const trp_vector_spec *spec = &study->updater->vectors[paper_vector(study, like)];
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    for (size_t i = 0; i < spec->tensor_count; i++) {
        trp_net_tensor_get(&spec->tensors[i], flat, values);
        for (size_t k = 0; k < spec->tensors[i].count; k++)
            values[k] += size * (float)trp_rng_normal(&rng);
        trp_net_tensor_set(&spec->tensors[i], values, flat);
    }
}

/* ---- items --------------------------------------------------------------------------------- */

/* Of two numbers of state and two of action, in [-1, 2] and [-3, 1]; some terminated, one is of
 * fewer steps; one action lies on a bound. */
enum { PAPER_ROWS = 6, PAPER_STATE = 2, PAPER_ACTION = 2 };
static const float paper_low[PAPER_ACTION] = {-1, -3}, paper_high[PAPER_ACTION] = {2, 1};
static const trp_env_spec paper_env = {
    .name = "Paper",
    .observations = {{.dtype = TRP_FLOAT32, .rank = 1, .shape = {PAPER_STATE}}},
    .action_kind = TRP_ACTION_BOX,
    .action_count = PAPER_ACTION,
    .action_low = paper_low,
    .action_high = paper_high};

static inline void paper_fill(struct items *items, uint64_t seed)
{
    static const float item_discounts[PAPER_ROWS] = {1, 0, 0.81F, 1, 0, 1};
    trp_rng rng;
    trp_rng_init(&rng, seed, 0);
    float *states = items_column(items, "observation"), *actions = items_column(items, "action");
    float *next = items_column(items, "next_observation");
    float *rewards = items_column(items, "reward"), *discounts = items_column(items, "discount");
    for (size_t row = 0; row < PAPER_ROWS; row++) {
        for (size_t i = 0; i < PAPER_STATE; i++) {
            states[row * PAPER_STATE + i] = (float)trp_rng_normal(&rng);
            next[row * PAPER_STATE + i] = (float)trp_rng_normal(&rng);
        }
        for (size_t i = 0; i < PAPER_ACTION; i++)
            actions[row * PAPER_ACTION + i] =
                paper_low[i] + (paper_high[i] - paper_low[i]) * (float)trp_rng_double(&rng);
        rewards[row] = 2 * (float)trp_rng_normal(&rng);
        discounts[row] = item_discounts[row];
        ((double *)(uintptr_t)items->batch.probabilities)[row] = 0.001 * (double)(row + 1);
    }
    actions[0] = paper_high[0];
}

/* The number in [-1, 1] that an action of an item is. */
static inline double paper_action(const struct items *items, size_t row, size_t i)
{
    const float *actions = items_column(items, "action");
    double low = (double)paper_low[i], high = (double)paper_high[i];
    return 2 * ((double)actions[row * PAPER_ACTION + i] - low) / (high - low) - 1;
}

/* (N P)^-beta over the largest of the batch. */
static inline double paper_weight(const struct items *items, size_t row, double beta)
{
    double largest = 0;
    for (size_t i = 0; i < PAPER_ROWS; i++)
        largest = fmax(largest, pow(1000 * items->batch.probabilities[i], -beta));
    return pow(1000 * items->batch.probabilities[row], -beta) / largest;
}

/* ---- critics ------------------------------------------------------------------------------- */

static const struct paper_net paper_critic_shape = {
    .inputs = PAPER_STATE + PAPER_ACTION, .hidden = 4, .outputs = 1};

static inline struct paper_net paper_critic(const struct study *study, const float *flat, int index)
{
    static const char *const heads[2][2] = {{"critic0.head"}, {"critic1.head"}};
    static const char *const bodies[2] = {"critic0", "critic1"};
    return paper_read(&study->updater->vectors[paper_vector(study, "critics")], flat, bodies[index],
                      heads[index], &paper_critic_shape);
}

/* What a critic says of a row of states and an action. */
static inline double paper_q(const struct paper_net *critic, const float *states, size_t row,
                             const double *action, struct paper_pass *pass)
{
    struct paper_pass own;
    pass = pass ? pass : &own;
    for (size_t i = 0; i < PAPER_STATE; i++)
        pass->x[i] = (double)states[row * PAPER_STATE + i];
    for (size_t i = 0; i < PAPER_ACTION; i++)
        pass->x[PAPER_STATE + i] = action[i];
    paper_forward(critic, pass);
    return pass->y[0];
}

/* How many critics there are. */
static inline int paper_critic_count(const struct study *study)
{
    const trp_vector_spec *critics = &study->updater->vectors[paper_vector(study, "critics")];
    for (size_t i = 0; i < critics->tensor_count; i++)
        if (strcmp(critics->tensors[i].name, "critic1.0.weight") == 0)
            return 2;
    return 1;
}

/* What the critics' phase should be, from its targets: of each half the mean of weighted squares.
 * Checks gradients, steps, loss, mean_q, and priorities. `old` is their vector before the step;
 * `more` has what else their gradients consist of, NULL: nothing. */
static inline void paper_check_critics(struct study *study, const struct items *items,
                                       const float *old, const double targets[PAPER_ROWS],
                                       double beta, double epsilon, double rate,
                                       const struct paper_net *more)
{
    static const char *const heads[2][2] = {{"critic0.head"}, {"critic1.head"}};
    static const char *const bodies[2] = {"critic0", "critic1"};
    const double *priorities = update_of_step(&study->run, study->steps)->priorities[0];
    double loss = 0, mean_q = 0, errors[PAPER_ROWS] = {0};
    for (int i = 0; i < paper_critic_count(study); i++) {
        struct paper_net critic = paper_critic(study, old, i);
        struct paper_net grads = more ? more[i] : paper_critic_shape;
        for (size_t row = 0; row < PAPER_ROWS; row++) {
            struct paper_pass pass;
            double action[] = {paper_action(items, row, 0), paper_action(items, row, 1)};
            double weight = priorities ? paper_weight(items, row, beta) : 1;
            double q = paper_q(&critic, items_column(items, "observation"), row, action, &pass);
            double dq = weight * (q - targets[row]) / PAPER_ROWS;
            paper_backward(&critic, &pass, &dq, &grads, NULL);
            loss += weight * (q - targets[row]) * (q - targets[row]) / 2 / PAPER_ROWS;
            mean_q += i == 0 ? q / PAPER_ROWS : 0;
            errors[row] = fmax(errors[row], fabs(q - targets[row]));
        }
        paper_assert_stepped(study, "critics", bodies[i], heads[i], old, &grads, rate);
    }
    paper_assert_close(study_reported(study, "critic_loss"), loss, "critic_loss");
    paper_assert_close(study_reported(study, "mean_q"), mean_q, "mean_q");
    for (size_t row = 0; priorities && row < PAPER_ROWS; row++)
        paper_assert_close(priorities[row], errors[row] + epsilon, "a priority");
}

#endif
