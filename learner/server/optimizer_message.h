/* Optimizers as messages say them. What a learner does with its own gradients before it pushes
 * them, clipping and leaving out, is not in there. */
#ifndef TRP_LEARNER_SERVER_OPTIMIZER_MESSAGE_H
#define TRP_LEARNER_SERVER_OPTIMIZER_MESSAGE_H

#include <stdbool.h>

#include <troupe/optimizer.h>
#include "parameter_server.pb-c.h"

Troupe__ServerOptimizer optimizer_message(const trp_optimizer *optimizer);
trp_optimizer optimizer_of(const Troupe__ServerOptimizer *message);

/* The message's fields by their numbers in the .proto, for a file. INVALID_ARGUMENT names the field
 * that cannot be its number. */
enum { OPTIMIZER_NUMBERS = 15 };
void optimizer_numbers(const trp_optimizer *optimizer, double numbers[OPTIMIZER_NUMBERS]);
TRP_MUST_USE trp_status optimizer_of_numbers(const double numbers[OPTIMIZER_NUMBERS],
                                             trp_optimizer *optimizer);

enum { OPTIMIZER_NUMBER_BYTES = 32 };

/* The first field in which two differ, and what each has in it. */
struct optimizer_difference {
    const char *field; /* "learning_rate" */
    char a[OPTIMIZER_NUMBER_BYTES], b[OPTIMIZER_NUMBER_BYTES];
};

/* False: they are the same. */
bool optimizer_messages_differ(const Troupe__ServerOptimizer *a, const Troupe__ServerOptimizer *b,
                               struct optimizer_difference *difference);

#endif
