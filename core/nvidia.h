/* Libraries of NVIDIA's, which come in many ways: a toolkit, packages of a distribution, wheels of
 * every Python. None is linked: a host without them runs the same program. */
#ifndef TRP_CORE_NVIDIA_H
#define TRP_CORE_NVIDIA_H

struct nvidia_library {
    void *handle;    /* of dlopen(); NULL: it is nowhere */
    char path[1024]; /* where it is; else where it was looked for, or why it does not load */
};

/* Directories to look under before the machine's, with colons between them: toolkits (CUDA_HOME) or
 * environments of Python (VIRTUAL_ENV). Those behind an empty one come after the machine's.
 * Borrowed; before any thread opens a library. */
void nvidia_look_under(const char *prefixes);
const char *nvidia_prefixes(void); /* "": none */

/* The same of an environment, whose variables `value_of` (getenv) tells: CUDA_HOME, VIRTUAL_ENV and
 * CONDA_PREFIX, then the wheels of each python3 of PATH, which need not be an environment that was
 * entered; of Pythons that are none (they have no pyvenv.cfg, as /usr/bin/python3), and of those
 * that environments were made of, after the machine's. The first time counts. */
void nvidia_look_about(char *(*value_of)(const char *name));

/* Opens the library of that name ("libnccl.so.2"), which stays open: under those prefixes and, as
 * the machine's, where the loader looks, in /usr/local/cuda and /opt/cuda; then under /usr,
 * /usr/local and /opt, and in site-packages/nvidia of each Python there and in the user's home. */
void nvidia_open(struct nvidia_library *library, const char *name);

#endif
