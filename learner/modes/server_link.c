#include "server_link.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/log.h>
#include <troupe/rng.h>
#include <troupe/rpc.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/status.h"
#include "core/thread.h"
#include "learner/server/optimizer_message.h"
#include "limits.h"
#include "parameter_server.pb-c.h"
#include "rpc/call_ring.h"
#include "rpc/shared_params.h"

static ProtobufCService *service_of(const struct server_link *link)
{
    return link->links->servers->services[link->server];
}

/* ---- calls --------------------------------------------------------------------------------- */

static void pause_before_retry(const struct server_link *link, uint32_t failures)
{
    const struct learners_options *group = link->links->group;
    int64_t ms = SERVER_RETRY_MS << (failures < 4 ? failures : 4);
    bool heeds = group->stop && !trp_stop_requested(group->stop);
    trp_stop *stop = heeds ? group->stop : trp_stop_create(); /* who stops has to reach it, too */
    trp_stop_wait(stop, ms);
    if (!heeds)
        trp_stop_destroy(stop);
    turns_pass();
}

static uint32_t timeout_of(const struct server_link *link)
{
    uint32_t timeout_ms = link->links->group->timeout_ms;
    return timeout_ms ? timeout_ms : SERVER_TIMEOUT_MS;
}

/* A gradient that is sent in parts. */
struct push_parts {
    Troupe__ServerPushRequest request; /* the next part's */
    ProtobufCBinaryData all;
    struct deadline deadline;
    struct call_ring ring;
    size_t at; /* of all bytes, the first that were not sent */
};

/* At least a millisecond: 0 would mean something else. */
static int64_t time_left_ms(struct deadline deadline)
{
    int64_t left_ms = deadline_left_ms(deadline, &clock_monotonic);
    return left_ms > 0 ? left_ms : 1;
}

static void send_push_part(const struct server_link *link, struct push_parts *parts)
{
    size_t left = parts->all.len - parts->at;
    size_t size = left < SERVER_PART_BYTES ? left : SERVER_PART_BYTES;
    parts->request.part_from = parts->at;
    parts->request.gradients = (ProtobufCBinaryData){size, parts->all.data + parts->at};
    parts->at += size;
    call_ring_ask(&parts->ring, service_of(link), "Push", &parts->request.base,
                  &(trp_call_options){.timeout_ms = time_left_ms(parts->deadline)});
}

/* *reply: to the part that was the server's last one; NULL: none was. */
static trp_status send_push_parts(const struct server_link *link, struct push_parts *parts,
                                  ProtobufCMessage **reply)
{
    trp_status status = TRP_OK;
    while (status == TRP_OK && (parts->at < parts->all.len || parts->ring.count > 0)) {
        ProtobufCMessage *answer = NULL;
        while (parts->at < parts->all.len && call_ring_has_room(&parts->ring))
            send_push_part(link, parts);
        status = call_ring_take(&parts->ring, NULL, NULL, &answer);
        if (answer && ((Troupe__ServerPushReply *)answer)->part) {
            protobuf_c_message_free_unpacked(answer, NULL);
        } else if (answer) {
            protobuf_c_message_free_unpacked(*reply, NULL);
            *reply = answer;
        }
    }
    call_ring_drop(&parts->ring);
    return status;
}

static trp_status push_in_parts(const struct server_link *link,
                                const Troupe__ServerPushRequest *request, struct deadline deadline,
                                ProtobufCMessage **reply)
{
    struct push_parts parts = {
        .request = *request, .all = request->gradients, .deadline = deadline};
    parts.request.part_of = parts.all.len;
    parts.request.parts = trp_rng_entropy() | 1;
    *reply = NULL;
    trp_status status = send_push_parts(link, &parts, reply);
    if (status == TRP_OK && !*reply) /* those of a try before came among them */
        return trp_fail(TRP_UNAVAILABLE, "the parts of a push did not become one");
    if (status == TRP_OK)
        return TRP_OK;
    protobuf_c_message_free_unpacked(*reply, NULL);
    *reply = NULL;
    return status;
}

static bool push_goes_in_parts(const struct server_link *link, const ProtobufCMessage *request)
{
    const Troupe__ServerPushRequest *push = (const Troupe__ServerPushRequest *)request;
    return request->descriptor == &troupe__server_push_request__descriptor &&
           push->compression[0] == '\0' && push->gradients.len > SERVER_PART_BYTES &&
           trp_service_is_remote(service_of(link));
}

/* Values that are asked for in parts. */
struct pull_parts {
    Troupe__ServerPullRequest request; /* the next part's */
    const trp_reply_room *all;
    struct deadline deadline;
    struct call_ring ring;
    size_t at; /* of all bytes, the first that were not asked for */
};

static void ask_pull_part(const struct server_link *link, struct pull_parts *parts)
{
    size_t left = parts->all->size - parts->at;
    size_t size = left < SERVER_PART_BYTES ? left : SERVER_PART_BYTES;
    trp_reply_room room = {.field = parts->all->field,
                           .bytes = (uint8_t *)parts->all->bytes + parts->at,
                           .size = size};
    parts->request.part_from = parts->at;
    parts->request.part_bytes = size;
    parts->at += size;
    call_ring_ask(&parts->ring, service_of(link), "Pull", &parts->request.base,
                  &(trp_call_options){.timeout_ms = time_left_ms(parts->deadline), .room = &room});
}

/* Whether it is a part of what the first one is of. Short ones come beside their room. */
static bool take_pull_part(const trp_reply_room *room, const Troupe__ServerPullReply *part,
                           const Troupe__ServerPullReply *first)
{
    if (part->values.len == room->size)
        memcpy(room->bytes, part->values.data, room->size);
    return part->values.len + room->given == room->size && part->version == first->version;
}

/* *reply: the first part's; NULL: there are none, or not of one version. */
static trp_status ask_pull_parts(const struct server_link *link, struct pull_parts *parts,
                                 ProtobufCMessage **reply)
{
    trp_status status = TRP_OK;
    bool fits = true;
    *reply = NULL;
    while (status == TRP_OK && fits && (parts->at < parts->all->size || parts->ring.count > 0)) {
        ProtobufCMessage *part = NULL;
        struct ring_call call;
        while (parts->at < parts->all->size && call_ring_has_room(&parts->ring))
            ask_pull_part(link, parts);
        status = call_ring_take(&parts->ring, NULL, &call, &part);
        if (status != TRP_OK)
            break;
        fits = take_pull_part(&call.room, (Troupe__ServerPullReply *)part,
                              (Troupe__ServerPullReply *)(*reply ? *reply : part));
        if (*reply)
            protobuf_c_message_free_unpacked(part, NULL);
        else
            *reply = part;
    }
    call_ring_drop(&parts->ring);
    if (status == TRP_OK && fits)
        return TRP_OK;
    protobuf_c_message_free_unpacked(*reply, NULL);
    *reply = NULL;
    return status;
}

/* Where that cannot be it is one call, as it is where the worker has to wait for others, too: one
 * of the server's threads waits with it. */
static trp_status pull_in_parts(const struct server_link *link,
                                const Troupe__ServerPullRequest *request, struct deadline deadline,
                                trp_reply_room *room, ProtobufCMessage **reply)
{
    struct pull_parts parts = {.request = *request, .all = room, .deadline = deadline};
    parts.request.wait_ms = 0;
    parts.request.parts = trp_rng_entropy() | 1;
    TRP_TRY(ask_pull_parts(link, &parts, reply));
    if (!*reply)
        return trp_call(service_of(link), "Pull", &request->base, reply,
                        &(trp_call_options){.timeout_ms = time_left_ms(deadline), .room = room});
    room->given = room->size;
    return TRP_OK;
}

static bool pull_goes_in_parts(const struct server_link *link, const ProtobufCMessage *request,
                               const trp_reply_room *room)
{
    const Troupe__ServerPullRequest *pull = (const Troupe__ServerPullRequest *)request;
    return request->descriptor == &troupe__server_pull_request__descriptor && room &&
           !pull->in_memory && !pull->states && link->may_read && room->size > SERVER_PART_BYTES &&
           trp_service_is_remote(service_of(link));
}

static trp_status call_once(const struct server_link *link, const char *method,
                            const ProtobufCMessage *request, struct deadline deadline,
                            trp_reply_room *room, ProtobufCMessage **reply)
{
    if (push_goes_in_parts(link, request))
        return push_in_parts(link, (const Troupe__ServerPushRequest *)request, deadline, reply);
    if (pull_goes_in_parts(link, request, room))
        return pull_in_parts(link, (const Troupe__ServerPullRequest *)request, deadline, room,
                             reply);
    return trp_call(service_of(link), method, request, reply,
                    &(trp_call_options){.timeout_ms = time_left_ms(deadline), .room = room});
}

/* Of one call. */
struct tries {
    struct deadline until;
    uint32_t failures;
    bool last;                        /* the time is over, and it is asked once more */
    bool missed;                      /* whoever watches servers was told */
    bool had_time;                    /* the one that failed */
    char no_room[SERVER_WORDS_BYTES]; /* what it answered since one failed that had; "": nothing */
};

/* In trp_last_error(), if it is. */
static bool server_is_gone(const struct server_link *link)
{
    char how[SERVER_WORDS_BYTES];
    const trp_server_watch *watch = &link->links->servers->watch;
    if (!watch->is_gone || !watch->is_gone(watch->watcher, link->server, how, sizeof how))
        return false;
    trp_fail(TRP_UNAVAILABLE, "it is gone: %s", how);
    return true;
}

static void miss_server(const struct server_link *link)
{
    const trp_server_watch *watch = &link->links->servers->watch;
    char *why =
        xasprintf("it has not answered %s for %g s", link->links->learner, timeout_of(link) / 1e3);
    watch->miss(watch->watcher, link->server, why);
    free(why);
}

/* Whoever watches servers would start one again that does not answer. */
static bool can_be_missed(const struct server_link *link, const struct tries *tries)
{
    return link->links->servers->watch.miss && !tries->missed && tries->no_room[0] == '\0' &&
           !trp_stop_requested(link->links->group->stop);
}

/* Whether there is more time: for one last try, as this process may have been suspended together
 * with the server; and then once more, for a server that is started again. */
static bool take_more_time(const struct server_link *link, struct tries *tries)
{
    uint32_t timeout_ms = timeout_of(link);
    if (!tries->last) {
        tries->last = true;
        tries->until = deadline_in_ms(&clock_monotonic, SERVER_LAST_TRY_MS);
        return true;
    }
    if (!can_be_missed(link, tries))
        return false;
    miss_server(link);
    tries->missed = true;
    tries->last = false;
    tries->until = deadline_in_ms(&clock_monotonic, timeout_ms);
    return true;
}

/* Whether a call that failed may be tried again. */
static bool may_try_again(const struct server_link *link, trp_status status, struct tries *tries)
{
    bool is_away = status_is_transient(status);
    if (!is_away && status != TRP_RESOURCE_EXHAUSTED)
        return false;
    if (is_away && tries->had_time)
        tries->no_room[0] = '\0';
    if (!is_away)
        snprintf(tries->no_room, sizeof tries->no_room, "%s", trp_last_error());
    if (tries->failures++ == 0)
        trp_log(TRP_WARN, "parameter server %s server=%s/%" PRIu32 " reason=%s",
                is_away ? "is away" : "has no room", link->links->servers->name, link->server,
                trp_last_error());
    return !deadline_passed(tries->until, &clock_monotonic) ||
           (is_away && take_more_time(link, tries));
}

static trp_status call_failed(const struct server_link *link, const char *method, trp_status status,
                              const char *how)
{
    return trp_fail(status, "%s of '%s' at %s/%" PRIu32 "%s: %s", method, link->vector->spec->name,
                    link->links->servers->name, link->server, how, trp_last_error());
}

/* A server that is started again answers before long; one whose disk is full may have room then. */
static trp_status call_server(const struct server_link *link, const char *method,
                              const ProtobufCMessage *request, trp_reply_room *room,
                              ProtobufCMessage **reply)
{
    struct tries tries = {.until = deadline_in_ms(&clock_monotonic, timeout_of(link))};
    trp_status status;
    for (;;) {
        tries.had_time = time_left_ms(tries.until) > SERVER_LAST_TRY_MS / 2;
        status = call_once(link, method, request, tries.until, room, reply);
        if (status == TRP_OK)
            break;
        if (status_is_transient(status) && server_is_gone(link))
            return call_failed(link, method, status, "");
        if (!may_try_again(link, status, &tries))
            break;
        pause_before_retry(link, tries.failures - 1);
    }
    if (status == TRP_OK && tries.failures > 0)
        trp_log(TRP_INFO, "parameter server is there server=%s/%" PRIu32,
                link->links->servers->name, link->server);
    if (status_is_transient(status) && tries.no_room[0] == '\0')
        return call_failed(link, method, status, ", which did not answer in time");
    if (status_is_transient(status)) /* the last try had no time */
        status = trp_fail(TRP_RESOURCE_EXHAUSTED, "%s", tries.no_room);
    return status == TRP_OK ? TRP_OK : call_failed(link, method, status, "");
}

/* A server may wait for each of the others for the timeout, once more for one that comes back
 * meanwhile, and for as many as may push `slack` times meanwhile, of which each begins the wait
 * anew. One timeout is for a server that is started again meanwhile, and one for calls. */
static int64_t longest_turn_ms(const struct server_link *link)
{
    const trp_learner_servers *servers = link->links->servers;
    int64_t others = servers->workers > 1 ? (int64_t)servers->workers - 1 : 0;
    int64_t slack = servers->options.rule == TRP_SERVER_SSP ? servers->options.slack : 0;
    int64_t again = others > 1 ? (others - 1) * slack : 0;
    return (2 + 2 * (others + again)) * timeout_of(link);
}

/* How often a server said "not yet", and for how long. */
struct patience {
    int64_t since_ns, waited_ms; /* of the turn that goes on; of those before */
    uint32_t turns;
};

static struct patience patience_begin(void)
{
    return (struct patience){.since_ns = clock_now_ns(&clock_monotonic)};
}

/* What is above a timeout was spent at a server that hung, or suspended. */
static void add_turn(const struct server_link *link, struct patience *patience)
{
    int64_t now_ns = clock_now_ns(&clock_monotonic), most_ms = timeout_of(link);
    int64_t turn_ms = (now_ns - patience->since_ns) / 1000000;
    patience->waited_ms += turn_ms < most_ms ? turn_ms : most_ms;
    patience->since_ns = now_ns;
    patience->turns++;
}

/* Whether a server that says "not yet" may say so once more. It waits before it says so: one that
 * does not is not asked as fast as it answers. */
static trp_status wait_for_turn(const struct server_link *link, const char *method,
                                struct patience *patience)
{
    add_turn(link, patience);
    if (patience->waited_ms < longest_turn_ms(link)) {
        if (patience->turns > SERVER_TURNS_AT_ONCE)
            pause_before_retry(link, 0);
        return TRP_OK;
    }
    return trp_fail(TRP_DEADLINE_EXCEEDED,
                    "%s of '%s' at %s/%" PRIu32 ": it has had %s wait for %g s, which is longer "
                    "than it may wait for all others",
                    method, link->vector->spec->name, link->links->servers->name, link->server,
                    link->links->learner, (double)longest_turn_ms(link) / 1e3);
}

/* ---- joining ------------------------------------------------------------------------------- */

static void leave_memory(struct server_link *link)
{
    shared_values_unmap(link->values, link->hi - link->lo);
    link->values = NULL;
    link->maps = false;
}

static void offer_memory(const struct server_link *link, Troupe__ServerJoinRequest *request,
                         Troupe__SharedParams *place)
{
    if (link->links->host[0] == '\0' || !link->vector->shared.memory)
        return;
    shared_params_put(place, &link->vector->shared.place);
    request->gradients = place;
    request->host = link->links->host;
    request->pid = (uint32_t)getpid();
}

static ProtobufCBinaryData bytes_of_range(const struct server_link *link, const float *vector)
{
    return (ProtobufCBinaryData){.len = (link->hi - link->lo) * sizeof(float),
                                 .data = (uint8_t *)(uintptr_t)(vector + link->lo)};
}

trp_status server_link_join(struct server_link *link, uint64_t steps)
{
    Troupe__ServerJoinRequest request = TROUPE__SERVER_JOIN_REQUEST__INIT;
    Troupe__ServerOptimizer optimizer = optimizer_message(&link->vector->spec->optimizer);
    Troupe__SharedParams place = TROUPE__SHARED_PARAMS__INIT;
    ProtobufCBinaryData states[TRP_OPTIMIZER_STATES_MAX];
    request.n_states = vector_states(link->vector);
    for (size_t k = 0; k < request.n_states; k++)
        states[k] = bytes_of_range(link, link->vector->state[k].here);
    request.worker = link->links->servers->worker;
    request.workers = link->links->servers->workers;
    request.name = link->links->learner;
    request.vector = (char *)(uintptr_t)link->vector->spec->name;
    request.first = link->lo;
    request.count = link->hi - link->lo;
    request.optimizer = &optimizer;
    request.values = bytes_of_range(link, link->vector->values.here);
    request.states = states;
    request.optimizer_steps = vector_phases(link->vector)->steps;
    request.steps = steps;
    request.layout = vector_hash(HASH_BYTES_EMPTY, link->vector->spec);
    leave_memory(link);
    offer_memory(link, &request, &place);
    ProtobufCMessage *message;
    TRP_TRY(call_server(link, "Join", &request.base, NULL, &message));
    Troupe__ServerJoinReply *reply = (Troupe__ServerJoinReply *)message;
    if (reply->clock < link->clock)
        trp_log(TRP_WARN,
                "parameter server has lost pushes of this learner server=%s/%" PRIu32
                " vector=%s pushes=%" PRIu64,
                link->links->servers->name, link->server, link->vector->spec->name,
                link->clock - reply->clock);
    link->clock = reply->clock;
    link->may_read = false;
    link->known[LINK_WHOLE] = link->known[LINK_NOTHING] = false;
    link->links->steps = reply->steps > link->links->steps ? reply->steps : link->links->steps;
    link->maps = reply->maps;
    if (reply->maps && reply->values &&
        shared_values_map(&link->values, reply->values, link->hi - link->lo) != TRP_OK)
        trp_log(TRP_DEBUG, "values are sent server=%" PRIu32 " reason=%s", link->server,
                trp_last_error());
    trp_log(TRP_INFO,
            "learner joined server=%s/%" PRIu32 " vector=%s first=%zu numbers=%zu memory=%s",
            link->links->servers->name, link->server, link->vector->spec->name, link->lo,
            link->hi - link->lo, link->values ? "shared" : "sent");
    protobuf_c_message_free_unpacked(message, NULL);
    return TRP_OK;
}

/* ---- pushes -------------------------------------------------------------------------------- */

/* Names the list of ranges, and says it where the server does not know it. */
static void put_range_keys(const struct server_link *link, int list, uint64_t bounds[2],
                           uint64_t *hash, size_t *count)
{
    size_t length = list == LINK_WHOLE ? 2 : 0;
    bounds[0] = 0;
    bounds[1] = link->hi - link->lo;
    *hash = hash_bytes(HASH_BYTES_EMPTY, bounds, length * sizeof *bounds);
    *count = link->known[list] ? 0 : length;
}

static void note_silent(struct server_link *link, const Troupe__ServerPushRequest *request,
                        Troupe__ServerPushReply *reply)
{
    free(link->silent);
    link->silent = reply->silent;
    link->silent_count = reply->n_silent;
    link->silent_ms = request->patience_ms;
    reply->silent = NULL;
    reply->n_silent = 0;
}

trp_status server_link_idle(struct server_link *link)
{
    Troupe__ServerPushRequest request = TROUPE__SERVER_PUSH_REQUEST__INIT;
    ProtobufCMessage *message;
    request.worker = link->links->servers->worker;
    request.vector = (char *)(uintptr_t)link->vector->spec->name;
    request.idle = true;
    request.patience_ms = timeout_of(link) + SERVER_IDLE_MS;
    TRP_TRY(call_server(link, "Push", &request.base, NULL, &message));
    Troupe__ServerPushReply *reply = (Troupe__ServerPushReply *)message;
    bool joins = reply->unknown_worker;
    if (!joins)
        note_silent(link, &request, reply);
    protobuf_c_message_free_unpacked(message, NULL);
    return joins ? server_link_join(link, link->links->steps) : TRP_OK;
}

/* A server that has begun again knows neither its workers nor their lists, and is told once. */
static trp_status note_known(struct server_link *link, int list, bool known)
{
    link->known[list] = known;
    link->strange = known ? 0 : link->strange + 1;
    if (link->strange <= SERVER_STRANGE_MAX)
        return TRP_OK;
    return trp_fail(TRP_FAILED_PRECONDITION,
                    "%s/%" PRIu32 " does not know %s or its range of '%s', of which it was told %d "
                    "times in a row",
                    link->links->servers->name, link->server, link->links->learner,
                    link->vector->spec->name, SERVER_STRANGE_MAX);
}

/* A push that was taken before its answer was lost is answered as one that came again, also by a
 * server that has begun again meanwhile: it keeps its number. */
static trp_status push_range_once(struct server_link *link, Troupe__ServerPushRequest *request,
                                  int list, bool *again)
{
    uint64_t bounds[2];
    ProtobufCMessage *message;
    put_range_keys(link, list, bounds, &request->keys, &request->n_ranges);
    request->ranges = bounds;
    TRP_TRY(call_server(link, "Push", &request->base, NULL, &message));
    Troupe__ServerPushReply *reply = (Troupe__ServerPushReply *)message;
    bool joins = reply->unknown_worker;
    trp_status status = note_known(link, list, !reply->unknown_keys && !joins);
    *again = !link->known[list];
    if (!*again) {
        *again = reply->answer == SHARD_AHEAD || reply->answer == SHARD_EARLY;
        if (reply->answer == SHARD_AHEAD)
            request->sequence = reply->clock;
        link->clock = reply->clock;
        link->may_read = reply->may_read;
        note_silent(link, request, reply);
        link->links->steps = reply->steps > link->links->steps ? reply->steps : link->links->steps;
    }
    bool early = *again && reply->answer == SHARD_EARLY;
    protobuf_c_message_free_unpacked(message, NULL);
    TRP_TRY(status);
    if (joins)
        return server_link_join(link, link->links->steps);
    return early ? server_link_pull(link) : TRP_OK; /* which waits for the others */
}

/* What was not sent before goes along, and what this code has not got stays for the next push. A
 * gradient that cannot be compressed goes as it is, and stays in no rest. */
static void compress_push(struct server_link *link, float *grads,
                          Troupe__ServerPushRequest *request)
{
    size_t count = link->hi - link->lo;
    for (size_t i = 0; i < count; i++)
        grads[i] *= request->scale;
    struct compress_code code = compressor_encode(link->compressor, grads);
    request->scale = 1;
    request->compression = (char *)(uintptr_t)compress_name(code.kind);
    request->bits = code.bits;
    request->n_runs = code.run_words;
    request->runs = (uint32_t *)(uintptr_t)code.runs;
    request->gradients = (ProtobufCBinaryData){.len = code.word_count * sizeof *code.words,
                                               .data = (uint8_t *)(uintptr_t)code.words};
}

/* Each time, as a server that begins again maps nothing any more. */
static void put_gradients(const struct server_link *link, const float *grads,
                          Troupe__ServerPushRequest *request)
{
    request->gradients = (ProtobufCBinaryData){0};
    if (grads && link->maps && grads != link->vector->grads)
        memcpy(link->vector->grads + link->lo, grads + link->lo,
               (link->hi - link->lo) * sizeof(float));
    else if (grads && !link->maps)
        request->gradients = bytes_of_range(link, grads);
}

trp_status server_link_push(struct server_link *link, float *grads, float scale, uint64_t new_steps)
{
    Troupe__ServerPushRequest request = TROUPE__SERVER_PUSH_REQUEST__INIT;
    int list = grads ? LINK_WHOLE : LINK_NOTHING;
    bool again = true, compresses = grads && link->compressor &&
                                    compress_fits(grads + link->lo, link->hi - link->lo);
    request.worker = link->links->servers->worker;
    request.vector = (char *)(uintptr_t)link->vector->spec->name;
    request.sequence = link->clock;
    request.version = link->version;
    request.scale = scale;
    request.new_steps = new_steps;
    request.behind = link->most_behind;
    request.patience_ms = timeout_of(link);
    struct patience patience = patience_begin();
    if (compresses)
        compress_push(link, grads + link->lo, &request);
    while (again) { /* once in any case: a step that ends whole has a checkpoint */
        if (!compresses)
            put_gradients(link, grads, &request);
        TRP_TRY(push_range_once(link, &request, list, &again));
        if (again && trp_stop_requested(link->links->group->stop))
            return trp_fail(TRP_CANCELLED, "learner: stopped before its push was taken");
        if (again)
            TRP_TRY(wait_for_turn(link, "Push", &patience));
    }
    return TRP_OK;
}

/* ---- pulls --------------------------------------------------------------------------------- */

static bool server_link_read_memory(struct server_link *link)
{
    float *values = (float *)link->vector->values.here + link->lo;
    for (uint32_t tries = 0; tries < SERVER_COPY_TRIES; tries++) {
        uint64_t writes;
        struct shared_state state;
        if (!shared_values_look(link->values, &writes, &state))
            continue;
        memcpy(values, link->values->numbers, (link->hi - link->lo) * sizeof(float));
        if (!shared_values_are_whole(link->values, writes))
            continue;
        link->version = state.version;
        if (link->clock > state.slowest && link->clock - state.slowest > link->most_behind)
            link->most_behind = link->clock - state.slowest;
        return true;
    }
    return false;
}

/* `given`: bytes that are there already. */
static trp_status take_numbers(const struct server_link *link, const ProtobufCBinaryData *bytes,
                               size_t given, float *to)
{
    size_t expected = (link->hi - link->lo) * sizeof(float), size = bytes->len + given;
    if (size != expected)
        return trp_fail(TRP_DATA_LOSS, "%s/%" PRIu32 " sent %zu bytes of '%s', expected %zu",
                        link->links->servers->name, link->server, size, link->vector->spec->name,
                        expected);
    if (bytes->len > 0)
        memcpy(to + link->lo, bytes->data, expected);
    return TRP_OK;
}

static trp_status take_pulled(struct server_link *link, const Troupe__ServerPullReply *reply,
                              size_t given, bool states)
{
    TRP_TRY(take_numbers(link, &reply->values, given, link->vector->values.here));
    if (states && reply->n_states != vector_states(link->vector))
        return trp_fail(TRP_DATA_LOSS, "%s/%" PRIu32 " sent %zu vectors of state of '%s'",
                        link->links->servers->name, link->server, reply->n_states,
                        link->vector->spec->name);
    for (size_t k = 0; states && k < reply->n_states; k++)
        TRP_TRY(take_numbers(link, &reply->states[k], 0, link->vector->state[k].here));
    link->version = reply->version;
    return TRP_OK;
}

/* *again: others have to push first, or this one has to say more. */
static trp_status pull_range_once(struct server_link *link, Troupe__ServerPullRequest *request,
                                  bool *again)
{
    uint64_t bounds[2];
    ProtobufCMessage *message;
    trp_reply_room room = {.field = "values",
                           .bytes = (float *)link->vector->values.here + link->lo,
                           .size = (link->hi - link->lo) * sizeof(float)};
    put_range_keys(link, LINK_WHOLE, bounds, &request->keys, &request->n_ranges);
    request->ranges = bounds;
    TRP_TRY(call_server(link, "Pull", &request->base, &room, &message));
    Troupe__ServerPullReply *reply = (Troupe__ServerPullReply *)message;
    bool joins = reply->unknown_worker;
    trp_status status = note_known(link, LINK_WHOLE, !reply->unknown_keys && !joins);
    *again = !link->known[LINK_WHOLE] || reply->wait;
    if (!*again) {
        link->may_read = link->may_read || !request->states;
        link->optimizer_steps = reply->optimizer_steps;
        link->links->steps = reply->steps > link->links->steps ? reply->steps : link->links->steps;
    }
    if (!*again && !request->in_memory)
        status = take_pulled(link, reply, room.given, request->states);
    protobuf_c_message_free_unpacked(message, NULL);
    return status == TRP_OK && joins ? server_link_join(link, link->links->steps) : status;
}

static trp_status pull_until_there(struct server_link *link, bool states, bool in_memory)
{
    Troupe__ServerPullRequest request = TROUPE__SERVER_PULL_REQUEST__INIT;
    bool again = true;
    request.worker = link->links->servers->worker;
    request.vector = (char *)(uintptr_t)link->vector->spec->name;
    request.wait_ms = LEARNERS_LOOK_MS;
    request.patience_ms = timeout_of(link);
    request.goes_on = link->links->servers->goes_on;
    request.states = states;
    request.behind = link->most_behind;
    struct patience patience = patience_begin();
    while (again) {
        request.in_memory = in_memory && link->values;
        TRP_TRY(pull_range_once(link, &request, &again));
        /* Others may have stopped already: this learner will not step with what it waits for. */
        if (again && !states && trp_stop_requested(link->links->group->stop))
            return TRP_OK;
        if (again)
            TRP_TRY(wait_for_turn(link, "Pull", &patience));
        turns_pass();
    }
    return TRP_OK;
}

trp_status server_link_pull(struct server_link *link)
{
    if (!link->values || !link->may_read)
        TRP_TRY(pull_until_there(link, false, true));
    bool stops = !link->may_read; /* it steps no more, and goes without */
    if (!link->values || stops || server_link_read_memory(link))
        return TRP_OK;
    return pull_until_there(link, false, false);
}

trp_status server_link_fetch(struct server_link *link)
{
    return pull_until_there(link, true, false);
}

void server_link_close(struct server_link *link)
{
    leave_memory(link);
    compressor_destroy(link->compressor);
    free(link->silent);
}
