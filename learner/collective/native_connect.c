/* How ranks agree on NCCL, and join: each does by itself, while it listens for who could not. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include "core/alloc.h"
#include "native.h"
#include "virtual_ranks.h"

static bool may_have_nccl(const trp_collective_options *options)
{
    return options->device && !trp_device_is_host(options->device);
}

static void log_why_not(const trp_collective_options *options, const char *why)
{
    trp_log(TRP_WARN, "vectors of device %s go through the host's memory group=%s reason=%s",
            trp_device_name(options->device), options->group ? options->group : "", why);
}

uint32_t native_version(struct nccl_api *api, const trp_collective_options *options)
{
    if (!may_have_nccl(options))
        return 0;
    if (options->deterministic) {
        snprintf(api->path, sizeof api->path,
                 "the order of NCCL's sums follows from more than count and size");
        return 0;
    }
    if (nccl_open(api) == TRP_OK)
        return (uint32_t)api->version;
    snprintf(api->path, sizeof api->path, "%s", trp_last_error());
    api->version = 0;
    return 0;
}

void native_agree(struct hello_agreement *agreement, const struct nccl_api *api, bool all_have)
{
    if (!all_have)
        return;
    enum nccl_result result = api->GetUniqueId(&agreement->id);
    if (result == NCCL_SUCCESS)
        agreement->nccl = (uint32_t)api->version;
    else
        trp_log(TRP_WARN, "ncclGetUniqueId: %s", api->GetErrorString(result));
}

/* ---- rank 0 -------------------------------------------------------------------------------- */

struct nccl_hearing {
    bool *heard; /* by rank */
    uint32_t left;
    struct hello_report verdict; /* OK, while nothing else is known */
};

static trp_status hear_report(struct mesh *mesh, struct nccl_hearing *hearing, uint32_t rank)
{
    struct hello_report report;
    TRP_TRY(mesh_read(mesh, rank, &report, sizeof report));
    report.words[sizeof report.words - 1] = '\0';
    hearing->heard[rank] = true;
    hearing->left--;
    if (report.status != TRP_OK && hearing->verdict.status == TRP_OK)
        hearing->verdict = report;
    return TRP_OK;
}

static void report_own(struct hello_report *report, const struct mesh *mesh, const char *words)
{
    *report = (struct hello_report){.status = TRP_UNAVAILABLE};
    snprintf(report->words, sizeof report->words, "rank %" PRIu32 " of %" PRIu32 ": %s",
             mesh->options->rank, mesh->options->size, words);
}

static trp_status hear_reports(struct mesh *mesh, struct nccl_hearing *hearing)
{
    for (uint32_t rank = 1; rank < mesh->options->size; rank++) {
        bool came = false;
        if (!hearing->heard[rank])
            TRP_TRY(mesh_look(mesh, rank, 0, &came));
        if (came)
            TRP_TRY(hear_report(mesh, hearing, rank));
    }
    return TRP_OK;
}

static void nobody_came(struct mesh *mesh, struct nccl_hearing *hearing, bool own)
{
    uint32_t rank = 0;
    while (own && rank < mesh->options->size && hearing->heard[rank])
        rank++;
    hearing->verdict.status = TRP_DEADLINE_EXCEEDED;
    snprintf(hearing->verdict.words, sizeof hearing->verdict.words,
             "NCCL of rank %" PRIu32 " of %" PRIu32 " has not met the others in time", rank,
             mesh->options->size);
}

/* Until all have joined, or one could not. */
static trp_status hear_all(struct mesh *mesh, struct nccl_group *group,
                           struct nccl_hearing *hearing)
{
    for (;;) {
        enum carrier_state state = group ? nccl_group_meet(group) : CARRIER_FAILED;
        TRP_TRY(hear_reports(mesh, hearing));
        if (state == CARRIER_FAILED && hearing->verdict.status == TRP_OK)
            report_own(&hearing->verdict, mesh, group ? nccl_group_words(group) : trp_last_error());
        if (hearing->verdict.status != TRP_OK || (state == CARRIER_READY && hearing->left == 0))
            return TRP_OK;
        if (deadline_passed(mesh->deadline, &clock_monotonic)) {
            nobody_came(mesh, hearing, state == CARRIER_READY);
            return TRP_OK;
        }
        bool came;
        TRP_TRY(mesh_look(mesh, mesh->options->rank, COLLECTIVE_MEET_MS, &came));
    }
}

/* Who has not reported yet does so then: nothing is left on lines that go on. */
static trp_status tell_verdict(struct mesh *mesh, struct nccl_hearing *hearing)
{
    const struct hello_report verdict = hearing->verdict;
    trp_status status = TRP_OK;
    for (uint32_t rank = 1; rank < mesh->options->size; rank++) {
        trp_status said = mesh_write(mesh, rank, &verdict, sizeof verdict);
        status = status == TRP_OK ? said : status;
    }
    bool goes_on = verdict.status == TRP_OK || verdict.status == TRP_UNAVAILABLE;
    for (uint32_t rank = 1; rank < mesh->options->size && goes_on && status == TRP_OK; rank++)
        if (!hearing->heard[rank])
            status = hear_report(mesh, hearing, rank);
    return status;
}

static trp_status preside_nccl(struct mesh *mesh, struct nccl_group *group,
                               struct hello_report *verdict)
{
    uint32_t size = mesh->options->size;
    struct nccl_hearing hearing = {.heard = xcalloc(size, sizeof(bool)), .left = size - 1};
    hearing.heard[0] = true;
    trp_status status = hear_all(mesh, group, &hearing);
    *verdict = hearing.verdict;
    if (status == TRP_OK)
        status = tell_verdict(mesh, &hearing);
    free(hearing.heard);
    return status;
}

/* ---- the others ---------------------------------------------------------------------------- */

static trp_status attend_nccl(struct mesh *mesh, struct nccl_group *group,
                              struct hello_report *verdict)
{
    bool reported = false, came = false;
    while (!came) {
        enum carrier_state state = group ? nccl_group_meet(group) : CARRIER_FAILED;
        struct hello_report own = {.status = TRP_OK};
        if (state == CARRIER_FAILED)
            report_own(&own, mesh, group ? nccl_group_words(group) : trp_last_error());
        TRP_TRY(
            mesh_look(mesh, 0, state == CARRIER_WORKS || reported ? COLLECTIVE_MEET_MS : 0, &came));
        if (!reported && (state != CARRIER_WORKS || came))
            TRP_TRY(mesh_write(mesh, 0, &own, sizeof own));
        reported = reported || state != CARRIER_WORKS || came;
        if (deadline_passed(mesh->deadline, &clock_monotonic))
            break; /* the reading fails */
    }
    TRP_TRY(mesh_read(mesh, 0, verdict, sizeof *verdict));
    verdict->words[sizeof verdict->words - 1] = '\0';
    return TRP_OK;
}

/* ---- all ----------------------------------------------------------------------------------- */

static trp_status take_verdict(struct nccl_group **group, const struct mesh *mesh,
                               const struct nccl_api *api, const struct hello_report *verdict)
{
    if (verdict->status == TRP_OK) {
        trp_log(TRP_INFO, "vectors of device %s go by NCCL %d.%d.%d of %s",
                trp_device_name(mesh->options->device), api->version / 10000,
                api->version / 100 % 100, api->version % 100, api->path);
        return TRP_OK;
    }
    nccl_group_destroy(*group);
    *group = NULL;
    if (verdict->status != TRP_UNAVAILABLE)
        return trp_fail((trp_status)verdict->status, "%s", verdict->words);
    log_why_not(mesh->options, verdict->words);
    return TRP_OK;
}

static trp_status connect_nccl(struct nccl_group **out, struct mesh *mesh,
                               const struct nccl_api *api, const struct hello_agreement *agreement)
{
    const trp_collective_options *options = mesh->options;
    struct hello_report verdict;
    struct nccl_group *group = NULL;
    trp_status status = nccl_group_create(&group, api, &agreement->id, options);
    if (status != TRP_OK)
        group = NULL; /* the last error is said to the others */
    status = options->rank == 0 ? preside_nccl(mesh, group, &verdict)
                                : attend_nccl(mesh, group, &verdict);
    if (status == TRP_OK)
        status = take_verdict(&group, mesh, api, &verdict);
    else
        nccl_group_destroy(group);
    *out = status == TRP_OK ? group : NULL;
    return status;
}

static trp_status connect_home(struct carrier **out, const trp_collective_options *options,
                               uint64_t meeting)
{
    trp_log(TRP_INFO,
            "vectors of device %s are summed there group=%s ranks=%" PRIu32
            " reason=all of them are threads of this process",
            trp_device_name(options->device), options->group ? options->group : "", options->size);
    return virtual_join(out, options, meeting);
}

trp_status native_connect(struct carrier **out, struct mesh *mesh, const struct nccl_api *api,
                          const struct hello_agreement *agreement)
{
    const trp_collective_options *options = mesh->options;
    struct nccl_group *group = NULL;
    *out = NULL;
    if (agreement->meeting != 0 && virtual_home(options) != 0)
        return connect_home(out, options, agreement->meeting);
    if (agreement->nccl != 0 && agreement->nccl == (uint32_t)api->version)
        TRP_TRY(connect_nccl(&group, mesh, api, agreement));
    else if (may_have_nccl(options))
        log_why_not(options, api->version == 0 ? api->path
                                               : "not all ranks have the same NCCL, and a device");
    *out = group ? nccl_group_carrier(group) : NULL;
    return TRP_OK;
}
