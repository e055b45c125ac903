/* Parameters that are read in the publisher's memory, by clients in its process and in others of
 * its host: whole versions whatever either side does, and lies that harm nobody. */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <troupe/log.h>
#include <troupe/params.h>
#include <troupe/publisher.h>
#include "core/alloc.h"
#include "core/board.h"
#include "core/boot.h"
#include "core/clock.h"
#include "params.pb-c.h"

extern char **environ;

enum { COUNT = 100000, WAIT_MS = 20000, GIVE_UP_MS = 100 };

/* ---- versions that can be told from each other ------------------------------------------------
 */

static float tag_of(uint64_t version)
{
    return (float)(version % (1 << 20));
}

static void publish(trp_publisher *publisher, float *params, size_t count, uint64_t version)
{
    for (size_t i = 0; i < count; i++)
        params[i] = tag_of(version);
    trp_publisher_publish(publisher, params, version, 10 * version);
}

static bool is_all(const trp_params_state *state)
{
    for (size_t i = 0; i < state->count; i++)
        if (state->params[i] != tag_of(state->version))
            return false;
    return state->count > 0;
}

/* ---- a publisher that serves ------------------------------------------------------------------
 */

struct served {
    trp_publisher *publisher;
    trp_server *server;
    float *params;
    uint64_t version;
};

static trp_status serve(struct served *served, const char *address, uint64_t first)
{
    *served = (struct served){.publisher = trp_publisher_create(COUNT),
                              .params = xcalloc(COUNT, sizeof(float)),
                              .version = first};
    publish(served->publisher, served->params, COUNT, first);
    TRP_TRY(trp_server_create(&served->server, &(trp_server_options){.address = address}));
    TRP_TRY(trp_server_add(served->server, trp_publisher_service(served->publisher), NULL));
    return trp_server_start(served->server);
}

static void served_publish(struct served *served)
{
    publish(served->publisher, served->params, COUNT, ++served->version);
}

static void served_end(struct served *served)
{
    trp_server_destroy(served->server);
    trp_publisher_destroy(served->publisher);
    free(served->params);
}

/* ---- other processes --------------------------------------------------------------------------
 */

struct process {
    pid_t pid;
    int in, out;
};

/* Publishes, from version `first` on, without a stop; or once for each byte that comes. */
static int publisher_main(const char *address, const char *first, bool freely)
{
    struct served served;
    if (serve(&served, address, strtoull(first, NULL, 10)) != TRP_OK)
        return 2;
    for (char byte = 'r'; write(STDOUT_FILENO, &byte, 1) == 1;) {
        do
            served_publish(&served);
        while (freely);
        if (read(STDIN_FILENO, &byte, 1) != 1)
            break;
    }
    return 0;
}

/* Says which versions it has read, one byte each, and ends when one was not whole. */
static int reader_main(const char *address, bool in_place)
{
    trp_channel *channel;
    ProtobufCService *service;
    trp_params_client *client;
    if (trp_channel_create(&channel, address, NULL) != TRP_OK ||
        trp_channel_service(channel, trp_params_descriptor(), &service) != TRP_OK ||
        trp_params_client_create(&client, &(trp_params_client_options){
                                              .service = service, .in_place = in_place}) != TRP_OK)
        return 2;
    for (;;) {
        bool newer;
        if (trp_params_client_pull(client, 0, 0, &newer) != TRP_OK)
            return 3;
        trp_params_state state = trp_params_client_state(client);
        bool all = is_all(&state);
        if (!newer || !trp_params_client_is_whole(client))
            continue;
        if (!all)
            return 4;
        if (write(STDOUT_FILENO, "v", 1) != 1)
            return 0;
    }
}

static struct process start(const char *role, const char *address, const char *argument)
{
    struct process process;
    int in[2], out[2];
    char *arguments[] = {"/proc/self/exe", (char *)role, (char *)address, (char *)argument, NULL};
    posix_spawn_file_actions_t actions;
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    assert_int_equal(posix_spawn(&process.pid, arguments[0], &actions, NULL, arguments, environ),
                     0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    process.in = in[1];
    process.out = out[0];
    return process;
}

/* It said so many bytes more. */
static void expect_bytes(const struct process *process, uint32_t count)
{
    char byte;
    for (uint32_t i = 0; i < count; i++) {
        struct pollfd wait = {.fd = process->out, .events = POLLIN};
        assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
        assert_int_equal(read(process->out, &byte, 1), 1);
    }
}

/* Also one that is stopped. One that ended by itself found something wrong. */
static void end_process(struct process *process)
{
    int status;
    kill(process->pid, SIGKILL);
    assert_int_equal(waitpid(process->pid, &status, 0), process->pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    close(process->in);
    close(process->out);
}

static void stop_process(const struct process *process)
{
    int status;
    kill(process->pid, SIGSTOP);
    assert_int_equal(waitpid(process->pid, &status, WUNTRACED), process->pid);
    assert_true(WIFSTOPPED(status));
}

/* ---- fixtures ---------------------------------------------------------------------------------
 */

struct fixture {
    char dir[64], address[96];
    struct served served; /* by this process; its publisher NULL: another one serves */
    trp_channel *channel;
    ProtobufCService *service;
};

static int setup(void **state)
{
    struct fixture *fixture = xcalloc(1, sizeof *fixture);
    snprintf(fixture->dir, sizeof fixture->dir, "/tmp/test_params_shared_XXXXXX");
    assert_non_null(mkdtemp(fixture->dir));
    snprintf(fixture->address, sizeof fixture->address, "unix:%s/socket", fixture->dir);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    trp_channel_destroy(fixture->channel);
    if (fixture->served.publisher)
        served_end(&fixture->served);
    unlink(fixture->address + strlen("unix:"));
    rmdir(fixture->dir);
    free(fixture);
    return 0;
}

static trp_params_client *client_of(ProtobufCService *service, trp_params_client_options options)
{
    trp_params_client *client;
    options.service = service;
    options.give_up_ms = options.give_up_ms ? options.give_up_ms : GIVE_UP_MS;
    assert_int_equal(trp_params_client_create(&client, &options), TRP_OK);
    return client;
}

static trp_params_client *dial(struct fixture *fixture, trp_params_client_options options)
{
    if (!fixture->channel) {
        assert_int_equal(trp_channel_create(&fixture->channel, fixture->address, NULL), TRP_OK);
        assert_int_equal(
            trp_channel_service(fixture->channel, trp_params_descriptor(), &fixture->service),
            TRP_OK);
    }
    return client_of(fixture->service, options);
}

static trp_params_state pulled(trp_params_client *client)
{
    assert_int_equal(trp_params_client_sync(client, 0, 0, NULL), TRP_OK);
    return trp_params_client_state(client);
}

/* ---- in the publisher's process ---------------------------------------------------------------
 */

static void clients_in_the_process_share_one_snapshot_and_keep_it(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(serve(&fixture->served, fixture->address, 1), TRP_OK);
    ProtobufCService *service = trp_publisher_service(fixture->served.publisher);
    trp_params_client *one = client_of(service, (trp_params_client_options){0});
    trp_params_client *two = dial(fixture, (trp_params_client_options){0}); /* over the socket */
    trp_params_state first = pulled(one);
    assert_ptr_equal(first.params, pulled(two).params);
    for (int i = 0; i < 20; i++)
        served_publish(&fixture->served);
    assert_true(is_all(&first));
    trp_params_state last = pulled(two);
    assert_int_equal(last.version, 21);
    assert_true(is_all(&last));
    assert_true(is_all(&first));
    assert_ptr_equal(pulled(one).params, last.params);
    trp_params_client_destroy(one);
    trp_params_client_destroy(two);
}

static void what_is_held_outlives_its_publisher(void **state)
{
    (void)state;
    float params[8];
    trp_publisher *publisher = trp_publisher_create(8);
    publish(publisher, params, 8, 1);
    trp_params_client *client =
        client_of(trp_publisher_service(publisher), (trp_params_client_options){0});
    trp_params_state first = pulled(client);
    trp_publisher_destroy(publisher);
    assert_true(is_all(&first));
    trp_params_client_destroy(client);
}

/* More versions than there are slots: the last clients share one. */
static void however_many_versions_are_held_each_is_whole(void **state)
{
    enum { CLIENTS = 100 };
    (void)state;
    float params[64];
    trp_publisher *publisher = trp_publisher_create(64);
    trp_params_client *clients[CLIENTS];
    trp_params_state states[CLIENTS];
    for (uint64_t i = 0; i < CLIENTS; i++) {
        publish(publisher, params, 64, i + 1);
        clients[i] = client_of(trp_publisher_service(publisher), (trp_params_client_options){0});
        states[i] = pulled(clients[i]);
    }
    for (uint64_t i = 0; i < CLIENTS; i++) {
        assert_true(is_all(&states[i]));
        assert_int_equal(states[i].version, i < 62 ? i + 1 : 62);
    }
    for (uint64_t i = 0; i < CLIENTS; i++)
        trp_params_client_destroy(clients[i]);
    clients[0] = client_of(trp_publisher_service(publisher), (trp_params_client_options){0});
    assert_int_equal(pulled(clients[0]).version, CLIENTS);
    trp_params_client_destroy(clients[0]);
    trp_publisher_destroy(publisher);
}

static void a_private_publisher_is_not_read(void **state)
{
    (void)state;
    float params[8];
    trp_publisher *publisher = trp_publisher_create(8);
    trp_publisher_keep_private(publisher);
    publish(publisher, params, 8, 1);
    ProtobufCService *service = trp_publisher_service(publisher);
    trp_params_client *one = client_of(service, (trp_params_client_options){0});
    trp_params_client *two = client_of(service, (trp_params_client_options){0});
    trp_params_state first = pulled(one), second = pulled(two);
    assert_ptr_not_equal(first.params, second.params);
    assert_true(is_all(&first));
    trp_params_client_destroy(one);
    trp_params_client_destroy(two);
    trp_publisher_destroy(publisher);
}

/* ---- on its host ------------------------------------------------------------------------------
 */

static void versions_are_whole_while_the_publisher_never_stops(void **state)
{
    struct fixture *fixture = *state;
    struct process publisher = start("--publish-freely", fixture->address, "1");
    expect_bytes(&publisher, 1);
    for (int in_place = 0; in_place < 2; in_place++) {
        struct process reader = start("--read", fixture->address, in_place ? "in place" : "copies");
        expect_bytes(&reader, 100);
        end_process(&reader);
    }
    end_process(&publisher);
}

static void a_reader_that_is_stopped_or_killed_holds_nobody_up(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(serve(&fixture->served, fixture->address, 1), TRP_OK);
    for (int in_place = 0; in_place < 2; in_place++) {
        struct process reader = start("--read", fixture->address, in_place ? "in place" : "copies");
        expect_bytes(&reader, 1);
        stop_process(&reader);
        for (int i = 0; i < 100; i++)
            served_publish(&fixture->served);
        kill(reader.pid, SIGCONT);
        served_publish(&fixture->served);
        expect_bytes(&reader, 1);
        end_process(&reader);
        served_publish(&fixture->served);
    }
}

static void a_killed_publisher_is_followed_by_the_next(void **state)
{
    struct fixture *fixture = *state;
    struct process publisher = start("--publish", fixture->address, "1");
    expect_bytes(&publisher, 1);
    trp_params_client *client =
        dial(fixture, (trp_params_client_options){.in_place = true, .give_up_ms = WAIT_MS});
    assert_int_equal(trp_params_client_wait(client, WAIT_MS), TRP_OK);
    trp_params_state first = trp_params_client_state(client);
    end_process(&publisher);
    assert_true(is_all(&first));
    assert_true(trp_params_client_is_whole(client));
    publisher = start("--publish", fixture->address, "1000");
    expect_bytes(&publisher, 1);
    trp_params_state next = pulled(client);
    assert_in_range(next.version, 1000, 1001);
    assert_true(is_all(&next));
    assert_true(trp_params_client_is_whole(client));
    assert_int_equal(write(publisher.in, "n", 1), 1);
    bool newer = false;
    while (!newer)
        assert_int_equal(trp_params_client_pull(client, 0, 0, &newer), TRP_OK);
    trp_params_client_destroy(client);
    end_process(&publisher);
}

/* Looks cost no call; what is not newer is known, how stale it is, too. */
static void a_stopped_publisher_is_noticed_by_the_report_that_is_due(void **state)
{
    struct fixture *fixture = *state;
    struct process publisher = start("--publish", fixture->address, "1");
    expect_bytes(&publisher, 1);
    trp_params_client *client =
        dial(fixture, (trp_params_client_options){.timeout_ms = 50, .give_up_ms = 1});
    struct deadline deadline = deadline_in_ms(&clock_monotonic, WAIT_MS);
    while (trp_params_client_sync(client, 0, 0, NULL) != TRP_OK) /* its time-outs are short */
        assert_false(deadline_passed(deadline, &clock_monotonic));
    assert_true(trp_params_client_state(client).age_ns < INT64_C(1000000) * WAIT_MS);
    stop_process(&publisher);
    trp_status status = TRP_OK;
    while (status == TRP_OK) {
        status = trp_params_client_pull(client, 0, 0, NULL);
        assert_false(deadline_passed(deadline, &clock_monotonic));
    }
    assert_int_equal(status, TRP_DEADLINE_EXCEEDED);
    assert_true(trp_params_client_state(client).age_ns >= 100 * INT64_C(1000000));
    kill(publisher.pid, SIGCONT);
    while (trp_params_client_sync(client, 0, 0, NULL) != TRP_OK)
        assert_false(deadline_passed(deadline, &clock_monotonic));
    trp_params_client_destroy(client);
    end_process(&publisher);
}

static void the_memory_is_the_owners_and_cannot_be_cut_or_written(void **state)
{
    struct fixture *fixture = *state;
    uint32_t found = 0;
    assert_int_equal(serve(&fixture->served, fixture->address, 1), TRP_OK);
    for (int fd = 0; fd < 256; fd++) {
        char path[64], target[128] = "";
        struct stat info;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) < 0 ||
            !strstr(target, "memfd:troupe parameters"))
            continue;
        found++;
        assert_int_equal(fstat(fd, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
        assert_int_equal(ftruncate(fd, 4096), -1);
        assert_true(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK);
        int again = open(path, O_RDWR | O_CLOEXEC);
        assert_true(again >= 0);
        assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0),
                         MAP_FAILED);
        assert_int_equal(pwrite(again, "x", 1, 0), -1);
        close(again);
    }
    assert_int_equal(found, 1);
}

/* ---- counts -----------------------------------------------------------------------------------
 */

struct counting {
    Troupe__Params_Service service;
    trp_publisher *publisher;
    uint32_t calls;
};

static void counting_pull(Troupe__Params_Service *service, const Troupe__PullRequest *request,
                          Troupe__PullReply_Closure closure, void *closure_data)
{
    struct counting *counting = (struct counting *)service;
    counting->calls++;
    Troupe__Params_Service *inner =
        (Troupe__Params_Service *)trp_publisher_service(counting->publisher);
    inner->pull(inner, request, closure, closure_data);
}

static const Troupe__Params_Service counting_service = TROUPE__PARAMS__INIT(counting_);

static void counts_travel_apart_from_looks_and_in_time(void **state)
{
    (void)state;
    float params[8];
    struct counting counting = {.service = counting_service, .publisher = trp_publisher_create(8)};
    publish(counting.publisher, params, 8, 1);
    trp_params_client *client =
        client_of(&counting.service.base, (trp_params_client_options){.name = "actor/0"});
    int64_t since_ns = clock_now_ns(&clock_monotonic), limit_ns = INT64_C(1000000) * WAIT_MS;
    assert_int_equal(trp_params_client_pull(client, 0, 0, NULL), TRP_OK);
    assert_int_equal(trp_params_client_pull(client, 50, 0, NULL), TRP_OK);
    assert_int_equal(trp_publisher_totals(counting.publisher).steps, 50);
    uint64_t pulls = 2;
    while (trp_publisher_totals(counting.publisher).steps < 100 || pulls == counting.calls) {
        pulls++;
        assert_int_equal(trp_params_client_pull(client, 100, 0, NULL), TRP_OK);
        assert_true(clock_now_ns(&clock_monotonic) - since_ns < limit_ns);
    }
    int64_t passed_ms = (clock_now_ns(&clock_monotonic) - since_ns) / 1000000;
    assert_in_range(counting.calls, 3, 3 + passed_ms / 90);
    assert_true(pulls > counting.calls);
    assert_int_equal(trp_params_client_sync(client, 200, 0, NULL), TRP_OK);
    assert_int_equal(trp_publisher_totals(counting.publisher).steps, 200);
    assert_int_equal(trp_params_client_state(client).own_steps, 200);
    publish(counting.publisher, params, 8, 2);
    publish(counting.publisher, params, 8, 3);
    assert_int_equal(trp_params_client_state(client).lag, 2);
    bool newer;
    assert_int_equal(trp_params_client_pull(client, 200, 0, &newer), TRP_OK);
    assert_true(newer);
    assert_int_equal(trp_params_client_state(client).lag, 0);
    trp_params_client_destroy(client);
    trp_publisher_destroy(counting.publisher);
}

/* ---- lies -------------------------------------------------------------------------------------
 */

struct liar {
    Troupe__Params_Service service;
    Troupe__SharedParams shared;
    uint32_t invitations;
};

static void liar_pull(Troupe__Params_Service *service, const Troupe__PullRequest *request,
                      Troupe__PullReply_Closure closure, void *closure_data)
{
    struct liar *liar = (struct liar *)service;
    float params[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    Troupe__PullReply reply = TROUPE__PULL_REPLY__INIT;
    reply.version = 1;
    reply.publisher = 7;
    if (request->host[0] != '\0') {
        reply.shared = &liar->shared;
        liar->invitations++;
    } else {
        reply.params = (ProtobufCBinaryData){.data = (uint8_t *)params, .len = sizeof params};
    }
    closure(&reply, closure_data);
}

static const Troupe__Params_Service liar_service = TROUPE__PARAMS__INIT(liar_);

static void claim(struct liar *liar, int fd, const uint8_t *nonce)
{
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    *liar = (struct liar){.service = liar_service};
    liar->shared = (Troupe__SharedParams)TROUPE__SHARED_PARAMS__INIT;
    liar->shared.bytes = (uint64_t)info.st_size;
    liar->shared.device = info.st_dev;
    liar->shared.inode = info.st_ino;
    liar->shared.pid = (uint32_t)getpid();
    liar->shared.fd = (uint32_t)fd;
    liar->shared.nonce = (ProtobufCBinaryData){.data = (uint8_t *)nonce, .len = 16};
}

/* The client does with what is sent. */
static void expect_not_believed(struct liar *liar)
{
    trp_params_client *client = client_of(&liar->service.base, (trp_params_client_options){0});
    for (int i = 0; i < 3; i++) {
        trp_params_state state = pulled(client);
        assert_int_equal(state.version, 1);
        assert_int_equal(state.count, 8);
        assert_true(is_all(&state));
    }
    assert_int_equal(liar->invitations, 1);
    trp_params_client_destroy(client);
}

static void a_place_that_is_another_is_not_read(void **state)
{
    struct fixture *fixture = *state;
    uint8_t nonce[16] = "0123456789abcdef";
    struct liar liar;
    struct sealed sealed;
    assert_int_equal(sealed_create(&sealed, "test", 1 << 20), TRP_OK);
    claim(&liar, sealed.fd, sealed.place.nonce);
    liar.shared.bytes += 4096;
    expect_not_believed(&liar);
    claim(&liar, sealed.fd, sealed.place.nonce);
    liar.shared.bytes = 8;
    expect_not_believed(&liar);
    claim(&liar, sealed.fd, sealed.place.nonce);
    liar.shared.inode++;
    expect_not_believed(&liar);
    claim(&liar, sealed.fd, nonce);
    expect_not_believed(&liar);
    claim(&liar, sealed.fd, nonce);
    liar.shared.nonce.len = 4;
    expect_not_believed(&liar);
    claim(&liar, sealed.fd, sealed.place.nonce);
    liar.shared.pid = 0x7fffffff;
    expect_not_believed(&liar);
    claim(&liar, sealed.fd, sealed.place.nonce); /* the right one, but no board */
    expect_not_believed(&liar);
    sealed_cleanup(&sealed);
    int fd = memfd_create("test", MFD_CLOEXEC); /* can be cut */
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    assert_int_equal(pwrite(fd, nonce, 16, 0), 16);
    claim(&liar, fd, nonce);
    expect_not_believed(&liar);
    close(fd);
    char path[128];
    snprintf(path, sizeof path, "%s/fifo", fixture->dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    claim(&liar, fd, nonce);
    liar.shared.bytes = 4096;
    expect_not_believed(&liar);
    close(fd);
    unlink(path);
}

/* Copies the memory of a true board into one of ours, and changes what it says of itself. */
static void a_header_that_lies_about_its_size_is_not_read(void **state)
{
    (void)state;
    enum { MAGIC_AT = 16, COUNT_AT = 24 };
    const uint64_t counts[] = {0, 2048, 1 << 20, UINT64_MAX / 4, UINT64_MAX};
    struct board *board = board_create(1024, true);
    float numbers[1024] = {0};
    board_write(board, numbers, 1, 1, NULL, 0);
    struct sealed_place place = *board_place(board);
    const uint8_t *memory;
    assert_int_equal(sealed_map(&memory, &place), TRP_OK);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct sealed lying;
        struct liar liar;
        assert_int_equal(sealed_create(&lying, "test", place.bytes), TRP_OK);
        memcpy(lying.memory + MAGIC_AT, memory + MAGIC_AT, 4096 - MAGIC_AT);
        memcpy(lying.memory + COUNT_AT, &counts[i], sizeof counts[i]);
        claim(&liar, lying.fd, lying.place.nonce);
        expect_not_believed(&liar);
        sealed_cleanup(&lying);
    }
    munmap((void *)memory, place.bytes);
    board_unref(board);
}

int main(int argc, char **argv)
{
    trp_log_set_level(TRP_ERROR);
    if (argc == 4 && strcmp(argv[1], "--publish") == 0)
        return publisher_main(argv[2], argv[3], false);
    if (argc == 4 && strcmp(argv[1], "--publish-freely") == 0)
        return publisher_main(argv[2], argv[3], true);
    if (argc == 4 && strcmp(argv[1], "--read") == 0)
        return reader_main(argv[2], strcmp(argv[3], "in place") == 0);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(clients_in_the_process_share_one_snapshot_and_keep_it),
        cmocka_unit_test(what_is_held_outlives_its_publisher),
        cmocka_unit_test(however_many_versions_are_held_each_is_whole),
        cmocka_unit_test(a_private_publisher_is_not_read),
        TEST(versions_are_whole_while_the_publisher_never_stops),
        TEST(a_reader_that_is_stopped_or_killed_holds_nobody_up),
        TEST(a_killed_publisher_is_followed_by_the_next),
        TEST(a_stopped_publisher_is_noticed_by_the_report_that_is_due),
        TEST(the_memory_is_the_owners_and_cannot_be_cut_or_written),
        cmocka_unit_test(counts_travel_apart_from_looks_and_in_time),
        TEST(a_place_that_is_another_is_not_read),
        cmocka_unit_test(a_header_that_lies_about_its_size_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
