/* Where ranks are. Between sites links are slow, or are to be spared: of a vector that is summed
 * over all ranks they carry one sum of each site. */
#ifndef TRP_LEARNER_COLLECTIVE_SITES_H
#define TRP_LEARNER_COLLECTIVE_SITES_H

#include <troupe/collective.h>

#include "schedule.h"

/* By rank: the first rank of its site. Caller frees. */
uint32_t *sites_of(const trp_collective_options *options);

/* The same number where ranks are divided alike. */
uint32_t sites_hash(const trp_collective_options *options);

void sites_place(struct schedule_place *place, const uint32_t *sites, uint32_t rank, uint32_t size);

#endif
