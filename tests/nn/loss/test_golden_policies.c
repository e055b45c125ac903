/* What PyTorch makes of the same policies, its gradients by autograd
 * (tests/golden/make_policies.py). */
#include <troupe/policy_losses.h>

#include <stdio.h>

#include "golden_tools.h"
#include "golden_policies.h"

enum { ROWS = 4, CHOICES = 5, SIZE = 3, LOSS_ROWS = 12 };

static void assert_golden(const char *group, const char *name, const float *got, size_t count)
{
    char both[64];
    snprintf(both, sizeof both, "%s.%s", group, name);
    assert_golden_in(golden_policies, sizeof golden_policies / sizeof golden_policies[0], both, got,
                     count);
}

static void check_categorical(const char *name, uint32_t parts, const int32_t *sizes, bool masked)
{
    float logits[ROWS * CHOICES], others[ROWS * CHOICES], by[3][ROWS], got[ROWS];
    float gradient[ROWS * CHOICES], dq[ROWS * CHOICES];
    bool mask[ROWS * CHOICES];
    int32_t actions[ROWS * 2];
    numbers(4, logits, ROWS * CHOICES, 2);
    numbers(5, others, ROWS * CHOICES, 2);
    for (uint32_t i = 0; i < 3; i++)
        numbers(i + 1, by[i], ROWS, 1);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < CHOICES; j++)
            mask[i * CHOICES + j] = !masked || (i + j) % 3 != 1;
    for (int i = 0, at = 0; i < ROWS * (int)parts; at += sizes[i++ % (int)parts]) {
        int row = i / (int)parts, size = sizes[i % (int)parts];
        for (actions[i] = row % size; !mask[at + actions[i]];)
            actions[i] = (actions[i] + 1) % size;
    }
    trp_categorical policy = {.rows = ROWS,
                              .choices = CHOICES,
                              .parts = parts,
                              .sizes = sizes,
                              .logits = logits,
                              .mask = masked ? mask : NULL};
    trp_categorical other = policy;
    other.logits = others;
    trp_categorical_log_prob(&policy, actions, got);
    assert_golden(name, "log_prob", got, ROWS);
    trp_categorical_entropy(&policy, got);
    assert_golden(name, "entropy", got, ROWS);
    trp_categorical_kl(&policy, &other, got);
    assert_golden(name, "kl", got, ROWS);
    trp_categorical_kl_backward(
        &policy, &other,
        &(trp_categorical_kl_grads){.divergences = by[2], .p_logits = gradient, .q_logits = dq});
    assert_golden(name, "kl_p", gradient, ROWS * CHOICES);
    assert_golden(name, "kl_q", dq, ROWS * CHOICES);
    trp_categorical_backward(&policy, &(trp_categorical_grads){.actions = actions,
                                                               .log_probs = by[0],
                                                               .entropies = by[1],
                                                               .logits = gradient});
    assert_golden(name, "gradient", gradient, ROWS * CHOICES);
}

static void categoricals_are_pytorchs(void **state)
{
    (void)state;
    check_categorical("categorical", 1, (const int32_t[]){CHOICES}, false);
    check_categorical("masked", 1, (const int32_t[]){CHOICES}, true);
    check_categorical("parts", 2, (const int32_t[]){3, 2}, true);
}

static void check_gaussian(const char *name, trp_gaussian policy)
{
    float mean[ROWS * SIZE], log_std[ROWS * SIZE], noise[ROWS * SIZE], by_action[ROWS * SIZE];
    float given[ROWS * SIZE], actions[ROWS * SIZE], by[3][ROWS], got[ROWS];
    numbers(6, mean, ROWS * SIZE, 1);
    numbers(7, log_std, ROWS * SIZE, 1);
    numbers(8, noise, ROWS * SIZE, 2);
    numbers(9, by_action, ROWS * SIZE, 1);
    numbers(10, given, ROWS * SIZE, 1);
    for (uint32_t i = 0; i < 3; i++)
        numbers(i + 1, by[i], ROWS, 1);
    for (uint32_t i = 0; policy.low && i < ROWS * SIZE; i++) {
        float low = policy.low[i % SIZE], high = policy.high[i % SIZE];
        given[i] = (high + low) / 2 + (high - low) / 2 * given[i];
    }
    policy.rows = ROWS;
    policy.size = SIZE;
    policy.mean = mean;
    policy.log_std = log_std;
    trp_gaussian_transform(&policy, noise, actions, got);
    assert_golden(name, "action", actions, ROWS * SIZE);
    assert_golden(name, "sampled", got, ROWS);
    trp_gaussian_log_prob(&policy, given, got);
    assert_golden(name, "log_prob", got, ROWS);
    trp_gaussian_entropy(&policy, noise, got);
    assert_golden(name, "entropy", got, ROWS);
    trp_gaussian_backward(&policy, &(trp_gaussian_grads){.actions = given,
                                                         .log_probs = by[0],
                                                         .noise = noise,
                                                         .sample_actions = by_action,
                                                         .sample_log_probs = by[1],
                                                         .entropies = by[2],
                                                         .mean = mean,
                                                         .log_std = log_std});
    assert_golden(name, "mean", mean, ROWS * SIZE);
    assert_golden(name, "log_std", log_std, ROWS * SIZE);
}

static void gaussians_are_pytorchs(void **state)
{
    (void)state;
    check_gaussian("gaussian", (trp_gaussian){0});
    check_gaussian("bounded", (trp_gaussian){.least_log_std = -0.5f, .most_log_std = 0.25f});
    check_gaussian("squashed", (trp_gaussian){.squashed = true});
    static const float low[SIZE] = {-2, 0, 1}, high[SIZE] = {2, 0.5f, 4};
    check_gaussian("scaled", (trp_gaussian){.squashed = true, .low = low, .high = high});
}

static void divergences_are_pytorchs(void **state)
{
    (void)state;
    float values[4][ROWS * SIZE], by[ROWS], by_means[ROWS * SIZE], by_stds[ROWS * SIZE];
    float got[4][ROWS * SIZE];
    static const uint32_t seeds[4] = {6, 7, 11, 12};
    for (int i = 0; i < 4; i++)
        numbers(seeds[i], values[i], ROWS * SIZE, 1);
    numbers(1, by, ROWS, 1);
    numbers(8, by_means, ROWS * SIZE, 1);
    numbers(9, by_stds, ROWS * SIZE, 1);
    trp_gaussian p = {.rows = ROWS, .size = SIZE, .mean = values[0], .log_std = values[1]}, q = p;
    q.mean = values[2];
    q.log_std = values[3];
    trp_gaussian_kl(&p, &q, got[0]);
    assert_golden("kl", "divergence", got[0], ROWS);
    trp_gaussian_kl_grads grads = {.divergences = by, .p = {got[0], got[1]}, .q = {got[2], got[3]}};
    trp_gaussian_kl_backward(&p, &q, &grads);
    assert_golden("kl", "p_mean", got[0], ROWS * SIZE);
    assert_golden("kl", "p_log_std", got[1], ROWS * SIZE);
    assert_golden("kl", "q_mean", got[2], ROWS * SIZE);
    assert_golden("kl", "q_log_std", got[3], ROWS * SIZE);
    trp_gaussian_decoupled_kl(&p, &q, got[0], got[1]);
    assert_golden("decoupled", "means", got[0], ROWS * SIZE);
    assert_golden("decoupled", "stds", got[1], ROWS * SIZE);
    grads = (trp_gaussian_kl_grads){.means = by_means, .stds = by_stds, .q = {got[2], got[3]}};
    trp_gaussian_kl_backward(&p, &q, &grads);
    assert_golden("decoupled", "mean", got[2], ROWS * SIZE);
    assert_golden("decoupled", "log_std", got[3], ROWS * SIZE);
}

static void policy_gradients_are_pytorchs(void **state)
{
    (void)state;
    float log_probs[LOSS_ROWS], entropies[LOSS_ROWS], old[LOSS_ROWS], advantages[LOSS_ROWS];
    float weights[LOSS_ROWS], by_log_prob[LOSS_ROWS], by_entropy[LOSS_ROWS];
    numbers(13, log_probs, LOSS_ROWS, 1);
    numbers(14, entropies, LOSS_ROWS, 1);
    numbers(15, old, LOSS_ROWS, 1);
    numbers(16, advantages, LOSS_ROWS, 2);
    shares(17, weights, LOSS_ROWS);
    trp_policy_batch batch = {.rows = LOSS_ROWS,
                              .advantages = advantages,
                              .weights = weights,
                              .entropy = 0.125f,
                              .old_log_probs = old,
                              .clip = 0.25f};
    trp_policy_loss got =
        trp_policy_gradient_loss(&batch, log_probs, entropies, by_log_prob, by_entropy);
    assert_golden("gradient", "loss", &got.loss, 1);
    assert_golden("gradient", "log_probs", by_log_prob, LOSS_ROWS);
    assert_golden("gradient", "entropies", by_entropy, LOSS_ROWS);
    got = trp_ppo_loss(&batch, log_probs, entropies, by_log_prob, by_entropy);
    assert_golden("ppo", "loss", &got.loss, 1);
    assert_golden("ppo", "log_probs", by_log_prob, LOSS_ROWS);
    assert_golden("ppo", "entropies", by_entropy, LOSS_ROWS);
    assert_golden("ppo", "divergence", &got.divergence, 1);
    assert_golden("ppo", "clipped", &got.clipped, 1);
    trp_normalize_advantages(LOSS_ROWS, NULL, advantages, advantages);
    assert_golden("advantages", "normalized", advantages, LOSS_ROWS);
}

static void imitation_is_pytorchs(void **state)
{
    (void)state;
    static const char *const names[] = {"crr_exp", "crr_max", "crr_binary"};
    float log_probs[LOSS_ROWS], q[LOSS_ROWS], policy_q[LOSS_ROWS * SIZE], weights[LOSS_ROWS];
    float gradient[LOSS_ROWS];
    numbers(13, log_probs, LOSS_ROWS, 1);
    numbers(18, q, LOSS_ROWS, 2);
    numbers(19, policy_q, LOSS_ROWS * SIZE, 2);
    for (int i = 0; i < 3; i++) {
        trp_crr_weights(&(trp_crr_batch){.rows = LOSS_ROWS,
                                         .samples = SIZE,
                                         .q = q,
                                         .policy_q = policy_q,
                                         .max = i == 1,
                                         .binary = i == 2,
                                         .temperature = 0.5f,
                                         .most = 4},
                        weights);
        float loss = trp_cloning_loss(LOSS_ROWS, weights, log_probs, gradient);
        assert_golden(names[i], "loss", &loss, 1);
        assert_golden(names[i], "log_probs", gradient, LOSS_ROWS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(categoricals_are_pytorchs),
        cmocka_unit_test(gaussians_are_pytorchs),
        cmocka_unit_test(divergences_are_pytorchs),
        cmocka_unit_test(policy_gradients_are_pytorchs),
        cmocka_unit_test(imitation_is_pytorchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
