/* Colours become brightness (ITU-R BT.601, as Gymnasium and ALE). Tensors that are no pictures
 * stay. */
#include "wrapper.h"

#include <string.h>

struct grayscale {
    trp_wrapping wrapping;
    uint32_t grayscale;
    bool picture[TRP_OBSERVATIONS_MAX];
};

static const trp_option rows[] = {
    {TRP_OPTION(struct grayscale, grayscale), .min = 1, .max = 1, .help = "1: it is wanted"},
};
static const trp_option_table table = TRP_OPTION_TABLE("grayscale", rows, struct grayscale);

static trp_status gray_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct grayscale *gray = arguments;
    size_t pictures = 0;
    (void)user;
    for (size_t i = 0; i < gray->wrapping.tensors; i++) {
        trp_tensor_spec *tensor = &spec->observations[i];
        gray->picture[i] = tensor->dtype == TRP_UINT8 && tensor->rank == 3 && tensor->shape[2] == 3;
        if (gray->picture[i])
            tensor->rank = 2;
        pictures += gray->picture[i];
    }
    if (pictures == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "grayscale: no observation is uint8 [h, w, 3]");
    trp_wrapping_keep_frames(&gray->wrapping, 1);
    return TRP_OK;
}

static void gray_observe(const void *state, void *const *observations)
{
    const trp_wrapping *wrapping = ((const trp_wrapped *)state)->wrapping;
    const struct grayscale *gray = (const void *)wrapping;
    for (size_t i = 0; i < wrapping->tensors; i++) {
        const uint8_t *from = trp_wrapped_frame(state, i, 0);
        uint8_t *to = observations[i];
        if (!gray->picture[i])
            memcpy(to, from, wrapping->frame_bytes[i]);
        for (size_t k = 0; gray->picture[i] && k < wrapping->frame_bytes[i] / 3; k++, from += 3)
            to[k] = (uint8_t)((299U * from[0] + 587U * from[1] + 114U * from[2] + 500) / 1000);
    }
}

const trp_env_impl grayscale_impl = {
    .state_bytes = sizeof(trp_wrapped),
    .options = &table,
    .configure = gray_configure,
    .reset = wrapped_reset_and_look,
    .step = wrapped_step_and_look,
    .observe = gray_observe,
};
