/* Blocks of a data.mdb that another file has, too: `cp --reflink` shares them, where a file system
 * can. */
#ifndef TRP_REPLAY_DISK_EXTENTS_H
#define TRP_REPLAY_DISK_EXTENTS_H

#include <troupe/status.h>

/* Gives the file blocks of its own in place of those that it shares, so that writing to a page that
 * it has cannot fail for want of room. Reads and writes as many bytes as are shared; none: a few
 * system calls. RESOURCE_EXHAUSTED: there is no room for them; otherwise as the errno. */
trp_status store_extents_own(const char *path);

#endif
