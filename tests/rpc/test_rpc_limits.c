/* What peers that mean no good can make a server or a client hold: half-sent messages on many
 * streams, small messages that inflate to large ones, and connections that say nothing. The peer
 * here speaks HTTP/2 by hand, because gRPC would not do any of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <troupe/rpc.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "rpc/limits.h"
#include "core/thread.h"
#include "echo_service.h"
#include "gzip_bomb.h"
#include "http2_peer.h"
#include "tests/heap.h"
#include "rpc_test.pb-c.h"

extern char **environ;

enum {
    WAIT_MS = 20000,
    QUIET_MS = 500, /* of a server that has said that it takes no more */
    STREAMS = PEER_STREAMS,
    HALF_BYTES = 2 << 20,
    CLAIMED_BYTES = 3 << 20,
    IN_FLIGHT_BYTES = 4 << 20,
    REPLY_BYTES = 512 << 10,
    LATE_BYTES =
        24 << 20, /* granted to streams before memory was short; without a bound 192 MiB come */
    BOMB_ZEROS = 512 << 20,
    BOMB_BYTES_MAX = 64 << 20, /* that it may make anybody hold */
};

static const int64_t PROMPT_NS = 1000000000;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { RESIDENT_IS_OURS = false, CONNECTIONS = 500 }; /* freed memory is kept, the rest shadowed */
#else
enum { RESIDENT_IS_OURS = true, CONNECTIONS = 10000 };
#endif

/* ---- the server ------------------------------------------------------------------------------ */

struct fixture {
    char dir[64], path[80], address[90];
    uint32_t closed; /* calls */
    int64_t unread_timeout_ms;
    Troupe__Test__Test_Service object;
    trp_server *server;
    struct mutex mutex; /* guards the rest: of calls of Echo that ask to be held */
    struct cond changed;
    bool held, go_on;
};

/* Numbers that ask Echo for something. */
enum { HOLD = -1 };

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    strcpy(fixture->dir, "/tmp/troupe-limits-XXXXXX");
    if (!mkdtemp(fixture->dir))
        return -1;
    snprintf(fixture->path, sizeof fixture->path, "%s/s", fixture->dir);
    snprintf(fixture->address, sizeof fixture->address, "unix:%s", fixture->path);
    mutex_init(&fixture->mutex);
    cond_init(&fixture->changed);
    *state = fixture;
    return 0;
}

/* Of a negative number nothing is good. */
static void on_increment(Troupe__Test__Test_Service *service, const Troupe__Test__Number *in,
                         Troupe__Test__Number_Closure done, void *data)
{
    Troupe__Test__Number out = TROUPE__TEST__NUMBER__INIT;
    (void)service;
    out.value = in->value + 1;
    bool bad = in->value < 0 && trp_fail(TRP_ABORTED, "\x1b[2J\x9bgone\r\n") != TRP_OK;
    done(bad ? NULL : &out, data);
}

static void hold(Troupe__Test__Test_Service *service)
{
    struct fixture *fixture =
        (struct fixture *)(void *)((char *)service - offsetof(struct fixture, object));
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    mutex_lock(&fixture->mutex);
    fixture->held = true;
    cond_broadcast(&fixture->changed);
    while (!fixture->go_on && cond_wait(&fixture->changed, &fixture->mutex, deadline))
        continue;
    mutex_unlock(&fixture->mutex);
}

/* As many empty children as `number` says. */
static void answer_children(size_t number, Troupe__Test__Everything_Closure done, void *data)
{
    Troupe__Test__Child child = TROUPE__TEST__CHILD__INIT;
    Troupe__Test__Everything out = TROUPE__TEST__EVERYTHING__INIT;
    out.n_children = number;
    out.children = xmalloc(number * sizeof *out.children);
    for (size_t i = 0; i < number; i++)
        out.children[i] = &child;
    done(&out, data);
    free(out.children);
}

static void on_echo(Troupe__Test__Test_Service *service, const Troupe__Test__Everything *in,
                    Troupe__Test__Everything_Closure done, void *data)
{
    static uint8_t zeros[REPLY_BYTES];
    Troupe__Test__Everything out = TROUPE__TEST__EVERYTHING__INIT;
    if (in->number > 0) {
        answer_children((size_t)in->number, done, data);
        return;
    }
    if (in->number == HOLD)
        hold(service);
    out.data = (ProtobufCBinaryData){REPLY_BYTES, zeros};
    done(&out, data);
}

static bool serve(struct fixture *fixture, uint64_t in_flight_bytes)
{
    trp_server_options options = {.address = fixture->address,
                                  .in_flight_bytes = in_flight_bytes,
                                  .unread_timeout_ms = fixture->unread_timeout_ms,
                                  .max_message_bytes = in_flight_bytes / 4};
    troupe__test__test__init(&fixture->object, NULL);
    fixture->object.increment = on_increment;
    fixture->object.echo = on_echo;
    return trp_server_create(&fixture->server, &options) == TRP_OK &&
           trp_server_add(fixture->server, &fixture->object.base, NULL) == TRP_OK &&
           trp_server_add_raw(fixture->server, &echo_method, 1, &fixture->closed, NULL) == TRP_OK &&
           trp_server_start(fixture->server) == TRP_OK;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    trp_server_destroy(fixture->server);
    unlink(fixture->path);
    assert_int_equal(rmdir(fixture->dir), 0);
    cond_cleanup(&fixture->changed);
    mutex_cleanup(&fixture->mutex);
    free(fixture);
    return 0;
}

static size_t resident_bytes(pid_t pid)
{
    unsigned long all = 0, resident = 0;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &all, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- half-sent messages --------------------------------------------------------------------- */

static void peer_open_stream(struct peer *peer, uint32_t index)
{
    peer_call(peer, index, "/test.Raw/Echo", "identity");
}

static void peer_begin_message(struct peer *peer, uint32_t index)
{
    uint8_t prefix[5] = {0};
    write_u32(prefix + 1, CLAIMED_BYTES);
    peer_frame(peer, DATA, 0, 2 * index + 1, prefix, sizeof prefix);
    peer->window -= 5;
    peer->windows[index] -= 5;
}

/* Until every stream sent half its message or was reset, or the server takes no more. The most that
 * was on the heap meanwhile. */
static size_t peer_send_halves(struct peer *peer)
{
    size_t most = 0;
    static const uint8_t zeros[HALF_BYTES];
    bool more = true;
    for (uint32_t i = 0; i < STREAMS; i++) {
        peer_open_stream(peer, i);
        peer_begin_message(peer, i);
    }
    while (more && !peer->gone) {
        bool sent = false;
        for (uint32_t i = 0; i < STREAMS; i++)
            sent |= peer_send_some(peer, i, (trp_bytes){zeros, HALF_BYTES});
        int patience_ms = peer->reset_count > 0 ? QUIET_MS : WAIT_MS; /* it may be busy */
        more = peer_listen(peer, sent ? 0 : patience_ms) || sent;
        size_t now = heap_bytes();
        most = now > most ? now : most;
    }
    return most;
}

/* ---- a message that inflates to a large one -------------------------------------------------- */

/* The most that the process had resident at once. */
static size_t peak_bytes(pid_t pid)
{
    char path[64], line[128];
    unsigned long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (kib == 0 && fgets(line, sizeof line, file))
        sscanf(line, "VmHWM: %lu", &kib);
    fclose(file);
    return kib << 10;
}

static void peak_reset(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    assert_non_null(file);
    assert_true(fputs("5", file) >= 0);
    fclose(file);
}

/* A server that answers the first call of the first client with the bomb. */
struct hostile {
    int listener;
    trp_bytes bomb;
    struct thread thread;
};

static void hostile_headers(struct peer *peer)
{
    uint8_t block[256], *at = block;
    at = put_header(at, ":status", "200");
    at = put_header(at, "content-type", "application/grpc");
    at = put_header(at, "grpc-encoding", "gzip");
    peer_frame(peer, HEADERS, END_HEADERS, 1, block, (size_t)(at - block));
}

static void hostile_run(void *arg)
{
    const struct hostile *hostile = arg;
    char hello[sizeof preface - 1];
    struct peer *peer = peer_create(accept(hostile->listener, NULL, NULL));
    if (recv(peer->fd, hello, sizeof hello, MSG_WAITALL) == (ssize_t)sizeof hello)
        peer_frame(peer, SETTINGS, 0, 0, NULL, 0);
    while (!peer->called && peer_listen(peer, WAIT_MS))
        continue;
    hostile_headers(peer);
    peer_send(peer, 0, hostile->bomb);
    while (peer_listen(peer, WAIT_MS)) /* the client decides when it is over */
        continue;
    peer_close(peer);
}

static void hostile_start(struct hostile *hostile, const char *path)
{
    struct sockaddr_un address = address_of(path);
    hostile->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(hostile->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(hostile->listener, 1), 0);
    hostile->bomb = bomb_create(BOMB_ZEROS);
    assert_int_equal(thread_start(&hostile->thread, "hostile", hostile_run, hostile), TRP_OK);
}

static void hostile_stop(struct hostile *hostile)
{
    thread_stop(&hostile->thread);
    close(hostile->listener);
    free((uint8_t *)hostile->bomb.data);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* One message there and back, on a connection of its own. */
static trp_status serve_one(const struct fixture *fixture)
{
    trp_channel *channel;
    trp_stream *stream;
    trp_message *message = trp_message_create(1000);
    memset(trp_message_data(message), 7, 1000);
    assert_int_equal(trp_channel_create(&channel, fixture->address, NULL), TRP_OK);
    assert_int_equal(trp_stream_open(&stream, channel, "/test.Raw/Echo", NULL), TRP_OK);
    trp_status status = trp_stream_send(stream, message, WAIT_MS);
    if (status == TRP_OK)
        status = trp_stream_receive(stream, &message, WAIT_MS);
    if (status == TRP_OK) {
        assert_int_equal(trp_message_size(message), 1000);
        trp_message_destroy(message);
    }
    trp_stream_destroy(stream);
    trp_channel_destroy(channel);
    return status;
}

/* A connection that comes while memory is short may be refused: clients come again. */
static void expect_served(const struct fixture *fixture)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    trp_status status;
    do
        status = serve_one(fixture);
    while (status == TRP_UNAVAILABLE && !deadline_passed(deadline, &clock_monotonic));
    assert_int_equal(status, TRP_OK);
}

static void half_sent_messages_take_a_bounded_memory(void **state)
{
    struct fixture *fixture = *state;
    assert_true(serve(fixture, IN_FLIGHT_BYTES));
    expect_served(fixture);
    size_t before = heap_bytes();
    struct peer *peer = peer_connect(fixture->path);
    size_t most = peer_send_halves(peer);
    uint32_t reset_count = peer->reset_count, reset_code = peer->reset_code;
    expect_served(fixture);
    peer_close(peer);
    assert_int_not_equal(reset_count, 0);
    assert_int_equal(reset_code, ENHANCE_YOUR_CALM); /* clients say RESOURCE_EXHAUSTED */
    assert_true(most < before + IN_FLIGHT_BYTES + RPC_CONNECTIONS_BYTES + LATE_BYTES);
}

/* What flow control has to say goes with the answers, not before them on its own. */
static void a_message_is_answered_with_one_write(void **state)
{
    enum { MESSAGES = 100 };
    static const uint8_t message[] = {0, 0, 0, 0, 3, 'a', 'b', 'c'};
    struct fixture *fixture = *state;
    assert_true(serve(fixture, IN_FLIGHT_BYTES));
    struct peer *peer = peer_connect(fixture->path);
    peer_open_stream(peer, 0);
    uint32_t writes = 0;
    for (uint32_t i = 0; i < MESSAGES; i++) {
        peer_frame(peer, DATA, 0, 1, message, sizeof message);
        for (; peer->answers == i; writes++)
            assert_true(peer_listen(peer, WAIT_MS));
    }
    peer_close(peer);
    assert_in_range(writes, MESSAGES, MESSAGES * 3 / 2); /* some are pings and settings */
}

/* ---- ten thousand connections: each end has a process, for its files --------------------------
 */

/* Serves at `path` until the parent ends. */
static int serve_alone(const char *path)
{
    struct fixture fixture = {.closed = 0};
    snprintf(fixture.address, sizeof fixture.address, "unix:%s", path);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || !serve(&fixture, 0) || write(1, "s", 1) != 1)
        return 1;
    for (;;)
        pause();
}

static pid_t start_alone(const struct fixture *fixture)
{
    char *arguments[] = {"/proc/self/exe", "--serve", (char *)fixture->path, NULL}, byte;
    posix_spawn_file_actions_t actions;
    int pipes[2];
    pid_t pid;
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
    assert_int_equal(posix_spawn(&pid, arguments[0], &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    close(pipes[0]);
    return pid;
}

/* Accepted, its settings exchanged, and then silent. */
static int connect_idle(const struct fixture *fixture)
{
    struct peer *peer = peer_connect(fixture->path);
    assert_true(peer_listen(peer, WAIT_MS));
    assert_false(peer->gone);
    int fd = peer->fd;
    free(peer);
    return fd;
}

/* The server has said no goodbye: nothing but the answer to our settings has come since. */
static bool is_open(int fd)
{
    uint8_t in[64];
    ssize_t size = recv(fd, in, sizeof in, MSG_DONTWAIT);
    return size < 0 ? errno == EAGAIN : size == 9 && in[3] == SETTINGS;
}

static uint64_t file_limit(void)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return limit.rlim_max;
}

static void ten_thousand_idle_connections_cost_little_and_delay_nobody(void **state)
{
    const struct fixture *fixture = *state;
    static int idle[CONNECTIONS];
    if (file_limit() < CONNECTIONS + 200) {
        print_message("skipped: file limit %llu\n", (unsigned long long)file_limit());
        skip();
    }
    pid_t server = start_alone(fixture);
    expect_served(fixture);
    size_t before = resident_bytes(server);
    for (uint32_t i = 0; i < CONNECTIONS; i++)
        idle[i] = connect_idle(fixture);
    size_t each = (resident_bytes(server) - before) / CONNECTIONS;
    int64_t begin = clock_now_ns(&clock_monotonic);
    expect_served(fixture);
    int64_t served_ns = clock_now_ns(&clock_monotonic) - begin;
    uint32_t open = 0;
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        open += is_open(idle[i]);
        close(idle[i]);
    }
    kill(server, SIGKILL);
    assert_int_equal(waitpid(server, NULL, 0), server);
    print_message("%zu bytes a connection, a new one is served in %lld us\n", each,
                  (long long)served_ns / 1000);
    assert_int_equal(open, CONNECTIONS);
    assert_true(!RESIDENT_IS_OURS || each <= 32 << 10);
    assert_true(served_ns < PROMPT_NS);
}

/* Reads until `words` came. */
static bool says(int fd, const char *words)
{
    char text[8192] = "";
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    for (size_t size = 0; size < sizeof text - 1 && poll(&readable, 1, WAIT_MS) == 1;) {
        ssize_t got = read(fd, text + size, sizeof text - 1 - size);
        if (got <= 0)
            return false;
        size += (size_t)got;
        text[size] = '\0';
        if (strstr(text, words))
            return true;
    }
    return false;
}

static void a_server_that_met_its_limit_on_open_files_says_what_that_means(void **state)
{
    enum { FILES = 64 };
    const struct fixture *fixture = *state;
    struct peer *peers[FILES];
    int pipes[2], standard_error = dup(STDERR_FILENO);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(dup2(pipes[1], STDERR_FILENO), STDERR_FILENO);
    pid_t server = start_alone(fixture);
    assert_int_equal(dup2(standard_error, STDERR_FILENO), STDERR_FILENO);
    close(standard_error);
    close(pipes[1]);
    expect_served(fixture);
    struct rlimit limit = {.rlim_cur = FILES, .rlim_max = FILES};
    assert_int_equal(prlimit(server, RLIMIT_NOFILE, &limit, NULL), 0);
    for (size_t i = 0; i < FILES; i++)
        peers[i] = peer_connect(fixture->path);
    assert_true(says(pipes[0], "no new connection is taken until this process is started again"));
    for (size_t i = 0; i < FILES; i++)
        peer_close(peers[i]);
    close(pipes[0]);
    kill(server, SIGKILL);
    assert_int_equal(waitpid(server, NULL, 0), server);
}

/* ---- compressed messages --------------------------------------------------------------------- */

static void expect_refused(const struct fixture *fixture, const char *path, trp_bytes bomb)
{
    struct peer *peer = peer_connect(fixture->path);
    peer_call(peer, 0, path, "gzip");
    peer_send(peer, 0, bomb);
    while (peer->status < 0 && !peer->gone && peer_listen(peer, WAIT_MS))
        continue;
    assert_int_equal(peer->status, TRP_UNIMPLEMENTED);
    expect_served(fixture);
    peer_close(peer);
}

static void a_server_refuses_compressed_messages_unread(void **state)
{
    static const char *const paths[] = {"/test.Raw/Echo", "/troupe.test.Test/Increment",
                                        "/test.Raw/Unknown"};
    const struct fixture *fixture = *state;
    trp_bytes bomb = bomb_create(BOMB_ZEROS);
    pid_t server = start_alone(fixture);
    expect_served(fixture);
    size_t before = peak_bytes(server);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        expect_refused(fixture, paths[i], bomb);
    size_t after = peak_bytes(server);
    kill(server, SIGKILL);
    assert_int_equal(waitpid(server, NULL, 0), server);
    free((uint8_t *)bomb.data);
    assert_true(after < before + BOMB_BYTES_MAX);
}

/* A stream and a call, each to a server that answers with the bomb. */
static trp_status stream_from(trp_channel *channel)
{
    trp_stream *stream;
    trp_message *message = NULL;
    assert_int_equal(trp_stream_open(&stream, channel, "/test.Raw/Echo", NULL), TRP_OK);
    trp_status status = trp_stream_receive(stream, &message, WAIT_MS);
    trp_message_destroy(message);
    trp_stream_destroy(stream);
    return status;
}

static trp_status call_method(trp_channel *channel, const char *method, const ProtobufCMessage *in)
{
    trp_call_options options = {.timeout_ms = WAIT_MS};
    ProtobufCService *service;
    ProtobufCMessage *out = NULL;
    assert_int_equal(trp_channel_service(channel, &troupe__test__test__descriptor, &service),
                     TRP_OK);
    trp_status status = trp_call(service, method, in, &out, &options);
    if (out)
        protobuf_c_message_free_unpacked(out, NULL);
    return status;
}

static trp_status ask_small(trp_channel *channel)
{
    return call_method(channel, "Increment",
                       &((Troupe__Test__Number)TROUPE__TEST__NUMBER__INIT).base);
}

static trp_status ask_large(trp_channel *channel)
{
    return call_method(channel, "Echo",
                       &((Troupe__Test__Everything)TROUPE__TEST__EVERYTHING__INIT).base);
}

static void a_client_refuses_compressed_messages_unread(void **state)
{
    const struct fixture *fixture = *state;
    trp_status (*const asks[])(trp_channel * channel) = {stream_from, ask_small};
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        struct hostile hostile;
        trp_channel *channel;
        hostile_start(&hostile, fixture->path);
        peak_reset();
        size_t before = peak_bytes(getpid());
        assert_int_equal(trp_channel_create(&channel, fixture->address, NULL), TRP_OK);
        trp_status status = asks[i](channel);
        size_t after = peak_bytes(getpid());
        trp_channel_destroy(channel);
        hostile_stop(&hostile);
        assert_int_equal(unlink(fixture->path), 0);
        assert_int_equal(status, TRP_UNIMPLEMENTED);
        assert_true(after < before + BOMB_BYTES_MAX);
    }
}

/* A peer that never opens its window asks for large replies on many streams, until it is told that
 * there is no more room. */
static struct peer *peer_that_leaves_replies_unread(const struct fixture *fixture)
{
    static const uint8_t request[5];
    struct peer *peer = peer_connect(fixture->path);
    for (uint32_t i = 0; i < STREAMS; i++) {
        peer_call(peer, i, "/troupe.test.Test/Echo", "identity");
        peer_frame(peer, DATA, END_STREAM, 2 * i + 1, request, sizeof request);
    }
    while (peer->ended < STREAMS - IN_FLIGHT_BYTES / 2 / REPLY_BYTES && peer_listen(peer, WAIT_MS))
        continue;
    assert_int_equal(peer->status, TRP_UNAVAILABLE);
    return peer;
}

/* Until there is room. */
static void expect_large(trp_channel *channel)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    trp_status status;
    do
        status = ask_large(channel);
    while (status == TRP_UNAVAILABLE && !deadline_passed(deadline, &clock_monotonic));
    assert_int_equal(status, TRP_OK);
}

static void unread_replies_end_when_another_needs_the_room(void **state)
{
    struct fixture *fixture = *state;
    trp_channel *channel;
    fixture->unread_timeout_ms = 500;
    assert_true(serve(fixture, IN_FLIGHT_BYTES));
    assert_int_equal(trp_channel_create(&channel, fixture->address, NULL), TRP_OK);
    struct peer *peer = peer_that_leaves_replies_unread(fixture);
    expect_large(channel);
    while (peer->reset_count == 0 && peer_listen(peer, WAIT_MS))
        continue;
    assert_true(peer->reset_count > 0);
    peer_close(peer);
    trp_channel_destroy(channel);
}

static void unread_replies_take_a_bounded_memory(void **state)
{
    struct fixture *fixture = *state;
    trp_channel *channel;
    fixture->unread_timeout_ms = 10 * WAIT_MS;
    assert_true(serve(fixture, IN_FLIGHT_BYTES));
    assert_int_equal(trp_channel_create(&channel, fixture->address, NULL), TRP_OK);
    assert_int_equal(ask_large(channel), TRP_OK);
    size_t before = heap_bytes();
    struct peer *peer = peer_that_leaves_replies_unread(fixture);
    assert_true(heap_bytes() < before + IN_FLIGHT_BYTES + RPC_CONNECTIONS_BYTES);
    assert_int_equal(ask_large(channel), TRP_UNAVAILABLE);
    assert_int_equal(ask_small(channel), TRP_OK); /* a small one */
    peer_close(peer);
    expect_large(channel);
    trp_channel_destroy(channel);
}

/* ---- small messages that are large decoded --------------------------------------------------- */

static void a_reply_that_swells_is_refused_by_its_client(void **state)
{
    enum { CHILDREN = 1000000 };
    struct fixture *fixture = *state;
    trp_channel *channel;
    Troupe__Test__Everything in = TROUPE__TEST__EVERYTHING__INIT;
    char sizes[120];
    assert_true(serve(fixture, 0));
    assert_int_equal(trp_channel_create(&channel, fixture->address, NULL), TRP_OK);
    in.number = CHILDREN / 10;
    assert_int_equal(call_method(channel, "Echo", &in.base), TRP_OK);
    in.number = CHILDREN;
    assert_int_equal(call_method(channel, "Echo", &in.base), TRP_RESOURCE_EXHAUSTED);
    snprintf(sizes, sizeof sizes, "%d bytes take more than %d decoded", 2 * CHILDREN,
             RPC_REPLY_DECODED_TIMES * 2 * CHILDREN + RPC_REPLY_DECODED_BYTES);
    assert_non_null(strstr(trp_last_error(), sizes));
    assert_non_null(strstr(trp_last_error(), "/troupe.test.Test/Echo"));
    assert_non_null(strstr(trp_last_error(), fixture->address));
    trp_channel_destroy(channel);
}

/* So many words without a letter, of about 100 bytes each decoded. */
static Troupe__Test__Everything words_request(char **words, size_t count)
{
    Troupe__Test__Everything in = TROUPE__TEST__EVERYTHING__INIT;
    for (size_t i = 0; i < count; i++)
        words[i] = (char *)"";
    in.words = words;
    in.n_words = count;
    return in;
}

static bool wait_held(struct fixture *fixture)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    mutex_lock(&fixture->mutex);
    while (!fixture->held && cond_wait(&fixture->changed, &fixture->mutex, deadline))
        continue;
    mutex_unlock(&fixture->mutex);
    return fixture->held;
}

static void let_go_on(struct fixture *fixture)
{
    mutex_lock(&fixture->mutex);
    fixture->go_on = true;
    cond_broadcast(&fixture->changed);
    mutex_unlock(&fixture->mutex);
}

static void what_requests_take_decoded_is_in_one_budget(void **state)
{
    enum { WORDS = 20000, TOO_MANY_WORDS = IN_FLIGHT_BYTES / 64 };
    struct fixture *fixture = *state;
    static char *words[TOO_MANY_WORDS];
    Troupe__Test__Everything in = words_request(words, TOO_MANY_WORDS);
    trp_channel *channel;
    ProtobufCService *service;
    assert_true(serve(fixture, IN_FLIGHT_BYTES));
    assert_int_equal(trp_channel_create(&channel, fixture->address, NULL), TRP_OK);
    assert_int_equal(trp_channel_service(channel, &troupe__test__test__descriptor, &service),
                     TRP_OK);
    assert_int_equal(call_method(channel, "Echo", &in.base), TRP_RESOURCE_EXHAUSTED);
    in.n_words = WORDS;
    in.number = HOLD;
    trp_future *future = trp_call_async(service, "Echo", &in.base, NULL);
    assert_true(wait_held(fixture));
    in.number = 0;
    assert_int_equal(call_method(channel, "Echo", &in.base), TRP_UNAVAILABLE);
    assert_non_null(strstr(trp_last_error(), "more than others leave of 4194304"));
    assert_int_equal(ask_small(channel), TRP_OK);
    let_go_on(fixture);
    assert_int_equal(trp_future_finish(future, NULL, NULL), TRP_OK);
    for (int i = 0; i < 10; i++) /* all of it is given back each time */
        assert_int_equal(call_method(channel, "Echo", &in.base), TRP_OK);
    trp_channel_destroy(channel);
}

/* ---- words that a terminal would obey -------------------------------------------------------- */

static void what_a_peer_says_is_escaped_where_it_becomes_an_error(void **state)
{
    struct fixture *fixture = *state;
    trp_channel *channel;
    Troupe__Test__Number in = TROUPE__TEST__NUMBER__INIT;
    assert_true(serve(fixture, IN_FLIGHT_BYTES));
    assert_int_equal(trp_channel_create(&channel, fixture->address, NULL), TRP_OK);
    in.value = -1;
    assert_int_equal(call_method(channel, "Increment", &in.base), TRP_ABORTED);
    assert_string_equal(trp_last_error(), "\\x1b[2J\\x9bgone\\x0d\\x0a");
    trp_channel_destroy(channel);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--serve") == 0)
        return serve_alone(argv[2]);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_server_refuses_compressed_messages_unread),
        TEST(a_client_refuses_compressed_messages_unread),
        TEST(half_sent_messages_take_a_bounded_memory),
        TEST(unread_replies_take_a_bounded_memory),
        TEST(unread_replies_end_when_another_needs_the_room),
        TEST(a_message_is_answered_with_one_write),
        TEST(a_reply_that_swells_is_refused_by_its_client),
        TEST(what_requests_take_decoded_is_in_one_budget),
        TEST(what_a_peer_says_is_escaped_where_it_becomes_an_error),
        TEST(ten_thousand_idle_connections_cost_little_and_delay_nobody),
        TEST(a_server_that_met_its_limit_on_open_files_says_what_that_means),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
