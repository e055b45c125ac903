#include "options.h"

#include <stdlib.h>

#include <troupe/optimizer.h>
#include "core/words.h"

const char *const option_networks[] = {"auto", "mlp", "nature", "impala", NULL};
const char *const option_activations[] = {"none",     "relu", "tanh", "sigmoid",   "elu",
                                          "softplus", "silu", "gelu", "gelu_tanh", NULL};
const char *const option_cores[] = {"none", "lstm", "gru", NULL};
const char *const option_precisions[] = {"f32", "bf16", "tf32", NULL};
const char *const option_optimizers[] = {"adam", "adamw",   "sgd", "rmsprop",
                                         "lamb", "adagrad", NULL};
const char *const option_schedules[] = {"constant", "linear", "cosine", NULL};
_Static_assert(sizeof option_optimizers / sizeof *option_optimizers == TRP_OPTIMIZER_KINDS + 1,
               "every optimizer has a word");

double option_decimal(float value)
{
    char text[DECIMAL_BYTES];
    return strtod(float_decimal(value, text), NULL);
}

double option_itself(double value)
{
    return value == 0 ? -1 : value;
}
