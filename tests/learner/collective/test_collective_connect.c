/* Connecting: who is let in, who is not, and that nobody holds up a generation. */
#include "ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "learner/collective/hello.h"
#include "learner/collective/listener.h"

static int64_t now_ms(void)
{
    return clock_now_ns(&clock_monotonic) / 1000000;
}

static void connect_with(struct ranks *ranks, uint32_t size, uint32_t connect_timeout_ms,
                         void (*change)(trp_collective_options *options))
{
    *ranks = (struct ranks){.size = size};
    for (uint32_t rank = 0; rank < size; rank++)
        ranks->at[rank] = (struct rank){.rank = rank, .size = size};
    trp_collective_options options = {.group = "test",
                                      .generation = 3,
                                      .nonce = 77,
                                      .fingerprint = 5,
                                      .timeout_ms = 10000,
                                      .connect_timeout_ms = connect_timeout_ms};
    ranks_connect(ranks, &options, change);
}

static void expect_everywhere(struct ranks *ranks, trp_status status, const char *words)
{
    for (uint32_t rank = 0; rank < ranks->size; rank++) {
        const struct rank *it = &ranks->at[rank];
        if (it->status != status || (words && strcmp(it->words, words) != 0))
            fail_msg("rank %u: %s: %s", rank, trp_status_name(it->status), it->words);
    }
    ranks_destroy(ranks);
}

/* ---- ranks that do not fit ------------------------------------------------------------------ */

static void change_fingerprint(trp_collective_options *options)
{
    options->fingerprint += options->rank == 2;
}

static void change_timeout(trp_collective_options *options)
{
    options->timeout_ms += options->rank == 1;
}

static void change_order(trp_collective_options *options)
{
    options->deterministic = options->rank == 1;
}

static void change_sites(trp_collective_options *options)
{
    static const char *const other[] = {"east", "west", "east"}, *const names[] = {"a", "a", "b"};
    options->sites = options->rank == 1 ? other : names;
}

static void ranks_that_differ_are_refused_in_the_same_words(void **state)
{
    (void)state;
    struct ranks ranks;
    connect_with(&ranks, 3, 10000, change_fingerprint);
    expect_everywhere(&ranks, TRP_FAILED_PRECONDITION,
                      "ranks differ in fingerprint: rank 0 has 5, rank 2 has 6");
    connect_with(&ranks, 3, 10000, change_timeout);
    expect_everywhere(&ranks, TRP_FAILED_PRECONDITION,
                      "ranks differ in timeout (ms): rank 0 has 10000, rank 1 has 10001");
    connect_with(&ranks, 3, 10000, change_order);
    expect_everywhere(&ranks, TRP_FAILED_PRECONDITION,
                      "ranks differ in `deterministic`: rank 0 has 0, rank 1 has 1");
    connect_with(&ranks, 3, 10000, change_sites);
    assert_non_null(strstr(ranks.at[2].words, "ranks differ in sites (their hash): rank 0 has "));
    assert_string_equal(ranks.at[2].words, ranks.at[1].words);
}

static void change_nonce(trp_collective_options *options)
{
    options->nonce += options->rank == 1;
}

static void change_group(trp_collective_options *options)
{
    options->group = options->rank == 1 ? "another" : options->group;
}

static void who_does_not_know_the_nonce_or_the_group_never_gets_in(void **state)
{
    (void)state;
    void (*const changes[])(trp_collective_options *) = {change_nonce, change_group};
    for (size_t i = 0; i < 2; i++) {
        struct ranks ranks;
        connect_with(&ranks, 2, 200, changes[i]);
        assert_string_equal(ranks.at[0].words, "rank 1 of 2 did not come in time");
        assert_string_equal(ranks.at[1].words, "rank 0 of 2 did not come in time");
        expect_everywhere(&ranks, TRP_DEADLINE_EXCEEDED, NULL);
    }
}

static void change_generation(trp_collective_options *options)
{
    options->generation -= options->rank == 1;
    options->connect_timeout_ms = options->rank == 1 ? 10000 : 200;
}

static void a_rank_of_a_generation_that_is_over_is_told(void **state)
{
    (void)state;
    struct ranks ranks;
    connect_with(&ranks, 2, 1, change_generation);
    assert_int_equal(ranks.at[1].status, TRP_UNAVAILABLE);
    assert_string_equal(ranks.at[1].words,
                        "generation 2 is over: rank 0 connects for generation 3");
    assert_int_equal(ranks.at[0].status, TRP_DEADLINE_EXCEEDED);
    ranks_destroy(&ranks);
}

/* ---- strangers ------------------------------------------------------------------------------ */

struct meeting {
    trp_collective_listener *listeners[2];
    const char *addresses[2];
    struct rank rank; /* rank 1, on a thread */
    trp_collective_options options;
};

static void connect_second(struct rank *rank)
{
    struct meeting *meeting = rank->context;
    rank_keep(rank, trp_collective_connect(&rank->group, meeting->listeners[1], &meeting->options));
}

static void meeting_init(struct meeting *meeting)
{
    *meeting = (struct meeting){0};
    ranks_listen(meeting->listeners, meeting->addresses, 2, RANKS_TCP);
    meeting->options = (trp_collective_options){.group = "test",
                                                .generation = 3,
                                                .nonce = 77,
                                                .size = 2,
                                                .rank = 1,
                                                .addresses = meeting->addresses,
                                                .timeout_ms = 20000};
}

static int call_number(const struct meeting *meeting, uint32_t rank)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    name.sin_port = htons((uint16_t)atoi(strrchr(meeting->addresses[rank], ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
    return fd;
}

/* Rank 0 connects here, rank 1 on a thread; then both work. */
static void meet_and_work(struct meeting *meeting)
{
    meeting->rank = (struct rank){.rank = 1, .size = 2, .run = connect_second, .context = meeting};
    assert_int_equal(thread_start(&meeting->rank.thread, "rank", rank_main, &meeting->rank),
                     TRP_OK);
    trp_collective_options options = meeting->options;
    options.rank = 0;
    trp_collective *group;
    trp_status status = trp_collective_connect(&group, meeting->listeners[0], &options);
    thread_stop(&meeting->rank.thread);
    if (status != TRP_OK || meeting->rank.status != TRP_OK)
        fail_msg("%s; %s", trp_last_error(), meeting->rank.words);
    uint64_t values[2][1] = {{40}, {2}}, tickets[2];
    trp_collective *both[2] = {group, meeting->rank.group};
    for (int i = 0; i < 2; i++)
        tickets[i] = trp_collective_allreduce(both[i], NULL, values[i], 1, TRP_COLLECTIVE_U64,
                                              TRP_COLLECTIVE_SUM);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(trp_collective_wait(both[i], tickets[i]), TRP_OK);
        assert_int_equal(values[i][0], 42);
        trp_collective_destroy(both[i]);
    }
}

static void meeting_cleanup(struct meeting *meeting)
{
    trp_collective_listener_destroy(meeting->listeners[0]);
    trp_collective_listener_destroy(meeting->listeners[1]);
}

/* Closed, with nothing said. */
static void expect_refused(int fd)
{
    char byte;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, 20000), 1);
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
}

static void strangers_hold_up_nobody(void **state)
{
    (void)state;
    struct meeting meeting;
    meeting_init(&meeting);
    enum { SILENT = 200 };
    int silent[SILENT], garbage = call_number(&meeting, 0), half = call_number(&meeting, 0);
    for (int i = 0; i < SILENT; i++) /* more than have a place */
        silent[i] = call_number(&meeting, 0);
    char noise[4096];
    memset(noise, 'x', sizeof noise);
    assert_int_equal(send(garbage, noise, sizeof noise, 0), sizeof noise);
    assert_int_equal(send(half, "TRPGROUP", 8, 0), 8);
    int64_t before = now_ms();
    meet_and_work(&meeting);
    assert_in_range(now_ms() - before, 0, 1500);
    expect_refused(garbage);
    expect_refused(half);
    for (int i = 0; i < SILENT; i++)
        expect_refused(silent[i]);
    meeting_cleanup(&meeting);
}

/* Says hello as a rank would that knows all but one thing. */
static int say_hello(const struct meeting *meeting, void (*change)(struct hello *hello))
{
    struct hello hello;
    hello_init(&hello, &meeting->options, HELLO_LANE);
    change(&hello);
    int fd = call_number(meeting, 0);
    assert_int_equal(send(fd, &hello, sizeof hello, 0), sizeof hello);
    struct group_call call = {.kind = CALL_BARRIER, .sequence = 1}; /* and goes on at once */
    assert_int_equal(send(fd, &call, sizeof call, 0), sizeof call);
    return fd;
}

static void other_nonce(struct hello *hello)
{
    hello->nonce++;
}

static void other_rank(struct hello *hello)
{
    hello->rank = 2;
}

static void own_rank(struct hello *hello)
{
    hello->rank = 0;
}

static void other_purpose(struct hello *hello)
{
    hello->purpose = HELLO_PURPOSES;
}

static void older_generation(struct hello *hello)
{
    hello->generation--;
}

static void other_wire(struct hello *hello)
{
    hello->wire = __builtin_bswap32(hello->wire);
    hello->nonce++; /* who knows that is one of the ranks */
}

static void expect_answer(int fd, enum hello_verdict verdict)
{
    struct hello_answer answer;
    assert_int_equal(recv(fd, &answer, sizeof answer, MSG_WAITALL), sizeof answer);
    assert_true(hello_is_answer(&answer));
    assert_int_equal(answer.verdict, verdict);
    assert_int_equal(answer.generation, 3);
    expect_refused(fd);
}

static void hellos_that_do_not_fit_are_refused_and_what_follows_is_not_read(void **state)
{
    (void)state;
    struct meeting meeting;
    meeting_init(&meeting);
    int nonce = say_hello(&meeting, other_nonce), rank = say_hello(&meeting, other_rank);
    int own = say_hello(&meeting, own_rank), purpose = say_hello(&meeting, other_purpose);
    int older = say_hello(&meeting, older_generation), wire = say_hello(&meeting, other_wire);
    meet_and_work(&meeting);
    expect_refused(nonce);
    expect_refused(rank);
    expect_refused(own);
    expect_refused(purpose);
    expect_answer(older, HELLO_OTHER_GENERATION);
    expect_answer(wire, HELLO_OTHER_WIRE);
    meeting_cleanup(&meeting);
}

/* Rank `odd` of three: it says what it speaks to rank 0, and hears there that this is no good. */
static void say_other_wire(const char *address, uint32_t odd)
{
    const trp_collective_options options = {
        .group = "test", .generation = 3, .nonce = 77, .size = 3, .rank = odd};
    const struct meeting at = {.addresses = {address}};
    struct hello hello;
    struct hello_answer answer;
    hello_init(&hello, &options, HELLO_LINE);
    hello.wire++;
    int fd = call_number(&at, 0);
    assert_int_equal(send(fd, &hello, sizeof hello, 0), sizeof hello);
    assert_int_equal(recv(fd, &answer, sizeof answer, MSG_WAITALL), sizeof answer);
    assert_int_equal(answer.verdict, HELLO_OTHER_WIRE);
    assert_int_equal(answer.wire, COLLECTIVE_WIRE);
    close(fd);
}

/* All hear it at once, also who had nothing to do with that rank. */
static void a_rank_of_another_wire_is_told_of_in_the_same_words(void **state)
{
    (void)state;
    for (uint32_t odd = 1; odd < 3; odd++) {
        trp_collective_listener *listeners[3];
        const char *addresses[3];
        struct ranks ranks = {.size = 3};
        struct ranks_connecting connecting[3];
        ranks_listen(listeners, addresses, 3, RANKS_TCP);
        for (uint32_t rank = 0; rank < 3; rank++) {
            connecting[rank] = (struct ranks_connecting){{.group = "test",
                                                          .generation = 3,
                                                          .nonce = 77,
                                                          .size = 3,
                                                          .rank = rank,
                                                          .addresses = addresses,
                                                          .timeout_ms = 20000},
                                                         listeners[rank]};
            ranks.at[rank] =
                (struct rank){.rank = rank, .size = 3, .run = rank_connect, .context = connecting};
        }
        int64_t before = now_ms();
        for (uint32_t rank = 0; rank < 3; rank++)
            if (rank != odd)
                assert_int_equal(
                    thread_start(&ranks.at[rank].thread, "rank", rank_main, &ranks.at[rank]),
                    TRP_OK);
        say_other_wire(addresses[0], odd);
        for (uint32_t rank = 0; rank < 3; rank++)
            if (rank != odd)
                thread_stop(&ranks.at[rank].thread);
        assert_in_range(now_ms() - before, 0, 10000);
        char words[64];
        snprintf(words, sizeof words, "ranks differ in wire: rank 0 has %d, rank %u has %d",
                 COLLECTIVE_WIRE, odd, COLLECTIVE_WIRE + 1);
        for (uint32_t rank = 0; rank < 3; rank++)
            if (rank != odd && (ranks.at[rank].status != TRP_FAILED_PRECONDITION ||
                                strcmp(ranks.at[rank].words, words) != 0))
                fail_msg("rank %u: %s", rank, ranks.at[rank].words);
        for (uint32_t rank = 0; rank < 3; rank++)
            trp_collective_listener_destroy(listeners[rank]);
    }
}

static int accept_one(const trp_collective_listener *listener)
{
    struct pollfd came = {.fd = listener->fd, .events = POLLIN};
    assert_int_equal(poll(&came, 1, 20000), 1);
    return accept(listener->fd, NULL, NULL);
}

/* The odd one itself, against a rank 0 that answers so. */
static void a_rank_of_another_wire_says_so_in_those_words(void **state)
{
    (void)state;
    struct meeting meeting;
    meeting_init(&meeting);
    meeting.rank = (struct rank){.rank = 1, .size = 2, .run = connect_second, .context = &meeting};
    assert_int_equal(thread_start(&meeting.rank.thread, "rank", rank_main, &meeting.rank), TRP_OK);
    struct hello hello;
    int fd = accept_one(meeting.listeners[0]);
    assert_int_equal(recv(fd, &hello, sizeof hello, MSG_WAITALL), sizeof hello);
    struct hello_answer answer;
    assert_true(hello_judge(
        &hello, &(trp_collective_options){.group = "test", .generation = 3, .nonce = 77, .size = 2},
        &answer));
    answer.verdict = HELLO_OTHER_WIRE;
    answer.wire = COLLECTIVE_WIRE - 1;
    assert_int_equal(send(fd, &answer, sizeof answer, MSG_NOSIGNAL), sizeof answer);
    thread_stop(&meeting.rank.thread);
    close(fd);
    assert_int_equal(meeting.rank.status, TRP_FAILED_PRECONDITION);
    char words[64];
    snprintf(words, sizeof words, "ranks differ in wire: rank 0 has %d, rank 1 has %d",
             COLLECTIVE_WIRE - 1, COLLECTIVE_WIRE);
    assert_string_equal(meeting.rank.words, words);
    meeting_cleanup(&meeting);
}

/* A connection of a dead generation stays open, and somebody still sends on it. */
static void packets_of_a_dead_generation_reach_nobody(void **state)
{
    (void)state;
    struct meeting meeting;
    meeting_init(&meeting);
    meet_and_work(&meeting);
    meeting.options.generation = 2;
    int late[2] = {call_number(&meeting, 0), call_number(&meeting, 1)};
    struct hello hello;
    hello_init(&hello, &meeting.options, HELLO_LANE);
    for (int i = 0; i < 2; i++)
        assert_int_equal(send(late[i], &hello, sizeof hello, 0), sizeof hello);
    meeting.options.generation = 4;
    meet_and_work(&meeting);
    for (int i = 0; i < 2; i++) {
        send(late[i], &hello, sizeof hello, MSG_NOSIGNAL);
        struct hello_answer answer;
        ssize_t came = recv(late[i], &answer, sizeof answer, MSG_WAITALL);
        assert_true(came <= 0 || answer.verdict == HELLO_OTHER_GENERATION);
        close(late[i]);
    }
    meeting_cleanup(&meeting);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void the_rank_that_does_not_come_is_named(void **state)
{
    (void)state;
    struct meeting meeting;
    meeting_init(&meeting);
    meeting.options.timeout_ms = 150;
    trp_collective *group;
    assert_int_equal(trp_collective_connect(&group, meeting.listeners[1], &meeting.options),
                     TRP_DEADLINE_EXCEEDED);
    assert_string_equal(trp_last_error(), "rank 0 of 2 did not come in time");
    assert_null(group);
    meeting_cleanup(&meeting);
}

static void request_soon(void *stop)
{
    poll(NULL, 0, 50);
    trp_stop_request(stop);
}

static void connecting_ends_when_it_is_stopped(void **state)
{
    (void)state;
    struct meeting meeting;
    meeting_init(&meeting);
    meeting.options.stop = trp_stop_create();
    struct thread thread = {0};
    assert_int_equal(thread_start(&thread, "stop", request_soon, meeting.options.stop), TRP_OK);
    trp_collective *group;
    int64_t before = now_ms();
    assert_int_equal(trp_collective_connect(&group, meeting.listeners[1], &meeting.options),
                     TRP_CANCELLED);
    assert_in_range(now_ms() - before, 0, 5000);
    thread_stop(&thread);
    trp_stop_destroy(meeting.options.stop);
    meeting_cleanup(&meeting);
}

/* ---- listening ------------------------------------------------------------------------------ */

static void a_listener_is_this_hosts_and_its_owners_alone(void **state)
{
    (void)state;
    trp_collective_listener *listener, *second;
    assert_int_equal(trp_collective_listener_create(&listener, "0.0.0.0:0", false),
                     TRP_INVALID_ARGUMENT);
    assert_null(listener);
    assert_int_equal(trp_collective_listener_create(&listener, NULL, false), TRP_OK);
    const char *address = trp_collective_listener_address(listener);
    assert_memory_equal(address, "127.0.0.1:", 10);
    assert_int_equal(trp_collective_listener_create(&second, address, false), TRP_ALREADY_EXISTS);
    trp_collective_listener_destroy(listener);

    char path[64], text[80];
    snprintf(path, sizeof path, "/tmp/troupe-listener-%d", (int)getpid());
    snprintf(text, sizeof text, "unix:%s", path);
    assert_int_equal(trp_collective_listener_create(&listener, text, false), TRP_OK);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(trp_collective_listener_create(&second, text, false), TRP_ALREADY_EXISTS);
    trp_collective_listener_destroy(listener);
    assert_int_equal(stat(path, &info), -1);
}

static void expect_unpaced(int fd)
{
    char name[16] = "";
    socklen_t size = sizeof name;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size), 0);
    assert_string_equal(name, "reno");
}

static void both_ends_of_a_connection_within_a_host_are_unpaced(void **state)
{
    (void)state;
    trp_collective_listener *listener;
    int dialed, accepted;
    assert_int_equal(trp_collective_listener_create(&listener, NULL, false), TRP_OK);
    assert_int_equal(listener_dial(trp_collective_listener_address(listener), &dialed), TRP_OK);
    assert_int_equal(poll(&(struct pollfd){.fd = dialed, .events = POLLOUT}, 1, 10000), 1);
    accepted = listener_accept(listener);
    assert_true(accepted >= 0);
    expect_unpaced(dialed);
    expect_unpaced(accepted);
    close(dialed);
    close(accepted);
    trp_collective_listener_destroy(listener);
}

int main(void)
{
    ranks_kind = RANKS_TCP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_of_a_connection_within_a_host_are_unpaced),
        cmocka_unit_test(ranks_that_differ_are_refused_in_the_same_words),
        cmocka_unit_test(who_does_not_know_the_nonce_or_the_group_never_gets_in),
        cmocka_unit_test(a_rank_of_a_generation_that_is_over_is_told),
        cmocka_unit_test(strangers_hold_up_nobody),
        cmocka_unit_test(hellos_that_do_not_fit_are_refused_and_what_follows_is_not_read),
        cmocka_unit_test(a_rank_of_another_wire_is_told_of_in_the_same_words),
        cmocka_unit_test(a_rank_of_another_wire_says_so_in_those_words),
        cmocka_unit_test(packets_of_a_dead_generation_reach_nobody),
        cmocka_unit_test(the_rank_that_does_not_come_is_named),
        cmocka_unit_test(connecting_ends_when_it_is_stopped),
        cmocka_unit_test(a_listener_is_this_hosts_and_its_owners_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
