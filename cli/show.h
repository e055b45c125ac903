/* Texts of a table that several commands show. */
#ifndef TRP_CLI_SHOW_H
#define TRP_CLI_SHOW_H

#include "replay_target.h"

/* The value of "key=value" in a table's options; "-": none. */
const char *option_text(const Troupe__ReplayTable *table, const char *key, char *text, size_t size);

/* "42%"; "3 inserts, 1 samplers" or "-". `text` holds TEXT_SIZE. */
const char *fill_text(const Troupe__ReplayTable *table, char *text);
const char *blocked_text(const Troupe__ReplayTable *table, char *text);

#endif
