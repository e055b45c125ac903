/* The inside of an unpacker, shared by unpack*.c only. */
#ifndef TRP_REPLAY_SAMPLER_UNPACK_INTERNAL_H
#define TRP_REPLAY_SAMPLER_UNPACK_INTERNAL_H

#include "core/buffer.h"
#include "decode_template.h"
#include "replay/client/shared_view.h"
#include "replay/model/trajectory.h"
#include "unpack.h"
#include "replay/wire/cut.h"
#include "replay/wire/wire.h"
#include "replay/wire/parts.h"

/* A trajectory that samples of a message share. */
struct sample_shape {
    uint64_t number; /* of all shapes, from 1 */
    struct trajectory *trajectory;
};

/* A message that names pages. */
struct shared_reader {
    struct shared_view *view; /* NULL: the message is an ordinary one */
    struct shared_samples samples;
    uint32_t next; /* entry */
    bool damaged;  /* it has a chunk that is not what its sum says */
    struct sample_shape *shapes;
    uint64_t last_shape;
    uint32_t shape_count, shape_capacity; /* those of this message; those that were ever made */
    struct raw_chunk *chunks;             /* of one sample, with keys 1, 2, ... */
    uint32_t chunk_capacity;
    struct buffer pieces; /* scratch: pointers to the pieces of its chunks */
    struct buffer pages;  /* scratch: its pages, if they are read */
    struct buffer bytes;  /* scratch: its chunks in one place */
    struct wire_lists lists;
};

struct unpacker {
    trp_tensor_spec *columns;
    size_t *row_bytes; /* of each column */
    size_t column_count;

    trp_message *message;
    struct assembler parts;               /* the rest of it */
    trp_message *joined;                  /* memory that the last sample was joined in; or NULL */
    bool needed;                          /* chunks of the open sample lie in it or there */
    struct wire_sample_response response; /* one entry of it, decoded */
    struct shared_reader shared;          /* instead of parts, while it has a view */
    struct decode_templates *templates;   /* of samples seen before */

    struct {
        bool begun;
        struct wire_lists lists; /* one item, its columns and slices, its chunks so far */
        struct wire_draw draw;
        trp_message **messages; /* that its chunks lie in, owned */
        uint32_t message_count, message_capacity;
        size_t bytes;
    } open;

    struct cutter cutter;
};

/* Copies a sample to the next row of the batch as one before it was; false: none looked like it. */
bool unpacker_copy_sample(struct unpacker *unpacker, const struct raw_sample *raw,
                          struct batch *batch);

/* Decodes a sample, which is `item` and the chunks of `lists`, into the next row of the batch. */
trp_status unpacker_decode_sample(struct unpacker *unpacker, const struct wire_lists *lists,
                                  const struct wire_item *item, const struct wire_draw *draw,
                                  struct batch *batch);

/* ---- unpack_shared.c -------------------------------------------------------------------- */

trp_status shared_reader_fill(struct unpacker *unpacker, struct batch *batch);
void shared_reader_cleanup(struct shared_reader *shared);

#endif
