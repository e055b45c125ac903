/* The inside of an unpacker, shared by unpack*.c only. */
#ifndef TRP_REPLAY_SAMPLER_UNPACK_INTERNAL_H
#define TRP_REPLAY_SAMPLER_UNPACK_INTERNAL_H

#include "core/buffer.h"
#include "replay/model/item.h"
#include "decode_template.h"
#include "replay/client/shared_view.h"
#include "unpack.h"
#include "replay/wire/cut.h"
#include "replay/wire/wire.h"
#include "replay/wire/parts.h"

enum { TEMPLATES = 16 /* chunks of 8 steps make items of as many kinds */ };

/* A trajectory that samples of a message share, as Reverb's message whose keys are 1, 2, ... */
struct sample_shape {
    uint64_t number; /* of all shapes, from 1 */
    struct buffer canonical, flat;
    uint32_t chunk_count;
};

/* A message that names pages. */
struct shared_reader {
    struct shared_view *view; /* NULL: the message is an ordinary one */
    struct shared_samples samples;
    uint32_t next; /* entry */
    struct sample_shape *shapes;
    uint64_t last_shape;
    uint32_t shape_count, shape_capacity; /* those of this message; those that were ever made */
    struct buffer pieces;                 /* scratch: pointers to the pieces of one sample */
    struct buffer bytes;                  /* scratch: its chunks in one place */
    struct buffer pages;                  /* scratch: pages that were read */
    bool reads;                           /* this sample's pages are read */
    struct wire_lists lists;
    struct chunk *chunks; /* that stand for any, with keys 1, 2, ... */
    struct chunk **chunk_at;
    uint32_t chunk_capacity;
};

/* Where a sample's parts are: in the message's lists, or in `open` when it began earlier. */
struct sample {
    const struct wire_lists *lists;
    const struct wire_item *item;
    const struct wire_chunk *chunks;
    uint32_t chunk_count;
    struct wire_draw draw;
};

struct wanted_column {
    trp_tensor_spec spec;
    size_t bytes;
};

/* Messages, each owned. */
struct messages {
    trp_message **at;
    uint32_t count, capacity;
};

struct unpacker {
    struct wanted_column *columns;
    trp_tensor_spec *specs;
    size_t column_count;

    trp_message *message;
    struct assembler parts;               /* the rest of it */
    trp_message *joined;                  /* memory that the last sample was joined in; or NULL */
    bool needed;                          /* chunks of the open sample lie in it or there */
    struct wire_sample_response response; /* one entry of it, decoded */
    struct shared_reader shared;          /* instead of parts, while it has a view */
    struct decode_template *templates[TEMPLATES]; /* of samples seen before */
    uint32_t template;                            /* that matched last */
    uint64_t shape;                               /* of the sample that it matched */
    uint32_t learnt;                              /* templates, in all */
    uint32_t misses; /* samples that matched none since the last was learnt */

    struct {
        bool begun;
        struct wire_lists lists; /* one item, its columns and slices, its chunks so far */
        struct wire_draw draw;
        struct messages messages;
        size_t bytes;
    } open;

    bool keeps; /* messages that are used up, in */
    struct messages kept;

    bool gathered; /* the sample's chunks lie in scratch memory: no views of them */
    struct cutter cutter;
};

bool unpacker_fill_by_template(struct unpacker *unpacker, const struct raw_sample *raw,
                               struct batch *batch);
void unpacker_learn(struct unpacker *unpacker, const struct raw_sample *raw);

/* Decodes a sample into the next row of the batch. */
trp_status unpacker_sample(struct unpacker *unpacker, const struct sample *sample,
                           struct batch *batch);

/* ---- unpack_shared.c -------------------------------------------------------------------- */

trp_status shared_reader_fill(struct unpacker *unpacker, struct batch *batch);
void shared_reader_cleanup(struct shared_reader *shared);

#endif
