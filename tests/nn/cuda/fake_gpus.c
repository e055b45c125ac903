/* What makes a libtroupe_cuda.so of fake_cuda.c: a host with FAKE_GPUS GPUs, of which a process
 * sees those that CUDA_VISIBLE_DEVICES names. Each is called by its number there. The one that
 * FAKE_GPU_LOST names is lost after some works. */
#include "fake_cuda.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/alloc.h"

enum { FAKE_GPUS_MAX = 16, WORKS_BEFORE_LOST = 60 };

static int number_in(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

/* As CUDA: what comes behind one that is not there is not seen. */
__attribute__((constructor)) static void see_gpus(void)
{
    static const char *names[FAKE_GPUS_MAX];
    static char every[] = "0,1,2,3,4,5,6,7";
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int count = number_in("FAKE_GPUS", 1), lost = number_in("FAKE_GPU_LOST", -1), seen = 0;
    fake_cuda_begin(1);
    for (const char *at = visible ? visible : every; *at && seen < FAKE_GPUS_MAX;) {
        char *end;
        long number = strtol(at, &end, 10);
        if (end == at || number < 0 || number >= count)
            break;
        if (number == lost)
            fake_cuda.fails_at = WORKS_BEFORE_LOST;
        names[seen++] = xasprintf("Fake GPU %ld", number);
        at = *end == ',' ? end + 1 : end;
    }
    fake_cuda.devices = seen;
    fake_cuda.names = names;
}
