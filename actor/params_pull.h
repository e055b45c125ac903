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

/* Memory that parameters come to lie in, whatever they were on their way. */
struct params_room {
    float *numbers; /* of malloc(), the caller's, for `count`; NULL: none yet */
    size_t count;   /* parameters of a version; 0: not known yet, then there is no memory either */
    bool filled;    /* those of the reply lie there */
    bool finite;    /* all of them are */
};

/* Waits a moment, or hands the turn on where threads take turns. */
void params_pause(const struct params_line *line, uint32_t failures, struct deadline deadline);

/* The answer to `request`, for params_reply_free(); its parameters, if it has any newer ones, all
 * came into the room, which is made where there is none. `*asked_ns`: when it was asked which
 * version is the newest, on the monotonic clock. Failures as trp_params_client_pull(); then
 * `*reply` may have to be freed, too, and what lies in the room is nothing. */
TRP_MUST_USE trp_status params_pull(const struct params_line *line, Troupe__PullRequest *request,
                                    struct deadline deadline, struct params_room *room,
                                    Troupe__PullReply **reply, int64_t *asked_ns);

void params_reply_free(Troupe__PullReply *reply); /* NULL is fine */

#endif
