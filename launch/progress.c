/* A line a second for people and rows for programs, from what nodes reported since the last time.
 *
 * The line knows the built-in nodes' metrics and shows those that somebody reports, and as many of
 * those of nodes of the program's own as a line has room for; metrics.csv has all of them. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/words.h"
#include "run.h"

/* Totals of a counter when the last line was printed, by node. */
struct rate {
    const char *metric, *label;
    double *last;
    bool *known; /* it has been reported, or begins at 0 */
};

struct run_progress {
    FILE *csv;    /* NULL: could not be opened */
    bool lacks;   /* rows that could not be written, yet */
    bool recalls; /* this life goes on with what those before did */
    int64_t last_ns;
    struct rate actor_steps, learner_steps;
};

/* Nodes that resumed begin with the counts of their earlier lives, whatever these were. */
static struct rate rate_create(const struct run *run, const char *metric, const char *label)
{
    struct rate rate = {.metric = metric, .label = label};
    rate.last = xcalloc(run->program->node_count, sizeof *rate.last);
    rate.known = xcalloc(run->program->node_count, sizeof *rate.known);
    for (uint32_t i = 0; i < run->program->node_count; i++)
        rate.known[i] = !run->options->resume;
    return rate;
}

static void rate_cleanup(struct rate *rate)
{
    free(rate->last);
    free(rate->known);
}

static void warn_of_metrics(const char *path, int error)
{
    trp_log(TRP_WARN, "metrics cannot be written path=%s reason=%s", path, file_errno_words(error));
}

/* A file that is full becomes metrics.csv.1, in place of the one before. */
static FILE *csv_open(const struct run *run)
{
    char *path = xasprintf("%s/metrics.csv", run->dir.path), *old = xasprintf("%s.1", path);
    struct stat info;
    if (stat(path, &info) == 0 && info.st_size >= METRICS_FILE_BYTES_MAX)
        rename(path, old);
    file_cut_torn_line(path);
    FILE *csv = own_file_stream(path, "a");
    if (!csv)
        warn_of_metrics(path, errno);
    else if (ftell(csv) == 0)
        fputs("time,node,metric,last,mean,count\n", csv);
    free(old);
    free(path);
    return csv;
}

/* Learners without a checkpoint begin anew, and so do the counts that they keep of actors. */
static bool run_goes_on(const struct run *run)
{
    bool learns = false;
    for (size_t i = 0; i < run->program->group_count; i++)
        learns |= run->program->groups[i]->kind == NODE_LEARNER;
    char *checkpoint = run_checkpoint(run);
    bool is_saved = checkpoint != NULL;
    free(checkpoint);
    return run->options->resume && (is_saved || !learns);
}

/* In place of a node and its metric: lives before it are none of this run's. */
#define BEGINS_ANEW "-,begins_anew"

static double row_time(void)
{
    return (double)(clock_wall_ns() / 1000000) / 1e3;
}

struct run_progress *run_progress_create(struct run *run)
{
    struct run_progress *progress = xcalloc(1, sizeof *progress);
    progress->recalls = run_goes_on(run);
    progress->csv = csv_open(run);
    if (run->options->resume && !progress->recalls && progress->csv)
        fprintf(progress->csv, "%.3f," BEGINS_ANEW ",1,1,1\n", row_time());
    progress->last_ns = run->started_ns;
    progress->actor_steps = rate_create(run, "actor_steps", "actor steps");
    progress->learner_steps = rate_create(run, "learner_steps", "learner steps");
    return progress;
}

void run_progress_destroy(struct run_progress *progress)
{
    if (!progress)
        return;
    if (progress->csv)
        fclose(progress->csv);
    rate_cleanup(&progress->actor_steps);
    rate_cleanup(&progress->learner_steps);
    free(progress);
}

/* ---- totals over nodes ------------------------------------------------------------------- */

struct total {
    double sum;
    uint32_t count; /* nodes that report it */
};

static struct total total_of(const struct run *run, const char *name)
{
    struct total total = {0, 0};
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        double value;
        if (gangs_counts(run, &run->nodes[i], name) &&
            metrics_last(&run->nodes[i].metrics, name, &value)) {
            total.sum += value;
            total.count++;
        }
    }
    return total;
}

/* ---- the line ---------------------------------------------------------------------------- */

static void TRP_PRINTF(3, 4) append(char *line, size_t size, const char *format, ...)
{
    size_t used = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, size - used, format, args);
    va_end(args);
}

/* 950, 12.3k, 4.56M */
static void append_number(char *line, size_t size, double value)
{
    double magnitude = value < 0 ? -value : value;
    if (magnitude < 10000)
        append(line, size, "%.0f", value);
    else if (magnitude < 1e6)
        append(line, size, "%.1fk", value / 1e3);
    else
        append(line, size, "%.2fM", value / 1e6);
}

/* Appends steps a second since the last line, of the nodes that were in it, and remembers the
 * totals. */
static void append_rate(const struct run *run, char *line, size_t size, struct rate *rate,
                        double seconds)
{
    double steps = 0;
    uint32_t counted = 0;
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        double value;
        if (!metrics_last(&run->nodes[i].metrics, rate->metric, &value))
            continue;
        if (rate->known[i] && gangs_counts(run, &run->nodes[i], rate->metric)) {
            /* A group that goes back to a checkpoint makes its steps again. */
            steps += value > rate->last[i] ? value - rate->last[i] : 0;
            counted++;
        }
        rate->known[i] = true;
        rate->last[i] = value;
    }
    if (counted == 0)
        return;
    append(line, size, "  %s ", rate->label);
    append_number(line, size, seconds > 0 ? steps / seconds : 0);
    append(line, size, "/s");
}

static void append_returns(const struct run *run, char *line, size_t size)
{
    struct total mean = total_of(run, "return"), evaluated = total_of(run, "eval_return");
    if (mean.count > 0)
        append(line, size, "  return %.2f", mean.sum / mean.count);
    if (evaluated.count > 0)
        append(line, size, "  eval %.2f", evaluated.sum / evaluated.count);
}

static void append_replay(const struct run *run, char *line, size_t size)
{
    struct total items = total_of(run, "items"), inserts = total_of(run, "inserts");
    struct total samples = total_of(run, "samples");
    if (items.count == 0)
        return;
    append(line, size, "  replay ");
    append_number(line, size, items.sum);
    if (inserts.sum > 0)
        append(line, size, "  samples/insert %.2f", samples.sum / inserts.sum);
}

static bool is_shown_already(const char *metric)
{
    static const char *const shown[] = {"return",        "eval_return", "actor_steps",
                                        "learner_steps", "items",       "version"};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (strcmp(shown[i], metric) == 0)
            return true;
    return false;
}

/* The mean of what the members of a group last reported, behind the group's name where it is the
 * first of it. */
static void append_mean(const struct run *run, char *line, size_t size,
                        const struct node_group *group, const char *metric, bool *named)
{
    double sum = 0, value;
    uint32_t count = 0;
    for (uint32_t i = group->first; i < group->first + group->count; i++) {
        if (!metrics_last(&run->nodes[i].metrics, metric, &value))
            continue;
        sum += value;
        count++;
    }
    char text[GROUP_NAME_BYTES_MAX + METRIC_NAME_BYTES_MAX + 32];
    snprintf(text, sizeof text, "  %s%s%s %.4g", *named ? "" : group->name, *named ? "" : ": ",
             metric, sum / count);
    if (count == 0 || strlen(line) + strlen(text) > PROGRESS_LINE_MAX)
        return;
    append(line, size, "%s", text);
    *named = true;
}

/* Members of a group may report different metrics: each is told where the first member has it. */
static void append_group(const struct run *run, char *line, size_t size,
                         const struct node_group *group)
{
    bool named = false;
    for (uint32_t i = 0; i < group->count; i++) {
        const struct run_node *node = &run->nodes[group->first + i];
        for (size_t k = 0; k < node->metrics.count; k++) {
            const char *metric = node->metrics.metrics[k].name;
            bool told = is_shown_already(metric);
            double value;
            for (uint32_t earlier = 0; earlier < i && !told; earlier++)
                told = metrics_last(&run->nodes[group->first + earlier].metrics, metric, &value);
            if (!told)
                append_mean(run, line, size, group, metric, &named);
        }
    }
}

static void append_own(const struct run *run, char *line, size_t size)
{
    for (size_t i = 0; i < run->program->group_count; i++)
        if (run->program->groups[i]->kind == NODE_OWN)
            append_group(run, line, size, run->program->groups[i]);
}

/* Groups that are to act or learn, and of which no node has reported anything yet: they wait for
 * each other, or make their networks, and a line of zeros would look like a run that hangs. */
static void append_starting(const struct run *run, char *line, size_t size)
{
    const char *before = "  starting: ";
    for (size_t i = 0; i < run->program->group_count; i++) {
        const struct node_group *group = run->program->groups[i];
        bool starts = group->kind == NODE_LEARNER || group->kind == NODE_ACTOR;
        for (uint32_t k = 0; k < group->count && starts; k++)
            starts = run->nodes[group->first + k].metrics.count == 0;
        if (!starts || strlen(line) + GROUP_NAME_BYTES_MAX > PROGRESS_LINE_MAX)
            continue;
        append(line, size, "%s%s", before, group->name);
        before = ", ";
    }
}

static void print_line(struct run *run, int64_t now_ns)
{
    struct run_progress *progress = run->progress;
    char line[512];
    snprintf(line, sizeof line, "%6.1f s", (double)(now_ns - run->started_ns) / 1e9);
    size_t bare = strlen(line);
    double seconds = (double)(now_ns - progress->last_ns) / 1e9;
    append_returns(run, line, sizeof line);
    append_rate(run, line, sizeof line, &progress->actor_steps, seconds);
    append_rate(run, line, sizeof line, &progress->learner_steps, seconds);
    append_replay(run, line, sizeof line);
    struct total version = total_of(run, "version");
    if (version.count > 0)
        append(line, sizeof line, "  version %.0f", version.sum);
    append_own(run, line, sizeof line);
    append_starting(run, line, sizeof line);
    if (strlen(line) == bare)
        append(line, sizeof line, "  %u of %u node%s run", run->running, run->program->node_count,
               plural(run->program->node_count));
    output_line(run->output, STDOUT_FILENO, NULL, line, strlen(line));
}

/* ---- the rows ---------------------------------------------------------------------------- */

/* Said when it begins; there may be room again later. */
static bool flush_rows(struct run *run)
{
    struct run_progress *progress = run->progress;
    bool lacked = progress->lacks;
    progress->lacks = fflush(progress->csv) != 0;
    if (progress->lacks && !lacked) {
        char *path = xasprintf("%s/metrics.csv", run->dir.path);
        warn_of_metrics(path, errno);
        free(path);
    }
    return !progress->lacks;
}

static void write_rows(struct run *run)
{
    FILE *csv = run->progress->csv;
    double time = row_time();
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        struct run_node *node = &run->nodes[i];
        for (size_t k = 0; k < node->metrics.count; k++) {
            struct metric *metric = &node->metrics.metrics[k];
            if (metric->count > 0 && csv)
                fprintf(csv, "%.3f,%s,%s,%.9g,%.9g,%" PRIu64 "\n", time, node->name, metric->name,
                        metric->last, metric->sum / (double)metric->count, metric->count);
            metric_taken(metric);
        }
    }
    if (csv && flush_rows(run) && ftell(csv) >= METRICS_FILE_BYTES_MAX) {
        fclose(csv);
        run->progress->csv = csv_open(run);
    }
}

void run_progress_tick(struct run *run)
{
    int64_t now_ns = clock_now_ns(&clock_monotonic);
    print_line(run, now_ns);
    run->progress->last_ns = now_ns;
    write_rows(run);
}

/* Steps that a node of this run reported in any life: what was done and then lost was done, too. */
static void recall_row(struct run *run, const char *row)
{
    char name[NODE_NAME_BYTES_MAX], metric[METRIC_NAME_BYTES_MAX];
    double value;
    if (!strstr(row, "_steps,") ||
        sscanf(row, "%*[^,],%63[^,],%31[^,],%lf", name, metric, &value) != 3)
        return;
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        bool its = strcmp(run->nodes[i].name, name) == 0;
        struct metric *known = its ? metrics_get(&run->nodes[i].metrics, metric) : NULL;
        if (known && value > known->last)
            metric_add(known, value, value, 1);
    }
}

/* To the first row of the lives that count, of those that are there. True: some do not. */
static bool skip_other_lives(FILE *csv)
{
    char *row = NULL;
    size_t capacity = 0;
    long begins = ftell(csv);
    bool anew = false;
    while (getline(&row, &capacity, csv) >= 0)
        if (strstr(row, "," BEGINS_ANEW ",")) {
            anew = true;
            begins = ftell(csv);
        }
    free(row);
    if (fseek(csv, begins, SEEK_SET) != 0)
        rewind(csv);
    return anew;
}

/* True: no file before it has rows that count. */
static bool recall_rows(struct run *run, const char *file)
{
    char *path = xasprintf("%s/%s", run->dir.path, file), *row = NULL;
    size_t capacity = 0;
    FILE *csv = own_file_stream(path, "r");
    if (csv && fseek(csv, -METRICS_RECALLED_BYTES, SEEK_END) != 0)
        rewind(csv); /* it is not so long */
    bool anew = csv && skip_other_lives(csv);
    while (csv && getline(&row, &capacity, csv) >= 0)
        recall_row(run, row);
    if (csv)
        fclose(csv);
    free(row);
    free(path);
    return anew;
}

/* A life may end before its nodes have reported: they have done no less than before. */
void run_progress_end(struct run *run)
{
    write_rows(run);
    if (!run->progress->recalls)
        return;
    if (!recall_rows(run, "metrics.csv"))
        (void)recall_rows(run, "metrics.csv.1");
}
