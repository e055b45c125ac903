/* PyTorch beside the benchmarks of networks: scripts of bench/peers/ that print microseconds. */
#ifndef BENCH_TORCH_PEER_H
#define BENCH_TORCH_PEER_H

/* DIR of `PROGRAM [--peer DIR]`, the only words it takes; NULL: no peer. Others end the program. */
const char *torch_peer_dir(int argc, char **argv);

/* What `words`, a script and its arguments, print when run now; 0 without a peer. */
double torch_peer_us(const char *dir, const char *words);

#endif
