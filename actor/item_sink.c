#include "item_sink.h"

#include <assert.h>
#include <stdlib.h>

#include <troupe/rollout.h>
#include "adder.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/status.h"

void item_sink_prepare(struct item_sink *sink, const trp_adder_options *options,
                       const trp_writer_options *writer)
{
    sink->rollout = options->rollout;
    sink->replay = options->replay;
    sink->options = *writer;
    sink->options.seed = options->seed;
    sink->table = xstrdup(options->table);
    sink->priority = options->priority > 0 ? options->priority : 1;
}

void item_sink_cleanup(struct item_sink *sink)
{
    trp_writer_destroy(sink->writer);
    free(sink->table);
}

void item_sink_reseed(struct item_sink *sink, uint64_t seed)
{
    assert(!sink->is_open);
    sink->options.seed = seed;
}

trp_status item_sink_open(struct item_sink *sink)
{
    if (sink->is_open)
        return TRP_OK;
    if (sink->rollout)
        trp_rollout_open(sink->rollout, sink->options.columns, sink->options.column_count,
                         sink->options.history);
    else
        TRP_TRY(trp_writer_create(&sink->writer, sink->replay, &sink->options));
    sink->is_open = true;
    return TRP_OK;
}

trp_status item_sink_append(struct item_sink *sink, uint64_t episode, const void *const *columns,
                            uint32_t count)
{
    if (sink->rollout) {
        trp_rollout_append(sink->rollout, columns, count);
        return TRP_OK;
    }
    trp_writer_set_episode(sink->writer, episode);
    return trp_writer_append_steps(sink->writer, columns, count);
}

trp_status item_sink_create_item(struct item_sink *sink, uint64_t version,
                                 const trp_item_column *columns, size_t column_count,
                                 int64_t timeout_ms)
{
    if (sink->rollout) {
        TRP_TRY(
            trp_rollout_create_item(sink->rollout, sink->priority, version, columns, column_count));
    } else {
        trp_writer_set_policy_version(sink->writer, version);
        TRP_TRY(trp_writer_create_item(sink->writer, sink->table, sink->priority, columns,
                                       column_count, timeout_ms, NULL));
    }
    sink->items++;
    return TRP_OK;
}

trp_status item_sink_send(struct item_sink *sink, bool at_once)
{
    if (!sink->writer || !(adder_is_late(&sink->emptied_ns) || at_once))
        return TRP_OK;
    trp_status status = trp_writer_flush(sink->writer, UINT32_MAX, 0);
    sink->emptied_ns = clock_now_ns(&clock_coarse);
    return status_is_transient(status) ? TRP_OK : status;
}

trp_status item_sink_flush(struct item_sink *sink, uint32_t unconfirmed, int64_t timeout_ms)
{
    return sink->writer ? trp_writer_flush(sink->writer, unconfirmed, timeout_ms) : TRP_OK;
}
