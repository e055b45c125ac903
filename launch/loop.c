/* epoll, one event a turn: fairness comes from the kernel's ready list, which rotates, and a
 * callback that closes another watch can leave no event of it behind. */
#include "loop.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

trp_status loop_init(struct loop *loop)
{
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "epoll: %s", strerror(errno));
    return TRP_OK;
}

void loop_cleanup(struct loop *loop)
{
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    loop->epoll_fd = -1;
}

trp_status loop_add(struct loop *loop, struct watch *watch)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) != 0)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "epoll: %s", strerror(errno));
    return TRP_OK;
}

void loop_forget(struct loop *loop, struct watch *watch)
{
    if (watch->fd >= 0)
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    watch->fd = -1;
}

void loop_remove(struct loop *loop, struct watch *watch)
{
    int fd = watch->fd;
    loop_forget(loop, watch);
    if (fd >= 0)
        close(fd);
}

bool loop_turn(struct loop *loop, int64_t timeout_ms)
{
    struct epoll_event event;
    int timeout = timeout_ms > 60000 ? 60000 : timeout_ms < 0 ? 0 : (int)timeout_ms;
    int count = epoll_wait(loop->epoll_fd, &event, 1, timeout);
    if (count != 1)
        return false;
    struct watch *watch = event.data.ptr;
    watch->ready(watch);
    return true;
}
