/* What all adders share. */
#include "adder.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/thread.h"
#include "limits.h"

void trp_adder_destroy(trp_adder *adder)
{
    if (!adder)
        return;
    trp_columns_cleanup(&adder->columns);
    trp_columns_cleanup(&adder->extras);
    adder->impl->destroy(adder);
}

trp_status adder_check_options(const trp_adder_options *options, const char *who)
{
    if (!options->table || options->table[0] == '\0')
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: no table", who);
    if (!(options->priority >= 0) || isinf(options->priority))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: priority %g", who, options->priority);
    if (options->copies > ACTOR_COPIES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: %u copies are above %d", who, options->copies,
                        ACTOR_COPIES_MAX);
    size_t tensors = trp_env_observation_count(options->env), bytes = 0;
    for (size_t i = 0; i < tensors; i++)
        bytes += trp_tensor_bytes(&options->env->observations[i]);
    if (bytes == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: %s has empty observations", who,
                        options->env->name);
    size_t extras = options->extras ? options->extras->count : 0;
    if (extras > ADDER_EXTRAS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: %zu extras are above %d", who, extras,
                        ADDER_EXTRAS_MAX);
    return TRP_OK;
}

uint32_t adder_in_flight(const trp_adder_options *options)
{
    if (options->max_in_flight)
        return options->max_in_flight;
    uint32_t wanted = ADDER_IN_FLIGHT_PER_COPY * (options->copies ? options->copies : 1);
    return wanted < ADDER_IN_FLIGHT_MIN ? ADDER_IN_FLIGHT_MIN : wanted;
}

uint32_t adder_fast_in_flight(const trp_adder_options *options)
{
    return options->max_in_flight ? 0 : ADDER_IN_FLIGHT_FAST;
}

bool adder_is_late(int64_t *emptied_ns)
{
    if (turns_active())
        return false;
    int64_t now = clock_now_ns(&clock_coarse);
    if (*emptied_ns == 0)
        *emptied_ns = now;
    return now - *emptied_ns >= ADDER_KEEP_MS * INT64_C(1000000);
}

int64_t adder_left_ms(struct deadline deadline)
{
    int64_t ns = deadline_left_ns(deadline, &clock_monotonic);
    return ns == INT64_MAX ? -1 : (ns + 999999) / 1000000;
}

void adder_add_observations(const trp_env_spec *env, const char *prefix, trp_columns *columns)
{
    size_t count = trp_env_observation_count(env);
    for (size_t i = 0; i < count; i++) {
        char name[ADDER_NAME_BYTES_MAX];
        if (count == 1)
            snprintf(name, sizeof name, "%s", prefix);
        else
            snprintf(name, sizeof name, "%s/%s", prefix, env->observations[i].name);
        trp_columns_add(columns, name, &env->observations[i]);
    }
}

/* ---- blobs ------------------------------------------------------------------------------- */

void blob_add(struct blob *blob, size_t bytes)
{
    assert(blob->count < BLOB_PARTS_MAX);
    blob->offsets[blob->count] = blob->size;
    blob->bytes[blob->count++] = bytes;
    blob->size += (bytes + 7) / 8 * 8;
}

void blob_fill(const struct blob *blob, uint8_t *to, const void *const *parts)
{
    for (size_t i = 0; i < blob->count; i++)
        memcpy(to + blob->offsets[i], parts[i], blob->bytes[i]);
}

void blob_parts(const struct blob *blob, const uint8_t *from, const void **parts)
{
    for (size_t i = 0; i < blob->count; i++)
        parts[i] = from + blob->offsets[i];
}
