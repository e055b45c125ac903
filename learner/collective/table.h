/* Which algorithm for which size: rank 0's choice, for all. */
#ifndef TRP_LEARNER_TABLE_H
#define TRP_LEARNER_TABLE_H

#include "schedule.h"

/* The same in every run, deterministic or not, so that sums are made in one order. */
void table_choose(struct schedule_table *table);

#endif
