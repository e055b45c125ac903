#include "copies.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

void copies_prepare(struct copies *copies, trp_env *env, trp_policy *policy)
{
    const trp_env_spec *spec = trp_env_get_spec(env);
    uint32_t count = trp_env_count(env);
    size_t extras = policy->extras.count;
    *copies = (struct copies){
        .env = env,
        .policy = policy,
        .count = count,
        .observation_count = trp_env_observation_count(spec),
        .action_bytes = trp_env_action_bytes(env),
    };
    for (size_t i = 0; i < copies->observation_count; i++) {
        copies->observation_bytes[i] = trp_tensor_bytes(&spec->observations[i]);
        copies->observations[i] = xcalloc(count, copies->observation_bytes[i]);
        copies->finals[i] = xcalloc(count, copies->observation_bytes[i]);
    }
    copies->actions = xcalloc(count, copies->action_bytes);
    copies->last_actions = xcalloc(count, copies->action_bytes);
    copies->rewards = xcalloc(count, sizeof *copies->rewards);
    copies->discounts = xcalloc(count, sizeof *copies->discounts);
    if (spec->masked) {
        copies->choices = (size_t)spec->action_count;
        copies->mask = xcalloc(count, copies->choices * sizeof *copies->mask);
        copies->final_mask = xcalloc(count, copies->choices * sizeof *copies->final_mask);
    }
    copies->terminated = xcalloc(count, sizeof *copies->terminated);
    copies->truncated = xcalloc(count, sizeof *copies->truncated);
    copies->first = xcalloc(count, sizeof *copies->first);
    copies->slots = xcalloc(count, sizeof *copies->slots);
    for (uint32_t copy = 0; copy < count; copy++)
        copies->slots[copy] = copy;
    copies->extra_bytes = xcalloc(extras + 1, sizeof *copies->extra_bytes);
    copies->extras = xcalloc(extras + 1, sizeof *copies->extras);
    copies->row_extras = xcalloc(extras + 1, sizeof *copies->row_extras);
    for (size_t i = 0; i < extras; i++) {
        copies->extra_bytes[i] = trp_tensor_bytes(&policy->extras.specs[i]);
        copies->extras[i] = xcalloc(count, copies->extra_bytes[i]);
    }
}

void copies_cleanup(struct copies *copies)
{
    for (size_t i = 0; i < copies->observation_count; i++) {
        free(copies->observations[i]);
        free(copies->finals[i]);
    }
    for (size_t i = 0; copies->extras && i < copies->policy->extras.count; i++)
        free(copies->extras[i]);
    free(copies->actions);
    free(copies->last_actions);
    free(copies->rewards);
    free(copies->discounts);
    free(copies->mask);
    free(copies->final_mask);
    free(copies->terminated);
    free(copies->truncated);
    free(copies->first);
    free(copies->slots);
    free(copies->extra_bytes);
    free(copies->extras);
    free(copies->row_extras);
}

static trp_status read_masks(struct copies *copies)
{
    return copies->mask ? trp_env_masks(copies->env, copies->mask) : TRP_OK;
}

trp_status copies_reset(struct copies *copies)
{
    memset(copies->first, true, copies->count * sizeof *copies->first);
    TRP_TRY(trp_env_reset(copies->env, copies->observations));
    return read_masks(copies);
}

/* What the policy hears of the step before. */
static void copies_forget_ended(struct copies *copies)
{
    uint8_t *actions = copies->actions;
    copies->actions = copies->last_actions;
    copies->last_actions = actions;
    for (uint32_t copy = 0; copy < copies->count; copy++) {
        if (!copies->first[copy])
            continue;
        copies->rewards[copy] = 0;
        memset(copies->last_actions + copy * copies->action_bytes, 0, copies->action_bytes);
    }
}

trp_status copies_step(struct copies *copies, uint64_t steps, trp_rng *rng)
{
    copies_forget_ended(copies);
    trp_act act = {.rows = copies->count,
                   .slots = copies->slots,
                   .observations = (const void *const *)copies->observations,
                   .first = copies->first,
                   .rewards = copies->rewards,
                   .last_actions = copies->last_actions,
                   .mask = copies->mask,
                   .steps = steps,
                   .rng = rng,
                   .actions = copies->actions,
                   .extras = copies->policy->extras.count > 0 ? copies->extras : NULL};
    trp_env_buffers buffers = {.observations = copies->observations,
                               .final_observations = copies->finals,
                               .rewards = copies->rewards,
                               .terminated = copies->terminated,
                               .truncated = copies->truncated,
                               .discounts = copies->discounts,
                               .final_masks = copies->final_mask};
    TRP_TRY(copies->policy->impl->act(copies->policy, &act));
    TRP_TRY(trp_env_step(copies->env, copies->actions, &buffers));
    for (uint32_t copy = 0; copy < copies->count; copy++)
        copies->first[copy] = copies->terminated[copy] || copies->truncated[copy];
    return read_masks(copies);
}

void copies_observations(const struct copies *copies, uint32_t copy,
                         const void *row[TRP_OBSERVATIONS_MAX])
{
    for (size_t i = 0; i < copies->observation_count; i++)
        row[i] = (const uint8_t *)copies->observations[i] + copy * copies->observation_bytes[i];
}

trp_transition copies_transition(const struct copies *copies, uint32_t copy, uint64_t version,
                                 const void *next[TRP_OBSERVATIONS_MAX])
{
    void *const *following = copies->first[copy] ? copies->finals : copies->observations;
    const bool *masks = copies->first[copy] ? copies->final_mask : copies->mask;
    for (size_t i = 0; i < copies->observation_count; i++)
        next[i] = (const uint8_t *)following[i] + copy * copies->observation_bytes[i];
    for (size_t i = 0; i < copies->policy->extras.count; i++)
        copies->row_extras[i] = (const uint8_t *)copies->extras[i] + copy * copies->extra_bytes[i];
    return (trp_transition){
        .action = copies->actions + copy * copies->action_bytes,
        .reward = copies->rewards[copy],
        .discount = copies->discounts[copy],
        .next_observations = next,
        .next_mask = masks ? masks + copy * copies->choices : NULL,
        .extras = copies->row_extras,
        .last = copies->first[copy],
        .version = version,
    };
}
