/* Words of messages, and of commands in them. */
#ifndef TRP_CORE_WORDS_H
#define TRP_CORE_WORDS_H

#include <stdint.h>

/* What a noun ends in behind a number: "1 item", "2 items". */
static inline const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* One word as a shell takes it: quoted where that is needed. Caller frees. */
char *shell_word(const char *text);

#endif
