/* What a file can hold after its host went down, or a disk went bad: told, dropped or refused, and
 * never a crash. */
#include "tests/replay/store_fixture.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>

#include "replay/disk/record.h"

/* Keys are also the seeds of bytes: far apart, so that no chunk has another one's. */
enum { ITEMS = 400, FLIPS = 250, BYTES_MAX = 9000, KEY_STEP = 100000 };

struct damage {
    uint64_t key[ITEMS];
    uint32_t table[ITEMS];
    size_t count;
};

struct fixture {
    char *dir, *data;
    struct damage damage;
};

static void damage_add(void *arg, uint32_t table_id, uint64_t key, const char *what)
{
    struct damage *damage = arg;
    assert_true(strlen(what) > 0);
    assert_true(damage->count < ITEMS);
    damage->key[damage->count] = key;
    damage->table[damage->count++] = table_id;
}

static size_t item_size(uint64_t key)
{
    /* All the places where a sum can lie: in the piece, across two, in one of its own. */
    static const size_t sizes[] = {4076, 4077, 4079, 4080, 4081, 8156, 8158, 8160, 0, 1};
    uint64_t number = key / KEY_STEP;
    return number % 3 == 0 ? sizes[number / 3 % 10] : fixture_hash(number) % BYTES_MAX;
}

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    struct store *store;
    fixture->dir = fixture_dir("/dev/shm"); /* syncs hundreds of times */
    fixture->data = fixture_path(fixture->dir, "data.mdb");
    assert_int_equal(store_create(&store, &(struct store_options){.dir = fixture->dir}), TRP_OK);
    assert_int_equal(load_all(store, &(struct loaded){0}), TRP_OK);
    uint32_t table = store_table_put(store, "t", "name=t", (trp_bytes){0});
    struct item *items[ITEMS];
    for (uint64_t number = 0; number < ITEMS; number++) {
        uint64_t key = (number + 1) * KEY_STEP;
        items[number] = fixture_item(store, key, item_size(key));
        trp_status status = store_admit(store, items[number]);
        if (number % 64 == 0 || status == TRP_ABORTED)
            assert_int_equal(store_commit(store), TRP_OK);
        if (status == TRP_ABORTED) /* nobody gave the thread that allocates pages its time */
            status = store_admit(store, items[number]);
        assert_int_equal(status, TRP_OK);
        store_item_insert(store, table, items[number]);
    }
    assert_int_equal(store_commit(store), TRP_OK);
    for (size_t index = 0; index < ITEMS; index++)
        store_item_destroy(store, items[index]);
    store_destroy(store);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    free(fixture->data);
    fixture_remove(fixture->dir);
    free(fixture);
    return 0;
}

static void write_state(const struct fixture *fixture, const char *text)
{
    char *path = fixture_path(fixture->dir, "STATE");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    free(path);
}

static void host_goes_down(const struct fixture *fixture)
{
    write_state(fixture, "open process 01234567-89ab-cdef-0123-456789abcdef\n");
}

static trp_status open_store(struct fixture *fixture, struct store_options options,
                             struct store **store, struct loaded *loaded)
{
    options.dir = fixture->dir;
    options.damage = damage_add;
    options.arg = &fixture->damage;
    fixture->damage.count = 0;
    *loaded = (struct loaded){0};
    trp_status status = store_create(store, &options);
    return status == TRP_OK ? load_all(*store, loaded) : status;
}

static void close_store(struct store *store, struct loaded *loaded)
{
    loaded_cleanup(store, loaded);
    store_destroy(store);
}

/* Opens; items of these keys are dropped and told, all others whole. */
static void expect_dropped(struct fixture *fixture, struct store_options options, size_t dropped)
{
    struct store *store;
    struct loaded loaded;
    if (open_store(fixture, options, &store, &loaded) != TRP_OK)
        fail_msg("%s", trp_last_error());
    assert_int_equal(fixture->damage.count, dropped);
    assert_int_equal(loaded.count, ITEMS - dropped);
    for (size_t index = 0; index < loaded.count; index++) {
        const struct item *item = loaded.items[index];
        fixture_check_chunk(store, item->chunks[0], item->key, item_size(item->key));
    }
    close_store(store, &loaded);
}

/* Where the first bytes of this item's chunk lie in the file. */
static off_t find_chunk(const struct fixture *fixture, uint64_t key)
{
    uint8_t wanted[32];
    fixture_fill(wanted, sizeof wanted, key);
    int fd = open(fixture->data, O_RDONLY);
    off_t size = lseek(fd, 0, SEEK_END);
    uint8_t *bytes = xmalloc((size_t)size);
    assert_int_equal(pread(fd, bytes, (size_t)size, 0), size);
    uint8_t *found = memmem(bytes, (size_t)size, wanted, sizeof wanted);
    assert_non_null(found);
    off_t offset = found - bytes;
    free(bytes);
    close(fd);
    return offset;
}

static void flip(const struct fixture *fixture, off_t offset, uint8_t bits)
{
    uint8_t byte;
    int fd = open(fixture->data, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= bits;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

/* ---- cases ---------------------------------------------------------------------------------- */

static void a_store_that_went_down_with_its_host_is_checked(void **state)
{
    struct fixture *fixture = *state;
    host_goes_down(fixture);
    expect_dropped(fixture, (struct store_options){.read_only = true}, 0);
    expect_dropped(fixture, (struct store_options){0}, 0);
    write_state(fixture, "scribble\n");
    expect_dropped(fixture, (struct store_options){0}, 0);
}

static void what_is_damaged_is_dropped_once_and_told(void **state)
{
    struct fixture *fixture = *state;
    const uint64_t keys[] = {1 * KEY_STEP, 12 * KEY_STEP, 200 * KEY_STEP};
    for (size_t index = 0; index < 3; index++)
        flip(fixture, find_chunk(fixture, keys[index]) + 7, 0x10);
    expect_dropped(fixture, (struct store_options){.read_only = true, .check = true}, 3);
    host_goes_down(fixture);
    expect_dropped(fixture, (struct store_options){.read_only = true}, 3);
    expect_dropped(fixture, (struct store_options){0}, 3);
    for (size_t index = 0; index < 3; index++) {
        assert_int_equal(fixture->damage.key[index], keys[index]);
        assert_int_equal(fixture->damage.table[index], 1);
    }
    struct store *store;
    struct loaded loaded;
    assert_int_equal(open_store(fixture, (struct store_options){.check = true}, &store, &loaded),
                     TRP_OK);
    assert_int_equal(fixture->damage.count, 0);
    assert_int_equal(loaded.count, ITEMS - 3);
    close_store(store, &loaded);
}

static const char *refuse(void *arg, uint32_t table_id, trp_bytes trajectory, uint32_t chunk_count,
                          const double *priority)
{
    (void)arg, (void)table_id, (void)trajectory, (void)chunk_count;
    assert_null(priority); /* it has a sum */
    return "it is odd";
}

static void an_item_that_the_caller_finds_wrong_is_none_and_its_chunks_are_kept(void **state)
{
    struct fixture *fixture = *state;
    for (int check = 1; check >= 0; check--) {
        struct store *store;
        struct loaded loaded;
        struct store_stats stats;
        struct store_options options = {.check = check, .read_only = check, .item_wrong = refuse};
        assert_int_equal(open_store(fixture, options, &store, &loaded), TRP_OK);
        assert_int_equal(loaded.count, 0);
        assert_int_equal(fixture->damage.count, ITEMS);
        store_stats(store, &stats);
        assert_int_equal(stats.items, 0);
        assert_int_equal(stats.chunks, check ? 0 : ITEMS); /* kept for what may be mended */
        assert_int_equal(stats.live_bytes == 0, check);
        close_store(store, &loaded);
    }
}

static void an_interrupted_check_is_no_check(void **state)
{
    struct fixture *fixture = *state;
    struct store *store;
    flip(fixture, find_chunk(fixture, 12 * KEY_STEP), 1);
    host_goes_down(fixture);
    assert_int_equal(store_create(&store, &(struct store_options){.dir = fixture->dir}), TRP_OK);
    store_destroy(store); /* before it was loaded */
    expect_dropped(fixture, (struct store_options){0}, 1);
}

/* Reads everything, changes something, closes: what a server does. */
static void use_store(struct store *store, struct loaded *loaded)
{
    for (size_t index = 0; index < loaded->count; index++) {
        uint8_t *bytes = xmalloc(loaded->items[index]->chunks[0]->size + 1);
        assert_int_equal(store_chunk_read(store, loaded->items[index]->chunks[0], bytes), TRP_OK);
        free(bytes);
    }
    for (size_t index = 0; index < loaded->count; index += 3)
        store_item_delete(store, loaded->items[index]);
    struct item *item = fixture_item(store, 1000000, 30000);
    if (store_admit(store, item) == TRP_OK)
        store_item_insert(store, 1, item);
    loaded_cleanup(store, loaded);
    if (store_commit(store) == TRP_OK)
        while (store_idle(store))
            ;
    store_item_destroy(store, item);
}

static void copy_file(const char *from, const char *to)
{
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    char bytes[1 << 16];
    for (ssize_t got; (got = read(in, bytes, sizeof bytes)) > 0;)
        assert_int_equal(write(out, bytes, (size_t)got), got);
    close(in);
    close(out);
}

/* Bits in the pages of LMDB's trees more often than their share. */
static off_t flip_place(uint64_t draw, off_t size)
{
    off_t offset = (off_t)(fixture_hash(draw) % (uint64_t)size);
    return draw % 2 ? offset / 4096 * 4096 + (off_t)(fixture_hash(draw + 1) % 64) : offset;
}

static void no_bit_that_flips_is_a_crash(void **state)
{
    struct fixture *fixture = *state;
    char *whole = fixture_path(fixture->dir, "whole");
    copy_file(fixture->data, whole);
    struct stat info;
    assert_int_equal(stat(whole, &info), 0);
    unsigned told = 0;
    for (uint64_t round = 0; round < FLIPS; round++) {
        struct store *store;
        struct loaded loaded;
        copy_file(whole, fixture->data);
        for (uint64_t bits = 0; bits <= round % 3; bits++)
            flip(fixture, flip_place(round * 7919 + bits * 31 + 5, info.st_size),
                 (uint8_t)(1 << (round + bits) % 8));
        host_goes_down(fixture);
        trp_status status =
            open_store(fixture, (struct store_options){.cache_bytes = 1}, &store, &loaded);
        told += status != TRP_OK || fixture->damage.count > 0;
        if (status == TRP_OK)
            use_store(store, &loaded);
        else
            assert_true(strlen(trp_last_error()) > 0);
        if (store)
            close_store(store, &loaded);
    }
    assert_in_range(told, FLIPS / 3, FLIPS);
    unlink(whole);
    free(whole);
}

/* What STATE says while a server has it, and so what is there when it was killed. */
static void server_is_killed(struct fixture *fixture)
{
    struct store *store;
    struct loaded loaded;
    char *path = fixture_path(fixture->dir, "STATE"), text[200] = "";
    assert_int_equal(open_store(fixture, (struct store_options){0}, &store, &loaded), TRP_OK);
    FILE *file = fopen(path, "r");
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    free(path);
    close_store(store, &loaded);
    write_state(fixture, text);
}

/* Pages of trees do not lie where they say any more. */
static void move_pages(const char *path)
{
    enum { PAGE_BYTES = 4096, BRANCH = 1, LEAF = 2 };
    uint8_t page[PAGE_BYTES];
    int fd = open(path, O_RDWR);
    for (off_t at = 2 * PAGE_BYTES; pread(fd, page, sizeof page, at) == PAGE_BYTES;
         at += PAGE_BYTES)
        if (page[10] == BRANCH || page[10] == LEAF)
            assert_int_equal(pwrite(fd, "\xff", 1, at + 3), 1);
    close(fd);
}

static void a_file_in_the_place_of_a_killed_servers_is_checked(void **state)
{
    struct fixture *fixture = *state;
    struct store *store;
    server_is_killed(fixture);
    expect_dropped(fixture, (struct store_options){0}, 0);
    server_is_killed(fixture);
    expect_dropped(fixture, (struct store_options){.read_only = true}, 0);
    char *copy = fixture_path(fixture->dir, "copy");
    copy_file(fixture->data, copy);
    move_pages(copy);
    assert_int_equal(rename(copy, fixture->data), 0);
    free(copy);
    assert_int_equal(store_create(&store, &(struct store_options){.dir = fixture->dir}),
                     TRP_DATA_LOSS);
    assert_non_null(strstr(trp_last_error(), "another page lies there"));
}

/* The entry behind the first one of each leaf begins eight bytes before that one ends. */
static void overlap_entries(const char *path)
{
    enum { PAGE_BYTES = 4096, LEAF = 2, HEADER_BYTES = 16, SHIFT = 8, ENTRY_BYTES_MIN = 80 };
    _Alignas(8) uint8_t page[PAGE_BYTES];
    uint16_t *words = (uint16_t *)(void *)page, *places = words + HEADER_BYTES / 2;
    int fd = open(path, O_RDWR);
    for (off_t at = 2 * PAGE_BYTES; pread(fd, page, sizeof page, at) == PAGE_BYTES;
         at += PAGE_BYTES) {
        size_t count = (size_t)(words[6] - HEADER_BYTES) / 2;
        if (words[5] != LEAF || words[6] < HEADER_BYTES || words[6] > PAGE_BYTES || count < 3)
            continue;
        uint16_t *moved = &places[0], first = words[7], end = PAGE_BYTES;
        for (size_t i = 0; i < count; i++)
            if (places[i] > first && (*moved == first || places[i] < *moved))
                moved = &places[i];
        for (size_t i = 0; i < count; i++)
            if (places[i] > *moved && places[i] < end)
                end = places[i];
        if (*moved - first < ENTRY_BYTES_MIN)
            continue; /* its end is more than bytes of a value */
        memmove(page + *moved - SHIFT, page + *moved, (size_t)(end - *moved));
        *moved = (uint16_t)(*moved - SHIFT);
        assert_int_equal(pwrite(fd, page, sizeof page, at), PAGE_BYTES);
    }
    close(fd);
}

static void entries_that_overlap_are_damage(void **state)
{
    struct fixture *fixture = *state;
    struct store *store;
    overlap_entries(fixture->data);
    assert_int_equal(store_create(&store, &(struct store_options){.dir = fixture->dir}),
                     TRP_DATA_LOSS);
    assert_non_null(strstr(trp_last_error(), "entries overlap"));
}

static void damaged_structure_is_refused_and_names_the_way_out(void **state)
{
    struct fixture *fixture = *state;
    struct store *store;
    flip(fixture, 16, 0x40); /* LMDB's magic number */
    assert_int_equal(store_create(&store, &(struct store_options){.dir = fixture->dir}),
                     TRP_DATA_LOSS);
    assert_non_null(strstr(trp_last_error(), fixture->data));
    assert_non_null(strstr(trp_last_error(), "no checkpoint"));
    host_goes_down(fixture);
    assert_int_equal(store_create(&store, &(struct store_options){.dir = fixture->dir}),
                     TRP_DATA_LOSS);
    assert_non_null(strstr(trp_last_error(), "went down"));
}

/* ---- records --------------------------------------------------------------------------------- */

/* Flips a bit of the byte at `offset` behind each place where the file has these bytes. */
static void flip_found(const struct fixture *fixture, const void *needle, size_t size,
                       size_t offset)
{
    enum { LENGTH_MAX = 64 << 20 }; /* while a store is open its file is as long as the map */
    int fd = open(fixture->data, O_RDONLY);
    off_t length = lseek(fd, 0, SEEK_END);
    length = length < LENGTH_MAX ? length : LENGTH_MAX;
    uint8_t *bytes = mmap(NULL, (size_t)length, PROT_READ, MAP_SHARED, fd, 0), *at = bytes;
    unsigned count = 0;
    assert_true(bytes != MAP_FAILED);
    for (; (at = memmem(at, (size_t)(bytes + length - at), needle, size)) != NULL; at++, count++)
        flip(fixture, at - bytes + (off_t)offset, 1);
    assert_in_range(count, 1, 100);
    munmap(bytes, (size_t)length);
    close(fd);
}

/* At this byte of the record of the item with this key. */
static void flip_record(const struct fixture *fixture, uint64_t key, size_t offset)
{
    struct item_record header = {.table_id = 1, .chunk_count = 1, .key = key};
    flip_found(fixture, &header, offsetof(struct item_record, priority), offset);
}

static void what_changes_of_an_item_is_under_a_sum(void **state)
{
    struct fixture *fixture = *state;
    static const size_t offsets[] = {
        offsetof(struct item_record, priority), offsetof(struct item_record, priority) + 7,
        offsetof(struct item_record, times_sampled), offsetof(struct item_record, state_sum)};
    struct store *store;
    struct loaded loaded;
    assert_int_equal(open_store(fixture, (struct store_options){0}, &store, &loaded), TRP_OK);
    for (size_t index = 0; index < loaded.count; index += 2) {
        loaded.items[index]->priority = 5;
        loaded.items[index]->times_sampled = 6;
        store_item_priority(store, loaded.items[index]);
        store_item_sampled(store, loaded.items[index]);
    }
    assert_int_equal(store_commit(store), TRP_OK);
    close_store(store, &loaded); /* compacts: half of the records are written anew */
    expect_dropped(fixture, (struct store_options){.read_only = true, .check = true}, 0);
    for (uint64_t number = 1; number <= 8; number++)
        flip_record(fixture, number * KEY_STEP, offsets[number % 4]);
    expect_dropped(fixture, (struct store_options){.read_only = true, .check = true}, 8);
    for (int round = 0; round < 3; round++) {
        expect_dropped(fixture, (struct store_options){.check = round == 2}, 8);
        for (size_t index = 0; index < 8; index++) {
            assert_int_equal(fixture->damage.key[index], (index + 1) * KEY_STEP);
            assert_int_equal(fixture->damage.table[index], 1);
        }
    }
    assert_int_equal(open_store(fixture, (struct store_options){.check = true}, &store, &loaded),
                     TRP_OK);
    assert_int_equal(fixture->damage.count, 0);
    assert_int_equal(loaded.count, ITEMS - 8);
    close_store(store, &loaded);
}

/* Another one has the chunk of item 8. */
static void share_chunk(struct fixture *fixture)
{
    struct store *store;
    struct loaded loaded;
    const uint8_t shape[] = "one whole chunk";
    assert_int_equal(open_store(fixture, (struct store_options){0}, &store, &loaded), TRP_OK);
    struct item *item =
        store_item_create(store, store_trajectory(store, (trp_bytes){shape, sizeof shape}, 1),
                          loaded.items[7]->chunks);
    item->key = 1;
    assert_int_equal(store_admit(store, item), TRP_OK);
    store_item_insert(store, 1, item);
    assert_int_equal(store_commit(store), TRP_OK);
    store_item_destroy(store, item);
    close_store(store, &loaded);
}

/* A server's life, in which the other one goes, and with it all that is left to idle moments. */
static void live(struct fixture *fixture)
{
    struct store *store;
    struct loaded loaded;
    if (open_store(fixture, (struct store_options){0}, &store, &loaded) != TRP_OK)
        fail_msg("%s", trp_last_error());
    for (size_t index = 0; index < loaded.count; index++) {
        if (loaded.items[index]->key != 1)
            continue;
        store_item_delete(store, loaded.items[index]);
        store_item_destroy(store, loaded.items[index]);
        loaded.items[index] = loaded.items[--loaded.count];
    }
    assert_int_equal(store_commit(store), TRP_OK);
    for (int commits = 0; commits < 3; commits++) {
        store_table_put(store, "t", "name=t", (trp_bytes){0});
        assert_int_equal(store_commit(store), TRP_OK);
        while (store_idle(store))
            ;
    }
    close_store(store, &loaded);
}

/* First nothing tells whose the record is, then only what changes of the item is damaged. */
static void a_damaged_record_stays_with_its_chunks_until_it_is_dropped(void **state)
{
    struct fixture *fixture = *state;
    static const size_t offsets[] = {offsetof(struct item_record, inserted_at_ns),
                                     offsetof(struct item_record, state_sum)};
    for (size_t which = 0; which < 2; which++) {
        if (which)
            share_chunk(fixture);
        flip_record(fixture, 8 * KEY_STEP, offsets[which]);
        for (int life = 0; life < 3; life++) {
            live(fixture);
            assert_int_equal(fixture->damage.count, 1);
            assert_int_equal(fixture->damage.key[0], which ? 8 * KEY_STEP : 8);
            assert_int_equal(fixture->damage.table[0], which);
        }
        flip_record(fixture, 8 * KEY_STEP, offsets[which]);
        expect_dropped(fixture, (struct store_options){.read_only = true, .check = true}, 0);
    }
}

/* Whatever else such a record says is not to be believed either. */
static void a_record_of_a_table_that_never_was_is_damaged_and_the_others_are_there(void **state)
{
    struct fixture *fixture = *state;
    for (size_t byte = 0; byte < sizeof(uint32_t); byte++)
        flip_record(fixture, (byte + 1) * KEY_STEP, offsetof(struct item_record, table_id) + byte);
    for (int life = 0; life < 2; life++) {
        expect_dropped(fixture, (struct store_options){0}, sizeof(uint32_t));
        for (size_t index = 0; index < sizeof(uint32_t); index++)
            assert_int_equal(fixture->damage.table[index], 0); /* it tells nothing */
    }
    expect_dropped(fixture, (struct store_options){.check = true}, sizeof(uint32_t));
}

static void a_compaction_does_not_make_a_damaged_record_look_whole(void **state)
{
    struct fixture *fixture = *state;
    struct store *store;
    struct loaded loaded;
    assert_int_equal(open_store(fixture, (struct store_options){0}, &store, &loaded), TRP_OK);
    flip_record(fixture, 3 * KEY_STEP, offsetof(struct item_record, times_sampled));
    loaded.items[2]->priority = 5;
    store_item_priority(store, loaded.items[2]);
    assert_int_equal(store_commit(store), TRP_OK);
    close_store(store, &loaded);
    expect_dropped(fixture, (struct store_options){.check = true}, 1);
}

static void expect_loss(struct fixture *fixture, const char *words)
{
    struct store *store;
    struct loaded loaded;
    assert_int_equal(open_store(fixture, (struct store_options){0}, &store, &loaded),
                     TRP_DATA_LOSS);
    if (!strstr(trp_last_error(), words))
        fail_msg("%s", trp_last_error());
    close_store(store, &loaded);
}

/* As much of a file as is in use. */
static void copy_start(const char *from, const char *to)
{
    enum { BYTES = 64 << 20 };
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    uint8_t *bytes = xmalloc(BYTES);
    ssize_t got = pread(in, bytes, BYTES, 0);
    assert_true(got > 0);
    assert_int_equal(write(out, bytes, (size_t)got), got);
    free(bytes);
    close(in);
    close(out);
}

static void what_the_change_log_says_is_under_a_sum(void **state)
{
    struct fixture *fixture = *state;
    struct store *store;
    struct loaded loaded;
    const double priority = 123456.789;
    char *left = fixture_path(fixture->dir, "left");
    assert_int_equal(open_store(fixture, (struct store_options){0}, &store, &loaded), TRP_OK);
    loaded.items[7]->priority = priority;
    store_item_priority(store, loaded.items[7]);
    assert_int_equal(store_commit(store), TRP_OK);
    copy_start(fixture->data, left);
    close_store(store, &loaded);
    assert_int_equal(rename(left, fixture->data), 0);
    free(left);
    flip_found(fixture, &priority, sizeof priority, 3);
    expect_loss(fixture, "the change log's part ");
}

static void count_removed(void *arg, const struct removed_record *removed)
{
    unsigned *count = arg;
    assert_int_equal(removed->table_id, 1);
    ++*count;
}

static void tables_counters_and_removed_keys_are_under_sums(void **state)
{
    struct fixture *fixture = *state;
    struct store *store;
    struct loaded loaded;
    uint8_t identity[NONCE_BYTES];
    const uint64_t gone = UINT64_C(0x1122334455667788), inserts = UINT64_C(0x0102030405060708);
    char *whole = fixture_path(fixture->dir, "whole");
    assert_int_equal(open_store(fixture, (struct store_options){0}, &store, &loaded), TRP_OK);
    struct store_table table = *store_tables(store, &(size_t){0});
    table.inserts = (int64_t)inserts;
    store_table_counters(store, &table);
    store_removed_note(store, &(struct removed_record){.key = gone, .at_ns = 1, .table_id = 1});
    assert_int_equal(store_commit(store), TRP_OK);
    memcpy(identity, store_identity(store), sizeof identity);
    close_store(store, &loaded);
    copy_file(fixture->data, whole);
    for (int round = 0; round < 2; round++) {
        unsigned count = 0;
        assert_int_equal(open_store(fixture, (struct store_options){0}, &store, &loaded), TRP_OK);
        assert_int_equal(store_removed_load(store, count_removed, &count), TRP_OK);
        assert_int_equal(count, round == 0);
        close_store(store, &loaded);
        if (round == 0)
            flip_found(fixture, &gone, sizeof gone, 3);
    }
    flip_found(fixture, "name=t", 6, 0);
    expect_loss(fixture, "table 1 is damaged");
    copy_file(whole, fixture->data);
    flip_found(fixture, &inserts, sizeof inserts, 3);
    expect_loss(fixture, "counters of table 1 is damaged");
    copy_file(whole, fixture->data);
    flip_found(fixture, identity, sizeof identity, 3);
    expect_loss(fixture, "the meta record is damaged");
    unlink(whole);
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_store_that_went_down_with_its_host_is_checked, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_damaged_is_dropped_once_and_told, setup, teardown),
        cmocka_unit_test_setup_teardown(
            an_item_that_the_caller_finds_wrong_is_none_and_its_chunks_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(an_interrupted_check_is_no_check, setup, teardown),
        cmocka_unit_test_setup_teardown(no_bit_that_flips_is_a_crash, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_in_the_place_of_a_killed_servers_is_checked, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(entries_that_overlap_are_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(what_changes_of_an_item_is_under_a_sum, setup, teardown),
        cmocka_unit_test_setup_teardown(a_damaged_record_stays_with_its_chunks_until_it_is_dropped,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_record_of_a_table_that_never_was_is_damaged_and_the_others_are_there, setup,
            teardown),
        cmocka_unit_test_setup_teardown(a_compaction_does_not_make_a_damaged_record_look_whole,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(what_the_change_log_says_is_under_a_sum, setup, teardown),
        cmocka_unit_test_setup_teardown(tables_counters_and_removed_keys_are_under_sums, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(damaged_structure_is_refused_and_names_the_way_out, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
