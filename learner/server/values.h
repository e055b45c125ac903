/* Inner to server/: where the values of a table lie. As long as no worker maps them they are in one
 * of two blocks, from which they are sent: what is on its way stays as it is, and who changes them
 * meanwhile goes on in the other one. Once a worker maps them they stay in memory that others map,
 * between two counts of writes, and are copied for those that they are sent to. */
#ifndef TRP_LEARNER_SERVER_VALUES_H
#define TRP_LEARNER_SERVER_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "core/sealed.h"
#include "shared_values.h"

struct values_block;

struct table_values {
    float *numbers; /* [count]; elsewhere after table_values_begin() and table_values_share() */
    size_t count;
    struct sealed shared; /* they lie there; memory NULL: in the first of: */
    struct values_block *blocks[2];
};

void table_values_init(struct table_values *values, size_t count); /* zeros */
void table_values_cleanup(struct table_values *values);            /* zeroed is fine */

/* From now on others can map them, if the system lets us; with the state that they have. */
void table_values_share(struct table_values *values, struct shared_state state);

/* Around each change. */
void table_values_begin(struct table_values *values);
void table_values_end(struct table_values *values, struct shared_state state);

/* Those of now, which stay as they are until they are left; NULL: others map them, or the other
 * block is still on its way. */
struct values_block *table_values_hold(struct table_values *values);
const float *values_block_numbers(const struct values_block *block);
void values_block_leave(struct values_block *block); /* NULL is fine */

/* Of a handler whose reply has some of them: they are sent from here, if they can be held. */
void table_values_lend(struct table_values *values);
void values_block_lend(struct values_block *block, size_t count);

#endif
