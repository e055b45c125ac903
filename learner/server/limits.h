/* Bounds of learner/server/ that are no option, with their arithmetic. */
#ifndef TRP_LEARNER_SERVER_LIMITS_H
#define TRP_LEARNER_SERVER_LIMITS_H

enum {
    /* shard.c: versions that gradients of DynSGD may be of, where max_staleness says nothing: each
     * is a vector in memory. */
    SHARD_WINDOW = 16,
    SHARD_WINDOW_MAX = 1024,
    SHARD_WORKERS_MAX = 4096,
    /* shard.c: numbers of a gradient that are copied at once where they may change: 16 KB stay in a
     * core's own cache until they are stepped with. */
    SHARD_BLOCK = 4096,
    /* keys.c: lists of ranges that a table remembers: a learner has one or two. */
    KEY_LISTS = 64,
    /* table.c: a name is a file's. */
    TABLE_NAME_BYTES_MAX = 100,
    /* keep.c: a log of so many gradients, or bytes, is replayed in a second or so; then there is a
     * checkpoint. Without a log there is one after so many pushes. */
    KEEP_LOG_VECTORS = 32,
    KEEP_LOG_BYTES = 16 << 20,
    KEEP_CHANGES = 1000,
    /* keep.c: more versions than there are between two checkpoints. */
    KEEP_VERSION_GAP = 1 << 20,
    /* server.c: a pull of a worker that is gone has a thread for so long; workers ask for less. */
    SERVER_WAIT_MS_MAX = 1000,
    /* table.c: workers that wait ask twice as often. */
    SERVER_GAP_MS = 400,
    /* parts_room.c: gradients of which not all parts are there, where no option says; as rpc/ has
     * of messages. One whose parts do not come for so long may not be complete any more, when
     * another one needs the room: learners try for longer. table.c: nor are values held for longer
     * for a pull whose next part is not asked for. */
    STAGED_BYTES = 1 << 30,
    STAGED_SILENCE_MS = 1000,
    /* passes.c: less than this takes as long as to wake a thread. Of what is shared each thread
     * takes a part after the other. More threads than this wait for memory. */
    PASS_SHARED_NUMBERS = 1 << 18,
    PASS_PART_NUMBERS = 1 << 15,
    PASS_THREADS_MAX = 4,
    /* placement.c: a range begins at a cache line: what one server steps no other one has. */
    PLACEMENT_NUMBERS = 16,
};

#endif
