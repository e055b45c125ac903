/* Peers beside benchmarks, scripts of bench/peers/ that print a number: PyTorch's print
 * microseconds.
 */
#ifndef BENCH_TORCH_PEER_H
#define BENCH_TORCH_PEER_H

/* DIR of `PROGRAM [--peer DIR]`, the only words it takes; NULL: no peer. Others end the program. */
const char *torch_peer_dir(int argc, char **argv);

/* What `words`, a script and its arguments, print when run now by the Python of DIR/`folder`; 0
 * without a peer. */
double peer_script(const char *dir, const char *folder, const char *words);
/* The same by DIR/torch. */
double torch_peer_us(const char *dir, const char *words);

#endif
