/* Samplers over several servers. */
#ifndef TRP_REPLAY_SAMPLER_SAMPLER_H
#define TRP_REPLAY_SAMPLER_SAMPLER_H

#include <stddef.h>

#include <troupe/rpc.h>
#include <troupe/sampler.h>
#include <troupe/status.h>

/* trp_sampler_create() over `servers` channels, which outlive it; the array does not. */
trp_status sampler_create(trp_sampler **out, trp_channel *const *channels, size_t servers,
                          const trp_sampler_options *options);

/* trp_priority_writer_create() over `servers` channels, which outlive it, as does the array. */
trp_status priority_writer_create(trp_priority_writer **out, trp_channel *const *channels,
                                  size_t servers, const char *table, uint32_t window);

#endif
