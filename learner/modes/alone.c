/* One learner: the mean is the gradient itself, and there is nobody to begin with before it is
 * whole. A gradient is made 0 where it was applied, while it is still in the cache. */
#include "mode.h"

#include <stdlib.h>

#include "core/alloc.h"

trp_status alone_apply(struct mode *mode, size_t index)
{
    const struct vectors *vectors = mode->vectors;
    const struct vector *vector = &mode->vectors->each[index];
    size_t count = vector->spec->count;
    trp_phases *phases = vector->phases.there;
    trp_phase_measure(vectors->queue, &vector->spec->optimizer, vector->grads, count,
                      vector->watched, phases);
    vector_step(vectors, vector);
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
    *mode = (struct mode){.impl = &alone_impl, .vectors = vectors, .leads = true};
    return mode;
}
