/* Explains to a caller that waited in vain why a table's limiter held it back. */
#ifndef TRP_REPLAY_MODEL_LIMITER_EXPLAIN_H
#define TRP_REPLAY_MODEL_LIMITER_EXPLAIN_H

#include <stdbool.h>

#include <troupe/sampler.h>
#include "limiter.h"

enum { LIMITER_EXPLAIN_BYTES = 512 };

/* Why this limiter lets nobody insert (or sample) just now; "" when it allows it. */
void limiter_explain(const struct limiter *limiter, bool sampling,
                     char text[LIMITER_EXPLAIN_BYTES]);

/* The same of a table elsewhere, by what its server tells of it. */
void limiter_explain_info(const trp_table_info *info, bool sampling,
                          char text[LIMITER_EXPLAIN_BYTES]);

/* Why the callers of such a table stop for good, now or one day, and what to do; NULL: they do not.
 * To be freed. */
char *limiter_warning(const struct limiter *limiter, int64_t max_size);

#endif
