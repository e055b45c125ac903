#include "vectors.h"

#include <stdlib.h>
#include <string.h>

#include <troupe/nn.h>
#include "core/alloc.h"
#include "core/hash.h"
#include "learner/server/shared_values.h"

static trp_status vector_prepare(struct vector *vector, const trp_vector_spec *spec,
                                 trp_device *device)
{
    size_t bytes = spec->count * sizeof(float);
    vector->spec = spec;
    TRP_TRY(twin_create(&vector->values, device, bytes));
    if (!spec->learned)
        return TRP_OK;
    bool params = strcmp(spec->name, "params") == 0;
    vector->steps_name = xasprintf("%s.steps", spec->name);
    vector->norm_name = params ? xstrdup("grad_norm") : xasprintf("%s_grad_norm", spec->name);
    TRP_TRY(twin_create(&vector->phases, device, sizeof(trp_phases)));
    for (size_t i = 0; i < trp_optimizer_states(&spec->optimizer); i++) {
        vector->state_names[i] =
            xasprintf("%s.%s", spec->name, trp_optimizer_state_name(&spec->optimizer, i));
        TRP_TRY(twin_create(&vector->state[i], device, bytes));
    }
    void *grads;
    TRP_TRY(trp_device_alloc(device, TWIN_HEAD_BYTES + bytes, &grads));
    vector->grads = (float *)((char *)grads + TWIN_HEAD_BYTES);
    return TRP_OK;
}

static void free_grads(struct vector *vector, trp_device *device)
{
    if (vector->grads && !vector->shared.memory)
        trp_device_free(device, (char *)vector->grads - TWIN_HEAD_BYTES);
    sealed_cleanup(&vector->shared);
    vector->grads = NULL;
}

static void vector_cleanup(struct vector *vector, trp_device *device)
{
    twin_destroy(&vector->values);
    twin_destroy(&vector->phases);
    free(vector->steps_name);
    free(vector->norm_name);
    for (size_t i = 0; i < TRP_OPTIMIZER_STATES_MAX; i++) {
        twin_destroy(&vector->state[i]);
        free(vector->state_names[i]);
        free(vector->whole[i]);
    }
    free_grads(vector, device);
}

void vector_share_grads(const struct vectors *vectors, struct vector *vector)
{
    struct sealed shared;
    size_t bytes = shared_values_bytes(vector->spec->count);
    if (sealed_create(&shared, "troupe-gradients", bytes) != TRP_OK)
        return;
    free_grads(vector, vectors->device);
    vector->shared = shared;
    vector->grads = ((struct shared_values *)(void *)shared.memory)->numbers;
}

trp_status vectors_create(struct vectors *vectors, trp_device *device, trp_queue *queue,
                          const trp_vector_spec *specs, size_t count)
{
    *vectors =
        (struct vectors){.device = device, .is_host = trp_device_is_host(device), .queue = queue};
    for (; vectors->count < count; vectors->count++)
        TRP_TRY(vector_prepare(&vectors->each[vectors->count], &specs[vectors->count], device));
    return TRP_OK;
}

void vectors_cleanup(struct vectors *vectors)
{
    for (size_t i = 0; i < TRP_UPDATER_VECTORS_MAX; i++) /* the last one may be half made */
        vector_cleanup(&vectors->each[i], vectors->device);
}

static void fetch_all(const struct twin *twin, trp_queue *queue)
{
    twin_fetch(twin, queue, 0, twin->bytes);
}

static void each_twin(const struct vectors *vectors,
                      void (*move)(const struct twin *twin, trp_queue *queue))
{
    for (size_t i = 0; i < vectors->count; i++) {
        const struct vector *vector = &vectors->each[i];
        move(&vector->values, vectors->queue);
        if (!vector->spec->learned)
            continue;
        move(&vector->phases, vectors->queue);
        for (size_t k = 0; k < trp_optimizer_states(&vector->spec->optimizer); k++)
            move(&vector->state[k], vectors->queue);
    }
}

trp_status vectors_fetch(const struct vectors *vectors)
{
    each_twin(vectors, fetch_all);
    return trp_queue_sync(vectors->queue, trp_queue_mark(vectors->queue));
}

trp_status vectors_store(const struct vectors *vectors)
{
    each_twin(vectors, twin_store);
    return trp_queue_sync(vectors->queue, trp_queue_mark(vectors->queue));
}

void vector_step(const struct vectors *vectors, const struct vector *vector)
{
    const trp_vector_spec *spec = vector->spec;
    float *values = vector->values.there, *state[TRP_OPTIMIZER_STATES_MAX];
    trp_phases *phases = vector->phases.there;
    for (size_t i = 0; i < TRP_OPTIMIZER_STATES_MAX; i++)
        state[i] = vector->state[i].there;
    if (!trp_optimizer_is_layerwise(&spec->optimizer))
        trp_phase_step(vectors->queue, &spec->optimizer, values, vector->grads, state, 0,
                       spec->count, phases);
    else
        for (size_t i = 0; i < spec->tensor_count; i++)
            trp_phase_step(vectors->queue, &spec->optimizer, values, vector->grads, state,
                           spec->tensors[i].offset,
                           spec->tensors[i].offset + spec->tensors[i].count, phases);
}

uint64_t vector_hash(uint64_t hash, const trp_vector_spec *spec)
{
    char *layout = trp_net_layout(spec->tensors, spec->tensor_count, 0);
    hash = hash_bytes(hash, spec->name, strlen(spec->name) + 1);
    hash = hash_bytes(hash, &spec->count, sizeof spec->count);
    hash = hash_bytes(hash, layout, strlen(layout) + 1);
    free(layout);
    return hash;
}

void vectors_make_whole(struct vectors *vectors)
{
    for (size_t i = 0; i < vectors->count; i++)
        for (size_t k = 0; k < vector_states(&vectors->each[i]); k++)
            if (!vectors->each[i].whole[k])
                vectors->each[i].whole[k] = xcalloc(vectors->each[i].spec->count, sizeof(float));
}

void vectors_drop_whole(struct vectors *vectors)
{
    for (size_t i = 0; i < vectors->count; i++)
        for (size_t k = 0; k < TRP_OPTIMIZER_STATES_MAX; k++) {
            free(vectors->each[i].whole[k]);
            vectors->each[i].whole[k] = NULL;
        }
}

bool vectors_are_whole(const struct vectors *vectors)
{
    for (size_t i = 0; i < vectors->count; i++)
        for (size_t k = 0; k < vector_states(&vectors->each[i]); k++)
            if (!vectors->each[i].whole[k])
                return false;
    return true;
}
