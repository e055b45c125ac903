/* The data of a replay server in memory: chunks, trajectories and items.
 *
 *   table --owns--> item --refers to--> chunks (shared by items and streams)
 *                        `-refers to--> trajectory (interned: items of one shape share it)
 *
 * Owner of all of it: whoever holds the server's lock (one thread at a time). */
#ifndef TRP_REPLAY_MODEL_ITEM_H
#define TRP_REPLAY_MODEL_ITEM_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* A ChunkData message without its chunk_key field. Clients' keys are resolved in their stream and
 * forgotten; everybody else sees `seq` as the key. */
struct chunk {
    uint64_t seq;       /* server-assigned, ascending from 1; 0 until the chunk is stored */
    uint32_t refs;      /* items in memory, streams' keep sets, responses being built */
    uint32_t size : 31; /* bytes */
    /* The store's: an earlier life wrote it, this one has not compared it with its sum. */
    uint32_t unchecked : 1;
    uint64_t episode; /* the id that the client gave; 0: none */
};

/* How an item's columns are cut from its chunks: the FlatTrajectory message with each chunk_key
 * replaced by an index into the item's chunks, in a canonical encoding (trajectory.h). */
struct trajectory {
    uint32_t refs;
    uint32_t hash;
    uint32_t size;
    uint32_t chunk_count;
    struct trajectory *next; /* chain of the interning table */
    uint8_t bytes[];
};

enum { SLOT_NONE = UINT32_MAX };

struct item {
    uint64_t key; /* the client's, opaque */
    uint64_t seq; /* server-assigned per store, ascending; 0 until inserted */
    double priority;
    int64_t inserted_at_ns;  /* wall clock */
    uint64_t policy_version; /* of the policy that produced it; 0: not said */
    uint32_t fingerprint;    /* of trajectory and priority as they came: equal if sent again */
    int32_t times_sampled;
    uint32_t slot;    /* dense index in its table; SLOT_NONE outside */
    bool unconfirmed; /* in this life: nobody was left to be told that it was inserted */
    struct trajectory *trajectory;
    struct chunk *chunks[]; /* trajectory->chunk_count of them, each with one reference */
};

/* An item as it was drawn from its table. */
struct table_sample {
    struct item *item;
    double probability;
    int64_t table_size;    /* before a removal by this sample */
    int32_t times_sampled; /* including this one */
    bool removed;          /* max_times_sampled reached: the item is the caller's now */
};

static inline void chunk_ref(struct chunk *chunk)
{
    assert(chunk->refs > 0);
    chunk->refs++;
}

static inline uint64_t item_chunk_bytes(const struct item *item)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < item->trajectory->chunk_count; i++)
        bytes += item->chunks[i]->size;
    return bytes;
}

#endif
