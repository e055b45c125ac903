/* Which network reads an environment's observations, and its layers.
 *
 * An image is [height][width][channels], as networks read it (nn.h). Wrappers put the frames of a
 * stack in front: these are sorted behind the pixels, as channels, whenever rows go in. */
#include "torso.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct torso_image image_of(const trp_tensor_spec *spec)
{
    struct torso_image image = {.frames = 1, .channels = 1};
    if (spec->dtype != TRP_UINT8 || spec->rank < 2 || spec->rank > 4)
        return (struct torso_image){0};
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

trp_torso torso_kind(trp_torso network, const trp_env_spec *env)
{
    if (network != TRP_TORSO_BY_SHAPE)
        return network;
    return image_of(&env->observations[0]).frames > 0 ? TRP_TORSO_NATURE : TRP_TORSO_MLP;
}

struct torso_image torso_image(trp_torso network, const trp_env_spec *env)
{
    return torso_kind(network, env) == TRP_TORSO_MLP ? (struct torso_image){0}
                                                     : image_of(&env->observations[0]);
}

trp_frame_stacks torso_stacks(const trp_env_spec *env)
{
    struct torso_image image = image_of(&env->observations[0]);
    if (trp_env_observation_count(env) != 1 || image.frames < 2)
        return (trp_frame_stacks){0};
    return (trp_frame_stacks){image.frames, torso_pixels_bytes(&image) / image.frames};
}

/* ---- checks -------------------------------------------------------------------------------- */

static const char *kind_name(trp_torso kind)
{
    static const char *const names[] = {
        [TRP_TORSO_MLP] = "mlp", [TRP_TORSO_NATURE] = "nature", [TRP_TORSO_IMPALA] = "impala"};
    return names[kind];
}

/* "uint8 [36][36][3]" */
static void observation_text(const trp_tensor_spec *spec, char text[256])
{
    int used = snprintf(text, 256, "%s ", trp_dtype_name(spec->dtype));
    for (uint32_t i = 0; i < spec->rank; i++)
        used += snprintf(text + used, 256 - (size_t)used, "[%" PRId64 "]", spec->shape[i]);
}

trp_status torso_check(const char *who, trp_torso network, const trp_env_spec *env)
{
    if (trp_env_observation_count(env) != 1)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: %s observes %zu tensors, needs one", who,
                        env->name, trp_env_observation_count(env));
    trp_dtype dtype = env->observations[0].dtype;
    if (dtype != TRP_FLOAT32 && dtype != TRP_UINT8)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s: %s observes integers, needs float32 or uint8: its network has no "
                        "embedding; \"%s%cone_hot=N\" makes rows of N floats of integers below N",
                        who, env->name, env->name, strchr(env->name, '?') ? '&' : '?');
    char shape[256];
    trp_torso kind = torso_kind(network, env);
    observation_text(&env->observations[0], shape);
    if (kind != TRP_TORSO_MLP && torso_image(network, env).frames == 0)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s: %s observes %s; the network %s reads images of bytes, "
                        "[height][width][channels] or frames of them: network=mlp reads numbers",
                        who, env->name, shape, kind_name(kind));
    return TRP_OK;
}

trp_status torso_check_numbers(const char *who, const trp_env_spec *env)
{
    TRP_TRY(torso_check(who, TRP_TORSO_MLP, env));
    if (env->observations[0].dtype == TRP_FLOAT32)
        return TRP_OK;
    char shape[256];
    observation_text(&env->observations[0], shape);
    return trp_fail(TRP_INVALID_ARGUMENT, "%s: %s observes %s, needs float32: it reads no images",
                    who, env->name, shape);
}

trp_status torso_check_net(const char *who, trp_torso network, const trp_env_spec *env,
                           const trp_net_spec *spec)
{
    if (trp_net_spec_check(spec) == TRP_OK)
        return TRP_OK;
    char shape[256];
    trp_torso kind = torso_kind(network, env);
    observation_text(&env->observations[0], shape);
    return trp_fail(TRP_INVALID_ARGUMENT, "%s: %s observes %s; the network %s does not fit: %s%s",
                    who, env->name, shape, kind_name(kind), trp_last_error(),
                    kind == TRP_TORSO_NATURE
                        ? ": images need 36 x 36 pixels, smaller ones network=impala or mlp"
                        : "");
}

/* ---- layers -------------------------------------------------------------------------------- */

uint32_t torso_add_input(trp_net_spec *spec, const trp_env_spec *env)
{
    const trp_tensor_spec *observation = &env->observations[0];
    size_t columns = trp_tensor_bytes(observation) / trp_dtype_size(observation->dtype);
    return trp_net_add(spec, (trp_layer){.kind = TRP_INPUT,
                                         .name = "observation",
                                         .dtype = observation->dtype,
                                         .shape = {(uint32_t)columns}});
}

static uint32_t add_norm(trp_net_spec *spec, uint32_t from, const char *name)
{
    trp_layer norm = {.kind = TRP_LAYER_NORM, .from = {from}};
    snprintf(norm.name, sizeof norm.name, "%.20s.norm", name);
    from = trp_net_add(spec, norm);
    return trp_net_add(spec,
                       (trp_layer){.kind = TRP_ACTIVATION, .from = {from}, .activation = TRP_TANH});
}

uint32_t torso_add_hidden(trp_net_spec *spec, uint32_t from, const struct torso_hidden *hidden,
                          const char *name)
{
    for (uint32_t i = 0; i < TRP_NET_HIDDEN_MAX && hidden->hidden[i] > 0; i++) {
        bool norm = hidden->normalized && i == 0;
        trp_layer layer = {.kind = TRP_LINEAR,
                           .from = {from},
                           .size = hidden->hidden[i],
                           .activation = norm ? TRP_NO_ACTIVATION : hidden->activation};
        snprintf(layer.name, sizeof layer.name, "%.20s.%" PRIu32, name, i);
        from = trp_net_add(spec, layer);
        if (norm)
            from = add_norm(spec, from, name);
    }
    return from;
}

uint32_t torso_begin(trp_net_spec *spec, trp_torso network, const trp_env_spec *env,
                     const struct torso_hidden *hidden)
{
    trp_torso kind = torso_kind(network, env);
    struct torso_image image = torso_image(network, env);
    if (kind == TRP_TORSO_MLP)
        return torso_add_hidden(spec, torso_add_input(spec, env), hidden, "body");
    trp_cnn_options cnn = {.height = image.height,
                           .width = image.width,
                           .channels = image.frames * image.channels,
                           .outputs = 1};
    *spec = kind == TRP_TORSO_NATURE ? trp_nature_cnn(&cnn) : trp_impala_resnet(&cnn);
    spec->output_count = 0; /* its one layer is the last */
    memset(spec->outputs, 0, sizeof spec->outputs);
    memset(&spec->layers[--spec->layer_count], 0, sizeof *spec->layers);
    return spec->layer_count - 1;
}

/* ---- pixels -------------------------------------------------------------------------------- */

const void *torso_pixels(const struct torso_image *image, uint32_t rows, const void *observations,
                         uint8_t *room)
{
    if (image->frames < 2)
        return observations;
    struct pixels_arguments job = {*image, rows, observations, room};
    pixels_run(&job);
    return room;
}

size_t torso_pixels_bytes(const struct torso_image *image)
{
    size_t row = (size_t)image->frames * image->height * image->width * image->channels;
    return image->frames < 2 ? 0 : row;
}

const void *torso_pixels_on(trp_queue *queue, const struct torso_image *image, uint32_t rows,
                            const void *observations, uint8_t *room)
{
    static const trp_kernel kernel = {.name = "torso.pixels", .run = pixels_run};
    size_t bytes = rows * torso_pixels_bytes(image);
    if (bytes == 0)
        return observations;
    struct pixels_arguments job = {*image, rows, observations, room};
    trp_operand operands[] = {{offsetof(struct pixels_arguments, observations), bytes, TRP_READ},
                              {offsetof(struct pixels_arguments, room), bytes, TRP_WRITE}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, 2);
    return room;
}
