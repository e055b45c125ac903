/* The sequence adder: rows of every copy on one side, one writer for all of them on the other.
 *
 * Rows of one copy go to the writer in bursts of up to `period`, so that they share chunks: between
 * them are those of other copies, and a chunk has steps of one episode only. An item names its rows
 * by their age in the writer, which is why each copy remembers where its last rows are.
 *
 * Adding never blocks: it fills the copy's buffer and queues what is to be done, bursts and items;
 * push() does it as far as its time goes, and only the creation of an item can take time. */
#include <troupe/adder.h>

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "adder.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/limits.h"
#include "limits.h"
#include "sequence.h"
#include "item_sink.h"

enum {
    /* What one call of add() can leave behind: a step, the final row, one row of zeros. */
    ROWS_PER_ADD = 3,
    /* Bursts and items: of the step, of the end. */
    TASKS_PER_ADD = 4,
};

struct sequence_copy {
    uint64_t episode;    /* the number of the one that runs */
    uint64_t rows;       /* of it, or of all episodes where sequences go on */
    uint64_t next;       /* the number of the next row, over all episodes */
    uint8_t **buffer;    /* a column each: rows that the writer does not have */
    uint32_t buffered;   /* rows in it, */
    uint32_t queued;     /* of which so many belong to tasks */
    uint64_t *positions; /* in the writer, of row n at n % ring */
    uint64_t *versions;
    uint8_t *latest; /* a blob: what the next step acts on */
    bool first;      /* the next row begins an episode */
};

/* A burst: `count` rows of the buffer from `from` on. An item: `count` rows from number `row` on,
 * then `padding` times the row after them. */
struct task {
    bool is_item;
    uint32_t copy, count, from, padding;
    uint64_t row, episode;
};

struct sequence_adder {
    trp_adder base;
    struct item_sink sink;
    struct sequence_rule rule;
    uint32_t longest;     /* steps of an episode; 0: any */
    bool too_long;        /* one was longer, */
    uint32_t too_long_of; /* of this copy */
    trp_columns rows;     /* the columns of one row */
    size_t *row_bytes;    /* of each */
    struct blob observation;
    size_t reward, discount, is_first, valid, version; /* columns */
    uint32_t copies, burst, ring;
    struct sequence_copy *copy;
    uint64_t episode_count, appended; /* rows that the sink was given */
    struct task *tasks;
    size_t task_count, tasks_done;
    trp_item_column *item; /* a column each, without ages */
    uint32_t *ages;        /* of an item's rows */
};

/* ---- rows ------------------------------------------------------------------------------------ */

static uint8_t *row_at(struct sequence_adder *adder, struct sequence_copy *copy, size_t column)
{
    return copy->buffer[column] + copy->buffered * adder->row_bytes[column];
}

/* A new row of zeros. */
static void add_zeros(struct sequence_adder *adder, struct sequence_copy *copy)
{
    assert(copy->buffered < adder->burst + (uint32_t)ROWS_PER_ADD);
    for (size_t c = 0; c < adder->rows.count; c++)
        memset(row_at(adder, copy, c), 0, adder->row_bytes[c]);
    copy->versions[copy->next++ % adder->ring] = 0;
    copy->buffered++;
}

/* Sets a column of the newest row. */
static void put(struct sequence_adder *adder, struct sequence_copy *copy, size_t column,
                const void *value)
{
    memcpy(row_at(adder, copy, column) - adder->row_bytes[column], value, adder->row_bytes[column]);
}

/* A row with the latest observation; `transition` NULL: the final one. */
static void add_row(struct sequence_adder *adder, struct sequence_copy *copy,
                    const trp_transition *transition)
{
    const bool yes = true;
    const void *observation[BLOB_PARTS_MAX];
    add_zeros(adder, copy);
    blob_parts(&adder->observation, copy->latest, observation);
    for (size_t c = 0; c < adder->observation.count; c++)
        put(adder, copy, c, observation[c]);
    if (!transition)
        return;
    int64_t version = (int64_t)transition->version;
    put(adder, copy, adder->observation.count, transition->action);
    put(adder, copy, adder->reward, &transition->reward);
    put(adder, copy, adder->discount, &transition->discount);
    put(adder, copy, adder->is_first, &copy->first);
    put(adder, copy, adder->valid, &yes);
    put(adder, copy, adder->version, &version);
    for (size_t i = 0; i < adder->base.extras.count; i++)
        put(adder, copy, adder->version + 1 + i, transition->extras[i]);
    copy->versions[(copy->next - 1) % adder->ring] = transition->version;
    copy->first = false;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static void queue_burst(struct sequence_adder *adder, uint32_t index)
{
    struct sequence_copy *copy = &adder->copy[index];
    uint32_t count = copy->buffered - copy->queued;
    if (count == 0)
        return;
    adder->tasks[adder->task_count++] = (struct task){.copy = index,
                                                      .count = count,
                                                      .from = copy->queued,
                                                      .row = copy->next - count,
                                                      .episode = copy->episode};
    copy->queued = copy->buffered;
}

/* Of the `count` rows before the copy's last `padding > 0` one. */
static void queue_item(struct sequence_adder *adder, uint32_t index, uint32_t count,
                       uint32_t padding)
{
    struct sequence_copy *copy = &adder->copy[index];
    queue_burst(adder, index);
    adder->tasks[adder->task_count++] = (struct task){.is_item = true,
                                                      .copy = index,
                                                      .count = count,
                                                      .padding = padding,
                                                      .row = copy->next - count - (padding > 0)};
}

static void count_row(struct sequence_adder *adder, uint32_t index)
{
    struct sequence_copy *copy = &adder->copy[index];
    copy->rows++;
    if (sequence_is_due(&adder->rule, copy->rows))
        queue_item(adder, index, adder->rule.length, 0);
    else if (copy->buffered - copy->queued >= adder->burst)
        queue_burst(adder, index);
}

static void end_episode(struct sequence_adder *adder, uint32_t index)
{
    struct sequence_copy *copy = &adder->copy[index];
    uint32_t length, padding;
    add_row(adder, copy, NULL);
    count_row(adder, index);
    bool item = sequence_end(&adder->rule, copy->rows, &length, &padding);
    if (padding > 0)
        add_zeros(adder, copy);
    if (item)
        queue_item(adder, index, length, padding);
    else
        queue_burst(adder, index);
}

/* ---- the adder ------------------------------------------------------------------------------- */

static void sequence_first(trp_adder *base, uint32_t index, const void *const *observations)
{
    struct sequence_adder *adder = (struct sequence_adder *)base;
    assert(index < adder->copies);
    struct sequence_copy *copy = &adder->copy[index];
    uint32_t dropped = copy->buffered - copy->queued; /* of an unfinished episode */
    copy->buffered = copy->queued;
    copy->next -= dropped;
    copy->rows -= dropped;
    copy->episode = ++adder->episode_count;
    copy->first = true;
    if (adder->rule.end != TRP_END_CONTINUE)
        copy->rows = 0;
    blob_fill(&adder->observation, copy->latest, observations);
}

static void sequence_add(trp_adder *base, uint32_t index, const trp_transition *transition)
{
    struct sequence_adder *adder = (struct sequence_adder *)base;
    assert(index < adder->copies);
    struct sequence_copy *copy = &adder->copy[index];
    if (adder->longest > 0 && copy->rows == adder->longest && !adder->too_long) {
        adder->too_long = true;
        adder->too_long_of = index;
    }
    if (adder->too_long)
        return; /* push() says it */
    add_row(adder, copy, transition);
    blob_fill(&adder->observation, copy->latest, transition->next_observations);
    count_row(adder, index);
    if (transition->last)
        end_episode(adder, index);
}

static trp_status send_burst(struct sequence_adder *adder, const struct task *task)
{
    struct sequence_copy *copy = &adder->copy[task->copy];
    const void *columns[BLOB_PARTS_MAX];
    for (size_t c = 0; c < adder->rows.count; c++)
        columns[c] = copy->buffer[c] + task->from * adder->row_bytes[c];
    TRP_TRY(item_sink_append(&adder->sink, task->episode, columns, task->count));
    for (uint32_t i = 0; i < task->count; i++)
        copy->positions[(task->row + i) % adder->ring] = adder->appended + i;
    adder->appended += task->count;
    return TRP_OK;
}

static uint32_t row_age(const struct sequence_adder *adder, const struct sequence_copy *copy,
                        uint64_t row)
{
    return (uint32_t)(adder->appended - 1 - copy->positions[row % adder->ring]);
}

static trp_status send_item(struct sequence_adder *adder, const struct task *task,
                            int64_t timeout_ms)
{
    const struct sequence_copy *copy = &adder->copy[task->copy];
    uint32_t length = task->count + task->padding;
    for (uint32_t i = 0; i < length; i++)
        adder->ages[i] = row_age(adder, copy, task->row + (i < task->count ? i : task->count));
    trp_item_column columns[BLOB_PARTS_MAX];
    for (size_t c = 0; c < adder->rows.count; c++) {
        columns[c] = adder->item[c];
        columns[c].length = columns[c].squeeze ? 1 : length;
        columns[c].ages = adder->ages;
    }
    return item_sink_create_item(&adder->sink, copy->versions[task->row % adder->ring], columns,
                                 adder->rows.count, timeout_ms);
}

/* What is left in a buffer goes to its front. */
static void forget_tasks(struct sequence_adder *adder)
{
    for (size_t i = 0; i < adder->task_count; i++) {
        struct sequence_copy *copy = &adder->copy[adder->tasks[i].copy];
        uint32_t left = copy->buffered - copy->queued;
        for (size_t c = 0; copy->queued > 0 && c < adder->rows.count; c++)
            memmove(copy->buffer[c], copy->buffer[c] + copy->queued * adder->row_bytes[c],
                    left * adder->row_bytes[c]);
        copy->buffered = left;
        copy->queued = 0;
    }
    adder->task_count = adder->tasks_done = 0;
}

static trp_status sequence_push(trp_adder *base, int64_t timeout_ms)
{
    struct sequence_adder *adder = (struct sequence_adder *)base;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    if (adder->too_long)
        return trp_fail(TRP_OUT_OF_RANGE,
                        "episode adder: an episode of copy %" PRIu32 " has more than %" PRIu32
                        " steps, which is longest",
                        adder->too_long_of, adder->longest);
    TRP_TRY(item_sink_open(&adder->sink));
    bool items = false;
    for (; adder->tasks_done < adder->task_count; adder->tasks_done++) {
        const struct task *task = &adder->tasks[adder->tasks_done];
        if (task->is_item)
            TRP_TRY(send_item(adder, task, adder_left_ms(deadline)));
        else
            TRP_TRY(send_burst(adder, task));
        items = items || task->is_item;
    }
    forget_tasks(adder);
    /* Not until more rows fill the chunk that an item ends in. */
    return item_sink_send(&adder->sink, items);
}

static trp_status sequence_flush(trp_adder *base, int64_t timeout_ms)
{
    struct sequence_adder *adder = (struct sequence_adder *)base;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    TRP_TRY(sequence_push(base, timeout_ms));
    return item_sink_flush(&adder->sink, 0, adder_left_ms(deadline));
}

static uint64_t sequence_items(const trp_adder *base)
{
    return ((const struct sequence_adder *)base)->sink.items;
}

static void sequence_reseed(trp_adder *base, uint64_t seed)
{
    item_sink_reseed(&((struct sequence_adder *)base)->sink, seed);
}

static void sequence_destroy(trp_adder *base)
{
    struct sequence_adder *adder = (struct sequence_adder *)base;
    item_sink_cleanup(&adder->sink);
    for (uint32_t i = 0; i < adder->copies; i++) {
        struct sequence_copy *copy = &adder->copy[i];
        for (size_t c = 0; c < adder->rows.count; c++)
            free(copy->buffer[c]);
        free(copy->buffer);
        free(copy->positions);
        free(copy->versions);
        free(copy->latest);
    }
    free(adder->copy);
    trp_columns_cleanup(&adder->rows);
    free(adder->row_bytes);
    free(adder->tasks);
    free(adder->item);
    free(adder->ages);
    free(adder);
}

static const trp_adder_impl sequence_impl = {
    .first = sequence_first,
    .add = sequence_add,
    .push = sequence_push,
    .flush = sequence_flush,
    .items = sequence_items,
    .reseed = sequence_reseed,
    .destroy = sequence_destroy,
};

/* ---- creation -------------------------------------------------------------------------------- */

void trp_row_columns(const trp_env_spec *env, const trp_columns *extras, trp_columns *columns)
{
    trp_tensor_spec action = trp_env_action_spec(env);
    adder_add_observations(env, "observation", columns);
    trp_columns_add(columns, NULL, &action);
    trp_columns_add(columns, "reward", &(trp_tensor_spec){.dtype = TRP_FLOAT32});
    trp_columns_add(columns, "discount", &(trp_tensor_spec){.dtype = TRP_FLOAT32});
    trp_columns_add(columns, "first", &(trp_tensor_spec){.dtype = TRP_BOOL});
    trp_columns_add(columns, "valid", &(trp_tensor_spec){.dtype = TRP_BOOL});
    trp_columns_add(columns, "version", &(trp_tensor_spec){.dtype = TRP_INT64});
    if (extras)
        trp_columns_add_all(columns, extras);
}

static bool is_of_first_row(const trp_sequence_options *sequence, const char *name)
{
    const char *const *names = sequence->first_extras;
    while (names && *names && strcmp(*names, name) != 0)
        names++;
    return names && *names;
}

void trp_sequence_columns(const trp_env_spec *env, const trp_columns *extras,
                          const trp_sequence_options *sequence, trp_columns *columns)
{
    int64_t length = sequence->end == TRP_END_TRUNCATE ? -1 : (int64_t)sequence->length;
    trp_columns rows = {0};
    trp_row_columns(env, extras, &rows);
    for (size_t i = 0; i < rows.count; i++) {
        if (is_of_first_row(sequence, rows.specs[i].name))
            trp_columns_add(columns, NULL, &rows.specs[i]);
        else
            trp_columns_add_steps(columns, NULL, &rows.specs[i], length);
    }
    trp_columns_cleanup(&rows);
}

static trp_status sequence_check_options(const trp_adder_options *options,
                                         const trp_sequence_options *sequence)
{
    static const char who[] = "sequence adder";
    TRP_TRY(adder_check_options(options, who));
    if (sequence->length == 0 || sequence->length > SEQUENCE_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: length %" PRIu32 ", must be in [1, %d]", who,
                        sequence->length, SEQUENCE_MAX);
    if (sequence->period > SEQUENCE_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: period %" PRIu32 " is above %d", who,
                        sequence->period, SEQUENCE_MAX);
    if ((unsigned)sequence->end > TRP_END_CONTINUE)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: end %d is no trp_sequence_end", who,
                        (int)sequence->end);
    for (const char *const *name = sequence->first_extras; name && *name; name++)
        if (!options->extras || trp_columns_find(options->extras, *name) == options->extras->count)
            return trp_fail(TRP_INVALID_ARGUMENT, "%s: first_extras: no extra is called '%s'", who,
                            *name);
    return TRP_OK;
}

static void set_sequence_columns(struct sequence_adder *adder, const trp_adder_options *options,
                                 const trp_sequence_options *sequence)
{
    trp_columns *rows = &adder->rows;
    if (options->extras)
        trp_columns_add_all(&adder->base.extras, options->extras);
    trp_sequence_columns(options->env, options->extras, sequence, &adder->base.columns);
    trp_row_columns(options->env, options->extras, rows);
    adder->reward = trp_columns_find(rows, "reward");
    adder->discount = trp_columns_find(rows, "discount");
    adder->is_first = trp_columns_find(rows, "first");
    adder->valid = trp_columns_find(rows, "valid");
    adder->version = trp_columns_find(rows, "version");
    adder->row_bytes = xcalloc(rows->count, sizeof *adder->row_bytes);
    adder->item = xcalloc(rows->count, sizeof *adder->item);
    for (uint32_t c = 0; c < rows->count; c++) {
        adder->row_bytes[c] = trp_tensor_bytes(&rows->specs[c]);
        adder->item[c] = (trp_item_column){
            .column = c, .squeeze = is_of_first_row(sequence, rows->specs[c].name)};
    }
    for (size_t i = 0; i < trp_env_observation_count(options->env); i++)
        blob_add(&adder->observation, adder->row_bytes[i]);
}

static void prepare_copies(struct sequence_adder *adder)
{
    adder->ring = adder->rule.length + adder->burst + ROWS_PER_ADD;
    adder->copy = xcalloc(adder->copies, sizeof *adder->copy);
    for (uint32_t i = 0; i < adder->copies; i++) {
        struct sequence_copy *copy = &adder->copy[i];
        copy->buffer = xcalloc(adder->rows.count, sizeof(uint8_t *));
        for (size_t c = 0; c < adder->rows.count; c++)
            copy->buffer[c] = xcalloc(adder->burst + ROWS_PER_ADD, adder->row_bytes[c]);
        copy->positions = xcalloc(adder->ring, sizeof *copy->positions);
        copy->versions = xcalloc(adder->ring, sizeof *copy->versions);
        copy->latest = xcalloc(1, adder->observation.size);
    }
}

/* Rows back that an item can refer to: its own and, between them, what the other copies add, which
 * is ROWS_PER_ADD for each of its steps at most. */
static uint32_t history_rows(const struct sequence_adder *adder)
{
    uint64_t own = (uint64_t)adder->rule.length + adder->burst + ROWS_PER_ADD;
    uint64_t rows = own + (adder->copies - 1) * ROWS_PER_ADD * own;
    return rows < UINT32_MAX / 2 ? (uint32_t)rows : UINT32_MAX / 2;
}

trp_adder *sequence_adder_make(const trp_adder_options *options,
                               const trp_sequence_options *sequence, uint32_t longest)
{
    struct sequence_adder *adder = xcalloc(1, sizeof *adder);
    adder->longest = longest;
    adder->base.impl = &sequence_impl;
    adder->copies = options->copies ? options->copies : 1;
    adder->rule =
        (struct sequence_rule){.length = sequence->length,
                               .period = sequence->period ? sequence->period : sequence->length,
                               .end = sequence->end};
    adder->burst =
        adder->rule.period < adder->rule.length ? adder->rule.period : adder->rule.length;
    if (longest > 0 && adder->burst > EPISODE_BURST)
        adder->burst = EPISODE_BURST;
    set_sequence_columns(adder, options, sequence);
    prepare_copies(adder);
    adder->tasks = xcalloc((size_t)adder->copies * TASKS_PER_ADD, sizeof *adder->tasks);
    adder->ages = xcalloc(adder->rule.length, sizeof *adder->ages);
    item_sink_prepare(
        &adder->sink, options,
        &(trp_writer_options){.columns = adder->rows.specs,
                              .column_count = adder->rows.count,
                              .history = history_rows(adder),
                              .chunk_length = adder->burst,
                              .max_in_flight = options->max_in_flight,
                              .fast_in_flight = adder_fast_in_flight(options),
                              .batch_items = options->batch_items ? options->batch_items : 1U});
    return &adder->base;
}

trp_status trp_sequence_adder_create(trp_adder **out, const trp_adder_options *options,
                                     const trp_sequence_options *sequence)
{
    *out = NULL;
    TRP_TRY(sequence_check_options(options, sequence));
    *out = sequence_adder_make(options, sequence, 0);
    return TRP_OK;
}
