/* Operations of a group on a network of tests: whatever is on its way for how long, every rank has
 * the serial result; who waits for whom leads to the one that is dead; and a sum in sites crosses
 * slow links as seldom as it can. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "learner/collective/sites.h"
#include "learner/collective/table.h"
#include "learner/collective/transfer.h"
#include "tests/learner/scripted.h"

enum { CREW_MAX = 7, COUNT_MAX = 3000, ROOM = 1 << 20, CHUNK_MAX = 1 << 18 };

/* ---- lanes over the network ------------------------------------------------------------------ */

struct scripted_lane {
    struct peer_lane lane; /* first */
    struct scripted *net;
    uint32_t self, peer;
    size_t chunk; /* bytes that are sent at a time, at most */
    uint8_t *came;
    size_t got, used;
};

static struct scripted_lane *scripted_lane_of(struct peer_lane *lane)
{
    return (struct scripted_lane *)lane;
}

static trp_status send_scripted(struct peer_lane *base, const struct iovec *parts, unsigned count,
                                size_t *taken)
{
    struct scripted_lane *lane = scripted_lane_of(base);
    static uint8_t bytes[CHUNK_MAX];
    *taken = 0;
    for (unsigned i = 0; i < count; i++) {
        size_t left = lane->chunk - *taken;
        size_t size = parts[i].iov_len < left ? parts[i].iov_len : left;
        memcpy(bytes + *taken, parts[i].iov_base, size);
        *taken += size;
    }
    scripted_send(lane->net, lane->self, lane->peer, bytes, *taken);
    return TRP_OK;
}

static trp_status peek_scripted(struct peer_lane *base, size_t least, size_t most,
                                const void **bytes, size_t *size)
{
    struct scripted_lane *lane = scripted_lane_of(base);
    size_t there = lane->got - lane->used;
    *bytes = lane->came + lane->used;
    *size = there < least ? 0 : there < most ? there : most;
    return TRP_OK;
}

static void skip_scripted(struct peer_lane *base, size_t size)
{
    scripted_lane_of(base)->used += size;
}

static trp_status receive_scripted(struct peer_lane *base, void *to, size_t size, size_t *came)
{
    const void *bytes;
    trp_status status = peek_scripted(base, 0, size, &bytes, came);
    memcpy(to, bytes, *came);
    skip_scripted(base, *came);
    return status;
}

static const struct lane_impl scripted_lanes = {.send = send_scripted,
                                                .receive = receive_scripted,
                                                .peek = peek_scripted,
                                                .skip = skip_scripted};

/* ---- ranks ----------------------------------------------------------------------------------- */

struct crew_rank {
    struct transfer transfer;
    struct scripted_lane wires[CREW_MAX];
    struct peer_lane *lanes[CREW_MAX];
    int32_t values[2 * COUNT_MAX];
    uint8_t snapshot[SCHEDULE_DOUBLING_BYTES_MAX];
};

struct crew {
    struct scripted *net;
    uint32_t size, *sites;
    struct crew_rank *ranks;
};

static void advance_rank(void *context, uint32_t self)
{
    struct crew *crew = context;
    struct transfer *transfer = &crew->ranks[self].transfer;
    struct transfer_look look = {.moved = true};
    while (look.moved && !transfer_is_done(transfer)) {
        look = transfer_advance(transfer, crew->ranks[self].lanes);
        assert_int_equal(look.status, TRP_OK);
        assert_false(look.differs);
    }
}

static void take_bytes(void *context, uint32_t self, uint32_t from, const void *bytes, size_t size)
{
    struct crew *crew = context;
    struct scripted_lane *lane = &crew->ranks[self].wires[from];
    assert_true(lane->got + size <= ROOM);
    memcpy(lane->came + lane->got, bytes, size);
    lane->got += size;
}

/* `division` has a letter for each rank's site. */
static void crew_begin(struct crew *crew, const char *division, const struct group_call *call,
                       size_t chunk)
{
    static const struct scripted_impl impl = {.act = advance_rank, .hear = take_bytes};
    static const char *const letters[] = {"a", "b", "c", "d"};
    const char *names[CREW_MAX];
    struct schedule_table table;
    table_choose(&table);
    uint32_t size = (uint32_t)strlen(division);
    for (uint32_t rank = 0; rank < size; rank++)
        names[rank] = letters[division[rank] - 'a'];
    *crew =
        (struct crew){.size = size,
                      .net = scripted_create(size, &impl, crew),
                      .sites = sites_of(&(trp_collective_options){.size = size, .sites = names}),
                      .ranks = xcalloc(size, sizeof *crew->ranks)};
    for (uint32_t rank = 0; rank < size; rank++) {
        struct crew_rank *own = &crew->ranks[rank];
        struct schedule_place place;
        struct schedule schedule;
        sites_place(&place, crew->sites, rank, size);
        schedule_init(&schedule, call, rank, size, &table, &place);
        for (size_t i = 0; i < call->count; i++)
            own->values[i] = (int32_t)(rank * 1000 + i);
        transfer_init(&own->transfer, &schedule, own->values, own->snapshot, crew->sites);
        for (uint32_t peer = 0; peer < size; peer++) {
            own->wires[peer] = (struct scripted_lane){
                {&scripted_lanes}, crew->net, rank, peer, chunk, xmalloc(ROOM), 0, 0};
            own->lanes[peer] = &own->wires[peer].lane;
        }
    }
}

static void crew_end(struct crew *crew)
{
    for (uint32_t rank = 0; rank < crew->size; rank++)
        for (uint32_t peer = 0; peer < crew->size; peer++)
            free(crew->ranks[rank].wires[peer].came);
    free(crew->ranks);
    free(crew->sites);
    scripted_destroy(crew->net);
}

static bool all_are_done(const struct crew *crew)
{
    for (uint32_t rank = 0; rank < crew->size; rank++)
        if (!transfer_is_done(&crew->ranks[rank].transfer))
            return false;
    return true;
}

static void crew_draw(struct crew *crew, uint64_t seed, uint32_t events)
{
    static const struct scripted_odds odds = {.acts = 50};
    trp_rng rng;
    trp_rng_init(&rng, seed, crew->size);
    for (uint32_t n = 0; n < events && !all_are_done(crew); n++)
        scripted_draw(crew->net, &rng, &odds);
}

/* ---- any order of delivery ------------------------------------------------------------------- */

static const char *const divisions[] = {"a",   "aa",   "ab",    "aab",   "aba",    "aaaa",
                                        "abb", "abab", "abbcc", "abcda", "aabbbc", "abcabca"};
enum { DIVISIONS = sizeof divisions / sizeof *divisions };

static void check_values(const struct crew *crew, const struct group_call *call)
{
    for (uint32_t rank = 0; rank < crew->size; rank++) {
        const int32_t *values = crew->ranks[rank].values;
        uint32_t from = (rank + crew->size - call->root % crew->size) % crew->size;
        for (size_t i = 0; i < call->count; i++) {
            int32_t n = (int32_t)crew->size, each = (int32_t)i;
            if (call->kind == CALL_ALLREDUCE)
                assert_int_equal(values[i], n * each + 1000 * n * (n - 1) / 2);
            else if (from != rank)
                assert_int_equal(values[call->count + i], (int32_t)from * 1000 + each);
        }
    }
}

static void whatever_arrives_when_all_have_the_serial_sum(void **state)
{
    static const struct group_call calls[] = {
        {.kind = CALL_ALLREDUCE, .type = TRP_COLLECTIVE_I32, .count = 5},
        {.kind = CALL_ALLREDUCE, .type = TRP_COLLECTIVE_I32, .count = 700},
        {.kind = CALL_SHIFT, .type = TRP_COLLECTIVE_I32, .count = 700, .root = 2},
    };
    (void)state;
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < DIVISIONS; i++)
            for (uint64_t seed = 0; seed < 4; seed++) {
                struct crew crew;
                crew_begin(&crew, divisions[i], &calls[k], 24 + 100 * (size_t)seed);
                crew_draw(&crew, seed, 100000);
                assert_true(all_are_done(&crew));
                check_values(&crew, &calls[k]);
                crew_end(&crew);
            }
}

/* Whoever is not done waits for one that is not, and along these comes to the dead one. */
static void who_waits_for_whom_leads_to_the_dead(void **state)
{
    static const struct group_call call = {
        .kind = CALL_ALLREDUCE, .type = TRP_COLLECTIVE_I32, .count = 700};
    (void)state;
    uint32_t held_up = 0;
    for (size_t i = 3; i < DIVISIONS; i++)
        for (uint64_t seed = 0; seed < 8; seed++) {
            struct crew crew;
            crew_begin(&crew, divisions[i], &call, 200);
            uint32_t victim = (uint32_t)seed % crew.size;
            crew_draw(&crew, seed, 30);
            char word[16];
            snprintf(word, sizeof word, "%u!", victim);
            scripted_play(crew.net, word);
            crew_draw(&crew, seed + 50, 2000);
            for (uint32_t rank = 0; rank < crew.size; rank++) {
                uint32_t at = rank;
                for (uint32_t n = 0; n < crew.size && at != victim; n++) {
                    const struct transfer *transfer = &crew.ranks[at].transfer;
                    if (transfer_is_done(transfer))
                        break;
                    at = transfer_waits_for(transfer);
                    held_up += at == victim;
                }
                assert_true(at == victim || transfer_is_done(&crew.ranks[at].transfer));
            }
            crew_end(&crew);
        }
    assert_true(held_up > 100);
}

/* ---- slow links ------------------------------------------------------------------------------ */

enum { SLOW = 100 };

/* The time until all have the sum, where a link between sites takes 100 times as long; `as_one`:
 * they do not know of that. */
static uint64_t time_of_sum(const char *division, bool as_one)
{
    static const struct group_call call = {
        .kind = CALL_ALLREDUCE, .type = TRP_COLLECTIVE_I32, .count = COUNT_MAX};
    struct schedule_table ring = {0};
    struct crew crew;
    crew_begin(&crew, division, &call, CHUNK_MAX);
    for (uint32_t a = 0; a < crew.size; a++) {
        struct schedule_place alone = {.sites = 1};
        struct transfer *transfer = &crew.ranks[a].transfer;
        if (as_one)
            schedule_init(&transfer->schedule, &call, a, crew.size, &ring, &alone);
        for (uint32_t b = 0; b < crew.size; b++)
            scripted_delay(crew.net, a, b, crew.sites[a] == crew.sites[b] ? 1 : SLOW);
    }
    while (!all_are_done(&crew)) {
        for (uint32_t rank = 0; rank < crew.size; rank++)
            advance_rank(&crew, rank);
        scripted_play(crew.net, ".");
        assert_true(scripted_time(crew.net) < 10000);
    }
    uint64_t time = scripted_time(crew.net);
    check_values(&crew, &call);
    crew_end(&crew);
    return time;
}

/* Of m sites 2 (m - 1) times; a ring of all ranks where sites alternate 2 (n - 1) times. */
static void a_sum_in_sites_crosses_slow_links_as_seldom_as_its_formula_says(void **state)
{
    static const struct {
        const char *division;
        uint32_t crossings, in_one_ring; /* which is up to a crossing more at the end */
    } rows[] = {
        {"aabb", 2, 3}, {"abab", 2, 6}, {"aabbcc", 4, 5}, {"abcabc", 4, 10}, {"abbbbbb", 2, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t time = time_of_sum(rows[i].division, false);
        assert_in_range(time, rows[i].crossings * SLOW, rows[i].crossings * SLOW + 15);
        uint64_t flat = time_of_sum(rows[i].division, true);
        assert_in_range(flat, rows[i].in_one_ring * SLOW, 2 * 6 * SLOW);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_arrives_when_all_have_the_serial_sum),
        cmocka_unit_test(who_waits_for_whom_leads_to_the_dead),
        cmocka_unit_test(a_sum_in_sites_crosses_slow_links_as_seldom_as_its_formula_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
