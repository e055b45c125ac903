/* The options of a program by the names that a user gives them: GROUP.OPTION for a group's own,
 * GROUP.agent.OPTION for those of its agent, agent.OPTION for those of all agents. */
#ifndef TRP_LAUNCH_SETTINGS_H
#define TRP_LAUNCH_SETTINGS_H

#include <stdio.h>

#include "graph.h"

/* A struct of options of the program, under the name that stands before the dot. */
struct option_set {
    const struct node_group *group; /* of "agent": the first with an agent */
    bool of_agent;
    char *name; /* owned */
    const trp_option_table *table;
    void *options;
};

/* All of them, each once: agents that are all alike are one, "agent". Ends with a NULL name. */
struct option_set *option_sets_create(const trp_program *program);
void option_sets_destroy(struct option_set *sets);

/* INVALID_ARGUMENT: nothing with options is called `target`. Otherwise as program_set(). */
TRP_MUST_USE trp_status program_check_target(const trp_program *program, const char *source,
                                             const char *target);

/* Sets `option` of what is called `target`; `source` is named in messages ("--set", a file).
 * INVALID_ARGUMENT: no such target or option (with the name most like it, or who has it), or no
 * such value (with what is allowed). */
TRP_MUST_USE trp_status program_set(trp_program *program, const char *source, const char *target,
                                    const char *option, const char *value);

/* One "TARGET.OPTION=VALUE" of the command line. */
TRP_MUST_USE trp_status program_set_word(trp_program *program, const char *word);

/* What program_set() with these words would set (of several agents that of the first); NULL: it
 * would refuse them. */
const trp_option *program_option_set(const trp_program *program, const char *target,
                                     const char *option);

/* What follows "NAME." in a setting or its path; NULL: it is of something else. */
const char *setting_within(const char *name, const char *setting);

/* NULL: there is no option of that path ("actor.envs"). */
const trp_option *program_option(const trp_program *program, const char *path);

/* Every option with its value, what is allowed, its default and what it is for; of those with
 * `filter` in "actor.envs" in any case, where that is not NULL. NOT_FOUND: there are none. */
TRP_MUST_USE trp_status program_print_options(const trp_program *program, const char *filter,
                                              FILE *out);

#endif
