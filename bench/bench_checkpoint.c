/* Checkpoints of a full table while one client inserts and one samples, each waiting for every
 * single item: how fast, and for how long the clients wait at the longest.
 *
 *   bench_checkpoint DIR [--full] [--peer DIR]    DIR: on a disk; --full: 10 GB instead of 1
 *                                                 DIR/reverb/bin/python: dm-reverb 0.14
 *
 * The ceiling is the disk's sequential write. What clients wait at the longest without a
 * checkpoint, in as many and as long stretches, is the machine's: it stands beside.
 *
 * Prints: case, measured, unit, ceiling, its name[, peer, its name]. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/sampler.h>
#include <troupe/writer.h>
#include "core/alloc.h"
#include "core/thread.h"
#include "median.h"
#include "replay_load.h"
#include "scratch.h"

enum { DISK_BLOCK = 4 << 20, CALL_MS = 60000 };

static const char KEEP_ONE[] = "--keep-checkpoints=1";

/* ---- the disk -------------------------------------------------------------------------------- */

/* Bytes a second, past the page cache where the file system can. */
static double disk_rate(const char *dir, double bytes)
{
    char *path = xasprintf("%s/disk", dir);
    uint8_t *block = aligned_alloc(4096, DISK_BLOCK);
    int file = open(path, O_WRONLY | O_CREAT | O_DIRECT, 0600);
    if (file < 0)
        file = open(path, O_WRONLY | O_CREAT, 0600);
    if (!block || file < 0)
        fail(path);
    memset(block, 1, DISK_BLOCK);
    double written = 0;
    int64_t begin = now();
    for (; written < bytes; written += DISK_BLOCK)
        if (pwrite(file, block, DISK_BLOCK, (off_t)written) != DISK_BLOCK)
            fail("the disk is full");
    if (fdatasync(file) != 0)
        fail(path);
    double per_s = rate(written, begin);
    close(file);
    unlink(path);
    free(block);
    free(path);
    return per_s;
}

/* ---- callers --------------------------------------------------------------------------------- */

/* One item at a time, for as long as the bench runs. */
struct caller {
    const struct load *load;
    const char *address;
    struct thread thread;
    _Atomic bool stop;
    _Atomic int64_t longest_ns; /* since it was last asked */
    _Atomic uint64_t calls;
};

static void note(struct caller *caller, int64_t begin)
{
    int64_t took = now() - begin;
    if (took > atomic_load(&caller->longest_ns))
        atomic_store(&caller->longest_ns, took);
    atomic_fetch_add(&caller->calls, 1);
}

static void call_insert(void *arg)
{
    struct caller *caller = arg;
    const struct load *load = caller->load;
    const void *step[COLUMNS_MAX];
    trp_item_column item[COLUMNS_MAX];
    trp_channel *channel;
    trp_writer *writer;
    check(trp_channel_create(&channel, caller->address, NULL));
    check(trp_writer_create(
        &writer, channel,
        &(trp_writer_options){.columns = load->columns, .column_count = load->column_count}));
    for (size_t c = 0; c < load->column_count; c++) {
        item[c] = (trp_item_column){.column = (uint32_t)c, .length = 1, .squeeze = true};
        step[c] = frames[c];
    }
    while (!atomic_load(&caller->stop)) {
        int64_t begin = now();
        check(trp_writer_append(writer, step));
        check(
            trp_writer_create_item(writer, load->name, 1, item, load->column_count, CALL_MS, NULL));
        check(trp_writer_flush(writer, 0, CALL_MS));
        note(caller, begin);
    }
    trp_writer_destroy(writer);
    trp_channel_destroy(channel);
}

static void call_sample(void *arg)
{
    struct caller *caller = arg;
    trp_channel *channel;
    trp_sampler *sampler;
    trp_batch batch;
    check(trp_channel_create(&channel, caller->address, NULL));
    check(trp_sampler_create(&sampler, channel,
                             &(trp_sampler_options){.table = caller->load->name,
                                                    .columns = caller->load->columns,
                                                    .column_count = caller->load->column_count,
                                                    .batch_size = 1,
                                                    .limiter_timeout_ms = -1}));
    while (!atomic_load(&caller->stop)) {
        int64_t begin = now();
        check(trp_sampler_next(sampler, &batch, CALL_MS));
        note(caller, begin);
    }
    trp_sampler_destroy(sampler);
    trp_channel_destroy(channel);
}

/* ---- the case -------------------------------------------------------------------------------- */

enum { INSERT, SAMPLE, CALLERS };

/* Milliseconds and calls a second of each caller in a stretch. */
struct stretch {
    double longest_ms[CALLERS], calls_per_s[CALLERS];
};

struct bench {
    const char *parent, *peer_dir;
    double bytes;
    struct caller callers[CALLERS];
};

static void stretch_begin(struct bench *bench)
{
    for (int i = 0; i < CALLERS; i++) {
        atomic_store(&bench->callers[i].longest_ns, 0);
        atomic_store(&bench->callers[i].calls, 0);
    }
}

static void stretch_end(struct bench *bench, int64_t begin, struct stretch *stretch)
{
    for (int i = 0; i < CALLERS; i++) {
        double longest_ms = (double)atomic_load(&bench->callers[i].longest_ns) * 1e-6;
        stretch->longest_ms[i] =
            longest_ms > stretch->longest_ms[i] ? longest_ms : stretch->longest_ms[i];
        stretch->calls_per_s[i] = rate((double)atomic_load(&bench->callers[i].calls), begin);
    }
}

/* Seconds that `troupe replay checkpoint` takes. */
static double take_checkpoint(const char *address)
{
    char program[512], line[512];
    beside_this_program(program, sizeof program, "troupe");
    int64_t begin = now();
    struct process process =
        start((char *[]){program, "replay", "checkpoint", (char *)address, NULL});
    bool told = fgets(line, sizeof line, process.out);
    double seconds = (double)(now() - begin) * 1e-9;
    finish(&process, "troupe replay checkpoint");
    if (!told)
        fail("troupe replay checkpoint named none");
    return seconds;
}

/* dm-reverb's: bytes a second, and longest waits. */
struct peer {
    double per_s, longest_ms[CALLERS];
};

static struct peer run_peer(const char *dir)
{
    struct peer peer = {.per_s = 0};
    if (!dir)
        return peer;
    char *python = xasprintf("%s/reverb/bin/python", dir);
    char *arguments[] = {python, BENCH_SOURCE_DIR "/peers/reverb_checkpoint.py", NULL};
    struct process process = start(arguments);
    if (fscanf(process.out, "%lf %lf %lf", &peer.per_s, &peer.longest_ms[INSERT],
               &peer.longest_ms[SAMPLE]) != 3)
        fail("dm-reverb took no checkpoint");
    stop(&process, SIGKILL);
    free(python);
    return peer;
}

static void print_stretches(const struct stretch *with, const struct stretch *without,
                            const struct peer *peer)
{
    static const char *const names[] = {"insert", "sample"};
    char name[128];
    for (int i = 0; i < CALLERS; i++) {
        snprintf(name, sizeof name, "  longest wait for one %s meanwhile", names[i]);
        print_row(name, "ms", with->longest_ms[i], without->longest_ms[i], "without a checkpoint",
                  peer->longest_ms[i], "dm-reverb");
        snprintf(name, sizeof name, "  %ss one by one meanwhile", names[i]);
        print_row(name, "items/s", with->calls_per_s[i], without->calls_per_s[i],
                  "without a checkpoint", 0, "");
    }
}

/* A checkpoint, and as long without one. Bytes a second; a disk may be slower after each gigabyte:
 * it is asked each time, too. */
static double round_trip(struct bench *bench, const char *address, struct stretch *with,
                         struct stretch *without, double *disk)
{
    int64_t begin = now();
    stretch_begin(bench);
    double seconds = take_checkpoint(address);
    stretch_end(bench, begin, with);
    begin = now();
    stretch_begin(bench);
    usleep((useconds_t)(seconds * 1e6));
    stretch_end(bench, begin, without);
    *disk = disk_rate(bench->parent, bench->bytes);
    return bench->bytes / seconds;
}

static void print_rates(const char *name, double per_s, double disk_per_s, double peer_per_s)
{
    print_row(name, "GB/s", per_s * 1e-9, disk_per_s * 1e-9, "disk, sequential write",
              peer_per_s * 1e-9, "dm-reverb");
}

/* During the first one the file grows by what is inserted until the copy is ahead of it; that room
 * is there for the others. */
static void measure(struct bench *bench, const char *address)
{
    struct stretch first_with = {.calls_per_s = {0}}, first_without = first_with;
    struct stretch with = first_with, without = first_with;
    double rates[SEGMENTS], disk_rates[SEGMENTS], first_disk;
    char name[128];
    double first = round_trip(bench, address, &first_with, &first_without, &first_disk);
    for (int i = 0; i < SEGMENTS; i++)
        rates[i] = round_trip(bench, address, &with, &without, &disk_rates[i]);
    struct peer peer = run_peer(bench->peer_dir);
    snprintf(name, sizeof name, "checkpoint of %.3g GB of 28KB while inserting and sampling",
             bench->bytes * 1e-9);
    print_rates(name, median(rates, SEGMENTS), median(disk_rates, SEGMENTS), peer.per_s);
    print_stretches(&with, &without, &peer);
    print_rates("  the first one, for which the file grows", first, first_disk, 0);
    print_stretches(&first_with, &first_without, &(struct peer){.per_s = 0});
}

static void bench_checkpoint(struct bench *bench)
{
    const struct load *load = &loads[1];
    uint64_t items = (uint64_t)(bench->bytes / (double)load->wire_bytes);
    struct served served = serve_load(load, items, bench->parent, "127.0.0.1:0", KEEP_ONE);
    void (*const works[])(void *) = {call_insert, call_sample};
    insert_items(served.channel, load->name, load, items + items / 4);
    sync(); /* what filled the table is not on its way to the disk any more */
    for (int i = 0; i < CALLERS; i++) {
        bench->callers[i] = (struct caller){.load = load, .address = served.address};
        check(thread_start(&bench->callers[i].thread, "caller", works[i], &bench->callers[i]));
    }
    measure(bench, served.address);
    for (int i = 0; i < CALLERS; i++) {
        atomic_store(&bench->callers[i].stop, true);
        thread_stop(&bench->callers[i].thread);
    }
    served_stop(&served);
}

int main(int argc, char **argv)
{
    struct bench bench = {.bytes = 1e9};
    for (int i = 1; i < argc; i++) {
        if (i == 1 && argv[i][0] != '-')
            bench.parent = argv[i];
        else if (strcmp(argv[i], "--full") == 0)
            bench.bytes = 1e10;
        else if (strcmp(argv[i], "--peer") == 0 && i + 1 < argc)
            bench.peer_dir = argv[++i];
        else
            bench.parent = NULL;
    }
    if (!bench.parent)
        fail("usage: bench_checkpoint DIR [--full] [--peer DIR]");
    make_frames();
    bench_checkpoint(&bench);
    free_frames();
    return 0;
}
