/* Publication of parameters. The learner changes its vector in place all the time and must not wait
 * for readers; readers must not see half a change. So publishing copies the vector into a snapshot
 * with a reference count and swaps it in under the mutex; a pull takes a reference under the mutex
 * and sends from the snapshot without it. The last one to let go frees.
 *
 * A large snapshot goes in parts, a call each, so it has to outlive the next publication: it is
 * lent from its first part on until its last. A reader that dies in between costs one snapshot for
 * PARAMS_LEND_MS. While PARAMS_LENT_MAX older ones are lent nobody begins with the newest: who has
 * less begins with the newest of those that are lent, and the others have to wait. So memory is
 * bounded, and everybody who goes on asking gets a whole version however often one is published.
 *
 * Clients report totals, never increments, and the largest one ever seen counts: a report that is
 * lost, repeated or late changes nothing. Statistics are such totals, too, of which the one of more
 * numbers is the later. */
#include <troupe/publisher.h>

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/map.h"
#include "limits.h"
#include "core/thread.h"
#include "core/utf8.h"
#include "params.pb-c.h"

struct snapshot {
    uint32_t references;
    uint32_t readers;           /* that have begun with it */
    struct deadline lent_until; /* over: it is not */
    struct snapshot *older;     /* among those lent */
    uint64_t version, learner_steps;
    trp_moments *statistics; /* NULL: there are none */
    size_t statistic_count;
    float params[];
};

struct trp_publisher {
    Troupe__Params_Service service; /* first: a handler gets only its address */
    size_t count;
    char *layout;       /* NULL: nobody said */
    struct mutex mutex; /* all that follows */
    struct snapshot *current;
    struct snapshot *lent; /* older ones, newest first */
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

/* ---- snapshots ----------------------------------------------------------------------------- */

static void snapshot_release(trp_publisher *publisher, struct snapshot *snapshot)
{
    if (!snapshot)
        return;
    mutex_lock(&publisher->mutex);
    bool last = --snapshot->references == 0;
    mutex_unlock(&publisher->mutex);
    if (last) {
        free(snapshot->statistics);
        free(snapshot);
    }
}

static bool is_lent(const struct snapshot *snapshot)
{
    return !deadline_passed(snapshot->lent_until, &clock_monotonic);
}

/* Takes those that are lent no more out of the list; they are the caller's to release. */
static struct snapshot *take_out_locked(trp_publisher *publisher)
{
    struct snapshot *back = NULL, **place = &publisher->lent;
    while (*place) {
        struct snapshot *snapshot = *place;
        if (is_lent(snapshot)) {
            place = &snapshot->older;
            continue;
        }
        *place = snapshot->older;
        snapshot->older = back;
        back = snapshot;
    }
    return back;
}

static void release_all(trp_publisher *publisher, struct snapshot *snapshots)
{
    while (snapshots) {
        struct snapshot *older = snapshots->older;
        snapshot_release(publisher, snapshots);
        snapshots = older;
    }
}

static size_t params_bytes(const trp_publisher *publisher)
{
    return publisher->count * sizeof(float);
}

static struct snapshot *find_rest_locked(const trp_publisher *publisher,
                                         const Troupe__PullRequest *request)
{
    if (request->rest_of == 0 || request->rest_from >= params_bytes(publisher))
        return NULL;
    struct snapshot *snapshot = publisher->current;
    if (snapshot && snapshot->version == request->rest_of)
        return snapshot;
    for (snapshot = publisher->lent; snapshot; snapshot = snapshot->older)
        if (snapshot->version == request->rest_of)
            return snapshot;
    return NULL;
}

/* What a pull begins with. */
static struct snapshot *find_newest_locked(const trp_publisher *publisher)
{
    struct snapshot *current = publisher->current;
    uint32_t lent = 0;
    for (const struct snapshot *older = publisher->lent; older; older = older->older)
        lent++;
    bool whole = params_bytes(publisher) <= PARAMS_PART_BYTES;
    return whole || lent < PARAMS_LENT_MAX || is_lent(current) ? current : publisher->lent;
}

/* A part of `size` bytes is handed out; other parts follow unless it is the last. */
static void lend_locked(const trp_publisher *publisher, struct snapshot *snapshot, size_t from,
                        size_t size)
{
    if (!is_lent(snapshot))
        snapshot->readers = 0;
    snapshot->readers += from == 0;
    bool ends = from + size == params_bytes(publisher);
    if (ends && snapshot->readers > 0)
        snapshot->readers--;
    snapshot->lent_until = snapshot->readers > 0 ? deadline_in_ms(&clock_monotonic, PARAMS_LEND_MS)
                                                 : (struct deadline){0};
}

/* The snapshot for a request, with a reference; NULL: none is published. Where there is something
 * in it for the client, `*size` is the number of bytes from `*from` on, else 0. */
static struct snapshot *snapshot_take(trp_publisher *publisher, const Troupe__PullRequest *request,
                                      size_t *from, size_t *size)
{
    *from = *size = 0;
    mutex_lock(&publisher->mutex);
    struct snapshot *back = take_out_locked(publisher);
    struct snapshot *snapshot = find_rest_locked(publisher, request);
    if (snapshot)
        *from = (size_t)request->rest_from;
    else if (publisher->current)
        snapshot = find_newest_locked(publisher);
    if (snapshot) {
        snapshot->references++;
        size_t left = params_bytes(publisher) - *from;
        if (snapshot->version > request->version)
            *size = left < PARAMS_PART_BYTES ? left : PARAMS_PART_BYTES;
        if (*size > 0 && params_bytes(publisher) > PARAMS_PART_BYTES)
            lend_locked(publisher, snapshot, *from, *size);
    }
    mutex_unlock(&publisher->mutex);
    release_all(publisher, back);
    return snapshot;
}

/* ---- clients; all with the mutex held ------------------------------------------------------- */

static trp_status check_name(const char *name)
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

static trp_client_counts *client_find(trp_publisher *publisher, const char *name)
{
    size_t at = (size_t)map_get(&publisher->places, hash_name(name));
    while (at > 0 && strcmp(publisher->clients[at - 1].name, name) != 0)
        at = publisher->same_hash[at - 1];
    return at > 0 ? &publisher->clients[at - 1] : NULL;
}

static trp_client_counts *client_add(trp_publisher *publisher, const char *name)
{
    if (publisher->client_count == publisher->client_capacity) {
        size_t capacity = publisher->client_capacity ? 2 * publisher->client_capacity : 8;
        publisher->clients = xrealloc(publisher->clients, capacity * sizeof *publisher->clients);
        publisher->same_hash =
            xrealloc(publisher->same_hash, capacity * sizeof *publisher->same_hash);
        publisher->client_capacity = capacity;
    }
    size_t at = publisher->client_count++;
    uint64_t *place = map_at(&publisher->places, hash_name(name));
    publisher->same_hash[at] = (size_t)*place;
    *place = at + 1;
    publisher->clients[at] = (trp_client_counts){.name = xstrdup(name)};
    return &publisher->clients[at];
}

static trp_status client_find_or_add(trp_publisher *publisher, const char *name,
                                     trp_client_counts **out)
{
    *out = client_find(publisher, name);
    if (*out)
        return TRP_OK;
    TRP_TRY(check_name(name));
    if (publisher->client_count == PARAMS_CLIENTS_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "client %s is one more than %d", name,
                        PARAMS_CLIENTS_MAX);
    *out = client_add(publisher, name);
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

static const char *first_with_statistics(const trp_publisher *publisher)
{
    size_t i = 0;
    while (!publisher->clients[i].statistics)
        i++;
    return publisher->clients[i].name;
}

static trp_status check_statistics(const trp_publisher *publisher, const trp_client_counts *counts)
{
    size_t count = counts->statistic_count;
    if (count > TRP_STATISTICS_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "client %s reports statistics of %zu numbers, at "
                        "most %d",
                        counts->name, count, TRP_STATISTICS_MAX);
    if (publisher->expects_statistics && count != publisher->expected)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "client %s reports statistics of %zu numbers, the learner's environment "
                        "normalises %zu: all actors of a learner need its normalising wrappers",
                        counts->name, count, publisher->expected);
    if (publisher->statistic_count > 0 && count != publisher->statistic_count)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "client %s reports statistics of %zu numbers, client %s of %zu: all actors "
                        "of a learner need the same normalising wrappers",
                        counts->name, count, first_with_statistics(publisher),
                        publisher->statistic_count);
    if (trp_moments_check(counts->statistics, count) != TRP_OK)
        return trp_fail(TRP_INVALID_ARGUMENT, "client %s: %s", counts->name, trp_last_error());
    return TRP_OK;
}

/* More numbers are the later report: a client only adds. */
static trp_status raise_statistics(trp_publisher *publisher, const trp_client_counts *counts,
                                   trp_client_counts *client)
{
    size_t count = counts->statistic_count;
    if (numbers_seen(counts->statistics, count) <=
        numbers_seen(client->statistics, client->statistic_count))
        return TRP_OK;
    if (!client->statistics) {
        if (publisher->statistics_held + count > PARAMS_STATISTICS_MAX)
            return trp_fail(TRP_RESOURCE_EXHAUSTED,
                            "client %s: statistics of all clients together are of more than %d "
                            "numbers",
                            counts->name, PARAMS_STATISTICS_MAX);
        publisher->statistics_held += count;
        publisher->statistic_count = count;
        client->statistics = xcalloc(count, sizeof *client->statistics);
        client->statistic_count = count;
    }
    memcpy(client->statistics, counts->statistics, count * sizeof *client->statistics);
    return TRP_OK;
}

static trp_status client_raise(trp_publisher *publisher, const trp_client_counts *counts,
                               trp_client_counts *now)
{
    trp_client_counts *client;
    if (counts->statistic_count > 0)
        TRP_TRY(check_statistics(publisher, counts));
    TRP_TRY(client_find_or_add(publisher, counts->name, &client));
    if (counts->statistic_count > 0)
        TRP_TRY(raise_statistics(publisher, counts, client));
    raise_total(&client->steps, &publisher->totals.steps, counts->steps);
    raise_total(&client->episodes, &publisher->totals.episodes, counts->episodes);
    *now = *client;
    return TRP_OK;
}

static trp_moments *merged(const trp_publisher *publisher, size_t *count)
{
    *count = publisher->statistic_count;
    if (*count == 0)
        return NULL;
    trp_moments *sum = xcalloc(*count, sizeof *sum);
    for (size_t i = 0; i < publisher->client_count; i++)
        if (publisher->clients[i].statistics)
            trp_moments_merge(sum, publisher->clients[i].statistics, *count);
    return sum;
}

/* ---- the service --------------------------------------------------------------------------- */

_Static_assert(sizeof(trp_moments) == 3 * sizeof(double),
               "a statistic is three numbers on its way");
enum { MOMENT_NUMBERS = 3 };

static trp_status request_counts(const Troupe__PullRequest *request, trp_client_counts *counts)
{
    TRP_TRY(check_name(request->client));
    if (request->n_statistics % MOMENT_NUMBERS != 0)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "client %s reports statistics of %zu numbers, not "
                        "three for each",
                        request->client, request->n_statistics);
    *counts = (trp_client_counts){.name = request->client,
                                  .steps = request->steps,
                                  .episodes = request->episodes,
                                  .statistics = (trp_moments *)request->statistics,
                                  .statistic_count = request->n_statistics / MOMENT_NUMBERS};
    return TRP_OK;
}

/* What the client begins its life with; the copy is the caller's to free. */
static void recall_statistics(const trp_client_counts *client, Troupe__PullReply *reply)
{
    if (!client->statistics)
        return;
    reply->n_client_statistics = MOMENT_NUMBERS * client->statistic_count;
    reply->client_statistics =
        xmemdup(client->statistics, client->statistic_count * sizeof *client->statistics);
}

static trp_status count_client(trp_publisher *publisher, const Troupe__PullRequest *request,
                               Troupe__PullReply *reply)
{
    trp_client_counts now = {0}, counts = {0};
    trp_status status = TRP_OK;
    bool named = request->client && request->client[0] != '\0';
    if (named)
        TRP_TRY(request_counts(request, &counts));
    mutex_lock(&publisher->mutex);
    if (named)
        status = client_raise(publisher, &counts, &now);
    if (status == TRP_OK && request->n_statistics == 0)
        recall_statistics(&now, reply);
    reply->total_steps = publisher->totals.steps;
    mutex_unlock(&publisher->mutex);
    reply->client_steps = now.steps;
    reply->client_episodes = now.episodes;
    return status;
}

static void reply_with(const trp_publisher *publisher, const struct snapshot *snapshot, size_t from,
                       size_t size, Troupe__PullReply *reply)
{
    size_t bytes = params_bytes(publisher);
    reply->version = snapshot->version;
    reply->learner_steps = snapshot->learner_steps;
    if (size == 0)
        return;
    reply->params = (ProtobufCBinaryData){.data = (uint8_t *)snapshot->params + from, .len = size};
    if (size < bytes) {
        reply->params_from = from;
        reply->params_bytes = bytes;
    }
    if (from + size == bytes) {
        reply->n_statistics = MOMENT_NUMBERS * snapshot->statistic_count;
        reply->statistics = (double *)snapshot->statistics;
    }
}

static void handle_pull(Troupe__Params_Service *service, const Troupe__PullRequest *request,
                        Troupe__PullReply_Closure closure, void *closure_data)
{
    trp_publisher *publisher = (trp_publisher *)service;
    Troupe__PullReply reply = TROUPE__PULL_REPLY__INIT;
    if (count_client(publisher, request, &reply) != TRP_OK) {
        closure(NULL, closure_data);
        return;
    }
    size_t from, size;
    struct snapshot *snapshot = snapshot_take(publisher, request, &from, &size);
    if (snapshot)
        reply_with(publisher, snapshot, from, size, &reply);
    if (snapshot && from + size == params_bytes(publisher) && request->version == 0 &&
        publisher->layout)
        reply.layout = publisher->layout;
    closure(&reply, closure_data);
    free(reply.client_statistics);
    snapshot_release(publisher, snapshot);
}

static const Troupe__Params_Service service_template = TROUPE__PARAMS__INIT(handle_);

trp_publisher *trp_publisher_create(size_t count)
{
    trp_publisher *publisher = xcalloc(1, sizeof *publisher);
    publisher->service = service_template;
    publisher->count = count;
    mutex_init(&publisher->mutex);
    return publisher;
}

void trp_publisher_describe(trp_publisher *publisher, const char *layout)
{
    free(publisher->layout);
    publisher->layout = xstrdup(layout);
}

void trp_publisher_expect_statistics(trp_publisher *publisher, size_t count)
{
    publisher->expects_statistics = true;
    publisher->expected = count;
}

void trp_publisher_destroy(trp_publisher *publisher)
{
    if (!publisher)
        return;
    snapshot_release(publisher, publisher->current);
    release_all(publisher, publisher->lent);
    trp_publisher_counts_free(publisher->clients, publisher->client_count);
    free(publisher->same_hash);
    map_cleanup(&publisher->places);
    mutex_cleanup(&publisher->mutex);
    free(publisher->layout);
    free(publisher);
}

ProtobufCService *trp_publisher_service(trp_publisher *publisher)
{
    return &publisher->service.base;
}

void trp_publisher_publish(trp_publisher *publisher, const float *params, uint64_t version,
                           uint64_t learner_steps)
{
    struct snapshot *next = xmalloc(sizeof *next + publisher->count * sizeof *params);
    *next = (struct snapshot){.references = 1, .version = version, .learner_steps = learner_steps};
    memcpy(next->params, params, publisher->count * sizeof *params);
    mutex_lock(&publisher->mutex);
    next->statistics = merged(publisher, &next->statistic_count);
    struct snapshot *previous = publisher->current;
    assert(!previous || previous->version < version);
    publisher->current = next;
    if (previous) {
        previous->older = publisher->lent; /* and out again, if it is not lent */
        publisher->lent = previous;
    }
    struct snapshot *back = take_out_locked(publisher);
    mutex_unlock(&publisher->mutex);
    release_all(publisher, back);
}

trp_client_counts trp_publisher_totals(trp_publisher *publisher)
{
    mutex_lock(&publisher->mutex);
    trp_client_counts sum = publisher->totals;
    mutex_unlock(&publisher->mutex);
    return sum;
}

trp_client_counts *trp_publisher_counts(trp_publisher *publisher, size_t *count)
{
    mutex_lock(&publisher->mutex);
    *count = publisher->client_count;
    trp_client_counts *counts = xcalloc(*count + 1, sizeof *counts);
    for (size_t i = 0; i < *count; i++) {
        counts[i] = publisher->clients[i];
        counts[i].name = xstrdup(counts[i].name);
        if (counts[i].statistics)
            counts[i].statistics =
                xmemdup(counts[i].statistics, counts[i].statistic_count * sizeof(trp_moments));
    }
    mutex_unlock(&publisher->mutex);
    return counts;
}

void trp_publisher_counts_free(trp_client_counts *counts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(counts[i].name);
        free(counts[i].statistics);
    }
    free(counts);
}

trp_status trp_publisher_restore(trp_publisher *publisher, const trp_client_counts *counts)
{
    trp_client_counts now;
    mutex_lock(&publisher->mutex);
    trp_status status = client_raise(publisher, counts, &now);
    mutex_unlock(&publisher->mutex);
    return status;
}
