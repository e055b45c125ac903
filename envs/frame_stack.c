/* The last observations together, the oldest first. An episode begins with its first one
 * everywhere. */
#include "wrapper.h"

#include <string.h>

struct frame_stack {
    trp_wrapping wrapping;
    uint32_t frame_stack;
};

static const trp_option rows[] = {
    {TRP_OPTION(struct frame_stack, frame_stack), .min = 1, .max = 64, .unit = "observations",
     .help = "that are seen together"},
};
static const trp_option_table table = TRP_OPTION_TABLE("frame_stack", rows, struct frame_stack);

static uint32_t stack_size(const void *state)
{
    return ((const struct frame_stack *)(const void *)((const trp_wrapped *)state)->wrapping)
        ->frame_stack;
}

static trp_status stack_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct frame_stack *stack = arguments;
    (void)user;
    for (size_t i = 0; i < stack->wrapping.tensors; i++) {
        trp_tensor_spec *tensor = &spec->observations[i];
        if (tensor->rank == TRP_RANK_MAX)
            return trp_fail(TRP_INVALID_ARGUMENT, "frame_stack: '%s' has %d dimensions already",
                            tensor->name ? tensor->name : "observation", TRP_RANK_MAX);
        memmove(tensor->shape + 1, tensor->shape, tensor->rank * sizeof tensor->shape[0]);
        tensor->shape[0] = stack->frame_stack;
        tensor->rank++;
    }
    trp_wrapping_keep_frames(&stack->wrapping, stack->frame_stack);
    return TRP_OK;
}

static trp_status stack_reset(void *state, trp_rng *rng)
{
    const trp_wrapping *wrapping = ((trp_wrapped *)state)->wrapping;
    TRP_TRY(wrapped_reset_and_look(state, rng));
    for (size_t i = 0; i < wrapping->tensors; i++)
        for (uint32_t k = 1; k < stack_size(state); k++)
            memcpy(trp_wrapped_frame(state, i, k), trp_wrapped_frame(state, i, 0),
                   wrapping->frame_bytes[i]);
    return TRP_OK;
}

static trp_status stack_step(void *state, trp_rng *rng, const void *action,
                             trp_env_outcome *outcome)
{
    const trp_wrapping *wrapping = ((trp_wrapped *)state)->wrapping;
    uint32_t older = stack_size(state) - 1;
    TRP_TRY(trp_wrapped_step(state, rng, action, outcome));
    for (size_t i = 0; older > 0 && i < wrapping->tensors; i++)
        memmove(trp_wrapped_frame(state, i, 0), trp_wrapped_frame(state, i, 1),
                older * wrapping->frame_bytes[i]);
    trp_wrapped_look(state, older);
    return TRP_OK;
}

static void stack_observe(const void *state, void *const *observations)
{
    const trp_wrapping *wrapping = ((const trp_wrapped *)state)->wrapping;
    for (size_t i = 0; i < wrapping->tensors; i++)
        memcpy(observations[i], trp_wrapped_frame(state, i, 0),
               stack_size(state) * wrapping->frame_bytes[i]);
}

const trp_env_impl frame_stack_impl = {
    .state_bytes = sizeof(trp_wrapped),
    .options = &table,
    .configure = stack_configure,
    .reset = stack_reset,
    .step = stack_step,
    .observe = stack_observe,
};
