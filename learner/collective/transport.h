/* How bytes get from one rank to another. A lane is one rank's end of the two streams that join it
 * with one other rank. Everything above (algorithms, headers, failures, deadlines) is the same for
 * all kinds of lanes: sockets, memory that processes of a host
 * share, and threads of a process.
 *
 * Calls come from one thread at a time, and never wait. A failure says that the other end is gone
 * or the way to it is; why, is found out elsewhere (notice.h), so a lane's words are few. */
#ifndef TRP_LEARNER_TRANSPORT_H
#define TRP_LEARNER_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <poll.h>
#include <sys/uio.h>

#include <troupe/status.h>

struct peer_lane;

struct lane_impl {
    /* Offers the bytes of `parts`; *taken of them, the first ones, are sent: they were copied, or
     * the peer is done with them. The others stay as they are and are offered again by the next
     * call, with more behind them perhaps: the peer may read them in place meanwhile. */
    trp_status (*send)(struct peer_lane *lane, const struct iovec *parts, unsigned part_count,
                       size_t *taken);
    /* Copies up to `size` of the bytes that come next. */
    trp_status (*receive)(struct peer_lane *lane, void *to, size_t size, size_t *came);
    /* The bytes that come next, where they lie: none, or at least `least` (LANE_LEAST_MAX at most)
     * and at most `most` of them, at any alignment. They stay until lane_impl.skip() of them,
     * which comes before any other call but send(). */
    trp_status (*peek)(struct peer_lane *lane, size_t least, size_t most, const void **bytes,
                       size_t *size);
    void (*skip)(struct peer_lane *lane, size_t size);
    /* Before a sleep: what wakes it up when more can be sent, or received. False: that is so
     * already. */
    bool (*arm)(struct peer_lane *lane, bool send, bool receive, struct pollfd *fd);
    /* After a sleep that its descriptor ended. NULL: there is nothing to do. */
    void (*rouse)(struct peer_lane *lane);
    /* Nobody reads what was offered, once it returns: the operation failed, and its memory goes.
     * NULL: nobody ever does. */
    void (*withdraw)(struct peer_lane *lane);
    void (*destroy)(struct peer_lane *lane);
};

/* The first member of every lane. */
struct peer_lane {
    const struct lane_impl *impl;
};

enum { LANE_LEAST_MAX = 64 };

#endif
