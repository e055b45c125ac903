/* What goes to standard error meanwhile, which is where the log is. */
#ifndef TRP_TESTS_CAPTURED_H
#define TRP_TESTS_CAPTURED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct captured {
    FILE *file;
    int standard_error;
    char text[16384];
};

static inline void capture_begin(struct captured *captured)
{
    captured->file = tmpfile();
    captured->standard_error = dup(2);
    assert_int_equal(dup2(fileno(captured->file), 2), 2);
}

static inline void capture_end(struct captured *captured)
{
    dup2(captured->standard_error, 2);
    close(captured->standard_error);
    rewind(captured->file);
    size_t size = fread(captured->text, 1, sizeof captured->text - 1, captured->file);
    captured->text[size] = '\0';
    fclose(captured->file);
}

/* How often it was said. */
static inline unsigned captured_count(const struct captured *captured, const char *words)
{
    unsigned count = 0;
    for (const char *at = captured->text; (at = strstr(at, words)) != NULL; at += strlen(words))
        count++;
    return count;
}

#endif
