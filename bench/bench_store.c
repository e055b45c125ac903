/* The store in steady state, beside LMDB called directly with the same bytes in the same layout, on
 * the same file system in the same run.
 *
 *   bench_store DIR [--full]     --full: 150 000 live chunks, 5 GB
 *
 * Prints: case, measured, unit, ceiling, its name. */
#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "replay/store/store.h"
#include "replay/store/copy.h"
#include "replay/disk/record.h"
#include "replay/store/checkpoint_writer.h"
#include "scratch.h"

enum {
    SEGMENTS = 5, /* the best counts: other programs take the processor, too */
    TMPFS = 0x01021994,
};

/* What is inserted and what goes. */
struct load {
    const char *name;
    size_t live;
    size_t size_min, size_max; /* of a chunk, uniform */
    size_t group;              /* inserts, and as many deletes */
    size_t segment_groups;
    bool random; /* which goes: any, or the oldest */
};

struct result {
    double items_per_s, file_per_live;
};

static uint64_t draw_state;

static uint64_t draw(uint64_t below)
{
    draw_state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t value = (draw_state ^ (draw_state >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (value ^ (value >> 31)) % below;
}

static size_t draw_size(const struct load *load)
{
    return load->size_min + draw(load->size_max - load->size_min + 1);
}

static const uint8_t *payload(void)
{
    static uint8_t bytes[1 << 17];
    if (!bytes[1])
        for (size_t at = 0; at < sizeof bytes; at++)
            bytes[at] = (uint8_t)(at * 31 + 7);
    return bytes + draw(1024);
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_store: %s\n", what);
    exit(1);
}

static void check(int rc)
{
    if (rc != 0)
        fail(mdb_strerror(rc));
}

static void check_status(trp_status status)
{
    if (status != TRP_OK)
        fail(trp_last_error());
}

/* A victim's place in a ring or an array of what lives. */
static size_t victim(const struct load *load, size_t *oldest)
{
    if (load->random)
        return draw(load->live);
    size_t place = *oldest;
    *oldest = (*oldest + 1) % load->live;
    return place;
}

/* ---- LMDB ----------------------------------------------------------------------------------- */

struct raw_chunk {
    uint64_t seq;
    size_t size;
};

struct raw {
    MDB_env *env;
    MDB_dbi pieces;
    struct raw_chunk *live;
    uint64_t next;
    size_t oldest;
    uint64_t live_bytes;
};

static void raw_put(struct raw *raw, MDB_cursor *cursor, struct raw_chunk *chunk, size_t size)
{
    const uint8_t *bytes = payload();
    *chunk = (struct raw_chunk){raw->next++, size};
    raw->live_bytes += size;
    for (size_t offset = 0, piece = 0; offset < size; offset += PIECE_BYTES, piece++) {
        uint64_t number = piece_key(chunk->seq, (uint32_t)piece);
        size_t part = size - offset < PIECE_BYTES ? size - offset : PIECE_BYTES;
        MDB_val key = {sizeof number, &number}, data = {part, NULL};
        check(mdb_cursor_put(cursor, &key, &data, MDB_APPEND | MDB_RESERVE));
        memcpy(data.mv_data, bytes + offset, part);
    }
}

static void raw_delete(struct raw *raw, MDB_cursor *cursor, const struct raw_chunk *chunk)
{
    uint64_t number = piece_key(chunk->seq, 0);
    MDB_val key = {sizeof number, &number};
    check(mdb_cursor_get(cursor, &key, NULL, MDB_SET));
    for (uint32_t piece = piece_count(chunk->size); piece-- > 0;) {
        check(mdb_cursor_del(cursor, 0));
        if (piece)
            check(mdb_cursor_get(cursor, &key, NULL, MDB_GET_CURRENT));
    }
    raw->live_bytes -= chunk->size;
}

static void raw_group(struct raw *raw, const struct load *load, size_t first)
{
    MDB_txn *txn;
    MDB_cursor *cursor;
    check(mdb_txn_begin(raw->env, NULL, 0, &txn));
    check(mdb_cursor_open(txn, raw->pieces, &cursor));
    bool filling = first < load->live;
    for (size_t index = 0; index < load->group; index++) {
        size_t place = filling ? first + index : victim(load, &raw->oldest);
        if (place >= load->live)
            break;
        if (!filling)
            raw_delete(raw, cursor, &raw->live[place]);
        raw_put(raw, cursor, &raw->live[place], draw_size(load));
    }
    mdb_cursor_close(cursor);
    check(mdb_txn_commit(txn));
}

static struct result raw_run(const struct load *load, const char *parent)
{
    struct raw raw = {.next = 1, .live = xcalloc(load->live, sizeof *raw.live)};
    char *dir = make_dir(parent), *path = xasprintf("%s/data.mdb", dir);
    MDB_txn *txn;
    check(mdb_env_create(&raw.env));
    check(mdb_env_set_maxdbs(raw.env, 4));
    check(mdb_env_set_mapsize(raw.env, UINT64_C(64) << 30));
    check(mdb_env_open(raw.env, path,
                       MDB_NOSUBDIR | MDB_NOLOCK | MDB_WRITEMAP | MDB_NOSYNC | MDB_NOMEMINIT,
                       0666));
    check(mdb_txn_begin(raw.env, NULL, 0, &txn));
    check(mdb_dbi_open(txn, "pieces", MDB_CREATE | MDB_INTEGERKEY, &raw.pieces));
    check(mdb_txn_commit(txn));
    for (size_t first = 0; first < load->live; first += load->group)
        raw_group(&raw, load, first);
    struct result result = {0};
    for (int segment = 0; segment < SEGMENTS; segment++) {
        int64_t start = clock_now_ns(&clock_monotonic);
        for (size_t group = 0; group < load->segment_groups; group++)
            raw_group(&raw, load, load->live);
        double s = (double)(clock_now_ns(&clock_monotonic) - start) / 1e9;
        double rate = (double)(load->segment_groups * load->group) / s;
        result.items_per_s = rate > result.items_per_s ? rate : result.items_per_s;
    }
    MDB_envinfo info;
    check(mdb_env_info(raw.env, &info));
    result.file_per_live = (double)(info.me_last_pgno + 1) * 4096 / (double)raw.live_bytes;
    mdb_env_close(raw.env);
    free(raw.live);
    free(path);
    remove_dir(dir);
    return result;
}

/* ---- the store ------------------------------------------------------------------------------ */

struct stored {
    struct store *store;
    uint32_t table;
    struct item **live;
    size_t oldest, next;
};

static struct item *make_item(struct store *store, size_t size)
{
    static const uint8_t shape[48]; /* about what six columns take */
    struct item *item =
        store_item_create(store, store_trajectory(store, (trp_bytes){shape, 48}, 1), NULL);
    item->key = draw(UINT64_MAX);
    item->priority = 1;
    item->chunks[0] = store_chunk_create(store, &(trp_bytes){payload(), size}, 1);
    return item;
}

static void stored_insert(struct stored *stored, size_t place, size_t size)
{
    struct item *item = make_item(stored->store, size);
    trp_status status = store_admit(stored->store, item);
    if (status == TRP_ABORTED) {
        check_status(store_commit(stored->store));
        status = store_admit(stored->store, item);
    }
    check_status(status);
    store_item_insert(stored->store, stored->table, item);
    stored->live[place] = item;
}

static void stored_group(struct stored *stored, const struct load *load, size_t first)
{
    bool filling = first < load->live;
    for (size_t index = 0; index < load->group; index++) {
        size_t place = filling ? first + index : victim(load, &stored->oldest);
        if (place >= load->live)
            break;
        if (!filling) {
            store_item_delete(stored->store, stored->live[place]);
            store_item_destroy(stored->store, stored->live[place]);
        }
        stored_insert(stored, place, draw_size(load));
    }
    check_status(store_commit(stored->store));
}

/* Where the item will be, its seq is. */
static trp_status keep_seq(void *arg, uint32_t table_id, uint64_t seq, double priority)
{
    struct stored *stored = arg;
    (void)table_id;
    (void)priority;
    stored->live[stored->next++] = (struct item *)(uintptr_t)seq;
    return TRP_OK;
}

/* Brings what is in the store. */
static void stored_load(struct stored *stored)
{
    bool damaged;
    check_status(store_scan(stored->store, keep_seq, stored));
    for (size_t place = 0; place < stored->next; place++) {
        uint64_t seq = (uint64_t)(uintptr_t)stored->live[place];
        stored->live[place] = store_load_item(stored->store, seq, true, &damaged);
    }
    check_status(store_load_end(stored->store));
}

static void stored_open(struct stored *stored, const char *dir, size_t live)
{
    struct store_options options = {.dir = dir};
    check_status(store_create(&stored->store, &options));
    stored->live = xcalloc(live, sizeof *stored->live);
    stored_load(stored);
    stored->table = store_table_put(stored->store, "t", "name=t", (trp_bytes){0});
}

static void stored_close(struct stored *stored, size_t live)
{
    for (size_t place = 0; place < live; place++)
        store_item_destroy(stored->store, stored->live[place]);
    store_destroy(stored->store);
    free(stored->live);
}

static struct result stored_run(const struct load *load, const char *parent)
{
    struct stored stored = {0};
    char *dir = make_dir(parent);
    stored_open(&stored, dir, load->live);
    for (size_t first = 0; first < load->live; first += load->group)
        stored_group(&stored, load, first);
    struct result result = {0};
    for (int segment = 0; segment < SEGMENTS; segment++) {
        int64_t start = clock_now_ns(&clock_monotonic);
        for (size_t group = 0; group < load->segment_groups; group++)
            stored_group(&stored, load, load->live);
        double s = (double)(clock_now_ns(&clock_monotonic) - start) / 1e9;
        double rate = (double)(load->segment_groups * load->group) / s;
        result.items_per_s = rate > result.items_per_s ? rate : result.items_per_s;
    }
    struct store_stats stats;
    store_stats(stored.store, &stats);
    result.file_per_live = (double)stats.allocated_bytes / (double)stats.live_bytes;
    stored_close(&stored, load->live);
    remove_dir(dir);
    return result;
}

/* ---- cases ---------------------------------------------------------------------------------- */

static const char *place_name(const char *dir)
{
    struct statfs fs;
    return statfs(dir, &fs) == 0 && fs.f_type == TMPFS ? "tmpfs" : "disk";
}

/* ---- a copy --------------------------------------------------------------------------------- */

static trp_status copy_damage(void *arg, uint32_t table_id, uint64_t key, const char *what)
{
    (void)arg;
    (void)table_id;
    (void)key;
    return trp_fail(TRP_DATA_LOSS, "%s", what);
}

/* The disk's own rate: so many bytes in large writes, synced. */
static double raw_write_gbs(const char *dir, uint64_t bytes)
{
    enum { PART_BYTES = 8 << 20 };
    uint8_t *part = xmalloc(PART_BYTES);
    char *path = xasprintf("%s/data.mdb", dir);
    memset(part, 7, PART_BYTES);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int64_t start = clock_now_ns(&clock_monotonic);
    for (uint64_t done = 0; done < bytes; done += PART_BYTES) {
        if (write(fd, part, PART_BYTES) != PART_BYTES)
            fail("cannot write");
        sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    }
    if (fsync(fd) != 0)
        fail("cannot sync");
    double seconds = (double)(clock_now_ns(&clock_monotonic) - start) / 1e9;
    close(fd);
    unlink(path);
    free(path);
    free(part);
    return (double)bytes / 1e9 / seconds;
}

/* Of this thread alone: other programs take the processor, too. */
static int64_t thread_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A copy of a store, and the longest that the store was kept from its callers. */
static void measure_copy(const char *parent)
{
    const struct load load = {"copy", 60000, 28224, 28224, 64, 0, false};
    struct stored stored = {0};
    char *dir = make_dir(parent), *to = make_dir(parent);
    stored_open(&stored, dir, load.live);
    for (size_t first = 0; first < load.live; first += load.group)
        stored_group(&stored, &load, first);
    struct copy_sink sink = {checkpoint_writer_item, checkpoint_writer_piece, copy_damage, NULL,
                             NULL};
    struct store_copy *copy;
    struct checkpoint_writer *target;
    struct checkpoint_writer_stats stats;
    int64_t start = clock_now_ns(&clock_monotonic), longest = 0;
    check_status(store_copy_begin(stored.store, &copy, &sink));
    check_status(checkpoint_writer_create(&target, to, load.live * load.size_max * 2));
    store_copy_set_argument(copy, target);
    while (!store_copy_done(copy)) {
        int64_t before = thread_now_ns();
        check_status(store_copy_find(stored.store, copy));
        int64_t took = thread_now_ns() - before;
        longest = took > longest ? took : longest;
        check_status(store_copy_give(copy));
    }
    check_status(checkpoint_writer_finish(target, copy, &stats));
    double seconds = (double)(clock_now_ns(&clock_monotonic) - start) / 1e9;
    checkpoint_writer_destroy(target);
    store_copy_end(stored.store, copy);
    const char *place = place_name(dir);
    remove_dir(to);
    to = make_dir(parent);
    printf("store, a checkpoint of %.1f GB, %s\t%.2f\tGB/s\t%.2f\tlarge writes, synced\n",
           (double)stats.bytes / 1e9, place, (double)stats.bytes / 1e9 / seconds,
           raw_write_gbs(to, stats.bytes));
    printf("store, longest slice of a checkpoint, %s\t%.2f\tms\t1\tpromised\n", place,
           (double)longest / 1e6);
    fflush(stdout);
    remove_dir(to);
    stored_close(&stored, load.live);
    remove_dir(dir);
}

/* ---- after a restart ------------------------------------------------------------------------ */

/* Chunks a second that are read for the first time in a store's life, in random order, and with
 * `known` without a comparison with their sums. */
static double first_reads(const char *dir, const struct load *load, bool known)
{
    enum { STRIDE = 7919 };
    struct stored stored = {.live = xcalloc(load->live, sizeof *stored.live)};
    uint8_t *bytes = xmalloc(load->size_max);
    check_status(store_create(&stored.store, &(struct store_options){.dir = dir}));
    stored_load(&stored);
    for (size_t place = 0; known && place < load->live; place++)
        stored.live[place]->chunks[0]->unchecked = false;
    int64_t start = clock_now_ns(&clock_monotonic);
    for (size_t turn = 0; turn < load->live; turn++) {
        const struct item *item = stored.live[turn * STRIDE % load->live];
        check_status(store_chunk_read(stored.store, item->chunks[0], bytes));
    }
    double seconds = (double)(clock_now_ns(&clock_monotonic) - start) / 1e9;
    stored_close(&stored, load->live);
    free(bytes);
    return (double)load->live / seconds;
}

static void measure_first_reads(const char *parent)
{
    static const struct load loads[] = {
        {"600 B", 200000, 600, 600, 4096, 0, false},
        {"2800 B", 100000, 2800, 2800, 4096, 0, false},
        {"28 KB", 20000, 28224, 28224, 64, 0, false},
    };
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        const struct load *load = &loads[i];
        struct stored stored = {0};
        double best[2] = {0};
        char *dir = make_dir(parent);
        stored_open(&stored, dir, load->live);
        for (size_t first = 0; first < load->live; first += load->group)
            stored_group(&stored, load, first);
        stored_close(&stored, load->live);
        for (int segment = 0; segment < 2 * SEGMENTS; segment++) {
            double rate = first_reads(dir, load, segment % 2);
            best[segment % 2] = rate > best[segment % 2] ? rate : best[segment % 2];
        }
        printf("store, first read of a chunk of %s after a restart, %s\t%.0f\tchunks/s\t%.0f\t"
               "without a look at its sum\n",
               load->name, place_name(dir), best[0], best[1]);
        fflush(stdout);
        remove_dir(dir);
    }
}

/* ---- long runs ------------------------------------------------------------------------------ */

enum remover { OLDEST, ANY, LOWEST, REMOVERS };

/* Places of what lives, the lowest priority first. */
struct lowest {
    double *priority; /* of a place */
    size_t *heap;
    size_t count;
};

static void lowest_sift(struct lowest *lowest, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < lowest->count; at = child) {
        const size_t *heap = lowest->heap;
        if (child + 1 < lowest->count &&
            lowest->priority[heap[child + 1]] < lowest->priority[heap[child]])
            child++;
        if (lowest->priority[heap[at]] <= lowest->priority[heap[child]])
            return;
        size_t place = heap[at];
        lowest->heap[at] = heap[child];
        lowest->heap[child] = place;
    }
}

/* Each insert takes the place of what the remover names; items/s. */
static double long_part(struct stored *stored, const struct load *load, enum remover remover,
                        struct lowest *lowest, size_t inserts)
{
    int64_t start = clock_now_ns(&clock_monotonic);
    for (size_t done = 0; done < inserts; done++) {
        size_t place = remover == LOWEST ? lowest->heap[0] : victim(load, &stored->oldest);
        store_item_delete(stored->store, stored->live[place]);
        store_item_destroy(stored->store, stored->live[place]);
        stored_insert(stored, place, draw_size(load));
        if (remover == LOWEST) {
            lowest->priority[place] = (double)draw(1 << 30);
            lowest_sift(lowest, 0);
        }
        if (done % load->group == load->group - 1) {
            check_status(store_commit(stored->store));
            store_idle(stored->store);
        }
    }
    check_status(store_commit(stored->store));
    return (double)inserts / ((double)(clock_now_ns(&clock_monotonic) - start) / 1e9);
}

static void measure_long(const char *parent, enum remover remover, size_t live, size_t inserts)
{
    static const char *const names[REMOVERS] = {"fifo", "uniform", "lowest priority"};
    const struct load load = {names[remover], live, 1024, 65536, 64, 0, remover == ANY};
    struct lowest lowest = {xcalloc(live, sizeof(double)), xcalloc(live, sizeof(size_t)), live};
    struct stored stored = {0};
    char *dir = make_dir(parent);
    double rates[10];
    stored_open(&stored, dir, live);
    for (size_t first = 0; first < live; first += load.group)
        stored_group(&stored, &load, first);
    for (size_t place = 0; place < live; place++) {
        lowest.heap[place] = place;
        lowest.priority[place] = (double)draw(1 << 30);
    }
    for (size_t at = live / 2; at-- > 0;)
        lowest_sift(&lowest, at);
    for (size_t tenth = 0; tenth < 10; tenth++)
        rates[tenth] = long_part(&stored, &load, remover, &lowest, inserts / 10);
    struct store_stats stats;
    store_stats(stored.store, &stats);
    const char *place = place_name(dir);
    printf("store, %zu inserts of 1-64 KB, %zu live, %s, %s: last tenth\t%.0f\titems/s\t%.0f\t"
           "second tenth\n",
           inserts, live, names[remover], place, rates[9], rates[1]);
    printf("store, %zu inserts of 1-64 KB, %zu live, %s, %s: file\t%.2f\tx live bytes\t1.3\t"
           "allowed\n",
           inserts, live, names[remover], place,
           (double)stats.file_bytes / (double)stats.live_bytes);
    fflush(stdout);
    stored_close(&stored, live);
    remove_dir(dir);
    free(lowest.priority);
    free(lowest.heap);
}

static void compare(const struct load *load, const char *dir)
{
    struct result raw = raw_run(load, dir), stored = stored_run(load, dir);
    const char *place = place_name(dir);
    printf("store %s, %s\t%.0f\titems/s\t%.0f\tLMDB, pieces only\n", load->name, place,
           stored.items_per_s, raw.items_per_s);
    printf("store %s, %s: file\t%.2f\tx live bytes\t%.2f\tLMDB, pieces only\n", load->name, place,
           stored.file_per_live, raw.file_per_live);
    fflush(stdout);
}

static double best_us(void (*run)(struct stored *stored), struct stored *stored)
{
    double best = 1e300;
    for (int round = 0; round < 200; round++) {
        int64_t start = clock_now_ns(&clock_monotonic);
        run(stored);
        double us = (double)(clock_now_ns(&clock_monotonic) - start) / 1e3;
        best = us < best ? us : best;
    }
    return best;
}

enum { UPDATES = 256, UPDATED_ITEMS = 100 * 1000 };

static void empty_group(struct stored *stored)
{
    store_item_priority(stored->store, stored->live[0]);
    check_status(store_commit(stored->store));
}

static void update_group(struct stored *stored)
{
    /* Whoever changes a priority has the item in the cache already. */
    for (unsigned index = 0; index < UPDATES; index++)
        store_item_priority(stored->store, stored->live[(index * 389) % UPDATED_ITEMS]);
    check_status(store_commit(stored->store));
}

static void scattered_group(struct stored *stored)
{
    for (unsigned index = 0; index < UPDATES; index++)
        store_item_priority(stored->store, stored->live[draw(UPDATED_ITEMS)]);
    check_status(store_commit(stored->store));
}

static void idle_all(struct stored *stored)
{
    while (store_idle(stored->store))
        ;
}

static uint8_t read_out[UPDATES][28224];

static void read_batch(struct stored *stored)
{
    for (unsigned index = 0; index < UPDATES; index++)
        check_status(
            store_chunk_read(stored->store, stored->live[draw(2000)]->chunks[0], read_out[index]));
}

static uint8_t *plain;

static void plain_batch(struct stored *stored)
{
    (void)stored;
    for (unsigned index = 0; index < UPDATES; index++)
        memcpy(read_out[index], plain + draw(2000) * 28224, 28224);
}

static void measure_updates(const char *dir)
{
    struct stored stored = {0};
    char *path = make_dir(dir);
    stored_open(&stored, path, UPDATED_ITEMS);
    for (size_t place = 0; place < UPDATED_ITEMS; place++)
        stored_insert(&stored, place, 52);
    check_status(store_commit(stored.store));
    idle_all(&stored);
    double one = best_us(empty_group, &stored), many = best_us(update_group, &stored);
    printf("store 256 priority updates in a group, %s\t%.2f\tus\t%.2f\ta group of one\n",
           place_name(dir), many, one);
    size_t rounds = 500;
    int64_t start = clock_now_ns(&clock_monotonic);
    for (size_t round = 0; round < rounds; round++)
        scattered_group(&stored);
    idle_all(&stored);
    double us = (double)(clock_now_ns(&clock_monotonic) - start) / 1e3 / (double)rounds;
    printf("store 256 priority updates, folded, %s\t%.2f\tus\t%.2f\tappended only\n",
           place_name(dir), us, many);
    stored_close(&stored, UPDATED_ITEMS);
    remove_dir(path);
}

static void measure_reads(const char *dir)
{
    struct stored stored = {0};
    char *path = make_dir(dir);
    stored_open(&stored, path, 2000);
    for (size_t place = 0; place < 2000; place++)
        stored_insert(&stored, place, 28224);
    check_status(store_commit(stored.store));
    plain = xmalloc(2000 * 28224);
    memset(plain, 1, 2000 * 28224);
    double bare = best_us(plain_batch, NULL), read = best_us(read_batch, &stored);
    printf("store 256 random reads of 28 KB, %s\t%.0f\tus\t%.0f\tmemcpy from an array\n",
           place_name(dir), read, bare);
    free(plain);
    stored_close(&stored, 2000);
    remove_dir(path);
}

int main(int argc, char **argv)
{
    if (argc < 2 || (argc == 3 && strcmp(argv[2], "--full") != 0) || argc > 3) {
        fprintf(stderr, "usage: bench_store DIR [--full]\n");
        return 2;
    }
    bool full = argc == 3;
    const struct load loads[] = {
        {full ? "150 000 chunks of 1-64 KB, random deletes"
              : "40 000 chunks of 1-64 KB, random deletes",
         full ? 150000 : 40000, 1024, 65536, 64, 200, true},
        {"28 KB items, oldest out", full ? 40000 : 10000, 28224, 28224, 64, 300, false},
        {"52-byte items, oldest out", full ? 1000000 : 200000, 90, 90, 256, 800, false},
        {"52-byte items, oldest out, 64 a group", full ? 1000000 : 200000, 90, 90, 64, 3000, false},
        {"52-byte items, random deletes", full ? 1000000 : 200000, 90, 90, 256, 400, true},
    };
    for (size_t index = 0; index < sizeof loads / sizeof *loads; index++)
        compare(&loads[index], argv[1]);
    for (enum remover remover = 0; remover < REMOVERS; remover++)
        measure_long(argv[1], remover, full ? 150000 : 10000, full ? 10000000 : 100000);
    measure_copy(argv[1]);
    measure_updates(argv[1]);
    measure_reads(argv[1]);
    measure_first_reads(argv[1]);
    return 0;
}
