/* The parameter client. Actors act on parameters that a learner changes all the time; the client
 * keeps the newest version it has seen and never goes back: versions only grow, also when a learner
 * restarts from an older checkpoint (learner/publisher.c). Every pull also reports how much this
 * client did, as totals: a report that is lost or repeated changes nothing.
 *
 * Parameters that silently stop changing are worse than a failure. So a pull that fails is tried
 * again until it worked or give_up_ms passed, the first failure is logged, and the last one is
 * returned. The parameters stay inside the reply that brought them: no copy; of those that are too
 * many for one reply, the last one gets what the parts make together. */
#include <troupe/params.h>

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/status.h"
#include "limits.h"
#include "core/thread.h"
#include "params_use.h"
#include "params.pb-c.h"

_Static_assert(sizeof(trp_moments) == 3 * sizeof(double),
               "a statistic is three numbers on its way");
enum { MOMENT_NUMBERS = 3 };

struct trp_params_client {
    ProtobufCService *service;
    char *name;
    trp_stop *stop, *own_stop; /* own_stop: when the user gave none; never requested */
    int64_t timeout_ms, give_up_ms;
    bool met;                      /* the learner has answered once: the bases are known */
    Troupe__PullReply *holds;      /* the reply that brought the parameters */
    char *layout;                  /* NULL: the learner does not say */
    trp_moments *base, *own, *sum; /* statistics: of earlier lives, of this one, and both */
    size_t base_count, own_count;
    trp_params_state state;
};

const ProtobufCServiceDescriptor *trp_params_descriptor(void)
{
    return &troupe__params__descriptor;
}

trp_status trp_params_client_create(trp_params_client **out,
                                    const trp_params_client_options *options)
{
    *out = NULL;
    if (strcmp(options->service->descriptor->name, troupe__params__descriptor.name) != 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "parameter client: the service is %s, not %s",
                        options->service->descriptor->name, troupe__params__descriptor.name);
    trp_params_client *client = xcalloc(1, sizeof *client);
    client->service = options->service;
    client->name = xstrdup(options->name ? options->name : "");
    client->own_stop = options->stop ? NULL : trp_stop_create();
    client->stop = options->stop ? options->stop : client->own_stop;
    client->timeout_ms = options->timeout_ms ? options->timeout_ms : PARAMS_TIMEOUT_MS;
    client->give_up_ms = options->give_up_ms ? options->give_up_ms : PARAMS_GIVE_UP_MS;
    *out = client;
    return TRP_OK;
}

static void reply_free(Troupe__PullReply *reply)
{
    if (reply)
        protobuf_c_message_free_unpacked(&reply->base, NULL);
}

void trp_params_client_destroy(trp_params_client *client)
{
    if (!client)
        return;
    reply_free(client->holds);
    free(client->layout);
    free(client->base);
    free(client->own);
    free(client->sum);
    trp_stop_destroy(client->own_stop);
    free(client->name);
    free(client);
}

/* A client of which the learner remembers more or fewer numbers reports its own, and the learner
 * says what is wrong. */
static void add_statistics(trp_params_client *client, Troupe__PullRequest *request)
{
    size_t count = client->own_count;
    if (!client->met || count == 0)
        return;
    memcpy(client->sum, client->own, count * sizeof *client->sum);
    if (client->base_count == count)
        trp_moments_merge(client->sum, client->base, count);
    request->n_statistics = MOMENT_NUMBERS * count;
    request->statistics = (double *)client->sum;
}

void trp_params_client_report(trp_params_client *client, const trp_moments *statistics,
                              size_t count)
{
    if (count == 0)
        return;
    if (count != client->own_count) {
        client->own = xrealloc(client->own, count * sizeof *client->own);
        client->sum = xrealloc(client->sum, count * sizeof *client->sum);
        client->own_count = count;
    }
    memcpy(client->own, statistics, count * sizeof *client->own);
}

/* So long, or until `deadline`, but at least a millisecond: 0 would mean something else. */
static int64_t at_most_ms(int64_t ms, struct deadline deadline)
{
    int64_t left_ms = deadline_left_ms(deadline, &clock_monotonic);
    if (left_ms < 0 || left_ms > ms)
        return ms;
    return left_ms > 0 ? left_ms : 1;
}

/* What one pull says and asks for, in however many calls. */
struct pull {
    uint64_t steps, episodes;
    uint64_t rest_of, rest_from; /* 0: the newest version */
    struct deadline deadline;
};

static trp_status pull_once(trp_params_client *client, const struct pull *pull,
                            Troupe__PullReply **reply)
{
    Troupe__PullRequest request = TROUPE__PULL_REQUEST__INIT;
    request.client = client->name;
    request.version = client->state.version;
    request.steps = client->state.base_steps + pull->steps;
    request.episodes = client->state.base_episodes + pull->episodes;
    request.rest_of = pull->rest_of;
    request.rest_from = pull->rest_from;
    add_statistics(client, &request);
    ProtobufCMessage *message = NULL;
    trp_status status =
        trp_call(client->service, "Pull", &request.base, &message,
                 &(trp_call_options){.timeout_ms = at_most_ms(client->timeout_ms, pull->deadline),
                                     .cancel = client->stop});
    *reply = (Troupe__PullReply *)message;
    return status;
}

/* Waits a moment, or hands the turn on where threads take turns. */
static void pause_before_retry(trp_params_client *client, uint32_t failures,
                               struct deadline deadline)
{
    if (turns_active())
        turns_pass();
    else
        trp_stop_wait(client->stop,
                      at_most_ms(PARAMS_RETRY_MS << (failures < 6 ? failures : 6), deadline));
}

static trp_status pull_with_retries(trp_params_client *client, const struct pull *pull,
                                    Troupe__PullReply **reply)
{
    struct deadline give_up =
        deadline_earlier(pull->deadline, deadline_in_ms(&clock_monotonic, client->give_up_ms));
    for (uint32_t failures = 0;; failures++) {
        if (trp_stop_requested(client->stop))
            return trp_fail(TRP_CANCELLED, "pull of parameters: stop");
        trp_status status = pull_once(client, pull, reply);
        if (status == TRP_OK && failures > 0)
            trp_log(TRP_INFO, "parameters pulled again after_failures=%" PRIu32, failures);
        if (!status_is_transient(status) || deadline_passed(give_up, &clock_monotonic))
            return status;
        if (failures == 0)
            trp_log(TRP_WARN, "pull of parameters failed, retrying version=%" PRIu64 " reason=%s",
                    client->state.version, trp_last_error());
        pause_before_retry(client, failures, give_up);
    }
}

/* ---- versions in parts ----------------------------------------------------------------------- */

struct whole {
    uint64_t version;
    size_t size, have;
    uint8_t *bytes;
};

static bool is_rest(const struct whole *whole, const Troupe__PullReply *reply)
{
    return reply->version == whole->version && reply->params_bytes == whole->size &&
           reply->params_from > 0;
}

static trp_status add_part(struct whole *whole, const Troupe__PullReply *reply)
{
    size_t size = reply->params.len;
    if (reply->params_from != whole->have || size == 0 || size > whole->size - whole->have)
        return trp_fail(TRP_DATA_LOSS,
                        "parameters of version %" PRIu64 ": a part of %zu bytes from byte %" PRIu64
                        " on, expected one from byte %zu on, of %zu",
                        whole->version, size, reply->params_from, whole->have, whole->size);
    memcpy(whole->bytes + whole->have, reply->params.data, size);
    whole->have += size;
    return TRP_OK;
}

/* `*reply` has the first part of a version. The last reply takes its place, with the whole; or,
 * where the learner does not have that version any more, the one that says so. */
static trp_status pull_rest(trp_params_client *client, struct pull *pull, Troupe__PullReply **reply)
{
    struct whole whole = {.version = (*reply)->version, .size = (size_t)(*reply)->params_bytes};
    whole.bytes = malloc(whole.size);
    if (!whole.bytes)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for parameters of %zu bytes",
                        whole.size);
    trp_status status = add_part(&whole, *reply);
    while (status == TRP_OK && whole.have < whole.size) {
        pull->rest_of = whole.version;
        pull->rest_from = whole.have;
        reply_free(*reply);
        *reply = NULL;
        status = pull_with_retries(client, pull, reply);
        if (status == TRP_OK && !is_rest(&whole, *reply))
            break;
        if (status == TRP_OK)
            status = add_part(&whole, *reply);
    }
    if (status != TRP_OK || whole.have < whole.size) {
        free(whole.bytes);
        return status;
    }
    free((*reply)->params.data);
    (*reply)->params = (ProtobufCBinaryData){.data = whole.bytes, .len = whole.size};
    (*reply)->params_bytes = 0;
    return TRP_OK;
}

static trp_status pull_whole(trp_params_client *client, struct pull *pull,
                             Troupe__PullReply **reply)
{
    struct deadline give_up = deadline_in_ms(&clock_monotonic, client->give_up_ms);
    TRP_TRY(pull_with_retries(client, pull, reply));
    while ((*reply)->params_bytes > 0 && (*reply)->version > client->state.version) {
        uint64_t version = (*reply)->version;
        TRP_TRY(pull_rest(client, pull, reply));
        if ((*reply)->params_bytes > 0 && deadline_passed(give_up, &clock_monotonic))
            return trp_fail(TRP_UNAVAILABLE,
                            "version %" PRIu64 " of the parameters was gone before all of it came, "
                            "and so were those before it for %" PRId64 " ms",
                            version, client->give_up_ms);
    }
    return TRP_OK;
}

/* The first reply says what earlier lives did; later ones only echo our own reports. */
static void meet(trp_params_client *client, const Troupe__PullReply *reply, uint64_t steps,
                 uint64_t episodes)
{
    if (client->met || client->name[0] == '\0')
        return;
    client->met = true;
    if (reply->client_steps > steps)
        client->state.base_steps = reply->client_steps - steps;
    if (reply->client_episodes > episodes)
        client->state.base_episodes = reply->client_episodes - episodes;
    client->base_count = reply->n_client_statistics / MOMENT_NUMBERS;
    if (client->base_count > 0)
        client->base = xmemdup(reply->client_statistics, client->base_count * sizeof *client->base);
}

static trp_status adopt(trp_params_client *client, Troupe__PullReply *reply)
{
    size_t count = reply->params.len / sizeof(float);
    bool whole = count > 0 && reply->params.len % sizeof(float) == 0;
    if (!whole || (client->holds && count != client->state.count))
        return trp_fail(TRP_DATA_LOSS,
                        "parameters of version %" PRIu64 " are %zu bytes, expected %zu",
                        reply->version, reply->params.len, client->state.count * sizeof(float));
    if (reply->n_statistics % MOMENT_NUMBERS != 0)
        return trp_fail(TRP_DATA_LOSS,
                        "statistics of version %" PRIu64 " are %zu numbers, not three for each",
                        reply->version, reply->n_statistics);
    if (!client->layout && reply->layout[0] != '\0')
        client->state.layout = client->layout = xstrdup(reply->layout);
    const float *params = (const float *)(const void *)reply->params.data;
    char version[40];
    snprintf(version, sizeof version, "version %" PRIu64, reply->version);
    TRP_TRY(params_check_finite(
        &(trp_params_state){.params = params, .count = count, .layout = client->layout}, version,
        NULL));
    reply_free(client->holds);
    client->holds = reply;
    client->state.params = params;
    client->state.count = count;
    client->state.version = reply->version;
    client->state.statistics = (const trp_moments *)reply->statistics;
    client->state.statistic_count = reply->n_statistics / MOMENT_NUMBERS;
    client->state.fetched++;
    return TRP_OK;
}

static trp_status pull_until(trp_params_client *client, uint64_t steps, uint64_t episodes,
                             struct deadline deadline, bool *newer)
{
    Troupe__PullReply *reply = NULL;
    struct pull pull = {.steps = steps, .episodes = episodes, .deadline = deadline};
    *newer = false;
    trp_status status = pull_whole(client, &pull, &reply);
    if (status != TRP_OK) {
        reply_free(reply);
        return status;
    }
    meet(client, reply, steps, episodes);
    client->state.pulls++;
    client->state.total_steps = reply->total_steps;
    client->state.learner_steps = reply->learner_steps;
    /* A learner that restarted may know only versions that are older than ours. */
    if (reply->version <= client->state.version) {
        reply_free(reply);
        return TRP_OK;
    }
    status = adopt(client, reply);
    if (status != TRP_OK)
        reply_free(reply);
    *newer = status == TRP_OK;
    return status;
}

trp_status trp_params_client_pull(trp_params_client *client, uint64_t steps, uint64_t episodes,
                                  bool *newer)
{
    bool is_newer;
    trp_status status = pull_until(client, steps, episodes, DEADLINE_NEVER, &is_newer);
    if (newer)
        *newer = is_newer;
    return status;
}

trp_status trp_params_client_wait(trp_params_client *client, int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    for (uint32_t tries = 0;; tries++) {
        bool newer;
        TRP_TRY(pull_until(client, 0, 0, deadline, &newer));
        if (client->state.version > 0)
            return TRP_OK;
        if (deadline_passed(deadline, &clock_monotonic))
            return trp_fail(TRP_DEADLINE_EXCEEDED,
                            "no parameters were published within %" PRId64 " ms", timeout_ms);
        pause_before_retry(client, tries, deadline);
    }
}

trp_params_state trp_params_client_state(const trp_params_client *client)
{
    return client->state;
}
