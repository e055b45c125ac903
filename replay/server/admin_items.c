/* Problem: one wants to see a table's items in some order, or all of them whole, while others
 * insert and sample, and a table may have a hundred million. Design: slots are walked in slices,
 * each with the lock held for a millisecond or two; of what passes the filter the best few are kept
 * in a heap. What was found is looked up again by slot and sequence number at the end, so that an
 * item that has gone meanwhile is left out; for Fetch, which is asked for one page after the other,
 * it is kept until the last page. An item too large for a page goes chunk by chunk, and a chunk in
 * pieces: its chunks do not change, so that they are read again for each answer instead of being
 * kept. Guarantee: memory and the time that the lock is held do not depend on the table's size. An
 * item that is there from the first slice to the last is seen once; another one may be. */
#include "admin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/clock.h"
#include "limits.h"
#include "replay/model/trajectory.h"

/* ---- the filter -------------------------------------------------------------------------- */

static bool filter_passes(const Troupe__ReplayFilter *filter, const struct item *item,
                          int64_t now_ns)
{
    if (!filter)
        return true;
    double age = (double)(now_ns - item->inserted_at_ns) * 1e-9;
    return !(filter->has_min_priority && item->priority < filter->min_priority) &&
           !(filter->has_max_priority && item->priority > filter->max_priority) &&
           !(filter->has_min_times_sampled && item->times_sampled < filter->min_times_sampled) &&
           !(filter->has_max_times_sampled && item->times_sampled > filter->max_times_sampled) &&
           age >= filter->min_age_seconds &&
           !(filter->max_age_seconds > 0 && age > filter->max_age_seconds) &&
           item->policy_version >= filter->min_policy_version &&
           !(filter->max_policy_version > 0 && item->policy_version > filter->max_policy_version);
}

/* ---- walking ----------------------------------------------------------------------------- */

/* An item that was seen; the order is ascending rank, then sequence. */
struct seen {
    double rank;
    uint64_t seq;
    uint32_t slot;
};

struct items_walk {
    struct admin *admin;
    const char *table;
    const Troupe__ReplayFilter *filter;
    Troupe__ReplayOrder order;
    uint64_t after; /* sequences up to here are left out */
    uint64_t *keys; /* ascending; NULL: all slots */
    size_t key_count;
    int64_t now_ns;

    size_t next; /* slot or key */
    bool done;
    trp_status status;
    trp_selector_kind sampler;
    int64_t table_size, matches;
    double min_priority, max_priority;
    struct seen *seen; /* a heap with the last one at the root */
    uint32_t seen_count, seen_capacity, seen_max;
};

static bool seen_before(const struct seen *a, const struct seen *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->seq < b->seq;
}

static int seen_compare(const void *left, const void *right)
{
    return seen_before(left, right) ? -1 : seen_before(right, left);
}

static void seen_sift_down(struct items_walk *walk)
{
    struct seen *heap = walk->seen, moved = heap[0];
    size_t at = 0, child;
    for (; (child = 2 * at + 1) < walk->seen_count; at = child) {
        if (child + 1 < walk->seen_count && seen_before(&heap[child], &heap[child + 1]))
            child++;
        if (!seen_before(&moved, &heap[child]))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void seen_push(struct items_walk *walk, struct seen seen)
{
    if (walk->seen_count == walk->seen_max) {
        if (seen_before(&seen, &walk->seen[0])) {
            walk->seen[0] = seen;
            seen_sift_down(walk);
        }
        return;
    }
    if (walk->seen_count == walk->seen_capacity)
        walk->seen = array_grow(walk->seen, &walk->seen_capacity, sizeof *walk->seen);
    size_t at = walk->seen_count++;
    for (; at > 0 && seen_before(&walk->seen[(at - 1) / 2], &seen); at = (at - 1) / 2)
        walk->seen[at] = walk->seen[(at - 1) / 2];
    walk->seen[at] = seen;
}

/* What the sampler would take first. */
static Troupe__ReplayOrder order_of(trp_selector_kind sampler)
{
    switch (sampler) {
    case TRP_UNIFORM:
        break;
    case TRP_FIFO:
        return TROUPE__REPLAY_ORDER__REPLAY_ORDER_OLDEST;
    case TRP_LIFO:
        return TROUPE__REPLAY_ORDER__REPLAY_ORDER_NEWEST;
    case TRP_PRIORITIZED:
    case TRP_MAX_HEAP:
        return TROUPE__REPLAY_ORDER__REPLAY_ORDER_HIGHEST;
    case TRP_MIN_HEAP:
        return TROUPE__REPLAY_ORDER__REPLAY_ORDER_LOWEST;
    }
    return TROUPE__REPLAY_ORDER__REPLAY_ORDER_SAMPLER;
}

static double item_rank(Troupe__ReplayOrder order, const struct item *item)
{
    switch (order) {
    case TROUPE__REPLAY_ORDER__REPLAY_ORDER_NEWEST:
        return -(double)item->seq; /* below 2^47: exact */
    case TROUPE__REPLAY_ORDER__REPLAY_ORDER_HIGHEST:
        return -item->priority;
    case TROUPE__REPLAY_ORDER__REPLAY_ORDER_LOWEST:
        return item->priority;
    case TROUPE__REPLAY_ORDER__REPLAY_ORDER_MOST_SAMPLED:
        return -(double)item->times_sampled;
    case TROUPE__REPLAY_ORDER__REPLAY_ORDER_LEAST_SAMPLED:
        return item->times_sampled;
    case TROUPE__REPLAY_ORDER__REPLAY_ORDER_SAMPLER: /* uniform: no order, but always the same */
        return item->slot;
    default:
        return 0;
    }
}

static const char *order_words(Troupe__ReplayOrder order)
{
    static const char *const words[] = {
        [TROUPE__REPLAY_ORDER__REPLAY_ORDER_SAMPLER] = "in no order",
        [TROUPE__REPLAY_ORDER__REPLAY_ORDER_OLDEST] = "oldest first",
        [TROUPE__REPLAY_ORDER__REPLAY_ORDER_NEWEST] = "newest first",
        [TROUPE__REPLAY_ORDER__REPLAY_ORDER_HIGHEST] = "by priority, highest first",
        [TROUPE__REPLAY_ORDER__REPLAY_ORDER_LOWEST] = "by priority, lowest first",
        [TROUPE__REPLAY_ORDER__REPLAY_ORDER_MOST_SAMPLED] = "by times sampled, most first",
        [TROUPE__REPLAY_ORDER__REPLAY_ORDER_LEAST_SAMPLED] = "by times sampled, least first",
    };
    return words[order];
}

static void walk_item(struct items_walk *walk, Troupe__ReplayOrder order, const struct item *item)
{
    if (!item || item->seq <= walk->after || !filter_passes(walk->filter, item, walk->now_ns))
        return;
    walk->min_priority = fmin(walk->min_priority, item->priority);
    walk->max_priority = fmax(walk->max_priority, item->priority);
    walk->matches++;
    seen_push(walk, (struct seen){item_rank(order, item), item->seq, item->slot});
}

static void walk_slice(void *arg)
{
    struct items_walk *walk = arg;
    struct engine_table *table;
    walk->status = admin_table(walk->admin, walk->table, &table);
    if (walk->status == TRP_OK && walk->keys)
        walk->status = engine_index_finish(walk->admin->engine);
    if (walk->status != TRP_OK)
        return;
    walk->sampler = engine_table_options(table)->sampler.kind;
    Troupe__ReplayOrder order = walk->order == TROUPE__REPLAY_ORDER__REPLAY_ORDER_SAMPLER
                                    ? order_of(walk->sampler)
                                    : walk->order;
    size_t end = walk->keys ? walk->key_count : engine_table_slots(table);
    size_t stop = end - walk->next > REPLAY_SLICE_SLOTS ? walk->next + REPLAY_SLICE_SLOTS : end;
    for (; walk->next < stop; walk->next++)
        walk_item(walk, order,
                  walk->keys ? engine_item_with_key(table, walk->keys[walk->next])
                             : engine_item_in_slot(table, (uint32_t)walk->next));
    walk->done = walk->next >= end;
    walk->table_size = engine_table_size(table);
}

static int key_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static void walk_set_keys(struct items_walk *walk)
{
    if (!walk->filter || walk->filter->n_keys == 0)
        return;
    size_t size = walk->filter->n_keys * sizeof *walk->keys;
    walk->keys = xmalloc(size);
    memcpy(walk->keys, walk->filter->keys, size);
    qsort(walk->keys, walk->filter->n_keys, sizeof *walk->keys, key_compare);
    for (size_t i = 0; i < walk->filter->n_keys; i++)
        if (walk->key_count == 0 || walk->keys[walk->key_count - 1] != walk->keys[i])
            walk->keys[walk->key_count++] = walk->keys[i];
}

/* Leaves the first seen_max in order in `seen`. */
static trp_status walk_run(struct items_walk *walk)
{
    walk->now_ns = clock_wall_ns();
    walk->min_priority = INFINITY;
    walk->max_priority = -INFINITY;
    walk_set_keys(walk);
    if (walk->keys)
        walk->status = admin_load(walk->admin);
    while (!walk->done && walk->status == TRP_OK) {
        admin_enter(walk->admin, walk_slice, walk);
        if (!walk->done && walk->status == TRP_OK && trp_call_cancelled())
            walk->status = trp_fail(TRP_CANCELLED, "nobody waits for the items any more");
    }
    if (walk->seen_count)
        qsort(walk->seen, walk->seen_count, sizeof *walk->seen, seen_compare);
    return walk->status;
}

static void walk_cleanup(struct items_walk *walk)
{
    free(walk->keys);
    free(walk->seen);
}

/* NULL: it has gone. */
static const struct item *seen_item(const struct engine_table *table, const struct seen *seen)
{
    const struct item *item = engine_item_in_slot(table, seen->slot);
    return item && item->seq == seen->seq ? item : NULL;
}

/* ---- Items ------------------------------------------------------------------------------- */

struct items_work {
    struct items_walk walk;
    uint32_t offset;
    Troupe__ReplayItemsResponse *response;
};

static void items_copy(void *arg)
{
    struct items_work *work = arg;
    struct items_walk *walk = &work->walk;
    struct engine_table *table;
    walk->status = admin_table(walk->admin, walk->table, &table);
    if (walk->status != TRP_OK)
        return;
    Troupe__ReplayItemsResponse *out = xmalloc(sizeof *out);
    troupe__replay_items_response__init(out);
    out->items = xcalloc(walk->seen_count + 1, sizeof *out->items);
    for (uint32_t i = work->offset; i < walk->seen_count; i++) {
        const struct item *item = seen_item(table, &walk->seen[i]);
        if (item)
            out->items[out->n_items++] = admin_item(item);
    }
    out->table_size = walk->table_size;
    out->order = xstrdup(order_words(walk->order == TROUPE__REPLAY_ORDER__REPLAY_ORDER_SAMPLER
                                         ? order_of(walk->sampler)
                                         : walk->order));
    out->matches = walk->matches;
    if (walk->matches) {
        out->min_priority = walk->min_priority;
        out->max_priority = walk->max_priority;
    }
    work->response = out;
}

static trp_status items_check(const Troupe__ReplayItemsRequest *request, struct items_work *work)
{
    uint32_t count = request->count ? request->count : 10;
    if (count > REPLAY_ITEMS_MAX)
        count = REPLAY_ITEMS_MAX;
    if (request->order < 0 || request->order > TROUPE__REPLAY_ORDER__REPLAY_ORDER_LEAST_SAMPLED)
        return trp_fail(TRP_INVALID_ARGUMENT, "items are in no order %d", (int)request->order);
    if (request->offset > REPLAY_REACH_MAX - count)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "items from %llu on: at most %d are put in order; use a filter, or fetch "
                        "them",
                        (unsigned long long)request->offset, REPLAY_REACH_MAX);
    work->offset = (uint32_t)request->offset;
    work->walk.seen_max = work->offset + count;
    return TRP_OK;
}

void admin_items(Troupe__Replay_Service *service, const Troupe__ReplayItemsRequest *request,
                 Troupe__ReplayItemsResponse_Closure closure, void *data)
{
    struct items_work work = {.walk = {.admin = (struct admin *)service,
                                       .table = request->table,
                                       .filter = request->filter,
                                       .order = request->order}};
    trp_status status = items_check(request, &work);
    if (status == TRP_OK)
        status = walk_run(&work.walk);
    if (status == TRP_OK)
        admin_enter(work.walk.admin, items_copy, &work);
    closure(work.response, data);
    if (work.response)
        troupe__replay_items_response__free_unpacked(work.response, NULL);
    walk_cleanup(&work.walk);
}

/* ---- what a Fetch goes on with ----------------------------------------------------------- */

/* What has come of the item that is sent in parts. */
struct fetch_rest {
    uint64_t seq; /* 0: there is none */
    uint32_t chunks;
    uint64_t bytes; /* of the entry of the next chunk */
};

/* The items of many answers, looked for once: else a table would be walked for each of them. */
struct fetch_plan {
    char *table;
    struct buffer filter; /* serialized */
    struct seen *seen;
    uint32_t count, next;
    int64_t matches;        /* from `next` on, with those that are not in `seen` */
    uint64_t after;         /* of the request that goes on at `next` */
    struct fetch_rest rest; /* of the item at `next` */
};

static void plan_destroy(struct fetch_plan *plan)
{
    if (!plan)
        return;
    free(plan->table);
    free(plan->seen);
    buffer_cleanup(&plan->filter);
    free(plan);
}

void admin_plans_destroy(struct admin *admin)
{
    for (size_t i = 0; i < REPLAY_FETCH_PLANS; i++)
        plan_destroy(admin->plans[i]);
}

static struct buffer filter_bytes(const Troupe__ReplayFilter *filter)
{
    struct buffer bytes = {0};
    size_t size = filter ? troupe__replay_filter__get_packed_size(filter) : 0;
    if (size > 0)
        bytes.size = troupe__replay_filter__pack(filter, buffer_reserve(&bytes, size));
    return bytes;
}

static struct fetch_rest rest_of(const Troupe__ReplayFetchRequest *request)
{
    const Troupe__ReplayFetchRest *rest = request->rest;
    return rest ? (struct fetch_rest){rest->sequence, rest->chunks, rest->bytes}
                : (struct fetch_rest){0};
}

static bool plan_goes_on(const struct fetch_plan *plan, const Troupe__ReplayFetchRequest *request,
                         const struct buffer *filter)
{
    struct fetch_rest rest = rest_of(request);
    return plan && plan->after == request->after && plan->rest.seq == rest.seq &&
           plan->rest.chunks == rest.chunks && plan->rest.bytes == rest.bytes &&
           strcmp(plan->table, request->table) == 0 &&
           bytes_equal(buffer_bytes(&plan->filter), buffer_bytes(filter));
}

/* The plan that an earlier request left for this one, or NULL. */
static struct fetch_plan *plan_take(struct admin *admin, const Troupe__ReplayFetchRequest *request,
                                    const struct buffer *filter)
{
    struct fetch_plan *plan = NULL;
    mutex_lock(&admin->mutex);
    for (size_t i = 0; i < REPLAY_FETCH_PLANS && !plan; i++) {
        if (!plan_goes_on(admin->plans[i], request, filter))
            continue;
        plan = admin->plans[i];
        admin->plans[i] = NULL;
    }
    mutex_unlock(&admin->mutex);
    return plan;
}

/* Leaves it for the next request; the one left longest ago makes room. */
static void plan_leave(struct admin *admin, struct fetch_plan *plan)
{
    mutex_lock(&admin->mutex);
    struct fetch_plan **place = &admin->plans[admin->plan_next];
    for (size_t i = 0; i < REPLAY_FETCH_PLANS && *place; i++)
        if (!admin->plans[i])
            place = &admin->plans[i];
    if (*place)
        admin->plan_next = (admin->plan_next + 1) % REPLAY_FETCH_PLANS;
    struct fetch_plan *oldest = *place;
    *place = plan;
    mutex_unlock(&admin->mutex);
    plan_destroy(oldest);
}

static trp_status plan_find(struct admin *admin, const Troupe__ReplayFetchRequest *request,
                            struct fetch_plan **out)
{
    struct buffer filter = filter_bytes(request->filter);
    *out = plan_take(admin, request, &filter);
    if (*out) {
        buffer_cleanup(&filter);
        return TRP_OK;
    }
    struct items_walk walk = {.admin = admin,
                              .table = request->table,
                              .filter = request->filter,
                              .order = TROUPE__REPLAY_ORDER__REPLAY_ORDER_OLDEST,
                              .after = request->after,
                              .seen_max = REPLAY_REACH_MAX};
    trp_status status = walk_run(&walk);
    if (status == TRP_OK) {
        *out = xmalloc(sizeof **out);
        **out = (struct fetch_plan){.table = xstrdup(request->table),
                                    .filter = filter,
                                    .seen = walk.seen,
                                    .count = walk.seen_count,
                                    .matches = walk.matches,
                                    .after = request->after,
                                    .rest = rest_of(request)};
        walk.seen = NULL;
    } else {
        buffer_cleanup(&filter);
    }
    walk_cleanup(&walk);
    return status;
}

/* ---- Fetch ------------------------------------------------------------------------------- */

struct fetch_work {
    struct admin *admin;
    struct fetch_plan *plan;
    uint32_t max_items;
    uint64_t max_bytes;
    struct wire_item *items;
    struct wire_entry_parts *parts;
    struct wire_slot *slots;
    struct chunk **chunks;  /* one a slot */
    size_t *trajectory_end; /* of each item in trajectories */
    struct buffer trajectories;
    uint32_t item_count, slot_count, slot_capacity;
    trp_message *message;
    struct buffer part; /* of one item, instead of a message */
    bool gone;
    trp_status status;
};

/* What goes before the item's chunks. */
static void fetch_info(struct fetch_work *work, const struct engine_table *table,
                       const struct item *item)
{
    uint32_t at = work->item_count++;
    trajectory_encode(item->trajectory, item->chunks, &work->trajectories);
    work->trajectory_end[at] = work->trajectories.size;
    work->items[at] = (struct wire_item){.key = item->key,
                                         .table = {(const uint8_t *)table->name, table->name_size},
                                         .priority = item->priority,
                                         .times_sampled = item->times_sampled,
                                         .inserted_at_ns = item->inserted_at_ns,
                                         .policy_version = item->policy_version};
    work->parts[at] = (struct wire_entry_parts){.item = &work->items[at],
                                                .draw.table_size = engine_table_size(table)};
}

static void fetch_push(struct fetch_work *work, const struct engine_table *table,
                       const struct item *item)
{
    uint32_t chunks = item->trajectory->chunk_count;
    while (work->slot_capacity - work->slot_count < chunks) {
        work->slots = array_grow(work->slots, &work->slot_capacity, sizeof *work->slots);
        work->chunks = xrealloc(work->chunks, work->slot_capacity * sizeof(struct chunk *));
    }
    for (uint32_t i = 0; i < chunks; i++) {
        struct chunk *chunk = item->chunks[i];
        work->chunks[work->slot_count] = chunk;
        work->slots[work->slot_count++] =
            (struct wire_slot){.key = chunk->seq, .size = chunk->size};
    }
    fetch_info(work, table, item);
    work->parts[work->item_count - 1].slot_count = chunks;
    work->parts[work->item_count - 1].end_of_sequence = true;
}

/* Now that the arrays stay where they are. */
static void fetch_link(struct fetch_work *work)
{
    struct wire_slot *slot = work->slots;
    size_t start = 0;
    for (uint32_t i = 0; i < work->item_count; i++) {
        work->parts[i].slots = slot;
        slot += work->parts[i].slot_count;
        work->parts[i].trajectory =
            (trp_bytes){work->trajectories.data + start, work->trajectory_end[i] - start};
        start = work->trajectory_end[i];
    }
}

static trp_status fetch_encode(struct fetch_work *work, struct engine_table *table)
{
    struct engine *engine = work->admin->engine;
    fetch_link(work);
    TRP_TRY(wire_sample_response_encode(work->parts, work->item_count, &work->message));
    for (uint32_t i = 0, chunk = 0; i < work->item_count; i++) {
        for (uint32_t end = chunk + work->parts[i].slot_count; chunk < end; chunk++) {
            const struct wire_slot *slot = &work->slots[chunk];
            trp_status status = engine_chunk_read(engine, work->chunks[chunk], slot->bytes);
            if (status != TRP_OK)
                return admin_unreadable(work->admin, table, work->items[i].key, slot->key, status);
        }
    }
    return TRP_OK;
}

static void fetch_passed(struct fetch_plan *plan)
{
    plan->after = plan->seen[plan->next++].seq;
    plan->matches--;
}

/* The next items, as many as fit. */
static trp_status fetch_page(struct fetch_work *work, struct engine_table *table)
{
    struct fetch_plan *plan = work->plan;
    uint64_t bytes = 0;
    uint32_t looked = 0; /* most may have gone */
    while (plan->next < plan->count && looked++ < REPLAY_SLICE_SLOTS &&
           work->item_count < work->max_items && bytes < work->max_bytes) {
        const struct item *item = seen_item(table, &plan->seen[plan->next]);
        uint64_t size = item ? item_chunk_bytes(item) : 0;
        if (size > REPLAY_FETCH_BYTES_MAX)
            break;
        fetch_passed(plan);
        if (!item)
            continue;
        fetch_push(work, table, item);
        bytes += size + item->trajectory->size + 64;
    }
    return fetch_encode(work, table);
}

/* A serialized entry of one chunk and nothing else: always the same bytes. */
static trp_status entry_of_chunk(struct fetch_work *work, struct engine_table *table,
                                 const struct item *item, uint32_t index, trp_message **message)
{
    const struct chunk *chunk = item->chunks[index];
    struct wire_slot slot = {.key = chunk->seq, .size = chunk->size};
    struct wire_entry_parts parts = {.slots = &slot,
                                     .slot_count = 1,
                                     .end_of_sequence = index + 1 == item->trajectory->chunk_count};
    TRP_TRY(wire_sample_response_encode(&parts, 1, message));
    trp_status status = engine_chunk_read(work->admin->engine, chunk, slot.bytes);
    if (status == TRP_OK)
        return TRP_OK;
    trp_message_destroy(*message);
    return admin_unreadable(work->admin, table, item->key, slot.key, status);
}

/* As much of the entry as there is room for, from where the rest begins. */
static trp_status part_push(struct fetch_work *work, struct engine_table *table,
                            const struct item *item)
{
    struct fetch_rest *rest = &work->plan->rest;
    trp_message *entry;
    TRP_TRY(entry_of_chunk(work, table, item, rest->chunks, &entry));
    uint64_t size = trp_message_size(entry), room = REPLAY_FETCH_BYTES_MAX - work->part.size;
    trp_status status = TRP_OK;
    if (rest->bytes >= size) {
        status = trp_fail(TRP_INVALID_ARGUMENT, "the rest of a chunk from byte %llu of %llu on",
                          (unsigned long long)rest->bytes, (unsigned long long)size);
    } else {
        uint64_t taken = size - rest->bytes < room ? size - rest->bytes : room;
        buffer_append(&work->part, (trp_bytes){trp_message_data(entry) + rest->bytes, taken});
        bool whole = rest->bytes + taken == size;
        rest->bytes = whole ? 0 : rest->bytes + taken;
        rest->chunks += whole;
    }
    trp_message_destroy(entry);
    return status;
}

/* A part of the next item: what it begins with, or the rest of it. */
static trp_status fetch_part(struct fetch_work *work, struct engine_table *table,
                             const struct item *item)
{
    struct fetch_rest *rest = &work->plan->rest;
    if (rest->seq == 0) {
        fetch_info(work, table, item);
        TRP_TRY(fetch_encode(work, table));
        buffer_append(&work->part, (trp_bytes){trp_message_data(work->message),
                                               trp_message_size(work->message)});
    }
    rest->seq = item->seq;
    while (rest->chunks < item->trajectory->chunk_count && work->part.size < REPLAY_FETCH_BYTES_MAX)
        TRP_TRY(part_push(work, table, item));
    if (rest->chunks < item->trajectory->chunk_count)
        return TRP_OK;
    fetch_passed(work->plan);
    *rest = (struct fetch_rest){0};
    return TRP_OK;
}

static trp_status fetch_gone(struct fetch_work *work)
{
    struct fetch_plan *plan = work->plan;
    while (plan->next < plan->count && plan->seen[plan->next].seq <= plan->rest.seq)
        fetch_passed(plan);
    plan->after = plan->rest.seq;
    plan->rest = (struct fetch_rest){0};
    work->gone = true;
    return TRP_OK;
}

static void fetch_collect(void *arg)
{
    struct fetch_work *work = arg;
    struct fetch_plan *plan = work->plan;
    struct engine_table *table;
    work->status = admin_table(work->admin, plan->table, &table);
    if (work->status != TRP_OK)
        return;
    const struct seen *next = plan->next < plan->count ? &plan->seen[plan->next] : NULL;
    const struct item *item = next ? seen_item(table, next) : NULL;
    if (plan->rest.seq && (!item || item->seq != plan->rest.seq))
        work->status = fetch_gone(work);
    else if (item && (plan->rest.seq || item_chunk_bytes(item) > REPLAY_FETCH_BYTES_MAX))
        work->status = fetch_part(work, table, item);
    else
        work->status = fetch_page(work, table);
}

static void fetch_answer(const struct fetch_work *work, Troupe__ReplayFetchResponse_Closure closure,
                         void *data)
{
    Troupe__ReplayFetchResponse response = TROUPE__REPLAY_FETCH_RESPONSE__INIT;
    Troupe__ReplayFetchRest rest = TROUPE__REPLAY_FETCH_REST__INIT;
    const struct fetch_rest *left = &work->plan->rest;
    response.last = work->plan->after;
    response.more = work->plan->matches > 0;
    response.gone = work->gone;
    if (work->part.size) {
        response.samples = (ProtobufCBinaryData){work->part.size, work->part.data};
    } else if (work->message) {
        response.samples.data = trp_message_data(work->message);
        response.samples.len = trp_message_size(work->message);
    }
    if (left->seq) {
        rest.sequence = left->seq;
        rest.chunks = left->chunks;
        rest.bytes = left->bytes;
        response.rest = &rest;
    }
    closure(&response, data);
}

static uint32_t fetch_items_max(uint32_t wanted)
{
    return wanted && wanted < REPLAY_ITEMS_MAX ? wanted : REPLAY_ITEMS_MAX;
}

static uint64_t fetch_bytes_max(uint64_t wanted)
{
    if (wanted == 0)
        return REPLAY_FETCH_BYTES;
    return wanted < REPLAY_FETCH_BYTES_MAX ? wanted : REPLAY_FETCH_BYTES_MAX;
}

static void fetch_run(struct fetch_work *work)
{
    size_t count = work->max_items;
    work->items = xcalloc(count, sizeof *work->items);
    work->parts = xcalloc(count, sizeof *work->parts);
    work->trajectory_end = xcalloc(count, sizeof *work->trajectory_end);
    admin_enter(work->admin, fetch_collect, work);
}

static void fetch_work_cleanup(struct fetch_work *work)
{
    trp_message_destroy(work->message);
    buffer_cleanup(&work->part);
    buffer_cleanup(&work->trajectories);
    free(work->items);
    free(work->parts);
    free(work->slots);
    free(work->chunks);
    free(work->trajectory_end);
    plan_destroy(work->plan);
}

void admin_fetch(Troupe__Replay_Service *service, const Troupe__ReplayFetchRequest *request,
                 Troupe__ReplayFetchResponse_Closure closure, void *data)
{
    struct fetch_work work = {.admin = (struct admin *)service,
                              .max_items = fetch_items_max(request->max_items),
                              .max_bytes = fetch_bytes_max(request->max_bytes)};
    work.status = plan_find(work.admin, request, &work.plan);
    if (work.status == TRP_OK)
        fetch_run(&work);
    if (work.status == TRP_OK)
        fetch_answer(&work, closure, data);
    else
        closure(NULL, data);
    if (work.status == TRP_OK && work.plan->next < work.plan->count) {
        plan_leave(work.admin, work.plan);
        work.plan = NULL;
    }
    fetch_work_cleanup(&work);
}
