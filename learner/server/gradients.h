/* Inner to server/: the gradient of a push, wherever it is: in the message, compressed in it, or in
 * memory of the worker. That it may still be writing, by mistake or on purpose, so it is read once.
 * Where a log has to have what was stepped with it is copied and the copy looked at; else the shard
 * looks at each block as it steps with it (shard_push.moves), which saves two passes. */
#ifndef TRP_LEARNER_SERVER_GRADIENTS_H
#define TRP_LEARNER_SERVER_GRADIENTS_H

#include "table.h"

/* push->grads: `numbers` of them, the request's, the worker's or the table's until the next push;
 * NULL: it was a part, and others are missing. INVALID_ARGUMENT: they are not so many, no code, or
 * one of them, scaled, is not finite: it would be in the values of all, and on the disk, for good.
 * Of those that may be written meanwhile server_table_push() says so. */
TRP_MUST_USE trp_status gradients_take(struct server_table *table,
                                       const Troupe__ServerPushRequest *request, size_t numbers,
                                       struct shard_push *push);

#endif
