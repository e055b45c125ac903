/* Parameter servers: the parameters of learners lie on servers, a range of them on each. Learners
 * push gradients and pull what became of them; the optimizer runs where the range is. In a running
 * program a server is a node (trp_add_parameter_server()). */
#ifndef TRP_PARAMETER_SERVER_H
#define TRP_PARAMETER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>

TRP_BEGIN_DECLS

/* When a push takes effect, and who waits for whom. N learners; a clock is a count of pushes of
 * one; a version one of the steps of the optimizer; g a gradient. */
typedef enum {
    TRP_SERVER_SYNC,     /* a step with the mean of all N gradients of a clock, in step */
    TRP_SERVER_ASYNC,    /* a step with each g at once; nobody waits (Downpour SGD, Dean et al.
                            2012) */
    TRP_SERVER_SSP,      /* a step with each g / N at once; who is more than `slack` clocks ahead of
                            the slowest waits (stale synchronous parallel, Ho et al. 2013) */
    TRP_SERVER_SOFTSYNC, /* a step with the mean of c = floor(N / softness) gradients, each
                            divided by its staleness: the versions since the one that it was
                            computed on (n-softsync, Zhang et al. 2016) */
    TRP_SERVER_DYNSGD,   /* of the gradients that were computed on one version the mean counts: the
                            d-th to come weighs 1 / d and takes as much from those before (dynamic
                            learning rates, Jiang et al. 2017). Only for plain SGD */
} trp_server_rule;

TRP_END_DECLS
#endif
