/* A list is read again wherever it is asked for: a graph has a handful of groups. Its numbers mean
 * the same in every process, whoever is asked; only who starts a process or finds a device looks at
 * the host. */
#include "devices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "core/option_table.h"
#include "core/status.h"
#include "core/words.h"
#include "limits.h"

/* GPUs in the order in which they were given. */
struct gpu_list {
    uint32_t gpus[NODE_GPUS_MAX], count;
};

static const trp_option *text_option(const struct node_group *group, const char *name)
{
    const trp_option *option = group->table ? option_find(group->table, name) : NULL;
    return option && option->type == TRP_OPTION_TEXT ? option : NULL;
}

/* Nodes of one's own may have such options, too. */
static const char *group_text(const struct node_group *group, const char *name)
{
    const trp_option *option = text_option(group, name);
    const char *text = NULL;
    if (option)
        memcpy(&text, (const char *)group_options(group) + option->offset, sizeof text);
    return text && *text ? text : NULL;
}

const char *devices_name(const struct node_group *group)
{
    return group_text(group, "device");
}

static bool is_auto(const struct node_group *group)
{
    const char *name = devices_name(group);
    return name && strcmp(name, "auto") == 0;
}

bool devices_name_gpu(const struct node_group *group)
{
    const char *name = devices_name(group);
    return name && strncmp(name, "cuda:", 5) == 0;
}

static bool computes_on_gpu(const struct node_group *group)
{
    return devices_name_gpu(group) || is_auto(group);
}

trp_status devices_set(trp_program *program, const char *name)
{
    bool found = false;
    if (trp_device_check(name) != TRP_OK)
        return trp_fail(TRP_INVALID_ARGUMENT, "--device: %s", trp_last_error());
    for (size_t i = 0; i < program->group_count; i++) {
        const struct node_group *group = program->groups[i];
        if (!text_option(group, "device"))
            continue;
        found = true;
        TRP_TRY(trp_options_set(group->table, group_options(group), "device", name));
    }
    if (found)
        return TRP_OK;
    return trp_fail(TRP_INVALID_ARGUMENT, "--device: the program has no nodes that compute");
}

/* ---- lists ----------------------------------------------------------------------------------- */

static bool add_gpus(struct gpu_list *list, unsigned long first, unsigned long last)
{
    for (unsigned long gpu = first; gpu <= last; gpu++) {
        for (uint32_t i = 0; i < list->count; i++)
            if (list->gpus[i] == gpu)
                return false;
        if (gpu >= NODE_GPUS_MAX || list->count == NODE_GPUS_MAX)
            return false;
        list->gpus[list->count++] = (uint32_t)gpu;
    }
    return first <= last;
}

/* "0,2-3"; false: it is none, or names one twice. */
static bool gpu_list_parse(const char *text, struct gpu_list *list)
{
    *list = (struct gpu_list){.count = 0};
    for (const char *at = text;; at++) {
        char *end;
        if (*at < '0' || *at > '9')
            return false;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (*end == '-' && end[1] >= '0' && end[1] <= '9')
            last = strtoul(end + 1, &end, 10);
        if (!add_gpus(list, first, last))
            return false;
        at = end;
        if (*at == '\0')
            return true;
        if (*at != ',')
            return false;
    }
}

/* False: it has none of its own. */
static bool gpu_list_of(const struct node_group *group, struct gpu_list *list)
{
    const char *text = computes_on_gpu(group) ? group_text(group, "gpus") : NULL;
    return text && gpu_list_parse(text, list);
}

/* Those of member `index` are [*first, *end) of the list. */
static void deal_gpus(const struct node_group *group, uint32_t index, const struct gpu_list *list,
                      uint32_t *first, uint32_t *end)
{
    *first = index * list->count / group->count;
    *end = (index + 1) * list->count / group->count;
    *end = *end > *first ? *end : *first + 1;
}

/* What `cuda:N` counts; "auto" is the first. */
static unsigned long number_in_node(const struct node_group *group)
{
    return devices_name_gpu(group) ? strtoul(devices_name(group) + 5, NULL, 10) : 0;
}

trp_status devices_check(const struct node_group *group)
{
    const char *word = node_kind_word(group->kind), *text = group_text(group, "gpus");
    struct gpu_list list;
    if (group->kind == NODE_OWN)
        return TRP_OK; /* what its options say is its own business */
    if (trp_device_check(devices_name(group)) != TRP_OK)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s '%s': %s", word, group->name, trp_last_error());
    if (text && !gpu_list_parse(text, &list))
        return trp_fail(TRP_INVALID_ARGUMENT,
                        "%s '%s': .gpus is '%s': it is a list of GPUs below %d, each once, such as "
                        "0,2 or 0-3",
                        word, group->name, text, NODE_GPUS_MAX);
    if (!gpu_list_of(group, &list))
        return TRP_OK;
    for (uint32_t i = 0; i < group->count; i++) {
        uint32_t first, end;
        deal_gpus(group, i, &list, &first, &end);
        if (number_in_node(group) >= end - first)
            return trp_fail(TRP_INVALID_ARGUMENT,
                            "%s '%s': .device is %s, but of its GPUs %s node %" PRIu32
                            " of %" PRIu32 " gets %" PRIu32 ", counted from cuda:0",
                            word, group->name, devices_name(group), text, i, group->count,
                            end - first);
    }
    return TRP_OK;
}

/* ---- this host --------------------------------------------------------------------------------
 */

/* What CUDA_VISIBLE_DEVICES calls its GPU of that number: a number or a UUID. "-1", which hides all
 * that follow: it has not as many. Caller frees. */
static char *visible_name(const char *visible, uint32_t number)
{
    if (!visible)
        return xasprintf("%" PRIu32, number);
    for (; number > 0; number--) {
        visible = strchr(visible, ',');
        if (!visible)
            return xstrdup("-1");
        visible++;
    }
    size_t length = strcspn(visible, ",");
    return length > 0 ? xasprintf("%.*s", (int)length, visible) : xstrdup("-1");
}

char *devices_visible(const struct node_group *group, uint32_t index, const char *visible)
{
    struct gpu_list list;
    uint32_t first, end;
    if (!gpu_list_of(group, &list))
        return NULL;
    deal_gpus(group, index, &list, &first, &end);
    char *text = visible_name(visible, list.gpus[first]);
    for (uint32_t i = first + 1; i < end; i++) {
        char *name = visible_name(visible, list.gpus[i]);
        char *longer = xasprintf("%s,%s", text, name);
        free(name);
        free(text);
        text = longer;
    }
    return text;
}

/* Whether a group needs GPUs, which are then in `list`. A body of one's own may do without those
 * that it did not list. */
static bool needs_gpus(const struct node_group *group, struct gpu_list *list)
{
    if (!computes_on_gpu(group) || is_auto(group))
        return false;
    if (gpu_list_of(group, list))
        return true;
    *list = (struct gpu_list){.gpus = {(uint32_t)number_in_node(group)}, .count = 1};
    return group->kind != NODE_OWN;
}

/* The driver is asked only where somebody needs GPUs. */
trp_status devices_are_there(const trp_program *program)
{
    struct gpu_list list;
    uint32_t found = 0;
    bool asked = false;
    for (size_t i = 0; i < program->group_count; i++) {
        const struct node_group *group = program->groups[i];
        if (!needs_gpus(group, &list))
            continue;
        const char *word = node_kind_word(group->kind), *gpus = group_text(group, "gpus");
        const char *option = gpus ? "gpus" : "device", *value = gpus ? gpus : devices_name(group);
        if (!asked && trp_device_gpus(&found) != TRP_OK)
            return trp_fail(TRP_UNAVAILABLE, "%s '%s': .%s is %s: %s", word, group->name, option,
                            value, trp_last_error());
        asked = true;
        for (uint32_t k = 0; k < list.count; k++)
            if (list.gpus[k] >= found)
                return trp_fail(TRP_UNAVAILABLE,
                                "%s '%s': .%s is %s, but this host has %" PRIu32
                                " GPU%s that CUDA sees (CUDA_VISIBLE_DEVICES may hide others), "
                                "counted from 0",
                                word, group->name, option, value, found, plural(found));
    }
    return TRP_OK;
}

char *devices_auto_reason(const trp_program *program)
{
    uint32_t found = 0;
    bool asks = false;
    for (size_t i = 0; i < program->group_count; i++)
        asks |= program->groups[i]->kind != NODE_OWN && is_auto(program->groups[i]);
    if (!asks)
        return NULL;
    if (trp_device_gpus(&found) != TRP_OK)
        return error_keep();
    return found > 0 ? NULL : xstrdup("CUDA sees no GPU here (CUDA_VISIBLE_DEVICES may hide some)");
}

trp_status devices_find(const struct node_group *group, uint32_t index, bool shared,
                        trp_device **out)
{
    struct gpu_list list;
    const char *name = devices_name(group);
    uint32_t first, end;
    if (!shared || !gpu_list_of(group, &list))
        return trp_device_find(out, name);
    deal_gpus(group, index, &list, &first, &end);
    if (number_in_node(group) >= end - first)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s '%s': its device is %s of %u GPU%s",
                        node_kind_word(group->kind), group->name, name, end - first,
                        plural(end - first));
    char gpu[24];
    snprintf(gpu, sizeof gpu, "cuda:%" PRIu32, list.gpus[first + number_in_node(group)]);
    trp_status status = trp_device_find(out, gpu);
    if (status == TRP_OK || !is_auto(group))
        return status;
    trp_log(TRP_INFO, "device auto is the CPU: %s", trp_last_error());
    return trp_device_find(out, NULL);
}
