/* Where a member of groups is reached, generation after generation. */
#ifndef TRP_LEARNER_LISTENER_H
#define TRP_LEARNER_LISTENER_H

#include <troupe/collective.h>

struct trp_collective_listener {
    int fd; /* non-blocking */
    char *address, *path;
};

/* A non-blocking socket that is being connected to `address`, of which poll() says when it is.
 * UNAVAILABLE: not now. */
TRP_MUST_USE trp_status listener_dial(const char *address, int *fd);

/* The next connection that came; -1: none. */
int listener_accept(struct trp_collective_listener *listener);

#endif
