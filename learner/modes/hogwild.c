/* A phase goes through a vector block by block, so that what was loaded is still in the cache where
 * it is stored again, and is old by no more than a block's step. To the bit it is the step of a
 * learner that is alone when it is: a number that nobody changed since it was loaded becomes what
 * the optimizer made of it, and only another one has the difference added.
 *
 * Loads and stores are relaxed atomics of C11 on pairs of numbers; compilers do not put them into
 * vectors, which is why the optimizer's kernels work on copies of a block. Where a gradient of 0
 * changes nothing (SGD) whole blocks of it are left alone, pairs that did not change are not
 * stored, and of a pair of which one number did the other stays as it is, so that learners whose
 * gradients have nothing in common disturb each other nowhere; what others changed in such blocks a
 * learner sees by their count of changes. */
#include "hogwild.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/thread.h"
#include "limits.h"
#include "shared_memory.h"

_Static_assert(HOGWILD_BLOCK % 2 == 0, "a block is of whole pairs");

/* ---- the memory ------------------------------------------------------------------------------ */

static size_t block_count(size_t numbers)
{
    return (numbers + HOGWILD_BLOCK - 1) / HOGWILD_BLOCK;
}

/* A step with a gradient of 0 leaves the number alone. */
static bool is_sparse(const trp_optimizer *optimizer)
{
    return optimizer->kind == TRP_SGD && optimizer->weight_decay == 0;
}

/* The next piece of `bytes` at `at`, which goes on behind it. */
static void *place_piece(uint8_t *memory, size_t *at, size_t bytes)
{
    void *piece = memory ? memory + *at : NULL;
    *at += (bytes + HOGWILD_LINE_BYTES - 1) / HOGWILD_LINE_BYTES * HOGWILD_LINE_BYTES;
    return piece;
}

/* Finds everything in `memory`; NULL: only says how many bytes it has. */
static size_t place_vectors(struct hogwild *hogwild, uint8_t *memory)
{
    size_t at = 0;
    hogwild->head = place_piece(memory, &at, sizeof *hogwild->head);
    for (size_t i = 0; i < hogwild->base.vectors->count; i++) {
        const trp_vector_spec *spec = hogwild->base.vectors->each[i].spec;
        struct hogwild_vector *vector = &hogwild->each[i];
        vector->values = place_piece(memory, &at, spec->count * sizeof(float));
        if (!spec->learned)
            continue;
        for (size_t k = 0; k < trp_optimizer_states(&spec->optimizer); k++)
            vector->state[k] = place_piece(memory, &at, spec->count * sizeof(float));
        if (is_sparse(&spec->optimizer))
            vector->changes =
                place_piece(memory, &at, block_count(spec->count) * sizeof *vector->changes);
    }
    return at;
}

/* What two learners have to agree on. */
static uint64_t layout_of(const struct vectors *vectors)
{
    uint64_t hash = HASH_BYTES_EMPTY;
    for (size_t i = 0; i < vectors->count; i++) {
        const trp_vector_spec *spec = vectors->each[i].spec;
        char *tensors = trp_net_layout(spec->tensors, spec->tensor_count, 0);
        hash = hash_bytes(hash, spec->name, strlen(spec->name) + 1);
        hash = hash_bytes(hash, &spec->count, sizeof spec->count);
        hash = hash_bytes(hash, tensors, strlen(tensors) + 1);
        free(tensors);
        for (size_t k = 0; spec->learned && k < trp_optimizer_states(&spec->optimizer); k++) {
            const char *name = trp_optimizer_state_name(&spec->optimizer, k);
            hash = hash_bytes(hash, name, strlen(name) + 1);
        }
    }
    return hash;
}

/* ---- a phase --------------------------------------------------------------------------------- */

/* The optimizer's step on a block, as it is now. */
static void step_block(struct hogwild *hogwild, size_t index, size_t at, size_t count, float scale)
{
    struct hogwild_vector *shared = &hogwild->each[index];
    struct vector *vector = &hogwild->base.vectors->each[index];
    const trp_optimizer *optimizer = &vector->spec->optimizer;
    size_t states = trp_optimizer_states(optimizer), pairs = (count + 1) / 2;
    load_shared(shared->values + at / 2, hogwild->before, 2 * pairs);
    memcpy(hogwild->after, hogwild->before, 2 * pairs * sizeof(float));
    for (size_t k = 0; k < states; k++)
        load_shared(shared->state[k] + at / 2, hogwild->state[k], count);
    trp_optimizer_step(optimizer, vector_phases(vector)->steps + 1, scale, hogwild->after,
                       vector->grads + at, hogwild->state, 0, count);
    for (size_t k = 0; k < states; k++)
        put_shared(shared->state[k] + at / 2, hogwild->state[k], count);
    add_block_step(shared->values + at / 2, hogwild->before, hogwild->after, pairs);
    memcpy((float *)vector->values.here + at, hogwild->after, count * sizeof(float));
}

/* The same where a gradient of 0 changes nothing. The learner's copy has what was changed before
 * the count was read; what is changed meanwhile is loaded next time. */
static void step_sparse_block(struct hogwild *hogwild, size_t index, size_t block, size_t count,
                              float scale)
{
    struct hogwild_vector *shared = &hogwild->each[index];
    struct vector *vector = &hogwild->base.vectors->each[index];
    size_t at = block * HOGWILD_BLOCK;
    uint32_t changes = atomic_load_explicit(&shared->changes[block], memory_order_acquire);
    bool zero = trp_norm2(vector->grads, at, at + count) == 0;
    if (zero && changes != shared->seen[block])
        load_shared(shared->values + at / 2, (float *)vector->values.here + at, count);
    shared->seen[block] = changes;
    if (zero)
        return;
    step_block(hogwild, index, at, count, scale);
    shared->seen[block] +=
        atomic_fetch_add_explicit(&shared->changes[block], 1, memory_order_release) == changes;
    memset(vector->grads + at, 0, count * sizeof(float));
}

static void step_vector(struct hogwild *hogwild, size_t index, float scale)
{
    size_t numbers = hogwild->base.vectors->each[index].spec->count;
    for (size_t block = 0; block < block_count(numbers); block++) {
        size_t at = block * HOGWILD_BLOCK;
        size_t count = numbers - at < HOGWILD_BLOCK ? numbers - at : HOGWILD_BLOCK;
        if (hogwild->each[index].changes)
            step_sparse_block(hogwild, index, block, count, scale);
        else
            step_block(hogwild, index, at, count, scale);
    }
}

trp_status hogwild_apply(struct mode *mode, size_t index)
{
    struct hogwild *hogwild = (struct hogwild *)mode;
    struct vector *vector = &mode->vectors->each[index];
    const trp_optimizer *optimizer = &vector->spec->optimizer;
    trp_phases *phases = vector->phases.here;
    trp_phase_measure(mode->vectors->queue, optimizer, vector->grads, vector->spec->count,
                      vector->watched, phases);
    if (!phases->skipped) {
        phases->steps =
            atomic_fetch_add_explicit(&hogwild->head->phases[index].value, 1, memory_order_relaxed);
        step_vector(hogwild, index, trp_clip_scale(phases->norm2, (float)optimizer->max_norm));
    }
    bool zeroed = hogwild->each[index].changes && !phases->skipped; /* as far as it was not 0 */
    trp_phase_end(mode->vectors->queue, vector->grads, zeroed ? 0 : vector->spec->count, phases);
    return TRP_OK;
}

/* ---- the learner's copy ---------------------------------------------------------------------- */

/* All of what is shared, values and state, becomes the learner's. */
trp_status hogwild_gather(struct mode *mode)
{
    struct hogwild *hogwild = (struct hogwild *)mode;
    for (size_t i = 0; i < hogwild->base.vectors->count; i++) {
        struct vector *vector = &hogwild->base.vectors->each[i];
        struct hogwild_vector *shared = &hogwild->each[i];
        if (!vector->spec->learned)
            continue;
        for (size_t b = 0; shared->changes && b < block_count(vector->spec->count); b++)
            shared->seen[b] = atomic_load_explicit(&shared->changes[b], memory_order_acquire);
        load_shared(shared->values, vector->values.here, vector->spec->count);
        for (size_t k = 0; k < trp_optimizer_states(&vector->spec->optimizer); k++)
            load_shared(shared->state[k], vector->state[k].here, vector->spec->count);
        trp_phases *phases = vector->phases.here;
        phases->steps = atomic_load_explicit(&hogwild->head->phases[i].value, memory_order_relaxed);
    }
    return TRP_OK;
}

void hogwild_share_vectors(struct hogwild *hogwild)
{
    for (size_t i = 0; i < hogwild->base.vectors->count; i++) {
        struct vector *vector = &hogwild->base.vectors->each[i];
        struct hogwild_vector *shared = &hogwild->each[i];
        put_shared(shared->values, vector->values.here, vector->spec->count);
        if (!vector->spec->learned)
            continue;
        for (size_t k = 0; k < trp_optimizer_states(&vector->spec->optimizer); k++)
            put_shared(shared->state[k], vector->state[k].here, vector->spec->count);
        atomic_store_explicit(&hogwild->head->phases[i].value, vector_phases(vector)->steps,
                              memory_order_relaxed);
    }
}

void hogwild_share_unlearned(struct hogwild *hogwild)
{
    for (size_t i = 0; i < hogwild->base.vectors->count; i++) {
        const struct vector *vector = &hogwild->base.vectors->each[i];
        if (!vector->spec->learned)
            put_shared(hogwild->each[i].values, vector->values.here, vector->spec->count);
    }
}

void hogwild_load_unlearned(struct hogwild *hogwild)
{
    for (size_t i = 0; i < hogwild->base.vectors->count; i++) {
        const struct vector *vector = &hogwild->base.vectors->each[i];
        if (!vector->spec->learned)
            load_shared(hogwild->each[i].values, vector->values.here, vector->spec->count);
    }
}

/* ---- who else learns ------------------------------------------------------------------------- */

const char *hogwild_address(const struct mode *mode)
{
    return shared_memory_address(((const struct hogwild *)mode)->memory);
}

trp_status hogwild_join(struct mode *mode, const char *address, const char *owner)
{
    struct hogwild *hogwild = (struct hogwild *)mode;
    TRP_TRY(shared_memory_adopt(hogwild->memory, address, owner));
    place_vectors(hogwild, shared_memory_at(hogwild->memory));
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

/* ---- who says nothing any more ----------------------------------------------------------------
 */

void hogwild_note_others(struct hogwild *hogwild, const trp_generation *generation, uint32_t end)
{
    int64_t now_ns = clock_now_ns(&clock_coarse);
    hogwild->other_count = 0;
    hogwild->misses = false;
    hogwild->member = generation->members[generation->rank];
    for (uint32_t rank = 0; rank < end && rank < HOGWILD_LEARNERS_MAX; rank++)
        if (rank != generation->rank)
            hogwild->others[hogwild->other_count++] = (struct hogwild_other){
                .member = generation->members[rank], .rank = rank, .seen_ns = now_ns};
}

void hogwild_break(struct hogwild *hogwild, const char *why)
{
    learners_break(hogwild->group.rendezvous, hogwild->generation, "is broken", why);
    hogwild->misses = true;
}

static bool is_silent(const struct hogwild *hogwild, struct hogwild_other *other, uint64_t beat,
                      int64_t now_ns)
{
    if (beat != other->beat) {
        other->beat = beat;
        other->seen_ns = now_ns;
    }
    return now_ns - other->seen_ns > hogwild->group.timeout_ms * INT64_C(1000000);
}

void hogwild_look_at_others(struct hogwild *hogwild, hogwild_beat *beat_of, const char *what)
{
    int64_t now_ns = clock_now_ns(&clock_coarse);
    if (hogwild->misses || now_ns - hogwild->looked_ns < HOGWILD_LOOK_MS * INT64_C(1000000))
        return;
    hogwild->looked_ns = now_ns;
    for (uint32_t i = 0; i < hogwild->other_count && !hogwild->misses; i++) {
        struct hogwild_other *other = &hogwild->others[i];
        if (!is_silent(hogwild, other, beat_of(hogwild, other), now_ns))
            continue;
        char *why = xasprintf("%s/%" PRIu32 " has %s for %g s", hogwild->group.name, other->member,
                              what, hogwild->group.timeout_ms / 1e3);
        hogwild_break(hogwild, why);
        free(why);
    }
}

static struct shared_count *beats_of(const struct hogwild *hogwild, uint32_t member)
{
    return &hogwild->head->beats[member % HOGWILD_LEARNERS_MAX];
}

static uint64_t beat_in_memory(const struct hogwild *hogwild, const struct hogwild_other *other)
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
    hogwild->base.leads = generation->rank == 0;
    if (status == TRP_OK) {
        hogwild->shares = true;
        hogwild_note_others(hogwild, generation, generation->size);
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

/* Versions that this learner published before it joined are below those that follow. */
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
    hogwild_look_at_others(hogwild, beat_in_memory, "made no step");
    if (rendezvous->impl->newest(rendezvous) <= hogwild->generation)
        return TRP_OK;
    return enter_next(hogwild, 0, &generation);
}

static uint64_t hogwild_next_version(struct mode *mode, uint64_t version)
{
    struct hogwild *hogwild = (struct hogwild *)mode;
    if (hogwild->base.leads)
        hogwild_share_unlearned(hogwild);
    raise_count(&hogwild->head->versions, version);
    return atomic_fetch_add_explicit(&hogwild->head->versions.value, 1, memory_order_relaxed) + 1;
}

/* ---- its life -------------------------------------------------------------------------------- */

static trp_status check_optimizer(const struct vector *vector)
{
    const trp_optimizer *optimizer = &vector->spec->optimizer;
    bool known = optimizer->kind == TRP_RMSPROP || optimizer->kind == TRP_ADAM ||
                 (optimizer->kind == TRP_SGD && optimizer->momentum == 0);
    if (!vector->spec->learned || known)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT,
                    "hogwild: '%s' has the optimizer %s%s, must be rmsprop, adam, or sgd without "
                    "momentum",
                    vector->spec->name, trp_optimizer_name(optimizer->kind),
                    optimizer->kind == TRP_SGD ? " with momentum" : "");
}

static trp_status hogwild_check(const struct vectors *vectors)
{
    if (!vectors->is_host)
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "hogwild: the device %s is no host: its memory is not shared",
                        trp_device_name(vectors->device));
    for (size_t i = 0; i < vectors->count; i++)
        TRP_TRY(check_optimizer(&vectors->each[i]));
    return TRP_OK;
}

void hogwild_destroy(struct mode *mode)
{
    struct hogwild *hogwild = (struct hogwild *)mode;
    shared_memory_destroy(hogwild->memory);
    for (size_t i = 0; i < TRP_UPDATER_VECTORS_MAX; i++)
        free(hogwild->each[i].seen);
    trp_floats_destroy(hogwild->before);
    trp_floats_destroy(hogwild->after);
    for (size_t k = 0; k < TRP_OPTIMIZER_STATES_MAX; k++)
        trp_floats_destroy(hogwild->state[k]);
    free(hogwild);
}

static const struct mode_impl hogwild_impl = {.meet = hogwild_meet,
                                              .end = hogwild_end,
                                              .apply = hogwild_apply,
                                              .next_version = hogwild_next_version,
                                              .gather = hogwild_gather,
                                              .destroy = hogwild_destroy};

static void hogwild_take_room(struct hogwild *hogwild)
{
    hogwild->before = trp_floats_create(HOGWILD_BLOCK);
    hogwild->after = trp_floats_create(HOGWILD_BLOCK);
    for (size_t k = 0; k < TRP_OPTIMIZER_STATES_MAX; k++)
        hogwild->state[k] = trp_floats_create(HOGWILD_BLOCK);
    for (size_t i = 0; i < hogwild->base.vectors->count; i++)
        if (hogwild->each[i].changes)
            hogwild->each[i].seen =
                xcalloc(block_count(hogwild->base.vectors->each[i].spec->count), sizeof(uint32_t));
}

trp_status hogwild_create(struct mode **out, struct vectors *vectors,
                          const struct learners_options *group)
{
    *out = NULL;
    TRP_TRY(hogwild_check(vectors));
    struct hogwild *hogwild = xcalloc(1, sizeof *hogwild);
    hogwild->base = (struct mode){.impl = &hogwild_impl, .vectors = vectors, .leads = true};
    hogwild->group = *group;
    if (group->timeout_ms == 0)
        hogwild->group.timeout_ms = HOGWILD_SILENCE_MS;
    trp_status status =
        shared_memory_create(&hogwild->memory, layout_of(vectors), place_vectors(hogwild, NULL));
    if (status != TRP_OK) {
        hogwild_destroy(&hogwild->base);
        return status;
    }
    place_vectors(hogwild, shared_memory_at(hogwild->memory));
    hogwild_take_room(hogwild);
    *out = &hogwild->base;
    return TRP_OK;
}
