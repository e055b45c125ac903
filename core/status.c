/* Last errors live in thread-local storage: a failing call writes its message once, and whoever
 * stops the failure reads it on the same thread. A failure allocates nothing, so running out of
 * memory can be reported, too. Words of peers and files come into it: they are escaped here, so
 * that whoever prints an error need not ask whose words it has. */
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/buffer.h"
#include "core/limits.h"
#include "core/printable.h"

static _Thread_local char last_error[ERROR_MESSAGE_BYTES_MAX];
static _Thread_local trp_status last_code;

trp_status trp_fail(trp_status code, const char *format, ...)
{
    char message[ERROR_MESSAGE_BYTES_MAX]; /* arguments may point into last_error */
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    printable_copy(last_error, sizeof last_error, text_bytes(message));
    last_code = code;
    return code;
}

trp_status status_last_code(void)
{
    return last_code;
}

void status_clear_code(void)
{
    last_code = TRP_OK;
}

char *error_keep(void)
{
    return xstrdup(last_error);
}

trp_status error_back(trp_status status, char *kept)
{
    (void)trp_fail(status, "%s", kept);
    free(kept);
    return status;
}

const char *trp_last_error(void)
{
    return last_error;
}

const char *trp_status_name(trp_status status)
{
    switch (status) {
#define STATUS_NAME(name, number, words)                                                           \
    case TRP_##name:                                                                               \
        return #name;
        TRP_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "UNLISTED";
}

const char *trp_status_words(trp_status status)
{
    switch (status) {
#define STATUS_WORDS(name, number, words)                                                          \
    case TRP_##name:                                                                               \
        return words;
        TRP_STATUS_MAP(STATUS_WORDS)
#undef STATUS_WORDS
    }
    return "unlisted status";
}

const char *trp_version(void)
{
    return TRP_VERSION;
}
