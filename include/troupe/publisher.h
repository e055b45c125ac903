/* Publishing parameters: a troupe.Params service over versioned snapshots, and what each client
 * said it did. The built-in learner has one; a learner of one's own makes one, serves it, and
 * publishes:
 *
 *     static trp_status learn(trp_publisher *publisher, float *params, uint64_t steps)
 *     {
 *         for (uint64_t step = 1; step <= steps; step++) {
 *             params[0] += 1; // ... whatever learning is
 *             trp_publisher_publish(publisher, params, step, step);
 *         }
 *         return TRP_OK;
 *     }
 *
 * Thread-safe. */
#ifndef TRP_PUBLISHER_H
#define TRP_PUBLISHER_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include <troupe/moments.h>
#include <troupe/status.h>

TRP_BEGIN_DECLS

typedef struct trp_publisher trp_publisher;

/* `count` floats a snapshot, 1 or more. Version 0: nothing is published yet. At most 65 536 clients
 * with a name are told apart: one more is RESOURCE_EXHAUSTED to itself, at its pull. */
TRP_API trp_publisher *trp_publisher_create(size_t count);

/* What lies where in a snapshot (trp_net_layout(), copied): who pulls compares it with its own
 * network, see trp_params_use(). Before anybody is served. */
TRP_API void trp_publisher_describe(trp_publisher *publisher, const char *layout);

/* Clients report statistics of so many numbers, those that the actors' environment normalises
 * (trp_env_statistics_count()), or none: others are FAILED_PRECONDITION at their pull. Without it
 * the first report says how many. Before anybody is served. */
TRP_API void trp_publisher_expect_statistics(trp_publisher *publisher, size_t count);

/* Clients in this process and on this host are sent parameters like those elsewhere. Before anybody
 * is served. */
TRP_API void trp_publisher_keep_private(trp_publisher *publisher);

/* Nobody may be inside the service any more. NULL is fine. */
TRP_API void trp_publisher_destroy(trp_publisher *publisher);

/* The service for trp_server_add(). Owned by the publisher. */
TRP_API ProtobufCService *trp_publisher_service(trp_publisher *publisher);

/* Copies `params`, once, and the statistics of all clients: readers see the old snapshot or the new
 * one, whole. `version` is greater than every one before. Waits for no reader. In memory there are
 * four snapshots, and one more for each older one that a client in this process holds; clients on
 * this host map them. To others they are sent from where they lie, for which up to four more are
 * kept. Of vectors beyond 2 MiB, which those pull in parts, up to two are kept for those who have
 * begun with them, each for 10 s after its last part was asked for. One thread publishes; pulls go
 * on meanwhile. */
TRP_API void trp_publisher_publish(trp_publisher *publisher, const float *params, uint64_t version,
                                   uint64_t learner_steps);

/* What all clients did together; without their statistics. */
TRP_API trp_client_counts trp_publisher_totals(trp_publisher *publisher);

/* A copy of every client's counts; trp_publisher_counts_free() frees. */
TRP_API trp_client_counts *trp_publisher_counts(trp_publisher *publisher, size_t *count);
TRP_API void trp_publisher_counts_free(trp_client_counts *counts, size_t count);

/* Sets one client's counts to at least these: from a checkpoint. RESOURCE_EXHAUSTED: too many
 * clients or statistics; INVALID_ARGUMENT: a name that no client may have, statistics that no
 * numbers can have; FAILED_PRECONDITION: statistics of another length than those of another
 * client, which is named. */
TRP_API TRP_MUST_USE trp_status trp_publisher_restore(trp_publisher *publisher,
                                                      const trp_client_counts *counts);

/* ---- passing on ----------------------------------------------------------------------------- */

/* What a publisher says that has its parameters from another one (trp_add_params_cache() does this
 * for a host): all but its clients' counts is the other one's. */
typedef struct {
    const float *params; /* NULL: nothing newer */
    uint64_t version, learner_steps;
    uint64_t first_version; /* of this life of the other one */
    uint64_t total_steps;   /* of all clients of the other one */
    const trp_moments *statistics;
    size_t statistic_count;
    int64_t age_ns; /* for so long it has not been known that there is nothing newer */
} trp_forwarded_params;

/* In place of trp_publisher_publish(), each time the other one has said something. A version that
 * is not greater than every one before changes nothing. */
TRP_API void trp_publisher_forward(trp_publisher *publisher, const trp_forwarded_params *forwarded);

/* Asks for what is remembered elsewhere of a client that this publisher has not heard of, before
 * its first pull is answered, on the thread that answers it; may block. It ends with
 * trp_publisher_restore() of that client; what it fails with the pull fails with. Before anybody is
 * served. */
typedef trp_status (*trp_publisher_recall)(void *context, const char *client);
TRP_API void trp_publisher_use_recall(trp_publisher *publisher, trp_publisher_recall recall,
                                      void *context);

TRP_END_DECLS
#endif
