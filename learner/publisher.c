/* Publication of parameters. The learner changes its vector in place all the time and must not wait
 * for readers; readers must not see half a change. So publishing copies the vector to a board
 * (core/board.h), which clients in this process and on this host are told of and read themselves:
 * what they ask here is only what their counts travel in. Others are sent a version from where it
 * lies, which is held meanwhile; a large one goes in parts, a call each (loans.h). */
#include <troupe/publisher.h>

#include <stdatomic.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/rng.h>
#include <troupe/rpc.h>
#include "client_table.h"
#include "core/alloc.h"
#include "core/bfloat16.h"
#include "core/board.h"
#include "core/boot.h"
#include "core/clock.h"
#include "core/thread.h"
#include "limits.h"
#include "loans.h"
#include "params.pb-c.h"
#include "rpc/shared_params.h"

struct trp_publisher {
    Troupe__Params_Service service; /* first: a handler gets only its address */
    uint64_t id;                    /* of this one among all, in all lives */
    size_t count;
    char *layout; /* NULL: nobody said */
    bool no_share;
    char host[BOOT_ID_BYTES];
    struct board *board;
    _Atomic uint64_t first_version; /* 0: none is published */
    trp_publisher_recall recall;    /* NULL: there is nobody to ask */
    void *recall_context;
    _Atomic int64_t confirmed_ns; /* of what is passed on, on the monotonic clock */
    _Atomic bool forwards;        /* it is, so far */
    _Atomic uint64_t total_steps; /* then */
    struct mutex mutex;           /* all that follows */
    struct loans loans;
    struct client_table clients;
};

/* ---- what a pull says of its client ---------------------------------------------------------- */

_Static_assert(sizeof(trp_moments) == 3 * sizeof(double),
               "a statistic is three numbers on its way");
enum { MOMENT_NUMBERS = 3 };

static trp_status request_counts(const Troupe__PullRequest *request, trp_client_counts *counts)
{
    TRP_TRY(client_name_check(request->client));
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

/* A client that is new here may be old elsewhere. */
static trp_status recall_client(trp_publisher *publisher, const char *name)
{
    if (!publisher->recall)
        return TRP_OK;
    mutex_lock(&publisher->mutex);
    bool known = client_table_find(&publisher->clients, name) != NULL;
    mutex_unlock(&publisher->mutex);
    return known ? TRP_OK : publisher->recall(publisher->recall_context, name);
}

static trp_status count_client(trp_publisher *publisher, const Troupe__PullRequest *request,
                               Troupe__PullReply *reply)
{
    trp_client_counts now = {0}, counts = {0};
    trp_status status = TRP_OK;
    bool named = request->client && request->client[0] != '\0';
    if (named)
        TRP_TRY(request_counts(request, &counts));
    if (named)
        TRP_TRY(recall_client(publisher, request->client));
    mutex_lock(&publisher->mutex);
    if (named)
        status = client_table_raise(&publisher->clients, &counts, &now);
    if (status == TRP_OK && request->n_statistics == 0)
        recall_statistics(&now, reply);
    reply->total_steps =
        publisher->forwards ? publisher->total_steps : publisher->clients.totals.steps;
    mutex_unlock(&publisher->mutex);
    reply->client_steps = now.steps;
    reply->client_episodes = now.episodes;
    return status;
}

/* ---- what it says of its own clients ----------------------------------------------------------
 */

static trp_status count_carried_locked(trp_publisher *publisher,
                                       const Troupe__ClientCounts *carried,
                                       Troupe__ClientCounts *answer)
{
    trp_client_counts now, counts = {.name = carried->client,
                                     .steps = carried->steps,
                                     .episodes = carried->episodes,
                                     .statistics = (trp_moments *)carried->statistics,
                                     .statistic_count = carried->n_statistics / MOMENT_NUMBERS};
    TRP_TRY(client_name_check(carried->client));
    if (carried->n_statistics % MOMENT_NUMBERS != 0)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "client %s reports statistics of %zu numbers, not three for each",
                        carried->client, carried->n_statistics);
    TRP_TRY(client_table_raise(&publisher->clients, &counts, &now));
    troupe__client_counts__init(answer);
    answer->client = carried->client;
    answer->steps = now.steps;
    answer->episodes = now.episodes;
    if (carried->n_statistics > 0 || now.statistic_count == 0)
        return TRP_OK;
    answer->n_statistics = MOMENT_NUMBERS * now.statistic_count;
    answer->statistics = xmemdup(now.statistics, now.statistic_count * sizeof *now.statistics);
    return TRP_OK;
}

/* The answers are freed by free_carried(). */
static trp_status count_carried(trp_publisher *publisher, const Troupe__PullRequest *request,
                                Troupe__PullReply *reply)
{
    size_t count = request->n_clients;
    if (count == 0)
        return TRP_OK;
    if (count > PARAMS_CARRIED_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "a pull carries the counts of %zu clients, at most %d", count,
                        PARAMS_CARRIED_MAX);
    Troupe__ClientCounts *answers = xcalloc(count, sizeof *answers);
    reply->clients = xcalloc(count, sizeof(Troupe__ClientCounts *));
    reply->clients[0] = answers;
    trp_status status = TRP_OK;
    mutex_lock(&publisher->mutex);
    for (; reply->n_clients < count && status == TRP_OK; reply->n_clients++) {
        reply->clients[reply->n_clients] = &answers[reply->n_clients];
        status = count_carried_locked(publisher, request->clients[reply->n_clients],
                                      &answers[reply->n_clients]);
    }
    mutex_unlock(&publisher->mutex);
    return status;
}

static void free_carried(Troupe__PullReply *reply)
{
    for (size_t i = 0; i < reply->n_clients; i++)
        free(reply->clients[i]->statistics);
    if (reply->clients)
        free(reply->clients[0]);
    free(reply->clients);
}

/* ---- what it gets ---------------------------------------------------------------------------- */

/* What is sent of a version, and how. */
struct sending {
    const struct board_version *version; /* held; NULL: none is published */
    bool halves;
    size_t all, from, size; /* bytes as they travel; size 0: none of them */
    uint8_t *rounded;       /* NULL: they are the version's own */
};

static bool is_at_home(const trp_publisher *publisher, const Troupe__PullRequest *request)
{
    return request->host[0] != '\0' && strcmp(request->host, publisher->host) == 0;
}

/* A client that reads the board itself, or is about to, needs none of the parameters. */
static bool reads_itself(const trp_publisher *publisher, const Troupe__PullRequest *request)
{
    return !publisher->no_share &&
           (request->reads == publisher->id || is_at_home(publisher, request));
}

static void choose_part_locked(trp_publisher *publisher, const Troupe__PullRequest *request,
                               struct sending *sending)
{
    loans_expire(&publisher->loans, publisher->board);
    bool goes_on = request->rest_of > 0 && request->rest_from < sending->all &&
                   request->rest_from % sizeof(float) == 0; /* a reader has whole numbers */
    if (goes_on)
        sending->version = loans_go_on(&publisher->loans, publisher->board, request->rest_of);
    if (sending->version)
        sending->from = (size_t)request->rest_from;
    else
        sending->version = sending->all <= PARAMS_PART_BYTES
                               ? board_hold(publisher->board)
                               : loans_begin(&publisher->loans, publisher->board);
    if (!sending->version || sending->version->version <= request->version)
        return;
    size_t left = sending->all - sending->from;
    sending->size = left < PARAMS_PART_BYTES ? left : PARAMS_PART_BYTES;
    if (sending->all > PARAMS_PART_BYTES)
        loans_lend(&publisher->loans, publisher->board, sending->version, sending->from == 0,
                   sending->size == left);
}

static void choose_version(trp_publisher *publisher, const Troupe__PullRequest *request,
                           struct sending *sending)
{
    sending->halves = request->precision == TROUPE__PRECISION__BFLOAT16;
    sending->all = publisher->count * (sending->halves ? sizeof(uint16_t) : sizeof(float));
    if (reads_itself(publisher, request)) {
        sending->version = board_hold(publisher->board);
        return;
    }
    mutex_lock(&publisher->mutex);
    choose_part_locked(publisher, request, sending);
    mutex_unlock(&publisher->mutex);
}

static trp_status bytes_of(struct sending *sending, ProtobufCBinaryData *bytes)
{
    const float *numbers = sending->version->numbers;
    bytes->len = sending->size;
    bytes->data = (uint8_t *)numbers + sending->from;
    if (!sending->halves)
        return TRP_OK;
    uint16_t *halves = malloc(sending->size);
    if (!halves)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for %zu bytes of parameters",
                        sending->size);
    numbers += sending->from / sizeof *halves;
    for (size_t i = 0; i < sending->size / sizeof *halves; i++)
        halves[i] = bf16_half(numbers[i]);
    bytes->data = sending->rounded = (uint8_t *)halves;
    return TRP_OK;
}

static trp_status send_part(struct sending *sending, Troupe__PullReply *reply)
{
    TRP_TRY(bytes_of(sending, &reply->params));
    if (sending->halves)
        reply->precision = TROUPE__PRECISION__BFLOAT16;
    if (sending->size == sending->all)
        return TRP_OK;
    reply->params_from = sending->from;
    reply->params_bytes = sending->all;
    return TRP_OK;
}

static trp_status reply_with(const trp_publisher *publisher, const Troupe__PullRequest *request,
                             struct sending *sending, Troupe__PullReply *reply)
{
    const struct board_version *version = sending->version;
    bool itself = reads_itself(publisher, request);
    reply->version = version->version;
    reply->learner_steps = version->learner_steps;
    if (sending->size > 0)
        TRP_TRY(send_part(sending, reply));
    if (!itself && (sending->size == 0 || sending->from + sending->size < sending->all))
        return TRP_OK;
    reply->n_statistics = MOMENT_NUMBERS * version->statistic_count;
    reply->statistics = (double *)version->statistics;
    if (request->version == 0 && publisher->layout)
        reply->layout = publisher->layout;
    return TRP_OK;
}

static trp_status answer_pull(trp_publisher *publisher, const Troupe__PullRequest *request,
                              struct sending *sending, Troupe__PullReply *reply)
{
    TRP_TRY(count_client(publisher, request, reply));
    TRP_TRY(count_carried(publisher, request, reply));
    if (publisher->forwards)
        reply->age_ns = (uint64_t)(clock_now_ns(&clock_monotonic) - publisher->confirmed_ns);
    choose_version(publisher, request, sending);
    reply->publisher = publisher->id;
    reply->first_version = publisher->first_version;
    return sending->version ? reply_with(publisher, request, sending, reply) : TRP_OK;
}

/* What is sent from where it lies, until it has left. */
struct parcel {
    struct board *board;
    const struct board_version *version; /* lent; NULL: it is not needed */
    uint8_t *rounded;
};

static void parcel_end(void *arg)
{
    struct parcel *parcel = arg;
    if (parcel->version)
        board_take_back(parcel->board, parcel->version);
    free(parcel->rounded);
    free(parcel);
}

/* Spares the reply's copy, where there is one. */
static void lend_params(trp_publisher *publisher, struct sending *sending,
                        const Troupe__PullReply *reply)
{
    if (sending->size == 0 ||
        (!sending->rounded && !board_lend(publisher->board, sending->version)))
        return;
    struct parcel *parcel = xcalloc(1, sizeof *parcel);
    parcel->board = publisher->board;
    parcel->version = sending->rounded ? NULL : sending->version;
    parcel->rounded = sending->rounded;
    if (trp_call_lend((trp_bytes){reply->params.data, reply->params.len}, parcel_end, parcel)) {
        sending->rounded = NULL;
        return;
    }
    parcel->rounded = NULL;
    parcel_end(parcel);
}

static void handle_pull(Troupe__Params_Service *service, const Troupe__PullRequest *request,
                        Troupe__PullReply_Closure closure, void *closure_data)
{
    trp_publisher *publisher = (trp_publisher *)service;
    Troupe__PullReply reply = TROUPE__PULL_REPLY__INIT;
    Troupe__SharedParams shared = TROUPE__SHARED_PARAMS__INIT;
    struct sending sending = {0};
    bool answered = answer_pull(publisher, request, &sending, &reply) == TRP_OK;
    if (answered && reads_itself(publisher, request) && request->reads != publisher->id) {
        shared_params_put(&shared, board_place(publisher->board));
        reply.shared = &shared;
    }
    if (answered)
        lend_params(publisher, &sending, &reply);
    closure(answered ? &reply : NULL, closure_data);
    free(reply.client_statistics);
    free_carried(&reply);
    free(sending.rounded);
    board_release(publisher->board, sending.version);
}

static const Troupe__Params_Service service_template = TROUPE__PARAMS__INIT(handle_);

trp_publisher *trp_publisher_create(size_t count)
{
    trp_publisher *publisher = xcalloc(1, sizeof *publisher);
    publisher->service = service_template;
    publisher->id = trp_rng_entropy() | 1;
    publisher->count = count;
    publisher->board = board_create(count, true);
    boot_id_read(publisher->host);
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
    publisher->clients.expects_statistics = true;
    publisher->clients.expected = count;
}

void trp_publisher_keep_private(trp_publisher *publisher)
{
    publisher->no_share = true;
}

void trp_publisher_destroy(trp_publisher *publisher)
{
    if (!publisher)
        return;
    loans_cleanup(&publisher->loans, publisher->board);
    board_unref(publisher->board);
    client_table_cleanup(&publisher->clients);
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
    size_t statistic_count;
    mutex_lock(&publisher->mutex);
    trp_moments *statistics = client_table_merge(&publisher->clients, &statistic_count);
    mutex_unlock(&publisher->mutex);
    if (publisher->first_version == 0)
        publisher->first_version = version;
    board_write(publisher->board, params, version, learner_steps, statistics, statistic_count);
}

void trp_publisher_use_recall(trp_publisher *publisher, trp_publisher_recall recall, void *context)
{
    publisher->recall = recall;
    publisher->recall_context = context;
}

void trp_publisher_forward(trp_publisher *publisher, const trp_forwarded_params *forwarded)
{
    publisher->total_steps = forwarded->total_steps;
    publisher->confirmed_ns = clock_now_ns(&clock_monotonic) - forwarded->age_ns;
    publisher->forwards = true;
    publisher->first_version = forwarded->first_version;
    if (!forwarded->params || forwarded->version <= board_newest(publisher->board))
        return;
    size_t count = forwarded->statistic_count;
    trp_moments *statistics =
        count > 0 ? xmemdup(forwarded->statistics, count * sizeof *statistics) : NULL;
    board_write(publisher->board, forwarded->params, forwarded->version, forwarded->learner_steps,
                statistics, count);
}

trp_client_counts trp_publisher_totals(trp_publisher *publisher)
{
    mutex_lock(&publisher->mutex);
    trp_client_counts sum = publisher->clients.totals;
    mutex_unlock(&publisher->mutex);
    return sum;
}

trp_client_counts *trp_publisher_counts(trp_publisher *publisher, size_t *count)
{
    mutex_lock(&publisher->mutex);
    trp_client_counts *counts = client_table_copy(&publisher->clients, count);
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
    trp_status status = client_table_raise(&publisher->clients, counts, &now);
    mutex_unlock(&publisher->mutex);
    return status;
}
