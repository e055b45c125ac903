/* Bounds that several folders share, with their arithmetic. */
#ifndef TRP_CORE_LIMITS_H
#define TRP_CORE_LIMITS_H

#include <stdint.h>

enum {
    /* status.c: one line that a terminal still shows whole. */
    ERROR_MESSAGE_BYTES_MAX = 1024,
    /* log.c: PIPE_BUF, so that one write(2) to a pipe is atomic. */
    LOG_LINE_BYTES_MAX = 4096,
    NODE_NAME_BYTES_MAX = 64,
    /* address.c: sun_path without its NUL. */
    UNIX_PATH_BYTES_MAX = 107,
    /* replay/: items of one table: slots are 32 bits and arrays double; 2^31 - 1 items of at least
     * 100 bytes are 200 GB of memory. */
    TABLE_ITEMS_MAX = INT32_MAX,
    /* sampler/unpack.c: a sample spread over messages is kept until it is complete: what one
     * protobuf message could hold. */
    SAMPLE_BYTES_MAX = INT32_MAX,
    /* rpc/, protobuf.h: nesting of messages from outside, and of groups in fields that we do not
     * know; protobuf-c recurses, 64 levels take 32 KB of stack. */
    MESSAGE_DEPTH_MAX = 64,
    /* board.c: versions of the parameters that a learner keeps in memory, so that who reads one on
     * this host has time for it: two more are written first, which takes at least as long as two
     * copies. And looks for one that is not just being replaced. */
    BOARD_KEPT = 4,
    BOARD_TRIES = 8,
    /* board.c: versions that are on their way to readers elsewhere, who may stop reading: so many
     * more, at most. Beyond it what is sent is copied. */
    BOARD_LENT = 4,
    /* team.c: Adam on the 71 000 parameters of the smallest network that has a team lies between
     * two of its jobs, and the parts of a job end so far apart; a thread that slept is 50 us late.
     */
    TEAM_SPIN_NS = 100000,
    TEAM_SPINS = 16, /* between looks at the clock */
    /* actor/: steps of one item; beyond the longest episodes that anyone bootstraps over. */
    NSTEP_MAX = 1024,
    /* reach.c: names that are asked for at a time; each may keep a thread for ten seconds. */
    LOOKUPS_MAX = 16,
    /* rpc/: a connection on which nothing came for so long is asked, and given up without an answer
     * after so long: its client knows after 80 s at most that the link is gone. */
    RPC_KEEPALIVE_MS = 60000,
    RPC_KEEPALIVE_TIMEOUT_MS = 20000,
};

#endif
