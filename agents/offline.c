#include "offline.h"

struct control_agent offline_parts(const struct offline *offline)
{
    struct torso_hidden hidden = {.hidden = offline->hidden, .activation = offline->activation};
    return (struct control_agent){.control = {.who = offline->who,
                                              .kind = CONTROL_GAUSSIAN,
                                              .hidden = hidden,
                                              .precision = offline->precision},
                                  .critics = {.who = offline->who,
                                              .count = offline->critics,
                                              .outputs = 1,
                                              .hidden = hidden,
                                              .precision = offline->precision},
                                  .transitions = {.n_step = 1,
                                                  .discount = offline->discount,
                                                  .replayed = {.size = 1000000, .min_size = 1}}};
}
