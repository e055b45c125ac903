/* A table on the command line: blank-separated words `key=value`, where a value may be a form,
 * `prioritized(0.6)`. Keys and forms are rows of tables, which are read both ways. Every failure
 * names the word it is about and what could stand there. The text of options names the simplest
 * limiter that has the same numbers, bit for bit. */
#include <troupe/replay.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/file.h"
#include "core/limits.h"
#include "core/words.h"
#include "limits.h"
#include "options.h"
#include "signature.h"

enum { NUMBERS_MAX = 4 };

/* A number is a count ('n': a whole number, at least 1), a real ('r': finite) or a limit ('l': a
 * real, inf or -inf). */
struct form {
    const char *usage; /* its name, and numbers in parentheses */
    const char *numbers;
    int tag;
};

union number {
    int64_t count;
    double real;
};

static const struct form selector_forms[] = {
    {"fifo", "", TRP_FIFO},
    {"lifo", "", TRP_LIFO},
    {"uniform", "", TRP_UNIFORM},
    {"prioritized(EXPONENT)", "r", TRP_PRIORITIZED},
    {"max_heap", "", TRP_MAX_HEAP},
    {"min_heap", "", TRP_MIN_HEAP},
    {0},
};

enum limiter_form { FORM_MIN_SIZE, FORM_SAMPLES_PER_INSERT, FORM_QUEUE, FORM_RATE };

static const struct form limiter_forms[] = {
    {"min_size(N)", "n", FORM_MIN_SIZE},
    {"samples_per_insert(SPI,MIN_SIZE,ERROR_BUFFER)", "rnr", FORM_SAMPLES_PER_INSERT},
    {"queue(N)", "n", FORM_QUEUE},
    {"stack(N)", "n", FORM_QUEUE},
    {"rate(SPI,MIN_SIZE,MIN_DIFF,MAX_DIFF)", "rnll", FORM_RATE},
    {0},
};

enum key_kind { TEXT, SELECTOR, LIMITER, INT32, INT64, REPLACEMENT, SIGNATURE };

/* Brackets that values may have: blanks between them are part of the word. */
static const char *const kind_brackets[] = {
    [TEXT] = "",  [SELECTOR] = "()",  [LIMITER] = "()",       [INT32] = "",
    [INT64] = "", [REPLACEMENT] = "", [SIGNATURE] = "()[]{}",
};

struct key {
    const char *name;
    enum key_kind kind;
    size_t offset;       /* in the options */
    int64_t least, most; /* of a number */
    const char *meaning; /* of the least */
    bool in_1024s;       /* whether a number may end in K, M or G */
};

/* As the text of options has them. */
static const struct key keys[] = {
    {"name", TEXT, .offset = offsetof(trp_table_options, name)},
    {"sampler", SELECTOR, .offset = offsetof(trp_table_options, sampler)},
    {"remover", SELECTOR, .offset = offsetof(trp_table_options, remover)},
    {"max_size", INT64, offsetof(trp_table_options, max_size), 1, TABLE_ITEMS_MAX, "", true},
    {"limiter", LIMITER, .offset = offsetof(trp_table_options, limiter)},
    {"max_times_sampled", INT32, offsetof(trp_table_options, max_times_sampled), 0, INT32_MAX,
     " (no limit)", false},
    {"max_bytes", INT64, offsetof(trp_table_options, max_bytes), 0, INT64_MAX, " (no limit)", true},
    {"insert_on_sample", TEXT, .offset = offsetof(trp_table_options, insert_on_sample)},
    {"replacement", REPLACEMENT, .offset = offsetof(trp_table_options, no_replacement)},
    {"seed", INT64, offsetof(trp_table_options, seed), 0, INT64_MAX, " (the server's)", false},
    {"signature", SIGNATURE, .offset = offsetof(trp_table_options, signature)},
};

enum { KEY_COUNT = sizeof keys / sizeof keys[0] };

/* ---- numbers ----------------------------------------------------------------------------- */

/* A whole number, with `in_1024s` one that may end in K, M or G: times 1024, 1024^2, 1024^3. */
static bool parse_count(const char *text, bool in_1024s, int64_t least, int64_t most,
                        int64_t *count)
{
    static const char units[] = "KMG";
    if (!isdigit((unsigned char)text[text[0] == '-']))
        return false;
    char *end;
    errno = 0;
    *count = strtoll(text, &end, 10);
    const char *unit = in_1024s && *end ? strchr(units, *end) : NULL;
    if (unit) {
        unsigned shift = 10 * (unsigned)(unit - units + 1);
        if (*count < 0 || *count > most >> shift)
            return false;
        *count <<= shift;
        end++;
    }
    return *end == '\0' && errno == 0 && *count >= least && *count <= most;
}

static bool parse_real(const char *text, double *real)
{
    if (!*text || text[strspn(text, "0123456789.eE+-")] != '\0')
        return false;
    char *end;
    *real = strtod(text, &end);
    return *end == '\0' && isfinite(*real);
}

static bool parse_limit(const char *text, double *real)
{
    bool infinite = strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0;
    if (infinite)
        *real = text[0] == '-' ? -DBL_MAX : DBL_MAX; /* as Reverb has it on the wire */
    return infinite || parse_real(text, real);
}

static trp_status parse_form_number(const char *word, const struct form *form, char kind,
                                    const char *text, union number *number)
{
    bool right = kind == 'n'   ? parse_count(text, false, 1, INT64_MAX, &number->count)
                 : kind == 'r' ? parse_real(text, &number->real)
                               : parse_limit(text, &number->real);
    const char *wrong = kind == 'n'   ? "is no whole number of at least 1"
                        : kind == 'r' ? "is no finite number"
                                      : "is neither a finite number nor inf or -inf";
    return right ? TRP_OK
                 : trp_fail(TRP_INVALID_ARGUMENT, "%s: '%s' %s; usage: %s", word, text, wrong,
                            form->usage);
}

/* ---- forms ------------------------------------------------------------------------------- */

static int form_name_size(const struct form *form)
{
    return (int)strcspn(form->usage, "(");
}

static const struct form *form_find(const struct form *forms, const char *name, int size)
{
    for (const struct form *form = forms; form->usage; form++)
        if (form_name_size(form) == size && memcmp(form->usage, name, (size_t)size) == 0)
            return form;
    return NULL;
}

static trp_status fail_unknown_form(const char *word, const struct form *forms)
{
    struct buffer usages = {0};
    for (const struct form *form = forms; form->usage; form++) {
        if (usages.size > 0)
            buffer_append(&usages, text_bytes(" "));
        buffer_append(&usages, text_bytes(form->usage));
    }
    trp_status status = trp_fail(TRP_INVALID_ARGUMENT, "%s: unknown; there are: %.*s", word,
                                 (int)usages.size, (const char *)usages.data);
    buffer_cleanup(&usages);
    return status;
}

static char *trim(char *text)
{
    text += strspn(text, " \t");
    size_t size = strlen(text);
    while (size > 0 && (text[size - 1] == ' ' || text[size - 1] == '\t'))
        text[--size] = '\0';
    return text;
}

/* `numbers_text` is the text between the parentheses; it is changed. */
static trp_status parse_numbers(const char *word, const struct form *form, char *numbers_text,
                                union number *numbers)
{
    size_t expected = strlen(form->numbers);
    size_t given = 1;
    for (const char *c = numbers_text; *c; c++)
        given += *c == ',';
    if (given != expected)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: %zu numbers where %zu belong; usage: %s", word,
                        given, expected, form->usage);
    char *rest = numbers_text;
    for (size_t i = 0; i < expected; i++) {
        char *text = strsep(&rest, ",");
        TRP_TRY(parse_form_number(word, form, form->numbers[i], trim(text), &numbers[i]));
    }
    return TRP_OK;
}

/* Parses `value`, the part of `word` behind '='. */
static trp_status parse_form(const char *word, const char *value, const struct form *forms,
                             const struct form **form, union number *numbers)
{
    int name_size = (int)strcspn(value, "(");
    *form = form_find(forms, value, name_size);
    if (!*form)
        return fail_unknown_form(word, forms);
    const char *open = value + name_size;
    if (!*(*form)->numbers)
        return *open ? trp_fail(TRP_INVALID_ARGUMENT, "%s: '%s' takes no numbers", word,
                                (*form)->usage)
                     : TRP_OK;
    size_t size = strlen(open);
    if (size < 2 || open[size - 1] != ')')
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: '(' and ')' belong behind '%.*s'; usage: %s",
                        word, name_size, value, (*form)->usage);
    char *inside = xstrdup(open + 1);
    inside[size - 2] = '\0';
    trp_status status = parse_numbers(word, *form, inside, numbers);
    free(inside);
    return status;
}

/* ---- values ------------------------------------------------------------------------------ */

static trp_status parse_selector(const char *word, const char *value, trp_selector *selector)
{
    const struct form *form;
    union number numbers[NUMBERS_MAX] = {{0}};
    TRP_TRY(parse_form(word, value, selector_forms, &form, numbers));
    selector->kind = (trp_selector_kind)form->tag;
    selector->exponent = form->tag == TRP_PRIORITIZED ? numbers[0].real : 0;
    if (selector->exponent < 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: the exponent must not be negative", word);
    return TRP_OK;
}

static trp_status parse_limiter(const char *word, const char *value, trp_rate_limiter *limiter)
{
    const struct form *form;
    union number numbers[NUMBERS_MAX] = {{0}};
    double samples_per_insert = 1;
    TRP_TRY(parse_form(word, value, limiter_forms, &form, numbers));
    if (form->tag == FORM_MIN_SIZE) {
        *limiter = trp_limiter_min_size(numbers[0].count);
    } else if (form->tag == FORM_QUEUE) {
        *limiter = trp_limiter_queue(numbers[0].count);
    } else if (form->tag == FORM_SAMPLES_PER_INSERT) {
        samples_per_insert = numbers[0].real;
        *limiter =
            trp_limiter_samples_per_insert(samples_per_insert, numbers[1].count, numbers[2].real);
    } else {
        samples_per_insert = numbers[0].real;
        *limiter = (trp_rate_limiter){samples_per_insert, numbers[1].count, numbers[2].real,
                                      numbers[3].real};
    }
    if (!(samples_per_insert > 0))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: SPI must be above 0", word);
    if (isnan(limiter->min_diff)) /* refused: Reverb's condition */
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s: ERROR_BUFFER must be at least max(1, SPI) = %g, or both sides would "
                        "wait for each other",
                        word, fmax(1, samples_per_insert));
    if (limiter->min_diff > limiter->max_diff)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: MIN_DIFF is above MAX_DIFF", word);
    return TRP_OK;
}

/* All of the file, or why not. */
static trp_status signature_read(const char *path, struct buffer *bytes)
{
    enum { READ_MAX = TABLE_SIGNATURE_BYTES_MAX + 1 };
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), error;
    ssize_t size = file < 0 ? -1 : 1;
    buffer_reserve(bytes, READ_MAX);
    for (; size > 0; bytes->size += size > 0 ? (size_t)size : 0)
        size = read(file, bytes->data + bytes->size, READ_MAX - bytes->size);
    error = errno;
    fd_close(file);
    if (size < 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "signature=%s: %s", path, strerror(error));
    if (bytes->size == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "signature=%s: the file is empty", path);
    if (bytes->size == READ_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "signature=%s: larger than %d bytes", path,
                        TABLE_SIGNATURE_BYTES_MAX);
    return TRP_OK;
}

static trp_status parse_signature(const char *value, trp_bytes *signature)
{
    struct buffer bytes = {0};
    free((uint8_t *)signature->data); /* of a table that is altered */
    *signature = (trp_bytes){0};
    if (signature_is_text(value))
        return trp_signature_parse(value, signature);
    trp_status status = signature_read(value, &bytes);
    if (status == TRP_OK && bytes.data[0] >= 0x80) { /* the number of its kind, which is no ASCII */
        *signature = buffer_bytes(&bytes);
        return TRP_OK;
    }
    if (status == TRP_OK)
        status = trp_signature_parse(buffer_text(&bytes), signature);
    buffer_cleanup(&bytes);
    return status;
}

static trp_status parse_number(const char *word, const char *value, const struct key *key,
                               int64_t *number)
{
    if (parse_count(value, key->in_1024s, key->least, key->most, number))
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT, "%s: not a whole number%s from %" PRId64 "%s to %" PRId64,
                    word, key->in_1024s ? " (K, M or G: of 1024s)" : "", key->least, key->meaning,
                    key->most);
}

static trp_status parse_value(const char *word, const char *value, const struct key *key,
                              trp_table_options *options)
{
    void *option = (char *)options + key->offset;
    int64_t number;
    switch (key->kind) {
    case TEXT:
        free(*(char **)option);
        *(char **)option = *value ? xstrdup(value) : NULL; /* nothing: none, as at first */
        return TRP_OK;
    case SELECTOR:
        options->remover_set |= option == &options->remover;
        return parse_selector(word, value, option);
    case LIMITER:
        return parse_limiter(word, value, option);
    case INT32:
        TRP_TRY(parse_number(word, value, key, &number));
        *(int32_t *)option = (int32_t)number;
        return TRP_OK;
    case INT64:
        return parse_number(word, value, key, option);
    case REPLACEMENT:
        options->no_replacement = strcmp(value, "no") == 0;
        if (!options->no_replacement && strcmp(value, "yes") != 0)
            return trp_fail(TRP_INVALID_ARGUMENT, "%s: neither yes nor no", word);
        return TRP_OK;
    case SIGNATURE:
        return parse_signature(value, option);
    }
    return trp_fail(TRP_INTERNAL, "%s: no kind %d", word, (int)key->kind);
}

/* ---- words ------------------------------------------------------------------------------- */

static const char *const blanks = " \t\r\n";

/* Index of the key that `word` begins with, '=' included; KEY_COUNT: none. */
static size_t key_find(const char *word)
{
    size_t i = 0;
    for (; i < KEY_COUNT; i++) {
        size_t size = strlen(keys[i].name);
        if (strncmp(word, keys[i].name, size) == 0 && word[size] == '=')
            break;
    }
    return i;
}

size_t quoted_read(const char *text, struct buffer *out)
{
    size_t size = 1;
    for (; text[size] && text[size] != '"'; size++) {
        size += text[size] == '\\' && text[size + 1];
        if (out)
            buffer_append(out, span_of(text + size, 1));
    }
    return text[size] ? size + 1 : 0;
}

void quoted_append(struct buffer *out, trp_bytes text)
{
    buffer_append(out, text_bytes("\""));
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == '"' || text.data[i] == '\\')
            buffer_append(out, text_bytes("\\"));
        buffer_append(out, (trp_bytes){&text.data[i], 1});
    }
    buffer_append(out, text_bytes("\""));
}

/* Bytes of the word at `text`: up to a blank outside of quotes and of the brackets that the value
 * of its key may have. Quotes count where a value begins and in brackets: names may have them. */
static size_t word_size(const char *text)
{
    size_t key = key_find(text);
    if (key == KEY_COUNT)
        return strcspn(text, blanks);
    const char *brackets = kind_brackets[keys[key].kind];
    size_t start = strlen(keys[key].name) + 1, size = start, depth = 0;
    while (text[size] && (depth > 0 || !strchr(blanks, text[size]))) {
        const char *bracket = strchr(brackets, text[size]);
        if (text[size] == '"' && (size == start || depth > 0)) {
            size_t quoted = quoted_read(text + size, NULL);
            size += quoted ? quoted : strlen(text + size);
            continue;
        }
        size_t place = bracket ? (size_t)(bracket - brackets) : 0;
        depth += bracket && place % 2 == 0;
        depth -= bracket && place % 2 == 1 && depth > 0;
        size++;
    }
    return size;
}

bool trp_table_options_word(const char **at, const char **word, size_t *size)
{
    *word = *at + strspn(*at, blanks);
    *size = word_size(*word);
    *at = *word + *size;
    return *size > 0;
}

char *trp_table_options_quote(const char *value)
{
    if (*value && *value != '"' && !value[strcspn(value, " \t\r\n#")])
        return xstrdup(value);
    struct buffer out = {0};
    quoted_append(&out, text_bytes(value));
    return buffer_text(&out);
}

/* ---- lines ------------------------------------------------------------------------------- */

static trp_status parse_table_word(trp_table_options *options, const char *word, bool remote,
                                   bool *seen)
{
    size_t key = key_find(word);
    if (key == KEY_COUNT)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "table option '%s': unknown; there are: name= sampler= remover= max_size= "
                        "max_times_sampled= limiter= max_bytes= insert_on_sample= "
                        "replacement= seed= signature= (a table is named by name=x, a value "
                        "with blanks goes in quotes: name=\"a b\")",
                        word);
    if (seen[key])
        return trp_fail(TRP_INVALID_ARGUMENT, "table option '%s': %s is given twice", word,
                        keys[key].name);
    seen[key] = true;
    const char *value = word + strlen(keys[key].name) + 1;
    struct buffer plain = {0};
    trp_status status = TRP_OK;
    size_t quoted = *value == '"' ? quoted_read(value, &plain) : 0;
    if (*value == '"' && !quoted)
        status =
            trp_fail(TRP_INVALID_ARGUMENT, "table option '%s': its quotes are not closed", word);
    if (quoted && !value[quoted])
        value = buffer_text(&plain);
    if (status == TRP_OK && remote && keys[key].kind == SIGNATURE && !signature_is_text(value))
        status =
            trp_fail(TRP_INVALID_ARGUMENT,
                     "table option '%s': a file of the client's is not read by the server", word);
    if (status == TRP_OK)
        status = parse_value(word, value, &keys[key], options);
    buffer_cleanup(&plain);
    return status;
}

static trp_status parse_words(trp_table_options *options, const char *line, bool remote)
{
    bool seen[KEY_COUNT] = {false};
    const char *at = line, *each;
    for (size_t size; trp_table_options_word(&at, &each, &size);) {
        char *word = strndup(each, size);
        trp_status status = parse_table_word(options, word, remote, seen);
        free(word);
        TRP_TRY(status);
    }
    if (!options->name)
        return trp_fail(TRP_INVALID_ARGUMENT, "table '%s': it needs a name; name=... is missing",
                        line);
    return trp_table_options_check(options);
}

trp_status table_options_change(const trp_table_options *base, const char *line, bool remote,
                                trp_table_options **out)
{
    trp_table_options *options = trp_table_options_copy(base ? base : &(trp_table_options){0});
    free((char *)options->name); /* the line has it */
    options->name = NULL;
    trp_status status = parse_words(options, line, remote);
    *out = status == TRP_OK ? options : NULL;
    if (status != TRP_OK)
        trp_table_options_destroy(options);
    return status;
}

trp_status trp_table_options_parse(const char *line, trp_table_options **out)
{
    TRP_TRY(table_options_change(NULL, line, false, out));
    (*out)->line = xstrdup(line);
    return TRP_OK;
}

/* ---- format ------------------------------------------------------------------------------ */

/* The shortest text that strtod() reads back as `value`. */
static const char *number_text(double value, char text[DECIMAL_BYTES])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, DECIMAL_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return text;
}

static const char *option_limit_text(double value, char text[DECIMAL_BYTES])
{
    if (fabs(value) >= DBL_MAX)
        return value < 0 ? "-inf" : "inf";
    return number_text(value, text);
}

static char *option_selector_text(trp_selector selector)
{
    char number[DECIMAL_BYTES];
    for (const struct form *form = selector_forms; form->usage; form++)
        if (form->tag == (int)selector.kind)
            return *form->numbers ? xasprintf("%.*s(%s)", form_name_size(form), form->usage,
                                              number_text(selector.exponent, number))
                                  : xstrdup(form->usage);
    return xasprintf("%d", (int)selector.kind); /* refused by check and by parse */
}

static bool limiter_equal(const trp_rate_limiter *a, const trp_rate_limiter *b)
{
    return a->samples_per_insert == b->samples_per_insert && a->min_size == b->min_size &&
           a->min_diff == b->min_diff && a->max_diff == b->max_diff;
}

static char *option_limiter_text(const trp_rate_limiter *limiter)
{
    trp_rate_limiter same = trp_limiter_min_size(limiter->min_size);
    if (limiter_equal(limiter, &same))
        return xasprintf("min_size(%" PRId64 ")", limiter->min_size);

    double size = limiter->max_diff;
    if (size >= 1 && size <= 0x1p53 && size == floor(size)) {
        same = trp_limiter_queue((int64_t)size);
        if (limiter_equal(limiter, &same))
            return xasprintf("queue(%" PRId64 ")", (int64_t)size);
    }

    char numbers[3][DECIMAL_BYTES];
    const char *spi = number_text(limiter->samples_per_insert, numbers[0]);
    double buffer = (limiter->max_diff - limiter->min_diff) / 2;
    same = trp_limiter_samples_per_insert(limiter->samples_per_insert, limiter->min_size, buffer);
    if (isfinite(buffer) && limiter_equal(limiter, &same))
        return xasprintf("samples_per_insert(%s,%" PRId64 ",%s)", spi, limiter->min_size,
                         number_text(buffer, numbers[1]));

    return xasprintf("rate(%s,%" PRId64 ",%s,%s)", spi, limiter->min_size,
                     option_limit_text(limiter->min_diff, numbers[1]),
                     option_limit_text(limiter->max_diff, numbers[2]));
}

/* NULL: it is the default, which goes without saying. */
static char *key_text(const trp_table_options *options, const struct key *key)
{
    const void *option = (const char *)options + key->offset;
    int64_t number = 0;
    switch (key->kind) {
    case TEXT:
        return *(char *const *)option ? trp_table_options_quote(*(char *const *)option) : NULL;
    case SELECTOR:
        return option_selector_text(*(const trp_selector *)option);
    case LIMITER:
        return option_limiter_text(option);
    case INT32:
        number = *(const int32_t *)option;
        break;
    case INT64:
        number = *(const int64_t *)option;
        break;
    case REPLACEMENT:
        return options->no_replacement ? xstrdup("no") : NULL;
    case SIGNATURE:
        break;
    }
    return number ? xasprintf("%" PRId64, number) : NULL;
}

char *trp_table_options_format(const trp_table_options *options)
{
    trp_table_options *full = trp_table_options_copy(options);
    struct buffer line = {0};
    for (size_t i = 0; i < KEY_COUNT; i++) {
        char *value = key_text(full, &keys[i]);
        char *word =
            value ? xasprintf("%s%s=%s", line.size ? " " : "", keys[i].name, value) : xstrdup("");
        buffer_append(&line, text_bytes(word));
        free(word);
        free(value);
    }
    trp_table_options_destroy(full);
    return buffer_text(&line);
}

/* ---- differences ------------------------------------------------------------------------- */

/* The value that `line` has for the key, to be freed. */
static char *line_value(const char *line, size_t key)
{
    size_t size, start = strlen(keys[key].name) + 1;
    for (const char *at = line, *word; trp_table_options_word(&at, &word, &size);)
        if (key_find(word) == key)
            return strndup(word + start, size - start);
    return xstrdup("");
}

void table_options_compare(const char *before, const char *after, table_options_difference *each,
                           void *arg)
{
    for (size_t key = 0; key < KEY_COUNT; key++) {
        char *old = line_value(before, key), *new = line_value(after, key);
        if (strcmp(old, new) != 0)
            each(arg, keys[key].name, old, new);
        free(new);
        free(old);
    }
}
