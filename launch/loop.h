/* An event loop over file descriptors: what the launcher's and a child's main thread sit in. */
#ifndef TRP_LAUNCH_LOOP_H
#define TRP_LAUNCH_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/status.h>

/* Called while `fd` can be read or its other end is gone. May add and remove watches. */
struct watch {
    int fd; /* -1: not watched */
    void (*ready)(struct watch *watch);
    void *owner;
    uint32_t number; /* the owner's */
};

struct loop {
    int epoll_fd;
};

TRP_MUST_USE trp_status loop_init(struct loop *loop);
void loop_cleanup(struct loop *loop);

/* `watch` stays the caller's and in place until loop_remove(). */
TRP_MUST_USE trp_status loop_add(struct loop *loop, struct watch *watch);

/* Stops watching and closes the descriptor; one that is -1 is fine. */
void loop_remove(struct loop *loop, struct watch *watch);

/* Stops watching and leaves the descriptor open. */
void loop_forget(struct loop *loop, struct watch *watch);

/* Waits up to `timeout_ms` and calls one watch that is ready, if any. One a turn, so that a watch
 * may remove others. True: there was one. */
bool loop_turn(struct loop *loop, int64_t timeout_ms);

#endif
