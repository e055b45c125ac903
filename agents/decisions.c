#include "decisions.h"

#include <string.h>

trp_status action_space_check(const char *who, const trp_env_spec *env)
{
    if (env->action_kind == TRP_ACTION_MULTI_BINARY)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s: %s has bits for actions, needs choices or numbers", who, env->name);
    return TRP_OK;
}

struct action_space action_space(const trp_env_spec *env)
{
    struct action_space space = {.continuous = env->action_kind == TRP_ACTION_BOX,
                                 .masked = env->masked,
                                 .size = (uint32_t)env->action_count,
                                 .parts = 1,
                                 .sizes = &env->action_count,
                                 .low = env->action_low,
                                 .high = env->action_high};
    if (env->action_kind == TRP_ACTION_DISCRETE)
        return space;
    space.parts = (uint32_t)env->action_count;
    space.sizes = env->action_choices;
    if (space.continuous)
        return space;
    space.size = 0;
    for (uint32_t i = 0; i < space.parts; i++)
        space.size += (uint32_t)space.sizes[i];
    return space;
}

#define AT(member) at + offsetof(struct decisions, member)

void decisions_operands(const struct decisions *decisions, size_t at,
                        trp_operand operands[DECISIONS_OPERANDS])
{
    size_t rows = decisions->rows, parts = decisions->space.parts * sizeof(int32_t);
    size_t says = rows * decisions->space.size * sizeof(float);
    const trp_operand all[DECISIONS_OPERANDS] = {
        {AT(space.sizes), parts, TRP_READ},
        {AT(says), says, TRP_READ | TRP_WRITE},
        {AT(log_std), says, TRP_READ | TRP_WRITE},
        {AT(mask), rows * decisions->space.size, TRP_READ},
        {AT(actions), rows * parts, TRP_READ},
    };
    memcpy(operands, all, sizeof all);
}
#undef AT

static void draw_numbers(const struct decisions *decisions, trp_rng *rng, bool greedy,
                         float *actions, float *log_probs)
{
    trp_gaussian gaussian = decisions_gaussian(decisions);
    if (greedy) {
        trp_gaussian_mode(&gaussian, actions);
        trp_gaussian_log_prob(&gaussian, actions, log_probs);
    } else {
        trp_gaussian_sample(&gaussian, rng, actions, actions, log_probs);
    }
}

void decisions_draw(const struct decisions *decisions, trp_rng *rng, bool greedy, void *actions,
                    float *log_probs)
{
    if (decisions->space.continuous) {
        draw_numbers(decisions, rng, greedy, actions, log_probs);
        return;
    }
    trp_categorical categorical = decisions_categorical(decisions);
    if (greedy)
        trp_categorical_mode(&categorical, actions);
    else
        trp_categorical_sample(&categorical, rng, actions);
    trp_categorical_log_prob(&categorical, actions, log_probs);
}
