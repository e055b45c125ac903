/* Bounds of replay/disk/ that are no option, with their arithmetic. */
#ifndef TRP_REPLAY_DISK_LIMITS_H
#define TRP_REPLAY_DISK_LIMITS_H

#include <stdint.h>

enum {
    /* fetcher.c: two of them ask and wait while others wait for slow pages; so many bytes are
     * in the disk's queue; the kernel takes 128 KB of a request everywhere. */
    FETCH_THREADS = 4,
    FETCH_BYTES_MAX = 32 << 20,
    FETCH_STEP_BYTES = 128 << 10,
    /* checkpoint_dir.c: more than anybody keeps; each is a directory that is looked into. */
    CHECKPOINTS_MAX = 10000,
};

/* disk/dir.c: a map leaves room for its file system to grow to so many times its size, and to
 * 64 GiB in any case. The thread sanitizer has 1.5 TiB for all maps of a process, and to the
 * address sanitizer a map costs time by its size. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define STORE_MAP_GROWTH 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define STORE_MAP_GROWTH 1
#endif
#endif
#ifndef STORE_MAP_GROWTH
#define STORE_MAP_GROWTH 4
#endif
#define STORE_MAP_BYTES_MIN (UINT64_C(1) << 36)

#endif
