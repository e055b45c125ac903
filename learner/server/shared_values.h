/* Numbers that a server writes and workers of its host read where they lie. Between two looks at
 * the count of writes that are the same and even nothing was written. */
#ifndef TRP_LEARNER_SERVER_SHARED_VALUES_H
#define TRP_LEARNER_SERVER_SHARED_VALUES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/sealed.h"
#include "params.pb-c.h"

struct shared_values {
    uint8_t nonce[SEALED_NONCE_BYTES];
    _Atomic uint64_t writes; /* odd: one is going on */
    _Atomic uint64_t version, slowest;
    uint64_t behind_head[3];
    float numbers[];
};

/* What is known of them. */
struct shared_state {
    uint64_t version;
    uint64_t slowest; /* pushes of the worker that has fewest; UINT64_MAX: there is none */
};

_Static_assert(sizeof(struct shared_values) == 64, "numbers begin at a cache line");

static inline size_t shared_values_bytes(size_t count)
{
    return sizeof(struct shared_values) + count * sizeof(float);
}

/* How many there are room for in so many bytes. */
static inline size_t shared_values_count(uint64_t bytes)
{
    size_t head = sizeof(struct shared_values);
    return bytes > head ? (bytes - head) / sizeof(float) : 0;
}

/* Those of another process, to be read. FAILED_PRECONDITION: they are not so many; or as
 * sealed_map(). Then *values is NULL. */
TRP_MUST_USE trp_status shared_values_map(const struct shared_values **values,
                                          const Troupe__SharedParams *from, size_t count);
void shared_values_unmap(const struct shared_values *values, size_t count); /* NULL is fine */

static inline void shared_values_begin(struct shared_values *values)
{
    uint64_t writes = atomic_load_explicit(&values->writes, memory_order_relaxed);
    atomic_store_explicit(&values->writes, writes + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static inline void shared_values_end(struct shared_values *values, struct shared_state state)
{
    uint64_t writes = atomic_load_explicit(&values->writes, memory_order_relaxed);
    atomic_store_explicit(&values->version, state.version, memory_order_relaxed);
    atomic_store_explicit(&values->slowest, state.slowest, memory_order_relaxed);
    atomic_store_explicit(&values->writes, writes + 1, memory_order_release);
}

/* False: something is being written. */
static inline bool shared_values_look(const struct shared_values *values, uint64_t *writes,
                                      struct shared_state *state)
{
    struct shared_values *memory = (struct shared_values *)(uintptr_t)values;
    *writes = atomic_load_explicit(&memory->writes, memory_order_acquire);
    state->version = atomic_load_explicit(&memory->version, memory_order_relaxed);
    state->slowest = atomic_load_explicit(&memory->slowest, memory_order_relaxed);
    return *writes % 2 == 0;
}

/* Nothing was written since. */
static inline bool shared_values_are_whole(const struct shared_values *values, uint64_t writes)
{
    struct shared_values *memory = (struct shared_values *)(uintptr_t)values;
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&memory->writes, memory_order_relaxed) == writes;
}

#endif
