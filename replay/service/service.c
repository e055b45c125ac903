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

#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include <troupe/rng.h>
#include "core/alloc.h"
#include "core/array.h"
#include "core/clock.h"
#include "inbox.h"
#include "replay/engine/limits.h"
#include "limits.h"

const trp_raw_method service_methods[] = {
    {.path = "/deepmind.reverb.ReverbService/InsertStream",
     .any_size = true,
     .in_parts = true,
     .opened = insert_opened,
     .received = insert_received,
     .half_closed = insert_half_closed,
     .drained = insert_drained,
     .closed = insert_closed},
    {.path = "/deepmind.reverb.ReverbService/SampleStream",
     .any_size = true,
     .opened = sample_opened,
     .received = sample_received,
     .half_closed = sample_half_closed,
     .drained = sample_drained,
     .closed = sample_closed},
    {.path = "/troupe.Replay/SampleShared",
     .any_size = true,
     .opened = shared_opened,
     .received = shared_received,
     .half_closed = shared_half_closed,
     .drained = shared_drained,
     .closed = shared_closed},
#define UNARY(name, open)                                                                          \
    {                                                                                              \
        .path = "/deepmind.reverb.ReverbService/" name, .any_size = true, .opened = open,          \
        .received = unary_received, .half_closed = unary_half_closed, .closed = unary_closed       \
    }
    UNARY("MutatePriorities", mutate_opened),
    UNARY("Reset", reset_opened),
    UNARY("ServerInfo", server_info_opened),
    UNARY("Checkpoint", checkpoint_opened),
    UNARY("InitializeConnection", connection_opened),
#undef UNARY
};
const size_t service_method_count = sizeof service_methods / sizeof *service_methods;

void service_init(struct service *service, struct engine *engine, uint64_t held_bytes_max)
{
    *service = (struct service){
        .engine = engine, .group = 1, .held_bytes_max = held_bytes_max, .insert.lists.lazy = true};
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

void lane_use(struct lane *lane)
{
    lane->users++;
}

void lane_leave(struct lane *lane)
{
    if (--lane->users > 0 || !lane->dropped)
        return;
    engine_table_free(lane->table);
    lane_free(lane);
}

void service_table_drop(struct service *service, struct engine_table *table)
{
    struct lane *lane = service->lanes[table->index];
    size_t last = engine_table_count(service->engine) - 1;
    lane_use(lane);
    trp_status status =
        engine_not_found((trp_bytes){(const uint8_t *)table->name, table->name_size});
    lane_refuse_inserts(lane, status);
    lane_refuse_samples(lane, status);
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
    inboxes_destroy(service);
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

/* Items that never come are not waited for. */
static void lanes_refuse(struct service *service)
{
    for (size_t i = 0; i < engine_table_count(service->engine); i++) {
        trp_status status = service_fail(service);
        lane_refuse_inserts(service->lanes[i], status);
        lane_refuse_samples(service->lanes[i], status);
    }
}

/* The last commit found room for its group, or none (trp_last_error() says why). What is short is
 * neither told nor refused. */
static void service_full(struct service *service, bool full)
{
    int64_t now = clock_now_ns(&clock_monotonic);
    if (!full && service->full_told)
        trp_log(TRP_INFO, "there is room for changes again seconds=%lld",
                (long long)((now - service->full_ns) / INT64_C(1000000000)));
    if (!full || !service->full) {
        free(service->refused_text);
        service->refused_text = NULL;
        service->full_told = false;
        service->full_ns = now;
        service->full = full;
        return;
    }
    int64_t waited_ms = (now - service->full_ns) / 1000000;
    if (!service->full_told && waited_ms >= SERVICE_FULL_TELL_MS) {
        trp_log(TRP_WARN, "no room for changes, answers wait reason=%s", trp_last_error());
        service->full_told = true;
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
    if (full || service->full)
        service_full(service, full);
    if (status == TRP_OK || full)
        return !full;
    service->broken = status;
    service->broken_text = xstrdup(trp_last_error());
    trp_log(TRP_ERROR, "the store failed, inserts are refused from now on reason=%s",
            service->broken_text);
    if (service_is_lost(service))
        lanes_refuse(service);
    return true;
}

void service_keep(struct service *service, trp_message *message)
{
    if (!engine_pins_messages(service->engine)) {
        trp_message_destroy(message);
        return;
    }
    if (service->pinned_count == service->pinned_capacity)
        service->pinned =
            array_grow(service->pinned, &service->pinned_capacity, sizeof(trp_message *));
    service->pinned[service->pinned_count++] = message;
}

/* Chunks that wait for an item, for the limiter or for room get bytes of their own. */
static void service_let_go(struct service *service)
{
    engine_unpin_messages(service->engine);
    while (service->pinned_count > 0)
        trp_message_destroy(service->pinned[--service->pinned_count]);
    inboxes_destroy(service);
}

/* `next`, or in `ms` if that is earlier. */
static int64_t earlier_in_ms(int64_t next, int64_t ms)
{
    int64_t at = clock_now_ns(&clock_monotonic) + ms * INT64_C(1000000);
    return at < next ? at : next;
}

/* A slice of work that nobody waits for; true while there is more. */
static bool service_idle(struct service *service)
{
    if (service->broken != TRP_OK)
        return false;
    if (!engine_index_step(service->engine))
        return engine_idle(service->engine);
    return true;
}

/* A little of what resets, drops and smaller limits left to be done, be there other work or not;
 * but what goes makes the group larger, and there may be no room for it as it is. */
static bool service_clear(struct service *service)
{
    if (service->broken != TRP_OK || service->full || !engine_clear_waits(service->engine))
        return false;
    engine_set_time(service->engine, clock_wall_ns());
    return engine_clear_step(service->engine,
                             service->worked ? CLEAR_BUSY_ITEMS : CLEAR_STEP_ITEMS);
}

/* Key operations may have waited for the index. */
static void service_wake_all(struct service *service)
{
    for (size_t i = 0; i < engine_table_count(service->engine); i++)
        lane_move(service->lanes[i]);
}

/* Nobody needs now what one large request took. */
static void service_trim(struct service *service)
{
    wire_insert_request_trim(&service->insert, SERVICE_DECODED_BYTES_KEPT);
    wire_mutate_request_trim(&service->mutate, SERVICE_DECODED_BYTES_KEPT);
}

int64_t service_group_end(void *arg)
{
    struct service *service = arg;
    bool more = false;
    if (!service->engine)
        return INT64_MAX; /* stopped */
    bool pinned = engine_unpin_chunks(service->engine);
    bool ready = engine_ready(service->engine);
    if (!ready ||
        !service->worked) /* who waits for the index would wait for ever behind samplers */
        more = service_idle(service);
    if (!ready)
        service_wake_all(service);
    unaries_apply(service);
    lanes_run(service);
    more |= service_clear(service);
    int64_t next = lanes_expire(service), look = shared_streams_expire(service);
    next = look < next ? look : next;
    bool durable = service_commit(service);
    if (durable || service->refused_text)
        insert_streams_answer(service);
    unaries_answer(service, durable);
    service_let_go(service);
    if (!service->worked)
        service_trim(service);
    if (pinned)
        next = earlier_in_ms(next, SERVICE_UNPIN_MS);
    service->group++;
    if (!durable)
        next = earlier_in_ms(next, SERVICE_FULL_RETRY_MS);
    else if (service->worked || more)
        next = 0; /* look for idle work when nothing else is ready */
    service->worked = false;
    return next;
}
