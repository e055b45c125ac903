/* One learner: the mean is the gradient itself, and there is nobody to begin with before it is
 * whole. A gradient is made 0 where it was applied, while it is still in the cache. */
#include "mode.h"

#include <stdlib.h>

#include "core/alloc.h"

static void alone_step(const struct vectors *vectors, struct vector *vector)
{
    const trp_vector_spec *spec = vector->spec;
    float *values = vector->values.there, *state[TRP_OPTIMIZER_STATES_MAX];
    const trp_phases *phases = vector->phases.there;
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

static trp_status alone_apply(struct mode *mode, size_t index)
{
    const struct vectors *vectors = mode->vectors;
    struct vector *vector = &mode->vectors->each[index];
    size_t count = vector->spec->count;
    trp_phases *phases = vector->phases.there;
    trp_phase_measure(vectors->queue, &vector->spec->optimizer, vector->grads, count,
                      vector->watched, phases);
    alone_step(vectors, vector);
    trp_phase_end(vectors->queue, vector->grads, count, phases);
    return TRP_OK;
}

static void alone_destroy(struct mode *mode)
{
    free(mode);
}

static const struct mode_impl alone_impl = {.apply = alone_apply, .destroy = alone_destroy};

struct mode *alone_create(struct vectors *vectors)
{
    struct mode *mode = xcalloc(1, sizeof *mode);
    *mode = (struct mode){.impl = &alone_impl, .vectors = vectors};
    return mode;
}
