/* Batches are ready before they are asked for: a thread keeps requests on their way, unpacks what
 * comes straight into the columns of a free batch, and hands full ones over in order. With prefetch
 * 0 the same code runs on the caller's thread and asks for exactly the batch that is wanted.
 *
 * The server reads a request only when the one before is satisfied, so requests sent ahead keep it
 * busy while ours are unpacked; SAMPLER_BATCHES_AHEAD bounds how much is drawn before it is wanted
 * (priorities go stale, a queue's items are gone once drawn). Those in flight are lost when the
 * sampler stops, never more.
 *
 * A stream that ends because the limiter held it back for limiter_timeout_ms, or because the server
 * went away, is an event for whoever waits in trp_sampler_next(); the rows that came before it stay
 * in their batch. Any other end, and any sample that is not what was asked for, is final. */
#include <troupe/sampler.h>

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/thread.h"
#include "link.h"
#include "unary.h"
#include "unpack.h"
#include "wire.h"

static const char sample_path[] = "/deepmind.reverb.ReverbService/SampleStream";

/* Reverb's words, which tell a limiter's timeout from any other deadline. */
static const char limiter_words[] = "Timeout exceeded before the right to insert was acquired";

struct trp_sampler {
    /* Of whoever fills batches: the thread, or the caller when there is none. */
    struct link link;
    struct unpacker *unpacker;
    char *table;
    uint32_t batch_size;
    int64_t limiter_timeout_ms;
    int64_t requested; /* samples asked for on this stream that are in no batch yet */
    bool refused;      /* the stream takes no more requests; what is on its way still comes */
    uint32_t batches_ahead;
    _Atomic bool unreachable; /* the last stream was lost, nothing came since */

    struct batch *batches; /* a ring: [lent] [full ...] [filling] */
    uint32_t batch_count;

    struct mutex mutex; /* guards what follows */
    struct cond changed;
    uint32_t first, full; /* the oldest full batch and how many follow it */
    bool lent;            /* the batch before `first` is the caller's */
    bool waiting;         /* a caller wants a batch */
    bool stopped;
    trp_status event;   /* passing: the next waiter gets it */
    trp_status failure; /* final */
    char *event_text, *failure_text;
    struct thread thread;
};

/* ---- filling a batch ------------------------------------------------------------------------- */

static trp_status send_request(trp_sampler *sampler, int64_t samples, struct deadline deadline,
                               bool *ended)
{
    struct wire_sample_request request = {
        .table = {(const uint8_t *)sampler->table, strlen(sampler->table)},
        .num_samples = samples,
        .has_timeout = true,
        .timeout_ms = sampler->limiter_timeout_ms < 0 ? -1 : sampler->limiter_timeout_ms,
    };
    trp_message *message;
    TRP_TRY(wire_sample_request_encode(&request, &message));
    TRP_TRY(link_send(&sampler->link, message, deadline, ended));
    sampler->requested += samples;
    return TRP_OK;
}

/* Asks for what `batch` lacks and for the batches ahead, as far as that is not on its way. Waits
 * for room only while nothing else is: the server may not take a request before the last is
 * satisfied.
 */
static trp_status request_more(trp_sampler *sampler, const struct batch *batch,
                               struct deadline deadline)
{
    int64_t missing = (int64_t)batch->capacity - batch->rows;
    int64_t wanted = missing + (int64_t)sampler->batches_ahead * sampler->batch_size;
    while (!sampler->refused && sampler->requested < wanted &&
           (sampler->requested == 0 || trp_stream_writable(sampler->link.stream))) {
        int64_t most = wanted - sampler->requested;
        if (sampler->requested < missing)
            most = missing - sampler->requested; /* so that requests end with batches */
        else if (most > sampler->batch_size)
            most = sampler->batch_size;
        trp_status status = send_request(sampler, most, deadline, &sampler->refused);
        if (status != TRP_OK && !sampler->refused)
            return status;
    }
    return TRP_OK;
}

static trp_status receive_samples(trp_sampler *sampler, struct deadline deadline, bool *ended)
{
    trp_message *message;
    TRP_TRY(link_receive(&sampler->link, &message, deadline, ended));
    link_works(&sampler->link);
    sampler->unreachable = false;
    return unpacker_feed(sampler->unpacker, message);
}

/* Rows of the message that came last into `batch`. */
static trp_status take_rows(trp_sampler *sampler, struct batch *batch)
{
    uint32_t before = batch->rows;
    TRP_TRY(unpacker_fill(sampler->unpacker, batch));
    sampler->requested -= batch->rows - before;
    if (sampler->requested < 0)
        return trp_fail(TRP_INTERNAL, "%s sent more samples than were asked for",
                        trp_channel_address(sampler->link.channel));
    return TRP_OK;
}

/* The stream is over. What had begun to come is forgotten; full rows are in their batch. */
static trp_status stream_ended(trp_sampler *sampler, trp_status status)
{
    const char *address = trp_channel_address(sampler->link.channel);
    unpacker_reset(sampler->unpacker);
    sampler->requested = 0;
    sampler->refused = false;
    if (status == TRP_DEADLINE_EXCEEDED && strstr(trp_last_error(), limiter_words)) {
        link_close(&sampler->link);
        sampler->unreachable = false;
        return trp_fail(TRP_DEADLINE_EXCEEDED,
                        "table '%s' at %s gave no sample for %" PRId64
                        " ms: its limiter holds back",
                        sampler->table, address, sampler->limiter_timeout_ms);
    }
    if (!link_is_transient(status))
        return trp_fail(status == TRP_DEADLINE_EXCEEDED ? TRP_UNKNOWN : status,
                        "sampling from '%s' at %s: %s", sampler->table, address, trp_last_error());
    link_lose(&sampler->link);
    sampler->unreachable = true;
    return trp_fail(TRP_UNAVAILABLE, "%s went away: %s", address, sampler->link.lost);
}

/* Until `batch` is full. DEADLINE_EXCEEDED: the deadline or the limiter; UNAVAILABLE: the server;
 * in both cases call again. Rows that came are kept. */
static trp_status fill_batch(trp_sampler *sampler, struct batch *batch, struct deadline deadline)
{
    for (;;) {
        bool ended = false;
        TRP_TRY(take_rows(sampler, batch));
        if (batch->rows == batch->capacity)
            return TRP_OK;
        trp_status status = link_open(&sampler->link, deadline);
        TRP_TRY(status);
        status = request_more(sampler, batch, deadline);
        if (status == TRP_OK)
            status = receive_samples(sampler, deadline, &ended);
        if (ended)
            status = stream_ended(sampler, status);
        TRP_TRY(status);
    }
}

static bool is_passing(trp_status status)
{
    return status == TRP_DEADLINE_EXCEEDED || status == TRP_UNAVAILABLE;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void note_locked(trp_status status, trp_status *code, char **text)
{
    free(*text);
    *code = status;
    *text = status == TRP_OK ? NULL : xstrdup(trp_last_error());
}

/* What filling came to. After a limiter's timeout nothing is asked for until somebody waits again:
 * a server that answers at once would be asked for ever. False: the thread is done. */
static bool settle_locked(trp_sampler *sampler, trp_status status)
{
    if (status == TRP_OK)
        sampler->full++;
    else if (!is_passing(status))
        note_locked(status, &sampler->failure, &sampler->failure_text);
    else if (sampler->waiting)
        note_locked(status, &sampler->event, &sampler->event_text);
    cond_broadcast(&sampler->changed);
    while (status == TRP_DEADLINE_EXCEEDED && !sampler->stopped &&
           (!sampler->waiting || sampler->event != TRP_OK))
        cond_wait(&sampler->changed, &sampler->mutex, DEADLINE_NEVER);
    return sampler->failure == TRP_OK;
}

/* The next batch to fill; NULL once stopped. */
static struct batch *free_batch_locked(trp_sampler *sampler)
{
    while (!sampler->stopped && sampler->full + sampler->lent == sampler->batch_count)
        cond_wait(&sampler->changed, &sampler->mutex, DEADLINE_NEVER);
    return sampler->stopped
               ? NULL
               : &sampler->batches[(sampler->first + sampler->full) % sampler->batch_count];
}

static void sampler_run(void *arg)
{
    trp_sampler *sampler = arg;
    bool running = true;
    mutex_lock(&sampler->mutex);
    while (running) {
        struct batch *batch = free_batch_locked(sampler);
        if (!batch)
            break;
        mutex_unlock(&sampler->mutex);
        trp_status status = fill_batch(sampler, batch, DEADLINE_NEVER);
        mutex_lock(&sampler->mutex);
        running = !sampler->stopped && settle_locked(sampler, status);
    }
    mutex_unlock(&sampler->mutex);
}

/* ---- the caller ------------------------------------------------------------------------------ */

static void lend_locked(trp_sampler *sampler, trp_batch *batch)
{
    const struct batch *from = &sampler->batches[sampler->first];
    *batch = (trp_batch){
        .rows = from->rows,
        .columns = from->columns,
        .keys = from->keys,
        .priorities = from->priorities,
        .probabilities = from->probabilities,
        .table_sizes = from->table_sizes,
        .times_sampled = from->times_sampled,
    };
    sampler->lent = true;
    sampler->first = (sampler->first + 1) % sampler->batch_count;
    sampler->full--;
}

/* The batch lent before is free again. */
static void take_back_locked(trp_sampler *sampler)
{
    if (!sampler->lent)
        return;
    uint32_t lent = (sampler->first + sampler->batch_count - 1) % sampler->batch_count;
    sampler->batches[lent].rows = 0;
    sampler->lent = false;
}

static trp_status timed_out(const trp_sampler *sampler, int64_t timeout_ms)
{
    const char *address = trp_channel_address(sampler->link.channel);
    if (sampler->unreachable)
        return trp_fail(TRP_UNAVAILABLE, "%s went away and has not answered for %" PRId64 " ms",
                        address, timeout_ms);
    return trp_fail(TRP_DEADLINE_EXCEEDED, "table '%s' at %s gave no batch of %u in %" PRId64 " ms",
                    sampler->table, address, sampler->batch_size, timeout_ms);
}

static trp_status wait_locked(trp_sampler *sampler, int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    bool in_time = true;
    note_locked(TRP_OK, &sampler->event, &sampler->event_text);
    sampler->waiting = true;
    cond_broadcast(&sampler->changed);
    while (!sampler->full && !sampler->stopped && sampler->failure == TRP_OK &&
           sampler->event == TRP_OK && in_time)
        in_time = cond_wait(&sampler->changed, &sampler->mutex, deadline);
    sampler->waiting = false;
    if (sampler->stopped)
        return trp_fail(TRP_CANCELLED, "the sampler of table '%s' was stopped", sampler->table);
    if (sampler->full)
        return TRP_OK;
    if (sampler->failure != TRP_OK)
        return trp_fail(sampler->failure, "%s", sampler->failure_text);
    if (sampler->event != TRP_OK)
        return trp_fail(sampler->event, "%s", sampler->event_text);
    return timed_out(sampler, timeout_ms);
}

/* Without a thread: the caller fills the one batch there is. */
static trp_status next_inline(trp_sampler *sampler, int64_t timeout_ms)
{
    struct deadline deadline = deadline_in_ms(&clock_monotonic, timeout_ms);
    if (sampler->failure != TRP_OK)
        return trp_fail(sampler->failure, "%s", sampler->failure_text);
    trp_status status = trp_stop_requested(sampler->link.stop)
                            ? TRP_CANCELLED
                            : fill_batch(sampler, &sampler->batches[0], deadline);
    if (trp_stop_requested(sampler->link.stop))
        return trp_fail(TRP_CANCELLED, "the sampler of table '%s' was stopped", sampler->table);
    if (status == TRP_OK)
        sampler->full = 1;
    else if (!is_passing(status))
        note_locked(status, &sampler->failure, &sampler->failure_text);
    if (status != TRP_DEADLINE_EXCEEDED || !deadline_passed(deadline, &clock_monotonic))
        return status;
    return timed_out(sampler, timeout_ms);
}

trp_status trp_sampler_next(trp_sampler *sampler, trp_batch *batch, int64_t timeout_ms)
{
    mutex_lock(&sampler->mutex);
    take_back_locked(sampler);
    trp_status status = sampler->thread.running ? wait_locked(sampler, timeout_ms)
                                                : next_inline(sampler, timeout_ms);
    if (status == TRP_OK)
        lend_locked(sampler, batch);
    mutex_unlock(&sampler->mutex);
    return status;
}

void trp_sampler_stop(trp_sampler *sampler)
{
    if (sampler->thread.running) { /* without one the waiting caller holds the mutex */
        mutex_lock(&sampler->mutex);
        sampler->stopped = true; /* first: what ends the stream must not look like a failure */
        cond_broadcast(&sampler->changed);
        mutex_unlock(&sampler->mutex);
    }
    link_stop(&sampler->link);
}

/* ---- life ------------------------------------------------------------------------------------ */

static trp_status check_options(const trp_sampler_options *options)
{
    if (!options->table || !*options->table)
        return trp_fail(TRP_INVALID_ARGUMENT, "sampler: no table was named");
    if (options->batch_size == 0 || options->column_count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "sampler of '%s': a batch of %u rows, %zu columns",
                        options->table, options->batch_size, options->column_count);
    if (options->prefetch >= SAMPLER_PREFETCH_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "sampler of '%s': prefetch %u, at most %d",
                        options->table, options->prefetch, SAMPLER_PREFETCH_MAX - 1);
    return TRP_OK;
}

static trp_status init_batches(trp_sampler *sampler, const trp_sampler_options *options)
{
    sampler->batches = xcalloc(sampler->batch_count, sizeof *sampler->batches);
    for (uint32_t i = 0; i < sampler->batch_count; i++)
        TRP_TRY(batch_init(&sampler->batches[i], options->columns, options->column_count,
                           options->batch_size));
    return TRP_OK;
}

trp_status trp_sampler_create(trp_sampler **out, trp_channel *channel,
                              const trp_sampler_options *options)
{
    *out = NULL;
    TRP_TRY(check_options(options));
    TRP_TRY(info_check_columns(channel, options->table, options->columns, options->column_count));
    trp_sampler *sampler = xcalloc(1, sizeof *sampler);
    link_init(&sampler->link, channel, sample_path);
    sampler->unpacker = unpacker_create(options->columns, options->column_count);
    sampler->table = xstrdup(options->table);
    sampler->batch_size = options->batch_size;
    sampler->limiter_timeout_ms = options->limiter_timeout_ms;
    sampler->batches_ahead = options->prefetch ? SAMPLER_BATCHES_AHEAD : 0;
    sampler->batch_count = options->prefetch + 1;
    mutex_init(&sampler->mutex);
    cond_init(&sampler->changed);
    trp_status status = init_batches(sampler, options);
    if (status == TRP_OK && options->prefetch)
        status = thread_start(&sampler->thread, "sampler", sampler_run, sampler);
    if (status == TRP_OK)
        *out = sampler;
    else
        trp_sampler_destroy(sampler);
    return status;
}

void trp_sampler_destroy(trp_sampler *sampler)
{
    if (!sampler)
        return;
    trp_sampler_stop(sampler);
    thread_stop(&sampler->thread);
    size_t column_count;
    unpacker_columns(sampler->unpacker, &column_count);
    link_cleanup(&sampler->link);
    for (uint32_t i = 0; sampler->batches && i < sampler->batch_count; i++)
        batch_cleanup(&sampler->batches[i], column_count);
    free(sampler->batches);
    unpacker_destroy(sampler->unpacker);
    free(sampler->table);
    free(sampler->event_text);
    free(sampler->failure_text);
    cond_cleanup(&sampler->changed);
    mutex_cleanup(&sampler->mutex);
    free(sampler);
}
