#include "infos.h"

#include <math.h>
#include <stdlib.h>

#include "core/alloc.h"

struct info {
    double last, sum;
    uint64_t count;
};

void infos_prepare(struct infos *infos, const trp_env *env)
{
    infos->spec = trp_env_get_spec(env);
    infos->count = trp_env_info_count(infos->spec);
    infos->running = xcalloc(trp_env_count(env) * infos->count + 1, sizeof *infos->running);
    for (size_t i = 0; i < infos->count; i++)
        infos->shown[i] = NAN;
}

void infos_cleanup(struct infos *infos)
{
    free(infos->running);
}

void infos_add(struct infos *infos, const trp_env *env, uint32_t copy, bool last)
{
    for (size_t i = 0; i < infos->count; i++) {
        double value = trp_env_infos(env)[copy * infos->count + i];
        struct info *info = &infos->running[copy * infos->count + i];
        if (!isnan(value)) {
            info->last = value;
            info->sum += value;
            info->count++;
        }
        if (!last)
            continue;
        if (info->count > 0)
            infos->shown[i] = infos->spec->infos[i].kind == TRP_INFO_LAST
                                  ? info->last
                                  : info->sum / (double)info->count;
        *info = (struct info){0};
    }
}

size_t infos_metrics(const struct infos *infos, trp_metric *metrics)
{
    size_t count = 0;
    for (size_t i = 0; i < infos->count; i++)
        if (!isnan(infos->shown[i]))
            metrics[count++] = (trp_metric){infos->spec->infos[i].name, infos->shown[i]};
    return count;
}
