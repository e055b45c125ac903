/* What an .npz of a table is made of: these arrays, with one value an item, then one array a
 * column; and what numpy has no words for is in a member that is no array: a line of JSON a table.
 */
#ifndef TRP_CLI_NPZ_H
#define TRP_CLI_NPZ_H

#include <stdint.h>

enum { KEYS, PRIORITIES, TIMES_SAMPLED, INSERTED_AT, POLICY_VERSIONS, FIXED };
extern const char *const npz_fixed_names[FIXED];
extern const int32_t npz_fixed_types[FIXED];
#define NPZ_TABLES "troupe.jsonl"

#endif
