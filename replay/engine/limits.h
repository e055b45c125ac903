/* Bounds of replay/engine/ that are no option, with their arithmetic. */
#ifndef TRP_REPLAY_ENGINE_LIMITS_H
#define TRP_REPLAY_ENGINE_LIMITS_H

enum {
    /* engine.c: 2048 items from the store of about 400 ns are a millisecond; 32 times that
     * are there before a server is; counters of samples that nothing else makes durable are at most
     * 64 groups old. */
    INDEX_STEP_ITEMS = 2048,
    OPEN_INDEX_STEPS = 32,
    SAMPLE_GROUPS_MAX = 64,
    /* clear.c: items that one step lets go, with nothing else to do and with every group,
     * and more for each that came meanwhile, wherever, up to a bound; an emptied table itself is
     * as much work as so many. */
    CLEAR_STEP_ITEMS = 1024,
    CLEAR_PER_INSERT = 2,
    CLEAR_DEBT_ITEMS = 8192,
    CLEAR_TABLE_ITEMS = 16,
    /* clear.c: for how long steps are taken at once for an insert, or a table, that finds no room:
     * a step and its commits are milliseconds, and mostly the first gives enough; where the disk is
     * waited for, nobody else is served meanwhile, so for no longer than the store itself tidies
     * up for one insert (TIDY_MS of store/group.c). */
    CLEAR_ROOM_MS = 1000,
    ROOM_LINE_MS = 10000, /* without refused inserts, until one says so */
    LAST_COMMITS_MAX =
        10, /* engine/engine.c: of a second, where the log has to be compacted first */
    MUTATE_BLOCK_KEYS_MAX = 64, /* looked up side by side */
    /* A client that asks for everything at once never asks for more: its used-up items are taken as
     * delivered when so many of them have left. */
    SAMPLE_UNACKED_MAX = 4096,
    /* engine.c: samples that a mean "of late" covers. */
    STALENESS_SAMPLES = 1024,
    /* tables.c: tables that are made while a server runs: ServerInfo of 4096 tables is about
     * a megabyte. */
    REPLAY_TABLES_MAX = 4096,
    /* tables.c: of all tables, when one gets one while a server runs: every answer that lists the
     * tables has them, and their names once more, and has to stay well below 64 MiB. */
    REPLAY_SIGNATURES_BYTES_MAX = 16 << 20,
    /* open.c: damaged items that have a line in the log. */
    ENGINE_DAMAGE_LINES_MAX = 100,
    /* damage.c: damaged items of a table that whoever asks for their keys is told of: as many as
     * `verify` names, in 32 KB. Of more, those that a server found while others were coming into
     * memory are found again when they are read, and others are as if they had never been. */
    ENGINE_DAMAGED_MAX = 1000,
    /* checkpoint.c: damaged items that are named; a store with more wants a checkpoint. */
    VERIFY_DAMAGE_MAX = 1000,
    CHECKPOINT_WAITERS_MAX = 1, /* calls that hold a thread of the pool while another is at work */
};

#endif
