/* Reverb's unary calls, as streams of one message each way: they work over any channel. */
#ifndef TRP_REPLAY_CLIENT_UNARY_H
#define TRP_REPLAY_CLIENT_UNARY_H

#include <troupe/rpc.h>
#include <troupe/sampler.h>
#include <troupe/status.h>
#include <troupe/tensor.h>
#include "core/protobuf.h"

/* Opens a call of the method `name` of ReverbService and sends `request` (takes it), all that it
 * will send. 0: 30 s; negative: no bound. */
trp_status unary_start(trp_stream **out, trp_channel *channel, const char *name,
                       trp_message *request, int64_t timeout_ms);

/* Waits up to `wait_ms` (0: a poll) for the end of the call. `*done` false: not yet (TRP_OK then).
 * Otherwise its status; `*reply`, if wanted, is the caller's to destroy, NULL unless TRP_OK. */
trp_status unary_finish(trp_stream *stream, int64_t wait_ms, bool *done, trp_message **reply);

/* Both. */
trp_status unary_call(trp_channel *channel, const char *name, trp_message *request,
                      int64_t timeout_ms, trp_message **reply);

/* One TableInfo; spans into the message. */
struct info_table {
    trp_bytes name, signature; /* empty: none */
    trp_table_info info;
};

/* The next table of a ServerInfoResponse; `*more` false: none. INVALID_ARGUMENT: malformed. */
trp_status info_next(struct reader *reader, struct info_table *table, bool *more);

/* Asks for the table `name`, whose spans are into `*reply`, the caller's to destroy. NOT_FOUND:
 * there is none. */
trp_status info_find(trp_channel *channel, const char *name, int64_t timeout_ms,
                     struct info_table *table, trp_message **reply);

/* Compares columns with the signature that table `name` has. NOT_FOUND: there is no such table;
 * INVALID_ARGUMENT: the first column that differs. */
trp_status info_check_columns(trp_channel *channel, const char *name,
                              const trp_tensor_spec *columns, size_t count);

/* ---- limiter_ask.c -------------------------------------------------------------------- */

enum { LIMITER_EXPLAIN_BYTES = 512 };

/* "; ..." into `text`: why `table` lets nobody insert (or sample) just now, by what its server says
 * within LIMITER_QUESTION_MS; "" when it says nothing or the limiter is not the reason. Changes no
 * last error. False: it is away. */
bool limiter_ask(trp_channel *channel, const char *table, bool sampling,
                 char text[LIMITER_EXPLAIN_BYTES]);

#endif
