#include "interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>

static volatile sig_atomic_t came, told; /* the signal; 0: none */

static void take(int number)
{
    came = told = number;
}

void interrupt_watch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = take, .sa_flags = SA_RESTART | SA_RESETHAND}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
        sigaction(numbers[i], &action, &before);
        if (before.sa_handler == SIG_IGN) /* nohup */
            sigaction(numbers[i], &before, NULL);
    }
}

trp_status interrupt_check(void)
{
    return told ? trp_fail(TRP_CANCELLED, "interrupted") : TRP_OK;
}

void interrupt_put_off(void)
{
    told = 0;
}

void interrupt_end(void)
{
    if (!came)
        return;
    fflush(stdout);
    raise(came);
}
