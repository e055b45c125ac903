/* Optimizers as messages say them. What a learner does with its own gradients before it pushes
 * them, clipping and leaving out, is not in there. */
#ifndef TRP_LEARNER_SERVER_OPTIMIZER_MESSAGE_H
#define TRP_LEARNER_SERVER_OPTIMIZER_MESSAGE_H

#include <troupe/optimizer.h>
#include "parameter_server.pb-c.h"

Troupe__ServerOptimizer optimizer_message(const trp_optimizer *optimizer);
trp_optimizer optimizer_of(const Troupe__ServerOptimizer *message);

#endif
