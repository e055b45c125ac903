/* argp would take two or more lines for a wrong flag and choose the exit status itself. With no
 * error stream it leaves both to us, except for getopt's own line, which names the flag. */
#include "core/flags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool flags_u64(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && !*end && !errno && *value >= min && *value <= max;
}

void flags_accept_h(int argc, char **argv)
{
    static char help[] = "--help";
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-h") == 0)
            argv[i] = help;
}

void flags_hint(const char *program, int error)
{
    if (error == EINVAL)
        fprintf(stderr, "%s: try --help\n", program);
}
