#include "optimizer_message.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* ---- as numbers ---------------------------------------------------------------------------- */

static double number_of_field(const Troupe__ServerOptimizer *message,
                              const ProtobufCFieldDescriptor *field)
{
    const void *at = (const uint8_t *)message + field->offset;
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT32:
        return *(const uint32_t *)at;
    case PROTOBUF_C_TYPE_UINT64:
        return (double)*(const uint64_t *)at;
    case PROTOBUF_C_TYPE_BOOL:
        return *(const protobuf_c_boolean *)at;
    default:
        return *(const double *)at;
    }
}

/* Of a file, where all are doubles. */
static bool field_has(const ProtobufCFieldDescriptor *field, double number)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT32:
        return number >= 0 && number <= UINT32_MAX && number == trunc(number);
    case PROTOBUF_C_TYPE_UINT64:
        return number >= 0 && number < 0x1p64 && number == trunc(number);
    case PROTOBUF_C_TYPE_BOOL:
        return number == 0 || number == 1;
    default:
        return true;
    }
}

static void set_field(Troupe__ServerOptimizer *message, const ProtobufCFieldDescriptor *field,
                      double number)
{
    void *at = (uint8_t *)message + field->offset;
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT32:
        *(uint32_t *)at = (uint32_t)number;
        break;
    case PROTOBUF_C_TYPE_UINT64:
        *(uint64_t *)at = (uint64_t)number;
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)at = number != 0;
        break;
    default:
        *(double *)at = number;
    }
}

/* By the field's number in the .proto, which it keeps whatever comes before it there. */
static size_t place_of_field(const ProtobufCFieldDescriptor *field)
{
    assert(field->id <= OPTIMIZER_NUMBERS);
    return field->id - 1;
}

void optimizer_numbers(const trp_optimizer *optimizer, double numbers[OPTIMIZER_NUMBERS])
{
    const ProtobufCMessageDescriptor *all = &troupe__server_optimizer__descriptor;
    const Troupe__ServerOptimizer message = optimizer_message(optimizer);
    assert(all->n_fields == OPTIMIZER_NUMBERS);
    for (unsigned i = 0; i < all->n_fields; i++)
        numbers[place_of_field(&all->fields[i])] = number_of_field(&message, &all->fields[i]);
}

trp_status optimizer_of_numbers(const double numbers[OPTIMIZER_NUMBERS], trp_optimizer *optimizer)
{
    const ProtobufCMessageDescriptor *all = &troupe__server_optimizer__descriptor;
    Troupe__ServerOptimizer message = TROUPE__SERVER_OPTIMIZER__INIT;
    for (unsigned i = 0; i < all->n_fields; i++) {
        double number = numbers[place_of_field(&all->fields[i])];
        if (!field_has(&all->fields[i], number))
            return trp_fail(TRP_INVALID_ARGUMENT, "the optimizer's %s is %g, which is no such",
                            all->fields[i].name, number);
        set_field(&message, &all->fields[i], number);
    }
    *optimizer = optimizer_of(&message);
    return TRP_OK;
}

/* ---- what two differ in -------------------------------------------------------------------- */

static void put_number(const ProtobufCFieldDescriptor *field, double number,
                       char words[OPTIMIZER_NUMBER_BYTES])
{
    bool is_kind = strcmp(field->name, "kind") == 0 && number < TRP_OPTIMIZER_KINDS;
    if (is_kind)
        snprintf(words, OPTIMIZER_NUMBER_BYTES, "%s",
                 trp_optimizer_name((trp_optimizer_kind)number));
    else
        snprintf(words, OPTIMIZER_NUMBER_BYTES, "%.9g", number);
}

bool optimizer_messages_differ(const Troupe__ServerOptimizer *a, const Troupe__ServerOptimizer *b,
                               struct optimizer_difference *difference)
{
    const ProtobufCMessageDescriptor *all = &troupe__server_optimizer__descriptor;
    for (unsigned i = 0; i < all->n_fields; i++) {
        double of_a = number_of_field(a, &all->fields[i]);
        double of_b = number_of_field(b, &all->fields[i]);
        if (memcmp(&of_a, &of_b, sizeof of_a) == 0)
            continue;
        difference->field = all->fields[i].name;
        put_number(&all->fields[i], of_a, difference->a);
        put_number(&all->fields[i], of_b, difference->b);
        return true;
    }
    return false;
}
