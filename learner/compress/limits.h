/* Bounds of learner/compress/ that are no option, with their arithmetic. */
#ifndef TRP_LEARNER_COMPRESS_LIMITS_H
#define TRP_LEARNER_COMPRESS_LIMITS_H

enum {
    /* Numbers that have a scale of their own where no tensor says: 8 bytes of scale are 1/8 of
     * their 64 bytes of bits (Alistarh et al. 2017 take 512, too). */
    COMPRESS_RUN = 512,
    /* Columns of fewer numbers are not worth a scale of their own. */
    COMPRESS_RUN_LEAST = 64,
    /* Numbers that are worked on at a time: 16 KB of each vector, which a first-level cache holds.
     */
    COMPRESS_BLOCK = 4096,
    COMPRESS_RANK_MAX = 32,
    COMPRESS_BITS_LEAST = 2,
    COMPRESS_BITS_MAX = 8,
    /* Blocks on the wire are of whole ranges of the collective: 32 words. */
    COMPRESS_WORDS = 32,
};

/* Of the numbers of a vector, that top-k sends where nobody says. */
#define COMPRESS_RATIO 0.001

/* Gradients beyond are summed as they are: products of two of them, and sums of those, are finite.
 */
#define COMPRESS_LARGEST 0x1p50F

#endif
