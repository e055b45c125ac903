/* See pace.h. */
#include "pace.h"

enum { RUN_MESSAGES = 256, RUN_SIGNS = 16, LOG_PATIENCE_MAX = 10 };

static void run_begin(struct pace *pace, int64_t now_ns)
{
    pace->begin_ns = now_ns;
    pace->messages = pace->signs = 0;
}

static void wake(struct pace *pace, int64_t now_ns)
{
    pace->naps = false;
    pace->good_runs = 0;
    pace->log_patience += pace->log_patience < LOG_PATIENCE_MAX;
    run_begin(pace, now_ns);
}

void pace_took(struct pace *pace, int64_t now_ns, bool ahead)
{
    if (pace->begin_ns == 0)
        run_begin(pace, now_ns);
    pace->messages++;
    pace->signs += ahead;
    if (pace->naps || pace->messages < RUN_MESSAGES)
        return;
    pace->good_runs = pace->signs >= RUN_SIGNS ? pace->good_runs + 1 : 0;
    pace->awake_ns = (now_ns - pace->begin_ns) / pace->messages;
    pace->naps = pace->good_runs >> pace->log_patience > 0;
    run_begin(pace, now_ns);
}

void pace_napped(struct pace *pace, int64_t now_ns, uint32_t messages)
{
    if (messages < 2) { /* for nothing */
        wake(pace, now_ns);
        return;
    }
    if (pace->messages < RUN_MESSAGES)
        return;
    int64_t asleep_ns = (now_ns - pace->begin_ns) / pace->messages;
    if (asleep_ns > pace->awake_ns + pace->awake_ns / 4)
        wake(pace, now_ns);
    else if (pace->log_patience > 0)
        pace->log_patience--;
    run_begin(pace, now_ns);
}
