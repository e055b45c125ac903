/* Messages between the launcher and the processes it started: one packet each, in text, over a
 * socket pair that the child inherits.
 *
 *   child -> launcher                       launcher -> child
 *   hello NODE HASH BUILD                   begun NODE            its process is there
 *   ready NODE ADDRESS                      peer NODE ADDRESS     it serves there
 *   report NODE METRIC LAST SUM COUNT       gone NODE HOW         it ended or failed
 *   program NODE success|failure REASON     stop NODE             end it
 *   failed NODE CODE TEXT                   start NODE SEED       begin it again
 *   done NODE                               publisher NODE        of its group, from now on
 *
 * and between a learner of a group and the launcher, where the group meets (rendezvous.h):
 *
 *   announce NODE ADDRESS                   member NODE NUMBER RANK INDEX ADDRESS
 *   broken NODE NUMBER WHY                  generation NODE NUMBER NONCE RANK SIZE FIRST FOUNDER
 *   over NODE NUMBER                        dismissed NODE WHY
 *   missed NODE SERVER WHY
 *
 * `failed` comes before a node withdraws what it serves, where its body does not do that itself,
 * and `done` when it has ended, failed or not. `over` asks for a generation above NUMBER. A
 * generation's members come first, by rank. NODE is a node's number in the graph; the rest is up to
 * the end of the packet, and SERVER that of one that does not answer. End of file means that the
 * other side is gone. */
#ifndef TRP_LAUNCH_CONTROL_H
#define TRP_LAUNCH_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include <troupe/status.h>

#include "limits.h"

enum control_verb {
    CONTROL_HELLO,
    CONTROL_READY,
    CONTROL_REPORT,
    CONTROL_PROGRAM,
    CONTROL_FAILED,
    CONTROL_DONE,
    CONTROL_ANNOUNCE,
    CONTROL_BROKEN,
    CONTROL_OVER,
    CONTROL_MISSED,
    CONTROL_BEGUN,
    CONTROL_PEER,
    CONTROL_GONE,
    CONTROL_STOP,
    CONTROL_START,
    CONTROL_PUBLISHER,
    CONTROL_MEMBER,
    CONTROL_GENERATION,
    CONTROL_DISMISSED,
};

struct control_message {
    enum control_verb verb;
    uint32_t node;
    const char *rest; /* inside `bytes` */
    char bytes[CONTROL_MESSAGE_BYTES_MAX];
};

/* The address of a node that only its own process can reach. */
#define IN_PROCESS "in-process"

/* The number of the child's end. */
enum { CHILD_CONTROL_FD = 3 };

/* A connected pair, close-on-exec, non-blocking. */
TRP_MUST_USE trp_status control_pair(int fds[2]);

/* Sends one message, waiting up to `timeout_ms` for room (0: does not wait). Longer text is cut.
 * DEADLINE_EXCEEDED: no room; UNAVAILABLE: the other side is gone. */
TRP_MUST_USE trp_status control_send(int fd, int64_t timeout_ms, enum control_verb verb,
                                     uint32_t node, const char *format, ...) TRP_PRINTF(5, 6);

/* The next message; never waits. DEADLINE_EXCEEDED: there is none; UNAVAILABLE: the other side is
 * gone and everything was read; INVALID_ARGUMENT: not a message. */
TRP_MUST_USE trp_status control_receive(int fd, struct control_message *message);

/* The build of the running executable and library: equal for two processes of one build. */
void control_build_id(char *text, size_t size);

#endif
