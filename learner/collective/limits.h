/* Bounds of learner/collective/ that are no option, with their arithmetic. */
#ifndef TRP_LEARNER_COLLECTIVE_LIMITS_H
#define TRP_LEARNER_COLLECTIVE_LIMITS_H

enum {
    /* On the wire, and between builds: changes with everything that ranks say to each other. */
    COLLECTIVE_WIRE = 6,
    /* Each rank has two connections to each other one: 2046 descriptors. */
    COLLECTIVE_RANKS_MAX = 1024,
    COLLECTIVE_GROUP_BYTES_MAX = 63,
    COLLECTIVE_TIMEOUT_MS = 30000,
    /* mesh.c: how often it is asked whether a generation whose ranks connect is over. */
    COLLECTIVE_LOOK_MS = 50,
    /* mesh.c: connections that have not said who they are, besides two of each rank, and how long
     * they may take to; the oldest makes room. */
    COLLECTIVE_STRANGERS_MAX = 64,
    COLLECTIVE_HELLO_MS = 2000,
    /* mesh.c: until a rank that is not there yet is tried again. */
    COLLECTIVE_REDIAL_MS = 20,
    /* Started and not done, 256 bytes each. */
    COLLECTIVE_OPERATIONS_MAX = 65536,
    /* Old calls that rank 0 still knows when another rank asks what was called. */
    COLLECTIVE_CALLS_KEPT = 64,
    /* transfer.c: so much is received, and summed while it is in the second-level cache, before it
     * is looked whether more can be sent. */
    COLLECTIVE_SEGMENT_BYTES = 128 << 10,
    /* socket_lane.c: so much is sent at a time: just under two of loopback's segments, which hold
     * 64 KiB less headers. A third one of 100 bytes costs as much as a whole one, so 128 KiB took
     * 1.1 to 1.6 times as long. */
    COLLECTIVE_SEND_BYTES = 2 * ((64 << 10) - 128),
    /* transfer.c: what came in is passed on when there is so much of it: a call costs 2 us.
     * shared_lane.c: so much is sent, or received, before the other is looked after. */
    COLLECTIVE_GRAIN_BYTES = 64 << 10,
    /* transfer.c: values that are received together with the call before them. */
    COLLECTIVE_TOGETHER_BYTES = 32 << 10,
    /* shared_lane.c: what is on its way between two ranks of a host, in each direction. It is half
     * of a core's second-level cache at most: bytes are read before they leave it. */
    COLLECTIVE_RING_BYTES = 256 << 10,
    /* And from when they are copied from where they lie: the ring is in the cache, and a call for
     * COLLECTIVE_SEGMENT_BYTES of them needs 20 us. */
    COLLECTIVE_IN_PLACE_BYTES = 1 << 20,
    /* drive.c: how long a waiting thread looks again and again before it sleeps: a message needs 5
     * to 20 us on one host, a sleep costs 50. */
    COLLECTIVE_SPIN_NS = 50000,
    COLLECTIVE_SPIN_LOOKS = 16, /* without giving the processor away */
    /* drive.c: when the collective's own thread takes over from a caller that does not wait; a
     * switch to it costs 5 us. */
    COLLECTIVE_HELP_NS = 1000000,
    COLLECTIVE_HELP_LARGE_NS = 100000,
    COLLECTIVE_LARGE_BYTES = 64 << 10,
    /* connect.c: after the deadline, so that rank 0 says who is missing, to all; and lanes.c: once
     * more, as ranks that have agreed are there. */
    COLLECTIVE_AGREEMENT_MS = 500,
    /* failure.c: when a rank tells the others that it waits: a part of the timeout, but not later
     * than a person notices. And how often it looks who has answered, after the deadline, or
     * whether a rank whose lane failed has. */
    COLLECTIVE_WORRY_PART = 4,
    COLLECTIVE_WORRY_MS_MAX = 100,
    COLLECTIVE_WORRY_AGAIN_MS = 10,
    /* failure.c: from when a lane fails until its rank is given up, if its line says nothing: both
     * end together when a process does. Then, or at the deadline, as long for the answer of a rank
     * that is waited for, and of the one that decides. */
    COLLECTIVE_SILENCE_MS = 500,
    /* native_connect.c: between two looks at NCCL and at who has met, which takes some 100 ms. */
    COLLECTIVE_MEET_MS = 1,
    /* native.c: NCCL hears of a rank's end before its line does, or after. */
    COLLECTIVE_GRACE_MS = 100,
    /* drive.c: how often a caller that sleeps looks at a device, which wakes nobody. */
    COLLECTIVE_DEVICE_LOOK_NS = 50000,
    /* nccl.c: calls return at once, but the first ones load code and find networks; aborting joins
     * threads of NCCL's. A process whose call takes longer ends with this status. */
    COLLECTIVE_CALL_MS = 60000,
    COLLECTIVE_ABORT_MS = 4000,
    /* nccl.c: what else is on a queue when a generation is aborted, the rest of a step, is waited
     * for so long, as trp_queue_sync() does; the time for aborting begins behind that, of all ranks
     * of the process. */
    COLLECTIVE_STEP_MS = 60000,
    /* nccl.c: looks without a sleep whether NCCL has put on a stream what it said that it goes on
     * with; it takes some 100 us. */
    COLLECTIVE_PUT_LOOKS = 256,
    /* nccl.c: queues of one rank's operations; a learner has one. */
    COLLECTIVE_QUEUES_MAX = 8,
    COLLECTIVE_GUARD_MS = 250, /* how often that is looked at */
    COLLECTIVE_HUNG_EXIT = 70,
};

#endif
