/* Policies: what chooses actions. One act() decides for some rows at once, each of them a copy of
 * an environment; what a policy remembers of a row from step to step (the core state of a recurrent
 * network) is in the slot that the row names, so that any of the copies may be acted on together.
 *
 * Beside actions a policy may write extras: named tensors that the adder stores with the step
 * (log-probability, value, logits, the core state before the step). */
#ifndef TRP_POLICY_H
#define TRP_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/columns.h>
#include <troupe/device.h>
#include <troupe/metric.h>
#include <troupe/nn.h>
#include <troupe/rng.h>
#include <troupe/status.h>

TRP_BEGIN_DECLS

typedef struct trp_policy trp_policy;

/* One decision for `rows` copies, row by row. Everything is the caller's; what is written has the
 * rows back to back. */
typedef struct {
    uint32_t rows;                   /* at most what the policy was made for */
    const uint32_t *slots;           /* of each row's copy, under which the policy remembers what it
                                        has to: all differ, and are below what it was made for */
    const void *const *observations; /* a buffer per tensor of the environment's spec */
    const bool *first;               /* an episode begins: the slot is reset before it is used */
    const float *rewards;            /* what the last action brought; 0 where first */
    const void *last_actions;        /* zeros where first */
    const bool *mask;                /* what a row may do: a flag per choice; NULL: everything */
    uint64_t steps;                  /* of all actors together so far: for schedules */
    trp_rng *rng;
    void *actions;       /* written, as the environment's action spec says */
    void *const *extras; /* written: a buffer per extra; NULL: not wanted, or it has none */
} trp_act;

typedef struct {
    trp_status (*act)(trp_policy *policy, const trp_act *act);
    /* Copies the flat parameter vector. INVALID_ARGUMENT: another count than this network has. */
    trp_status (*load)(trp_policy *policy, const float *params, size_t count);
    /* Up to TRP_METRICS_MAX numbers for reports, after `steps`; returns how many. Optional. */
    size_t (*metrics)(const trp_policy *policy, uint64_t steps, trp_metric *metrics);
    void (*destroy)(trp_policy *policy); /* NULL: free() */
} trp_policy_impl;

/* The first member of every policy. A policy belongs to one thread at a time. */
struct trp_policy {
    const trp_policy_impl *impl;
    trp_columns extras; /* one row of each; trp_policy_destroy() frees it */
    /* What lies where in its `param_count` parameters, by offset, for files and to compare it with
     * what a learner publishes (params.h); the policy's own memory. May be left out. */
    const trp_net_tensor *tensors;
    size_t tensor_count, param_count;
    trp_device *device; /* where it computes; NULL: "cpu" */
};

TRP_API void trp_policy_destroy(trp_policy *policy); /* NULL is fine */

TRP_END_DECLS
#endif
