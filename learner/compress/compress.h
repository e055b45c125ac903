/* Compressed gradients: the sum over the ranks of a group with fewer bytes on the wire. A rank adds
 * its gradient to what it has not sent yet (error feedback), sends a short code of that, and keeps
 * the rest for the next sum: what was sent and the rests together are what was summed up. After a
 * sum all ranks have the same bits.
 *
 *   bf16, f16  rounded to the nearest; f16 cuts what is beyond 65504, which stays in the rest
 *   one-bit    a sign, and for each column the means of its positive and of its negative numbers
 *              (Seide et al. 2014)
 *   qsgd       one of 2^bits - 1 levels of the norm of 512 numbers, rounded at random such that the
 *              mean is right (Alistarh et al. 2017); as it needs no feedback it has none
 *   top-k      the largest numbers with their places, with momentum correction, masking, warm-up
 *              and clipping of deep gradient compression (Lin et al. 2018)
 *   powersgd   a product of two thin matrices for each matrix (Vogels et al. 2019)
 *
 * The first four go through owners: each rank gets the codes of its range from all others, sums
 * them, adds its own rest, codes the sum and hands it to all; or has a range of the sum and hands
 * on nothing (compressor_create_ranges()). No size depends on the data. */
#ifndef TRP_LEARNER_COMPRESS_COMPRESS_H
#define TRP_LEARNER_COMPRESS_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/collective.h>
#include <troupe/nn.h>
#include <troupe/status.h>

enum compression {
    COMPRESS_NONE,
    COMPRESS_BF16,
    COMPRESS_F16,
    COMPRESS_TOP_K,
    COMPRESS_ONE_BIT,
    COMPRESS_POWERSGD,
    COMPRESS_QSGD,
    COMPRESSIONS,
};

/* Plain data: 0 means the default. */
struct compress_options {
    enum compression kind;
    double ratio;          /* top-k: of the numbers, sent; 0: 0.001 */
    uint64_t warmup_steps; /* top-k: sums in which 1/4, 1/16, 1/64 and 1/256 are sent first */
    double momentum;       /* top-k: of the gradient, before it is chosen from */
    bool keep_momentum;    /* top-k: also where a number was sent */
    uint32_t rank;         /* powersgd; 0: 2 */
    uint32_t bits;         /* qsgd: of a number; 0: 8 */
};

/* "top-k"; and the other way round: INVALID_ARGUMENT names those that there are. NULL: none. */
const char *compress_name(enum compression kind);
TRP_MUST_USE trp_status compress_find(const char *name, enum compression *kind);

/* What is 0 of a vector is 0 decoded, too. Signs have none: all of a run are moved. */
static inline bool compress_has_zero(enum compression kind)
{
    return kind != COMPRESS_ONE_BIT;
}

/* INVALID_ARGUMENT names the option, its value and its range. */
TRP_MUST_USE trp_status compress_check(const struct compress_options *options);

/* Of all of them, behind `hash`: those who compress otherwise do not understand each other. */
uint64_t compress_hash(uint64_t hash, const struct compress_options *options);

/* A vector of `count` numbers with what was not sent of it. The tensors, of which its columns and
 * matrices follow, may be NULL. */
struct compressor;
struct compressor *compressor_create(const struct compress_options *options, size_t count,
                                     const trp_net_tensor *tensors, size_t tensor_count);
void compressor_destroy(struct compressor *compressor); /* NULL is fine */

/* From here on it is rank `rank` of `size`, and `step` sums were made before, by all of them. A
 * rank has what it had not sent; what it had not handed on as an owner it sends as its own. */
void compressor_join(struct compressor *compressor, uint32_t rank, uint32_t size, uint64_t step);

/* The same where each rank needs a range of the sum alone: rank r that from ends[r - 1], or 0, to
 * ends[r], of which the last is `count`. It is not coded again; all else of the sum is undefined.
 * Such a compressor joins so, too. */
struct compressor *compressor_create_ranges(const struct compress_options *options, size_t count,
                                            const trp_net_tensor *tensors, size_t tensor_count);
void compressor_join_ranges(struct compressor *compressor, uint32_t rank, uint32_t size,
                            uint64_t step, const size_t *ends);

/* What was not sent is not of what is summed up from here on. */
void compressor_forget(struct compressor *compressor);

/* Two pieces of its memory: what all ranks have alike, which a new one gets from another, and what
 * is its own. */
struct compress_memory {
    void *at;
    size_t bytes;
};
struct compress_memory compressor_shared(struct compressor *compressor);
struct compress_memory compressor_own(struct compressor *compressor);

/* Whether all of [count] numbers can be compressed: they are finite and not beyond all bounds. */
bool compress_fits(const float *values, size_t count);

/* How a rank reaches the others; it waits for operations with `wait`, which fails as the group. */
struct compress_wire {
    trp_collective *collective;
    trp_status (*wait)(void *context, uint64_t ticket);
    void *context;
};

/* The gradient becomes the sum over all ranks, of as much as was sent. `clip` scales it before.
 * Memory is in use until the operations were waited for or the collective is destroyed. Fails as
 * `wait` does; DATA_LOSS: what came is no code. */
TRP_MUST_USE trp_status compressor_sum(struct compressor *compressor,
                                       const struct compress_wire *wire, float *grads, float clip);

/* ---- one way --------------------------------------------------------------------------------- */

/* A gradient as somebody gets it who has nothing else of its sender, as a parameter server. */
struct compress_code {
    enum compression kind;
    uint32_t bits;         /* qsgd: of a number */
    const uint32_t *runs;  /* pairs: how many numbers have a scale, and how often that is so */
    size_t run_words;      /* two for each; top-k has none */
    const uint32_t *words; /* of top-k places, then numbers */
    size_t word_count;
};

/* Of numbers [lo, hi) of a vector with these tensors, for compressor_encode() alone. NULL: powersgd
 * goes both ways, as its factors are of a sum. */
struct compressor *compressor_create_one_way(const struct compress_options *options, size_t lo,
                                             size_t hi, const trp_net_tensor *tensors,
                                             size_t tensor_count);

/* Codes the gradient and what was not sent before; the code is there until the next one. */
struct compress_code compressor_encode(struct compressor *compressor, const float *grads);

/* Becomes the numbers that were sent. INVALID_ARGUMENT: it is no code of so many numbers, or one of
 * them is not finite; then `values` is undefined. */
TRP_MUST_USE trp_status compress_decode(const struct compress_code *code, float *values,
                                        size_t count);

/* ---- loose numbers ----------------------------------------------------------------------------
 */

/* Those of no vector, in runs of 512, or of top-k as many as of a vector of so many; not powersgd.
 * Nothing is kept: who codes them takes off what was sent. `step` counts sums, for top-k's warm-up,
 * and `key` makes random numbers: another one each time. */
size_t compress_loose_words(const struct compress_options *options, uint64_t step, size_t count);
void compress_loose(const struct compress_options *options, uint64_t step, uint64_t key,
                    const float *values, size_t count, uint32_t *words);

/* Of so many words what another one sent. Fails as compress_decode(). */
TRP_MUST_USE trp_status compress_loose_decode(const struct compress_options *options,
                                              const uint32_t *words, size_t word_count,
                                              float *values, size_t count);

/* For who adds up decoded differences to what somebody is known to have: `scale` times the numbers
 * come nearer whatever they are, and whoever takes `share` of what is known does not overshoot. Of
 * qsgd both are what its noise leaves; of top-k the share is the root of the part that it sends. */
float compress_loose_scale(const struct compress_options *options, size_t count);
double compress_loose_share(const struct compress_options *options, uint64_t step, size_t count);

/* ---- counts ---------------------------------------------------------------------------------- */

/* The largest norm that a rank's part of a mean may have of which all ranks' together is to have
 * `max_norm` at most: N^-1/2 of it (Lin et al. 2018, 3.2), for top-k; else 0: any. */
double compressor_part_norm(const struct compressor *compressor, double max_norm);

/* Bytes that all ranks together send in the next sum: no size depends on the data. */
uint64_t compressor_bytes(const struct compressor *compressor);

/* How much is in the rests, added to [count] numbers: the own, and the one as an owner. */
void compressor_add_rest(const struct compressor *compressor, float *values);

#endif
