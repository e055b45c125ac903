/* What an environment says beside rewards, as numbers of finished episodes. */
#ifndef TRP_ACTOR_INFOS_H
#define TRP_ACTOR_INFOS_H

#include <troupe/env.h>
#include <troupe/metric.h>

struct infos {
    const trp_env_spec *spec; /* of the environment, borrowed */
    size_t count;             /* 0: it says nothing, and nothing here costs anything */
    struct info *running;     /* count for each copy: of its episode so far */
    double shown[TRP_INFOS_MAX];
};

void infos_prepare(struct infos *infos, const trp_env *env);
void infos_cleanup(struct infos *infos);

/* Adds what the last step of one copy said; `last`: its episode ended. */
void infos_add(struct infos *infos, const trp_env *env, uint32_t copy, bool last);

/* Returns how many: those that an episode has had. */
size_t infos_metrics(const struct infos *infos, trp_metric *metrics);

#endif
