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

#include <stdlib.h>
#include <string.h>

#include <troupe/nn.h>
#include "core/alloc.h"
#include "core/hash.h"

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

size_t hogwild_place(struct hogwild *hogwild, uint8_t *memory)
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

uint64_t hogwild_layout(const struct vectors *vectors)
{
    uint64_t hash = HASH_BYTES_EMPTY;
    for (size_t i = 0; i < vectors->count; i++) {
        const trp_vector_spec *spec = vectors->each[i].spec;
        hash = vector_hash(hash, spec);
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

void hogwild_take_room(struct hogwild *hogwild)
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

void hogwild_drop_room(struct hogwild *hogwild)
{
    for (size_t i = 0; i < TRP_UPDATER_VECTORS_MAX; i++)
        free(hogwild->each[i].seen);
    trp_floats_destroy(hogwild->before);
    trp_floats_destroy(hogwild->after);
    for (size_t k = 0; k < TRP_OPTIMIZER_STATES_MAX; k++)
        trp_floats_destroy(hogwild->state[k]);
}
