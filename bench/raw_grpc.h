/* The ceiling of the rpc benchmark: an echo server and clients on gRPC's C core with nothing in
 * between, one thread and one completion queue at each end. */
#ifndef BENCH_RAW_GRPC_H
#define BENCH_RAW_GRPC_H

#include <stddef.h>
#include <stdint.h>

/* Serves /raw/Unary, /raw/Echo (a stream) and /raw/Sink (a stream, one answer at its end) until the
 * process is killed. */
int raw_serve(const char *address);

struct raw_client;

struct raw_client *raw_client_create(const char *address);
void raw_client_destroy(struct raw_client *client);

/* Calls a second of `size` bytes each way with `in_flight` under way, over `calls` of them. */
double raw_unary_rate(struct raw_client *client, size_t size, uint32_t in_flight, uint32_t calls);

/* Messages a second that come back on one stream with at most `window` under way. */
double raw_echo_rate(struct raw_client *client, size_t size, uint32_t window, uint32_t messages);

/* Messages a second that one stream takes; the end is when the server has seen all of them. */
double raw_sink_rate(struct raw_client *client, size_t size, uint32_t messages);

#endif
