/* The parameters of the best evaluations, as files of a directory that has nothing else: each
 * "return_RETURN_version_VERSION.safetensors". The directory is all there is: a resumed run
 * goes on with what it finds, and who moves a file away gets another one. */
#ifndef TRP_LAUNCH_BEST_H
#define TRP_LAUNCH_BEST_H

#include <troupe/params.h>

/* Writes the parameters of an evaluation if its mean return is among the `most` best of `dir`,
 * and removes what is not any more. Of equals the earlier one is kept. The directory is made when
 * there is something to keep. Fails as trp_params_write(). */
TRP_MUST_USE trp_status best_offer(const char *dir, uint32_t most, double mean,
                                   const trp_params_state *state, const trp_policy *policy);

#endif
