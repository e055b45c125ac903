/* A table that is too busy for one server is spread over several. Nothing is moved between them and
 * they do not know of each other: what has to be remembered is which one a batch came from, and the
 * batch says it. */
#include <troupe/shards.h>

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "limits.h"
#include "sampler.h"

struct trp_shards {
    trp_channel **channels;
    size_t count;
    _Atomic uint32_t turn;
};

trp_status trp_shards_create(trp_shards **out, const char *const *addresses, size_t count,
                             const trp_channel_options *options)
{
    *out = NULL;
    if (count == 0 || count > REPLAY_SHARDS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "%zu shards, not 1 to %d", count, REPLAY_SHARDS_MAX);
    trp_shards *shards = xcalloc(1, sizeof *shards);
    shards->channels = xcalloc(count, sizeof(trp_channel *));
    trp_status status = TRP_OK;
    for (size_t i = 0; i < count && status == TRP_OK; i++) {
        status = trp_channel_create(&shards->channels[i], addresses[i], options);
        shards->count += status == TRP_OK;
    }
    if (status == TRP_OK)
        *out = shards;
    else
        trp_shards_destroy(shards);
    return status;
}

void trp_shards_destroy(trp_shards *shards)
{
    if (!shards)
        return;
    for (size_t i = 0; i < shards->count; i++)
        trp_channel_destroy(shards->channels[i]);
    free(shards->channels);
    free(shards);
}

size_t trp_shards_count(const trp_shards *shards)
{
    return shards->count;
}

trp_channel *trp_shards_channel(const trp_shards *shards, uint32_t index)
{
    assert(index < shards->count);
    return shards->channels[index];
}

uint32_t trp_shards_next(trp_shards *shards)
{
    return atomic_fetch_add(&shards->turn, 1) % (uint32_t)shards->count;
}

uint32_t trp_shards_of_key(const trp_shards *shards, uint64_t key)
{
    /* Keys may be 0, 1, 2 or all multiples of something: SplitMix64's finisher mixes every bit. */
    key = (key ^ (key >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    key = (key ^ (key >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((key ^ (key >> 31)) % shards->count);
}

trp_status trp_shards_sampler(trp_sampler **out, trp_shards *shards,
                              const trp_sampler_options *options)
{
    return sampler_create(out, shards->channels, shards->count, options);
}

trp_status trp_shards_priority_writer(trp_priority_writer **out, trp_shards *shards,
                                      const char *table, uint32_t window)
{
    return priority_writer_create(out, shards->channels, shards->count, table, window);
}
