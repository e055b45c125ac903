/* Problem: two processes of a host need not pass the kernel for each piece, nor may one of them be
 * able to harm the other.
 * Design: each rank has memory that it alone writes. Of it each other rank has a part: a ring of
 * bytes that go there, and how many came from there. Both count bytes for ever, so a counter is
 * written by one side only, and what lies between two of them is to be read, or is room. Received
 * bytes are summed where they lie in the other's ring. A long part that lies ready stays where it
 * is, and the other one has the kernel copy it from there, once instead of twice: then bytes count
 * from that place instead of the ring. This changes only when all that was written is taken. Who
 * gives up its memory says so in its part before; who copied looks there after.
 * Who is about to sleep says so in its part, with a number and for what, and looks again; the other
 * one, which looks there after each counter it moved, sends a byte on the socket: one for each
 * number. All four are sequentially consistent, so one of the two sees the other's.
 * Guarantee: a peer that writes nonsense costs wrong values or this lane. One that ends closes the
 * socket; its ring stays to be read. Memory: a ring for each rank of the host, once it is used. */
#include "shared_lane.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "core/alloc.h"
#include "core/file.h"
#include "limits.h"

enum { RING_BYTES = COLLECTIVE_RING_BYTES, LINE_BYTES = 64, PART_ALIGN = 4096 };
_Static_assert((RING_BYTES & (RING_BYTES - 1)) == 0, "counters may wrap around");

/* For what somebody sleeps; the rest of the word is the sleep's number. */
enum { SLEEPS_TO_SEND = 1, SLEEPS_TO_RECEIVE = 2, SLEEPS_NEXT = 4 };

/* Each counter has a cache line, as it has a reader of its own. */
struct lane_part {
    _Alignas(PART_ALIGN) _Atomic uint64_t written; /* bytes to the other rank, */
    _Alignas(LINE_BYTES) _Atomic uint64_t taken;   /* and from it */
    _Alignas(LINE_BYTES) _Atomic uint64_t asleep;
    _Alignas(LINE_BYTES) _Atomic uint64_t place; /* of byte 0 */
    _Atomic uint32_t in_place;                   /* bytes are there; 0: in the ring */
    _Atomic uint32_t withdrawn;                  /* other things may be there */
    _Alignas(PART_ALIGN) uint8_t ring[RING_BYTES];
};

struct shared_lane {
    struct peer_lane base;
    int fd;
    struct lane_memory *memory;
    const uint8_t *map; /* of the other rank's memory */
    size_t map_bytes;
    struct lane_part *mine;
    const struct lane_part *theirs;
    uint64_t written, taken; /* as in `mine` */
    uint64_t passed;         /* theirs->taken, as last seen, */
    uint64_t told;           /* and in place as last told */
    bool in_place;           /* as in `mine` */
    bool is_read;            /* the other one can copy from here, */
    pid_t pid;               /* and this one from there; 0: it cannot */
    uint8_t *copies;         /* of the other one's bytes, for peek() */
    uint64_t came;           /* theirs->written, as last seen */
    uint64_t sleeps, woken;  /* the numbers of sleeps: its last, and the other's that was ended */
    bool closed;             /* the other end, of the socket */
    uint8_t across[LANE_LEAST_MAX]; /* bytes at the ring's end and at its beginning, together */
};

/* ---- memory -------------------------------------------------------------------------------- */

/* The first page begins with the nonce. */
size_t lane_memory_bytes(uint32_t size)
{
    return PART_ALIGN + size * sizeof(struct lane_part);
}

static size_t part_at(uint32_t rank)
{
    return lane_memory_bytes(rank);
}

trp_status lane_memory_create(struct lane_memory **out, uint32_t size)
{
    struct lane_memory *memory = xcalloc(1, sizeof *memory);
    memory->users = 1;
    trp_status status =
        sealed_create(&memory->sealed, "troupe-collective", lane_memory_bytes(size));
    if (status != TRP_OK) {
        lane_memory_leave(memory);
        memory = NULL;
    }
    *out = memory;
    return status;
}

void lane_memory_leave(struct lane_memory *memory)
{
    if (!memory || --memory->users > 0)
        return;
    sealed_cleanup(&memory->sealed);
    free(memory);
}

bool lane_memory_can_copy(const struct sealed_place *place, uint64_t address)
{
    uint8_t nonce[SEALED_NONCE_BYTES];
    struct iovec local = {nonce, sizeof nonce}, remote = {(void *)(uintptr_t)address, sizeof nonce};
    return process_vm_readv((pid_t)place->pid, &local, 1, &remote, 1, 0) == sizeof nonce &&
           memcmp(nonce, place->nonce, sizeof nonce) == 0;
}

/* ---- wakes --------------------------------------------------------------------------------- */

static void wake_other(struct shared_lane *lane, uint64_t what)
{
    uint64_t asleep = atomic_load(&lane->theirs->asleep);
    if (!(asleep & what) || asleep == lane->woken)
        return;
    lane->woken = asleep;
    ssize_t sent = send(lane->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent; /* it has ended, or has not slept for long */
}

static bool shared_lane_arm(struct peer_lane *base, bool send, bool receive, struct pollfd *fd)
{
    struct shared_lane *lane = (struct shared_lane *)base;
    *fd = (struct pollfd){.fd = lane->fd, .events = POLLIN};
    lane->sleeps += SLEEPS_NEXT;
    atomic_store(&lane->mine->asleep,
                 lane->sleeps | (send ? SLEEPS_TO_SEND : 0) | (receive ? SLEEPS_TO_RECEIVE : 0));
    bool comes = receive && atomic_load(&lane->theirs->written) != lane->came;
    bool goes = send && atomic_load(&lane->theirs->taken) != lane->passed;
    return !comes && !goes && !lane->closed;
}

static void shared_lane_rouse(struct peer_lane *base)
{
    struct shared_lane *lane = (struct shared_lane *)base;
    char bytes[LINE_BYTES];
    ssize_t came;
    do
        came = recv(lane->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    while (came == sizeof bytes);
    if (came == 0 || (came < 0 && !errno_is_again(errno)))
        lane->closed = true;
}

/* ---- sending ------------------------------------------------------------------------------- */

static trp_status is_nonsense(void)
{
    return trp_fail(TRP_UNAVAILABLE, "the other rank's memory holds no such lane");
}

static trp_status is_closed(void)
{
    return trp_fail(TRP_UNAVAILABLE, "closed");
}

static trp_status look_how_far(struct shared_lane *lane)
{
    uint64_t passed = atomic_load_explicit(&lane->theirs->taken, memory_order_acquire);
    if (lane->written - passed > lane->written - lane->passed)
        return is_nonsense();
    lane->passed = passed;
    return TRP_OK;
}

static void publish_written(struct shared_lane *lane)
{
    atomic_store(&lane->mine->written, lane->written);
    wake_other(lane, SLEEPS_TO_RECEIVE);
}

static void copy_in(struct shared_lane *lane, const void *bytes, size_t size)
{
    size_t at = lane->written % RING_BYTES;
    size_t before = size < RING_BYTES - at ? size : RING_BYTES - at;
    memcpy(lane->mine->ring + at, bytes, before);
    memcpy(lane->mine->ring, (const uint8_t *)bytes + before, size - before);
    lane->written += size;
}

static void be_in_place(struct shared_lane *lane, bool in_place, const void *bytes)
{
    lane->told = lane->written;
    lane->in_place = in_place;
    atomic_store_explicit(&lane->mine->place, (uintptr_t)bytes - lane->written,
                          memory_order_relaxed);
    atomic_store_explicit(&lane->mine->in_place, in_place, memory_order_relaxed);
}

/* The part is the one that is there, with more behind it perhaps. */
static trp_status send_in_place(struct shared_lane *lane, const struct iovec *part, size_t *taken)
{
    uint64_t end = lane->told + part->iov_len;
    TRP_TRY(look_how_far(lane));
    *taken = (size_t)(lane->passed - lane->told);
    lane->told = lane->passed;
    if (end != lane->written) {
        lane->written = end;
        publish_written(lane);
    }
    if (lane->passed == lane->written)
        be_in_place(lane, false, NULL);
    return TRP_OK;
}

static bool is_for_its_place(const struct shared_lane *lane, const struct iovec *part)
{
    return lane->is_read && part->iov_len >= COLLECTIVE_IN_PLACE_BYTES;
}

/* No more at a time than the other one may as well begin with. */
static trp_status send_by_ring(struct shared_lane *lane, const struct iovec *parts, unsigned count,
                               size_t *taken)
{
    if (RING_BYTES - (lane->written - lane->passed) < COLLECTIVE_GRAIN_BYTES)
        TRP_TRY(look_how_far(lane));
    size_t room = RING_BYTES - (size_t)(lane->written - lane->passed);
    room = room < COLLECTIVE_GRAIN_BYTES ? room : COLLECTIVE_GRAIN_BYTES;
    for (unsigned i = 0; i < count && *taken < room && !is_for_its_place(lane, &parts[i]); i++) {
        size_t left = room - *taken;
        size_t size = parts[i].iov_len < left ? parts[i].iov_len : left;
        copy_in(lane, parts[i].iov_base, size);
        *taken += size;
    }
    if (*taken > 0)
        publish_written(lane);
    return TRP_OK;
}

static trp_status shared_lane_send(struct peer_lane *base, const struct iovec *parts,
                                   unsigned part_count, size_t *taken)
{
    struct shared_lane *lane = (struct shared_lane *)base;
    *taken = 0;
    if (lane->closed)
        return is_closed();
    if (lane->in_place)
        return send_in_place(lane, parts, taken);
    if (!is_for_its_place(lane, parts))
        return send_by_ring(lane, parts, part_count, taken);
    TRP_TRY(look_how_far(lane));
    if (lane->passed != lane->written)
        return TRP_OK;
    be_in_place(lane, true, parts->iov_base);
    return send_in_place(lane, parts, taken);
}

static void shared_lane_withdraw(struct peer_lane *base)
{
    atomic_store(&((struct shared_lane *)base)->mine->withdrawn, 1);
}

/* ---- receiving ----------------------------------------------------------------------------- */

/* How many bytes are there, and whether they are in the other one's memory. */
static trp_status look_what_came(struct shared_lane *lane, size_t wanted, size_t *have,
                                 bool *in_place)
{
    if (lane->came - lane->taken < wanted)
        lane->came = atomic_load_explicit(&lane->theirs->written, memory_order_acquire);
    *have = (size_t)(lane->came - lane->taken);
    *in_place =
        *have > 0 && atomic_load_explicit(&lane->theirs->in_place, memory_order_relaxed) != 0;
    if (*in_place ? lane->pid == 0 : *have > RING_BYTES)
        return is_nonsense();
    return *have == 0 && lane->closed ? is_closed() : TRP_OK;
}

/* Its process may have ended, and its number be another one's. */
static trp_status copy_from_place(struct shared_lane *lane, void *to, size_t size)
{
    uint64_t place = atomic_load_explicit(&lane->theirs->place, memory_order_relaxed);
    struct iovec local = {to, size}, remote = {(void *)(uintptr_t)(place + lane->taken), size};
    ssize_t copied = process_vm_readv(lane->pid, &local, 1, &remote, 1, 0);
    shared_lane_rouse(&lane->base);
    if (lane->closed)
        return is_closed();
    if (copied != (ssize_t)size || atomic_load(&lane->theirs->withdrawn))
        return trp_fail(TRP_UNAVAILABLE, "the other rank's values are gone");
    return TRP_OK;
}

static trp_status peek_in_place(struct shared_lane *lane, size_t size, const void **bytes)
{
    if (!lane->copies)
        lane->copies = xaligned(LINE_BYTES, COLLECTIVE_SEGMENT_BYTES);
    *bytes = lane->copies;
    return copy_from_place(lane, lane->copies, size);
}

/* Straight on to the ring's end; or, where that is not enough, just enough. */
static size_t peek_in_ring(struct shared_lane *lane, size_t least, size_t most, const void **bytes)
{
    const uint8_t *ring = lane->theirs->ring;
    size_t at = lane->taken % RING_BYTES, straight = RING_BYTES - at;
    if (straight < least) {
        memcpy(lane->across, ring + at, straight);
        memcpy(lane->across + straight, ring, least - straight);
        *bytes = lane->across;
        return least;
    }
    *bytes = ring + at;
    most = most < COLLECTIVE_GRAIN_BYTES ? most : COLLECTIVE_GRAIN_BYTES;
    return most < straight ? most : straight;
}

static trp_status shared_lane_peek(struct peer_lane *base, size_t least, size_t most,
                                   const void **bytes, size_t *size)
{
    struct shared_lane *lane = (struct shared_lane *)base;
    bool in_place;
    size_t have;
    *size = 0;
    TRP_TRY(look_what_came(lane, most, &have, &in_place));
    if (have < least)
        return TRP_OK;
    most = have < most ? have : most;
    if (!in_place) {
        *size = peek_in_ring(lane, least, most, bytes);
        return TRP_OK;
    }
    *size = most < COLLECTIVE_SEGMENT_BYTES ? most : COLLECTIVE_SEGMENT_BYTES;
    return peek_in_place(lane, *size, bytes);
}

static void shared_lane_skip(struct peer_lane *base, size_t size)
{
    struct shared_lane *lane = (struct shared_lane *)base;
    lane->taken += size;
    atomic_store(&lane->mine->taken, lane->taken);
    wake_other(lane, SLEEPS_TO_SEND);
}

static trp_status shared_lane_receive(struct peer_lane *base, void *to, size_t size, size_t *came)
{
    struct shared_lane *lane = (struct shared_lane *)base;
    const void *bytes = NULL;
    bool in_place;
    size_t have;
    *came = 0;
    TRP_TRY(look_what_came(lane, size, &have, &in_place));
    if (have == 0)
        return TRP_OK;
    size = have < size ? have : size;
    if (in_place) {
        size = size < COLLECTIVE_SEGMENT_BYTES ? size : COLLECTIVE_SEGMENT_BYTES;
        TRP_TRY(copy_from_place(lane, to, size));
    } else {
        size = peek_in_ring(lane, 1, size, &bytes);
        memcpy(to, bytes, size);
    }
    *came = size;
    shared_lane_skip(base, size);
    return TRP_OK;
}

/* ---- its life ------------------------------------------------------------------------------ */

static void shared_lane_destroy(struct peer_lane *base)
{
    struct shared_lane *lane = (struct shared_lane *)base;
    munmap((void *)(uintptr_t)lane->map, lane->map_bytes);
    lane_memory_leave(lane->memory);
    fd_close(lane->fd);
    free(lane->copies);
    free(lane);
}

static const struct lane_impl shared_impl = {
    .send = shared_lane_send,
    .receive = shared_lane_receive,
    .peek = shared_lane_peek,
    .skip = shared_lane_skip,
    .arm = shared_lane_arm,
    .rouse = shared_lane_rouse,
    .withdraw = shared_lane_withdraw,
    .destroy = shared_lane_destroy,
};

struct peer_lane *shared_lane_create(int fd, struct lane_memory *memory, const uint8_t *theirs,
                                     const struct lane_ends *ends)
{
    struct shared_lane *lane = xcalloc(1, sizeof *lane);
    *lane = (struct shared_lane){
        .base = {&shared_impl},
        .fd = fd,
        .memory = memory,
        .map = theirs,
        .map_bytes = lane_memory_bytes(ends->size),
        .mine = (void *)(memory->sealed.memory + part_at(ends->theirs)),
        .theirs = (const void *)(theirs + part_at(ends->mine)),
        .is_read = ends->is_read,
        .pid = ends->pid,
    };
    memory->users++;
    return &lane->base;
}
