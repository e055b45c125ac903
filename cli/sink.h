/* A file that items are written to: .npz for numpy, .jsonl for people and tools that read text. */
#ifndef TRP_CLI_SINK_H
#define TRP_CLI_SINK_H

#include <troupe/item.h>
#include "output.h"
#include "replay.pb-c.h"

struct sink_impl;

struct sink {
    const struct sink_impl *impl; /* NULL: nothing is written, what is left out is counted */
    void *state;
    const Troupe__ReplayTable *table; /* whose items come */
    bool told;                        /* that one of this table's was left out */
    bool broken;                      /* it cannot be finished */
    uint64_t items, left_out;
};

struct sink_impl {
    /* Names of arrays begin with the table's where `many` tables go into the file. */
    trp_status (*open)(void **state, const char *path, bool many);
    trp_status (*table)(void *state, const Troupe__ReplayTable *table); /* its items follow */
    bool (*holds)(int32_t dtype); /* columns of that type, 0: of none */
    trp_status (*item)(void *state, const trp_item_data *item);
    /* Makes the file whole; until then there is none of its name. */
    trp_status (*finish)(void *state, struct progress_line *progress);
    void (*destroy)(void *state);
};

extern const struct sink_impl npz_sink, jsonl_sink;

/* Whether a path ends in .npz or .jsonl; otherwise that is printed. */
bool sink_check(const char *name, const char *path);
bool path_is_npz(const char *path);

/* Of the kind that the end of the path says. */
TRP_MUST_USE trp_status sink_open(struct sink *sink, const char *path, bool many);

/* Items of `table`, which is borrowed, follow. */
TRP_MUST_USE trp_status sink_table(struct sink *sink, const Troupe__ReplayTable *table);

/* UNIMPLEMENTED says which column of an item with `count` of them is of a type that the file cannot
 * hold. */
TRP_MUST_USE trp_status sink_column(const struct sink *sink, size_t count, size_t index,
                                    int32_t dtype);

/* Writes an item, or leaves it out when the file cannot hold it. */
TRP_MUST_USE trp_status sink_item(struct sink *sink, const trp_item_data *item);

/* Counts an item that cannot be had; trp_last_error(), which says why, is told once a table. */
void sink_leave_out(struct sink *sink);

void sink_print(const struct sink *sink, const char *path, bool json); /* what is in the file */
void sink_close(struct sink *sink);                                    /* a zeroed one is fine */

#endif
