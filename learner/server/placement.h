/* How much of a vector each server has. */
#ifndef TRP_LEARNER_SERVER_PLACEMENT_H
#define TRP_LEARNER_SERVER_PLACEMENT_H

#include <stddef.h>
#include <stdint.h>

/* Equal parts, without idle hosts; with `idle` of them, the servers are one on each of `learners`
 * hosts and then one on each idle host, and parts are such that all links are busy for equally
 * long. */
struct placement {
    uint32_t servers, learners, idle;
};

/* The part of server `index`, of 1: BytePS (Jiang et al. 2020, section 4.1): of n learners and k
 * idle hosts, k <= n, an idle host has 2 (n - 1) / (n^2 + k n - 2 k), a learner's host
 * (n - k) / (n^2 + k n - 2 k). */
double placement_part(const struct placement *placement, uint32_t index);

/* Where the part of server `index` of `count` numbers begins; of `servers`: where the last ends. */
size_t placement_begin(const struct placement *placement, size_t count, uint32_t index);

#endif
