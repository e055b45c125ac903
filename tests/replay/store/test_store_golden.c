/* A store as this version writes it, and one of the format before, kept as text: whoever changes
 * what lies on disk changes STORE_FORMAT, or this fails.
 *
 *   test_store_golden FILE   writes the text anew */
#include "tests/replay/store_fixture.h"

#include "replay/disk/record.h"

enum { ITEMS = 5, ROW_BYTES = 32 };

static size_t item_size(uint64_t key)
{
    return key == 3 ? 9000 : 40 * key;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void store_make(const char *dir)
{
    struct store *store;
    struct store_options options = {.dir = dir};
    struct item *items[ITEMS];
    assert_int_equal(store_create(&store, &options), TRP_OK);
    assert_int_equal(load_all(store, &(struct loaded){0}), TRP_OK);
    uint32_t table = store_table_put(store, "t", "name=t sampler=fifo", (trp_bytes){0});
    for (uint64_t key = 1; key <= ITEMS; key++) {
        items[key - 1] = fixture_item(store, key, item_size(key));
        assert_int_equal(store_admit(store, items[key - 1]), TRP_OK);
        store_item_insert(store, table, items[key - 1]);
    }
    items[1]->priority = 77;
    assert_int_equal(store_commit(store), TRP_OK);
    store_item_priority(store, items[1]);
    store_item_delete(store, items[3]);
    assert_int_equal(store_commit(store), TRP_OK);
    for (size_t index = 0; index < ITEMS; index++)
        store_item_destroy(store, items[index]);
    store_destroy(store);
}

static void golden_write(const char *path)
{
    static const uint8_t nothing[ROW_BYTES];
    char *dir = fixture_dir("/dev/shm"), *data = fixture_path(dir, "data.mdb");
    store_make(dir);
    FILE *in = fopen(data, "r"), *out = fopen(path, "w");
    assert_non_null(in);
    assert_non_null(out);
    uint8_t row[ROW_BYTES];
    unsigned long offset = 0;
    for (; fread(row, 1, ROW_BYTES, in) == ROW_BYTES; offset += ROW_BYTES) {
        if (memcmp(row, nothing, ROW_BYTES) == 0)
            continue;
        fprintf(out, "%lx ", offset);
        for (size_t at = 0; at < ROW_BYTES; at++)
            fprintf(out, "%02x", row[at]);
        fputc('\n', out);
    }
    fprintf(out, "%lx end\n", offset);
    fclose(in);
    fclose(out);
    free(data);
    fixture_remove(dir);
}

/* ---- reading -------------------------------------------------------------------------------- */

static void small_file(const char *dir, const char *name, const char *text)
{
    char *path = fixture_path(dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    free(path);
}

static void golden_read(const char *dir, int format)
{
    char *path = xasprintf("%s/store_format_%d.txt", GOLDEN_DIR, format);
    char *line = xasprintf("troupe replay store\nformat %d\n", format);
    char *data = fixture_path(dir, "data.mdb"), hex[2 * ROW_BYTES + 1];
    FILE *in = fopen(path, "r"), *out = fopen(data, "w");
    assert_non_null(in);
    assert_non_null(out);
    unsigned long offset;
    while (fscanf(in, "%lx %64s", &offset, hex) == 2 && strcmp(hex, "end") != 0) {
        uint8_t row[ROW_BYTES];
        for (size_t at = 0; at < ROW_BYTES; at++) {
            unsigned byte;
            assert_int_equal(sscanf(hex + 2 * at, "%2x", &byte), 1);
            row[at] = (uint8_t)byte;
        }
        assert_int_equal(fseek(out, (long)offset, SEEK_SET), 0);
        assert_int_equal(fwrite(row, 1, ROW_BYTES, out), ROW_BYTES);
    }
    assert_string_equal(hex, "end");
    fclose(in);
    fclose(out);
    assert_int_equal(truncate(data, (off_t)offset), 0);
    free(data);
    small_file(dir, "FORMAT", line);
    free(line);
    free(path);
    small_file(dir, "STATE", "clean process 01234567-89ab-cdef-0123-456789abcdef\n");
}

static void expect_items(const char *dir, struct store_options options)
{
    static const uint64_t keys[] = {1, 2, 3, 5};
    struct store *store;
    struct loaded loaded = {0};
    options.dir = dir;
    if (store_create(&store, &options) != TRP_OK || load_all(store, &loaded) != TRP_OK)
        fail_msg("%s", trp_last_error());
    assert_int_equal(loaded.count, 4);
    for (size_t index = 0; index < loaded.count; index++) {
        const struct item *item = loaded.items[index];
        assert_int_equal(item->key, keys[index]);
        assert_true(item->priority == (item->key == 2 ? 77 : (double)item->key / 2));
        fixture_check_chunk(store, item->chunks[0], item->key, item_size(item->key));
    }
    size_t count;
    const struct store_table *tables = store_tables(store, &count);
    assert_int_equal(count, 1);
    assert_string_equal(tables[0].options, "name=t sampler=fifo");
    loaded_cleanup(store, &loaded);
    store_destroy(store);
}

static void a_store_of_this_format_is_read(void **state)
{
    (void)state;
    char *dir = fixture_dir("/dev/shm");
    assert_int_equal(STORE_FORMAT, 3);
    golden_read(dir, STORE_FORMAT);
    expect_items(dir, (struct store_options){.check = true});
    fixture_remove(dir);
}

static void expect_format(const char *dir, const char *expected)
{
    char *path = fixture_path(dir, "FORMAT"), text[64] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    assert_int_equal(strncmp(text, expected, strlen(expected)), 0);
    fclose(file);
    free(path);
}

static void a_store_of_the_format_before_is_read_and_goes_on_in_this_one(void **state)
{
    (void)state;
    char *dir = fixture_dir("/dev/shm");
    struct store *store;
    struct loaded loaded = {0};
    golden_read(dir, STORE_FORMAT_BEFORE);
    expect_items(dir, (struct store_options){.read_only = true});
    expect_format(dir, "troupe replay store\nformat 2\n");
    expect_items(dir, (struct store_options){.check = true});
    expect_format(dir, "troupe replay store\nformat 3\n");
    assert_int_equal(store_create(&store, &(struct store_options){.dir = dir}), TRP_OK);
    assert_int_equal(load_all(store, &loaded), TRP_OK);
    store_item_priority(store, loaded.items[1]); /* is written anew */
    struct item *item = fixture_item(store, 9, 100);
    assert_int_equal(store_admit(store, item), TRP_OK);
    store_item_insert(store, 1, item);
    assert_int_equal(store_commit(store), TRP_OK);
    store_item_delete(store, item);
    assert_int_equal(store_commit(store), TRP_OK);
    store_item_destroy(store, item);
    loaded_cleanup(store, &loaded);
    store_destroy(store);
    expect_items(dir, (struct store_options){.check = true});
    fixture_remove(dir);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_of_this_format_is_read),
        cmocka_unit_test(a_store_of_the_format_before_is_read_and_goes_on_in_this_one),
    };
    if (argc > 1) {
        golden_write(argv[1]);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
