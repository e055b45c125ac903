/* Shards: several replay servers with the same tables, as one.
 *
 * What is written goes to one of them: a writer is of one shard, chosen in turn or by a key of the
 * caller's. A sampler draws from all of them side by side; a batch comes from one, and says which,
 * so that its new priorities and deletes go back there. */
#ifndef TRP_SHARDS_H
#define TRP_SHARDS_H

#include <troupe/rpc.h>
#include <troupe/sampler.h>

TRP_BEGIN_DECLS

typedef struct trp_shards trp_shards;

/* Channels to `count` addresses; connects at the first call. `options` as for a channel, may be
 * NULL. INVALID_ARGUMENT: no address, too many, or one that is none. */
TRP_API TRP_MUST_USE trp_status trp_shards_create(trp_shards **out, const char *const *addresses,
                                                  size_t count, const trp_channel_options *options);

/* After every writer and sampler made of it is gone. NULL is fine. */
TRP_API void trp_shards_destroy(trp_shards *shards);

TRP_API size_t trp_shards_count(const trp_shards *shards);

/* The channel to shard `index`, below the count: for trp_writer_create(), trp_replay_delete() ...
 */
TRP_API trp_channel *trp_shards_channel(const trp_shards *shards, uint32_t index);

/* The shard whose turn it is; any thread. */
TRP_API uint32_t trp_shards_next(trp_shards *shards);

/* The shard of a key: always the same for the same count, spread evenly whatever the keys are. */
TRP_API uint32_t trp_shards_of_key(const trp_shards *shards, uint64_t key);

/* trp_sampler_create() over all shards; prefetch is 1 or more. A shard that is away or held back by
 * its limiter stops nobody: the others' batches come. */
TRP_API TRP_MUST_USE trp_status trp_shards_sampler(trp_sampler **out, trp_shards *shards,
                                                   const trp_sampler_options *options);

/* trp_priority_writer_create() over all shards, for trp_priority_writer_update_batch(). */
TRP_API TRP_MUST_USE trp_status trp_shards_priority_writer(trp_priority_writer **out,
                                                           trp_shards *shards, const char *table,
                                                           uint32_t window);

TRP_END_DECLS
#endif
