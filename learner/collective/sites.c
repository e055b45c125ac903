#include "sites.h"

#include <stdlib.h>
#include <string.h>

#include "core/address.h"
#include "core/alloc.h"
#include "core/hash.h"

/* Of a rank: a name, or the host of its address. */
struct site_label {
    const char *text;
    size_t length;
};

static struct site_label label_of(const trp_collective_options *options, uint32_t rank)
{
    if (options->sites)
        return (struct site_label){options->sites[rank], strlen(options->sites[rank])};
    const char *address = options->addresses ? options->addresses[rank] : "unix:";
    const char *end = address_is_unix(address) ? NULL : strrchr(address, ':');
    return (struct site_label){address, end ? (size_t)(end - address) : 0};
}

uint32_t *sites_of(const trp_collective_options *options)
{
    uint32_t *sites = xcalloc(options->size, sizeof *sites);
    for (uint32_t rank = 0; rank < options->size; rank++) {
        struct site_label label = label_of(options, rank);
        for (sites[rank] = 0; sites[rank] < rank; sites[rank]++) {
            struct site_label other = label_of(options, sites[rank]);
            if (label.length == other.length && memcmp(label.text, other.text, label.length) == 0)
                break;
        }
    }
    return sites;
}

uint32_t sites_hash(const trp_collective_options *options)
{
    uint32_t *sites = sites_of(options);
    uint64_t hash = hash_bytes(HASH_BYTES_EMPTY, sites, options->size * sizeof *sites);
    free(sites);
    return (uint32_t)(hash ^ hash >> 32);
}

/* The next rank of another site, or of this one, from `rank` on: round the group. */
static uint32_t first_after(const uint32_t *sites, uint32_t rank, uint32_t size)
{
    do
        rank = (rank + 1) % size;
    while (sites[rank] != rank);
    return rank;
}

void sites_place(struct schedule_place *place, const uint32_t *sites, uint32_t rank, uint32_t size)
{
    *place = (struct schedule_place){.before = rank, .after = rank, .left = rank, .right = rank};
    for (uint32_t other = 0; other < size; other++) {
        place->sites += sites[other] == other;
        place->site += sites[other] == other && other < sites[rank];
        if (sites[other] == sites[rank] && other < rank)
            place->before = other;
        if (sites[other] == sites[rank] && other > rank && place->after == rank)
            place->after = other;
    }
    if (sites[rank] != rank)
        return;
    place->right = first_after(sites, rank, size);
    for (uint32_t other = place->right; other != rank; other = first_after(sites, other, size))
        place->left = other;
}
