/* Is the structure of a data.mdb whole? LMDB believes what it reads: one wrong number in a page is
 * a crash. So a file is walked before LMDB opens it. */
#ifndef TRP_REPLAY_DISK_WALK_H
#define TRP_REPLAY_DISK_WALK_H

#include <stdbool.h>

#include <troupe/status.h>

enum walk_depth {
    WALK_METAS,  /* how the file begins, and its length */
    WALK_TREES,  /* and every page of every tree */
    WALK_VALUES, /* and the headers of pages that hold values */
};

/* Reads so much of the stopped file. `goes_on` is asked now and then: what is no TRP_OK ends it;
 * NULL: nobody is. DATA_LOSS: the first thing that is wrong, in words that go on behind the file's
 * name; otherwise as the errno of the file system. */
trp_status store_walk(const char *path, enum walk_depth depth, trp_status (*goes_on)(void));

#endif
