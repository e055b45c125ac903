/* Tables of any names, and signatures as text, through every command that takes or prints them. */
#include "cli_tools.h"

/* A name, how a line of options and how this test's line has it. */
static const struct {
    const char *name, *option;
} names[] = {
    {"a b, c=d", "\"a b, c=d\""},
    {"all", "all"},
    {"name=\"x\" # \\", "\"name=\\\"x\\\" # \\\\\""},
    {"(deep/er)", "(deep/er)"},
    {" \303\274\342\200\256", "\" \303\274\342\200\256\""}, /* Reverb allows marks of direction */
};
enum { NAMES = sizeof names / sizeof *names };

static void a_table_of_any_name_does_what_others_do(void **state)
{
    struct desk *desk = *state;
    desk_serve(desk, "--table name=t");
    desk_write_items(desk, "items.jsonl");
    for (size_t i = 0; i < NAMES; i++) {
        const char *name = names[i].name;
        assert_troupe(desk, 0, "replay create %s 'name=%s' insert_on_sample=t", desk->address,
                      names[i].option);
        assert_troupe(desk, 0, "replay load %s items.jsonl '--table=%s'", desk->address, name);
        assert_troupe(desk, 0, "replay alter %s 'name=%s max_size=%zu'", desk->address,
                      names[i].option, 10 + i);
        assert_troupe(desk, 0, "replay set-priority %s '%s' 1=3", desk->address, name);
        assert_troupe(desk, 0, "replay info %s '%s' -o json", desk->address, name);
        cJSON *json = desk_json(desk);
        const cJSON *table = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "tables"), 0);
        assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(table, "name")), name);
        assert_true(json_at(table, "max_size") == (double)(10 + i));
        assert_true(json_at(table, "size") == 5);
        cJSON_Delete(json);
    }
    assert_troupe(desk, 0, "replay dump --all %s all.npz", desk->address);
    assert_troupe(desk, 0, "replay dump --all %s all.jsonl", desk->address);
    desk_stop(desk);
    for (size_t i = 0; i < NAMES; i++)
        assert_troupe(desk, 0, "replay drop store '%s' --yes", names[i].name);
    assert_troupe(desk, 0, "replay load store all.npz --create");
    assert_file_contains(&desk->at, "out", "25 items inserted from all.npz");
    assert_troupe(desk, 0, "replay load store all.jsonl");
    assert_file_contains(&desk->at, "out", "25 were there already");
    assert_troupe(desk, 3, "replay info store b");
    assert_one_error(desk, "it has: t \"a b, c=d\" all \"name=\\\"x\\\" # \\\\\"");
}

/* What a file of tables takes for a comment, and what not. */
static void a_file_of_tables_has_quoted_names(void **state)
{
    struct desk *desk = *state;
    desk_write(desk, "tables", "# two tables\nname=\"a # b\" # one\nname=c# the other\n");
    char *flags = xasprintf("--tables=%s/tables", desk->at.dir);
    desk_serve(desk, flags);
    assert_troupe(desk, 0, "replay ls %s --names", desk->address);
    char *text = scene_read(&desk->at, "out");
    assert_string_equal(text, "a # b\nc\n");
    free(text);
    desk_stop(desk);
    free(flags);
}

static void names_that_act_on_a_terminal_are_refused(void **state)
{
    struct desk *desk = *state;
    static const char *const lines[] = {"name=a\033b",
                                        "name=\"a\tb\"",
                                        "name=a\177",
                                        "name=a\302\233b",
                                        "name=t insert_on_sample=\302\205",
                                        "name=t signature={\"\302\233\": int8}"};
    desk_serve(desk, "--table name=u");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_troupe(desk, 2, "replay create %s '%s'", desk->address, lines[i]);
    desk_stop(desk);
}

/* ---- signatures ------------------------------------------------------------------------------ */

static void assert_signature(struct desk *desk, const char *table, const char *text)
{
    char *line = xasprintf("  signature %s\n", text);
    assert_troupe(desk, 0, "replay info %s %s", desk->address ? desk->address : "store", table);
    assert_file_contains(&desk->at, "out", line);
    free(line);
}

static void a_signature_is_given_and_shown_as_text(void **state)
{
    struct desk *desk = *state;
    static const char nested[] =
        "Step(obs: {pixels: uint8[84,84,?], \"a b\": string[...]}, act: [int32])";
    desk_serve(desk, "--table 'name=t sampler=fifo signature={obs: float32[4], action: int32} "
                     "max_size=9'");
    assert_signature(desk, "t", "{action: int32, obs: float32[4]}");
    assert_troupe(desk, 0, "replay create %s name=u 'signature=%s' max_size=8", desk->address,
                  nested);
    assert_signature(desk, "u",
                     "Step(obs: {\"a b\": string[...], pixels: uint8[84,84,?]}, act: [int32])");
    assert_file_contains(&desk->at, "out", "max_size=8");
    desk_write(desk, "text", "{\n    x: int8,\n    y: bool[2]\n}\n");
    assert_troupe(desk, 0, "replay alter %s name=u signature=text", desk->address);
    assert_signature(desk, "u", "{x: int8, y: bool[2]}");
    assert_troupe(desk, 2, "replay create %s 'name=v signature={x: int9}'", desk->address);
    assert_one_error(desk, "a type such as float32, or a bracket, belongs at 'int9}'");
    assert_troupe(desk, 0, "replay dump %s u u.jsonl", desk->address);
    desk_stop(desk);
    assert_signature(desk, "t", "{action: int32, obs: float32[4]}");
    assert_troupe(desk, 0, "replay drop store u");
    assert_troupe(desk, 0, "replay load store u.jsonl --create");
    assert_signature(desk, "u", "{x: int8, y: bool[2]}");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, desk_setup, desk_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_table_of_any_name_does_what_others_do),
        TEST(a_file_of_tables_has_quoted_names),
        TEST(names_that_act_on_a_terminal_are_refused),
        TEST(a_signature_is_given_and_shown_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
