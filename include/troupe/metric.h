/* A number that a part of a program reports under a name of its own: "epsilon", "loss". */
#ifndef TRP_METRIC_H
#define TRP_METRIC_H

#include <troupe/status.h>

TRP_BEGIN_DECLS

enum { TRP_METRICS_MAX = 16 }; /* of one part: a policy, an updater */

/* `name` is a word of at most 31 characters and lives as long as what reports it. */
typedef struct {
    const char *name;
    double value;
} trp_metric;

TRP_END_DECLS
#endif
