/* Columns of sequences, step by step. */
#ifndef TRP_AGENTS_GATHER_H
#define TRP_AGENTS_GATHER_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/updater.h>

/* A column of a batch, and where its rows go. */
struct gather_column {
    const char *name; /* one that is not declared is left out */
    void *to;
    size_t bytes; /* of a row */
};

/* Rows of source 0, [items][steps], as recurrent networks read them: [steps][items]. `order` has
 * room for a number a row and is to be left alone until the step was collected; `room` has the
 * same on the device. */
void gather_steps_on(const trp_update *update, uint32_t steps, int32_t *order, int32_t *room,
                     const struct gather_column *columns, size_t count);

#endif
