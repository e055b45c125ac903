/* Groups of threads. A lane offers where the values lie, and the other thread reads them there:
 * nothing is copied on the way. */
#include "collective.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/alloc.h"
#include "core/file.h"
#include "event.h"
#include "sum_kernel.h"
#include "table.h"
#include "virtual_ranks.h"

enum { OFFERS = 8 };

/* One direction between two threads. */
struct local_stream {
    struct {
        const uint8_t *at;
        size_t size;
    } offers[OFFERS];
    _Atomic uint64_t offered;  /* offers, by the writer */
    _Atomic uint64_t finished; /* offers, by the reader */
    _Atomic uint64_t consumed; /* bytes, by the reader */
    _Atomic bool reading;      /* the reader is at offered memory */
    _Atomic bool withdrawn;    /* nobody may be any more */
    _Atomic bool writer_gone, reader_gone;
    uint64_t offered_bytes, taken; /* the writer's */
    size_t offset;                 /* the reader's, in the offer at hand */
    char padding[64];
};

struct local_member {
    int event; /* eventfd */
    _Atomic bool asleep;
};

struct local_group {
    _Atomic uint32_t users; /* lanes */
    uint32_t size;
    struct local_member *members;
    struct local_stream *streams; /* from, to */
};

struct local_lane {
    struct peer_lane lane;
    struct local_group *group;
    struct local_member *mine, *other;
    struct local_stream *out, *in;
};

static void wake_member(struct local_member *member)
{
    if (atomic_load(&member->asleep) && atomic_exchange(&member->asleep, false))
        event_set(member->event);
}

/* ---- the writer ---------------------------------------------------------------------------- */

/* Bytes of the parts that are offered already are passed over. */
static void offer_parts(struct local_stream *out, const struct iovec *parts, unsigned count,
                        uint64_t known)
{
    uint64_t offered = atomic_load_explicit(&out->offered, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++) {
        size_t skip = known < parts[i].iov_len ? (size_t)known : parts[i].iov_len;
        known -= skip;
        if (skip == parts[i].iov_len)
            continue;
        if (offered - atomic_load_explicit(&out->finished, memory_order_acquire) == OFFERS)
            break;
        out->offers[offered % OFFERS].at = (const uint8_t *)parts[i].iov_base + skip;
        out->offers[offered % OFFERS].size = parts[i].iov_len - skip;
        out->offered_bytes += parts[i].iov_len - skip;
        offered++;
    }
    atomic_store(&out->offered, offered);
}

static trp_status thread_lane_send(struct peer_lane *base, const struct iovec *parts,
                                   unsigned part_count, size_t *taken)
{
    struct local_lane *lane = (struct local_lane *)base;
    struct local_stream *out = lane->out;
    uint64_t consumed = atomic_load_explicit(&out->consumed, memory_order_acquire);
    *taken = (size_t)(consumed - out->taken);
    uint64_t known = out->offered_bytes - out->taken;
    out->taken = consumed;
    uint64_t before = atomic_load_explicit(&out->offered, memory_order_relaxed);
    offer_parts(out, parts, part_count, known);
    if (atomic_load_explicit(&out->offered, memory_order_relaxed) != before)
        wake_member(lane->other);
    /* Who leaves when it has all takes all first, perhaps since we looked. */
    if (*taken == 0 && atomic_load(&out->reader_gone) && atomic_load(&out->consumed) == consumed)
        return trp_fail(TRP_UNAVAILABLE, "the other thread has left");
    return TRP_OK;
}

static void thread_lane_withdraw(struct peer_lane *base)
{
    struct local_lane *lane = (struct local_lane *)base;
    atomic_store(&lane->out->withdrawn, true);
    while (atomic_load(&lane->out->reading))
        sched_yield(); /* for a segment at most */
}

/* ---- the reader ---------------------------------------------------------------------------- */

static trp_status nothing_came(const struct local_stream *in)
{
    if (atomic_load(&in->writer_gone))
        return trp_fail(TRP_UNAVAILABLE, "the other thread has left");
    return TRP_OK;
}

/* Offers begin where a call or a value does, so what is asked for lies in one of them. */
static trp_status thread_lane_peek(struct peer_lane *base, size_t least, size_t most,
                                   const void **bytes, size_t *size)
{
    struct local_stream *in = ((struct local_lane *)base)->in;
    uint64_t finished = atomic_load_explicit(&in->finished, memory_order_relaxed);
    *size = 0;
    if (finished == atomic_load_explicit(&in->offered, memory_order_acquire))
        return nothing_came(in);
    atomic_store(&in->reading, true);
    if (atomic_load(&in->withdrawn)) {
        atomic_store(&in->reading, false);
        return trp_fail(TRP_UNAVAILABLE, "the other thread gave up");
    }
    size_t left = in->offers[finished % OFFERS].size - in->offset;
    assert(left >= least);
    *size = left < most ? left : most;
    *bytes = in->offers[finished % OFFERS].at + in->offset;
    return TRP_OK;
}

static void thread_lane_skip(struct peer_lane *base, size_t size)
{
    struct local_lane *lane = (struct local_lane *)base;
    struct local_stream *in = lane->in;
    uint64_t finished = atomic_load_explicit(&in->finished, memory_order_relaxed);
    in->offset += size;
    if (in->offset == in->offers[finished % OFFERS].size) {
        in->offset = 0;
        atomic_store_explicit(&in->finished, finished + 1, memory_order_release);
    }
    atomic_store_explicit(&in->reading, false, memory_order_release);
    atomic_fetch_add(&in->consumed, size);
    wake_member(lane->other);
}

static trp_status thread_lane_receive(struct peer_lane *base, void *to, size_t size, size_t *came)
{
    const void *bytes = NULL;
    TRP_TRY(thread_lane_peek(base, 1, size, &bytes, came));
    if (*came == 0)
        return TRP_OK;
    memcpy(to, bytes, *came);
    thread_lane_skip(base, *came);
    return TRP_OK;
}

/* ---- both ---------------------------------------------------------------------------------- */

static bool thread_lane_arm(struct peer_lane *base, bool send, bool receive, struct pollfd *fd)
{
    struct local_lane *lane = (struct local_lane *)base;
    struct local_stream *in = lane->in, *out = lane->out;
    *fd = (struct pollfd){.fd = lane->mine->event, .events = POLLIN};
    atomic_store(&lane->mine->asleep, true);
    bool came = receive && (atomic_load(&in->offered) != atomic_load(&in->finished) ||
                            atomic_load(&in->writer_gone));
    bool went =
        send && (atomic_load(&out->consumed) != out->taken || atomic_load(&out->reader_gone));
    return !came && !went;
}

static void thread_lane_rouse(struct peer_lane *base)
{
    struct local_lane *lane = (struct local_lane *)base;
    event_clear(lane->mine->event);
}

static void group_leave(struct local_group *group)
{
    if (atomic_fetch_sub(&group->users, 1) > 1)
        return;
    for (uint32_t rank = 0; rank < group->size; rank++)
        fd_close(group->members[rank].event);
    free(group->members);
    free(group->streams);
    free(group);
}

static void thread_lane_destroy(struct peer_lane *base)
{
    struct local_lane *lane = (struct local_lane *)base;
    thread_lane_withdraw(base);
    atomic_store(&lane->out->writer_gone, true);
    atomic_store(&lane->in->reader_gone, true);
    wake_member(lane->other);
    group_leave(lane->group);
    free(lane);
}

static const struct lane_impl local_impl = {
    .send = thread_lane_send,
    .receive = thread_lane_receive,
    .peek = thread_lane_peek,
    .skip = thread_lane_skip,
    .arm = thread_lane_arm,
    .rouse = thread_lane_rouse,
    .withdraw = thread_lane_withdraw,
    .destroy = thread_lane_destroy,
};

/* ---- groups -------------------------------------------------------------------------------- */

static struct peer_lane *create_lane(struct local_group *group, uint32_t from, uint32_t to)
{
    struct local_lane *lane = xcalloc(1, sizeof *lane);
    *lane = (struct local_lane){.lane = {&local_impl},
                                .group = group,
                                .mine = &group->members[from],
                                .other = &group->members[to],
                                .out = &group->streams[from * group->size + to],
                                .in = &group->streams[to * group->size + from]};
    atomic_fetch_add(&group->users, 1);
    return &lane->lane;
}

static trp_status create_group(struct local_group **out, uint32_t size)
{
    struct local_group *group = xcalloc(1, sizeof *group);
    group->size = size;
    group->users = 1; /* whoever makes it */
    group->members = xcalloc(size, sizeof *group->members);
    group->streams = xcalloc((size_t)size * size, sizeof *group->streams);
    *out = group;
    for (uint32_t rank = 0; rank < size; rank++)
        group->members[rank].event = -1;
    for (uint32_t rank = 0; rank < size; rank++)
        TRP_TRY(event_create(&group->members[rank].event));
    return TRP_OK;
}

static trp_status create_lines(int *fds, uint32_t size)
{
    for (uint32_t a = 0; a < size; a++)
        for (uint32_t b = a + 1; b < size; b++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
                return trp_fail(TRP_RESOURCE_EXHAUSTED, "socketpair: %s", strerror(errno));
            fds[a * size + b] = pair[0];
            fds[b * size + a] = pair[1];
        }
    return TRP_OK;
}

static trp_status create_member(trp_collective **out, struct local_group *group, uint32_t rank,
                                const trp_collective_options *options, int *line_fds)
{
    trp_collective_options own = *options;
    own.rank = rank;
    own.size = group->size;
    trp_status status = collective_init(out, &own, line_fds);
    for (uint32_t peer = 0; peer < group->size; peer++)
        line_fds[peer] = -1;
    if (status != TRP_OK)
        return status;
    struct peer_lane **lanes = xcalloc(group->size, sizeof *lanes);
    for (uint32_t peer = 0; peer < group->size; peer++)
        lanes[peer] = peer == rank ? NULL : create_lane(group, rank, peer);
    struct schedule_table table;
    table_choose(&table);
    status = collective_start(*out, lanes, &table);
    free(lanes);
    return status;
}

/* Vectors of more ranks than a kernel has operands for go as those of processes do. */
static trp_status meet_on_device(trp_collective **out, uint32_t size, trp_device *device)
{
    struct carrier *carriers[SUM_RANKS_MAX];
    if (!device || trp_device_is_host(device) || size > SUM_RANKS_MAX)
        return TRP_OK;
    TRP_TRY(virtual_create(carriers, size, device));
    for (uint32_t rank = 0; rank < size; rank++)
        out[rank]->carrier = carriers[rank];
    return TRP_OK;
}

trp_status trp_collective_local_create(trp_collective **out, uint32_t size,
                                       const trp_collective_options *options)
{
    assert(size > 0);
    assert(size <= COLLECTIVE_RANKS_MAX);
    memset(out, 0, size * sizeof *out);
    size_t pairs = (size_t)size * size;
    int *fds = xmalloc(pairs * sizeof *fds);
    memset(fds, 0xff, pairs * sizeof *fds); /* -1 */
    struct local_group *group;
    trp_status status = create_group(&group, size);
    if (status == TRP_OK)
        status = create_lines(fds, size);
    for (uint32_t rank = 0; rank < size && status == TRP_OK; rank++)
        status = create_member(&out[rank], group, rank, options, &fds[rank * size]);
    if (status == TRP_OK)
        status = meet_on_device(out, size, options->device);
    for (size_t i = 0; i < pairs; i++)
        fd_close(fds[i]);
    for (uint32_t rank = 0; rank < size && status != TRP_OK; rank++) {
        trp_collective_destroy(out[rank]);
        out[rank] = NULL;
    }
    group_leave(group);
    free(fds);
    return status;
}
