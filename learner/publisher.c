/* Publication of parameters. The learner changes its vector in place all the time and must not wait
 * for readers; readers must not see half a change. So publishing copies the vector into a snapshot
 * with a reference count and swaps it in under the mutex; a pull takes a reference under the mutex
 * and sends from the snapshot without it. The last one to let go frees.
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
#include "limits.h"
#include "core/thread.h"
#include "params.pb-c.h"

struct snapshot {
    uint32_t references;
    uint64_t version, learner_steps;
    trp_moments *statistics; /* NULL: there are none */
    size_t statistic_count;
    float params[];
};

struct trp_publisher {
    Troupe__Params_Service service; /* first: a handler gets only its address */
    size_t count;
    struct mutex mutex; /* all that follows */
    struct snapshot *current;
    trp_client_counts *clients;
    size_t client_count, client_capacity;
    size_t statistic_count; /* of each client that has any; 0: none has */
    size_t statistics_held; /* of all clients */
};

static struct snapshot *snapshot_take(trp_publisher *publisher)
{
    mutex_lock(&publisher->mutex);
    struct snapshot *snapshot = publisher->current;
    if (snapshot)
        snapshot->references++;
    mutex_unlock(&publisher->mutex);
    return snapshot;
}

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
    return TRP_OK;
}

static trp_client_counts *client_find(trp_publisher *publisher, const char *name)
{
    for (size_t i = 0; i < publisher->client_count; i++)
        if (strcmp(publisher->clients[i].name, name) == 0)
            return &publisher->clients[i];
    return NULL;
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
    if (publisher->client_count == publisher->client_capacity) {
        publisher->client_capacity =
            publisher->client_capacity ? 2 * publisher->client_capacity : 8;
        publisher->clients =
            xrealloc(publisher->clients, publisher->client_capacity * sizeof *publisher->clients);
    }
    *out = &publisher->clients[publisher->client_count++];
    **out = (trp_client_counts){.name = xstrdup(name)};
    return TRP_OK;
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
    if (counts->steps > client->steps)
        client->steps = counts->steps;
    if (counts->episodes > client->episodes)
        client->episodes = counts->episodes;
    *now = *client;
    return TRP_OK;
}

static trp_client_counts totals(const trp_publisher *publisher)
{
    trp_client_counts sum = {0};
    for (size_t i = 0; i < publisher->client_count; i++) {
        sum.steps += publisher->clients[i].steps;
        sum.episodes += publisher->clients[i].episodes;
    }
    return sum;
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
    reply->total_steps = totals(publisher).steps;
    mutex_unlock(&publisher->mutex);
    reply->client_steps = now.steps;
    reply->client_episodes = now.episodes;
    return status;
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
    struct snapshot *snapshot = snapshot_take(publisher);
    if (snapshot) {
        reply.version = snapshot->version;
        reply.learner_steps = snapshot->learner_steps;
        if (snapshot->version > request->version) {
            reply.params = (ProtobufCBinaryData){.data = (uint8_t *)snapshot->params,
                                                 .len = publisher->count * sizeof(float)};
            reply.n_statistics = MOMENT_NUMBERS * snapshot->statistic_count;
            reply.statistics = (double *)snapshot->statistics;
        }
    }
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

void trp_publisher_destroy(trp_publisher *publisher)
{
    if (!publisher)
        return;
    snapshot_release(publisher, publisher->current);
    trp_publisher_counts_free(publisher->clients, publisher->client_count);
    mutex_cleanup(&publisher->mutex);
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
    mutex_unlock(&publisher->mutex);
    snapshot_release(publisher, previous);
}

trp_client_counts trp_publisher_totals(trp_publisher *publisher)
{
    mutex_lock(&publisher->mutex);
    trp_client_counts sum = totals(publisher);
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
