/* Parameters from a learner to the actors of its host. Actors are processes of their own, started
 * from this program and told by a pipe what to do. What is measured and its ceiling, copies of the
 * same bytes out of the same kind of memory by as many processes, are taken in turns, and the rows
 * are medians, because the machine may have other things to do. */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <troupe/log.h>
#include <troupe/params.h>
#include <troupe/publisher.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/sealed.h"
#include "median.h"
#include "raw_grpc.h"

extern char **environ;

enum {
    ACTORS = 16,
    TURNS = 15,
    LOOKS = 2000000,
    SMALL = 1700000,  /* floats: 6.8 MB, the network of Mnih et al. (2015) */
    LARGE = 25000000, /* 100 MB */
    RAW_BYTES = 1 << 20,
    RAW_MESSAGES = 100,
};

static void stop_on(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "bench_params: %s\n", trp_last_error());
    exit(1);
}

static double now_s(void)
{
    return (double)clock_now_ns(&clock_monotonic) / 1e9;
}

/* ---- an actor ---------------------------------------------------------------------------------
 */

enum order {
    MAKE_COPYING = 'c',
    MAKE_IN_PLACE = 'i',
    MAKE_SENT = 'g', /* as one elsewhere */
    DROP = 'd',
    SYNC = 's',
    PULL = 'p',
    LOOK = 'l', /* at what has not changed, LOOKS times */
    COPY = 'm',
};

struct actor {
    ProtobufCService *service;
    trp_params_client *client;
    const uint8_t *there; /* memory as the learner's */
    uint8_t *here;
    size_t bytes;
};

static void make_client(struct actor *actor, enum order order)
{
    stop_on(trp_params_client_create(
        &actor->client, &(trp_params_client_options){.service = actor->service,
                                                     .no_share = order == MAKE_SENT,
                                                     .in_place = order == MAKE_IN_PLACE}));
    stop_on(trp_params_client_wait(actor->client, 60000));
}

static void look(trp_params_client *client, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        stop_on(trp_params_client_pull(client, 0, 0, NULL));
}

static void obey(struct actor *actor, enum order order)
{
    bool newer = false;
    switch (order) {
    case MAKE_COPYING:
    case MAKE_IN_PLACE:
    case MAKE_SENT:
        make_client(actor, order);
        break;
    case DROP:
        trp_params_client_destroy(actor->client);
        actor->client = NULL;
        break;
    case SYNC:
        stop_on(trp_params_client_sync(actor->client, 0, 0, NULL));
        break;
    case PULL:
        stop_on(trp_params_client_pull(actor->client, 0, 0, &newer));
        if (!newer)
            stop_on(trp_fail(TRP_INTERNAL, "no newer version"));
        break;
    case LOOK:
        look(actor->client, LOOKS);
        break;
    case COPY:
        memcpy(actor->here, actor->there, actor->bytes);
        break;
    }
}

/* Each order is answered with the nanoseconds that it took. */
static int actor_main(char **argv)
{
    struct actor actor = {0};
    struct sealed_place place;
    trp_channel *channel;
    char byte;
    if (read(STDIN_FILENO, &place, sizeof place) != sizeof place)
        return 1;
    actor.bytes = place.bytes;
    stop_on(sealed_map(&actor.there, &place));
    actor.here = xmalloc(actor.bytes);
    stop_on(trp_channel_create(&channel, argv[2], NULL));
    stop_on(trp_channel_service(channel, trp_params_descriptor(), &actor.service));
    while (read(STDIN_FILENO, &byte, 1) == 1) {
        int64_t since_ns = clock_now_ns(&clock_monotonic);
        obey(&actor, (enum order)byte);
        int64_t took_ns = clock_now_ns(&clock_monotonic) - since_ns;
        if (write(STDOUT_FILENO, &took_ns, sizeof took_ns) != sizeof took_ns)
            return 1;
    }
    return 0;
}

/* ---- the learner ------------------------------------------------------------------------------
 */

struct troop {
    trp_publisher *publisher;
    trp_server *server;
    float *params;
    size_t count;
    uint64_t version;
    struct sealed copied; /* for COPY */
    struct {
        pid_t pid;
        int in, out;
    } actors[ACTORS];
};

static double publish(struct troop *troop)
{
    troop->params[troop->version % troop->count]++;
    troop->version++;
    double since = now_s();
    trp_publisher_publish(troop->publisher, troop->params, troop->version, troop->version);
    return now_s() - since;
}

static void actor_start(struct troop *troop, uint32_t index)
{
    int in[2], out[2];
    const char *address = trp_server_address(troop->server);
    char *arguments[] = {"/proc/self/exe", "--actor", (char *)address, NULL};
    posix_spawn_file_actions_t actions;
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
        exit(1);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    if (posix_spawn(&troop->actors[index].pid, arguments[0], &actions, NULL, arguments, environ) !=
        0)
        exit(1);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    troop->actors[index].in = in[1];
    troop->actors[index].out = out[0];
    if (write(in[1], &troop->copied.place, sizeof troop->copied.place) < 0)
        exit(1);
}

static void troop_start(struct troop *troop, size_t count)
{
    *troop = (struct troop){.publisher = trp_publisher_create(count), .count = count};
    troop->params = xcalloc(count, sizeof *troop->params);
    stop_on(sealed_create(&troop->copied, "bench", count * sizeof *troop->params));
    memset(troop->copied.memory + SEALED_NONCE_BYTES, 1,
           count * sizeof *troop->params - SEALED_NONCE_BYTES);
    for (int i = 0; i < 8; i++) /* every page was written once */
        publish(troop);
    stop_on(trp_server_create(&troop->server, NULL));
    stop_on(trp_server_add(troop->server, trp_publisher_service(troop->publisher), NULL));
    stop_on(trp_server_start(troop->server));
    for (uint32_t i = 0; i < ACTORS; i++)
        actor_start(troop, i);
}

static void troop_end(struct troop *troop)
{
    for (uint32_t i = 0; i < ACTORS; i++) {
        close(troop->actors[i].in);
        close(troop->actors[i].out);
        waitpid(troop->actors[i].pid, NULL, 0);
    }
    trp_server_destroy(troop->server);
    trp_publisher_destroy(troop->publisher);
    sealed_cleanup(&troop->copied);
    free(troop->params);
}

/* The first `count` actors do it at once: seconds until the last one has; what each took. */
static double order(struct troop *troop, enum order order, uint32_t count, double *took_s)
{
    char byte = (char)order;
    double since = now_s();
    for (uint32_t i = 0; i < count; i++)
        if (write(troop->actors[i].in, &byte, 1) != 1)
            exit(1);
    for (uint32_t i = 0; i < count; i++) {
        int64_t took_ns;
        if (read(troop->actors[i].out, &took_ns, sizeof took_ns) != sizeof took_ns)
            exit(1);
        if (took_s)
            took_s[i] = (double)took_ns / 1e9;
    }
    return now_s() - since;
}

/* ---- rows -------------------------------------------------------------------------------------
 */

/* Clients of this kind pull a new version, between two reports of their counts. */
static double pull_all(struct troop *troop, enum order kind, double *took_s)
{
    double times[TURNS], each[ACTORS], middle[TURNS];
    order(troop, kind, ACTORS, NULL);
    for (uint32_t i = 0; i < TURNS; i++) {
        order(troop, SYNC, ACTORS, NULL);
        publish(troop);
        times[i] = order(troop, PULL, ACTORS, each);
        middle[i] = median(each, ACTORS);
    }
    order(troop, DROP, ACTORS, NULL);
    if (took_s)
        *took_s = median(middle, TURNS);
    return median(times, TURNS);
}

static void print_new_versions(struct troop *troop)
{
    double copies[TURNS], in_place_s, bytes = (double)ACTORS * (double)troop->copied.place.bytes;
    double mb = (double)troop->copied.place.bytes / 1e6;
    order(troop, COPY, ACTORS, NULL);
    double before_s = pull_all(troop, MAKE_COPYING, NULL);
    for (uint32_t i = 0; i < TURNS; i++)
        copies[i] = order(troop, COPY, ACTORS, NULL);
    double after_s = pull_all(troop, MAKE_COPYING, NULL);
    double copy_s = median(copies, TURNS), pull_s = before_s < after_s ? before_s : after_s;
    double sent_s = pull_all(troop, MAKE_SENT, NULL);
    printf("params: a new version of %.1f MB to %d actors of the host, copied\t%.6g\tGB/s\t%.6g\t"
           "%d memcpys\t%.6g\tsent by gRPC\n",
           mb, ACTORS, bytes / pull_s / 1e9, bytes / copy_s / 1e9, ACTORS, bytes / sent_s / 1e9);
    pull_all(troop, MAKE_IN_PLACE, &in_place_s);
    printf("params: a new version of %.1f MB, read in place, each\t%.6g\tus\n", mb,
           in_place_s * 1e6);
}

static void print_standstill(struct troop *troop)
{
    enum { PUBLICATIONS = 101 };
    double times[PUBLICATIONS], copies[PUBLICATIONS];
    float *copy = xmemdup(troop->params, troop->count * sizeof *copy);
    order(troop, MAKE_IN_PLACE, ACTORS, NULL);
    for (uint32_t i = 0; i < PUBLICATIONS; i++) {
        times[i] = publish(troop);
        double since = now_s();
        memcpy(copy, troop->params, troop->count * sizeof *copy);
        copies[i] = now_s() - since;
    }
    order(troop, DROP, ACTORS, NULL);
    free(copy);
    printf("params: the learner stands still, %.1f MB, %d readers\t%.6g\tms\t%.6g\tmemcpy\n",
           (double)troop->copied.place.bytes / 1e6, ACTORS, median(times, PUBLICATIONS) * 1e3,
           median(copies, PUBLICATIONS) * 1e3);
}

static double look_ns(trp_params_client *client)
{
    double times[TURNS];
    for (uint32_t i = 0; i < TURNS; i++) {
        double since = now_s();
        look(client, LOOKS / TURNS);
        times[i] = (now_s() - since) / (LOOKS / TURNS) * 1e9;
    }
    return median(times, TURNS);
}

static double sync_ns(trp_params_client *client)
{
    enum { CALLS = 200 };
    double times[CALLS];
    for (uint32_t i = 0; i < CALLS; i++) {
        double since = now_s();
        stop_on(trp_params_client_sync(client, 0, 0, NULL));
        times[i] = (now_s() - since) * 1e9;
    }
    return median(times, CALLS);
}

static trp_params_client *client_here(ProtobufCService *service, trp_params_client_options options)
{
    trp_params_client *client;
    options.service = service;
    stop_on(trp_params_client_create(&client, &options));
    stop_on(trp_params_client_wait(client, 60000));
    return client;
}

static void print_unchanged(struct troop *troop)
{
    double each[1];
    trp_channel *channel;
    ProtobufCService *service;
    trp_params_client *here =
        client_here(trp_publisher_service(troop->publisher), (trp_params_client_options){0});
    stop_on(trp_channel_create(&channel, trp_server_address(troop->server), NULL));
    stop_on(trp_channel_service(channel, trp_params_descriptor(), &service));
    trp_params_client *sent = client_here(service, (trp_params_client_options){.no_share = true});
    double call_ns = sync_ns(sent);
    printf("params: a pull of what has not changed, in the learner's process\t%.6g\tns\t\t\t%.6g\t"
           "a call over gRPC\n",
           look_ns(here), call_ns);
    order(troop, MAKE_COPYING, 1, NULL);
    order(troop, LOOK, 1, each);
    order(troop, DROP, 1, NULL);
    printf("params: a pull of what has not changed, on its host\t%.6g\tns\t\t\t%.6g\t"
           "a call over gRPC\n",
           each[0] / LOOKS * 1e9, call_ns);
    trp_params_client_destroy(here);
    trp_params_client_destroy(sent);
    trp_channel_destroy(channel);
}

/* ---- to other hosts ---------------------------------------------------------------------------
 */

struct raw {
    char address[64];
    pid_t pid;
    struct raw_client *client;
};

static void raw_start(struct raw *raw)
{
    snprintf(raw->address, sizeof raw->address, "unix:/tmp/bench_params_%d", (int)getpid());
    char *arguments[] = {"/proc/self/exe", "--raw", raw->address, NULL};
    if (posix_spawn(&raw->pid, arguments[0], NULL, NULL, arguments, environ) != 0)
        exit(1);
    raw->client = raw_client_create(raw->address);
    raw_sink_rate(raw->client, RAW_BYTES, RAW_MESSAGES);
}

static void raw_end(struct raw *raw)
{
    raw_client_destroy(raw->client);
    kill(raw->pid, SIGKILL);
    waitpid(raw->pid, NULL, 0);
    unlink(raw->address + strlen("unix:"));
}

/* A pull and a raw stream of as many bytes take turns. */
static void print_sent(struct troop *troop, trp_params_precision precision, const char *name,
                       struct raw *raw)
{
    double times[TURNS], rates[TURNS];
    trp_channel *channel;
    ProtobufCService *service;
    stop_on(trp_channel_create(&channel, trp_server_address(troop->server), NULL));
    stop_on(trp_channel_service(channel, trp_params_descriptor(), &service));
    trp_params_client *client =
        client_here(service, (trp_params_client_options){.no_share = true, .precision = precision});
    for (uint32_t i = 0; i < TURNS; i++) {
        publish(troop);
        double since = now_s();
        stop_on(trp_params_client_pull(client, 0, 0, NULL));
        times[i] = now_s() - since;
        rates[i] = raw_sink_rate(raw->client, RAW_BYTES, RAW_MESSAGES) * RAW_BYTES / 1e6;
    }
    printf("params: %.0f MB to an actor elsewhere, %s, of the float32 bytes\t%.6g\tMB/s\t%.6g\t"
           "a raw stream of gRPC\n",
           (double)troop->copied.place.bytes / 1e6, name,
           (double)troop->copied.place.bytes / median(times, TURNS) / 1e6, median(rates, TURNS));
    trp_params_client_destroy(client);
    trp_channel_destroy(channel);
}

int main(int argc, char **argv)
{
    struct troop troop;
    struct raw raw;
    trp_log_set_level(TRP_ERROR);
    if (argc == 3 && strcmp(argv[1], "--raw") == 0)
        return raw_serve(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--actor") == 0)
        return actor_main(argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    troop_start(&troop, SMALL);
    print_unchanged(&troop);
    print_standstill(&troop);
    print_new_versions(&troop);
    troop_end(&troop);
    troop_start(&troop, LARGE);
    print_standstill(&troop);
    print_new_versions(&troop);
    raw_start(&raw);
    print_sent(&troop, TRP_PARAMS_FLOAT32, "as float32", &raw);
    print_sent(&troop, TRP_PARAMS_BF16, "as bfloat16", &raw);
    raw_end(&raw);
    troop_end(&troop);
    return 0;
}
