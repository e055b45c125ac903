/* Bytes that are combined or looked at come by way of a buffer that stays in the cache; others go
 * from the socket to where they belong. */
#include "socket_lane.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/alloc.h"
#include "core/file.h"
#include "limits.h"

struct socket_lane {
    struct peer_lane base;
    int fd;
    uint8_t *buffer;
    size_t begin, end; /* of what came and was not taken */
};

enum { BUFFER_BYTES = COLLECTIVE_SEGMENT_BYTES + LANE_LEAST_MAX };

static trp_status socket_failed(ssize_t result)
{
    if (result < 0 && errno_is_again(errno))
        return TRP_OK;
    return trp_fail(TRP_UNAVAILABLE, "%s", result == 0 ? "closed" : strerror(errno));
}

static trp_status socket_lane_send(struct peer_lane *base, const struct iovec *parts,
                                   unsigned part_count, size_t *taken)
{
    struct socket_lane *lane = (struct socket_lane *)base;
    struct iovec some[2]; /* not so much that what comes has to wait */
    size_t room = COLLECTIVE_SEND_BYTES;
    unsigned count = 0;
    for (; count < part_count && count < 2 && room > 0; count++) {
        size_t size = parts[count].iov_len < room ? parts[count].iov_len : room;
        some[count] = (struct iovec){parts[count].iov_base, size};
        room -= size;
    }
    struct msghdr message = {.msg_iov = some, .msg_iovlen = count};
    ssize_t sent = sendmsg(lane->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    *taken = sent > 0 ? (size_t)sent : 0;
    return sent > 0 ? TRP_OK : socket_failed(sent);
}

static trp_status receive_into(struct socket_lane *lane, void *to, size_t size, size_t *came)
{
    ssize_t got = recv(lane->fd, to, size, MSG_DONTWAIT);
    *came = got > 0 ? (size_t)got : 0;
    return got > 0 ? TRP_OK : socket_failed(got);
}

static trp_status socket_lane_receive(struct peer_lane *base, void *to, size_t size, size_t *came)
{
    struct socket_lane *lane = (struct socket_lane *)base;
    size_t have = lane->end - lane->begin;
    if (have == 0)
        return receive_into(lane, to, size, came);
    *came = have < size ? have : size;
    memcpy(to, lane->buffer + lane->begin, *came);
    lane->begin += *came;
    return TRP_OK;
}

static trp_status socket_lane_peek(struct peer_lane *base, size_t least, size_t most,
                                   const void **bytes, size_t *size)
{
    struct socket_lane *lane = (struct socket_lane *)base;
    size_t have = lane->end - lane->begin;
    *size = 0;
    if (have < least) {
        memmove(lane->buffer, lane->buffer + lane->begin, have);
        lane->begin = 0;
        lane->end = have;
        size_t room = BUFFER_BYTES - have, came;
        size_t wanted = most - have < room ? most - have : room;
        TRP_TRY(receive_into(lane, lane->buffer + have, wanted, &came));
        lane->end = have += came;
    }
    if (have < least)
        return TRP_OK;
    *bytes = lane->buffer + lane->begin;
    *size = have < most ? have : most;
    return TRP_OK;
}

static void socket_lane_skip(struct peer_lane *base, size_t size)
{
    ((struct socket_lane *)base)->begin += size;
}

static bool socket_lane_arm(struct peer_lane *base, bool send, bool receive, struct pollfd *fd)
{
    struct socket_lane *lane = (struct socket_lane *)base;
    short events = (short)((send ? POLLOUT : 0) | (receive ? POLLIN : 0));
    *fd = (struct pollfd){.fd = lane->fd, .events = events};
    return true; /* poll() looks by itself, and less than a whole value in the buffer is nothing */
}

static void socket_lane_destroy(struct peer_lane *base)
{
    struct socket_lane *lane = (struct socket_lane *)base;
    fd_close(lane->fd);
    free(lane->buffer);
    free(lane);
}

static const struct lane_impl socket_impl = {
    .send = socket_lane_send,
    .receive = socket_lane_receive,
    .peek = socket_lane_peek,
    .skip = socket_lane_skip,
    .arm = socket_lane_arm,
    .destroy = socket_lane_destroy,
};

struct peer_lane *socket_lane_create(int fd)
{
    struct socket_lane *lane = xcalloc(1, sizeof *lane);
    *lane = (struct socket_lane){
        .base = {&socket_impl}, .fd = fd, .buffer = xaligned(64, BUFFER_BYTES)};
    return &lane->base;
}
