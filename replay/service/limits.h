/* Bounds of replay/service/ that are no option, with their arithmetic. */
#ifndef TRP_REPLAY_SERVICE_LIMITS_H
#define TRP_REPLAY_SERVICE_LIMITS_H

enum {
    TENSOR_MEMOS_MAX = 32, /* keep_set.c: a column each; see WIRE_MEMO_BYTES_MAX */
    /* keep_set.c: chunks that one insert stream keeps: 2^20 x 56, as many x 32 and 2^22 x 16 bytes
     * are 155 MB. */
    KEPT_CHUNKS_MAX = 1 << 20,
    KEPT_TENSORS_MAX = 1 << 22,
    /* trajectory_builder.c: items that are recognised by comparing: 64 columns of one slice; 4 KB;
     * of as many kinds as chunks of four rows make. */
    TEMPLATES_MAX = 4,
    TEMPLATE_SLOTS_MAX = 64,
    TEMPLATE_BYTES_MAX = 4096,
    CLEAR_BUSY_ITEMS = 128, /* that one engine_clear_step() lets go beside other work */
    /* insert_stream.c: inserts that wait for a limiter. Reverb's 1000 a table (or a tenth of it);
     * at most 16 MiB of a stream before it is not read on; 1000 a table of streams that ended. */
    LANE_INSERTS_MAX = 1000,
    PENDING_BYTES_MAX = 16 << 20,
    INSERT_ORPHANS_MAX = 1000,
    /* sample_stream.c, Reverb's numbers: a batch is 1 MiB of chunks, a response 2 MiB,
     * three responses are queued, so that a stream takes 6 MiB, or three chunks, or one item's
     * chunks. A batch of 1024 small samples is 0.3 ms. */
    SAMPLE_BATCH_BYTES_MAX = 1 << 20,
    SAMPLE_BATCH_ITEMS_MAX = 1024,
    SAMPLE_BLOCK_ITEMS_MAX = 64, /* the first are in the cache when the last are asked for */
    SAMPLE_RESPONSE_BYTES_MAX = 2 << 20,
    /* sample_stream.c: pages of a stream that are on their way from the disk: 32 reads of
     * 28 KB are 1 MiB, on their way in eight batches as those before are waited for. */
    SAMPLE_AHEAD_BYTES_MAX = 8 << 20,
    /* sample_draws.c: for the leaf, for the pages; once more for pages that were given up. */
    SAMPLE_PROBES_MAX = 3,
    /* dm-reverb's sampler drops samples that nobody has fetched from it when the status comes; a
     * batch is fetched within this. */
    SAMPLE_GRACE_MS = 50,
    SAMPLE_RESPONSES_MAX = 3,
    /* shm_segment.c: shared memory that a writer makes its chunks in: items on their way (2 MiB
     * unless it says otherwise), its history, and more of it. Pages that nobody writes to do not
     * exist; 128 writers that touch all of them take 1 GiB, further ones send. */
    SHM_SEGMENT_BYTES = 8 << 20,
    SHM_SEGMENTS_MAX = 128,
    /* insert_stream.c: bytes in segments that count as much as one of a message does: 4 MiB of
     * them, a millisecond's copying, end a group; at most that and one segment are copied. */
    REFERENCED_BYTES_WEIGHT = 16,
    /* insert_stream.c: messages of confirmations that a client has not read: more than a writer has
     * items on their way, so that none waits for the server while the server waits for it. */
    INSERT_RESPONSES_MAX = 4096,
    /* The same of messages with many: 100 000 items. */
    INSERT_RESPONSES_BYTES_MAX = 1 << 20,
    /* Rings of all streams up to which one stays when all in it is confirmed: 64 of 4096 items. */
    INSERT_RINGS_KEPT_BYTES = 4 << 20,
    /* Confirmations that wait, in the order of their stream, for an item that does: 1 MiB. */
    INSERT_CONFIRMS_MAX = 1 << 16,
    /* service.c: a full file system is probed so often; a line says so, and changes
     * are refused, when it has had no room for them for so long: compacting the log, which makes
     * some, takes a second where disks are slow. Our callers wait for three times as long and are
     * told why; Reverb's have no bound of their own. */
    SERVICE_FULL_RETRY_MS = 50,
    SERVICE_FULL_LOG_MS = 2000,
    SERVICE_FULL_REFUSE_MS = 10000,
    /* service.c: memory of a decoded request that the next one reuses: five thousand items. */
    SERVICE_DECODED_BYTES_KEPT = 1 << 20,
    /* service.c: chunks that the transport has sent are let go so soon if nothing else happens. */
    SERVICE_UNPIN_MS = 100,
};

#endif
