/* An environment with its arguments: what a name stands for. */
#ifndef TRP_ENVS_CLASS_H
#define TRP_ENVS_CLASS_H

#include <troupe/env.h>

struct env_class {
    char *name;
    trp_env_impl impl;       /* its spec follows from the arguments and has the whole name */
    void *arguments;         /* as impl.options describes them; NULL: there are none */
    struct env_class *inner; /* what a wrapper is around; NULL: this is no wrapper */
    size_t statistics;       /* its own and those of what it is around */
};

/* Kept for the life of the process; safe from any thread. Fails as trp_env_find(). */
TRP_MUST_USE trp_status env_class_find(const char *name, const struct env_class **out);

void env_class_destroy(struct env_class *class); /* NULL is fine */

/* The state of one copy, saved; 0 bytes: it cannot be. */
size_t env_class_saved_bytes(const struct env_class *class);
void env_class_save(const struct env_class *class, const void *state, void *saved);
TRP_MUST_USE trp_status env_class_load(const struct env_class *class, void *state,
                                       const void *saved);

#endif
