/* Lines: beside its lane a rank has a line to each other rank, a stream socket on which few and
 * short notices go, so that a failure need not wait until a lane has room, and whose end says that
 * the other process has ended. */
#ifndef TRP_LEARNER_NOTICE_H
#define TRP_LEARNER_NOTICE_H

#include <troupe/status.h>
#include "call.h"

enum notice_kind {
    NOTICE_WAITS = 1, /* in `call`, for `rank`; asks whom the other one waits for */
    NOTICE_ANSWERS,   /* the same, answered (failure.c) */
    NOTICE_DIFFERS,   /* `call` is mine, `other` came from `rank` */
    NOTICE_FAILED,    /* with `status` and the text: so does everybody */
    NOTICE_LEAVES,    /* in order: nothing more comes */
};

enum { NOTICE_TEXT_BYTES_MAX = 1023 };

/* On the wire. */
struct notice {
    uint32_t kind, status, rank, text_bytes;
    struct group_call call, other;
};
_Static_assert(sizeof(struct notice) == 64, "on the wire: change COLLECTIVE_WIRE with it");

struct notice_line {
    int fd;      /* -1: there is none */
    bool closed; /* the other end */
    bool full;   /* it did not read for long: nothing more is sent */
    bool left;   /* it said so */
    size_t have;
    uint8_t bytes[sizeof(struct notice) + NOTICE_TEXT_BYTES_MAX];
};

/* Never waits. A line that is full takes no more notices: who does not read them is stopped. */
void notice_send(struct notice_line *line, const struct notice *notice, const char *text);

/* The next one that came, if any; of a closed line, none. Notices that cannot be from a rank close
 * it. Never waits. */
bool notice_receive(struct notice_line *line, struct notice *notice,
                    char text[NOTICE_TEXT_BYTES_MAX + 1]);

void notice_line_cleanup(struct notice_line *line);

#endif
