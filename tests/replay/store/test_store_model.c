/* Random operations on a store and on a plain list, compared after closing, after a copy of the
 * files was taken in the middle (what kill -9 leaves behind), and while the change log is
 * compacted.
 */
#include "tests/replay/store_fixture.h"

#include <fcntl.h>

enum { ITEM_CHUNKS_MAX = 3, ITEMS_MAX = 3000, KEEP_MAX = 8, TABLES = 2 };

struct model_item {
    uint64_t key;
    double priority;
    int32_t times;
    uint32_t table, chunk_count;
    uint64_t seeds[ITEM_CHUNKS_MAX];
    size_t sizes[ITEM_CHUNKS_MAX];
    struct item *item;
};

struct kept {
    struct chunk *chunk;
    uint64_t seed;
    size_t size;
};

struct model {
    char *dir;
    struct store *store;
    trp_durability durability;
    uint64_t seed, draws;
    struct model_item *items; /* ascending seq */
    size_t count;
    struct model_item *committed; /* as of the last commit */
    size_t committed_count;
    struct store_table tables[TABLES], committed_tables[TABLES];
    struct kept keep[KEEP_MAX]; /* as a stream's keep set */
    uint64_t next_key, next_seed;
    size_t size_max;
    bool busy; /* never idle, with bursts of changes */
};

static uint64_t draw(struct model *model, uint64_t below)
{
    return fixture_hash(model->seed + ++model->draws * UINT64_C(0x9E3779B97F4A7C15)) % below;
}

/* ---- comparing ------------------------------------------------------------------------------ */

static void check_tables(struct store *store, const struct store_table *tables)
{
    size_t count;
    const struct store_table *stored = store_tables(store, &count);
    assert_int_equal(count, TABLES);
    for (size_t index = 0; index < TABLES; index++) {
        assert_int_equal(stored[index].id, tables[index].id);
        assert_int_equal(stored[index].inserts, tables[index].inserts);
        assert_int_equal(stored[index].samples, tables[index].samples);
        assert_int_equal(stored[index].deletes, tables[index].deletes);
        assert_int_equal(stored[index].unique_samples, tables[index].unique_samples);
    }
}

static void check_item(struct store *store, const struct item *item, const struct model_item *model)
{
    assert_int_equal(item->key, model->key);
    assert_true(item->priority == model->priority);
    assert_int_equal(item->times_sampled, model->times);
    assert_int_equal(item->trajectory->chunk_count, model->chunk_count);
    assert_int_equal(item->trajectory->size, model->chunk_count * 5);
    for (uint32_t index = 0; index < model->chunk_count; index++)
        fixture_check_chunk(store, item->chunks[index], model->seeds[index], model->sizes[index]);
}

static void check_loaded(struct store *store, const struct loaded *loaded,
                         const struct model_item *items, size_t count)
{
    assert_int_equal(loaded->count, count);
    for (size_t index = 0; index < count; index++) {
        assert_int_equal(loaded->tables[index], items[index].table);
        check_item(store, loaded->items[index], &items[index]);
    }
}

static int compare_seqs(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Chunks that items refer to, each counted once. */
static size_t distinct_chunks(const struct loaded *loaded)
{
    uint64_t *seqs = xcalloc(loaded->count * ITEM_CHUNKS_MAX + 1, sizeof *seqs);
    size_t count = 0, distinct = 0;
    for (size_t index = 0; index < loaded->count; index++) {
        const struct item *item = loaded->items[index];
        for (uint32_t at = 0; at < item->trajectory->chunk_count; at++)
            seqs[count++] = item->chunks[at]->seq;
    }
    qsort(seqs, count, sizeof *seqs, compare_seqs);
    for (size_t index = 0; index < count; index++)
        distinct += index == 0 || seqs[index] != seqs[index - 1];
    free(seqs);
    return distinct;
}

/* ---- operations ----------------------------------------------------------------------------- */

static void commit(struct model *model)
{
    if (store_commit(model->store) != TRP_OK)
        fail_msg("%s", trp_last_error());
    model->committed_count = model->count;
    memcpy(model->committed, model->items, model->count * sizeof *model->items);
    memcpy(model->committed_tables, model->tables, sizeof model->tables);
}

static void counters(struct model *model, uint32_t table)
{
    store_table_counters(model->store, &model->tables[table]);
}

static void keep_chunk(struct model *model, struct chunk *chunk, uint64_t seed, size_t size)
{
    struct kept *kept = &model->keep[draw(model, KEEP_MAX)];
    if (kept->chunk)
        store_chunk_unref(model->store, kept->chunk);
    chunk_ref(chunk);
    *kept = (struct kept){chunk, seed, size};
}

static size_t draw_size(struct model *model)
{
    uint64_t kind = draw(model, 10);
    if (kind < 6)
        return draw(model, 200);
    if (kind < 9)
        return draw(model, 9000);
    return draw(model, model->size_max);
}

static struct item *make_item(struct model *model, struct model_item *out)
{
    *out = (struct model_item){.key = model->next_key++,
                               .priority = (double)draw(model, 1000) / 7,
                               .chunk_count = (uint32_t)draw(model, ITEM_CHUNKS_MAX + 1),
                               .times = 0};
    char shape[ITEM_CHUNKS_MAX * 5 + 1] = "colu,colu,colu,";
    struct item *item = store_item_create(
        model->store,
        store_trajectory(model->store, (trp_bytes){(const uint8_t *)shape, out->chunk_count * 5},
                         out->chunk_count),
        NULL);
    item->key = out->key;
    item->priority = out->priority;
    for (uint32_t index = 0; index < out->chunk_count; index++) {
        struct kept *kept = &model->keep[draw(model, KEEP_MAX)];
        if (kept->chunk && draw(model, 3) == 0) {
            chunk_ref(kept->chunk);
            item->chunks[index] = kept->chunk;
            out->seeds[index] = kept->seed;
            out->sizes[index] = kept->size;
            continue;
        }
        out->seeds[index] = model->next_seed += 1000000;
        out->sizes[index] = draw_size(model);
        item->chunks[index] = fixture_chunk(model->store, out->seeds[index], out->sizes[index]);
        keep_chunk(model, item->chunks[index], out->seeds[index], out->sizes[index]);
    }
    return item;
}

static void insert(struct model *model)
{
    if (model->count == ITEMS_MAX)
        return;
    struct model_item *added = &model->items[model->count];
    struct item *item = make_item(model, added);
    trp_status status = store_admit(model->store, item);
    if (status == TRP_ABORTED) {
        commit(model);
        status = store_admit(model->store, item);
    }
    if (status != TRP_OK)
        fail_msg("%s", trp_last_error());
    uint32_t table = (uint32_t)draw(model, TABLES);
    added->table = model->tables[table].id;
    store_item_insert(model->store, added->table, item);
    added->item = item;
    model->count++;
    model->tables[table].inserts++;
    counters(model, table);
}

static void erase(struct model *model, size_t index)
{
    struct model_item *gone = &model->items[index];
    store_item_delete(model->store, gone->item);
    store_item_destroy(model->store, gone->item);
    uint32_t table = gone->table == model->tables[0].id ? 0 : 1;
    model->tables[table].deletes++;
    counters(model, table);
    memmove(gone, gone + 1, (--model->count - index) * sizeof *gone);
}

/* Enough of them, and groups have to compact it along. */
static void burst(struct model *model)
{
    for (unsigned left = 6000; left > 0; left--) {
        struct model_item *some = &model->items[draw(model, model->count)];
        some->priority = some->item->priority = (double)draw(model, 1000000) / 3;
        store_item_priority(model->store, some->item);
        if (left % 300 == 0)
            commit(model);
    }
}

static void operate(struct model *model)
{
    uint64_t kind = draw(model, 100);
    struct model_item *some = model->count ? &model->items[draw(model, model->count)] : NULL;
    if (kind < 35 || !some) {
        insert(model);
    } else if (kind < 65) {
        some->priority = some->item->priority = (double)draw(model, 1000) / 3;
        store_item_priority(model->store, some->item);
    } else if (kind < 75) {
        some->times = ++some->item->times_sampled;
        store_item_sampled(model->store, some->item);
    } else if (kind < 90) {
        erase(model, draw(model, model->count));
    } else if (kind < 92) {
        for (uint64_t left = draw(model, 60); left > 0 && model->count > 0; left--)
            erase(model, 0); /* first in, first out */
    } else if (kind < 98) {
        commit(model);
    } else if (!model->busy) {
        store_idle(model->store);
    } else {
        burst(model);
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

static struct store *open_at(const char *dir, trp_durability durability, struct loaded *loaded,
                             bool read_only)
{
    struct store *store;
    struct store_options options = {
        .dir = dir, .durability = durability, .cache_bytes = 20000, .read_only = read_only};
    static uint64_t opened;
    if (store_create(&store, &options) != TRP_OK ||
        (++opened % 2 ? load_in_pieces(store, loaded, opened) : load_all(store, loaded)) != TRP_OK)
        fail_msg("%s", trp_last_error());
    return store;
}

static void drop(struct model *model)
{
    for (size_t index = 0; index < KEEP_MAX; index++)
        if (model->keep[index].chunk)
            store_chunk_unref(model->store, model->keep[index].chunk);
    memset(model->keep, 0, sizeof model->keep);
    for (size_t index = 0; index < model->count; index++)
        store_item_destroy(model->store, model->items[index].item);
    store_destroy(model->store);
}

/* Closes cleanly in the middle of a group, which is then lost as a whole. */
static void reopen(struct model *model)
{
    drop(model);
    struct loaded loaded = {0};
    model->store = open_at(model->dir, model->durability, &loaded, false);
    memcpy(model->items, model->committed, model->committed_count * sizeof *model->items);
    model->count = model->committed_count;
    memcpy(model->tables, model->committed_tables, sizeof model->tables);
    check_tables(model->store, model->tables);
    check_loaded(model->store, &loaded, model->items, model->count);
    for (size_t index = 0; index < model->count; index++)
        model->items[index].item = loaded.items[index];
    struct store_stats stats;
    store_stats(model->store, &stats);
    assert_int_equal(stats.items, model->count);
    assert_int_equal(stats.chunks, distinct_chunks(&loaded));
    free(loaded.items);
    free(loaded.tables);
}

static void copy_file(const char *from, const char *to, const char *name, uint64_t bytes)
{
    char *source = fixture_path(from, name), *target = fixture_path(to, name);
    int in = open(source, O_RDONLY), out = open(target, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(in >= 0 && out >= 0);
    static uint8_t block[1 << 16];
    while (bytes > 0) {
        ssize_t got = read(in, block, bytes < sizeof block ? bytes : sizeof block);
        if (got <= 0)
            break;
        assert_int_equal(write(out, block, (size_t)got), got);
        bytes -= (uint64_t)got;
    }
    close(in);
    close(out);
    free(source);
    free(target);
}

/* What a crash now would leave is the last commit, exactly. */
static void crash_copy(struct model *model, bool read_only)
{
    char *copy = fixture_dir("/dev/shm");
    struct store_stats stats;
    store_stats(model->store, &stats);
    copy_file(model->dir, copy, "FORMAT", 4096);
    copy_file(model->dir, copy, "STATE", 4096);
    copy_file(model->dir, copy, "data.mdb", stats.file_bytes);
    struct loaded loaded = {0};
    struct store *store = open_at(copy, model->durability, &loaded, read_only);
    check_tables(store, model->committed_tables);
    check_loaded(store, &loaded, model->committed, model->committed_count);
    loaded_cleanup(store, &loaded);
    store_destroy(store);
    fixture_remove(copy);
}

static void run_model(uint64_t seed, trp_durability durability, unsigned operations,
                      size_t size_max, bool busy)
{
    struct model model = {.dir = fixture_dir("/tmp"),
                          .seed = seed,
                          .durability = durability,
                          .size_max = size_max,
                          .busy = busy};
    model.items = xcalloc(ITEMS_MAX + 1, sizeof *model.items);
    model.committed = xcalloc(ITEMS_MAX + 1, sizeof *model.items);
    struct loaded loaded = {0};
    model.store = open_at(model.dir, durability, &loaded, false);
    for (size_t index = 0; index < TABLES; index++)
        model.tables[index].id =
            store_table_put(model.store, index ? "b" : "a", "options", (trp_bytes){0});
    commit(&model);
    for (unsigned operation = 0; operation < operations; operation++) {
        operate(&model);
        if (draw(&model, operations / (busy ? 2 : 8)) == 0)
            reopen(&model);
        if (draw(&model, operations / (busy ? 2 : 8)) == 0)
            crash_copy(&model, draw(&model, 2) == 0);
    }
    reopen(&model);
    drop(&model);
    free(model.items);
    free(model.committed);
    fixture_remove(model.dir);
}

static void a_store_is_its_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++)
        run_model(seed, TRP_DURABLE_PROCESS, 4000, 100000, false);
}

static void a_synced_store_is_its_model(void **state)
{
    (void)state;
    run_model(100, TRP_DURABLE_SYSTEM, 2000, 20000, false);
}

/* Long without a stop, so that the log is compacted while it grows. */
static void a_compacting_store_is_its_model(void **state)
{
    (void)state;
    run_model(200, TRP_DURABLE_PROCESS, 40000, 200, false);
}

static void a_busy_store_is_its_model(void **state)
{
    (void)state;
    run_model(300, TRP_DURABLE_PROCESS, 16000, 200, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_is_its_model),
        cmocka_unit_test(a_synced_store_is_its_model),
        cmocka_unit_test(a_compacting_store_is_its_model),
        cmocka_unit_test(a_busy_store_is_its_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
