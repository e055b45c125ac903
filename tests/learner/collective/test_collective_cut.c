/* One link between two ranks that live is cut, or loses or changes what it carries, in the middle
 * of an operation: all ranks say the same of it. The link goes through a proxy of the test's. */
#include "ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "../../core/patience.h"
#include "core/file.h"
#include "learner/collective/hello.h"

enum { SIZE = 3, COUNT = 200000, TIMEOUT_MS = 1000, WIRES_MAX = 16 };

/* ---- the proxy ------------------------------------------------------------------------------ */

enum harm { CLOSES, CLOSES_HALF, SWALLOWS, DAMAGES };

struct proxy;

/* One direction of a connection. */
struct wire {
    struct proxy *proxy;
    int from, to;
    bool is_lane;
    struct thread thread;
};

struct proxy {
    int listener;
    char address[32];
    const char *target;
    enum harm harm;
    size_t harmless; /* bytes of the lane before it is done */
    atomic_size_t passed;
    atomic_bool ends;
    struct thread acceptor;
    struct wire wires[WIRES_MAX];
    size_t wire_count;
};

static bool pass_on(int to, const uint8_t *bytes, size_t size)
{
    ssize_t sent = 1;
    for (; size > 0 && sent > 0; bytes += sent, size -= (size_t)sent)
        sent = send(to, bytes, size, MSG_NOSIGNAL);
    return sent > 0;
}

/* False: the wire is at its end. */
static bool pass_harmed(const struct wire *wire, uint8_t *bytes, size_t size)
{
    switch (wire->proxy->harm) {
    case CLOSES:
        shutdown(wire->from, SHUT_RDWR);
        return false;
    case CLOSES_HALF:
        return false;
    case SWALLOWS:
        return true;
    case DAMAGES:
        for (size_t i = 0; i < size; i++)
            bytes[i] ^= 0x55;
        return pass_on(wire->to, bytes, size);
    }
    return false;
}

static void pump(void *argument)
{
    struct wire *wire = argument;
    struct proxy *proxy = wire->proxy;
    uint8_t bytes[64 << 10];
    bool goes_on = true;
    while (goes_on) {
        ssize_t came = recv(wire->from, bytes, sizeof bytes, 0);
        if (came <= 0)
            break;
        size_t size = (size_t)came;
        size_t before = wire->is_lane ? atomic_fetch_add(&proxy->passed, size) : 0;
        goes_on = wire->is_lane && before >= proxy->harmless ? pass_harmed(wire, bytes, size)
                                                             : pass_on(wire->to, bytes, size);
    }
    shutdown(wire->to, SHUT_WR);
}

static int dial(const char *address)
{
    const char *colon = strrchr(address, ':');
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)atoi(colon + 1)),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&name, sizeof name) == 0)
        return fd;
    fd_close(fd);
    return -1;
}

static void start_wire(struct proxy *proxy, int from, int to, bool is_lane)
{
    struct wire *wire = &proxy->wires[proxy->wire_count++];
    *wire = (struct wire){.proxy = proxy, .from = from, .to = to, .is_lane = is_lane};
    if (thread_start(&wire->thread, "wire", pump, wire) != TRP_OK)
        abort();
}

static void accept_one(struct proxy *proxy)
{
    struct hello hello;
    int from = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
    bool said = recv(from, &hello, sizeof hello, MSG_WAITALL) == sizeof hello;
    int to = said && proxy->wire_count + 2 <= WIRES_MAX ? dial(proxy->target) : -1;
    if (to < 0 || !pass_on(to, (const uint8_t *)&hello, sizeof hello)) {
        fd_close(from);
        fd_close(to);
        return;
    }
    start_wire(proxy, from, to, hello.purpose == HELLO_LANE);
    start_wire(proxy, to, from, hello.purpose == HELLO_LANE);
}

static void accept_all(void *argument)
{
    struct proxy *proxy = argument;
    struct pollfd fd = {.fd = proxy->listener, .events = POLLIN};
    while (!atomic_load(&proxy->ends))
        if (poll(&fd, 1, 20) == 1)
            accept_one(proxy);
}

static void proxy_init(struct proxy *proxy, enum harm harm, size_t harmless)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof name;
    *proxy = (struct proxy){.harm = harm, .harmless = harmless};
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(proxy->listener, (struct sockaddr *)&name, size), 0);
    assert_int_equal(listen(proxy->listener, 8), 0);
    getsockname(proxy->listener, (struct sockaddr *)&name, &size);
    snprintf(proxy->address, sizeof proxy->address, "127.0.0.1:%u", ntohs(name.sin_port));
}

static void proxy_start(struct proxy *proxy, const char *target)
{
    proxy->target = target;
    assert_int_equal(thread_start(&proxy->acceptor, "acceptor", accept_all, proxy), TRP_OK);
}

static void proxy_cleanup(struct proxy *proxy)
{
    for (size_t i = 0; i < proxy->wire_count; i++)
        shutdown(proxy->wires[i].from, SHUT_RDWR);
    for (size_t i = 0; i < proxy->wire_count; i++)
        thread_stop(&proxy->wires[i].thread);
    for (size_t i = 0; i < proxy->wire_count; i += 2) {
        fd_close(proxy->wires[i].from);
        fd_close(proxy->wires[i].to);
    }
    fd_close(proxy->listener);
}

/* ---- ranks, of which two have the proxy between them ---------------------------------------- */

static struct {
    struct proxy proxy;
    uint32_t low, high; /* who listens, who connects */
    const char *addresses[SIZE];
} link_between;

static void go_by_proxy(trp_collective_options *options)
{
    if (options->rank != link_between.high)
        return;
    memcpy(link_between.addresses, options->addresses, sizeof link_between.addresses);
    proxy_start(&link_between.proxy, options->addresses[link_between.low]);
    link_between.addresses[link_between.low] = link_between.proxy.address;
    options->addresses = link_between.addresses;
}

static void connect_by_proxy(struct ranks *ranks, uint32_t low, uint32_t high)
{
    /* What is broken is found at once, what is swallowed at the deadline. */
    uint32_t timeout_ms = link_between.proxy.harm == SWALLOWS ? TIMEOUT_MS : PATIENCE_MS;
    const trp_collective_options options = {.group = "test", .timeout_ms = timeout_ms};
    link_between.low = low;
    link_between.high = high;
    ranks_kind = RANKS_TCP;
    *ranks = (struct ranks){.size = SIZE};
    for (uint32_t rank = 0; rank < SIZE; rank++)
        ranks->at[rank] = (struct rank){.rank = rank, .size = SIZE};
    ranks_connect(ranks, &options, go_by_proxy);
    for (uint32_t rank = 0; rank < SIZE; rank++)
        if (!ranks->at[rank].group)
            fail_msg("rank %u: %s", rank, ranks->at[rank].words);
    atomic_store(&link_between.proxy.ends, true);
    thread_stop(&link_between.proxy.acceptor);
}

typedef uint64_t (*operation)(trp_collective *group, float *values);

static uint64_t reduce(trp_collective *group, float *values)
{
    return trp_collective_allreduce(group, NULL, values, COUNT, TRP_COLLECTIVE_F32,
                                    TRP_COLLECTIVE_SUM);
}

static uint64_t exchange(trp_collective *group, float *values)
{
    return trp_collective_all_to_all(group, values, COUNT / SIZE / 2, TRP_COLLECTIVE_F32);
}

static uint64_t meet(trp_collective *group, float *values)
{
    (void)values;
    return trp_collective_barrier(group);
}

static void do_until_it_fails(struct rank *rank)
{
    const operation *start = rank->context;
    struct deadline deadline = patience();
    float *values = xcalloc(COUNT, sizeof *values);
    while (rank->status == TRP_OK && !deadline_passed(deadline, &clock_monotonic))
        rank_wait(rank, (*start)(rank->group, values));
    free(values);
}

/* All say the same, which has `words` in it. */
static void expect_said(enum harm harm, uint32_t low, uint32_t high, operation start,
                        trp_status status, const char *words)
{
    struct ranks ranks;
    proxy_init(&link_between.proxy, harm, start == meet ? 3000 : 3000000);
    connect_by_proxy(&ranks, low, high);
    ranks_run(&ranks, do_until_it_fails, &start);
    for (uint32_t rank = 0; rank < SIZE; rank++) {
        const struct rank *it = &ranks.at[rank];
        if (it->status != status || !strstr(it->words, words) ||
            strcmp(it->words, ranks.at[0].words) != 0)
            fail_msg("rank %u: %s: %s; rank 0: %s", rank, trp_status_name(it->status), it->words,
                     ranks.at[0].words);
    }
    ranks_destroy(&ranks);
    proxy_cleanup(&link_between.proxy);
}

static const struct {
    uint32_t low, high;
    const char *words;
} pairs[] = {{0, 1, "rank 0 of 3 is cut off from rank 1"},
             {0, 2, "rank 0 of 3 is cut off from rank 2"},
             {1, 2, "rank 1 of 3 is cut off from rank 2"}};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static void ranks_that_are_cut_off_from_each_other_are_both_named(void **state)
{
    static const operation all[] = {meet, exchange, reduce}; /* ranks 1 and 2 meet at rank 0 */
    (void)state;
    for (size_t i = 0; i < PAIRS; i++)
        expect_said(CLOSES, pairs[i].low, pairs[i].high, all[i], TRP_UNAVAILABLE, pairs[i].words);
}

/* The other one may not find out by itself. */
static void a_link_that_is_cut_one_way_is_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < PAIRS; i++)
        expect_said(CLOSES_HALF, pairs[i].low, pairs[i].high, reduce, TRP_UNAVAILABLE,
                    pairs[i].words);
}

/* Nobody knows where it went: all live, and each waits for another one. */
static void a_link_that_swallows_what_it_carries_ends_the_group_at_the_deadline(void **state)
{
    (void)state;
    for (size_t i = 0; i < PAIRS; i += 2)
        expect_said(SWALLOWS, pairs[i].low, pairs[i].high, reduce, TRP_DEADLINE_EXCEEDED,
                    ": what is sent between ranks does not arrive");
}

static void a_link_that_changes_what_it_carries_is_found_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < PAIRS; i++)
        expect_said(DAMAGES, pairs[i].low, pairs[i].high, reduce, TRP_FAILED_PRECONDITION,
                    "no operation that there is");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_are_cut_off_from_each_other_are_both_named),
        cmocka_unit_test(a_link_that_is_cut_one_way_is_cut),
        cmocka_unit_test(a_link_that_swallows_what_it_carries_ends_the_group_at_the_deadline),
        cmocka_unit_test(a_link_that_changes_what_it_carries_is_found_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
