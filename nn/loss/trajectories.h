/* One sequence of trajectories as the bodies of columns.h see it. */
#ifndef TRP_NN_LOSS_TRAJECTORIES_H
#define TRP_NN_LOSS_TRAJECTORIES_H

#include <troupe/returns.h>

#include "rows_f32.h"

/* Where a sequence begins in the arrays. */
static inline size_t sequence_at(const trp_trajectories *trajectories, uint32_t sequence)
{
    return trajectories->by_sequence ? (size_t)sequence * trajectories->steps : sequence;
}

/* `values` are the trajectories' own. */
static inline struct column_f32 column_at(const trp_trajectories *all, size_t at)
{
    return (struct column_f32){
        .steps = all->steps,
        .stride = all->by_sequence ? 1 : all->sequences,
        .rewards = all->rewards + at,
        .discounts = all->discounts + at,
        .values = all->values ? all->values + at : NULL,
        .next_values = all->next_values ? all->next_values + at : NULL,
        .valid = all->valid ? all->valid + at : NULL,
        .first = all->first ? all->first + at : NULL,
    };
}

#endif
