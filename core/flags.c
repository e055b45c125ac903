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

static bool times_ten(uint64_t *magnitude, uint64_t digit)
{
    return !__builtin_mul_overflow(*magnitude, 10, magnitude) &&
           !__builtin_add_overflow(*magnitude, digit, magnitude);
}

/* Appends `count` zeros. */
static bool scale_up(uint64_t *magnitude, int64_t count)
{
    while (*magnitude > 0 && count-- > 0)
        if (!times_ten(magnitude, 0))
            return false;
    return true;
}

/* Exact, where a double would round. *scale: the power of ten that the magnitude is to be
 * multiplied with, which ends in no zero. */
static bool take_digits(const char *text, uint64_t *magnitude, int64_t *scale)
{
    int64_t zeros = 0, behind = 0;
    bool fraction = false;
    *magnitude = 0;
    for (; *text && *text != 'e' && *text != 'E'; text++) {
        behind += fraction;
        fraction |= *text == '.';
        zeros += *text == '0';
        if (*text == '0' || *text == '.')
            continue;
        if (!scale_up(magnitude, zeros) || !times_ten(magnitude, (uint64_t)(*text - '0')))
            return false;
        zeros = 0;
    }
    int64_t exponent = *text ? strtol(text + 1, NULL, 10) : 0;
    if (exponent > INT32_MAX || exponent < INT32_MIN) /* no text has so many digits */
        exponent = exponent < 0 ? INT32_MIN : INT32_MAX;
    *scale = exponent + zeros - behind;
    return true;
}

bool flags_whole(const char *text, bool *negative, uint64_t *magnitude)
{
    double value;
    int64_t scale;
    *negative = text[0] == '-';
    return flags_decimal(text, &value) &&
           take_digits(text + (text[0] == '-' || text[0] == '+'), magnitude, &scale) &&
           (scale >= 0 || *magnitude == 0) && scale_up(magnitude, scale);
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
