/* Rows of a host fixture whose bytes follow from the seed in their column SEED_COLUMN, and another
 * process that samples them: the test's program again, `--sample ADDRESS`, which checks every row
 * and writes a byte to standard output for each batch. */
#ifndef TEST_SAMPLE_PROCESS_H
#define TEST_SAMPLE_PROCESS_H

#include "host_fixture.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

enum { SEED_COLUMN = 1, ROW_BYTES_MAX = 32768 /* of a column */ };

static inline bool row_is_whole(const trp_tensor_spec *columns, uint32_t column_count,
                                void *const *data, uint32_t row)
{
    uint8_t expected[ROW_BYTES_MAX];
    int64_t seed;
    bool whole = true;
    memcpy(&seed, (const uint8_t *)data[SEED_COLUMN] + row * sizeof seed, sizeof seed);
    for (uint32_t c = 0; c < column_count; c++) {
        size_t size = trp_tensor_bytes(&columns[c]);
        column_fill(&columns[c], expected, seed);
        whole = whole && memcmp(expected, (const uint8_t *)data[c] + row * size, size) == 0;
    }
    return whole;
}

static inline bool batch_is_whole(const trp_tensor_spec *columns, uint32_t column_count,
                                  const trp_batch *batch)
{
    bool whole = batch->rows == BATCH;
    for (uint32_t row = 0; row < batch->rows; row++)
        whole = row_is_whole(columns, column_count, batch->columns, row) && whole;
    return whole;
}

/* What the other process does; its exit status. */
static inline int sample_for_ever(const char *address, const trp_tensor_spec *columns,
                                  uint32_t column_count, uint32_t prefetch)
{
    trp_channel *channel;
    trp_sampler *sampler;
    trp_batch batch;
    if (trp_channel_create(&channel, address, NULL) != TRP_OK)
        return 2;
    if (trp_sampler_create(&sampler, channel,
                           &(trp_sampler_options){.table = "t",
                                                  .columns = columns,
                                                  .column_count = column_count,
                                                  .batch_size = BATCH,
                                                  .prefetch = prefetch,
                                                  .limiter_timeout_ms = -1}) != TRP_OK)
        return 3;
    while (trp_sampler_next(sampler, &batch, DEADLINE_MS) == TRP_OK) {
        if (!batch_is_whole(columns, column_count, &batch))
            return 4;
        if (write(STDOUT_FILENO, "b", 1) != 1)
            return 0;
    }
    return 5;
}

struct client {
    pid_t pid;
    int out;
};

static inline struct client client_start(const struct host *host)
{
    struct client client;
    const char *address = trp_server_address(trp_replay_server_rpc(host->replay.server));
    char *arguments[] = {"/proc/self/exe", "--sample", (char *)address, NULL};
    posix_spawn_file_actions_t actions;
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
    assert_int_equal(posix_spawn(&client.pid, arguments[0], &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    client.out = pipes[0];
    return client;
}

static inline void client_expect(struct client *client, uint32_t batches)
{
    char byte;
    for (uint32_t i = 0; i < batches; i++) {
        struct pollfd wait = {.fd = client->out, .events = POLLIN};
        assert_int_equal(poll(&wait, 1, DEADLINE_MS), 1);
        assert_int_equal(read(client->out, &byte, 1), 1);
    }
}

static inline void client_kill(struct client *client)
{
    int status;
    kill(client->pid, SIGKILL);
    assert_int_equal(waitpid(client->pid, &status, 0), client->pid);
    assert_true(WIFSIGNALED(status)); /* else it had found a row that was not whole */
    close(client->out);
}

/* What the server's file has on the disk. */
static inline uint64_t host_file_bytes(const struct host *host)
{
    struct stat info;
    char *path = fixture_path(host->replay.dir, "data.mdb");
    assert_int_equal(stat(path, &info), 0);
    free(path);
    return (uint64_t)info.st_blocks * 512;
}

#endif
