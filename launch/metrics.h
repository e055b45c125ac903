/* What nodes report, folded so that any rate of reports costs the same few messages a second. */
#ifndef TRP_LAUNCH_METRICS_H
#define TRP_LAUNCH_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limits.h"

struct metric {
    char name[METRIC_NAME_BYTES_MAX];
    double last;
    double sum; /* of the `count` values since metric_taken() */
    uint64_t count;
};

/* A zeroed struct is empty. */
struct metrics {
    struct metric metrics[METRICS_MAX];
    size_t count;
};

/* The metric of this name, added when it is new. NULL: no word of at most 31 characters, or there
 * are METRICS_MAX others. */
struct metric *metrics_get(struct metrics *metrics, const char *name);

/* The last value of a metric; false when it was never reported. */
bool metrics_last(const struct metrics *metrics, const char *name, double *value);

/* Folds `count` values with `sum` in total. */
void metric_add(struct metric *metric, double last, double sum, uint64_t count);

/* metrics_get() and metric_add() of one value. */
void metrics_set(struct metrics *metrics, const char *name, double value);

/* Starts the sum anew. */
void metric_taken(struct metric *metric);

#endif
