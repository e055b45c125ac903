/* Problem: two dozen commands with a dozen options each have to be parsed, explained, complained
 * about and completed alike.
 * Design: a command is a row of a table (struct command); an option is a row that says what its
 * value is and where it goes. getopt_long() splits; everything else is done here, once.
 * Guarantee: wrong usage is one line on standard error and EXIT_USAGE, before anything is done. */
#include "cli.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/flags.h"
#include "core/printable.h"
#include "core/words.h"
#include "limits.h"

enum { OPTIONS_MAX = 48 };

const char *const cli_exit_words[EXIT_COUNT] = {
    "done",
    "it failed; one line on standard error says why",
    "wrong usage; nothing was done",
    "nothing found: no such table, item or checkpoint",
    "the store, a checkpoint or an item is damaged",
};

/* ---- complaints -------------------------------------------------------------------------- */

int cli_wrong(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_text(stderr, "%s: ", name);
    vprint_text(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return EXIT_USAGE;
}

int cli_failed(const char *name, trp_status status)
{
    print_text(stderr, "%s: %s\n", name, trp_last_error());
    if (status == TRP_DATA_LOSS)
        return EXIT_DAMAGED;
    if (status == TRP_INVALID_ARGUMENT)
        return EXIT_USAGE;
    return status == TRP_NOT_FOUND ? EXIT_NOTHING : EXIT_FAILED;
}

/* ---- values ------------------------------------------------------------------------------ */

static bool parse_seconds(const char *text, double *value)
{
    return flags_decimal(text, value) && *value >= 0 && *value <= CLI_SECONDS_MAX;
}

bool cli_parse_bytes(const char *text, uint64_t *value)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    if (unit)
        end++;
    if (text[0] < '0' || text[0] > '9' || *end || errno || number == 0 ||
        number > UINT64_MAX >> shift)
        return false;
    *value = (uint64_t)number << shift;
    return true;
}

int64_t seconds_ms(double seconds)
{
    return seconds < 0 ? -1 : (int64_t)(seconds * 1000);
}

/* The index of `text` among words separated by spaces; false: it is none of them. */
static bool parse_choice(const char *text, const char *words, uint32_t *index)
{
    *index = 0;
    for (const char *word = words; *word; ++*index) {
        size_t size = strcspn(word, " ");
        if (strlen(text) == size && strncmp(word, text, size) == 0)
            return true;
        word += size + strspn(word + size, " ");
    }
    return false;
}

static void list_add(struct cli_list *list, const char *word)
{
    list->words = xrealloc(list->words, (list->count + 1) * sizeof *list->words);
    list->words[list->count++] = word;
}

static int wrong_value(const char *name, const struct cli_option *option, const char *text)
{
    uint64_t bytes;
    if (option->kind == CLI_CHOICE)
        return cli_wrong(name, "--%s=%s: use one of: %s", option->name, text, option->words);
    if (option->kind == CLI_U64)
        return cli_wrong(name, "--%s=%s: not a whole number from %llu to %llu", option->name, text,
                         (unsigned long long)option->min, (unsigned long long)option->max);
    if (option->kind == CLI_BYTES && option->min && cli_parse_bytes(text, &bytes))
        return cli_wrong(name, "--%s=%s: at least %llu", option->name, text,
                         (unsigned long long)option->min);
    if (option->kind == CLI_BYTES)
        return cli_wrong(name, "--%s=%s: not a number of bytes such as 500M or 20G", option->name,
                         text);
    return cli_wrong(name, "--%s=%s: not %s", option->name, text,
                     option->kind == CLI_SECONDS  ? "a number of seconds up to 1e9"
                     : option->kind == CLI_PERIOD ? "a number of seconds above 0, up to 1e9"
                     : option->kind == CLI_TIMEOUT
                         ? "a number of seconds up to 1e9, or -1, for ever"
                         : "a number");
}

static int set_value(const char *name, const struct cli_option *option, const char *text,
                     void *args)
{
    void *at = (char *)args + option->at;
    bool ok = true;
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)at = true;
        break;
    case CLI_TEXT:
        *(const char **)at = text;
        break;
    case CLI_CHOICE:
        ok = parse_choice(text, option->words, at);
        break;
    case CLI_U64:
        ok = flags_u64(text, option->min, option->max, at);
        break;
    case CLI_NUMBER:
        ok = flags_decimal(text, at);
        break;
    case CLI_SECONDS:
        ok = parse_seconds(text, at);
        break;
    case CLI_PERIOD:
        ok = parse_seconds(text, at) && *(double *)at > 0;
        break;
    case CLI_TIMEOUT:
        ok = parse_seconds(text, at) || (flags_decimal(text, at) && *(double *)at == -1);
        break;
    case CLI_BYTES:
        ok = cli_parse_bytes(text, at) && *(uint64_t *)at >= option->min;
        break;
    case CLI_LIST:
        list_add(at, text);
        break;
    }
    return ok ? EXIT_DONE : wrong_value(name, option, text);
}

/* ---- a command line ---------------------------------------------------------------------- */

struct parser {
    const struct command *command;
    const char *name;
    const struct cli_option *rows[OPTIONS_MAX];
    struct option longs[OPTIONS_MAX + 2];
    char shorts[2 * OPTIONS_MAX + 5];
    int count;
    void *args;
};

static void parser_fill(struct parser *parser)
{
    char *letter = parser->shorts;
    if (parser->command->stops)
        *letter++ = '+';
    *letter++ = ':'; /* a missing value is told apart from an unknown option */
    *letter++ = 'h';
    for (size_t i = 0; i < CLI_GROUPS_MAX && parser->command->options[i]; i++) {
        for (const struct cli_option *row = parser->command->options[i]; row->name; row++) {
            assert(parser->count < OPTIONS_MAX);
            bool value = row->kind != CLI_FLAG;
            parser->longs[parser->count] =
                (struct option){row->name, value ? required_argument : no_argument, NULL, 256};
            parser->rows[parser->count++] = row;
            if (row->letter)
                *letter++ = row->letter;
            if (row->letter && value)
                *letter++ = ':';
        }
    }
    parser->longs[parser->count] = (struct option){"help", no_argument, NULL, 'h'};
}

static void set_fallbacks(const struct parser *parser)
{
    for (int i = 0; i < parser->count; i++)
        if (parser->rows[i]->fallback)
            set_value(parser->name, parser->rows[i], parser->rows[i]->fallback, parser->args);
}

static void free_lists(const struct parser *parser)
{
    for (int i = 0; i < parser->count; i++)
        if (parser->rows[i]->kind == CLI_LIST)
            free(((struct cli_list *)(void *)((char *)parser->args + parser->rows[i]->at))->words);
}

static int wrong_option(const struct parser *parser, char **argv)
{
    const char *names[OPTIONS_MAX + 2] = {"help"};
    char letter[] = {'-', (char)optopt, '\0'};
    bool is_letter = optopt != 0 && optopt != 256 && optopt != 'h'; /* which stands for --help */
    for (int i = 0; i < parser->count; i++)
        names[i + 1] = parser->rows[i]->name;
    char *words = flags_refusal(is_letter ? letter : argv[optind - 1], names);
    int status = cli_wrong(parser->name, "%s", words);
    free(words);
    return status;
}

static int wrong_end(const struct parser *parser, char **argv)
{
    for (int i = 0; i < parser->count && optopt != 256; i++)
        if (parser->rows[i]->letter == optopt)
            return cli_wrong(parser->name, "-%c: %s is missing", optopt, parser->rows[i]->value);
    return cli_wrong(parser->name, "%s: its value is missing", argv[optind - 1]);
}

static const struct cli_option *by_letter(const struct parser *parser, int letter)
{
    for (int i = 0; i < parser->count; i++)
        if (parser->rows[i]->letter == letter)
            return parser->rows[i];
    return NULL;
}

/* Sets the arguments; -1: help was asked for. */
static int parse_options(struct parser *parser, int argc, char **argv)
{
    opterr = 0;
    optind = 0;
    for (;;) {
        int at = -1;
        optopt = 0;
        int key = getopt_long(argc, argv, parser->shorts, parser->longs, &at);
        if (key == -1)
            return EXIT_DONE;
        if (key == 'h')
            return -1;
        if (key == '?')
            return wrong_option(parser, argv);
        if (key == ':')
            return wrong_end(parser, argv);
        const struct cli_option *row = key == 256 ? parser->rows[at] : by_letter(parser, key);
        int status = set_value(parser->name, row, optarg, parser->args);
        if (status != EXIT_DONE)
            return status;
        if (row->given)
            *(bool *)((char *)parser->args + row->given) = true;
    }
}

/* "TARGET [TABLE] KEY...": how many words may come. */
static int check_words(const struct parser *parser, size_t count, char **words)
{
    const char *usage = parser->command->arguments ? parser->command->arguments : "";
    size_t needed = 0, allowed = 0;
    bool endless = strstr(usage, "...") != NULL, optional = false;
    for (const char *word = usage; *word; word += strspn(word, " ")) {
        size_t size = strcspn(word, " ");
        optional = optional || word[0] == '[';
        needed += !optional;
        allowed++;
        if (needed > count)
            return cli_wrong(parser->name, "%.*s is missing: %s %s", (int)size, word, parser->name,
                             usage);
        if (!optional && *words[needed - 1] == '\0')
            return cli_wrong(parser->name, "%.*s is empty: %s %s", (int)size, word, parser->name,
                             usage);
        word += size;
    }
    if (count > allowed && !endless)
        return cli_wrong(parser->name, "'%s' is too much: %s %s", words[allowed], parser->name,
                         *usage ? usage : "takes options only");
    return EXIT_DONE;
}

static int check_needed(const struct parser *parser)
{
    for (int i = 0; i < parser->count; i++) {
        const struct cli_option *row = parser->rows[i];
        if (row->needed && !*(const char *const *)(const void *)((char *)parser->args + row->at))
            return cli_wrong(parser->name, "--%s=%s is missing", row->name, row->value);
    }
    return EXIT_DONE;
}

static int leaf_run(const struct command *command, const char *name, int argc, char **argv)
{
    struct parser parser = {.command = command, .name = name};
    parser_fill(&parser);
    parser.args = xcalloc(1, command->args_size + 1);
    set_fallbacks(&parser);
    int status = parse_options(&parser, argc, argv);
    struct cli_call call = {command, name, parser.args, argv + optind, (size_t)(argc - optind)};
    if (status == EXIT_DONE)
        status = check_words(&parser, call.word_count, call.words);
    if (status == EXIT_DONE)
        status = check_needed(&parser);
    if (status == EXIT_DONE)
        status = command->run(&call);
    if (status == -1) {
        help_print(stdout, command, name);
        status = EXIT_DONE;
    }
    free_lists(&parser);
    free(parser.args);
    return status;
}

/* The group that has a command of this name; NULL: none has. */
static const char *group_with(const struct command *command, const char *word)
{
    for (const struct command *group = command->commands; group->name; group++)
        for (const struct command *each = group->commands; each && each->name; each++)
            if (strcmp(each->name, word) == 0)
                return group->name;
    return NULL;
}

static int unknown_command(const struct command *command, const char *name, const char *word)
{
    const char *names[OPTIONS_MAX + 1] = {NULL};
    char guess[GUESS_BYTES];
    size_t count = 0;
    for (const struct command *each = command->commands; each->name; each++)
        names[count++] = each->name;
    assert(count < OPTIONS_MAX);
    const char *group = group_with(command, word);
    if (group)
        return cli_wrong(name,
                         "there is no command '%s'; did you mean '%s %s'? (%s --help lists "
                         "them)",
                         word, group, word, name);
    return cli_wrong(name, "there is no command '%s'%s (%s --help lists them)", word,
                     word_guess(word, names, guess), name);
}

int command_run(const struct command *command, const char *name, int argc, char **argv)
{
    if (!command->commands)
        return leaf_run(command, name, argc, argv);
    if (argc < 2) {
        help_print(stderr, command, name);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        (strcmp(argv[1], "help") == 0 && argc == 2)) {
        help_print(stdout, command, name);
        return EXIT_DONE;
    }
    for (const struct command *each = command->commands; each->name; each++) {
        if (strcmp(each->name, argv[1]) != 0)
            continue;
        char *longer = xasprintf("%s %s", name, each->name);
        int status = command_run(each, longer, argc - 1, argv + 1);
        free(longer);
        return status;
    }
    return unknown_command(command, name, argv[1]);
}
