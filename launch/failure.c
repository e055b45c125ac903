/* When one node fails, others fail of it, and the kernel closes a dead process's sockets before it
 * tells us of the death: a peer's complaint can come first. Blame follows the edges: a node that
 * failed because something was not there hands it to a node it uses that failed by itself. The
 * graph has no cycles, so that ends. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

/* As soon as it began, and as it did before: what it begins with, a damaged file say, is so the
 * next time as well. */
static bool fails_alike(const struct run_node *node, trp_status code, const char *failure)
{
    bool lasts = code == TRP_DATA_LOSS || code == TRP_FAILED_PRECONDITION;
    return lasts && node->excuse && strcmp(failure, node->excuse) == 0 && !run_node_lasted(node);
}

void run_node_failed(struct run *run, struct run_node *node, trp_status code, const char *failure)
{
    if (node->failed)
        return;
    node->failed = true;
    node->failed_order = run->failures++;
    node->code = code;
    node->refuses = code == TRP_INVALID_ARGUMENT || fails_alike(node, code, failure);
    node->failure = xstrdup(failure);
    trp_log(TRP_DEBUG, "%s failed: %s", node->name, failure);
}

void run_node_excuse(struct run_node *node)
{
    free(node->excuse);
    node->excuse = node->failure;
    node->excused++;
    node->failure = NULL;
    node->failed = node->refuses = false;
    node->code = TRP_OK;
}

static bool can_be_a_consequence(const struct run_node *node)
{
    return node->code == TRP_UNAVAILABLE || node->code == TRP_DEADLINE_EXCEEDED ||
           node->code == TRP_CANCELLED || node->code == TRP_ABORTED;
}

bool run_failed_by_itself(const struct run_node *node)
{
    return node->failed && (node->killed || !can_be_a_consequence(node));
}

const struct run_node *run_failed_use(const struct run *run, const struct run_node *node)
{
    const struct run_node *first = NULL;
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        const struct run_node *other = &run->nodes[i];
        if (other->failed && !other->killed && group_uses(node->group, other->group) &&
            (!first || other->failed_order < first->failed_order))
            first = other;
    }
    return first;
}

const struct run_node *run_first_failure(const struct run *run)
{
    const struct run_node *first = NULL;
    for (uint32_t i = 0; i < run->program->node_count; i++) {
        const struct run_node *node = &run->nodes[i];
        if (node->failed && (!first || node->failed_order < first->failed_order))
            first = node;
    }
    while (first && can_be_a_consequence(first)) {
        const struct run_node *cause = run_failed_use(run, first);
        if (!cause)
            break;
        first = cause;
    }
    return first;
}
