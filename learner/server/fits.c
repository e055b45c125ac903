/* What parameter servers can be, for who is about to begin them and for a server that is asked. */
#include <troupe/parameter_server.h>

#include <inttypes.h>

#include "core/words.h"

static trp_status check_rule_steps(trp_server_rule rule, const trp_optimizer *optimizer)
{
    const char *name = trp_optimizer_name(optimizer->kind);
    bool plain =
        optimizer->kind == TRP_SGD && optimizer->momentum == 0 && optimizer->weight_decay == 0;
    if (trp_optimizer_is_layerwise(optimizer))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "the optimizer %s steps whole tensors, and a server has a range: use "
                        "another one",
                        name);
    if (rule == TRP_SERVER_DYNSGD && !plain)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "the rule dynsgd takes steps back, which %s cannot: use sgd without "
                        "momentum and weight decay",
                        name);
    return TRP_OK;
}

trp_status trp_parameter_server_check(const trp_parameter_server_options *options, size_t servers,
                                      uint32_t learners, const trp_optimizer *optimizer)
{
    uint32_t idle = options->idle_hosts;
    if (idle > 0 && (idle > learners || servers != (size_t)learners + idle))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%" PRIu32 " learner%s, %zu server%s and idle_hosts=%" PRIu32
                        " do not go together: there is one server for each learner and each idle "
                        "host, and no more idle hosts than learners",
                        learners, plural(learners), servers, plural((int64_t)servers), idle);
    return optimizer ? check_rule_steps((trp_server_rule)options->rule, optimizer) : TRP_OK;
}
