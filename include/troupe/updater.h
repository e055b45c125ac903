/* Updaters: what an algorithm does with batches. An updater computes gradients; the learner owns
 * the vectors they are of, combines them with those of other learners, applies the optimizer,
 * publishes and saves. So one step looks like this:
 *
 *     static trp_status my_step(trp_updater *updater, const trp_update *update)
 *     {
 *         update->grads[0][0] = update->vectors[0][0]; // of half its square
 *         TRP_TRY(trp_update_apply(update, 0)); // reduce, clip, optimizer; the gradient is 0 again
 *         trp_update_report(update, "loss", 0.5);
 *         return TRP_OK;
 *     }
 *
 * An algorithm with several phases (SAC's critic, actor and temperature; PPO's epochs) calls
 * trp_update_apply() once a phase. */
#ifndef TRP_UPDATER_H
#define TRP_UPDATER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/checkpoint.h>
#include <troupe/columns.h>
#include <troupe/device.h>
#include <troupe/nn.h>
#include <troupe/optimizer.h>
#include <troupe/rng.h>
#include <troupe/sampler.h>
#include <troupe/status.h>

TRP_BEGIN_DECLS

typedef struct trp_updater trp_updater;

/* ---- what it declares -------------------------------------------------------------------- */

/* Observations that are stacks of frames, the oldest one first (frame_stack of env.h): columns
 * "observation" and "next_observation", of bytes, have `frames` for each step, of `bytes` each. To
 * a device a frame goes once, whatever stacks of the batch have it one behind the other. */
typedef struct {
    uint32_t frames; /* 0: there are none */
    size_t bytes;
} trp_frame_stacks;

/* Where batches come from: one per step and source. */
typedef struct {
    const char *table;   /* whose items they are; also what messages call the source */
    trp_columns columns; /* of one item; trp_updater_destroy() frees it */
    uint32_t batch_size;
    bool writes_priorities;
    trp_frame_stacks stacks;
} trp_batch_spec;

/* A flat vector of floats, the learner's: what is learned, or (without an optimizer) what goes with
 * it, such as a target network. All of them are in the checkpoint. */
typedef struct {
    const char *name; /* static; "params", or a part of it, is what actors pull; there is one */
    size_t count;
    bool learned;            /* has a gradient and an optimizer */
    trp_optimizer optimizer; /* of a learned one */
    /* What lies where in it, by offset; the updater's own memory. LAMB needs it. NULL: one piece.
     */
    const trp_net_tensor *tensors;
    size_t tensor_count;
    /* Of "params": the numbers that actors pull, such as a policy's network in one vector with its
     * critics. It cuts through no tensor. A count of 0: all from the first on. */
    size_t published_first, published_count;
    /* Of a learned one: its first numbers that have no gradient and stay as they are, such as means
     * of a dataset. A learner refuses a compression that would move them. */
    size_t fixed_count;
} trp_vector_spec;

enum { TRP_UPDATER_SOURCES_MAX = 8, TRP_UPDATER_VECTORS_MAX = 16, TRP_UPDATER_TENSORS_MAX = 16 };

/* ---- one step ---------------------------------------------------------------------------- */

typedef struct trp_update_run trp_update_run;

/* What a step works on. All of it is the learner's. Vectors and gradients are memory of the
 * updater's device; what is put on `queue` is done there in order. */
typedef struct {
    uint64_t step;            /* this one's number: 1 is the first of the run */
    uint64_t version;         /* of the parameters as they were last published */
    const trp_batch *batches; /* one per source; the host's */
    float *const *vectors;    /* one per vector */
    float *const *grads;      /* the same; 0 when a phase begins; NULL where not learned */
    trp_queue *queue;
    double *const *priorities; /* per source: batch_size to write, in step or collect; or NULL */
    trp_rng *rng;              /* the updater's stream; it is in the checkpoint */
    /* This step is made of several batches, and this is not the last: nothing is stepped yet, so
     * nothing follows, such as a target network. */
    bool partial;
    trp_update_run *run; /* for the functions below */
} trp_update;

/* The column of that name of the batch of a source, see trp_batch.columns; NULL: the source
 * declares none. */
TRP_API const void *trp_update_column(const trp_update *update, size_t source, const char *name);

/* The same for what is put on the queue. On a host it is that very memory. */
TRP_API const void *trp_update_device_column(const trp_update *update, size_t source,
                                             const char *name);

/* [lo, hi) of the gradient of a vector is final: combining it may begin while backward goes on.
 * What was never reported is combined by trp_update_reduce(). Free where the learner is alone. */
TRP_API void trp_update_ready(const trp_update *update, size_t vector, size_t lo, size_t hi);

/* trp_net_backward() of a network whose parameters begin at `first` of `vector`, to its gradient
 * there: the last one of a phase that adds to these. What becomes final meanwhile is reported as by
 * trp_update_ready(). Of `grads` params, ready and context are set here. */
TRP_API void trp_update_backward(const trp_update *update, size_t vector, size_t first,
                                 trp_net *net, const trp_net_rows *rows,
                                 const trp_net_grads *grads);

/* After it the gradient of `vector` is the mean over all learners. Every learner calls it in the
 * same order. UNAVAILABLE: a learner is gone. For algorithms that look at the gradient before the
 * optimizer does; trp_update_apply() calls it otherwise. */
TRP_API TRP_MUST_USE trp_status trp_update_reduce(const trp_update *update, size_t vector);

/* *value becomes the largest that any learner has: importance weights are divided by the largest
 * of all batches. Every learner calls it in the same order. Fails as trp_update_reduce(). */
TRP_API TRP_MUST_USE trp_status trp_update_max(const trp_update *update, double *value);

/* The next phase of `vector` is also refused, or left out, where *number, of the device's memory,
 * is not finite: "the NAME of step 3 is nan". `name` is static. */
TRP_API void trp_update_watch(const trp_update *update, size_t vector, const float *number,
                              const char *name);

/* Ends a phase for `vector`: reduces its gradient, refuses or leaves it out when it is not finite
 * (INTERNAL names vector, place and step; every learner decides alike), clips it, applies the
 * optimizer, and makes it 0. On a device that is no host it returns before that is done, and a
 * refusal fails the step when it is collected; no phase after it takes effect. */
TRP_API TRP_MUST_USE trp_status trp_update_apply(const trp_update *update, size_t vector);

/* A number for the progress line and metrics.csv; `name` is static. Of the last phase of a step
 * "grad_norm" is reported, before clipping, and "VECTOR_grad_norm" of vectors other than "params".
 */
TRP_API void trp_update_report(const trp_update *update, const char *name, double value);

/* ---- an updater -------------------------------------------------------------------------- */

typedef struct {
    /* Fills the vectors of a fresh run, which are 0 and, here, the host's. Optional. */
    void (*init)(trp_updater *updater, trp_rng *rng, float *const *vectors);
    /* One step. A failure ends the run; vectors that were applied before it stay as they are, and
     * no checkpoint is written of them. */
    trp_status (*step)(trp_updater *updater, const trp_update *update);
    /* Fetches what an earlier step computed: writes its priorities, reports its numbers, and leaves
     * its vectors as they are to be read. `update` is that step's, with its batches. Called once
     * for every step, in their order: after the next step began whatever is not waited for (on a
     * device), or before parameters are published, a checkpoint is written, or the run ends well. A
     * failure ends the run. Optional: without it step has done all of this when it returns. */
    trp_status (*collect)(trp_updater *updater, const trp_update *update);
    /* State beside the vectors, as tensors over its own memory, at most TRP_UPDATER_TENSORS_MAX:
     * a checkpoint is written from them and read back into them. Returns how many. Optional. */
    size_t (*state)(trp_updater *updater, trp_checkpoint_tensor *tensors);
    void (*destroy)(trp_updater *updater); /* NULL: free() */
} trp_updater_impl;

/* The first member of every updater. An updater belongs to one thread. */
struct trp_updater {
    const trp_updater_impl *impl;
    trp_device *device; /* where its vectors are to be; NULL: "cpu". On others than hosts it touches
                           them by what it puts on queues alone */
    bool phases_vary; /* how many a step has follows from the batch, or they follow from each other:
                         a step is of one batch then, also where a group has lost a learner */
    size_t source_count, vector_count;
    trp_batch_spec sources[TRP_UPDATER_SOURCES_MAX];
    trp_vector_spec vectors[TRP_UPDATER_VECTORS_MAX];
};

TRP_API void trp_updater_destroy(trp_updater *updater); /* NULL is fine */

TRP_END_DECLS
#endif
