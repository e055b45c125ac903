/* The rules of a group of learners, whoever carries the messages: its members' threads call them
 * here, the launcher does it for members in other processes.
 *
 * A generation is over when a member has left, when one that is new has announced itself, or when
 * it is called broken. The first two need nobody's consent: the next one begins at once, with
 * everybody who is there. Of a broken one all members are heard first, for silence_ms: so two
 * survivors of one death are never split into two generations, and one that hangs is not taken
 * along. A member that was left out stays out: it may hold a state that the others have gone on
 * from.
 *
 * A generation that breaks although all its members live is tried again, but not for ever. */
#include <troupe/rendezvous.h>

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include <troupe/rng.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/thread.h"
#include "limits.h"

enum gang_presence {
    GANG_EXPECTED, /* is starting */
    GANG_THERE,    /* has announced itself */
    GANG_LOST,     /* said nothing in time */
    GANG_LEFT,
};

struct gang_member {
    trp_rendezvous rendezvous; /* first */
    trp_gang *gang;
    enum gang_presence presence;
    char *address;
    uint32_t rank;      /* in the newest generation, UINT32_MAX: it is not in it */
    bool has_state;     /* it was in one */
    bool founder;       /* it was in the first one */
    uint64_t said_over; /* this generation and those before are over in its eyes */
    uint64_t number;    /* of the newest one with it; 0: none */
    /* The generation that it was given last: */
    char **addresses;
    uint32_t *members, size;
};

struct trp_gang {
    struct mutex mutex; /* all that follows */
    struct cond changed;
    char *name;
    trp_gang_options options;
    struct gang_member *members;
    uint64_t number, nonce; /* of the newest generation */
    uint32_t *ranks;        /* its members by rank */
    uint32_t size;
    bool over;                  /* it has lost somebody, or somebody is there who is not in it */
    char *broken;               /* why, as the first of its members said; NULL: none did */
    struct deadline heard, due; /* all its members; all that are expected */
    int64_t formed_ns;
    uint32_t breaks; /* of generations in a row, with nobody lost */
    char *ended;     /* why there will be none any more; NULL: there may */
};

static struct gang_member *member_of(const trp_rendezvous *rendezvous)
{
    return (struct gang_member *)(uintptr_t)rendezvous;
}

static uint32_t index_of(const struct gang_member *member)
{
    return (uint32_t)(member - member->gang->members);
}

static uint32_t count_locked(const trp_gang *gang, enum gang_presence presence)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < gang->options.count; i++)
        count += gang->members[i].presence == presence;
    return count;
}

/* `why` is taken. */
static void end_locked(trp_gang *gang, char *why)
{
    if (gang->ended)
        free(why);
    else
        gang->ended = why;
    cond_broadcast(&gang->changed);
}

/* ---- the next generation ------------------------------------------------------------------- */

static void enlist(trp_gang *gang, uint32_t index)
{
    gang->members[index].rank = gang->size;
    gang->ranks[gang->size++] = index;
}

static void form_locked(trp_gang *gang)
{
    uint32_t before = gang->size;
    gang->size = 0;
    for (uint32_t i = 0; i < before; i++) {
        uint32_t index = gang->ranks[i];
        gang->members[index].rank = UINT32_MAX;
        if (gang->members[index].presence == GANG_THERE)
            enlist(gang, index);
    }
    for (uint32_t i = 0; i < gang->options.count; i++)
        if (gang->members[i].presence == GANG_THERE && gang->members[i].rank == UINT32_MAX)
            enlist(gang, i);
    gang->number++;
    gang->nonce = trp_rng_entropy();
    for (uint32_t i = 0; i < gang->size; i++) {
        struct gang_member *member = &gang->members[gang->ranks[i]];
        member->number = gang->number;
        member->has_state = true;
        member->founder = member->founder || before == 0;
    }
    gang->over = false;
    free(gang->broken);
    gang->broken = NULL;
    gang->heard = DEADLINE_NEVER;
    gang->formed_ns = clock_now_ns(&clock_monotonic);
    cond_broadcast(&gang->changed);
}

/* Somebody has to know what was learned so far. */
static bool state_is_there_locked(const trp_gang *gang)
{
    if (gang->size == 0 || gang->options.keeps_nothing)
        return true; /* nothing was, or they are not who knows it */
    for (uint32_t i = 0; i < gang->options.count; i++)
        if (gang->members[i].presence == GANG_THERE && gang->members[i].has_state)
            return true;
    return false;
}

static void check_strength_locked(trp_gang *gang, const char *failure)
{
    uint32_t there = count_locked(gang, GANG_THERE);
    uint32_t expected = count_locked(gang, GANG_EXPECTED), least = gang->options.least;
    if (there + expected < least)
        end_locked(gang, xasprintf("%u of %u members of %s are left, it needs %u%s%s", there,
                                   gang->options.count, gang->name, least, failure ? ": " : "",
                                   failure ? failure : ""));
    else if (!state_is_there_locked(gang))
        end_locked(gang, xasprintf("every member of %s that knew what it had learned is gone%s%s",
                                   gang->name, failure ? ": " : "", failure ? failure : ""));
}

static void lose_locked(trp_gang *gang, uint32_t index, const char *what, int64_t ms)
{
    struct gang_member *member = &gang->members[index];
    member->presence = GANG_LOST;
    gang->over = gang->over || member->rank != UINT32_MAX;
    char *why = xasprintf("%s/%u %s within %" PRId64 " ms", gang->name, index, what, ms);
    if (gang->options.stop_on_failure)
        end_locked(gang, xstrdup(why));
    check_strength_locked(gang, why);
    free(why);
}

/* All members of the broken generation have said that it is over. */
static bool all_were_heard_locked(const trp_gang *gang)
{
    for (uint32_t i = 0; i < gang->size; i++) {
        const struct gang_member *member = &gang->members[gang->ranks[i]];
        if (member->presence == GANG_THERE && member->said_over < gang->number)
            return false;
    }
    return true;
}

static void lose_silent_locked(trp_gang *gang)
{
    for (uint32_t i = 0; i < gang->size; i++) {
        struct gang_member *member = &gang->members[gang->ranks[i]];
        if (member->presence == GANG_THERE && member->said_over < gang->number)
            lose_locked(gang, gang->ranks[i], "said nothing of a broken generation",
                        gang->options.silence_ms);
    }
}

static void lose_absent_locked(trp_gang *gang)
{
    for (uint32_t i = 0; i < gang->options.count; i++)
        if (gang->members[i].presence == GANG_EXPECTED)
            lose_locked(gang, i, "did not come", gang->options.start_ms);
}

/* The same members once more. */
static void try_again_locked(trp_gang *gang)
{
    int64_t lived_ns = clock_now_ns(&clock_monotonic) - gang->formed_ns;
    gang->breaks = lived_ns < GANG_HELD_MS * INT64_C(1000000) ? gang->breaks + 1 : 1;
    if (gang->breaks > GANG_BREAKS_MAX)
        end_locked(gang, xasprintf("%d generations of %s in a row broke though every member is "
                                   "there, the last one because: %s",
                                   GANG_BREAKS_MAX + 1, gang->name, gang->broken));
    else
        form_locked(gang);
}

/* Everything that happens of itself or of what happened before. */
static void advance_locked(trp_gang *gang)
{
    if (deadline_passed(gang->due, &clock_monotonic)) {
        gang->due = DEADLINE_NEVER;
        lose_absent_locked(gang);
    }
    if (gang->broken && !gang->over && deadline_passed(gang->heard, &clock_monotonic))
        lose_silent_locked(gang);
    if (gang->ended)
        return;
    bool first = gang->size == 0;
    if (first && count_locked(gang, GANG_EXPECTED) > 0)
        return;
    if (count_locked(gang, GANG_THERE) < gang->options.least)
        return; /* those who are expected may come */
    if (first || gang->over) {
        gang->breaks = 0;
        form_locked(gang);
    } else if (gang->broken && all_were_heard_locked(gang)) {
        try_again_locked(gang);
    }
}

/* ---- a member's end -------------------------------------------------------------------------- */

/* Those who are expected have to come before long, now that somebody waits for them. */
static void wait_for_expected_locked(trp_gang *gang)
{
    if (count_locked(gang, GANG_EXPECTED) == 0)
        gang->due = DEADLINE_NEVER;
    else if (gang->due.at_ns == DEADLINE_NEVER.at_ns)
        gang->due = deadline_in_ms(&clock_monotonic, gang->options.start_ms);
}

static trp_status gang_announce(trp_rendezvous *rendezvous, const char *address)
{
    struct gang_member *member = member_of(rendezvous);
    trp_gang *gang = member->gang;
    trp_status status = TRP_OK;
    mutex_lock(&gang->mutex);
    if (!gang->ended && member->presence == GANG_EXPECTED) {
        free(member->address);
        member->address = xstrdup(address);
        member->presence = GANG_THERE;
        gang->over = gang->size > 0; /* it is not in the newest */
        wait_for_expected_locked(gang);
        advance_locked(gang);
    } else {
        status = trp_fail(TRP_UNAVAILABLE, "%s/%u came too late: %s", gang->name, index_of(member),
                          gang->ended ? gang->ended : "the others go on without it");
    }
    mutex_unlock(&gang->mutex);
    return status;
}

static bool is_out(const struct gang_member *member)
{
    return member->presence == GANG_LOST || member->presence == GANG_LEFT;
}

static bool is_refused_locked(const struct gang_member *member)
{
    return member->gang->ended || is_out(member);
}

static trp_status refuse_locked(const struct gang_member *member)
{
    const trp_gang *gang = member->gang;
    if (gang->ended)
        return trp_fail(TRP_UNAVAILABLE, "%s", gang->ended);
    if (is_out(member))
        return trp_fail(TRP_UNAVAILABLE, "%s/%u was taken for lost, the others go on without it",
                        gang->name, index_of(member));
    return TRP_OK;
}

static void take_back(struct gang_member *member)
{
    for (uint32_t i = 0; i < member->size; i++)
        free(member->addresses[i]);
    member->size = 0;
}

static void hand_out_locked(struct gang_member *member, trp_generation *generation)
{
    const trp_gang *gang = member->gang;
    take_back(member);
    for (; member->size < gang->size; member->size++) {
        uint32_t index = gang->ranks[member->size];
        member->members[member->size] = index;
        member->addresses[member->size] = xstrdup(gang->members[index].address);
    }
    *generation = (trp_generation){.number = gang->number,
                                   .nonce = gang->nonce,
                                   .first = gang->number == gang->options.last_number + 1,
                                   .founder = member->founder,
                                   .rank = member->rank,
                                   .size = gang->size,
                                   .addresses = (const char *const *)member->addresses,
                                   .members = member->members};
}

static void say_over_locked(struct gang_member *member, uint64_t number)
{
    if (member->said_over < number)
        member->said_over = number;
}

static trp_status gang_next(trp_rendezvous *rendezvous, uint64_t after, int64_t timeout_ms,
                            trp_generation *generation)
{
    struct gang_member *member = member_of(rendezvous);
    trp_gang *gang = member->gang;
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    mutex_lock(&gang->mutex);
    say_over_locked(member, after);
    advance_locked(gang);
    trp_status status = refuse_locked(member);
    for (bool in_time = true; status == TRP_OK && member->number <= after && in_time;) {
        struct deadline look = deadline_earlier(deadline, deadline_earlier(gang->heard, gang->due));
        cond_wait(&gang->changed, &gang->mutex, look);
        advance_locked(gang);
        status = refuse_locked(member);
        in_time = !deadline_passed(deadline, &clock_monotonic);
    }
    if (status == TRP_OK && member->number > after)
        hand_out_locked(member, generation);
    else if (status == TRP_OK)
        status = trp_fail(
            TRP_DEADLINE_EXCEEDED, "%s/%u waits for %s: %u of %u are there, %u expected",
            gang->name, index_of(member), gang->broken ? "the others to leave" : "the others",
            count_locked(gang, GANG_THERE), gang->options.count, count_locked(gang, GANG_EXPECTED));
    mutex_unlock(&gang->mutex);
    return status;
}

static uint64_t gang_newest(const trp_rendezvous *rendezvous)
{
    const struct gang_member *member = member_of(rendezvous);
    mutex_lock(&member->gang->mutex);
    uint64_t number = member->number + is_refused_locked(member);
    mutex_unlock(&member->gang->mutex);
    return number;
}

static void gang_broken(trp_rendezvous *rendezvous, uint64_t number, const char *why)
{
    struct gang_member *member = member_of(rendezvous);
    trp_gang *gang = member->gang;
    mutex_lock(&gang->mutex);
    say_over_locked(member, number);
    if (number == gang->number && number > 0 && !gang->broken) {
        gang->broken = xstrdup(why);
        gang->heard = deadline_in_ms(&clock_monotonic, gang->options.silence_ms);
        cond_broadcast(&gang->changed); /* others wait until another moment */
    }
    advance_locked(gang);
    mutex_unlock(&gang->mutex);
}

static const trp_rendezvous_impl gang_impl = {
    .announce = gang_announce, .next = gang_next, .newest = gang_newest, .broken = gang_broken};

/* ---- whoever watches the members ------------------------------------------------------------- */

void trp_gang_left(trp_gang *gang, uint32_t index, const char *failure)
{
    struct gang_member *member = &gang->members[index];
    mutex_lock(&gang->mutex);
    if (member->presence != GANG_LEFT) {
        bool known = member->presence == GANG_LOST;
        member->presence = GANG_LEFT;
        gang->over = gang->over || member->rank != UINT32_MAX;
        char *why = failure ? xasprintf("%s/%u: %s", gang->name, index, failure) : NULL;
        if (why && gang->options.stop_on_failure)
            end_locked(gang, xstrdup(why));
        if (!known)
            check_strength_locked(gang, why);
        free(why);
        wait_for_expected_locked(gang);
        advance_locked(gang);
    }
    mutex_unlock(&gang->mutex);
}

void trp_gang_expect(trp_gang *gang, uint32_t index)
{
    struct gang_member *member = &gang->members[index];
    mutex_lock(&gang->mutex);
    gang->over = gang->over || member->rank != UINT32_MAX;
    member->presence = GANG_EXPECTED;
    member->has_state = member->founder = false;
    member->said_over = member->number = 0;
    gang->due = deadline_in_ms(&clock_monotonic, gang->options.start_ms);
    check_strength_locked(gang, NULL);
    advance_locked(gang);
    cond_broadcast(&gang->changed); /* others wait until another moment */
    mutex_unlock(&gang->mutex);
}

trp_status trp_gang_check(trp_gang *gang)
{
    mutex_lock(&gang->mutex);
    advance_locked(gang);
    trp_status status = TRP_OK;
    if (gang->ended)
        status = trp_fail(TRP_UNAVAILABLE, "%s", gang->ended);
    mutex_unlock(&gang->mutex);
    return status;
}

bool trp_gang_lost(trp_gang *gang, uint32_t index)
{
    mutex_lock(&gang->mutex);
    bool lost = gang->members[index].presence == GANG_LOST;
    mutex_unlock(&gang->mutex);
    return lost;
}

uint64_t trp_gang_newest(trp_gang *gang)
{
    mutex_lock(&gang->mutex);
    uint64_t number = gang->size > 0 ? gang->number : 0;
    mutex_unlock(&gang->mutex);
    return number;
}

void trp_gang_put_off(trp_gang *gang, int64_t ns)
{
    mutex_lock(&gang->mutex);
    gang->heard = deadline_put_off(gang->heard, ns);
    gang->due = deadline_put_off(gang->due, ns);
    gang->formed_ns += ns;
    mutex_unlock(&gang->mutex);
}

/* ---- life ------------------------------------------------------------------------------------ */

trp_gang *trp_gang_create(const trp_gang_options *options)
{
    assert(options->count > 0 && options->least <= options->count);
    trp_gang *gang = xcalloc(1, sizeof *gang);
    mutex_init(&gang->mutex);
    cond_init(&gang->changed);
    gang->options = *options;
    gang->name = xstrdup(options->name);
    gang->options.least = options->least ? options->least : 1;
    gang->options.silence_ms = options->silence_ms ? options->silence_ms : GANG_SILENCE_MS;
    gang->options.start_ms = options->start_ms ? options->start_ms : GANG_START_MS;
    gang->number = options->last_number;
    gang->heard = gang->due = DEADLINE_NEVER;
    gang->ranks = xcalloc(options->count, sizeof *gang->ranks);
    gang->members = xcalloc(options->count, sizeof *gang->members);
    for (uint32_t i = 0; i < options->count; i++)
        gang->members[i] =
            (struct gang_member){.rendezvous.impl = &gang_impl,
                                 .gang = gang,
                                 .rank = UINT32_MAX,
                                 .addresses = xcalloc(options->count, sizeof(char *)),
                                 .members = xcalloc(options->count, sizeof(uint32_t))};
    return gang;
}

trp_rendezvous *trp_gang_member(trp_gang *gang, uint32_t index)
{
    assert(index < gang->options.count);
    return &gang->members[index].rendezvous;
}

void trp_gang_destroy(trp_gang *gang)
{
    if (!gang)
        return;
    for (uint32_t i = 0; i < gang->options.count; i++) {
        take_back(&gang->members[i]);
        free(gang->members[i].address);
        free(gang->members[i].addresses);
        free(gang->members[i].members);
    }
    free(gang->members);
    free(gang->ranks);
    free(gang->name);
    free(gang->broken);
    free(gang->ended);
    cond_cleanup(&gang->changed);
    mutex_cleanup(&gang->mutex);
    free(gang);
}
