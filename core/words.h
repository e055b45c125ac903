/* Words of messages. */
#ifndef TRP_CORE_WORDS_H
#define TRP_CORE_WORDS_H

#include <stdint.h>

/* What a noun ends in behind a number: "1 item", "2 items". */
static inline const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

#endif
