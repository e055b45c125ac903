#include "others.h"

#include <inttypes.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/clock.h"

void others_note(struct others *others, const uint32_t *members, uint32_t own, uint32_t first,
                 uint32_t end)
{
    int64_t now_ns = clock_now_ns(&clock_coarse);
    others->count = 0;
    others->misses = false;
    for (uint32_t rank = first; rank < end && others->count < HOGWILD_LEARNERS_MAX; rank++)
        if (rank != own)
            others->each[others->count++] =
                (struct other){.member = members[rank], .rank = rank, .seen_ns = now_ns};
}

void others_break(struct others *others, const struct learners_options *group, uint64_t number,
                  const char *why)
{
    learners_break(group->rendezvous, number, "is broken", why);
    others->misses = true;
}

static bool is_silent(struct other *other, uint64_t beat, int64_t now_ns, uint32_t timeout_ms)
{
    if (beat != other->beat) {
        other->beat = beat;
        other->seen_ns = now_ns;
    }
    return now_ns - other->seen_ns > timeout_ms * INT64_C(1000000);
}

void others_look(struct others *others, const struct learners_options *group, uint64_t number,
                 others_beat *beat_of, const void *context, const char *what)
{
    int64_t now_ns = clock_now_ns(&clock_coarse);
    if (others->misses || now_ns - others->looked_ns < HOGWILD_LOOK_MS * INT64_C(1000000))
        return;
    others->looked_ns = now_ns;
    for (uint32_t i = 0; i < others->count && !others->misses; i++) {
        struct other *other = &others->each[i];
        if (!is_silent(other, beat_of(context, other), now_ns, group->timeout_ms))
            continue;
        char *why = xasprintf("%s/%" PRIu32 " has %s for %g s", group->name, other->member, what,
                              group->timeout_ms / 1e3);
        others_break(others, group, number, why);
        free(why);
    }
}
