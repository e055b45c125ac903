/* A table of ten times the memory: samples of 28 KB from a server that lives in a memory cgroup a
 * tenth as large as what it stores, next to reads of the same size at random places of the same
 * file, as many at a time as a disk's queue likes, in a cgroup of the same size.
 *
 *   bench_larger DIR [--full]      DIR: on a disk; --full: 40 GB in 4 GB instead of 4 in 0.4
 *
 * Needs the right to make a memory cgroup (version 1 or 2). Prints: case, measured, unit, ceiling,
 * its name. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <troupe/rng.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/thread.h"
#include "replay_load.h"
#include "scratch.h"

enum { READERS = 32, READ_SECONDS = 5 };

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
    char path[256];
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
    uint64_t blocks, seed;
    size_t bytes;
    int64_t until_ns;
    uint64_t reads;
};

static void read_blocks(void *arg)
{
    struct reader *reader = arg;
    uint8_t *bytes = xmalloc(reader->bytes);
    trp_rng rng;
    trp_rng_init(&rng, 7, reader->seed);
    while (now() < reader->until_ns) {
        off_t at = (off_t)(trp_rng_below(&rng, reader->blocks) * reader->bytes);
        if (pread(reader->file, bytes, reader->bytes, at) != (ssize_t)reader->bytes)
            fail("a read of the data file");
        reader->reads++;
    }
    free(bytes);
}

/* Reads of `bytes` a second, at random places of what the file has. This process is in the cgroup.
 */
static double read_rate(const char *path, size_t bytes)
{
    struct reader readers[READERS];
    struct stat info;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &info) != 0)
        fail(path);
    posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
    int64_t begin = now();
    double reads = 0;
    for (int i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.file = file,
                                     .blocks = (uint64_t)info.st_size / bytes,
                                     .seed = (uint64_t)i,
                                     .bytes = bytes,
                                     .until_ns = begin + READ_SECONDS * INT64_C(1000000000)};
        check(thread_start(&readers[i].thread, "reader", read_blocks, &readers[i]));
    }
    for (int i = 0; i < READERS; i++) {
        thread_stop(&readers[i].thread);
        reads += (double)readers[i].reads;
    }
    close(file);
    return rate(reads, begin);
}

/* ---- the case -------------------------------------------------------------------------------- */

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
    struct measured measured = measure_samples(load, channel, server.pid, 2, false);
    trp_channel_destroy(channel);
    stop(&server, SIGTERM);
    snprintf(name, sizeof name, "sample 28KB, %.3g GB in %.3g GB of memory", bytes * 1e-9,
             bytes * 1e-10);
    print_row(name, "items/s", measured.per_s, read_rate(data, load->wire_bytes),
              "32 threads that pread", 0, "");
    remove_dir(dir);
    free(data);
    free(address);
}

int main(int argc, char **argv)
{
    bool full = argc == 3 && strcmp(argv[2], "--full") == 0;
    if (argc != 2 && !full)
        fail("usage: bench_larger DIR [--full]");
    double bytes = full ? 4e10 : 4e9;
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
