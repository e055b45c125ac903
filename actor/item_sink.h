/* Where an adder's rows and items go: a writer and its table, or a rollout. */
#ifndef TRP_ACTOR_ITEM_SINK_H
#define TRP_ACTOR_ITEM_SINK_H

#include <troupe/adder.h>
#include <troupe/writer.h>

struct item_sink {
    trp_rollout *rollout; /* borrowed; NULL: a table */
    trp_channel *replay;  /* borrowed */
    trp_writer_options options;
    trp_writer *writer; /* NULL before item_sink_open() */
    bool is_open;
    char *table;
    double priority;
    uint64_t items;     /* so far */
    int64_t emptied_ns; /* when the writer was last told to send all; 0: before the first push */
};

/* `writer` says what rows are; its columns outlive the sink. */
void item_sink_prepare(struct item_sink *sink, const trp_adder_options *options,
                       const trp_writer_options *writer);
void item_sink_cleanup(struct item_sink *sink);

/* Other keys; before item_sink_open(). */
void item_sink_reseed(struct item_sink *sink, uint64_t seed);

/* At the first push, when the seed of the keys is known for good; later calls do nothing. */
TRP_MUST_USE trp_status item_sink_open(struct item_sink *sink);

/* `count` rows of one episode, whose number is `episode`. Never waits. */
TRP_MUST_USE trp_status item_sink_append(struct item_sink *sink, uint64_t episode,
                                         const void *const *columns, uint32_t count);

/* An item of rows appended before. DEADLINE_EXCEEDED: the table or the rollout has no room for it
 * now, call again. */
TRP_MUST_USE trp_status item_sink_create_item(struct item_sink *sink, uint64_t version,
                                              const trp_item_column *columns, size_t column_count,
                                              int64_t timeout_ms);

/* Sends what the writer keeps, as far as the table takes it now, if `at_once` or if it has waited
 * for ADDER_KEEP_MS. What is left then waits as long again, and is no failure. */
TRP_MUST_USE trp_status item_sink_send(struct item_sink *sink, bool at_once);

/* Until at most `unconfirmed` items are in flight; a rollout has none. */
TRP_MUST_USE trp_status item_sink_flush(struct item_sink *sink, uint32_t unconfirmed,
                                        int64_t timeout_ms);

#endif
