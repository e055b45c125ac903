/* Checkpoint files: what is written is read, by us and in the format's own terms; a file that is
 * cut, corrupt or foreign is refused with a status; a write that fails leaves the old file. */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>
#include <cmocka.h>

#include <troupe/checkpoint.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/crc32c.h"

struct dir {
    char path[32];
    char *file;
};

static int dir_create(void **state)
{
    struct dir *dir = xcalloc(1, sizeof *dir);
    memcpy(dir->path, "/tmp/troupe-checkpoint-XXXXXX", 30);
    *state = dir;
    if (!mkdtemp(dir->path))
        return 1;
    dir->file = xasprintf("%s/a.safetensors", dir->path);
    return 0;
}

static int dir_remove(void **state)
{
    struct dir *dir = *state;
    char *temporary = xasprintf("%s.tmp", dir->file);
    unlink(temporary);
    unlink(dir->file);
    int rc = rmdir(dir->path); /* fails when something else was left */
    free(temporary);
    free(dir->file);
    free(dir);
    return rc;
}

static void assert_ok(trp_status status)
{
    if (status != TRP_OK)
        fail_msg("%s", trp_last_error());
}

static const float floats[6] = {1, -2.5f, 3e-30f, 0, 5, 6};
static const uint8_t bytes[3] = {7, 0, 255};
static const uint64_t counters[2] = {UINT64_MAX, 1};
static const double value = -0.1;
static const int64_t negative[1] = {INT64_MIN};

static const trp_checkpoint_tensor tensors[] = {
    {"bytes", TRP_CHECKPOINT_U8, 1, {3}, bytes},
    {"layer0.weight", TRP_CHECKPOINT_F32, 2, {2, 3}, floats},
    {"counters", TRP_CHECKPOINT_U64, 1, {2}, counters},
    {"a \"quoted\" n\xc3\xa4me\n", TRP_CHECKPOINT_F64, 0, {0}, &value},
    {"negative", TRP_CHECKPOINT_I64, 1, {1}, negative},
    {"empty", TRP_CHECKPOINT_F32, 2, {0, 4}, NULL},
};
enum { TENSORS = sizeof tensors / sizeof tensors[0] };
static const trp_checkpoint_note notes[] = {{"agent", "dqn"}, {"text", "two\nlines \"x\""}};

static void what_is_written_is_read(void **state)
{
    struct dir *dir = *state;
    trp_checkpoint *c;
    assert_ok(trp_checkpoint_write(dir->file, tensors, TENSORS, notes, 2));
    assert_ok(trp_checkpoint_read(&c, dir->file));
    assert_int_equal(trp_checkpoint_tensor_count(c), TENSORS);
    float f[6];
    uint8_t b[3];
    uint64_t u[2];
    double d;
    int64_t i;
    assert_ok(trp_checkpoint_get(c, "layer0.weight", TRP_CHECKPOINT_F32, 6, f));
    assert_ok(trp_checkpoint_get(c, "bytes", TRP_CHECKPOINT_U8, 3, b));
    assert_ok(trp_checkpoint_get(c, "counters", TRP_CHECKPOINT_U64, 2, u));
    assert_ok(trp_checkpoint_get(c, tensors[3].name, TRP_CHECKPOINT_F64, 1, &d));
    assert_ok(trp_checkpoint_get(c, "negative", TRP_CHECKPOINT_I64, 1, &i));
    assert_ok(trp_checkpoint_get(c, "empty", TRP_CHECKPOINT_F32, 0, NULL));
    assert_memory_equal(f, floats, sizeof f);
    assert_memory_equal(b, bytes, sizeof b);
    assert_memory_equal(u, counters, sizeof u);
    assert_memory_equal(&d, &value, sizeof d);
    assert_true(i == INT64_MIN);
    assert_string_equal(trp_checkpoint_note_get(c, "agent"), "dqn");
    assert_string_equal(trp_checkpoint_note_get(c, "text"), notes[1].value);
    assert_null(trp_checkpoint_note_get(c, "Agent"));
    for (size_t t = 0; t < TENSORS; t++) {
        const trp_checkpoint_tensor *tensor = trp_checkpoint_tensor_at(c, t);
        size_t width = tensor->type == TRP_CHECKPOINT_U8 ? 1 : sizeof(float);
        assert_int_equal((uintptr_t)tensor->data % width, 0);
        if (strcmp(tensor->name, "layer0.weight") == 0) {
            assert_int_equal(tensor->rank, 2);
            assert_int_equal(tensor->shape[1], 3);
        }
    }
    trp_checkpoint_destroy(c);
}

static void a_file_without_tensors_or_notes_is_fine(void **state)
{
    struct dir *dir = *state;
    trp_checkpoint *c;
    assert_ok(trp_checkpoint_write(dir->file, NULL, 0, NULL, 0));
    assert_ok(trp_checkpoint_read(&c, dir->file));
    assert_int_equal(trp_checkpoint_tensor_count(c), 0);
    assert_null(trp_checkpoint_note_get(c, "agent"));
    trp_checkpoint_destroy(c);
}

static void asking_for_what_is_not_there_says_so(void **state)
{
    struct dir *dir = *state;
    trp_checkpoint *c;
    float f[6];
    assert_ok(trp_checkpoint_write(dir->file, tensors, TENSORS, NULL, 0));
    assert_ok(trp_checkpoint_read(&c, dir->file));
    assert_int_equal(trp_checkpoint_get(c, "layer1", TRP_CHECKPOINT_F32, 6, f), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "layer1"));
    assert_int_equal(trp_checkpoint_get(c, "layer0.weight", TRP_CHECKPOINT_F32, 5, f),
                     TRP_FAILED_PRECONDITION);
    assert_non_null(strstr(trp_last_error(), "F32[6]"));
    assert_int_equal(trp_checkpoint_get(c, "layer0.weight", TRP_CHECKPOINT_U64, 6, f),
                     TRP_FAILED_PRECONDITION);
    trp_checkpoint_destroy(c);
}

/* ---- bad files --------------------------------------------------------------------------- */

static struct buffer file_bytes(const char *path)
{
    struct buffer file = {0};
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    for (int c; (c = fgetc(stream)) != EOF;)
        buffer_append(&file, (trp_bytes){&(uint8_t){(uint8_t)c}, 1});
    fclose(stream);
    return file;
}

#define SUM_KEY "\"troupe_crc32c\":\""
enum { SUM_DIGITS = 8 };

static uint8_t *sum_of(const struct buffer *file)
{
    uint8_t *key = memmem(file->data, file->size, SUM_KEY, strlen(SUM_KEY));
    assert_non_null(key);
    return key + strlen(SUM_KEY);
}

/* But of what says that there is a sum: without that it is a file of another library. */
static void a_bit_that_has_changed_is_seen(void **state)
{
    struct dir *dir = *state;
    trp_checkpoint *c = NULL;
    assert_ok(trp_checkpoint_write(dir->file, tensors, TENSORS, notes, 2));
    struct buffer file = file_bytes(dir->file);
    const uint8_t *digits = sum_of(&file);
    for (size_t bit = 0; bit < 8 * file.size; bit++) {
        uint8_t *byte = &file.data[bit / 8];
        if (byte >= digits - strlen(SUM_KEY) && byte < digits)
            continue;
        *byte ^= 1 << bit % 8;
        assert_int_equal(trp_checkpoint_parse(&c, (trp_bytes){file.data, file.size}, "the file"),
                         TRP_DATA_LOSS);
        if (bit / 8 >= sizeof(uint64_t) && byte != digits + SUM_DIGITS)
            assert_non_null(strstr(trp_last_error(), "the file is damaged: its CRC-32C is "));
        *byte ^= 1 << bit % 8;
    }
    assert_ok(trp_checkpoint_parse(&c, (trp_bytes){file.data, file.size}, "the file"));
    trp_checkpoint_destroy(c);
    buffer_cleanup(&file);
}

/* As by a JSON library that writes a space there. */
static void a_sum_that_is_written_otherwise_is_refused(void **state)
{
    struct dir *dir = *state;
    trp_checkpoint *c = NULL;
    assert_ok(trp_checkpoint_write(dir->file, tensors, TENSORS, notes, 2));
    struct buffer file = file_bytes(dir->file);
    uint64_t header;
    memcpy(&header, file.data, sizeof header);
    uint8_t *end = file.data + sizeof header + header - 1, *at = sum_of(&file) - 1;
    while (*end == ' ')
        end--;
    assert_int_equal(end[1], ' ');
    memmove(at + 1, at, (size_t)(end + 1 - at)); /* over one of the spaces behind it */
    *at = ' ';
    assert_int_equal(trp_checkpoint_parse(&c, (trp_bytes){file.data, file.size}, "the file"),
                     TRP_DATA_LOSS);
    assert_non_null(strstr(trp_last_error(), "its troupe_crc32c cannot be compared"));
    buffer_cleanup(&file);
}

/* So that other programs can compare it. */
static void the_sum_is_the_files_crc32c_with_zeros_in_its_place(void **state)
{
    struct dir *dir = *state;
    const trp_checkpoint_note taken = {"troupe_crc32c", "0"};
    const trp_checkpoint_note alike = {"x\"troupe_crc32c", "not eight"};
    trp_checkpoint *c;
    assert_ok(trp_checkpoint_write(dir->file, tensors, TENSORS, notes, 2));
    struct buffer file = file_bytes(dir->file);
    memset(sum_of(&file), '0', SUM_DIGITS);
    char text[SUM_DIGITS + 1];
    snprintf(text, sizeof text, "%08" PRIx32, crc32c(0, file.data, file.size));
    buffer_cleanup(&file);
    assert_ok(trp_checkpoint_read(&c, dir->file));
    assert_string_equal(trp_checkpoint_note_get(c, "troupe_crc32c"), text);
    trp_checkpoint_destroy(c);
    assert_int_equal(trp_checkpoint_write(dir->file, tensors, TENSORS, &taken, 1),
                     TRP_INVALID_ARGUMENT);
    assert_ok(trp_checkpoint_write(dir->file, tensors, TENSORS, &alike, 1));
    assert_ok(trp_checkpoint_read(&c, dir->file));
    assert_string_equal(trp_checkpoint_note_get(c, alike.key), alike.value);
    trp_checkpoint_destroy(c);
}

/* Length, header and `data` bytes of zeros; `length` < 0: the header's own. */
static trp_status parse(const char *header, int64_t length, size_t data)
{
    struct buffer file = {0};
    uint64_t prefix = length < 0 ? strlen(header) : (uint64_t)length;
    buffer_append(&file, (trp_bytes){(const uint8_t *)&prefix, 8});
    buffer_append(&file, (trp_bytes){(const uint8_t *)header, strlen(header)});
    memset(buffer_reserve(&file, data), 0, data);
    file.size += data;
    uint8_t *exact = xmalloc(file.size);
    memcpy(exact, file.data, file.size);
    trp_checkpoint *c = NULL;
    trp_status status = trp_checkpoint_parse(&c, (trp_bytes){exact, file.size}, "the file");
    trp_checkpoint_destroy(c);
    free(exact);
    buffer_cleanup(&file);
    return status;
}

#define ENTRY(dtype, shape, from, to)                                                              \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

static void malformed_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int64_t length;
        size_t data;
        trp_status status;
        const char *word;
    } rows[] = {
        {"{\"a\":" ENTRY("F32", "[2]", "0", "8") "}  ", -1, 8, TRP_OK, ""},
        {"{\"a\":" ENTRY("F32", "[]", "0", "4") "}", -1, 4, TRP_OK, ""},
        {"{}", -1, 0, TRP_OK, ""},
        {"", -1, 0, TRP_DATA_LOSS, "object"},
        {"{}", 3, 0, TRP_DATA_LOSS, "longer"},
        {"{}", 1, 0, TRP_DATA_LOSS, "JSON"},
        {"{}", INT64_MAX, 0, TRP_DATA_LOSS, "longer"},
        {"[]", -1, 0, TRP_DATA_LOSS, "object"},
        {" {}", -1, 0, TRP_DATA_LOSS, "object"},
        {"{} x", -1, 0, TRP_DATA_LOSS, "follows"},
        {"{\"a\":1}", -1, 0, TRP_DATA_LOSS, "no object"},
        {"{\"a\":{}}", -1, 0, TRP_DATA_LOSS, "dtype"},
        {"{\"a\":" ENTRY("F16", "[2]", "0", "4") "}", -1, 4, TRP_UNIMPLEMENTED, "F16"},
        {"{\"a\":" ENTRY("U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", -1, 1, TRP_UNIMPLEMENTED,
         "dimensions"},
        {"{\"a\":" ENTRY("F32", "2", "0", "8") "}", -1, 8, TRP_DATA_LOSS, "shape"},
        {"{\"a\":" ENTRY("F32", "[-2]", "0", "8") "}", -1, 8, TRP_DATA_LOSS, "shape"},
        {"{\"a\":" ENTRY("F32", "[2.5]", "0", "10") "}", -1, 10, TRP_DATA_LOSS, "shape"},
        {"{\"a\":" ENTRY("F32", "[1e300]", "0", "8") "}", -1, 8, TRP_DATA_LOSS, "shape"},
        {"{\"a\":" ENTRY("F32", "[\"2\"]", "0", "8") "}", -1, 8, TRP_DATA_LOSS, "shape"},
        {"{\"a\":" ENTRY("F32", "[3]", "0", "8") "}", -1, 8, TRP_DATA_LOSS, "differs"},
        {"{\"a\":" ENTRY("F32", "[4503599627370496,4503599627370496,4]", "0", "0") "}", -1, 0,
         TRP_DATA_LOSS, "differs"},
        {"{\"a\":" ENTRY("F32", "[2]", "0", "8") "}", -1, 7, TRP_DATA_LOSS, "outside"},
        {"{\"a\":" ENTRY("F32", "[2]", "8", "0") "}", -1, 8, TRP_DATA_LOSS, "outside"},
        {"{\"a\":" ENTRY("F32", "[2]", "-8", "0") "}", -1, 8, TRP_DATA_LOSS, "data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", -1, 1, TRP_DATA_LOSS,
         "data_offsets"},
        {"{\"a\":" ENTRY("F32", "[2]", "0", "8") "}", -1, 9, TRP_DATA_LOSS, "no tensor"},
        {"{\"a\":" ENTRY("U8", "[2]", "0", "2") ",\"b\":" ENTRY("U8", "[2]", "3", "5") "}", -1, 5,
         TRP_DATA_LOSS, "gap"},
        {"{\"a\":" ENTRY("U8", "[2]", "0", "2") ",\"b\":" ENTRY("U8", "[2]", "1", "3") "}", -1, 3,
         TRP_DATA_LOSS, "overlap"},
        {"{\"a\":" ENTRY("U8", "[2]", "0", "2") ",\"b\":" ENTRY("U8", "[2]", "0", "2") "}", -1, 2,
         TRP_DATA_LOSS, "overlap"},
        {"{\"a\":" ENTRY("U8", "[2]", "0", "2") ",\"a\":" ENTRY("U8", "[2]", "2", "4") "}", -1, 4,
         TRP_DATA_LOSS, "one name"},
        {"{\"__metadata__\":1}", -1, 0, TRP_DATA_LOSS, "__metadata__"},
        {"{\"__metadata__\":{\"a\":1}}", -1, 0, TRP_DATA_LOSS, "no string"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        trp_status status = parse(rows[i].header, rows[i].length, rows[i].data);
        if (status != rows[i].status)
            fail_msg("row %zu, %s: %s, %s", i, rows[i].header, trp_status_name(status),
                     trp_last_error());
        if (status != TRP_OK) {
            assert_non_null(strstr(trp_last_error(), rows[i].word));
            assert_non_null(strstr(trp_last_error(), "the file"));
        }
    }
}

static void a_header_nested_too_deeply_is_refused(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *header = xmalloc(DEPTH + 6);
    memcpy(header, "{\"a\":", 5);
    memset(header + 5, '[', DEPTH);
    header[DEPTH + 5] = 0;
    assert_int_equal(parse(header, -1, 0), TRP_DATA_LOSS);
    free(header);
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    struct dir *dir = *state;
    assert_ok(trp_checkpoint_write(dir->file, tensors, TENSORS, notes, 2));
    struct stat stat_before;
    assert_int_equal(stat(dir->file, &stat_before), 0);
    for (off_t size = stat_before.st_size - 1; size >= 0; size -= size > 100 ? 7 : 1) {
        trp_checkpoint *c = NULL;
        assert_int_equal(truncate(dir->file, size), 0);
        assert_int_equal(trp_checkpoint_read(&c, dir->file), TRP_DATA_LOSS);
        assert_null(c);
    }
}

static void what_is_no_file_is_refused(void **state)
{
    struct dir *dir = *state;
    trp_checkpoint *c;
    assert_int_equal(trp_checkpoint_read(&c, dir->file), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), dir->file));
    assert_int_equal(trp_checkpoint_read(&c, dir->path), TRP_DATA_LOSS);
    assert_non_null(strstr(trp_last_error(), "it is a directory"));
    assert_int_equal(mkfifo(dir->file, 0600), 0);
    assert_int_equal(trp_checkpoint_read(&c, dir->file), TRP_DATA_LOSS);
}

/* ---- bad writes -------------------------------------------------------------------------- */

static void impossible_names_and_shapes_are_refused(void **state)
{
    struct dir *dir = *state;
    const trp_checkpoint_tensor twice[] = {tensors[0], tensors[0]};
    const trp_checkpoint_tensor reserved = {"__metadata__", TRP_CHECKPOINT_U8, 1, {3}, bytes};
    const trp_checkpoint_tensor nameless = {"", TRP_CHECKPOINT_U8, 1, {3}, bytes};
    const trp_checkpoint_tensor huge = {
        "huge", TRP_CHECKPOINT_U8, 2, {UINT64_MAX, UINT64_MAX}, bytes};
    const trp_checkpoint_note same[] = {notes[0], notes[0]};
    const char *file = dir->file;
    assert_int_equal(trp_checkpoint_write(file, twice, 2, NULL, 0), TRP_INVALID_ARGUMENT);
    assert_int_equal(trp_checkpoint_write(file, &reserved, 1, NULL, 0), TRP_INVALID_ARGUMENT);
    assert_int_equal(trp_checkpoint_write(file, &nameless, 1, NULL, 0), TRP_INVALID_ARGUMENT);
    assert_int_equal(trp_checkpoint_write(file, &huge, 1, NULL, 0), TRP_INVALID_ARGUMENT);
    assert_int_equal(trp_checkpoint_write(file, NULL, 0, same, 2), TRP_INVALID_ARGUMENT);
    assert_int_equal(access(file, F_OK), -1);
    assert_int_equal(trp_checkpoint_write("/nowhere/at/all", tensors, 1, NULL, 0), TRP_NOT_FOUND);
    assert_non_null(strstr(trp_last_error(), "/nowhere/at/all"));
}

static void a_write_that_fails_leaves_the_old_file(void **state)
{
    struct dir *dir = *state;
    uint8_t *big = xcalloc(1, 100000);
    const trp_checkpoint_tensor tensor = {"big", TRP_CHECKPOINT_U8, 1, {100000}, big};
    assert_ok(trp_checkpoint_write(dir->file, tensors, TENSORS, NULL, 0));
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 5000, .rlim_max = before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    trp_status status = trp_checkpoint_write(dir->file, &tensor, 1, NULL, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, TRP_RESOURCE_EXHAUSTED);
    trp_checkpoint *c;
    assert_ok(trp_checkpoint_read(&c, dir->file));
    assert_int_equal(trp_checkpoint_tensor_count(c), TENSORS);
    trp_checkpoint_destroy(c);
    char *temporary = xasprintf("%s.tmp", dir->file);
    assert_int_equal(access(temporary, F_OK), -1);
    free(temporary);
    free(big);
}

static void what_a_killed_writer_left_is_replaced(void **state)
{
    struct dir *dir = *state;
    char *temporary = xasprintf("%s.tmp", dir->file);
    FILE *left = fopen(temporary, "w");
    for (int i = 0; i < 1000; i++)
        fputs("half a checkpoint ", left);
    fclose(left);
    trp_checkpoint *c;
    assert_ok(trp_checkpoint_write(dir->file, tensors, TENSORS, NULL, 0));
    assert_int_equal(access(temporary, F_OK), -1);
    assert_ok(trp_checkpoint_read(&c, dir->file));
    trp_checkpoint_destroy(c);
    free(temporary);
}

static void what_a_link_leads_to_is_left_alone(void **state)
{
    struct dir *dir = *state;
    char *temporary = xasprintf("%s.tmp", dir->file), *precious = xasprintf("%s/b", dir->path);
    struct stat info;
    FILE *file = fopen(precious, "w");
    fputs("keep this", file);
    fclose(file);
    assert_int_equal(symlink(precious, temporary), 0);
    assert_int_equal(trp_checkpoint_write(dir->file, tensors, TENSORS, NULL, 0),
                     TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "a.safetensors.tmp: it is a link"));
    assert_int_equal(stat(precious, &info), 0);
    assert_int_equal(info.st_size, strlen("keep this"));
    assert_int_equal(unlink(temporary), 0);
    /* A checkpoint takes the place of a link itself. */
    assert_int_equal(symlink(precious, dir->file), 0);
    assert_ok(trp_checkpoint_write(dir->file, tensors, TENSORS, NULL, 0));
    assert_int_equal(stat(precious, &info), 0);
    assert_int_equal(info.st_size, strlen("keep this"));
    unlink(precious);
    free(precious);
    free(temporary);
}

static void two_writers_of_one_path_are_kept_apart(void **state)
{
    struct dir *dir = *state;
    char *temporary = xasprintf("%s.tmp", dir->file);
    int fd = open(temporary, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(trp_checkpoint_write(dir->file, tensors, TENSORS, NULL, 0), TRP_ABORTED);
    assert_int_equal(access(temporary, F_OK), 0);
    close(fd);
    assert_ok(trp_checkpoint_write(dir->file, tensors, TENSORS, NULL, 0));
    free(temporary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read, dir_create, dir_remove),
        cmocka_unit_test_setup_teardown(a_file_without_tensors_or_notes_is_fine, dir_create,
                                        dir_remove),
        cmocka_unit_test_setup_teardown(asking_for_what_is_not_there_says_so, dir_create,
                                        dir_remove),
        cmocka_unit_test_setup_teardown(a_bit_that_has_changed_is_seen, dir_create, dir_remove),
        cmocka_unit_test_setup_teardown(a_sum_that_is_written_otherwise_is_refused, dir_create,
                                        dir_remove),
        cmocka_unit_test_setup_teardown(the_sum_is_the_files_crc32c_with_zeros_in_its_place,
                                        dir_create, dir_remove),
        cmocka_unit_test(malformed_files_are_refused),
        cmocka_unit_test(a_header_nested_too_deeply_is_refused),
        cmocka_unit_test_setup_teardown(a_file_cut_anywhere_is_refused, dir_create, dir_remove),
        cmocka_unit_test_setup_teardown(what_is_no_file_is_refused, dir_create, dir_remove),
        cmocka_unit_test_setup_teardown(impossible_names_and_shapes_are_refused, dir_create,
                                        dir_remove),
        cmocka_unit_test_setup_teardown(a_write_that_fails_leaves_the_old_file, dir_create,
                                        dir_remove),
        cmocka_unit_test_setup_teardown(what_a_killed_writer_left_is_replaced, dir_create,
                                        dir_remove),
        cmocka_unit_test_setup_teardown(what_a_link_leads_to_is_left_alone, dir_create, dir_remove),
        cmocka_unit_test_setup_teardown(two_writers_of_one_path_are_kept_apart, dir_create,
                                        dir_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
