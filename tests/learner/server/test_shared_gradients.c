/* A worker in another process, whose gradients lie in memory that it goes on to write into while
 * the server takes them: the server reads each number once, so that what it steps with is what it
 * has kept. */
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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/log.h>
#include <troupe/parameter_server.h>
#include <troupe/rpc.h>
#include "core/alloc.h"
#include "core/boot.h"
#include "core/sealed.h"
#include "learner/server/keys.h"
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

static void writer_start(struct writer *writer, size_t from, float second)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    writer->pid = fork();
    assert_true(writer->pid >= 0);
    if (writer->pid == 0)
        write_for_ever(ends[1], from, second);
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

/* It has the writer's memory; NULL: it has none. */
static trp_parameter_server *server_with(const char *dir, const struct writer *writer)
{
    trp_parameter_server *server;
    char host[BOOT_ID_BYTES], *own = xasprintf("%s/server", dir);
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
    assert_int_equal(reply->maps, writer != NULL);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    free(own);
    return server;
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
    writer_start(&writer, 0, -3);
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
    writer_start(&writer, COUNT - 100, INFINITY);
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

int main(void)
{
    trp_log_set_level(TRP_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_kept_is_what_was_stepped_with, setup, teardown),
        cmocka_unit_test_setup_teardown(a_number_that_becomes_infinite_is_in_no_value, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
