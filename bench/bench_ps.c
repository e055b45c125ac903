/* A parameter server: a push and a pull of 1.7 million numbers (6.8 MB, the Nature network), in
 * memory that both processes map and over TCP, beside two copies of as many bytes and as many
 * through a raw socket each way; the optimizer adds, or is Adam, which the ceilings have, too. The
 * two take turns, so that what else the machine does meets both. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <troupe/troupe.h>
#include "bench/scratch.h"
#include "core/alloc.h"
#include "core/boot.h"
#include "core/clock.h"
#include "learner/modes/server_link.h"
#include "learner/modes/vectors.h"

enum { NUMBERS = 1693362, BYTES = NUMBERS * 4, REPEATS = 7, ROUNDS = 10 };

static void check(trp_status status)
{
    if (status == TRP_OK)
        return;
    fprintf(stderr, "bench_ps: %s: %s\n", trp_status_name(status), trp_last_error());
    exit(1);
}

static void check_system(bool fine, const char *what)
{
    if (fine)
        return;
    perror(what);
    exit(1);
}

/* ---- a server in a process of its own -------------------------------------------------------- */

/* "serve ADDRESS DIR": until its input ends. */
static int serve(const char *address, const char *dir)
{
    static const char *const blocking[] = {"Pull", NULL};
    trp_parameter_server *server;
    trp_server *rpc;
    char byte;
    check(trp_parameter_server_create(&server, "server/0",
                                      &(trp_parameter_server_options){.rule = TRP_SERVER_ASYNC},
                                      strcmp(dir, "-") == 0 ? NULL : dir));
    check(trp_server_create(&rpc, &(trp_server_options){.address = address}));
    check(trp_server_add(rpc, trp_parameter_server_service(server), blocking));
    check(trp_server_start(rpc));
    printf("%s\n", trp_server_address(rpc));
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    trp_server_destroy(rpc);
    trp_parameter_server_destroy(server);
    return 0;
}

struct child {
    pid_t pid;
    int in, out;
    char address[128];
};

/* `arguments` are for this program; what it prints first is its address. */
static void child_start(struct child *child, char *const *arguments)
{
    int in[2], out[2];
    check_system(pipe(in) == 0 && pipe(out) == 0, "pipe");
    child->pid = fork();
    check_system(child->pid >= 0, "fork");
    if (child->pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(in[1]);
        close(out[0]);
        execv("/proc/self/exe", arguments);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    child->in = in[1];
    child->out = out[0];
    size_t length = 0;
    while (length + 1 < sizeof child->address &&
           read(child->out, child->address + length, 1) == 1 && child->address[length] != '\n')
        length++;
    child->address[length] = '\0';
}

static void child_end(struct child *child)
{
    close(child->in);
    close(child->out);
    waitpid(child->pid, NULL, 0);
}

/* ---- a raw stream ---------------------------------------------------------------------------- */

static void transfer(int fd, uint8_t *bytes, bool sends)
{
    for (size_t at = 0; at < BYTES;) {
        ssize_t done = sends ? send(fd, bytes + at, BYTES - at, MSG_NOSIGNAL)
                             : recv(fd, bytes + at, BYTES - at, 0);
        if (done <= 0)
            exit(0);
        at += (size_t)done;
    }
}

/* "echo": takes so many bytes and gives them back. */
static _Noreturn void echo(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    check_system(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 1) == 0,
                 "listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    int fd = accept(listener, NULL, NULL);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    uint8_t *bytes = xcalloc(1, BYTES);
    for (;;) {
        transfer(fd, bytes, false);
        transfer(fd, bytes, true);
    }
}

static int connect_raw(const struct child *child)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atol(child->address)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    check_system(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* ---- a round --------------------------------------------------------------------------------- */

struct bench {
    const char *name;
    const trp_optimizer *optimizer;
    bool over_tcp, logs;
    struct vectors vectors;
    struct server_links links;
    struct server_link link;
    struct learners_options group;
    trp_learner_servers servers;
    int raw;
    float *from, *to, *state[TRP_OPTIMIZER_STATES_MAX];
    uint64_t steps;
};

static void round_of_ours(struct bench *bench)
{
    check(server_link_push(&bench->link, bench->vectors.each[0].grads, 1, true));
    check(server_link_pull(&bench->link));
}

static void round_of_ceiling(struct bench *bench)
{
    if (bench->over_tcp) {
        transfer(bench->raw, (uint8_t *)bench->from, true);
        transfer(bench->raw, (uint8_t *)bench->to, false);
    } else {
        memcpy(bench->to, bench->from, BYTES);
        memcpy(bench->from, bench->to, BYTES);
    }
    if (bench->optimizer->kind == TRP_ADAM)
        trp_optimizer_step(bench->optimizer, ++bench->steps, 1, bench->to, bench->from,
                           bench->state, 0, NUMBERS);
}

static double rounds_a_second(struct bench *bench, void (*round)(struct bench *bench))
{
    int64_t since = clock_now_ns(&clock_monotonic);
    for (int i = 0; i < ROUNDS; i++)
        round(bench);
    return ROUNDS / ((double)(clock_now_ns(&clock_monotonic) - since) * 1e-9);
}

static void connect_bench(struct bench *bench, ProtobufCService **service,
                          const trp_vector_spec *spec)
{
    trp_device *device;
    trp_queue *queue;
    check(trp_device_find(&device, NULL));
    check(trp_queue_create(&queue, device));
    check(vectors_create(&bench->vectors, device, queue, spec, 1));
    bench->servers = (trp_learner_servers){
        .name = "server", .services = service, .count = 1, .worker = 0, .workers = 1};
    bench->group = (struct learners_options){.name = "learner", .timeout_ms = 10000};
    bench->links = (struct server_links){
        .servers = &bench->servers, .group = &bench->group, .learner = "learner/0"};
    if (!bench->over_tcp) {
        boot_id_read(bench->links.host);
        vector_share_grads(&bench->vectors, &bench->vectors.each[0]);
    }
    bench->link = (struct server_link){
        .links = &bench->links, .vector = &bench->vectors.each[0], .hi = NUMBERS};
    check(server_link_join(&bench->link, 0));
    check(server_link_fetch(&bench->link));
    for (size_t i = 0; i < NUMBERS; i++)
        bench->vectors.each[0].grads[i] = -1e-3F;
}

static void run(struct bench *bench)
{
    struct child server, raw;
    char *dir = make_dir("/dev/shm"), *address = xasprintf("unix:%s/socket", dir);
    char *serve_arguments[] = {"bench_ps", "serve", bench->over_tcp ? "127.0.0.1:0" : address,
                               bench->logs ? dir : "-", NULL};
    char *echo_arguments[] = {"bench_ps", "echo", NULL};
    const trp_vector_spec spec = {
        .name = "params", .count = NUMBERS, .learned = true, .optimizer = *bench->optimizer};
    trp_channel *channel;
    ProtobufCService *service;
    double ours = 0, ceiling = 0;
    child_start(&server, serve_arguments);
    child_start(&raw, echo_arguments);
    bench->raw = connect_raw(&raw);
    check(trp_channel_create(&channel, server.address, NULL));
    check(trp_channel_service(channel, trp_parameter_server_descriptor(), &service));
    connect_bench(bench, &service, &spec);
    bench->from = trp_floats_create(NUMBERS);
    bench->to = trp_floats_create(NUMBERS);
    for (size_t k = 0; k < TRP_OPTIMIZER_STATES_MAX; k++)
        bench->state[k] = trp_floats_create(NUMBERS);
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        double mine = rounds_a_second(bench, round_of_ours);
        double theirs = rounds_a_second(bench, round_of_ceiling);
        ours = mine > ours ? mine : ours;
        ceiling = theirs > ceiling ? theirs : ceiling;
    }
    bool adam = bench->optimizer->kind == TRP_ADAM;
    printf("push + pull of 6.8 MB, %s\t%.1f\t1/s\t%.1f\t%s%s\n", bench->name, ours, ceiling,
           bench->over_tcp ? "raw TCP, there and back" : "memcpy, twice", adam ? ", and Adam" : "");
    fflush(stdout);
    server_link_close(&bench->link);
    trp_channel_destroy(channel);
    close(bench->raw);
    child_end(&raw);
    child_end(&server);
    free(address);
    remove_dir(dir);
}

int main(int argc, char **argv)
{
    static const trp_optimizer add = {.kind = TRP_SGD, .learning_rate = 1};
    static const trp_optimizer adam = {.kind = TRP_ADAM};
    trp_log_set_level(TRP_ERROR);
    if (argc == 4 && strcmp(argv[1], "serve") == 0)
        return serve(argv[2], argv[3]);
    if (argc == 2 && strcmp(argv[1], "echo") == 0)
        echo();
    struct bench benches[] = {
        {.name = "shared memory, rule add", .optimizer = &add},
        {.name = "shared memory, Adam", .optimizer = &adam},
        {.name = "shared memory, rule add, with a log", .optimizer = &add, .logs = true},
        {.name = "TCP, rule add", .optimizer = &add, .over_tcp = true},
        {.name = "TCP, Adam", .optimizer = &adam, .over_tcp = true},
    };
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++)
        run(&benches[i]);
    return 0;
}
