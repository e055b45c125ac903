/* Words about arguments are the same wherever they are read: getopt and argp, which read them, are
 * told to say nothing. */
#include "core/flags.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/words.h"

bool flags_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && !*end && !errno && *value >= min && *value <= max;
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
