/* What is said of an address at which nobody can be reached. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <sys/socket.h>

#include "core/alloc.h"
#include "core/reach.h"

enum { SOON_MS = 50, CALLERS = 8 };

/* A port of the host that is taken, and at which nobody listens yet. */
static int take_port(struct sockaddr_in *at)
{
    socklen_t size = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (struct sockaddr *)at, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)at, &size), 0);
    return fd;
}

static void expect(const struct sockaddr_in *at, const char *host, bool resolve, const char *words)
{
    char *address = xasprintf("%s:%u", host, ntohs(at->sin_port));
    char *why = reach(address, SOON_MS, resolve);
    if (words)
        assert_string_equal(why, words);
    else
        assert_null(why);
    free(why);
    free(address);
}

static void who_listens_is_reached_and_who_does_not_is_told_apart(void **state)
{
    (void)state;
    struct sockaddr_in at;
    int fd = take_port(&at);
    expect(&at, "127.0.0.1", true, "connection refused: no server listens there");
    expect(&at, "127.0.0.1", false, "connection refused: no server listens there");
    assert_int_equal(listen(fd, CALLERS), 0);
    expect(&at, "127.0.0.1", true, NULL);
    expect(&at, "localhost", true, NULL);
    close(fd);
}

static void a_name_is_looked_up_only_where_that_may_take_long(void **state)
{
    (void)state;
    struct sockaddr_in at;
    int fd = take_port(&at);
    expect(&at, "localhost", true, "connection refused: no server listens there");
    expect(&at, "localhost", false, "it is not connected");
    close(fd);
}

/* The kernel answers nobody once so many wait that none more may. */
static void who_says_nothing_is_given_up_in_time(void **state)
{
    (void)state;
    struct sockaddr_in at;
    int fd = take_port(&at), callers[CALLERS];
    assert_int_equal(listen(fd, 0), 0);
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(callers[i], (struct sockaddr *)&at, sizeof at);
    }
    expect(&at, "127.0.0.1", false, "no answer in 0.05 s");
    for (size_t i = 0; i < CALLERS; i++)
        close(callers[i]);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_listens_is_reached_and_who_does_not_is_told_apart),
        cmocka_unit_test(a_name_is_looked_up_only_where_that_may_take_long),
        cmocka_unit_test(who_says_nothing_is_given_up_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
