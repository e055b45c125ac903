/* A table of ten times the memory: samples of 28 KB from a server that lives in a memory cgroup a
 * tenth as large as what it stores, in turn with reads of as many pages at random places of the
 * same file, as many at a time as a disk's queue likes, in the same cgroup.
 *
 *   bench_larger DIR [--full | GB]      DIR: on a disk; --full: 40 GB in 4 GB; 4 in 0.4 by default
 *
 * Needs the right to make a memory cgroup (version 1 or 2). Prints: case, measured, unit, ceiling,
 * its name. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <troupe/rng.h>
#include <troupe/sampler.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include "median.h"
#include "replay_load.h"
#include "scratch.h"

enum { READERS = 32, PAGE_BYTES = 4096, PIECE_BYTES = 4080 };

/* ---- cgroup ---------------------------------------------------------------------------------- */

struct cgroup {
    char path[128];
    const char *limit; /* the file's name */
};

static const struct cgroup cgroups[] = {
    {"/sys/fs/cgroup/memory/troupe_bench", "memory.limit_in_bytes"},
    {"/sys/fs/cgroup/troupe_bench", "memory.max"},
};

static bool write_text(const struct cgroup *group, const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", group->path, name);
    int file = open(path, O_WRONLY);
    bool written = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    if (file >= 0)
        close(file);
    return written;
}

/* NULL: there is none to be had. */
static const struct cgroup *cgroup_create(double bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%.0f", bytes);
    for (size_t i = 0; i < sizeof cgroups / sizeof *cgroups; i++) {
        if (mkdir(cgroups[i].path, 0755) != 0 && errno != EEXIST)
            continue;
        if (write_text(&cgroups[i], cgroups[i].limit, text))
            return &cgroups[i];
        rmdir(cgroups[i].path);
    }
    return NULL;
}

static void cgroup_enter(const struct cgroup *group, pid_t pid)
{
    char text[32];
    snprintf(text, sizeof text, "%d", (int)pid);
    if (!write_text(group, "cgroup.procs", text))
        fail("the cgroup takes no process");
}

/* ---- reads ----------------------------------------------------------------------------------- */

struct reader {
    struct thread thread;
    int file;
    uint64_t places, seed;
    size_t bytes;
    int64_t until_ns;
    uint64_t reads;
};

static void read_places(void *arg)
{
    struct reader *reader = arg;
    uint8_t *bytes = xmalloc(reader->bytes);
    trp_rng rng;
    trp_rng_init(&rng, 7, reader->seed);
    while (now() < reader->until_ns) {
        off_t at = (off_t)(trp_rng_below(&rng, reader->places) * PAGE_BYTES);
        if (pread(reader->file, bytes, reader->bytes, at) != (ssize_t)reader->bytes)
            fail("a read of the data file");
        reader->reads++;
    }
    free(bytes);
}

/* For a second, reads of `bytes` at random pages of what the file has, which is less than its
 * length says while the server has it open; how many. This process is in the cgroup. */
static double read_segment(int file, size_t bytes)
{
    struct reader readers[READERS];
    struct stat info;
    if (fstat(file, &info) != 0)
        fail("the data file");
    uint64_t pages = (uint64_t)info.st_blocks * 512 / PAGE_BYTES;
    int64_t begin = now();
    double reads = 0;
    for (int i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.file = file,
                                     .places = pages - bytes / PAGE_BYTES,
                                     .seed = (uint64_t)begin + (uint64_t)i,
                                     .bytes = bytes,
                                     .until_ns = begin + SEGMENT_NS};
        check(thread_start(&readers[i].thread, "reader", read_places, &readers[i]));
    }
    for (int i = 0; i < READERS; i++) {
        thread_stop(&readers[i].thread);
        reads += (double)readers[i].reads;
    }
    return reads;
}

/* ---- the case -------------------------------------------------------------------------------- */

/* For a second, after a quarter of one that does not count: what was ready is used up then. */
static void sample_segment(trp_sampler *sampler, struct segments *segments)
{
    trp_batch batch;
    double count = 0;
    for (int64_t begin = now(); now() < begin + SEGMENT_NS / 4;)
        check(trp_sampler_next(sampler, &batch, 30000));
    segment_begin(segments, segments->server);
    for (; now() < segments->begin_ns + SEGMENT_NS; count += BATCH)
        check(trp_sampler_next(sampler, &batch, 30000));
    segment_end(segments, count);
}

/* Samples and reads in turn: the disk is not always the same. */
static void compare(const struct load *load, trp_channel *channel, pid_t server, const char *data,
                    const char *name)
{
    struct segments segments = {.server = server};
    double reads[SEGMENTS];
    size_t pages = (load->wire_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    trp_sampler *sampler;
    int file = open(data, O_RDWR);
    if (file < 0 || fdatasync(file) != 0)
        fail(data);
    posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
    check(trp_sampler_create(&sampler, channel,
                             &(trp_sampler_options){.table = load->name,
                                                    .columns = load->columns,
                                                    .column_count = load->column_count,
                                                    .batch_size = BATCH,
                                                    .prefetch = 2,
                                                    .limiter_timeout_ms = -1}));
    while (segments.count < SEGMENTS) {
        sample_segment(sampler, &segments);
        int64_t begin = now();
        double count = read_segment(file, pages * PAGE_BYTES);
        reads[segments.count - 1] = rate(count, begin);
    }
    trp_sampler_destroy(sampler);
    close(file);
    struct measured measured = segments_median(&segments);
    print_row(name, "items/s", measured.per_s, median(reads, SEGMENTS), "32 threads that pread", 0,
              "");
    print_cpu(name, &measured, 0, "", &(struct measured){0});
}

static void bench_larger(const struct cgroup *group, const char *parent, double bytes)
{
    const struct load *load = &loads[1];
    char *dir = make_dir(parent), *data = xasprintf("%s/data.mdb", dir), line[128], name[128];
    char *address;
    const char *table = line;
    uint64_t items = (uint64_t)(bytes / (double)load->wire_bytes);
    trp_channel *channel;
    snprintf(line, sizeof line, "name=%s max_size=%llu", load->name, (unsigned long long)items);
    struct process server = serve("127.0.0.1:0", dir, &table, 1, NULL, &address);
    cgroup_enter(group, server.pid);
    cgroup_enter(group, getpid());
    check(trp_channel_create(&channel, address, NULL));
    int64_t begin = now();
    insert_items(channel, load->name, load, items);
    snprintf(name, sizeof name, "insert 28KB, %.3g GB in %.3g GB of memory", bytes * 1e-9,
             bytes * 1e-10);
    print_row(name, "items/s", rate((double)items, begin), 0, "", 0, "");
    snprintf(name, sizeof name, "sample 28KB, %.3g GB in %.3g GB of memory", bytes * 1e-9,
             bytes * 1e-10);
    compare(load, channel, server.pid, data, name);
    trp_channel_destroy(channel);
    stop(&server, SIGTERM);
    remove_dir(dir);
    free(data);
    free(address);
}

int main(int argc, char **argv)
{
    double bytes = 4e9;
    if (argc == 3)
        bytes = strcmp(argv[2], "--full") == 0 ? 4e10 : strtod(argv[2], NULL) * 1e9;
    if (argc < 2 || argc > 3 || !(bytes >= 1e8))
        fail("usage: bench_larger DIR [--full | GB]");
    const struct cgroup *group = cgroup_create(bytes / 10);
    if (!group) {
        fprintf(stderr, "bench_larger: skipped: no memory cgroup can be made here\n");
        return 0;
    }
    make_frames();
    bench_larger(group, argv[1], bytes);
    free_frames();
    return 0;
}
