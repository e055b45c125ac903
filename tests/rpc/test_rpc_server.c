/* What a server does with its address, its life and its health service. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/log.h>
#include <troupe/rpc.h>
#include "core/clock.h"
#include "core/thread.h"
#include "echo_service.h"
#include "health.pb-c.h"
#include "rpc/pool.h"
#include "rpc/server.h"
#include "tests/core/patience.h"

enum { WAIT_MS = 20000 };

struct fixture {
    char dir[64];
    char path[80];
    char address[90]; /* "unix:" and path */
};

static int setup(void **state)
{
    static struct fixture fixture;
    strcpy(fixture.dir, "/tmp/troupe-server-XXXXXX");
    if (!mkdtemp(fixture.dir))
        return -1;
    snprintf(fixture.path, sizeof fixture.path, "%s/s", fixture.dir);
    snprintf(fixture.address, sizeof fixture.address, "unix:%s", fixture.path);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    chmod(fixture->dir, 0700);
    unlink(fixture->path);
    return rmdir(fixture->dir);
}

static trp_status try_start(trp_server **server, const char *address, bool insecure)
{
    const trp_server_options options = {.address = address, .insecure = insecure, .threads = 1};
    assert_int_equal(trp_server_create(server, &options), TRP_OK);
    return trp_server_start(*server);
}

static trp_server *start(const char *address)
{
    trp_server *server;
    trp_status status = try_start(&server, address, false);
    if (status != TRP_OK)
        fail_msg("%s", trp_last_error());
    return server;
}

static void expect_refusal(const char *address, trp_status expected, const char *text)
{
    trp_server *server;
    trp_status status = try_start(&server, address, false);
    if (status != expected || !strstr(trp_last_error(), text))
        fail_msg("%s: %s %s", address, trp_status_name(status), trp_last_error());
    trp_server_destroy(server);
}

/* ---- addresses ---- */

static void the_default_is_a_free_port_on_loopback(void **state)
{
    (void)state;
    trp_server *server = start(NULL), *other = start(NULL);
    assert_int_equal(strncmp(trp_server_address(server), "127.0.0.1:", 10), 0);
    assert_string_not_equal(trp_server_address(server), trp_server_address(other));
    trp_server_destroy(server);
    trp_server_destroy(other);
}

static void a_second_server_on_a_port_is_refused_with_the_owner(void **state)
{
    (void)state;
    trp_server *server = start("127.0.0.1:0");
    char text[64];
    snprintf(text, sizeof text, "%s is in use by process %d", trp_server_address(server), getpid());
    expect_refusal(trp_server_address(server), TRP_ALREADY_EXISTS, text);
    trp_server_destroy(server);
}

static void a_second_server_on_a_unix_socket_is_refused_with_the_owner(void **state)
{
    struct fixture *fixture = *state;
    trp_server *server = start(fixture->address);
    assert_string_equal(trp_server_address(server), fixture->address);
    char text[200];
    snprintf(text, sizeof text, "%s is in use by process %d", fixture->address, getpid());
    expect_refusal(fixture->address, TRP_ALREADY_EXISTS, text);
    trp_channel *channel; /* and the first one is undisturbed */
    assert_int_equal(trp_channel_create(&channel, fixture->address, NULL), TRP_OK);
    trp_stream *stream;
    assert_int_equal(trp_stream_open(&stream, channel, "/grpc.health.v1.Health/Check", NULL),
                     TRP_OK);
    trp_message *message = trp_message_create(0);
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
    assert_int_equal(trp_stream_receive(stream, &message, WAIT_MS), TRP_OK);
    trp_message_destroy(message);
    trp_stream_destroy(stream);
    trp_channel_destroy(channel);
    trp_server_destroy(server);
}

static void the_socket_of_a_dead_process_is_replaced(void **state)
{
    struct fixture *fixture = *state;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, fixture->path);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    close(fd); /* the file stays, as after kill -9 */
    trp_server_destroy(start(fixture->address));
}

static void a_file_that_is_no_socket_is_kept(void **state)
{
    struct fixture *fixture = *state;
    FILE *file = fopen(fixture->path, "w");
    assert_non_null(file);
    fclose(file);
    expect_refusal(fixture->address, TRP_ALREADY_EXISTS, "no socket");
    assert_int_equal(access(fixture->path, F_OK), 0);
}

static void a_port_is_free_again_after_the_stop(void **state)
{
    (void)state;
    char address[64];
    trp_server *server = start(NULL);
    snprintf(address, sizeof address, "%s", trp_server_address(server));
    for (uint32_t i = 0; i < 3; i++) {
        trp_server_destroy(server);
        server = start(address);
        assert_string_equal(trp_server_address(server), address);
    }
    trp_server_destroy(server);
}

static void addresses_that_are_not_loopback_need_insecure(void **state)
{
    (void)state;
    expect_refusal("0.0.0.0:0", TRP_INVALID_ARGUMENT, "insecure");
    expect_refusal("[::]:0", TRP_INVALID_ARGUMENT, "insecure");
    trp_server *server;
    if (try_start(&server, "0.0.0.0:0", true) != TRP_OK)
        fail_msg("%s", trp_last_error());
    assert_null(strstr(trp_server_address(server), "0.0.0.0"));
    trp_server_destroy(server);
    trp_server_destroy(start("localhost:0"));
}

static void malformed_addresses_are_named(void **state)
{
    (void)state;
    static const char *const bad[] = {"",           "localhost", "localhost:",   "localhost:x",
                                      "1.2.3.4:-1", "[::1]",     "::1:80",       "127.0.0.1:65536",
                                      "unix:",      ":80",       "localhost:1x", "[]:80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_refusal(bad[i], TRP_INVALID_ARGUMENT, "address ");
        trp_channel *channel;
        assert_int_equal(trp_channel_create(&channel, bad[i], NULL), TRP_INVALID_ARGUMENT);
        assert_null(channel);
    }
    expect_refusal("no-such-host.invalid:80", TRP_NOT_FOUND, "no-such-host.invalid");
}

static void a_path_too_long_for_a_socket_is_refused(void **state)
{
    struct fixture *fixture = *state;
    char address[256];
    snprintf(address, sizeof address, "unix:%s/%0100d", fixture->dir, 0);
    expect_refusal(address, TRP_INVALID_ARGUMENT, "a unix socket takes 107");
}

static void directories_that_cannot_be_used_are_named(void **state)
{
    struct fixture *fixture = *state;
    expect_refusal("unix:/tmp/troupe-no-such-directory/s", TRP_NOT_FOUND,
                   "/tmp/troupe-no-such-directory");
    if (geteuid() == 0)
        return; /* root may write everywhere */
    assert_int_equal(chmod(fixture->dir, 0500), 0);
    expect_refusal(fixture->address, TRP_PERMISSION_DENIED, fixture->dir);
}

static void files_may_be_opened_up_to_the_hard_limit(void **state)
{
    (void)state;
    struct rlimit limit;
    trp_server_destroy(start(NULL));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(limit.rlim_cur, limit.rlim_max);
}

static void a_start_that_fails_when_it_listens_already_is_an_error(void **state)
{
    struct fixture *fixture = *state;
    trp_server *server;
    assert_int_equal(trp_server_create(&server, &(trp_server_options){.address = fixture->address}),
                     TRP_OK);
    rpc_pool_stop(server->pool); /* as where the process may have no more threads */
    assert_int_equal(trp_server_start(server), TRP_UNAVAILABLE);
    trp_server_destroy(server);
    trp_server_destroy(start(fixture->address));
}

static const char *no_thread; /* of this name; NULL: there are all */

trp_status __real_thread_start(struct thread *thread, const char *name, void (*run)(void *),
                               void *arg);
trp_status __wrap_thread_start(struct thread *thread, const char *name, void (*run)(void *),
                               void *arg);
trp_status __wrap_thread_start(struct thread *thread, const char *name, void (*run)(void *),
                               void *arg)
{
    if (no_thread && strcmp(name, no_thread) == 0)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "thread %s: none left", name);
    return __real_thread_start(thread, name, run, arg);
}

static void a_server_for_which_there_are_no_threads_says_so_and_ends(void **state)
{
    static const char *const names[] = {"trp-reactor", "trp-handler"};
    struct fixture *fixture = *state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        trp_server *server;
        assert_int_equal(
            trp_server_create(&server, &(trp_server_options){.address = fixture->address}), TRP_OK);
        no_thread = names[i];
        assert_int_equal(trp_server_start(server), TRP_RESOURCE_EXHAUSTED);
        no_thread = NULL;
        assert_non_null(strstr(trp_last_error(), names[i]));
        trp_server_destroy(server);
        trp_server_destroy(start(fixture->address));
    }
}

/* ---- services ---- */

static int64_t never(void *service)
{
    (void)service;
    return INT64_MAX;
}

static void methods_are_added_once_and_before_the_start(void **state)
{
    (void)state;
    trp_server *server;
    uint32_t count = 0;
    assert_int_equal(trp_server_create(&server, NULL), TRP_OK);
    assert_int_equal(trp_server_add_raw(server, &echo_method, 1, &count, never), TRP_OK);
    assert_int_equal(trp_server_add_raw(server, &echo_method, 1, &count, NULL), TRP_ALREADY_EXISTS);
    trp_raw_method other = echo_method;
    other.path = "/test.Raw/Other";
    assert_int_equal(trp_server_add_raw(server, &other, 1, &count, never), TRP_ALREADY_EXISTS);
    assert_int_equal(trp_server_start(server), TRP_OK);
    assert_int_equal(trp_server_add_raw(server, &other, 1, &count, NULL), TRP_FAILED_PRECONDITION);
    assert_int_equal(trp_server_start(server), TRP_FAILED_PRECONDITION);
    trp_server_destroy(server);
    trp_server_destroy(NULL);
    trp_channel_destroy(NULL);
}

/* Asks `method` about `name`; *status is the answer's. */
static trp_stream *ask_health(trp_channel *channel, const char *method, const char *name)
{
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    request.service = (char *)name;
    trp_message *message = trp_message_create(protobuf_c_message_get_packed_size(&request.base));
    protobuf_c_message_pack(&request.base, trp_message_data(message));
    trp_stream *stream;
    char path[64];
    snprintf(path, sizeof path, "/grpc.health.v1.Health/%s", method);
    assert_int_equal(trp_stream_open(&stream, channel, path, NULL), TRP_OK);
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
    return stream;
}

static int next_health(trp_stream *stream)
{
    trp_message *message;
    trp_status status = trp_stream_receive(stream, &message, WAIT_MS);
    if (status != TRP_OK)
        return -(int)status;
    Grpc__Health__V1__HealthCheckResponse *response =
        grpc__health__v1__health_check_response__unpack(NULL, trp_message_size(message),
                                                        trp_message_data(message));
    assert_non_null(response);
    int state = response->status;
    grpc__health__v1__health_check_response__free_unpacked(response, NULL);
    trp_message_destroy(message);
    return state;
}

static void health_check_knows_the_services(void **state)
{
    static const struct {
        const char *name;
        int expected;
    } rows[] = {{"", 1}, {"test.Raw", 1}, {"grpc.health.v1.Health", 1}, {"nobody", -TRP_NOT_FOUND}};
    struct fixture *fixture = *state;
    trp_server *server;
    uint32_t count = 0;
    const trp_server_options options = {.address = fixture->address};
    assert_int_equal(trp_server_create(&server, &options), TRP_OK);
    assert_int_equal(trp_server_add_raw(server, &echo_method, 1, &count, NULL), TRP_OK);
    assert_int_equal(trp_server_start(server), TRP_OK);
    trp_channel *channel;
    assert_int_equal(trp_channel_create(&channel, fixture->address, NULL), TRP_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trp_stream *stream = ask_health(channel, "Check", rows[i].name);
        assert_int_equal(next_health(stream), rows[i].expected);
        trp_stream_destroy(stream);
    }
    trp_channel_destroy(channel);
    trp_server_destroy(server);
}

static void health_watch_tells_of_the_stop(void **state)
{
    struct fixture *fixture = *state;
    trp_server *server = start(fixture->address);
    trp_channel *channel;
    assert_int_equal(trp_channel_create(&channel, fixture->address, NULL), TRP_OK);
    trp_stream *known = ask_health(channel, "Watch", "");
    trp_stream *unknown = ask_health(channel, "Watch", "nobody");
    assert_int_equal(next_health(known), 1);
    assert_int_equal(next_health(unknown), 3);
    trp_server_stop(server, WAIT_MS);
    assert_int_equal(next_health(known), 2);
    assert_int_equal(next_health(known), -TRP_UNAVAILABLE);
    trp_stream_destroy(known);
    trp_stream_destroy(unknown);
    trp_channel_destroy(channel);
    trp_server_destroy(server);
}

static void broken_health_requests_are_refused(void **state)
{
    struct fixture *fixture = *state;
    trp_server *server = start(fixture->address);
    trp_channel *channel;
    trp_stream *stream;
    assert_int_equal(trp_channel_create(&channel, fixture->address, NULL), TRP_OK);
    assert_int_equal(trp_stream_open(&stream, channel, "/grpc.health.v1.Health/Check", NULL),
                     TRP_OK);
    trp_message *message = trp_message_create(2);
    memcpy(trp_message_data(message), "\x0a\x7f", 2);
    assert_int_equal(trp_stream_send(stream, message, WAIT_MS), TRP_OK);
    assert_int_equal(next_health(stream), -TRP_INVALID_ARGUMENT);
    trp_stream_destroy(stream);
    trp_channel_destroy(channel);
    trp_server_destroy(server);
}

/* ---- stopping ---- */

struct busy_client {
    trp_channel *channel;
    struct thread thread;
    uint32_t echoes, most; /* 0: no end of its own */
    trp_status end;
};

static void echo_until_the_end(void *arg)
{
    struct busy_client *client = arg;
    trp_stream *stream;
    client->end = trp_stream_open(&stream, client->channel, "/test.Raw/Echo", NULL);
    while (client->end == TRP_OK && (client->most == 0 || client->echoes < client->most)) {
        client->end = trp_stream_send(stream, trp_message_create(100), WAIT_MS);
        trp_message *message = NULL;
        if (client->end == TRP_OK)
            client->end = trp_stream_receive(stream, &message, WAIT_MS);
        trp_message_destroy(message);
        client->echoes += client->end == TRP_OK;
    }
    trp_stream_destroy(stream);
}

static void note_call(void *arg)
{
    (void)arg;
}

static void a_busy_server_stops(void **state)
{
    struct fixture *fixture = *state;
    for (int64_t grace_ms = 0; grace_ms <= 20; grace_ms += 20) {
        struct busy_client clients[4] = {{.channel = NULL}};
        uint32_t count = 0;
        trp_server *server;
        const trp_server_options options = {.address = fixture->address};
        assert_int_equal(trp_server_create(&server, &options), TRP_OK);
        assert_int_equal(trp_server_add_raw(server, &echo_method, 1, &count, never), TRP_OK);
        assert_int_equal(trp_server_start(server), TRP_OK);
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(trp_channel_create(&clients[i].channel, fixture->address,
                                                &(trp_channel_options){.fail_fast = true}),
                             TRP_OK);
            assert_int_equal(
                thread_start(&clients[i].thread, "client", echo_until_the_end, &clients[i]),
                TRP_OK);
        }
        for (uint32_t i = 0; i < 2000; i++)
            trp_server_run(server, note_call, NULL); /* the lock is fair to us meanwhile */
        trp_server_stop(server, grace_ms);
        trp_server_stop(server, grace_ms);
        for (size_t i = 0; i < 4; i++) {
            thread_stop(&clients[i].thread);
            assert_int_equal(clients[i].end, TRP_UNAVAILABLE);
            trp_channel_destroy(clients[i].channel);
        }
        assert_in_range(count, 0, 4);
        trp_server_destroy(server);
    }
}

struct visitor {
    trp_server *server;
    pid_t thread; /* where the work ran */
    _Atomic uint32_t visits;
    _Atomic bool stop;
};

static void visit_and_fail(void *arg)
{
    struct visitor *visitor = arg;
    visitor->thread = gettid();
    trp_fail(TRP_ABORTED, "visit %u", atomic_fetch_add(&visitor->visits, 1) + 1);
}

static void a_visit_is_on_the_reactor_and_its_failure_is_the_caller_s(void **state)
{
    (void)state;
    struct visitor visitor = {.server = start(NULL)};
    trp_server_visit(visitor.server, visit_and_fail, &visitor);
    assert_int_not_equal(visitor.thread, gettid());
    assert_string_equal(trp_last_error(), "visit 1");
    visitor.visits = 0;
    trp_fail(TRP_ABORTED, "before");
    trp_server_visit(visitor.server, visit_and_fail, &visitor); /* with the same words */
    assert_string_equal(trp_last_error(), "visit 1");
    trp_server_stop(visitor.server, 0);
    trp_server_visit(visitor.server, visit_and_fail, &visitor);
    assert_int_equal(visitor.thread, gettid());
    assert_string_equal(trp_last_error(), "visit 2");
    trp_server_destroy(visitor.server);
}

struct chain {
    trp_server *server;
    _Atomic uint32_t links;
    _Atomic bool stop;
};

static void post_again(void *arg)
{
    struct chain *chain = arg;
    atomic_fetch_add(&chain->links, 1);
    if (!atomic_load(&chain->stop))
        trp_server_post(chain->server, post_again, chain);
}

/* Begun by a caller that goes away, so that the reactor has to be woken for what is left. */
static void work_that_posts_itself_again_goes_on_and_lets_others_in(void **state)
{
    struct fixture *fixture = *state;
    struct chain chain = {.stop = false};
    uint32_t count = 0;
    const trp_server_options options = {.address = fixture->address};
    assert_int_equal(trp_server_create(&chain.server, &options), TRP_OK);
    assert_int_equal(trp_server_add_raw(chain.server, &echo_method, 1, &count, never), TRP_OK);
    assert_int_equal(trp_server_start(chain.server), TRP_OK);
    trp_server_run(chain.server, post_again, &chain);
    struct deadline deadline = patience();
    while (atomic_load(&chain.links) < 100)
        look_again_soon(deadline, "the work to be posted again");
    struct busy_client client = {.most = 100};
    assert_int_equal(trp_channel_create(&client.channel, fixture->address, NULL), TRP_OK);
    echo_until_the_end(&client);
    assert_int_equal(client.end, TRP_OK);
    assert_int_equal(client.echoes, 100);
    atomic_store(&chain.stop, true);
    trp_channel_destroy(client.channel);
    trp_server_stop(chain.server, 0);
    trp_server_destroy(chain.server);
}

static void visit_until_the_end(void *arg)
{
    struct visitor *visitor = arg;
    while (!atomic_load(&visitor->stop))
        trp_server_visit(visitor->server, visit_and_fail, visitor);
}

static void visits_go_on_while_the_server_stops(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct visitor visitor = {.server = start(NULL)};
        struct thread thread = {.running = false};
        assert_int_equal(thread_start(&thread, "visitor", visit_until_the_end, &visitor), TRP_OK);
        struct deadline deadline = patience();
        for (int i = 0; i < 100 || atomic_load(&visitor.visits) == 0; i++) {
            still_patient(deadline, "a visit");
            trp_server_run(visitor.server, note_call, NULL);
        }
        trp_server_stop(visitor.server, 0);
        uint32_t visits = atomic_load(&visitor.visits);
        while (atomic_load(&visitor.visits) == visits)
            look_again_soon(deadline, "a visit of the stopped server");
        atomic_store(&visitor.stop, true);
        thread_stop(&thread);
        trp_server_destroy(visitor.server);
    }
}

static void a_client_comes_back_to_a_restarted_server(void **state)
{
    struct fixture *fixture = *state;
    trp_channel *channel;
    trp_server *server = start(fixture->address);
    assert_int_equal(trp_channel_create(&channel, fixture->address, NULL), TRP_OK);
    for (uint32_t i = 0; i < 3; i++) {
        struct deadline deadline = patience();
        int answer = -TRP_UNAVAILABLE;
        while (answer == -TRP_UNAVAILABLE) { /* it may not have seen yet that the other one went */
            look_again_soon(deadline, "the restarted server");
            trp_stream *stream = ask_health(channel, "Check", "");
            answer = next_health(stream);
            trp_stream_destroy(stream);
        }
        assert_int_equal(answer, 1);
        trp_server_destroy(server);
        server = start(fixture->address);
    }
    trp_server_destroy(server);
    trp_channel_destroy(channel);
}

static void a_killed_server_is_unavailable(void **state)
{
    struct fixture *fixture = *state;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    char self[256];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_in_range(length, 1, sizeof self - 1);
    self[length] = 0;
    pid_t child = vfork(); /* gRPC runs in this process: nothing but exec may follow */
    if (child == 0) {
        dup2(ready[1], 1);
        execl(self, self, "--serve", fixture->address, (char *)NULL);
        _exit(127);
    }
    assert_in_range(child, 1, INT32_MAX);
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    trp_channel *channel;
    assert_int_equal(trp_channel_create(&channel, fixture->address, NULL), TRP_OK);
    trp_stream *stream = ask_health(channel, "Watch", "");
    assert_int_equal(next_health(stream), 1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(next_health(stream), -TRP_UNAVAILABLE);
    assert_non_null(strstr(trp_last_error(), "/grpc.health.v1.Health/Watch"));
    assert_non_null(strstr(trp_last_error(), fixture->address));
    assert_int_equal(waitpid(child, NULL, 0), child);
    trp_stream_destroy(stream);
    trp_channel_destroy(channel);
    trp_server_destroy(start(fixture->address)); /* its socket is stale now */
    close(ready[0]);
    close(ready[1]);
}

/* The child of the test above: serves until it is killed. */
static int serve(const char *address)
{
    trp_server *server;
    if (try_start(&server, address, false) != TRP_OK || write(1, "r", 1) != 1)
        return 1;
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--serve") == 0)
        return serve(argv[2]);
#define CASE(body) cmocka_unit_test_setup_teardown(body, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(the_default_is_a_free_port_on_loopback),
        CASE(a_second_server_on_a_port_is_refused_with_the_owner),
        CASE(a_second_server_on_a_unix_socket_is_refused_with_the_owner),
        CASE(the_socket_of_a_dead_process_is_replaced),
        CASE(a_file_that_is_no_socket_is_kept),
        CASE(a_port_is_free_again_after_the_stop),
        CASE(addresses_that_are_not_loopback_need_insecure),
        CASE(malformed_addresses_are_named),
        CASE(a_path_too_long_for_a_socket_is_refused),
        CASE(directories_that_cannot_be_used_are_named),
        CASE(files_may_be_opened_up_to_the_hard_limit),
        CASE(a_start_that_fails_when_it_listens_already_is_an_error),
        CASE(a_server_for_which_there_are_no_threads_says_so_and_ends),
        CASE(methods_are_added_once_and_before_the_start),
        CASE(health_check_knows_the_services),
        CASE(health_watch_tells_of_the_stop),
        CASE(broken_health_requests_are_refused),
        CASE(a_busy_server_stops),
        CASE(a_visit_is_on_the_reactor_and_its_failure_is_the_caller_s),
        CASE(visits_go_on_while_the_server_stops),
        CASE(work_that_posts_itself_again_goes_on_and_lets_others_in),
        CASE(a_client_comes_back_to_a_restarted_server),
        CASE(a_killed_server_is_unavailable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
