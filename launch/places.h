/* Files and addresses that options name, looked at before anything begins. */
#ifndef TRP_LAUNCH_PLACES_H
#define TRP_LAUNCH_PLACES_H

#include "graph.h"

/* Each shard has a directory of its own beside the one that was given; NULL stays NULL. Caller
 * frees. */
char *place_of_shard(const char *dir, uint32_t index, uint32_t count);

/* INVALID_ARGUMENT: a server may not listen at its address, or it is none. */
TRP_MUST_USE trp_status addresses_are_right(const trp_program *program);

/* NOT_FOUND: a dataset or a checkpoint to restore is not there. */
TRP_MUST_USE trp_status places_are_there(const trp_program *program, bool resume);

/* Whether a file of that name can be written, as far as that can be seen. */
TRP_MUST_USE trp_status place_is_writable(const char *path);

#endif
