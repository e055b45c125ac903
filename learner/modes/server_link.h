/* Inner to modes/: a learner's end of the range of one vector that one server has. */
#ifndef TRP_LEARNER_MODES_SERVER_LINK_H
#define TRP_LEARNER_MODES_SERVER_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/parameter_server.h>
#include "learner/compress/compress.h"
#include "learners.h"
#include "learner/server/shard.h"
#include "learner/server/shared_values.h"
#include "vectors.h"

/* Of all links of a learner. */
struct server_links {
    const trp_learner_servers *servers;
    const struct learners_options *group;
    char *learner;  /* "learner/1" */
    char host[64];  /* boot id; "": nothing is shared */
    uint64_t steps; /* that learners have begun, as far as server 0 has said */
};

/* Whole ranges, or, for a phase that is left out, none. */
enum { LINK_WHOLE, LINK_NOTHING, LINK_LISTS };

struct server_link {
    struct server_links *links;
    struct vector *vector;
    uint32_t server;
    size_t lo, hi;            /* of the vector */
    uint64_t clock, version;  /* pushes so far; of the values that it has */
    uint64_t optimizer_steps; /* of the server's range */
    bool may_read;            /* as of its last push, or pull since */
    uint64_t most_behind;     /* clocks that the slowest was, when it read memory */
    uint32_t *silent;         /* learners that the server has not heard of ... */
    size_t silent_count;
    uint64_t silent_ms;                 /* ... for longer than this */
    bool known[LINK_LISTS];             /* the server has the list of ranges */
    uint32_t strange;                   /* answers in a row of a server that knew something not */
    struct compressor *compressor;      /* of what is pushed; NULL: it goes as it is */
    bool maps;                          /* it reads a gradient where the vector has it */
    const struct shared_values *values; /* the server's; NULL: they are sent */
};

/* `grads` and `values` are of the vector; a push that goes compressed scales its gradient. All
 * calls are tried again until the group's timeout has passed, or the server is gone for good, and
 * no server has a learner wait for longer than it may wait for all others; what they fail with then
 * names the server. CANCELLED: this learner is to stop. */
TRP_MUST_USE trp_status server_link_join(struct server_link *link, uint64_t steps);
TRP_MUST_USE trp_status server_link_push(struct server_link *link, float *grads, float scale,
                                         uint64_t new_steps);

/* Says that this learner waits for batches, and hears of others that are silent. */
TRP_MUST_USE trp_status server_link_idle(struct server_link *link);

/* Waits until the rule lets this learner read. */
TRP_MUST_USE trp_status server_link_pull(struct server_link *link);

/* Values and the optimizer's state, without waiting for other learners. */
TRP_MUST_USE trp_status server_link_fetch(struct server_link *link);

void server_link_close(struct server_link *link); /* zeroed is fine */

#endif
