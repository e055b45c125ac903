#include "core/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/buffer.h"

char *shell_word(const char *text)
{
    if (text[0] && text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789_-+=.,:/@%")] == '\0')
        return xstrdup(text);
    struct buffer word = {0};
    buffer_append(&word, text_bytes("'"));
    for (; *text; text++) {
        const char *part = *text == '\'' ? "'\\''" : text;
        buffer_append(&word, (trp_bytes){(const uint8_t *)part, part == text ? 1 : 4});
    }
    buffer_append(&word, text_bytes("'"));
    return buffer_text(&word);
}

enum { GUESS_LENGTH_MAX = 48 };

/* How many letters must be changed, put in or left out (Levenshtein). */
static size_t word_distance(const char *a, const char *b)
{
    size_t row[GUESS_LENGTH_MAX + 1], length = strlen(b);
    if (length > GUESS_LENGTH_MAX || strlen(a) > GUESS_LENGTH_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t corner = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < length; j++) {
            size_t change = corner + (a[i] != b[j]);
            corner = row[j + 1];
            row[j + 1] = 1 + (row[j] < row[j + 1] ? row[j] : row[j + 1]);
            if (change < row[j + 1])
                row[j + 1] = change;
        }
    }
    return row[length];
}

const char *word_guess(const char *word, const char *const *candidates, char *text)
{
    const char *best = NULL;
    size_t least = strlen(word) < 3 ? 1 : strlen(word) < 8 ? 2 : 3;
    for (size_t i = 0; candidates[i]; i++) {
        size_t away = word_distance(word, candidates[i]);
        bool begins = strlen(word) > 1 && strncmp(candidates[i], word, strlen(word)) == 0;
        if (begins && !best)
            best = candidates[i];
        if (away <= least && 2 * away <= strlen(candidates[i])) {
            least = away;
            best = candidates[i];
        }
    }
    text[0] = '\0';
    if (best)
        snprintf(text, GUESS_BYTES, "; did you mean '%s'?", best);
    return text;
}

const char *float_decimal(float value, char *text)
{
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, DECIMAL_BYTES, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return text;
}

const char *double_decimal(double value, char *text)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, DECIMAL_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return text;
}

void print_wrapped(FILE *out, size_t indent, const char *text)
{
    size_t column = 0;
    while (*text) {
        size_t size = strcspn(text, " ");
        if (column > 0 && column + 1 + size > WRAPPED_COLUMNS) {
            fputc('\n', out);
            column = 0;
        }
        column += (size_t)fprintf(out, "%*s%.*s", column ? 1 : (int)indent, "", (int)size, text);
        text += size + strspn(text + size, " ");
    }
    fputc('\n', out);
}
