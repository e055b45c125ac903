/* Steps of optimizers over a range: what one element becomes follows from it alone, but for LAMB's
 * trust ratio, which its caller works out between two passes. */
#ifndef TRP_NN_STEPS_H
#define TRP_NN_STEPS_H

#include <stdbool.h>
#include <stddef.h>

/* The factors of one step, worked out once in double, which kernels round to their elements. Per
 * element there are only correctly rounded operations, products and sums apart: every backend gives
 * the same bits. */
struct step_job {
    void *params;
    const void *grads;
    void *mean, *square, *velocity; /* running mean of gradients, of their squares, momentum; NULL:
                                       the rule has none */
    size_t count;
    double scale;        /* of gradients */
    double weight_decay; /* > 0: params times it are added to the gradient, LAMB's to its update */
    double keep;         /* < 1: params are multiplied by it first */
    double rate, momentum, epsilon;
    double beta1, beta2, one_minus_beta1, one_minus_beta2; /* of the means, and of the squares */
    double size; /* Adam: rate / (1 - beta1^t); LAMB: without the rate */
    double root; /* 1 / sqrt(1 - beta2^t) */
    bool nesterov, epsilon_inside;
};

struct step_kernels {
    void (*sgd)(const struct step_job *job);
    void (*adam)(const struct step_job *job);    /* mean, square */
    void (*rmsprop)(const struct step_job *job); /* square; mean: centered */
    /* The means, and the sums of squares of the parameters and of their updates, in double. */
    void (*lamb_means)(const struct step_job *job, double norms2[2]);
    void (*lamb)(const struct step_job *job); /* params -= rate * update */
};

#endif
