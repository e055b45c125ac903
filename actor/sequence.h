/* Which rows of an episode make a sequence, and the adder of them that the episode adder is, too.
 * What the words mean is in include/troupe/adder.h. */
#ifndef TRP_ACTOR_SEQUENCE_H
#define TRP_ACTOR_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/adder.h>

struct sequence_rule {
    uint32_t length, period;
    trp_sequence_end end;
};

/* Whether an item ends with row number `rows`, which counts from 1. */
bool sequence_is_due(const struct sequence_rule *rule, uint64_t rows);

/* What an episode of `rows` rows ends with: an item of its last *length rows and then *padding rows
 * of zeros. False: no further item. */
bool sequence_end(const struct sequence_rule *rule, uint64_t rows, uint32_t *length,
                  uint32_t *padding);

/* The adder; options were checked. An episode of more than `longest` steps makes push() fail; 0:
 * none does. */
trp_adder *sequence_adder_make(const trp_adder_options *options,
                               const trp_sequence_options *sequence, uint32_t longest);

#endif
