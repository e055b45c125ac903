/* One table a struct: whoever needs to know what an option is asks its row, and nobody keeps a copy
 * of a default or a range.
 *
 * Values have one text form, which is what a user types, what config.json has and what is hashed.
 * Numbers are written with as few digits as give back the same bits, a float's as a float's. */
#include "core/option_table.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/flags.h"
#include "core/hash.h"
#include "core/printable.h"
#include "core/words.h"

const trp_option *option_find(const trp_option_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->options[i].name, name) == 0)
            return &table->options[i];
    return NULL;
}

static const void *option_at(const trp_option *option, const void *options)
{
    return (const char *)options + option->offset;
}

static size_t list_length(const trp_option *option, const uint32_t *list)
{
    size_t length = 0;
    while (length < option->bytes / sizeof *list && list[length] > 0)
        length++;
    return length;
}

/* Of anything but a text or a list. */
static double number_of(const trp_option *option, const void *at)
{
    switch (option->type) {
    case TRP_OPTION_BOOL:
        return *(const bool *)at;
    case TRP_OPTION_I32:
        return *(const int32_t *)at;
    case TRP_OPTION_U32:
        return *(const uint32_t *)at;
    case TRP_OPTION_I64:
        return (double)*(const int64_t *)at;
    case TRP_OPTION_U64:
        return (double)*(const uint64_t *)at;
    case TRP_OPTION_F32:
        return *(const float *)at;
    default:
        return *(const double *)at;
    }
}

static size_t choice_count(const trp_option *option)
{
    size_t count = 0;
    while (option->choices && option->choices[count])
        count++;
    return count;
}

/* ---- text -------------------------------------------------------------------------------- */

static char *list_text(const trp_option *option, const uint32_t *list)
{
    struct buffer text = {0};
    for (size_t i = 0, length = list_length(option, list); i < length; i++) {
        char *number = xasprintf("%s%u", i == 0 ? "" : ",", list[i]);
        buffer_append(&text, (trp_bytes){(const uint8_t *)number, strlen(number)});
        free(number);
    }
    buffer_append(&text, (trp_bytes){(const uint8_t *)"", 1});
    return (char *)text.data;
}

static char *value_text(const trp_option *option, const void *at)
{
    char text[DECIMAL_BYTES];
    switch (option->type) {
    case TRP_OPTION_BOOL:
        return xstrdup(*(const bool *)at ? "true" : "false");
    case TRP_OPTION_TEXT:
        return xstrdup(*(const char *const *)at ? *(const char *const *)at : "");
    case TRP_OPTION_LIST:
        return list_text(option, at);
    case TRP_OPTION_I64:
        return xasprintf("%lld", (long long)*(const int64_t *)at);
    case TRP_OPTION_U64:
        return xasprintf("%llu", (unsigned long long)*(const uint64_t *)at);
    case TRP_OPTION_F32:
        return xstrdup(float_decimal(*(const float *)at, text));
    case TRP_OPTION_U32:
        if (*(const uint32_t *)at < choice_count(option))
            return xstrdup(option->choices[*(const uint32_t *)at]);
        break;
    default:
        break;
    }
    return xstrdup(double_decimal(number_of(option, at), text));
}

char *option_value(const trp_option *option, const void *options)
{
    return value_text(option, option_at(option, options));
}

/* ---- parsing ----------------------------------------------------------------------------- */

static bool parse_integer(const trp_option *option, const char *text, void *at)
{
    bool negative;
    uint64_t magnitude;
    if (!flags_whole(text, &negative, &magnitude))
        return false;
    bool is_signed = option->type == TRP_OPTION_I32 || option->type == TRP_OPTION_I64;
    uint64_t most = option->type == TRP_OPTION_I32   ? INT32_MAX
                    : option->type == TRP_OPTION_U32 ? UINT32_MAX
                    : option->type == TRP_OPTION_I64 ? INT64_MAX
                                                     : UINT64_MAX;
    if (magnitude > most || (negative && magnitude > 0 && !is_signed))
        return false;
    int64_t value = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    if (option->bytes == sizeof(int64_t))
        *(int64_t *)at = value;
    else
        *(int32_t *)at = (int32_t)value;
    return true;
}

static bool choice_of(const trp_option *option, const char *text, void *at)
{
    for (uint32_t i = 0; option->choices[i]; i++)
        if (strcmp(option->choices[i], text) == 0) {
            *(uint32_t *)at = i;
            return true;
        }
    return false;
}

static bool parse_list(const trp_option *option, const char *text, uint32_t *list)
{
    const trp_option number = {.type = TRP_OPTION_U32, .bytes = sizeof *list};
    memset(list, 0, option->bytes);
    for (size_t i = 0; *text; i++) {
        char word[32];
        size_t length = strcspn(text, ",");
        if (length >= sizeof word || i == option->bytes / sizeof *list)
            return false;
        memcpy(word, text, length);
        word[length] = '\0';
        if (!parse_integer(&number, word, &list[i]) || list[i] == 0)
            return false;
        text += length;
        if (*text == ',' && !*++text)
            return false;
    }
    return true;
}

/* False: `text` is no value of this type. A text is borrowed. */
static bool value_of_text(const trp_option *option, const char *text, void *at)
{
    double value;
    char *end;
    if (option->choices)
        return choice_of(option, text, at);
    switch (option->type) {
    case TRP_OPTION_BOOL:
        *(bool *)at = strcmp(text, "true") == 0;
        return *(bool *)at || strcmp(text, "false") == 0;
    case TRP_OPTION_TEXT:
        *(const char **)at = *text ? text : NULL;
        return true;
    case TRP_OPTION_LIST:
        return parse_list(option, text, at);
    case TRP_OPTION_F32:
        *(float *)at = strtof(text, &end); /* not by way of a double, which would round twice */
        return flags_decimal(text, &value);
    case TRP_OPTION_F64:
        return flags_decimal(text, at);
    default:
        return parse_integer(option, text, at);
    }
}

/* ---- ranges ------------------------------------------------------------------------------ */

/* The values that the row allows and the type can hold. */
static void find_range(const trp_option *option, double *min, double *max)
{
    bool any = option->min == 0 && option->max == 0;
    *min = any ? -INFINITY : option->min;
    *max = any ? INFINITY : option->max;
    if (option->type == TRP_OPTION_U32 || option->type == TRP_OPTION_U64)
        *min = fmax(*min, 0);
    if (option->type == TRP_OPTION_LIST)
        *min = fmax(*min, 1);
    if (option->type == TRP_OPTION_U32 || option->type == TRP_OPTION_LIST)
        *max = fmin(*max, UINT32_MAX);
}

static bool in_range(const trp_option *option, double value)
{
    double min, max;
    find_range(option, &min, &max);
    if (option->type == TRP_OPTION_F32) { /* as it has the ends of the range */
        min = (float)min;
        max = (float)max;
    }
    return isfinite(value) && value >= min && value <= max;
}

static bool value_fits(const trp_option *option, const void *at)
{
    const uint32_t *list = at;
    if (option->type == TRP_OPTION_TEXT || option->type == TRP_OPTION_BOOL)
        return true;
    if (option->choices)
        return *list < choice_count(option);
    if (option->type != TRP_OPTION_LIST)
        return in_range(option, number_of(option, at));
    for (size_t i = 0, length = list_length(option, list); i < length; i++)
        if (!in_range(option, list[i]))
            return false;
    return true;
}

static char *choices_text(const trp_option *option)
{
    char *text = xstrdup("");
    size_t count = choice_count(option);
    for (size_t i = 0; i < count; i++) {
        const char *between = i == 0 ? "" : i + 1 == count ? " or " : ", ";
        char *longer = xasprintf("%s%s%s", text, between, option->choices[i]);
        free(text);
        text = longer;
    }
    return text;
}

char *option_range(const trp_option *option)
{
    if (option->choices)
        return choices_text(option);
    if (option->type == TRP_OPTION_BOOL)
        return xstrdup("true or false");
    if (option->type == TRP_OPTION_TEXT)
        return xstrdup("text");
    char low[DECIMAL_BYTES], high[DECIMAL_BYTES], kind[64];
    double min, max;
    find_range(option, &min, &max);
    double_decimal(min, low);
    double_decimal(max, high);
    bool real = option->type == TRP_OPTION_F32 || option->type == TRP_OPTION_F64;
    if (option->type == TRP_OPTION_LIST)
        snprintf(kind, sizeof kind, "at most %zu whole numbers", option->bytes / sizeof(uint32_t));
    else
        snprintf(kind, sizeof kind, "a %snumber%s%.40s", real ? "" : "whole ",
                 option->unit ? " of " : "", option->unit ? option->unit : "");
    if (isfinite(min) && isfinite(max))
        return xasprintf("%s in [%s, %s]", kind, low, high);
    return xasprintf("%s%s%s", kind, isfinite(min) ? ", at least " : "", isfinite(min) ? low : "");
}

/* ---- whole structs ----------------------------------------------------------------------- */

static bool is_zero(const trp_option *option, const void *at)
{
    if (option->type == TRP_OPTION_TEXT)
        return !*(const char *const *)at;
    if (option->type == TRP_OPTION_LIST)
        return *(const uint32_t *)at == 0;
    return number_of(option, at) == 0;
}

static void resolve_value(const trp_option *option, const void *from, void *to)
{
    bool none = !from || is_zero(option, from);
    memset(to, 0, option->bytes);
    if (none && option->fallback) {
        bool good = value_of_text(option, option->fallback, to);
        assert(good && "a table's fallback is a value of its type");
        (void)good;
    } else if (!none && option->type == TRP_OPTION_LIST) {
        memcpy(to, from, list_length(option, from) * sizeof(uint32_t));
    } else if (!none && !(option->negative_is_zero && number_of(option, from) < 0)) {
        memcpy(to, from, option->bytes);
    }
    if (option->type == TRP_OPTION_TEXT && *(char **)to)
        *(char **)to = xstrdup(*(char **)to);
}

char *option_default(const trp_option *option)
{
    void *value = xcalloc(1, option->bytes);
    resolve_value(option, NULL, value);
    char *text = value_text(option, value);
    if (option->type == TRP_OPTION_TEXT)
        free(*(char **)value);
    free(value);
    return text;
}

void trp_options_resolve(const trp_option_table *table, const void *from, void *to)
{
    for (size_t i = 0; i < table->count; i++) {
        const trp_option *option = &table->options[i];
        resolve_value(option, from ? option_at(option, from) : NULL, (char *)to + option->offset);
    }
}

void trp_options_cleanup(const trp_option_table *table, void *options)
{
    for (size_t i = 0; i < table->count; i++) {
        char **text = (char **)(void *)((char *)options + table->options[i].offset);
        if (table->options[i].type != TRP_OPTION_TEXT)
            continue;
        free(*text);
        *text = NULL;
    }
}

trp_status trp_options_check(const trp_option_table *table, const void *options)
{
    for (size_t i = 0; i < table->count; i++) {
        const trp_option *option = &table->options[i];
        if (value_fits(option, option_at(option, options)))
            continue;
        char *value = option_value(option, options), *range = option_range(option);
        trp_status status =
            trp_fail(TRP_INVALID_ARGUMENT, "%s is %s, must be %s", option->name, value, range);
        free(value);
        free(range);
        return status;
    }
    return TRP_OK;
}

static trp_status no_such_option(const trp_option_table *table, const char *name)
{
    const char **names = xcalloc(table->count + 1, sizeof *names);
    char guess[GUESS_BYTES];
    for (size_t i = 0; i < table->count; i++)
        names[i] = table->options[i].name;
    word_guess(name, names, guess);
    free(names);
    return trp_fail(TRP_INVALID_ARGUMENT, "%s has no option '%s'%s", table->name, name, guess);
}

trp_status trp_options_set(const trp_option_table *table, void *options, const char *name,
                           const char *value)
{
    const trp_option *option = option_find(table, name);
    if (!option)
        return no_such_option(table, name);
    void *parsed = xcalloc(1, option->bytes), *to = (char *)options + option->offset;
    trp_status status = TRP_OK;
    if (value_of_text(option, value, parsed) && value_fits(option, parsed)) {
        if (option->type == TRP_OPTION_TEXT) {
            free(*(char **)to);
            *(char **)to = *value ? xstrdup(value) : NULL;
        } else {
            memcpy(to, parsed, option->bytes);
        }
    } else {
        char *range = option_range(option);
        status = trp_fail(TRP_INVALID_ARGUMENT, "%s is %s, must be %s", name, *value ? value : "''",
                          range);
        free(range);
    }
    free(parsed);
    return status;
}

/* ---- options that others make idle ------------------------------------------------------- */

/* Of "a|b|c*", the last of which is whatever begins with c. */
static bool is_alternative(const char *alternatives, const char *value)
{
    for (const char *at = alternatives;; at++) {
        size_t length = strcspn(at, "|");
        bool begins = length > 0 && at[length - 1] == '*';
        size_t compared = begins ? length - 1 : length;
        if (strncmp(at, value, compared) == 0 && (begins || value[compared] == '\0'))
            return true;
        at += length;
        if (*at == '\0')
            return false;
    }
}

/* Whether the option that `needs` names has one of the values there, or, by "!=", none of them. */
static bool needs_are_met(const trp_option_table *table, const char *needs, const void *options)
{
    char *name = xasprintf("%.*s", (int)strcspn(needs, "!="), needs);
    const char *values = needs + strlen(name);
    const trp_option *other = option_find(table, name);
    bool others = *values == '!';
    values += others;
    assert(other && *values == '=' && "an option needs a value of one of its table");
    char *value = option_value(other, options);
    bool met = is_alternative(values + 1, value) != others;
    free(value);
    free(name);
    return met;
}

bool option_is_idle(const trp_option_table *table, const trp_option *option, const void *options)
{
    if (!option->needs || needs_are_met(table, option->needs, options))
        return false;
    char *value = option_value(option, options), *standard = option_default(option);
    bool idle = strcmp(value, standard) != 0;
    free(standard);
    free(value);
    return idle;
}

char *option_needs(const trp_option *option)
{
    struct buffer text = {0};
    if (!option->needs)
        return NULL;
    for (const char *at = option->needs; *at; at++)
        if (*at == '|')
            buffer_append(&text, text_bytes(" or "));
        else if (*at == '!')
            buffer_append(&text, text_bytes(" other than "));
        else if (at == option->needs || at[-1] != '!')
            buffer_append(&text, (trp_bytes){(const uint8_t *)at, 1});
    return buffer_text(&text);
}

enum { OPTION_HELP_INDENT = 6 };

void option_describe(const trp_option *option, const char *whose, const void *options, FILE *out)
{
    char *standard = option_default(option), *range = option_range(option);
    char *value = options ? option_value(option, options) : xstrdup(standard);
    print_text(out, "  %s.%s=%s\n", whose, option->name, value);
    char *needs = option_needs(option);
    char *allowed = xasprintf("%s%s%s%s%s%s", range, standard[0] ? "; default " : "", standard,
                              option->fixed ? "; a resume keeps it" : "",
                              needs ? "; read with " : "", needs ? needs : "");
    print_wrapped(out, OPTION_HELP_INDENT, option->help);
    print_wrapped(out, OPTION_HELP_INDENT, allowed);
    free(needs);
    free(allowed);
    free(value);
    free(range);
    free(standard);
}

uint64_t options_hash(uint64_t hash, const trp_option_table *table, const void *options)
{
    for (size_t i = 0; i < table->count; i++) {
        char *value = option_value(&table->options[i], options);
        hash = hash_bytes(hash, table->options[i].name, strlen(table->options[i].name) + 1);
        hash = hash_bytes(hash, value, strlen(value) + 1);
        free(value);
    }
    return hash;
}
