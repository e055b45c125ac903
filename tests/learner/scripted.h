/* A network of endpoints in one thread, where what happens, and when, is written down: for rules
 * that are messages in and messages out. The same events can be told to a reference that knows
 * nothing of messages (scripted_events()).
 *
 * A script is words, an event each:
 *     0      endpoint 0 acts
 *     0>1    the oldest message from 0 to 1 arrives
 *     0>1#2  the third oldest does, past the others
 *     0+1    the oldest arrives, and is on its way all the same: it comes twice
 *     0-1    the oldest is lost
 *     0!     0 is killed: it acts no more, and messages are lost that come there
 *     0^     0 begins again; messages arrive that are on their way to it
 *     .      time passes: whatever has been on its way as long as its link takes arrives
 *     *      whatever is on its way arrives, the oldest first, and what is sent meanwhile
 * A script that asks for what cannot be fails the test, and says where. */
#ifndef TRP_TESTS_LEARNER_SCRIPTED_H
#define TRP_TESTS_LEARNER_SCRIPTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/rng.h>

enum { SCRIPTED_ENDPOINTS_MAX = 16 };

struct scripted;

/* What endpoints do; each is NULL where it is nothing. */
struct scripted_impl {
    void (*act)(void *context, uint32_t self);
    void (*hear)(void *context, uint32_t self, uint32_t from, const void *bytes, size_t size);
    void (*begin)(void *context, uint32_t self); /* again, after it was killed */
};

/* All endpoints live; every link takes one unit of time. */
struct scripted *scripted_create(uint32_t count, const struct scripted_impl *impl, void *context);
void scripted_destroy(struct scripted *net); /* NULL is fine */

/* A copy is on its way. */
void scripted_send(struct scripted *net, uint32_t from, uint32_t to, const void *bytes,
                   size_t size);

/* Messages that are sent from now on take so long, 1 at least; also from an endpoint to all others
 * and from all to one: SCRIPTED_ANY. */
enum { SCRIPTED_ANY = UINT32_MAX };
void scripted_delay(struct scripted *net, uint32_t from, uint32_t to, uint64_t time);

void scripted_play(struct scripted *net, const char *script);

/* One event, drawn: percentages of what may happen. A seed makes a script. */
struct scripted_odds {
    uint32_t acts;               /* of events; the others are messages' */
    uint32_t lost, twice, ahead; /* of messages' events; ahead: of any message, not the oldest */
};
void scripted_draw(struct scripted *net, trp_rng *rng, const struct scripted_odds *odds);

bool scripted_lives(const struct scripted *net, uint32_t endpoint);
size_t scripted_on_their_way(const struct scripted *net);
uint64_t scripted_time(const struct scripted *net);

/* Of one endpoint to another, SCRIPTED_ANY as above: what was sent so far, however it fared. */
struct scripted_sent {
    uint64_t messages, bytes;
};
struct scripted_sent scripted_sent(const struct scripted *net, uint32_t from, uint32_t to);

/* ---- what happened --------------------------------------------------------------------------- */

enum scripted_kind {
    SCRIPTED_ACTS,
    SCRIPTED_ARRIVES,
    SCRIPTED_LOST,
    SCRIPTED_KILLED,
    SCRIPTED_BEGINS,
};

struct scripted_event {
    enum scripted_kind kind;
    uint32_t from, to; /* the same of what happens to one endpoint */
    uint64_t message;  /* which of those that were sent from one to the other, from 0 on */
};

/* Until something else happens. */
const struct scripted_event *scripted_events(const struct scripted *net, size_t *count);

/* A script of the same events, whether they were written, drawn, or came with time; caller frees.
 */
char *scripted_story(const struct scripted *net);

#endif
