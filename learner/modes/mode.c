#include "mode.h"

#include <string.h>

#include "hogwild.h"

enum { SYNCHRONOUS, SHARDED, HOGWILD, LOCAL_SGD, GOSSIP, SERVER, MODES };
static const char *const names[MODES] = {"synchronous", "sharded", "hogwild",
                                         "local_sgd",   "gossip",  "server"};

trp_status mode_create(struct mode **out, struct vectors *vectors,
                       const struct mode_options *options)
{
    size_t kind = SYNCHRONOUS;
    *out = NULL;
    while (options->name && kind < MODES && strcmp(options->name, names[kind]) != 0)
        kind++;
    if (kind == MODES)
        return trp_fail(
            TRP_INVALID_ARGUMENT,
            "learner: mode is '%s', must be synchronous, sharded, hogwild, local_sgd, gossip or "
            "server",
            options->name);
    if (options->compress.kind != COMPRESS_NONE && kind != SYNCHRONOUS)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "learner: compression is %s, which mode %s has not: its learners send %s; "
                        "use synchronous",
                        compress_name(options->compress.kind), names[kind],
                        kind == SHARDED ? "ranges of gradients and parameters"
                                        : "no gradients to each other");
    TRP_TRY(compress_check(&options->compress));
    if (kind == SERVER)
        return server_mode_create(out, vectors, &options->group, options->servers);
    if (options->group.rendezvous && kind == HOGWILD)
        return hogwild_create(out, vectors, &options->group);
    if (options->group.rendezvous && kind == LOCAL_SGD)
        return local_sgd_create(out, vectors, options);
    if (options->group.rendezvous && kind == GOSSIP)
        return gossip_create(out, vectors, options);
    if (options->group.rendezvous)
        return synchronous_create(out, vectors, options, kind == SHARDED);
    *out = alone_create(vectors);
    return TRP_OK;
}
