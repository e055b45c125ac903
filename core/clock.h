/* Monotonic time and deadlines. Time is an argument: tests pass a fake clock and advance it. */
#ifndef TRP_CORE_CLOCK_H
#define TRP_CORE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct clock {
    int64_t (*now_ns)(const struct clock *clock);
    int64_t fake_ns; /* the fake clock's time */
};

/* CLOCK_MONOTONIC. */
extern const struct clock clock_monotonic;

/* The same as it was at the kernel's last tick, 1 to 10 ms ago, for a fifth of the price. */
extern const struct clock clock_coarse;

/* A clock that stands at fake_ns until clock_advance(). */
struct clock clock_fake(int64_t start_ns);
void clock_advance(struct clock *clock, int64_t ns);

static inline int64_t clock_now_ns(const struct clock *clock)
{
    return clock->now_ns(clock);
}

/* Wall-clock nanoseconds since 1970, for timestamps only. */
int64_t clock_wall_ns(void);

/* A moment on the monotonic clock; DEADLINE_NEVER is never passed. */
struct deadline {
    int64_t at_ns;
};

#define DEADLINE_NEVER ((struct deadline){INT64_MAX})

static inline struct deadline deadline_earlier(struct deadline a, struct deadline b)
{
    return a.at_ns < b.at_ns ? a : b;
}

/* `ms` from now on `clock`; negative: never; 0: one that has passed, without a look at the clock.
 * Saturates instead of overflowing. */
struct deadline deadline_in_ms(const struct clock *clock, int64_t ms);
bool deadline_passed(struct deadline deadline, const struct clock *clock);

/* So much later; never stays never. */
struct deadline deadline_put_off(struct deadline deadline, int64_t ns);

/* Nanoseconds left, at least 0; INT64_MAX for never. */
int64_t deadline_left_ns(struct deadline deadline, const struct clock *clock);

/* The same for functions that take a timeout: rounded up, so that a wait that ends early does not
 * spin; -1 for never. */
int64_t deadline_left_ms(struct deadline deadline, const struct clock *clock);

#endif
