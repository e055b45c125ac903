#include "box.h"

#include <float.h>
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
        bool differ = high / 2 - low / 2 >= FLT_MIN; /* smaller numbers are flushed to 0 */
        if (!isfinite(low) || !isfinite(high) || !differ)
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

void box_stretch(const struct box *box, uint32_t rows, float *actions)
{
    for (size_t k = 0; k < (size_t)rows * box->size; k++) {
        size_t i = k % box->size;
        float action = box_middle(box, i) + box_half(box, i) * actions[k];
        actions[k] = fminf(fmaxf(action, box->low[i]), box->high[i]);
    }
}

void box_shrink_on(trp_queue *queue, const struct box *box, uint32_t rows, const float *actions,
                   float *shrunk)
{
    static const trp_kernel kernel = {.name = "box.shrink", .run = shrink_run};
    struct shrink_arguments job = {*box, rows, actions, shrunk};
    size_t row = box->size * sizeof(float);
    trp_operand operands[] = {{offsetof(struct shrink_arguments, box.low), row, TRP_READ},
                              {offsetof(struct shrink_arguments, box.high), row, TRP_READ},
                              {offsetof(struct shrink_arguments, actions), rows * row, TRP_READ},
                              {offsetof(struct shrink_arguments, shrunk), rows * row, TRP_WRITE}};
    trp_queue_run(queue, &kernel, &job, sizeof job, operands, sizeof operands / sizeof *operands);
}
