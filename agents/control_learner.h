/* What updaters of continuous actions have and do alike: a policy's network, critics, a target copy
 * of each, a batch; passes through them, and a policy's phase. An updater begins with it. All that
 * is done to vectors is put on the update's queue. */
#ifndef TRP_AGENTS_CONTROL_LEARNER_H
#define TRP_AGENTS_CONTROL_LEARNER_H

#include "control_agent.h"
#include "control_batch.h"
#include "normalizer.h"
#include "target.h"

/* Vectors, of which an updater may have more: "params", "critics", "target_critics" and
 * "target_params"; the first alone without critics. */
enum {
    CONTROL_PARAMS,
    CONTROL_CRITICS,
    CONTROL_TARGET_CRITICS,
    CONTROL_TARGET_PARAMS, /* not there without a target policy */
    CONTROL_VECTORS
};

struct control_learner {
    trp_updater base;
    trp_updater_impl impl;
    enum control_kind kind; /* of the policy, as what follows */
    trp_net_spec spec;
    struct normalizer normalizer;
    float *normalizer_numbers; /* a fresh run begins with; the host's */
    float *normal_states, *normal_next_states;
    trp_net *policy;
    size_t policy_first; /* where its parameters begin in the vectors that have them */
    bool target_policy;
    trp_net_tensor tensors[2 + TRP_NET_TENSORS_MAX]; /* of params */
    struct critics critics;
    struct control_batch batch;
    struct room room;
};

struct control_learner_options {
    struct control_agent agent;
    bool one_policy;  /* there is no target policy */
    uint32_t samples; /* rows of a pass through critics for each row of a batch; 0: 1 */
    uint32_t batch_size;
    float learning_rate, critic_learning_rate, max_gradient_norm; /* of Adam */
    float importance_exponent, priority_epsilon;
};

/* What the updater's implementation is on a device; on a host, which has done everything when a
 * step returns, it has no collect(). Memory of its own may be added to the room afterwards. The
 * learner is zeroed and has to be cleaned up in any case. */
TRP_MUST_USE trp_status control_learner_create(struct control_learner *learner,
                                               const trp_updater_impl *impl,
                                               const struct control_learner_options *options,
                                               const trp_env_spec *env,
                                               const trp_updater_options *place);
void control_learner_cleanup(struct control_learner *learner);

/* Of these vectors: targets begin as copies. */
void control_learner_init(const struct control_learner *learner, trp_rng *rng,
                          float *const *vectors);

/* Begins a step: control_batch_take(), with states as networks see them. */
TRP_MUST_USE trp_status control_learner_take(struct control_learner *learner,
                                             const trp_update *update);

/* What the policy of a vector says at states of the batch, into its `outputs`, one or two. */
trp_net_rows control_learner_say(struct control_learner *learner, const trp_update *update,
                                 size_t vector, const float *states, float *const *outputs);

/* What the critics of a vector say of states of the batch and actions, into critics.values. */
struct critics_pass control_learner_judge(struct control_learner *learner, const trp_update *update,
                                          size_t vector, const float *states, const float *actions);

/* The critics' targets of the batch, where `actions` come next: what the lesser of two target
 * critics says of them. */
void control_learner_aim(struct control_learner *learner, const trp_update *update,
                         const float *actions, float *targets);

/* Ends the policy's phase: `grads` are those of what it said, `loss` is the device's. */
TRP_MUST_USE trp_status control_learner_follow(struct control_learner *learner,
                                               const trp_update *update, const trp_net_rows *said,
                                               const float *const *grads, const float *loss);

/* The targets follow. */
void control_learner_target(const struct control_learner *learner, const struct target_rule *how,
                            const trp_update *update);

#endif
