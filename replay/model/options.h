/* Table options as text: the functions that <troupe/replay.h> does not declare. */
#ifndef TRP_REPLAY_MODEL_OPTIONS_H
#define TRP_REPLAY_MODEL_OPTIONS_H

#include <stddef.h>

#include <troupe/replay.h>
#include "core/buffer.h"

/* `base` (NULL: the defaults) with the words of `line` in place of its own; `line` names the table.
 * `remote`: they come from a peer, whose signature=FILE is refused. INVALID_ARGUMENT, with `*out`
 * NULL, as trp_table_options_parse(). */
trp_status table_options_change(const trp_table_options *base, const char *line, bool remote,
                                trp_table_options **out);

/* For each word "key=value" that differs between two lines of trp_table_options_format(); a value
 * that one of them has not is "". */
typedef void table_options_difference(void *arg, const char *key, const char *before,
                                      const char *after);
void table_options_compare(const char *before, const char *after, table_options_difference *each,
                           void *arg);

/* Text in double quotes, in which a backslash keeps the next character: written, and read from its
 * first quote on. Bytes read, with the quotes, or 0: the second is missing; `out` may be NULL. */
void quoted_append(struct buffer *out, trp_bytes text);
size_t quoted_read(const char *text, struct buffer *out);

#endif
