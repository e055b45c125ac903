/* What a gradient is before it is added to those of other learners: so many rows' times their
 * number, in batches. Gradients of several batches of one step are kept until its last one.
 *
 * In front of each gradient there is room for a line, its head: the rows that it is of, and a
 * number that is not finite where the one that was watched is not. Heads are added up like all
 * other numbers, in one piece with the vector's front; those of gradients that go compressed before
 * them, with the number of ranks whose gradient cannot. */
#ifndef TRP_LEARNER_MODES_WEIGHING_H
#define TRP_LEARNER_MODES_WEIGHING_H

#include <stddef.h>

#include <troupe/device.h>

enum { HEAD_ROWS, HEAD_WATCHED, HEAD_UNFIT, HEAD_NUMBERS = 16 };

static inline float *head_of(float *grads)
{
    return grads - HEAD_NUMBERS;
}

/* [count] numbers times `factor`, and `more` on top; NULL: nothing. */
void weigh_on(trp_queue *queue, float *grads, size_t count, float factor, const float *more);

/* Adds [count] numbers times `factor` to what is kept. */
void keep_on(trp_queue *queue, float *kept, const float *grads, size_t count, float factor);

/* Puts mode.outer (kernels.h). */
struct mode_outer_arguments;
void outer_on(trp_queue *queue, const struct mode_outer_arguments *job);

/* Writes a head, with what `more`, another one, has on top; NULL: nothing. `watched` as in
 * trp_update_watch(). */
void head_on(trp_queue *queue, float *head, float rows, const float *watched, const float *more);

#endif
