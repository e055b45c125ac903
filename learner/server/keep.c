/* PATH.safetensors is the shard as it was when its log began, whose number it names; PATH.log has
 * records, each with a checksum. A record that the file ends in was not answered: it is cut off.
 * One that is there and is not what was written, or cannot be read, ends the load: those behind it
 * were answered, and nothing of the file is touched. Files survive the death of the process as soon
 * as they are written; of the host what the last checkpoint has. */
#include "keep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <troupe/checkpoint.h>
#include <troupe/log.h>
#include "core/alloc.h"
#include "core/crc32c.h"
#include "core/file.h"
#include "limits.h"
#include "optimizer_message.h"

struct log_head {
    uint64_t magic, number;
};

struct log_record {
    uint32_t crc, kind; /* the CRC is of all behind it */
    uint32_t worker;
    float scale;
    uint64_t sequence, version, new_steps;
    uint64_t range_count, numbers;
};

#define LOG_MAGIC UINT64_C(0x31676f6c70727470) /* "ptrplog1" */

static trp_status log_failed(const struct shard_keep *keep)
{
    return trp_fail(file_errno_status(errno, TRP_INTERNAL), "%s: %s", keep->log,
                    file_errno_words(errno));
}

void keep_init(struct shard_keep *keep, const char *dir, const char *vector, bool logs)
{
    *keep = (struct shard_keep){.fd = -1, .logs = logs};
    if (!dir)
        return;
    keep->checkpoint = xasprintf("%s/%s.safetensors", dir, vector);
    keep->log = xasprintf("%s/%s.log", dir, vector);
}

void keep_cleanup(struct shard_keep *keep)
{
    if (keep->log)
        fd_close(keep->fd);
    free(keep->checkpoint);
    free(keep->log);
    *keep = (struct shard_keep){.fd = -1};
}

/* ---- checkpoints --------------------------------------------------------------------------- */

enum { COUNTERS = 9, KEEP_TENSORS = 16 };

static trp_checkpoint_tensor tensor_of(const char *name, trp_checkpoint_type type, size_t count,
                                       const void *data)
{
    return (trp_checkpoint_tensor){
        .name = name, .type = type, .rank = 1, .shape = {count}, .data = data};
}

/* Everything of a shard that changes, as tensors: two columns of its workers, its counters, its
 * numbers. `columns` and `counters` are the caller's memory. */
static size_t shard_tensors(const struct param_shard *shard, uint64_t *columns, uint64_t *counters,
                            trp_checkpoint_tensor tensors[KEEP_TENSORS])
{
    size_t count = 0, workers = shard->options.workers;
    tensors[count++] = tensor_of("values", TRP_CHECKPOINT_F32, shard->count, shard->values);
    for (size_t k = 0; k < trp_optimizer_states(&shard->options.optimizer); k++)
        tensors[count++] = tensor_of(trp_optimizer_state_name(&shard->options.optimizer, k),
                                     TRP_CHECKPOINT_F32, shard->count, shard->state[k]);
    if (shard->sum)
        tensors[count++] = tensor_of("sum", TRP_CHECKPOINT_F64, shard->count, shard->sum);
    if (shard->effects) {
        tensors[count++] = tensor_of("effects", TRP_CHECKPOINT_U64, 2 * (size_t)shard->effect_count,
                                     shard->effects);
        tensors[count++] = tensor_of("means", TRP_CHECKPOINT_F32,
                                     shard->effect_count * shard->count, shard->means);
    }
    tensors[count++] = tensor_of("workers", TRP_CHECKPOINT_U64, 2 * workers, columns);
    tensors[count++] = tensor_of("counters", TRP_CHECKPOINT_U64, COUNTERS, counters);
    return count;
}

static void put_counters(const struct param_shard *shard, uint64_t steps, uint64_t number,
                         uint64_t counters[COUNTERS])
{
    const uint64_t values[COUNTERS] = {shard->steps,  shard->version, shard->first_version,
                                       shard->rounds, shard->pushes,  shard->dropped,
                                       shard->summed, steps,          number};
    memcpy(counters, values, sizeof values);
}

static trp_status take_counters(struct shard_keep *keep, struct param_shard *shard,
                                const uint64_t counters[COUNTERS], uint64_t *steps)
{
    if (counters[6] > UINT32_MAX)
        return trp_fail(TRP_DATA_LOSS,
                        "%s: the server's gradients of a step are %" PRIu64 ", which no server has",
                        keep->checkpoint, counters[6]);
    shard->steps = counters[0];
    shard->version = counters[1];
    shard->first_version = counters[2];
    shard->rounds = counters[3];
    shard->pushes = counters[4];
    shard->dropped = counters[5];
    shard->summed = (uint32_t)counters[6];
    *steps = counters[7];
    keep->log_number = keep->number = counters[8];
    return TRP_OK;
}

/* Of a life: what decides what came of its messages. */
enum { RULE_NUMBERS = 4 };

static void rule_numbers(const struct shard_options *options, uint64_t numbers[RULE_NUMBERS])
{
    numbers[0] = options->rule;
    numbers[1] = options->slack;
    numbers[2] = options->softness;
    numbers[3] = options->max_staleness;
}

static trp_status take_rule(const uint64_t numbers[RULE_NUMBERS], struct shard_options *options)
{
    static const char *const names[RULE_NUMBERS] = {"rule", "slack", "softness", "max_staleness"};
    for (size_t i = 0; i < RULE_NUMBERS; i++)
        if (numbers[i] > (i == 0 ? TRP_SERVER_DYNSGD : UINT32_MAX))
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "the server's %s is %" PRIu64 ", which no server has", names[i],
                            numbers[i]);
    options->rule = (trp_server_rule)numbers[0];
    options->slack = (uint32_t)numbers[1];
    options->softness = (uint32_t)numbers[2];
    options->max_staleness = (uint32_t)numbers[3];
    return TRP_OK;
}

/* Older files say neither, or not the rule: it was this one. */
static trp_status options_of_life(const trp_checkpoint *checkpoint, struct shard_options *options)
{
    double optimizer[OPTIMIZER_NUMBERS];
    uint64_t rule[RULE_NUMBERS];
    trp_status status = trp_checkpoint_get(checkpoint, "optimizer", TRP_CHECKPOINT_F64,
                                           OPTIMIZER_NUMBERS, optimizer);
    if (status == TRP_OK)
        status = optimizer_of_numbers(optimizer, &options->optimizer);
    if (status != TRP_OK && status != TRP_NOT_FOUND)
        return status;
    status = trp_checkpoint_get(checkpoint, "rule", TRP_CHECKPOINT_U64, RULE_NUMBERS, rule);
    if (status == TRP_OK)
        status = take_rule(rule, options);
    return status == TRP_NOT_FOUND ? TRP_OK : status;
}

static bool are_alike(const struct shard_options *a, const struct shard_options *b)
{
    double optimizer[2][OPTIMIZER_NUMBERS];
    uint64_t rule[2][RULE_NUMBERS];
    optimizer_numbers(&a->optimizer, optimizer[0]);
    optimizer_numbers(&b->optimizer, optimizer[1]);
    rule_numbers(a, rule[0]);
    rule_numbers(b, rule[1]);
    return memcmp(optimizer[0], optimizer[1], sizeof optimizer[0]) == 0 &&
           memcmp(rule[0], rule[1], sizeof rule[0]) == 0;
}

static void close_log(struct shard_keep *keep)
{
    fd_close(keep->fd);
    keep->fd = -1;
    keep->bytes = keep->changes = keep->failed_at = 0;
    keep->torn = false;
}

static uint64_t log_bytes_max(const struct param_shard *shard)
{
    uint64_t bytes = KEEP_LOG_VECTORS * sizeof(float) * (uint64_t)shard->count;
    return bytes > KEEP_LOG_BYTES ? bytes : KEEP_LOG_BYTES;
}

trp_status keep_save(struct shard_keep *keep, const struct param_shard *shard, uint64_t steps,
                     bool now)
{
    uint64_t grown = keep->logs ? keep->bytes : keep->changes;
    uint64_t enough = keep->logs ? log_bytes_max(shard) : KEEP_CHANGES;
    if (!keep->checkpoint || (grown - keep->failed_at < enough && !now))
        return TRP_OK;
    uint64_t counters[COUNTERS];
    uint64_t *columns = xcalloc(shard->options.workers, 2 * sizeof *columns);
    trp_checkpoint_tensor tensors[KEEP_TENSORS];
    for (uint32_t i = 0; i < shard->options.workers; i++) {
        columns[2 * i] = shard->workers[i].clock;
        columns[2 * i + 1] = shard->workers[i].present;
    }
    put_counters(shard, steps, keep->number + 1, counters);
    size_t count = shard_tensors(shard, columns, counters, tensors);
    double optimizer[OPTIMIZER_NUMBERS];
    uint64_t rule[RULE_NUMBERS];
    optimizer_numbers(&shard->options.optimizer, optimizer);
    rule_numbers(&shard->options, rule);
    tensors[count++] = tensor_of("optimizer", TRP_CHECKPOINT_F64, OPTIMIZER_NUMBERS, optimizer);
    tensors[count++] = tensor_of("rule", TRP_CHECKPOINT_U64, RULE_NUMBERS, rule);
    const uint64_t covered[] = {keep->log_number,
                                keep->bytes > 0 ? keep->bytes : sizeof(struct log_head)};
    tensors[count++] = tensor_of("covered_log", TRP_CHECKPOINT_U64, 2, covered);
    trp_status status = trp_checkpoint_write(keep->checkpoint, tensors, count, NULL, 0);
    free(columns);
    keep->failed_at = grown;
    TRP_TRY(status);
    keep->log_number = ++keep->number;
    close_log(keep);
    return TRP_OK;
}

/* Older files do not say it. */
static trp_status take_covered(struct shard_keep *keep, const trp_checkpoint *checkpoint)
{
    memset(keep->covered, 0, sizeof keep->covered);
    trp_status status =
        trp_checkpoint_get(checkpoint, "covered_log", TRP_CHECKPOINT_U64, 2, keep->covered);
    return status == TRP_NOT_FOUND ? TRP_OK : status;
}

static trp_status load_checkpoint(struct shard_keep *keep, struct param_shard *shard,
                                  const trp_checkpoint *checkpoint, uint64_t *steps)
{
    uint64_t counters[COUNTERS];
    uint64_t *columns = xcalloc(shard->options.workers, 2 * sizeof *columns);
    trp_checkpoint_tensor tensors[KEEP_TENSORS];
    size_t count = shard_tensors(shard, columns, counters, tensors);
    trp_status status = TRP_OK;
    for (size_t i = 0; i < count && status == TRP_OK; i++)
        status = trp_checkpoint_get(checkpoint, tensors[i].name, tensors[i].type,
                                    tensors[i].shape[0], (void *)(uintptr_t)tensors[i].data);
    for (uint32_t i = 0; status == TRP_OK && i < shard->options.workers; i++)
        shard->workers[i] =
            (struct shard_worker){.clock = columns[2 * i], .present = columns[2 * i + 1] != 0};
    if (status == TRP_OK)
        status = take_counters(keep, shard, counters, steps);
    if (status == TRP_OK)
        status = take_covered(keep, checkpoint);
    free(columns);
    if (status == TRP_FAILED_PRECONDITION) /* tensors of other sizes */
        status =
            trp_fail(status, "%s: a server goes on with as many servers and learners as before",
                     trp_last_error());
    return status;
}

/* ---- the log ------------------------------------------------------------------------------- */

static uint32_t record_crc(const struct log_record *record, const void *ranges, const void *grads)
{
    uint32_t crc = crc32c(0, (const uint8_t *)record + sizeof record->crc,
                          sizeof *record - sizeof record->crc);
    crc = crc32c(crc, ranges, record->range_count * sizeof(struct shard_range));
    return crc32c(crc, grads, record->numbers * sizeof(float));
}

/* To the end of the log. */
static trp_status put_records(struct shard_keep *keep, struct iovec *parts, int count)
{
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += parts[i].iov_len;
    while (count > 0) {
        ssize_t written = writev(keep->fd, parts, count);
        if (written < 0 && errno != EINTR) {
            keep->torn = true;
            return log_failed(keep);
        }
        for (; written > 0 && count > 0; parts++, count--) {
            size_t part = (size_t)written < parts->iov_len ? (size_t)written : parts->iov_len;
            parts->iov_base = (uint8_t *)parts->iov_base + part;
            parts->iov_len -= part;
            written -= (ssize_t)part;
            if (parts->iov_len > 0)
                break;
        }
        while (count > 0 && parts->iov_len == 0) {
            parts++;
            count--;
        }
    }
    keep->bytes += bytes;
    return TRP_OK;
}

/* A file that ends behind its last whole record; where the checkpoint has no log yet, a new one. */
static trp_status open_log(struct shard_keep *keep)
{
    if (keep->torn && ftruncate(keep->fd, (off_t)keep->bytes) != 0)
        return log_failed(keep);
    keep->torn = false;
    if (keep->bytes > 0)
        return TRP_OK;
    fd_close(keep->fd);
    keep->fd = own_file_open(keep->log, O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
    if (keep->fd < 0)
        return log_failed(keep);
    struct log_head head = {LOG_MAGIC, keep->log_number};
    return put_records(keep, &(struct iovec){&head, sizeof head}, 1);
}

trp_status keep_append(struct shard_keep *keep, enum keep_kind kind, const struct shard_push *push,
                       uint64_t new_steps)
{
    keep->changes++;
    if (!keep_logs(keep))
        return TRP_OK;
    struct log_record record = {.kind = kind,
                                .worker = push->worker,
                                .scale = push->scale,
                                .sequence = push->sequence,
                                .version = push->version,
                                .new_steps = new_steps,
                                .range_count = push->range_count};
    for (size_t i = 0; i < push->range_count; i++)
        record.numbers += push->ranges[i].hi - push->ranges[i].lo;
    record.crc = record_crc(&record, push->ranges, push->grads);
    struct iovec parts[] = {
        {&record, sizeof record},
        {(void *)(uintptr_t)push->ranges, push->range_count * sizeof *push->ranges},
        {(void *)(uintptr_t)push->grads, record.numbers * sizeof(float)}};
    TRP_TRY(open_log(keep));
    return put_records(keep, parts, 3);
}

/* ---- after a restart ----------------------------------------------------------------------- */

struct logged_record {
    struct log_record record;
    struct shard_range *ranges;
    float *grads;
};

/* *whole: the file does not end before. */
static trp_status read_part(const struct shard_keep *keep, uint64_t from, void *bytes, size_t size,
                            bool *whole)
{
    size_t done = 0;
    *whole = true;
    while (done < size && *whole) {
        ssize_t got = pread(keep->fd, (uint8_t *)bytes + done, size - done, (off_t)(from + done));
        if (got < 0 && errno != EINTR)
            return log_failed(keep);
        *whole = got != 0;
        done += got > 0 ? (size_t)got : 0;
    }
    return TRP_OK;
}

static trp_status log_damaged(const struct shard_keep *keep)
{
    return trp_fail(TRP_DATA_LOSS,
                    "%s is damaged at byte %" PRIu64 " of it: %" PRIu64
                    " messages before it are whole; remove it, and the server goes on from %s, "
                    "which is older",
                    keep->log, keep->bytes, keep->changes, keep->checkpoint);
}

/* The one behind keep->bytes. *whole: the file does not end in it. */
static trp_status read_record(const struct shard_keep *keep, const struct param_shard *shard,
                              struct logged_record *replayed, bool *whole)
{
    struct log_record *record = &replayed->record;
    uint64_t at = keep->bytes;
    size_t numbers;
    TRP_TRY(read_part(keep, at, record, sizeof *record, whole));
    if (!*whole)
        return TRP_OK;
    if (record->range_count > shard->count || record->numbers > shard->count ||
        record->worker >= shard->options.workers)
        return log_damaged(keep);
    size_t range_bytes = record->range_count * sizeof *replayed->ranges;
    replayed->ranges = xrealloc(replayed->ranges, range_bytes + sizeof *replayed->ranges);
    TRP_TRY(read_part(keep, at += sizeof *record, replayed->ranges, range_bytes, whole));
    if (*whole)
        TRP_TRY(read_part(keep, at + range_bytes, replayed->grads, record->numbers * sizeof(float),
                          whole));
    if (*whole && (record_crc(record, replayed->ranges, replayed->grads) != record->crc ||
                   shard_check(shard, replayed->ranges, record->range_count, &numbers) != TRP_OK ||
                   numbers != record->numbers))
        return log_damaged(keep);
    return TRP_OK;
}

static void do_again(struct param_shard *shard, const struct logged_record *replayed,
                     uint64_t *steps)
{
    const struct log_record *record = &replayed->record;
    if (record->kind == KEEP_JOIN)
        shard_join(shard, record->worker);
    else if (record->kind == KEEP_LEAVE)
        shard_leave(shard, record->worker);
    else
        shard_push(shard, &(struct shard_push){.worker = record->worker,
                                               .sequence = record->sequence,
                                               .version = record->version,
                                               .scale = record->scale,
                                               .ranges = replayed->ranges,
                                               .range_count = record->range_count,
                                               .grads = replayed->grads});
    *steps += record->new_steps;
}

static trp_status replay_records(struct shard_keep *keep, struct param_shard *shard,
                                 struct logged_record *replayed, uint64_t *steps)
{
    for (bool whole;;) {
        TRP_TRY(read_record(keep, shard, replayed, &whole));
        if (!whole)
            return TRP_OK;
        do_again(shard, replayed, steps);
        keep->changes++;
        keep->bytes += sizeof replayed->record +
                       replayed->record.range_count * sizeof *replayed->ranges +
                       replayed->record.numbers * sizeof(float);
    }
}

/* Where what a checkpoint has not got begins in a log; 0: nowhere. A checkpoint that was said to
 * have failed may be there all the same: what came after it is in the log that went on then. */
static uint64_t log_begins(const struct shard_keep *keep, const struct log_head *head)
{
    if (head->number == keep->number)
        return sizeof *head;
    return head->number == keep->covered[0] ? keep->covered[1] : 0;
}

/* Goes on behind the last whole record. */
static trp_status replay_log(struct shard_keep *keep, struct param_shard *shard, uint64_t *steps)
{
    struct log_head head;
    bool whole;
    keep->fd = own_file_open(keep->log, O_RDWR | O_APPEND, 0);
    if (keep->fd < 0)
        return errno == ENOENT ? TRP_OK : log_failed(keep);
    TRP_TRY(read_part(keep, 0, &head, sizeof head, &whole));
    if (whole && (head.magic != LOG_MAGIC || head.number > keep->number))
        return log_damaged(keep);
    if (!whole || log_begins(keep, &head) == 0)
        return TRP_OK; /* of a checkpoint before: all of it is in this one */
    struct logged_record replayed = {.grads = xcalloc(shard->count + 1, sizeof(float))};
    keep->bytes = log_begins(keep, &head);
    keep->log_number = head.number;
    trp_status status = replay_records(keep, shard, &replayed, steps);
    free(replayed.ranges);
    free(replayed.grads);
    keep->torn = true; /* it may be: cut off before the next one is appended */
    return status;
}

/* The shard as the life that wrote the files left it, by its own options. */
static trp_status load_life(struct shard_keep *keep, struct param_shard *shard,
                            const trp_checkpoint *checkpoint, uint64_t *steps)
{
    TRP_TRY(load_checkpoint(keep, shard, checkpoint, steps));
    return replay_log(keep, shard, steps); /* which that life wrote, whatever this one does */
}

/* Of other options there is no log, until this life's. */
static trp_status go_on_with(struct shard_keep *keep, struct param_shard *shard,
                             const struct shard_options *own, uint64_t *steps)
{
    if (are_alike(&shard->options, own))
        return TRP_OK;
    trp_status status = shard_change(shard, own);
    if (status != TRP_OK)
        return trp_fail(status, "%s: %s", keep->checkpoint, trp_last_error());
    return keep_save(keep, shard, *steps, true);
}

static trp_status load_both(struct shard_keep *keep, struct param_shard *shard,
                            const trp_checkpoint *checkpoint, uint64_t *steps)
{
    const struct shard_options own = shard->options;
    struct shard_options life = own;
    float *values = shard->values;
    size_t count = shard->count;
    trp_status status = options_of_life(checkpoint, &life);
    if (status == TRP_OK) {
        shard_destroy(shard);
        status = shard_create(shard, &life, values, count);
    }
    if (status != TRP_OK)
        return trp_fail(TRP_DATA_LOSS, "%s: %s", keep->checkpoint, trp_last_error());
    TRP_TRY(load_life(keep, shard, checkpoint, steps));
    TRP_TRY(go_on_with(keep, shard, &own, steps));
    if (keep->logs)
        return TRP_OK;
    shard_skip_versions(shard, KEEP_VERSION_GAP);
    return keep_save(keep, shard, *steps, true);
}

trp_status keep_load(struct shard_keep *keep, struct param_shard *shard, uint64_t *steps,
                     bool *found)
{
    trp_checkpoint *checkpoint = NULL;
    *found = false;
    if (!keep->checkpoint)
        return TRP_OK;
    trp_status status = trp_checkpoint_read(&checkpoint, keep->checkpoint);
    if (status == TRP_NOT_FOUND && access(keep->log, F_OK) == 0)
        return trp_fail(TRP_DATA_LOSS,
                        "%s is there, and %s, which it goes on from, is not: bring it back, or "
                        "remove the log to begin anew",
                        keep->log, keep->checkpoint);
    if (status == TRP_NOT_FOUND)
        return TRP_OK;
    if (status == TRP_OK)
        status = load_both(keep, shard, checkpoint, steps);
    *found = status == TRP_OK;
    trp_checkpoint_destroy(checkpoint);
    return status;
}
