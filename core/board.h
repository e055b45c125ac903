/* The newest versions of a vector of numbers: one writes, many read it where it lies, in the
 * writer's process or in others of its host. */
#ifndef TRP_CORE_BOARD_H
#define TRP_CORE_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/moments.h>
#include "core/sealed.h"

struct board;

/* One version. In the writer's process it stays as it is while it is held. */
struct board_version {
    const float *numbers;
    uint64_t version, learner_steps;
    bool finite;                   /* all of the numbers are */
    const trp_moments *statistics; /* NULL: there are none, or they are in another process */
    size_t statistic_count;
};

/* ---- the writer ------------------------------------------------------------------------------ */

/* `share`: with other processes, where the system lets us. Has one reference. */
struct board *board_create(size_t count, bool share);
void board_ref(struct board *board);
void board_unref(struct board *board); /* the last one frees; NULL is fine */

/* Where it is found; with bytes 0: by this process alone. */
const struct sealed_place *board_place(const struct board *board);

/* Copies `numbers`, which become the newest. `version` is greater than every one before.
 * `statistics` are taken. One thread at a time; never waits for who reads. */
void board_write(struct board *board, const float *numbers, uint64_t version,
                 uint64_t learner_steps, trp_moments *statistics, size_t statistic_count);

uint64_t board_newest(const struct board *board); /* 0: none yet */

/* The newest version, held until board_release(). Where so many different ones are held that no
 * more may be, it is the newest of those. NULL: there is none yet. */
const struct board_version *board_hold(struct board *board);
void board_hold_again(struct board *board, const struct board_version *version);
void board_release(struct board *board, const struct board_version *version); /* NULL is fine */

/* The same for who may need it long, and longer than its owner the board: a version that is held is
 * held once more, and the board is, until board_take_back(). False: BOARD_LENT other versions are
 * lent already. */
TRP_MUST_USE bool board_lend(struct board *board, const struct board_version *version);
void board_take_back(struct board *board, const struct board_version *version);

/* ---- who reads ------------------------------------------------------------------------------- */

struct board_view;

/* A board that another process, or this one, claims to have at `place`. Failures of sealed_map();
 * FAILED_PRECONDITION: it is none. */
TRP_MUST_USE trp_status board_view_open(struct board_view **out, const struct sealed_place *place);
void board_view_close(struct board_view *view); /* gives up what it has; NULL is fine */

bool board_view_is_here(const struct board_view *view); /* its writer is in this process */
size_t board_view_count(const struct board_view *view);
uint64_t board_view_newest(const struct board_view *view); /* one load */

/* The newest version, where it lies, until the next one is taken, or, if it is kept, until the next
 * one is kept. False: there is none yet, or it was being replaced at every look. */
bool board_view_take(struct board_view *view, struct board_version *version);
void board_view_keep(struct board_view *view);

/* Whether all that was read of the version since it was taken is whole: one of another process is
 * replaced after a while. */
bool board_view_is_whole(const struct board_view *view);

#endif
