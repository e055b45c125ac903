/* troupe.Params over versioned snapshots, and what each client said it did. Thread-safe. */
#ifndef TRP_LEARNER_PUBLISHER_H
#define TRP_LEARNER_PUBLISHER_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include <troupe/status.h>

struct publisher;

/* The totals of one client, all its lives together. */
struct client_counts {
    char *name;
    uint64_t steps, episodes;
};

/* `count` floats a snapshot. Version 0: nothing is published yet. */
struct publisher *publisher_create(size_t count);

/* Nobody may be inside the service any more. NULL is fine. */
void publisher_destroy(struct publisher *publisher);

/* The service for trp_server_add(). Owned by the publisher. */
ProtobufCService *publisher_service(struct publisher *publisher);

/* Copies `params`: readers see the old snapshot or the new one, whole. `version` is greater than
 * every one before. */
void publisher_publish(struct publisher *publisher, const float *params, uint64_t version,
                       uint64_t learner_steps);

/* What all clients did together. */
struct client_counts publisher_totals(struct publisher *publisher);

/* A copy of every client's counts; publisher_counts_free() frees. */
struct client_counts *publisher_counts(struct publisher *publisher, size_t *count);
void publisher_counts_free(struct client_counts *counts, size_t count);

/* Sets one client's counts to at least these: from a checkpoint. RESOURCE_EXHAUSTED: too many
 * clients; INVALID_ARGUMENT: a name that no client may have. */
TRP_MUST_USE trp_status publisher_restore(struct publisher *publisher,
                                          const struct client_counts *counts);

#endif
