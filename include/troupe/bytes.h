/* Borrowed bytes: a view of memory that somebody else owns. */
#ifndef TRP_BYTES_H
#define TRP_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* Never freed through this type; valid as long as the function that returned it says. */
typedef struct {
    const uint8_t *data;
    size_t size;
} trp_bytes;

#endif
