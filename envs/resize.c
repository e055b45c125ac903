/* Pictures of another size: a pixel is the mean of the area that it covers. Tensors that are no
 * pictures stay. */
#include "wrapper.h"

#include <math.h>
#include <string.h>

struct picture {
    size_t height, width, channels; /* 0: it is none */
};

struct resize {
    trp_wrapping wrapping;
    uint32_t resize[2];
    struct picture pictures[TRP_OBSERVATIONS_MAX];
};

static const trp_option rows[] = {
    {TRP_OPTION(struct resize, resize), .min = 1, .max = 4096, .unit = "pixels",
     .help = "height and width"},
};
static const trp_option_table table = TRP_OPTION_TABLE("resize", rows, struct resize);

static trp_status resize_configure(void *arguments, void *user, trp_env_spec *spec)
{
    struct resize *resize = arguments;
    size_t pictures = 0;
    (void)user;
    if (resize->resize[1] == 0)
        resize->resize[1] = resize->resize[0];
    for (size_t i = 0; i < resize->wrapping.tensors; i++) {
        trp_tensor_spec *tensor = &spec->observations[i];
        if (tensor->dtype != TRP_UINT8 || tensor->rank < 2 || tensor->rank > 3)
            continue;
        pictures++;
        resize->pictures[i] = (struct picture){(size_t)tensor->shape[0], (size_t)tensor->shape[1],
                                               tensor->rank == 3 ? (size_t)tensor->shape[2] : 1};
        tensor->shape[0] = resize->resize[0];
        tensor->shape[1] = resize->resize[1];
    }
    if (pictures == 0)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "resize: no observation is uint8 [h, w] or [h, w, c]");
    trp_wrapping_keep_frames(&resize->wrapping, 1);
    return TRP_OK;
}

/* How much of [at, at + 1) lies in [begin, end). */
static double overlap(size_t at, double begin, double end)
{
    return fmin((double)at + 1, end) - fmax((double)at, begin);
}

/* One channel of the area of `from` that starts at (y, x) and is high x wide. */
static uint8_t area_mean(const uint8_t *from, const struct picture *picture, double y, double x,
                         double high, double wide)
{
    double sum = 0;
    for (size_t i = (size_t)y; i < picture->height && (double)i < y + high; i++)
        for (size_t k = (size_t)x; k < picture->width && (double)k < x + wide; k++)
            sum += overlap(i, y, y + high) * overlap(k, x, x + wide) *
                   from[(i * picture->width + k) * picture->channels];
    double mean = sum / (high * wide) + 0.5;
    return (uint8_t)(mean < 255 ? mean : 255);
}

static void resize_picture(const struct resize *resize, const struct picture *picture,
                           const uint8_t *from, uint8_t *to)
{
    double high = (double)picture->height / resize->resize[0];
    double wide = (double)picture->width / resize->resize[1];
    for (uint32_t i = 0; i < resize->resize[0]; i++)
        for (uint32_t k = 0; k < resize->resize[1]; k++)
            for (size_t channel = 0; channel < picture->channels; channel++)
                *to++ = area_mean(from + channel, picture, i * high, k * wide, high, wide);
}

static void resize_observe(const void *state, void *const *observations)
{
    const trp_wrapping *wrapping = ((const trp_wrapped *)state)->wrapping;
    const struct resize *resize = (const void *)wrapping;
    for (size_t i = 0; i < wrapping->tensors; i++) {
        if (resize->pictures[i].channels)
            resize_picture(resize, &resize->pictures[i], trp_wrapped_frame(state, i, 0),
                           observations[i]);
        else
            memcpy(observations[i], trp_wrapped_frame(state, i, 0), wrapping->frame_bytes[i]);
    }
}

const trp_env_impl resize_impl = {
    .state_bytes = sizeof(trp_wrapped),
    .options = &table,
    .configure = resize_configure,
    .reset = wrapped_reset_and_look,
    .step = wrapped_step_and_look,
    .observe = resize_observe,
};
