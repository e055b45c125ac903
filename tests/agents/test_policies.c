/* Every policy on a device beside the CPU's: the same rows, and actions and extras that are the
 * same bits. The device is as far from a host as one may be (tests/nn/late_device.h); on that of
 * kernels (tests/nn/cuda/twin_machine.h) what is said differs by rounding. */
#include "tests/nn/cuda/real_gpu.h"
#include "tests/nn/cuda/twin_machine.h"
#include "tests/nn/late_device.h"

#include <troupe/troupe.h>

#include "gpu_kernels.h"

enum { ROWS = 6, CALLS = 8 };

/* ---- images ---------------------------------------------------------------------------------- */

/* Never stepped here: only what it observes counts. */
static trp_status still_reset(void *state, trp_rng *rng)
{
    (void)state, (void)rng;
    return TRP_OK;
}

static trp_status still_step(void *state, trp_rng *rng, const void *action,
                             trp_env_outcome *outcome)
{
    (void)state, (void)rng, (void)action, (void)outcome;
    return TRP_OK;
}

static void still_observe(const void *state, void *const *observations)
{
    (void)state, (void)observations;
}

static const trp_env_impl still_impl = {
    .spec = {.name = "Still",
             .observations = {{.dtype = TRP_UINT8, .rank = 3, .shape = {8, 9, 2}}},
             .action_count = 3},
    .state_bytes = 1,
    .reset = still_reset,
    .step = still_step,
    .observe = still_observe,
};

/* ---- agents ---------------------------------------------------------------------------------- */

struct policy_row {
    const char *name, *env;
    trp_agent (*agent)(void);
};

#define AGENT(name, ...)                                                                           \
    static trp_agent name##_row(void)                                                              \
    {                                                                                              \
        return trp_##__VA_ARGS__;                                                                  \
    }

AGENT(dqn, dqn(&(trp_dqn_options){.hidden = {16}, .epsilon_start = 0.3F, .epsilon_end = 0.3F}))
AGENT(dqn_noisy, dqn(&(trp_dqn_options){.hidden = {16}, .noisy = true, .dueling = true}))
AGENT(dqn_frames, dqn(&(trp_dqn_options){.network = TRP_TORSO_IMPALA, .loss = TRP_DQN_C51}))
AGENT(r2d2, r2d2(&(trp_r2d2_options){.hidden = {16}, .core_size = 8}))
AGENT(ppo, ppo(&(trp_ppo_options){.hidden = {16}}))
AGENT(ppo_frames, ppo(&(trp_ppo_options){.network = TRP_TORSO_IMPALA}))
AGENT(impala, impala(&(trp_impala_options){.hidden = {16}, .core = TRP_CORE_GRU, .core_size = 8}))
AGENT(a3c, a3c(&(trp_a3c_options){.hidden = {16}}))
AGENT(td3, td3(&(trp_td3_options){.hidden = {16}, .random_steps = -1}))
AGENT(sac, sac(&(trp_sac_options){.hidden = {16}, .random_steps = -1}))
AGENT(d4pg, d4pg(&(trp_d4pg_options){.hidden = {16}}))
AGENT(mpo, mpo(&(trp_mpo_options){.hidden = {16}}))

static const struct policy_row rows[] = {
    {"dqn", "CartPole-v1", dqn_row},
    {"dqn, noisy", "CartPole-v1", dqn_noisy_row},
    {"dqn, frames", "Still?frame_stack=3", dqn_frames_row},
    {"r2d2", "CartPole-v1", r2d2_row},
    {"ppo", "CartPole-v1", ppo_row},
    {"ppo, numbers", "Pendulum-v1", ppo_row},
    {"ppo, frames", "Still?frame_stack=3", ppo_frames_row},
    {"impala, gru", "CartPole-v1", impala_row},
    {"a3c", "CartPole-v1", a3c_row},
    {"td3", "Pendulum-v1", td3_row},
    {"sac", "Pendulum-v1", sac_row},
    {"d4pg", "Pendulum-v1", d4pg_row},
    {"mpo", "Pendulum-v1", mpo_row},
};

enum { AGENTS = sizeof rows / sizeof *rows };

/* ---- acting ---------------------------------------------------------------------------------- */

/* One policy, and what it writes. */
struct acting {
    trp_policy *policy;
    trp_rng rng;
    size_t action_bytes; /* of a row */
    uint8_t *actions;
    void *extras[8];
};

static void acting_begin(struct acting *acting, const struct policy_row *row, trp_device *device,
                         bool greedy)
{
    trp_agent agent = row->agent();
    const trp_env_spec *env;
    OR_FAIL(trp_env_find(row->env, &env));
    *acting = (struct acting){.action_bytes = (size_t)env->action_count * sizeof(float)};
    trp_rng_init(&acting->rng, 3, 0);
    OR_FAIL(trp_agent_policy_create(
        &acting->policy, &agent, row->env,
        &(trp_policy_options){
            .rows = ROWS, .slots = 2 * ROWS, .greedy = greedy, .device = device}));
    acting->actions = xcalloc(ROWS, acting->action_bytes);
    for (size_t i = 0; i < acting->policy->extras.count; i++)
        acting->extras[i] = xcalloc(ROWS, trp_tensor_bytes(&acting->policy->extras.specs[i]));
    trp_rng draws;
    trp_rng_init(&draws, 4, 0);
    float *params = random_floats(&draws, acting->policy->param_count, 0.05);
    OR_FAIL(acting->policy->impl->load(acting->policy, params, acting->policy->param_count));
    free(params);
}

static void acting_end(struct acting *acting)
{
    for (size_t i = 0; i < acting->policy->extras.count; i++)
        free(acting->extras[i]);
    free(acting->actions);
    trp_policy_destroy(acting->policy);
}

/* Call number `call` of any policy in that environment: other rows in other slots each time. */
static trp_status acting_call(struct acting *acting, const char *env_name, uint32_t call)
{
    const trp_env_spec *env;
    OR_FAIL(trp_env_find(env_name, &env));
    const trp_tensor_spec *spec = &env->observations[0];
    size_t count = ROWS * trp_tensor_bytes(spec) / trp_dtype_size(spec->dtype);
    trp_rng rng;
    trp_rng_init(&rng, 9, call);
    float *numbers = random_floats(&rng, count, 1);
    uint8_t *bytes = xcalloc(count, 1);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)trp_rng_below(&rng, 256);
    uint32_t slots[ROWS];
    bool first[ROWS];
    float rewards[ROWS] = {0};
    void *last_actions = xcalloc(ROWS, acting->action_bytes);
    for (uint32_t i = 0; i < ROWS; i++) {
        slots[i] = (5 * i + call) % (2 * ROWS);
        first[i] = call == 0 || trp_rng_below(&rng, 4) == 0;
    }
    const void *observations[] = {spec->dtype == TRP_UINT8 ? (const void *)bytes : numbers};
    trp_act act = {.rows = ROWS - call % 3,
                   .slots = slots,
                   .observations = observations,
                   .first = first,
                   .rewards = rewards,
                   .last_actions = last_actions,
                   .steps = 100,
                   .rng = &acting->rng,
                   .actions = acting->actions,
                   .extras = acting->policy->extras.count > 0 ? acting->extras : NULL};
    trp_status status = acting->policy->impl->act(acting->policy, &act);
    free(last_actions);
    free(numbers);
    free(bytes);
    return status;
}

static void check_bits(const struct policy_row *row, trp_device *device, bool greedy)
{
    struct acting here, there;
    acting_begin(&here, row, NULL, greedy);
    acting_begin(&there, row, device, greedy);
    assert_ptr_equal(there.policy->device, device);
    for (uint32_t call = 0; call < CALLS; call++) {
        OR_FAIL(acting_call(&here, row->env, call));
        OR_FAIL(acting_call(&there, row->env, call));
        size_t n = ROWS - call % 3;
        if (memcmp(here.actions, there.actions, n * here.action_bytes) != 0)
            fail_msg("%s: call %u: other actions", row->name, call);
        for (size_t i = 0; i < here.policy->extras.count; i++)
            if (memcmp(here.extras[i], there.extras[i],
                       n * trp_tensor_bytes(&here.policy->extras.specs[i])) != 0)
                fail_msg("%s: call %u: other %s", row->name, call,
                         here.policy->extras.specs[i].name);
    }
    acting_end(&there);
    acting_end(&here);
}

static void policies_on_a_device_do_what_they_do_on_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < AGENTS; i++)
        for (int greedy = 0; greedy < 2; greedy++) {
            struct late_device *late = late_create(i + 1);
            check_bits(&rows[i], &late->base, greedy);
            assert_true(late->syncs > 0);
            late_destroy(late);
        }
}

/* ---- a GPU ----------------------------------------------------------------------------------- */

/* The largest difference of what PPO says of the same rows, and of an LSTM's state. */
static void check_rounding(const struct policy_row *row, const char *extra, trp_device *device,
                           uint32_t calls)
{
    struct acting here, there;
    acting_begin(&here, row, NULL, true);
    acting_begin(&there, row, device, true);
    size_t at = trp_columns_find(&here.policy->extras, extra);
    size_t width = trp_tensor_bytes(&here.policy->extras.specs[at]) / sizeof(float);
    for (uint32_t call = 0; call < calls; call++) {
        OR_FAIL(acting_call(&here, row->env, call));
        OR_FAIL(acting_call(&there, row->env, call));
        assert_close(there.extras[at], here.extras[at], (ROWS - call % 3) * width, 1e-5, row->name);
    }
    acting_end(&there);
    acting_end(&here);
}

static void check_all_rounding(trp_device *device)
{
    for (size_t i = 0; i < AGENTS; i++) {
        if (rows[i].agent == ppo_frames_row || strcmp(rows[i].name, "ppo") == 0)
            check_rounding(&rows[i], "log_prob", device, 9);
        if (rows[i].agent == impala_row)
            check_rounding(&rows[i], "core", device, 9);
        if (rows[i].agent == r2d2_row)
            check_rounding(&rows[i], "core_state", device, 9);
    }
}

static void policies_on_kernels_of_a_gpu_differ_by_rounding_alone(void **state)
{
    (void)state;
    struct twin_device twin;
    trp_device *device = twin_device_init(&twin, 1);
    twin.machine.more = find_agents_kernel;
    check_all_rounding(device);
    assert_true(twin.machine.launches > 0); /* rows of a number that was met are a graph */
}

static void policies_on_this_machines_gpu_differ_by_rounding_alone(void **state)
{
    (void)state;
    trp_device *device = real_gpu();
    if (device)
        check_all_rounding(device);
}

/* ---- evaluation ------------------------------------------------------------------------------ */

enum { COPIES = 16 };

static trp_status evaluate_on(trp_device *device, double returns[2 * COPIES],
                              trp_evaluation *result)
{
    const struct policy_row *row = &rows[0];
    struct acting acting;
    trp_policy *policy;
    trp_agent agent = row->agent();
    acting_begin(&acting, row, NULL, true); /* for its parameters */
    OR_FAIL(trp_agent_policy_create(
        &policy, &agent, row->env,
        &(trp_policy_options){.rows = COPIES, .greedy = true, .device = device}));
    trp_rng draws;
    trp_rng_init(&draws, 4, 0);
    float *params = random_floats(&draws, policy->param_count, 0.05);
    OR_FAIL(policy->impl->load(policy, params, policy->param_count));
    trp_status status = trp_evaluate(policy,
                                     &(trp_evaluate_options){.env = row->env,
                                                             .episodes = 2 * COPIES,
                                                             .copies = COPIES,
                                                             .seed = 7,
                                                             .returns = returns},
                                     result);
    free(params);
    trp_policy_destroy(policy);
    acting_end(&acting);
    return status;
}

/* One trip to the device for all copies that play: fewer by far than steps. */
static void evaluations_send_all_copies_at_once(void **state)
{
    (void)state;
    double here[2 * COPIES], there[2 * COPIES];
    trp_evaluation result;
    struct late_device *late = late_create(1);
    OR_FAIL(evaluate_on(NULL, here, &result));
    OR_FAIL(evaluate_on(&late->base, there, &result));
    assert_memory_equal(here, there, sizeof here);
    assert_true(late->syncs < result.steps / (COPIES / 2));
    late_destroy(late);
}

static void a_device_that_is_lost_ends_what_acts_on_it_by_name(void **state)
{
    (void)state;
    double returns[2 * COPIES];
    trp_evaluation result;
    struct late_device *late = late_create(1);
    late->lost_at = 40;
    assert_int_equal(evaluate_on(&late->base, returns, &result), TRP_UNAVAILABLE);
    assert_non_null(strstr(trp_last_error(), "device late is lost"));
    late_destroy(late);
}

/* ---- who cannot ------------------------------------------------------------------------------ */

static trp_status make_homebound(const trp_agent *agent, const trp_env_spec *env,
                                 const trp_policy_options *options, trp_policy **out)
{
    static const trp_policy_impl impl = {.destroy = NULL};
    (void)agent, (void)env, (void)options;
    *out = xcalloc(1, sizeof **out);
    (*out)->impl = &impl;
    return TRP_OK;
}

static void a_policy_that_knows_no_devices_is_refused_by_name(void **state)
{
    (void)state;
    static const trp_agent_impl impl = {.name = "homebound", .policy = make_homebound};
    trp_agent agent = {.impl = &impl};
    trp_policy *policy;
    trp_device *ref;
    OR_FAIL(trp_device_find(&ref, "ref"));
    assert_int_equal(trp_agent_policy_create(&policy, &agent, "CartPole-v1",
                                             &(trp_policy_options){.device = ref}),
                     TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "homebound acts on device cpu, not on ref");
    assert_null(policy);
    OR_FAIL(trp_agent_policy_create(&policy, &agent, "CartPole-v1", &(trp_policy_options){0}));
    trp_policy_destroy(policy);
}

int main(void)
{
    if (trp_env_register(&still_impl) != TRP_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_on_a_device_do_what_they_do_on_the_cpu),
        cmocka_unit_test(policies_on_kernels_of_a_gpu_differ_by_rounding_alone),
        cmocka_unit_test(policies_on_this_machines_gpu_differ_by_rounding_alone),
        cmocka_unit_test(evaluations_send_all_copies_at_once),
        cmocka_unit_test(a_device_that_is_lost_ends_what_acts_on_it_by_name),
        cmocka_unit_test(a_policy_that_knows_no_devices_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
