#include "optimizer_message.h"

Troupe__ServerOptimizer optimizer_message(const trp_optimizer *from)
{
    Troupe__ServerOptimizer to = TROUPE__SERVER_OPTIMIZER__INIT;
    to.kind = (uint32_t)from->kind;
    to.schedule = (uint32_t)from->schedule;
    to.learning_rate = from->learning_rate;
    to.final_rate = from->final_rate;
    to.schedule_steps = from->schedule_steps;
    to.warmup_steps = from->warmup_steps;
    to.weight_decay = from->weight_decay;
    to.beta1 = from->beta1;
    to.beta2 = from->beta2;
    to.alpha = from->alpha;
    to.epsilon = from->epsilon;
    to.momentum = from->momentum;
    to.nesterov = from->nesterov;
    to.centered = from->centered;
    to.epsilon_inside = from->epsilon_inside;
    return to;
}

trp_optimizer optimizer_of(const Troupe__ServerOptimizer *from)
{
    return (trp_optimizer){.kind = (trp_optimizer_kind)from->kind,
                           .schedule = (trp_rate_schedule)from->schedule,
                           .learning_rate = from->learning_rate,
                           .final_rate = from->final_rate,
                           .schedule_steps = from->schedule_steps,
                           .warmup_steps = from->warmup_steps,
                           .weight_decay = from->weight_decay,
                           .beta1 = from->beta1,
                           .beta2 = from->beta2,
                           .alpha = from->alpha,
                           .epsilon = from->epsilon,
                           .momentum = from->momentum,
                           .nesterov = from->nesterov,
                           .centered = from->centered,
                           .epsilon_inside = from->epsilon_inside};
}
