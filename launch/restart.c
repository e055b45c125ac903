/* Nodes that begin again. One that fails as soon as it has begun waits in between, longer each
 * time: it would take processors and disks from all that go on, and use its restarts up before
 * whatever it needs is back. */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "limits.h"

bool run_node_lasted(const struct run_node *node)
{
    return clock_now_ns(&clock_monotonic) - node->started_ns >=
           RESTART_LASTED_MS * INT64_C(1000000);
}

/* Those of others come at once: a server is missed by all its learners. */
static int64_t pause_ms(struct run_node *node)
{
    int64_t pause = RESTART_PAUSE_MS;
    node->short_lives = run_node_lasted(node) ? 0 : node->short_lives + 1;
    if (node->short_lives < 2)
        return 0;
    for (uint32_t i = 2; i < node->short_lives && pause < RESTART_PAUSE_MAX_MS; i++)
        pause *= 2;
    return pause < RESTART_PAUSE_MAX_MS ? pause : RESTART_PAUSE_MAX_MS;
}

const char *restart_plan(struct run_node *node, char words[RESTART_WORDS_BYTES])
{
    node->pause_ms = pause_ms(node);
    if (node->pause_ms == 0)
        snprintf(words, RESTART_WORDS_BYTES, "it is started again");
    else
        snprintf(words, RESTART_WORDS_BYTES, "it is started again in %g s",
                 (double)node->pause_ms / 1000);
    return words;
}

static bool restart_now(struct run *run, struct run_node *node)
{
    node->started_ns = clock_now_ns(&clock_monotonic);
    if (run->target->restart(run, node) == TRP_OK)
        return true;
    char *words = xasprintf("it is not started again: %s", trp_last_error());
    run_node_failed(run, node, TRP_RESOURCE_EXHAUSTED, words);
    free(words);
    return false;
}

bool restart_node(struct run *run, struct run_node *node)
{
    node->restarts++;
    node->said_hello = node->killed = false;
    free(node->address);
    node->address = NULL;
    links_forget(run, node);
    if (node->pause_ms == 0)
        return restart_now(run, node);
    node->paused = true;
    node->pause = deadline_in_ms(&clock_monotonic, node->pause_ms);
    run->paused++;
    return true;
}

/* Runs, or has ended as it should, and written what it knew. */
static bool member_saves(const struct run_node *node)
{
    return node->running || (!node->paused && !node->failed && node->excused == node->restarts);
}

/* What was learned is at servers, which keep it and save it in the end, or fail by themselves. */
static bool servers_save(const struct run *run, const struct node_group *learner)
{
    if (learner->options.learner.mode != TRP_LEARNERS_SERVER)
        return false;
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        const struct run_node *server = &run->nodes[i];
        bool serves = server->group->kind == NODE_SERVER && group_uses(learner, server->group);
        if (serves && server->failed)
            return false;
    }
    return true;
}

/* Whether a learner, which does not begin again as the program stops, was the last one that could
 * save what its group has learned. */
static bool is_last_learner(struct run *run, const struct run_node *node)
{
    if (node->group->kind != NODE_LEARNER || run->kill_all || servers_save(run, node->group))
        return false;
    for (uint32_t index = 0; index < node->group->count; index++) {
        const struct run_node *other = run_node(run, node->group, index);
        if (other != node && member_saves(other))
            return false;
    }
    return true;
}

/* Its failure was excused as it was to begin again. */
static void fail_unsaved(struct run *run, struct run_node *node)
{
    char *words = xasprintf("the last checkpoint was not written: it was about to begin again when "
                            "the program stopped, as it had failed: %s",
                            node->excuse);
    run_node_failed(run, node, TRP_INTERNAL, words);
    free(words);
}

/* In a stop: a server, of which learners, who stop before it, save what was learned. */
static bool is_missed(const struct run *run, const struct run_node *node)
{
    return node->group->kind == NODE_SERVER && node->group->level > run->level &&
           run->running > 0 && !run->kill_all;
}

void restarts_tick(struct run *run)
{
    for (uint32_t i = 0; run->paused > 0 && i < run->program->node_count; i++) {
        struct run_node *node = &run->nodes[i];
        bool over = run->phase != RUNNING || deadline_passed(node->pause, &clock_monotonic);
        if (!node->paused || !over)
            continue;
        node->paused = false;
        run->paused--;
        bool begins = run->phase == RUNNING || is_missed(run, node);
        if (begins && !restart_now(run, node))
            run_node_is_gone(run, node);
        if (!begins && is_last_learner(run, node))
            fail_unsaved(run, node);
    }
}
