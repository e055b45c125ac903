/* `troupe replay serve` as a process: over TCP and a unix socket, killed in the middle of inserts,
 * stopped, started wrongly, and looked at with `troupe replay ls`. */
#include "tests/replay/replay_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "core/clock.h"
#include "core/thread.h"
#include "replay.pb-c.h"

extern char **environ;

enum { ARGS_MAX = 16, OUTPUT_MAX = 16384 };

struct process {
    pid_t pid;
    int out, err; /* pipes */
};

static struct process start(const char *const *args)
{
    const char *argv[ARGS_MAX + 2] = {TROUPE_CLI};
    for (size_t i = 0; args[i]; ++i)
        argv[i + 1] = args[i];
    int out[2], err[2];
    struct process process;
    posix_spawn_file_actions_t actions;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, err[1], 2);
    assert_int_equal(posix_spawn(&process.pid, TROUPE_CLI, &actions, NULL, (char **)argv, environ),
                     0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(err[1]);
    process.out = out[0];
    process.err = err[0];
    return process;
}

/* Up to the first newline, or the end. */
static void read_line(int fd, char *line, size_t size)
{
    size_t length = 0;
    struct pollfd poll_of = {.fd = fd, .events = POLLIN};
    while (length + 1 < size && poll(&poll_of, 1, WAIT_MS) == 1 &&
           read(fd, line + length, 1) == 1 && line[length] != '\n')
        ++length;
    line[length] = '\0';
}

static void read_all(int fd, char *text, size_t size)
{
    size_t length = 0;
    for (ssize_t n; length + 1 < size && (n = read(fd, text + length, size - 1 - length)) > 0;)
        length += (size_t)n;
    text[length] = '\0';
}

/* The exit status, or 128 + signal. */
static int finish(struct process *process)
{
    int status;
    assert_int_equal(waitpid(process->pid, &status, 0), process->pid);
    close(process->out);
    close(process->err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Runs to the end; standard output and error into the buffers of OUTPUT_MAX bytes. */
static int run(const char *const *args, char *out, char *err)
{
    struct process process = start(args);
    read_all(process.out, out, OUTPUT_MAX);
    read_all(process.err, err, OUTPUT_MAX);
    return finish(&process);
}

static struct process serve(struct replay *replay, const char *listen, const char *table)
{
    char *dir = xasprintf("--dir=%s", replay->dir), *at = xasprintf("--listen=%s", listen);
    const char *args[] = {"replay", "serve", dir, at, "--table", table, NULL};
    struct process process = start(args);
    char line[256];
    read_line(process.out, line, sizeof line);
    if (strncmp(line, "listening on ", 13) != 0) {
        char error[OUTPUT_MAX];
        read_all(process.err, error, sizeof error);
        print_error("'%s' %s\n", line, error);
    }
    assert_int_equal(strncmp(line, "listening on ", 13), 0);
    assert_int_equal(trp_channel_create(&replay->channel, line + 13, NULL), TRP_OK);
    free(dir);
    free(at);
    return process;
}

static int stop(struct replay *replay, struct process *process, int signal_number)
{
    trp_channel_destroy(replay->channel);
    replay->channel = NULL;
    kill(process->pid, signal_number);
    return finish(process);
}

/* ---- serving ----------------------------------------------------------------------------- */

static void insert_and_sample(const struct replay *replay)
{
    struct sampled samples[10];
    insert_items(replay, "t", 1, 10);
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 10, 1000);
    receive_samples(stream, samples, 10);
    for (int i = 0; i < 10; ++i)
        assert_int_equal(samples[i].value, samples[i].key * 10);
    trp_stream_destroy(stream);
    assert_int_equal(table_state(replay, "t").size, 10);
}

static void a_server_serves_over_tcp_and_ends_with_status_0(void **state)
{
    struct replay *replay = *state;
    struct process process = serve(replay, "127.0.0.1:0", "name=t");
    insert_and_sample(replay);
    assert_int_equal(stop(replay, &process, SIGTERM), 0);
}

static void a_server_serves_over_a_unix_socket_and_ends_with_status_0(void **state)
{
    struct replay *replay = *state;
    char *address = xasprintf("unix:%s/socket", replay->dir);
    char *dir = replay->dir;
    replay->dir = xasprintf("%s/store", dir);
    struct process process = serve(replay, address, "name=t");
    insert_and_sample(replay);
    assert_int_equal(stop(replay, &process, SIGINT), 0);
    fixture_remove(replay->dir);
    replay->dir = dir;
    free(address);
}

static void an_open_stream_does_not_keep_a_server_from_ending(void **state)
{
    struct replay *replay = *state;
    struct process process = serve(replay, "127.0.0.1:0", "name=t");
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 1, -1);
    insert_items(replay, "t", 1, 1); /* so the server has seen the request */
    struct sampled sample;
    receive_samples(stream, &sample, 1);
    send_sample_request(stream, "t", 1000000, -1);
    kill(process.pid, SIGTERM);
    trp_message *message = NULL;
    trp_status status = TRP_OK;
    while (status == TRP_OK) {
        trp_message_destroy(message);
        status = trp_stream_receive(stream, &message, WAIT_MS);
    }
    assert_true(status == TRP_UNAVAILABLE || status == TRP_CANCELLED);
    trp_stream_destroy(stream);
    assert_int_equal(stop(replay, &process, SIGTERM), 0);
}

/* ---- kill -9 ----------------------------------------------------------------------------- */

struct killer {
    pid_t pid;
    int64_t after_ns;
    struct thread thread;
};

static void kill_later(void *arg)
{
    struct killer *killer = arg;
    struct deadline deadline = {clock_now_ns(&clock_monotonic) + killer->after_ns};
    struct mutex mutex;
    struct cond never;
    mutex_init(&mutex);
    cond_init(&never);
    mutex_lock(&mutex);
    while (cond_wait(&never, &mutex, deadline))
        ;
    mutex_unlock(&mutex);
    kill(killer->pid, SIGKILL);
    mutex_cleanup(&mutex);
    cond_cleanup(&never);
}

/* Inserts keys from `first` in messages of 50 until the server is gone; behind the last key that
 * was confirmed. */
static uint64_t insert_until_gone(const struct replay *replay, uint64_t first)
{
    trp_stream *stream = open_stream(replay, "InsertStream");
    struct built *built = built_create(1 << 20);
    struct wire_keys confirmed = {0};
    uint64_t key = first;
    for (trp_status status = TRP_OK; status == TRP_OK;) {
        for (int i = 0; i < 50; ++i, ++key) {
            add_chunk(built, (struct chunk_spec){.key = key, .value = (int64_t)key * 10});
            add_simple_item(built, key, "t", 1, key);
        }
        status = try_send_built(stream, built, WAIT_MS);
        trp_message *message = NULL;
        while (status == TRP_OK && trp_stream_receive(stream, &message, 0) == TRP_OK) {
            assert_int_equal(wire_insert_response_decode(bytes_of(message), &confirmed), TRP_OK);
            trp_message_destroy(message);
        }
    }
    for (uint32_t i = 0; i < confirmed.count; ++i)
        assert_true(confirmed.keys[i] == first + i);
    uint64_t next = first + confirmed.count;
    wire_keys_cleanup(&confirmed);
    built_destroy(built);
    trp_stream_destroy(stream);
    return next;
}

/* The table is fifo and queue-like: samples come in the order of inserts, each once. */
static void check_all_there(const struct replay *replay, uint64_t first, uint64_t next)
{
    uint64_t count = (uint64_t)table_state(replay, "t").size;
    assert_true(count >= next - first);
    struct sampled *samples = xcalloc(count + 1, sizeof *samples);
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", (int64_t)count, 1000);
    receive_samples(stream, samples, (uint32_t)count);
    for (uint64_t i = 0; i < count; ++i) {
        assert_int_equal(samples[i].key, first + i);
        assert_int_equal(samples[i].value, (first + i) * 10);
    }
    trp_stream_destroy(stream);
    free(samples);
    assert_int_equal(table_state(replay, "t").size, 0);
}

static void every_confirmed_item_survives_kill_9(void **state)
{
    struct replay *replay = *state;
    const char *table = "name=t sampler=fifo max_times_sampled=1 max_size=10000000";
    for (int round = 0; round < 4; ++round) {
        struct process process = serve(replay, "127.0.0.1:0", table);
        struct killer killer = {.pid = process.pid,
                                .after_ns = 20000000 + 37000000 * (int64_t)round};
        assert_int_equal(thread_start(&killer.thread, "killer", kill_later, &killer), TRP_OK);
        uint64_t first = 1 + 100000000 * (uint64_t)round;
        uint64_t next = insert_until_gone(replay, first);
        thread_stop(&killer.thread);
        assert_int_equal(stop(replay, &process, SIGKILL), 128 + SIGKILL);

        process = serve(replay, "127.0.0.1:0", table);
        check_all_there(replay, first, next);
        assert_int_equal(stop(replay, &process, SIGTERM), 0);
    }
}

/* Keys 1 to 20, one message, always the same bytes, confirmed. */
static void insert_twenty(const struct replay *replay)
{
    struct built *built = built_create(0);
    uint64_t keys[20];
    for (uint64_t i = 0; i < 20; ++i) {
        keys[i] = i + 1;
        add_chunk(built, (struct chunk_spec){.key = i + 100, .value = (int64_t)i});
        add_simple_item(built, i + 1, "t", 1, i + 100);
    }
    trp_stream *stream = open_stream(replay, "InsertStream");
    send_built(stream, built);
    assert_confirmed(stream, keys, 20);
    trp_stream_destroy(stream);
    built_destroy(built);
}

/* The writer had no confirmation of what was consumed meanwhile, and sends it again. */
static void what_a_queue_gave_before_kill_9_does_not_come_again(void **state)
{
    struct replay *replay = *state;
    struct sampled samples[20];
    const char *table = "name=t sampler=fifo limiter=queue(100) max_times_sampled=1";
    struct process process = serve(replay, "127.0.0.1:0", table);
    insert_twenty(replay);
    trp_stream *stream = open_stream(replay, "SampleStream");
    send_sample_request(stream, "t", 12, 1000);
    receive_samples(stream, samples, 12);
    send_sample_request(stream, "t", 1, 1000); /* asking for more settles the 12 */
    receive_samples(stream, samples, 1);
    insert_items(replay, "t", 50, 1); /* commits a group behind it */
    trp_stream_destroy(stream);
    assert_int_equal(stop(replay, &process, SIGKILL), 128 + SIGKILL);
    process = serve(replay, "127.0.0.1:0", table);
    insert_twenty(replay);
    stream = open_stream(replay, "SampleStream");
    uint32_t left = (uint32_t)table_state(replay, "t").size;
    send_sample_request(stream, "t", left, 1000);
    assert_in_range(left, 8, 9); /* the 13th may have been on its way */
    receive_samples(stream, samples, left);
    assert_int_equal(samples[left - 1].key, 50);
    for (uint32_t i = 0; i + 1 < left; ++i)
        assert_int_equal(samples[i].key, 22 - left + i);
    trp_stream_destroy(stream);
    assert_int_equal(stop(replay, &process, SIGTERM), 0);
}

/* ---- wrong starts ------------------------------------------------------------------------ */

static void assert_one_line(const char *text, const char *part)
{
    size_t length = strlen(text);
    if (!strstr(text, part) || length == 0 || strchr(text, '\n') != text + length - 1)
        print_error("expected one line with '%s' in '%s'\n", part, text);
    assert_non_null(strstr(text, part));
    assert_true(strchr(text, '\n') == text + length - 1);
}

static void wrong_flags_are_one_line_and_a_status(void **state)
{
    struct replay *replay = *state;
    char *dir = xasprintf("--dir=%s", replay->dir), *lines = fixture_path(replay->dir, "lines");
    char *tables = xasprintf("--tables=%s", lines);
    FILE *file = fopen(lines, "w");
    fputs("# two tables\nname=a\n\nname=b size=3\n", file);
    fclose(file);
    const struct {
        const char *args[8];
        int status;
        const char *text;
    } rows[] = {
        {{"replay", "serve"}, 2, "--dir"},
        {{"replay", "serve", dir, "--table", "name=t sampler=best"}, 2, "sampler"},
        {{"replay", "serve", dir, "--table", "name=t", "--frobnicate"}, 2, "--frobnicate"},
        {{"replay", "serve", dir, "--table", "name=t", "extra"}, 2, "extra"},
        {{"replay", "serve", dir, "--table", "name=t", "--durability=best"}, 2, "process"},
        {{"replay", "serve", dir, "--table", "name=t", "--max-bytes=12X"}, 2, "12X"},
        {{"replay", "serve", dir, tables}, 2, ":4:"},
        {{"replay", "serve", dir, "--tables=/none/such"}, 2, "/none/such"},
        {{"replay", "serve", dir, "--table", "name=t", "--listen=nowhere"}, 2, "nowhere"},
        {{"replay", "serve", dir, "--table", "name=t", "--listen=0.0.0.0:0"}, 2, "--insecure"},
        {{"replay", "serve", "--dir=/dev/null", "--table", "name=t"}, 1, "/dev/null"},
        {{"replay", "ls"}, 2, "TARGET"},
        {{"replay", "ls", "/none/such"}, 1, "/none/such"},
        {{"replay", "items", "/none/such"}, 2, "TABLE"},
        {{"replay", "ls", "a:1", "b"}, 2, "'b'"},
        {{"replay", "frobnicate"}, 2, "frobnicate"},
        {{"frobnicate"}, 2, "frobnicate"},
    };
    char out[OUTPUT_MAX], err[OUTPUT_MAX];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        unlink(i >= 9 ? lines : "");
        assert_int_equal(run(rows[i].args, out, err), rows[i].status);
        assert_string_equal(out, "");
        assert_one_line(err, rows[i].text);
    }
    free(tables);
    free(lines);
    free(dir);
}

static void a_second_server_names_the_first(void **state)
{
    struct replay *replay = *state;
    char out[OUTPUT_MAX], err[OUTPUT_MAX], pid[32];
    struct process process = serve(replay, "127.0.0.1:0", "name=t");
    char *dir = xasprintf("--dir=%s", replay->dir), *other = fixture_dir("/tmp");
    char *other_dir = xasprintf("--dir=%s", other);
    char *listen = xasprintf("--listen=%s", trp_channel_address(replay->channel));
    snprintf(pid, sizeof pid, "pid %ld", (long)process.pid);
    assert_int_equal(
        run((const char *const[]){"replay", "serve", dir, "--table", "name=t", NULL}, out, err), 1);
    assert_one_line(err, pid);
    assert_int_equal(
        run((const char *const[]){"replay", "serve", other_dir, listen, "--table", "name=t", NULL},
            out, err),
        1);
    assert_one_line(err, trp_channel_address(replay->channel));
    assert_int_equal(run((const char *const[]){"replay", "ls", replay->dir, NULL}, out, err), 0);
    assert_one_line(err, trp_channel_address(replay->channel));
    insert_items(replay, "t", 1, 1); /* nothing disturbed the first */
    assert_int_equal(stop(replay, &process, SIGTERM), 0);
    fixture_remove(other);
    free(listen);
    free(other_dir);
    free(dir);
}

/* ---- looking ----------------------------------------------------------------------------- */

static void check_look(const char *target)
{
    char out[OUTPUT_MAX], err[OUTPUT_MAX];
    assert_int_equal(run((const char *const[]){"replay", "ls", target, NULL}, out, err), 0);
    assert_non_null(strstr(out, "NAME"));
    assert_non_null(strstr(out, "max_heap"));
    assert_int_equal(
        run((const char *const[]){"replay", "ls", target, "-o", "json", NULL}, out, err), 0);
    assert_non_null(strstr(out, "\"inserts\":\t5"));
    assert_int_equal(run((const char *const[]){"replay", "info", target, "t", NULL}, out, err), 0);
    assert_non_null(strstr(out, "size      5 of 1000000"));
    assert_int_equal(
        run((const char *const[]){"replay", "items", target, "t", "-n2", NULL}, out, err), 0);
    assert_non_null(strstr(out, "2 of 5 items, by priority, highest first"));
    assert_int_equal(run((const char *const[]){"replay", "peek", target, "t", "4", NULL}, out, err),
                     0);
    assert_non_null(strstr(out, "0       int64  [1]    [40]"));
    assert_int_equal(
        run((const char *const[]){"replay", "peek", target, "t", "44", NULL}, out, err), 3);
    assert_one_line(err, "44");
    assert_int_equal(run((const char *const[]){"replay", "info", target, "u", NULL}, out, err), 3);
    assert_one_line(err, "no table u; it has: t");
}

static void a_server_can_be_looked_at_running_and_stopped(void **state)
{
    struct replay *replay = *state;
    struct process process = serve(replay, "127.0.0.1:0", "name=t sampler=max_heap");
    insert_items(replay, "t", 1, 5);
    check_look(trp_channel_address(replay->channel));
    assert_int_equal(stop(replay, &process, SIGTERM), 0);
    check_look(replay->dir);
}

/* No answer has room for it. */
static void an_item_of_70_megabytes_can_be_looked_at_and_dumped(void **state)
{
    enum { BYTES = 70000000 };
    struct replay *replay = *state;
    struct process process = serve(replay, "127.0.0.1:0", "name=t");
    struct built *built = built_create(BYTES);
    trp_stream *stream = open_stream(replay, "InsertStream");
    const uint64_t key = 7;
    add_chunk(built, (struct chunk_spec){.key = 1, .value = 1, .bytes = BYTES});
    add_simple_item(built, key, "t", 1, 1);
    send_built(stream, built);
    assert_confirmed(stream, &key, 1);
    built_destroy(built);
    trp_stream_destroy(stream);
    char out[OUTPUT_MAX], err[OUTPUT_MAX], *file = fixture_path(replay->dir, "x.jsonl");
    const char *target = trp_channel_address(replay->channel);
    assert_int_equal(run((const char *const[]){"replay", "peek", target, "t", NULL}, out, err), 0);
    assert_non_null(strstr(out, "uint8  [1,70000000]  min 0, max 255"));
    assert_int_equal(
        run((const char *const[]){"replay", "dump", target, "t", file, NULL}, out, err), 0);
    assert_non_null(strstr(out, "1 item in "));
    assert_int_equal(stop(replay, &process, SIGTERM), 0);
    free(file);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, replay_setup, replay_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_server_serves_over_tcp_and_ends_with_status_0),
        TEST(a_server_serves_over_a_unix_socket_and_ends_with_status_0),
        TEST(an_open_stream_does_not_keep_a_server_from_ending),
        TEST(every_confirmed_item_survives_kill_9),
        TEST(what_a_queue_gave_before_kill_9_does_not_come_again),
        TEST(wrong_flags_are_one_line_and_a_status),
        TEST(a_second_server_names_the_first),
        TEST(a_server_can_be_looked_at_running_and_stopped),
        TEST(an_item_of_70_megabytes_can_be_looked_at_and_dumped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
