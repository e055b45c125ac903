/* Bounds of envs/ that are no option, with their arithmetic. */
#ifndef TRP_ENVS_LIMITS_H
#define TRP_ENVS_LIMITS_H

#include <stdint.h>

enum {
    /* envs/: environments of one process, and copies of one: 2^20 CartPoles are 100 MB. */
    ENVS_MAX = 256,
    ENV_COPIES_MAX = 1 << 20,
    /* Names with arguments that one process uses, 1 KB each or so: 4 MB. */
    ENV_NAMES_MAX = 4096,
    ENV_NAME_BYTES_MAX = 512,
    ENV_WRAPPERS_MAX = 64,
    ENV_KEYS_MAX = 32, /* arguments and wrappers of one */
    /* One observation of one copy: 170 RGB pictures of 256 x 512. */
    ENV_OBSERVATION_BYTES_MAX = 64 << 20,
    /* one_hot.c: floats of one integer, 4 MB. */
    ONE_HOT_MAX = 1 << 20,
    /* normalize_return.c: as Gymnasium's and Stable-Baselines3's users know it. */
    ENV_REWARD_BOUND = 10,
};

#endif
