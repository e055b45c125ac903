/* A worker in another process, whose gradients lie in memory that the server reads: of a vector the
 * range that it has, and no more than there is. The worker goes on to write into it while the
 * server takes them: the server reads each number once, so that what it steps with is what it has
 * kept. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/log.h>
#include <troupe/nn.h>
#include <troupe/parameter_server.h>
#include <troupe/rpc.h>
#include "core/alloc.h"
#include "core/boot.h"
#include "core/sealed.h"
#include "learner/modes/server_link.h"
#include "learner/modes/vectors.h"
#include "learner/server/keys.h"
#include "learner/server/limits.h"
#include "learner/server/shard.h"
#include "learner/server/shared_values.h"
#include "parameter_server.pb-c.h"
#include "rpc/shared_params.h"

enum { COUNT = 400000, PUSHES = 20 }; /* fewer than end a log */

static const uint64_t all[2] = {0, COUNT};
static float zeros[COUNT];

/* ---- a worker that never rests --------------------------------------------------------------- */

struct writer {
    pid_t pid;
    struct sealed_place place;
};

/* The numbers are 1; from number `from` on they are `second` and 1 in turn, until it is killed. */
static _Noreturn void write_for_ever(int said, size_t from, float second)
{
    struct sealed memory;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (sealed_create(&memory, "test-gradients", shared_values_bytes(COUNT)) != TRP_OK)
        _exit(1);
    volatile float *numbers = ((struct shared_values *)(void *)memory.memory)->numbers;
    for (size_t i = 0; i < COUNT; i++)
        numbers[i] = 1;
    if (write(said, &memory.place, sizeof memory.place) != sizeof memory.place)
        _exit(1);
    for (;;) {
        for (size_t i = from; i < COUNT; i++)
            numbers[i] = second;
        for (size_t i = from; i < COUNT; i++)
            numbers[i] = 1;
    }
}

/* Each number is its place, and stays so. */
static _Noreturn void hold_places(int said, size_t count, float unused)
{
    struct sealed memory;
    (void)unused;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (sealed_create(&memory, "test-gradients", shared_values_bytes(count)) != TRP_OK)
        _exit(1);
    float *numbers = ((struct shared_values *)(void *)memory.memory)->numbers;
    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)i;
    if (write(said, &memory.place, sizeof memory.place) != sizeof memory.place)
        _exit(1);
    for (;;)
        pause();
}

static void writer_start(struct writer *writer, void (*run)(int said, size_t size, float number),
                         size_t size, float number)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    writer->pid = fork();
    assert_true(writer->pid >= 0);
    if (writer->pid == 0)
        run(ends[1], size, number);
    assert_int_equal(read(ends[0], &writer->place, sizeof writer->place), sizeof writer->place);
    close(ends[0]);
    close(ends[1]);
}

static void writer_end(const struct writer *writer)
{
    kill(writer->pid, SIGKILL);
    waitpid(writer->pid, NULL, 0);
}

/* ---- a server -------------------------------------------------------------------------------- */

static int setup(void **state)
{
    static char dir[] = "/tmp/test_shared_gradients.XXXXXX";
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    *state = dir;
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    char *command = xasprintf("rm -rf %s", (char *)*state);
    int rc = system(command);
    free(command);
    return rc;
}

static ProtobufCMessage *ask(trp_parameter_server *server, const char *method,
                             const ProtobufCMessage *request)
{
    ProtobufCMessage *reply;
    if (trp_call(trp_parameter_server_service(server), method, request, &reply, NULL) != TRP_OK)
        fail_msg("%s: %s", method, trp_last_error());
    return reply;
}

/* It keeps a log in `dir`; NULL: it keeps nothing. It has COUNT numbers from `first` on of a vector
 * whose gradient is the writer's memory; NULL: it is in none. */
static trp_parameter_server *server_from(const char *dir, const struct writer *writer,
                                         uint64_t first, bool maps)
{
    trp_parameter_server *server;
    char host[BOOT_ID_BYTES], *own = dir ? xasprintf("%s/server", dir) : NULL;
    Troupe__ServerOptimizer sgd = TROUPE__SERVER_OPTIMIZER__INIT;
    Troupe__ServerJoinRequest join = TROUPE__SERVER_JOIN_REQUEST__INIT;
    Troupe__SharedParams place = TROUPE__SHARED_PARAMS__INIT;
    const trp_parameter_server_options options = {.rule = TRP_SERVER_ASYNC};
    assert_int_equal(trp_parameter_server_create(&server, "server/0", &options, own), TRP_OK);
    boot_id_read(host);
    sgd.kind = TRP_SGD;
    sgd.learning_rate = 1;
    join.workers = 1;
    join.name = (char[]){"learner/0"};
    join.vector = (char[]){"params"};
    join.first = first;
    join.count = COUNT;
    join.optimizer = &sgd;
    join.values = (ProtobufCBinaryData){sizeof zeros, (uint8_t *)zeros};
    if (writer) {
        shared_params_put(&place, &writer->place);
        join.gradients = &place;
        join.host = host;
        join.pid = (uint32_t)writer->pid;
    }
    Troupe__ServerJoinReply *reply = (Troupe__ServerJoinReply *)ask(server, "Join", &join.base);
    assert_int_equal(reply->maps, maps);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    free(own);
    return server;
}

static trp_parameter_server *server_with(const char *dir, const struct writer *writer)
{
    return server_from(dir, writer, 0, writer != NULL);
}

static trp_status push(trp_parameter_server *server, uint64_t sequence)
{
    Troupe__ServerPushRequest request = TROUPE__SERVER_PUSH_REQUEST__INIT;
    ProtobufCMessage *reply;
    request.vector = (char *)(uintptr_t) "params";
    request.scale = 1;
    request.sequence = sequence;
    request.keys = keys_hash(all, 2);
    request.n_ranges = 2;
    request.ranges = (uint64_t *)(uintptr_t)all;
    trp_status status =
        trp_call(trp_parameter_server_service(server), "Push", &request.base, &reply, NULL);
    if (status != TRP_OK)
        return status;
    assert_int_equal(((Troupe__ServerPushReply *)reply)->answer, SHARD_TAKEN);
    protobuf_c_message_free_unpacked(reply, NULL);
    return TRP_OK;
}

/* Caller frees. */
static float *values_of(trp_parameter_server *server)
{
    Troupe__ServerPullRequest request = TROUPE__SERVER_PULL_REQUEST__INIT;
    request.vector = (char *)(uintptr_t) "params";
    request.keys = keys_hash(all, 2);
    request.n_ranges = 2;
    request.ranges = (uint64_t *)(uintptr_t)all;
    Troupe__ServerPullReply *reply = (Troupe__ServerPullReply *)ask(server, "Pull", &request.base);
    assert_int_equal(reply->values.len, sizeof zeros);
    float *values = xmemdup(reply->values.data, reply->values.len);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    return values;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* After a restart the log makes the same values again, to the bit. */
static void what_is_kept_is_what_was_stepped_with(void **state)
{
    struct writer writer;
    writer_start(&writer, write_for_ever, 0, -3);
    trp_parameter_server *server = server_with(*state, &writer);
    for (uint64_t i = 0; i < PUSHES; i++)
        if (push(server, i) != TRP_OK)
            fail_msg("push %llu: %s", (unsigned long long)i, trp_last_error());
    float *before = values_of(server);
    writer_end(&writer);
    trp_parameter_server_destroy(server);
    server = server_with(*state, NULL); /* fails where the log is none */
    float *after = values_of(server);
    assert_memory_equal(before, after, sizeof zeros);
    for (size_t i = 0; i < COUNT; i++) /* each number was one of the two */
        assert_true(fmodf(before[i] + PUSHES, 4) == 0);
    free(before);
    free(after);
    trp_parameter_server_destroy(server);
}

/* Pushes with such a number are refused, and what is taken has none, whenever it is written. */
static void a_number_that_becomes_infinite_is_in_no_value(void **state)
{
    struct writer writer;
    uint64_t taken = 0;
    writer_start(&writer, write_for_ever, COUNT - 100, INFINITY);
    trp_parameter_server *server = server_with(*state, &writer);
    for (uint64_t i = 0; i < 4 * (uint64_t)PUSHES; i++)
        taken += push(server, taken) == TRP_OK;
    writer_end(&writer);
    float *values = values_of(server);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(values[i] == -(float)taken);
    free(values);
    trp_parameter_server_destroy(server);
}

/* Without a log a push is taken as it is read: what is not finite by then does nothing, and the
 * worker hears of it. */
static void without_a_log_a_number_that_becomes_infinite_is_in_no_value(void **state)
{
    enum { FROM = COUNT - 100, LEAST = 10 * PUSHES };
    struct writer writer;
    uint64_t pushes = 0, refused = 0;
    (void)state;
    writer_start(&writer, write_for_ever, FROM, INFINITY);
    trp_parameter_server *server = server_with(NULL, &writer);
    for (; pushes < LEAST || refused == 0; pushes++)
        if (push(server, pushes) != TRP_OK) {
            refused++;
            assert_non_null(strstr(trp_last_error(), "learner/0 pushed a gradient of 'params' that "
                                                     "is not finite"));
        }
    writer_end(&writer);
    float *values = values_of(server);
    for (size_t i = 0; i < COUNT; i++) /* blocks begin where passes of threads do */
        assert_true((values[i] == -(float)pushes && i < FROM) ||
                    (values[i] == -(float)(pushes - refused) && i >= FROM - SHARD_BLOCK));
    free(values);
    trp_parameter_server_destroy(server);
}

static void a_server_reads_its_range_of_a_gradient(void **state)
{
    struct writer writer;
    writer_start(&writer, hold_places, COUNT + 77, 0);
    trp_parameter_server *server = server_from(*state, &writer, 77, true);
    assert_int_equal(push(server, 0), TRP_OK);
    float *values = values_of(server);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(values[i] == -(float)(77 + i));
    free(values);
    trp_parameter_server_destroy(server);
    writer_end(&writer);
}

static void a_gradient_without_the_range_is_not_read(void **state)
{
    static const uint64_t firsts[] = {78, COUNT + 78, UINT64_MAX - COUNT + 1, UINT64_MAX};
    struct writer writer;
    writer_start(&writer, hold_places, COUNT + 77, 0);
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
        char *dir = xasprintf("%s/%zu", (char *)*state, i);
        assert_int_equal(mkdir(dir, 0700), 0);
        trp_parameter_server *server = server_from(dir, &writer, firsts[i], false);
        assert_int_equal(push(server, 0), TRP_INVALID_ARGUMENT); /* of no numbers */
        trp_parameter_server_destroy(server);
        free(dir);
    }
    writer_end(&writer);
}

/* ---- a learner ------------------------------------------------------------------------------- */

enum { HALVES = 2 };

/* In a process of its own, until it is killed. */
static _Noreturn void serve_for_ever(int said)
{
    static const char *const blocking[] = {"Pull", NULL};
    const trp_parameter_server_options options = {.rule = TRP_SERVER_ASYNC};
    trp_parameter_server *server;
    trp_server *rpc;
    char address[64] = "";
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (trp_parameter_server_create(&server, "server", &options, NULL) != TRP_OK ||
        trp_server_create(&rpc, &(trp_server_options){.threads = 2}) != TRP_OK ||
        trp_server_add(rpc, trp_parameter_server_service(server), blocking) != TRP_OK ||
        trp_server_start(rpc) != TRP_OK)
        _exit(1);
    snprintf(address, sizeof address, "%s", trp_server_address(rpc));
    if (write(said, address, sizeof address) != sizeof address)
        _exit(1);
    for (;;)
        pause();
}

struct half {
    pid_t pid;
    trp_channel *channel;
    struct server_link link;
};

static void push_and_pull(struct half *halves, float *grads)
{
    for (size_t i = 0; i < HALVES; i++) {
        assert_true(halves[i].link.maps);
        assert_int_equal(server_link_push(&halves[i].link, grads, 1, i == 0), TRP_OK);
        assert_int_equal(server_link_pull(&halves[i].link), TRP_OK);
    }
}

static void halves_start(struct half *halves, char addresses[HALVES][64])
{
    for (size_t i = 0; i < HALVES; i++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        halves[i].pid = fork();
        assert_true(halves[i].pid >= 0);
        if (halves[i].pid == 0)
            serve_for_ever(ends[1]);
        assert_int_equal(read(ends[0], addresses[i], 64), 64);
        close(ends[0]);
        close(ends[1]);
    }
}

/* Its own, which no push copies, and another one of its, which is copied there. */
static void each_server_reads_its_range_of_a_learners_gradient(void **state)
{
    static const trp_vector_spec spec = {.name = "params",
                                         .count = COUNT,
                                         .learned = true,
                                         .optimizer = {.kind = TRP_SGD, .learning_rate = 1}};
    char addresses[HALVES][64];
    struct half halves[HALVES] = {0};
    ProtobufCService *services[HALVES];
    struct vectors vectors;
    trp_device *device;
    trp_queue *queue;
    (void)state;
    halves_start(halves, addresses); /* before there are threads */
    trp_learner_servers servers = {
        .name = "server", .services = services, .count = HALVES, .workers = 1};
    struct learners_options group = {.name = "learner", .timeout_ms = 20000};
    struct server_links links = {.servers = &servers, .group = &group, .learner = "learner/0"};
    boot_id_read(links.host);
    assert_int_equal(trp_device_find(&device, NULL), TRP_OK);
    assert_int_equal(trp_queue_create(&queue, device), TRP_OK);
    assert_int_equal(vectors_create(&vectors, device, queue, &spec, 1), TRP_OK);
    struct vector *vector = &vectors.each[0];
    vector_share_grads(&vectors, vector);
    for (size_t i = 0; i < HALVES; i++) {
        struct half *half = &halves[i];
        assert_int_equal(trp_channel_create(&half->channel, addresses[i], NULL), TRP_OK);
        assert_int_equal(
            trp_channel_service(half->channel, trp_parameter_server_descriptor(), &services[i]),
            TRP_OK);
        half->link = (struct server_link){.links = &links,
                                          .vector = vector,
                                          .server = (uint32_t)i,
                                          .lo = i * COUNT / HALVES,
                                          .hi = (i + 1) * COUNT / HALVES};
        assert_int_equal(server_link_join(&half->link, 0), TRP_OK);
    }
    float *other = trp_floats_create(COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        vector->grads[i] = -(float)(i % 1000);
        other[i] = (float)(i % 7);
    }
    push_and_pull(halves, vector->grads);
    push_and_pull(halves, other);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(((float *)vector->values.here)[i] == (float)(i % 1000) - (float)(i % 7));
    for (size_t i = 0; i < HALVES; i++) {
        server_link_close(&halves[i].link);
        trp_channel_destroy(halves[i].channel);
        writer_end(&(struct writer){.pid = halves[i].pid});
    }
    trp_floats_destroy(other);
    vectors_cleanup(&vectors);
    trp_queue_destroy(queue);
}

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_server_reads_its_range_of_a_learners_gradient),
        cmocka_unit_test(without_a_log_a_number_that_becomes_infinite_is_in_no_value),
        cmocka_unit_test_setup_teardown(a_server_reads_its_range_of_a_gradient, setup, teardown),
        cmocka_unit_test_setup_teardown(a_gradient_without_the_range_is_not_read, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_kept_is_what_was_stepped_with, setup, teardown),
        cmocka_unit_test_setup_teardown(a_number_that_becomes_infinite_is_in_no_value, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
