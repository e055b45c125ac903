/* Waits of tests end: who has waited too long fails, and says for what. */
#ifndef TRP_TESTS_PATIENCE_H
#define TRP_TESTS_PATIENCE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>

#include "core/clock.h"

enum { PATIENCE_MS = 30000 };

static inline struct deadline patience(void)
{
    return deadline_in_ms(&clock_monotonic, PATIENCE_MS);
}

static inline void still_patient(struct deadline deadline, const char *what)
{
    if (deadline_passed(deadline, &clock_monotonic))
        fail_msg("waited too long for %s", what);
}

/* Where time itself is what is tested. */
static inline void let_pass(int64_t ms)
{
    struct deadline over = deadline_in_ms(&clock_monotonic, ms);
    while (!deadline_passed(over, &clock_monotonic))
        poll(NULL, 0, 50);
}

/* A short pause between two looks at something that will change. */
static inline void look_again_soon(struct deadline deadline, const char *what)
{
    still_patient(deadline, what);
    poll(NULL, 0, 5);
}

#endif
