/* Bounds of replay/server/ that are no option, with their arithmetic. */
#ifndef TRP_REPLAY_SERVER_LIMITS_H
#define TRP_REPLAY_SERVER_LIMITS_H

enum {
    /* service/sample_shared.c: how long a client may keep pages that nothing else keeps; a learner
     * takes a batch within a second or two. */
    SHARED_LEASE_MS = 5000,
    /* admin_items.c: an answer; the items sorted for it: 2 x 2^20 candidates x 24 bytes = 50 MB;
     * slots looked at with the lock held: 2 ms if each is a cache miss. */
    REPLAY_ITEMS_MAX = 10000,
    REPLAY_REACH_MAX = 1 << 20,
    REPLAY_SLICE_SLOTS = 20000,
    /* admin_items.c: a Fetch: by default, and at most, 1 ms and 4 ms of copying. A larger
     * item comes in parts of the latter. */
    REPLAY_FETCH_BYTES = 4 << 20,
    REPLAY_FETCH_BYTES_MAX = 16 << 20,
    /* admin_items.c: dumps that go on at a time without walking the table again for each
     * page: REPLAY_REACH_MAX x 24 bytes each; of one whose request is longer, a filter of 100 000
     * keys and more, each page does. */
    REPLAY_FETCH_PLANS = 4,
    REPLAY_FETCH_KEY_BYTES_MAX = 1 << 20,
    REPLAY_WAITERS_MAX = 100,    /* admin.c */
    REPLAY_CHECKPOINTS_KEPT = 3, /* unless it is said */
    SHRINK_WAITS_MAX = 30,       /* admin_tables.c: commits that find no room, of a second each */
    /* server.c: a transport that was stopped lets go at once. */
    SERVER_UNPIN_WAIT_MS = 2000,
};

#endif
