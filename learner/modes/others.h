/* Others of a generation in which nobody waits for anybody: it is looked at now and then whether
 * they still make rounds. One that hangs would keep versions and checkpoints back if it leads, and
 * be missed by nobody otherwise. */
#ifndef TRP_LEARNER_MODES_OTHERS_H
#define TRP_LEARNER_MODES_OTHERS_H

#include "learners.h"
#include "limits.h"

/* Another learner, as this one sees it. */
struct other {
    uint32_t member, rank;
    uint64_t beat;
    int64_t seen_ns; /* when that was new */
};

struct others {
    uint32_t count;
    struct other each[HOGWILD_LEARNERS_MAX];
    int64_t looked_ns;
    bool misses; /* one of them, and has said so */
};

/* From now on they are the ranks of [first, end), but for `own`; members[rank] is who that is. */
void others_note(struct others *others, const uint32_t *members, uint32_t own, uint32_t first,
                 uint32_t end);

/* A number that changes with rounds of the other one. */
typedef uint64_t others_beat(const void *context, const struct other *other);

/* Who has been silent for the group's timeout breaks generation `number`, which is said once;
 * `what`: "made no step". */
void others_look(struct others *others, const struct learners_options *group, uint64_t number,
                 others_beat *beat_of, const void *context, const char *what);

/* Ends the generation, and nobody is looked at any more. */
void others_break(struct others *others, const struct learners_options *group, uint64_t number,
                  const char *why);

#endif
