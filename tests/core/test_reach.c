/* What is said of an address at which nobody can be reached. */
#include <dlfcn.h>
#include <netdb.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <sys/socket.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/reach.h"
#include "patience.h"

enum { SOON_MS = 50, LATER_MS = 10000, CALLERS = 8 };

static sem_t answers; /* one for each name that is looked up and begins with "slow" */
static atomic_uint asked;

/* In place of the C library's: what a resolver whom nobody answers does, of such names. */
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **found)
{
    union {
        void *address;
        int (*call)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    } real = {.address = dlsym(RTLD_NEXT, "getaddrinfo")};
    if (strncmp(host, "slow", 4) != 0 || hints->ai_flags & AI_NUMERICHOST)
        return real.call(host, port, hints, found);
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 8;
    atomic_fetch_add(&asked, 1);
    return sem_timedwait(&answers, &end) == 0 ? real.call("127.0.0.1", port, hints, found)
                                              : EAI_AGAIN;
}

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

static void expect(const struct sockaddr_in *at, const char *host, int timeout_ms,
                   const char *words)
{
    char *address = xasprintf("%s:%u", host, ntohs(at->sin_port));
    char *why = reach(address, timeout_ms);
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
    expect(&at, "127.0.0.1", LATER_MS, "connection refused: no server listens there");
    expect(&at, "localhost", LATER_MS, "connection refused: no server listens there");
    assert_int_equal(listen(fd, CALLERS), 0);
    expect(&at, "127.0.0.1", LATER_MS, NULL);
    expect(&at, "localhost", LATER_MS, NULL);
    close(fd);
}

static void assert_reach(const char *address, int timeout_ms, const char *words)
{
    char *why = reach(address, timeout_ms);
    assert_non_null(why);
    assert_non_null(strstr(why, words));
    free(why);
}

static void a_resolver_that_does_not_answer_is_waited_for_no_longer(void **state)
{
    (void)state;
    uint64_t since_ns = clock_now_ns(&clock_monotonic);
    for (int i = 0; i < LOOKUPS_MAX; i++) {
        assert_reach("slow.example:1", 1, "Temporary failure in name resolution");
        assert_true(clock_now_ns(&clock_monotonic) - since_ns < UINT64_C(5000000000));
    }
    assert_reach("slow.example:1", 60000, "Temporary failure"); /* too many are asked for */
    struct deadline deadline = patience();
    while (asked < LOOKUPS_MAX) /* their threads may begin late */
        look_again_soon(deadline, "the resolver to be asked");
    for (int i = 0; i <= LOOKUPS_MAX; i++)
        sem_post(&answers);
    char *why; /* as soon as the first one has gone */
    while ((why = reach("slow.example:1", 60000)) && strstr(why, "Temporary")) {
        free(why);
        look_again_soon(deadline, "a look-up that is over");
    }
    assert_non_null(why);
    assert_non_null(strstr(why, "connection refused"));
    free(why);
    assert_int_equal(asked, LOOKUPS_MAX + 1);
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
    expect(&at, "127.0.0.1", SOON_MS, "no answer in 0.05 s");
    for (size_t i = 0; i < CALLERS; i++)
        close(callers[i]);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_listens_is_reached_and_who_does_not_is_told_apart),
        cmocka_unit_test(a_resolver_that_does_not_answer_is_waited_for_no_longer),
        cmocka_unit_test(who_says_nothing_is_given_up_in_time),
    };
    sem_init(&answers, 0, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
