/* What learner/collective/nccl_api.h says of NCCL beside NVIDIA's own header, where there is one:
 * it compiles, or it is wrong. */
#include <nccl.h>

#include "learner/collective/nccl_api.h"

#define SAME(MINE, THEIRS) _Static_assert((int)(MINE) == (int)(THEIRS), #MINE)
#define SAME_PLACE(MINE, THEIRS)                                                                   \
    _Static_assert(offsetof(struct nccl_config, MINE) == offsetof(ncclConfig_t, THEIRS), #MINE)

SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_CUDA_ERROR, ncclUnhandledCudaError);
SAME(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(NCCL_IN_PROGRESS, ncclInProgress);
SAME(NCCL_I32, ncclInt32);
SAME(NCCL_U64, ncclUint64);
SAME(NCCL_F32, ncclFloat32);
SAME(NCCL_BF16, ncclBfloat16);
SAME(NCCL_SUM, ncclSum);
SAME(NCCL_MAX, ncclMax);
SAME(NCCL_AVG, ncclAvg);
SAME(sizeof(struct nccl_id), sizeof(ncclUniqueId));
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(net_name, netName);
SAME_PLACE(split_share, splitShare);
SAME_PLACE(comm_name, commName);
SAME_PLACE(collnet_enable, collnetEnable);
_Static_assert(sizeof(struct nccl_config) <= sizeof(ncclConfig_t), "it only ever grew");
