/* Problem: calls of one request and one answer, some of which change tables: their answers wait for
 * the commit like confirmations do, and those that look up keys wait for the index after a reopen.
 * Design: a queue of calls in order of arrival, worked off at the end of each group. A call that
 * changes a table waits behind earlier ones that wait; the others do not.
 * Guarantee: an answer of OK means durable. */
#include "service.h"

#include <stdlib.h>

#include <reverb.pb-c.h>
#include "core/alloc.h"
#include "core/clock.h"

struct unary;

/* A method. */
struct unary_kind {
    trp_status (*run)(struct service *service, struct unary *unary); /* NULL: nothing to do */
    bool changes;                                                    /* tables */
};

struct unary {
    struct list_link link; /* in the queue, while queued */
    trp_server_call *call;
    const struct unary_kind *kind;
    trp_message *request;
    bool queued, applied, finished;
    bool started; /* a checkpoint is being taken for it */
    trp_status status;
    char *text;
    trp_message *answer;
};

void *message_new(const ProtobufCMessageDescriptor *descriptor)
{
    ProtobufCMessage *message = xcalloc(1, descriptor->sizeof_message);
    descriptor->message_init(message);
    return message;
}

/* Frees the message. */
static trp_status answer_pack(struct unary *unary, ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    unary->answer = trp_message_create(size);
    if (unary->answer)
        protobuf_c_message_pack(message, trp_message_data(unary->answer));
    protobuf_c_message_free_unpacked(message, NULL);
    if (!unary->answer)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for an answer of %zu bytes", size);
    return TRP_OK;
}

/* ---- ServerInfo -------------------------------------------------------------------------- */

static Deepmind__Reverb__KeyDistributionOptions *selector_info(trp_selector selector)
{
#define DISTRIBUTION(name) DEEPMIND__REVERB__KEY_DISTRIBUTION_OPTIONS__DISTRIBUTION_##name
    static const Deepmind__Reverb__KeyDistributionOptions__DistributionCase distributions[] = {
        [TRP_UNIFORM] = DISTRIBUTION(UNIFORM), [TRP_PRIORITIZED] = DISTRIBUTION(PRIORITIZED),
        [TRP_FIFO] = DISTRIBUTION(FIFO),       [TRP_LIFO] = DISTRIBUTION(LIFO),
        [TRP_MAX_HEAP] = DISTRIBUTION(HEAP),   [TRP_MIN_HEAP] = DISTRIBUTION(HEAP),
    };
#undef DISTRIBUTION
    Deepmind__Reverb__KeyDistributionOptions *out =
        message_new(&deepmind__reverb__key_distribution_options__descriptor);
    out->is_deterministic = selector.kind != TRP_UNIFORM && selector.kind != TRP_PRIORITIZED;
    out->distribution_case = distributions[selector.kind];
    if (selector.kind == TRP_PRIORITIZED) {
        out->prioritized =
            message_new(&deepmind__reverb__key_distribution_options__prioritized__descriptor);
        out->prioritized->priority_exponent = selector.exponent;
    } else if (selector.kind == TRP_MAX_HEAP || selector.kind == TRP_MIN_HEAP) {
        out->heap = message_new(&deepmind__reverb__key_distribution_options__heap__descriptor);
        out->heap->min_heap = selector.kind == TRP_MIN_HEAP;
    } else {
        out->uniform = true; /* fifo and lifo are in the same place */
    }
    return out;
}

static Deepmind__Reverb__RateLimiterInfo *limiter_info(const struct limiter *limiter)
{
    Deepmind__Reverb__RateLimiterInfo *out =
        message_new(&deepmind__reverb__rate_limiter_info__descriptor);
    out->samples_per_insert = limiter->options.samples_per_insert;
    out->min_diff = limiter->options.min_diff;
    out->max_diff = limiter->options.max_diff;
    out->min_size_to_sample = limiter->options.min_size;
    out->insert_stats = message_new(&deepmind__reverb__rate_limiter_call_stats__descriptor);
    out->insert_stats->completed = limiter->inserts;
    out->sample_stats = message_new(&deepmind__reverb__rate_limiter_call_stats__descriptor);
    out->sample_stats->completed = limiter->samples;
    return out;
}

static Deepmind__Reverb__TableWorkerTime *time_info(struct lane *lane)
{
    enum { NS_PER_MS = 1000 * 1000 };
    Deepmind__Reverb__TableWorkerTime *out =
        message_new(&deepmind__reverb__table_worker_time__descriptor);
    const int64_t *ns = lane->time_ns;
    lane_enter(lane, lane->state);
    out->running_ms = (ns[LANE_SAMPLING] + ns[LANE_INSERTING]) / NS_PER_MS;
    out->sampling_ms = ns[LANE_SAMPLING] / NS_PER_MS;
    out->inserting_ms = ns[LANE_INSERTING] / NS_PER_MS;
    out->sleeping_ms = ns[LANE_SLEEPING] / NS_PER_MS;
    out->waiting_for_sampling_ms = ns[LANE_WAITING_FOR_SAMPLING] / NS_PER_MS;
    out->waiting_for_inserts_ms = ns[LANE_WAITING_FOR_INSERTS] / NS_PER_MS;
    return out;
}

static Deepmind__Reverb__TableInfo *table_info(struct lane *lane)
{
    struct engine_table *table = lane->table;
    const trp_table_options *options = table->facts->options;
    const struct table_facts *facts = table->facts;
    Deepmind__Reverb__TableInfo *out = message_new(&deepmind__reverb__table_info__descriptor);
    out->name = xstrdup(table->name);
    out->sampler_options = selector_info(options->sampler);
    out->remover_options = selector_info(options->remover);
    out->rate_limiter_info = limiter_info(&table->facts->limiter);
    out->max_size = options->max_size;
    out->max_times_sampled = options->max_times_sampled;
    out->signature.len = options->signature.size;
    out->signature.data = xmemdup(options->signature.data, options->signature.size);
    out->current_size = table->facts->size;
    out->table_worker_time = time_info(lane);
    out->num_episodes = facts->episodes;
    out->num_deleted_episodes = facts->episodes_deleted;
    out->num_unique_samples = facts->unique_samples;
    return out;
}

static trp_status server_info(struct service *service, struct unary *unary)
{
    Deepmind__Reverb__ServerInfoResponse *out =
        message_new(&deepmind__reverb__server_info_response__descriptor);
    out->tables_state_id = message_new(&deepmind__reverb__uint128__descriptor);
    out->tables_state_id->high = service->state_id[0];
    out->tables_state_id->low = service->state_id[1];
    out->n_table_info = engine_table_count(service->engine);
    out->table_info = xcalloc(out->n_table_info + 1, sizeof *out->table_info);
    for (size_t i = 0; i < out->n_table_info; i++)
        out->table_info[i] = table_info(service->lanes[i]);
    return answer_pack(unary, &out->base);
}

/* ---- the others -------------------------------------------------------------------------- */

static trp_status mutate(struct service *service, struct unary *unary)
{
    TRP_TRY(wire_mutate_request_decode(message_bytes(unary->request), &service->mutate));
    struct lane *lane = service_lane(service, service->mutate.table);
    if (!lane)
        return TRP_NOT_FOUND;
    trp_status status = engine_mutate(service->engine, lane->table, &service->mutate);
    lane_move(lane); /* deletes may let inserts in, inserts below the minimal size too */
    return status;
}

/* A ResetRequest is a MutatePrioritiesRequest with a table only. */
static trp_status reset(struct service *service, struct unary *unary)
{
    TRP_TRY(wire_mutate_request_decode(message_bytes(unary->request), &service->mutate));
    struct lane *lane = service_lane(service, service->mutate.table);
    if (!lane)
        return TRP_NOT_FOUND;
    TRP_TRY(engine_table_admit(service->engine, lane->table->facts->options, true));
    engine_reset(service->engine, lane->table);
    lane_move(lane);
    return TRP_OK;
}

/* Name, method, the function that runs, whether it changes tables. An empty answer of
 * InitializeConnection is address 0: the client goes on with streams. */
#define UNARY_LIST(X)                                                                              \
    X(mutate, "MutatePriorities", mutate, true)                                                    \
    X(reset, "Reset", reset, true)                                                                 \
    X(server_info, "ServerInfo", server_info, false)                                               \
    X(checkpoint, "Checkpoint", NULL, false)                                                       \
    X(connection, "InitializeConnection", NULL, false)

#define KIND(name, method, run, changes)                                                           \
    static const struct unary_kind name##_kind = {run, changes};
UNARY_LIST(KIND)

/* ---- checkpoints ------------------------------------------------------------------------- */

static trp_status checkpoint_answer(struct unary *unary, const char *path)
{
    Deepmind__Reverb__CheckpointResponse *out =
        message_new(&deepmind__reverb__checkpoint_response__descriptor);
    out->checkpoint_path = xstrdup(path);
    return answer_pack(unary, &out->base);
}

void service_checkpoint_done(struct service *service, trp_status status, const char *text)
{
    service->checkpointing = false;
    service->worked = true;
    LIST_EACH (struct unary, unary, &service->unaries, link) {
        if (!unary->started || unary->applied)
            continue;
        unary->applied = true;
        unary->status = status == TRP_OK ? checkpoint_answer(unary, text) : status;
        if (unary->status != TRP_OK)
            unary->text = xstrdup(status == TRP_OK ? trp_last_error() : text);
    }
}

/* One checkpoint for all that ask by now; those who ask while it is taken get the next one, which
 * has the items that they wrote before. */
static void checkpoints_begin(struct service *service)
{
    bool any = false;
    if (service->checkpointing)
        return;
    LIST_EACH (struct unary, unary, &service->unaries, link)
        if (unary->kind == &checkpoint_kind && !unary->applied)
            any = unary->started = true;
    if (!any)
        return;
    service->checkpointing = true;
    trp_status status = service->checkpoint(service->checkpoint_owner);
    if (status != TRP_OK)
        service_checkpoint_done(service, status, trp_last_error());
}

/* ---- the queue --------------------------------------------------------------------------- */

void unaries_apply(struct service *service)
{
    if (!service->unaries.first)
        return;
    bool ready = engine_ready(service->engine) && !service->full_ns;
    engine_set_time(service->engine, clock_wall_ns());
    checkpoints_begin(service);
    LIST_EACH (struct unary, unary, &service->unaries, link) {
        bool elsewhere = unary->kind == &checkpoint_kind;
        bool waits = unary->kind->changes && !ready;
        if (unary->applied || elsewhere || (waits && service->broken == TRP_OK))
            continue;
        unary->applied = true;
        if (waits)
            continue; /* the answer is that the store failed */
        if (unary->kind->run)
            unary->status = unary->kind->run(service, unary);
        if (unary->status != TRP_OK)
            unary->text = xstrdup(trp_last_error());
        else if (!unary->answer)
            unary->answer = trp_message_create(0);
    }
}

static void unary_answer(const struct service *service, struct unary *unary)
{
    const char *text;
    trp_status lost = service_lost(service, &text);
    unary->finished = true;
    if (lost != TRP_OK && unary->kind->changes) {
        trp_server_call_finish(unary->call, lost, text);
        return;
    }
    if (unary->answer)
        trp_server_call_send(unary->call, unary->answer);
    unary->answer = NULL;
    trp_server_call_finish(unary->call, unary->status, unary->text);
}

/* While changes that ran are refused, so are those that wait to run. */
static bool unary_answerable(const struct service *service, const struct unary *unary, bool durable)
{
    if (!unary->kind->changes)
        return unary->applied;
    return service->refused_text || (unary->applied && durable);
}

void unaries_answer(struct service *service, bool durable)
{
    LIST_EACH (struct unary, unary, &service->unaries, link) {
        if (!unary_answerable(service, unary, durable))
            continue;
        list_remove(&service->unaries, &unary->link);
        unary->queued = false;
        unary_answer(service, unary);
    }
}

/* ---- the call ---------------------------------------------------------------------------- */

static void unary_open(trp_server_call *call, const struct unary_kind *kind)
{
    struct unary *unary = xcalloc(1, sizeof *unary);
    unary->call = call;
    unary->kind = kind;
    trp_server_call_set_state(call, unary);
    trp_server_call_read(call);
}

static void unary_received(void *arg, trp_server_call *call, trp_message *message)
{
    struct service *service = arg;
    struct unary *unary = service_work(service, call);
    unary->request = message;
    unary->queued = true;
    list_push(&service->unaries, &unary->link);
}

static void unary_half_closed(void *arg, trp_server_call *call)
{
    struct unary *unary = service_work(arg, call);
    if (unary->queued || unary->finished)
        return;
    unary->finished = true;
    if (unary->kind == &connection_kind)
        trp_server_call_finish(call, TRP_OK, NULL);
    else
        trp_server_call_finish(call, TRP_INVALID_ARGUMENT, "the call ended without a request");
}

static void unary_closed(void *arg, trp_server_call *call)
{
    struct service *service = arg;
    struct unary *unary = service_work(service, call);
    if (unary->queued)
        list_remove(&service->unaries, &unary->link);
    trp_message_destroy(unary->request);
    trp_message_destroy(unary->answer);
    free(unary->text);
    free(unary);
}

#define OPENED(name, method, run, changes)                                                         \
    static void name##_opened(void *service, trp_server_call *call)                                \
    {                                                                                              \
        (void)service;                                                                             \
        unary_open(call, &name##_kind);                                                            \
    }
UNARY_LIST(OPENED)

#define METHOD(name, method, run, changes)                                                         \
    {.path = "/deepmind.reverb.ReverbService/" method,                                             \
     .any_size = true,                                                                             \
     .opened = name##_opened,                                                                      \
     .received = unary_received,                                                                   \
     .half_closed = unary_half_closed,                                                             \
     .closed = unary_closed},
const trp_raw_method unary_methods[UNARY_METHODS] = {UNARY_LIST(METHOD)};
