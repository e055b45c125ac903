/* Problem: a copy of many gigabytes takes a core for minutes, and whoever is woken meanwhile waits
 * for a processor. Design: Linux has a nice value and an I/O priority for each thread; the thread
 * that gives the work, and with it whoever takes its locks, keeps its own. Guarantee: the work gets
 * its share where nobody else wants the processor, and a part of it (a tenth at this nice value)
 * where somebody always does. A kernel that refuses either is no failure. */
#include "core/background.h"

#include <linux/ioprio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/status.h"

enum { NICE = 10 /* more than the process */, LEAST_OF_ITS_CLASS = 7 };

static void step_back(void)
{
    id_t self = (id_t)syscall(SYS_gettid);
    setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + NICE);
    syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, self,
            IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, LEAST_OF_ITS_CLASS));
}

static void background_main(void *arg)
{
    struct background *background = arg;
    step_back();
    mutex_lock(&background->mutex);
    for (;;) {
        while (!background->work && !background->stopping)
            cond_wait(&background->changed, &background->mutex, DEADLINE_NEVER);
        if (!background->work)
            break;
        mutex_unlock(&background->mutex);
        trp_status status = background->work(background->arg);
        char *words = status == TRP_OK ? NULL : error_keep();
        mutex_lock(&background->mutex);
        background->status = status;
        background->words = words;
        background->work = NULL;
        cond_broadcast(&background->changed);
    }
    mutex_unlock(&background->mutex);
}

static void state_cleanup(struct background *background)
{
    cond_cleanup(&background->changed);
    mutex_cleanup(&background->mutex);
}

trp_status background_start(struct background *background, const char *name)
{
    *background = (struct background){.status = TRP_OK};
    mutex_init(&background->mutex);
    cond_init(&background->changed);
    trp_status status = thread_start(&background->thread, name, background_main, background);
    if (status != TRP_OK)
        state_cleanup(background);
    return status;
}

void background_begin(struct background *background, trp_status (*work)(void *arg), void *arg)
{
    mutex_lock(&background->mutex);
    background->work = work;
    background->arg = arg;
    cond_broadcast(&background->changed);
    mutex_unlock(&background->mutex);
}

bool background_is_idle(struct background *background)
{
    mutex_lock(&background->mutex);
    bool idle = !background->work;
    mutex_unlock(&background->mutex);
    return idle;
}

trp_status background_wait(struct background *background)
{
    mutex_lock(&background->mutex);
    while (background->work)
        cond_wait(&background->changed, &background->mutex, DEADLINE_NEVER);
    trp_status status = background->status;
    char *words = background->words;
    background->words = NULL;
    mutex_unlock(&background->mutex);
    return words ? error_back(status, words) : status;
}

trp_status background_run(struct background *background, trp_status (*work)(void *arg), void *arg)
{
    background_begin(background, work, arg);
    return background_wait(background);
}

void background_stop(struct background *background)
{
    mutex_lock(&background->mutex);
    background->stopping = true;
    cond_broadcast(&background->changed);
    mutex_unlock(&background->mutex);
    thread_stop(&background->thread);
    state_cleanup(background);
}
