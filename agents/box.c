#include "box.h"

#include <math.h>
#include <stddef.h>

trp_status box_check(const char *who, const trp_env_spec *env)
{
    static const char *const kinds[] = {[TRP_ACTION_DISCRETE] = "one choice for an action",
                                        [TRP_ACTION_MULTI_DISCRETE] =
                                            "choices in several dimensions",
                                        [TRP_ACTION_MULTI_BINARY] = "bits for actions"};
    if (env->action_kind != TRP_ACTION_BOX)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: %s has %s, needs numbers", who, env->name,
                        kinds[env->action_kind]);
    for (int32_t i = 0; i < env->action_count; i++) {
        float low = env->action_low[i], high = env->action_high[i];
        if (!isfinite(low) || !isfinite(high) || !(low < high))
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "%s: number %d of an action of %s lies in [%g, %g], needs finite "
                            "bounds that differ",
                            who, (int)i, env->name, (double)low, (double)high);
    }
    return TRP_OK;
}

struct box box_of(const trp_env_spec *env)
{
    return (struct box){(uint32_t)env->action_count, env->action_low, env->action_high};
}

void box_draw(const struct box *box, trp_rng *rng, uint32_t rows, float *actions)
{
    for (size_t i = 0; i < (size_t)rows * box->size; i++)
        actions[i] = (float)(2 * trp_rng_double(rng) - 1);
    box_stretch(box, rows, actions);
}

/* The bounds may be as far apart as floats are. */
static float half_of(const struct box *box, size_t i)
{
    return box->high[i] / 2 - box->low[i] / 2;
}

static float middle_of(const struct box *box, size_t i)
{
    return box->high[i] / 2 + box->low[i] / 2;
}

void box_stretch(const struct box *box, uint32_t rows, float *actions)
{
    for (size_t k = 0; k < (size_t)rows * box->size; k++) {
        size_t i = k % box->size;
        float action = middle_of(box, i) + half_of(box, i) * actions[k];
        actions[k] = fminf(fmaxf(action, box->low[i]), box->high[i]);
    }
}

struct shrink_job {
    struct box box;
    uint32_t rows;
    const float *actions;
    float *shrunk;
};

/* A NaN stays one: what is learned from it says so. */
static float within(float action, float least, float most)
{
    return action < least ? least : action > most ? most : action;
}

static void shrink(void *arguments)
{
    const struct shrink_job *job = arguments;
    const struct box *box = &job->box;
    for (size_t k = 0; k < (size_t)job->rows * box->size; k++) {
        size_t i = k % box->size;
        float action = within(job->actions[k], box->low[i], box->high[i]);
        job->shrunk[k] = within((action - middle_of(box, i)) / half_of(box, i), -1, 1);
    }
}

void box_shrink_on(trp_queue *queue, const struct box *box, uint32_t rows, const float *actions,
                   float *shrunk)
{
    static const trp_kernel kernel = {"box.shrink", shrink};
    struct shrink_job job = {*box, rows, actions, shrunk};
    size_t row = box->size * sizeof(float);
    trp_operand operands[] = {{offsetof(struct shrink_job, box.low), row, TRP_READ},
                              {offsetof(struct shrink_job, box.high), row, TRP_READ},
                              {offsetof(struct shrink_job, actions), rows * row, TRP_READ},
                              {offsetof(struct shrink_job, shrunk), rows * row, TRP_WRITE}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, sizeof operands / sizeof *operands);
}
