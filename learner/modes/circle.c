#include "circle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <troupe/learner.h>
#include "core/address.h"
#include "core/alloc.h"
#include "core/status.h"

enum { ADDRESS_WORDS = CIRCLE_ADDRESS_BYTES / sizeof(int32_t) };
_Static_assert(ADDRESS_WORDS % TRP_COLLECTIVE_RANGE_VALUES == 0, "a rank's address is its range");

/* ---- life ------------------------------------------------------------------------------------ */

trp_status circle_listen(struct circle *circle, struct learners *group, const char *name,
                         const struct learners_options *options)
{
    const char *listen = options->listen;
    assert(strlen(name) < TRP_LEARNER_PATH_MORE);
    bool is_unix = listen && address_is_unix(listen);
    char *address = is_unix ? xasprintf("%s.%s", listen, name) : NULL;
    circle->group = group;
    circle->name = name;
    if (listen && !is_unix) {
        size_t host = strlen(listen) - strlen(strrchr(listen, ':'));
        address = xasprintf("%.*s:0", (int)host, listen);
    }
    trp_status status =
        trp_collective_listener_create(&circle->listener, address, options->insecure);
    free(address);
    TRP_TRY(status);
    const char *text = trp_collective_listener_address(circle->listener);
    if (strlen(text) >= CIRCLE_ADDRESS_BYTES)
        return trp_fail(TRP_INVALID_ARGUMENT, "learner: the address %s is too long", text);
    memcpy(circle->address, text, strlen(text) + 1);
    return TRP_OK;
}

void circle_leave(struct circle *circle)
{
    if (circle->collective)
        circle->sent_bytes += trp_collective_read(circle->collective).bytes_sent;
    trp_collective_destroy(circle->collective);
    circle->collective = NULL;
    circle->size = 0;
}

void circle_cleanup(struct circle *circle)
{
    circle_leave(circle);
    trp_collective_listener_destroy(circle->listener);
}

/* ---- who is in it ---------------------------------------------------------------------------- */

static trp_status connect_circle(struct circle *circle, const char *const *addresses)
{
    struct learners *group = circle->group;
    char *name = xasprintf("%s.%s", group->options.name, circle->name);
    const trp_collective_options ranks = {.group = name,
                                          .nonce = group->nonce,
                                          .rank = circle->rank,
                                          .size = circle->size,
                                          .addresses = addresses};
    trp_status status = learners_connect(group, circle->listener, &ranks, &circle->collective);
    free(name);
    if (!status_is_transient(status))
        return status;
    learners_abort(group, trp_last_error());
    return learners_wait(group, trp_collective_barrier(group->collective));
}

static trp_status join_ranks(struct circle *circle, char (*all)[CIRCLE_ADDRESS_BYTES],
                             const bool *in)
{
    const struct learners *group = circle->group;
    const char **addresses = xcalloc(group->size, sizeof *addresses);
    for (uint32_t rank = 0; rank < group->size; rank++) {
        if (!in[rank])
            continue;
        all[rank][CIRCLE_ADDRESS_BYTES - 1] = '\0';
        circle->rank = rank == group->rank ? circle->size : circle->rank;
        addresses[circle->size++] = all[rank];
    }
    trp_status status = circle->size > 1 ? connect_circle(circle, addresses) : TRP_OK;
    free(addresses);
    return status;
}

trp_status circle_join(struct circle *circle, const bool *in)
{
    struct learners *group = circle->group;
    char(*all)[CIRCLE_ADDRESS_BYTES] = xcalloc(group->size, sizeof *all);
    memcpy(all[group->rank], circle->address, sizeof *all);
    trp_status status = learners_wait(
        group, trp_collective_all_gather(group->collective, NULL, all,
                                         group->size * (size_t)ADDRESS_WORDS, TRP_COLLECTIVE_I32));
    if (status != TRP_OK) /* the memory may still be used */
        learners_leave(group);
    else if (in[group->rank])
        status = join_ranks(circle, all, in);
    free(all);
    return status;
}

/* ---- operations ------------------------------------------------------------------------------ */

uint64_t circle_sum(const struct circle *circle, uint64_t *words, size_t count)
{
    return circle->collective ? trp_collective_allreduce(circle->collective, NULL, words, count,
                                                         TRP_COLLECTIVE_U64, TRP_COLLECTIVE_SUM)
                              : 0;
}

uint64_t circle_gather(const struct circle *circle, uint32_t *blocks, size_t each)
{
    return circle->collective ? trp_collective_all_gather(circle->collective, NULL, blocks,
                                                          circle->size * each, TRP_COLLECTIVE_I32)
                              : 0;
}

uint64_t circle_broadcast(const struct circle *circle, void *values, size_t count,
                          trp_collective_type type)
{
    return circle->collective
               ? trp_collective_broadcast(circle->collective, NULL, values, count, type, 0)
               : 0;
}

uint64_t circle_barrier(const struct circle *circle)
{
    return circle->collective ? trp_collective_barrier(circle->collective) : 0;
}

trp_status circle_wait(const struct circle *circle, uint64_t ticket)
{
    return circle->collective ? learners_wait_in(circle->group, circle->collective, ticket)
                              : TRP_OK;
}

bool circle_is_done(const struct circle *circle, uint64_t ticket)
{
    return !circle->collective || trp_collective_done(circle->collective, ticket);
}
