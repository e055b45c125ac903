/* All columns of a step share a group, that is, chunks: one message part, one key, one record in
 * the server's store for a step, which is most of the speed of small steps. A column with options
 * of its own has a group of its own, because a chunk has one length and one window.
 *
 * Steps are numbered through the writer's life; a step's age is counted from the newest, which is
 * the one being put together while a step comes in parts. Every group advances with every step, so
 * that an age means the same in all of them. */
#include "history.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "replay/model/limits.h"
#include "replay/wire/limits.h"
#include "limits.h"

/* ---- steps ----------------------------------------------------------------------------------- */

/* A chunk says the numbers of its steps in 31 bits. */
static void make_room_for_numbers(struct history *history, uint32_t count)
{
    if ((uint32_t)(INT32_MAX - history->next.step) >= count)
        return;
    history_close(history);
    history->next.step = 0;
}

/* Once all steps back are there, the next takes the place of the oldest. */
static trp_status history_has_room(const struct history *history)
{
    uint64_t steps = history->next.serial - history->first;
    if (history->held <= history->bytes_max || steps >= history->depth)
        return TRP_OK;
    return trp_fail(TRP_RESOURCE_EXHAUSTED,
                    "writer: %llu steps since the last end of an episode take %zu bytes, more than "
                    "history_bytes=%zu: end the episode, or refer to less than %u steps back",
                    (unsigned long long)steps, history->held, history->bytes_max, history->depth);
}

trp_status history_append(struct history *history, const void *const *columns, uint32_t count)
{
    if (history->open) {
        if (count == 1)
            return history_append_part(history, columns, false);
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "writer: %u steps were appended while a partial one is open", count);
    }
    if (count > INT32_MAX / 2)
        return trp_fail(TRP_INVALID_ARGUMENT, "writer: %u steps in one call", count);
    TRP_TRY(history_has_room(history));
    make_room_for_numbers(history, count);
    for (size_t i = 0; i < history->group_count; i++)
        column_group_append(history->groups[i], columns, count, &history->next);
    history->next.serial += count;
    history->next.step += (int32_t)count;
    return TRP_OK;
}

static void end_step(struct history *history)
{
    for (size_t i = 0; i < history->group_count; i++)
        column_group_end(history->groups[i]);
    for (size_t i = 0; i < history->column_count; i++)
        history->columns[i].given = false;
    history->open = false;
    history->next.serial++;
    history->next.step++;
}

trp_status history_append_part(struct history *history, const void *const *columns, bool partial)
{
    for (size_t i = 0; i < history->column_count; i++)
        if (columns[i] && history->columns[i].given)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "writer: column %zu (%s) was given twice in one step", i,
                            history->specs[i].name);
    if (!history->open) {
        TRP_TRY(history_has_room(history));
        make_room_for_numbers(history, 1);
    }
    for (size_t i = 0; i < history->group_count; i++) {
        if (!history->open)
            column_group_begin(history->groups[i], &history->next);
        column_group_put(history->groups[i], columns, &history->next);
    }
    for (size_t i = 0; i < history->column_count; i++)
        history->columns[i].given |= columns[i] != NULL;
    history->open = history->gaps = true;
    if (!partial)
        end_step(history);
    return TRP_OK;
}

void history_close(struct history *history)
{
    for (size_t i = 0; i < history->group_count; i++)
        column_group_close(history->groups[i]);
}

void history_end_episode(struct history *history, bool keep_steps)
{
    if (history->open)
        end_step(history);
    history_close(history);
    for (size_t i = 0; i < history->group_count && !keep_steps; i++)
        column_group_forget(history->groups[i]);
    if (!keep_steps) {
        history->first = history->next.serial;
        history->gaps = false;
    }
    history->next.episode = history->episode = key_draw(&history->rng);
    history->next.step = 0;
}

/* Those of one writer follow each other: drawn ones are as far apart as any. */
void history_set_episode(struct history *history, uint64_t number)
{
    uint64_t episode = history->episode + number;
    if (episode == history->next.episode)
        return;
    if (history->open)
        end_step(history);
    history_close(history);
    history->next.episode = episode;
}

/* ---- looking --------------------------------------------------------------------------------- */

uint32_t history_size(const struct history *history, uint32_t column)
{
    uint64_t steps = history->next.serial + history->open - history->first;
    uint32_t depth = history->columns[column].depth;
    return steps < depth ? (uint32_t)steps : depth;
}

struct group_chunk *history_find(const struct history *history, uint32_t column, uint32_t age,
                                 uint32_t *row, uint32_t *index)
{
    const struct history_column *at = &history->columns[column];
    *index = at->index;
    return column_group_find(at->group, at->index, age, row);
}

/* ---- memory ---------------------------------------------------------------------------------- */

void history_set_arena(struct history *history, struct shm_arena *arena)
{
    for (size_t i = 0; i < history->group_count; i++)
        column_group_set_arena(history->groups[i], arena);
    history->arena = arena;
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool is_separate(const trp_column_options *own)
{
    return own->separate || own->history || own->chunk_length || own->tuned;
}

/* A tuned chunk is as long as the window at most, and what a chunk can hold. */
static uint32_t longest_chunk(const trp_tensor_spec *columns, const uint32_t *sources, size_t count,
                              uint32_t depth)
{
    uint32_t longest = depth < WRITER_TUNED_LENGTH_MAX ? depth : WRITER_TUNED_LENGTH_MAX;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = trp_tensor_bytes(&columns[sources[i]]);
        if (bytes && UINT32_MAX / bytes < longest)
            longest = bytes < UINT32_MAX ? (uint32_t)(UINT32_MAX / bytes) : 1;
    }
    return longest;
}

/* A group needs a chunk and the ring of cells before the first step. */
static trp_status history_fits(const struct history *history, const uint32_t *sources, size_t count,
                               const struct column_group_options *group)
{
    enum { CELL_BYTES = 16 };
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += trp_tensor_bytes(&history->specs[sources[i]]);
    if (!size_mul(bytes, group->tuned ? 1 : group->chunk_length, &bytes))
        bytes = SIZE_MAX / 2;
    bytes += group->depth * (1 + count) * CELL_BYTES;
    if (bytes <= history->bytes_max)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "writer: column %u (%s): a history of %u steps in chunks of %u takes %zu bytes "
                    "before the first, more than history_bytes=%zu",
                    sources[0], history->specs[sources[0]].name, group->depth, group->chunk_length,
                    bytes, history->bytes_max);
}

static trp_status add_column_group(struct history *history, const trp_writer_options *options,
                                   const uint32_t *sources, size_t count,
                                   const trp_column_options *own)
{
    uint32_t depth = own->history ? own->history : options->history;
    uint32_t length = own->chunk_length ? own->chunk_length : options->chunk_length;
    struct column_group_options group = {
        .depth = depth ? depth : 1,
        .chunk_length = length ? length : 1,
        .tuned = own->tuned || (options->tuned && !own->chunk_length),
        .throughput_weight = options->throughput_weight > 0 ? options->throughput_weight : 1,
        .rng = &history->rng,
        .held = &history->held,
    };
    TRP_TRY(history_fits(history, sources, count, &group));
    if (group.tuned)
        group.chunk_length = longest_chunk(history->specs, sources, count, group.depth);
    struct column_group **out = &history->groups[history->group_count];
    TRP_TRY(column_group_create(out, history->specs, sources, count, &group));
    history->tuned |= group.tuned;
    history->depth = group.depth > history->depth ? group.depth : history->depth;
    history->group_count++;
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes = trp_tensor_bytes(&history->specs[sources[i]]);
        history->step_bytes += bytes;
        history->large |= bytes * group.chunk_length >= SHARED_INLINE_BYTES;
        history->columns[sources[i]] =
            (struct history_column){.group = *out, .index = i, .depth = group.depth};
    }
    return TRP_OK;
}

static trp_status add_column_groups(struct history *history, const trp_writer_options *options)
{
    static const trp_column_options none = {0};
    uint32_t *shared = xcalloc(options->column_count, sizeof *shared), count = 0;
    trp_status status = TRP_OK;
    for (uint32_t i = 0; i < options->column_count; i++)
        if (!options->column_options || !is_separate(&options->column_options[i]))
            shared[count++] = i;
    if (count > 0)
        status = add_column_group(history, options, shared, count, &none);
    free(shared);
    for (uint32_t i = 0; i < options->column_count && status == TRP_OK; i++)
        if (!history->columns[i].group)
            status = add_column_group(history, options, &i, 1, &options->column_options[i]);
    return status;
}

trp_status history_create(struct history **out, const trp_writer_options *options)
{
    *out = NULL;
    if (options->column_count == 0 || options->column_count > SIGNATURE_LEAVES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "writer: a step of %zu columns, not of 1 to %d",
                        options->column_count, SIGNATURE_LEAVES_MAX);
    struct history *history = xcalloc(1, sizeof *history);
    history->column_count = options->column_count;
    history->specs = xcalloc(options->column_count, sizeof *history->specs);
    for (size_t i = 0; i < options->column_count; i++) {
        history->specs[i] = options->columns[i];
        history->specs[i].name =
            xstrdup(options->columns[i].name ? options->columns[i].name : "unnamed");
    }
    history->columns = xcalloc(options->column_count, sizeof *history->columns);
    history->groups = xcalloc(options->column_count, sizeof(struct column_group *));
    history->bytes_max =
        options->history_bytes ? options->history_bytes : (size_t)WRITER_HISTORY_GIB << 30;
    trp_rng_init(&history->rng, options->seed ? options->seed : trp_rng_entropy(), 0);
    history->next.episode = history->episode = key_draw(&history->rng);
    trp_status status = add_column_groups(history, options);
    if (status == TRP_OK)
        *out = history;
    else
        history_destroy(history);
    return status;
}

void history_destroy(struct history *history)
{
    if (!history)
        return;
    for (size_t i = 0; i < history->group_count; i++)
        column_group_destroy(history->groups[i]);
    for (size_t i = 0; i < history->column_count; i++)
        free((void *)history->specs[i].name);
    free(history->specs);
    free(history->groups);
    free(history->columns);
    free(history);
}
