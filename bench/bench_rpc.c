/* Calls and streams, next to the shortest program on gRPC's C core that does the same, and the
 * price of a call within the process. Servers are processes of their own, started from this
 * program; measured and ceiling are taken in turns, and the rows are medians, because the machine
 * may have other things to do. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <troupe/rpc.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "median.h"
#include "raw_grpc.h"
#include "rpc_test.pb-c.h"

enum {
    SMALL = 64,
    LARGE = 28 * 1024,
    IN_FLIGHT = 64,
    TURNS = 15, /* short ones: both sides see the same machine */
    CALLS = 5000,
    SMALL_MESSAGES = 20000,
    LARGE_MESSAGES = 2500,
    LOCAL_CALLS = 500000,
};

typedef Troupe__Test__Everything everything;
typedef Troupe__Test__Number number;
typedef Troupe__Test__Test_Service test_service;

static void stop_on(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "bench_rpc: %s\n", trp_last_error());
    exit(1);
}

/* ---- the server ---- */

static void opened(void *service, trp_server_call *call)
{
    (void)service;
    trp_server_call_read(call);
}

static void unary_received(void *service, trp_server_call *call, trp_message *message)
{
    (void)service;
    trp_server_call_send(call, message);
    trp_server_call_finish(call, TRP_OK, NULL);
}

static void echo_received(void *service, trp_server_call *call, trp_message *message)
{
    (void)service;
    trp_server_call_send(call, message);
    trp_server_call_read(call);
}

static void sink_received(void *service, trp_server_call *call, trp_message *message)
{
    (void)service;
    trp_message_destroy(message);
    trp_server_call_read(call);
}

static void half_closed(void *service, trp_server_call *call)
{
    (void)service;
    trp_server_call_finish(call, TRP_OK, NULL);
}

static void closed(void *service, trp_server_call *call)
{
    (void)service;
    (void)call;
}

static int64_t group_end(void *service)
{
    (void)service;
    return INT64_MAX;
}

static void on_echo(test_service *service, const everything *in,
                    Troupe__Test__Everything_Closure done, void *data)
{
    (void)service;
    done(in, data);
}

static void on_increment(test_service *service, const number *in, Troupe__Test__Number_Closure done,
                         void *data)
{
    (void)service;
    number out = TROUPE__TEST__NUMBER__INIT;
    out.value = in->value + 1;
    done(&out, data);
}

static test_service make_service(void)
{
    static const ProtobufCService base = {.descriptor = &troupe__test__test__descriptor,
                                          .invoke = protobuf_c_service_invoke_internal};
    return (test_service){.base = base, .echo = on_echo, .increment = on_increment};
}

static _Noreturn void serve(const char *address)
{
    static const trp_raw_method methods[] = {{.path = "/raw/Unary",
                                              .opened = opened,
                                              .received = unary_received,
                                              .half_closed = half_closed,
                                              .closed = closed},
                                             {.path = "/raw/Echo",
                                              .opened = opened,
                                              .received = echo_received,
                                              .half_closed = half_closed,
                                              .closed = closed},
                                             {.path = "/raw/Sink",
                                              .opened = opened,
                                              .received = sink_received,
                                              .half_closed = half_closed,
                                              .closed = closed}};
    static test_service service;
    service = make_service();
    trp_server *server;
    stop_on(trp_server_create(&server, &(trp_server_options){.address = address}));
    stop_on(trp_server_add(server, &service.base, NULL));
    stop_on(trp_server_add_raw(server, methods, 3, NULL, group_end));
    stop_on(trp_server_start(server));
    for (;;)
        pause();
}

static pid_t start_server(const char *mode, const char *address)
{
    char self[256];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        exit(1);
    self[length] = 0;
    pid_t child = vfork(); /* gRPC may run in this process: nothing but exec may follow */
    if (child == 0) {
        execl(self, self, mode, address, (char *)NULL);
        _exit(127);
    }
    return child;
}

static void stop_server(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* ---- our clients ---- */

struct client {
    trp_channel *channel;
    ProtobufCService *service;
    struct raw_client *raw;         /* to the raw server */
    struct raw_client *raw_to_ours; /* to our server */
};

static double rate_since(int64_t start_ns, uint32_t count)
{
    return count * 1e9 / (double)(clock_now_ns(&clock_monotonic) - start_ns);
}

static double unary_rate(struct client *client, uint32_t calls)
{
    uint8_t data[SMALL - 2] = {1};
    everything request = TROUPE__TEST__EVERYTHING__INIT;
    request.data = (ProtobufCBinaryData){sizeof data, data};
    trp_future *futures[IN_FLIGHT] = {NULL};
    int64_t start = clock_now_ns(&clock_monotonic);
    for (uint32_t i = 0; i < calls + IN_FLIGHT; i++) {
        trp_future **slot = &futures[i % IN_FLIGHT];
        ProtobufCMessage *reply = NULL;
        if (*slot) {
            stop_on(trp_future_wait(*slot, -1, &reply));
            protobuf_c_message_free_unpacked(reply, NULL);
            trp_future_destroy(*slot);
            *slot = NULL;
        }
        if (i < calls)
            *slot = trp_call_async(client->service, "Echo", &request.base, NULL);
    }
    return rate_since(start, calls);
}

static trp_message *new_message(size_t size)
{
    trp_message *message = trp_message_create(size);
    memset(trp_message_data(message), 1, size);
    return message;
}

static double echo_rate(struct client *client, size_t size, uint32_t messages)
{
    trp_stream *stream;
    trp_message *message;
    int64_t start = clock_now_ns(&clock_monotonic);
    stop_on(trp_stream_open(&stream, client->channel, "/raw/Echo", NULL));
    uint32_t sent = 0;
    for (uint32_t received = 0; received < messages; received++) {
        while (sent < messages && sent - received < IN_FLIGHT &&
               (sent == received || trp_stream_writable(stream))) {
            stop_on(trp_stream_send(stream, new_message(size), -1));
            sent++;
        }
        stop_on(trp_stream_receive(stream, &message, -1));
        trp_message_destroy(message);
    }
    stop_on(trp_stream_half_close(stream));
    if (trp_stream_receive(stream, &message, -1) != TRP_OUT_OF_RANGE)
        exit(1);
    double rate = rate_since(start, messages);
    trp_stream_destroy(stream);
    return rate;
}

static double sink_rate(struct client *client, size_t size, uint32_t messages)
{
    trp_stream *stream;
    trp_message *message;
    int64_t start = clock_now_ns(&clock_monotonic);
    stop_on(trp_stream_open(&stream, client->channel, "/raw/Sink", NULL));
    for (uint32_t i = 0; i < messages; i++)
        stop_on(trp_stream_send(stream, new_message(size), -1));
    stop_on(trp_stream_half_close(stream));
    if (trp_stream_receive(stream, &message, -1) != TRP_OUT_OF_RANGE)
        exit(1);
    double rate = rate_since(start, messages);
    trp_stream_destroy(stream);
    return rate;
}

/* ---- rows ---- */

typedef double measure(struct client *client);

static void row(struct client *client, const char *name, measure *ours, measure *raw)
{
    double measured[TURNS], ceiling[TURNS];
    for (int turn = -1; turn < TURNS; turn++) { /* the first turn warms up */
        double a = ours(client), b = raw(client);
        if (turn >= 0) {
            measured[turn] = a;
            ceiling[turn] = b;
        }
    }
    printf("%s\t%.0f\t/s\t%.0f\traw gRPC C core\n", name, median(measured, TURNS),
           median(ceiling, TURNS));
    fflush(stdout);
}

static double our_unary(struct client *client)
{
    return unary_rate(client, CALLS);
}

static double our_server_unary(struct client *client)
{
    return raw_unary_rate(client->raw_to_ours, SMALL, IN_FLIGHT, CALLS);
}

static double raw_unary(struct client *client)
{
    return raw_unary_rate(client->raw, SMALL, IN_FLIGHT, CALLS);
}

static double our_small_echo(struct client *client)
{
    return echo_rate(client, SMALL, SMALL_MESSAGES);
}

static double our_server_small_echo(struct client *client)
{
    return raw_echo_rate(client->raw_to_ours, SMALL, IN_FLIGHT, SMALL_MESSAGES);
}

static double raw_small_echo(struct client *client)
{
    return raw_echo_rate(client->raw, SMALL, IN_FLIGHT, SMALL_MESSAGES);
}

static double our_small_sink(struct client *client)
{
    return sink_rate(client, SMALL, SMALL_MESSAGES);
}

static double raw_small_sink(struct client *client)
{
    return raw_sink_rate(client->raw, SMALL, SMALL_MESSAGES);
}

static double our_large_echo(struct client *client)
{
    return echo_rate(client, LARGE, LARGE_MESSAGES);
}

static double raw_large_echo(struct client *client)
{
    return raw_echo_rate(client->raw, LARGE, IN_FLIGHT, LARGE_MESSAGES);
}

static double our_large_sink(struct client *client)
{
    return sink_rate(client, LARGE, LARGE_MESSAGES);
}

static double raw_large_sink(struct client *client)
{
    return raw_sink_rate(client->raw, LARGE, LARGE_MESSAGES);
}

static void count_reply(const number *reply, void *data)
{
    *(int64_t *)data += reply->value;
}

/* Nanoseconds of processor time: such a loop is interrupted more often than it waits. */
static double cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void local_row(void)
{
    test_service service = make_service();
    double measured[TURNS], ceiling[TURNS];
    number request = TROUPE__TEST__NUMBER__INIT;
    int64_t sum = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        double start = cpu_ns();
        for (int i = 0; i < LOCAL_CALLS; i++) {
            ProtobufCMessage *reply;
            request.value = i;
            stop_on(trp_call(&service.base, "Increment", &request.base, &reply, NULL));
            sum += ((number *)reply)->value;
            protobuf_c_message_free_unpacked(reply, NULL);
        }
        measured[turn] = (cpu_ns() - start) / LOCAL_CALLS;
        start = cpu_ns();
        for (int i = 0; i < LOCAL_CALLS; i++) {
            request.value = i;
            troupe__test__test__increment(&service.base, &request, count_reply, &sum);
        }
        ceiling[turn] = (cpu_ns() - start) / LOCAL_CALLS;
    }
    if (sum == 0)
        exit(1);
    printf("local call\t%.1f\tns\t%.1f\tprotobuf-c stub without status, deadline or copy\n",
           median(measured, TURNS), median(ceiling, TURNS));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--serve") == 0)
        serve(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--serve-raw") == 0)
        return raw_serve(argv[2]);
    local_row();
    char ours[64], raw[64];
    snprintf(ours, sizeof ours, "127.0.0.1:%d", 20000 + getpid() % 10000);
    snprintf(raw, sizeof raw, "127.0.0.1:%d", 30000 + getpid() % 2000);
    pid_t children[2] = {start_server("--serve", ours), start_server("--serve-raw", raw)};
    struct client client = {.raw = raw_client_create(raw), .raw_to_ours = raw_client_create(ours)};
    stop_on(trp_channel_create(&client.channel, ours, NULL));
    stop_on(trp_channel_service(client.channel, &troupe__test__test__descriptor, &client.service));
    row(&client, "unary 64 B, 64 in flight", our_unary, raw_unary);
    row(&client, "unary 64 B, 64 in flight, server alone", our_server_unary, raw_unary);
    row(&client, "stream echo 64 B", our_small_echo, raw_small_echo);
    row(&client, "stream echo 64 B, server alone", our_server_small_echo, raw_small_echo);
    row(&client, "stream one way 64 B", our_small_sink, raw_small_sink);
    row(&client, "stream echo 28 KB", our_large_echo, raw_large_echo);
    row(&client, "stream one way 28 KB", our_large_sink, raw_large_sink);
    trp_channel_destroy(client.channel);
    raw_client_destroy(client.raw);
    raw_client_destroy(client.raw_to_ours);
    stop_server(children[0]);
    stop_server(children[1]);
    return 0;
}
