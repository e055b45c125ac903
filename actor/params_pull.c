/* Parameters that silently stop changing are worse than a failure. So a call that fails is tried
 * again until it worked or give_up_ms passed, the first failure is logged, and the last one is
 * returned.
 *
 * Parameters go from where they were received to where they stay, once, and are looked at for
 * numbers that are none while they are in the cache. Those that are too many for one reply come in
 * parts, of which a few are under way at a time, so that nobody waits for the others' copies. */
#include "params_pull.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include <troupe/rpc.h>
#include "core/bfloat16.h"
#include "core/clock.h"
#include "core/finite.h"
#include "core/status.h"
#include "core/thread.h"
#include "limits.h"
#include "rpc/call_ring.h"

void params_reply_free(Troupe__PullReply *reply)
{
    if (reply)
        protobuf_c_message_free_unpacked(&reply->base, NULL);
}

/* So long, or until `deadline`, but at least a millisecond: 0 would mean something else. */
static int64_t at_most_ms(int64_t ms, struct deadline deadline)
{
    int64_t left_ms = deadline_left_ms(deadline, &clock_monotonic);
    if (left_ms < 0 || left_ms > ms)
        return ms;
    return left_ms > 0 ? left_ms : 1;
}

static trp_status pull_once(const struct params_line *line, const Troupe__PullRequest *request,
                            struct deadline deadline, trp_reply_room *place,
                            Troupe__PullReply **reply)
{
    ProtobufCMessage *message = NULL;
    trp_status status =
        trp_call(line->service, "Pull", &request->base, &message,
                 &(trp_call_options){.timeout_ms = at_most_ms(line->timeout_ms, deadline),
                                     .cancel = line->stop,
                                     .room = place});
    *reply = (Troupe__PullReply *)message;
    return status;
}

void params_pause(const struct params_line *line, uint32_t failures, struct deadline deadline)
{
    if (turns_active())
        turns_pass();
    else
        trp_stop_wait(line->stop,
                      at_most_ms(PARAMS_RETRY_MS << (failures < 6 ? failures : 6), deadline));
}

static trp_status pull_with_retries(const struct params_line *line,
                                    const Troupe__PullRequest *request, struct deadline deadline,
                                    trp_reply_room *place, Troupe__PullReply **reply,
                                    int64_t *asked_ns)
{
    struct deadline give_up =
        deadline_earlier(deadline, deadline_in_ms(&clock_monotonic, line->give_up_ms));
    for (uint32_t failures = 0;; failures++) {
        if (trp_stop_requested(line->stop))
            return trp_fail(TRP_CANCELLED, "pull of parameters: stop");
        *asked_ns = clock_now_ns(&clock_monotonic);
        trp_status status = pull_once(line, request, deadline, place, reply);
        if (status == TRP_OK && failures > 0)
            trp_log(TRP_INFO, "parameters pulled again after_failures=%" PRIu32, failures);
        if (!status_is_transient(status) || deadline_passed(give_up, &clock_monotonic))
            return status;
        if (failures == 0)
            trp_log(TRP_WARN, "pull of parameters failed, retrying version=%" PRIu64 " reason=%s",
                    request->version, trp_last_error());
        params_pause(line, failures, give_up);
    }
}

/* ---- where they come to lie ------------------------------------------------------------------ */

/* A version as it comes in. Halves lie in the second half of the room, and from there become floats
 * from the first one on: those that are not read yet are always behind what is written. */
struct arriving {
    struct params_room *room;
    uint64_t version;
    bool halves;
    size_t size, have; /* bytes as they travel */
};

static size_t unit_of(bool halves)
{
    return halves ? sizeof(uint16_t) : sizeof(float);
}

/* Of byte `at` of those that travel. */
static uint8_t *arriving_place(const struct arriving *load, size_t at)
{
    uint8_t *numbers = (uint8_t *)load->room->numbers;
    return numbers + (load->halves ? load->size : 0) + at;
}

/* `size` bytes more of the load are at their place. */
static void take_bytes(struct arriving *load, size_t size)
{
    enum { BLOCK = 4096 };
    uint16_t halves[BLOCK];
    size_t unit = unit_of(load->halves), end = (load->have + size) / unit;
    for (size_t at = load->have / unit; at < end; at += BLOCK) {
        size_t count = end - at < BLOCK ? end - at : BLOCK;
        float *to = load->room->numbers + at;
        if (load->halves)
            memcpy(halves, arriving_place(load, at * unit), count * sizeof *halves);
        for (size_t i = 0; load->halves && i < count; i++)
            to[i] = bf16_float(halves[i]);
        load->room->finite = floats_are_finite(to, count) && load->room->finite;
    }
    load->have += size;
}

static trp_status data_loss(uint64_t version, size_t bytes, size_t count)
{
    return trp_fail(TRP_DATA_LOSS, "parameters of version %" PRIu64 " are %zu bytes, expected %zu",
                    version, bytes, count * sizeof(float));
}

/* In a room of the size that the reply speaks of; bytes of it may lie there already. */
static trp_status load_begin(struct arriving *load, struct params_room *room,
                             const Troupe__PullReply *reply, size_t size)
{
    bool halves = reply->precision == TROUPE__PRECISION__BFLOAT16;
    size_t count = size / unit_of(halves);
    if (count == 0 || size % unit_of(halves) != 0 || (room->count > 0 && room->count != count))
        return data_loss(reply->version, size, room->count);
    if (!room->numbers && count <= SIZE_MAX / sizeof(float))
        room->numbers = malloc(count * sizeof(float));
    if (!room->numbers)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for %zu parameters", count);
    room->count = count;
    room->finite = true;
    *load = (struct arriving){
        .room = room, .version = reply->version, .halves = halves, .size = size, .have = 0};
    return TRP_OK;
}

/* ---- versions in parts ----------------------------------------------------------------------- */

/* The rest of a load is asked for in parts as large as the first one. */
struct parts {
    const struct params_line *line;
    Troupe__PullRequest *request;
    struct deadline deadline;
    struct arriving load;
    size_t part_bytes, asked; /* from which byte on none is asked for yet */
    bool one_by_one;
    struct call_ring ring;
};

static trp_reply_room place_for(const struct parts *parts, size_t at)
{
    size_t left = parts->load.size - at;
    return (trp_reply_room){.field = "params",
                            .bytes = arriving_place(&parts->load, at),
                            .size = left < parts->part_bytes ? left : parts->part_bytes};
}

/* With the last part the learner thinks the others are here, too. */
static bool may_ask(const struct parts *parts)
{
    size_t left = parts->load.size - parts->asked;
    return left > 0 && call_ring_has_room(&parts->ring) &&
           (left > parts->part_bytes || parts->ring.count == 0);
}

static void ask_for_part(struct parts *parts)
{
    trp_reply_room place = place_for(parts, parts->asked);
    parts->request->rest_from = parts->asked;
    parts->asked += place.size;
    call_ring_ask(
        &parts->ring, parts->line->service, "Pull", &parts->request->base,
        &(trp_call_options){.timeout_ms = at_most_ms(parts->line->timeout_ms, parts->deadline),
                            .cancel = parts->line->stop,
                            .room = &place});
}

/* Those under way, which nobody wants any more. */
static void drop_parts(struct parts *parts)
{
    call_ring_drop(&parts->ring);
    parts->asked = parts->load.have;
}

/* One part by itself, which is tried again. */
static trp_status next_part_alone(struct parts *parts, trp_reply_room *place,
                                  Troupe__PullReply **reply, int64_t *asked_ns)
{
    *place = place_for(parts, parts->load.have);
    parts->request->rest_from = parts->load.have;
    parts->asked = parts->load.have + place->size;
    return pull_with_retries(parts->line, parts->request, parts->deadline, place, reply, asked_ns);
}

static trp_status next_part(struct parts *parts, trp_reply_room *place, Troupe__PullReply **reply,
                            int64_t *asked_ns)
{
    if (parts->one_by_one)
        return next_part_alone(parts, place, reply, asked_ns);
    while (may_ask(parts))
        ask_for_part(parts);
    struct ring_call part;
    ProtobufCMessage *message = NULL;
    trp_status status = call_ring_take(&parts->ring, parts->line->stop, &part, &message);
    *asked_ns = part.asked_ns;
    *place = part.room;
    *reply = (Troupe__PullReply *)message;
    if (!status_is_transient(status))
        return status;
    drop_parts(parts);
    return next_part_alone(parts, place, reply, asked_ns);
}

static bool is_rest(const struct arriving *load, const Troupe__PullReply *reply)
{
    return reply->version == load->version && reply->params_bytes == load->size &&
           (reply->precision == TROUPE__PRECISION__BFLOAT16) == load->halves &&
           reply->params_from > 0;
}

/* Those of a reply: in it, or in the room, though perhaps where others were expected. */
static size_t bytes_given(const Troupe__PullReply *reply, const trp_reply_room *place)
{
    return place->given > 0 ? place->given : reply->params.len;
}

static void take_given(struct arriving *load, const Troupe__PullReply *reply,
                       const trp_reply_room *place)
{
    size_t size = bytes_given(reply, place);
    uint8_t *to = arriving_place(load, load->have);
    if (place->given == 0)
        memcpy(to, reply->params.data, size);
    else if (place->bytes != to)
        memmove(to, place->bytes, size);
    take_bytes(load, size);
}

static trp_status add_part(struct arriving *load, const Troupe__PullReply *reply,
                           const trp_reply_room *place)
{
    size_t size = bytes_given(reply, place);
    if (reply->params_from != load->have || size == 0 || size > load->size - load->have ||
        size % unit_of(load->halves) != 0)
        return trp_fail(TRP_DATA_LOSS,
                        "parameters of version %" PRIu64 ": a part of %zu bytes from byte %" PRIu64
                        " on, expected one from byte %zu on, of %zu",
                        load->version, size, reply->params_from, load->have, load->size);
    take_given(load, reply, place);
    return TRP_OK;
}

/* Until all of the load is there, or a reply has something else. */
static trp_status pull_parts(struct parts *parts, trp_reply_room *place, Troupe__PullReply **reply,
                             int64_t *asked_ns)
{
    struct arriving *load = &parts->load;
    while (load->have < load->size) {
        int64_t part_asked_ns;
        params_reply_free(*reply);
        *reply = NULL;
        TRP_TRY(next_part(parts, place, reply, &part_asked_ns));
        if (!is_rest(load, *reply)) {
            *asked_ns = part_asked_ns;
            return TRP_OK;
        }
        TRP_TRY(add_part(load, *reply, place));
    }
    load->room->filled = true;
    (*reply)->params_bytes = 0;
    return TRP_OK;
}

/* `*reply` has the first part of a version. The last one takes its place; or, where the learner
 * does not have that version any more, the one that says so. */
static trp_status pull_rest(const struct params_line *line, Troupe__PullRequest *request,
                            struct deadline deadline, struct params_room *room,
                            trp_reply_room *place, Troupe__PullReply **reply, int64_t *asked_ns)
{
    struct parts parts = {.line = line, .request = request, .deadline = deadline};
    TRP_TRY(load_begin(&parts.load, room, *reply, (size_t)(*reply)->params_bytes));
    TRP_TRY(add_part(&parts.load, *reply, place));
    parts.part_bytes = parts.asked = parts.load.have;
    parts.one_by_one = !trp_service_is_remote(line->service);
    request->rest_of = parts.load.version;
    trp_status status = pull_parts(&parts, place, reply, asked_ns);
    drop_parts(&parts);
    return status;
}

/* ---- one question ---------------------------------------------------------------------------- */

/* For the first bytes of what is asked for. */
static trp_reply_room first_place(const struct params_room *room,
                                  const Troupe__PullRequest *request)
{
    bool halves = request->precision == TROUPE__PRECISION__BFLOAT16;
    size_t size = room->numbers ? room->count * unit_of(halves) : 0;
    return (trp_reply_room){
        .field = "params", .bytes = (uint8_t *)room->numbers + (halves ? size : 0), .size = size};
}

/* All of them came at once. */
static trp_status take_whole(struct params_room *room, const Troupe__PullReply *reply,
                             const trp_reply_room *place)
{
    struct arriving load;
    TRP_TRY(load_begin(&load, room, reply, bytes_given(reply, place)));
    take_given(&load, reply, place);
    room->filled = true;
    return TRP_OK;
}

trp_status params_pull(const struct params_line *line, Troupe__PullRequest *request,
                       struct deadline deadline, struct params_room *room,
                       Troupe__PullReply **reply, int64_t *asked_ns)
{
    struct deadline give_up = deadline_in_ms(&clock_monotonic, line->give_up_ms);
    trp_reply_room place = first_place(room, request);
    TRP_TRY(pull_with_retries(line, request, deadline, &place, reply, asked_ns));
    while ((*reply)->params_bytes > 0 && (*reply)->version > request->version) {
        uint64_t version = (*reply)->version;
        TRP_TRY(pull_rest(line, request, deadline, room, &place, reply, asked_ns));
        if ((*reply)->params_bytes > 0 && deadline_passed(give_up, &clock_monotonic))
            return trp_fail(TRP_UNAVAILABLE,
                            "version %" PRIu64 " of the parameters was gone before all of it came, "
                            "and so were those before it for %" PRId64 " ms",
                            version, line->give_up_ms);
    }
    if (!room->filled && (*reply)->version > request->version && bytes_given(*reply, &place) > 0)
        return take_whole(room, *reply, &place);
    return TRP_OK;
}
