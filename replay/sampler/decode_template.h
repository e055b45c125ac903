/* The shapes that the samples of one writer share, each learnt from one of them, so that the next
 * need not be decoded: bytes are compared and rows copied. One thread. */
#ifndef TRP_REPLAY_SAMPLER_DECODE_TEMPLATE_H
#define TRP_REPLAY_SAMPLER_DECODE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/bytes.h>
#include <troupe/tensor.h>
#include "replay/wire/wire.h"

enum { TEMPLATE_CHUNKS_MAX = 16 };

/* Bytes in one place, or cut into pieces. */
struct body {
    const uint8_t *data; /* NULL: in pieces */
    size_t size;
    const uint8_t *const *pieces; /* of piece_bytes each; the body starts `skip` bytes in */
    size_t piece_bytes, skip;
};

/* Bytes of a body in pieces to one place. */
void pieces_copy(uint8_t *to, const struct body *body, size_t at, size_t size);

struct raw_chunk {
    uint64_t key;
    trp_bytes key_bytes; /* as a varint */
    struct body body;    /* the bytes behind key and range of steps */
};

/* A sample in one entry, split but not decoded. */
struct raw_sample {
    /* 0: the item's trajectory is Reverb's message. Otherwise it is canonical (model/trajectory.h),
     * chunk i has key i + 1, and samples of one shape have equal trajectories. */
    uint64_t shape;
    struct wire_item item; /* without its table and its columns */
    struct wire_draw draw;
    struct raw_chunk *chunks;
    uint32_t chunk_count;
};

/* False: the entry is not a whole sample of at most TEMPLATE_CHUNKS_MAX chunks in the order in
 * which everybody writes it; decode it. `sample` is zeroed, but for room for as many chunks. */
bool raw_sample_parse(trp_bytes entry, struct raw_sample *sample);

struct decode_templates;

struct decode_templates *decode_templates_create(void);
void decode_templates_destroy(struct decode_templates *templates); /* NULL is fine */

/* Copies the rows of a sample that differs in rows and keys only from one that was learnt to
 * columns[c] + row * the bytes of a row of column c; false: there is none. */
bool decode_templates_copy(struct decode_templates *templates, const struct raw_sample *sample,
                           void *const *columns, size_t row);

/* Learns from a sample that was decoded as `item` of `lists` and found to fit `columns`, if it is a
 * matter of copying (not compressed, not delta coded). Its bodies are in one place. */
void decode_templates_learn(struct decode_templates *templates, const struct raw_sample *sample,
                            const struct wire_lists *lists, const struct wire_item *item,
                            const trp_tensor_spec *columns);

#endif
