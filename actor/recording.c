#include "recording.h"

#include <stdlib.h>
#include <string.h>

#include "adder.h"
#include "core/alloc.h"
#include "limits.h"

void trp_episode_cleanup(trp_episode *episode)
{
    for (size_t i = 0; episode->data && i < episode->columns.count; i++)
        free(episode->data[i]);
    free(episode->data);
    trp_columns_cleanup(&episode->columns);
    *episode = (trp_episode){.rows = 0};
}

void recording_prepare(struct recording *recording, trp_episode *episode, const trp_env_spec *env)
{
    *recording = (struct recording){.episode = episode};
    if (!episode)
        return;
    trp_tensor_spec action = trp_env_action_spec(env);
    adder_add_observations(env, "observation", &episode->columns);
    trp_columns_add(&episode->columns, NULL, &action);
    trp_columns_add(&episode->columns, "reward", &(trp_tensor_spec){.dtype = TRP_FLOAT32});
    trp_columns_add(&episode->columns, "discount", &(trp_tensor_spec){.dtype = TRP_FLOAT32});
    episode->data = xcalloc(episode->columns.count, sizeof *episode->data);
    for (size_t i = 0; i < episode->columns.count; i++)
        recording->row_bytes += trp_tensor_bytes(&episode->columns.specs[i]);
}

/* Zeros. */
static trp_status add_step(struct recording *recording)
{
    trp_episode *episode = recording->episode;
    if ((episode->rows + 1) * recording->row_bytes > RECORDING_BYTES_MAX)
        return trp_fail(TRP_RESOURCE_EXHAUSTED,
                        "the episode that is recorded has more than %d bytes after %llu steps",
                        RECORDING_BYTES_MAX, (unsigned long long)episode->rows);
    uint64_t capacity = recording->capacity;
    if (episode->rows == capacity)
        recording->capacity = capacity > 0 ? 2 * capacity : 64;
    for (size_t i = 0; i < episode->columns.count; i++) {
        size_t bytes = trp_tensor_bytes(&episode->columns.specs[i]);
        if (episode->rows == capacity)
            episode->data[i] = xrealloc(episode->data[i], recording->capacity * bytes);
        memset((uint8_t *)episode->data[i] + episode->rows * bytes, 0, bytes);
    }
    episode->rows++;
    return TRP_OK;
}

/* In the last row. */
static void note_column(struct recording *recording, size_t column, const void *value)
{
    trp_episode *episode = recording->episode;
    size_t bytes = trp_tensor_bytes(&episode->columns.specs[column]);
    memcpy((uint8_t *)episode->data[column] + (episode->rows - 1) * bytes, value, bytes);
}

trp_status recording_observe(struct recording *recording, const struct copies *copies)
{
    const void *observations[TRP_OBSERVATIONS_MAX];
    if (!recording->episode || recording->ended)
        return TRP_OK;
    TRP_TRY(add_step(recording));
    copies_observations(copies, 0, observations);
    for (size_t i = 0; i < copies->observation_count; i++)
        note_column(recording, i, observations[i]);
    return TRP_OK;
}

trp_status recording_step(struct recording *recording, const struct copies *copies)
{
    if (!recording->episode || recording->ended)
        return TRP_OK;
    const void *next[TRP_OBSERVATIONS_MAX];
    trp_transition step = copies_transition(copies, 0, 0, next);
    size_t column = copies->observation_count;
    note_column(recording, column, step.action);
    note_column(recording, column + 1, &step.reward);
    note_column(recording, column + 2, &step.discount);
    if (!step.last)
        return TRP_OK;
    recording->ended = true;
    TRP_TRY(add_step(recording));
    for (size_t i = 0; i < copies->observation_count; i++)
        note_column(recording, i, next[i]);
    return TRP_OK;
}
