/* Where the learners of a group meet: the launcher keeps a gang (rendezvous.h) for each group of
 * several and carries its messages. So the rules are those of one process, and the launcher knows
 * at once when a member's process has ended.
 *
 * A number of a generation is on the disk before anybody is told of it: no life of a run uses one
 * again, whatever ended the life before. One more than is used is there: who is left when a learner
 * is lost goes on at once, and saves what it has learned, also where the disk has just failed. The
 * run ends when a number is needed that could not be kept.
 *
 * A member that the gang takes for lost is killed: it may only hang, and must not write a
 * checkpoint later on. A thread cannot be; it is told that the others go on without it. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <troupe/rendezvous.h>
#include "core/alloc.h"
#include "core/buffer.h"
#include "core/file.h"
#include "core/option_table.h"
#include "core/status.h"
#include "run.h"

#define GENERATIONS "generations" /* in the run directory: "GROUP NUMBER" a line, as kept */

struct run_gang {
    const struct node_group *group;
    trp_gang *gang;
    uint64_t number;            /* of its newest generation, or the last one of lives before */
    uint64_t kept;              /* on the disk, for it: numbers up to this one may be used */
    struct run_node *publisher; /* NULL: none yet */
    uint64_t *told;             /* by member: the newest generation that it was told of */
    bool *dismissed;
};

static struct run_gang *gang_of(const struct run *run, const struct node_group *group)
{
    for (uint32_t i = 0; i < run->gang_count; i++)
        if (run->gangs[i]->group == group)
            return run->gangs[i];
    return NULL;
}

static trp_rendezvous *end_of(const struct run_gang *gang, uint32_t index)
{
    return trp_gang_member(gang->gang, index);
}

static struct run_node *gang_node(struct run *run, const struct run_gang *gang, uint32_t index)
{
    return run_node(run, gang->group, index);
}

const struct run_node *gangs_publisher(const struct run *run, const struct node_group *group)
{
    const struct run_gang *gang = gang_of(run, group);
    return gang ? gang->publisher : NULL;
}

bool gangs_counts(const struct run *run, const struct run_node *node, const char *metric)
{
    bool shared = strcmp(metric, "learner_steps") == 0 || strcmp(metric, "version") == 0;
    const struct run_gang *gang = shared ? gang_of(run, node->group) : NULL;
    return !gang || (gang->publisher ? gang->publisher == node : node->index == 0);
}

/* ---- numbers on disk --------------------------------------------------------------------- */

/* The last number that the lives before used. */
static trp_status recall_number(const struct run *run, const char *name, uint64_t *number)
{
    char *path = xasprintf("%s/" GENERATIONS, run->dir.path), group[GROUP_NAME_BYTES_MAX + 1];
    _Static_assert(GROUP_NAME_BYTES_MAX == 40, "as many are read");
    FILE *file = own_file_stream(path, "r");
    uint64_t last;
    int fields = EOF;
    *number = 0;
    while (file && (fields = fscanf(file, "%40s %" SCNu64, group, &last)) == 2)
        if (strcmp(group, name) == 0)
            *number = last;
    trp_status status = TRP_OK;
    if (!file && errno != ENOENT)
        status = trp_fail(file_errno_status(errno, TRP_UNAVAILABLE), "%s: %s", path,
                          file_errno_words(errno));
    if (file && ferror(file))
        status = trp_fail(TRP_UNAVAILABLE, "%s: it cannot be read", path);
    if (file)
        fclose(file);
    if (fields != EOF || *number > INT64_MAX) /* "-1" is read as a number, too */
        status = trp_fail(TRP_DATA_LOSS, "%s: it is no list of groups and numbers", path);
    free(path);
    return status;
}

static trp_status write_numbers(const struct run *run)
{
    struct buffer text = {0};
    for (uint32_t i = 0; i < run->gang_count; i++) {
        char *line = xasprintf("%s%s %" PRIu64, i > 0 ? "\n" : "", run->gangs[i]->group->name,
                               run->gangs[i]->kept);
        buffer_append(&text, text_bytes(line));
        free(line);
    }
    trp_status status = run_dir_keep(&run->dir, GENERATIONS, buffer_text(&text));
    buffer_cleanup(&text);
    return status;
}

/* `number` and the one behind it. False: `number` is not on the disk, and the run is stopped: the
 * next life would use it again. */
static bool keep_number(struct run *run, struct run_gang *gang, uint64_t number)
{
    const char *name = gang->group->name;
    uint64_t kept = gang->kept;
    if (kept > number)
        return true;
    gang->kept = number + 1;
    if (write_numbers(run) == TRP_OK)
        return true;
    gang->kept = kept;
    if (kept == number) {
        output_print(run->output, STDERR_FILENO,
                     "%s: %s: learners of %s go on, and can no more once another one is lost or "
                     "comes",
                     run->program->name, trp_last_error(), name);
        return true;
    }
    char *words = xasprintf("%s: learners cannot go on, as a resume would take numbers of their "
                            "generations for new ones",
                            trp_last_error());
    run_fail(run, words);
    free(words);
    return false;
}

/* ---- lost members ------------------------------------------------------------------------ */

static void end_lost_member(struct run *run, struct run_gang *gang, uint32_t index)
{
    struct run_node *node = gang_node(run, gang, index);
    if (!node->running || node->killed || !trp_gang_lost(gang->gang, index))
        return;
    char *failure = xasprintf("the other learners of %s waited %g s for it", gang->group->name,
                              (double)gang->group->options.learner.collective_timeout_ms / 1e3);
    run_node_failed(run, node, TRP_DEADLINE_EXCEEDED, failure);
    free(failure);
    if (run->options->mode == LAUNCH_THREADS)
        return;
    node->killed = true;
    run->target->kill(run, node);
}

static void end_lost_members(struct run *run, struct run_gang *gang)
{
    for (uint32_t index = 0; index < gang->group->count; index++)
        end_lost_member(run, gang, index);
}

/* ---- telling members --------------------------------------------------------------------- */

/* "learner/1, learner/0"; caller frees. */
static char *members_text(const struct run_gang *gang, const trp_generation *generation)
{
    struct buffer text = {0};
    for (uint32_t rank = 0; rank < generation->size; rank++) {
        char *name = xasprintf("%s%s/%u", rank > 0 ? ", " : "", gang->group->name,
                               generation->members[rank]);
        buffer_append(&text, text_bytes(name));
        free(name);
    }
    return buffer_text(&text);
}

/* Of all its members: each one's log has the rest. */
static void print_beginning(const struct run *run, const struct run_gang *gang,
                            const trp_generation *generation)
{
    const trp_option *mode = option_find(gang->group->table, "mode");
    char *word = option_value(mode, group_options(gang->group));
    output_print(run->output, STDOUT_FILENO, "%s: generation %" PRIu64 " of %s: %u learners, %s",
                 run->program->name, generation->number, gang->group->name, generation->size, word);
    free(word);
}

/* False: nobody may be told of it. */
static bool begin_generation(struct run *run, struct run_gang *gang,
                             const trp_generation *generation)
{
    if (gang->number >= generation->number)
        return true;
    gang->number = generation->number;
    if (!keep_number(run, gang, gang->number))
        return false;
    gang->publisher = gang_node(run, gang, generation->members[0]);
    links_update(run);
    if (generation->first) {
        print_beginning(run, gang, generation);
        return true;
    }
    char *members = members_text(gang, generation);
    output_print(run->output, STDERR_FILENO, "%s: generation %" PRIu64 " of %s: %s",
                 run->program->name, generation->number, gang->group->name, members);
    free(members);
    return true;
}

/* False: there was no room for all of it; then it is told again from the beginning. */
static bool tell_generation(struct run *run, const struct run_node *node,
                            const trp_generation *generation)
{
    for (uint32_t rank = 0; rank < generation->size; rank++)
        if (!link_tell(run, node, CONTROL_MEMBER, "%" PRIu64 " %u %u %s", generation->number, rank,
                       generation->members[rank], generation->addresses[rank]))
            return false;
    return link_tell(run, node, CONTROL_GENERATION, "%" PRIu64 " %" PRIu64 " %u %u %d %d",
                     generation->number, generation->nonce, generation->rank, generation->size,
                     generation->first, generation->founder);
}

/* Asks for member `index`, without saying that it has left anything. */
static void tell_member(struct run *run, struct run_gang *gang, uint32_t index)
{
    const struct run_node *node = gang_node(run, gang, index);
    trp_rendezvous *end = end_of(gang, index);
    trp_generation generation;
    if (!node->running || gang->dismissed[index])
        return;
    trp_status status = end->impl->next(end, 0, 0, &generation);
    if (status == TRP_UNAVAILABLE) {
        char *why = error_keep();
        end_lost_members(run, gang); /* who is to blame comes first */
        gang->dismissed[index] = link_tell(run, node, CONTROL_DISMISSED, "%s", why);
        free(why);
    }
    if (status != TRP_OK || generation.number <= gang->told[index])
        return;
    if (begin_generation(run, gang, &generation) && tell_generation(run, node, &generation))
        gang->told[index] = generation.number;
}

void gangs_tick(struct run *run)
{
    if (run->phase != RUNNING)
        return;
    for (uint32_t i = 0; i < run->gang_count; i++) {
        struct run_gang *gang = run->gangs[i];
        end_lost_members(run, gang);
        for (uint32_t index = 0; index < gang->group->count && run->phase == RUNNING; index++)
            tell_member(run, gang, index);
    }
}

void gangs_put_off(struct run *run, int64_t ns)
{
    for (uint32_t i = 0; i < run->gang_count; i++)
        trp_gang_put_off(run->gangs[i]->gang, ns);
}

/* ---- what members say -------------------------------------------------------------------- */

void gangs_announced(struct run *run, const struct run_node *node, const char *address)
{
    struct run_gang *gang = gang_of(run, node->group);
    if (!gang)
        return;
    trp_rendezvous *end = end_of(gang, node->index);
    if (end->impl->announce(end, address) != TRP_OK)
        gang->dismissed[node->index] =
            link_tell(run, node, CONTROL_DISMISSED, "%s", trp_last_error());
    gangs_tick(run);
}

void gangs_broken(struct run *run, const struct run_node *node, uint64_t number, const char *why)
{
    struct run_gang *gang = gang_of(run, node->group);
    if (!gang)
        return;
    char *said = xasprintf("%s: %s", node->name, why);
    trp_rendezvous *end = end_of(gang, node->index);
    end->impl->broken(end, number, said);
    free(said);
    gangs_tick(run);
}

void gangs_over(struct run *run, const struct run_node *node, uint64_t number)
{
    struct run_gang *gang = gang_of(run, node->group);
    trp_generation ignored;
    if (!gang)
        return;
    trp_rendezvous *end = end_of(gang, node->index);
    if (end->impl->next(end, number, 0, &ignored) != TRP_OK)
        trp_log(TRP_DEBUG, "%s: %s", node->name, trp_last_error());
    gangs_tick(run);
}

/* ---- the end of a member ----------------------------------------------------------------- */

static bool can_restart(const struct run_node *node)
{
    const trp_learner_options *options = &node->group->options.learner;
    return options->on_failure == TRP_ON_FAILURE_CONTINUE && node->restarts < options->restarts &&
           !node->refuses;
}

static void restart_member(struct run *run, struct run_gang *gang, struct run_node *node)
{
    gang->told[node->index] = 0;
    gang->dismissed[node->index] = false;
    if (restart_node(run, node))
        return;
    output_print(run->output, STDERR_FILENO, "%s: %s: %s", run->program->name, node->name,
                 node->failure);
    trp_gang_left(gang->gang, node->index, node->failure);
}

/* Of a server, which has kept what it answered, and which learners try to reach until it is back;
 * threads of a process end together. Of an actor, whom nobody waits for, but where nodes take
 * turns: when it is back would be chance. */
static uint32_t restarts_alone(const struct run *run, const struct node_group *group)
{
    if (run->options->deterministic)
        return 0;
    if (group->kind == NODE_ACTOR)
        return group->options.actor.restarts;
    return run->options->mode == LAUNCH_THREADS ? 0 : group->options.server.restarts;
}

static bool may_restart_alone(const struct run *run, const struct run_node *node)
{
    return run->phase == RUNNING && !node->refuses &&
           node->restarts < restarts_alone(run, node->group);
}

/* But for suspensions. */
static int64_t served_ms(const struct run *run, const struct run_node *node)
{
    int64_t since_ns = node->serves_ns > run->continued_ns ? node->serves_ns : run->continued_ns;
    return node->address ? (clock_now_ns(&clock_monotonic) - since_ns) / 1000000 : 0;
}

void gangs_miss_server(struct run *run, const struct run_node *learner, struct run_node *server,
                       const char *why)
{
    int64_t timeout_ms = learner->group->options.learner.collective_timeout_ms;
    bool serves = learner->group->kind == NODE_LEARNER && server->group->kind == NODE_SERVER &&
                  group_uses(learner->group, server->group);
    if (!serves || run->phase != RUNNING || !server->running || server->killed ||
        served_ms(run, server) < (timeout_ms > SERVER_SERVED_MS ? timeout_ms : SERVER_SERVED_MS))
        return;
    run_node_failed(run, server, TRP_DEADLINE_EXCEEDED, why);
    server->killed = true;
    run->target->kill(run, server);
}

static bool restart_alone(struct run *run, struct run_node *node)
{
    if (!may_restart_alone(run, node))
        return false;
    char words[RESTART_WORDS_BYTES];
    output_print(run->output, STDERR_FILENO, "%s: %s failed: %s: %s; log: %s/logs/%s-%u.log",
                 run->program->name, node->name, node->failure, restart_plan(node, words),
                 run->dir.shown_path, node->group->name, node->index);
    run_node_excuse(node);
    return restart_node(run, node);
}

bool gangs_go_on(struct run *run, struct run_node *node)
{
    if (node->group->kind == NODE_SERVER || node->group->kind == NODE_ACTOR)
        return restart_alone(run, node);
    struct run_gang *gang = gang_of(run, node->group);
    if (!gang || run->phase != RUNNING)
        return false;
    bool restart = can_restart(node);
    if (restart)
        trp_gang_expect(gang->gang, node->index);
    else
        trp_gang_left(gang->gang, node->index, node->failure);
    if (trp_gang_check(gang->gang) != TRP_OK) {
        if (node->group->options.learner.on_failure == TRP_ON_FAILURE_CONTINUE) {
            char *why = error_keep(); /* why the others cannot go on, with it */
            bool is_known = !restart || strstr(node->failure, why);
            char *both = is_known ? xstrdup(why) : xasprintf("%s; %s", node->failure, why);
            free(node->failure);
            free(why);
            node->failure = both;
        }
        return false;
    }
    char words[RESTART_WORDS_BYTES];
    output_print(run->output, STDERR_FILENO,
                 "%s: %s failed: %s: the others go on%s%s; log: %s/logs/%s-%u.log",
                 run->program->name, node->name, node->failure, restart ? ", " : "",
                 restart ? restart_plan(node, words) : "", run->dir.shown_path, node->group->name,
                 node->index);
    run_node_excuse(node);
    if (restart)
        restart_member(run, gang, node);
    gangs_tick(run);
    bool go_on = trp_gang_check(gang->gang) == TRP_OK;
    if (go_on && node->failed) /* to begin again */
        run_node_excuse(node);
    else if (!go_on && !node->failed)
        run_node_failed(run, node, TRP_UNAVAILABLE, trp_last_error());
    return go_on;
}

/* ---- life -------------------------------------------------------------------------------- */

static void gang_forget(struct run_gang *gang)
{
    trp_gang_destroy(gang->gang);
    free(gang->told);
    free(gang->dismissed);
    free(gang);
}

static trp_status add_gang(struct run *run, const struct node_group *group)
{
    const trp_learner_options *options = &group->options.learner;
    struct run_gang *gang = xcalloc(1, sizeof *gang);
    run->gangs[run->gang_count++] = gang;
    gang->group = group;
    gang->told = xcalloc(group->count, sizeof *gang->told);
    gang->dismissed = xcalloc(group->count, sizeof *gang->dismissed);
    TRP_TRY(recall_number(run, group->name, &gang->number));
    gang->kept = gang->number;
    gang->gang = trp_gang_create(
        &(trp_gang_options){.name = group->name,
                            .count = group->count,
                            .least = options->min_learners,
                            .stop_on_failure = options->on_failure == TRP_ON_FAILURE_STOP,
                            .keeps_nothing = options->mode == TRP_LEARNERS_SERVER,
                            .silence_ms = options->collective_timeout_ms + GANG_WORD_MS,
                            .last_number = gang->number});
    return TRP_OK;
}

trp_status gangs_check(const struct run *run)
{
    for (size_t i = 0; i < run->program->group_count; i++) {
        const struct node_group *group = run->program->groups[i];
        if (run->options->deterministic && group_is_gang(group))
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "learner '%s': %u learners learn together, in a deterministic run a "
                            "learner learns alone: set %s.count=1",
                            group->name, group->count, group->name);
        if (run->options->deterministic && group->kind == NODE_SERVER)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "server '%s': a deterministic run has none: learners wait at it",
                            group->name);
        if (run->options->deterministic && group->kind == NODE_CACHE)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "cache '%s': a deterministic run has none: it asks by the clock",
                            group->name);
    }
    return TRP_OK;
}

trp_status gangs_create(struct run *run)
{
    run->gangs = xcalloc(run->program->group_count, sizeof(struct run_gang *));
    for (size_t i = 0; i < run->program->group_count; i++)
        if (group_is_gang(run->program->groups[i]))
            TRP_TRY(add_gang(run, run->program->groups[i]));
    return TRP_OK;
}

void gangs_destroy(struct run *run)
{
    for (uint32_t i = 0; i < run->gang_count; i++)
        gang_forget(run->gangs[i]);
    free(run->gangs);
}
