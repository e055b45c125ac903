/* Bounds of rpc/ that are no option, with their arithmetic. */
#ifndef TRP_RPC_LIMITS_H
#define TRP_RPC_LIMITS_H

#include <stdint.h>

enum {
    /* rpc/: 1024 events of about 3 us each: a group takes 3 ms at most. */
    RPC_GROUP_EVENTS_MAX = 1024,
    /* rpc/: about 10 messages of 28 KB: enough to share a commit, and still in the cache when they
     * are answered. */
    RPC_GROUP_BYTES_MAX = 256 * 1024,
    /* rpc/: what connections may take of gRPC's quota besides messages: 16 KB each for 1000, more
     * come out of the messages' share. */
    RPC_CONNECTIONS_BYTES = 16 << 20,
    /* rpc/: replies of any size that callers need not have read for others to get theirs; beyond
     * half of their bytes there is room for small ones only. */
    RPC_REPLIES_MIN = 4,
    RPC_SMALL_REPLY_BYTES = 64 << 10,
    /* rpc/: what a message that waits for room is taken for: as much as a stream of samples mostly
     * sends in one. */
    RPC_UNREAD_BYTES_TYPICAL = 2 << 20,
    /* rpc/: a client that reads nothing for now leaves less than this part unread: 128 MiB are 45
     * streams of samples. */
    RPC_UNREAD_PAUSE_SHARE = 8,
    /* rpc/: what a reply may take decoded: 8 times its bytes, as many small numbers do, and 64 MiB,
     * which are the 100 000 rows of 600 bytes that come as two bytes each. */
    RPC_REPLY_DECODED_TIMES = 8,
    RPC_REPLY_DECODED_BYTES = 64 << 20,
    /* rpc/: calls of one connection at a time: more wait at the client; 5 KB each. */
    RPC_STREAMS_MAX = 4096,
    /* rpc/: what an in-process stream takes in before its server's sends queue up: HTTP/2's default
     * window, at least one message, and 64 messages of small ones. */
    RPC_INBOX_BYTES = 64 * 1024,
    RPC_INBOX_MESSAGES = 64,
    /* rpc/: memory of messages before a stream's status that stay for a caller whose send found it
     * ended, and one more message: what the transport has of them by then, which is its window, of
     * 64 KB to some MB; small ones take 150 bytes each. */
    RPC_ENDED_BYTES_MAX = 16 << 20,
    /* rpc/: how long a group_end that wants to be called at once waits behind local callers, who
     * come every 100 us when they come: to wake the reactor for each costs more than what they do.
     */
    RPC_LOCAL_PAUSE_MS = 10,
    /* rpc/: below this a copy is cheaper than a reference, and does not pin a read buffer of 8 KB.
     */
    RPC_COPY_BYTES_MAX = 256,
    /* rpc/: below this several slices are joined: a copy takes a microsecond, and does not pin read
     * buffers of 64 KB. */
    RPC_JOIN_BYTES_MAX = 16 * 1024,
    /* rpc/: bytes of a field that are worth a look for them before a message is joined. */
    RPC_LONG_BYTES_MIN = 64 * 1024,
    /* rpc/: memory that is kept for the next message, in malloc's first arena; each other one that
     * threads have used keeps its heap, which has 64 MiB: of 8 threads with 50 MiB each all stays.
     */
    RPC_KEPT_BYTES = 128 << 20,
    /* rpc/: how late a call whose time is up may end as it asks why its peer is not there: 100
     * times what a connection within a host takes. */
    RPC_REACH_MS = 100,
    /* call_ring.h: parts of something large under way: one is copied here, one is on the wire, one
     * is copied at the other end. */
    RPC_RING_CALLS = 3,
    /* library.c: of `ulimit -v`, what heaps of threads may take: a store takes a quarter. */
    RPC_HEAPS_SHARE = 8,
    /* library.c: threads that a server begins with, besides gRPC's one for each of up to 32 cores:
     * four of gRPC's, five of ours, three of a store's, and some that come with calls. */
    RPC_THREADS = 16,
    /* rpc/: services that are in servers of one process: 64 nodes of 16 services. */
    RPC_SERVICES_MAX = 1024,
};

#endif
