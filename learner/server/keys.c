#include "keys.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/hash.h"

_Static_assert(sizeof(struct shard_range) == 2 * sizeof(uint64_t), "bounds are ranges");

uint64_t keys_hash(const uint64_t *bounds, size_t count)
{
    return hash_bytes(HASH_BYTES_EMPTY, bounds, count * sizeof *bounds);
}

const struct key_list *keys_find(const struct keys *keys, uint64_t hash)
{
    for (size_t i = 0; i < KEY_LISTS; i++)
        if (keys->lists[i].ranges && keys->lists[i].hash == hash)
            return &keys->lists[i];
    return NULL;
}

trp_status keys_add(struct keys *keys, const struct param_shard *shard, uint64_t hash,
                    const uint64_t *bounds, size_t count, const struct key_list **list)
{
    size_t numbers;
    const struct shard_range *ranges = (const struct shard_range *)bounds;
    *list = keys_find(keys, hash);
    if (count % 2 != 0 || keys_hash(bounds, count) != hash)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "a list of %zu bounds of ranges has another hash than was sent with it",
                        count);
    if (*list)
        return TRP_OK;
    TRP_TRY(shard_check(shard, ranges, count / 2, &numbers));
    struct key_list *slot = &keys->lists[keys->next++ % KEY_LISTS];
    free(slot->ranges);
    *slot = (struct key_list){.hash = hash,
                              .ranges = xmemdup(ranges, count / 2 * sizeof *ranges),
                              .count = count / 2,
                              .numbers = numbers};
    *list = slot;
    return TRP_OK;
}

void keys_cleanup(struct keys *keys)
{
    for (size_t i = 0; i < KEY_LISTS; i++)
        free(keys->lists[i].ranges);
    *keys = (struct keys){0};
}
