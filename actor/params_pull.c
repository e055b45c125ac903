/* Parameters that silently stop changing are worse than a failure. So a call that fails is tried
 * again until it worked or give_up_ms passed, the first failure is logged, and the last one is
 * returned. Of parameters that are too many for one reply, the last one gets what the parts make
 * together. */
#include "params_pull.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/clock.h"
#include "core/status.h"
#include "core/thread.h"
#include "limits.h"

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
                            struct deadline deadline, Troupe__PullReply **reply)
{
    ProtobufCMessage *message = NULL;
    trp_status status =
        trp_call(line->service, "Pull", &request->base, &message,
                 &(trp_call_options){.timeout_ms = at_most_ms(line->timeout_ms, deadline),
                                     .cancel = line->stop});
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
                                    Troupe__PullReply **reply, int64_t *asked_ns)
{
    struct deadline give_up =
        deadline_earlier(deadline, deadline_in_ms(&clock_monotonic, line->give_up_ms));
    for (uint32_t failures = 0;; failures++) {
        if (trp_stop_requested(line->stop))
            return trp_fail(TRP_CANCELLED, "pull of parameters: stop");
        *asked_ns = clock_now_ns(&clock_monotonic);
        trp_status status = pull_once(line, request, deadline, reply);
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

/* ---- versions in parts ----------------------------------------------------------------------- */

struct whole {
    uint64_t version;
    Troupe__Precision precision;
    size_t size, have;
    uint8_t *bytes;
};

static bool is_rest(const struct whole *whole, const Troupe__PullReply *reply)
{
    return reply->version == whole->version && reply->params_bytes == whole->size &&
           reply->precision == whole->precision && reply->params_from > 0;
}

static trp_status add_part(struct whole *whole, const Troupe__PullReply *reply)
{
    size_t size = reply->params.len;
    if (reply->params_from != whole->have || size == 0 || size > whole->size - whole->have)
        return trp_fail(TRP_DATA_LOSS,
                        "parameters of version %" PRIu64 ": a part of %zu bytes from byte %" PRIu64
                        " on, expected one from byte %zu on, of %zu",
                        whole->version, size, reply->params_from, whole->have, whole->size);
    memcpy(whole->bytes + whole->have, reply->params.data, size);
    whole->have += size;
    return TRP_OK;
}

static uint8_t *room_take(struct params_room *room, size_t size)
{
    if (!room->bytes || room->size != size)
        return malloc(size);
    uint8_t *bytes = room->bytes;
    room->bytes = NULL;
    return bytes;
}

/* `*reply` has the first part of a version. The last reply takes its place, with the whole; or,
 * where the learner does not have that version any more, the one that says so. */
static trp_status pull_rest(const struct params_line *line, Troupe__PullRequest *request,
                            struct deadline deadline, struct params_room *room,
                            Troupe__PullReply **reply, int64_t *asked_ns)
{
    struct whole whole = {.version = (*reply)->version,
                          .precision = (*reply)->precision,
                          .size = (size_t)(*reply)->params_bytes};
    int64_t part_asked_ns;
    whole.bytes = room_take(room, whole.size);
    if (!whole.bytes)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "no memory for parameters of %zu bytes",
                        whole.size);
    trp_status status = add_part(&whole, *reply);
    while (status == TRP_OK && whole.have < whole.size) {
        request->rest_of = whole.version;
        request->rest_from = whole.have;
        params_reply_free(*reply);
        *reply = NULL;
        status = pull_with_retries(line, request, deadline, reply, &part_asked_ns);
        if (status == TRP_OK && !is_rest(&whole, *reply)) {
            *asked_ns = part_asked_ns;
            break;
        }
        if (status == TRP_OK)
            status = add_part(&whole, *reply);
    }
    if (status != TRP_OK || whole.have < whole.size) {
        free(whole.bytes);
        return status;
    }
    free((*reply)->params.data);
    (*reply)->params = (ProtobufCBinaryData){.data = whole.bytes, .len = whole.size};
    (*reply)->params_bytes = 0;
    return TRP_OK;
}

trp_status params_pull(const struct params_line *line, Troupe__PullRequest *request,
                       struct deadline deadline, struct params_room *room,
                       Troupe__PullReply **reply, int64_t *asked_ns)
{
    struct deadline give_up = deadline_in_ms(&clock_monotonic, line->give_up_ms);
    TRP_TRY(pull_with_retries(line, request, deadline, reply, asked_ns));
    while ((*reply)->params_bytes > 0 && (*reply)->version > request->version) {
        uint64_t version = (*reply)->version;
        TRP_TRY(pull_rest(line, request, deadline, room, reply, asked_ns));
        if ((*reply)->params_bytes > 0 && deadline_passed(give_up, &clock_monotonic))
            return trp_fail(TRP_UNAVAILABLE,
                            "version %" PRIu64 " of the parameters was gone before all of it came, "
                            "and so were those before it for %" PRId64 " ms",
                            version, line->give_up_ms);
    }
    return TRP_OK;
}
