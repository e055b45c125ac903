/* Who learns together. A group of learners changes: members die, hang, come back. Between two
 * changes it is a generation: so many members, each with a rank, that connect to each other and
 * work in step. What goes wrong ends the whole generation, and those who are left meet for the next
 * one. In a running program the launcher is where they meet; a gang is that in one process. */
#ifndef TRP_RENDEZVOUS_H
#define TRP_RENDEZVOUS_H

#include <stdbool.h>
#include <stdint.h>

#include <troupe/status.h>

TRP_BEGIN_DECLS

typedef struct {
    uint64_t number; /* grows from one to the next; never used twice in a run directory; 0: none */
    uint64_t nonce;  /* random: shows that a connection is of this generation of this run */
    bool first;      /* of this life of the group: nobody has a state that is worth more than
                        another's */
    bool founder;  /* the member that asked was there when this life began: nothing had been learned
                      that it does not know of */
    uint32_t rank; /* of the member that asked */
    uint32_t size;
    const char *const *addresses; /* by rank: as announced */
    const uint32_t *members;      /* by rank: index in the group */
} trp_generation;

/* Ranks go by age: members of the generation before come first, in their old order. So rank 0 has
 * the state of the group, in all but the first generation, and stays rank 0 while it lives; it is
 * the one that publishes and saves. */

typedef struct trp_rendezvous trp_rendezvous;

/* One member's end; everything is called on the member's thread. */
typedef struct {
    /* This member can be reached at `address` and waits for a generation. Once. UNAVAILABLE: the
     * group has ended. */
    trp_status (*announce)(trp_rendezvous *rendezvous, const char *address);
    /* Waits up to `timeout_ms` for a generation with a number above `after`. Whoever asks has left
     * that one and those before it. The result is borrowed until the next call.
     * DEADLINE_EXCEEDED: there is none yet; UNAVAILABLE: the group has ended, or goes on without
     * this member, and why; CANCELLED: this member is to stop. */
    trp_status (*next)(trp_rendezvous *rendezvous, uint64_t after, int64_t timeout_ms,
                       trp_generation *generation);
    /* The newest generation that there is for this member. Never blocks: a number above that of
     * its own means that the others are leaving it, too, for one with somebody more or fewer; or
     * that there will be none for this member, of which next() says why. */
    uint64_t (*newest)(const trp_rendezvous *rendezvous);
    /* Generation `number` has failed in this member's eyes. Who says nothing of the kind for a
     * while, nor asks for the next one, is taken for lost. Of an older one: nothing. */
    void (*broken)(trp_rendezvous *rendezvous, uint64_t number, const char *why);
} trp_rendezvous_impl;

/* The first member of every rendezvous. */
struct trp_rendezvous {
    const trp_rendezvous_impl *impl;
};

/* ---- a whole group in one process -------------------------------------------------------- */

/* Keeps the rules: who is in the next generation and when it begins, what a failure means. */
typedef struct trp_gang trp_gang;

typedef struct {
    const char *name;     /* of the group, for messages: "learner"; copied */
    uint32_t count;       /* members, 1 to 4096, all expected at once */
    uint32_t least;       /* with fewer the group ends; 0: 1 */
    bool stop_on_failure; /* it ends with the first member that fails */
    bool keeps_nothing;   /* what its members learn is elsewhere: it goes on when all of them are
                             new */
    int64_t silence_ms;   /* how long a member may say nothing of a generation that others call
                             broken, then it is lost; 0: 10 s */
    int64_t start_ms;     /* the same of one that is expected, once another is there; 0: 60 s */
    uint64_t last_number; /* that was ever used: the first generation has one more */
} trp_gang_options;

TRP_API trp_gang *trp_gang_create(const trp_gang_options *options);

/* The end of member `index`. Owned by the gang. */
TRP_API trp_rendezvous *trp_gang_member(trp_gang *gang, uint32_t index);

/* These may be called from any thread. Member `index` has ended: well, or of `failure`. Its
 * generation is broken; the others get the next one. */
TRP_API void trp_gang_left(trp_gang *gang, uint32_t index, const char *failure);

/* Member `index` has ended, if that was not said before, and is being started again: it is expected
 * to announce itself, and gets into a generation with the others then. */
TRP_API void trp_gang_expect(trp_gang *gang, uint32_t index);

/* Looks at the clock, which next() does, too. UNAVAILABLE: the group has ended, and why. */
TRP_API TRP_MUST_USE trp_status trp_gang_check(trp_gang *gang);

/* Its members could say nothing for `ns`, as everything was suspended: it is no silence. */
TRP_API void trp_gang_put_off(trp_gang *gang, int64_t ns);

/* Whether member `index` is lost: it said nothing in time and has not left by itself. */
TRP_API bool trp_gang_lost(trp_gang *gang, uint32_t index);

/* The newest generation; 0: there is none yet. */
TRP_API uint64_t trp_gang_newest(trp_gang *gang);

/* No member is inside a call any more. NULL is fine. */
TRP_API void trp_gang_destroy(trp_gang *gang);

TRP_END_DECLS
#endif
