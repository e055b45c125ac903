/* Pages of data.mdb on their way from the disk, many at a time: who owns the tables hands over
 * where they are and goes on. Threads of its own read; whoever calls does not wait. */
#ifndef TRP_REPLAY_DISK_FETCHER_H
#define TRP_REPLAY_DISK_FETCHER_H

#include <stdint.h>

#include <troupe/status.h>

struct fetcher;

/* Where a run of pages is in the file, none of which is in memory. */
struct fetch_run {
    uint64_t at, bytes;
};

/* Pages that are wanted together. A zeroed struct is none. */
struct fetch {
    struct fetch *next; /* the fetcher's */
    struct fetch_run *runs;
    uint32_t count, capacity;
    uint64_t bytes; /* of all runs */
};

void fetch_add(struct fetch *fetch, struct fetch_run run);
void fetch_clear(struct fetch *fetch); /* keeps the capacity */
void fetch_cleanup(struct fetch *fetch);

/* `path` is the file. `done(arg)` is called from any of the fetcher's threads when there is
 * something to take. */
trp_status fetcher_create(struct fetcher **out, const char *path, void (*done)(void *arg),
                          void *arg);

/* Joins the threads; what is not done yet counts as done. After it nothing is started or told. */
void fetcher_stop(struct fetcher *fetcher);
void fetcher_destroy(struct fetcher *fetcher); /* NULL is fine; everything was taken */

/* Lends it to the fetcher, until it is taken. Any thread, as the next. */
void fetcher_start(struct fetcher *fetcher, struct fetch *fetch);

/* One whose pages came, or cannot come; NULL: none now. */
struct fetch *fetcher_take(struct fetcher *fetcher);

#endif
