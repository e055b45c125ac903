/* One question to a troupe.Params service, in as many calls as its answer takes. */
#ifndef TRP_ACTOR_PARAMS_PULL_H
#define TRP_ACTOR_PARAMS_PULL_H

#include <troupe/params.h>
#include "core/clock.h"
#include "params.pb-c.h"

/* Who is asked, and for how long. */
struct params_line {
    ProtobufCService *service;
    trp_stop *stop;
    int64_t timeout_ms, give_up_ms;
};

/* Memory that the parameters of a reply may come to lie in: it is the reply's then, and `bytes` is
 * NULL. */
struct params_room {
    void *bytes; /* of malloc(); NULL: none */
    size_t size;
};

/* Waits a moment, or hands the turn on where threads take turns. */
void params_pause(const struct params_line *line, uint32_t failures, struct deadline deadline);

/* The answer to `request`, of whose parameters, if it has any, all came: for
 * params_reply_free(). `*asked_ns`: when it was asked which version is the newest, on the monotonic
 * clock. Failures as trp_params_client_pull(); then `*reply` may have to be freed, too. */
TRP_MUST_USE trp_status params_pull(const struct params_line *line, Troupe__PullRequest *request,
                                    struct deadline deadline, struct params_room *room,
                                    Troupe__PullReply **reply, int64_t *asked_ns);

void params_reply_free(Troupe__PullReply *reply); /* NULL is fine */

#endif
