/* Who says what when ranks connect, and what is thought of it. */
#include "hello.h"

#include <inttypes.h>
#include <string.h>

#include "sites.h"
#include "virtual_ranks.h"

static const char magic[8] = "TRPGROUP";

void hello_init(struct hello *hello, const trp_collective_options *options,
                enum hello_purpose purpose)
{
    *hello = (struct hello){.wire = COLLECTIVE_WIRE,
                            .purpose = purpose,
                            .rank = options->rank,
                            .size = options->size,
                            .generation = options->generation,
                            .nonce = options->nonce};
    memcpy(hello->magic, magic, sizeof magic);
    strncpy(hello->group, options->group ? options->group : "", sizeof hello->group - 1);
}

bool hello_is_ours(const struct hello *hello, const trp_collective_options *options)
{
    return hello->generation == options->generation && hello->nonce == options->nonce &&
           hello->size == options->size && hello->rank > options->rank &&
           hello->rank < options->size && hello->purpose < HELLO_PURPOSES;
}

bool hello_judge(const struct hello *hello, const trp_collective_options *options,
                 struct hello_answer *answer)
{
    struct hello mine;
    hello_init(&mine, options, HELLO_LINE);
    if (memcmp(hello->magic, magic, sizeof magic) != 0 ||
        memcmp(hello->group, mine.group, sizeof mine.group) != 0)
        return false;
    *answer = (struct hello_answer){
        .verdict = HELLO_WELCOME, .wire = COLLECTIVE_WIRE, .generation = options->generation};
    memcpy(answer->magic, magic, sizeof magic);
    if (hello->wire != COLLECTIVE_WIRE)
        answer->verdict = HELLO_OTHER_WIRE;
    else if (hello->generation != options->generation)
        answer->verdict = HELLO_OTHER_GENERATION;
    return answer->verdict != HELLO_WELCOME || hello_is_ours(hello, options);
}

bool hello_is_answer(const struct hello_answer *answer)
{
    return memcmp(answer->magic, magic, sizeof magic) == 0;
}

void hello_profile_init(struct hello_profile *profile, const trp_collective_options *options)
{
    *profile = (struct hello_profile){.float_bytes = sizeof(float),
                                      .size_bytes = sizeof(size_t),
                                      .call_bytes = sizeof(struct group_call),
                                      .notice_bytes = sizeof(struct notice),
                                      .fingerprint = options->fingerprint,
                                      .timeout_ms = options->timeout_ms,
                                      .deterministic = options->deterministic,
                                      .sites = sites_hash(options),
                                      .home = virtual_home(options)};
    strncpy(profile->version, trp_version(), sizeof profile->version - 1);
}

trp_status hello_other_wire(const struct hello_wires *wires)
{
    return trp_fail(TRP_FAILED_PRECONDITION,
                    "ranks differ in wire: rank 0 has %" PRIu32 ", rank %" PRIu32 " has %" PRIu32,
                    wires->of_first, wires->rank, wires->of_rank);
}

static trp_status differ(uint32_t rank_a, uint64_t a, uint32_t rank_b, uint64_t b, const char *what)
{
    if (a == b)
        return TRP_OK;
    return trp_fail(TRP_FAILED_PRECONDITION,
                    "ranks differ in %s: rank %" PRIu32 " has %" PRIu64 ", rank %" PRIu32
                    " has %" PRIu64,
                    what, rank_a, a, rank_b, b);
}

trp_status hello_compare(uint32_t rank_a, const struct hello_profile *a, uint32_t rank_b,
                         const struct hello_profile *b)
{
    if (memcmp(a->version, b->version, sizeof a->version) != 0)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "ranks differ in Troupe's version: rank %" PRIu32
                        " has %.31s, rank %" PRIu32 " has %.31s",
                        rank_a, a->version, rank_b, b->version);
    TRP_TRY(differ(rank_a, a->float_bytes, rank_b, b->float_bytes, "the size of a float"));
    TRP_TRY(differ(rank_a, a->size_bytes, rank_b, b->size_bytes, "the size of a size"));
    TRP_TRY(differ(rank_a, a->call_bytes, rank_b, b->call_bytes, "the size of a call"));
    TRP_TRY(differ(rank_a, a->notice_bytes, rank_b, b->notice_bytes, "the size of a notice"));
    TRP_TRY(differ(rank_a, a->fingerprint, rank_b, b->fingerprint, "fingerprint"));
    TRP_TRY(differ(rank_a, a->timeout_ms, rank_b, b->timeout_ms, "timeout (ms)"));
    TRP_TRY(differ(rank_a, a->sites, rank_b, b->sites, "sites (their hash)"));
    return differ(rank_a, a->deterministic, rank_b, b->deterministic, "`deterministic`");
}
