/* The shape that the samples of one writer share, learnt from one of them, so that the next need
 * not be decoded: bytes are compared and rows copied. One thread. */
#ifndef TRP_REPLAY_SAMPLER_DECODE_TEMPLATE_H
#define TRP_REPLAY_SAMPLER_DECODE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/bytes.h>
#include <troupe/tensor.h>
#include "views.h"
#include "replay/wire/wire.h"

enum { TEMPLATE_CHUNKS_MAX = 16 };

/* Bytes in one place, or cut into pieces. */
struct body {
    const uint8_t *data; /* NULL: in pieces */
    size_t size;
    const uint8_t *const *pieces; /* of piece_bytes each; the body starts `skip` bytes in */
    size_t piece_bytes, skip;
};

/* The facts of a sample besides its columns. */
struct sample_facts {
    uint64_t key, policy_version;
    double priority;
    int32_t times_sampled;
    struct wire_draw draw;
};

/* A sample in one entry, split but not decoded. */
struct raw_sample {
    uint64_t shape; /* two samples of one shape, not 0, have equal trajectories and keys */
    struct sample_facts facts;
    trp_bytes trajectory;
    uint32_t chunk_count;
    struct {
        uint64_t key;
        trp_bytes key_bytes; /* as a varint */
        struct body body;    /* the bytes behind key and range of steps */
    } chunks[TEMPLATE_CHUNKS_MAX];
};

/* False: the entry is not a whole sample in the order in which everybody writes it; decode it. */
bool raw_sample_parse(trp_bytes entry, struct raw_sample *sample);

/* A zeroed struct is one that nothing matches. */
struct decode_template;

struct decode_template *decode_template_create(void);
void decode_template_destroy(struct decode_template *template); /* NULL is fine */

/* Learns from a sample that was decoded and found to fit `columns`. False, and nothing will match:
 * it is compressed, delta coded or in another way not a matter of copying. Bodies are in one place.
 */
bool decode_template_learn(struct decode_template *template, const struct raw_sample *sample,
                           const trp_tensor_spec *columns, size_t column_count);

/* True when `sample` differs from the one that was learnt in rows and keys only. */
bool decode_template_matches(const struct decode_template *template,
                             const struct raw_sample *sample);

/* The same for a sample of a shape that matched before. */
bool decode_template_matches_again(const struct decode_template *template,
                                   const struct raw_sample *sample);

/* Rows of a sample that matches to columns[c] + row * the bytes of a row of column c. */
void decode_template_copy(const struct decode_template *template, const struct raw_sample *sample,
                          void *const *columns, size_t row);

/* Where they are instead; the row has begun. */
void decode_template_view(const struct decode_template *template, const struct raw_sample *sample,
                          struct views *views, uint32_t row);

#endif
