/* A pattern's ages never change, so its item columns are made once; what is left for each step is
 * to look at the conditions and whether the cells are there. For that the writer remembers, as long
 * as a pattern can look back, which cells were given, and the value of those that are scalars.
 *
 * Trying a pattern twice at one step changes nothing: that is what lets a call that timed out be
 * continued by the next one. */
#include <troupe/structured_writer.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "limits.h"
#include "outbox.h"

struct step_cell {
    bool given;
    int32_t integer; /* of a scalar, as Reverb sees it in a condition */
    double number;
};

struct pattern {
    trp_pattern from;          /* the caller's, with copies of what it refers to */
    trp_item_column *columns;  /* of its items */
    uint32_t age_max;          /* steps that it needs */
    uint64_t applied, checked; /* at which number of steps last; 0: never */
    int32_t since_applied;
};

struct trp_structured_writer {
    trp_writer *writer;
    trp_tensor_spec *specs; /* of the caller's columns */
    size_t column_count;
    uint32_t *used; /* which the writer has: its column for each of the caller's */
    size_t used_count;
    const void **values; /* scratch: cells for the writer */
    struct pattern *patterns;
    size_t pattern_count;
    struct step_cell *cells; /* depth x column_count */
    uint32_t depth;
    uint64_t steps;      /* appended in all; the newest is steps - 1 */
    uint64_t first_step; /* the oldest that is not forgotten */
    uint64_t items;      /* made */
    bool open;           /* the newest step is not complete */
    bool owing;          /* the newest step was not looked at by all patterns */
};

enum { UNUSED = UINT32_MAX };

/* ---- values ---------------------------------------------------------------------------------- */

/* u: an integer, s: a signed one, f: another number that conditions and patterns can look at. */
static char kind_of(trp_dtype dtype)
{
    static const char kinds[] = {
        [TRP_BOOL] = 'u',   [TRP_UINT8] = 'u',   [TRP_UINT16] = 'u', [TRP_UINT32] = 'u',
        [TRP_UINT64] = 'u', [TRP_INT8] = 's',    [TRP_INT16] = 's',  [TRP_INT32] = 's',
        [TRP_INT64] = 's',  [TRP_FLOAT32] = 'f', [TRP_FLOAT64] = 'f'};
    return (size_t)dtype < sizeof kinds ? kinds[dtype] : 0;
}

static bool is_integer(trp_dtype dtype)
{
    return kind_of(dtype) == 'u' || kind_of(dtype) == 's';
}

static void read_scalar(trp_dtype dtype, const void *data, struct step_cell *cell)
{
    uint64_t bits = 0;
    float number;
    size_t size = trp_dtype_size(dtype);
    unsigned above = 64 - 8 * (unsigned)size;
    memcpy(&bits, data, size); /* little endian, like every host we build for */
    if (is_integer(dtype)) {
        bits = dtype == TRP_BOOL ? bits != 0 : bits;
        int64_t integer = kind_of(dtype) == 's' ? (int64_t)(bits << above) >> above : (int64_t)bits;
        cell->integer = (int32_t)integer;
        cell->number = (double)integer;
    } else if (dtype == TRP_FLOAT32) {
        memcpy(&number, data, sizeof number);
        cell->number = (double)number;
    } else {
        memcpy(&cell->number, data, sizeof cell->number);
    }
}

static struct step_cell *cell_at(const trp_structured_writer *writer, uint32_t column, uint32_t age)
{
    uint64_t row = (writer->steps - 1 - age) % writer->depth;
    return &writer->cells[row * writer->column_count + column];
}

static void note_cells(trp_structured_writer *writer, const void *const *columns)
{
    for (uint32_t i = 0; i < writer->column_count; i++) {
        struct step_cell *cell = cell_at(writer, i, 0);
        if (writer->used[i] == UNUSED || !columns[i])
            continue;
        cell->given = true;
        if (writer->specs[i].rank == 0 && kind_of(writer->specs[i].dtype))
            read_scalar(writer->specs[i].dtype, columns[i], cell);
    }
}

/* ---- patterns -------------------------------------------------------------------------------- */

static uint32_t buffer_length(const trp_structured_writer *writer)
{
    uint64_t steps = writer->steps - writer->first_step;
    return steps < writer->depth ? (uint32_t)steps : writer->depth;
}

static bool holds(const trp_structured_writer *writer, const struct pattern *pattern,
                  const trp_condition *condition, bool ending, int32_t step_index)
{
    int32_t left = 0;
    switch (condition->kind) {
    case TRP_STEP_INDEX:
        left = step_index;
        break;
    case TRP_STEPS_SINCE_APPLIED:
        left = pattern->since_applied;
        break;
    case TRP_BUFFER_LENGTH:
        left = (int32_t)buffer_length(writer);
        break;
    case TRP_END_EPISODE:
        left = ending;
        break;
    case TRP_DATA:
        if (!cell_at(writer, condition->column, 0)->given)
            return false;
        left = cell_at(writer, condition->column, 0)->integer;
        break;
    }
    bool result = condition->test == TRP_EQUALS     ? left == condition->value
                  : condition->test == TRP_AT_LEAST ? left >= condition->value
                                                    : left % condition->modulus == condition->value;
    return result != condition->inverse;
}

static bool cells_are_there(const trp_structured_writer *writer, const struct pattern *pattern)
{
    if (buffer_length(writer) < pattern->age_max)
        return false;
    for (size_t i = 0; i < pattern->from.column_count; i++) {
        const trp_item_column *column = &pattern->columns[i];
        uint32_t source = pattern->from.columns[i].column;
        for (uint32_t j = 0; j < column->length; j++)
            if (!cell_at(writer, source, item_column_age(column, j))->given)
                return false;
    }
    return true;
}

static double priority_of(const trp_structured_writer *writer, const struct pattern *pattern)
{
    const trp_pattern *from = &pattern->from;
    if (!from->td_error)
        return from->priority > 0 ? from->priority : 1;
    const trp_item_column *column = &pattern->columns[from->td_column];
    uint32_t source = from->columns[from->td_column].column;
    double most = 0, sum = 0;
    for (uint32_t i = 0; i < column->length; i++) {
        double error = fabs(cell_at(writer, source, item_column_age(column, i))->number);
        most = fmax(most, error);
        sum += error;
    }
    return from->td_max_weight * most + (1 - from->td_max_weight) * sum / column->length;
}

static trp_status apply_pattern(trp_structured_writer *writer, struct pattern *pattern, bool ending,
                                int32_t step_index, struct deadline deadline)
{
    if (pattern->applied == writer->steps)
        return TRP_OK;
    if (pattern->checked != writer->steps) {
        pattern->since_applied++;
        pattern->checked = writer->steps;
    }
    for (size_t i = 0; i < pattern->from.condition_count; i++)
        if (!holds(writer, pattern, &pattern->from.conditions[i], ending, step_index))
            return TRP_OK;
    if (!cells_are_there(writer, pattern))
        return TRP_OK;
    trp_status status = trp_writer_create_item(
        writer->writer, pattern->from.table, priority_of(writer, pattern), pattern->columns,
        pattern->from.column_count, deadline_left_ms(deadline, &clock_monotonic), NULL);
    if (status == TRP_OK || status == TRP_INVALID_ARGUMENT) /* one that can never be is said once */
        pattern->applied = writer->steps;
    TRP_TRY(status);
    writer->items++;
    pattern->since_applied = 0;
    return TRP_OK;
}

static bool newest_step_is_empty(const trp_structured_writer *writer)
{
    for (uint32_t i = 0; i < writer->column_count; i++)
        if (cell_at(writer, i, 0)->given)
            return false;
    return true;
}

static trp_status apply_all(trp_structured_writer *writer, bool ending, struct deadline deadline)
{
    if (writer->steps == writer->first_step || newest_step_is_empty(writer))
        return TRP_OK;
    int32_t step_index = (int32_t)trp_writer_episode_steps(writer->writer) - !writer->open;
    writer->owing = true;
    for (size_t i = 0; i < writer->pattern_count; i++)
        TRP_TRY(apply_pattern(writer, &writer->patterns[i], ending, step_index, deadline));
    writer->owing = false;
    return TRP_OK;
}

static trp_status apply_owed(trp_structured_writer *writer, struct deadline deadline)
{
    return writer->owing ? apply_all(writer, false, deadline) : TRP_OK;
}

/* ---- public ---------------------------------------------------------------------------------- */

trp_status trp_structured_writer_append(trp_structured_writer *writer, const void *const *columns,
                                        bool partial, int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    TRP_TRY(apply_owed(writer, deadline));
    for (uint32_t i = 0; i < writer->column_count; i++)
        if (writer->used[i] != UNUSED)
            writer->values[writer->used[i]] = columns[i];
    TRP_TRY(trp_writer_append_part(writer->writer, writer->values, partial));
    if (!writer->open) {
        writer->steps++;
        memset(cell_at(writer, 0, 0), 0, writer->column_count * sizeof *writer->cells);
    }
    writer->open = partial;
    note_cells(writer, columns);
    return apply_all(writer, false, deadline);
}

trp_status trp_structured_writer_flush(trp_structured_writer *writer, uint32_t unconfirmed,
                                       int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    TRP_TRY(apply_owed(writer, deadline));
    return trp_writer_flush(writer->writer, unconfirmed,
                            deadline_left_ms(deadline, &clock_monotonic));
}

trp_status trp_structured_writer_end_episode(trp_structured_writer *writer, bool keep_steps,
                                             int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    TRP_TRY(apply_owed(writer, deadline));
    TRP_TRY(apply_all(writer, true, deadline));
    TRP_TRY(trp_writer_end_episode(writer->writer, keep_steps,
                                   deadline_left_ms(deadline, &clock_monotonic)));
    writer->open = false;
    if (!keep_steps)
        writer->first_step = writer->steps;
    return TRP_OK;
}

uint64_t trp_structured_writer_items(const trp_structured_writer *writer)
{
    return writer->items;
}

trp_writer *trp_structured_writer_writer(trp_structured_writer *writer)
{
    return writer->writer;
}

/* ---- creation -------------------------------------------------------------------------------- */

static bool node_is_good(const trp_pattern_column *node, size_t column_count)
{
    int64_t start = node->start, stop = node->stop;
    if (node->column >= column_count || node->step < 0 || stop > 0 || start > 0 ||
        start < -INT32_MAX || stop < -INT32_MAX)
        return false;
    return start == 0 ? stop < 0 && node->step == 0 : start < stop;
}

static bool condition_is_good(const trp_condition *condition, const trp_writer_options *options)
{
    if ((unsigned)condition->kind > TRP_DATA || (unsigned)condition->test > TRP_MODULO)
        return false;
    if (condition->test == TRP_MODULO && (condition->modulus <= 0 || condition->value < 0))
        return false;
    if (condition->kind == TRP_END_EPISODE)
        return condition->test == TRP_EQUALS && condition->value == 1 && !condition->inverse;
    if (condition->kind != TRP_DATA)
        return true;
    if (condition->column >= options->column_count)
        return false;
    const trp_tensor_spec *spec = &options->columns[condition->column];
    return spec->rank == 0 && is_integer(spec->dtype);
}

static bool td_error_is_good(const trp_pattern *pattern, const trp_writer_options *options)
{
    if (pattern->td_column >= pattern->column_count ||
        !(pattern->td_max_weight >= 0 && pattern->td_max_weight <= 1))
        return false;
    const trp_tensor_spec *spec = &options->columns[pattern->columns[pattern->td_column].column];
    return spec->rank == 0 && (spec->dtype == TRP_FLOAT32 || spec->dtype == TRP_FLOAT64 ||
                               spec->dtype == TRP_INT32 || spec->dtype == TRP_INT64);
}

static trp_status check_pattern(const trp_pattern *pattern, size_t index,
                                const trp_writer_options *options)
{
    if (!pattern->table || !*pattern->table || pattern->column_count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "pattern %zu: no table or no columns", index);
    if (!(pattern->priority >= 0))
        return trp_fail(TRP_INVALID_ARGUMENT, "pattern %zu of '%s': priority %g", index,
                        pattern->table, pattern->priority);
    for (size_t i = 0; i < pattern->column_count; i++) {
        const trp_pattern_column *node = &pattern->columns[i];
        if (!node_is_good(node, options->column_count))
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "pattern %zu of '%s': column %zu is [%d:%d:%d] of column %u of %zu",
                            index, pattern->table, i, node->start, node->stop, node->step,
                            node->column, options->column_count);
    }
    for (size_t i = 0; i < pattern->condition_count; i++)
        if (!condition_is_good(&pattern->conditions[i], options))
            return trp_fail(TRP_INVALID_ARGUMENT, "pattern %zu of '%s': condition %zu is none",
                            index, pattern->table, i);
    if (pattern->td_error && !td_error_is_good(pattern, options))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "pattern %zu of '%s': td_error of column %u with weight %g", index,
                        pattern->table, pattern->td_column, pattern->td_max_weight);
    return TRP_OK;
}

static uint32_t node_age(const trp_pattern_column *node)
{
    return (uint32_t) - (node->start ? node->start : node->stop);
}

/* The columns that patterns or conditions name, and how far back the patterns look. */
static void find_used(trp_structured_writer *writer, const trp_pattern *patterns, size_t count)
{
    for (size_t i = 0; i < writer->column_count; i++)
        writer->used[i] = UNUSED;
    writer->depth = 1;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < patterns[i].column_count; j++) {
            uint32_t age = node_age(&patterns[i].columns[j]);
            writer->used[patterns[i].columns[j].column] = 0;
            writer->depth = age > writer->depth ? age : writer->depth;
        }
        for (size_t j = 0; j < patterns[i].condition_count; j++)
            if (patterns[i].conditions[j].kind == TRP_DATA)
                writer->used[patterns[i].conditions[j].column] = 0;
    }
    for (size_t i = 0; i < writer->column_count; i++)
        if (writer->used[i] != UNUSED)
            writer->used[i] = (uint32_t)writer->used_count++;
}

static void set_column(const trp_structured_writer *writer, struct pattern *pattern, size_t index)
{
    const trp_pattern_column *node = &pattern->from.columns[index];
    trp_item_column *column = &pattern->columns[index];
    uint32_t step = node->step ? (uint32_t)node->step : 1;
    uint32_t span = node->start ? (uint32_t)(node->stop - node->start) : 1;
    column->column = writer->used[node->column];
    column->age = node_age(node) - 1;
    column->length = (span + step - 1) / step;
    column->squeeze = node->start == 0;
    if (pattern->age_max <= column->age)
        pattern->age_max = column->age + 1;
    if (step == 1)
        return;
    uint32_t *ages = xcalloc(column->length, sizeof *ages);
    for (uint32_t i = 0; i < column->length; i++)
        ages[i] = column->age - i * step;
    column->ages = ages;
}

static void pattern_init(const trp_structured_writer *writer, struct pattern *pattern,
                         const trp_pattern *from)
{
    pattern->from = *from;
    pattern->from.table = xstrdup(from->table);
    pattern->from.columns = xmemdup(from->columns, from->column_count * sizeof *from->columns);
    pattern->from.conditions =
        xmemdup(from->conditions, from->condition_count * sizeof *from->conditions);
    pattern->columns = xcalloc(from->column_count, sizeof *pattern->columns);
    for (size_t i = 0; i < from->column_count; i++)
        set_column(writer, pattern, i);
}

/* The writer beneath, with the columns that are used. */
static trp_status create_writer(trp_structured_writer *writer, trp_channel *channel,
                                const trp_writer_options *options)
{
    trp_writer_options inner = *options;
    trp_tensor_spec *specs = xcalloc(writer->used_count, sizeof *specs);
    trp_column_options *own = xcalloc(writer->used_count, sizeof *own);
    for (size_t i = 0; i < writer->column_count; i++)
        if (writer->used[i] != UNUSED) {
            specs[writer->used[i]] = options->columns[i];
            if (options->column_options)
                own[writer->used[i]] = options->column_options[i];
            own[writer->used[i]].history = 0; /* one that is shorter would pass items over */
        }
    inner.columns = specs;
    inner.column_options = own;
    inner.column_count = writer->used_count;
    inner.history = writer->depth;
    trp_status status = trp_writer_create(&writer->writer, channel, &inner);
    free(specs);
    free(own);
    return status;
}

trp_status trp_structured_writer_create(trp_structured_writer **out, trp_channel *channel,
                                        const trp_writer_options *options,
                                        const trp_pattern *patterns, size_t pattern_count)
{
    *out = NULL;
    if (pattern_count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "structured writer: no patterns");
    for (size_t i = 0; i < pattern_count; i++)
        TRP_TRY(check_pattern(&patterns[i], i, options));
    trp_structured_writer *writer = xcalloc(1, sizeof *writer);
    writer->column_count = options->column_count;
    writer->specs = xmemdup(options->columns, options->column_count * sizeof *writer->specs);
    writer->used = xcalloc(options->column_count, sizeof *writer->used);
    find_used(writer, patterns, pattern_count);
    writer->values = xcalloc(writer->used_count, sizeof *writer->values);
    writer->pattern_count = pattern_count;
    writer->patterns = xcalloc(pattern_count, sizeof *writer->patterns);
    for (size_t i = 0; i < pattern_count; i++)
        pattern_init(writer, &writer->patterns[i], &patterns[i]);
    trp_status status =
        writer->depth > STRUCTURED_HISTORY_MAX
            ? trp_fail(TRP_INVALID_ARGUMENT, "structured writer: patterns look %u steps back",
                       writer->depth)
            : create_writer(writer, channel, options);
    if (status != TRP_OK) {
        trp_structured_writer_destroy(writer);
        return status;
    }
    writer->cells = xcalloc(writer->depth * writer->column_count, sizeof *writer->cells);
    *out = writer;
    return TRP_OK;
}

void trp_structured_writer_destroy(trp_structured_writer *writer)
{
    if (!writer)
        return;
    trp_writer_destroy(writer->writer);
    for (size_t i = 0; i < writer->pattern_count; i++) {
        struct pattern *pattern = &writer->patterns[i];
        for (size_t j = 0; j < pattern->from.column_count; j++)
            free((void *)pattern->columns[j].ages);
        free(pattern->columns);
        free((void *)pattern->from.columns);
        free((void *)pattern->from.conditions);
        free((void *)pattern->from.table);
    }
    free(writer->patterns);
    free(writer->specs);
    free(writer->used);
    free(writer->values);
    free(writer->cells);
    free(writer);
}
