/* A thread of low priority, for work that others must not feel: they run first, on its processor
 * and on its disk. The thread that gives it work waits, or looks when it is done. */
#ifndef TRP_CORE_BACKGROUND_H
#define TRP_CORE_BACKGROUND_H

#include "core/thread.h"

struct background {
    struct thread thread;
    struct mutex mutex;
    struct cond changed;
    trp_status (*work)(void *arg); /* under mutex; NULL: none is given, or it is done */
    void *arg;
    trp_status status; /* of the last work, with its words */
    char *words;
    bool stopping;
};

/* The name is that of the thread. */
trp_status background_start(struct background *background, const char *name);

/* Runs `work(arg)` there and returns what it does, words included. One caller at a time. */
trp_status background_run(struct background *background, trp_status (*work)(void *arg), void *arg);

/* The same in two halves; between them the caller goes on, and may ask whether it is done. */
void background_begin(struct background *background, trp_status (*work)(void *arg), void *arg);
bool background_is_idle(struct background *background);
trp_status background_wait(struct background *background);

void background_stop(struct background *background);

#endif
