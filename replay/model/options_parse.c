/* A table on the command line: blank-separated words `key=value`, where a value may be a form,
 * `prioritized(0.6)`. Forms are rows of a table: name, kinds of their numbers, usage. Every
 * failure names the word it is about and what could stand there. */
#include <troupe/replay.h>

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/limits.h"
#include "limits.h"
#include "options.h"
#include "signature.h"

enum { NUMBERS_MAX = 4 };

/* A number is a count ('n': a whole number, at least 1), a real ('r': finite) or a limit ('l': a
 * real, inf or -inf). */
struct form {
    const char *name;
    const char *numbers;
    const char *usage;
    int tag;
};

union number {
    int64_t count;
    double real;
};

static const struct form selector_forms[] = {
    {"fifo", "", "fifo", TRP_FIFO},
    {"lifo", "", "lifo", TRP_LIFO},
    {"uniform", "", "uniform", TRP_UNIFORM},
    {"prioritized", "r", "prioritized(EXPONENT)", TRP_PRIORITIZED},
    {"max_heap", "", "max_heap", TRP_MAX_HEAP},
    {"min_heap", "", "min_heap", TRP_MIN_HEAP},
    {0},
};

enum limiter_form { FORM_MIN_SIZE, FORM_SAMPLES_PER_INSERT, FORM_QUEUE, FORM_RATE };

static const struct form limiter_forms[] = {
    {"min_size", "n", "min_size(N)", FORM_MIN_SIZE},
    {"samples_per_insert", "rnr", "samples_per_insert(SPI,MIN_SIZE,ERROR_BUFFER)",
     FORM_SAMPLES_PER_INSERT},
    {"queue", "n", "queue(N)", FORM_QUEUE},
    {"stack", "n", "stack(N)", FORM_QUEUE},
    {"rate", "rnll", "rate(SPI,MIN_SIZE,MIN_DIFF,MAX_DIFF)", FORM_RATE},
    {0},
};

/* ---- numbers ----------------------------------------------------------------------------- */

static bool parse_count(const char *text, int64_t min, int64_t max, int64_t *count)
{
    if (!isdigit((unsigned char)text[text[0] == '-']))
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *count = value;
    return *end == '\0' && errno == 0 && value >= min && value <= max;
}

/* A count that may end in K, M or G: times 1024, 1024^2, 1024^3. */
static bool parse_table_size(const char *text, int64_t min, int64_t max, int64_t *count)
{
    static const char units[] = "KMG";
    size_t size = strlen(text);
    const char *unit = size > 0 ? strchr(units, text[size - 1]) : NULL;
    if (!unit)
        return parse_count(text, min, max, count);
    unsigned shift = 10 * (unsigned)(unit - units + 1);
    char *digits = xstrdup(text);
    digits[size - 1] = '\0';
    bool right = parse_count(digits, 0, max >> shift, count);
    free(digits);
    *count <<= right ? shift : 0;
    return right && *count >= min;
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

static trp_status parse_table_number(const char *word, const struct form *form, char kind,
                                     const char *text, union number *number)
{
    if (kind == 'n' && !parse_count(text, 1, INT64_MAX, &number->count))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s: '%s' is no whole number of at least 1; usage: %s", word, text,
                        form->usage);
    if (kind == 'r' && !parse_real(text, &number->real))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: '%s' is no finite number; usage: %s", word, text,
                        form->usage);
    if (kind == 'l' && !parse_limit(text, &number->real))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s: '%s' is neither a finite number nor inf or -inf; usage: %s", word,
                        text, form->usage);
    return TRP_OK;
}

/* ---- forms ------------------------------------------------------------------------------- */

static const struct form *form_find(const struct form *forms, const char *name, size_t size)
{
    for (const struct form *form = forms; form->name; form++) {
        if (strlen(form->name) == size && memcmp(form->name, name, size) == 0)
            return form;
    }
    return NULL;
}

static trp_status fail_unknown_form(const char *word, const struct form *forms)
{
    struct buffer usages = {0};
    for (const struct form *form = forms; form->name; form++) {
        if (usages.size > 0)
            buffer_append(&usages, (trp_bytes){(const uint8_t *)" ", 1});
        buffer_append(&usages, (trp_bytes){(const uint8_t *)form->usage, strlen(form->usage)});
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
        TRP_TRY(parse_table_number(word, form, form->numbers[i], trim(text), &numbers[i]));
    }
    return TRP_OK;
}

/* Parses `value`, the part of `word` behind '='. */
static trp_status parse_form(const char *word, const char *value, const struct form *forms,
                             const struct form **form, union number *numbers)
{
    size_t name_size = strcspn(value, "(");
    *form = form_find(forms, value, name_size);
    if (!*form)
        return fail_unknown_form(word, forms);
    const char *open = value + name_size;
    bool wants_numbers = (*form)->numbers[0] != '\0';
    if (!wants_numbers)
        return *open ? trp_fail(TRP_INVALID_ARGUMENT, "%s: '%s' takes no numbers", word,
                                (*form)->name)
                     : TRP_OK;
    size_t size = strlen(open);
    if (size < 2 || open[size - 1] != ')')
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: '(' and ')' belong behind '%s'; usage: %s", word,
                        (*form)->name, (*form)->usage);
    char *inside = xstrdup(open + 1);
    inside[size - 2] = '\0';
    trp_status status = parse_numbers(word, *form, inside, numbers);
    free(inside);
    return status;
}

/* ---- one function per key ---------------------------------------------------------------- */

static trp_status parse_name(trp_table_options *options, const char *word, const char *value)
{
    if (!*value)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: a table needs a name", word);
    options->name = xstrdup(value);
    return TRP_OK;
}

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

static trp_status parse_sampler(trp_table_options *options, const char *word, const char *value)
{
    return parse_selector(word, value, &options->sampler);
}

static trp_status parse_remover(trp_table_options *options, const char *word, const char *value)
{
    options->remover_set = true;
    return parse_selector(word, value, &options->remover);
}

static trp_status parse_max_size(trp_table_options *options, const char *word, const char *value)
{
    if (!parse_table_size(value, 1, TABLE_ITEMS_MAX, &options->max_size))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s: not a whole number (K, M or G: of 1024s) from 1 to %d", word,
                        TABLE_ITEMS_MAX);
    return TRP_OK;
}

static trp_status parse_max_times_sampled(trp_table_options *options, const char *word,
                                          const char *value)
{
    int64_t count;
    if (!parse_count(value, 0, INT32_MAX, &count))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s: not a whole number from 0 (no limit) to %" PRId32, word, INT32_MAX);
    options->max_times_sampled = (int32_t)count;
    return TRP_OK;
}

static trp_status parse_max_bytes(trp_table_options *options, const char *word, const char *value)
{
    int64_t bytes;
    if (!parse_table_size(value, 0, INT64_MAX, &bytes))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s: not a whole number (K, M or G: of 1024s) from 0 (no limit)", word);
    options->max_bytes = (uint64_t)bytes;
    return TRP_OK;
}

static trp_status parse_insert_on_sample(trp_table_options *options, const char *word,
                                         const char *value)
{
    (void)word;
    free((char *)options->insert_on_sample);
    options->insert_on_sample = *value ? xstrdup(value) : NULL; /* nothing: none, as at first */
    return TRP_OK;
}

static trp_status parse_replacement(trp_table_options *options, const char *word, const char *value)
{
    options->no_replacement = strcmp(value, "no") == 0;
    if (!options->no_replacement && strcmp(value, "yes") != 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: neither yes nor no", word);
    return TRP_OK;
}

static trp_status parse_seed(trp_table_options *options, const char *word, const char *value)
{
    int64_t seed;
    if (!parse_count(value, 0, INT64_MAX, &seed))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: not a whole number from 0 (the server's)", word);
    options->seed = (uint64_t)seed;
    return TRP_OK;
}

/* Reverb's conditions, in the words of the form. */
static trp_status samples_per_insert_check(const char *word, double samples_per_insert,
                                           const trp_rate_limiter *limiter)
{
    if (!(samples_per_insert > 0))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: SPI must be above 0", word);
    if (isnan(limiter->min_diff))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s: ERROR_BUFFER must be at least max(1, SPI) = %g, or both sides would "
                        "wait for each other",
                        word, fmax(1, samples_per_insert));
    return TRP_OK;
}

static trp_status rate_check(const char *word, const trp_rate_limiter *limiter)
{
    if (!(limiter->samples_per_insert > 0))
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: SPI must be above 0", word);
    if (limiter->min_diff > limiter->max_diff)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: MIN_DIFF is above MAX_DIFF", word);
    return TRP_OK;
}

static trp_status parse_limiter(trp_table_options *options, const char *word, const char *value)
{
    const struct form *form;
    union number numbers[NUMBERS_MAX] = {{0}};
    TRP_TRY(parse_form(word, value, limiter_forms, &form, numbers));
    trp_rate_limiter *limiter = &options->limiter;
    switch ((enum limiter_form)form->tag) {
    case FORM_MIN_SIZE:
        *limiter = trp_limiter_min_size(numbers[0].count);
        return TRP_OK;
    case FORM_QUEUE:
        *limiter = trp_limiter_queue(numbers[0].count);
        return TRP_OK;
    case FORM_SAMPLES_PER_INSERT:
        *limiter =
            trp_limiter_samples_per_insert(numbers[0].real, numbers[1].count, numbers[2].real);
        return samples_per_insert_check(word, numbers[0].real, limiter);
    case FORM_RATE:
        *limiter = (trp_rate_limiter){.samples_per_insert = numbers[0].real,
                                      .min_size = numbers[1].count,
                                      .min_diff = numbers[2].real,
                                      .max_diff = numbers[3].real};
        return rate_check(word, limiter);
    }
    return trp_fail(TRP_INTERNAL, "%s: no limiter %d", word, form->tag);
}

/* Reads the whole file into `bytes`, a byte more than is allowed at most. */
static trp_status read_file(int file, const char *path, struct buffer *bytes)
{
    for (;;) {
        size_t room = TABLE_SIGNATURE_BYTES_MAX + 1 - bytes->size;
        ssize_t size = read(file, buffer_reserve(bytes, room), room);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0)
            return trp_fail(TRP_INVALID_ARGUMENT, "signature=%s: %s", path, strerror(errno));
        if (size == 0)
            return TRP_OK;
        bytes->size += (size_t)size;
        if (bytes->size > TABLE_SIGNATURE_BYTES_MAX)
            return trp_fail(TRP_INVALID_ARGUMENT, "signature=%s: larger than %d bytes", path,
                            TABLE_SIGNATURE_BYTES_MAX);
    }
}

/* A StructuredValue begins with the number of its kind, which is no ASCII. */
static trp_status signature_take(trp_table_options *options, struct buffer *bytes)
{
    if (bytes->data[0] >= 0x80) {
        options->signature = buffer_bytes(bytes);
        return TRP_OK;
    }
    buffer_append(bytes, (trp_bytes){(const uint8_t *)"", 1});
    trp_status status = trp_signature_parse((const char *)bytes->data, &options->signature);
    buffer_cleanup(bytes);
    return status;
}

static trp_status parse_signature(trp_table_options *options, const char *word, const char *value)
{
    (void)word;
    free((uint8_t *)options->signature.data); /* of a table that is altered */
    options->signature = (trp_bytes){0};
    if (signature_is_text(value))
        return trp_signature_parse(value, &options->signature);
    int file = open(value, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "signature=%s: %s", value, strerror(errno));
    struct buffer bytes = {0};
    trp_status status = read_file(file, value, &bytes);
    close(file);
    if (status == TRP_OK && bytes.size == 0)
        status = trp_fail(TRP_INVALID_ARGUMENT, "signature=%s: the file is empty", value);
    if (status == TRP_OK)
        return signature_take(options, &bytes);
    buffer_cleanup(&bytes);
    return status;
}

/* ---- the line ---------------------------------------------------------------------------- */

struct key {
    const char *name;
    trp_status (*parse)(trp_table_options *options, const char *word, const char *value);
    const char *brackets; /* which may stand in a value: blanks between them are part of the word */
};

static const struct key keys[] = {
    {"name", parse_name, ""},
    {"sampler", parse_sampler, "()"},
    {"remover", parse_remover, "()"},
    {"max_size", parse_max_size, ""},
    {"max_times_sampled", parse_max_times_sampled, ""},
    {"limiter", parse_limiter, "()"},
    {"max_bytes", parse_max_bytes, ""},
    {"insert_on_sample", parse_insert_on_sample, ""},
    {"replacement", parse_replacement, ""},
    {"seed", parse_seed, ""},
    {"signature", parse_signature, "()[]{}"},
};

enum { KEY_COUNT = sizeof keys / sizeof keys[0] };

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

/* Bytes of the quoted text at `text`, with its quotes; of all of it when they are not closed. */
static size_t quoted_size(const char *text)
{
    size_t size = 1;
    while (text[size] && text[size] != '"')
        size += 1 + (text[size] == '\\' && text[size + 1]);
    return size + (text[size] == '"');
}

/* Bytes of the word at `text`: up to a blank outside of quotes and of the brackets that the value
 * of its key may have. Quotes count where a value begins and within brackets: names may have them.
 */
static size_t word_size(const char *text)
{
    size_t key = key_find(text);
    if (key == KEY_COUNT)
        return strcspn(text, blanks);
    size_t start = strlen(keys[key].name) + 1, size = start, depth = 0;
    while (text[size] && (depth > 0 || !strchr(blanks, text[size]))) {
        const char *bracket = strchr(keys[key].brackets, text[size]);
        if (text[size] == '"' && (size == start || depth > 0)) {
            size += quoted_size(text + size);
            continue;
        }
        size_t place = bracket ? (size_t)(bracket - keys[key].brackets) : 0;
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
    buffer_append(&out, (trp_bytes){(const uint8_t *)"\"", 1});
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            buffer_append(&out, (trp_bytes){(const uint8_t *)"\\", 1});
        buffer_append(&out, (trp_bytes){(const uint8_t *)value, 1});
    }
    buffer_append(&out, (trp_bytes){(const uint8_t *)"\"", 2});
    return (char *)out.data;
}

/* Takes the quotes from a value that is quoted as a whole. */
static trp_status unquote(const char *word, char *value)
{
    if (*value != '"' || value[quoted_size(value)])
        return TRP_OK;
    char *out = value;
    for (value++; *value && *value != '"'; value++) {
        value += *value == '\\' && value[1];
        *out++ = *value;
    }
    if (!*value)
        return trp_fail(TRP_INVALID_ARGUMENT, "table option '%s': its quotes are not closed", word);
    *out = '\0';
    return TRP_OK;
}

static trp_status parse_table_word(trp_table_options *options, const char *word, bool remote,
                                   bool *seen)
{
    size_t key = key_find(word);
    if (key == KEY_COUNT)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "table option '%s': unknown; there are: name= sampler= remover= max_size= "
                        "max_times_sampled= limiter= max_bytes= insert_on_sample= "
                        "replacement= seed= signature= (a value with blanks goes in quotes: "
                        "name=\"a b\")",
                        word);
    if (seen[key])
        return trp_fail(TRP_INVALID_ARGUMENT, "table option '%s': %s is given twice", word,
                        keys[key].name);
    seen[key] = true;
    char *copy = xstrdup(word), *value = copy + strlen(keys[key].name) + 1;
    trp_status status = unquote(word, value);
    bool file = keys[key].parse == parse_signature && !signature_is_text(value);
    if (status == TRP_OK && remote && file)
        status =
            trp_fail(TRP_INVALID_ARGUMENT,
                     "table option '%s': a file of the client's is not read by the server", word);
    if (status == TRP_OK)
        status = keys[key].parse(options, word, value);
    free(copy);
    return status;
}

static trp_status parse_words(trp_table_options *options, const char *line, bool remote)
{
    bool seen[KEY_COUNT] = {false};
    const char *at = line, *each;
    for (size_t size; trp_table_options_word(&at, &each, &size);) {
        char *word = xasprintf("%.*s", (int)size, each);
        trp_status status = parse_table_word(options, word, remote, seen);
        free(word);
        TRP_TRY(status);
    }
    if (!options->name)
        return trp_fail(TRP_INVALID_ARGUMENT, "table '%s': name=... is missing", line);
    return trp_table_options_check(options);
}

/* Takes `options`. */
static trp_status parse_line(trp_table_options *options, const char *line, bool remote,
                             trp_table_options **out)
{
    trp_status status = parse_words(options, line, remote);
    *out = status == TRP_OK ? trp_table_options_copy(options) : NULL;
    trp_table_options_destroy(options);
    return status;
}

trp_status trp_table_options_parse(const char *line, trp_table_options **out)
{
    trp_table_options *options = xcalloc(1, sizeof *options);
    options->line = xstrdup(line);
    return parse_line(options, line, false, out);
}

trp_status table_options_parse_remote(const char *line, trp_table_options **out)
{
    return parse_line(xcalloc(1, sizeof(trp_table_options)), line, true, out);
}

trp_status table_options_change(const trp_table_options *base, const char *line, bool remote,
                                trp_table_options **out)
{
    trp_table_options *options = trp_table_options_copy(base);
    free((char *)options->name); /* the line has it */
    options->name = NULL;
    return parse_line(options, line, remote, out);
}
