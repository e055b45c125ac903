#include "interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

/* The signal; 0: none. Any thread may be the one that takes it. */
static atomic_int came, told;

static void interrupt_note(int number)
{
    came = number;
    told = number;
}

void interrupt_watch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = interrupt_note, .sa_flags = SA_RESTART | SA_RESETHAND},
                     before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
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
