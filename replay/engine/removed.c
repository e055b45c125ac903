/* Two generations of hash maps with open addressing, half empty. Keys go into the newer one; once
 * that is full, or REMOVED_KEYS_MS old, it becomes the older one, and what the older one had is
 * forgotten all at once: keys leave tables as often as items come, and to take out the oldest for
 * each of them would be one more look at a random place in memory. Nearly all keys that come were
 * never there: a filter says so, for both generations in one look at what the cache mostly has. */
#include "removed.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/hash.h"
#include "replay/store/limits.h"

enum { CAPACITY_MIN = 256, WORD_BITS = 64, FILTER_WORDS = REMOVED_KEYS_MAX / 4 };
static const int64_t KNOWN_NS = REMOVED_KEYS_MS * INT64_C(1000000);

struct removed_entry {
    uint64_t key;
    uint32_t table_id, fingerprint; /* table 0: the entry is free */
};

/* The filter's words for the key with this hash, and its bit. */
static uint64_t *filter_words(const struct dedup_window *keys, uint64_t hash, uint64_t *bit)
{
    *bit = UINT64_C(1) << (hash >> 32) % WORD_BITS;
    return keys->filter[(hash >> 40) % FILTER_WORDS];
}

/* The older half becomes the newer one. */
static void filter_turn(struct dedup_window *keys)
{
    keys->newest = 1 - keys->newest;
    for (uint32_t i = 0; keys->filter && i < FILTER_WORDS; i++)
        keys->filter[i][keys->newest] = 0;
}

/* Where a search begins for the key with this hash. */
static struct removed_entry *entry_home(const struct removed_generation *generation, uint64_t hash)
{
    return &generation->entries[hash & (generation->capacity - 1)];
}

/* The key's entry, or the free one where it belongs. */
static struct removed_entry *entry_find(const struct removed_generation *generation, uint64_t hash,
                                        uint32_t table_id, uint64_t key)
{
    for (;; hash++) {
        struct removed_entry *entry = entry_home(generation, hash);
        if (entry->table_id == 0 || (entry->key == key && entry->table_id == table_id))
            return entry;
    }
}

static void generation_grow(struct removed_generation *generation)
{
    struct removed_generation old = *generation;
    generation->capacity = old.capacity ? 2 * old.capacity : CAPACITY_MIN;
    generation->entries = xcalloc(generation->capacity, sizeof *generation->entries);
    for (uint32_t i = 0; i < old.capacity; i++) {
        const struct removed_entry *entry = &old.entries[i];
        if (entry->table_id != 0)
            *entry_find(generation, hash_u64(entry->key), entry->table_id, entry->key) = *entry;
    }
    free(old.entries);
}

static void generation_begin(struct dedup_window *keys, int64_t at_ns)
{
    struct removed_generation oldest = keys->older;
    keys->older = keys->newer;
    if (oldest.entries)
        memset(oldest.entries, 0, oldest.capacity * sizeof *oldest.entries);
    oldest.count = 0;
    oldest.begun_ns = at_ns;
    keys->newer = oldest;
    filter_turn(keys);
}

void removed_push(struct dedup_window *keys, const struct removed_record *removed)
{
    struct removed_generation *newer = &keys->newer;
    if (newer->count == REMOVED_KEYS_MAX || removed->at_ns - newer->begun_ns > KNOWN_NS)
        generation_begin(keys, removed->at_ns);
    if (2 * newer->count >= newer->capacity)
        generation_grow(newer);
    if (!keys->filter)
        keys->filter = xcalloc(FILTER_WORDS, sizeof *keys->filter);
    uint64_t hash = hash_u64(removed->key), bit;
    filter_words(keys, hash, &bit)[keys->newest] |= bit;
    struct removed_entry *entry = entry_find(newer, hash, removed->table_id, removed->key);
    newer->count += entry->table_id == 0;
    *entry = (struct removed_entry){removed->key, removed->table_id, removed->fingerprint};
}

/* Not by way of a function that does nothing else: the compiler takes calls of one away. */
void removed_prefetch(const struct dedup_window *keys, uint64_t key, bool push)
{
    uint64_t hash = hash_u64(key), bit;
    if (!keys->filter)
        return;
    __builtin_prefetch(filter_words(keys, hash, &bit), 1);
    if (push)
        __builtin_prefetch(entry_home(&keys->newer, hash), 1);
}

/* NULL: not there, or all that is there came too long ago. */
static const struct removed_entry *generation_find(const struct removed_generation *generation,
                                                   uint64_t hash, uint32_t table_id, uint64_t key,
                                                   int64_t now_ns)
{
    if (generation->count == 0 || now_ns - generation->begun_ns > 2 * KNOWN_NS)
        return NULL;
    const struct removed_entry *entry = entry_find(generation, hash, table_id, key);
    return entry->table_id != 0 ? entry : NULL;
}

bool removed_find(const struct dedup_window *keys, uint32_t table_id, uint64_t key,
                  uint32_t fingerprint, int64_t now_ns)
{
    uint64_t hash = hash_u64(key), bit;
    if (!keys->filter)
        return false;
    const uint64_t *words = filter_words(keys, hash, &bit);
    if (((words[0] | words[1]) & bit) == 0)
        return false;
    const struct removed_entry *entry = generation_find(&keys->newer, hash, table_id, key, now_ns);
    if (!entry)
        entry = generation_find(&keys->older, hash, table_id, key, now_ns);
    return entry && entry->fingerprint == fingerprint;
}

void removed_cleanup(struct dedup_window *keys)
{
    free(keys->newer.entries);
    free(keys->older.entries);
    free(keys->filter);
    *keys = (struct dedup_window){0};
}
