/* Inner to compress/: a vector that is compressed, and the three shapes of an exchange. */
#ifndef TRP_LEARNER_COMPRESS_COMPRESSOR_H
#define TRP_LEARNER_COMPRESS_COMPRESSOR_H

#include "codes.h"
#include "compress.h"

/* Of a vector, numbers that are [rows][columns] in memory. */
struct thin_matrix {
    size_t offset, rows, columns;
    size_t left, right; /* where the factors lie in theirs */
};

struct compressor {
    struct compress_options options; /* with defaults in place of zeros */
    const struct exchange_impl *impl;
    size_t first, count; /* of a vector; of one that is whole `first` is 0 */
    bool one_way, ranges;
    uint32_t rank, size;
    uint64_t step;
    float *shared; /* powersgd: right factors, one behind the other */
    size_t shared_count;
    /* One piece of memory: */
    float *rest;     /* what was not sent; NULL: nothing is kept */
    float *handed;   /* what was not handed on as an owner; or NULL */
    float *momentum; /* or NULL */
    size_t own_count;
    uint32_t *words; /* on their way */
    float *scratch;
    /* Owners: */
    const struct code *code;
    size_t *cuts; /* runs begin here; one more is the end */
    size_t runs;
    size_t *ends;    /* by rank: of its range; NULL: parts are equal */
    size_t *columns; /* of ranges: cuts that do not follow from them */
    size_t column_runs;
    uint32_t *lengths; /* one way: pairs of a length and how many runs have it */
    size_t length_words;
    size_t *firsts; /* by rank: the first run of its range; one more is the end */
    size_t block;   /* words of the largest range, rounded up */
    /* Powersgd: */
    struct thin_matrix *matrices;
    size_t matrix_count;
    size_t left_count, dense_count; /* numbers of left factors, of all else */
};

/* A shape of exchange; `encode` makes so many words of what one rank sends to one other. */
struct exchange_impl {
    void (*create)(struct compressor *c, const trp_net_tensor *tensors, size_t tensor_count);
    void (*join)(struct compressor *c);
    trp_status (*sum)(struct compressor *c, const struct compress_wire *wire, float *grads);
    uint64_t (*bytes)(const struct compressor *c);
    size_t (*encode)(struct compressor *c, const float *grads); /* to `words`; NULL: never */
};

extern const struct exchange_impl owners_impl, chosen_impl, low_rank_impl;

/* How many of `count` numbers top-k sends in a sum. */
size_t count_to_choose(const struct compress_options *options, uint64_t step, size_t count);

/* The `k` largest of [count] numbers, at least one, to words[2 * k]: places, then numbers.
 * room[count] is lost. */
void choose_largest(const float *values, size_t count, size_t k, uint32_t *room, uint32_t *words);

/* The numbers that lie one behind the other in a tensor's fastest dimension; 0: too few. */
size_t tensor_columns(const trp_net_tensor *tensor);

static inline size_t whole_blocks(size_t words, size_t of)
{
    return (words + of - 1) / of * of;
}

#endif
