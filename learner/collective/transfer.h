/* An operation on its way: how far its pieces are. */
#ifndef TRP_LEARNER_TRANSFER_H
#define TRP_LEARNER_TRANSFER_H

#include "limits.h"
#include "reduce.h"
#include "schedule.h"
#include "transport.h"

/* How far a rank is in one of its two lists. */
struct transfer_end {
    uint32_t index; /* of the piece at hand */
    bool begun;     /* `piece` is it */
    struct schedule_piece piece;
    size_t call_bytes; /* of the call that goes ahead */
    size_t bytes;      /* of the piece's values */
    bool copied;       /* the snapshot was made */
};

struct transfer {
    struct schedule schedule;
    uint8_t *values;
    uint8_t *snapshot; /* room for all values of a schedule with snapshots */
    size_t value_bytes;
    reduce_kernel reduce;
    struct transfer_end sent, received;
    const uint32_t *sites; /* by rank */
    uint64_t bytes_sent, bytes_received, bytes_sent_away;
};

/* What it points to is borrowed. */
void transfer_init(struct transfer *transfer, const struct schedule *schedule, void *values,
                   uint8_t *snapshot, const uint32_t *sites);

/* What came of a look. */
struct transfer_look {
    bool moved;              /* some bytes */
    uint32_t peer;           /* of the two below */
    trp_status status;       /* the lane failed */
    bool differs;            /* the peer called something else: */
    struct group_call other; /* this */
};

/* Moves what can be moved over the lanes, by rank. Never waits. */
struct transfer_look transfer_advance(struct transfer *transfer, struct peer_lane *const *lanes);

bool transfer_is_done(const struct transfer *transfer);

/* The rank that it waits for, while it is not done. */
uint32_t transfer_waits_for(const struct transfer *transfer);

/* Arms the lanes that it waits for: *count descriptors, at most 2. False: it can go on. */
bool transfer_arm(struct transfer *transfer, struct peer_lane *const *lanes, struct pollfd *fds,
                  struct peer_lane **armed, unsigned *count);

#endif
