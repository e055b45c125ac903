/* Dogwild's streams (Noel and Osindero 2014, "Dogwild! - Distributed Hogwild for CPU & GPU"):
 * learners without memory in common each go on by themselves, by Hogwild's rules, and loop over
 * their numbers, chunk by chunk. The first rank that knows what was learned has what the others
 * follow:
 *
 *     a worker sends    d = w - b,  b = w      of a chunk: what came of its steps since b
 *     who is followed   w += d, and answers with w
 *     the worker        w += (answer - b),  b = answer
 *
 * Messages may be lost, come twice or late. A delta that is lost is lost, as one that two threads
 * of Hogwild store at the same time; the next answer brings the worker to where the others are. A
 * delta that comes again, or behind a later one, is known by its number, and so is an answer that
 * is not to the last one.
 *
 * Compressed (stream_compress()) d is what its code has got, c, and b = b + c: the rest is of the
 * next delta. Answers go as they are: who has lost one has nothing that a difference could be to.
 *
 * Rank 0 is asked first. One that came later, and has not got all yet, refuses with the delta,
 * which the worker takes back (b -= d) before it asks the next rank. Whoever knows and is asked is
 * the one that is followed: all ranks before it have refused. When that one misses somebody its
 * answers say so, as others hear of nobody else. Messages in, messages out: it has no sockets and
 * no clock. */
#ifndef TRP_LEARNER_MODES_DOGWILD_STREAM_H
#define TRP_LEARNER_MODES_DOGWILD_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "learner/compress/compress.h"
#include "limits.h"
#include "shared_pairs.h"

/* Numbers that go together: they begin at a whole pair. */
struct stream_chunk {
    shared_pair *values;
    size_t count;              /* DOGWILD_NUMBERS at most */
    _Atomic uint32_t *changes; /* counts those of a block that it is in; or NULL */
    bool once;                 /* it is asked for until there was an answer, and no more */
    /* Of the stream: */
    float *base;       /* b */
    uint64_t sequence; /* of the last delta that was sent */
    uint32_t waits;    /* 1 + passes that its answer has not come for; 0: none is awaited */
    bool answered;     /* in this generation */
};

enum stream_kind { STREAM_DELTA, STREAM_ANSWER, STREAM_REFUSAL };

/* As it is on the wire, but that only `count` numbers are sent; both ends have the same order of
 * bytes and learn the same vectors, or they do not know each other's magic number. */
struct stream_message {
    uint64_t magic;
    uint64_t generation, nonce; /* a secret of those who are in it */
    uint64_t kind;              /* enum stream_kind */
    uint32_t rank, count;
    uint64_t chunk, sequence;
    uint64_t steps;  /* a worker's in this generation; in an answer all learners' */
    uint64_t beat;   /* rounds of the sender's learner: who does not make any hangs */
    uint64_t misses; /* not 0: the sender misses somebody */
    float numbers[DOGWILD_NUMBERS]; /* or, of a delta, the words of a code where these are fewer */
};

/* One that has something to say. */
struct stream_peer {
    uint64_t steps, beat;
    uint64_t *sequences; /* of the last delta of it that was taken, by chunk; NULL: of none */
};

struct stream_counters {
    uint64_t sent, answers; /* deltas; that were answered */
    uint64_t unanswered;    /* deltas that were given up */
    uint64_t refused;       /* that came back */
    uint64_t taken, old;    /* of others: deltas; messages that came again or too late */
    uint64_t strange;       /* messages that are none, or of others */
    uint64_t bytes;         /* that were sent, of deltas and answers */
};

struct stream {
    struct stream_chunk *chunks;
    size_t chunk_count, next; /* of the pass */
    size_t awaited;
    uint64_t magic, generation, nonce;
    struct compress_options compress; /* of deltas */
    uint32_t rank, size;
    bool knows;                /* what was learned: it may be followed */
    bool misses;               /* this one, or who is followed, misses somebody */
    uint32_t followed;         /* rank that is asked; its own: this one is followed; size: nobody */
    _Atomic uint64_t *steps;   /* all learners' */
    uint64_t own_steps, beat;  /* this learner's */
    struct stream_peer *peers; /* by rank */
    struct stream_counters counters;
};

/* Chunks are copied but for what they point to; so is not `steps`. `layout` is of which vectors
 * they are: who learns others is not listened to. */
void stream_create(struct stream *stream, const struct stream_chunk *chunks, size_t count,
                   uint64_t layout, _Atomic uint64_t *steps);
/* From the beginning. */
void stream_compress(struct stream *stream, const struct compress_options *options);
void stream_destroy(struct stream *stream); /* zeroed is fine */

/* Where it is in a generation. */
struct stream_place {
    uint64_t generation, nonce;
    uint32_t rank, size;
    bool knows;
    bool fresh; /* it has made no step with the numbers that it has */
};

/* Another generation: what is on its way is of none. */
void stream_begin(struct stream *stream, const struct stream_place *place);

/* The learner has made so many steps more, and a round. */
void stream_note_step(struct stream *stream, uint64_t steps);

/* A worker goes through its chunks once more, and gives up what it has waited for too long. */
void stream_begin_pass(struct stream *stream);

/* The next delta of the pass, for who is followed; returns its bytes. 0: there is none now: the
 * pass is over, so many answers are awaited as may be, or nobody is there who could be asked. */
size_t stream_ask(struct stream *stream, struct stream_message *message);

/* Somebody's message. Returns the bytes of an answer, which goes to whom it came from; 0: there is
 * none. */
size_t stream_take(struct stream *stream, const void *bytes, size_t size,
                   struct stream_message *answer);

/* A worker has all that the one that is followed has, or had when it was asked. */
bool stream_has_all(const struct stream *stream);

static inline bool stream_is_followed(const struct stream *stream)
{
    return stream->followed == stream->rank;
}

/* Nobody knows what was learned. */
static inline bool stream_is_lost(const struct stream *stream)
{
    return stream->followed >= stream->size;
}

#endif
