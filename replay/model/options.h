/* Table options as text, beyond what <troupe/replay.h> declares. */
#ifndef TRP_REPLAY_MODEL_OPTIONS_H
#define TRP_REPLAY_MODEL_OPTIONS_H

#include <stddef.h>

#include <troupe/replay.h>

/* `base` with the words of `line` in place of its own; `line` names the same table. `remote`: they
 * come from a peer, whose signature=FILE is refused. INVALID_ARGUMENT as trp_table_options_parse().
 */
trp_status table_options_change(const trp_table_options *base, const char *line, bool remote,
                                trp_table_options **out);

/* As trp_table_options_parse(), for a line that comes from a peer. */
trp_status table_options_parse_remote(const char *line, trp_table_options **out);

/* For each word "key=value" that differs between two lines of trp_table_options_format(); a value
 * that one of them has not is "". */
typedef void table_options_difference(void *arg, const char *key, const char *before,
                                      const char *after);
void table_options_compare(const char *before, const char *after, table_options_difference *each,
                           void *arg);

#endif
