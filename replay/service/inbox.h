/* Memory that an insert stream and its writer on this host have in common. The server makes it and
 * only reads it; whatever the writer does to it, it stays there and as long as it is. Owner: the
 * service. */
#ifndef TRP_REPLAY_SERVICE_INBOX_H
#define TRP_REPLAY_SERVICE_INBOX_H

#include <troupe/bytes.h>
#include <troupe/rpc.h>
#include "service.h"

struct inbox;

/* An inbox for a writer that says hello, which is told of it. NULL: it is on another host, there
 * are INBOXES_MAX, this server shares nothing, or the system has none; the writer sends, then. */
struct inbox *inbox_offer(struct service *service, trp_server_call *call, trp_bytes hello);

trp_bytes inbox_memory(const struct inbox *inbox); /* NULL: empty */

/* Its stream ended; chunks of the group may still lie in it. NULL is fine. */
void inbox_leave(struct service *service, struct inbox *inbox);

/* Those that were left: nothing lies in them any more. */
void inboxes_destroy(struct service *service);

#endif
