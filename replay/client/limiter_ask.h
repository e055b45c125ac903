/* Asks a server why a table's limiter holds a caller back that waited in vain. */
#ifndef TRP_REPLAY_CLIENT_LIMITER_ASK_H
#define TRP_REPLAY_CLIENT_LIMITER_ASK_H

#include <stdbool.h>

#include <troupe/rpc.h>
#include "replay/model/limiter_explain.h"

/* "; ..." into `text`: why `table` lets nobody insert (or sample) just now, by what its server says
 * within LIMITER_QUESTION_MS; "" when it says nothing or the limiter is not the reason. Changes no
 * last error. */
void limiter_ask(trp_channel *channel, const char *table, bool sampling,
                 char text[LIMITER_EXPLAIN_BYTES]);

#endif
