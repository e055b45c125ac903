/* What each client of a publisher said it did. Whoever has one guards it. */
#ifndef TRP_LEARNER_CLIENT_TABLE_H
#define TRP_LEARNER_CLIENT_TABLE_H

#include <stdbool.h>

#include <troupe/publisher.h>
#include "core/map.h"

/* A zeroed one is empty. */
struct client_table {
    trp_client_counts *clients;
    size_t *same_hash; /* of each client: the one before it in the map's place and 1; 0: none */
    size_t client_count, client_capacity;
    struct map places; /* of a name's hash: the last client with it, and 1 */
    trp_client_counts totals;
    bool expects_statistics; /* of `expected` numbers; false: of any */
    size_t expected;
    size_t statistic_count; /* of each client that has any; 0: none has */
    size_t statistics_held; /* of all clients */
};

void client_table_cleanup(struct client_table *table);

/* INVALID_ARGUMENT: no client may be called so. */
TRP_MUST_USE trp_status client_name_check(const char *name);

/* The client's counts become at least these; `*now` is what they are, borrowed. Failures as
 * trp_publisher_restore(). */
TRP_MUST_USE trp_status client_table_raise(struct client_table *table,
                                           const trp_client_counts *counts, trp_client_counts *now);

/* NULL: there is none of that name. */
trp_client_counts *client_table_find(struct client_table *table, const char *name);

/* The statistics of all together; the caller frees. NULL and 0: there are none. */
trp_moments *client_table_merge(const struct client_table *table, size_t *count);

/* For trp_publisher_counts_free(). */
trp_client_counts *client_table_copy(const struct client_table *table, size_t *count);

#endif
