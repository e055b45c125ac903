/* Guided rounds: whoever comes to a phase tells the others, and those who have no batch, or are
 * done with theirs, take part in it with a weight of 0. */
#include "synchronous.h"

#include <inttypes.h>

static const char *deed_name(uint64_t deed)
{
    static const char *const names[] = {"is done with the step", "asks for the largest number",
                                        "reduces", "applies"};
    return names[deed & 3];
}

/* What those do who are not done; DEED_DONE: all are. */
static trp_status common_deed(const struct synchronous *s, uint64_t *deed)
{
    uint32_t first = 0;
    *deed = DEED_DONE;
    for (uint32_t rank = 0; rank < s->group.size; rank++) {
        uint64_t other = learners_told(&s->group, rank)[0];
        if (other == DEED_DONE)
            continue;
        if (*deed != DEED_DONE && other != *deed)
            return trp_fail(TRP_FAILED_PRECONDITION,
                            "learners differ in step %" PRIu64 ": rank %u %s vector %" PRIu64
                            ", rank %u %s vector %" PRIu64,
                            s->number, first, deed_name(*deed), *deed >> 8, rank, deed_name(other),
                            other >> 8);
        if (*deed == DEED_DONE)
            first = rank;
        *deed = other;
    }
    return TRP_OK;
}

static trp_status tell_deed(struct synchronous *s, uint64_t own, uint64_t bits, uint64_t *common)
{
    const uint64_t words[LEARNERS_WORDS] = {own, bits};
    TRP_TRY(learners_wait(&s->group, learners_tell(&s->group, words)));
    return common_deed(s, common);
}

trp_status guided_tell(struct synchronous *s, enum deed deed, size_t index, uint64_t bits)
{
    uint64_t common;
    return tell_deed(s, (uint64_t)deed | (uint64_t)index << 8, bits, &common);
}

trp_status guided_follow(struct synchronous *s)
{
    uint64_t deed;
    s->base.rows = 0;
    do {
        TRP_TRY(tell_deed(s, DEED_DONE, 0, &deed));
        if (deed >> 8 >= s->base.vectors->count)
            return trp_fail(TRP_DATA_LOSS, "a learner %s vector %" PRIu64 ", which is none",
                            deed_name(deed), deed >> 8);
        if ((deed & 3) == DEED_REDUCE)
            TRP_TRY(phase_reduce(s, (size_t)(deed >> 8)));
        if ((deed & 3) == DEED_APPLY)
            TRP_TRY(phase_finish(s, (size_t)(deed >> 8)));
    } while (deed != DEED_DONE);
    return TRP_OK;
}
