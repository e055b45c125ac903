/* Learners that meet at a rendezvous share the memory of one of them; nobody waits for anybody.
 * Versions grow with generations, as a learner that leads may have published from memory that the
 * one after it never had. */
#include "hogwild.h"

#include <inttypes.h>
#include <stdlib.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/thread.h"

/* ---- who else learns ------------------------------------------------------------------------- */

const char *hogwild_address(const struct mode *mode)
{
    return shared_memory_address(((const struct hogwild *)mode)->memory);
}

trp_status hogwild_join(struct mode *mode, const char *address, const char *owner)
{
    struct hogwild *hogwild = (struct hogwild *)mode;
    TRP_TRY(shared_memory_adopt(hogwild->memory, address, owner));
    hogwild_place(hogwild, shared_memory_at(hogwild->memory));
    hogwild_load_unlearned(hogwild);
    return hogwild_gather(mode);
}

static char *name_of_rank(const struct hogwild *hogwild, const trp_generation *generation,
                          uint32_t rank)
{
    return xasprintf("%s/%" PRIu32, hogwild->group.name, generation->members[rank]);
}

/* The rank whose memory has most steps in it, the first of them: all find the same one, and nothing
 * that was learned is given up for what a new member has. Who is gone already has none. */
static trp_status find_furthest(const struct hogwild *hogwild, const trp_generation *generation,
                                uint32_t *furthest)
{
    uint64_t most = 0, steps;
    *furthest = generation->size;
    for (uint32_t rank = 0; rank < generation->size; rank++) {
        char *owner = name_of_rank(hogwild, generation, rank);
        trp_status status = shared_memory_read(hogwild->memory, generation->addresses[rank], owner,
                                               offsetof(struct hogwild_head, steps.value), &steps);
        if (status == TRP_UNAVAILABLE)
            trp_log(TRP_WARN, "learner shares nothing with learner=%s reason=%s", owner,
                    trp_last_error());
        free(owner);
        if (status == TRP_UNAVAILABLE)
            continue;
        TRP_TRY(status);
        if (*furthest == generation->size || steps > most) {
            *furthest = rank;
            most = steps;
        }
    }
    return *furthest < generation->size ? TRP_OK : TRP_UNAVAILABLE;
}

/* Members that came later know nothing among themselves. */
static trp_status check_known(const struct hogwild *hogwild, const trp_generation *generation,
                              uint32_t rank, const char *owner)
{
    uint64_t known;
    TRP_TRY(shared_memory_read(hogwild->memory, generation->addresses[rank], owner,
                               offsetof(struct hogwild_head, known.value), &known));
    if (known > 0 || generation->founder)
        return TRP_OK;
    return trp_fail(TRP_UNAVAILABLE, "who knew what was learned is gone: %s came later", owner);
}

static trp_status share(struct hogwild *hogwild, const trp_generation *generation)
{
    uint32_t rank;
    TRP_TRY(find_furthest(hogwild, generation, &rank));
    char *owner = name_of_rank(hogwild, generation, rank);
    trp_status status = check_known(hogwild, generation, rank, owner);
    if (status == TRP_OK && rank != generation->rank)
        status = hogwild_join(&hogwild->base, generation->addresses[rank], owner);
    free(owner);
    return status;
}

/* ---- generations ----------------------------------------------------------------------------- */

void hogwild_break(struct hogwild *hogwild, const char *why)
{
    others_break(&hogwild->others, &hogwild->group, hogwild->generation, why);
}

static struct shared_count *beats_of(const struct hogwild *hogwild, uint32_t member)
{
    return &hogwild->head->beats[member % HOGWILD_LEARNERS_MAX];
}

static uint64_t beat_in_memory(const void *hogwild, const struct other *other)
{
    return atomic_load_explicit(&beats_of(hogwild, other->member)->value, memory_order_relaxed);
}

/* Who cannot share, because the one that has it all is gone already, waits for the next one. */
static trp_status enter_generation(struct hogwild *hogwild, const trp_generation *generation)
{
    const struct learners_options *group = &hogwild->group;
    if (generation->founder)
        atomic_store(&hogwild->head->known.value, 1);
    trp_status status = share(hogwild, generation);
    hogwild->generation = generation->number;
    hogwild->shares = hogwild->shares || status == TRP_OK;
    hogwild->base.leads = hogwild->shares && generation->rank == 0;
    if (status == TRP_OK) {
        hogwild->member = generation->members[generation->rank];
        others_note(&hogwild->others, generation->members, generation->rank, 0, generation->size);
        trp_log(TRP_INFO,
                "learner shares its vectors group=%s generation=%" PRIu64 " rank=%" PRIu32
                " of=%" PRIu32,
                group->name, generation->number, generation->rank, generation->size);
        return TRP_OK;
    }
    learners_break(group->rendezvous, generation->number, "did not come together",
                   trp_last_error());
    return status == TRP_UNAVAILABLE ? TRP_OK : status;
}

static trp_status enter_next(struct hogwild *hogwild, int64_t timeout_ms,
                             trp_generation *generation)
{
    trp_rendezvous *rendezvous = hogwild->group.rendezvous;
    trp_status status =
        rendezvous->impl->next(rendezvous, hogwild->generation, timeout_ms, generation);
    if (status == TRP_DEADLINE_EXCEEDED)
        return TRP_OK;
    TRP_TRY(status);
    return enter_generation(hogwild, generation);
}

static trp_status wait_for_group(struct hogwild *hogwild, trp_generation *generation)
{
    trp_rendezvous *rendezvous = hogwild->group.rendezvous;
    TRP_TRY(rendezvous->impl->announce(rendezvous, hogwild_address(&hogwild->base)));
    while (!hogwild->shares && !trp_stop_requested(hogwild->group.stop)) {
        TRP_TRY(enter_next(hogwild, LEARNERS_LOOK_MS, generation));
        turns_pass();
    }
    return hogwild->shares
               ? TRP_OK
               : trp_fail(TRP_CANCELLED, "learner: stopped while it waited for its group");
}

static void raise_count(struct shared_count *count, uint64_t least)
{
    uint64_t value = atomic_load(&count->value);
    while (value < least && !atomic_compare_exchange_weak(&count->value, &value, least))
        ;
}

static trp_status hogwild_meet(struct mode *mode, struct mode_meeting *meeting)
{
    struct hogwild *hogwild = (struct hogwild *)mode;
    trp_generation generation = {0};
    atomic_store(&hogwild->head->steps.value, meeting->steps);
    atomic_store(&hogwild->head->known.value, meeting->steps > 0); /* of a checkpoint */
    hogwild_share_vectors(hogwild);
    if (hogwild->group.rendezvous)
        TRP_TRY(wait_for_group(hogwild, &generation));
    meeting->steps = atomic_load(&hogwild->head->steps.value);
    meeting->version = meeting_version(meeting, hogwild->generation);
    meeting->generation = hogwild->generation;
    if (generation.rank > 0)
        trp_rng_init(meeting->rng, meeting->rng->state[0],
                     generation.number << 16 | generation.rank);
    return TRP_OK;
}

/* Nobody stands still while others come and go: all have the memory meanwhile. */
static trp_status hogwild_end(struct mode *mode, struct mode_round *round)
{
    struct hogwild *hogwild = (struct hogwild *)mode;
    trp_rendezvous *rendezvous = hogwild->group.rendezvous;
    trp_generation generation;
    round->whole = round->has_batch;
    if (round->whole)
        round->steps =
            atomic_fetch_add_explicit(&hogwild->head->steps.value, 1, memory_order_relaxed) + 1;
    if (!rendezvous)
        return TRP_OK;
    atomic_fetch_add_explicit(&beats_of(hogwild, hogwild->member)->value, 1, memory_order_relaxed);
    others_look(&hogwild->others, &hogwild->group, hogwild->generation, beat_in_memory, hogwild,
                "made no step");
    if (rendezvous->impl->newest(rendezvous) <= hogwild->generation)
        return TRP_OK;
    return enter_next(hogwild, 0, &generation);
}

static uint64_t hogwild_next_version(struct mode *mode, uint64_t version)
{
    struct hogwild *hogwild = (struct hogwild *)mode;
    if (hogwild->base.leads)
        hogwild_share_unlearned(hogwild);
    /* Above what this one published before it joined, and others before this generation. */
    uint64_t least =
        mode_next_version(hogwild->generation, atomic_load(&hogwild->head->steps.value), version);
    raise_count(&hogwild->head->versions, least - 1);
    return atomic_fetch_add_explicit(&hogwild->head->versions.value, 1, memory_order_relaxed) + 1;
}

/* ---- its life -------------------------------------------------------------------------------- */

void hogwild_cleanup(struct hogwild *hogwild)
{
    shared_memory_destroy(hogwild->memory);
    hogwild_drop_room(hogwild);
}

static void hogwild_destroy(struct mode *mode)
{
    hogwild_cleanup((struct hogwild *)mode);
    free(mode);
}

static const struct mode_impl hogwild_impl = {.meet = hogwild_meet,
                                              .end = hogwild_end,
                                              .apply = hogwild_apply,
                                              .next_version = hogwild_next_version,
                                              .gather = hogwild_gather,
                                              .destroy = hogwild_destroy};

trp_status hogwild_init(struct hogwild *hogwild, const struct mode_impl *impl,
                        struct vectors *vectors, const struct learners_options *group)
{
    hogwild->base = (struct mode){.impl = impl, .vectors = vectors, .leads = !group->rendezvous};
    hogwild->group = *group;
    if (group->timeout_ms == 0)
        hogwild->group.timeout_ms = HOGWILD_SILENCE_MS;
    TRP_TRY(shared_memory_create(&hogwild->memory, hogwild_layout(vectors),
                                 hogwild_place(hogwild, NULL)));
    hogwild_place(hogwild, shared_memory_at(hogwild->memory));
    hogwild_take_room(hogwild);
    return TRP_OK;
}

trp_status hogwild_create(struct mode **out, struct vectors *vectors,
                          const struct learners_options *group)
{
    struct hogwild *hogwild = xcalloc(1, sizeof *hogwild);
    trp_status status = hogwild_init(hogwild, &hogwild_impl, vectors, group);
    *out = status == TRP_OK ? &hogwild->base : NULL;
    if (status != TRP_OK)
        hogwild_destroy(&hogwild->base);
    return status;
}
