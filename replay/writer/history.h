/* The recent steps of a writer: which column group has a column, and how old each step is. It owns
 * the groups, the numbers of steps and episodes, and the source of keys. One thread. */
#ifndef TRP_REPLAY_WRITER_HISTORY_H
#define TRP_REPLAY_WRITER_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>
#include <troupe/tensor.h>
#include <troupe/writer.h>
#include "column_group.h"

struct history_column {
    struct column_group *group;
    uint32_t index; /* of the tensor in the group's chunks */
    uint32_t depth; /* the group's */
    bool given;     /* in the step that is open */
};

/* history.c alone writes it. */
struct history {
    trp_tensor_spec *specs;
    struct history_column *columns; /* one for each of `specs` */
    size_t column_count;
    struct column_group **groups;
    size_t group_count;
    size_t step_bytes;
    size_t held, bytes_max; /* bytes of chunks with steps that can be found */
    uint32_t depth;         /* the deepest group's */
    trp_rng rng;            /* of keys */
    struct step_number
        next;          /* of the next step, or of the open one; the steps before it are complete */
    uint64_t episode;  /* number 0 of history_set_episode() */
    uint64_t first;    /* serial of the oldest step that was not forgotten */
    bool open;         /* a step is being put together */
    bool gaps;         /* a step may lack a cell: history_find() may give NULL */
    bool large, tuned; /* some group's chunks may be, some group is */
    struct shm_arena *arena; /* the groups hold it; NULL: none */
};

/* INVALID_ARGUMENT: no columns, a column that is no tensor of 1 to 2^32 - 1 bytes a chunk, more
 * than history_bytes. */
trp_status history_create(struct history **out, const trp_writer_options *options);
void history_destroy(struct history *history); /* after every reference is gone; NULL is fine */

/* Where large chunks are made from now on; NULL: on the heap. */
void history_set_arena(struct history *history, struct shm_arena *arena);

/* Copies `count` whole steps; see trp_writer_append_steps(). RESOURCE_EXHAUSTED: no room for more
 * steps of this episode, here and below. */
trp_status history_append(struct history *history, const void *const *columns, uint32_t count);

/* Copies the cells that are not NULL; the step goes on when `partial`. INVALID_ARGUMENT: a column
 * that this step has already. */
trp_status history_append_part(struct history *history, const void *const *columns, bool partial);

/* Closes the chunks that are being filled. */
void history_close(struct history *history);

/* Ends an open step, closes, and begins an episode; drops every step unless they are to stay. */
void history_end_episode(struct history *history, bool keep_steps);

/* Ends an open step and, if it is another one than the last step's, closes: the steps to come are
 * of this part of the episode. 0: as at first. */
void history_set_episode(struct history *history, uint64_t number);

uint32_t history_size(const struct history *history, uint32_t column); /* steps to refer to */

/* The chunk that holds `column` of the step `age` steps back (age < size), its row there, and the
 * tensor's index in it; NULL: that step has no such cell. */
struct group_chunk *history_find(const struct history *history, uint32_t column, uint32_t age,
                                 uint32_t *row, uint32_t *index);

#endif
