/* What `troupe replay serve` is told. */
#ifndef TRP_CLI_REPLAY_SERVE_H
#define TRP_CLI_REPLAY_SERVE_H

#include "cli.h"

struct serve_args {
    bool insecure, force, if_missing, shrink, verify, no_share;
    const char *listen, *dir, *file, *checkpoint_dir, *restore;
    struct cli_list tables;
    uint32_t json, durability, log_level; /* as trp_durability and trp_log_level count */
    uint64_t max_bytes, seed, keep_checkpoints;
};

#endif
