/* The messages of /troupe.Replay/SampleShared, a stream between a sampler and a server that have
 * the file of the store in common. Numbers are little-endian, fixed in size and place.
 *
 *   client: hello, ask, ask, ...            server: welcome, samples, samples, ...
 *
 *   hello    u32 magic, u32 version, u64 window, boot id [40], u32 table bytes, table
 *   welcome  struct shared_layout, u32 bytes of data_path, u32 of lease_path, the two paths
 *   ask      struct shared_ask
 *   samples  struct shared_header, then as many as it says of struct shared_trajectory,
 *            shared_entry, shared_chunk, u64 page numbers, bytes
 *
 * A chunk is cut into pieces of piece_bytes. Its first `pages` pieces lie in data.mdb, each at
 * page * page_bytes + piece_offset; the rest lies in the message's bytes. Of a chunk that the
 * server has not compared with its sum, that lies behind it as if it were its last bytes: whoever
 * copies it compares (model/chunk_sum.h), and asks with the key of a damaged item. A trajectory is
 * in the canonical form of model/trajectory.h. Decoders check every number against the message
 * before it is used; whether a page is in the file is for the reader of the file to check. */
#ifndef TRP_REPLAY_WIRE_SHARED_WIRE_H
#define TRP_REPLAY_WIRE_SHARED_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/bytes.h>
#include <troupe/rpc.h>
#include <troupe/status.h>
#include "core/boot.h"
#include "core/buffer.h"

enum {
    SHARED_MAGIC = 0x73707274, /* "trps" */
    SHARED_VERSION = 2,        /* of 1 the server alone compared chunks with their sums */
    SHARED_NONCE_BYTES = 16,
};

struct shared_hello {
    uint64_t window; /* bytes of pages that the client wants to have at a time */
    char boot_id[BOOT_ID_BYTES];
    trp_bytes table;
};

/* How to find and trust the shared files. */
struct shared_layout {
    uint32_t magic, version;
    uint64_t page_bytes, map_bytes;     /* of data.mdb */
    uint64_t piece_offset, piece_bytes; /* in a page */
    uint64_t device, inode;             /* of data.mdb */
    uint64_t nonce_at;                  /* where in data.mdb the nonce is */
    uint8_t nonce[SHARED_NONCE_BYTES];  /* made for this server's life */
    uint64_t window;                    /* granted */
    uint64_t lease_index, lease;        /* the word of the lease file, while the lease lasts */
};
_Static_assert(sizeof(struct shared_layout) == 104, "on the wire: change SHARED_VERSION with this");

struct shared_welcome {
    struct shared_layout layout;
    trp_bytes data_path, lease_path;
};

/* The shared memory segment that a server makes for an insert stream whose writer said hello
 * (window: 0, no table) in its first message: memory that both see; the server has its file open.
 */
struct shared_segment {
    uint32_t magic, version;
    uint64_t bytes;
    uint64_t device, inode;            /* of the file, */
    uint32_t pid, fd;                  /* which is /proc/PID/fd/FD */
    uint8_t nonce[SHARED_NONCE_BYTES]; /* its first bytes */
};
_Static_assert(sizeof(struct shared_segment) == 56, "on the wire: change SHARED_VERSION with this");

struct shared_ask {
    uint64_t released;  /* samples messages that the client is done with, since the beginning */
    int64_t samples;    /* more, or 0 */
    int64_t timeout_ms; /* of the limiter; negative: none */
    uint64_t round;     /* of the last message received: requests from before it expired are void */
    uint64_t key;       /* of an item in the first message that is not released, */
    uint64_t damaged;   /* if that has a chunk that is; else 0 */
};
_Static_assert(sizeof(struct shared_ask) == 48, "on the wire: change SHARED_VERSION with this");

enum shared_flags {
    SHARED_RELEASE = 1, /* it has pages, or samples given for the last time: release it soon */
    SHARED_EXPIRED = 2, /* the limiter held the rest back; a new round begins */
    SHARED_COLD = 4,    /* some of its pages came from the disk just now */
};

/* The arrays of a samples message, in their order. */
enum shared_array {
    SHARED_TRAJECTORIES,
    SHARED_ENTRIES,
    SHARED_CHUNKS,
    SHARED_PAGES,
    SHARED_BYTES,
    SHARED_ARRAYS
};

struct shared_header {
    uint32_t magic, flags;
    uint64_t round;
    uint32_t counts[SHARED_ARRAYS], reserved;
};
_Static_assert(sizeof(struct shared_header) == 40, "on the wire: change SHARED_VERSION with this");

struct shared_trajectory {
    uint32_t at, size; /* in the message's bytes */
    uint32_t chunk_count, reserved;
};
_Static_assert(sizeof(struct shared_trajectory) == 16, "on the wire: change SHARED_VERSION");

struct shared_entry {
    uint64_t key;
    double priority, probability;
    int64_t table_size;
    uint64_t policy_version;
    int32_t times_sampled;
    uint32_t rate_limited;
    uint32_t trajectory;  /* index */
    uint32_t chunk_first; /* as many as the trajectory says */
};
_Static_assert(sizeof(struct shared_entry) == 56, "on the wire: change SHARED_VERSION with this");

struct shared_chunk {
    uint32_t size;
    uint32_t pages : 31, unchecked : 1;
    uint32_t page_first; /* in the message's pages */
    uint32_t bytes_at;   /* of the rest, in the message's bytes */
};
_Static_assert(sizeof(struct shared_chunk) == 16, "on the wire: change SHARED_VERSION with this");

trp_status shared_hello_encode(const struct shared_hello *hello, trp_message **message);
trp_status shared_welcome_encode(const struct shared_welcome *welcome, trp_message **message);
trp_status shared_ask_encode(const struct shared_ask *ask, trp_message **message);

trp_status shared_segment_decode(trp_bytes bytes, struct shared_segment *segment);

/* Spans point into `bytes`. INVALID_ARGUMENT: malformed, or another version. */
trp_status shared_hello_decode(trp_bytes bytes, struct shared_hello *hello);
trp_status shared_welcome_decode(trp_bytes bytes, struct shared_welcome *welcome);
trp_status shared_ask_decode(trp_bytes bytes, struct shared_ask *ask);

/* ---- samples ----------------------------------------------------------------------------- */

/* A samples message being built; reused. */
struct shared_builder {
    struct buffer arrays[SHARED_ARRAYS];
};

void shared_builder_clear(struct shared_builder *builder);
void shared_builder_cleanup(struct shared_builder *builder);

/* The index of an equal trajectory of this message, which is added if there is none. */
uint32_t shared_builder_trajectory(struct shared_builder *builder, trp_bytes trajectory,
                                   uint32_t chunk_count);

/* RESOURCE_EXHAUSTED: no memory, or more than 4 GiB of bytes. */
trp_status shared_samples_encode(const struct shared_builder *builder, uint32_t flags,
                                 uint64_t round, trp_message **message);

/* A samples message being read; points into its bytes. */
struct shared_samples {
    struct shared_header header;
    const uint8_t *arrays[SHARED_ARRAYS];
};

/* Where a chunk's pieces are, checked against the message. */
struct shared_chunk_view {
    uint32_t size, page_count;
    uint32_t sum_bytes;   /* behind it: its sum, which is to be compared; or 0 */
    const uint8_t *pages; /* page_count u64, unaligned */
    trp_bytes rest;
};

trp_status shared_samples_decode(trp_bytes bytes, struct shared_samples *samples);

/* False: out of the message. `index` is below the header's count. */
bool shared_samples_trajectory(const struct shared_samples *samples, uint32_t index,
                               trp_bytes *trajectory, uint32_t *chunk_count);
void shared_samples_entry(const struct shared_samples *samples, uint32_t index,
                          struct shared_entry *entry);
bool shared_samples_chunk(const struct shared_samples *samples, uint64_t index,
                          uint64_t piece_bytes, struct shared_chunk_view *chunk);

#endif
