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

/* Frames that differ from step to step, and episodes of different lengths. */
struct marching {
    uint32_t step, steps, noise;
};

static trp_status marching_reset(void *state, trp_rng *rng)
{
    struct marching *marching = state;
    *marching = (struct marching){.steps = 3 + (uint32_t)trp_rng_below(rng, 12),
                                  .noise = (uint32_t)trp_rng_below(rng, 1 << 16)};
    return TRP_OK;
}

static trp_status marching_step(void *state, trp_rng *rng, const void *action,
                                trp_env_outcome *outcome)
{
    struct marching *marching = state;
    (void)rng;
    outcome->reward = (float)*(const int32_t *)action;
    outcome->terminated = ++marching->step == marching->steps;
    return TRP_OK;
}

static void marching_observe(const void *state, void *const *observations)
{
    const struct marching *marching = state;
    uint32_t noise = marching->noise + marching->step * 2654435761U;
    for (size_t i = 0; i < 8 * 9 * 2; i++)
        ((uint8_t *)observations[0])[i] = (uint8_t)((noise = noise * 1664525 + 1013904223) >> 24);
}

static const trp_env_impl marching_impl = {
    .spec = {.name = "Marching",
             .observations = {{.dtype = TRP_UINT8, .rank = 3, .shape = {8, 9, 2}}},
             .action_count = 3},
    .state_bytes = sizeof(struct marching),
    .reset = marching_reset,
    .step = marching_step,
    .observe = marching_observe,
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

/* ---- stacked frames ----------------------------------------------------------------------------
 */

enum { SLOTS = 2 * ROWS, STACK = 3, FRAME = 8 * 9 * 2, STACKED = STACK * FRAME };

/* Copies of an environment, whose stacks move on by frames that nobody has seen. */
struct stacks {
    trp_rng rng;
    uint8_t bytes[SLOTS][STACKED];
    uint32_t fresh[SLOTS]; /* frames that are new since it was acted on */
};

static void draw_frame(struct stacks *stacks, uint8_t *frame)
{
    for (size_t i = 0; i < FRAME; i++)
        frame[i] = (uint8_t)trp_rng_below(&stacks->rng, 256);
}

static void begin_stack(struct stacks *stacks, uint32_t slot)
{
    uint8_t *stack = stacks->bytes[slot];
    draw_frame(stacks, stack);
    for (size_t i = 1; i < STACK; i++)
        memcpy(stack + i * FRAME, stack, FRAME);
    stacks->fresh[slot] = 1;
}

static void move_stack(struct stacks *stacks, uint32_t slot)
{
    uint8_t *stack = stacks->bytes[slot];
    memmove(stack, stack + FRAME, STACKED - FRAME);
    draw_frame(stacks, stack + STACKED - FRAME);
    if (stacks->fresh[slot] < STACK)
        stacks->fresh[slot]++;
}

/* Acts on slots, up to ROWS of them; returns how many frames were new. */
static uint32_t act_on_stacks(struct acting *acting, struct stacks *stacks, const uint32_t *slots,
                              uint32_t count)
{
    uint8_t rows_of[ROWS][STACKED];
    bool first[ROWS] = {false};
    float rewards[ROWS] = {0};
    int32_t last_actions[ROWS] = {0};
    uint32_t fresh = 0;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(rows_of[i], stacks->bytes[slots[i]], STACKED);
        fresh += stacks->fresh[slots[i]];
    }
    trp_act act = {.rows = count,
                   .slots = slots,
                   .observations = (const void *[]){rows_of},
                   .first = first,
                   .rewards = rewards,
                   .last_actions = last_actions,
                   .rng = &acting->rng,
                   .actions = acting->actions,
                   .extras = acting->extras};
    OR_FAIL(acting->policy->impl->act(acting->policy, &act));
    return fresh;
}

/* One step of all that has to do with what a frame ring knows: some slots rest, some begin anew,
 * some get more frames than one, or all. */
static uint32_t pick_slots(struct stacks *stacks, uint32_t slots[ROWS])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t slot = (uint32_t)trp_rng_below(&stacks->rng, SLOTS), k = 0;
        uint64_t what = trp_rng_below(&stacks->rng, 8);
        while (k < count && slots[k] != slot)
            k++;
        if (k < count || count == ROWS)
            continue;
        if (what == 0)
            begin_stack(stacks, slot);
        for (uint64_t moves = what < 5 ? what % 4 : STACK; what > 0 && moves > 0; moves--)
            move_stack(stacks, slot);
        slots[count++] = slot;
    }
    return count;
}

static const struct policy_row *row_named(const char *name)
{
    size_t i = 0;
    while (strcmp(rows[i].name, name) != 0)
        i++;
    return &rows[i];
}

/* Two policies see the same; what they say is the same bits, or differs by rounding. */
struct pair {
    struct acting here, there;
    struct stacks stacks;
    size_t said; /* the extra that is looked at */
    bool exact;
};

static void pair_begin(struct pair *pair, trp_device *device, bool exact)
{
    const struct policy_row *row = row_named("ppo, frames");
    *pair = (struct pair){.exact = exact};
    trp_rng_init(&pair->stacks.rng, 6, 0);
    acting_begin(&pair->here, row, NULL, true);
    acting_begin(&pair->there, row, device, true);
    pair->said = trp_columns_find(&pair->here.policy->extras, "log_prob");
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        begin_stack(&pair->stacks, slot);
}

static void pair_end(struct pair *pair)
{
    acting_end(&pair->there);
    acting_end(&pair->here);
}

static uint32_t pair_act(struct pair *pair, const uint32_t *slots, uint32_t count)
{
    act_on_stacks(&pair->here, &pair->stacks, slots, count);
    uint32_t fresh = act_on_stacks(&pair->there, &pair->stacks, slots, count);
    for (uint32_t i = 0; i < count; i++)
        pair->stacks.fresh[slots[i]] = 0;
    if (pair->exact)
        assert_memory_equal(pair->there.extras[pair->said], pair->here.extras[pair->said],
                            count * sizeof(float));
    else
        assert_close(pair->there.extras[pair->said], pair->here.extras[pair->said], count, 1e-5,
                     "stacks");
    return fresh;
}

static void check_any_stacks(trp_device *device, bool exact, uint32_t calls)
{
    struct pair pair;
    uint32_t slots[ROWS];
    pair_begin(&pair, device, exact);
    for (uint32_t call = 0; call < calls; call++) {
        uint32_t count = pick_slots(&pair.stacks, slots);
        pair_act(&pair, slots, count);
    }
    pair_end(&pair);
}

static void whatever_moves_a_stack_the_device_has_its_bytes(void **state)
{
    (void)state;
    struct late_device *late = late_create(3);
    struct twin_device *twin = xcalloc(1, sizeof *twin);
    trp_device *device = twin_device_init(twin, 3);
    twin->machine.more = find_agents_kernel;
    check_any_stacks(&late->base, true, 400);
    check_any_stacks(device, false, 12);
    late_destroy(late);
    free(twin);
}

/* Slots by turns, as copies of an environment are: each frame goes once, with where frames are. */
static void a_frame_goes_to_the_device_once(void **state)
{
    (void)state;
    struct pair pair;
    struct late_device *late = late_create(5);
    pair_begin(&pair, &late->base, true);
    for (uint32_t call = 0; call < 60; call++) {
        uint32_t slots[ROWS], count = ROWS - call % 2;
        for (uint32_t i = 0; i < count; i++) {
            slots[i] = (call * ROWS + i) % SLOTS;
            if (call > 1 && (call + i) % 7 == 0)
                begin_stack(&pair.stacks, slots[i]);
            else if (call > 1)
                move_stack(&pair.stacks, slots[i]);
        }
        uint64_t before = late->uploaded;
        uint32_t fresh = pair_act(&pair, slots, count);
        assert_int_equal(late->uploaded - before, fresh * FRAME + count * STACK * sizeof(int32_t));
    }
    pair_end(&pair);
    late_destroy(late);
}

static void a_slot_that_a_policy_was_not_made_for_is_refused(void **state)
{
    (void)state;
    struct acting acting;
    struct late_device *late = late_create(8);
    static const uint8_t stack[STACKED];
    const uint32_t slot = SLOTS;
    const bool first = true;
    const float reward = 0;
    const int32_t last_action = 0;
    acting_begin(&acting, row_named("ppo, frames"), &late->base, true);
    trp_act act = {.rows = 1,
                   .slots = &slot,
                   .observations = (const void *[]){stack},
                   .first = &first,
                   .rewards = &reward,
                   .last_actions = &last_action,
                   .rng = &acting.rng,
                   .actions = acting.actions,
                   .extras = acting.extras};
    char *words = xasprintf("ppo policy: slot %d, made for %d", SLOTS, SLOTS);
    assert_int_equal(acting.policy->impl->act(acting.policy, &act), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), words);
    free(words);
    acting_end(&acting);
    late_destroy(late);
}

static void policies_on_this_machines_gpu_differ_by_rounding_alone(void **state)
{
    (void)state;
    trp_device *device = real_gpu();
    if (device) {
        check_all_rounding(device);
        check_any_stacks(device, false, 100);
    }
}

/* ---- evaluation ------------------------------------------------------------------------------ */

enum { COPIES = 16 };

static trp_status evaluate_on(const struct policy_row *row, trp_device *device,
                              double returns[2 * COPIES], trp_evaluation *result)
{
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
    OR_FAIL(evaluate_on(&rows[0], NULL, here, &result));
    OR_FAIL(evaluate_on(&rows[0], &late->base, there, &result));
    assert_memory_equal(here, there, sizeof here);
    assert_true(late->syncs < result.steps / (COPIES / 2));
    late_destroy(late);
}

static size_t loaded_bytes(const struct policy_row *row)
{
    struct acting acting;
    acting_begin(&acting, row, NULL, true);
    size_t bytes = acting.policy->param_count * sizeof(float);
    acting_end(&acting);
    return bytes;
}

/* Of whole episodes: a frame of each copy and step, and where the others are. */
static void evaluations_send_frames_once(void **state)
{
    (void)state;
    double here[2 * COPIES], there[2 * COPIES];
    trp_evaluation result;
    struct late_device *late = late_create(2);
    struct policy_row row = *row_named("ppo, frames");
    row.env = "Marching?frame_stack=3";
    OR_FAIL(evaluate_on(&row, NULL, here, &result));
    OR_FAIL(evaluate_on(&row, &late->base, there, &result));
    assert_memory_equal(here, there, sizeof here);
    uint64_t frames = (late->syncs - 1) * COPIES; /* one is for the parameters */
    assert_int_equal(late->uploaded,
                     frames * (FRAME + STACK * sizeof(int32_t)) + loaded_bytes(&row));
    late_destroy(late);
}

static void a_device_that_is_lost_ends_what_acts_on_it_by_name(void **state)
{
    (void)state;
    double returns[2 * COPIES];
    trp_evaluation result;
    struct late_device *late = late_create(1);
    late->lost_at = 40;
    assert_int_equal(evaluate_on(&rows[0], &late->base, returns, &result), TRP_UNAVAILABLE);
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
    if (trp_env_register(&still_impl) != TRP_OK || trp_env_register(&marching_impl) != TRP_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_on_a_device_do_what_they_do_on_the_cpu),
        cmocka_unit_test(policies_on_kernels_of_a_gpu_differ_by_rounding_alone),
        cmocka_unit_test(policies_on_this_machines_gpu_differ_by_rounding_alone),
        cmocka_unit_test(whatever_moves_a_stack_the_device_has_its_bytes),
        cmocka_unit_test(a_frame_goes_to_the_device_once),
        cmocka_unit_test(a_slot_that_a_policy_was_not_made_for_is_refused),
        cmocka_unit_test(evaluations_send_all_copies_at_once),
        cmocka_unit_test(evaluations_send_frames_once),
        cmocka_unit_test(a_device_that_is_lost_ends_what_acts_on_it_by_name),
        cmocka_unit_test(a_policy_that_knows_no_devices_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
