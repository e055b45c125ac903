/* Problem: calls of one request and one answer, some of which change tables: their answers wait for
 * the commit like confirmations do, and those that look up keys wait for the index after a reopen.
 * Design: a queue of calls in order of arrival, worked off at the end of each group. A call that
 * changes a table waits behind earlier ones that wait; the others do not.
 * Guarantee: an answer of OK means durable. */
#include "service.h"

#include <stdlib.h>
#include <string.h>

#include <reverb.pb-c.h>
#include "core/alloc.h"
#include "core/clock.h"

enum unary_kind {
    UNARY_MUTATE,
    UNARY_RESET,
    UNARY_SERVER_INFO,
    UNARY_CHECKPOINT,
    UNARY_CONNECTION
};

struct unary {
    struct list_link link; /* in the queue, while queued */
    trp_server_call *call;
    enum unary_kind kind;
    trp_message *request;
    bool queued, applied, finished;
    bool started; /* a checkpoint is being taken for it */
    trp_status status;
    char *text;
    trp_message *answer;
};

static struct unary *first_unary(const struct service *service)
{
    return LIST_FIRST(&service->unaries, struct unary, link);
}

static void unary_open(trp_server_call *call, enum unary_kind kind)
{
    struct unary *unary = xcalloc(1, sizeof *unary);
    unary->call = call;
    unary->kind = kind;
    trp_server_call_set_state(call, unary);
    trp_server_call_read(call);
}

#define OPENED(name, kind)                                                                         \
    void name##_opened(void *service, trp_server_call *call)                                       \
    {                                                                                              \
        (void)service;                                                                             \
        unary_open(call, kind);                                                                    \
    }
OPENED(mutate, UNARY_MUTATE)
OPENED(reset, UNARY_RESET)
OPENED(server_info, UNARY_SERVER_INFO)
OPENED(checkpoint, UNARY_CHECKPOINT)
OPENED(connection, UNARY_CONNECTION)
#undef OPENED

void unary_received(void *arg, trp_server_call *call, trp_message *message)
{
    struct service *service = arg;
    struct unary *unary = service_work(service, call);
    unary->request = message;
    unary->queued = true;
    list_push(&service->unaries, &unary->link);
}

void unary_half_closed(void *arg, trp_server_call *call)
{
    struct unary *unary = service_work(arg, call);
    if (unary->queued || unary->finished)
        return;
    unary->finished = true;
    if (unary->kind == UNARY_CONNECTION)
        trp_server_call_finish(call, TRP_OK, NULL);
    else
        trp_server_call_finish(call, TRP_INVALID_ARGUMENT, "the call ended without a request");
}

void unary_closed(void *arg, trp_server_call *call)
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

/* ---- ServerInfo -------------------------------------------------------------------------- */

/* Everything that one TableInfo points to. */
struct table_info {
    Deepmind__Reverb__TableInfo info;
    Deepmind__Reverb__KeyDistributionOptions sampler, remover;
    Deepmind__Reverb__KeyDistributionOptions__Prioritized sampler_prioritized, remover_prioritized;
    Deepmind__Reverb__KeyDistributionOptions__Heap sampler_heap, remover_heap;
    Deepmind__Reverb__RateLimiterInfo limiter;
    Deepmind__Reverb__RateLimiterCallStats inserts, samples;
    Deepmind__Reverb__TableWorkerTime time;
};

static void selector_fill(Deepmind__Reverb__KeyDistributionOptions *out,
                          Deepmind__Reverb__KeyDistributionOptions__Prioritized *prioritized,
                          Deepmind__Reverb__KeyDistributionOptions__Heap *heap,
                          trp_selector selector)
{
    deepmind__reverb__key_distribution_options__init(out);
    deepmind__reverb__key_distribution_options__prioritized__init(prioritized);
    deepmind__reverb__key_distribution_options__heap__init(heap);
    out->is_deterministic = selector.kind != TRP_UNIFORM && selector.kind != TRP_PRIORITIZED;
    switch (selector.kind) {
    case TRP_UNIFORM:
        out->distribution_case = DEEPMIND__REVERB__KEY_DISTRIBUTION_OPTIONS__DISTRIBUTION_UNIFORM;
        out->uniform = true;
        break;
    case TRP_FIFO:
        out->distribution_case = DEEPMIND__REVERB__KEY_DISTRIBUTION_OPTIONS__DISTRIBUTION_FIFO;
        out->fifo = true;
        break;
    case TRP_LIFO:
        out->distribution_case = DEEPMIND__REVERB__KEY_DISTRIBUTION_OPTIONS__DISTRIBUTION_LIFO;
        out->lifo = true;
        break;
    case TRP_PRIORITIZED:
        out->distribution_case =
            DEEPMIND__REVERB__KEY_DISTRIBUTION_OPTIONS__DISTRIBUTION_PRIORITIZED;
        prioritized->priority_exponent = selector.exponent;
        out->prioritized = prioritized;
        break;
    case TRP_MAX_HEAP:
    case TRP_MIN_HEAP:
        out->distribution_case = DEEPMIND__REVERB__KEY_DISTRIBUTION_OPTIONS__DISTRIBUTION_HEAP;
        heap->min_heap = selector.kind == TRP_MIN_HEAP;
        out->heap = heap;
        break;
    }
}

static void limiter_fill(struct table_info *out, const struct limiter *limiter)
{
    deepmind__reverb__rate_limiter_info__init(&out->limiter);
    deepmind__reverb__rate_limiter_call_stats__init(&out->inserts);
    deepmind__reverb__rate_limiter_call_stats__init(&out->samples);
    out->limiter.samples_per_insert = limiter->options.samples_per_insert;
    out->limiter.min_diff = limiter->options.min_diff;
    out->limiter.max_diff = limiter->options.max_diff;
    out->limiter.min_size_to_sample = limiter->options.min_size;
    out->inserts.completed = limiter->inserts;
    out->samples.completed = limiter->samples;
    out->limiter.insert_stats = &out->inserts;
    out->limiter.sample_stats = &out->samples;
}

static void time_fill(Deepmind__Reverb__TableWorkerTime *out, struct lane *lane)
{
    enum { NS_PER_MS = 1000 * 1000 };
    const int64_t *ns = lane->time_ns;
    lane_enter(lane, lane->state);
    deepmind__reverb__table_worker_time__init(out);
    out->running_ms = (ns[LANE_SAMPLING] + ns[LANE_INSERTING]) / NS_PER_MS;
    out->sampling_ms = ns[LANE_SAMPLING] / NS_PER_MS;
    out->inserting_ms = ns[LANE_INSERTING] / NS_PER_MS;
    out->sleeping_ms = ns[LANE_SLEEPING] / NS_PER_MS;
    out->waiting_for_sampling_ms = ns[LANE_WAITING_FOR_SAMPLING] / NS_PER_MS;
    out->waiting_for_inserts_ms = ns[LANE_WAITING_FOR_INSERTS] / NS_PER_MS;
}

static void table_fill(struct table_info *out, struct lane *lane)
{
    struct engine_table *table = lane->table;
    const trp_table_options *options = engine_table_options(table);
    struct engine_counts counts = engine_table_counts(table);
    deepmind__reverb__table_info__init(&out->info);
    selector_fill(&out->sampler, &out->sampler_prioritized, &out->sampler_heap, options->sampler);
    selector_fill(&out->remover, &out->remover_prioritized, &out->remover_heap, options->remover);
    limiter_fill(out, engine_table_limiter(table));
    out->info.sampler_options = &out->sampler;
    out->info.remover_options = &out->remover;
    out->info.rate_limiter_info = &out->limiter;
    out->info.max_size = options->max_size;
    out->info.max_times_sampled = options->max_times_sampled;
    out->info.signature.data = (uint8_t *)options->signature.data;
    out->info.signature.len = options->signature.size;
    out->info.current_size = engine_table_size(table);
    out->info.name = (char *)table->name;
    time_fill(&out->time, lane);
    out->info.table_worker_time = &out->time;
    out->info.num_episodes = counts.episodes;
    out->info.num_deleted_episodes = counts.episodes_deleted;
    out->info.num_unique_samples = counts.unique_samples;
}

static trp_status server_info(struct service *service, trp_message **answer)
{
    size_t count = engine_table_count(service->engine);
    struct table_info *tables = xcalloc(count, sizeof *tables);
    Deepmind__Reverb__TableInfo **infos = xcalloc(count, sizeof(Deepmind__Reverb__TableInfo *));
    Deepmind__Reverb__Uint128 id = DEEPMIND__REVERB__UINT128__INIT;
    Deepmind__Reverb__ServerInfoResponse response = DEEPMIND__REVERB__SERVER_INFO_RESPONSE__INIT;
    for (size_t i = 0; i < count; i++) {
        table_fill(&tables[i], service->lanes[i]);
        infos[i] = &tables[i].info;
    }
    id.high = service->state_id[0];
    id.low = service->state_id[1];
    response.tables_state_id = &id;
    response.table_info = infos;
    response.n_table_info = count;
    size_t size = deepmind__reverb__server_info_response__get_packed_size(&response);
    *answer = trp_message_create(size);
    if (*answer)
        deepmind__reverb__server_info_response__pack(&response, trp_message_data(*answer));
    free(infos);
    free(tables);
    if (!*answer)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for %zu bytes of ServerInfo", size);
    return TRP_OK;
}

/* ---- the others -------------------------------------------------------------------------- */

static trp_status mutate(struct service *service, trp_bytes bytes)
{
    TRP_TRY(wire_mutate_request_decode(bytes, &service->mutate));
    struct lane *lane = service_lane(service, service->mutate.table);
    if (!lane)
        return TRP_NOT_FOUND;
    trp_status status = engine_mutate(service->engine, lane->table, &service->mutate);
    lane_move(lane); /* deletes may let inserts in, inserts below the minimal size too */
    return status;
}

/* A ResetRequest is a MutatePrioritiesRequest with a table only. */
static trp_status reset(struct service *service, trp_bytes bytes)
{
    TRP_TRY(wire_mutate_request_decode(bytes, &service->mutate));
    struct lane *lane = service_lane(service, service->mutate.table);
    if (!lane)
        return TRP_NOT_FOUND;
    TRP_TRY(engine_table_admit(service->engine, engine_table_options(lane->table), true));
    engine_reset(service->engine, lane->table);
    lane_move(lane);
    return TRP_OK;
}

static trp_status unary_run(struct service *service, struct unary *unary)
{
    trp_bytes bytes = message_bytes(unary->request);
    switch (unary->kind) {
    case UNARY_MUTATE:
        return mutate(service, bytes);
    case UNARY_RESET:
        return reset(service, bytes);
    case UNARY_SERVER_INFO:
        return server_info(service, &unary->answer);
    case UNARY_CHECKPOINT:
        return trp_fail(TRP_INVALID_ARGUMENT, "this server takes no checkpoints");
    case UNARY_CONNECTION:
        return TRP_OK; /* an empty answer is address 0: the client goes on with streams */
    }
    return TRP_INTERNAL;
}

/* One checkpoint for all that ask by now; those who ask while it is taken get the next one, which
 * has what they wrote before. */
static void checkpoints_begin(struct service *service)
{
    bool any = false;
    if (service->checkpointing || !service->checkpoint)
        return;
    for (struct unary *unary = first_unary(service); unary;
         unary = LIST_NEXT(unary, struct unary, link)) {
        if (unary->kind == UNARY_CHECKPOINT && !unary->applied)
            any = unary->started = true;
    }
    if (!any)
        return;
    service->checkpointing = true;
    service->checkpoint(service->checkpoint_owner);
}

static trp_status checkpoint_answer(const char *path, trp_message **answer)
{
    Deepmind__Reverb__CheckpointResponse response = DEEPMIND__REVERB__CHECKPOINT_RESPONSE__INIT;
    response.checkpoint_path = (char *)path;
    size_t size = deepmind__reverb__checkpoint_response__get_packed_size(&response);
    *answer = trp_message_create(size);
    if (!*answer)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for an answer of %zu bytes", size);
    deepmind__reverb__checkpoint_response__pack(&response, trp_message_data(*answer));
    return TRP_OK;
}

void service_checkpoint_done(struct service *service, trp_status status, const char *text)
{
    service->checkpointing = false;
    service->worked = true;
    for (struct unary *unary = first_unary(service); unary;
         unary = LIST_NEXT(unary, struct unary, link)) {
        if (!unary->started || unary->applied)
            continue;
        unary->applied = true;
        unary->status = status == TRP_OK ? checkpoint_answer(text, &unary->answer) : status;
        if (unary->status != TRP_OK)
            unary->text = xstrdup(status == TRP_OK ? trp_last_error() : text);
    }
}

static bool unary_changes(const struct unary *unary)
{
    return unary->kind == UNARY_MUTATE || unary->kind == UNARY_RESET;
}

void unaries_apply(struct service *service)
{
    bool ready = !service->unaries.first || (engine_ready(service->engine) && !service->full);
    if (service->unaries.first)
        engine_set_time(service->engine, clock_wall_ns());
    checkpoints_begin(service);
    for (struct unary *unary = first_unary(service); unary;
         unary = LIST_NEXT(unary, struct unary, link)) {
        bool elsewhere = unary->kind == UNARY_CHECKPOINT && service->checkpoint;
        bool waits = unary_changes(unary) && !ready;
        if (unary->applied || elsewhere || (waits && service->broken == TRP_OK))
            continue;
        unary->applied = true;
        if (waits)
            continue; /* the answer is that the store failed */
        unary->status = unary_run(service, unary);
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
    if (lost != TRP_OK && unary_changes(unary)) {
        trp_server_call_finish(unary->call, lost, text);
        return;
    }
    if (unary->answer)
        trp_server_call_send(unary->call, unary->answer);
    unary->answer = NULL;
    trp_server_call_finish(unary->call, unary->status, unary->text);
}

/* What waits to be applied is refused, too, while what was applied is. */
static bool unary_answerable(const struct service *service, const struct unary *unary, bool durable)
{
    if (!unary_changes(unary))
        return unary->applied;
    return service->refused_text || (unary->applied && durable);
}

void unaries_answer(struct service *service, bool durable)
{
    for (struct unary *next, *unary = first_unary(service); unary; unary = next) {
        next = LIST_NEXT(unary, struct unary, link);
        if (!unary_answerable(service, unary, durable))
            continue;
        list_remove(&service->unaries, &unary->link);
        unary->queued = false;
        unary_answer(service, unary);
    }
}
