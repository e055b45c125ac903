/* `troupe replay dump` and `load`: what goes out comes back in. */
#include "cli_tools.h"

#include <troupe/rpc.h>
#include "tests/replay/hex.h"

/* Two dumps say the same but for the time of insertion. */
static void assert_same_items(struct desk *desk, const char *a, const char *b)
{
    char *left = scene_read(&desk->at, a), *right = scene_read(&desk->at, b);
    char *l = left, *r = right;
    for (;;) {
        char *at_l = strstr(l, "\"inserted_at_ns\":"), *at_r = strstr(r, "\"inserted_at_ns\":");
        if (!at_l || !at_r)
            break;
        assert_int_equal(at_l - l, at_r - r);
        assert_memory_equal(l, r, at_l - l);
        l = strchr(at_l, ',');
        r = strchr(at_r, ',');
    }
    assert_string_equal(l, r);
    free(left);
    free(right);
}

static void a_dump_loads_back_to_the_same_items(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    assert_troupe(desk, 0, "replay dump %s t live.jsonl", desk->address);
    desk_stop(desk);
    assert_troupe(desk, 0, "replay dump --all store stopped.jsonl -o json");
    cJSON *json = desk_json(desk);
    assert_true(json_at(json, "items") == 5);
    cJSON_Delete(json);
    assert_troupe(desk, 0, "replay drop store t --yes");
    assert_troupe(desk, 3, "replay load store live.jsonl");
    assert_one_error(desk, "no table t; it has: u; --create makes");
    assert_troupe(desk, 0, "replay load store live.jsonl --create");
    assert_troupe(desk, 0, "replay dump store t again.jsonl");
    assert_same_items(desk, "live.jsonl", "again.jsonl");
    /* Keys are kept: a second time changes nothing. */
    assert_troupe(desk, 0, "replay load store live.jsonl");
    assert_troupe(desk, 0, "replay dump store t again.jsonl");
    assert_same_items(desk, "live.jsonl", "again.jsonl");
    assert_troupe(desk, 0, "replay load store live.jsonl --table=u");
    assert_troupe(desk, 0, "replay info store u");
    assert_file_contains(&desk->at, "out", "size      5 of");
    assert_troupe(desk, 3, "replay load store live.jsonl --table=t2");
    assert_one_error(desk, "no table t2; it has: u t; --create makes");
    assert_troupe(desk, 0, "replay load store live.jsonl --table=t2 --create");
    assert_troupe(desk, 0, "replay info store t2");
    assert_file_contains(&desk->at, "out", "name=t2 sampler=max_heap");
    assert_file_contains(&desk->at, "out", "size      5 of");
    assert_troupe(desk, 0, "replay load store live.jsonl --table=t2 --timeout=0");
    assert_file_contains(&desk->at, "out", "5 were there already");
    assert_troupe(desk, 1, "replay dump store t nodir/t.npz");
    assert_one_error(desk, "nodir/t.npz: cannot write in nodir: No such file");
    assert_troupe(desk, 0, "replay dump store t some.jsonl --min-priority=4");
    assert_file_contains(&desk->at, "out", "2 items in some.jsonl");
}

/* Items that differ in shape, that lack a column, with and without a time axis, of types that numpy
 * has not, with a priority that JSON has not, in two tables. */
static const char odd_items[] =
    "{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":["
    "{\"dtype\":\"bfloat16\",\"shape\":[2],\"squeezed\":false,\"data\":\"AIAAQA==\"},"
    "{\"dtype\":\"uint8\",\"shape\":[1,2],\"squeezed\":false,\"data\":\"AQI=\"},"
    "{\"dtype\":\"qint8\",\"shape\":[],\"squeezed\":true,\"data\":\"AQ==\"}]}\n"
    "{\"table\":\"t\",\"key\":\"18446744073709551615\",\"priority\":2.5,\"policy_version\":\"9\","
    "\"columns\":["
    "{\"dtype\":\"bfloat16\",\"shape\":[1],\"squeezed\":false,\"data\":\"AIA=\"},"
    "{\"dtype\":\"uint8\",\"shape\":[2],\"squeezed\":true,\"data\":\"AwQ=\"},"
    "{\"dtype\":\"qint8\",\"shape\":[],\"squeezed\":true,\"data\":\"Ag==\"}]}\n"
    "{\"table\":\"t\",\"key\":\"3\",\"priority\":0,\"columns\":["
    "{\"dtype\":\"bfloat16\",\"shape\":[1],\"squeezed\":false,\"data\":\"AEA=\"},"
    "{\"dtype\":\"uint8\",\"shape\":[2],\"squeezed\":true,\"data\":\"BQY=\"}]}\n"
    "{\"table\":\"u\",\"key\":\"7\",\"priority\":\"-Infinity\",\"columns\":["
    "{\"dtype\":\"int64\",\"shape\":[1,1],\"squeezed\":false,\"data\":\"AQAAAAAAAAA=\"}]}\n";

static void an_npz_loads_back_to_the_same_items(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    desk_write(desk, "odd.jsonl", odd_items);
    assert_troupe(desk, 0, "replay load %s odd.jsonl", desk->address);
    assert_troupe(desk, 0, "replay dump --all %s before.jsonl", desk->address);
    assert_troupe(desk, 0, "replay dump --all %s x.npz", desk->address);
    assert_troupe(desk, 0, "replay dump %s t t.npz", desk->address);
    desk_stop(desk);
    assert_troupe(desk, 0, "replay create store name=v");
    assert_troupe(desk, 0, "replay drop store t --yes");
    assert_troupe(desk, 0, "replay reset store u --yes");
    assert_troupe(desk, 3, "replay load store x.npz");
    assert_troupe(desk, 0, "replay load store x.npz --create");
    assert_file_contains(&desk->at, "out", "4 items inserted from x.npz");
    assert_troupe(desk, 0, "replay drop store v");
    assert_troupe(desk, 0, "replay dump store u after_u.jsonl");
    assert_troupe(desk, 0, "replay dump store t after.jsonl");
    char *u = scene_read(&desk->at, "after_u.jsonl"), *t = scene_read(&desk->at, "after.jsonl");
    char *both = xasprintf("%s%s", t, u); /* t was made anew: it comes behind u */
    desk_write(desk, "after.jsonl", both);
    assert_same_items(desk, "before.jsonl", "after.jsonl");
    assert_troupe(desk, 0, "replay load store t.npz --table=u");
    assert_file_contains(&desk->at, "out", "3 items inserted");
    free(both);
    free(t);
    free(u);
}

/* Item 11 of t: one int64 in a tensor of 12 dimensions. */
static void insert_deep(const char *address)
{
    static const char hex[] = "0a4c0807120208092a420a4008091230120208011202080112020801120208011202"
                              "080112020801120208011202"
                              "080112020801120208011202080112020801220a081c050000000000000030011218"
                              "080b12017429000000000000"
                              "f03f42080a060a04080718011a0107";
    enum { ANSWER_MS = 10000 };
    uint8_t bytes[sizeof hex / 2];
    trp_bytes request = hex_bytes(hex, bytes);
    trp_message *message = trp_message_create(request.size);
    memcpy(trp_message_data(message), request.data, request.size);
    trp_channel *channel;
    trp_stream *stream;
    assert_int_equal(trp_channel_create(&channel, address, NULL), TRP_OK);
    assert_int_equal(
        trp_stream_open(&stream, channel, "/deepmind.reverb.ReverbService/InsertStream", NULL),
        TRP_OK);
    assert_int_equal(trp_stream_send(stream, message, ANSWER_MS), TRP_OK);
    assert_int_equal(trp_stream_receive(stream, &message, ANSWER_MS), TRP_OK);
    trp_message_destroy(message);
    trp_stream_destroy(stream);
    trp_channel_destroy(channel);
}

static void an_item_of_too_many_dimensions_stops_no_dump(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    insert_deep(desk->address);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    assert_troupe(desk, 0, "replay peek %s t 11", desk->address);
    assert_file_contains(&desk->at, "out", "[1,1,1,1,1,1,1,...]  rank 12, values not shown");
    assert_troupe(desk, 1, "replay dump %s t x.jsonl", desk->address);
    assert_file_contains(&desk->at, "out", "5 items in x.jsonl, 1 left out");
    assert_one_error(desk, "12 dimensions");
    desk_stop(desk);
}

static void complex_numbers_are_shown(void **state)
{
    struct desk *desk = *state;
    desk_write(desk, "complex.jsonl",
               "{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":[{\"dtype\":"
               "\"complex64\",\"shape\":[1],\"squeezed\":false,\"data\":\"AADAPwAAIMA=\"}]}\n");
    desk_serve(desk, tables);
    assert_troupe(desk, 0, "replay load %s complex.jsonl", desk->address);
    assert_troupe(desk, 0, "replay peek %s t 1", desk->address);
    assert_file_contains(&desk->at, "out", "[1.5-2.5j]");
    assert_troupe(desk, 0, "replay peek %s t 1 -o json", desk->address);
    cJSON *json = desk_json(desk);
    const cJSON *columns = cJSON_GetObjectItem(json, "columns");
    const cJSON *values = cJSON_GetObjectItem(cJSON_GetArrayItem(columns, 0), "values");
    assert_true(cJSON_GetArrayItem(cJSON_GetArrayItem(values, 0), 1)->valuedouble == -2.5);
    cJSON_Delete(json);
    desk_stop(desk);
}

static bool file_has(struct desk *desk, const char *name, const char *part)
{
    char *path = scene_path(&desk->at, name), bytes[1 << 14];
    FILE *file = fopen(path, "re");
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    free(path);
    return memmem(bytes, size, part, strlen(part)) != NULL;
}

/* A StructuredValue: a dict of two TensorSpecs, obs and step. */
static const char signature[] = "\xaa\x03\x1d\x0a\x0c\x0a\x03"
                                "obs\x12\x05\x8a\x02\x02\x18\x09\x0a\x0d\x0a\x04"
                                "step\x12\x05\x8a\x02\x02\x18\x01";

/* One item of table `table`: bytes, `first` of them in the first column. */
static char *item_line(const char *table, int key, int first, const char *others)
{
    return xasprintf("{\"table\":\"%s\",\"key\":\"%d\",\"priority\":1,\"columns\":["
                     "{\"dtype\":\"uint8\",\"shape\":[1,%d],\"squeezed\":false,\"data\":\"%s\"}"
                     "%s]}\n",
                     table, key, first, first == 1 ? "AQ==" : "AQI=", others);
}

static void arrays_of_tables_and_columns_of_like_names_are_kept_apart(void **state)
{
    struct desk *desk = *state;
    static const char *const names[] = {"a", "a/b", "a%2Fb", "c"};
    static const char more[] = ",{\"dtype\":\"uint8\",\"shape\":[1,1],\"squeezed\":false,"
                               "\"data\":\"Bw==\"}";
    desk_serve(desk, "--table 'name=a signature={b/keys: uint8[?]}' --table name=a/b "
                     "--table name=a%2Fb --table 'name=c signature={x: uint8[?], x/0: uint8[1]}'");
    for (int i = 0; i < 4; i++) {
        char *one = item_line(names[i], 10 * i + 1, 1, i < 3 ? "" : more);
        char *two = item_line(names[i], 10 * i + 2, 2, i < 3 ? "" : more);
        char *both = xasprintf("%s%s", one, two);
        desk_write(desk, "items.jsonl", both);
        assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
        free(both);
        free(two);
        free(one);
    }
    assert_troupe(desk, 0, "replay dump --all %s before.jsonl", desk->address);
    assert_troupe(desk, 0, "replay dump --all %s x.npz", desk->address);
    assert_true(file_has(desk, "x.npz", "a%2Fb/keys.npy"));
    desk_stop(desk);
    for (int i = 0; i < 4; i++)
        assert_troupe(desk, 0, "replay drop store '%s' --yes", names[i]);
    assert_troupe(desk, 0, "replay load store x.npz --create");
    assert_file_contains(&desk->at, "out", "8 items inserted from x.npz");
    assert_troupe(desk, 0, "replay dump --all store after.jsonl");
    assert_same_items(desk, "before.jsonl", "after.jsonl");
}

static void columns_have_the_names_of_the_signature(void **state)
{
    struct desk *desk = *state;
    desk_write(desk, "signature", signature);
    char *flags = xasprintf("--table 'name=t signature=%s/signature' --table name=u", desk->at.dir);
    desk_serve(desk, flags);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    assert_troupe(desk, 0, "replay peek %s t 4", desk->address);
    assert_file_contains(&desk->at, "out", "obs     int64    [1]    [4]");
    assert_troupe(desk, 0, "replay peek %s t -o json", desk->address);
    assert_file_contains(&desk->at, "out", "\"name\":\t\"step\"");
    assert_troupe(desk, 0, "replay dump %s t x.jsonl", desk->address);
    assert_file_contains(&desk->at, "x.jsonl", "\"columns\":[\"obs\",\"step\"]");
    assert_troupe(desk, 0, "replay dump %s t x.npz", desk->address);
    assert_true(file_has(desk, "x.npz", "step.npy"));
    assert_false(file_has(desk, "x.npz", "column_"));
    assert_troupe(desk, 0, "replay load %s x.npz --table=u", desk->address);
    assert_troupe(desk, 0, "replay peek %s u 4", desk->address);
    assert_file_contains(&desk->at, "out", "0       int64    [1]    [4]");
    desk_stop(desk);
    free(flags);
}

static void a_load_says_what_was_there_already(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    assert_file_contains(&desk->at, "out", "5 items inserted from items.jsonl\n");
    assert_troupe(desk, 0, "replay delete %s t 2", desk->address);
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    assert_file_contains(&desk->at, "out",
                         "1 item inserted from items.jsonl, 4 were there already\n");
    assert_troupe(desk, 0, "replay dump %s t t.npz", desk->address);
    desk_stop(desk);
    assert_troupe(desk, 0, "replay load store t.npz -o json");
    cJSON *json = desk_json(desk);
    assert_true(json_at(json, "items") == 5);
    assert_true(json_at(json, "inserted") == 0);
    assert_true(json_at(json, "already_there") == 5);
    cJSON_Delete(json);
}

/* Not an archive; an archive cut short; one that is no dump. */
static void a_wrong_npz_is_refused(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    assert_troupe(desk, 0, "replay dump %s t whole.npz", desk->address);
    char *path = scene_path(&desk->at, "whole.npz");
    desk_write(desk, "text.npz", "no archive");
    assert_troupe(desk, 1, "replay load %s text.npz", desk->address);
    assert_one_error(desk, "text.npz: Not a zip archive");
    assert_troupe(desk, 1, "replay load %s none.npz", desk->address);
    assert_one_error(desk, "none.npz: No such file or directory\n"); /* and nothing of going on */
    int file = open(path, O_RDWR | O_CLOEXEC);
    off_t size = lseek(file, 0, SEEK_END);
    for (off_t at = 0; at < size; at += 53) { /* what is changed is told, or does not matter */
        uint8_t byte, other;
        assert_int_equal(pread(file, &byte, 1, at), 1);
        other = byte ^ 0x55;
        assert_int_equal(pwrite(file, &other, 1, at), 1);
        int status = troupe(desk, "replay load %s whole.npz", desk->address);
        assert_in_range(status, 0, 1);
        if (status == 1)
            assert_one_error(desk, "whole.npz");
        assert_int_equal(pwrite(file, &byte, 1, at), 1);
    }
    assert_troupe(desk, 0, "replay load %s whole.npz", desk->address);
    close(file);
    assert_int_equal(truncate(path, size / 2), 0);
    assert_troupe(desk, 1, "replay load %s whole.npz", desk->address);
    assert_one_error(desk, "whole.npz");
    desk_stop(desk);
    free(path);
}

static void wrong_dumps_are_refused_with_their_line(void **state)
{
    struct desk *desk = *state;
    const struct {
        const char *line, *words;
    } rows[] = {
        {"not json", "bad.jsonl:2: not a JSON object: wrong near byte 1"},
        {"{\"table\":\"t\",}", "not a JSON object: wrong near byte 15"},
        {"[1]", "not a JSON object"},
        {"{}", "bad.jsonl:2: table: "},
        {"{\"table\":\"t\"}", "bad.jsonl:2: key: not a number as text"},
        {"{\"table\":\"t\",\"key\":\"1\"}", "bad.jsonl:2: priority: not a number"},
        {"{\"table\":\"t\",\"key\":\"1\",\"priority\":1}", "bad.jsonl:2: columns: not an array"},
        {"{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":[{}]}",
         "bad.jsonl:2: columns[0].dtype: not a known dtype"},
        {"{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":[{\"dtype\":\"int8\","
         "\"data\":\"A\"}]}",
         "bad.jsonl:2: columns[0].data: not base64"},
        {"{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":[{\"dtype\":\"int8\","
         "\"data\":\"AAAA\",\"shape\":[4]}]}",
         "bad.jsonl:2, or a line before: column 0: 3 bytes where its shape says 4"},
        {"{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":[{\"dtype\":\"int8\","
         "\"data\":\"AAAA\",\"shape\":[-3]}]}",
         "columns[0].shape[0]: not a size"},
        {"{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":[{\"dtype\":\"int8\","
         "\"data\":\"AA==\",\"shape\":[]}]}",
         "replay load: bad.jsonl:2, or a line before: column 0: a shape without dimensions"},
        {"{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":[{\"dtype\":\"int8\","
         "\"data\":\"AAAA\",\"shape\":[3,3.7]}]}",
         "columns[0].shape[1]: not a size"},
        {"{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":[{\"dtype\":\"string\","
         "\"data\":\"fwAA\",\"shape\":[1]}]}",
         "its bytes are not the 1 strings of its shape"},
        {"{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":[{\"dtype\":\"string\","
         "\"values\":[\"a\",7],\"shape\":[2]}]}",
         "columns[0].values: not an array of strings"},
        {"{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":[{\"dtype\":\"string\","
         "\"values\":[\"a\"],\"shape\":[2]}]}",
         "its bytes are not the 2 strings of its shape"},
        {"{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":[{\"dtype\":\"int8\","
         "\"values\":[1],\"shape\":[1]}]}",
         "columns[0].values: only strings have them, int8 has data"},
        {"{\"troupe_dump\":1,\"table\":\"t\"}", "bad.jsonl:2: options: not text"},
        {"{\"troupe_dump\":1,\"table\":\"t\",\"options\":\"name=t\",\"signature\":7}",
         "bad.jsonl:2: signature: not base64"},
    };
    desk_serve(desk, tables);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = xasprintf("\n%s\n", rows[i].line);
        desk_write(desk, "bad.jsonl", text);
        assert_troupe(desk, 1, "replay load %s bad.jsonl", desk->address);
        assert_one_error(desk, rows[i].words);
        free(text);
    }
    assert_troupe(desk, 0, "replay info %s t", desk->address);
    assert_file_contains(&desk->at, "out", "size      0 of");
    desk_stop(desk);
}

/* What docs/replay.md has between the line that begins so and the end of its block; caller frees.
 */
static char *documented(const char *begin)
{
    char *text = read_whole(SOURCE_DIR "/docs/replay.md"), *at = strstr(text, begin);
    assert_non_null(at);
    char *end = strstr(at, "```");
    assert_non_null(end);
    char *block = xasprintf("%.*s", (int)(end - at), at);
    free(text);
    return block;
}

static void the_documented_example_loads(void **state)
{
    struct desk *desk = *state;
    char *lines = documented("{\"troupe_dump\": 1");
    desk_write(desk, "items.jsonl", lines);
    free(lines);
    desk_serve(desk, "--table name=other");
    assert_troupe(desk, 0, "replay load %s items.jsonl --create", desk->address);
    assert_file_contains(&desk->at, "out", "2 items inserted from items.jsonl");
    assert_troupe(desk, 0, "replay peek %s t 1", desk->address);
    assert_file_contains(&desk->at, "out", "[1 2]");
    assert_file_contains(&desk->at, "out", "left");
    assert_troupe(desk, 0, "replay peek %s t 2", desk->address);
    assert_file_contains(&desk->at, "out", "7");
    desk_stop(desk);
}

/* Key 1 of table t: a column of the string abc. */
static void load_text(struct desk *desk)
{
    desk_write(desk, "text.jsonl",
               "{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":[{\"dtype\":\"string\","
               "\"shape\":[1],\"squeezed\":false,\"data\":\"A2FiYw==\"}]}\n");
    assert_troupe(desk, 0, "replay load %s text.jsonl", desk->address);
}

/* One that has begun. */
static void a_load_that_fails_says_how_far_it_came(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, "--table name=t");
    desk_write_items(desk, "items.jsonl");
    char *items = scene_read(&desk->at, "items.jsonl");
    char *text = xasprintf("%snot json\n", items);
    desk_write(desk, "bad.jsonl", text);
    assert_troupe(desk, 1, "replay load %s bad.jsonl", desk->address);
    assert_one_error(desk, "bad.jsonl:7: not a JSON object: wrong near byte 1 (5 items are "
                           "loaded; the file has to be mended: to load it again does not help)\n");
    assert_troupe(desk, 0, "replay create %s name=few limiter=queue(2)", desk->address);
    assert_troupe(desk, 1, "replay load %s items.jsonl --table=few --timeout=0.1", desk->address);
    assert_one_error(desk, "(2 items are loaded; load again to go on)\n");
    assert_troupe(desk, 3, "replay load %s items.jsonl --table=u", desk->address);
    assert_one_error(desk, "--create makes those that the dump describes\n");
    assert_troupe(desk, 0, "replay load %s items.jsonl --table=t", desk->address);
    assert_troupe(desk, 0, "replay dump %s t items.npz", desk->address);
    char *path = xasprintf("%s/items.npz", desk->at.dir);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, 300, SEEK_SET), 0); /* among the elements of the first array */
    assert_int_equal(fputs("damaged", file) >= 0, true);
    assert_int_equal(fclose(file), 0);
    assert_troupe(desk, 1, "replay load %s items.npz", desk->address);
    assert_one_error(desk, "item 0, from byte 0 of the array on: Zlib error");
    free(path);
    desk_stop(desk);
    free(text);
    free(items);
}

/* Text is text, and what is none is marked, both ways. */
static void strings_are_told_from_bytes(void **state)
{
    struct desk *desk = *state;
    static const char values[] =
        "\"values\":[\"step 1\",\"\303\274\",\"a\\nb\",{\"base64\":\"YQBi\"},"
        "{\"base64\":\"/w==\"},\"w7w=\"]";
    char *line = xasprintf("{\"troupe_dump\":1,\"table\":\"t\",\"options\":\"name=t\"}\n"
                           "{\"table\":\"t\",\"key\":\"1\",\"priority\":1,\"columns\":[{"
                           "\"dtype\":\"string\",\"shape\":[6],\"squeezed\":false,%s}]}\n",
                           values);
    desk_write(desk, "strings.jsonl", line);
    desk_serve(desk, "--table name=u");
    assert_troupe(desk, 0, "replay load %s strings.jsonl --create", desk->address);
    assert_troupe(desk, 0, "replay sample %s t -o json", desk->address);
    assert_file_contains(&desk->at, "out", values);
    assert_troupe(desk, 0, "replay dump %s t dump.jsonl", desk->address);
    assert_troupe(desk, 0, "replay load %s dump.jsonl --table=u", desk->address);
    assert_troupe(desk, 0, "replay sample %s u -o json", desk->address);
    assert_file_contains(&desk->at, "out", values);
    desk_stop(desk);
    free(line);
}

/* What is not whole has not the name of a dump. */
static void a_dump_that_fails_leaves_nothing(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    load_text(desk);
    assert_troupe(desk, 2, "replay dump %s t x.txt", desk->address);
    assert_one_error(desk, "FILE.npz or FILE.jsonl");
    assert_troupe(desk, 1, "replay dump %s t /none/such.jsonl", desk->address);
    assert_one_error(desk, "/none/such.jsonl");
    char *dir = scene_path(&desk->at, "dir.jsonl");
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_troupe(desk, 1, "replay dump %s t dir.jsonl", desk->address);
    assert_one_error(desk, "dir.jsonl: Is a directory");
    free(dir);
    desk_stop(desk);
}

static void items_with_strings_are_left_out_of_an_npz(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    load_text(desk);
    assert_troupe(desk, 0, "replay peek %s t", desk->address);
    assert_file_contains(&desk->at, "out", "['abc']");
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl --table=u", desk->address);
    assert_troupe(desk, 1, "replay dump --all %s x.npz", desk->address);
    assert_one_error(desk, "table t: an item is left out: column 0 has elements of type string");
    assert_file_contains(&desk->at, "out", "5 items in x.npz, 1 left out\n");
    assert_troupe(desk, 0, "replay load %s x.npz", desk->address);
    assert_file_contains(&desk->at, "out", "0 items inserted from x.npz, 5 were there already");
    assert_troupe(desk, 0, "replay dump %s t x.jsonl", desk->address);
    assert_file_contains(&desk->at, "out", "1 item in x.jsonl\n");
    desk_stop(desk);
}

/* ---- sample --save ----------------------------------------------------------------------- */

/* What is drawn from these is gone. */
static const char once[] = "--table 'name=t sampler=fifo max_times_sampled=1'";

static void what_was_drawn_is_saved_when_more_was_wanted(void **state)
{
    static const char *const files[] = {"some.npz", "some.jsonl"};
    struct desk *desk = *state;
    desk_serve(desk, once);
    desk_write_items(desk, "items.jsonl");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
        assert_troupe(desk, 1, "replay sample %s t -n30 --timeout=0 --save=%s", desk->address,
                      files[i]);
        assert_file_contains(&desk->at, "out", "5 items in some");
        assert_one_error(desk, "5 of 30 items came");
        assert_file_contains(&desk->at, "err", "what came is in some");
        assert_troupe(desk, 0, "replay load %s %s", desk->address, files[i]);
        assert_file_contains(&desk->at, "out", "5 items inserted");
        assert_troupe(desk, 0, "replay reset %s t --yes", desk->address);
    }
    assert_troupe(desk, 1, "replay sample %s t --timeout=0 --save=none.npz", desk->address);
    assert_one_error(desk, "0 of 1 item came");
    desk_stop(desk);
}

static void what_cannot_be_saved_is_told_before_it_is_drawn(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, once);
    load_text(desk);
    assert_troupe(desk, 1, "replay sample %s t --save=x.npz", desk->address);
    assert_one_error(desk, "table t: column 0 has elements of type string");
    assert_file_contains(&desk->at, "err", "nothing was drawn");
    assert_troupe(desk, 0, "replay sample %s t --save=x.jsonl", desk->address);
    assert_file_contains(&desk->at, "out", "1 item in x.jsonl");
    desk_stop(desk);
}

/* A StructuredValue: a dict of one TensorSpec, word, of strings. */
static const char word_signature[] = "\xaa\x03\x0f\x0a\x0d\x0a\x04"
                                     "word\x12\x05\x8a\x02\x02\x18\x07";

static void a_signature_says_what_cannot_be_saved(void **state)
{
    struct desk *desk = *state;
    desk_write(desk, "signature", word_signature);
    char *flags = xasprintf("--table 'name=t signature=%s/signature'", desk->at.dir);
    desk_serve(desk, flags);
    assert_troupe(desk, 1, "replay sample %s t --save=x.npz --timeout=-1", desk->address);
    assert_one_error(desk, "column word has elements of type string");
    desk_stop(desk);
    free(flags);
}

/* Nothing shows the sampler's second item before it is drawn. */
static void what_fits_of_what_was_drawn_is_saved(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, once);
    desk_write_items(desk, "items.jsonl");
    assert_troupe(desk, 0, "replay load %s items.jsonl", desk->address);
    insert_deep(desk->address);
    assert_troupe(desk, 0, "replay delete %s t 1", desk->address);
    load_text(desk);
    assert_troupe(desk, 1, "replay sample %s t -n6 --save=x.npz -o json", desk->address);
    assert_one_error(desk, "table t: an item is left out: a column has tensors of 12 dimensions");
    cJSON *json = desk_json(desk);
    assert_true(json_at(json, "items") == 4);
    assert_true(json_at(json, "left_out") == 2);
    cJSON_Delete(json);
    assert_troupe(desk, 0, "replay load %s x.npz", desk->address);
    assert_file_contains(&desk->at, "out", "4 items inserted from x.npz");
    desk_stop(desk);
}

/* Many items of t, of 600 bytes that do not get smaller. */
static void write_noise(struct desk *desk, const char *name, int items)
{
    enum { LETTERS = 800 };
    char *path = scene_path(&desk->at, name);
    FILE *file = fopen(path, "we");
    uint32_t noise = 1;
    assert_non_null(file);
    for (int i = 1; i <= items; i++) {
        fprintf(file,
                "{\"table\":\"t\",\"key\":\"%d\",\"priority\":1,\"columns\":[{\"dtype\":"
                "\"uint8\",\"shape\":[600],\"squeezed\":true,\"data\":\"",
                i);
        for (int j = 0; j < LETTERS; j++) {
            noise = noise * 1664525 + 1013904223;
            fputc('A' + (int)(noise >> 24) % 26, file);
        }
        fputs("\"}]}\n", file);
    }
    assert_int_equal(fclose(file), 0);
    free(path);
}

static int items_of_t(struct desk *desk)
{
    assert_troupe(desk, 0, "replay ls %s -o json", desk->address);
    cJSON *json = desk_json(desk);
    int size = (int)json_at(cJSON_GetArrayItem(cJSON_GetObjectItem(json, "tables"), 0), "size");
    cJSON_Delete(json);
    return size;
}

/* The server ends the stream while confirmations that nobody has read yet are on their way. */
static void a_load_into_a_full_server_says_that_it_is_full(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, "--table name=t --max-bytes=4M");
    write_noise(desk, "noise.jsonl", 10000);
    for (int i = 0; i < 5; i++) {
        assert_troupe(desk, 1, "replay load %s noise.jsonl", desk->address);
        assert_one_error(desk, " is full: no room for an item (");
        char *text = scene_read(&desk->at, "err");
        char *far = xasprintf("(%d items are loaded; load again to go on)\n", items_of_t(desk));
        if (!strstr(text, far))
            fail_msg("expected '%s', not: %s", far, text);
        free(far);
        free(text);
    }
    desk_stop(desk);
}

/* ---- interrupted ------------------------------------------------------------------------- */

/* Two items of t, keys 1 and 2, each more than a pipe holds. */
static void load_large(struct desk *desk)
{
    enum { LETTERS = 400000 };
    char *zeros = xmalloc(LETTERS + 1), *text = xstrdup("");
    memset(zeros, 'A', LETTERS);
    zeros[LETTERS] = '\0';
    for (int i = 1; i <= 2; i++) {
        char *longer = xasprintf("%s{\"table\":\"t\",\"key\":\"%d\",\"priority\":1,\"columns\":[{"
                                 "\"dtype\":\"uint8\",\"shape\":[%d],\"squeezed\":true,"
                                 "\"data\":\"%s\"}]}\n",
                                 text, i, LETTERS / 4 * 3, zeros);
        free(text);
        text = longer;
    }
    desk_write(desk, "large.jsonl", text);
    assert_troupe(desk, 0, "replay load %s large.jsonl", desk->address);
    free(text);
    free(zeros);
}

static void start(struct desk *desk, const char *line)
{
    const char *words[WORDS_MAX + 1];
    char *copy = xstrdup(line);
    split(copy, words);
    scene_start(&desk->at, words);
    free(copy);
}

/* The file that the dump writes is a pipe, so that it is in the midst of the first item. */
static void an_interrupted_dump_leaves_nothing(void **state)
{
    struct desk *desk = *state;
    char *part = scene_path(&desk->at, "x.jsonl.part"), bytes[1 << 12];
    desk_serve(desk, tables);
    load_large(desk);
    desk_stop(desk);
    assert_int_equal(mkfifo(part, 0600), 0);
    start(desk, "replay dump store t x.jsonl");
    int pipe = open(part, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(pipe, bytes, 1), 1);
    kill(desk->at.pid, SIGINT);
    while (read(pipe, bytes, sizeof bytes) > 0)
        ;
    close(pipe);
    assert_int_equal(scene_wait(&desk->at), 1000 + SIGINT);
    assert_one_error(desk, "interrupted");
    assert_int_not_equal(access(part, F_OK), 0);
    free(part);
}

static void what_was_drawn_is_saved_when_it_is_interrupted(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, once);
    load_large(desk);
    char *line = xasprintf("replay sample %s t -n30 --timeout=-1 --save=x.jsonl", desk->address);
    start(desk, line);
    scene_await(&desk->at, "x.jsonl.part", "\"key\":\"2\"");
    kill(desk->at.pid, SIGINT);
    assert_int_equal(scene_wait(&desk->at), 1000 + SIGINT);
    assert_one_error(desk, "interrupted; what came is in x.jsonl");
    assert_file_contains(&desk->at, "out", "2 items in x.jsonl");
    assert_troupe(desk, 0, "replay load %s x.jsonl", desk->address);
    assert_file_contains(&desk->at, "out", "2 items inserted");
    desk_stop(desk);
    free(line);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, desk_setup, desk_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_dump_loads_back_to_the_same_items),
        TEST(an_npz_loads_back_to_the_same_items),
        TEST(an_item_of_too_many_dimensions_stops_no_dump),
        TEST(complex_numbers_are_shown),
        TEST(arrays_of_tables_and_columns_of_like_names_are_kept_apart),
        TEST(columns_have_the_names_of_the_signature),
        TEST(a_load_says_what_was_there_already),
        TEST(a_wrong_npz_is_refused),
        TEST(wrong_dumps_are_refused_with_their_line),
        TEST(the_documented_example_loads),
        TEST(strings_are_told_from_bytes),
        TEST(a_load_that_fails_says_how_far_it_came),
        TEST(a_load_into_a_full_server_says_that_it_is_full),
        TEST(a_dump_that_fails_leaves_nothing),
        TEST(items_with_strings_are_left_out_of_an_npz),
        TEST(what_was_drawn_is_saved_when_more_was_wanted),
        TEST(what_cannot_be_saved_is_told_before_it_is_drawn),
        TEST(a_signature_says_what_cannot_be_saved),
        TEST(what_fits_of_what_was_drawn_is_saved),
        TEST(an_interrupted_dump_leaves_nothing),
        TEST(what_was_drawn_is_saved_when_it_is_interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
