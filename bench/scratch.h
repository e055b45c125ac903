/* Directories for what a benchmark stores: gone when it is, however it ends. */
#ifndef BENCH_SCRATCH_H
#define BENCH_SCRATCH_H

#include <stdbool.h>

/* A new directory in `parent`. When the program ends without remove_dir(), killed even, a process
 * of its own removes it. */
char *make_dir(const char *parent);
void remove_dir(char *dir); /* frees the path */

bool on_tmpfs(const char *path);

#endif
