/* Learners whose parameters are servers' (Li et al. 2014). A phase ends with a push of its gradient
 * and a pull of what became of all: the optimizer is at the servers, and who waits for whom is
 * their rule. Each learner clips its own gradients, and leaves its own out; target networks and
 * what else is not learned it has for itself. Nobody waits for a learner but at a server. */
#include "mode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/log.h>
#include <troupe/nn.h>
#include "core/alloc.h"
#include "core/boot.h"
#include "core/clock.h"
#include "core/thread.h"
#include "learner/server/placement.h"
#include "limits.h"
#include "server_link.h"

struct served {
    struct server_link *links;    /* one to each server */
    float *accrued;               /* gradients that are not pushed yet; NULL: all are */
    uint32_t unpushed, unfetched; /* phases since the last push and pull */
};

struct server_mode {
    struct mode base;
    struct learners_options group;
    trp_learner_servers servers;
    struct compress_options compress;
    struct server_links links;
    struct served each[TRP_UPDATER_VECTORS_MAX];
    uint64_t generation;
    int64_t met_ns;    /* when it began */
    bool misses;       /* one of its members, and has said so */
    uint32_t *members; /* of it, [members_count] */
    uint32_t member_count;
    uint64_t unsaid;           /* steps that began since a push told server 0 so */
    bool begun;                /* the last of them has not ended */
    bool cut;                  /* a call of a phase has failed */
    struct deadline next_word; /* to servers, of one that waits for batches */
};

static struct server_mode *server_mode_of(struct mode *mode)
{
    return (struct server_mode *)mode;
}

/* ---- a phase ------------------------------------------------------------------------------- */

static trp_status push_gradient(struct server_mode *mode, size_t index, float *grads, float scale)
{
    for (size_t i = 0; i < mode->servers.count; i++) {
        struct server_link *link = &mode->each[index].links[i];
        TRP_TRY(server_link_push(link, grads, scale, mode->unsaid));
        mode->unsaid = 0; /* to server 0, the first one */
    }
    return TRP_OK;
}

/* Where a server maps the gradient they are put there, for the push. */
static trp_status push_accrued(struct server_mode *mode, size_t index)
{
    const struct vector *vector = &mode->base.vectors->each[index];
    struct served *served = &mode->each[index];
    size_t bytes = vector->spec->count * sizeof(float);
    TRP_TRY(push_gradient(mode, index, served->accrued, 1));
    memset(served->accrued, 0, bytes);
    memset(vector->grads, 0, bytes);
    served->unpushed = 0;
    return TRP_OK;
}

static trp_status pull_values(struct server_mode *mode, size_t index)
{
    for (size_t i = 0; i < mode->servers.count; i++)
        TRP_TRY(server_link_pull(&mode->each[index].links[i]));
    mode->each[index].unfetched = 0;
    return TRP_OK;
}

/* Downpour between two pushes: the learner's own copy takes the step. */
static trp_status step_alone(struct server_mode *mode, size_t index, float scale)
{
    struct vector *vector = &mode->base.vectors->each[index];
    struct served *served = &mode->each[index];
    const trp_server_rule rule = (trp_server_rule)mode->servers.options.rule;
    uint32_t push_every = rule == TRP_SERVER_ASYNC ? mode->servers.options.push_every : 1;
    uint32_t fetch_every = rule == TRP_SERVER_ASYNC ? mode->servers.options.fetch_every : 1;
    for (size_t k = 0; k < vector->spec->count; k++)
        served->accrued[k] += scale * vector->grads[k];
    vector_step(mode->base.vectors, vector);
    if (++served->unpushed == push_every)
        TRP_TRY(push_accrued(mode, index));
    return ++served->unfetched == fetch_every ? pull_values(mode, index) : TRP_OK;
}

static trp_status end_at_servers(struct server_mode *mode, size_t index)
{
    struct vector *vector = &mode->base.vectors->each[index];
    const trp_phases *phases = vector->phases.here;
    float scale = trp_clip_scale(phases->norm2, (float)vector->spec->optimizer.max_norm);
    if (phases->refused)
        return TRP_OK;
    if (mode->each[index].accrued)
        return phases->skipped ? TRP_OK : step_alone(mode, index, scale);
    /* One that is left out is a push of nothing: others may wait for it. */
    TRP_TRY(push_gradient(mode, index, phases->skipped ? NULL : vector->grads, scale));
    return pull_values(mode, index);
}

static trp_status server_apply(struct mode *base, size_t index)
{
    struct server_mode *mode = server_mode_of(base);
    struct vector *vector = &base->vectors->each[index];
    trp_phases *phases = vector->phases.here;
    trp_phase_measure(base->vectors->queue, &vector->spec->optimizer, vector->grads,
                      vector->spec->count, vector->watched, phases);
    trp_status status = end_at_servers(mode, index);
    mode->cut = status != TRP_OK;
    TRP_TRY(status);
    trp_phase_end(base->vectors->queue, vector->grads, vector->spec->count, phases);
    return TRP_OK;
}

static trp_status server_begin(struct mode *base, const struct mode_round *round)
{
    struct server_mode *mode = server_mode_of(base);
    mode->unsaid += round->has_batch;
    mode->begun = round->has_batch;
    return TRP_OK;
}

/* Of all, with those of this learner that it has not told of. */
static uint64_t steps_so_far(const struct server_mode *mode)
{
    return mode->links.steps + mode->unsaid;
}

/* ---- who else learns ----------------------------------------------------------------------- */

/* They were of the generation before. */
static void forget_silent(struct server_mode *mode)
{
    for (size_t i = 0; i < mode->base.vectors->count; i++)
        for (size_t k = 0; mode->each[i].links && k < mode->servers.count; k++)
            mode->each[i].links[k].silent_count = 0;
}

/* Where the servers are is known to all: members meet so that one of them leads. */
static trp_status enter_generation_of_servers(struct server_mode *mode, int64_t timeout_ms,
                                              trp_generation *generation)
{
    trp_rendezvous *rendezvous = mode->group.rendezvous;
    trp_status status =
        rendezvous->impl->next(rendezvous, mode->generation, timeout_ms, generation);
    if (status == TRP_DEADLINE_EXCEEDED)
        return TRP_OK;
    TRP_TRY(status);
    mode->generation = generation->number;
    mode->base.leads = generation->rank == 0;
    mode->misses = false;
    mode->met_ns = clock_now_ns(&clock_monotonic);
    forget_silent(mode);
    mode->member_count = generation->size;
    free(mode->members);
    mode->members = xmemdup(generation->members, generation->size * sizeof *mode->members);
    trp_log(TRP_INFO,
            "learner learns at servers group=%s generation=%" PRIu64 " rank=%" PRIu32
            " of=%" PRIu32,
            mode->group.name, generation->number, generation->rank, generation->size);
    return TRP_OK;
}

static trp_status meet_others(struct server_mode *mode, trp_rng *rng)
{
    trp_rendezvous *rendezvous = mode->group.rendezvous;
    trp_generation generation = {0};
    TRP_TRY(rendezvous->impl->announce(rendezvous, mode->links.learner));
    while (mode->generation == 0) {
        if (trp_stop_requested(mode->group.stop))
            return trp_fail(TRP_CANCELLED, "learner: stopped while it waited for its group");
        TRP_TRY(enter_generation_of_servers(mode, LEARNERS_LOOK_MS, &generation));
        turns_pass();
    }
    if (generation.rank > 0)
        trp_rng_init(rng, rng->state[0], generation.number << 16 | generation.rank);
    return TRP_OK;
}

static bool is_member(const struct server_mode *mode, uint32_t learner)
{
    for (uint32_t i = 0; i < mode->member_count; i++)
        if (mode->members[i] == learner)
            return true;
    return false;
}

/* A member that this server has not heard of. NULL: there is none. What one was before the
 * generation, stopped say, is no silence in it. */
static const uint32_t *silent_member(const struct server_mode *mode, const struct server_link *link)
{
    int64_t met_ms = (clock_now_ns(&clock_monotonic) - mode->met_ns) / 1000000;
    if ((uint64_t)met_ms < link->silent_ms)
        return NULL;
    for (size_t i = 0; i < link->silent_count; i++)
        if (is_member(mode, link->silent[i]))
            return &link->silent[i];
    return NULL;
}

static void miss_member(struct server_mode *mode, const struct server_link *link, uint32_t member)
{
    char *why = xasprintf("%s/%" PRIu32 " has not pushed '%s' to %s/%" PRIu32 " for %g s",
                          mode->group.name, member, link->vector->spec->name, mode->servers.name,
                          link->server, (double)link->silent_ms / 1e3);
    learners_break(mode->group.rendezvous, mode->generation, "is broken", why);
    mode->misses = true;
    free(why);
}

/* One that hangs would keep versions back if it leads, and with some rules nobody waits for it.
 * Servers know nothing of generations: who is silent may be gone. */
static void miss_silent(struct server_mode *mode)
{
    for (size_t i = 0; i < mode->base.vectors->count; i++)
        for (size_t k = 0; mode->each[i].links && k < mode->servers.count; k++) {
            const struct server_link *link = &mode->each[i].links[k];
            const uint32_t *member = silent_member(mode, link);
            if (member && !mode->misses)
                miss_member(mode, link, *member);
        }
}

/* One that waits for batches pushes nothing: others hear that it is there, and it of those who are
 * not. */
static trp_status say_idle(struct server_mode *mode)
{
    const struct vectors *vectors = mode->base.vectors;
    if (!deadline_passed(mode->next_word, &clock_monotonic))
        return TRP_OK;
    for (size_t i = 0; i < vectors->count; i++)
        for (size_t k = 0; vectors->each[i].spec->learned && k < mode->servers.count; k++)
            TRP_TRY(server_link_idle(&mode->each[i].links[k]));
    mode->next_word = deadline_in_ms(&clock_monotonic, SERVER_IDLE_MS / 2);
    return TRP_OK;
}

static trp_status server_end(struct mode *base, struct mode_round *round)
{
    struct server_mode *mode = server_mode_of(base);
    trp_rendezvous *rendezvous = mode->group.rendezvous;
    trp_generation generation;
    round->whole = round->has_batch;
    round->steps = steps_so_far(mode);
    mode->begun = false;
    if (!rendezvous)
        return TRP_OK;
    if (!round->has_batch && !round->stops)
        TRP_TRY(say_idle(mode));
    miss_silent(mode);
    if (rendezvous->impl->newest(rendezvous) <= mode->generation)
        return TRP_OK;
    return enter_generation_of_servers(mode, 0, &generation);
}

/* Values and state become those of the servers, once these have all that this learner has. */
static trp_status server_gather(struct mode *base)
{
    struct server_mode *mode = server_mode_of(base);
    for (size_t i = 0; i < base->vectors->count; i++)
        if (mode->each[i].unpushed > 0)
            TRP_TRY(push_accrued(mode, i));
    for (size_t i = 0; i < base->vectors->count; i++) {
        struct vector *vector = &base->vectors->each[i];
        trp_phases *phases = vector->phases.here;
        for (size_t k = 0; vector->spec->learned && k < mode->servers.count; k++) {
            TRP_TRY(server_link_fetch(&mode->each[i].links[k]));
            phases->steps = mode->each[i].links[k].optimizer_steps;
        }
        mode->each[i].unfetched = 0;
    }
    return TRP_OK;
}

/* Those of whole steps are as good as any, whatever ended the learner; who has not got through to
 * servers does not try again. */
static void server_leave(struct mode *base)
{
    struct server_mode *mode = server_mode_of(base);
    uint32_t lost = 0;
    mode->unsaid -= mode->begun;
    mode->begun = false;
    for (size_t i = 0; i < base->vectors->count; i++) {
        uint32_t unpushed = mode->each[i].unpushed;
        bool goes = unpushed == 0 || (!mode->cut && push_accrued(mode, i) == TRP_OK);
        lost = goes || lost > unpushed ? lost : unpushed;
    }
    if (lost > 0)
        trp_log(TRP_WARN, "gradients have not reached servers steps=%" PRIu32 " reason=%s", lost,
                trp_last_error());
}

static trp_status server_meet(struct mode *base, struct mode_meeting *meeting)
{
    struct server_mode *mode = server_mode_of(base);
    if (mode->group.rendezvous)
        TRP_TRY(meet_others(mode, meeting->rng));
    uint64_t steps = meeting->steps; /* the first table of the first server has them */
    for (size_t i = 0; i < base->vectors->count; i++)
        for (size_t k = 0; base->vectors->each[i].spec->learned && k < mode->servers.count; k++) {
            struct server_link *link = &mode->each[i].links[k];
            TRP_TRY(server_link_join(link, steps));
            steps = 0;
            if (link->compressor)
                compressor_join(link->compressor, mode->servers.worker, 1, link->clock);
        }
    TRP_TRY(server_gather(base));
    meeting->steps = mode->links.steps;
    meeting->version = meeting_version(meeting, mode->generation);
    meeting->generation = mode->generation;
    return TRP_OK;
}

static uint64_t server_next_version(struct mode *base, uint64_t version)
{
    const struct server_mode *mode = server_mode_of(base);
    return mode_next_version(mode->generation, steps_so_far(mode), version);
}

/* ---- its life ------------------------------------------------------------------------------ */

static void server_mode_destroy(struct mode *base)
{
    struct server_mode *mode = server_mode_of(base);
    for (size_t i = 0; i < base->vectors->count; i++) {
        for (size_t k = 0; mode->each[i].links && k < mode->servers.count; k++)
            server_link_close(&mode->each[i].links[k]);
        free(mode->each[i].links);
        trp_floats_destroy(mode->each[i].accrued);
    }
    free(mode->links.learner);
    free(mode->members);
    free((void *)(uintptr_t)mode->servers.services);
    free(mode);
}

static const struct mode_impl server_impl = {.meet = server_meet,
                                             .begin = server_begin,
                                             .end = server_end,
                                             .apply = server_apply,
                                             .next_version = server_next_version,
                                             .gather = server_gather,
                                             .leave = server_leave,
                                             .destroy = server_mode_destroy};

static trp_status check_servers(const struct vectors *vectors, const trp_learner_servers *servers)
{
    for (size_t i = 0; i < vectors->count; i++) {
        const trp_vector_spec *spec = vectors->each[i].spec;
        trp_status status =
            trp_parameter_server_check(&servers->options, servers->count, servers->workers,
                                       spec->learned ? &spec->optimizer : NULL);
        if (status != TRP_OK)
            return trp_fail(status, "learner: '%s' at %s: %s", spec->name, servers->name,
                            trp_last_error());
    }
    return TRP_OK;
}

static void make_links(struct server_mode *mode, size_t index)
{
    struct vector *vector = &mode->base.vectors->each[index];
    const trp_parameter_server_options *options = &mode->servers.options;
    const struct placement placement = {.servers = (uint32_t)mode->servers.count,
                                        .learners = mode->servers.workers,
                                        .idle = options->idle_hosts};
    size_t count = vector->spec->count;
    if (mode->links.host[0] != '\0')
        vector_share_grads(mode->base.vectors, vector);
    bool compresses = mode->compress.kind != COMPRESS_NONE;
    struct server_link *links = xcalloc(mode->servers.count, sizeof *links);
    for (uint32_t i = 0; i < mode->servers.count; i++)
        links[i] = (struct server_link){.links = &mode->links,
                                        .vector = vector,
                                        .server = i,
                                        .lo = placement_begin(&placement, count, i),
                                        .hi = placement_begin(&placement, count, i + 1)};
    for (uint32_t i = 0; i < mode->servers.count && compresses; i++)
        links[i].compressor =
            compressor_create_one_way(&mode->compress, links[i].lo, links[i].hi,
                                      vector->spec->tensors, vector->spec->tensor_count);
    mode->each[index].links = links;
    if (options->rule == TRP_SERVER_ASYNC && (options->push_every > 1 || options->fetch_every > 1))
        mode->each[index].accrued = trp_floats_create(count);
}

trp_status server_mode_create(struct mode **out, struct vectors *vectors,
                              const struct mode_options *options)
{
    const trp_learner_servers *servers = options->servers;
    *out = NULL;
    if (!servers || servers->count == 0)
        return trp_fail(TRP_INVALID_ARGUMENT, "learner: the mode server has no servers");
    TRP_TRY(check_servers(vectors, servers));
    struct server_mode *mode = xcalloc(1, sizeof *mode);
    mode->base = (struct mode){
        .impl = &server_impl, .vectors = vectors, .leads = !options->group.rendezvous};
    mode->group = options->group;
    mode->compress = options->compress;
    mode->servers = *servers;
    mode->servers.services = xmemdup(servers->services, servers->count * sizeof *servers->services);
    if (mode->servers.options.push_every == 0)
        mode->servers.options.push_every = 1;
    if (mode->servers.options.fetch_every == 0)
        mode->servers.options.fetch_every = 1;
    mode->links = (struct server_links){.servers = &mode->servers, .group = &mode->group};
    mode->links.learner = xasprintf("%s/%" PRIu32, mode->group.name, servers->worker);
    if (!servers->options.no_share)
        boot_id_read(mode->links.host);
    for (size_t i = 0; i < vectors->count; i++)
        if (vectors->each[i].spec->learned)
            make_links(mode, i);
    *out = &mode->base;
    return TRP_OK;
}
