/* A descriptor that can be polled for, and that another thread sets. */
#ifndef TRP_LEARNER_EVENT_H
#define TRP_LEARNER_EVENT_H

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <troupe/status.h>

static inline trp_status event_create(int *event)
{
    *event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return *event >= 0 ? TRP_OK : trp_fail(TRP_RESOURCE_EXHAUSTED, "eventfd: %s", strerror(errno));
}

static inline void event_set(int event)
{
    uint64_t one = 1;
    ssize_t written = write(event, &one, sizeof one);
    (void)written; /* full: it is set */
}

/* Of a timer's descriptor, too. */
static inline void event_clear(int event)
{
    uint64_t count;
    ssize_t got = read(event, &count, sizeof count);
    (void)got; /* nothing: it is not set */
}

#endif
