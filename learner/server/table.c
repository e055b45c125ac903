#include "table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include <troupe/nn.h>
#include "core/alloc.h"
#include "optimizer_message.h"

bool server_table_name_is_one(const char *vector)
{
    size_t length = strspn(vector, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return length > 0 && length <= TABLE_NAME_BYTES_MAX && vector[length] == '\0';
}

/* ---- its life ------------------------------------------------------------------------------ */

trp_status server_table_create(struct server_table **out, const struct shard_options *options,
                               struct parts_room *parts_room,
                               const Troupe__ServerJoinRequest *request)
{
    struct server_table *table = xcalloc(1, sizeof *table);
    size_t count = (size_t)request->count;
    table_values_init(&table->values, count);
    trp_status status = shard_create(&table->shard, options, table->values.numbers, count);
    if (status != TRP_OK) {
        server_table_destroy(table);
        return status;
    }
    table->vector = xstrdup(request->vector);
    table->founder = xstrdup(request->name);
    table->layout = request->layout;
    table->first = request->first;
    table->parts_room = parts_room;
    table->workers = xcalloc(options->workers, sizeof *table->workers);
    table->keep.fd = -1;
    *out = table;
    return TRP_OK;
}

static void leave_held(struct held_values *held)
{
    values_block_leave(held->block);
    *held = (struct held_values){0};
}

void server_table_destroy(struct server_table *table)
{
    for (uint32_t i = 0; table->workers && i < table->shard.options.workers; i++) {
        shared_values_unmap(table->workers[i].gradients, table->workers[i].mapped);
        parts_room_leave(table->parts_room, &table->workers[i].staged);
        leave_held(&table->workers[i].held);
        free(table->workers[i].name);
    }
    free(table->workers);
    shard_destroy(&table->shard);
    keep_cleanup(&table->keep);
    keys_cleanup(&table->keys);
    table_values_cleanup(&table->values);
    trp_floats_destroy(table->room);
    free(table->founder);
    free(table->vector);
    free(table);
}

/* ---- what it begins with ------------------------------------------------------------------- */

static trp_status begin_with(struct param_shard *shard, const Troupe__ServerJoinRequest *request)
{
    size_t states = trp_optimizer_states(&shard->options.optimizer);
    if (request->n_states != 0 && request->n_states != states)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s joins '%s' with %zu vectors of state, %s has %zu",
                        request->name, request->vector, request->n_states,
                        trp_optimizer_name(shard->options.optimizer.kind), states);
    for (size_t k = 0; k < request->n_states; k++)
        if (request->states[k].len != shard->count * sizeof(float))
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "%s joins '%s' with %zu bytes of state for %zu numbers", request->name,
                            request->vector, request->states[k].len, shard->count);
    if (shard->count > 0)
        memcpy(shard->values, request->values.data, request->values.len);
    for (size_t k = 0; k < request->n_states && shard->count > 0; k++)
        memcpy(shard->state[k], request->states[k].data, request->states[k].len);
    shard->steps = request->optimizer_steps;
    return TRP_OK;
}

static uint64_t slowest_clock(const struct server_table *table, uint32_t *slowest)
{
    *slowest = shard_awaited(&table->shard);
    return *slowest == UINT32_MAX ? UINT64_MAX : table->shard.workers[*slowest].clock;
}

static struct shared_state state_of(const struct server_table *table)
{
    uint32_t slowest;
    return (struct shared_state){table->shard.version, slowest_clock(table, &slowest)};
}

static void begin_write(struct server_table *table)
{
    table_values_begin(&table->values);
    table->shard.values = table->values.numbers;
}

static void end_write(struct server_table *table)
{
    table_values_end(&table->values, state_of(table));
}

/* Of a run that goes on: its directory may be gone. */
static void tell_nothing_is_kept(const struct server_table *table,
                                 const Troupe__ServerJoinRequest *request)
{
    if (table->keep.checkpoint && request->optimizer_steps > 0)
        trp_log(TRP_WARN,
                "parameter server has kept nothing, and begins with what a learner has vector=%s "
                "learner=%s steps=%" PRIu64,
                table->vector, request->name, request->optimizer_steps);
}

trp_status server_table_load(struct server_table *table, const Troupe__ServerJoinRequest *request)
{
    bool found;
    TRP_TRY(keep_load(&table->keep, &table->shard, &table->steps, &found));
    if (!found) {
        tell_nothing_is_kept(table, request);
        table->steps = request->steps;
        TRP_TRY(begin_with(&table->shard, request));
        TRP_TRY(server_table_save(table, true));
    }
    return TRP_OK;
}

trp_status server_table_save(struct server_table *table, bool now)
{
    return keep_save(&table->keep, &table->shard, table->steps, now);
}

trp_status server_table_fits(const struct server_table *table,
                             const Troupe__ServerJoinRequest *request)
{
    const struct param_shard *shard = &table->shard;
    const Troupe__ServerOptimizer mine = optimizer_message(&shard->options.optimizer);
    struct optimizer_difference differs;
    if (request->workers != shard->options.workers || request->first != table->first ||
        request->count != shard->count)
        return trp_fail(
            TRP_FAILED_PRECONDITION,
            "%s joins '%s' as one of %" PRIu32 " with %" PRIu64 " numbers from %" PRIu64
            " on, %s, which came first, as one of %" PRIu32 " with %zu from %" PRIu64 " on",
            request->name, table->vector, request->workers, request->count, request->first,
            table->founder, shard->options.workers, shard->count, table->first);
    if (request->layout != table->layout)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "%s joins '%s' with other tensors in it than %s, which came first: "
                        "learners at a server have one network",
                        request->name, table->vector, table->founder);
    if (optimizer_messages_differ(request->optimizer, &mine, &differs))
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "%s joins '%s' with an optimizer whose %s is %s, that of %s, which came "
                        "first, is %s: a server steps with one",
                        request->name, table->vector, differs.field, differs.a, table->founder,
                        differs.b);
    return TRP_OK;
}

/* ---- workers ------------------------------------------------------------------------------- */

static trp_status change_presence(struct server_table *table, uint32_t worker, enum keep_kind kind)
{
    TRP_TRY(keep_append(&table->keep, kind, &(struct shard_push){.worker = worker}, false));
    begin_write(table);
    if (kind == KEEP_JOIN)
        shard_join(&table->shard, worker);
    else
        shard_leave(&table->shard, worker);
    end_write(table);
    return TRP_OK;
}

/* Whoever waits for one that comes back does so from now on, but once: it may do nothing but that.
 */
static void wait_anew(struct server_table *table, uint32_t worker)
{
    if (table->waited_ns == 0 || table->waits_anew || server_table_behind(table, worker) > 0)
        return;
    table->waited_ns = clock_now_ns(&clock_monotonic);
    table->waits_anew = true;
}

/* The range has to be in them. */
static trp_status map_gradients(const struct server_table *table,
                                struct server_table_worker *worker,
                                const Troupe__SharedParams *from)
{
    worker->mapped = shared_values_count(from->bytes);
    if (table->first > worker->mapped || table->shard.count > worker->mapped - table->first)
        return trp_fail(TRP_FAILED_PRECONDITION, "%zu numbers from %" PRIu64 " on are not in %zu",
                        table->shard.count, table->first, worker->mapped);
    return shared_values_map(&worker->gradients, from, worker->mapped);
}

trp_status server_table_join(struct server_table *table, const Troupe__ServerJoinRequest *request,
                             const Troupe__SharedParams *gradients)
{
    struct server_table_worker *worker = &table->workers[request->worker];
    if (table->shard.workers[request->worker].present)
        wait_anew(table, request->worker);
    else
        TRP_TRY(change_presence(table, request->worker, KEEP_JOIN));
    server_table_hear(table);
    free(worker->name);
    worker->name = xstrdup(request->name);
    worker->heard_ns = clock_now_ns(&clock_monotonic);
    worker->staged.number = 0; /* those before are of a life that is over */
    shared_values_unmap(worker->gradients, worker->mapped);
    worker->gradients = NULL;
    if (gradients) {
        table_values_share(&table->values, state_of(table));
        table->shard.values = table->values.numbers;
    }
    if (gradients && table->values.shared.memory &&
        map_gradients(table, worker, gradients) != TRP_OK)
        trp_log(TRP_DEBUG, "gradients are sent worker=%s reason=%s", worker->name,
                trp_last_error());
    return TRP_OK;
}

void server_table_hear(struct server_table *table)
{
    int64_t now_ns = clock_now_ns(&clock_monotonic);
    int64_t gap_ns = now_ns - table->heard_ns, last_ns = table->gap_to_ns - table->gap_from_ns;
    bool is_past = now_ns - table->gap_to_ns > last_ns; /* all have asked for something since */
    bool is_gap = table->heard_ns > 0 && gap_ns > SERVER_GAP_MS * INT64_C(1000000);
    if (is_gap && (gap_ns > last_ns || is_past)) {
        table->gap_from_ns = table->heard_ns;
        table->gap_to_ns = now_ns;
    }
    table->heard_ns = now_ns;
}

/* Of the time since then what is no silence of a worker: nobody was heard of. */
static int64_t excused_ns(const struct server_table *table, int64_t since_ns)
{
    int64_t from_ns = table->gap_from_ns > since_ns ? table->gap_from_ns : since_ns;
    return table->gap_to_ns > from_ns ? table->gap_to_ns - from_ns : 0;
}

size_t server_table_silent(const struct server_table *table, uint64_t patience_ms, uint32_t *silent)
{
    int64_t now_ns = clock_now_ns(&clock_monotonic);
    size_t count = 0;
    for (uint32_t i = 0; patience_ms > 0 && i < table->shard.options.workers; i++) {
        const struct server_table_worker *worker = &table->workers[i];
        int64_t silent_ns = now_ns - worker->heard_ns - excused_ns(table, worker->heard_ns);
        if (worker->name && worker->waits == 0 && silent_ns > 0 &&
            (uint64_t)silent_ns / 1000000 > patience_ms)
            silent[count++] = i;
    }
    return count;
}

uint64_t server_table_behind(const struct server_table *table, uint32_t worker)
{
    uint32_t slowest;
    uint64_t least = slowest_clock(table, &slowest), clock = table->shard.workers[worker].clock;
    return clock > least ? clock - least : 0;
}

void server_table_note_read(struct server_table *table, uint64_t behind)
{
    if (behind > table->most_behind)
        table->most_behind = behind;
}

trp_status server_table_lose_silent(struct server_table *table,
                                    const Troupe__ServerPullRequest *request,
                                    struct deadline *until)
{
    uint32_t slowest;
    uint64_t least = slowest_clock(table, &slowest);
    int64_t now_ns = clock_now_ns(&clock_monotonic);
    int64_t patience_ns =
        request->patience_ms < INT32_MAX ? (int64_t)request->patience_ms * 1000000 : INT64_MAX / 2;
    server_table_hear(table);
    if (table->waited_ns == 0 || table->waited_clock != least) {
        table->waited_ns = now_ns;
        table->waited_clock = least;
        table->waits_anew = false;
    }
    *until =
        (struct deadline){table->waited_ns + excused_ns(table, table->waited_ns) + patience_ns};
    if (slowest == UINT32_MAX || now_ns < until->at_ns)
        return TRP_OK;
    const char *name = table->workers[slowest].name ? table->workers[slowest].name : "a learner";
    if (!request->goes_on)
        return trp_fail(TRP_ABORTED,
                        "%s (number %" PRIu32 ") has not pushed to '%s' for %" PRIu64
                        " ms, after %" PRIu64 " times, and %s waits for it",
                        name, slowest, table->vector, request->patience_ms, least,
                        table->workers[request->worker].name);
    trp_log(TRP_WARN,
            "parameter server goes on without learner=%s number=%" PRIu32
            " vector=%s pushes=%" PRIu64,
            name, slowest, table->vector, least);
    table->waited_ns = 0;
    return change_presence(table, slowest, KEEP_LEAVE);
}

/* ---- numbers ------------------------------------------------------------------------------- */

trp_status server_table_push(struct server_table *table, const struct shard_push *push,
                             uint64_t new_steps, enum shard_answer *answer)
{
    const struct shard_worker before = table->shard.workers[push->worker];
    if (!before.present)
        TRP_TRY(change_presence(table, push->worker, KEEP_JOIN));
    *answer = shard_judge(&table->shard, push);
    bool is_new = push->sequence >= before.clock && push->range_count > 0;
    if (!before.present && is_new && *answer == SHARD_REPEATED)
        trp_log(TRP_WARN,
                "learner is back: the gradient that others did not wait for counts for nothing "
                "learner=%s vector=%s",
                table->workers[push->worker].name, table->vector);
    bool takes = *answer == SHARD_TAKEN || *answer == SHARD_DROPPED;
    if (takes)
        TRP_TRY(keep_append(&table->keep, KEEP_PUSH, push, new_steps));
    begin_write(table);
    *answer = shard_push(&table->shard, push);
    end_write(table);
    if (!takes)
        return TRP_OK;
    bool harmed = push->moves && atomic_load(&table->shard.harmed);
    table->steps += new_steps;
    table->waited_ns = 0;
    table->workers[push->worker].heard_ns = clock_now_ns(&clock_monotonic);
    if (server_table_save(table, false) != TRP_OK) /* the push is done and kept all the same */
        trp_log(TRP_WARN, "parameter server has no new checkpoint vector=%s reason=%s",
                table->vector, trp_last_error());
    if (harmed)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s pushed a gradient of '%s' that is not finite, for version %" PRIu64
                        ": where it is not it counted as 0",
                        table->workers[push->worker].name, table->vector, push->version);
    return TRP_OK;
}

static void gather_ranges(const float *from, const struct key_list *list, float *to)
{
    for (size_t i = 0; i < list->count; i++) {
        size_t numbers = list->ranges[i].hi - list->ranges[i].lo;
        memcpy(to, from + list->ranges[i].lo, numbers * sizeof(float));
        to += numbers;
    }
}

static ProtobufCBinaryData numbers_of(float *from, const struct key_list *list, float **room)
{
    ProtobufCBinaryData bytes = {.len = list->numbers * sizeof(float)};
    if (list->count > 1) {
        gather_ranges(from, list, *room);
        from = *room;
        *room += list->numbers;
    } else if (list->count == 1) {
        from += list->ranges[0].lo;
    }
    bytes.data = (uint8_t *)from;
    return bytes;
}

trp_status server_table_copy_out(struct server_table *table, const struct key_list *list,
                                 const Troupe__ServerPullRequest *request,
                                 Troupe__ServerPullReply *reply, struct server_table_copy *copy)
{
    const struct param_shard *shard = &table->shard;
    size_t states = request->states ? trp_optimizer_states(&shard->options.optimizer) : 0;
    if (list->count > 1) {
        copy->gathered = malloc((states + 1) * list->numbers * sizeof(float));
        if (!copy->gathered)
            return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for %zu numbers of '%s'",
                            (states + 1) * list->numbers, table->vector);
    }
    float *room = copy->gathered;
    if (!request->in_memory) {
        reply->values = numbers_of(shard->values, list, &room);
        table_values_lend(&table->values);
    }
    for (size_t k = 0; k < states; k++)
        copy->states[k] = numbers_of(shard->state[k], list, &room);
    reply->states = states > 0 ? copy->states : NULL;
    reply->n_states = states;
    return TRP_OK;
}

/* Of pulls that go on no more: their values are in nobody's way. */
static void leave_silent(struct server_table *table, int64_t now_ns)
{
    for (uint32_t i = 0; i < table->shard.options.workers; i++) {
        struct held_values *held = &table->workers[i].held;
        if (held->block && now_ns - held->heard_ns > (int64_t)STAGED_SILENCE_MS * 1000000)
            leave_held(held);
    }
}

static void begin_parts(struct server_table *table, struct held_values *held, uint64_t number,
                        size_t bytes, int64_t now_ns)
{
    leave_held(held);
    leave_silent(table, now_ns);
    *held = (struct held_values){.number = number,
                                 .block = table_values_hold(&table->values),
                                 .version = table->shard.version,
                                 .optimizer_steps = table->shard.steps,
                                 .left = bytes};
}

void server_table_part_out(struct server_table *table, const struct key_list *list,
                           const Troupe__ServerPullRequest *request, Troupe__ServerPullReply *reply)
{
    struct held_values *held = &table->workers[request->worker].held;
    uint64_t from = request->part_from, size = request->part_bytes;
    uint64_t of = list->numbers * sizeof(float);
    int64_t now_ns = clock_now_ns(&clock_monotonic);
    if (list->count != 1 || from % sizeof(float) != 0 || from > of || size > of - from)
        return;
    if (!held->block || held->number != request->parts)
        begin_parts(table, held, request->parts, of, now_ns);
    if (!held->block)
        return;
    const float *numbers = values_block_numbers(held->block) + list->ranges[0].lo;
    reply->version = held->version;
    reply->optimizer_steps = held->optimizer_steps;
    reply->values =
        (ProtobufCBinaryData){size, (uint8_t *)(uintptr_t)(numbers + from / sizeof(float))};
    values_block_lend(held->block, table->shard.count);
    held->heard_ns = now_ns;
    held->left -= size < held->left ? size : held->left;
    if (held->left == 0)
        leave_held(held); /* those that are on their way keep it */
}
