/* A replay server and who inserts, for samplers on the server's host: one table `t`, items whose
 * bytes follow from their seeds, a short lease, and a look at the words of the leases. */
#ifndef TEST_HOST_FIXTURE_H
#define TEST_HOST_FIXTURE_H

#include "replay_fixture.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include <troupe/sampler.h>
#include <troupe/writer.h>
#include "core/clock.h"
#include "core/thread.h"
#include "replay/client/shared_view.h"
#include "replay/wire/limits.h"

enum {
    FRAME_BYTES = 9000, /* two pages and a rest */
    TEXT_BYTES = 30000, /* compresses to a tenth */
    BATCH = 16,
    TABLE_ITEMS = 64,
    DEADLINE_MS = 20000,
    LEASE_MS = 50,
    HOST_COLUMNS_MAX = 4,
};

struct host {
    struct replay replay;
    trp_channel *remote;
    const trp_tensor_spec *columns;
    uint32_t column_count, steps; /* of an item; 1: squeezed */
    int64_t lease_ms;             /* 0: LEASE_MS */
    int64_t seed;                 /* of the last step */
    trp_writer *writer;
    _Atomic uint64_t *leases;
};

/* What a step has in a column: its seed in integers, text where the name begins with t, noise. */
static inline void column_fill(const trp_tensor_spec *column, void *out, int64_t seed)
{
    size_t size = trp_tensor_bytes(column);
    uint8_t *bytes = out;
    if (column->dtype == TRP_INT64)
        memcpy(bytes, &seed, sizeof seed);
    else if (column->name[0] != 't')
        fixture_fill(bytes, size, (uint64_t)seed << 20);
    else
        for (size_t at = 0; at < size; at += 40)
            if (at % 400 == 0)
                fixture_fill(bytes + at, 40, (uint64_t)seed);
            else
                memcpy(bytes + at, bytes + at - 40, 40);
}

/* Opens the server, again after it was closed; `table` is the rest of its line. */
static inline void host_open(struct host *host, const char *table,
                             trp_replay_server_options options)
{
    char *line = xasprintf("name=t max_size=%d %s", TABLE_ITEMS, table);
    trp_table_options *parsed;
    assert_int_equal(trp_table_options_parse(line, &parsed), TRP_OK);
    free(line);
    options.dir = host->replay.dir;
    options.tables = parsed;
    options.table_count = 1;
    options.lease_ms = host->lease_ms ? host->lease_ms : LEASE_MS;
    assert_int_equal(trp_replay_server_create(&host->replay.server, &options), TRP_OK);
    assert_int_equal(trp_replay_server_start(host->replay.server), TRP_OK);
    trp_table_options_destroy(parsed);
    trp_server *rpc = trp_replay_server_rpc(host->replay.server);
    host->replay.channel = trp_channel_create_local(rpc);
    assert_int_equal(trp_channel_create(&host->remote, trp_server_address(rpc), NULL), TRP_OK);
    assert_int_equal(trp_writer_create(&host->writer, host->replay.channel,
                                       &(trp_writer_options){.columns = host->columns,
                                                             .column_count = host->column_count,
                                                             .history = host->steps,
                                                             .batch_items = 8}),
                     TRP_OK);
    trp_writer_set_policy_version(host->writer, 7);
    char *path = fixture_path(host->replay.dir, "LEASES");
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    host->leases = mmap(NULL, SHARED_LEASES_MAX * 8, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(host->leases != MAP_FAILED);
    close(fd);
    free(path);
}

static inline void host_close(struct host *host)
{
    trp_writer_destroy(host->writer);
    trp_channel_destroy(host->remote);
    replay_close(&host->replay);
}

static inline int host_setup(void **state)
{
    struct host *host = xcalloc(1, sizeof *host);
    host->replay.dir = fixture_dir("/tmp");
    *state = host;
    return 0;
}

static inline int host_teardown(void **state)
{
    struct host *host = *state;
    host_close(host);
    if (host->leases)
        munmap((void *)host->leases, SHARED_LEASES_MAX * 8);
    fixture_remove(host->replay.dir);
    free(host);
    return 0;
}

static inline void insert(struct host *host, uint32_t count)
{
    trp_item_column item[HOST_COLUMNS_MAX];
    void *step[HOST_COLUMNS_MAX];
    for (uint32_t c = 0; c < host->column_count; c++) {
        item[c] = (trp_item_column){.column = c,
                                    .age = host->steps - 1,
                                    .length = host->steps,
                                    .squeeze = host->steps == 1};
        step[c] = xmalloc(trp_tensor_bytes(&host->columns[c]));
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t s = 0; s < host->steps; s++) {
            host->seed++;
            for (uint32_t c = 0; c < host->column_count; c++)
                column_fill(&host->columns[c], step[c], host->seed);
            assert_int_equal(trp_writer_append(host->writer, (const void *const *)step), TRP_OK);
        }
        assert_int_equal(trp_writer_create_item(host->writer, "t", 1, item, host->column_count,
                                                DEADLINE_MS, NULL),
                         TRP_OK);
    }
    assert_int_equal(trp_writer_flush(host->writer, 0, DEADLINE_MS), TRP_OK);
    for (uint32_t c = 0; c < host->column_count; c++)
        free(step[c]);
}

static inline uint32_t leases(const struct host *host)
{
    uint32_t count = 0;
    for (size_t i = 0; i < SHARED_LEASES_MAX; i++)
        count += atomic_load(&host->leases[i]) != 0;
    return count;
}

static inline void recycle_until_leases(struct host *host, uint32_t count)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, DEADLINE_MS);
    while (leases(host) != count) {
        assert_false(deadline_passed(deadline, &clock_monotonic));
        insert(host, 8);
    }
}

#endif
