/* Compares a writer's items with their tables' signatures before anything is sent. One thread. */
#ifndef TRP_REPLAY_WRITER_ITEM_CHECK_H
#define TRP_REPLAY_WRITER_ITEM_CHECK_H

#include <stddef.h>

#include <troupe/rpc.h>
#include <troupe/status.h>
#include <troupe/tensor.h>
#include <troupe/writer.h>

struct item_check;

/* `steps` are the columns of a step; both are borrowed. */
struct item_check *item_check_create(trp_channel *channel, const trp_tensor_spec *steps);
void item_check_destroy(struct item_check *check); /* NULL is fine */

/* INVALID_ARGUMENT: the column that `table`'s signature has otherwise; NOT_FOUND: the server knows
 * no such table. The first item of a table waits for the server's answer up to `timeout_ms` and
 * SIGNATURE_WAIT_MS; while there is none, nothing is wrong. */
trp_status item_check(struct item_check *check, const char *table, const trp_item_column *columns,
                      size_t column_count, int64_t timeout_ms);

#endif
