/* Says what a table's limiter waits for, to whoever waited in vain. */
#ifndef TRP_REPLAY_LIMITER_WORDS_H
#define TRP_REPLAY_LIMITER_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include <troupe/rpc.h>
#include <troupe/sampler.h>
#include "limiter.h"

enum { LIMITER_WORDS_BYTES = 512 };

/* "; ..." into `text`: why `table` lets nobody insert (or sample) just now, by what its server says
 * within LIMITER_QUESTION_MS; "" when it says nothing or the limiter is not the reason. Changes no
 * last error. */
void limiter_ask(trp_channel *channel, const char *table, bool sampling,
                 char text[LIMITER_WORDS_BYTES]);

/* The same of a limiter that is here, without "; ": "" when it allows it. */
void limiter_describe(const struct limiter *limiter, bool sampling, char text[LIMITER_WORDS_BYTES]);

/* Why the callers of such a table stop for good, now or one day, and what to do; NULL: they do not.
 * To be freed. */
char *limiter_warning(const struct limiter *limiter, int64_t max_size);

#endif
