/* PyTorch at the same work on the same GPU: a Python that is told line by line what to do
 * (bench/peers/torch_gpu.py), so that both sides run by turns. */
#ifndef BENCH_GPU_PEER_H
#define BENCH_GPU_PEER_H

#include <stdbool.h>
#include <stddef.h>

struct gpu_peer;

/* NULL: it does not start. */
struct gpu_peer *gpu_peer_start(const char *python, const char *device);
void gpu_peer_stop(struct gpu_peer *peer); /* NULL is fine */

/* Takes up a case, in the words of bench_gpu's row. `how` says how it computes; false: it does not,
 * and why. One that has ended is started again. */
bool gpu_peer_prepare(struct gpu_peer *peer, const char *name, const char *precision, char *how,
                      size_t bytes);

/* Microseconds a step, of a run of that case; 0: it failed. */
double gpu_peer_run(struct gpu_peer *peer);

#endif
