/* A replay server for tests of adders. */
#ifndef TRP_TESTS_ACTOR_TABLE_SERVER_H
#define TRP_TESTS_ACTOR_TABLE_SERVER_H

#include <stdlib.h>
#include <string.h>

#include <troupe/columns.h>
#include <troupe/replay.h>
#include "core/alloc.h"

/* A real server with one table, "t". */
struct table_server {
    char dir[32];
    trp_replay_server *server;
    trp_channel *channel;
};

/* `queue`: every item is sampled once, in order; `room` items at a time, 0: any number. `columns`
 * are the table's signature; NULL: none. */
static void table_server_start_with_room(struct table_server *at, bool queue, int64_t room,
                                         const trp_columns *columns)
{
    strcpy(at->dir, "/tmp/troupe-adder-XXXXXX");
    assert_non_null(mkdtemp(at->dir));
    trp_table_options table = {.name = "t",
                               .sampler = {.kind = queue ? TRP_FIFO : TRP_UNIFORM},
                               .max_size = 100000,
                               .max_times_sampled = queue ? 1 : 0};
    if (room > 0)
        table.limiter = trp_limiter_queue(room);
    if (columns)
        assert_int_equal(trp_signature_encode(columns->specs, columns->count, &table.signature),
                         TRP_OK);
    trp_replay_server_options options = {.dir = at->dir, .tables = &table, .table_count = 1};
    assert_int_equal(trp_replay_server_create(&at->server, &options), TRP_OK);
    free((void *)(uintptr_t)table.signature.data);
    at->channel = trp_channel_create_local(trp_replay_server_rpc(at->server));
}

static inline void table_server_start(struct table_server *at, bool queue,
                                      const trp_columns *columns)
{
    table_server_start_with_room(at, queue, 0, columns);
}

static void table_server_end(struct table_server *at)
{
    trp_channel_destroy(at->channel);
    trp_replay_server_destroy(at->server);
    char *remove = xasprintf("rm -r %s", at->dir);
    assert_int_equal(system(remove), 0);
    free(remove);
}

#endif
