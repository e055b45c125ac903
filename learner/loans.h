/* Versions that are read in parts, a call each, and so have to outlive the next publication. */
#ifndef TRP_LEARNER_LOANS_H
#define TRP_LEARNER_LOANS_H

#include "core/board.h"
#include "core/clock.h"
#include "limits.h"

struct loan {
    const struct board_version *version; /* held; NULL: none */
    uint32_t readers;                    /* that have begun with it */
    struct deadline until;
};

/* A zeroed one has none. Whoever has it guards it. */
struct loans {
    struct loan loans[PARAMS_LENT_MAX];
};

/* The version that a reader who begins now gets, or which goes on with `rest_of`: held, for
 * board_release(). NULL: there is none, or none of that number. */
const struct board_version *loans_begin(struct loans *loans, struct board *board);
const struct board_version *loans_go_on(struct loans *loans, struct board *board, uint64_t rest_of);

/* A part of `version` is handed out: its first one, its last. */
void loans_lend(struct loans *loans, struct board *board, const struct board_version *version,
                bool first, bool last);

/* Gives up those that nobody asked for in time. */
void loans_expire(struct loans *loans, struct board *board);
void loans_cleanup(struct loans *loans, struct board *board);

#endif
