/* Inner to server/: the gradient of a push, wherever it is: in the message, compressed in it, or in
 * memory of the worker. That it may still be writing, by mistake or on purpose, so it is read once:
 * what is checked is what is kept and stepped with. */
#ifndef TRP_LEARNER_SERVER_GRADIENTS_H
#define TRP_LEARNER_SERVER_GRADIENTS_H

#include "table.h"

/* *grads: `numbers` of them, the request's or the table's until the next push; NULL: it was a part,
 * and others are missing. INVALID_ARGUMENT: they are not so many, no code, or one of them, scaled,
 * is not finite: it would be in the values of all, and on the disk, for good. */
TRP_MUST_USE trp_status gradients_take(struct server_table *table,
                                       const Troupe__ServerPushRequest *request, size_t numbers,
                                       const float **grads);

#endif
