/* Problem: many streams insert and sample at once, limiters hold some of them back, and nobody may
 * be told of an insert before it is durable.
 * Design: handlers apply what they can at once and queue the rest in lanes. The end of a group
 * moves the lanes that something happened to, one insert and one batch of samples in turn, until
 * nothing moves; then one commit, then the answers. There is no timer: a deadline of a waiting
 * sampler and idle work are what service_group_end() returns. When the store breaks (only a broken
 * disk does that) every answer that waited for it becomes its status, and so does every later one.
 * Guarantee: a confirmation leaves after its item is durable; confirmations of a stream are in the
 * order of its items. */
#include "service.h"

#include <inttypes.h>
#include <stdlib.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/array.h"
#include "core/clock.h"
#include "replay/engine/limits.h"
#include "limits.h"

static int64_t service_group_end(void *arg);

trp_status service_serve(struct service *service, trp_server *server)
{
    TRP_TRY(trp_server_add_raw(server, &insert_method, 1, service, service_group_end));
    TRP_TRY(trp_server_add_raw(server, &sample_method, 1, service, NULL));
    TRP_TRY(trp_server_add_raw(server, &shared_method, 1, service, NULL));
    return trp_server_add_raw(server, unary_methods, UNARY_METHODS, service, NULL);
}

void service_init(struct service *service, struct engine *engine, uint64_t held_bytes_max)
{
    *service = (struct service){.engine = engine, .group = 1, .held_bytes_max = held_bytes_max};
    for (size_t i = 0; i < engine_table_count(engine); i++)
        service_table_added(service, engine_table(engine, i));
}

/* ---- tables that come and go ------------------------------------------------------------- */

void service_state_change(struct service *service)
{
    service->state_id[0] = trp_rng_entropy();
    service->state_id[1] = trp_rng_entropy();
}

void service_table_added(struct service *service, struct engine_table *table)
{
    struct lane *lane = xcalloc(1, sizeof *lane);
    lane->service = service;
    lane->table = table;
    lane->state_ns = clock_now_ns(&clock_monotonic);
    service->lanes = xrealloc(service->lanes, (table->index + 1) * sizeof(struct lane *));
    service->lanes[table->index] = lane;
    service_state_change(service);
}

void lane_enter(struct lane *lane, enum lane_state state)
{
    int64_t now = clock_now_ns(&clock_monotonic);
    lane->time_ns[lane->state] += now - lane->state_ns;
    lane->state = state;
    lane->state_ns = now;
}

static void lane_free(struct lane *lane)
{
    pending_cleanup(&lane->inserts);
    free(lane->orphans_reason);
    free(lane);
}

void lane_leave(struct lane *lane)
{
    if (--lane->users > 0 || !lane->dropped)
        return;
    engine_table_free(lane->table);
    lane_free(lane);
}

/* Whoever waits there is told why with trp_last_error(). */
static void lane_refuse(struct lane *lane, trp_status status)
{
    lane_refuse_inserts(lane, status);
    lane_refuse_samples(lane, status);
}

void service_table_drop(struct service *service, struct engine_table *table)
{
    struct lane *lane = service->lanes[table->index];
    size_t last = engine_table_count(service->engine) - 1;
    lane->users++;
    lane_refuse(lane, engine_not_found(span_of(table->name, table->name_size)));
    if (lane->moving)
        list_remove(&service->moving, &lane->moving_link);
    for (size_t i = table->index; i < last; i++)
        service->lanes[i] = service->lanes[i + 1];
    engine_table_drop(service->engine, table);
    service_state_change(service);
    lane->dropped = true;
    lane_leave(lane);
}

/* ---- life -------------------------------------------------------------------------------- */

void service_cleanup(struct service *service)
{
    for (size_t i = 0; service->engine && i < engine_table_count(service->engine); i++) {
        lane_refuse_inserts(service->lanes[i], TRP_CANCELLED);
        lane_free(service->lanes[i]);
    }
    wire_insert_request_cleanup(&service->insert);
    wire_mutate_request_cleanup(&service->mutate);
    wire_keys_cleanup(&service->confirmed);
    shared_builder_cleanup(&service->builder);
    free(service->parts);
    free(service->pinned);
    free(service->slots);
    free(service->lanes);
    free(service->broken_text);
    free(service->refused_text);
    *service = (struct service){0};
}

struct lane *service_lane(struct service *service, trp_bytes name)
{
    struct engine_table *table = engine_find(service->engine, name);
    if (!table) {
        engine_not_found(name);
        return NULL;
    }
    return service->lanes[table->index];
}

void lane_move(struct lane *lane)
{
    if (lane->moving)
        return;
    lane->moving = true;
    list_push(&lane->service->moving, &lane->moving_link);
}

static enum lane_state lane_idle(const struct lane *lane)
{
    if (pending_first(&lane->inserts))
        return LANE_WAITING_FOR_SAMPLING;
    return lane->samplers.first ? LANE_WAITING_FOR_INSERTS : LANE_SLEEPING;
}

/* Alternating, so that neither inserts nor samples starve where the limiter would allow both. */
static void lane_run(struct lane *lane)
{
    lane_enter(lane, LANE_INSERTING);
    for (bool progress = true; progress;) {
        progress = lane_insert_one(lane);
        bool samples = lane->samplers.first;
        if (samples)
            lane_enter(lane, LANE_SAMPLING);
        bool sampled = lane_sample_batch(lane);
        if (samples)
            lane_enter(lane, LANE_INSERTING);
        if (sampled && lane->table->feed)
            lane_move(lane->service->lanes[lane->table->feed->index]);
        progress |= sampled;
    }
    lane_enter(lane, lane_idle(lane));
}

static void lanes_run(struct service *service)
{
    if (service->moving.first)
        engine_set_time(service->engine, clock_wall_ns());
    for (struct lane *lane; (lane = LIST_FIRST(&service->moving, struct lane, moving_link));) {
        list_remove(&service->moving, &lane->moving_link);
        lane->moving = false;
        lane_run(lane);
    }
}

static int64_t lanes_expire(struct service *service)
{
    int64_t next = INT64_MAX, now = 0;
    for (size_t i = 0; i < engine_table_count(service->engine); i++) {
        struct lane *lane = service->lanes[i];
        if (lane->timed_count == 0)
            continue;
        if (now == 0)
            now = clock_now_ns(&clock_monotonic);
        int64_t at = lane_expire(lane, now);
        next = at < next ? at : next;
    }
    return next;
}

bool service_is_lost(const struct service *service)
{
    return service->broken != TRP_OK && !engine_ready(service->engine);
}

trp_status service_fail(const struct service *service)
{
    return trp_fail(service->broken, "%s", service->broken_text);
}

trp_status service_lost(const struct service *service, const char **text)
{
    bool broken = service->broken != TRP_OK;
    *text = broken ? service->broken_text : service->refused_text;
    return !broken && service->refused_text ? TRP_RESOURCE_EXHAUSTED : service->broken;
}

/* The last commit found room for its group, or none (trp_last_error() says why). A short lack is
 * neither logged nor refused. */
static void service_full(struct service *service, bool full)
{
    int64_t now = clock_now_ns(&clock_monotonic);
    int64_t waited_ms = service->full_ns ? (now - service->full_ns) / 1000000 : 0;
    if (!full) {
        if (service->full_logged)
            trp_log(TRP_INFO, "there is room for changes again seconds=%" PRId64, waited_ms / 1000);
        free(service->refused_text);
        service->refused_text = NULL;
        service->full_logged = false;
        service->full_ns = 0;
        return;
    }
    if (!service->full_ns)
        service->full_ns = now;
    if (!service->full_logged && waited_ms >= SERVICE_FULL_LOG_MS) {
        trp_log(TRP_WARN, "no room for changes, answers wait reason=%s", trp_last_error());
        service->full_logged = true;
    }
    if (!service->refused_text && waited_ms >= SERVICE_FULL_REFUSE_MS)
        service->refused_text = xstrdup(trp_last_error());
}

/* False: there is no room even for changes; the group and its answers wait for some. */
static bool service_commit(struct service *service)
{
    if (service->broken != TRP_OK)
        return true;
    trp_status status = engine_commit(service->engine);
    bool full = status == TRP_RESOURCE_EXHAUSTED;
    if (full || service->full_ns)
        service_full(service, full);
    if (status == TRP_OK || full)
        return !full;
    service->broken = status;
    service->broken_text = xstrdup(trp_last_error());
    trp_log(TRP_ERROR, "the store failed, inserts are refused from now on reason=%s",
            service->broken_text);
    for (size_t i = 0; service_is_lost(service) && i < engine_table_count(service->engine); i++)
        lane_refuse(service->lanes[i], service_fail(service));
    return true;
}

void service_keep(struct service *service, trp_message *message)
{
    if (!engine_pins_messages(service->engine)) {
        trp_message_destroy(message);
        return;
    }
    *ARRAY_PUSH(service->pinned, service->pinned_count, service->pinned_capacity) = message;
}

/* `next`, or in `ms` if that is earlier. */
static int64_t earlier_in_ms(int64_t next, int64_t ms)
{
    int64_t at = clock_now_ns(&clock_monotonic) + ms * INT64_C(1000000);
    return at < next ? at : next;
}

/* A step of the deletions that resets, drops and smaller limits left, be there other work or not;
 * but they make the group larger, and there may be no room for it as it is. */
static bool service_clear(struct service *service)
{
    if (service->broken != TRP_OK || service->full_ns || !engine_clear_waits(service->engine))
        return false;
    engine_set_time(service->engine, clock_wall_ns());
    return engine_clear_step(service->engine,
                             service->worked ? CLEAR_BUSY_ITEMS : CLEAR_STEP_ITEMS);
}

static int64_t service_group_end(void *arg)
{
    struct service *service = arg;
    struct engine *engine = service->engine;
    bool more = false;
    if (!engine)
        return INT64_MAX; /* stopped */
    bool pinned = engine_unpin_chunks(engine), ready = engine_ready(engine);
    /* A slice of work that nobody waits for, unless it is the index: samplers would go before. */
    if (service->broken == TRP_OK && (!ready || !service->worked))
        more = engine_index_step(engine) || engine_idle(engine);
    for (size_t i = 0; !ready && i < engine_table_count(engine); i++)
        lane_move(service->lanes[i]); /* key operations may have waited for it */
    unaries_apply(service);
    lanes_run(service);
    more |= service_clear(service);
    int64_t next = lanes_expire(service), probe_ns = shared_streams_expire(service);
    next = probe_ns < next ? probe_ns : next;
    bool durable = service_commit(service);
    if (durable || service->refused_text)
        insert_streams_answer(service);
    unaries_answer(service, durable);
    engine_unpin_messages(engine); /* chunks that still wait get bytes of their own */
    while (service->pinned_count > 0)
        trp_message_destroy(service->pinned[--service->pinned_count]);
    if (!service->worked) {
        wire_insert_request_trim(&service->insert, SERVICE_DECODED_BYTES_KEPT);
        wire_mutate_request_trim(&service->mutate, SERVICE_DECODED_BYTES_KEPT);
    }
    if (pinned)
        next = earlier_in_ms(next, SERVICE_UNPIN_MS);
    service->group++;
    if (!durable)
        next = earlier_in_ms(next, SERVICE_FULL_RETRY_MS);
    else if (service->worked || more)
        next = 0; /* idle work comes when nothing else is ready */
    service->worked = false;
    return next;
}
