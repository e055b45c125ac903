/* Bounds of replay/writer/ that are no option, with their arithmetic. */
#ifndef TRP_REPLAY_WRITER_LIMITS_H
#define TRP_REPLAY_WRITER_LIMITS_H

enum {
    /* shm_arena.c: what chunks in it are rounded to. */
    SHM_ARENA_UNIT_BYTES = 4096,
    /* item_writer.c: messages like a writer's; 1024 items on their way, as many as a lane takes. */
    ITEM_WRITER_BATCH_MAX = 64,
    ITEM_WRITER_BYTES_MAX = 4 << 20,
    ITEM_WRITER_UNCONFIRMED_MAX = 1024,
    /* column_group.c: smaller tensors are not worth a look; a column that failed to shrink 4 times
     * in a row is looked at once in 17 chunks: 6 % of the cost on noise. */
    WRITER_COMPRESS_BYTES_MIN = 256,
    WRITER_COMPRESS_FAILURES = 4,
    WRITER_COMPRESS_PAUSE = 16,
    /* writer.c: defaults. 1024 items are 16 messages of 64 on their way, enough for 1 M
     * items/s at a round trip of 1 ms; 2 MiB of steps are 2 GB/s then, and stay in an L2 cache: of
     * 8 MiB, a step costs a third more. */
    WRITER_IN_FLIGHT = 1024,
    WRITER_IN_FLIGHT_MIN = 16,
    WRITER_IN_FLIGHT_BYTES = 2 << 20,
    WRITER_BATCH_ITEMS = 64,
    /* The same of a writer that has more than one message in so many ms: each costs the server 50
     * us and more beside its items. */
    WRITER_BATCH_ITEMS_MAX = 512,
    WRITER_BATCH_MS = 2,
    WRITER_BATCH_ASK_ITEMS = 16, /* for one look at the clock */
    /* Over how long the pace of confirmations is measured. */
    WRITER_PACE_MS = 5,
    /* history.c: steps that can be referred to, unless the caller says otherwise: what eight
     * writers beside a learner find on most machines. */
    WRITER_HISTORY_GIB = 4,
    /* history.c: tuned chunks: what a chunk costs beside its rows is nothing long before. */
    WRITER_TUNED_LENGTH_MAX = 1024,
    /* item_check.c: the wait for a table's signature before the first item. */
    SIGNATURE_WAIT_MS = 1000,
    /* structured_writer.c: steps that a pattern looks back: 24 bytes a column and step. */
    STRUCTURED_HISTORY_MAX = 1 << 20,
    /* writer.c: where a message stops taking items: half an L2 cache, and 18 items of 28 KB. */
    WRITER_MESSAGE_BYTES = 512 * 1024,
    /* The same of one whose chunks lie in shared memory: nobody copies it, and it costs both ends
     * 30 us whatever is in it; half of what is on its way, so that neither waits for the other. */
    WRITER_ARENA_BYTES = 1 << 20,
};

#endif
