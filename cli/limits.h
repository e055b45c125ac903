/* Bounds of cli/ that are no option, with their arithmetic. */
#ifndef TRP_CLI_LIMITS_H
#define TRP_CLI_LIMITS_H

#include <stdint.h>

enum {
    /* The least that --max-bytes may be: an empty store has 0.8 MB, and deletes need some room. */
    STORE_MAX_BYTES_MIN = 2 << 20,
    /* What an option may say in seconds: 30 years, whose nanoseconds fit an int64_t. */
    CLI_SECONDS_MAX = 1000000000,
    /* What a part of an item has at least that is not its last: servers send 16 MiB. The largest
     * item, of 2 GiB, comes in 2048 of them. */
    FETCH_PART_BYTES_MIN = 1 << 20,
};

#endif
