/* Whether an insert stream is looked at message by message, or now and then.
 *
 * A client that sends on without waiting for confirmations is woken by each of them all the same,
 * and by a window update for each of its messages that the server waited for; and a group that
 * takes many messages saves their commits. So a stream whose messages come ahead of the answers is
 * looked at about once a millisecond: it naps. A client that waits must not be kept waiting: its
 * stream never shows that sign. One that waits sometimes, as its window is small, would be slowed
 * down: then the stream is awake again, and has to show the sign for longer each time. */
#ifndef TRP_REPLAY_PACE_H
#define TRP_REPLAY_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct pace {
    bool naps;
    uint32_t messages, signs; /* of this run */
    uint32_t good_runs;
    uint32_t log_patience; /* so many good runs to fall asleep: 1 << log_patience */
    int64_t begin_ns;      /* of this run; 0: it has not begun */
    int64_t awake_ns;      /* a message took so long in the last good run */
};

/* A message has come; `ahead`: before its sender can have seen the answer to the one before. */
void pace_took(struct pace *pace, int64_t now_ns, bool ahead);

/* A nap is over, in which `messages` came. */
void pace_napped(struct pace *pace, int64_t now_ns, uint32_t messages);

#endif
