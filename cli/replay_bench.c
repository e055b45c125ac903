/* `troupe replay bench`: what a server does under load, measured by a client such as actors and
 * learners are. Writers insert steps of a given size and samplers draw batches, each on a thread of
 * its own with a connection of its own, in a table made for it and dropped after, also when a
 * signal ends it. What a bench that was killed left is dropped by the next one on the same host.
 *
 * An item's latency is from its creation to the call that sees it confirmed; writers keep as many
 * items on their way as they do by default, so that it is that of a loaded server. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <troupe/rng.h>
#include <troupe/sampler.h>
#include <troupe/writer.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "core/flags.h"
#include "core/printable.h"
#include "core/status.h"
#include "core/thread.h"
#include "json.h"
#include "output.h"
#include "replay_target.h"

enum { IN_FLIGHT = 1024, LATENCIES_MAX = 1 << 18, WAIT_MS = 200, BENCH_THREADS_MAX = 64 };

struct bench;

struct bencher {
    struct bench *bench;
    struct thread thread;
    trp_status status;
    char *failure;
    uint64_t number; /* of the thread: its seed */
    uint64_t items;
    int64_t *latencies; /* every so many items, at most LATENCIES_MAX */
    size_t latency_count;
};

struct bench {
    const struct work *work;
    char *table;
    trp_tensor_spec column;
    struct deadline end;
    atomic_bool interrupted; /* by a signal */
    struct bencher threads[2 * BENCH_THREADS_MAX];
    size_t writers, samplers;
    double seconds, cpu_seconds;
};

static trp_status channel_to(const struct bench *bench, trp_channel **channel)
{
    return trp_channel_create(channel, trp_channel_address(bench->work->target.channel), NULL);
}

static bool bench_over(const struct bench *bench)
{
    return atomic_load(&bench->interrupted) || deadline_passed(bench->end, &clock_monotonic);
}

/* ---- writers ----------------------------------------------------------------------------- */

/* When each item on its way was created: a ring by its number. */
struct flight {
    int64_t created_ns[2 * IN_FLIGHT];
    uint64_t created, confirmed;
};

static void confirmed_note(struct bencher *self, struct flight *flight, uint64_t confirmed)
{
    int64_t now = flight->confirmed < confirmed ? clock_now_ns(&clock_monotonic) : 0;
    for (; flight->confirmed < confirmed; flight->confirmed++)
        if (self->latency_count < LATENCIES_MAX && flight->confirmed % 4 == 0)
            self->latencies[self->latency_count++] =
                now - flight->created_ns[flight->confirmed % (2 * IN_FLIGHT)];
}

static trp_status write_items(struct bencher *self, trp_writer *writer, const void *step)
{
    const struct bench *bench = self->bench;
    const trp_item_column column = {.length = 1, .squeeze = true};
    struct flight *flight = xcalloc(1, sizeof *flight);
    trp_status status = TRP_OK;
    while (status == TRP_OK && !bench_over(bench)) {
        status = trp_writer_append(writer, &step);
        flight->created_ns[flight->created++ % (2 * IN_FLIGHT)] = clock_now_ns(&clock_monotonic);
        if (status == TRP_OK)
            status = trp_writer_create_item(writer, bench->table, 1, &column, 1, 10000, NULL);
        confirmed_note(self, flight, trp_writer_confirmed(writer));
    }
    while (status == TRP_OK && trp_writer_confirmed(writer) < flight->created) {
        uint64_t left = flight->created - trp_writer_confirmed(writer);
        status = trp_writer_flush(writer, (uint32_t)(left - 1), 10000);
        confirmed_note(self, flight, trp_writer_confirmed(writer));
    }
    free(flight);
    return status;
}

static trp_status writer_work(struct bencher *self)
{
    const struct bench *bench = self->bench;
    trp_writer_options options = {.columns = &bench->column,
                                  .column_count = 1,
                                  .max_in_flight = IN_FLIGHT,
                                  .seed = trp_rng_entropy() | 1};
    trp_channel *channel;
    trp_writer *writer = NULL;
    uint8_t *step = xmalloc(trp_tensor_bytes(&bench->column));
    trp_rng rng;
    trp_rng_init(&rng, self->number, 0);
    for (size_t i = 0; i < trp_tensor_bytes(&bench->column); i++)
        step[i] = (uint8_t)trp_rng_u64(&rng);
    trp_status status = channel_to(bench, &channel);
    if (status == TRP_OK)
        status = trp_writer_create(&writer, channel, &options);
    if (status == TRP_OK)
        status = write_items(self, writer, step);
    if (writer)
        self->items = trp_writer_confirmed(writer);
    trp_writer_destroy(writer);
    trp_channel_destroy(channel);
    free(step);
    return status;
}

/* ---- samplers ---------------------------------------------------------------------------- */

static trp_status sampler_work(struct bencher *self)
{
    const struct bench *bench = self->bench;
    trp_sampler_options options = {.table = bench->table,
                                   .columns = &bench->column,
                                   .column_count = 1,
                                   .batch_size = (uint32_t)bench->work->args->batch,
                                   .prefetch = 2,
                                   .limiter_timeout_ms = -1};
    trp_channel *channel;
    trp_sampler *sampler = NULL;
    trp_batch batch;
    trp_status status = channel_to(bench, &channel);
    if (status == TRP_OK)
        status = trp_sampler_create(&sampler, channel, &options);
    while (status == TRP_OK && !bench_over(bench)) {
        status = trp_sampler_next(sampler, &batch, WAIT_MS);
        self->items += status == TRP_OK ? batch.rows : 0;
        if (status == TRP_DEADLINE_EXCEEDED)
            status = TRP_OK;
    }
    trp_sampler_destroy(sampler);
    trp_channel_destroy(channel);
    return status;
}

/* ---- all of them ------------------------------------------------------------------------- */

static void bencher_note(struct bencher *self, trp_status status)
{
    self->status = status;
    if (status != TRP_OK)
        self->failure = error_keep();
}

static void writer_run(void *arg)
{
    bencher_note(arg, writer_work(arg));
}

static void sampler_run(void *arg)
{
    bencher_note(arg, sampler_work(arg));
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* Blocked in every thread, and taken here: the table must not stay behind. */
static sigset_t bench_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&signals, numbers[i]);
    return signals;
}

/* Until the time is over, a signal comes, or at once when the threads are not all there. */
static void bench_wait(struct bench *bench, bool going)
{
    struct progress_line progress;
    sigset_t signals = bench_signals();
    uint64_t total_ms = (uint64_t)(bench->work->args->seconds * 1000);
    if (!going)
        atomic_store(&bench->interrupted, true);
    progress_begin(&progress, "bench", "ms", total_ms);
    while (!bench_over(bench)) {
        int64_t left = deadline_left_ms(bench->end, &clock_monotonic);
        long wait_ms = left < WAIT_MS ? (long)left : WAIT_MS;
        progress_show(&progress, total_ms - (uint64_t)left);
        if (sigtimedwait(&signals, NULL, &(struct timespec){0, wait_ms * 1000000}) > 0)
            atomic_store(&bench->interrupted, true);
    }
    progress_end(&progress);
}

static trp_status bench_run(struct bench *bench)
{
    size_t count = bench->writers + bench->samplers;
    trp_status status = TRP_OK;
    double cpu = cpu_seconds();
    int64_t began = clock_now_ns(&clock_monotonic);
    bench->end = deadline_in_ms(&clock_monotonic, (int64_t)(bench->work->args->seconds * 1000));
    for (size_t i = 0; i < count && status == TRP_OK; i++) {
        struct bencher *each = &bench->threads[i];
        bool writes = i < bench->writers;
        *each = (struct bencher){.bench = bench, .number = i + 1};
        each->latencies = writes ? xcalloc(LATENCIES_MAX, sizeof *each->latencies) : NULL;
        status = thread_start(&each->thread, writes ? "bench writer" : "bench sampler",
                              writes ? writer_run : sampler_run, each);
    }
    bench_wait(bench, status == TRP_OK);
    for (size_t i = 0; i < count; i++)
        thread_stop(&bench->threads[i].thread);
    bench->seconds = (double)(clock_now_ns(&clock_monotonic) - began) * 1e-9;
    bench->cpu_seconds = cpu_seconds() - cpu;
    for (size_t i = 0; i < count && status == TRP_OK; i++)
        if (bench->threads[i].status != TRP_OK)
            status = trp_fail(bench->threads[i].status, "%s", bench->threads[i].failure);
    return status;
}

/* ---- results ----------------------------------------------------------------------------- */

static int compare_i64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

struct results {
    uint64_t inserts, samples;
    double insert_rate, sample_rate;
    double latency_ms[3]; /* median, 99 %, longest */
    double cpu_us;        /* of the client, an item either way */
};

static void latencies_sum(const struct bench *bench, struct results *results)
{
    size_t count = 0;
    for (size_t i = 0; i < bench->writers; i++)
        count += bench->threads[i].latency_count;
    if (count == 0)
        return;
    int64_t *all = xcalloc(count, sizeof *all);
    size_t at = 0;
    for (size_t i = 0; i < bench->writers; i++) {
        const struct bencher *each = &bench->threads[i];
        if (each->latency_count)
            memcpy(all + at, each->latencies, each->latency_count * sizeof *all);
        at += each->latency_count;
    }
    qsort(all, count, sizeof *all, compare_i64);
    results->latency_ms[0] = (double)all[count / 2] * 1e-6;
    results->latency_ms[1] = (double)all[count - 1 - count / 100] * 1e-6;
    results->latency_ms[2] = (double)all[count - 1] * 1e-6;
    free(all);
}

static struct results bench_results(const struct bench *bench)
{
    struct results results = {0};
    for (size_t i = 0; i < bench->writers + bench->samplers; i++)
        *(i < bench->writers ? &results.inserts : &results.samples) += bench->threads[i].items;
    results.insert_rate = (double)results.inserts / bench->seconds;
    results.sample_rate = (double)results.samples / bench->seconds;
    if (results.inserts + results.samples)
        results.cpu_us = bench->cpu_seconds * 1e6 / (double)(results.inserts + results.samples);
    latencies_sum(bench, &results);
    return results;
}

static void results_print(const struct bench *bench)
{
    struct results results = bench_results(bench);
    char rate[TEXT_SIZE];
    uint64_t bytes = trp_tensor_bytes(&bench->column);
    if (bench->work->args->json) {
        cJSON *out = cJSON_CreateObject();
        cJSON_AddNumberToObject(out, "seconds", bench->seconds);
        json_add_i64(out, "item_bytes", (int64_t)bytes);
        json_add_i64(out, "writers", (int64_t)bench->writers);
        json_add_i64(out, "samplers", (int64_t)bench->samplers);
        json_add_i64(out, "inserts", (int64_t)results.inserts);
        json_add_i64(out, "samples", (int64_t)results.samples);
        cJSON_AddNumberToObject(out, "inserts_per_second", results.insert_rate);
        cJSON_AddNumberToObject(out, "samples_per_second", results.sample_rate);
        cJSON_AddNumberToObject(out, "confirm_ms_50", results.latency_ms[0]);
        cJSON_AddNumberToObject(out, "confirm_ms_99", results.latency_ms[1]);
        cJSON_AddNumberToObject(out, "confirm_ms_max", results.latency_ms[2]);
        cJSON_AddNumberToObject(out, "client_cpu_us_per_item", results.cpu_us);
        json_print(out);
        return;
    }
    printf("%" PRIu64 " bytes an item, %zu writer%s, %zu sampler%s, %.1f s%s\n", bytes,
           bench->writers, bench->writers == 1 ? "" : "s", bench->samplers,
           bench->samplers == 1 ? "" : "s", bench->seconds,
           atomic_load(&bench->interrupted) ? " (interrupted)" : "");
    printf("inserts   %.0f a second, %s a second\n", results.insert_rate,
           size_text((uint64_t)(results.insert_rate * (double)bytes), rate));
    printf("confirmed after %.3g ms (half), %.3g ms (99 %%), %.3g ms (all)\n",
           results.latency_ms[0], results.latency_ms[1], results.latency_ms[2]);
    printf("samples   %.0f a second, %s a second\n", results.sample_rate,
           size_text((uint64_t)(results.sample_rate * (double)bytes), rate));
    printf("client    %.2f us of CPU an item, %.1f cores\n", results.cpu_us,
           bench->cpu_seconds / bench->seconds);
}

/* ---- the table --------------------------------------------------------------------------- */

static trp_status bench_table(const struct bench *bench)
{
    Troupe__ReplayCreateTableRequest request = TROUPE__REPLAY_CREATE_TABLE_REQUEST__INIT;
    request.options = xasprintf("name=%s sampler=uniform remover=fifo max_size=%" PRIu64,
                                bench->table, bench->work->args->count);
    trp_status status = target_call(&bench->work->target, "CreateTable", &request.base, NULL);
    free(request.options);
    return status;
}

/* Its own failure does not hide the bench's. */
static trp_status table_drop(const struct bench *bench, trp_status status)
{
    Troupe__ReplayDropTableRequest request = TROUPE__REPLAY_DROP_TABLE_REQUEST__INIT;
    char *kept = error_keep();
    request.table = bench->table;
    trp_status dropped = target_call(&bench->work->target, "DropTable", &request.base, NULL);
    if (status != TRP_OK)
        return error_back(status, kept);
    free(kept);
    return dropped;
}

/* The name says whose it is, so that the next bench takes away what one that was killed left. */
#define BENCH_PREFIX "troupe-bench-"

static char *bench_host(void)
{
    char host[HOST_NAME_MAX + 1] = "";
    if (gethostname(host, sizeof host - 1) != 0)
        host[0] = '\0';
    return xasprintf(BENCH_PREFIX "%.64s-", host);
}

/* A table of a bench on this host whose process has ended. */
static bool table_is_left(const char *name, const char *host)
{
    uint64_t pid;
    size_t size = strlen(host);
    return strncmp(name, host, size) == 0 && flags_u64(name + size, 1, INT32_MAX, &pid) &&
           kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

static trp_status left_drop(struct bench *bench, const char *host)
{
    Troupe__ReplayTablesResponse *tables;
    TRP_TRY(target_tables(&bench->work->target, NULL, &tables));
    for (size_t i = 0; i < tables->n_tables; i++) {
        Troupe__ReplayDropTableRequest request = TROUPE__REPLAY_DROP_TABLE_REQUEST__INIT;
        request.table = tables->tables[i]->name;
        if (!table_is_left(request.table, host))
            continue;
        print_text(stderr, "dropping %s, which a bench that was killed left\n", request.table);
        if (target_call(&bench->work->target, "DropTable", &request.base, NULL) != TRP_OK)
            print_text(stderr, "%s\n", trp_last_error());
    }
    troupe__replay_tables_response__free_unpacked(tables, NULL);
    return TRP_OK;
}

static trp_status bench_begin(struct bench *bench)
{
    const struct target *target = &bench->work->target;
    if (target->server || target->files)
        return trp_fail(TRP_FAILED_PRECONDITION, "%s is no live server: name its address",
                        target->text);
    char *host = bench_host();
    bench->table = xasprintf("%s%ld", host, (long)getpid());
    trp_status status = left_drop(bench, host);
    free(host);
    return status == TRP_OK ? bench_table(bench) : status;
}

static trp_status bench_work(struct work *work)
{
    struct bench *bench = xcalloc(1, sizeof *bench);
    bench->work = work;
    bench->writers = work->args->writers;
    bench->samplers = work->args->samplers;
    bench->column = (trp_tensor_spec){
        .name = "bytes", .dtype = TRP_UINT8, .rank = 1, .shape = {(int64_t)work->args->item_bytes}};
    trp_status status = bench_begin(bench);
    if (status == TRP_OK)
        status = table_drop(bench, bench_run(bench));
    if (status == TRP_OK)
        results_print(bench);
    for (size_t i = 0; i < bench->writers + bench->samplers; i++) {
        free(bench->threads[i].latencies);
        free(bench->threads[i].failure);
    }
    free(bench->table);
    free(bench);
    return status;
}

int replay_bench(const struct cli_call *call)
{
    sigset_t signals = bench_signals();
    sigprocmask(SIG_BLOCK, &signals, NULL);
    return target_run(call, TARGET_READ, bench_work);
}
