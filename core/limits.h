/* Every bound in the project that is not an option, with its arithmetic. */
#ifndef TRP_CORE_LIMITS_H
#define TRP_CORE_LIMITS_H

#include <stdint.h>

enum {
    /* status.c: one line that a terminal still shows whole. */
    ERROR_MESSAGE_BYTES_MAX = 1024,
    /* log.c: PIPE_BUF, so that one write(2) to a pipe is atomic. */
    LOG_LINE_BYTES_MAX = 4096,
    NODE_NAME_BYTES_MAX = 64,
    /* wire/wire.c: parts of one message that are kept decoded: 2^20 items x 72 bytes and as many
     * chunks, 2^22 columns x 12 and slices x 24 bytes are at most 300 MB, whatever the message. */
    MESSAGE_ITEMS_MAX = 1 << 20,
    MESSAGE_SLICES_MAX = 1 << 22,
    WIRE_DEPTH_MAX = 64, /* nested groups in fields we do not know */
    /* wire/wire.c, service/keep_set.c: headers of tensors that are recognised: dtype and eight
     * dimensions of up to three bytes; 32 columns. */
    WIRE_MEMO_BYTES_MAX = 64,
    TENSOR_MEMOS_MAX = 32,
    /* service/keep_set.c: what one insert stream keeps: 2^20 x 48 and 2^22 x 16 bytes are 112 MB.
     */
    KEPT_CHUNKS_MAX = 1 << 20,
    KEPT_TENSORS_MAX = 1 << 22,
    /* model/trajectory.c: items that are recognised by comparing: 64 columns of one slice; 4 KB. */
    TEMPLATE_SLOTS_MAX = 64,
    TEMPLATE_TENSORS_MAX = 128,
    TEMPLATE_BYTES_MAX = 4096,
    /* engine/engine.c: 2048 items from the store of about 400 ns are a millisecond; 32 times that
     * are there before a server is; counters of samples that nothing else makes durable are at most
     * 64 groups old. */
    INDEX_STEP_ITEMS = 2048,
    OPEN_INDEX_STEPS = 32,
    SAMPLE_GROUPS_MAX = 64,
    /* engine/clear.c: items that one step lets go, with nothing else to do and with every group,
     * and more for each that came meanwhile, wherever, up to a bound; an emptied table itself is
     * as much work as so many. So many steps, or those of so long, are taken at once for an insert
     * that finds no room; so many items go with each that is inserted into a table that is beyond
     * its limits. */
    CLEAR_STEP_ITEMS = 1024,
    CLEAR_BUSY_ITEMS = 128,
    CLEAR_PER_INSERT = 2,
    CLEAR_OWED_ITEMS = 8192,
    CLEAR_TABLE_ITEMS = 16,
    CLEAR_ROOM_STEPS = 32,
    CLEAR_ROOM_MS = 1000,
    SHRINK_VICTIMS = 4,
    /* service/insert_stream.c: inserts that wait for a limiter. Reverb's 1000 a table (or a tenth
     * of it); at most 16 MiB of a stream before it is not read on; 1000 a table of streams that
     * ended. */
    LANE_INSERTS_MAX = 1000,
    PENDING_BYTES_MAX = 16 << 20,
    INSERT_ORPHANS_MAX = 1000,
    /* service/sample_stream.c, Reverb's numbers: a batch is 1 MiB of chunks, a response 2 MiB,
     * three responses are queued, so that a stream takes 6 MiB, or three chunks, or one item's
     * chunks. A batch of 1024 small samples is 0.3 ms. */
    SAMPLE_BATCH_BYTES_MAX = 1 << 20,
    SAMPLE_BATCH_ITEMS_MAX = 1024,
    ROOM_LINE_MS = 10000,  /* without refused inserts, until one says so */
    LAST_COMMITS_MAX = 10, /* engine/engine.c: of a second, where the log has to be folded first */
    MUTATE_BLOCK_KEYS_MAX = 64,  /* looked up side by side */
    SAMPLE_BLOCK_ITEMS_MAX = 64, /* the first are in the cache when the last are asked for */
    SAMPLE_RESPONSE_BYTES_MAX = 2 << 20,
    /* service/sample_stream.c: pages of a stream that are on their way from the disk: 32 reads of
     * 28 KB are 1 MiB, on their way in eight batches as those before are waited for. */
    SAMPLE_AHEAD_BYTES_MAX = 8 << 20,
    /* service/sample_draws.c: for the leaf, for the pages; once more for what was given up
       meanwhile. */
    SAMPLE_LOOKS_MAX = 3,
    /* disk/fetcher.c: two of them ask and wait while others wait for slow pages; so many bytes are
     * in the disk's queue; the kernel takes 128 KB of a request everywhere. */
    FETCH_THREADS = 4,
    FETCH_BYTES_MAX = 32 << 20,
    FETCH_STEP_BYTES = 128 << 10,
    /* dm-reverb's sampler drops samples that nobody has fetched from it when the status comes; a
     * batch is fetched within this. */
    SAMPLE_GRACE_MS = 50,
    SAMPLE_RESPONSES_MAX = 3,
    /* A client that asks for everything at once never asks for more: its used-up items are taken as
     * delivered when so many of them have left. */
    SAMPLE_UNSETTLED_MAX = 4096,
    /* service/sample_shared.c: clients on this host that read data.mdb themselves, each with a word
     * of the lease file, a page; further ones get an ordinary stream. */
    SHARED_LEASES_MAX = 512,
    /* service/sample_shared.c: pages of one client that cannot be recycled: three batches of 256 x
     * 28 KB are 22 MB. 512 clients that all stand still keep 32 GiB at most. */
    SHARED_WINDOW_BYTES_MAX = 64 << 20,
    SHARED_WINDOW_BYTES = 32 << 20,
    /* store/chunk.c: chunks in memory in a row, then one of so many is looked at: with one in a
     * thousand on the disk all are, with fewer their reads are a tenth of the time or less. */
    STORE_RESIDENT_LOOKS = 4096,
    STORE_LOOK_EVERY = 16,
    /* service/sample_shared.c: smaller chunks are sent: naming a page costs as much as 2 KB. */
    SHARED_INLINE_BYTES = 2048,
    /* service/inbox.c: shared memory that a writer makes its chunks in: what is on its way (2 MiB
     * unless it says otherwise), its history, and more of it. Pages that nobody writes to do not
     * exist; 128 writers that touch all of them take 1 GiB, further ones send. */
    INBOX_BYTES = 8 << 20,
    INBOXES_MAX = 128,
    /* service/insert_stream.c: bytes in inboxes that count as much as one of a message does: 4 MiB
     * of them, a millisecond's copying, end a group, and at most that and one inbox are copied for
     * one. */
    INBOX_BYTES_WEIGHT = 16,
    /* writer/room.c: what chunks in it are rounded to. */
    ROOM_UNIT_BYTES = 4096,
    /* service/sample_shared.c: how long a client may keep pages that nothing else keeps; a learner
     * takes a batch within a second or two. */
    SHARED_LEASE_MS = 5000,
    /* wire/shared_wire.c: a writer's items are of a few shapes; of more, some are said twice. */
    SHARED_TRAJECTORIES_LOOKED_AT = 16,
    /* rpc/: a connection on which nothing came for so long is asked, and given up without an answer
     * after so long: its client knows after 80 s at most that the link is gone. */
    RPC_KEEPALIVE_MS = 60000,
    RPC_KEEPALIVE_TIMEOUT_MS = 20000,
    /* engine/removed.c: a writer whose confirmations are lost sends again when it knows of it, and
     * has 40 s more to reach the server: pauses between attempts are 1 s. It has 1024 items
     * unconfirmed at most: those of 256 writers; 2 x 2^19 x 16 bytes are 16 MiB, their filter is
     * one. */
    REMOVED_KEYS_MAX = 1 << 18,
    REMOVED_KEYS_MS = RPC_KEEPALIVE_MS + RPC_KEEPALIVE_TIMEOUT_MS + 40000,
    /* table/table.c: what one request is kept from drawing twice; in the worst case each draw looks
     * at all of them, twice: a millisecond. 2^15 entries x 16 bytes. */
    DISTINCT_ITEMS_MAX = 1 << 14,
    /* service/insert_stream.c: messages of confirmations that a client has not read: more than a
     * writer has items on their way, so that none waits for the server while the server waits for
     * it. */
    INSERT_RESPONSES_MAX = 4096,
    /* The same of messages with many: 100 000 items; and entries of a ring that stay when all is
     * confirmed, 64 KB. */
    INSERT_RESPONSES_BYTES_MAX = 1 << 20,
    INSERT_RING_KEPT_MAX = 4096,
    /* engine/engine.c: samples that a mean "of late" covers. */
    STALENESS_SAMPLES = 1024,
    /* engine/tables.c: tables that are made while a server runs: ServerInfo of 4096 tables is about
     * a megabyte. */
    REPLAY_TABLES_MAX = 4096,
    /* server/admin_items.c: an answer; what is sorted for it: 2^20 candidates x 40 bytes = 42 MB;
     * slots looked at with the lock held: 2 ms if each is a cache miss. */
    REPLAY_ITEMS_MAX = 10000,
    REPLAY_REACH_MAX = 1 << 20,
    REPLAY_SLICE_SLOTS = 20000,
    /* server/admin_items.c: a Fetch: by default, and at most, 1 ms and 4 ms of copying. A larger
     * item comes in parts of the latter. */
    REPLAY_FETCH_BYTES = 4 << 20,
    REPLAY_FETCH_BYTES_MAX = 16 << 20,
    /* server/admin_items.c: dumps that go on at a time without walking the table again for each
     * page: REPLAY_REACH_MAX x 24 bytes each. */
    REPLAY_FETCH_PLANS = 4,
    /* server/admin.c */
    REPLAY_WAITERS_MAX = 100,
    /* writer/item_writer.c: messages like a writer's; 1024 items on their way, as many as a lane
       takes. */
    ITEM_WRITER_BATCH_MAX = 64,
    ITEM_WRITER_BYTES_MAX = 4 << 20,
    ITEM_WRITER_UNCONFIRMED_MAX = 1024,
    /* rpc/: 1024 events of about 3 us each: a group takes 3 ms at most. */
    RPC_GROUP_EVENTS_MAX = 1024,
    /* rpc/: about 10 messages of 28 KB: enough to share a commit, and still in the cache when they
     * are answered. */
    RPC_GROUP_BYTES_MAX = 256 * 1024,
    /* rpc/: what connections may take of gRPC's quota besides messages: 16 KB each for 1000, more
     * come out of the messages' share. */
    RPC_CONNECTIONS_BYTES = 16 << 20,
    /* rpc/: replies of any size that callers need not have read for others to get theirs; beyond
     * half of their bytes there is room for small ones only. */
    RPC_REPLIES_MIN = 4,
    RPC_SMALL_REPLY_BYTES = 64 << 10,
    /* rpc/: calls of one connection at a time: more wait at the client; 5 KB each. */
    RPC_STREAMS_MAX = 4096,
    /* rpc/: what an in-process stream takes in before its server's sends queue up: HTTP/2's default
     * window, at least one message, and 64 messages of small ones. */
    RPC_INBOX_BYTES = 64 * 1024,
    RPC_INBOX_MESSAGES = 64,
    /* rpc/: how long a group_end that wants to be called at once waits behind local callers, who
     * come every 100 us when they come: to wake the reactor for each costs more than what they do.
     */
    RPC_LOCAL_PAUSE_MS = 10,
    /* rpc/: below this a copy is cheaper than a reference, and does not pin a read buffer of 8 KB.
     */
    RPC_COPY_BYTES_MAX = 256,
    /* rpc/: below this several slices are joined: a copy takes a microsecond, and does not pin read
     * buffers of 64 KB. */
    RPC_JOIN_BYTES_MAX = 16 * 1024,
    /* rpc/: nesting of messages from outside; protobuf-c recurses, 64 levels take 32 KB of stack.
     */
    RPC_MESSAGE_DEPTH_MAX = 64,
    /* rpc/: services that are in servers of one process: 64 nodes of 16 services. */
    RPC_SERVICES_MAX = 1024,
    /* rpc/: sun_path without its NUL. */
    RPC_UNIX_PATH_BYTES_MAX = 107,
    /* replay/: items of one table: slots are 32 bits and arrays double; 2^31 - 1 items of at least
     * 100 bytes are 200 GB of memory. */
    TABLE_ITEMS_MAX = INT32_MAX,
    /* replay/: a table's name travels in every request for it. */
    TABLE_NAME_BYTES_MAX = 255,
    /* replay/: a signature travels in every ServerInfo: 1000 columns of 1 KB. */
    TABLE_SIGNATURE_BYTES_MAX = 1 << 20,
    /* model/signature.c: a table of 4096 columns is beyond anyone's; names in paths are cut. */
    SIGNATURE_LEAVES_MAX = 4096,
    /* Clients' protobuf reads 100 messages deep; a level of a dict is 3 of them. */
    SIGNATURE_DEPTH_MAX = 30,
    SIGNATURE_NAME_BYTES_MAX = 256,
    /* writer/track.c: smaller tensors are not worth a look; a column that failed to shrink 4 times
     * in a row is looked at once in 17 chunks: 6 % of the cost on noise. */
    WRITER_COMPRESS_BYTES_MIN = 256,
    WRITER_COMPRESS_FAILURES = 4,
    WRITER_COMPRESS_PAUSE = 16,
    /* writer/writer.c: defaults. 1024 items are 16 messages of 64 on their way, enough for 1 M
     * items/s at a round trip of 1 ms; 2 MiB of steps are 2 GB/s then, and stay in an L2 cache: of
     * 8 MiB, a step costs a third more. */
    WRITER_IN_FLIGHT = 1024,
    WRITER_IN_FLIGHT_MIN = 16,
    WRITER_IN_FLIGHT_BYTES = 2 << 20,
    WRITER_BATCH_ITEMS = 64,
    /* writer/history.c: tuned chunks: what a chunk costs beside its rows is nothing long before. */
    WRITER_TUNED_LENGTH_MAX = 1024,
    /* The least that --max-bytes may be: an empty store has 0.8 MB, and deletes need some room. */
    STORE_MAX_BYTES_MIN = 2 << 20,

    /* model/limiter_explain.c: what the wait for an explanation may add to a wait that timed out;
     * writer/item_check.c: the wait for a table's signature before the first item. */
    LIMITER_QUESTION_MS = 500,
    SIGNATURE_WAIT_MS = 1000,
    /* writer/structured_writer.c: steps that a pattern looks back: 24 bytes a column and step. */
    STRUCTURED_HISTORY_MAX = 1 << 20,
    /* sampler/shards.c: servers of one client, each with channels and threads of its own. */
    REPLAY_SHARDS_MAX = 1024,
    /* writer/writer.c: where a message stops taking items: half an L2 cache, and 18 items of 28 KB.
     */
    WRITER_MESSAGE_BYTES = 512 * 1024,
    /* The same of one whose chunks lie in shared memory: nobody copies it, and it costs both ends
     * 30 us whatever is in it; half of what is on its way, so that neither waits for the other. */
    WRITER_PLACED_BYTES = 1 << 20,
    /* sampler/unpack.c: a sample spread over messages is kept until it is complete: what one
     * protobuf message could hold. */
    SAMPLE_BYTES_MAX = INT32_MAX,
    /* sampler/sampler.c: batches of memory. */
    SAMPLER_PREFETCH_MAX = 1024,
    SAMPLER_WORKERS_MAX = 64, /* threads for each server */
    /* sampler/sampler.c: batches requested beyond the one being filled. The server makes one while
     * another is on its way; at most these two are lost at a stop. */
    SAMPLER_BATCHES_AHEAD = 2,
    /* sampler/sampler.c: about what it takes to wake a thread, and for it to get going. */
    SAMPLER_AWAY_NS = 20000,
    /* sampler/sample_source.c: how long rows that are views wait for the rest of their batch; then
     * they are copied. Far longer than a server needs, far shorter than a lease. */
    SAMPLER_HOLD_MS = 10,
    /* client/unary.c: a call whose caller gave no bound. */
    UNARY_TIMEOUT_MS = 30000,
    /* sampler/mutate.c: requests unanswered; the option is a uint32_t. */
    PRIORITY_WINDOW_MAX = 4096,
    /* writer/writer.c, sampler/sampler.c: pauses between attempts to reach a server, doubling. */
    RECONNECT_PAUSE_MS_MIN = 1,
    RECONNECT_PAUSE_MS_MAX = 1000,
    /* actor/: steps of one item; beyond the longest episodes that anyone bootstraps over. */
    NSTEP_MAX = 1024,
    /* actor/: copies of one environment in one actor: 65 536 CartPoles are 10 MB. */
    ACTOR_COPIES_MAX = 65536,
    /* adder.c: items unconfirmed per copy and at least: 256 items hide 25 ms of a table's answer
     * at 10 000 steps/s, and are little beside a table's error buffer. */
    ADDER_IN_FLIGHT_PER_COPY = 64,
    ADDER_IN_FLIGHT_MIN = 256,
    /* store/store.h: chunk and record bytes of one group: 16 449 pages, of LMDB's 131 071 dirty
       ones. */
    STORE_GROUP_BYTES_MAX = 64 << 20,
    /* store/store.h: what one item brings: a group of its own of 98 700 pages, of the same 131 071.
     */
    STORE_ITEM_BYTES_MAX = 384 << 20,
    /* store/group.c: entries of the change log before groups fold along: 4 MiB, replayed in 10 ms
     * at open. */
    STORE_LOG_CHANGES_MAX = 1 << 18,
    /* store/store.h: chunks whose bytes are worth keeping in memory: a tree walk is 0.5 us, a copy
     * of a larger one takes longer. */
    STORE_CACHED_CHUNK_BYTES_MAX = 4080,
    /* store/loan.c: chunks that are sent from where they lie (of one page a copy is cheaper); pages
     * of ten slow clients' windows, and a sixteenth of what the file may grow to; a piece that
     * surely has a page to itself. */
    STORE_LOAN_CHUNK_BYTES_MIN = 6144,
    STORE_LOAN_BYTES_MAX = 64 << 20,
    STORE_LOAN_SHARE = 16,
    STORE_LOAN_PIECE_BYTES_MIN = 2048,
    /* engine/open.c: damaged items that have a line in the log. */
    ENGINE_DAMAGE_LINES_MAX = 100,
    /* engine/damage.c: items found damaged while others are still coming into memory; what is
     * beyond is found again. */
    ENGINE_DAMAGED_MAX = 1000,
    /* engine/checkpoint.c: damaged items that are named; a store with more wants a checkpoint, not
     * a list.
     */
    VERIFY_DAMAGE_MAX = 1000,
    /* disk/checkpoint_dir.c: more than anybody keeps; each is a directory that is looked into. */
    CHECKPOINTS_MAX = 10000,
    REPLAY_CHECKPOINTS_KEPT = 3, /* unless it is said */
    CHECKPOINT_WAITERS_MAX = 1,  /* calls that hold a thread of the pool while another is at work */
    /* store/copy.c: what is found in one go: 2000 pages, whose copy takes 2 ms; chunks that are
     * named one by one: 8 MB of numbers. */
    COPY_BATCH_BYTES = 8 << 20,
    COPY_BAD_CHUNKS_MAX = 1 << 20,
    /* store/chunk.c: buffers kept for the next chunks, of up to 255 x 4 KiB: four groups of 4 MiB.
     */
    STORE_BUFFER_CLASSES = 256,
    STORE_SPARE_BYTES_MAX = 16 << 20,
    /* params_client.c: one pull of a few megabytes takes milliseconds; a learner restarts within
     * a minute. Retries wait 10 ms, doubling up to 640 ms. */
    PARAMS_TIMEOUT_MS = 2000,
    PARAMS_GIVE_UP_MS = 60000,
    PARAMS_RETRY_MS = 10,
    /* actor.c: staleness of a policy that still costs nothing: 20 pulls/s. Deterministic runs
     * know no time and pull every so many steps. */
    ACTOR_PULL_MS = 50,
    ACTOR_PULL_STEPS = 64,
    /* actor.c: how long one wait for the replay table lasts before the stop is looked at (it is
     * not woken by it), how long a missing server is waited for, and the last flush. */
    ACTOR_PUSH_MS = 200,
    ACTOR_REPLAY_GIVE_UP_MS = 60000,
    ACTOR_RETRY_MS = 50,
    ACTOR_FLUSH_MS = 2000,
    /* actor.c: finished episodes that the mean return covers. */
    ACTOR_RETURNS = 100,
    /* evaluate.c: copies stepped together: a batch that fits the caches. */
    EVALUATE_COPIES = 128,
    EVALUATE_EPISODES = 100,
    EVALUATE_EPISODES_MAX = 1000000,
    /* launch/: "name/4095" fits a log prefix and, with ".sock", a socket path beside a directory.
     */
    GROUP_NAME_BYTES_MAX = 40,
    PROGRAM_NODES_MAX = 4096,
    /* control.c: one packet between launcher and node; an error message is at most 1023 bytes. */
    CONTROL_MESSAGE_BYTES_MAX = 2048,
    /* host.c: how long a child waits to tell the launcher; the launcher reads all the time. */
    CONTROL_SEND_MS = 5000,
    HOST_REPORT_MS = 200, /* between two reports of a node's metrics */
    /* host.c: a child outlives its launcher by less than the 2 s that are promised. */
    HOST_ORPHAN_MS = 1500,
    /* metrics.c: 32 x 80 bytes a node; looked up by comparing words. */
    METRICS_MAX = 32,
    METRIC_NAME_BYTES_MAX = 32,
    /* lines.c: an unfinished line of a node is passed on when it has so many bytes. */
    NODE_LINE_BYTES_MAX = 64 * 1024,
    /* service/service.c: a full file system is looked at again so often; it is told of, and changes
     * are refused, when it has had no room for them for so long: folding the log, which makes some,
     * takes a second where disks are slow. Callers wait for UNARY_TIMEOUT_MS. */
    SERVICE_FULL_RETRY_MS = 50,
    SERVICE_FULL_TELL_MS = 2000,
    SERVICE_FULL_REFUSE_MS = 10000,
    SHRINK_WAITS_MAX = 30, /* server/admin_tables.c: commits that find no room, of a second each */
    /* service/service.c: what a client kept is taken back so soon where nothing else happens. */
    SERVICE_LOANS_MS = 100,
    /* server/server.c: a transport that was stopped lets go at once. */
    SERVER_LOANS_WAIT_MS = 2000,
    /* output.c: what a slow terminal may owe: 4 MiB, then lines are dropped and counted. */
    OUTPUT_LINES_MAX = 16384,
    OUTPUT_BYTES_MAX = 4 << 20,
    /* run_dir.c: config.json; a command line and 4096 groups of 100 bytes. */
    RUN_CONFIG_BYTES_MAX = 1 << 20,
    /* run_dir.c: a node's log, and the one before it: 2 x 16 MiB a node, some 200 000 lines. */
    LOG_FILE_BYTES_MAX = 16 << 20,
    /* run.c: lines of a failed node's log that are shown again at the end. */
    LAST_LINES_MAX = 8,
    LAST_LINE_BYTES_MAX = 240,
    /* shape.c: a layer has at most 2^28 weights and 2^17 columns (two streams), so products with a
     * batch of 2^32 rows stay below 2^63. 2^28 parameters are 4 GB with gradient and Adam. */
    NET_WIDTH_MAX = 1 << 16,
    NET_PARAMS_MAX = 1 << 28,
    NET_THREADS_MAX = 256,
    /* team.c: x 140 cycles of a pause = 84 us at 2.5 GHz: Adam on the 71 000 parameters of the
     * smallest network that has a team lies between two of its jobs. */
    TEAM_SPINS_MAX = 1500,
    /* engine/checkpoint.h: safetensors' own limit. */
    CHECKPOINT_HEADER_BYTES_MAX = 100 * 1000 * 1000,
    /* publisher.c: clients of one learner, and their names ("actor/65535"). */
    PARAMS_CLIENTS_MAX = 65536,
    PARAMS_CLIENT_NAME_BYTES_MAX = 127,
    /* learner.c: one wait for a batch or for the answer to priorities before the stop is looked
     * at, and how long a missing replay server is waited for. */
    LEARNER_WAIT_MS = 200,
    LEARNER_PRIORITY_MS = 1000,
    LEARNER_REPLAY_GIVE_UP_MS = 60000,
    LEARNER_RETRY_MS = 50,
    /* learner.c: requests with priorities on their way: the server answers within a step or two. */
    LEARNER_PRIORITY_WINDOW = 8,
    /* learner.c: more versions than are published between two checkpoints (a minute at 17 000
     * steps/s, each published): after a restart no number is used for another vector. */
    LEARNER_VERSION_GAP = 1 << 20,
    LEARNER_PREFETCH = 2,
    LEARNER_PREFETCH_MAX = 64,
    LEARNER_PUBLISH_EVERY = 10,
    LEARNER_CHECKPOINT_EVERY_S = 60,
    /* save.c: the newest one, and one before it in case it cannot be read. */
    LEARNER_CHECKPOINTS_KEPT = 2,
    /* dqn.c: one pull is a message: the 64 MiB of a server, less what else is in it. */
    PARAMS_BYTES_MAX = (64 << 20) - 4096,
    /* dqn.c: rows of one update; 65 536 CartPole items are 4 MB of batch. */
    DQN_BATCH_MAX = 65536,
    /* envs/: environments of one process, and copies of one: 2^20 CartPoles are 100 MB. */
    ENVS_MAX = 256,
    ENV_COPIES_MAX = 1 << 20,
};

/* net.c: no machine has it; what is above is a mistake in the options. */
#define NET_ARENA_BYTES_MAX (UINT64_C(1) << 38)

/* store/store.h: address space for one store, 1/32 of what x86-64 has. */
#define STORE_MAP_BYTES_MAX (UINT64_C(1) << 42)

/* disk/dir.c: a map leaves room for its file system to grow to so many times its size, and to
 * 64 GiB in any case. The thread sanitizer has 1.5 TiB for all maps of a process, and to the
 * address sanitizer a map costs time by its size. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define STORE_MAP_GROWTH 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define STORE_MAP_GROWTH 1
#endif
#endif
#ifndef STORE_MAP_GROWTH
#define STORE_MAP_GROWTH 4
#endif
#define STORE_MAP_BYTES_MIN (UINT64_C(1) << 36)

#endif
