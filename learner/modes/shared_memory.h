/* Memory that learners of one host share, threads of a process as well as processes. It is sealed:
 * nobody can cut it under who has it mapped. What ends is one learner's use of it; the memory stays
 * while anybody has it. */
#ifndef TRP_LEARNER_MODES_SHARED_MEMORY_H
#define TRP_LEARNER_MODES_SHARED_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>

struct shared_memory;

/* `bytes` of zeros behind the first eight, which are `kind`: what is in it. RESOURCE_EXHAUSTED: the
 * system gives none. */
TRP_MUST_USE trp_status shared_memory_create(struct shared_memory **out, uint64_t kind,
                                             size_t bytes);
void shared_memory_destroy(struct shared_memory *shared); /* NULL is fine */

void *shared_memory_at(const struct shared_memory *shared);

/* Says to others of this host where the memory is that this one has at the moment; one line, the
 * same for its life. */
const char *shared_memory_address(const struct shared_memory *shared);

/* Has the memory that the one at `address` has, in place of its own; where that is the same, as
 * well it may be, nothing happens. In one process all have it at the same place. Messages say of
 * which learner the address is, by `owner` ("learner/0"). INVALID_ARGUMENT: no address;
 * FAILED_PRECONDITION: it is on another host, of another kind or size; UNAVAILABLE: nobody is there
 * any more. Then it has what it had. */
TRP_MUST_USE trp_status shared_memory_adopt(struct shared_memory *shared, const char *address,
                                            const char *owner);

/* A word of the memory that would be adopted, `at` bytes into it. Fails as shared_memory_adopt().
 */
TRP_MUST_USE trp_status shared_memory_read(const struct shared_memory *shared, const char *address,
                                           const char *owner, size_t at, uint64_t *word);

#endif
