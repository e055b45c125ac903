#include "received.h"

#include <inttypes.h>

static size_t received_rows(const struct received *received)
{
    uint32_t steps = received->steps > 0 ? received->steps : 1;
    return (size_t)received->update->batches[received->source].rows * steps;
}

static uint64_t received_key(const struct received *received, size_t row)
{
    uint32_t steps = received->steps > 0 ? received->steps : 1;
    return received->update->batches[received->source].keys[row / steps];
}

static const void *received_column(const struct received *received, const char *column)
{
    return trp_update_column(received->update, received->source, column);
}

trp_status received_flags(const struct received *received, const char *column)
{
    const uint8_t *bytes = received_column(received, column);
    size_t rows = received_rows(received);
    for (size_t row = 0; row < rows; row++)
        if (bytes[row] > 1)
            return trp_fail(TRP_DATA_LOSS, "%s: item %" PRIu64 " has %u for a flag in %s",
                            received->who, received_key(received, row), bytes[row], column);
    return TRP_OK;
}

trp_status received_choices(const struct received *received, const char *column,
                            const int32_t *sizes, uint32_t parts)
{
    const int32_t *choices = received_column(received, column);
    size_t rows = received_rows(received);
    for (size_t row = 0; row < rows; row++)
        for (uint32_t i = 0; i < parts; i++, choices++)
            if (*choices < 0 || *choices >= sizes[i])
                return trp_fail(
                    TRP_DATA_LOSS, "%s: item %" PRIu64 " has %s %" PRId32 " of %" PRId32,
                    received->who, received_key(received, row), column, *choices, sizes[i]);
    return TRP_OK;
}

/* A byte that is no bool must not be read as one. */
trp_status received_mask(const struct received *received, const char *column, uint32_t choices,
                         const uint8_t *valid)
{
    const uint8_t *bytes = received_column(received, column);
    size_t rows = bytes ? received_rows(received) : 0;
    for (size_t row = 0; row < rows; row++, bytes += choices) {
        uint8_t any = valid && !valid[row], all = 0;
        for (uint32_t i = 0; i < choices; i++) {
            any |= bytes[i] == 1;
            all |= bytes[i];
        }
        if (!any || all > 1)
            return trp_fail(TRP_DATA_LOSS, "%s: item %" PRIu64 " has a %s that %s", received->who,
                            received_key(received, row), column,
                            all > 1 ? "is no mask" : "allows nothing");
    }
    return TRP_OK;
}
