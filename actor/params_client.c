/* The parameter client. Actors act on parameters that a learner changes all the time; the client
 * keeps the newest version it has seen and never goes back: versions only grow, also when a learner
 * restarts from an older checkpoint (learner/publisher.c). Its counts are totals: a report that is
 * lost or repeated changes nothing.
 *
 * Where the learner's memory can be read from here, a pull looks there, and counts travel in calls
 * that bring no parameters, the first steps at once, then one in PARAMS_REPORT_MS. In the learner's
 * process the parameters are the learner's own, held; on its host they are copied, or read where
 * they lie by who looks afterwards whether they were whole. Elsewhere they come into memory of the
 * client's own, of which it has two: one is acted with while the other is filled. */
#include <troupe/params.h>

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/board.h"
#include "core/boot.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/thread.h"
#include "limits.h"
#include "params_pull.h"
#include "params_use.h"
#include "rpc/shared_params.h"

_Static_assert(sizeof(trp_moments) == 3 * sizeof(double),
               "a statistic is three numbers on its way");
enum { MOMENT_NUMBERS = 3 };

struct trp_params_client {
    struct params_line line;
    char *name, host[BOOT_ID_BYTES];
    trp_stop *own_stop; /* when the user gave none; never requested */
    trp_params_precision precision;
    bool in_place;
    bool met; /* the learner has answered once: the bases are known */
    /* The learner's memory, as far as it can be read from here. */
    struct board_view *view; /* NULL: it is not */
    uint64_t reads;          /* the publisher whose it is; 0: none */
    uint64_t refused;        /* whose could not be read; 0: none */
    bool torn;               /* what was read in place was not whole: the next one is copied */
    /* Where the parameters are; the other is NULL. */
    struct board_view *lies_in; /* `view`, or one before it */
    float *own;
    float *spare;                   /* NULL: there was no need for it yet */
    char *layout;                   /* NULL: the learner does not say */
    trp_moments *published;         /* the state's statistics, where nothing else has them */
    trp_moments *base, *done, *sum; /* statistics: of earlier lives, of this one, and both */
    size_t base_count, done_count;
    Troupe__ClientCounts *carries, **carry_list; /* of others, for the next call */
    size_t carry_count;
    trp_client_counts *carried; /* what is remembered of them */
    size_t carried_count;
    int64_t reported_ns;  /* on the coarse clock */
    int64_t confirmed_ns; /* when it was last known that there is no newer version */
    uint64_t newest;      /* of the publisher that answered last */
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
    client->name = xstrdup(options->name ? options->name : "");
    client->precision = options->precision;
    client->in_place = options->in_place;
    client->own_stop = options->stop ? NULL : trp_stop_create();
    client->line = (struct params_line){
        .service = options->service,
        .stop = options->stop ? options->stop : client->own_stop,
        .timeout_ms = options->timeout_ms ? options->timeout_ms : PARAMS_TIMEOUT_MS,
        .give_up_ms = options->give_up_ms ? options->give_up_ms : PARAMS_GIVE_UP_MS};
    if (!options->no_share)
        boot_id_read(client->host);
    *out = client;
    return TRP_OK;
}

/* ---- counts of others ------------------------------------------------------------------------ */

void trp_params_client_carry(trp_params_client *client, const trp_client_counts *counts,
                             size_t count)
{
    assert(count <= TRP_PARAMS_CARRIED_MAX);
    client->carries = xrealloc(client->carries, (count + 1) * sizeof *client->carries);
    client->carry_list = xrealloc(client->carry_list, (count + 1) * sizeof *client->carry_list);
    client->carry_count = count;
    for (size_t i = 0; i < count; i++) {
        troupe__client_counts__init(&client->carries[i]);
        client->carries[i].client = counts[i].name;
        client->carries[i].steps = counts[i].steps;
        client->carries[i].episodes = counts[i].episodes;
        client->carries[i].n_statistics = MOMENT_NUMBERS * counts[i].statistic_count;
        client->carries[i].statistics = (double *)counts[i].statistics;
        client->carry_list[i] = &client->carries[i];
    }
}

const trp_client_counts *trp_params_client_carried(const trp_params_client *client, size_t *count)
{
    *count = client->carried_count;
    return client->carried;
}

static void forget_carried(trp_params_client *client)
{
    for (size_t i = 0; i < client->carried_count; i++) {
        free(client->carried[i].name);
        free(client->carried[i].statistics);
    }
    free(client->carried);
    client->carried = NULL;
    client->carried_count = 0;
}

/* Of those that were carried, in their order, whatever the reply says they are called. */
static trp_status note_carried(trp_params_client *client, const Troupe__PullReply *reply)
{
    if (client->carry_count == 0)
        return TRP_OK;
    if (reply->n_clients != client->carry_count)
        return trp_fail(TRP_DATA_LOSS, "counts of %zu clients were carried, %zu came back",
                        client->carry_count, reply->n_clients);
    client->carried = xcalloc(client->carry_count, sizeof *client->carried);
    for (size_t i = 0; i < client->carry_count; i++) {
        const Troupe__ClientCounts *from = reply->clients[i];
        trp_client_counts *to = &client->carried[client->carried_count++];
        *to = (trp_client_counts){.name = xstrdup(client->carries[i].client),
                                  .steps = from->steps,
                                  .episodes = from->episodes,
                                  .statistic_count = from->n_statistics / MOMENT_NUMBERS};
        if (to->statistic_count > 0)
            to->statistics =
                xmemdup(from->statistics, to->statistic_count * sizeof *to->statistics);
    }
    client->carry_count = 0;
    return TRP_OK;
}

/* ---- where the parameters are ---------------------------------------------------------------- */

/* Gives up the place of those that there are. Memory of one's own is kept for the next copy. */
static void leave_place(trp_params_client *client)
{
    if (client->lies_in != client->view)
        board_view_close(client->lies_in);
    client->lies_in = NULL;
    if (client->own && client->spare)
        free(client->own);
    else if (client->own)
        client->spare = client->own;
    client->own = NULL;
}

/* Nobody reads it any more, but those parameters that lie in it. */
static void detach(trp_params_client *client)
{
    if (client->lies_in != client->view)
        board_view_close(client->view);
    client->view = NULL;
    client->reads = 0;
}

void trp_params_client_destroy(trp_params_client *client)
{
    if (!client)
        return;
    leave_place(client);
    detach(client);
    forget_carried(client);
    free(client->carries);
    free(client->carry_list);
    free(client->spare);
    free(client->layout);
    free(client->published);
    free(client->base);
    free(client->done);
    free(client->sum);
    trp_stop_destroy(client->own_stop);
    free(client->name);
    free(client);
}

/* The room of a first version that was refused: the next one may be larger. */
static void forget_refused(trp_params_client *client)
{
    if (client->state.count > 0)
        return;
    free(client->spare);
    client->spare = NULL;
}

/* Room for a vector that is read elsewhere. RESOURCE_EXHAUSTED: there is none. */
static trp_status room_for(trp_params_client *client, size_t count)
{
    forget_refused(client);
    if (!client->spare && count <= SIZE_MAX / sizeof(float))
        client->spare = malloc(count * sizeof(float));
    if (client->spare)
        return TRP_OK;
    return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for %zu parameters", count);
}

/* A version as it comes in, before it is believed. */
struct arrival {
    const float *params;
    size_t count;
    uint64_t version, learner_steps;
};

static trp_status check_count(const trp_params_client *client, const struct arrival *arrival,
                              size_t bytes)
{
    size_t count = client->state.count;
    if (arrival->count > 0 && (count == 0 || arrival->count == count))
        return TRP_OK;
    return trp_fail(TRP_DATA_LOSS, "parameters of version %" PRIu64 " are %zu bytes, expected %zu",
                    arrival->version, bytes, count * sizeof(float));
}

static trp_status check_arrival(const trp_params_client *client, const struct arrival *arrival)
{
    char version[40];
    snprintf(version, sizeof version, "version %" PRIu64, arrival->version);
    return params_check_finite(&(trp_params_state){.params = arrival->params,
                                                   .count = arrival->count,
                                                   .layout = client->layout},
                               version, NULL);
}

static void settle_arrival(trp_params_client *client, const struct arrival *arrival)
{
    client->state.params = arrival->params;
    client->state.count = arrival->count;
    client->state.version = arrival->version;
    client->state.learner_steps = arrival->learner_steps;
    client->state.fetched++;
}

static void settle_in_spare(trp_params_client *client)
{
    float *fresh = client->spare;
    client->spare = NULL;
    leave_place(client);
    client->own = fresh;
}

static void use_statistics(trp_params_client *client, const trp_moments *statistics, size_t count)
{
    if (count == 0)
        return;
    free(client->published);
    client->published = xmemdup(statistics, count * sizeof *statistics);
    client->state.statistics = client->published;
    client->state.statistic_count = count;
}

/* ---- reading the learner's memory ------------------------------------------------------------ */

static void attach(trp_params_client *client, const Troupe__PullReply *reply)
{
    struct sealed_place place;
    detach(client);
    trp_status status = shared_params_take(reply->shared, &place);
    if (status == TRP_OK)
        status = board_view_open(&client->view, &place);
    if (status == TRP_OK) {
        client->reads = reply->publisher;
        return;
    }
    client->refused = reply->publisher;
    trp_log(TRP_DEBUG, "parameters are sent, the learner's memory cannot be read reason=%s",
            trp_last_error());
}

/* A copy that is whole. False: it was written to meanwhile. */
static bool copy_arrival(trp_params_client *client, struct arrival *arrival)
{
    memcpy(client->spare, arrival->params, arrival->count * sizeof(float));
    arrival->params = client->spare;
    return board_view_is_whole(client->view);
}

/* The newest version of the learner's memory, if it is newer. DATA_LOSS, OUT_OF_RANGE: as a pull;
 * ABORTED: it was replaced again and again. */
static trp_status read_memory(trp_params_client *client, bool *newer)
{
    struct board_view *view = client->view;
    bool here = board_view_is_here(view), copies = !here && (!client->in_place || client->torn);
    for (uint32_t tries = 0; tries < PARAMS_COPY_TRIES; tries++) {
        struct board_version version = {0};
        bool taken = board_view_take(view, &version);
        if (taken ? version.version <= client->state.version : board_view_newest(view) == 0)
            return TRP_OK;
        struct arrival arrival = {version.numbers, board_view_count(view), version.version,
                                  version.learner_steps};
        TRP_TRY(check_count(client, &arrival, arrival.count * sizeof(float)));
        if (copies)
            TRP_TRY(room_for(client, arrival.count));
        if (!taken || (copies && !copy_arrival(client, &arrival)))
            continue;
        if (!version.finite)
            TRP_TRY(check_arrival(client, &arrival));
        board_view_keep(view);
        if (copies)
            settle_in_spare(client);
        else
            leave_place(client);
        client->lies_in = copies ? NULL : view;
        settle_arrival(client, &arrival);
        use_statistics(client, version.statistics, version.statistic_count);
        client->torn = false;
        *newer = true;
        return TRP_OK;
    }
    return trp_fail(TRP_ABORTED, "parameters were replaced during %d reads", PARAMS_COPY_TRIES);
}

bool trp_params_client_is_whole(trp_params_client *client)
{
    struct board_view *view = client->lies_in;
    if (!view || board_view_is_whole(view))
        return true;
    client->torn = true;
    return false;
}

/* ---- what a pull says ------------------------------------------------------------------------ */

/* A client of which the learner remembers more or fewer numbers reports its own, and the learner
 * says what is wrong. */
static void add_statistics(trp_params_client *client, Troupe__PullRequest *request)
{
    size_t count = client->done_count;
    if (!client->met || count == 0)
        return;
    memcpy(client->sum, client->done, count * sizeof *client->sum);
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
    if (count != client->done_count) {
        client->done = xrealloc(client->done, count * sizeof *client->done);
        client->sum = xrealloc(client->sum, count * sizeof *client->sum);
        client->done_count = count;
    }
    memcpy(client->done, statistics, count * sizeof *client->done);
}

/* `sends`: the parameters shall be sent, wherever the learner is. */
static Troupe__PullRequest request_of(trp_params_client *client, uint64_t steps, uint64_t episodes,
                                      bool sends)
{
    Troupe__PullRequest request = TROUPE__PULL_REQUEST__INIT;
    request.client = client->name;
    request.version = client->state.version;
    request.steps = client->state.base_steps + steps;
    request.episodes = client->state.base_episodes + episodes;
    if (client->precision == TRP_PARAMS_BF16)
        request.precision = TROUPE__PRECISION__BFLOAT16;
    add_statistics(client, &request);
    request.n_clients = client->carry_count;
    request.clients = client->carry_list;
    if (sends)
        return request;
    request.reads = client->reads;
    request.host = client->host;
    return request;
}

/* ---- what it is answered --------------------------------------------------------------------- */

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

static trp_status note_reply(trp_params_client *client, const Troupe__PullReply *reply,
                             uint64_t steps, uint64_t episodes)
{
    meet(client, reply, steps, episodes);
    client->state.total_steps = reply->total_steps;
    client->state.own_steps = steps;
    client->newest = reply->version;
    if (reply->publisher != client->refused)
        client->refused = 0; /* perhaps the memory of this one can be read */
    client->state.first_version = reply->first_version;
    if (!client->layout && reply->layout[0] != '\0')
        client->state.layout = client->layout = xstrdup(reply->layout);
    if (reply->n_statistics % MOMENT_NUMBERS == 0)
        return TRP_OK;
    return trp_fail(TRP_DATA_LOSS,
                    "statistics of version %" PRIu64 " are %zu numbers, not three for each",
                    reply->version, reply->n_statistics);
}

/* Parameters that were sent. */
static trp_status adopt(trp_params_client *client, const Troupe__PullReply *reply,
                        const struct params_room *room)
{
    struct arrival arrival = {.params = room->numbers,
                              .count = room->filled ? room->count : 0,
                              .version = reply->version,
                              .learner_steps = reply->learner_steps};
    TRP_TRY(check_count(client, &arrival, reply->params.len));
    if (!room->finite)
        TRP_TRY(check_arrival(client, &arrival));
    use_statistics(client, (const trp_moments *)reply->statistics,
                   reply->n_statistics / MOMENT_NUMBERS);
    settle_in_spare(client);
    settle_arrival(client, &arrival);
    return TRP_OK;
}

/* `sent`: parameters were asked for, wherever the learner is. */
static trp_status take_reply(trp_params_client *client, const Troupe__PullReply *reply,
                             const struct params_room *room, bool sent, bool *newer)
{
    if (!sent && reply->shared)
        attach(client, reply);
    else if (client->reads != reply->publisher)
        detach(client);
    if (client->view && !sent) {
        TRP_TRY(read_memory(client, newer));
        if (!board_view_is_here(client->view))
            use_statistics(client, (const trp_moments *)reply->statistics,
                           reply->n_statistics / MOMENT_NUMBERS);
        return TRP_OK;
    }
    /* A learner that restarted may know only versions that are older than ours. */
    if (reply->version <= client->state.version || (!sent && reply->shared))
        return TRP_OK;
    TRP_TRY(adopt(client, reply, room));
    *newer = true;
    return TRP_OK;
}

/* ---- pulling --------------------------------------------------------------------------------- */

static trp_status exchange_once(trp_params_client *client, uint64_t steps, uint64_t episodes,
                                struct deadline deadline, bool sends, bool *newer)
{
    Troupe__PullReply *reply = NULL;
    Troupe__PullRequest request = request_of(client, steps, episodes, sends);
    int64_t asked_ns;
    forget_refused(client);
    struct params_room room = {.numbers = client->spare, .count = client->state.count};
    trp_status status = params_pull(&client->line, &request, deadline, &room, &reply, &asked_ns);
    client->spare = room.numbers;
    if (status == TRP_OK)
        status = note_reply(client, reply, steps, episodes);
    if (status == TRP_OK)
        status = note_carried(client, reply);
    uint64_t age_ns = reply ? reply->age_ns : 0;
    if (status == TRP_OK)
        status = take_reply(client, reply, &room, sends, newer);
    if (status == TRP_OK && client->state.version >= client->newest)
        client->confirmed_ns = asked_ns - (int64_t)(age_ns < INT64_MAX / 2 ? age_ns : 0);
    params_reply_free(reply);
    return status;
}

/* With a call that reports the counts. Where the learner's memory could not be read after all, it
 * takes one more. */
static trp_status exchange_counts(trp_params_client *client, uint64_t steps, uint64_t episodes,
                                  struct deadline deadline, bool *newer)
{
    bool sends = client->refused != 0;
    *newer = false;
    client->reported_ns = clock_now_ns(&clock_coarse);
    trp_status status = exchange_once(client, steps, episodes, deadline, sends, newer);
    if (!sends && (status == TRP_ABORTED || (status == TRP_OK && client->refused != 0)))
        status = exchange_once(client, steps, episodes, deadline, true, newer);
    return status;
}

/* The first steps are told at once: nobody learns from an actor that has done none. */
static bool report_is_due(const trp_params_client *client, uint64_t steps)
{
    if (client->state.own_steps == 0 && steps > 0)
        return true;
    int64_t since_ns = clock_now_ns(&clock_coarse) - client->reported_ns;
    return since_ns >= PARAMS_REPORT_MS * INT64_C(1000000) || turns_active();
}

/* `looks`: a look at the learner's memory will do where that is possible. */
static trp_status pull_until(trp_params_client *client, uint64_t steps, uint64_t episodes,
                             struct deadline deadline, bool looks, bool *newer)
{
    trp_status status = TRP_OK;
    *newer = false;
    forget_carried(client);
    looks = looks && client->view && client->carry_count == 0 && !report_is_due(client, steps);
    if (looks && board_view_newest(client->view) > client->state.version)
        status = read_memory(client, newer);
    if (!looks || status == TRP_ABORTED)
        status = exchange_counts(client, steps, episodes, deadline, newer);
    client->carry_count = 0;
    client->state.pulls += status == TRP_OK;
    return status;
}

trp_status trp_params_client_pull(trp_params_client *client, uint64_t steps, uint64_t episodes,
                                  bool *newer)
{
    bool is_newer;
    trp_status status = pull_until(client, steps, episodes, DEADLINE_NEVER, true, &is_newer);
    if (newer)
        *newer = is_newer;
    return status;
}

trp_status trp_params_client_sync(trp_params_client *client, uint64_t steps, uint64_t episodes,
                                  bool *newer)
{
    bool is_newer;
    trp_status status = pull_until(client, steps, episodes, DEADLINE_NEVER, false, &is_newer);
    if (newer)
        *newer = is_newer;
    return status;
}

trp_status trp_params_client_wait(trp_params_client *client, int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    for (uint32_t tries = 0;; tries++) {
        bool newer;
        TRP_TRY(pull_until(client, 0, 0, deadline, false, &newer));
        if (client->state.version > 0)
            return TRP_OK;
        if (deadline_passed(deadline, &clock_monotonic))
            return trp_fail(TRP_DEADLINE_EXCEEDED,
                            "no parameters were published within %" PRId64 " ms", timeout_ms);
        params_pause(&client->line, tries, deadline);
    }
}

/* A restarted learner begins with a number far beyond; what it published before is not known. */
static uint64_t lag_of(const trp_params_client *client)
{
    uint64_t newest = client->newest, have = client->state.version;
    if (client->view && board_view_newest(client->view) > newest)
        newest = board_view_newest(client->view);
    if (client->state.first_version > have + 1)
        have = client->state.first_version - 1;
    return newest > have ? newest - have : 0;
}

trp_params_state trp_params_client_state(const trp_params_client *client)
{
    trp_params_state state = client->state;
    if (state.version == 0)
        return state;
    state.lag = lag_of(client);
    state.age_ns = clock_now_ns(&clock_monotonic) - client->confirmed_ns;
    return state;
}
