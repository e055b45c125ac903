/* Durations and deadlines use the monotonic clock only: wall time jumps. */
#include "core/clock.h"

#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t monotonic_now_ns(const struct clock *clock)
{
    (void)clock;
    return read_clock(CLOCK_MONOTONIC);
}

static int64_t coarse_now_ns(const struct clock *clock)
{
    (void)clock;
    return read_clock(CLOCK_MONOTONIC_COARSE);
}

static int64_t fake_now_ns(const struct clock *clock)
{
    return clock->fake_ns;
}

const struct clock clock_monotonic = {.now_ns = monotonic_now_ns};
const struct clock clock_coarse = {.now_ns = coarse_now_ns};

struct clock clock_fake(int64_t start_ns)
{
    return (struct clock){.now_ns = fake_now_ns, .fake_ns = start_ns};
}

void clock_advance(struct clock *clock, int64_t ns)
{
    clock->fake_ns += ns;
}

int64_t clock_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

struct deadline deadline_in_ms(const struct clock *clock, int64_t ms)
{
    if (ms == 0)
        return (struct deadline){0};
    int64_t now = clock_now_ns(clock);
    if (ms < 0 || ms > (INT64_MAX - now) / 1000000)
        return DEADLINE_NEVER;
    return (struct deadline){now + ms * 1000000};
}

bool deadline_passed(struct deadline deadline, const struct clock *clock)
{
    return deadline.at_ns != INT64_MAX && clock_now_ns(clock) >= deadline.at_ns;
}

struct deadline deadline_put_off(struct deadline deadline, int64_t ns)
{
    return deadline.at_ns < INT64_MAX - ns ? (struct deadline){deadline.at_ns + ns}
                                           : DEADLINE_NEVER;
}

int64_t deadline_left_ns(struct deadline deadline, const struct clock *clock)
{
    if (deadline.at_ns == INT64_MAX)
        return INT64_MAX;
    int64_t left = deadline.at_ns - clock_now_ns(clock);
    return left > 0 ? left : 0;
}

int64_t deadline_left_ms(struct deadline deadline, const struct clock *clock)
{
    int64_t left = deadline_left_ns(deadline, clock);
    return left == INT64_MAX ? -1 : left / 1000000 + (left % 1000000 != 0);
}
