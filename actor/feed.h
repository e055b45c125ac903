/* Parameters for a thread that acts: pulled on a thread of their own, so that acting never waits
 * for a learner that is slow or away. One that is alone, as all are where threads take turns, has
 * no such thread: a pull is done when it is asked for.
 *
 * One thread uses a feed. */
#ifndef TRP_ACTOR_FEED_H
#define TRP_ACTOR_FEED_H

#include <stdbool.h>

#include <troupe/params.h>

struct feed;

/* `options` are the client's, whose stop is heeded by one that is alone; elsewhere nothing here
 * waits long. Failures are those of trp_params_client_create(). */
TRP_MUST_USE trp_status feed_create(struct feed **out, const trp_params_client_options *options,
                                    bool alone);
void feed_destroy(struct feed *feed); /* gives up what is under way; NULL is fine */

/* Begins a pull that reports these counts, unless one is under way: `now`, or when a report is due
 * (params.h). Waits for nothing, unless it is alone. The first one waits for the first version. */
TRP_MUST_USE trp_status feed_ask(struct feed *feed, uint64_t steps, uint64_t episodes, bool now);

/* What the environments saw, for the pulls to come, unless one is under way. */
void feed_report(struct feed *feed, const trp_moments *statistics, size_t count);

bool feed_is_answered(const struct feed *feed); /* nothing is under way */

/* Waits for that, a moment at most; the same. */
bool feed_wait(struct feed *feed);

/* What the last answer said; nothing may be under way. Parameters and statistics lie where the
 * client has them, until the next feed_ask(): feed_is_whole() tells afterwards whether what was
 * read of them is. `*newer`: the version is another than at the last call. Failures as
 * trp_params_client_pull(); they are final. */
TRP_MUST_USE trp_status feed_take(struct feed *feed, trp_params_state *state, bool *newer);

/* As trp_params_client_is_whole(); nothing may be under way. */
bool feed_is_whole(struct feed *feed);

/* As trp_params_client_state(); nothing may be under way. */
trp_params_state feed_look(const struct feed *feed);

#endif
