/* The graph that `build` made: groups of nodes, what they use, and whether it makes sense. */
#ifndef TRP_LAUNCH_GRAPH_H
#define TRP_LAUNCH_GRAPH_H

#include <stdio.h>

#include <troupe/program.h>

/* What the edges of the built-in nodes are for. */
#define PARAMS_SERVICE "troupe.Params"
#define SERVER_SERVICE "troupe.ParameterServer"
#define REPLAY_SERVICE "deepmind.reverb.ReverbService"

enum node_kind {
    NODE_REPLAY,
    NODE_SERVER,
    NODE_LEARNER,
    NODE_CACHE,
    NODE_ACTOR,
    NODE_EVALUATOR,
    NODE_OWN
};

struct node_group {
    uint32_t id; /* of its trp_node */
    char *name;
    enum node_kind kind;
    uint32_t count; /* nodes in it */
    uint32_t first; /* number of its first node; nodes are numbered through the program */
    uint32_t level; /* stop order: 0 first. Users come before what they use */
    trp_node *uses; /* only groups added before: the graph has no cycles */
    size_t use_count;
    trp_agent agent;
    const char *env; /* borrowed from its options or its users'; program_check() finds it */
    trp_table_options **tables; /* NODE_REPLAY: copies, as many as options.replay.table_count */
    const trp_option_table
        *table; /* of `options`, or of the struct at options.own.arg; NULL: none */
    union {
        trp_replay_options replay; /* pointers in here are to copies that the group owns */
        trp_parameter_server_options server;
        trp_learner_options learner;
        trp_params_cache_options cache;
        trp_actor_options actor;
        trp_node_options own;
    } options;
};

struct trp_program {
    char *name;
    struct node_group **groups;
    size_t group_count;
    uint32_t node_count;
    char *error;                 /* of the first wrong trp_add_*(); NULL: none */
    trp_status (*prepare)(void); /* before it is run; NULL: nothing */
    _Atomic uint32_t references;
};

/* One more trp_program_destroy() until it is gone. */
trp_program *program_keep(trp_program *program);

/* The first wrong call of `build`, or what is wrong with the whole: no nodes, an unknown
 * environment, an agent that does not fit it. INVALID_ARGUMENT, NOT_FOUND. Fills in levels and the
 * environments of replays and learners. */
TRP_MUST_USE trp_status program_check(trp_program *program);

/* The word for a value, which was checked, of an option that is a choice. */
const char *group_choice(const struct node_group *group, const char *option, uint32_t value);

/* Whether a mode has what its learners are to have: the table of learner/modes/mode.c. */
TRP_MUST_USE trp_status learner_check_mode(const struct node_group *group);

/* The part of it that is about how learners learn. */
TRP_MUST_USE trp_status learner_check(const trp_program *program, const struct node_group *group);

/* Words for a user who names sites, or learns by them, where nothing comes of it on one host. NULL:
 * there is nothing to say. Caller frees. */
char *learner_remark(const struct node_group *group);

/* NULL: no such node. */
const struct node_group *program_group(const trp_program *program, trp_node node);

/* The group of a node number and its index in it; NULL: no such number. */
const struct node_group *program_node(const trp_program *program, uint32_t number, uint32_t *index);

/* Whether the nodes of a group serve the service of that name. */
bool group_serves(const struct node_group *group, const char *service);

/* The group of that name, which has `length` bytes; NULL: there is none. */
struct node_group *program_find_group(const trp_program *program, const char *name, size_t length);

/* "actor/2" to its number. NOT_FOUND. */
TRP_MUST_USE trp_status program_find(const trp_program *program, const char *name,
                                     uint32_t *number);

/* The struct that group->table describes, resolved; NULL: there is no table. */
void *group_options(const struct node_group *group);

/* The first group with an agent, where all groups with one have the same; NULL: they differ, or
 * there is none. */
const struct node_group *program_common_agent(const trp_program *program);

/* Learners that learn together. */
bool group_is_gang(const struct node_group *group);

bool group_uses(const struct node_group *group, const struct node_group *used);

const char *node_kind_word(enum node_kind kind);

/* ---- text (graph_text.c) ----------------------------------------------------------------- */

void program_print_text(const trp_program *program, FILE *out);
void program_print_dot(const trp_program *program, FILE *out);

/* Of everything that decides what the nodes do: two processes with one hash built the same graph.
 */
uint64_t program_hash(const trp_program *program);

#endif
