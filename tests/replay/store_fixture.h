/* What the tests of the store share: directories, items whose bytes follow from a number, and the
 * items that a store gives back. */
#ifndef TRP_TESTS_STORE_FIXTURE_H
#define TRP_TESTS_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "replay/store/store.h"

static inline char *fixture_dir(const char *parent)
{
    char *path = xasprintf("%s/troupe-store-XXXXXX", parent);
    assert_non_null(mkdtemp(path));
    return path;
}

static inline char *fixture_path(const char *dir, const char *name)
{
    return xasprintf("%s/%s", dir, name);
}

/* A byte of the record with this key, so far from the key. */
static inline void damage_record_at(const char *dir, uint64_t key, off_t offset)
{
    char *path = fixture_path(dir, "data.mdb");
    int fd = open(path, O_RDWR);
    off_t size = lseek(fd, 0, SEEK_END);
    uint8_t *bytes = xmalloc((size_t)size);
    assert_int_equal(pread(fd, bytes, (size_t)size, 0), size);
    const uint8_t *end = bytes + size, *at = bytes;
    while ((at = memmem(at, (size_t)(end - at), &key, sizeof key)) != NULL) {
        assert_int_equal(pwrite(fd, "\2", 1, at - bytes + offset), 1);
        at += sizeof key;
    }
    close(fd);
    free(bytes);
    free(path);
}

/* The record with this key has one chunk more. */
static inline void damage_record(const char *dir, uint64_t key)
{
    damage_record_at(dir, key, -4);
}

/* Removes a directory with all that is in it. */
static inline void fixture_erase(const char *dir)
{
    DIR *entries = opendir(dir);
    for (struct dirent *entry = entries ? readdir(entries) : NULL; entry;
         entry = readdir(entries)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *path = fixture_path(dir, entry->d_name);
        if (unlink(path) != 0)
            fixture_erase(path);
        free(path);
    }
    if (entries)
        closedir(entries);
    rmdir(dir);
}

/* The same, and frees the path. */
static inline void fixture_remove(char *dir)
{
    fixture_erase(dir);
    free(dir);
}

static inline uint64_t fixture_hash(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94D049BB133111EB);
    return value ^ (value >> 31);
}

static inline void fixture_fill(uint8_t *bytes, size_t size, uint64_t seed)
{
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = fixture_hash(seed + at);
        memcpy(bytes + at, &word, size - at < 8 ? size - at : 8);
    }
}

/* Flips a bit in the middle of what fixture_fill() made of this seed, wherever a store's file has
 * it. */
static inline void fixture_damage(const char *dir, uint64_t seed, size_t size)
{
    enum { NEEDLE_BYTES = 16 };
    char *path = fixture_path(dir, "data.mdb");
    int fd = open(path, O_RDWR);
    off_t length = lseek(fd, 0, SEEK_END);
    uint8_t *needle = xmalloc(size);
    fixture_fill(needle, size, seed);
    uint8_t *bytes = mmap(NULL, (size_t)length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *at;
    assert_true(bytes != MAP_FAILED);
    for (at = bytes;
         (at = memmem(at, (size_t)(bytes + length - at), needle + size / 2, NEEDLE_BYTES)) != NULL;)
        at[NEEDLE_BYTES / 2] ^= 4;
    munmap(bytes, (size_t)length);
    close(fd);
    free(needle);
    free(path);
}

static inline struct chunk *fixture_chunk(struct store *store, uint64_t seed, size_t size)
{
    uint8_t *bytes = xmalloc(size + 1);
    fixture_fill(bytes, size, seed);
    size_t half = size / 2;
    const trp_bytes spans[] = {{bytes, half}, {bytes + half, size - half}};
    struct chunk *chunk = store_chunk_create(store, spans, 2);
    store_borrowed_end(store);
    free(bytes);
    return chunk;
}

/* An item of one chunk that follows from its key. */
static inline struct item *fixture_item(struct store *store, uint64_t key, size_t size)
{
    const uint8_t shape[] = "one whole chunk";
    struct item *item = store_item_create(
        store, store_trajectory(store, (trp_bytes){shape, sizeof shape}, 1), NULL);
    item->key = key;
    item->priority = (double)key / 2;
    item->inserted_at_ns = (int64_t)(key % 1000000) * 1000;
    item->chunks[0] = fixture_chunk(store, key, size);
    return item;
}

/* Do the chunk's bytes follow from the seed? */
static inline void fixture_check_chunk(struct store *store, const struct chunk *chunk,
                                       uint64_t seed, size_t size)
{
    assert_int_equal(chunk->size, size);
    uint8_t *expected = xmalloc(size + 1), *bytes = xmalloc(size + 1);
    fixture_fill(expected, size, seed);
    assert_int_equal(store_chunk_read(store, chunk, bytes), TRP_OK);
    assert_memory_equal(bytes, expected, size);
    free(expected);
    free(bytes);
}

struct loaded {
    struct item **items;
    uint32_t *tables;
    size_t count;
};

static inline trp_status loaded_add(void *arg, uint32_t table_id, struct item *item)
{
    struct loaded *loaded = arg;
    size_t count = ++loaded->count;
    if ((count & (count - 1)) == 0) { /* doubles */
        loaded->items = xrealloc(loaded->items, 2 * count * sizeof *loaded->items);
        loaded->tables = xrealloc(loaded->tables, 2 * count * sizeof *loaded->tables);
    }
    loaded->items[count - 1] = item;
    loaded->tables[count - 1] = table_id;
    return TRP_OK;
}

/* Where the item will be, its seq is; its priority with it. */
struct seen {
    struct loaded *loaded;
    struct buffer priorities;
};

static inline trp_status seen_add(void *arg, uint32_t table_id, uint64_t seq, double priority)
{
    struct seen *seen = arg;
    buffer_append(&seen->priorities, (trp_bytes){(const uint8_t *)&priority, sizeof priority});
    return loaded_add(seen->loaded, table_id, (struct item *)(uintptr_t)seq);
}

static inline bool seen_bring(struct store *store, struct seen *seen, size_t index, bool in_turn)
{
    uint64_t seq = (uint64_t)(uintptr_t)seen->loaded->items[index];
    bool damaged;
    struct item *item = store_load_item(store, seq, in_turn, &damaged);
    if (!item) {
        seen->loaded->items[index] = NULL;
        return damaged;
    }
    assert_int_equal(item->seq, seq);
    assert_memory_equal(&item->priority, seen->priorities.data + index * sizeof item->priority,
                        sizeof item->priority);
    seen->loaded->items[index] = item;
    return true;
}

/* First what a draw needs, then some items (going by `draw`), as many as are asked for at most, and
 * then the others. */
static inline trp_status load_drawn(struct store *store, struct loaded *loaded, size_t drawn_max,
                                    uint64_t draw)
{
    struct seen seen = {.loaded = loaded};
    trp_status status = store_scan(store, seen_add, &seen);
    bool *brought = xcalloc(loaded->count + 1, sizeof *brought);
    size_t drawn = loaded->count / 2 < drawn_max ? loaded->count / 2 : drawn_max;
    for (; status == TRP_OK && drawn > 0; drawn--) {
        size_t index = fixture_hash(draw++) % loaded->count;
        if (!brought[index])
            brought[index] = seen_bring(store, &seen, index, false);
    }
    for (size_t index = 0; status == TRP_OK && index < loaded->count; index++)
        if (!brought[index])
            brought[index] = seen_bring(store, &seen, index, true);
    size_t there = 0;
    for (size_t index = 0; index < loaded->count; index++) {
        if (!brought[index] || !loaded->items[index])
            continue;
        loaded->items[there] = loaded->items[index];
        loaded->tables[there++] = loaded->tables[index];
    }
    loaded->count = there;
    free(brought);
    buffer_cleanup(&seen.priorities);
    return status == TRP_OK ? store_load_end(store) : status;
}

static inline trp_status load_in_pieces(struct store *store, struct loaded *loaded, uint64_t draw)
{
    return load_drawn(store, loaded, SIZE_MAX, draw);
}

static inline trp_status load_all(struct store *store, struct loaded *loaded)
{
    return load_drawn(store, loaded, 0, 0);
}

static inline void loaded_cleanup(struct store *store, struct loaded *loaded)
{
    for (size_t index = 0; index < loaded->count; index++)
        store_item_destroy(store, loaded->items[index]);
    free(loaded->items);
    free(loaded->tables);
    *loaded = (struct loaded){0};
}

#endif
