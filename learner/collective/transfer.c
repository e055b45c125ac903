/* Both lists go on at once: a rank sends while it receives, and what came in is passed on before
 * the piece is whole. Received values are summed where they lie, a segment at a time. */
#include "transfer.h"

#include <string.h>

void transfer_init(struct transfer *transfer, const struct schedule *schedule, void *values,
                   uint8_t *snapshot, const uint32_t *sites)
{
    const struct group_call *call = &schedule->call;
    *transfer = (struct transfer){.schedule = *schedule,
                                  .values = values,
                                  .snapshot = snapshot,
                                  .sites = sites,
                                  .value_bytes = call_type_bytes(call->type),
                                  .reduce = reduce_find(call->type, call->op)};
}

bool transfer_is_done(const struct transfer *transfer)
{
    return transfer->sent.index == transfer->schedule.sends &&
           transfer->received.index == transfer->schedule.receives;
}

static void begin_send(struct transfer *transfer)
{
    struct transfer_end *end = &transfer->sent;
    if (end->begun)
        return;
    end->piece = schedule_send(&transfer->schedule, end->index);
    end->begun = true;
}

static void begin_receive(struct transfer *transfer)
{
    struct transfer_end *end = &transfer->received;
    if (end->begun)
        return;
    end->piece = schedule_receive(&transfer->schedule, end->index);
    end->begun = true;
}

static void next_piece(struct transfer_end *end)
{
    *end = (struct transfer_end){.index = end->index + 1};
}

static size_t piece_bytes(const struct transfer_end *end)
{
    return end->piece.high - end->piece.low;
}

/* ---- sending ------------------------------------------------------------------------------- */

/* How many bytes of the piece may be sent; false: not even the call. */
static bool sendable(const struct transfer *transfer, size_t *bytes)
{
    const struct transfer_end *sent = &transfer->sent, *received = &transfer->received;
    *bytes = piece_bytes(sent);
    if (received->index >= sent->piece.after)
        return true;
    if (sent->piece.snapshot || sent->piece.waits || received->index + 1 < sent->piece.after)
        return false;
    *bytes = received->bytes;
    return received->bytes >= sent->bytes + COLLECTIVE_GRAIN_BYTES;
}

static const uint8_t *send_from(struct transfer *transfer)
{
    struct transfer_end *end = &transfer->sent;
    if (!end->piece.snapshot)
        return transfer->values + end->piece.low;
    if (!end->copied)
        memcpy(transfer->snapshot, transfer->values + end->piece.low, piece_bytes(end));
    end->copied = true;
    return transfer->snapshot;
}

static size_t call_left(const struct transfer_end *end)
{
    return end->piece.first ? sizeof(struct group_call) - end->call_bytes : 0;
}

/* True: something was sent. */
static bool send_some(struct transfer *transfer, struct peer_lane *const *lanes,
                      struct transfer_look *look)
{
    struct transfer_end *end = &transfer->sent;
    begin_send(transfer);
    size_t may;
    if (!sendable(transfer, &may))
        return false;
    size_t head = call_left(end);
    struct iovec parts[2] = {
        {(uint8_t *)&transfer->schedule.call + end->call_bytes, head},
        {(void *)(uintptr_t)(send_from(transfer) + end->bytes), may - end->bytes}};
    unsigned skipped = head == 0;
    size_t taken = 0;
    if (head > 0 || may > end->bytes) {
        struct peer_lane *lane = lanes[end->piece.peer];
        look->status =
            lane->impl->send(lane, parts + skipped, may > end->bytes ? 2 - skipped : 1, &taken);
        look->peer = end->piece.peer;
    }
    size_t of_call = taken < head ? taken : head;
    end->call_bytes += of_call;
    end->bytes += taken - of_call;
    transfer->bytes_sent += taken - of_call;
    if (transfer->sites[end->piece.peer] != transfer->sites[transfer->schedule.rank])
        transfer->bytes_sent_away += taken - of_call;
    bool whole = call_left(end) == 0 && end->bytes == piece_bytes(end);
    if (whole)
        next_piece(end);
    return look->status == TRP_OK && (taken > 0 || whole);
}

/* ---- receiving ----------------------------------------------------------------------------- */

/* What goes out is on its way, or copied: the values may change. */
static bool receivable(const struct transfer *transfer)
{
    const struct transfer_end *sent = &transfer->sent;
    uint32_t after = transfer->received.piece.after;
    return sent->index >= after || (sent->index + 1 == after && sent->copied);
}

/* True: the peer's call came, and is ours. */
static bool receive_call(struct transfer *transfer, struct peer_lane *lane,
                         struct transfer_look *look)
{
    struct transfer_end *end = &transfer->received;
    const void *bytes;
    size_t size, follow = piece_bytes(end);
    size_t most = sizeof look->other + (follow <= COLLECTIVE_TOGETHER_BYTES ? follow : 0);
    look->status = lane->impl->peek(lane, sizeof look->other, most, &bytes, &size);
    if (look->status != TRP_OK || size == 0)
        return false;
    memcpy(&look->other, bytes, sizeof look->other);
    lane->impl->skip(lane, sizeof look->other);
    end->call_bytes = sizeof look->other;
    look->differs = !call_equal(&look->other, &transfer->schedule.call);
    return !look->differs;
}

static trp_status reduce_some(struct transfer *transfer, struct peer_lane *lane, size_t most,
                              size_t *came)
{
    struct transfer_end *end = &transfer->received;
    const void *bytes;
    size_t size;
    TRP_TRY(lane->impl->peek(lane, transfer->value_bytes, most, &bytes, &size));
    *came = size - size % transfer->value_bytes;
    if (*came == 0)
        return TRP_OK;
    transfer->reduce(transfer->values + end->piece.low + end->bytes, bytes,
                     *came / transfer->value_bytes);
    lane->impl->skip(lane, *came);
    return TRP_OK;
}

/* True: something came. */
static bool receive_some(struct transfer *transfer, struct peer_lane *const *lanes,
                         struct transfer_look *look)
{
    struct transfer_end *end = &transfer->received;
    begin_receive(transfer);
    if (!receivable(transfer))
        return false;
    struct peer_lane *lane = lanes[end->piece.peer];
    look->peer = end->piece.peer;
    if (call_left(end) > 0 && !receive_call(transfer, lane, look))
        return false;
    size_t most = piece_bytes(end) - end->bytes, came = 0;
    if (most > COLLECTIVE_SEGMENT_BYTES)
        most = COLLECTIVE_SEGMENT_BYTES;
    if (most > 0 && end->piece.reduce)
        look->status = reduce_some(transfer, lane, most, &came);
    else if (most > 0)
        look->status =
            lane->impl->receive(lane, transfer->values + end->piece.low + end->bytes, most, &came);
    end->bytes += came;
    transfer->bytes_received += came;
    bool whole = look->status == TRP_OK && end->bytes == piece_bytes(end);
    if (whole)
        next_piece(end);
    return came > 0 || whole;
}

/* ---- both ---------------------------------------------------------------------------------- */

struct transfer_look transfer_advance(struct transfer *transfer, struct peer_lane *const *lanes)
{
    struct transfer_look look = {.status = TRP_OK};
    if (transfer->sent.index < transfer->schedule.sends)
        look.moved = send_some(transfer, lanes, &look);
    if (look.status == TRP_OK && transfer->received.index < transfer->schedule.receives)
        look.moved = receive_some(transfer, lanes, &look) || look.moved;
    return look;
}

uint32_t transfer_waits_for(const struct transfer *transfer)
{
    struct transfer now = *transfer;
    if (now.received.index < now.schedule.receives) {
        begin_receive(&now);
        if (receivable(&now))
            return now.received.piece.peer;
    }
    begin_send(&now);
    return now.sent.piece.peer;
}

bool transfer_arm(struct transfer *transfer, struct peer_lane *const *lanes, struct pollfd *fds,
                  struct peer_lane **armed, unsigned *count)
{
    struct peer_lane *to = NULL, *from = NULL;
    size_t may;
    if (transfer->sent.index < transfer->schedule.sends) {
        begin_send(transfer);
        to = sendable(transfer, &may) ? lanes[transfer->sent.piece.peer] : NULL;
    }
    if (transfer->received.index < transfer->schedule.receives) {
        begin_receive(transfer);
        from = receivable(transfer) ? lanes[transfer->received.piece.peer] : NULL;
    }
    bool quiet = true;
    *count = 0;
    if (from) {
        armed[*count] = from;
        quiet = from->impl->arm(from, from == to, true, &fds[(*count)++]);
    }
    if (to && to != from) {
        armed[*count] = to;
        quiet = to->impl->arm(to, true, false, &fds[(*count)++]) && quiet;
    }
    return quiet;
}
