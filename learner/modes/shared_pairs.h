/* Numbers that several learners, or a learner and its streams, load and store without locks: in
 * pairs, by relaxed atomics of C11, so that each always is one that some of them stored. */
#ifndef TRP_LEARNER_MODES_SHARED_PAIRS_H
#define TRP_LEARNER_MODES_SHARED_PAIRS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The bits of two floats that several learners load and store. */
typedef _Atomic uint64_t shared_pair;

_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2,
               "processes share atomics that have no lock");

static inline uint64_t load_pair(const shared_pair *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

static inline void store_pair(shared_pair *to, uint64_t pair)
{
    atomic_store_explicit(to, pair, memory_order_relaxed);
}

/* `count` numbers from the pair on. */
static inline void load_shared(const shared_pair *from, float *to, size_t count)
{
    uint64_t pair;
    for (size_t i = 0; i < count / 2; i++) {
        pair = load_pair(&from[i]);
        memcpy(to + 2 * i, &pair, sizeof pair);
    }
    if (count % 2 == 0)
        return;
    pair = load_pair(&from[count / 2]);
    memcpy(to + count - 1, &pair, sizeof *to);
}

/* The other half of the last pair is nobody's. */
static inline void put_shared(shared_pair *to, const float *from, size_t count)
{
    uint64_t pair = 0;
    for (size_t i = 0; i < count / 2; i++) {
        memcpy(&pair, from + 2 * i, sizeof pair);
        store_pair(&to[i], pair);
    }
    if (count % 2 == 0)
        return;
    pair = 0;
    memcpy(&pair, from + count - 1, sizeof *from);
    store_pair(&to[count / 2], pair);
}

/* The pair is `now` where a step would make `after` of `before`. */
static inline uint64_t add_pair(uint64_t now, uint64_t before, uint64_t after)
{
    uint32_t n[2], b[2], a[2];
    memcpy(n, &now, sizeof n);
    memcpy(b, &before, sizeof b);
    memcpy(a, &after, sizeof a);
    for (size_t i = 0; i < 2; i++) {
        float sum, was, is;
        if (n[i] == b[i] || a[i] == b[i]) { /* nobody else changed it, or this step does not */
            n[i] = a[i] == b[i] ? n[i] : a[i];
            continue;
        }
        memcpy(&sum, &n[i], sizeof sum);
        memcpy(&was, &b[i], sizeof was);
        memcpy(&is, &a[i], sizeof is);
        sum += is - was;
        memcpy(&n[i], &sum, sizeof sum);
    }
    memcpy(&now, n, sizeof now);
    return now;
}

/* Adds what a step made of a pair; returns what is there then. Where it changed one of the numbers
 * alone, a step of another learner to the other one must not be lost. */
static inline uint64_t step_pair(shared_pair *to, uint64_t before, uint64_t after)
{
    uint64_t now = load_pair(to), changed = before ^ after;
    bool both = (uint32_t)changed != 0 && changed >> 32 != 0;
    uint64_t sum = now == before ? after : add_pair(now, before, after);
    if (both)
        store_pair(to, sum);
    while (!both && !atomic_compare_exchange_weak_explicit(to, &now, sum, memory_order_relaxed,
                                                           memory_order_relaxed))
        sum = add_pair(now, before, after);
    return sum;
}

/* Adds what a step made of a block, of whole pairs: `after` becomes what is there then. */
static inline void add_block_step(shared_pair *to, const float *before, float *after, size_t pairs)
{
    for (size_t i = 0; i < pairs; i++) {
        uint64_t was, is;
        memcpy(&was, before + 2 * i, sizeof was);
        memcpy(&is, after + 2 * i, sizeof is);
        if (was == is)
            continue;
        is = step_pair(&to[i], was, is);
        memcpy(after + 2 * i, &is, sizeof is);
    }
}

#endif
