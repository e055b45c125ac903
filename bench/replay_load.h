/* What the replay benchmarks share: a server in a process of its own, steps of 52 bytes and of
 * 28 KB, writers and samplers on threads, and the way a row is printed. Whatever fails ends the
 * program. */
#ifndef BENCH_REPLAY_LOAD_H
#define BENCH_REPLAY_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <troupe/rpc.h>
#include <troupe/tensor.h>

enum {
    COLUMNS_MAX = 6,
    FRAMES = 16,
    BATCH = 256,
    WRITERS_MAX = 16,
    SEGMENTS = 5,
    SEGMENTS_MAX = 16
};

/* What a step is; an item is one step. */
struct load {
    const char *name; /* also the table's */
    size_t column_count;
    trp_tensor_spec columns[COLUMNS_MAX];
    size_t table_size;
    uint32_t batch_items; /* of a writer; 0: its default */
    size_t wire_bytes;    /* of one sample in a response, about */
};

enum { LOADS = 2 };
extern const struct load loads[LOADS];
extern uint8_t *frames[FRAMES]; /* incompressible steps */
extern const int64_t SEGMENT_NS;

void make_frames(void);
void free_frames(void);

_Noreturn void fail(const char *what);

/* The arguments `[--dir PATH] [--peer DIR]`; anything else ends the program. */
void dir_and_peer(int argc, char **argv, const char **dir, const char **peer);
void check(trp_status status);
int64_t now(void); /* nanoseconds */
double rate(double count, int64_t since_ns);

/* ---- processes --------------------------------------------------------------------------- */

struct process {
    pid_t pid;
    FILE *out;
};

/* The first argument is the program's path. It dies with this thread. */
struct process start(char *const *arguments);
void stop(struct process *process, int signal_number);
/* Waits for one whose output has ended; `what` it is, should it have failed. */
void finish(struct process *process, const char *what);
double cpu_us(pid_t pid); /* processor time it has used */
double own_cpu_us(void);
double resident_bytes(pid_t pid);
void beside_this_program(char *path, size_t size, const char *name);

/* `troupe replay serve --listen LISTEN --dir DIR` with these --table lines and further arguments
 * (NULL ends them); its address is the caller's to free. */
struct process serve(const char *listen, const char *dir, const char *const *tables,
                     size_t table_count, const char *const *more, char **address);

/* That, with this load's table of `table_size` items in a new directory of `parent`; `more` may be
 * one argument or NULL. `listen` is an address, or "unix" for a socket in the directory. */
struct served {
    struct process process;
    char *dir, *address;
    trp_channel *channel;
};

struct served serve_load(const struct load *load, size_t table_size, const char *parent,
                         const char *listen, const char *more);
void served_stop(struct served *served);

/* ---- work -------------------------------------------------------------------------------- */

struct measured {
    double per_s, client_us, server_us; /* medians of segments */
};

struct segments {
    double per_s[SEGMENTS_MAX], client_us[SEGMENTS_MAX], server_us[SEGMENTS_MAX];
    int count;
    double own_us, their_us; /* when the current one began */
    int64_t begin_ns;
    pid_t server; /* 0: this process */
};

void segment_begin(struct segments *segments, pid_t server);
void segment_end(struct segments *segments, double items);
/* One that another program measured. */
void segments_add(struct segments *segments, struct measured measured);
struct measured segments_median(struct segments *segments);

/* Writes `items` steps as items of `table` through `channel` and waits for every confirmation. */
void insert_items(trp_channel *channel, const char *table, const struct load *load, uint64_t items);

/* Writers for SEGMENTS seconds each, every item confirmed. */
struct measured measure_inserts(const struct load *load, const char *address, pid_t server,
                                uint32_t writers);

/* Batches of BATCH from the table of this load. */
struct measured measure_samples(const struct load *load, trp_channel *channel, pid_t server,
                                uint32_t prefetch);

/* ---- rows -------------------------------------------------------------------------------- */

/* case, measured, unit, ceiling, its name[, peer, its name] */
void print_row(const char *name, const char *unit, double measured, double ceiling,
               const char *ceiling_name, double peer, const char *peer_name);

/* Two rows: processor microseconds an item, client and server; the ceiling is the server's. One row
 * when both are this process. Without a peer its figures are 0. */
void print_cpu(const char *name, const struct measured *measured, double ceiling_us,
               const char *ceiling_name, const struct measured *peer);

#endif
