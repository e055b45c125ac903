#include "mode.h"

#include <string.h>

trp_status mode_create(struct mode **out, struct vectors *vectors,
                       const struct mode_options *options)
{
    *out = NULL;
    bool sharded = options->name && strcmp(options->name, "sharded") == 0;
    if (options->name && !sharded && strcmp(options->name, "synchronous") != 0)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "learner: mode is '%s', must be synchronous or sharded", options->name);
    if (options->group.rendezvous)
        return synchronous_create(out, vectors, options, sharded);
    *out = alone_create(vectors);
    return TRP_OK;
}
