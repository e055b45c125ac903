/* Words of messages, and of commands in them. */
#ifndef TRP_CORE_WORDS_H
#define TRP_CORE_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { GUESS_BYTES = 128, DECIMAL_BYTES = 32, WRAPPED_COLUMNS = 79 };

/* The end of a noun behind a number: "1 item", "2 items". */
static inline const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* Words wrapped to WRAPPED_COLUMNS, each line indented. */
void print_wrapped(FILE *out, size_t indent, const char *text);

/* One word as a shell takes it: quoted where that is needed. Caller frees. */
char *shell_word(const char *text);

/* "; did you mean 'x'?" for the candidate that is most like `word`, or "". `candidates` ends with
 * NULL; `text` holds GUESS_BYTES and is returned. */
const char *word_guess(const char *word, const char *const *candidates, char *text);

/* The number as somebody wrote it: 0.6, not 0.60000002384; the fewest digits that read back as the
 * same bits. `text` holds DECIMAL_BYTES and is returned. */
const char *float_decimal(float value, char *text);
const char *double_decimal(double value, char *text);

#endif
