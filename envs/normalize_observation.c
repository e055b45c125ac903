/* Observations about 0 with a spread of 1, by the mean and the variance of all that were seen. */
#include "wrapper.h"

#include <math.h>
#include <string.h>

struct normalize_observation {
    trp_wrapping wrapping;
    float normalize_observation;
    bool is_float[TRP_OBSERVATIONS_MAX];
};

static const trp_option rows[] = {
    {TRP_OPTION(struct normalize_observation, normalize_observation), .min = 1e-6, .max = 1e6,
     .help = "the largest normalised number, and the smallest below 0"},
};
static const trp_option_table table =
    TRP_OPTION_TABLE("normalize_observation", rows, struct normalize_observation);

static const struct normalize_observation *arguments_of(const void *state)
{
    return (const void *)((const trp_wrapped *)state)->wrapping;
}

static trp_status normalize_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct normalize_observation *normalize = arguments;
    trp_wrapping *wrapping = &normalize->wrapping;
    (void)user;
    for (size_t i = 0; i < wrapping->tensors; i++) {
        normalize->is_float[i] = spec->observations[i].dtype == TRP_FLOAT32;
        if (normalize->is_float[i])
            wrapping->statistics += wrapping->frame_bytes[i] / sizeof(float);
    }
    if (wrapping->statistics == 0)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "normalize_observation: no observation is of float32");
    trp_wrapping_keep_frames(wrapping, 1);
    return TRP_OK;
}

static const float *frame_floats(const void *state, size_t tensor, size_t *count)
{
    const struct normalize_observation *normalize = arguments_of(state);
    *count =
        normalize->is_float[tensor] ? normalize->wrapping.frame_bytes[tensor] / sizeof(float) : 0;
    return (const void *)trp_wrapped_frame(state, tensor, 0);
}

/* What is no number is refused by who steps. */
static bool frame_is_finite(const void *state)
{
    for (size_t t = 0; t < arguments_of(state)->wrapping.tensors; t++) {
        size_t count;
        const float *frame = frame_floats(state, t, &count);
        for (size_t i = 0; i < count; i++)
            if (!isfinite(frame[i]))
                return false;
    }
    return true;
}

static void count_frame(const void *state)
{
    const struct statistics *statistics = wrapped_statistics(state);
    if (statistics->read_only || !frame_is_finite(state))
        return;
    trp_moments *seen = statistics->seen + wrapped_statistic(state);
    for (size_t t = 0; t < arguments_of(state)->wrapping.tensors; t++) {
        size_t count;
        const float *frame = frame_floats(state, t, &count);
        for (size_t i = 0; i < count; i++)
            trp_moments_add(seen++, frame[i]);
    }
}

static trp_status normalize_reset(void *state, trp_rng *rng)
{
    TRP_TRY(wrapped_reset_and_look(state, rng));
    count_frame(state);
    return TRP_OK;
}

static trp_status normalize_step(void *state, trp_rng *rng, const void *action,
                                 trp_env_outcome *outcome)
{
    TRP_TRY(wrapped_step_and_look(state, rng, action, outcome));
    count_frame(state);
    return TRP_OK;
}

static float normalize(float raw, const trp_moments *used, float bound)
{
    if (!isfinite(raw))
        return raw;
    float scaled = (float)statistic_scale(raw - (used->count < 2 ? 0 : used->mean), used);
    return scaled > bound ? bound : scaled < -bound ? -bound : scaled;
}

static void normalize_observe(const void *state, void *const *observations)
{
    const struct normalize_observation *arguments = arguments_of(state);
    const trp_moments *used = wrapped_statistics(state)->used + wrapped_statistic(state);
    for (size_t t = 0; t < arguments->wrapping.tensors; t++) {
        size_t count;
        const float *frame = frame_floats(state, t, &count);
        float *to = observations[t];
        if (!arguments->is_float[t])
            memcpy(to, frame, arguments->wrapping.frame_bytes[t]);
        for (size_t i = 0; i < count; i++)
            to[i] = normalize(frame[i], used++, arguments->normalize_observation);
    }
}

const trp_env_impl normalize_observation_impl = {
    .state_bytes = sizeof(trp_wrapped),
    .options = &table,
    .configure = normalize_configure,
    .reset = normalize_reset,
    .step = normalize_step,
    .observe = normalize_observe,
};
