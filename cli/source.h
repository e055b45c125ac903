/* A file that items are loaded from: what `dump` writes, see sink.h. */
#ifndef TRP_CLI_SOURCE_H
#define TRP_CLI_SOURCE_H

#include <troupe/item.h>

enum source_kind { SOURCE_END, SOURCE_TABLE, SOURCE_ITEM };

/* Valid until the next one. */
struct source_event {
    enum source_kind kind;
    struct {
        const char *name, *options;
        trp_bytes signature;
    } table; /* items of it may follow */
    trp_item_data item;
    uint64_t line; /* that it stands in; 0: there are no lines */
};

struct source_options {
    const char *path;
    const char *table; /* the one that all items go to; NULL: the one each came from */
    /* What the signature of that one calls its columns: for a file that does not say what they are.
     */
    char *const *columns;
    size_t column_count;
};

struct source_impl;

struct source {
    const struct source_impl *impl;
    void *state;
    uint64_t total_bytes, done_bytes; /* of the file, about */
};

struct source_impl {
    trp_status (*open)(struct source *source, const struct source_options *options);
    trp_status (*next)(struct source *source, struct source_event *event);
    void (*destroy)(void *state);
};

extern const struct source_impl npz_source, jsonl_source;

/* Of the kind that the end of the path says, as sink_check(). FAILED_PRECONDITION: a file that
 * cannot be read, or that says what no dump says. Options are borrowed. */
TRP_MUST_USE trp_status source_open(struct source *source, const struct source_options *options);
TRP_MUST_USE trp_status source_next(struct source *source, struct source_event *event);
void source_close(struct source *source); /* a zeroed one is fine */

#endif
