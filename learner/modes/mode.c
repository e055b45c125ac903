#include "mode.h"

#include <string.h>

#include "dogwild.h"
#include "hogwild.h"
#include "limits.h"

enum { SYNCHRONOUS, SHARDED, HOGWILD, LOCAL_SGD, GOSSIP, SERVER, DOGWILD, GAIA, MODES };
static const char *const names[MODES] = {"synchronous", "sharded", "hogwild", "local_sgd",
                                         "gossip",      "server",  "dogwild", "gaia"};

/* Where there is nothing to compress, or a compressor cannot do what the mode needs. */
static trp_status check_compression_of(size_t kind, const struct compress_options *compress)
{
    const char *why = NULL;
    if (compress->kind == COMPRESS_NONE)
        return TRP_OK;
    if (kind == SHARDED)
        why = "its learners send ranges of gradients and parameters";
    if (kind == HOGWILD)
        why = "its learners send nothing";
    if (kind == GOSSIP)
        why = "its learners send their vectors";
    if (kind == DOGWILD)
        why = "what its learners send may be lost, and a rest with it";
    if (kind == GAIA)
        why = "it sends what matters, whole";
    if (kind == SERVER && compress->kind == COMPRESS_POWERSGD)
        why = "its factors are of a sum over all learners, and a push is one learner's";
    if (kind == LOCAL_SGD && compress->kind == COMPRESS_TOP_K && compress->momentum > 0)
        why = "compression_momentum is of gradients, and it sends what came of steps";
    if (!why)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "learner: compression is %s, which mode %s has not: %s; use synchronous",
                    compress_name(compress->kind), names[kind], why);
}

/* Who counts generations may have begun anew: then the version is no smaller, at least. */
uint64_t meeting_version(const struct mode_meeting *meeting, uint64_t generation)
{
    uint64_t before = meeting->generation;
    uint64_t since = before > 0 && before < generation ? generation - before : 0;
    return meeting->version + since * meeting->version_gap;
}

uint64_t mode_next_version(uint64_t generation, uint64_t steps, uint64_t version)
{
    uint64_t before = generation > 0 ? generation - 1 : 0; /* 0: there are no generations */
    uint64_t least = (before << MODE_STEPS_BITS) + steps + MODE_FIRST_VERSION;
    return least > version ? least : version + 1;
}

trp_status mode_create(struct mode **out, struct vectors *vectors,
                       const struct mode_options *options)
{
    size_t kind = SYNCHRONOUS;
    *out = NULL;
    while (options->name && kind < MODES && strcmp(options->name, names[kind]) != 0)
        kind++;
    if (kind == MODES)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "learner: mode is '%s', must be synchronous, sharded, hogwild, dogwild, "
                        "local_sgd, gossip, gaia or "
                        "server",
                        options->name);
    TRP_TRY(compress_check(&options->compress));
    TRP_TRY(check_compression_of(kind, &options->compress));
    if (kind == SERVER)
        return server_mode_create(out, vectors, options);
    if (options->group.rendezvous && kind == HOGWILD)
        return hogwild_create(out, vectors, &options->group);
    if (options->group.rendezvous && kind == DOGWILD)
        return dogwild_create(out, vectors, &options->group);
    if (options->group.rendezvous && kind == GAIA)
        return gaia_mode_create(out, vectors, options);
    if (options->group.rendezvous && kind == LOCAL_SGD)
        return local_sgd_create(out, vectors, options);
    if (options->group.rendezvous && kind == GOSSIP)
        return gossip_create(out, vectors, options);
    if (options->group.rendezvous)
        return synchronous_create(out, vectors, options, kind == SHARDED);
    *out = alone_create(vectors);
    return TRP_OK;
}
