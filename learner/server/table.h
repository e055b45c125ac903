/* Inner to server/: a shard with what a server has beside it: its memory, its files, its workers.
 */
#ifndef TRP_LEARNER_SERVER_TABLE_H
#define TRP_LEARNER_SERVER_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/clock.h"
#include "keep.h"
#include "keys.h"
#include "parameter_server.pb-c.h"
#include "parts_room.h"
#include "shared_values.h"
#include "values.h"

/* Values of one version, for a pull in parts. */
struct held_values {
    uint64_t number; /* of the pull */
    struct values_block *block;
    uint64_t version, optimizer_steps;
    size_t left; /* bytes that were not asked for */
    int64_t heard_ns;
};

struct server_table_worker {
    char *name;                            /* NULL: it has not joined in this life */
    const struct shared_values *gradients; /* of the whole vector, in its memory; NULL: sent */
    size_t mapped;                         /* numbers of them */
    int64_t heard_ns;                      /* when it asked for something last */
    uint32_t waits;                        /* of its pulls, for others */
    struct staged_parts staged;
    struct held_values held; /* block NULL: none */
};

struct server_table {
    char *vector;
    char *founder;   /* who joined first in this life */
    uint64_t layout; /* of its vector's tensors, as that said */
    uint64_t first;  /* of the vector */
    uint64_t steps;  /* of learners that began with a push to it */
    struct param_shard shard;
    struct shard_keep keep;
    struct keys keys;
    struct table_values values;          /* the shard's */
    struct server_table_worker *workers; /* as many as the shard has */
    struct parts_room *parts_room;       /* the server's */
    uint64_t waited_clock;               /* of the slowest, since: */
    int64_t waited_ns;                   /* 0: nobody waits */
    bool waits_anew;                     /* once more, as somebody came back */
    int64_t heard_ns;                    /* when anybody asked for something last */
    int64_t gap_from_ns, gap_to_ns;      /* the last long time that nobody did */
    uint64_t most_behind;                /* at a read, of all so far */
    uint64_t push_bytes, pull_bytes;     /* of gradients, values that were sent, of this life */
    float *room; /* for a gradient that came compressed or lies in a worker's memory; or NULL */
};

/* A file's name, too. */
bool server_table_name_is_one(const char *vector);

TRP_MUST_USE trp_status server_table_create(struct server_table **out,
                                            const struct shard_options *options,
                                            struct parts_room *parts_room,
                                            const Troupe__ServerJoinRequest *request);
void server_table_destroy(struct server_table *table);

/* Begins with what its files have, or else with the request's. */
TRP_MUST_USE trp_status server_table_load(struct server_table *table,
                                          const Troupe__ServerJoinRequest *request);
TRP_MUST_USE trp_status server_table_save(struct server_table *table, bool now);

/* FAILED_PRECONDITION names the first thing in which a worker differs from the one that came first:
 * number of workers, range, tensors, and the optimizer. */
TRP_MUST_USE trp_status server_table_fits(const struct server_table *table,
                                          const Troupe__ServerJoinRequest *request);

/* `gradients` NULL: they are sent, and so are values; else the worker may map these. */
TRP_MUST_USE trp_status server_table_join(struct server_table *table,
                                          const Troupe__ServerJoinRequest *request,
                                          const Troupe__SharedParams *gradients);

/* Kept first, then done. */
TRP_MUST_USE trp_status server_table_push(struct server_table *table, const struct shard_push *push,
                                          uint64_t new_steps, enum shard_answer *answer);

/* A worker has asked for something. Where nobody had for SERVER_GAP_MS all may have been suspended,
 * or at a server that hung: the last such gap is nobody's silence, and a shorter one follows it no
 * sooner than it was long. */
void server_table_hear(struct server_table *table);

/* A worker waits: whoever it waits for for too long is lost, or the wait is ABORTED. *until: when
 * that is. */
TRP_MUST_USE trp_status server_table_lose_silent(struct server_table *table,
                                                 const Troupe__ServerPullRequest *request,
                                                 struct deadline *until);

/* The workers that have joined and have said nothing for so long, and how many these are: there is
 * room for all. Some may be gone for good. */
size_t server_table_silent(const struct server_table *table, uint64_t patience_ms,
                           uint32_t *silent);

/* Clocks that the slowest worker is behind this one. */
uint64_t server_table_behind(const struct server_table *table, uint32_t worker);

/* A worker has read when the slowest one was so far behind it, whether it should have or not. */
void server_table_note_read(struct server_table *table, uint64_t behind);

struct server_table_copy {
    float *gathered; /* for free() */
    ProtobufCBinaryData states[TRP_OPTIMIZER_STATES_MAX];
};

/* The numbers of a list, in the table where that is one range, which lends its values then.
 * RESOURCE_EXHAUSTED: no memory. */
TRP_MUST_USE trp_status server_table_copy_out(struct server_table *table,
                                              const struct key_list *list,
                                              const Troupe__ServerPullRequest *request,
                                              Troupe__ServerPullReply *reply,
                                              struct server_table_copy *copy);

/* A part of the values as they were at its pull's first part, or the word that there are none. */
void server_table_part_out(struct server_table *table, const struct key_list *list,
                           const Troupe__ServerPullRequest *request,
                           Troupe__ServerPullReply *reply);

#endif
