/* Words about arguments are the same wherever they are read: getopt and argp, which read them, are
 * told to say nothing. */
#include "core/flags.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/words.h"

bool flags_decimal(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return text[0] && text[strspn(text, "0123456789+-.eE")] == '\0' && !*end && isfinite(*value);
}

bool flags_whole(const char *text, bool *negative, uint64_t *magnitude)
{
    double value;
    *negative = text[0] == '-';
    if (!flags_decimal(text, &value))
        return false;
    const char *digits = text + *negative;
    errno = 0;
    *magnitude = strtoull(digits, NULL, 10);
    if (digits[strspn(digits, "0123456789")] == '\0')
        return errno == 0;
    *magnitude = (uint64_t)fmin(fabs(value), 0x1p53);
    return fabs(value) < 0x1p53 && value == trunc(value); /* above others round to it */
}

bool flags_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
    bool negative;
    return text[0] >= '0' && text[0] <= '9' && flags_whole(text, &negative, value) &&
           *value >= min && *value <= max;
}

static bool is_among(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

char *flags_refusal(const char *word, const char *const *names)
{
    static const char where[] = " (--help lists them)";
    if (strncmp(word, "--", 2) != 0)
        return xasprintf("there is no option -%c%s", word[1], where);
    char guess[GUESS_BYTES], *name = xasprintf("%.*s", (int)strcspn(word + 2, "="), word + 2),
                             *text;
    if (!is_among(name, names))
        text =
            xasprintf("there is no option --%s%s%s", name, word_guess(name, names, guess), where);
    else
        text = xasprintf(strchr(word, '=') ? "--%s takes no value" : "--%s: its value is missing",
                         name);
    free(name);
    return text;
}
