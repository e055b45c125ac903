/* Where memory that processes of one host share lies, as messages say it. */
#ifndef TRP_RPC_SHARED_PARAMS_H
#define TRP_RPC_SHARED_PARAMS_H

#include "core/sealed.h"
#include "params.pb-c.h"

/* The message refers to the place's nonce. */
void shared_params_put(Troupe__SharedParams *message, const struct sealed_place *place);

/* FAILED_PRECONDITION: it says none. */
TRP_MUST_USE trp_status shared_params_take(const Troupe__SharedParams *message,
                                           struct sealed_place *place);

#endif
