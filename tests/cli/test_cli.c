/* What `troupe` says of itself: help, complaints, manual pages and completion, for every command.
 */
#include "cli_tools.h"

#include <ctype.h>

/* ---- every command ----------------------------------------------------------------------- */

/* Calls `check` for each command that COMMAND --help lists, and for those below it. */
static void each_command(struct desk *desk, const char *path,
                         void (*check)(struct desk *, const char *path))
{
    assert_troupe(desk, 0, "%s --help", path);
    char *text = scene_read(&desk->at, "out");
    bool parent = strstr(text, "COMMAND ...") != NULL;
    check(desk, path);
    size_t found = 0;
    for (char *line = text; parent && line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "  ", 2) != 0 || !islower((unsigned char)line[2]))
            continue;
        char *longer = xasprintf("%s %.*s", path, (int)strcspn(line + 2, " "), line + 2);
        each_command(desk, longer, check);
        free(longer);
        found++;
    }
    assert_true(!parent || found > 1);
    free(text);
}

static void check_help(struct desk *desk, const char *path)
{
    char *text = scene_read(&desk->at, "out"), *usage = xasprintf("Usage: troupe%s ", path);
    assert_contains(text, usage);
    *strchr(text, '\n') = '\0';
    assert_null(strstr(text, "  ")); /* in the usage */
    text[strlen(text)] = '\n';
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strcspn(line, "\n") > 80)
            fail_msg("wider than a terminal: %s", line);
    }
    free(usage);
    free(text);
    assert_troupe(desk, 2, "%s --frobnicate", path);
    assert_one_error(desk, "frobnicate");
}

static void every_command_has_help_and_refuses_unknown_options(void **state)
{
    each_command(*state, "", check_help);
}

static bool there(const char *program)
{
    char *path = xasprintf("/usr/bin/%s", program);
    bool found = access(path, X_OK) == 0;
    free(path);
    if (!found)
        print_message("SKIPPED: there is no %s here; scripts/setup test installs it\n", program);
    return found;
}

static void check_page(struct desk *desk, const char *path)
{
    char *page = xasprintf("pages/troupe%s.1", path);
    for (char *at = page; *at; at++)
        *at = *at == ' ' ? '-' : *at;
    char *file = scene_path(&desk->at, page);
    const char *groff[] = {"/usr/bin/groff", "-man", "-Tutf8", "-ww", "-z", file, NULL};
    assert_file_contains(&desk->at, page, ".SH NAME");
    if (access(groff[0], X_OK) == 0) {
        assert_int_equal(scene_run(&desk->at, groff), 0);
        char *warnings = scene_read(&desk->at, "err");
        assert_string_equal(warnings, "");
        free(warnings);
    }
    free(file);
    free(page);
}

static void every_command_has_a_manual_page(void **state)
{
    struct desk *desk = *state;
    there("groff");
    assert_troupe(desk, 0, "man --dir=pages");
    each_command(desk, "", check_page);
    assert_troupe(desk, 0, "man replay ls");
    assert_file_contains(&desk->at, "out", "Usage: troupe replay ls TARGET");
    assert_troupe(desk, 0, "replay serve --help");
    assert_file_contains(&desk->at, "out", "Usage: troupe replay serve --dir=PATH [OPTION...]");
    assert_troupe(desk, 0, "man --roff replay ls");
    assert_file_contains(&desk->at, "out", ".TH \"troupe-replay-ls\" 1");
    assert_file_contains(&desk->at, "out", "what is printed.\nOne of: text json.\nDefault: text.");
    assert_troupe(desk, 2, "man replay nothing");
    assert_one_error(desk, "troupe replay nothing");
    assert_troupe(desk, 1, "man --dir=/none/such");
    assert_one_error(desk, "/none/such");
}

/* ---- complaints -------------------------------------------------------------------------- */

static void wrong_usage_is_one_line_that_helps(void **state)
{
    struct desk *desk = *state;
    const struct {
        const char *line, *words;
    } rows[] = {
        {"repaly ls", "did you mean 'replay'"},
        {"replay itmes x", "did you mean 'items'"},
        {"top x", "no command 'top'; did you mean 'replay top'?"},
        {"replay remove", "no command 'remove' (troupe replay --help"},
        {"replay items x t --sotr=oldest", "no option --sotr; did you mean 'sort'"},
        {"launch no/program", "'no/program' is no .c or .proto file"},
        {"replay items x t --zzz", "no option --zzz (--help"},
        {"replay items x t -z", "no option -z"},
        {"replay items x t --sort=best", "--sort=best: use one of: sampler oldest"},
        {"replay items x t --count=0", "--count=0: not a whole number from 1 to 10000"},
        {"replay items x t -n", "-n: N is missing"},
        {"replay items x t --count", "--count: its value is missing"},
        {"replay items x t --min-priority=high", "--min-priority=high: not a number"},
        {"replay items x t --max-age=-1", "--max-age=-1: not a number of seconds"},
        {"replay top x --delay=1e300", "--delay=1e300: not a number of seconds above 0, up to"},
        {"replay items x t --max-age=1e300", "--max-age=1e300: not a number of seconds up to 1e9"},
        {"replay sample x t --timeout=1e300", "--timeout=1e300: not a number of seconds up to 1e9"},
        {"replay ls x --names=yes", "--names takes no value"},
        {"replay ls", "TARGET is missing: troupe replay ls TARGET"},
        {"replay ls ''", "TARGET is empty: troupe replay ls TARGET"},
        {"replay load x ''", "FILE is empty"},
        {"replay peek x", "TABLE is missing"},
        {"replay peek x t 1 2", "'2' is too much"},
        {"replay set-priority x t", "KEY=PRIORITY... is missing"},
        {"replay serve", "--dir=PATH is missing"},
        {"replay serve --dir=x --max-bytes=12Q", "--max-bytes=12Q"},
        {"replay serve --dir=x --table=name=t --table=name=t", "two tables are called t"},
        {"replay serve --dir=x --table=name=t --listen 127.0.0.1:99999", "127.0.0.1:99999"},
        {"replay create 127.0.0.1:1 t", "did you mean name=t?"},
        {"replay create 127.0.0.1:1 name=t max_size=x", "max_size=x"},
        {"replay create 127.0.0.1:1 'name=a b'",
         "a value with blanks goes in quotes: name=\"a b\""},
        {"replay create 127.0.0.1:1 'name=\"a b'", "its quotes are not closed"},
        {"replay alter 127.0.0.1:1 name=t max_size=x", "max_size=x"},
        {"replay items 127.0.0.1:1 t --key=abc", "'abc' is no key"},
        {"replay delete 127.0.0.1:1 t", "delete what?"},
        {"replay delete 127.0.0.1:1 t x", "'x' is no key"},
        {"replay peek 127.0.0.1:1 t x", "'x' is no key"},
        {"replay set-priority 127.0.0.1:1 t K=abc", "'K=abc' is not KEY=PRIORITY"},
        {"replay dump 127.0.0.1:1 t x.csv", "FILE.npz or FILE.jsonl"},
        {"replay sample 127.0.0.1:1 t --save=x.csv", "FILE.npz or FILE.jsonl"},
        {"replay dump 127.0.0.1:1 x.npz", "say which table, and FILE"},
        {"replay dump --all 127.0.0.1:1 t x.npz", "--all is of every table"},
        {"replay load 127.0.0.1:1 x.csv", "FILE.npz or FILE.jsonl"},
        {"replay ls :8765", ":8765"},
        {"completion tcsh", "bash, zsh and fish"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_troupe(desk, 2, "%s", rows[i].line);
        assert_one_error(desk, rows[i].words);
        char *out = scene_read(&desk->at, "out");
        assert_string_equal(out, "");
        free(out);
    }
    assert_troupe(desk, 2, "replay");
    assert_file_contains(&desk->at, "err", "Usage: troupe replay COMMAND");
    assert_troupe(desk, 1, "replay ls 127.0.0.1:1");
    assert_one_error(desk, "127.0.0.1:1: connection refused");
    assert_troupe(desk, 1, "replay ls /etc/passwd");
    assert_one_error(desk, "/etc/passwd is neither a directory nor a socket");
    assert_troupe(desk, 1, "replay ls /etc");
    assert_one_error(desk, "/etc is no");
    assert_troupe(desk, 1, "replay ls no-such-host.invalid:1");
    char *said = scene_read(&desk->at, "err");
    assert_null(strstr(said, "/troupe.Replay"));
    free(said);
}

static void help_takes_no_value(void **state)
{
    struct desk *desk = *state;
    assert_troupe(desk, 2, "replay ls x --help=yes");
    assert_one_error(desk, "--help takes no value");
}

/* ---- output ------------------------------------------------------------------------------ */

/* Short and long: what fills a buffer fails earlier. */
static void options_of_agents_and_nodes_are_listed_also_in_the_manual(void **state)
{
    struct desk *desk = *state;
    assert_troupe(desk, 0, "options actor dqn");
    assert_file_contains(&desk->at, "out",
                         "A node of kind actor:\n  actor.env=\n      the environment: NAME");
    assert_file_contains(&desk->at, "out",
                         "  agent.n_step=3\n      rewards of an item before it bootstraps\n      a "
                         "whole number of steps in [1, 1024]; default 3; ");
    assert_troupe(desk, 0, "options server cache");
    assert_file_contains(&desk->at, "out", "A node of kind server:\n  server.rule=sync\n");
    assert_file_contains(&desk->at, "out", "A node of kind cache:\n  cache.");
    assert_troupe(desk, 2, "options atcor");
    assert_one_error(desk, "no agent or kind of node is called 'atcor'; there are: a3c, ");
    assert_one_error(desk, ", replay, server, learner, cache, actor, evaluator; did you "
                           "mean 'actor'?\n");
    assert_troupe(desk, 2, "options dqn atcor"); /* nothing of dqn */
    assert_one_error(desk, "no agent or kind of node is called 'atcor'");
    char *out = scene_read(&desk->at, "out");
    assert_string_equal(out, "");
    free(out);
    static const char *const commands[] = {"options", "options --help", "man --roff options"};
    for (size_t i = 0; i < 3; i++) {
        assert_troupe(desk, 0, "%s", commands[i]);
        assert_file_contains(&desk->at, "out", "\n  agent.n_step=3\n");
        assert_file_contains(&desk->at, "out", "\n  evaluator.episodes=100\n");
    }
}

static void output_that_does_not_get_out_is_a_failure(void **state)
{
    struct desk *desk = *state;
    static const char *const lines[] = {"--version", "replay serve --help", "man replay",
                                        "completion bash"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char *script = xasprintf("%s %s >/dev/full", TROUPE_CLI, lines[i]);
        const char *shell[] = {"/bin/sh", "-c", script, NULL};
        assert_int_equal(scene_run(&desk->at, shell), 1);
        assert_one_error(desk, "standard output: No space left on device");
        free(script);
    }
}

/* ---- completion -------------------------------------------------------------------------- */

/* What bash offers for the words of `line`, the last of which is being typed. */
static char *completed(struct desk *desk, const char *line)
{
    char *script = xasprintf("PATH=%s/bin:$PATH; source ./script; COMP_WORDS=(%s); "
                             "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _troupe; "
                             "echo ${COMPREPLY[@]}",
                             desk->at.dir, line);
    const char *bash[] = {"/bin/bash", "-c", script, NULL};
    assert_int_equal(scene_run(&desk->at, bash), 0);
    assert_no_error(desk);
    free(script);
    char *text = scene_read(&desk->at, "out");
    text[strcspn(text, "\n")] = '\0';
    return text;
}

static void bash_completes_commands_options_values_and_tables(void **state)
{
    struct desk *desk = *state;
    assert_troupe(desk, 0, "completion bash");
    char *out = scene_path(&desk->at, "out"), *script = scene_path(&desk->at, "script");
    char *bin = scene_path(&desk->at, "bin"), *tool = scene_path(&desk->at, "bin/troupe");
    assert_int_equal(rename(out, script), 0);
    assert_int_equal(mkdir(bin, 0777), 0);
    assert_int_equal(symlink(TROUPE_CLI, tool), 0);
    desk_serve(desk, "--table name=apples --table name=pears --table 'name=\"b c\"' "
                     "--table 'name=$(touch${IFS}ran)'");
    desk_stop(desk);
    const struct {
        const char *line, *words;
    } rows[] = {
        {"troupe re", "replay"},
        {"troupe replay che", "checkpoint checkpoints"},
        {"troupe replay items --so", "--sort"},
        {"troupe replay items --sort = most", "most-sampled"},
        {"troupe replay ls x -o js", "json"},
        {"troupe replay peek store p", "pears"},
        {"troupe replay items -n 3 store ''", "apples pears b c $(touch${IFS}ran)"},
        {"troupe replay items store b\\\\", "b c"},
        {"troupe replay ls sto", "store"},
        {"troupe replay serve --dir sto", "store"},
        {"troupe replay serve --dir = sto", "store"},
        {"troupe replay sample store apples --save sto", "store"},
        {"troupe replay serve --no", "--no-share"},
        {"troupe replay serve --restore l", "latest"},
        {"troupe replay restore l", "latest"},
        {"troupe replay restore sto", "store"},
        {"troupe completion ''", "bash zsh fish"},
        {"troupe completion b", "bash"},
        {"troupe man re", "replay"},
        {"troupe man replay --", "--roff --dir --help"},
        {"troupe man replay che", "checkpoint checkpoints"},
        {"troupe man replay ls ''", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *words = completed(desk, rows[i].line);
        if (strcmp(words, rows[i].words) != 0)
            fail_msg("'%s' completes to '%s', not '%s'", rows[i].line, words, rows[i].words);
        free(words);
    }
    char *ran = scene_path(&desk->at, "ran");
    assert_int_not_equal(access(ran, F_OK), 0); /* a name is a name */
    free(ran);
    char *options = completed(desk, "troupe replay serve ''"); /* it takes nothing else */
    assert_int_equal(strncmp(options, "--dir --listen ", strlen("--dir --listen ")), 0);
    free(options);
    free(tool);
    free(bin);
    free(script);
    free(out);
}

/* Neither shell is a dependency: what the scripts do in them was tried by hand. */
static void zsh_and_fish_get_the_same_commands(void **state)
{
    struct desk *desk = *state;
    assert_troupe(desk, 0, "completion zsh");
    assert_file_contains(&desk->at, "out", "#compdef troupe\nautoload -U +X bashcompinit");
    assert_file_contains(&desk->at, "out", "complete -o filenames -F _troupe troupe");
    assert_troupe(desk, 0, "completion fish");
    const char *const lines[] = {
        "-n '__troupe_next replay' -f -a top -d ",
        "-n '__troupe_at replay items' -l sort -x -a 'sampler oldest ",
        "-n '__troupe_at replay ls' -l output -s o -x -a 'text json'",
        "-n '__troupe_at replay serve' -l restore -r -a 'latest'",
        "-n '__troupe_next replay restore' -a latest\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_file_contains(&desk->at, "out", lines[i]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, desk_setup, desk_teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_command_has_help_and_refuses_unknown_options),
        TEST(every_command_has_a_manual_page),
        TEST(wrong_usage_is_one_line_that_helps),
        TEST(help_takes_no_value),
        TEST(options_of_agents_and_nodes_are_listed_also_in_the_manual),
        TEST(output_that_does_not_get_out_is_a_failure),
        TEST(bash_completes_commands_options_values_and_tables),
        TEST(zsh_and_fish_get_the_same_commands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
