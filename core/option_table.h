/* Option tables beyond what <troupe/options.h> declares: for who prints and compares them. Texts
 * are the caller's to free. */
#ifndef TRP_CORE_OPTION_TABLE_H
#define TRP_CORE_OPTION_TABLE_H

#include <stdio.h>

#include <troupe/options.h>

/* NULL: there is none. */
const trp_option *option_find(const trp_option_table *table, const char *name);

/* "a whole number in [1, 1024] steps" */
char *option_range(const trp_option *option);

/* The value in `options`, or by default, as trp_options_set() takes it. */
char *option_value(const trp_option *option, const void *options);
char *option_default(const trp_option *option);

/* Whether it is not its default and nobody reads it, as trp_option.needs says. */
bool option_is_idle(const trp_option_table *table, const trp_option *option, const void *options);

/* "loss=c51 or quantile", "penalty other than 0"; NULL: it is always read. */
char *option_needs(const trp_option *option);

/* "  actor.envs=8", what it is for, what is allowed and its default, on three lines. `options`
 * NULL: its default is shown. */
void option_describe(const trp_option *option, const char *whose, const void *options, FILE *out);

/* `hash` goes on with every name and value. */
uint64_t options_hash(uint64_t hash, const trp_option_table *table, const void *options);

#endif
