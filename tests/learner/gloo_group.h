/* Debian's gloo behind C: the oracle of the collective's test and the peer of its benchmark. A
 * group belongs to one thread; what fails says so on stderr and ends the process. */
#ifndef TESTS_LEARNER_GLOO_GROUP_H
#define TESTS_LEARNER_GLOO_GROUP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gloo_group;

typedef enum { GLOO_F32, GLOO_I32, GLOO_U64 } gloo_type;
typedef enum { GLOO_SUM, GLOO_MAX } gloo_op;

/* All ranks over loopback; they meet in the directory, which belongs to this one group. */
struct gloo_group *gloo_group_create(const char *dir, uint32_t rank, uint32_t size);
void gloo_group_destroy(struct gloo_group *group);

/* In place, like trp_collective's. */
void gloo_allreduce(struct gloo_group *group, void *values, size_t count, gloo_type type,
                    gloo_op op);
void gloo_broadcast(struct gloo_group *group, void *values, size_t count, gloo_type type,
                    uint32_t root);

/* Of `count` numbers in all, counts[r] are rank r's, one rank's behind another's. */
void gloo_all_gather(struct gloo_group *group, void *values, const size_t *counts, gloo_type type);

/* Float sums. values[0..counts[rank]) is the result, the rest undefined. */
void gloo_reduce_scatter(struct gloo_group *group, float *values, const size_t *counts);

#ifdef __cplusplus
}
#endif
#endif
