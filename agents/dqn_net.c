/* The network of DQN, by its option or by what the environment observes: images of bytes go through
 * convolutions, all else through linear layers.
 *
 * An image is [height][width][channels], as networks read it (nn.h). Wrappers put the frames of a
 * stack in front: these are sorted behind the pixels, as channels, whenever rows go in. */
#include "dqn.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"

static struct dqn_image image_of(const trp_tensor_spec *spec)
{
    struct dqn_image image = {.frames = 1, .channels = 1};
    if (spec->dtype != TRP_UINT8 || spec->rank < 2 || spec->rank > 4)
        return (struct dqn_image){0};
    const int64_t *shape = spec->shape;
    bool stack = spec->rank == 4 || (spec->rank == 3 && shape[0] < shape[1] && shape[0] < shape[2]);
    if (stack)
        image.frames = (uint32_t)*shape++;
    image.height = (uint32_t)*shape++;
    image.width = (uint32_t)*shape++;
    if (shape < spec->shape + spec->rank)
        image.channels = (uint32_t)*shape;
    return image;
}

static trp_dqn_network network_of(const trp_dqn_options *options, const trp_env_spec *env)
{
    if (options->network != TRP_DQN_BY_SHAPE)
        return options->network;
    return image_of(&env->observations[0]).frames > 0 ? TRP_DQN_NATURE : TRP_DQN_MLP;
}

struct dqn_image dqn_image(const trp_dqn_options *options, const trp_env_spec *env)
{
    return network_of(options, env) == TRP_DQN_MLP ? (struct dqn_image){0}
                                                   : image_of(&env->observations[0]);
}

trp_net_spec dqn_net_spec(const trp_dqn_options *options, const trp_env_spec *env)
{
    const trp_tensor_spec *observation = &env->observations[0];
    struct dqn_image image = dqn_image(options, env);
    uint32_t outputs = (uint32_t)env->action_count * dqn_atoms(options);
    trp_cnn_options cnn = {.height = image.height,
                           .width = image.width,
                           .channels = image.frames * image.channels,
                           .outputs = outputs,
                           .dueling = options->dueling,
                           .atoms = dqn_atoms(options),
                           .noisy = options->noisy};
    trp_mlp_options mlp = {
        .inputs = (uint32_t)(trp_tensor_bytes(observation) / trp_dtype_size(observation->dtype)),
        .outputs = outputs,
        .activation = options->activation,
        .dtype = observation->dtype,
        .dueling = options->dueling,
        .atoms = dqn_atoms(options),
        .noisy = options->noisy};
    memcpy(mlp.hidden, options->hidden, sizeof mlp.hidden);
    trp_dqn_network network = network_of(options, env);
    if (network == TRP_DQN_NATURE)
        return trp_nature_cnn(&cnn);
    return network == TRP_DQN_IMPALA ? trp_impala_resnet(&cnn) : trp_mlp(&mlp);
}

/* "uint8 [36][36][3]" */
static void observation_text(const trp_tensor_spec *spec, char text[256])
{
    int used = snprintf(text, 256, "%s ", trp_dtype_name(spec->dtype));
    for (uint32_t i = 0; i < spec->rank; i++)
        used += snprintf(text + used, 256 - (size_t)used, "[%" PRId64 "]", spec->shape[i]);
}

trp_status dqn_net_check(const trp_dqn_options *options, const trp_env_spec *env)
{
    static const char *const names[] = {
        [TRP_DQN_MLP] = "mlp", [TRP_DQN_NATURE] = "nature", [TRP_DQN_IMPALA] = "impala"};
    const char *name = names[network_of(options, env)];
    char shape[256];
    observation_text(&env->observations[0], shape);
    if (network_of(options, env) != TRP_DQN_MLP && dqn_image(options, env).frames == 0)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "dqn: %s observes %s; the network %s reads images of bytes, "
                        "[height][width][channels] or frames of them: network=mlp reads numbers",
                        env->name, shape, name);
    trp_net_spec spec = dqn_net_spec(options, env);
    if (trp_net_spec_check(&spec) == TRP_OK)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT, "dqn: %s observes %s; the network %s does not fit: %s%s",
                    env->name, shape, name, trp_last_error(),
                    network_of(options, env) == TRP_DQN_NATURE
                        ? ": images need 36 x 36 pixels, smaller ones network=impala or mlp"
                        : "");
}

const void *dqn_pixels(const struct dqn_image *image, uint32_t rows, const void *observations,
                       uint8_t *room)
{
    if (image->frames < 2)
        return observations;
    const uint8_t *from = observations;
    uint8_t *to = room;
    size_t channels = image->channels, pixels = (size_t)image->height * image->width;
    size_t frame = pixels * channels;
    for (uint32_t row = 0; row < rows; row++, from += frame * image->frames)
        for (size_t pixel = 0; pixel < frame; pixel += channels)
            for (uint32_t i = 0; i < image->frames; i++, to += channels)
                memcpy(to, from + i * frame + pixel, channels);
    return room;
}

size_t dqn_pixels_bytes(const struct dqn_image *image)
{
    size_t row = (size_t)image->frames * image->height * image->width * image->channels;
    return image->frames < 2 ? 0 : row;
}

struct pixels_job {
    struct dqn_image image;
    uint32_t rows;
    const void *observations;
    uint8_t *room;
};

static void sort_pixels(void *arguments)
{
    const struct pixels_job *job = arguments;
    dqn_pixels(&job->image, job->rows, job->observations, job->room);
}

const void *dqn_pixels_on(trp_queue *queue, const struct dqn_image *image, uint32_t rows,
                          const void *observations, uint8_t *room)
{
    static const trp_kernel kernel = {"dqn.pixels", sort_pixels};
    size_t bytes = rows * dqn_pixels_bytes(image);
    if (bytes == 0)
        return observations;
    struct pixels_job job = {*image, rows, observations, room};
    trp_operand operands[] = {{offsetof(struct pixels_job, observations), bytes, TRP_READ},
                              {offsetof(struct pixels_job, room), bytes, TRP_WRITE}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 2);
    return room;
}
