/* What a rank called: the operation that it started. It goes ahead of the operation's first bytes
 * between two ranks, who compare it with their own. */
#ifndef TRP_LEARNER_CALL_H
#define TRP_LEARNER_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/collective.h>

enum group_call_kind {
    CALL_ALLREDUCE,
    CALL_REDUCE_SCATTER,
    CALL_ALL_GATHER,
    CALL_BROADCAST,
    CALL_BARRIER,
    CALL_ALL_TO_ALL, /* `count` is of a block */
    CALL_SHIFT,      /* the same; `root` is the distance */
};

/* On the wire, in the byte order of all ranks (connect.c compares it). */
struct group_call {
    uint8_t kind, type, op;
    uint8_t reserved;
    uint32_t root;
    uint64_t count;
    uint64_t sequence; /* from 1 on */
};
_Static_assert(sizeof(struct group_call) == 24, "on the wire: change COLLECTIVE_WIRE with it");

/* Bytes of one value; of a type from outside: 0, there is none such. */
size_t call_type_bytes(uint8_t type);

bool call_equal(const struct group_call *a, const struct group_call *b);

enum { CALL_WORDS_BYTES = 96 };

/* "allreduce of 100 f32 (sum)", also for calls from outside that are none. */
void call_words(const struct group_call *call, char words[CALL_WORDS_BYTES]);

#endif
