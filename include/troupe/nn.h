/* Arithmetic of learning: networks over one flat parameter vector, the double-Q loss.
 *
 * Parameters, gradients and optimizer state are flat float vectors of trp_net_param_count()
 * elements that the caller owns; every tensor in them starts at a multiple of 64 bytes and what
 * lies between tensors is zero. So publishing, reducing, clipping, stepping and saving are loops
 * over one vector or a range of it. A plan (trp_net) knows the sizes and owns the workspace; after
 * its creation nothing is allocated. The same plan on the same machine gives the same bits.
 *
 *     // One step of double Q-learning; what follows is an optimizer's (optimizer.h).
 *     static trp_status differentiate(const trp_q_batch *batch, float *td_errors)
 *     {
 *         trp_net_spec spec = {.inputs = 4, .hidden = {64, 64}, .outputs = 2};
 *         trp_net *net;
 *         TRP_TRY(trp_net_create(&net, &(trp_net_options){.spec = spec, .batch = batch->rows}));
 *         size_t count = trp_net_param_count(&spec);
 *         float *params = trp_floats_create(count), *target = trp_floats_create(count);
 *         float *grads = trp_floats_create(count);
 *         trp_rng rng;
 *         trp_rng_init(&rng, 1, 0);
 *         trp_net_init(&spec, &rng, params);
 *         memcpy(target, params, count * sizeof *params);
 *         trp_q_step(net, NULL, params, target, batch, grads, td_errors);
 *         trp_floats_destroy(params);
 *         trp_floats_destroy(target);
 *         trp_floats_destroy(grads);
 *         trp_net_destroy(net);
 *         return TRP_OK;
 *     }
 */
#ifndef TRP_NN_H
#define TRP_NN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/rng.h>
#include <troupe/status.h>

TRP_BEGIN_DECLS

/* ---- vectors ----------------------------------------------------------------------------- */

/* `count` zeroed floats at a multiple of 64 bytes; aborts when there is no memory. NULL is a fine
 * argument to destroy. */
TRP_API float *trp_floats_create(size_t count);
TRP_API void trp_floats_destroy(float *floats);

/* ---- networks ---------------------------------------------------------------------------- */

typedef enum { TRP_RELU, TRP_TANH } trp_activation;

enum { TRP_NET_HIDDEN_MAX = 8 };

/* A fully connected network: linear layers with `activation` after each but the last. `dueling`
 * (Wang et al. 2016): the last hidden layer exists twice, for a value and an advantage stream, and
 * the output is V + A - mean A. Plain data; compare and hash it as such after zeroing. */
typedef struct {
    uint32_t inputs, outputs;
    uint32_t hidden[TRP_NET_HIDDEN_MAX]; /* ends at the first zero */
    trp_activation activation;
    bool dueling;
} trp_net_spec;

typedef enum {
    TRP_BACKEND_AUTO, /* the fastest one there is */
    TRP_BACKEND_REF,  /* naive loops: the specification */
    TRP_BACKEND_CPU,  /* own kernels for this processor, oneDNN for big layers */
} trp_backend;

typedef struct {
    trp_net_spec spec;
    uint32_t batch;      /* most rows of one call; 0: 1 */
    trp_backend backend; /* 0: auto */
    uint32_t threads;    /* threads of one call, the calling one included; 0: 1. More than one pays
                            when trp_net_step_flops() is above about 100 million */
} trp_net_options;

typedef struct trp_net trp_net;

/* A plan: sizes, workspace and, with more than one thread, the threads. It belongs to one thread at
 * a time. INVALID_ARGUMENT names what is wrong with `options`; RESOURCE_EXHAUSTED: no memory. */
TRP_API TRP_MUST_USE trp_status trp_net_create(trp_net **out, const trp_net_options *options);
TRP_API void trp_net_destroy(trp_net *net); /* NULL is fine */

/* OK, or INVALID_ARGUMENT with what is wrong: sizes of 0 or above 65536, more than 2^28 parameters,
 * an unknown activation. */
TRP_API TRP_MUST_USE trp_status trp_net_spec_check(const trp_net_spec *spec);

/* Floats in the flat vector, padding included; a multiple of 16. `spec` is valid. */
TRP_API size_t trp_net_param_count(const trp_net_spec *spec);

/* Floating point operations of one forward and backward over `rows`. `spec` is valid. */
TRP_API double trp_net_step_flops(const trp_net_spec *spec, uint32_t rows);

/* PyTorch's default for nn.Linear: weights and biases uniform in +-1/sqrt(inputs of the layer). */
TRP_API void trp_net_init(const trp_net_spec *spec, trp_rng *rng, float *params);

/* out[rows][outputs] = network(in[rows][inputs]), 1 <= rows <= batch. The plan keeps what
 * trp_net_backward() needs, until the next forward. */
TRP_API void trp_net_forward(trp_net *net, const float *params, const float *in, uint32_t rows,
                             float *out);

/* Called while gradients become final: [lo, count) of the flat vector is, `lo` falls to 0. */
typedef void (*trp_grads_ready)(void *context, size_t lo);

/* Adds the gradient of sum(dout * out) of the last forward to `grads`. `params`, `in` and the rows
 * are those of that forward. `ready` may be NULL. */
TRP_API void trp_net_backward(trp_net *net, const float *params, const float *in, const float *dout,
                              float *grads, trp_grads_ready ready, void *context);

/* The index of the largest of `count` > 0 values; the first one of equals. NaN is the least. */
TRP_API uint32_t trp_argmax(const float *values, uint32_t count);

/* ---- losses ------------------------------------------------------------------------------ */

/* One batch of transitions; everything is borrowed. Actions are < outputs (asserted). */
typedef struct {
    uint32_t rows;
    const float *states, *next_states; /* [rows][inputs] */
    const int32_t *actions;
    const float *rewards;   /* n-step returns */
    const float *discounts; /* of the value at the next state; 0 where the episode terminated */
    const float *weights;   /* importance weights; NULL: 1 */
} trp_q_batch;

typedef struct {
    float huber_delta; /* 0: 1 */
    bool single_q;     /* max of the target network instead of double Q */
} trp_q_options;

typedef struct {
    float loss;   /* mean of weight * huber(td error) */
    float mean_q; /* mean of the chosen actions' values */
} trp_q_result;

/* Double Q-learning (van Hasselt et al. 2016): td_errors[i] = rewards[i] + discounts[i] *
 * next_target[i][argmax next_online[i]] - q[i][actions[i]], and dq[rows][outputs] = the gradient of
 * the loss with respect to q. `next_online` is not read with single_q; `dq` may be q.
 * batch->states and next_states are not read. */
TRP_API trp_q_result trp_q_loss(const trp_q_options *options, const trp_q_batch *batch,
                                uint32_t outputs, const float *q, const float *next_online,
                                const float *next_target, float *td_errors, float *dq);

/* The same for given targets: td_errors[i] = targets[i] - q[i][actions[i]]. Of `batch` only rows,
 * actions and weights are read. */
TRP_API trp_q_result trp_q_loss_to(const trp_q_options *options, const trp_q_batch *batch,
                                   uint32_t outputs, const float *q, const float *targets,
                                   float *td_errors, float *dq);

/* The whole gradient step: the target network and the online one on next_states, the online one
 * forward and backward on states. Adds to `grads`; writes td_errors[rows]. `options` may be NULL.
 * batch->rows <= the plan's batch. */
TRP_API trp_q_result trp_q_step(trp_net *net, const trp_q_options *options, const float *params,
                                const float *target_params, const trp_q_batch *batch, float *grads,
                                float *td_errors);

TRP_END_DECLS
#endif
