/* The ceiling of the replay benchmarks' network: a stream of messages on gRPC's C core that nobody
 * looks into, as large as those that items come in. */
#ifndef BENCH_RAW_LOAD_H
#define BENCH_RAW_LOAD_H

#include "replay_load.h"

struct raw_server {
    struct process process;
    char address[128];
};

/* Serves when these are the arguments that serve_raw() starts this program with; else returns. */
void raw_main(int argc, char **argv);

struct raw_server serve_raw(void);

/* Items a second on a stream of messages of `bytes`, `items` a message, and processor time an item:
 * client_us of the end that sends, server_us of the end that receives. */
struct measured raw_stream(const struct raw_server *server, size_t bytes, size_t items);

/* As many items of this load as a response takes: 2 MiB, or a batch. */
struct measured raw_samples(const struct raw_server *server, const struct load *load);

#endif
