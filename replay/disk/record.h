/* The contents of the database: keys, records, and their checked decoders. No LMDB in here.
 *
 *   dbi      key                    value
 *   meta     1                      struct meta_record
 *   meta     2                      random bytes of the server that has, or had, the store open
 *   meta     16 + table id          the table's counters, COUNTERS of int64_t, and their sum
 *   tables   table id, part         a table record, cut into parts of at most PIECE_BYTES; without
 *                                   a name: all items with this table id are gone
 *   items    item seq, part         an item record, cut into parts of at most PIECE_BYTES
 *   pieces   chunk seq, piece       a chunk and its sum, cut likewise
 *   changes  ascending number       at most CHANGES_PER_PART of struct change, and their sum
 *   parked   1, 2, ...              nothing: pages that a development version took from LMDB and
 *                                   punched out of the file; nobody touches them
 *   removed  ascending number       struct removed_record of one group, and their sum
 *
 * Format 2 had sums of chunks and of what never changes of items only. Its values are read as they
 * are and stay so until they are written anew: each says whether it has a sum.
 *
 * All keys are one 64-bit integer; all numbers are little-endian (asserted where they are read). */
#ifndef TRP_REPLAY_DISK_RECORD_H
#define TRP_REPLAY_DISK_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/bytes.h>
#include "core/buffer.h"
#include "replay/model/chunk_sum.h"
#include "replay/model/item.h"

enum {
    STORE_FORMAT = 3,
    STORE_FORMAT_BEFORE = 2,      /* that is read, too */
    PIECE_BYTES = 4080,           /* one page less the header of an overflow page */
    PIECE_BITS = 17,              /* 2^17 pieces of 4080 bytes = 510 MiB > the largest item */
    PIECES_MAX = 1 << PIECE_BITS, /* the other 47 bits: 4 years of a million a second */
    NONCE_BYTES = 16,             /* as many as a random UUID */
    CHANGES_PER_PART = (PIECE_BYTES - SUM_BYTES) / 16,
};

#define SEQ_MAX ((UINT64_C(1) << (64 - PIECE_BITS)) - 1)

static inline uint64_t piece_key(uint64_t seq, uint32_t piece)
{
    return seq << PIECE_BITS | piece;
}

static inline uint64_t piece_key_seq(uint64_t key)
{
    return key >> PIECE_BITS;
}

static inline uint32_t piece_key_piece(uint64_t key)
{
    return key & (PIECES_MAX - 1);
}

/* The parts of one value while they come one by one: each but the last is PIECE_BYTES long. A
 * zeroed struct is the beginning. */
struct part_row {
    uint64_t bytes;
    uint32_t parts;
    bool broken; /* they are not parts of one value in their order */
};

static inline void part_row_add(struct part_row *row, uint64_t key, size_t size)
{
    row->broken |= piece_key_piece(key) != row->parts || size > PIECE_BYTES ||
                   row->bytes != (uint64_t)row->parts * PIECE_BYTES;
    row->parts++;
    row->bytes += size;
}

/* Pieces of `size` bytes; an empty value has one, empty, piece. */
static inline uint32_t piece_count(uint64_t size)
{
    return size ? (uint32_t)((size + PIECE_BYTES - 1) / PIECE_BYTES) : 1;
}

/* Pieces of a chunk of `size` bytes with its sum. */
static inline uint32_t chunk_pieces(uint32_t size)
{
    return piece_count((uint64_t)size + SUM_BYTES);
}

struct meta_record {
    uint32_t format;
    uint32_t table_ceiling; /* no table id at or above was ever given out; 0: not known */
    uint64_t map_bytes;     /* when the store was made */
    uint8_t nonce[NONCE_BYTES];
    uint64_t item_ceiling, chunk_ceiling; /* the same of seqs */
    uint32_t sum;                         /* of all before; format 2 ends here */
    uint32_t reserved;
};
_Static_assert(sizeof(struct meta_record) == 56, "on disk: change STORE_FORMAT with this");

struct item_record {
    uint32_t table_id;
    uint32_t chunk_count;
    uint64_t key;
    double priority;
    int64_t inserted_at_ns;
    int32_t times_sampled;
    uint32_t trajectory_bytes;
    uint64_t policy_version;
    uint32_t fingerprint;
    uint32_t state_sum; /* item_state_sum(); 0: there is none, it was written by format 2 */
    /* chunk_count seqs of 8 bytes, as many ids of episodes, the trajectory, and the sum of all that
     * never changes: of everything but priority, times_sampled and state_sum */
};
_Static_assert(sizeof(struct item_record) == 56, "on disk: change STORE_FORMAT with this");

enum {
    COUNTERS = 9,        /* of struct store_table, in its order: five counts and the rng */
    COUNTERS_SIGNED = 5, /* of them, those that are never negative */
    COUNTER_BITS = 4,    /* of the number of a counter */
    META_KEY = 1,
    META_NONCE_KEY = 2, /* a page for those who look into the file, see store/share.c */
    META_COUNTERS_KEY = 16,
};

enum { TABLE_SUMMED = 1 << 30 }; /* in name_bytes: a sum of all before is behind the four */

struct table_record {
    uint32_t name_bytes, options_bytes, signature_bytes;
    uint32_t given_bytes;
    /* the four, one after the other */
};
_Static_assert(sizeof(struct table_record) == 16, "on disk: change STORE_FORMAT with this");

/* A key that a table has not any more; several make a value of the tree `removed`. */
struct removed_record {
    uint64_t key;
    int64_t at_ns; /* wall clock */
    uint32_t table_id;
    uint32_t fingerprint; /* struct item's */
};
_Static_assert(sizeof(struct removed_record) == 24, "on disk: change STORE_FORMAT with this");

/* One entry of the change log. */
enum change_op {
    CHANGE_PRIORITY = 1, /* of item seq: the bits of a double */
    CHANGE_TIMES,        /* sampled, of item seq */
    CHANGE_DELETE,       /* items seq .. seq + value - 1 */
    CHANGE_COUNTER,      /* seq is table id << COUNTER_BITS | index of the counter */
};
enum { CHANGE_OP_BITS = 3 };

struct change {
    uint64_t tag; /* seq << CHANGE_OP_BITS | op */
    uint64_t value;
};
_Static_assert(sizeof(struct change) == 16, "on disk: change STORE_FORMAT with this");

static inline struct change change_make(enum change_op op, uint64_t seq, uint64_t value)
{
    return (struct change){.tag = seq << CHANGE_OP_BITS | op, .value = value};
}

static inline enum change_op change_op(struct change change)
{
    return (enum change_op)(change.tag & ((1 << CHANGE_OP_BITS) - 1));
}

static inline uint64_t change_seq(struct change change)
{
    return change.tag >> CHANGE_OP_BITS;
}

/* The seq behind those of a CHANGE_DELETE. */
static inline uint64_t change_end(struct change run)
{
    return change_seq(run) + run.value;
}

static inline struct change change_counter(uint32_t table_id, unsigned index, uint64_t value)
{
    return change_make(CHANGE_COUNTER, (uint64_t)table_id << COUNTER_BITS | index, value);
}

static inline uint64_t counter_table(struct change change)
{
    return change_seq(change) >> COUNTER_BITS;
}

static inline unsigned counter_index(struct change change)
{
    return (unsigned)change_seq(change) & ((1 << COUNTER_BITS) - 1);
}

/* Views into a record; the spans live as long as the bytes decoded. */
struct item_view {
    struct item_record header;
    const uint8_t *chunk_seqs; /* and episodes; unaligned: item_view_chunk() */
    trp_bytes trajectory;
};

struct table_view {
    struct table_record header;
    trp_bytes name, options, signature, given;
};

/* Of what changes of an item, and of what it belongs to. */
uint32_t item_state_sum(const struct item_record *header, uint64_t seq);

/* False: it is not what was written, or nothing that a table could have. */
bool item_state_valid(const struct item_record *header, uint64_t seq);

size_t item_record_size(const struct item *item);

/* Appends item_record_size() bytes. */
void item_record_encode(struct buffer *out, uint32_t table_id, const struct item *item);

/* False: not a record that encode wrote for the item with this seq. Its header has then the table
 * and the key; or, if nothing of it can be believed, no table, seq as the key, and no chunks. */
bool item_record_decode(trp_bytes bytes, uint64_t seq, struct item_view *view);
uint64_t item_view_chunk(const struct item_view *view, uint32_t index);
uint64_t item_view_episode(const struct item_view *view, uint32_t index);

void table_record_encode(struct buffer *out, const struct table_view *view);
bool table_record_decode(trp_bytes bytes, struct table_view *view);

uint32_t meta_record_sum(const struct meta_record *record);
bool meta_record_decode(trp_bytes bytes, struct meta_record *record);

/* Values that are records of one size: writes them with their sum behind, SUM_BYTES more. */
void records_encode(uint8_t *out, trp_bytes records);

/* The records of such a value, without the sum. False: they are not what was written, or none. */
bool records_decode(trp_bytes value, size_t record_bytes, trp_bytes *records);
enum { COUNTERS_BYTES = COUNTERS * 8 + SUM_BYTES };
void counters_encode(uint8_t out[COUNTERS_BYTES], const int64_t counters[COUNTERS]);
bool counters_decode(trp_bytes bytes, int64_t counters[COUNTERS]);

/* Appends the entries of one part of the change log. False: the part, or an entry in it, is not
 * one that was written; nothing is appended then. */
bool changes_decode(trp_bytes part, struct buffer *out);

/* Stable sort by seq. `scratch` has room for as many. */
void changes_sort(struct change *changes, struct change *scratch, size_t count);

#endif
