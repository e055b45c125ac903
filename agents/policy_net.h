/* The network of a policy, which only runs forward: on the CPU, or on a device, to which the rows
 * of a call are copied, all at once, of stacked frames those that it has not (frame_ring.h), and
 * from which comes what it says of them. */
#ifndef TRP_AGENTS_POLICY_NET_H
#define TRP_AGENTS_POLICY_NET_H

#include <troupe/agent.h>
#include <troupe/nn.h>

#include "torso.h"

struct policy_net_options {
    const char *who; /* "dqn": begins messages */
    const trp_net_spec *spec;
    const trp_env_spec *env;
    const trp_policy_options *place; /* rows of a call, and the device */
    trp_torso network;               /* as torso_image() takes it */
    trp_precision precision;
};

/* Its memory on a device that is no host. */
struct policy_net_there;

struct policy_net {
    const char *who;
    trp_net *net;
    uint32_t rows; /* of a call, at most */
    struct torso_image image;
    uint8_t *pixels; /* rows of it; NULL: as they come */
    float *params;
    size_t param_count;
    trp_net_tensor tensors[TRP_NET_TENSORS_MAX];
    struct policy_net_there *there; /* NULL: all is the host's */
};

/* Sets what `policy` says of its parameters and its device, too; `net` is a member of it. A net
 * that could not be made, or is zeroed, may be cleaned up. Fails as trp_net_create(),
 * trp_queue_create() and trp_device_alloc(). */
TRP_MUST_USE trp_status policy_net_create(struct policy_net *net, trp_policy *policy,
                                          const struct policy_net_options *options);
void policy_net_cleanup(struct policy_net *net);

/* trp_policy_impl.load. */
TRP_MUST_USE trp_status policy_net_load(struct policy_net *net, const float *params, size_t count);

/* INVALID_ARGUMENT: more rows than it was made for, or a slot whose frames it does not keep. */
TRP_MUST_USE trp_status policy_net_check(const struct policy_net *net, const trp_act *act);

/* Draws new noise for its noisy layers, of which there may be none. */
void policy_net_resample(struct policy_net *net, trp_rng *rng);

trp_status policy_net_say_there(struct policy_net *net, const trp_act *act,
                                const trp_net_rows *rows);

/* trp_net_forward() of a call's rows and observations, with all outputs, and no steps; all memory
 * is the host's. Fails as trp_queue_sync(): never on a host. */
TRP_MUST_USE static inline trp_status policy_net_say(struct policy_net *net, const trp_act *act,
                                                     trp_net_rows *rows)
{
    if (net->there)
        return policy_net_say_there(net, act, rows);
    rows->rows = act->rows;
    rows->inputs[0] = act->observations[0];
    if (net->pixels)
        rows->inputs[0] = torso_pixels(&net->image, act->rows, act->observations[0], net->pixels);
    trp_net_forward(net->net, net->params, rows);
    return TRP_OK;
}

#endif
