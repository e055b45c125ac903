/* Option tables: one row for each member of a struct of options says what it is called, what zero
 * stands for, what is allowed and what it is for. Everything else follows from the table: defaults,
 * checks, --set NAME=VALUE, --config FILE, --options, the run's config.json, the hash of the graph.
 *
 *     typedef struct {
 *         uint32_t rollout;
 *         float learning_rate;
 *         uint32_t hidden[4];
 *         uint32_t loss;
 *     } my_options;
 *
 *     static const trp_option my_rows[] = {
 *         {TRP_OPTION(my_options, rollout), .fallback = "20", .min = 1, .max = 1000,
 *          .unit = "steps", .help = "how far one update looks"},
 *         {TRP_OPTION(my_options, learning_rate), .fallback = "1e-3", .max = 1,
 *          .help = "of the optimizer"},
 *         {TRP_OPTION(my_options, hidden), .fallback = "64,64", .min = 1, .max = 4096,
 *          .help = "widths of the hidden layers", .fixed = true},
 *         {TRP_OPTION(my_options, loss), .choices = (const char *const[]){"huber", "square", NULL},
 *          .help = "of an error"},
 *     };
 *     static const trp_option_table my_table = TRP_OPTION_TABLE("mine", my_rows, my_options);
 *     const trp_agent_impl my_agent = {.name = "mine", .options = &my_table}; // and its functions
 *
 * A table is a member of trp_agent_impl (<troupe/agent.h>) and of trp_node_options
 * (<troupe/program.h>). In C, a struct is filled with what differs from the defaults, and zero
 * means default. What was resolved means itself: `--set agent.learning_rate=0` is 0. */
#ifndef TRP_OPTIONS_H
#define TRP_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>

TRP_BEGIN_DECLS

typedef enum {
    TRP_OPTION_BOOL,
    TRP_OPTION_I32,
    TRP_OPTION_U32, /* also an enum, with `choices` */
    TRP_OPTION_I64,
    TRP_OPTION_U64,
    TRP_OPTION_F32,
    TRP_OPTION_F64,
    TRP_OPTION_TEXT, /* const char *; not in an agent's options */
    TRP_OPTION_LIST, /* uint32_t[n]: ends at the first zero */
} trp_option_type;

/* A row. The first four members come from TRP_OPTION(). */
typedef struct {
    const char *name;
    trp_option_type type;
    size_t offset, bytes;
    const char *fallback;  /* the default, as one would type it; NULL: zero is one */
    double min, max;       /* allowed, both included; of a list: its numbers. Both 0: any that is
                              finite and fits the type */
    bool negative_is_zero; /* in C, where zero is the default: a negative number is 0 */
    bool fixed;            /* what a run stores depends on it: no resume with another value */
    const char *unit;      /* a plural: "steps"; NULL: none */
    const char *help;
    const char *const *choices; /* words for 0, 1, ...; then NULL */
    const char *needs; /* "loss=c51|quantile": nobody reads the option while that other one of the
                          table has none of these values ("cuda:*": any that begins so), or, by
                          "penalty!=0", has one of them; a run says so of one that is not its
                          default. NULL: it is always read */
} trp_option;

typedef struct {
    const char *name; /* whose options they are, for messages: "dqn" */
    const trp_option *options;
    size_t count, bytes; /* of the struct */
} trp_option_table;

/* The name, type and place of a struct's member; C only. A member of another type does not compile.
 */
#define TRP_OPTION(struct_type, member)                                                            \
    .name = #member, .type = _Generic(((struct_type *)0)->member, /* the member's own type */      \
                                      bool: TRP_OPTION_BOOL,                                       \
                                      int32_t: TRP_OPTION_I32,                                     \
                                      uint32_t: TRP_OPTION_U32,                                    \
                                      int64_t: TRP_OPTION_I64,                                     \
                                      uint64_t: TRP_OPTION_U64,                                    \
                                      float: TRP_OPTION_F32,                                       \
                                      double: TRP_OPTION_F64,                                      \
                                      const char *: TRP_OPTION_TEXT,                               \
                                      uint32_t *: TRP_OPTION_LIST),                                \
    .offset = offsetof(struct_type, member), .bytes = sizeof(((struct_type *)0)->member)

#define TRP_OPTION_TABLE(whose, rows, struct_type)                                                 \
    {                                                                                              \
        .name = whose, .options = rows, .count = sizeof(rows) / sizeof(rows)[0],                   \
        .bytes = sizeof(struct_type)                                                               \
    }

/* Sets every option of `to`, a struct of table->bytes, from `from` (NULL: all zero; not `to`),
 * defaults in place of zeros. Members without a row are left alone. Texts are copied. */
TRP_API void trp_options_resolve(const trp_option_table *table, const void *from, void *to);

/* Frees the texts of resolved options. */
TRP_API void trp_options_cleanup(const trp_option_table *table, void *options);

/* Whether every resolved option is in its range. INVALID_ARGUMENT: name, value and range. */
TRP_API TRP_MUST_USE trp_status trp_options_check(const trp_option_table *table,
                                                  const void *options);

/* Sets one resolved option. INVALID_ARGUMENT: no such option (with the name most like it), or no
 * such value (with what is allowed); nothing is changed then. */
TRP_API TRP_MUST_USE trp_status trp_options_set(const trp_option_table *table, void *options,
                                                const char *name, const char *value);

TRP_END_DECLS
#endif
