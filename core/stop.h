/* Being told of a stop request while waiting for something that is no condition of ours. */
#ifndef TRP_CORE_STOP_H
#define TRP_CORE_STOP_H

#include <stdbool.h>

#include <troupe/stop.h>

/* Embedded in whatever waits; the fields are stop.c's. */
struct stop_watch {
    trp_stop *stop;
    void (*fire)(struct stop_watch *watch);
    struct stop_watch *next, *previous;
    bool linked;
};

/* `fire(watch)` runs once, on the requesting thread, or here when the request came already. `stop`
 * may be NULL: never fires. `fire` must not remove a watch. */
void stop_watch_add(trp_stop *stop, struct stop_watch *watch, void (*fire)(struct stop_watch *));

/* After it `fire` does not run and will not. Also for a zeroed watch. Hold no lock that `fire`
 * takes. */
void stop_watch_remove(struct stop_watch *watch);

#endif
