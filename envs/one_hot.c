/* Integers become rows of zeros with a one in their place: what a network without an embedding
 * reads of a cell, a state, a token. Tensors of other numbers stay. */
#include "wrapper.h"

#include <inttypes.h>
#include <string.h>

#include "limits.h"

struct one_hot {
    trp_wrapping wrapping;
    uint32_t one_hot;
    const char *names[TRP_OBSERVATIONS_MAX];
    size_t bytes[TRP_OBSERVATIONS_MAX]; /* of an integer of a tensor; 0: it has others */
};

static const trp_option rows[] = {
    {TRP_OPTION(struct one_hot, one_hot), .min = 1, .max = ONE_HOT_MAX,
     .help = "how many integers there are: 0 to one less"},
};
static const trp_option_table table = TRP_OPTION_TABLE("one_hot", rows, struct one_hot);

static trp_status one_hot_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct one_hot *hot = arguments;
    size_t found = 0;
    (void)user;
    for (size_t i = 0; i < hot->wrapping.tensors; i++) {
        trp_tensor_spec *tensor = &spec->observations[i];
        if (tensor->dtype != TRP_INT32 && tensor->dtype != TRP_INT64)
            continue;
        if (tensor->rank == TRP_RANK_MAX)
            return trp_fail(TRP_INVALID_ARGUMENT, "one_hot: '%s' has %d axes already", tensor->name,
                            TRP_RANK_MAX);
        hot->names[i] = tensor->name;
        hot->bytes[i] = trp_dtype_size(tensor->dtype);
        tensor->dtype = TRP_FLOAT32;
        tensor->shape[tensor->rank++] = hot->one_hot;
        found++;
    }
    if (found == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "one_hot: no observation is int32 or int64");
    trp_wrapping_keep_frames(&hot->wrapping, 1);
    return TRP_OK;
}

static const struct one_hot *one_hot_of(const void *state)
{
    return (const void *)((const trp_wrapped *)state)->wrapping;
}

static size_t integers_of(const struct one_hot *hot, size_t tensor)
{
    size_t bytes = hot->bytes[tensor];
    return bytes > 0 ? hot->wrapping.frame_bytes[tensor] / bytes : 0;
}

static int64_t integer_at(const struct one_hot *hot, const void *state, size_t tensor, size_t index)
{
    const uint8_t *frame = trp_wrapped_frame(state, tensor, 0);
    int32_t narrow;
    int64_t wide;
    if (hot->bytes[tensor] == sizeof wide) {
        memcpy(&wide, frame + index * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, frame + index * sizeof narrow, sizeof narrow);
    return narrow;
}

static trp_status check_integers(const void *state)
{
    const struct one_hot *hot = one_hot_of(state);
    for (size_t i = 0; i < hot->wrapping.tensors; i++)
        for (size_t k = 0; k < integers_of(hot, i); k++) {
            int64_t integer = integer_at(hot, state, i, k);
            if (integer < 0 || integer >= hot->one_hot)
                return trp_fail(TRP_INVALID_ARGUMENT,
                                "one_hot=%" PRIu32 ": number %zu of '%s' is %" PRId64
                                ", must be 0 to %" PRIu32,
                                hot->one_hot, k, hot->names[i], integer, hot->one_hot - 1);
        }
    return TRP_OK;
}

static trp_status one_hot_reset(void *state, trp_rng *rng)
{
    TRP_TRY(wrapped_reset_and_look(state, rng));
    return check_integers(state);
}

static trp_status one_hot_step(void *state, trp_rng *rng, const void *action,
                               trp_env_outcome *outcome)
{
    TRP_TRY(wrapped_step_and_look(state, rng, action, outcome));
    return check_integers(state);
}

static void one_hot_observe(const void *state, void *const *observations)
{
    const struct one_hot *hot = one_hot_of(state);
    for (size_t i = 0; i < hot->wrapping.tensors; i++) {
        float *to = observations[i];
        size_t count = integers_of(hot, i);
        if (count == 0)
            memcpy(to, trp_wrapped_frame(state, i, 0), hot->wrapping.frame_bytes[i]);
        memset(to, 0, count * hot->one_hot * sizeof *to);
        for (size_t k = 0; k < count; k++) {
            uint64_t integer = (uint64_t)integer_at(hot, state, i, k);
            if (integer < hot->one_hot) /* states that were loaded are not looked at before */
                to[k * hot->one_hot + integer] = 1;
        }
    }
}

const trp_env_impl one_hot_impl = {
    .state_bytes = sizeof(trp_wrapped),
    .options = &table,
    .configure = one_hot_configure,
    .reset = one_hot_reset,
    .step = one_hot_step,
    .observe = one_hot_observe,
};
