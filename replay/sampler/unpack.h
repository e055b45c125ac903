/* Samples out of SampleStream's messages into the columns of a batch. One thread. */
#ifndef TRP_REPLAY_SAMPLER_UNPACK_H
#define TRP_REPLAY_SAMPLER_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/rpc.h>
#include <troupe/sampler.h>
#include <troupe/status.h>
#include <troupe/tensor.h>
#include "core/batch.h"

struct unpacker;

/* An item has to have these columns, which are copied. */
struct unpacker *unpacker_create(const trp_tensor_spec *columns, size_t column_count);
void unpacker_destroy(struct unpacker *unpacker); /* NULL is fine */

/* Takes the next message, in parts or not; the one before is used up. RESOURCE_EXHAUSTED: a sample
 * beyond SAMPLE_BYTES_MAX. */
trp_status unpacker_feed(struct unpacker *unpacker, trp_message *message);

struct shared_header;
struct shared_view;

/* Takes the next message of SampleShared, whose pages are read through `view`; the one before is
 * used up. Also what the message begins with. INVALID_ARGUMENT: malformed. */
trp_status unpacker_feed_shared(struct unpacker *unpacker, trp_message *message,
                                struct shared_view *view, struct shared_header *header);

/* True when a message of SampleShared was taken and nothing is left of it. */
bool unpacker_used_up(const struct unpacker *unpacker);

/* True when unpacker_fill() failed because bytes that the server named are not what their sum says;
 * `*key` is the item's. */
bool unpacker_damaged(const struct unpacker *unpacker, uint64_t *key);

/* Appends samples of the message to `batch` until it is full or the message is used up.
 * INVALID_ARGUMENT: malformed, out of order, or the column that was asked for in another form;
 * DATA_LOSS: broken bytes; ABORTED: the lease on its pages was revoked, `batch` is as before. */
trp_status unpacker_fill(struct unpacker *unpacker, struct batch *batch);

/* Forgets the message and the sample that had begun. */
void unpacker_reset(struct unpacker *unpacker);

#endif
