/* Reverb's unary calls, as streams of one message each way: they work over any channel. */
#ifndef TRP_REPLAY_CLIENT_UNARY_H
#define TRP_REPLAY_CLIENT_UNARY_H

#include <troupe/rpc.h>
#include <troupe/status.h>
#include <troupe/tensor.h>

/* Opens a call of the method `name` of ReverbService and sends `request` (takes it). 0: 30 s;
 * negative: no bound. */
trp_status unary_start(trp_stream **out, trp_channel *channel, const char *name,
                       trp_message *request, int64_t timeout_ms);

/* Waits up to `wait_ms` (0: a poll) for the end of the call. `*done` false: not yet (TRP_OK then).
 * Otherwise its status; `*reply`, if wanted, is the caller's to destroy, NULL unless TRP_OK. */
trp_status unary_finish(trp_stream *stream, int64_t wait_ms, bool *done, trp_message **reply);

/* Both. */
trp_status unary_call(trp_channel *channel, const char *name, trp_message *request,
                      int64_t timeout_ms, trp_message **reply);

/* Compares columns with the signature that `table` has. NOT_FOUND: there is no such table;
 * INVALID_ARGUMENT: the first column that differs. */
trp_status info_check_columns(trp_channel *channel, const char *table,
                              const trp_tensor_spec *columns, size_t count);

/* Calls `take` with name and signature (empty: none) of each table in a ServerInfoResponse, until
 * one fails. INVALID_ARGUMENT: malformed. */
trp_status info_each_table(trp_message *reply,
                           trp_status (*take)(void *arg, trp_bytes name, trp_bytes signature),
                           void *arg);

#endif
