/* A table's options in other commands: checked, changed, and warned about. */
#ifndef TRP_CLI_REPLAY_ALTER_H
#define TRP_CLI_REPLAY_ALTER_H

#include <cjson/cJSON.h>

#include "replay_target.h"

/* Whether a line can be a table's options; otherwise what is wrong is printed after `name`. */
bool table_line_check(const char *name, const char *line);

struct alteration {
    char *table;
    bool dry_run; /* nothing was changed */
    Troupe__ReplayAlterTableResponse *reply;
};

/* Changes the table that the line names, and warns of it. NOT_FOUND names the tables there are;
 * otherwise as AlterTable. */
TRP_MUST_USE trp_status alteration_run(const struct target *target, const char *line, bool shrink,
                                       bool dry_run, struct alteration *alteration);
void alteration_cleanup(struct alteration *alteration);

/* Lines that begin with the table's name; the same as an object. */
void alteration_text(const struct alteration *alteration);
cJSON *alteration_json(const struct alteration *alteration);

/* One line on standard error where nobody can ever go on in this table. */
void target_warn(const struct target *target, const char *table);

#endif
