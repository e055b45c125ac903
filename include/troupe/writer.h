/* Writer: steps in, trajectories out to a replay server, over Reverb's InsertStream.
 *
 * Steps are appended column by column; items name spans of recent steps. All columns of a step
 * travel in one chunk unless a column has options of its own, many items in one message. A writer
 * belongs to one thread and has none of its own: messages move inside its calls, so a writer that
 * is not called sends nothing.
 *
 * When the server goes away (UNAVAILABLE, CANCELLED, or an end of the stream with OK) the writer
 * reopens its stream, with pauses from 1 ms to 1 s, inside the calls that wait, and sends every
 * unconfirmed item again under its key: nothing acknowledged is lost, nothing else is lost or
 * inserted twice as long as its key is in the table (a Troupe server also knows what waits for the
 * limiter, and the keys that left the table in the last 120 s, the last 262 144 of them). Any other
 * status of the server is final: it is returned, with the server's words, by this call or the next
 * and by every later one.
 */
#ifndef TRP_WRITER_H
#define TRP_WRITER_H

#include <troupe/rpc.h>
#include <troupe/tensor.h>

TRP_BEGIN_DECLS

typedef struct trp_writer trp_writer;

/* A column with any option of its own is in chunks of its own. */
typedef struct {
    bool separate;         /* has no other, but shall be in chunks of its own */
    uint32_t history;      /* as below; 0: the writer's */
    uint32_t chunk_length; /* as below; 0: the writer's */
    bool tuned;            /* as below */
} trp_column_options;

typedef struct {
    const trp_tensor_spec *columns; /* copied; the spec of one step */
    size_t column_count;
    const trp_column_options *column_options; /* one a column; NULL: none has any; copied */
    uint32_t history;                         /* steps back that items may refer to; 0: 1 */
    size_t history_bytes;  /* that these steps may take, with 16 for each and each of its columns;
                              0: 4 GiB. What unconfirmed items hold beyond is not counted */
    uint32_t chunk_length; /* steps in a chunk; 0: 1 */
    bool tuned;            /* the length is found out instead, between 1 and `history`, by what
                              chunks and items cost in bytes */
    double throughput_weight; /* when tuned: of an item's bytes beside a chunk's; 0: 1 */
    uint32_t max_in_flight;   /* items not confirmed; 0: 1024, or 2 MiB of steps */
    uint32_t fast_in_flight;  /* the same while the server confirms as many within 5 ms; 0: no other
                                 number. Not where threads take turns */
    uint32_t batch_items;     /* items that wait to share a message; 0: 64, and up to 512 within
                                 2 ms, but where threads take turns */
    bool unchecked;           /* do not compare items with their table's signature */
    uint64_t seed; /* of keys; 0: from the operating system. Writers of one table need different
                      ones, also after a restart: an item with a known key is an update */
} trp_writer_options;

/* Opens nothing yet; the stream opens with the first message. INVALID_ARGUMENT: a column that is no
 * tensor, or steps too large for a chunk (4 GiB a column); a history, or a chunk, that
 * history_bytes has no room for. `channel` outlives the writer. */
TRP_API TRP_MUST_USE trp_status trp_writer_create(trp_writer **out, trp_channel *channel,
                                                  const trp_writer_options *options);

/* One step: `columns[i]` points to trp_tensor_bytes(&spec[i]) bytes, copied. Never waits; fails
 * with the final status of the server, and with RESOURCE_EXHAUSTED when an episode that has not
 * ended takes more than history_bytes: nothing of the call is taken then, and the writer goes on
 * when its episode ends. Ends an open partial step (INVALID_ARGUMENT then: see there). */
TRP_API TRP_MUST_USE trp_status trp_writer_append(trp_writer *writer, const void *const *columns);

/* `count` steps at once: `columns[i]` has count rows, one after the other. INVALID_ARGUMENT: a
 * partial step is open. */
TRP_API TRP_MUST_USE trp_status trp_writer_append_steps(trp_writer *writer,
                                                        const void *const *columns, uint32_t count);

/* Part of a step: the columns that are not NULL. With `partial` the step goes on: the next call
 * adds to it, and items may refer to what is there (its age is 0). A column that has no value when
 * the step ends is absent from it; items cannot refer to that. INVALID_ARGUMENT: a column that this
 * step has already; nothing of the call is taken then. */
TRP_API TRP_MUST_USE trp_status trp_writer_append_part(trp_writer *writer,
                                                       const void *const *columns, bool partial);

/* One column of an item: `length` steps of column `column`, the first of them `age` steps back
 * (0: the newest step), so age + 1 >= length. Or, when `ages` is there, exactly the steps of those
 * ages, `length` of them in any order, each as often as wanted. `squeeze` drops the time axis
 * (length 1). */
typedef struct {
    uint32_t column, age, length;
    bool squeeze;
    const uint32_t *ages;
} trp_item_column;

/* Queues an item of these columns with `priority`. It is sent when its chunks are complete and
 * batch_items are waiting, or at flush. Blocks while max_in_flight items are unconfirmed, up to
 * `timeout_ms` (negative: no bound). `key`, if not NULL, gets the item's key. INVALID_ARGUMENT:
 * steps that left the history or are absent, or columns that are not what the table's signature
 * says (the first item of a table waits for it, 1 s at most; items are unchecked while the server
 * does not answer); NOT_FOUND: no such table. The item is not queued then, the writer is fine.
 * DEADLINE_EXCEEDED: the table's limiter (or the peer) holds inserts back, and what it waits for;
 * UNAVAILABLE: the server went away, or was never there, and answers nothing. In both cases the
 * item is NOT queued and the call can be repeated. Other failures are the server's, and final. */
TRP_API TRP_MUST_USE trp_status trp_writer_create_item(trp_writer *writer, const char *table,
                                                       double priority,
                                                       const trp_item_column *columns,
                                                       size_t column_count, int64_t timeout_ms,
                                                       uint64_t *key);

/* Sends everything and waits until at most `unconfirmed` items are in flight. DEADLINE_EXCEEDED
 * says which table holds back, UNAVAILABLE that its server is away; nothing is lost then. */
TRP_API TRP_MUST_USE trp_status trp_writer_flush(trp_writer *writer, uint32_t unconfirmed,
                                                 int64_t timeout_ms);

/* Ends the episode: flush(0), then forgets the steps, unless they are kept for items that span
 * episodes. A partial step ends with it. When the flush fails nothing has ended: call again. */
TRP_API TRP_MUST_USE trp_status trp_writer_end_episode(trp_writer *writer, bool keep_steps,
                                                       int64_t timeout_ms);

/* The steps appended from now on are of another episode than those under other numbers, 0 at first,
 * until trp_writer_end_episode(): for a writer of several environments, whose episodes take turns.
 * Waits for nothing and forgets nothing; a chunk has steps of one episode only. Servers count
 * episodes. Ends an open partial step. */
TRP_API void trp_writer_set_episode(trp_writer *writer, uint64_t number);

/* Complete steps since the writer's episode began, whatever their numbers. */
TRP_API uint32_t trp_writer_episode_steps(const trp_writer *writer);

/* The version of the policy that made the items created from now on; 0 (as at first): not said.
 * Travels with each item (an extension that Reverb's servers drop) into trp_batch. */
TRP_API void trp_writer_set_policy_version(trp_writer *writer, uint64_t version);

/* Items confirmed since creation. */
TRP_API uint64_t trp_writer_confirmed(const trp_writer *writer);

/* Unsent items are lost; flush before. NULL is fine. */
TRP_API void trp_writer_destroy(trp_writer *writer);

TRP_END_DECLS
#endif
