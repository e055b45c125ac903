/* A gradient in pieces that are combined one after another, each as soon as it is final. Backward
 * passes begin at the end of a vector, so that is where the first bucket lies. Buckets are started
 * in their order, whatever the order in which they become final: all learners start the same. */
#ifndef TRP_LEARNER_MODES_BUCKETS_H
#define TRP_LEARNER_MODES_BUCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range {
    size_t lo, hi;
};

struct buckets {
    size_t numbers, each; /* of the vector; of a bucket */
    uint32_t count, started;
    size_t *missing;   /* numbers of each that are not final */
    uint64_t *tickets; /* of those that are started */
};

/* Of `bytes` each, 64 or more; the first one has what is left at the end of the vector. */
void buckets_create(struct buckets *buckets, size_t numbers, size_t bytes);
void buckets_destroy(struct buckets *buckets); /* zeroed is fine */

struct range buckets_at(const struct buckets *buckets, uint32_t index);

/* The next gradient begins. */
void buckets_reset(struct buckets *buckets);

/* These numbers are final; no number is reported twice. */
void buckets_ready(struct buckets *buckets, struct range range);

/* Whether the next bucket to be started is final and not the last one. */
bool buckets_may_start(const struct buckets *buckets);

#endif
