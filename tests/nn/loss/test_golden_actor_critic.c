/* What PyTorch code makes of the same losses, its gradients by autograd
 * (tests/golden/make_actor_critic.py). */
#include <math.h>

#include <troupe/actor_critic_losses.h>
#include <troupe/distributions.h>
#include <troupe/policy_losses.h>

#include "golden_tools.h"
#include "golden_actor_critic.h"

enum { ROWS = 5, SIZE = 3, SAMPLES = 4, ATOMS = 6 };

static void assert_golden(const char *name, const float *got, size_t count)
{
    assert_golden_in(golden_actor_critic,
                     sizeof golden_actor_critic / sizeof golden_actor_critic[0], name, got, count);
}

struct numbers {
    float q[ROWS], q2[ROWS], log_probs[ROWS], rewards[ROWS], discounts[ROWS];
    float actions[ROWS * SIZE], taken[ROWS * SIZE];
    float sampled[ROWS * SAMPLES], densities[ROWS * SAMPLES], logits[ROWS * ATOMS];
};

static struct numbers golden_inputs(void)
{
    struct numbers n;
    numbers(1, n.q, ROWS, 2);
    numbers(2, n.q2, ROWS, 2);
    numbers(3, n.log_probs, ROWS, 1);
    numbers(4, n.rewards, ROWS, 1);
    numbers(5, n.discounts, ROWS, 1);
    numbers(6, n.actions, (size_t)ROWS * SIZE, 1);
    numbers(7, n.taken, (size_t)ROWS * SIZE, 1);
    numbers(8, n.sampled, (size_t)ROWS * SAMPLES, 2);
    numbers(9, n.densities, (size_t)ROWS * SAMPLES, 1);
    numbers(10, n.logits, (size_t)ROWS * ATOMS, 2);
    return n;
}

static void sac_is_pytorchs(void **state)
{
    (void)state;
    struct numbers n = golden_inputs();
    float targets[ROWS], dq[ROWS], dq2[ROWS], dlog_probs[ROWS], dlog, mean = 0;
    trp_critic_targets(&(trp_critic_batch){.rows = ROWS,
                                           .rewards = n.rewards,
                                           .discounts = n.discounts,
                                           .next_q = n.q,
                                           .next_q2 = n.q2,
                                           .next_log_probs = n.log_probs,
                                           .temperature = 0.2f},
                       targets);
    assert_golden("sac.targets", targets, ROWS);
    trp_loss loss = trp_sac_policy_loss(
        &(trp_sac_batch){
            .rows = ROWS, .q = n.q, .q2 = n.q2, .log_probs = n.log_probs, .temperature = 0.2f},
        dq, dq2, dlog_probs);
    assert_golden("sac.loss", &loss.loss, 1);
    assert_golden("sac.q", dq, ROWS);
    assert_golden("sac.q2", dq2, ROWS);
    assert_golden("sac.log_probs", dlog_probs, ROWS);
    for (int i = 0; i < ROWS; i++)
        mean += n.log_probs[i] / ROWS;
    float alpha = trp_multiplier_loss(-0.7f, mean, SIZE, &dlog);
    assert_golden("alpha.loss", &alpha, 1);
    assert_golden("alpha.dlog", &dlog, 1);
}

static void deterministic_policies_are_pytorchs(void **state)
{
    (void)state;
    struct numbers n = golden_inputs();
    float dq[ROWS], dactions[ROWS * SIZE], dlogits[ROWS * ATOMS];
    trp_td3_batch batch = {.rows = ROWS, .size = SIZE, .q = n.q, .actions = n.actions};
    trp_loss loss = trp_td3_policy_loss(&batch, dq, NULL);
    assert_golden("td3.loss", &loss.loss, 1);
    assert_golden("td3.q", dq, ROWS);
    batch.taken = n.taken;
    loss = trp_td3_policy_loss(&batch, dq, dactions);
    assert_golden("td3_bc.loss", &loss.loss, 1);
    assert_golden("td3_bc.q", dq, ROWS);
    assert_golden("td3_bc.actions", dactions, (size_t)ROWS * SIZE);
    loss = trp_d4pg_policy_loss(&(trp_support){.atoms = ATOMS, .least = -2, .most = 3}, ROWS, NULL,
                                n.logits, dlogits);
    assert_golden("d4pg.loss", &loss.loss, 1);
    assert_golden("d4pg.logits", dlogits, (size_t)ROWS * ATOMS);
}

static void losses_from_data_are_pytorchs(void **state)
{
    (void)state;
    struct numbers n = golden_inputs();
    float d[ROWS], dsampled[ROWS * SAMPLES];
    int32_t taken[ROWS];
    for (int i = 0; i < ROWS; i++)
        taken[i] = i % SAMPLES;
    float loss =
        trp_expectile_loss(&(trp_expectile_batch){.rows = ROWS, .targets = n.q2, .expectile = 0.8f},
                           n.q, d)
            .loss;
    assert_golden("iql.loss", &loss, 1);
    assert_golden("iql.values", d, ROWS);
    trp_cql_batch batch = {.rows = ROWS, .samples = SAMPLES, .taken = taken, .scale = 3};
    loss = trp_cql_loss(&batch, n.sampled, dsampled, NULL).loss;
    assert_golden("cql.loss", &loss, 1);
    assert_golden("cql.sampled", dsampled, (size_t)ROWS * SAMPLES);
    batch = (trp_cql_batch){.rows = ROWS, .samples = SAMPLES, .log_probs = n.densities, .q = n.q};
    loss = trp_cql_loss(&batch, n.sampled, dsampled, d).loss;
    assert_golden("cql_sampled.loss", &loss, 1);
    assert_golden("cql_sampled.sampled", dsampled, (size_t)ROWS * SAMPLES);
    assert_golden("cql_sampled.q", d, ROWS);
}

/* The two policies of MPO's M-step: the learned mean with the target's deviation, and the other way
 * round. Rows are repeated for each sample. */
struct mpo {
    struct numbers n;
    float means[ROWS * SIZE], log_stds[ROWS * SIZE]; /* learned */
    float target_means[ROWS * SIZE], target_log_stds[ROWS * SIZE];
    float weights[ROWS * SAMPLES], actions[ROWS * SAMPLES * SIZE];
};

static void mpo_init(struct mpo *m)
{
    size_t count = (size_t)ROWS * SIZE;
    m->n = golden_inputs();
    numbers(11, m->means, count, 1);
    numbers(12, m->log_stds, count, 1);
    numbers(13, m->target_means, count, 1);
    numbers(14, m->target_log_stds, count, 1);
    numbers(15, m->actions, (size_t)ROWS * SAMPLES * SIZE, 1);
    for (int i = 0; i < ROWS * SAMPLES * SIZE; i++) {
        int at = i / (SAMPLES * SIZE) * SIZE + i % SIZE;
        m->actions[i] = m->target_means[at] + expf(m->target_log_stds[at]) * m->actions[i];
    }
}

static void mpo_step_is_pytorchs(const struct mpo *m, bool mean)
{
    float means[ROWS * SAMPLES * SIZE], log_stds[ROWS * SAMPLES * SIZE];
    float dmeans[ROWS * SAMPLES * SIZE], dlog_stds[ROWS * SAMPLES * SIZE];
    float log_probs[ROWS * SAMPLES], learned[ROWS * SIZE] = {0};
    for (int i = 0; i < ROWS * SAMPLES * SIZE; i++) {
        int at = i / (SAMPLES * SIZE) * SIZE + i % SIZE;
        means[i] = mean ? m->means[at] : m->target_means[at];
        log_stds[i] = mean ? m->target_log_stds[at] : m->log_stds[at];
    }
    trp_gaussian policy = {
        .rows = ROWS * SAMPLES, .size = SIZE, .mean = means, .log_std = log_stds};
    trp_gaussian_log_prob(&policy, m->actions, log_probs);
    float loss = trp_cloning_loss(ROWS * SAMPLES, m->weights, log_probs, log_probs);
    trp_gaussian_backward(&policy, &(trp_gaussian_grads){.actions = m->actions,
                                                         .log_probs = log_probs,
                                                         .mean = dmeans,
                                                         .log_std = dlog_stds});
    for (int i = 0; i < ROWS * SAMPLES * SIZE; i++)
        learned[i / (SAMPLES * SIZE) * SIZE + i % SIZE] += mean ? dmeans[i] : dlog_stds[i];
    assert_golden(mean ? "mpo.mean.step.loss" : "mpo.std.step.loss", &loss, 1);
    assert_golden(mean ? "mpo.mean.step.learned" : "mpo.std.step.learned", learned,
                  (size_t)ROWS * SIZE);
}

static void mpo_bound_is_pytorchs(const struct mpo *m, bool mean)
{
    trp_gaussian target = {
        .rows = ROWS, .size = SIZE, .mean = m->target_means, .log_std = m->target_log_stds};
    trp_gaussian policy = {.rows = ROWS, .size = SIZE, .mean = m->means, .log_std = m->log_stds};
    float of_means[ROWS * SIZE], of_stds[ROWS * SIZE], dmean[ROWS * SIZE], dlog_std[ROWS * SIZE];
    float multipliers[SIZE], dmultipliers[SIZE];
    float *divergences = mean ? of_means : of_stds;
    numbers(16, multipliers, SIZE, 1);
    trp_gaussian_decoupled_kl(&target, &policy, of_means, of_stds);
    float loss = trp_mpo_bound_loss(&(trp_mpo_bound){.rows = ROWS,
                                                     .size = SIZE,
                                                     .divergences = divergences,
                                                     .multipliers = multipliers,
                                                     .bound = 0.05f},
                                    divergences, dmultipliers)
                     .loss;
    trp_gaussian_kl_backward(&target, &policy,
                             &(trp_gaussian_kl_grads){.means = mean ? divergences : NULL,
                                                      .stds = mean ? NULL : divergences,
                                                      .q = {.mean = dmean, .log_std = dlog_std}});
    assert_golden(mean ? "mpo.mean.bound.loss" : "mpo.std.bound.loss", &loss, 1);
    assert_golden(mean ? "mpo.mean.bound.learned" : "mpo.std.bound.learned",
                  mean ? dmean : dlog_std, (size_t)ROWS * SIZE);
    assert_golden(mean ? "mpo.mean.multiplier.number" : "mpo.std.multiplier.number", dmultipliers,
                  SIZE);
}

static void mpo_is_acmes_in_pytorch(void **state)
{
    (void)state;
    struct mpo m;
    mpo_init(&m);
    float dtemperature, dual = trp_mpo_weights(&(trp_mpo_batch){.rows = ROWS,
                                                                .samples = SAMPLES,
                                                                .q = m.n.sampled,
                                                                .temperature = 0.4f,
                                                                .bound = 0.2f},
                                               m.weights, &dtemperature);
    assert_golden("mpo.weights", m.weights, (size_t)ROWS * SAMPLES);
    assert_golden("mpo.dual.loss", &dual, 1);
    assert_golden("mpo.dual.temperature", &dtemperature, 1);
    mpo_step_is_pytorchs(&m, true);
    mpo_step_is_pytorchs(&m, false);
    mpo_bound_is_pytorchs(&m, true);
    mpo_bound_is_pytorchs(&m, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sac_is_pytorchs),
        cmocka_unit_test(deterministic_policies_are_pytorchs),
        cmocka_unit_test(losses_from_data_are_pytorchs),
        cmocka_unit_test(mpo_is_acmes_in_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
