/* Structured writer: items made by patterns, so that appending steps is all there is to do.
 *
 * A pattern says which recent steps of which columns make an item of which table, and under which
 * conditions. After each append, also of a part of a step, and at the end of an episode every
 * pattern is tried; it makes one item of a step at most. It is passed over when one of its
 * conditions does not hold, when there are not enough steps yet, or when a step it wants lacks the
 * column. Columns that no pattern and no condition names are not sent at all. What these words mean
 * is what they mean in Reverb's StructuredWriter. */
#ifndef TRP_STRUCTURED_WRITER_H
#define TRP_STRUCTURED_WRITER_H

#include <troupe/writer.h>

TRP_BEGIN_DECLS

typedef struct trp_structured_writer trp_structured_writer;

/* A column of an item, as one slices a Python list of the steps so far: [start:stop:step] with
 * start < stop <= 0 is steps with a time axis; start 0 stands for [stop], one step without, and
 * stop < 0 then. */
typedef struct {
    uint32_t column; /* of the steps */
    int32_t start, stop;
    int32_t step; /* 0: 1 */
} trp_pattern_column;

typedef enum {
    TRP_STEP_INDEX,          /* of the newest step in its episode, from 0 */
    TRP_STEPS_SINCE_APPLIED, /* steps since this pattern made an item, or since the beginning */
    TRP_BUFFER_LENGTH,       /* steps there are, the longest that any pattern looks back at most */
    TRP_END_EPISODE,         /* 1 at the end of an episode, otherwise 0 */
    TRP_DATA,                /* the newest value of `column`, an integer or bool scalar */
} trp_condition_kind;

typedef enum {
    TRP_EQUALS,   /* == value */
    TRP_AT_LEAST, /* >= value */
    TRP_MODULO,   /* % modulus == value */
} trp_condition_test;

typedef struct {
    trp_condition_kind kind;
    uint32_t column;
    trp_condition_test test;
    int32_t value, modulus;
    bool inverse; /* holds when the test fails; a missing value never holds */
} trp_condition;

typedef struct {
    const char *table;
    const trp_pattern_column *columns;
    size_t column_count;
    const trp_condition *conditions; /* all of them have to hold */
    size_t condition_count;
    double priority; /* 0: 1 */
    /* Or, with td_error: max_weight x the largest + (1 - max_weight) x the mean absolute value of
     * item column `td_column`, of scalars of float32, float64, int32 or int64. */
    bool td_error;
    uint32_t td_column;
    double td_max_weight;
} trp_pattern;

/* `options` as for a trp_writer; its history is what the patterns need. All is copied.
 * INVALID_ARGUMENT names the pattern that is none. */
TRP_API TRP_MUST_USE trp_status trp_structured_writer_create(trp_structured_writer **out,
                                                             trp_channel *channel,
                                                             const trp_writer_options *options,
                                                             const trp_pattern *patterns,
                                                             size_t pattern_count);

/* trp_writer_append_part() of a step: `columns[i]` may be NULL. Then the items; waits for room for
 * them up to `timeout_ms`. DEADLINE_EXCEEDED and other failures of trp_writer_create_item(): the
 * step is in, items of it are missing; the next call makes them before anything else, but for one
 * of INVALID_ARGUMENT, such as a td_error that is no number: there will be none. */
TRP_API TRP_MUST_USE trp_status trp_structured_writer_append(trp_structured_writer *writer,
                                                             const void *const *columns,
                                                             bool partial, int64_t timeout_ms);

TRP_API TRP_MUST_USE trp_status trp_structured_writer_flush(trp_structured_writer *writer,
                                                            uint32_t unconfirmed,
                                                            int64_t timeout_ms);

/* The patterns of the end, then trp_writer_end_episode(). */
TRP_API TRP_MUST_USE trp_status trp_structured_writer_end_episode(trp_structured_writer *writer,
                                                                  bool keep_steps,
                                                                  int64_t timeout_ms);

/* Items made since creation. */
TRP_API uint64_t trp_structured_writer_items(const trp_structured_writer *writer);

/* The writer beneath, to look at. */
TRP_API trp_writer *trp_structured_writer_writer(trp_structured_writer *writer);

/* Unsent items are lost; flush before. NULL is fine. */
TRP_API void trp_structured_writer_destroy(trp_structured_writer *writer);

TRP_END_DECLS
#endif
