/* Every bound in the project that is not an option, with its arithmetic. */
#ifndef TRP_CORE_LIMITS_H
#define TRP_CORE_LIMITS_H

#include <stdint.h>

enum {
    /* status.c: one line that a terminal still shows whole. */
    ERROR_MESSAGE_BYTES_MAX = 1024,
    /* log.c: PIPE_BUF, so that one write(2) to a pipe is atomic. */
    LOG_LINE_BYTES_MAX = 4096,
    NODE_NAME_BYTES_MAX = 64,
    /* wire.c: parts of one message that are kept decoded: 2^20 items x 72 bytes and as many chunks,
     * 2^22 columns x 12 and slices x 24 bytes are at most 300 MB, whatever the message. */
    MESSAGE_ITEMS_MAX = 1 << 20,
    MESSAGE_SLICES_MAX = 1 << 22,
    WIRE_DEPTH_MAX = 64, /* nested groups in fields we do not know */
    /* rpc/: 1024 events of about 3 us each: a group takes 3 ms at most. */
    RPC_GROUP_EVENTS_MAX = 1024,
    /* rpc/: calls of one method that the server accepts in one look at its queue. */
    RPC_REQUESTS_POSTED = 32,
    /* rpc/: what an in-process stream takes in before its server's sends queue up: HTTP/2's default
     * window, at least one message, and 64 messages of small ones. */
    RPC_INBOX_BYTES = 64 * 1024,
    RPC_INBOX_MESSAGES = 64,
    /* rpc/: below this a copy is cheaper than a reference, and does not pin a read buffer of 8 KB. */
    RPC_COPY_BYTES_MAX = 256,
    /* rpc/: nesting of messages from outside; protobuf-c recurses, 64 levels take 32 KB of stack. */
    RPC_MESSAGE_DEPTH_MAX = 64,
    /* rpc/: services that are in servers of one process: 64 nodes of 16 services. */
    RPC_SERVICES_MAX = 1024,
    /* rpc/: sun_path without its NUL. */
    RPC_UNIX_PATH_BYTES_MAX = 107,
    /* replay/: items of one table: slots are 32 bits and arrays double; 2^31 - 1 items of at least
     * 100 bytes are 200 GB of memory. */
    TABLE_ITEMS_MAX = INT32_MAX,
    /* replay/: a table's name travels in every request for it. */
    TABLE_NAME_BYTES_MAX = 255,
    /* replay/: a signature travels in every ServerInfo: 1000 columns of 1 KB. */
    TABLE_SIGNATURE_BYTES_MAX = 1 << 20,
    /* signature.c: a table of 4096 columns is beyond anyone's; names in paths are cut. */
    SIGNATURE_LEAVES_MAX = 4096,
    SIGNATURE_DEPTH_MAX = 64,
    SIGNATURE_NAME_BYTES_MAX = 256,
    /* history.c: smaller tensors are not worth a look; a column that failed to shrink 4 times in a row
     * is looked at once in 17 chunks: 6 % of the cost on noise. */
    WRITER_COMPRESS_BYTES_MIN = 256,
    WRITER_COMPRESS_FAILURES = 4,
    WRITER_COMPRESS_PAUSE = 16,
    /* actor/: steps of one item; beyond the longest episodes that anyone bootstraps over. */
    NSTEP_MAX = 1024,
    /* actor/: copies of one environment in one actor: 65 536 CartPoles are 10 MB. */
    ACTOR_COPIES_MAX = 65536,
    /* adder.c: items unconfirmed per copy and at least: 256 items hide 25 ms of a table's answer
     * at 10 000 steps/s, and are little beside a table's error buffer. */
    ADDER_IN_FLIGHT_PER_COPY = 64,
    ADDER_IN_FLIGHT_MIN = 256,
};

#endif
