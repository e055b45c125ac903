/* Clients report totals, never increments, and the largest one ever seen counts: a report that is
 * lost, repeated or late changes nothing. Statistics are such totals, too, of which the one of more
 * numbers is the later. */
#include "client_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/utf8.h"
#include "limits.h"

trp_status client_name_check(const char *name)
{
    size_t length = strnlen(name, PARAMS_CLIENT_NAME_BYTES_MAX + 1);
    if (length > PARAMS_CLIENT_NAME_BYTES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "client name is longer than %d bytes",
                        PARAMS_CLIENT_NAME_BYTES_MAX);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < ' ')
            return trp_fail(TRP_INVALID_ARGUMENT, "client name has a control character");
    if (!utf8_is_text((trp_bytes){(const uint8_t *)name, length}))
        return trp_fail(TRP_INVALID_ARGUMENT, "client name is not UTF-8");
    return TRP_OK;
}

/* Names come from clients: nobody shall choose some that all have one hash. */
static uint64_t hash_name(const char *name)
{
    return hash_bytes(HASH_BYTES_EMPTY ^ hash_seeds[0], name, strlen(name));
}

trp_client_counts *client_table_find(struct client_table *table, const char *name)
{
    size_t at = (size_t)map_get(&table->places, hash_name(name));
    while (at > 0 && strcmp(table->clients[at - 1].name, name) != 0)
        at = table->same_hash[at - 1];
    return at > 0 ? &table->clients[at - 1] : NULL;
}

static trp_client_counts *client_add(struct client_table *table, const char *name)
{
    if (table->client_count == table->client_capacity) {
        size_t capacity = table->client_capacity ? 2 * table->client_capacity : 8;
        table->clients = xrealloc(table->clients, capacity * sizeof *table->clients);
        table->same_hash = xrealloc(table->same_hash, capacity * sizeof *table->same_hash);
        table->client_capacity = capacity;
    }
    size_t at = table->client_count++;
    uint64_t *place = map_at(&table->places, hash_name(name));
    table->same_hash[at] = (size_t)*place;
    *place = at + 1;
    table->clients[at] = (trp_client_counts){.name = xstrdup(name)};
    return &table->clients[at];
}

static trp_status client_find_or_add(struct client_table *table, const char *name,
                                     trp_client_counts **out)
{
    *out = client_table_find(table, name);
    if (*out)
        return TRP_OK;
    TRP_TRY(client_name_check(name));
    if (table->client_count == PARAMS_CLIENTS_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "client %s is one more than %d", name,
                        PARAMS_CLIENTS_MAX);
    *out = client_add(table, name);
    return TRP_OK;
}

/* Of one client, and of all together. */
static void raise_total(uint64_t *total, uint64_t *all, uint64_t reported)
{
    if (reported <= *total)
        return;
    *all += reported - *total;
    *total = reported;
}

static double numbers_seen(const trp_moments *statistics, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += statistics[i].count;
    return sum;
}

static const char *first_with_statistics(const struct client_table *table)
{
    size_t i = 0;
    while (!table->clients[i].statistics)
        i++;
    return table->clients[i].name;
}

static trp_status check_statistics(const struct client_table *table,
                                   const trp_client_counts *counts)
{
    size_t count = counts->statistic_count;
    if (count > TRP_STATISTICS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "client %s reports statistics of %zu numbers, at "
                        "most %d",
                        counts->name, count, TRP_STATISTICS_MAX);
    if (table->expects_statistics && count != table->expected)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "client %s reports statistics of %zu numbers, the learner's environment "
                        "normalises %zu: all actors of a learner need its normalising wrappers",
                        counts->name, count, table->expected);
    if (table->statistic_count > 0 && count != table->statistic_count)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "client %s reports statistics of %zu numbers, client %s of %zu: all actors "
                        "of a learner need the same normalising wrappers",
                        counts->name, count, first_with_statistics(table), table->statistic_count);
    if (trp_moments_check(counts->statistics, count) != TRP_OK)
        return trp_fail(TRP_INVALID_ARGUMENT, "client %s: %s", counts->name, trp_last_error());
    return TRP_OK;
}

/* More numbers are the later report: a client only adds. */
static trp_status raise_statistics(struct client_table *table, const trp_client_counts *counts,
                                   trp_client_counts *client)
{
    size_t count = counts->statistic_count;
    if (numbers_seen(counts->statistics, count) <=
        numbers_seen(client->statistics, client->statistic_count))
        return TRP_OK;
    if (!client->statistics) {
        if (table->statistics_held + count > PARAMS_STATISTICS_MAX)
            return trp_fail(TRP_RESOURCE_EXHAUSTED,
                            "client %s: statistics of all clients together are of more than %d "
                            "numbers",
                            counts->name, PARAMS_STATISTICS_MAX);
        table->statistics_held += count;
        table->statistic_count = count;
        client->statistics = xcalloc(count, sizeof *client->statistics);
        client->statistic_count = count;
    }
    memcpy(client->statistics, counts->statistics, count * sizeof *client->statistics);
    return TRP_OK;
}

trp_status client_table_raise(struct client_table *table, const trp_client_counts *counts,
                              trp_client_counts *now)
{
    trp_client_counts *client;
    if (counts->steps >> PARAMS_COUNT_BITS > 0 || counts->episodes >> PARAMS_COUNT_BITS > 0)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "client %s reports %" PRIu64 " steps and %" PRIu64
                        " episodes: no run gets so far",
                        counts->name, counts->steps, counts->episodes);
    if (counts->statistic_count > 0)
        TRP_TRY(check_statistics(table, counts));
    TRP_TRY(client_find_or_add(table, counts->name, &client));
    if (counts->statistic_count > 0)
        TRP_TRY(raise_statistics(table, counts, client));
    raise_total(&client->steps, &table->totals.steps, counts->steps);
    raise_total(&client->episodes, &table->totals.episodes, counts->episodes);
    *now = *client;
    return TRP_OK;
}

trp_moments *client_table_merge(const struct client_table *table, size_t *count)
{
    *count = table->statistic_count;
    if (*count == 0)
        return NULL;
    trp_moments *sum = xcalloc(*count, sizeof *sum);
    for (size_t i = 0; i < table->client_count; i++)
        if (table->clients[i].statistics)
            trp_moments_merge(sum, table->clients[i].statistics, *count);
    return sum;
}

static void counts_copy(trp_client_counts *to, const trp_client_counts *from)
{
    *to = *from;
    to->name = xstrdup(from->name);
    if (from->statistics)
        to->statistics =
            xmemdup(from->statistics, from->statistic_count * sizeof *from->statistics);
}

trp_client_counts *client_table_copy(const struct client_table *table, size_t *count)
{
    *count = table->client_count;
    trp_client_counts *counts = xcalloc(*count + 1, sizeof *counts);
    for (size_t i = 0; i < *count; i++)
        counts_copy(&counts[i], &table->clients[i]);
    return counts;
}

void client_table_cleanup(struct client_table *table)
{
    trp_publisher_counts_free(table->clients, table->client_count);
    free(table->same_hash);
    map_cleanup(&table->places);
}
