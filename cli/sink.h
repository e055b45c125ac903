/* A file that items are written to: .npz for numpy, .jsonl for people and tools that read text. */
#ifndef TRP_CLI_SINK_H
#define TRP_CLI_SINK_H

#include <troupe/item.h>
#include "output.h"
#include "replay.pb-c.h"

struct sink_impl;

struct sink {
    const struct sink_impl *impl;
    void *state;
};

struct sink_impl {
    /* Names of arrays begin with the table's where `many` tables go into the file. */
    trp_status (*open)(void **state, const char *path, bool many);
    trp_status (*table)(void *state, const Troupe__ReplayTable *table); /* its items follow */
    trp_status (*item)(void *state, const trp_item_data *item);
    /* Makes the file whole; until then there is none of its name. */
    trp_status (*finish)(void *state, struct progress *progress);
    void (*destroy)(void *state);
};

extern const struct sink_impl npz_sink, jsonl_sink;

/* Whether a path ends in .npz or .jsonl; otherwise that is printed. */
bool sink_check(const char *name, const char *path);
bool path_is_npz(const char *path);

/* Of the kind that the end of the path says. */
TRP_MUST_USE trp_status sink_open(struct sink *sink, const char *path, bool many);
void sink_close(struct sink *sink); /* a zeroed one is fine */

#endif
