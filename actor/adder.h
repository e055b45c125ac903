/* What all adders share: checks of their options, names of columns, and rows of several tensors
 * kept as one blob. */
#ifndef TRP_ACTOR_ADDER_H
#define TRP_ACTOR_ADDER_H

#include <troupe/adder.h>
#include "core/clock.h"

/* INVALID_ARGUMENT names the option; `who` ("n-step adder") begins the message. */
TRP_MUST_USE trp_status adder_check_options(const trp_adder_options *options, const char *who);

/* Items that may be unconfirmed. */
uint32_t adder_in_flight(const trp_adder_options *options);

/* A column for each tensor of an observation: `prefix`, or "prefix/NAME". */
void adder_add_observations(const trp_env_spec *env, const char *prefix, trp_columns *columns);

/* The same while the table confirms fast; 0: no other number. */
uint32_t adder_fast_in_flight(const trp_adder_options *options);

/* Whether a writer's items have waited for others of their message for ADDER_KEEP_MS since
 * `*emptied_ns`, when it kept none; 0 becomes now. Never where threads take turns. */
bool adder_is_late(int64_t *emptied_ns);

/* What is left until `deadline`, rounded up; negative: it never comes. */
int64_t adder_left_ms(struct deadline deadline);

enum {
    ADDER_EXTRAS_MAX = 32,
    /* Two observations, action, reward, discount, mask, version, extras, the episode's number. */
    BLOB_PARTS_MAX = 2 * TRP_OBSERVATIONS_MAX + 6 + ADDER_EXTRAS_MAX,
};

/* Where the parts of a row are when they lie in one piece. Offsets are multiples of 8, so that
 * every part may be read in place. Zeroed: no parts. */
struct blob {
    size_t count, size;
    size_t offsets[BLOB_PARTS_MAX], bytes[BLOB_PARTS_MAX];
};

void blob_add(struct blob *blob, size_t bytes);

/* Copies the parts to where they belong in the `blob->size` bytes at `to`. */
void blob_fill(const struct blob *blob, uint8_t *to, const void *const *parts);

/* Where they are in the bytes at `from`. */
void blob_parts(const struct blob *blob, const uint8_t *from, const void **parts);

#endif
