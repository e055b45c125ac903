/* The functions of NVIDIA's NCCL that are used, in a libnccl.so.2 that is opened at run time. Its
 * header needs CUDA's: what is used of it stands here, as of NCCL 2.28 (a test holds it beside that
 * header where there is one). */
#ifndef TRP_LEARNER_NCCL_API_H
#define TRP_LEARNER_NCCL_API_H

#include <limits.h>
#include <stddef.h>

#include <troupe/status.h>

enum { NCCL_ID_BYTES = 128 };

enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_CUDA_ERROR = 1,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7,
};

enum nccl_type { NCCL_I32 = 2, NCCL_U64 = 5, NCCL_F32 = 7, NCCL_BF16 = 9 };
enum nccl_reduction { NCCL_SUM = 0, NCCL_MAX = 2, NCCL_AVG = 4 /* of bench/ alone */ };

/* Made by rank 0; whoever has it can join. */
struct nccl_id {
    char bytes[NCCL_ID_BYTES];
};

struct nccl_comm;

struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet_enable, cta_policy, shrink_share, nvls_ctas, channels_per_net_peer,
        nvlink_centric_sched;
};

enum { NCCL_VERSION_LEAST = 22800 }; /* 2.28.0: the first with this config */

#define NCCL_CONFIG_DEFAULT                                                                        \
    {                                                                                              \
        sizeof(struct nccl_config), 0xcafebeef, NCCL_VERSION_LEAST, INT_MIN, INT_MIN, INT_MIN,     \
            INT_MIN, NULL, INT_MIN, INT_MIN, NULL, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN,    \
            INT_MIN                                                                                \
    }

/* X(name without "nccl", what it takes) of all that return a result. */
#define NCCL_FUNCTIONS(X)                                                                          \
    X(GetVersion, (int *version))                                                                  \
    X(GetUniqueId, (struct nccl_id * id))                                                          \
    X(CommInitRankConfig, (struct nccl_comm * *comm, int ranks, struct nccl_id id, int rank,       \
                           struct nccl_config *config))                                            \
    X(CommCuDevice, (struct nccl_comm * comm, int *device))                                        \
    X(CommGetAsyncError, (struct nccl_comm * comm, enum nccl_result * result))                     \
    X(CommFinalize, (struct nccl_comm * comm))                                                     \
    X(CommDestroy, (struct nccl_comm * comm))                                                      \
    X(CommAbort, (struct nccl_comm * comm))                                                        \
    X(GroupStart, (void))                                                                          \
    X(GroupEnd, (void))                                                                            \
    X(AllReduce, (const void *from, void *to, size_t count, enum nccl_type type,                   \
                  enum nccl_reduction op, struct nccl_comm *comm, void *stream))                   \
    X(ReduceScatter, (const void *from, void *to, size_t count, enum nccl_type type,               \
                      enum nccl_reduction op, struct nccl_comm *comm, void *stream))               \
    X(Reduce, (const void *from, void *to, size_t count, enum nccl_type type,                      \
               enum nccl_reduction op, int root, struct nccl_comm *comm, void *stream))            \
    X(AllGather, (const void *from, void *to, size_t count, enum nccl_type type,                   \
                  struct nccl_comm *comm, void *stream))                                           \
    X(Broadcast, (const void *from, void *to, size_t count, enum nccl_type type, int root,         \
                  struct nccl_comm *comm, void *stream))

struct nccl_api {
#define NCCL_FIELD(NAME, TAKES) enum nccl_result(*NAME) TAKES;
    NCCL_FUNCTIONS(NCCL_FIELD)
#undef NCCL_FIELD
    const char *(*GetErrorString)(enum nccl_result result);
    const char *(*GetLastError)(struct nccl_comm *comm);
    int version; /* 22809: 2.28.9 */
    char path[1024];
};

/* UNAVAILABLE: there is none, it lacks a function (which), or is too old. It stays open. */
TRP_MUST_USE trp_status nccl_open(struct nccl_api *api);

#endif
