/* Where a replay store is, for whoever is given a run's directory in place of it. */
#ifndef TRP_CORE_STORE_DIR_H
#define TRP_CORE_STORE_DIR_H

#include <stdbool.h>

/* There is none at `path`, and nobody had to be allowed anything to know that. */
bool store_is_missing(const char *path);

/* `path`, or `path`/replay where that is a run's, which has its store there. One that may not be
 * looked at is not missing. Caller frees. */
char *store_dir_of(const char *path);

#endif
