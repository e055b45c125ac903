/* Metrics are few and their names are words, so a linear search is the whole index. A value is kept
 * as last, sum and count: a gauge reads the last, a mean divides, and nothing depends on how often
 * a node reports. */
#include "metrics.h"
#include "limits.h"

#include <string.h>

#include "core/printable.h"

static bool metric_name_is_good(const char *name)
{
    size_t length = strlen(name), size;
    bool is_good = length > 0 && length < METRIC_NAME_BYTES_MAX && !strpbrk(name, " ,\"");
    uint32_t code;
    for (const char *at = name; is_good && *at; at += size)
        is_good = printable_next((const uint8_t *)at, (const uint8_t *)name + length, &size, &code);
    return is_good;
}

struct metric *metrics_get(struct metrics *metrics, const char *name)
{
    for (size_t i = 0; i < metrics->count; i++)
        if (strcmp(metrics->metrics[i].name, name) == 0)
            return &metrics->metrics[i];
    if (metrics->count == METRICS_MAX || !metric_name_is_good(name))
        return NULL;
    struct metric *metric = &metrics->metrics[metrics->count++];
    memcpy(metric->name, name, strlen(name) + 1);
    return metric;
}

bool metrics_last(const struct metrics *metrics, const char *name, double *value)
{
    for (size_t i = 0; i < metrics->count; i++) {
        if (strcmp(metrics->metrics[i].name, name) == 0) {
            *value = metrics->metrics[i].last;
            return true;
        }
    }
    return false;
}

void metric_add(struct metric *metric, double last, double sum, uint64_t count)
{
    metric->last = last;
    metric->sum += sum;
    metric->count += count;
}

void metrics_set(struct metrics *metrics, const char *name, double value)
{
    struct metric *metric = metrics_get(metrics, name);
    if (metric)
        metric_add(metric, value, value, 1);
}

void metric_taken(struct metric *metric)
{
    metric->sum = 0;
    metric->count = 0;
}
