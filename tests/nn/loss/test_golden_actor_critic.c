/* What PyTorch code makes of the same losses, its gradients by autograd
 * (tests/golden/make_actor_critic.py). */
#include <troupe/actor_critic_losses.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sac_is_pytorchs),
        cmocka_unit_test(deterministic_policies_are_pytorchs),
        cmocka_unit_test(losses_from_data_are_pytorchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
