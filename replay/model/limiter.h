/* The rate limiter: Reverb's arithmetic, exactly, on five counters, explained. No clock or lock. */
#ifndef TRP_REPLAY_MODEL_LIMITER_H
#define TRP_REPLAY_MODEL_LIMITER_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/replay.h>

struct limiter {
    trp_rate_limiter options;
    int64_t inserts, samples, deletes;
};

/* inserts - deletes >= min_size and inserts * spi - samples - count >= min_diff */
bool limiter_can_sample(const struct limiter *limiter, int64_t count);

/* inserts + count - deletes <= min_size or (inserts + count) * spi - samples <= max_diff */
bool limiter_can_insert(const struct limiter *limiter, int64_t count);

/* Why this limiter lets nobody insert (or sample) just now; "" when it allows it. To be freed. */
char *limiter_explain(const struct limiter *limiter, bool sampling);

/* Why the callers of such a table stop for good, now or one day, and what to do; NULL: they do not.
 * To be freed. */
char *limiter_warning(const struct limiter *limiter, int64_t max_size);

#endif
