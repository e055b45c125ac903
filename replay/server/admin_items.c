/* Problem: one wants to see a table's items in some order, or all of them whole, while others
 * insert and sample, and a table may have a hundred million. Design: slots are walked in slices,
 * each with the lock held for a millisecond or two; of the items that pass the filter the best few
 * are kept. They are looked up again by slot and sequence number at the end, so that an item that
 * has gone meanwhile is left out; for Fetch, which is asked for one page after the other, they are
 * kept until the last page. An item too large for a page goes chunk by chunk, and a chunk in
 * parts: chunks do not change, so only the one whose parts went last is kept, and any other read
 * again. Guarantee: memory and the time that the lock is held do not depend on the table's size. An
 * item that is there from the first slice to the last is seen once; another one may be. */
#include "admin.h"

#include <math.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/array.h"
#include "core/clock.h"
#include "limits.h"
#include "replay/model/trajectory.h"

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
    Troupe__ReplayOrder order; /* the sampler's becomes the one that it comes to */
    uint64_t after;            /* sequences up to here are left out */
    uint64_t *keys;            /* ascending; NULL: all slots */
    size_t key_count;
    size_t damaged; /* of the keys that were looked at, and are the first now */
    int64_t now_ns;
    uint64_t found_end; /* of items before it not all samples are known */

    size_t next; /* slot or key */
    bool done;
    int64_t table_size, matches;
    double min_priority, max_priority;
    struct seen *seen; /* the first seen_max in order, and others that came since they were found */
    uint32_t seen_count, seen_capacity, seen_max;
    bool seen_cut; /* whoever comes behind seen[seen_max - 1] is not among the first */
};

static bool seen_before(const struct seen *a, const struct seen *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->seq < b->seq;
}

static int seen_compare(const void *left, const void *right)
{
    return seen_before(left, right) ? -1 : seen_before(right, left);
}

static void seen_push(struct items_walk *walk, struct seen seen)
{
    if (walk->seen_cut && !seen_before(&seen, &walk->seen[walk->seen_max - 1]))
        return;
    *ARRAY_PUSH(walk->seen, walk->seen_count, walk->seen_capacity) = seen;
}

static void seen_sort(struct items_walk *walk)
{
    if (walk->seen_count > 0)
        qsort(walk->seen, walk->seen_count, sizeof *walk->seen, seen_compare);
    walk->seen_cut = walk->seen_count >= walk->seen_max;
    if (walk->seen_cut)
        walk->seen_count = walk->seen_max;
}

static const struct items_order {
    const char *words;
    enum { BY_SLOT, BY_SEQUENCE, BY_PRIORITY, BY_TIMES_SAMPLED } rank;
    bool descending;
} orders[] = {
    [TROUPE__REPLAY_ORDER__REPLAY_ORDER_SAMPLER] = {"in no order", BY_SLOT, false},
    [TROUPE__REPLAY_ORDER__REPLAY_ORDER_OLDEST] = {"oldest first", BY_SEQUENCE, false},
    [TROUPE__REPLAY_ORDER__REPLAY_ORDER_NEWEST] = {"newest first", BY_SEQUENCE, true},
    [TROUPE__REPLAY_ORDER__REPLAY_ORDER_HIGHEST] = {"by priority, highest first", BY_PRIORITY,
                                                    true},
    [TROUPE__REPLAY_ORDER__REPLAY_ORDER_LOWEST] = {"by priority, lowest first", BY_PRIORITY, false},
    [TROUPE__REPLAY_ORDER__REPLAY_ORDER_MOST_SAMPLED] = {"by times sampled, most first",
                                                         BY_TIMES_SAMPLED, true},
    [TROUPE__REPLAY_ORDER__REPLAY_ORDER_LEAST_SAMPLED] = {"by times sampled, least first",
                                                          BY_TIMES_SAMPLED, false},
};

/* The order in which each sampler takes items; TRP_UNIFORM has none. */
static const Troupe__ReplayOrder sampler_orders[] = {
    [TRP_FIFO] = TROUPE__REPLAY_ORDER__REPLAY_ORDER_OLDEST,
    [TRP_LIFO] = TROUPE__REPLAY_ORDER__REPLAY_ORDER_NEWEST,
    [TRP_PRIORITIZED] = TROUPE__REPLAY_ORDER__REPLAY_ORDER_HIGHEST,
    [TRP_MAX_HEAP] = TROUPE__REPLAY_ORDER__REPLAY_ORDER_HIGHEST,
    [TRP_MIN_HEAP] = TROUPE__REPLAY_ORDER__REPLAY_ORDER_LOWEST,
};

static double item_rank(const struct items_order *order, const struct item *item)
{
    const double ranks[] = {[BY_SLOT] = item->slot,
                            [BY_SEQUENCE] = (double)item->seq, /* below 2^47: exact */
                            [BY_PRIORITY] = item->priority,
                            [BY_TIMES_SAMPLED] = item->times_sampled};
    return order->descending ? -ranks[order->rank] : ranks[order->rank];
}

/* Of an item of a life before, the samples of this one are known: it had so many or more. */
static bool filter_passes(const struct items_walk *walk, const struct item *item)
{
    const Troupe__ReplayFilter *filter = walk->filter;
    if (!filter)
        return true;
    double age = (double)(walk->now_ns - item->inserted_at_ns) * 1e-9;
    return !(filter->has_min_priority && item->priority < filter->min_priority) &&
           !(filter->has_max_priority && item->priority > filter->max_priority) &&
           !(filter->has_min_times_sampled && item->times_sampled < filter->min_times_sampled) &&
           !(filter->has_max_times_sampled &&
             (item->times_sampled > filter->max_times_sampled || item->seq < walk->found_end)) &&
           age >= filter->min_age_seconds &&
           !(filter->max_age_seconds > 0 && age > filter->max_age_seconds) &&
           item->policy_version >= filter->min_policy_version &&
           !(filter->max_policy_version > 0 && item->policy_version > filter->max_policy_version);
}

static void walk_item(struct items_walk *walk, const struct item *item)
{
    if (!item || item->seq <= walk->after || !filter_passes(walk, item))
        return;
    walk->min_priority = fmin(walk->min_priority, item->priority);
    walk->max_priority = fmax(walk->max_priority, item->priority);
    walk->matches++;
    seen_push(walk, (struct seen){item_rank(&orders[walk->order], item), item->seq, item->slot});
}

static trp_status walk_slice(void *arg, struct engine *engine)
{
    struct items_walk *walk = arg;
    struct engine_table *table;
    TRP_TRY(admin_table(engine, walk->table, &table));
    if (walk->keys)
        TRP_TRY(engine_index_finish(engine));
    if (walk->order == TROUPE__REPLAY_ORDER__REPLAY_ORDER_SAMPLER)
        walk->order = sampler_orders[table->facts->options->sampler.kind];
    walk->found_end = table->facts->options->max_times_sampled > 0 ? 0 : table->found_end;
    size_t end = walk->keys ? walk->key_count : engine_table_slots(table);
    size_t stop = end - walk->next > REPLAY_SLICE_SLOTS ? walk->next + REPLAY_SLICE_SLOTS : end;
    for (; walk->next < stop; walk->next++) {
        uint64_t key = walk->keys ? walk->keys[walk->next] : 0;
        const struct item *item = walk->keys ? engine_item_with_key(table, key)
                                             : engine_item_in_slot(table, (uint32_t)walk->next);
        if (walk->keys && !item && engine_key_damaged(table, key))
            walk->keys[walk->damaged++] = key;
        walk_item(walk, item);
    }
    walk->done = walk->next >= end;
    walk->table_size = table->facts->size;
    return TRP_OK;
}

static void walk_set_keys(struct items_walk *walk)
{
    if (!walk->filter || walk->filter->n_keys == 0)
        return;
    walk->keys = xmemdup(walk->filter->keys, walk->filter->n_keys * sizeof *walk->keys);
    qsort(walk->keys, walk->filter->n_keys, sizeof *walk->keys, u64_compare);
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
        TRP_TRY(admin_load(walk->admin));
    while (!walk->done) {
        if (trp_call_cancelled())
            return trp_fail(TRP_CANCELLED, "nobody waits for the items any more");
        TRP_TRY(admin_enter(walk->admin, walk_slice, walk));
        if (walk->done || walk->seen_count / 2 >= walk->seen_max)
            seen_sort(walk);
    }
    return TRP_OK;
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
    Troupe__ReplayItemsResponse *reply;
};

static Troupe__ReplayItem *item_copy(const struct engine_table *table, const struct item *item)
{
    Troupe__ReplayItem *out = message_new(&troupe__replay_item__descriptor);
    out->key = item->key;
    out->priority = item->priority;
    out->times_sampled = item->times_sampled;
    out->inserted_at_ns = item->inserted_at_ns;
    out->sequence = item->seq;
    out->policy_version = item->policy_version;
    out->chunk_count = item->trajectory->chunk_count;
    out->bytes = item_chunk_bytes(item);
    out->counted_in_this_life =
        table->facts->options->max_times_sampled <= 0 && item->seq < table->found_end;
    return out;
}

static trp_status items_collect(void *arg, struct engine *engine)
{
    struct items_work *work = arg;
    const struct items_walk *walk = &work->walk;
    Troupe__ReplayItemsResponse *out = work->reply;
    struct engine_table *table;
    TRP_TRY(admin_table(engine, walk->table, &table));
    if (walk->damaged > 0 && walk->matches == 0)
        return trp_fail(TRP_DATA_LOSS, "table %s, key %llu: its item is damaged, and was taken out",
                        table->name, (unsigned long long)walk->keys[0]);
    out->damaged_keys = xmemdup(walk->keys, walk->damaged * sizeof *walk->keys);
    out->n_damaged_keys = walk->damaged;
    out->items = xcalloc(walk->seen_count + 1, sizeof *out->items);
    for (uint32_t i = work->offset; i < walk->seen_count; i++) {
        const struct item *item = seen_item(table, &walk->seen[i]);
        if (item)
            out->items[out->n_items++] = item_copy(table, item);
    }
    out->table_size = walk->table_size;
    out->order = xstrdup(orders[walk->order].words);
    out->matches = walk->matches;
    if (walk->matches) {
        out->min_priority = walk->min_priority;
        out->max_priority = walk->max_priority;
    }
    return TRP_OK;
}

trp_status admin_items(struct admin_call *call)
{
    const Troupe__ReplayItemsRequest *request = call->request;
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
    struct items_work work = {.walk = {.admin = call->admin,
                                       .table = request->table,
                                       .filter = request->filter,
                                       .order = request->order,
                                       .seen_max = (uint32_t)request->offset + count},
                              .offset = (uint32_t)request->offset,
                              .reply = call->reply};
    trp_status status = walk_run(&work.walk);
    if (status == TRP_OK)
        status = admin_enter(call->admin, items_collect, &work);
    walk_cleanup(&work.walk);
    return status;
}

/* ---- the items that a Fetch goes on with ------------------------------------------------- */

/* The items of many answers, looked for once: else a table would be walked for each of them. */
struct fetch_plan {
    struct buffer key;      /* plan_key() of the request that goes on at `next` */
    struct items_walk walk; /* that found them, of a request that is gone; counts what is to go */
    uint32_t next;          /* of walk.seen */
    Troupe__ReplayFetchRest rest; /* as much of the item at `next` as has come */
};

static void plan_destroy(struct fetch_plan *plan)
{
    if (!plan)
        return;
    buffer_cleanup(&plan->key);
    walk_cleanup(&plan->walk);
    free(plan);
}

void admin_plans_destroy(struct admin *admin)
{
    for (size_t i = 0; i < REPLAY_FETCH_PLANS; i++)
        plan_destroy(admin->plans[i]);
    trp_message_destroy(admin->part);
}

/* By this a request is known as the one behind another: all of it but the sizes. */
static struct buffer plan_key(const Troupe__ReplayFetchRequest *request, uint64_t after,
                              Troupe__ReplayFetchRest *rest)
{
    Troupe__ReplayFetchRequest key = *request;
    struct buffer bytes = {0};
    key.max_items = 0;
    key.max_bytes = 0;
    key.after = after;
    key.rest = rest && rest->sequence ? rest : NULL;
    size_t size = troupe__replay_fetch_request__get_packed_size(&key);
    bytes.size = troupe__replay_fetch_request__pack(&key, buffer_reserve(&bytes, size + 1));
    return bytes;
}

/* The plan that an earlier request left for this one, or NULL. */
static struct fetch_plan *plan_take(struct admin *admin, const Troupe__ReplayFetchRequest *request)
{
    struct fetch_plan *plan = NULL;
    struct buffer key = plan_key(request, request->after, request->rest);
    mutex_lock(&admin->mutex);
    for (size_t i = 0; i < REPLAY_FETCH_PLANS && !plan; i++) {
        struct fetch_plan *left = admin->plans[i];
        if (!left || !bytes_equal(buffer_bytes(&left->key), buffer_bytes(&key)))
            continue;
        plan = left;
        admin->plans[i] = NULL;
    }
    mutex_unlock(&admin->mutex);
    buffer_cleanup(&key);
    return plan;
}

/* Leaves it for the next request, if there is one and it is not too long to be remembered; the one
 * left longest ago makes room. */
static void plan_leave(struct admin *admin, const Troupe__ReplayFetchRequest *request,
                       struct fetch_plan *plan)
{
    bool more = plan->next < plan->walk.seen_count;
    buffer_cleanup(&plan->key);
    if (more)
        plan->key = plan_key(request, plan->walk.after, &plan->rest);
    if (!more || plan->key.size > REPLAY_FETCH_KEY_BYTES_MAX) {
        plan_destroy(plan);
        return;
    }
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

static trp_status plan_make(struct admin *admin, const Troupe__ReplayFetchRequest *request,
                            struct fetch_plan **out)
{
    struct fetch_plan *plan = xmalloc(sizeof *plan);
    *plan = (struct fetch_plan){.walk = {.admin = admin,
                                         .table = request->table,
                                         .filter = request->filter,
                                         .order = TROUPE__REPLAY_ORDER__REPLAY_ORDER_OLDEST,
                                         .after = request->after,
                                         .seen_max = REPLAY_REACH_MAX},
                                .rest = TROUPE__REPLAY_FETCH_REST__INIT};
    if (request->rest) {
        plan->rest.sequence = request->rest->sequence;
        plan->rest.chunks = request->rest->chunks;
        plan->rest.bytes = request->rest->bytes;
    }
    trp_status status = walk_run(&plan->walk);
    if (status != TRP_OK) {
        plan_destroy(plan);
        return status;
    }
    plan->walk.seen =
        xrealloc(plan->walk.seen, plan->walk.seen_count * sizeof *plan->walk.seen + 1);
    free(plan->walk.keys);
    plan->walk.keys = NULL;
    *out = plan;
    return TRP_OK;
}

/* ---- Fetch ------------------------------------------------------------------------------- */

struct fetch_work {
    struct admin_call *call;
    const Troupe__ReplayFetchRequest *request;
    Troupe__ReplayFetchResponse *reply;
    struct fetch_plan *plan;
    struct buffer part; /* of an item that comes in parts */
};

/* An entry of an answer: some of an item's chunks, and before them perhaps its info. */
struct fetch_entry {
    const struct item *item;
    uint32_t chunk_first, chunk_count;
    bool info;
    struct wire_item head; /* scratch: the info */
};

/* Appends the item's trajectory; the parts point to it, and to the slots, once all are there. */
static void entry_describe(struct fetch_entry *entry, const struct engine_table *table,
                           struct wire_entry_parts *parts, struct buffer *trajectories)
{
    const struct item *item = entry->item;
    uint32_t end = entry->chunk_first + entry->chunk_count;
    *parts = (struct wire_entry_parts){.slot_count = entry->chunk_count,
                                       .end_of_sequence = end == item->trajectory->chunk_count};
    if (!entry->info)
        return;
    entry->head = (struct wire_item){.key = item->key,
                                     .table = {(const uint8_t *)table->name, table->name_size},
                                     .priority = item->priority,
                                     .times_sampled = item->times_sampled,
                                     .inserted_at_ns = item->inserted_at_ns,
                                     .policy_version = item->policy_version};
    size_t before = trajectories->size;
    trajectory_encode(item->trajectory, item->chunks, trajectories);
    parts->item = &entry->head;
    parts->draw.table_size = table->facts->size;
    entry->head.trajectory.size = trajectories->size - before;
}

static trp_status entry_read_chunks(struct fetch_work *work, struct engine_table *table,
                                    const struct fetch_entry *entry, const struct wire_slot *slots)
{
    const struct admin *admin = work->call->admin;
    for (uint32_t i = 0; i < entry->chunk_count; i++) {
        const struct chunk *chunk = entry->item->chunks[entry->chunk_first + i];
        trp_status status = engine_chunk_read(admin->engine, chunk, slots[i].bytes);
        if (status == TRP_OK)
            continue;
        if (admin->service) /* the item goes: others may go on */
            lane_move(admin->service->lanes[table->index]);
        return engine_unreadable(table, entry->item->key, chunk->seq, status);
    }
    return TRP_OK;
}

/* A SampleStreamResponse of the entries, which the caller destroys, also on failure. */
static trp_status entries_encode(struct fetch_work *work, struct engine_table *table,
                                 struct fetch_entry *entries, uint32_t count, trp_message **message)
{
    struct wire_entry_parts *parts = xcalloc(count + 1, sizeof *parts);
    struct buffer trajectories = {0};
    size_t slot_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        entry_describe(&entries[i], table, &parts[i], &trajectories);
        slot_count += parts[i].slot_count;
    }
    struct wire_slot *slots = xcalloc(slot_count + 1, sizeof *slots), *slot = slots;
    const uint8_t *trajectory = trajectories.data;
    for (uint32_t i = 0; i < count; i++) {
        parts[i].slots = slot;
        entries[i].head.trajectory.data = trajectory;
        trajectory += entries[i].head.trajectory.size;
        for (uint32_t j = 0; j < parts[i].slot_count; j++) {
            const struct chunk *chunk = entries[i].item->chunks[entries[i].chunk_first + j];
            *slot++ = (struct wire_slot){.key = chunk->seq, .size = chunk->size};
        }
    }
    *message = NULL;
    trp_status status = wire_sample_response_encode(parts, count, message);
    for (uint32_t i = 0; i < count && status == TRP_OK; i++)
        status = entry_read_chunks(work, table, &entries[i], parts[i].slots);
    buffer_cleanup(&trajectories);
    free(slots);
    free(parts);
    return status;
}

static void fetch_passed(struct fetch_plan *plan)
{
    plan->walk.after = plan->walk.seen[plan->next++].seq;
    plan->walk.matches--;
}

/* The next items, as many as fit. */
static trp_status fetch_page(struct fetch_work *work, struct engine_table *table)
{
    struct fetch_plan *plan = work->plan;
    uint64_t wanted = work->request->max_bytes ? work->request->max_bytes : REPLAY_FETCH_BYTES;
    uint64_t bytes = 0,
             bytes_max = wanted < REPLAY_FETCH_BYTES_MAX ? wanted : REPLAY_FETCH_BYTES_MAX;
    uint32_t items_max = work->request->max_items;
    uint32_t count = 0, capacity = 0, looked = 0; /* most may have gone */
    struct fetch_entry *entries = NULL;
    if (items_max == 0 || items_max > REPLAY_ITEMS_MAX)
        items_max = REPLAY_ITEMS_MAX;
    while (plan->next < plan->walk.seen_count && looked++ < REPLAY_SLICE_SLOTS &&
           count < items_max && bytes < bytes_max) {
        const struct item *item = seen_item(table, &plan->walk.seen[plan->next]);
        uint64_t size = item ? item_chunk_bytes(item) : 0;
        if (size > REPLAY_FETCH_BYTES_MAX)
            break;
        fetch_passed(plan);
        if (!item)
            continue;
        *ARRAY_PUSH(entries, count, capacity) = (struct fetch_entry){
            .item = item, .chunk_count = item->trajectory->chunk_count, .info = true};
        bytes += size + item->trajectory->size + 64;
    }
    trp_status status = entries_encode(work, table, entries, count, &work->call->borrowed);
    free(entries);
    return status;
}

/* As much of the entry as there is room for: the item's info, which is always whole, or one chunk,
 * from where the rest begins. The same entry always has the same bytes. */
static trp_status part_append(struct fetch_work *work, struct engine_table *table,
                              struct fetch_entry entry)
{
    Troupe__ReplayFetchRest *rest = &work->plan->rest;
    struct admin *admin = work->call->admin;
    bool again = admin->part && !entry.info && admin->part_of == entry.item->seq &&
                 admin->part_chunk == entry.chunk_first;
    trp_message *message = admin->part;
    admin->part = NULL;
    if (!again)
        trp_message_destroy(message);
    trp_status status = again ? TRP_OK : entries_encode(work, table, &entry, 1, &message);
    uint64_t size = message ? trp_message_size(message) : 0;
    uint64_t from = entry.info ? 0 : rest->bytes, room = REPLAY_FETCH_BYTES_MAX - work->part.size;
    if (status == TRP_OK && from >= size)
        status = trp_fail(TRP_INVALID_ARGUMENT, "the rest of a chunk from byte %llu of %llu on",
                          (unsigned long long)from, (unsigned long long)size);
    bool whole = true;
    if (status == TRP_OK) {
        uint64_t taken = entry.info || size - from < room ? size - from : room;
        buffer_append(&work->part, (trp_bytes){trp_message_data(message) + from, taken});
        whole = from + taken == size;
        rest->bytes = whole ? 0 : from + taken;
        rest->chunks += whole && !entry.info;
    }
    if (whole) {
        trp_message_destroy(message);
        return status;
    }
    admin->part = message;
    admin->part_of = entry.item->seq;
    admin->part_chunk = entry.chunk_first;
    return TRP_OK;
}

/* A part of the next item: its beginning, or the rest of it. */
static trp_status fetch_part(struct fetch_work *work, struct engine_table *table,
                             const struct item *item)
{
    Troupe__ReplayFetchRest *rest = &work->plan->rest;
    uint32_t chunks = item->trajectory->chunk_count;
    if (rest->sequence == 0)
        TRP_TRY(part_append(work, table, (struct fetch_entry){.item = item, .info = true}));
    rest->sequence = item->seq;
    while (rest->chunks < chunks && work->part.size < REPLAY_FETCH_BYTES_MAX)
        TRP_TRY(
            part_append(work, table, (struct fetch_entry){item, rest->chunks, 1, .info = false}));
    if (rest->chunks < chunks)
        return TRP_OK;
    fetch_passed(work->plan);
    rest->sequence = rest->chunks = 0;
    return TRP_OK;
}

static void fetch_gone(struct fetch_work *work)
{
    struct fetch_plan *plan = work->plan;
    while (plan->next < plan->walk.seen_count &&
           plan->walk.seen[plan->next].seq <= plan->rest.sequence)
        fetch_passed(plan);
    plan->walk.after = plan->rest.sequence;
    plan->rest.sequence = plan->rest.chunks = plan->rest.bytes = 0;
    work->reply->gone = true;
}

static trp_status fetch_collect(void *arg, struct engine *engine)
{
    struct fetch_work *work = arg;
    struct fetch_plan *plan = work->plan;
    uint64_t rest = plan->rest.sequence; /* of this item; 0: there is none */
    struct engine_table *table;
    TRP_TRY(admin_table(engine, work->request->table, &table));
    const struct seen *next =
        plan->next < plan->walk.seen_count ? &plan->walk.seen[plan->next] : NULL;
    const struct item *item = next ? seen_item(table, next) : NULL;
    if (rest && (!item || item->seq != rest))
        fetch_gone(work);
    else if (item && (rest || item_chunk_bytes(item) > REPLAY_FETCH_BYTES_MAX))
        return fetch_part(work, table, item);
    else
        return fetch_page(work, table);
    return TRP_OK;
}

static void fetch_answer(struct fetch_work *work)
{
    Troupe__ReplayFetchResponse *out = work->reply;
    trp_message *page = work->call->borrowed;
    out->last = work->plan->walk.after;
    out->more = work->plan->walk.matches > 0;
    if (page)
        out->samples = (ProtobufCBinaryData){trp_message_size(page), trp_message_data(page)};
    else
        out->samples = (ProtobufCBinaryData){work->part.size, work->part.data};
    if (work->plan->rest.sequence) {
        out->rest = message_new(&troupe__replay_fetch_rest__descriptor);
        *out->rest = work->plan->rest;
    }
}

trp_status admin_fetch(struct admin_call *call)
{
    struct fetch_work work = {.call = call, .request = call->request, .reply = call->reply};
    work.plan = plan_take(call->admin, work.request);
    if (!work.plan)
        TRP_TRY(plan_make(call->admin, work.request, &work.plan));
    trp_status status = admin_enter(call->admin, fetch_collect, &work);
    if (status != TRP_OK) {
        buffer_cleanup(&work.part);
        plan_destroy(work.plan);
        return status;
    }
    fetch_answer(&work);
    plan_leave(call->admin, work.request, work.plan);
    return TRP_OK;
}
