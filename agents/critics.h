/* Critics Q(s, a): several independent networks, which read a row of numbers and an action, one
 * behind the other. A vector has their parameters one behind the other, too: "critic0.0.weight" ...
 * "critic0.head.bias", "critic1.0.weight" ...; target critics are another vector of that kind.
 * Shared by all agents of continuous actions: twin critics of one value (SAC, TD3), one critic of
 * atoms (D4PG), one plan for samples of many actions a state (MPO, CQL).
 *
 * Losses lie in critic_loss.h. */
#ifndef TRP_AGENTS_CRITICS_H
#define TRP_AGENTS_CRITICS_H

#include <troupe/updater.h>
#include "bodies/critics.h"
#include "room.h"
#include "torso.h"

struct critics_options {
    const char *who; /* "td3": begins messages */
    uint32_t count;
    uint32_t outputs; /* of each: 1, or atoms */
    struct torso_hidden hidden;
    trp_precision precision;
    uint32_t threads; /* of their passes; 0: 1 */
};

struct critics {
    uint32_t count, outputs;
    uint32_t size; /* numbers of an action */
    size_t each;   /* parameters of one */
    trp_net_spec spec;
    trp_net *nets[CRITICS_MAX];
    trp_net_tensor *tensors;
    size_t tensor_count;
    /* Of a room: */
    float *values[CRITICS_MAX];   /* [batch][outputs]: for passes, as much as is needed at once */
    float *dactions[CRITICS_MAX]; /* [batch][size] */
};

/* A pass through the first `count` of them (0: all). Pointers are the device's. A plan keeps what
 * belongs to its last pass forward: backward comes before the next one. */
struct critics_pass {
    trp_queue *queue;
    const float *params; /* the vector */
    uint32_t count, rows;
    const float *states, *actions; /* actions are in [-1, 1], see box.h */
    float *const *values;          /* [count]: [rows][outputs] each; before backward, derivatives */
};

/* INVALID_ARGUMENT: they cannot read what the environment observes. */
TRP_MUST_USE trp_status critics_check(const struct critics_options *options,
                                      const trp_env_spec *env);

/* For passes of at most `batch` rows, with memory of `room`. `critics` is zeroed and has to be
 * cleaned up in any case, after what is put on queues is done. */
TRP_MUST_USE trp_status critics_create(struct critics *critics,
                                       const struct critics_options *options,
                                       const trp_env_spec *env, uint32_t batch, struct room *room);
void critics_cleanup(struct critics *critics);

/* The vector of their parameters, without an optimizer; its tensors are the critics'. */
trp_vector_spec critics_vector(const struct critics *critics, const char *name);

void critics_init(const struct critics *critics, trp_rng *rng, float *params);

void critics_forward(struct critics *critics, const struct critics_pass *pass);

/* Adds to the gradient of the vector. */
void critics_backward(struct critics *critics, const struct critics_pass *pass, float *grads);

/* The same, at last: nothing is added any more in this phase. */
void critics_backward_last(struct critics *critics, const struct critics_pass *pass,
                           const trp_update *update, size_t vector);

/* The gradient of the pass' actions, [rows][size], until the next call: what a policy follows. */
const float *critics_backward_actions(struct critics *critics, const struct critics_pass *pass);

/* Adds `more`, [rows][size], to it. */
void critics_add_actions(const struct critics *critics, const struct critics_pass *pass,
                         const float *more);

#endif
