/* The address book. Nodes say where they serve; every process is told of the nodes that its own
 * nodes use, and of no others. What it was told is remembered per process, so an update is what
 * differs, and a process that reads slowly gets the rest later. */
#include "run.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "limits.h"

enum { TOLD_NOTHING, TOLD_BEGUN, TOLD_ADDRESS, TOLD_GONE };

/* ---- from the nodes ---------------------------------------------------------------------- */

static void check_hello(struct run *run, struct run_node *node, const char *rest)
{
    char build[32], expected[80];
    control_build_id(build, sizeof build);
    snprintf(expected, sizeof expected, "%016" PRIx64 " %s", program_hash(run->program), build);
    node->said_hello = true;
    links_update(run);
    if (strcmp(rest, expected) == 0)
        return;
    char failure[256];
    snprintf(failure, sizeof failure,
             "it has another graph or build than the launcher (graph and build %s, expected %s): "
             "build() depends on something besides its arguments, or the program was replaced",
             rest, expected);
    run_node_failed(run, node, TRP_FAILED_PRECONDITION, failure);
    run_stop(run, false, "a node differs from the launcher");
}

static void read_report(struct run_node *node, const char *rest)
{
    char name[METRIC_NAME_BYTES_MAX];
    double last, sum;
    uint64_t count;
    if (sscanf(rest, "%31s %lf %lf %" SCNu64, name, &last, &sum, &count) != 4)
        return;
    struct metric *metric = metrics_get(&node->metrics, name);
    if (metric)
        metric_add(metric, last, sum, count);
}

static void read_program_stop(struct run *run, struct run_node *node, const char *rest)
{
    bool success = strncmp(rest, "success ", 8) == 0;
    const char *reason = strchr(rest, ' ') ? strchr(rest, ' ') + 1 : rest;
    if (!success)
        run_node_failed(run, node, TRP_ABORTED, reason);
    char *text = xasprintf("%s: %s", node->name, reason);
    run_stop(run, success, text);
    free(text);
}

static void read_failed(struct run *run, struct run_node *node, const char *rest)
{
    char *end;
    long code = strtol(rest, &end, 10);
    run_node_failed(run, node, (trp_status)code, *end == ' ' ? end + 1 : end);
}

/* NUMBER, and what is behind it. */
static uint64_t read_number(const char **rest)
{
    char *end;
    uint64_t number = strtoull(*rest, &end, 10);
    *rest = *end == ' ' ? end + 1 : end;
    return number;
}

static void read_broken(struct run *run, const struct run_node *node, const char *rest)
{
    uint64_t number = read_number(&rest);
    gangs_broken(run, node, number, rest);
}

static void read_missed(struct run *run, const struct run_node *node, const char *rest)
{
    uint64_t number = read_number(&rest);
    if (number < run->program->node_count)
        gangs_miss_server(run, node, &run->nodes[number], rest);
}

static void link_apply(struct process_link *link, const struct control_message *message)
{
    struct run *run = link->run;
    /* A child that could not build the graph does not know its number. */
    uint32_t number = link->count == 1 ? link->first : message->node;
    if (number - link->first >= link->count)
        return;
    struct run_node *node = &run->nodes[number];
    switch (message->verb) {
    case CONTROL_HELLO:
        check_hello(run, node, message->rest);
        break;
    case CONTROL_READY:
        run_node_serves(run, node, message->rest);
        break;
    case CONTROL_REPORT:
        read_report(node, message->rest);
        break;
    case CONTROL_PROGRAM:
        read_program_stop(run, node, message->rest);
        break;
    case CONTROL_FAILED:
        read_failed(run, node, message->rest);
        break;
    case CONTROL_ANNOUNCE:
        gangs_announced(run, node, message->rest);
        break;
    case CONTROL_BROKEN:
        read_broken(run, node, message->rest);
        break;
    case CONTROL_OVER:
        gangs_over(run, node, strtoull(message->rest, NULL, 10));
        break;
    case CONTROL_MISSED:
        read_missed(run, node, message->rest);
        break;
    case CONTROL_DONE: /* a process is over when it has been reaped, a thread when it says so */
        if (run->options->mode == LAUNCH_THREADS)
            run_node_ended(run, node, NULL);
        break;
    default:
        break;
    }
}

/* A thread that was to begin again when the last one ended has nobody to start it. */
static void end_link(struct process_link *link)
{
    struct run *run = link->run;
    loop_remove(&run->loop, &link->watch);
    for (uint32_t i = 0; i < link->count && run->options->mode == LAUNCH_THREADS; i++)
        run_node_ended(run, &run->nodes[link->first + i], "no other node was left beside it");
}

static bool read_one(struct process_link *link)
{
    struct control_message message;
    if (link->watch.fd < 0)
        return false;
    trp_status status = control_receive(link->watch.fd, &message);
    if (status == TRP_OK)
        link_apply(link, &message);
    if (status == TRP_UNAVAILABLE)
        end_link(link);
    return status == TRP_OK || status == TRP_INVALID_ARGUMENT;
}

static void link_ready(struct watch *watch)
{
    read_one(watch->owner);
}

void link_drain(struct process_link *link)
{
    while (read_one(link))
        ;
}

/* ---- to the nodes ------------------------------------------------------------------------ */

static uint8_t to_tell(const struct run_node *node)
{
    if (!node->running && !node->paused) /* who begins again soon is waited for */
        return TOLD_GONE;
    if (node->address)
        return TOLD_ADDRESS;
    return node->said_hello ? TOLD_BEGUN : TOLD_NOTHING;
}

static bool tell(struct process_link *link, const struct run_node *node)
{
    uint8_t news = to_tell(node);
    if (link->told[node->number] >= news)
        return true;
    static const enum control_verb verbs[] = {
        [TOLD_BEGUN] = CONTROL_BEGUN, [TOLD_ADDRESS] = CONTROL_PEER, [TOLD_GONE] = CONTROL_GONE};
    const char *text = news == TOLD_BEGUN     ? "-"
                       : news == TOLD_ADDRESS ? node->address
                       : node->failed         ? node->failure
                                              : "it has ended";
    trp_status status = control_send(link->watch.fd, 0, verbs[news], node->number, "%s", text);
    if (status == TRP_DEADLINE_EXCEEDED)
        return false;
    link->told[node->number] = news;
    return true;
}

/* True: it knows who publishes for that group. */
static bool tell_publisher(struct process_link *link, const struct node_group *group)
{
    const struct run_node *node = gangs_publisher(link->run, group);
    uint32_t *told = &link->told_publisher[group->id - 1];
    if (!node || *told == node->number + 1)
        return true;
    if (control_send(link->watch.fd, 0, CONTROL_PUBLISHER, node->number, "-") ==
        TRP_DEADLINE_EXCEEDED)
        return false;
    *told = node->number + 1;
    return true;
}

static void update_link(struct process_link *link)
{
    struct run *run = link->run;
    bool sees = run->options->mode == LAUNCH_THREADS; /* nodes of one process see each other */
    link->pending = false;
    for (uint32_t i = 0; i < link->count && link->watch.fd >= 0; i++) {
        const struct node_group *group = run->nodes[link->first + i].group;
        for (size_t k = 0; k < group->use_count; k++) {
            const struct node_group *used = program_group(run->program, group->uses[k]);
            for (uint32_t n = 0; n < used->count && !sees; n++)
                if (!tell(link, &run->nodes[used->first + n]))
                    link->pending = true;
            if (!tell_publisher(link, used))
                link->pending = true;
        }
    }
}

void links_update(struct run *run)
{
    for (uint32_t i = 0; i < run->link_count; i++)
        update_link(run->links[i]);
}

void links_forget(struct run *run, const struct run_node *node)
{
    for (uint32_t i = 0; i < run->link_count; i++)
        run->links[i]->told[node->number] = TOLD_NOTHING;
}

bool link_tell(struct run *run, const struct run_node *node, enum control_verb verb,
               const char *format, ...)
{
    char text[CONTROL_MESSAGE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (uint32_t i = 0; i < run->link_count; i++) {
        struct process_link *link = run->links[i];
        if (node->number - link->first < link->count && link->watch.fd >= 0)
            return control_send(link->watch.fd, 0, verb, node->number, "%s", text) !=
                   TRP_DEADLINE_EXCEEDED;
    }
    return true; /* nobody is there who could be told */
}

/* ---- life -------------------------------------------------------------------------------- */

trp_status link_create(struct process_link **out, struct run *run, int fd, uint32_t first,
                       uint32_t count)
{
    struct process_link *link = xcalloc(1, sizeof *link);
    link->run = run;
    link->first = first;
    link->count = count;
    link->told = xcalloc(run->program->node_count, 1);
    link->told_publisher = xcalloc(run->program->group_count, sizeof *link->told_publisher);
    link->watch = (struct watch){fd, link_ready, link, first};
    trp_status status = loop_add(&run->loop, &link->watch);
    if (status != TRP_OK) {
        link_destroy(link);
        return status;
    }
    run->links = xrealloc(run->links, (run->link_count + 1) * sizeof *run->links);
    run->links[run->link_count++] = link;
    *out = link;
    return TRP_OK;
}

void link_destroy(struct process_link *link)
{
    if (!link)
        return;
    struct run *run = link->run;
    for (uint32_t i = 0; i < run->link_count; i++)
        if (run->links[i] == link)
            run->links[i] = run->links[--run->link_count];
    loop_remove(&run->loop, &link->watch);
    free(link->told);
    free(link->told_publisher);
    free(link);
}
