/* Where nodes compute: the options `device` and `gpus` of those that have them. `gpus`, "0,2-3",
 * are GPUs of the host, counted as the launcher sees them; the members of a group are dealt as
 * equal parts of these as there are, at least one each, and a member calls those that it has cuda:0
 * and so on. A process is shown no others (CUDA_VISIBLE_DEVICES); in threads they are found by
 * number. */
#ifndef TRP_LAUNCH_DEVICES_H
#define TRP_LAUNCH_DEVICES_H

#include "graph.h"

/* Sets `device` of every node that has it. INVALID_ARGUMENT: no device has that name, or no node
 * has the option. */
TRP_MUST_USE trp_status devices_set(trp_program *program, const char *name);

/* INVALID_ARGUMENT: no device has that name, or `gpus` is no list of GPUs, or one too short. */
TRP_MUST_USE trp_status devices_check(const struct node_group *group);

/* What a group says; NULL: nothing. And whether it says cuda:N. */
const char *devices_name(const struct node_group *group);
bool devices_name_gpu(const struct node_group *group);

/* The GPUs of a member as CUDA_VISIBLE_DEVICES has them, "2,3", in a process that is started by one
 * where that is `visible`; where it is not set, NULL, these are their numbers. NULL: the member has
 * all there are, or computes on none. Caller frees. */
char *devices_visible(const struct node_group *group, uint32_t index, const char *visible);

/* UNAVAILABLE: nodes are to compute on GPUs that this host has not; which and how many it has. With
 * the device auto they are on the CPU then. */
TRP_MUST_USE trp_status devices_are_there(const trp_program *program);

/* Why built-in nodes with the device auto are on the CPU. NULL: none has it, or there are GPUs:
 * whether they can be used, nodes find out. Caller frees. */
char *devices_auto_reason(const trp_program *program);

/* The device of a member, in a process that is shown only its GPUs or (`shared`) all. As
 * trp_device_find(). */
TRP_MUST_USE trp_status devices_find(const struct node_group *group, uint32_t index, bool shared,
                                     trp_device **out);

#endif
