/* Signatures that Reverb's Python wrote, our own, and malformed ones. */
#include "replay/model/signature.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "replay/model/limits.h"
#include "tests/replay/hex.h"

/* [(bool[3,?],), {'q': {'k': bfloat16[]}, 'z': string of unknown rank}, uint8[0]] */
static const char NESTED[] =
    "9a03570a1da2031a0a188a0215121112020803120b08ffffffffffffffffff01180a0a2baa03280a0e0a017a12098a"
    "02061202180118070a160a01711211aa030e0a0c0a016b12078a02041200180e0a098a0206120212001804";
/* namedtuple NT(obs=float32[2], act=int32[] named z) */
static const char NAMED_TUPLE[] =
    "b2032b0a024e5412120a036f6273120b8a0208120412020802180112110a03616374120a8a02070a017a12001803";
/* TensorSpec(shape [-1], int64) */
static const char VECTOR[] = "8a0211120d120b08ffffffffffffffffff011809";

static const trp_tensor_spec step[] = {
    {.name = "action", .dtype = TRP_INT32},
    {.name = "obs", .dtype = TRP_UINT8, .rank = 3, .shape = {84, 84, 4}},
    {.name = "reward", .dtype = TRP_FLOAT32, .rank = 1, .shape = {5}},
};

static struct signature decode(const char *hex)
{
    uint8_t buffer[512];
    struct signature signature = {0};
    assert_int_equal(signature_decode(hex_bytes(hex, buffer), &signature), TRP_OK);
    return signature;
}

static void nested_structures_flatten_in_reverbs_order(void **state)
{
    (void)state;
    struct signature s = decode(NESTED);
    assert_int_equal(s.count, 4);
    const char *paths[] = {"0/0", "1/q/k", "1/z", "2"};
    const int dtypes[] = {TRP_BOOL, 14, 7, TRP_UINT8};
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(s.leaves[i].path, paths[i]);
        assert_int_equal(s.leaves[i].dtype, dtypes[i]);
    }
    assert_int_equal(s.leaves[0].rank, 2);
    assert_int_equal(s.leaves[0].dims[0], 3);
    assert_int_equal(s.leaves[0].dims[1], -1);
    assert_int_equal(s.leaves[1].rank, 0);
    assert_true(s.leaves[2].unknown_rank);
    assert_int_equal(s.leaves[3].rank, 1);
    assert_int_equal(s.leaves[3].dims[0], 0);
    signature_cleanup(&s);
}

static void named_tuples_flatten_by_field(void **state)
{
    (void)state;
    struct signature s = decode(NAMED_TUPLE);
    assert_int_equal(s.count, 2);
    assert_string_equal(s.leaves[0].path, "obs");
    assert_string_equal(s.leaves[1].path, "act");
    signature_cleanup(&s);
    s = decode(VECTOR);
    assert_int_equal(s.count, 1);
    assert_string_equal(s.leaves[0].path, "");
    signature_cleanup(&s);
}

static void sorted_columns_become_a_dict(void **state)
{
    (void)state;
    trp_bytes bytes;
    struct signature s = {0};
    assert_int_equal(trp_signature_encode(step, 3, &bytes), TRP_OK);
    assert_int_equal(bytes.data[0], 0xaa); /* field 53, LEN */
    assert_int_equal(bytes.data[1], 0x03);
    assert_int_equal(signature_decode(bytes, &s), TRP_OK);
    assert_int_equal(s.count, 3);
    assert_int_equal(signature_check(&s, step, 3, "t"), TRP_OK);
    signature_cleanup(&s);
    free((void *)bytes.data);
}

static void unsorted_columns_keep_their_order_in_a_named_tuple(void **state)
{
    (void)state;
    const trp_tensor_spec columns[] = {step[1], step[0], step[2]};
    trp_bytes bytes;
    struct signature s = {0};
    assert_int_equal(trp_signature_encode(columns, 3, &bytes), TRP_OK);
    assert_int_equal(bytes.data[0], 0xb2); /* field 54, LEN */
    assert_int_equal(signature_decode(bytes, &s), TRP_OK);
    assert_string_equal(s.leaves[0].path, "obs");
    assert_int_equal(signature_check(&s, columns, 3, "t"), TRP_OK);
    assert_int_equal(signature_check(&s, step, 3, "t"), TRP_INVALID_ARGUMENT);
    signature_cleanup(&s);
    free((void *)bytes.data);
}

static void columns_that_differ_are_named(void **state)
{
    (void)state;
    struct signature s = decode(NAMED_TUPLE);
    trp_tensor_spec columns[] = {{.name = "o", .dtype = TRP_FLOAT32, .rank = 1, .shape = {2}},
                                 {.name = "a", .dtype = TRP_INT32}};
    assert_int_equal(signature_check(&s, columns, 2, "t"), TRP_OK);
    columns[1].dtype = TRP_INT64;
    assert_int_equal(signature_check(&s, columns, 2, "t"), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(),
                        "column 1 (a) is int64[], but table 't' has int32[] there ('act')");
    columns[0].shape[0] = 3;
    assert_int_equal(signature_check(&s, columns, 2, "t"), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "float32[3], but table 't' has float32[2]"));
    columns[0].shape[0] = 2;
    assert_int_equal(signature_check(&s, columns, 1, "t"), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(), "1 columns were given, but table 't' has 2: 'act', "
                                          "int32[], is missing");
    const trp_tensor_spec more[] = {
        columns[0], {.dtype = TRP_INT32}, {.name = "extra", .dtype = TRP_FLOAT32}};
    assert_int_equal(signature_check(&s, more, 3, "t"), TRP_INVALID_ARGUMENT);
    assert_string_equal(trp_last_error(),
                        "column 2 (extra) is float32[], but table 't' has 2 columns");
    signature_cleanup(&s);
}

static void unknown_dimensions_fit_any_size(void **state)
{
    (void)state;
    struct signature s = decode(VECTOR);
    trp_tensor_spec column = {.name = "x", .dtype = TRP_INT64, .rank = 1, .shape = {1000}};
    assert_int_equal(signature_check(&s, &column, 1, "t"), TRP_OK);
    column.rank = 2;
    assert_int_equal(signature_check(&s, &column, 1, "t"), TRP_INVALID_ARGUMENT);
    signature_cleanup(&s);
}

static void of_equal_dict_keys_the_last_counts(void **state)
{
    (void)state;
    /* {'a': int64[-1], 'a': uint8[0]} */
    struct signature s =
        decode("aa03290a190a016112148a0211120d120b08ffffffffffffffffff0118090a0c0a0161"
               "12078a020412001804");
    assert_int_equal(s.count, 1);
    assert_int_equal(s.leaves[0].dtype, TRP_UINT8);
    signature_cleanup(&s);
}

static void columns_without_a_signature_are_refused(void **state)
{
    (void)state;
    trp_bytes bytes;
    trp_tensor_spec column = {.dtype = TRP_INT32};
    assert_int_equal(trp_signature_encode(&column, 1, &bytes), TRP_INVALID_ARGUMENT);
    column.name = "x";
    assert_int_equal(trp_signature_encode(&column, 0, &bytes), TRP_INVALID_ARGUMENT);
    column.dtype = (trp_dtype)7;
    assert_int_equal(trp_signature_encode(&column, 1, &bytes), TRP_INVALID_ARGUMENT);
    const trp_tensor_spec twins[] = {step[0], step[0]};
    assert_int_equal(trp_signature_encode(twins, 2, &bytes), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "action"));
}

static void every_prefix_and_flipped_byte_is_survived(void **state)
{
    (void)state;
    const char *goldens[] = {NESTED, NAMED_TUPLE, VECTOR};
    for (size_t g = 0; g < 3; g++) {
        uint8_t buffer[512];
        trp_bytes bytes = hex_bytes(goldens[g], buffer);
        for (size_t i = 0; i < bytes.size; i++) {
            struct signature cut = {0}, flipped = {0};
            if (i > 0)
                assert_int_equal(signature_decode((trp_bytes){bytes.data, i}, &cut),
                                 TRP_INVALID_ARGUMENT);
            buffer[i] ^= 0x41;
            trp_status status = signature_decode(bytes, &flipped);
            assert_true(status == TRP_OK || status == TRP_INVALID_ARGUMENT);
            buffer[i] ^= 0x41;
            signature_cleanup(&cut);
            signature_cleanup(&flipped);
        }
    }
}

/* `depth` lists around nothing. */
static trp_status decode_nested_lists(size_t depth)
{
    uint8_t *bytes = xmalloc(16 * depth + 64);
    size_t size = 0;
    for (size_t i = 0; i < depth; i++) {
        uint8_t head[16];
        size_t length = 0;
        head[length++] = 0x9a; /* list_value */
        head[length++] = 0x03;
        size_t inner = size ? size + 1 + (size < 128 ? 1 : 2) : 0;
        for (size_t part = inner; length < 4 || part; part >>= 7) {
            head[length++] = (uint8_t)((part & 0x7f) | (part > 127 ? 0x80 : 0));
            if (part <= 127)
                break;
        }
        if (size) {
            head[length++] = 0x0a;
            if (size > 127)
                head[length++] = (uint8_t)(size | 0x80);
            head[length++] = (uint8_t)(size > 127 ? size >> 7 : size);
        }
        memmove(bytes + length, bytes, size);
        memcpy(bytes, head, length);
        size += length;
    }
    struct signature s = {0};
    trp_status status = signature_decode((trp_bytes){bytes, size}, &s);
    signature_cleanup(&s);
    free(bytes);
    return status;
}

static void deep_nesting_is_refused_before_the_stack_ends(void **state)
{
    (void)state;
    assert_int_equal(decode_nested_lists(SIGNATURE_DEPTH_MAX), TRP_OK);
    assert_int_equal(decode_nested_lists(SIGNATURE_DEPTH_MAX + 2), TRP_INVALID_ARGUMENT);
    assert_non_null(strstr(trp_last_error(), "deeper"));
}

/* ---- text ------------------------------------------------------------------------------------ */

static void a_signature_has_a_text_that_gives_it_again(void **state)
{
    (void)state;
    static const struct {
        const char *hex, *text;
    } rows[] = {
        {NESTED, "[(bool[3,?]), {q: {k: bfloat16}, z: string[...]}, uint8[0]]"},
        {NAMED_TUPLE, "NT(obs: float32[2], act: int32)"},
        {VECTOR, "int64[?]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t buffer[512];
        char *text, *again;
        trp_bytes bytes;
        assert_int_equal(trp_signature_format(hex_bytes(rows[i].hex, buffer), &text), TRP_OK);
        assert_string_equal(text, rows[i].text);
        assert_int_equal(trp_signature_parse(text, &bytes), TRP_OK);
        assert_int_equal(trp_signature_format(bytes, &again), TRP_OK);
        assert_string_equal(again, text);
        free(text);
        free(again);
        free((void *)bytes.data);
    }
}

static void a_text_says_what_the_columns_are(void **state)
{
    (void)state;
    static const struct {
        const char *text, *canonical;
    } rows[] = {
        {"{obs: float32[4], action: int32}", "{action: int32, obs: float32[4]}"},
        {" {\n  \"a b\" :int32 [ 1 , ? ] ,\n  \"\\\"\\\\\": bool[...] , }\n",
         "{\"\\\"\\\\\": bool[...], \"a b\": int32[1,?]}"},
        {"float32[]", "float32"},
        {"[(int8,), []]", "[(int8), []]"},
        {"A.b(x: {}, \"\": ())", "A.b(x: {}, \"\": ())"},
        {"\"a tuple\"(x: int8)", "\"a tuple\"(x: int8)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_bytes bytes;
        char *text;
        assert_int_equal(trp_signature_parse(rows[i].text, &bytes), TRP_OK);
        assert_int_equal(trp_signature_format(bytes, &text), TRP_OK);
        assert_string_equal(text, rows[i].canonical);
        free(text);
        free((void *)bytes.data);
    }
}

static void a_wrong_text_is_told_where_it_is_wrong(void **state)
{
    (void)state;
    char deep[2 * SIGNATURE_DEPTH_MAX + 8];
    memset(deep, '[', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    const struct {
        const char *text, *words;
    } rows[] = {
        {"", "a name belongs at its end, as"},
        {"{", "a name belongs at its end, as"},
        {"{a", "':' belongs at its end, as"},
        {"{a:", "a name belongs at its end, as"},
        {"{a: int32", "',' or the closing bracket belongs at its end, as"},
        {"{a: int32)", "',' or the closing bracket belongs at ')'"},
        {"{a: int32} b", "the end belongs at 'b'"},
        {"{a: int31}", "a type such as float32, or a bracket, belongs at 'int31}'"},
        {"{a: int32[}", "a size or ? belongs at '}'"},
        {"{a: int32[-1]}", "a size or ? belongs at '-1]}'"},
        {"{a: int32[1 2]}", "']' belongs at '2]}'"},
        {"{a: int32[...,1]}", "']' belongs at ',1]}'"},
        {"{a: int32[1,1,1,1,1,1,1,1,1]}", "the end of at most 8 dimensions belongs at '1]}'"},
        {"{\"a: int32}", "a name with both its quotes"},
        {"(a: int32)", "a type such as float32"},
        {"NT(a)", "':' belongs at ')'"},
        {"{a: int32} 23456789012345678901234\xf0\x9f\x8e\xad", "at '23456789012345678901234'"},
        {deep, "deeper"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_bytes bytes;
        assert_int_equal(trp_signature_parse(rows[i].text, &bytes), TRP_INVALID_ARGUMENT);
        assert_null(bytes.data);
        if (!strstr(trp_last_error(), rows[i].words))
            fail_msg("'%s': %s", rows[i].text, trp_last_error());
    }
}

static void what_is_no_file_is_a_text(void **state)
{
    (void)state;
    static const char *const texts[] = {"{}",       "[",           "(a",    "float32",
                                        "int32[2]", "NT(x: int8)", "\"a\"("};
    static const char *const files[] = {"",      "float33", "./float32", "/a/b",
                                        "a.sig", "./{}",    "a b(1)"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_true(signature_is_text(texts[i]));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_false(signature_is_text(files[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_structures_flatten_in_reverbs_order),
        cmocka_unit_test(named_tuples_flatten_by_field),
        cmocka_unit_test(sorted_columns_become_a_dict),
        cmocka_unit_test(unsorted_columns_keep_their_order_in_a_named_tuple),
        cmocka_unit_test(columns_that_differ_are_named),
        cmocka_unit_test(unknown_dimensions_fit_any_size),
        cmocka_unit_test(of_equal_dict_keys_the_last_counts),
        cmocka_unit_test(columns_without_a_signature_are_refused),
        cmocka_unit_test(every_prefix_and_flipped_byte_is_survived),
        cmocka_unit_test(a_signature_has_a_text_that_gives_it_again),
        cmocka_unit_test(a_text_says_what_the_columns_are),
        cmocka_unit_test(a_wrong_text_is_told_where_it_is_wrong),
        cmocka_unit_test(what_is_no_file_is_a_text),
        cmocka_unit_test(deep_nesting_is_refused_before_the_stack_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
