/* Archives that something else than `troupe replay dump` made: numpy, and whoever means harm. They
 * are put together here, member by member. */
#include "cli_tools.h"

#include "core/buffer.h"

/* A member NAME.npy: a numpy header of this type and shape, then bytes. */
struct member {
    const char *name, *type, *shape;
    const void *data;
    size_t size;
    uint32_t declared; /* bytes when unpacked, as the archive has it; 0: as many as there are */
    bool deflated;     /* as the archive has it */
};

static uint32_t crc_of(const uint8_t *bytes, size_t size)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void put(struct buffer *out, uint32_t value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        buffer_append(out, (trp_bytes){&(uint8_t){(uint8_t)(value >> 8 * i)}, 1});
}

static void put_text(struct buffer *out, const char *text)
{
    buffer_append(out, (trp_bytes){(const uint8_t *)text, strlen(text)});
}

static struct buffer npy_of(const struct member *member)
{
    struct buffer out = {0};
    char *dict = xasprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", member->type,
                           member->shape);
    buffer_append(&out, (trp_bytes){(const uint8_t *)"\x93NUMPY\x01\x00", 8});
    put(&out, (uint32_t)strlen(dict), 2);
    put_text(&out, dict);
    buffer_append(&out, (trp_bytes){member->data, member->size});
    free(dict);
    return out;
}

/* What stands in both headers of a member. */
static void put_member(struct buffer *out, const struct member *member, const struct buffer *npy)
{
    put(out, 20, 2);                           /* version needed */
    put(out, 0, 2);                            /* flags */
    put(out, member->deflated ? 8 : 0, 2);     /* method */
    put(out, 0, 4);                            /* time */
    put(out, crc_of(npy->data, npy->size), 4); /* of what is unpacked */
    put(out, (uint32_t)npy->size, 4);          /* packed */
    put(out, member->declared ? member->declared : (uint32_t)npy->size, 4);
    put(out, (uint32_t)strlen(member->name) + 4, 2);
    put(out, 0, 2); /* extra */
}

static void write_npz(struct desk *desk, const char *name, const struct member *members,
                      size_t count)
{
    struct buffer out = {0}, directory = {0};
    for (size_t i = 0; i < count; i++) {
        struct buffer npy = npy_of(&members[i]);
        uint32_t at = (uint32_t)out.size;
        put(&out, 0x04034b50, 4);
        put_member(&out, &members[i], &npy);
        put_text(&out, members[i].name);
        put_text(&out, ".npy");
        buffer_append(&out, buffer_bytes(&npy));
        put(&directory, 0x02014b50, 4);
        put(&directory, 20, 2);
        put_member(&directory, &members[i], &npy);
        put(&directory, 0, 2); /* comment */
        put(&directory, 0, 2); /* disk */
        put(&directory, 0, 2);
        put(&directory, 0, 4);
        put(&directory, at, 4);
        put_text(&directory, members[i].name);
        put_text(&directory, ".npy");
        buffer_cleanup(&npy);
    }
    uint32_t start = (uint32_t)out.size;
    buffer_append(&out, buffer_bytes(&directory));
    put(&out, 0x06054b50, 4);
    put(&out, 0, 4);
    put(&out, (uint32_t)count, 2);
    put(&out, (uint32_t)count, 2);
    put(&out, (uint32_t)directory.size, 4);
    put(&out, start, 4);
    put(&out, 0, 2);
    char *path = scene_path(&desk->at, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(out.data, 1, out.size, file), out.size);
    fclose(file);
    free(path);
    buffer_cleanup(&out);
    buffer_cleanup(&directory);
}

static const uint64_t keys[2] = {1, 2};
static const double priorities[2] = {1, 1};
static const int64_t steps[2] = {7, 8};
static const float reals[4] = {1.5f, 2.5f, 3.5f, 4.5f};

#define KEYS                                                                                       \
    {                                                                                              \
        "keys", "<u8", "(2,)", keys, sizeof keys, 0, false                                         \
    }
#define PRIORITIES                                                                                 \
    {                                                                                              \
        "priorities", "<f8", "(2,)", priorities, sizeof priorities, 0, false                       \
    }
#define STEPS(name)                                                                                \
    {                                                                                              \
        name, "<i8", "(2, 1)", steps, sizeof steps, 0, false                                       \
    }
#define REALS(name)                                                                                \
    {                                                                                              \
        name, "<f4", "(2, 2)", reals, sizeof reals, 0, false                                       \
    }
#define WRITE(desk, name, ...)                                                                     \
    write_npz(desk, name, (struct member[]){__VA_ARGS__},                                          \
              sizeof(struct member[]){__VA_ARGS__} / sizeof(struct member))

static void arrays_of_any_names_are_columns(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    WRITE(desk, "named.npz", STEPS("step"), KEYS, REALS("obs"), PRIORITIES);
    assert_troupe(desk, 0, "replay load %s named.npz --table=t", desk->address);
    assert_troupe(desk, 0, "replay peek %s t 2", desk->address);
    assert_file_contains(&desk->at, "out", "0       float32  [2]    [3.5 4.5]");
    assert_file_contains(&desk->at, "out", "1       int64    [1]    [8]");
    WRITE(desk, "numbered.npz", KEYS, PRIORITIES, REALS("column_1"), STEPS("column_0"));
    assert_troupe(desk, 0, "replay load %s numbered.npz --table=u", desk->address);
    assert_troupe(desk, 0, "replay peek %s u 2", desk->address);
    assert_file_contains(&desk->at, "out", "0       int64    [1]    [8]");
    WRITE(desk, "none.npz", KEYS, PRIORITIES);
    assert_troupe(desk, 1, "replay load %s none.npz --table=t", desk->address);
    assert_one_error(desk, "no array beside keys and priorities");
    WRITE(desk, "bare.npz", REALS("obs"));
    assert_troupe(desk, 1, "replay load %s bare.npz --table=t", desk->address);
    assert_one_error(desk, "bare.npz: keys: there is no such array: see troupe replay load --help");
    desk_stop(desk);
}

/* A named tuple: step, then obs. */
static void a_signature_says_the_order_of_the_columns(void **state)
{
    struct desk *desk = *state;
    static const char signature[] =
        "\xb2\x03\x20\x0a\x01T\x12\x0d\x0a\x04step\x12\x05\x8a\x02\x02\x18\x09"
        "\x12\x0c\x0a\x03obs\x12\x05\x8a\x02\x02\x18\x01";
    desk_write(desk, "signature", signature);
    char *flags = xasprintf("--table 'name=t signature=%s/signature'", desk->at.dir);
    desk_serve(desk, flags);
    WRITE(desk, "named.npz", REALS("obs"), STEPS("step"), KEYS, PRIORITIES);
    assert_troupe(desk, 0, "replay load %s named.npz --table=t", desk->address);
    assert_troupe(desk, 0, "replay peek %s t 2", desk->address);
    assert_file_contains(&desk->at, "out", "step    int64    [1]    [8]");
    assert_file_contains(&desk->at, "out", "obs     float32  [2]    [3.5 4.5]");
    desk_stop(desk);
    free(flags);
}

/* Sanitizers need address space without bound. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BOUND "true"
#else
#define BOUND "ulimit -v 2500000"
#endif

/* Runs a line with as much address space as a client needs, and not much more. */
static int troupe_in(struct desk *desk, const char *line)
{
    char *command = xasprintf(BOUND "; exec " TROUPE_CLI " %s", line);
    const char *words[] = {"/bin/sh", "-c", command, NULL};
    int status = scene_run(&desk->at, words);
    free(command);
    return status;
}

#define HUGE_BYTES 0xc0000000u

/* Each says that it has 3 GB an item. */
static void what_an_archive_says_of_its_sizes_is_not_believed(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, tables);
    uint8_t *filler = xcalloc(1, 4 << 20);
    const char *shape = "(2, 1, 1610612000)";
    const struct {
        struct member member;
        const char *words;
    } rows[] = {
        {{"column_0", "|u1", shape, filler, 10, 0, false}, "column_0: it is cut short"},
        {{"column_0", "|u1", shape, filler, 10, HUGE_BYTES, true}, "too small for what it says"},
        {{"column_0", "|u1", shape, filler, 4 << 20, HUGE_BYTES, true}, "column_0"},
        {{"column_0", "|u1", "(2, 9223372036854775807, 9)", filler, 9, 0, false}, "cut short"},
        {{"column_0", "|u1", "(9223372036854775807, 0)", filler, 0, 0, false}, "one entry an item"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        WRITE(desk, "huge.npz", KEYS, PRIORITIES, rows[i].member);
        char *line = xasprintf("replay load %s huge.npz --table=t", desk->address);
        int status = troupe_in(desk, line);
        if (status != 1)
            fail_msg("status %d in row %zu", status, i);
        assert_one_error(desk, rows[i].words);
        free(line);
    }
    WRITE(desk, "deep.npz", {"keys", "<u8", "(4611686018427387904,)", keys, sizeof keys, 0, false},
          PRIORITIES, STEPS("column_0"));
    assert_troupe(desk, 1, "replay load %s deep.npz --table=t", desk->address);
    assert_one_error(desk, "keys: it is cut short");
    desk_stop(desk);
    free(filler);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, desk_setup, desk_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(arrays_of_any_names_are_columns),
        TEST(a_signature_says_the_order_of_the_columns),
        TEST(what_an_archive_says_of_its_sizes_is_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
