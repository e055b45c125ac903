/* Libraries of NVIDIA's, which come in many ways: a toolkit, packages of a distribution, wheels of
 * every Python. None is linked: a host without them runs the same program. */
#ifndef TRP_CORE_NVIDIA_H
#define TRP_CORE_NVIDIA_H

struct nvidia_library {
    void *handle;    /* of dlopen(); NULL: it is nowhere */
    char path[1024]; /* where it is; else where it was looked for, or why it does not load */
};

/* Directories to look under first, with colons between them: toolkits (CUDA_HOME) or environments
 * of Python (VIRTUAL_ENV). Borrowed; before any thread opens a library. */
void nvidia_look_under(const char *prefixes);
const char *nvidia_prefixes(void); /* "": none */

/* The same of an environment, whose variables `value_of` (getenv) tells: CUDA_HOME, VIRTUAL_ENV and
 * CONDA_PREFIX, then what each python3 of PATH is part of, which need not be an environment that
 * was entered. The first time counts. */
void nvidia_look_about(char *(*value_of)(const char *name));

/* Opens the library of that name ("libnccl.so.2"), which stays open: under those prefixes, where
 * the loader looks, in /usr/local/cuda, /opt/cuda and the like, then in site-packages/nvidia of
 * each Python of the system and of the user's home. */
void nvidia_open(struct nvidia_library *library, const char *name);

#endif
