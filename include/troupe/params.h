/* Parameters on their way from a learner to who acts: the client of a troupe.Params service, and
 * files with one version. */
#ifndef TRP_PARAMS_H
#define TRP_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/moments.h>
#include <troupe/policy.h>
#include <troupe/rpc.h>
#include <troupe/status.h>
#include <troupe/stop.h>

TRP_BEGIN_DECLS

/* troupe.Params: what a learner serves (params.proto). */
TRP_API const ProtobufCServiceDescriptor *trp_params_descriptor(void);

/* ---- the client -------------------------------------------------------------------------- */

/* Pulls parameters from a troupe.Params service when there are newer ones and reports counts.
 * Belongs to one thread. An older version never replaces a newer one.
 *
 * In the publisher's process it hands out the publisher's snapshot itself, held until the next one;
 * on its host it copies from the publisher's memory, which it maps read-only (as who may look into
 * that process: the same user); else, or where that is refused, parameters come in calls, of any
 * size. */
typedef struct trp_params_client trp_params_client;

/* How parameters come that are sent. As bfloat16 they are half as many bytes: of each number the
 * upper half, rounded to nearest, of two the even one, which is a relative error of at most 2^-8.
 */
typedef enum { TRP_PARAMS_FLOAT32, TRP_PARAMS_BF16 } trp_params_precision;

typedef struct {
    ProtobufCService *service; /* troupe.Params: the object itself or a proxy; borrowed */
    const char *name;          /* whose counts these are ("actor/2"), copied, at most 127 bytes and
                                  without control characters; NULL: nobody's */
    trp_stop *stop;            /* ends waits with CANCELLED; NULL: none */
    int64_t timeout_ms;        /* of one attempt; 0: 2 000 */
    int64_t give_up_ms;        /* failing for so long surfaces the failure; 0: 60 000 */
    trp_params_precision precision;
    bool no_share; /* parameters are sent, wherever the publisher is */
    bool in_place; /* on the publisher's host they are read where they lie, not copied: then ask
                      trp_params_client_is_whole() after reading */
} trp_params_client_options;

/* Calls nobody yet. INVALID_ARGUMENT: the service is another one, which is named. */
TRP_API TRP_MUST_USE trp_status trp_params_client_create(trp_params_client **out,
                                                         const trp_params_client_options *options);
TRP_API void trp_params_client_destroy(trp_params_client *client); /* NULL is fine */

/* Gets newer parameters; `*newer` (may be NULL) says whether there were any. Reports that this life
 * of the client did `steps` and `episodes` so far: with every pull, or, where the publisher's
 * memory is read, with the first that has any and one in 100 ms; the others cost a load, and a copy
 * where there are newer ones. What earlier lives did is added to the report from the learner's
 * first reply on. UNAVAILABLE and DEADLINE_EXCEEDED are tried again, with a warning in the log, for
 * give_up_ms and then returned; other failures at once. CANCELLED: stop. DATA_LOSS: the parameters
 * have another size than before. OUT_OF_RANGE: one of them is not finite; version, place and tensor
 * are named. A vector of more than 2 MiB comes in several calls, each with `timeout_ms` and three
 * at a time, and as one version, however often the learner publishes meanwhile. Blocks for as long
 * as that takes. From the learner: RESOURCE_EXHAUSTED: more clients with a name than 65 536, or too
 * many statistics; INVALID_ARGUMENT: the name, or statistics that no numbers have;
 * FAILED_PRECONDITION: statistics of another length than another client's. RESOURCE_EXHAUSTED here:
 * no memory for the vector. After any failure the parameters are what they were. */
TRP_API TRP_MUST_USE trp_status trp_params_client_pull(trp_params_client *client, uint64_t steps,
                                                       uint64_t episodes, bool *newer);

/* The same, and the counts are reported now. */
TRP_API TRP_MUST_USE trp_status trp_params_client_sync(trp_params_client *client, uint64_t steps,
                                                       uint64_t episodes, bool *newer);

/* For who passes parameters on (trp_publisher_forward()): what `count` clients of its own did, at
 * most TRP_PARAMS_CARRIED_MAX, is reported with the next call, which the next pull is, and what is
 * remembered of them comes back. Borrowed until that pull has returned. */
enum { TRP_PARAMS_CARRIED_MAX = 1024 };
TRP_API void trp_params_client_carry(trp_params_client *client, const trp_client_counts *counts,
                                     size_t count);

/* What the last pull that carried any brought back, in the order in which they were carried; valid
 * until the next pull. Statistics only of those that were carried without. */
TRP_API const trp_client_counts *trp_params_client_carried(const trp_params_client *client,
                                                           size_t *count);

/* With `in_place`, after what was to be read was read: whether that is one whole version. False:
 * the publisher has written others meanwhile; pull again, then it is copied. Without, always true.
 */
TRP_API bool trp_params_client_is_whole(trp_params_client *client);

/* What the environments of this life of the client have seen so far (trp_env_statistics()), for the
 * pulls to come; copied. What earlier lives saw is added as for steps; a life that is killed loses
 * what it saw since its last pull, and nothing counts twice. For clients with a name. Never blocks.
 */
TRP_API void trp_params_client_report(trp_params_client *client, const trp_moments *statistics,
                                      size_t count);

/* Pulls until there is a first version: waits up to `timeout_ms` (negative: no bound), whether
 * nothing is published yet (DEADLINE_EXCEEDED) or pulls fail, for give_up_ms at most: then it fails
 * as trp_params_client_pull() does. */
TRP_API TRP_MUST_USE trp_status trp_params_client_wait(trp_params_client *client,
                                                       int64_t timeout_ms);

/* What the last pull left; all zero before the first. `params` is valid until the next pull. */
typedef struct {
    const float *params;
    size_t count;
    uint64_t version; /* 0: none yet */
    /* What lies where in them (trp_net_layout()), valid as long as the client. NULL or "": the
     * learner does not say. */
    const char *layout;
    /* Published with them, for trp_env_use_statistics(), valid as long; 0: no client had any. */
    const trp_moments *statistics;
    size_t statistic_count;
    uint64_t base_steps; /* of earlier lives of this client */
    uint64_t base_episodes;
    uint64_t total_steps; /* of all clients, of this life of this one `own_steps` */
    uint64_t own_steps;
    uint64_t learner_steps; /* of the learner at that version */
    uint64_t pulls, fetched;
    /* How stale they are: versions that are known to have been published since, and for how long it
     * has not been known that there are none. */
    uint64_t lag;
    int64_t age_ns;
    uint64_t first_version; /* of this life of the publisher; 0: it does not say */
} trp_params_state;

TRP_API trp_params_state trp_params_client_state(const trp_params_client *client);

/* Loads what was pulled into a policy. Where the policy names its tensors, there must be as many
 * numbers as it says, and where the learner does, too, the same tensors at the same places:
 * FAILED_PRECONDITION names the first that differs. Other failures as the policy's load. */
TRP_API TRP_MUST_USE trp_status trp_params_use(const trp_params_state *state, trp_policy *policy);

/* ---- files ------------------------------------------------------------------------------- */

/* A file with one version of the parameters (safetensors, notes "version" and "learner_steps"),
 * written as trp_checkpoint_write() does. Where `policy` names its tensors, the file has them by
 * these names, in PyTorch's shapes and order, and safetensors.torch.load_file() gives what a module
 * with the same layers takes in load_state_dict(); else, or without a policy (NULL), it has one
 * vector, "params". Statistics of the state are a tensor of float64 [n, 3] beside it,
 * "learner.statistics": count, mean and squares as in moments.h. FAILED_PRECONDITION: the state is
 * of another network than the policy's, as in trp_params_use(). */
TRP_API TRP_MUST_USE trp_status trp_params_write(const char *path, const trp_params_state *state,
                                                 const trp_policy *policy);

/* Loads such a file, a learner's checkpoint, or what PyTorch wrote with these names and shapes,
 * into a policy; of a checkpoint, the part that was published. `version` may be NULL; without the
 * note it is 0. Other tensors are left alone where trp_params_write() did not make the file.
 * FAILED_PRECONDITION names the tensor that is missing, is too many, has another shape or lies
 * elsewhere, OUT_OF_RANGE the first that has a number which is not finite; other failures as
 * trp_checkpoint_read() and the policy's load. */
TRP_API TRP_MUST_USE trp_status trp_params_load(const char *path, trp_policy *policy,
                                                uint64_t *version);

/* The statistics of such a file, or of a learner's checkpoint, for trp_env_use_statistics(); for
 * free(). NULL and 0: it has none. DATA_LOSS: they are none; others as trp_checkpoint_read(). */
TRP_API TRP_MUST_USE trp_status trp_params_load_statistics(const char *path,
                                                           trp_moments **statistics, size_t *count);

TRP_END_DECLS
#endif
