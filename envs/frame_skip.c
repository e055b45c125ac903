/* Every action is done several times, and what is seen is the larger of the last two frames, number
 * by number: some Atari games draw a thing in every other frame only. Where an episode begins or
 * ends before the last of them there is one frame to see. */
#include "wrapper.h"

#include <string.h>

struct frame_skip {
    trp_wrapping wrapping;
    uint32_t frame_skip;
    int64_t limit;
    trp_dtype dtypes[TRP_OBSERVATIONS_MAX];
};

struct skipped {
    trp_wrapped wrapped;
    int64_t steps;
    uint64_t frames; /* 1 or 2 were seen: 0 the last one, 1 the one before */
};

static const trp_option rows[] = {
    {TRP_OPTION(struct frame_skip, frame_skip), .min = 1, .max = 1000, .unit = "steps",
     .help = "of the same action"},
};
static const trp_option_table table = TRP_OPTION_TABLE("frame_skip", rows, struct frame_skip);

static trp_status skip_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct frame_skip *skip = arguments;
    (void)user;
    skip->limit = spec->max_episode_steps;
    spec->max_episode_steps = 0;
    for (size_t i = 0; i < skip->wrapping.tensors; i++) {
        const trp_tensor_spec *tensor = &spec->observations[i];
        skip->dtypes[i] = tensor->dtype;
        if (tensor->dtype != TRP_FLOAT32 && tensor->dtype != TRP_UINT8)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "frame_skip: '%s' is neither float32 nor uint8: nothing is the larger "
                            "of two tokens; take action_repeat",
                            tensor->name ? tensor->name : "observation");
    }
    trp_wrapping_keep_frames(&skip->wrapping, 2);
    wrapping_keep_mask(&skip->wrapping, spec);
    return TRP_OK;
}

static trp_status skip_reset(void *state, trp_rng *rng)
{
    struct skipped *skipped = state;
    skipped->steps = 0;
    skipped->frames = 1;
    return wrapped_reset_and_look(state, rng);
}

static void skip_look(void *state, uint32_t left)
{
    struct skipped *skipped = state;
    if (left > 1)
        return;
    trp_wrapped_look(state, left);
    skipped->frames += left == 1;
}

static trp_status skip_step(void *state, trp_rng *rng, const void *action, trp_env_outcome *outcome)
{
    struct skipped *skipped = state;
    const struct frame_skip *skip = (const void *)skipped->wrapped.wrapping;
    skipped->frames = 1;
    return wrapped_repeat(state, rng, action, outcome, skip->frame_skip, skip->limit,
                          &skipped->steps, skip_look);
}

static void take_larger(void *row, const void *other, trp_dtype dtype, size_t bytes)
{
    if (dtype == TRP_UINT8) {
        uint8_t *to = row;
        for (size_t i = 0; i < bytes; i++)
            to[i] = to[i] > ((const uint8_t *)other)[i] ? to[i] : ((const uint8_t *)other)[i];
        return;
    }
    float *to = row;
    for (size_t i = 0; i < bytes / sizeof *to; i++)
        to[i] = to[i] > ((const float *)other)[i] ? to[i] : ((const float *)other)[i];
}

static void skip_observe(const void *state, void *const *observations)
{
    const struct skipped *skipped = state;
    const struct frame_skip *skip = (const void *)skipped->wrapped.wrapping;
    for (size_t i = 0; i < skip->wrapping.tensors; i++) {
        size_t bytes = skip->wrapping.frame_bytes[i];
        memcpy(observations[i], trp_wrapped_frame(state, i, 0), bytes);
        if (skipped->frames > 1)
            take_larger(observations[i], trp_wrapped_frame(state, i, 1), skip->dtypes[i], bytes);
    }
}

const trp_env_impl frame_skip_impl = {
    .state_bytes = sizeof(struct skipped),
    .options = &table,
    .configure = skip_configure,
    .reset = skip_reset,
    .step = skip_step,
    .observe = skip_observe,
};
