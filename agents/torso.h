/* What reads observations: images of bytes go through convolutions, all else through linear layers.
 * Heads of agents stand on it. */
#ifndef TRP_AGENTS_TORSO_H
#define TRP_AGENTS_TORSO_H

#include <troupe/device.h>
#include <troupe/env.h>
#include <troupe/torso.h>
#include <troupe/updater.h>
#include "bodies/moves.h"

/* Never TRP_TORSO_BY_SHAPE. The environment observes one tensor, here and below. */
trp_torso torso_kind(trp_torso network, const trp_env_spec *env);
struct torso_image torso_image(trp_torso network, const trp_env_spec *env);

/* How batches of what it observes are stacks of frames. */
trp_frame_stacks torso_stacks(const trp_env_spec *env);

/* INVALID_ARGUMENT: what the environment observes is not one tensor, or none that the network
 * reads. `who` ("dqn") begins the message. */
TRP_MUST_USE trp_status torso_check(const char *who, trp_torso network, const trp_env_spec *env);

/* INVALID_ARGUMENT: what it observes is not one row of float32. For networks of linear layers that
 * read something else beside it, such as an action. */
TRP_MUST_USE trp_status torso_check_numbers(const char *who, const trp_env_spec *env);

/* The same of a whole network that reads it: trp_net_spec_check(), with what it observes. */
TRP_MUST_USE trp_status torso_check_net(const char *who, trp_torso network, const trp_env_spec *env,
                                        const trp_net_spec *spec);

/* ---- its layers ---------------------------------------------------------------------------- */

/* Options of linear layers; `hidden` ends at the first zero. */
struct torso_hidden {
    const uint32_t *hidden; /* [TRP_NET_HIDDEN_MAX] */
    trp_activation activation;
    bool normalized; /* behind the first one stand a layer norm, "NAME.norm", and tanh instead of
                        `activation`: Acme's LayerNormMLP */
};

/* The input of a row of numbers; "observation". */
uint32_t torso_add_input(trp_net_spec *spec, const trp_env_spec *env);

/* Linear layers "NAME.0", "NAME.1" ... on layer `from`; returns the last one. */
uint32_t torso_add_hidden(trp_net_spec *spec, uint32_t from, const struct torso_hidden *hidden,
                          const char *name);

/* Begins an empty spec with the input and the network, "body.0" ...; returns the last layer. */
uint32_t torso_begin(trp_net_spec *spec, trp_torso network, const trp_env_spec *env,
                     const struct torso_hidden *hidden);

/* ---- pixels -------------------------------------------------------------------------------- */

/* Rows of observations as the network reads them, [height][width][frames][channels]: where there
 * are several frames in `room`, else where they are. */
const void *torso_pixels(const struct torso_image *image, uint32_t rows, const void *observations,
                         uint8_t *room);

/* The same on a queue; the pointers are its device's. */
const void *torso_pixels_on(trp_queue *queue, const struct torso_image *image, uint32_t rows,
                            const void *observations, uint8_t *room);

/* What they need of room for a row; 0: nothing. */
size_t torso_pixels_bytes(const struct torso_image *image);

#endif
