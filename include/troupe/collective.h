/* Collective operations: the ranks of a group combine vectors. A trp_collective is one rank's end
 * of one generation of a group: it is made with all others of the generation, and is dead for good
 * after any failure; whoever is left forms the next generation.
 *
 * All ranks start the same operations in the same order, each rank from one thread. Starting never
 * waits and never fails: what failed comes out of trp_collective_wait(), with the same words on
 * every rank, and stays. An operation has a ticket; they are done in order. The waiting thread
 * drives the transfer itself; a thread of the collective's own does while nobody waits, so that
 * other work may go on meanwhile.
 *
 * Between processes of one host that run as one user, what ranks send each other goes through
 * memory that each lets the others read; where that cannot be, and between hosts, through their
 * connections. A line of the log says which; results have the same bits.
 *
 *     // The mean of a vector over the group.
 *     static trp_status mean(trp_collective *group, float *values, size_t count)
 *     {
 *         uint64_t ticket = trp_collective_allreduce(group, NULL, values, count,
 *                                                    TRP_COLLECTIVE_F32, TRP_COLLECTIVE_SUM);
 *         TRP_TRY(trp_collective_wait(group, ticket));
 *         for (size_t i = 0; i < count; i++)
 *             values[i] /= (float)trp_collective_size(group);
 *         return TRP_OK;
 *     }
 */
#ifndef TRP_COLLECTIVE_H
#define TRP_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/device.h>
#include <troupe/status.h>
#include <troupe/stop.h>

TRP_BEGIN_DECLS

/* Between ranks that connect, each with a GPU as its `device`, vectors of it go by NVIDIA's NCCL
 * where all have the same one (2.28 or newer: libnccl.so.2 of CUDA_HOME, of the loader, or of a
 * Python's packages) and can join by it, which two with one GPU cannot; else they go through the
 * host's memory, and a line of the log says why. Not with `deterministic`: NCCL's order of sums
 * follows from the machine, too. Floats' largest values go through the host as well, as NCCL drops
 * NaNs. NCCL reads its own NCCL_... variables. A call of it that hangs ends the process, with
 * status 70. Ranks that are threads of one process, 2 to 16 of them with the same device, sum up
 * there (trp_collective_local_create()), if not `deterministic`. Never run on a GPU. */
typedef struct trp_collective trp_collective;

/* The types of values. bf16 (as uint16_t) is summed in float32 and rounded at each hop; integers
 * wrap around. */
typedef enum {
    TRP_COLLECTIVE_F32,
    TRP_COLLECTIVE_BF16,
    TRP_COLLECTIVE_I32,
    TRP_COLLECTIVE_U64,
} trp_collective_type;

/* The largest of several floats, one of which is a NaN, is a NaN. */
typedef enum {
    TRP_COLLECTIVE_SUM,
    TRP_COLLECTIVE_MAX,
} trp_collective_op;

typedef struct {
    const char *group;            /* in errors, and compared; at most 63 bytes; NULL: "" */
    uint64_t generation;          /* never used twice by a group */
    uint64_t nonce;               /* a secret of the generation's members */
    uint32_t rank, size;          /* this rank, of so many */
    const char *const *addresses; /* of all ranks' listeners, by rank */
    /* By rank, a name of where it is, of which all ranks have the same ones; NULL: the hosts of the
     * addresses. Of several sites, some with several ranks, one rank of each sums up with those of
     * the others: S bytes go 2 (sites - 1) times between sites, in each of them up and down a chain
     * of its ranks. */
    const char *const *sites;
    uint64_t fingerprint; /* of what has to be the same on all ranks, e.g. the network's layout */
    uint32_t timeout_ms;  /* for each operation; 0: 30 s; then who it is that all wait for is asked
                             around, for a second at most */
    uint32_t connect_timeout_ms; /* 0: the same */
    bool deterministic; /* sums are in an order that follows from count, size and sites alone */
    bool no_share; /* ranks of this host are reached as others are; each rank may have its own */
    trp_device *device; /* where vectors may be besides the host; NULL: nowhere */
    trp_stop *stop;     /* ends connecting with CANCELLED; may be NULL */
    /* Asked now and then while ranks connect: whether the generation is over before it began, as
     * some rank may be in a later one already, which ends it with UNAVAILABLE. May be NULL. */
    bool (*is_over)(void *context);
    void *context;
} trp_collective_options;

/* ---- groups -------------------------------------------------------------------------------- */

/* All `size` ranks at once, for threads of this process: out[rank] is for one of them each. Of the
 * options only group, generation, fingerprint, timeout_ms, deterministic, sites and device count;
 * without sites there is one. Vectors of that device, each on a queue of its rank's, are summed
 * where they lie, in the order of ranks: up to 16 virtual ranks on one GPU (16 at most; more go
 * through the host's memory).
 * RESOURCE_EXHAUSTED: no thread or no descriptor was left; nothing was made then. */
TRP_API TRP_MUST_USE trp_status trp_collective_local_create(trp_collective **out, uint32_t size,
                                                            const trp_collective_options *options);

typedef struct trp_collective_listener trp_collective_listener;

/* Where this member of groups is reached: host:port (port 0: a free one), [v6]:port or unix:/path;
 * NULL: 127.0.0.1:0. INVALID_ARGUMENT: malformed, or neither loopback nor unix while not
 * `insecure`: what ranks say to each other is not encrypted. ALREADY_EXISTS: somebody listens there
 * (who, where that can be found out). */
TRP_API TRP_MUST_USE trp_status trp_collective_listener_create(trp_collective_listener **out,
                                                               const char *address, bool insecure);

/* As others connect to it. */
TRP_API const char *trp_collective_listener_address(const trp_collective_listener *listener);

/* Nobody connects with it any more; groups that were made stay. NULL is fine. */
TRP_API void trp_collective_listener_destroy(trp_collective_listener *listener);

/* This rank's end of a generation, whose other ranks connect at the same time, each with options
 * that agree but for rank. Blocks until all are there, for options.connect_timeout_ms at most.
 * Strangers, and ranks of other generations, are turned away; they hold up nobody. Fails with
 *   DEADLINE_EXCEEDED: some ranks did not come (which);
 *   UNAVAILABLE: one came and is gone again; or this generation is over: another rank is in a later
 *     one;
 *   FAILED_PRECONDITION: two ranks differ in version, options or fingerprint, in the same words on
 *     all ranks (of several that speak another wire than rank 0, each names itself);
 *   INVALID_ARGUMENT: an address is none;
 *   CANCELLED: the stop was requested. */
TRP_API TRP_MUST_USE trp_status trp_collective_connect(trp_collective **out,
                                                       trp_collective_listener *listener,
                                                       const trp_collective_options *options);

/* Leaves the group: operations that are not done fail on all other ranks. Memory of operations is
 * not touched any more when it returns. On the thread of the queues of its operations, before they
 * are destroyed. NULL is fine. */
TRP_API void trp_collective_destroy(trp_collective *collective);

TRP_API uint32_t trp_collective_rank(const trp_collective *collective);
TRP_API uint32_t trp_collective_size(const trp_collective *collective);

/* Ranges begin at multiples of so many values, 64 bytes of the smallest type. */
enum { TRP_COLLECTIVE_RANGE_VALUES = 32 };

/* Rank `rank`'s range of `count` values, [low, high): together they are all, in the order of ranks,
 * and as even as that goes; some may be empty. */
TRP_API void trp_collective_range(const trp_collective *collective, size_t count, uint32_t rank,
                                  size_t *low, size_t *high);

/* ---- operations ---------------------------------------------------------------------------- */

/* All work in place on `count` values, and return a ticket. Their memory is that of the queue's
 * device, and the operation comes after everything that is on the queue so far; or the host's, for
 * which `queue` may be NULL. Nobody touches it until the operation was waited for, or is known to
 * be on the queue (trp_collective_queued()): then what is put on the queue comes after the
 * operation. Memory of a device is transferred while its rank waits, never behind its back, but by
 * NCCL. */

/* The sum or largest over all ranks, on all ranks: the same bits everywhere. */
TRP_API uint64_t trp_collective_allreduce(trp_collective *collective, trp_queue *queue,
                                          void *values, size_t count, trp_collective_type type,
                                          trp_collective_op op);

/* The same, of which each rank gets its range; the other values are undefined. The bits are those
 * that allreduce gives, but by NCCL, which may sum floats in another order. */
TRP_API uint64_t trp_collective_reduce_scatter(trp_collective *collective, trp_queue *queue,
                                               void *values, size_t count, trp_collective_type type,
                                               trp_collective_op op);

/* Each rank's range of values, on all ranks. */
TRP_API uint64_t trp_collective_all_gather(trp_collective *collective, trp_queue *queue,
                                           void *values, size_t count, trp_collective_type type);

/* Rank `root`'s values, on all ranks. */
TRP_API uint64_t trp_collective_broadcast(trp_collective *collective, trp_queue *queue,
                                          void *values, size_t count, trp_collective_type type,
                                          uint32_t root);

/* Of 2 x size blocks of [count] values, which are the host's: block j goes to rank j, and block
 * size + j becomes the one that rank j sent here. Block size + rank stays as it is. */
TRP_API uint64_t trp_collective_all_to_all(trp_collective *collective, void *values, size_t count,
                                           trp_collective_type type);

/* Of 2 blocks of [count] values, which are the host's: the first goes to the rank `distance` after
 * this one, round the group, and the second becomes that of the rank as far before. A rank waits
 * for those two alone. Where that is this rank itself nothing happens. */
TRP_API uint64_t trp_collective_shift(trp_collective *collective, void *values, size_t count,
                                      trp_collective_type type, uint32_t distance);

/* Done when all ranks have started it. */
TRP_API uint64_t trp_collective_barrier(trp_collective *collective);

/* True when what is put on the operation's queue from here on comes after it, though nobody waited
 * for it, and may use its memory there: so it is when NCCL does it, or virtual ranks that have all
 * come. A step of a GPU with operations in it is then one graph; whether they went well is known
 * when the last of them is waited for, before anything is made of the step. Never blocks. */
TRP_API bool trp_collective_queued(trp_collective *collective, uint64_t ticket);

/* True when a wait for it would return at once. Never blocks. */
TRP_API bool trp_collective_done(trp_collective *collective, uint64_t ticket);

/* Waits until the operation, and all before it, are done: as long as the options' timeout, counted
 * from when it could begin. Fails, with the same words on all ranks that live, with
 *   UNAVAILABLE: a rank is gone (which), or gave up with trp_collective_abort(); or two that live
 *     are cut off from each other (which);
 *   DEADLINE_EXCEEDED: a rank is waited for (which, in what); or all live, and what one sends
 *     another does not arrive;
 *   FAILED_PRECONDITION: two ranks started different operations (which ranks, what): kind, count,
 *     type, sum or max, root, distance;
 *   and whatever the device of a queue says, on its rank alone, as INTERNAL where that is one of
 *     the first two: with it nothing can be tried again. For the others that rank is gone. */
TRP_API TRP_MUST_USE trp_status trp_collective_wait(trp_collective *collective, uint64_t ticket);

/* Ends the generation: all waits of all ranks fail with UNAVAILABLE and `why`, those that are going
 * on at once. Safe from any thread; only the first failure counts. */
TRP_API void trp_collective_abort(trp_collective *collective, const char *why);

/* ---- counters ------------------------------------------------------------------------------ */

/* What this rank did. Bytes are those of values. A message is what one rank sends another in one
 * step of an operation, whatever its size. */
typedef struct {
    uint64_t operations; /* done */
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received;
    uint32_t shared_ranks;    /* others that it reaches through shared memory, from the beginning */
    uint64_t bytes_sent_away; /* of those sent: to other sites, but by NCCL */
} trp_collective_counters;

TRP_API trp_collective_counters trp_collective_read(trp_collective *collective);

TRP_END_DECLS
#endif
