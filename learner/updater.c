/* What an updater declares: whether a learner can do it. */
#include "update.h"

#include <stdlib.h>
#include <string.h>

void trp_updater_destroy(trp_updater *updater)
{
    if (!updater)
        return;
    for (size_t i = 0; i < TRP_UPDATER_SOURCES_MAX; i++)
        trp_columns_cleanup(&updater->sources[i].columns);
    if (updater->impl->destroy)
        updater->impl->destroy(updater);
    else
        free(updater);
}

static trp_status check_tensors(const trp_vector_spec *spec)
{
    size_t end = 0;
    for (size_t i = 0; i < spec->tensor_count; i++) {
        const trp_net_tensor *tensor = &spec->tensors[i];
        if (tensor->offset < end || tensor->offset > spec->count ||
            tensor->count > spec->count - tensor->offset)
            return trp_fail(
                TRP_INVALID_ARGUMENT,
                "updater: tensor '%s' lies at %zu to %zu of '%s', which has %zu numbers, "
                "%zu of them in tensors before it",
                tensor->name, tensor->offset, tensor->offset + tensor->count, spec->name,
                spec->count, end);
        end = tensor->offset + tensor->count;
    }
    return TRP_OK;
}

static trp_status check_part(const trp_vector_spec *spec)
{
    size_t first = spec->published_first, end = published_end(spec);
    if (strcmp(spec->name, "params") != 0)
        return first == 0 && spec->published_count == 0
                   ? TRP_OK
                   : trp_fail(TRP_INVALID_ARGUMENT,
                              "updater: a part of '%s' is to be published; actors pull 'params'",
                              spec->name);
    if (first >= spec->count || spec->published_count > spec->count - first)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "updater: %zu numbers of 'params' from %zu on are to be published, it has "
                        "%zu",
                        spec->published_count, first, spec->count);
    for (size_t i = 0; i < spec->tensor_count; i++) {
        const trp_net_tensor *tensor = &spec->tensors[i];
        size_t lo = tensor->offset, hi = lo + tensor->count;
        if ((lo < first && first < hi) || (lo < end && end < hi))
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "updater: tensor '%s' lies at %zu to %zu of 'params', of which only "
                            "%zu to %zu is published",
                            tensor->name, lo, hi, first, end);
    }
    return TRP_OK;
}

static trp_status check_vector(const trp_updater *updater, size_t index)
{
    const trp_vector_spec *spec = &updater->vectors[index];
    if (!spec->name || !*spec->name || spec->count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "updater: vector %zu has no name or no numbers",
                        index);
    for (size_t i = 0; i < index; i++)
        if (strcmp(updater->vectors[i].name, spec->name) == 0)
            return trp_fail(TRP_INVALID_ARGUMENT, "updater: two vectors are called '%s'",
                            spec->name);
    TRP_TRY(check_tensors(spec));
    TRP_TRY(check_part(spec));
    if (spec->fixed_count > spec->count)
        return trp_fail(TRP_INVALID_ARGUMENT, "updater: %zu numbers of '%s' stay, it has %zu",
                        spec->fixed_count, spec->name, spec->count);
    if (!spec->learned)
        return TRP_OK;
    TRP_TRY(trp_optimizer_check(&spec->optimizer, spec->name));
    if (trp_optimizer_is_layerwise(&spec->optimizer) && spec->tensor_count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "updater: %s steps tensor by tensor, and '%s' names none",
                        trp_optimizer_name(spec->optimizer.kind), spec->name);
    return TRP_OK;
}

trp_status updater_check(const trp_updater *updater)
{
    if (updater->source_count > TRP_UPDATER_SOURCES_MAX ||
        updater->vector_count > TRP_UPDATER_VECTORS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "updater: %zu sources and %zu vectors, at most %d and %d",
                        updater->source_count, updater->vector_count, TRP_UPDATER_SOURCES_MAX,
                        TRP_UPDATER_VECTORS_MAX);
    bool params = false;
    for (size_t i = 0; i < updater->vector_count; i++) {
        TRP_TRY(check_vector(updater, i));
        params = params || strcmp(updater->vectors[i].name, "params") == 0;
    }
    for (size_t i = 0; i < updater->source_count; i++)
        if (!updater->sources[i].table || updater->sources[i].batch_size == 0)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "updater: source %zu has no table or a batch of no rows", i);
    for (size_t i = 0; i < updater->source_count; i++)
        TRP_TRY(frames_check(&updater->sources[i]));
    return params ? TRP_OK
                  : trp_fail(TRP_INVALID_ARGUMENT,
                             "updater: no vector is called 'params', which is what actors pull");
}
