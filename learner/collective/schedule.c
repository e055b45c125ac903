/* The algorithms. Nothing is stored: a piece follows from its index, so an operation of a hundred
 * ranks needs no more memory than one of two. */
#include "schedule.h"

enum { RANGE_VALUES = TRP_COLLECTIVE_RANGE_VALUES };

void schedule_range(uint64_t count, uint32_t size, uint32_t rank, size_t *low, size_t *high)
{
    uint64_t blocks = count / RANGE_VALUES + (count % RANGE_VALUES > 0);
    uint64_t each = blocks / size, more = blocks % size;
    uint64_t first = rank * each + (rank < more ? rank : more);
    uint64_t end = first + each + (rank < more);
    *low = first == blocks ? count : first * RANGE_VALUES;
    *high = end == blocks ? count : end * RANGE_VALUES;
}

/* `a - b` in a ring of n. */
static uint32_t ring_minus(uint32_t a, uint32_t b, uint32_t n)
{
    return (a + n - b % n) % n;
}

static uint32_t bits_below(uint32_t n) /* floor(log2 n) */
{
    return 31 - (uint32_t)__builtin_clz(n);
}

static void whole_vector(const struct schedule *schedule, struct schedule_piece *piece)
{
    piece->low = 0;
    piece->high =
        schedule->calls_alone ? 0 : schedule->call.count * call_type_bytes(schedule->call.type);
}

static void range_of(const struct schedule *schedule, uint32_t rank, struct schedule_piece *piece)
{
    size_t bytes = call_type_bytes(schedule->call.type);
    schedule_range(schedule->call.count, schedule->size, rank, &piece->low, &piece->high);
    piece->low *= bytes;
    piece->high *= bytes;
}

/* ---- ring ---------------------------------------------------------------------------------- */

/* A range is reduced on its way round, beginning at the rank after its own: it is whole where it
 * belongs. The gathering steps go on from there. */
static uint32_t ring_range(const struct schedule *schedule, uint32_t index)
{
    uint32_t n = schedule->size, step = index;
    if (schedule->call.kind == CALL_ALL_GATHER)
        return ring_minus(schedule->rank, step, n);
    if (step < n - 1)
        return ring_minus(schedule->rank, step + 1, n);
    return ring_minus(schedule->rank, step - (n - 1), n);
}

static struct schedule_piece ring_send(const struct schedule *schedule, uint32_t index)
{
    struct schedule_piece piece = {
        .peer = (schedule->rank + 1) % schedule->size, .first = index == 0, .after = index};
    range_of(schedule, ring_range(schedule, index), &piece);
    return piece;
}

/* The neighbour sends in step i what it received in step i - 1, so what comes now goes on next. */
static struct schedule_piece ring_receive(const struct schedule *schedule, uint32_t index)
{
    uint32_t n = schedule->size, left = ring_minus(schedule->rank, 1, n);
    struct schedule neighbour = *schedule;
    neighbour.rank = left;
    struct schedule_piece piece = {.peer = left, .first = index == 0};
    piece.reduce = schedule->call.kind != CALL_ALL_GATHER && index < n - 1;
    range_of(schedule, ring_range(&neighbour, index), &piece);
    return piece;
}

/* ---- sites --------------------------------------------------------------------------------- */

/* The ring of first ranks. */
static struct schedule ring_of_sites(const struct schedule *schedule)
{
    struct schedule ring = *schedule;
    ring.call.kind = CALL_ALLREDUCE;
    ring.rank = schedule->place.site;
    ring.size = schedule->place.sites;
    return ring;
}

static bool is_first(const struct schedule *schedule)
{
    return schedule->place.before == schedule->rank;
}

static uint32_t has_after(const struct schedule *schedule)
{
    return schedule->place.after != schedule->rank;
}

static void sites_count(struct schedule *schedule)
{
    uint32_t others = is_first(schedule) ? 2 * (schedule->place.sites - 1) : 1;
    schedule->sends = schedule->receives = others + has_after(schedule);
}

static struct schedule_piece sites_send(const struct schedule *schedule, uint32_t index)
{
    const struct schedule_place *place = &schedule->place;
    struct schedule_piece piece = {.first = true};
    bool down = index + has_after(schedule) == schedule->sends; /* the last one goes back */
    if (is_first(schedule) && !down) {
        struct schedule ring = ring_of_sites(schedule);
        piece = ring_send(&ring, index);
        piece.peer = place->right;
        piece.after += has_after(schedule);
        piece.waits = index == 0;
        return piece;
    }
    piece.peer = down ? place->after : place->before;
    piece.after = down ? schedule->receives : has_after(schedule);
    whole_vector(schedule, &piece);
    return piece;
}

static struct schedule_piece sites_receive(const struct schedule *schedule, uint32_t index)
{
    const struct schedule_place *place = &schedule->place;
    struct schedule_piece piece = {.first = true};
    bool up = index < has_after(schedule);
    if (is_first(schedule) && !up) {
        struct schedule ring = ring_of_sites(schedule);
        piece = ring_receive(&ring, index - has_after(schedule));
        piece.peer = place->left;
        return piece;
    }
    piece.peer = up ? place->after : place->before;
    piece.reduce = up;
    piece.after = !up; /* what is here has gone up */
    whole_vector(schedule, &piece);
    return piece;
}

/* ---- recursive doubling -------------------------------------------------------------------- */

/* Of the first 2 x `surplus` ranks the even ones hand theirs to the next; the others are a power of
 * two, and numbered anew. */
struct doubling {
    uint32_t steps, surplus, number;
    bool hands, takes;
};

static struct doubling doubling_of(const struct schedule *schedule)
{
    uint32_t rank = schedule->rank, steps = bits_below(schedule->size);
    struct doubling doubling = {.steps = steps, .surplus = schedule->size - (1U << steps)};
    bool paired = rank < 2 * doubling.surplus;
    doubling.hands = paired && rank % 2 == 0;
    doubling.takes = paired && rank % 2 == 1;
    doubling.number = paired ? rank / 2 : rank - doubling.surplus;
    return doubling;
}

static uint32_t doubling_partner(const struct doubling *doubling, uint32_t step)
{
    uint32_t number = doubling->number ^ (1U << step);
    return number < doubling->surplus ? 2 * number + 1 : number + doubling->surplus;
}

static struct schedule_piece doubling_send(const struct schedule *schedule, uint32_t index)
{
    struct doubling doubling = doubling_of(schedule);
    struct schedule_piece piece = {.first = true, .snapshot = true};
    whole_vector(schedule, &piece);
    if (doubling.hands)
        piece.peer = schedule->rank + 1;
    else if (index == doubling.steps)
        piece.peer = schedule->rank - 1;
    else
        piece.peer = doubling_partner(&doubling, index);
    piece.after = doubling.hands ? 0 : doubling.takes + index;
    return piece;
}

static struct schedule_piece doubling_receive(const struct schedule *schedule, uint32_t index)
{
    struct doubling doubling = doubling_of(schedule);
    struct schedule_piece piece = {.first = true, .reduce = !doubling.hands};
    whole_vector(schedule, &piece);
    piece.after = index + 1 - doubling.takes;
    if (doubling.hands)
        piece.peer = schedule->rank + 1;
    else if (piece.after == 0)
        piece.peer = schedule->rank - 1;
    else
        piece.peer = doubling_partner(&doubling, index - doubling.takes);
    return piece;
}

static void doubling_count(struct schedule *schedule)
{
    struct doubling doubling = doubling_of(schedule);
    schedule->sends = doubling.hands ? 1 : doubling.steps + doubling.takes;
    schedule->receives = schedule->sends;
}

/* ---- broadcast ----------------------------------------------------------------------------- */

static uint32_t from_root(const struct schedule *schedule)
{
    return ring_minus(schedule->rank, schedule->call.root, schedule->size);
}

static uint32_t rank_from_root(const struct schedule *schedule, uint32_t place)
{
    return (uint32_t)(((uint64_t)place + schedule->call.root) % schedule->size);
}

/* A place's children are those that set one more bit, below its lowest; the deepest come first. */
static uint32_t tree_children(const struct schedule *schedule)
{
    uint32_t place = from_root(schedule), children = 0;
    uint32_t lowest = place > 0 ? place & -place : 1U << 31;
    for (uint32_t bit = 1; bit < lowest && place + bit < schedule->size; bit <<= 1)
        children++;
    return children;
}

static struct schedule_piece broadcast_send(const struct schedule *schedule, uint32_t index)
{
    uint32_t place = from_root(schedule);
    struct schedule_piece piece = {.first = true, .after = place > 0};
    uint32_t step = schedule->algorithm == SCHEDULE_TREE ? 1U << (schedule->sends - 1 - index) : 1;
    piece.peer = rank_from_root(schedule, place + step);
    whole_vector(schedule, &piece);
    return piece;
}

static struct schedule_piece broadcast_receive(const struct schedule *schedule)
{
    uint32_t place = from_root(schedule);
    struct schedule_piece piece = {.first = true};
    bool tree = schedule->algorithm == SCHEDULE_TREE;
    piece.peer = rank_from_root(schedule, tree ? place & (place - 1) : place - 1);
    whole_vector(schedule, &piece);
    return piece;
}

/* ---- direct -------------------------------------------------------------------------------- */

static struct schedule_piece direct_send(const struct schedule *schedule, uint32_t index)
{
    struct schedule_piece piece = {.peer = (schedule->rank + 1 + index) % schedule->size,
                                   .first = true};
    range_of(schedule, schedule->rank, &piece);
    return piece;
}

static struct schedule_piece direct_receive(const struct schedule *schedule, uint32_t index)
{
    struct schedule_piece piece = {.peer = ring_minus(schedule->rank, 1 + index, schedule->size),
                                   .first = true};
    range_of(schedule, piece.peer, &piece);
    return piece;
}

/* ---- pairwise ------------------------------------------------------------------------------ */

static void block_of(const struct schedule *schedule, uint32_t block, struct schedule_piece *piece)
{
    size_t bytes = schedule->call.count * call_type_bytes(schedule->call.type);
    piece->low = block * bytes;
    piece->high = piece->low + bytes;
}

/* Blocks that go out are in front of those that come in, so nothing waits for anything. */
static struct schedule_piece pairwise_send(const struct schedule *schedule, uint32_t index)
{
    struct schedule_piece piece = {.peer = (schedule->rank + 1 + index) % schedule->size,
                                   .first = true};
    block_of(schedule, piece.peer, &piece);
    return piece;
}

static struct schedule_piece pairwise_receive(const struct schedule *schedule, uint32_t index)
{
    struct schedule_piece piece = {.peer = ring_minus(schedule->rank, 1 + index, schedule->size),
                                   .first = true};
    block_of(schedule, schedule->size + piece.peer, &piece);
    return piece;
}

/* ---- shift --------------------------------------------------------------------------------- */

static struct schedule_piece shift_send(const struct schedule *schedule)
{
    uint32_t peer = (uint32_t)(((uint64_t)schedule->rank + schedule->call.root) % schedule->size);
    struct schedule_piece piece = {.peer = peer, .first = true};
    block_of(schedule, 0, &piece);
    return piece;
}

static struct schedule_piece shift_receive(const struct schedule *schedule)
{
    struct schedule_piece piece = {
        .peer = ring_minus(schedule->rank, schedule->call.root, schedule->size), .first = true};
    block_of(schedule, 1, &piece);
    return piece;
}

/* ---- all ----------------------------------------------------------------------------------- */

static enum schedule_algorithm choose(const struct group_call *call, uint32_t size,
                                      const struct schedule_table *table,
                                      const struct schedule_place *place)
{
    uint64_t bytes = call->count * call_type_bytes(call->type);
    switch (call->kind) {
    case CALL_ALL_GATHER:
        return bytes <= table->direct_bytes ? SCHEDULE_DIRECT : SCHEDULE_RING;
    case CALL_BROADCAST:
        return bytes <= table->tree_bytes ? SCHEDULE_TREE : SCHEDULE_CHAIN;
    case CALL_ALL_TO_ALL:
        return SCHEDULE_PAIRWISE;
    case CALL_SHIFT:
        return SCHEDULE_SHIFT;
    case CALL_BARRIER:
        return SCHEDULE_DOUBLING;
    default: /* both sum in one order, whatever the size */
        if (place->sites > 1 && place->sites < size)
            return SCHEDULE_SITES;
        return bytes <= table->doubling_bytes ? SCHEDULE_DOUBLING : SCHEDULE_RING;
    }
}

void schedule_init(struct schedule *schedule, const struct group_call *call, uint32_t rank,
                   uint32_t size, const struct schedule_table *table,
                   const struct schedule_place *place)
{
    *schedule = (struct schedule){.call = *call,
                                  .algorithm = choose(call, size, table, place),
                                  .rank = rank,
                                  .size = size,
                                  .place = *place};
    if (size == 1)
        return;
    uint32_t far = from_root(schedule);
    switch (schedule->algorithm) {
    case SCHEDULE_RING:
        schedule->sends = call->kind == CALL_ALLREDUCE ? 2 * (size - 1) : size - 1;
        schedule->receives = schedule->sends;
        break;
    case SCHEDULE_DOUBLING:
        doubling_count(schedule);
        break;
    case SCHEDULE_CHAIN:
        schedule->sends = far < size - 1;
        schedule->receives = far > 0;
        break;
    case SCHEDULE_TREE:
        schedule->sends = tree_children(schedule);
        schedule->receives = far > 0;
        break;
    case SCHEDULE_DIRECT:
    case SCHEDULE_PAIRWISE:
        schedule->sends = schedule->receives = size - 1;
        break;
    case SCHEDULE_SHIFT:
        schedule->sends = schedule->receives = call->root % size > 0;
        break;
    case SCHEDULE_SITES:
        sites_count(schedule);
        break;
    }
}

void schedule_init_calls(struct schedule *schedule, const struct group_call *call, uint32_t rank,
                         uint32_t size)
{
    *schedule = (struct schedule){.call = *call,
                                  .algorithm = SCHEDULE_DOUBLING,
                                  .rank = rank,
                                  .size = size,
                                  .calls_alone = true};
    if (size > 1)
        doubling_count(schedule);
}

struct schedule_piece schedule_send(const struct schedule *schedule, uint32_t index)
{
    switch (schedule->algorithm) {
    case SCHEDULE_RING:
        return ring_send(schedule, index);
    case SCHEDULE_DOUBLING:
        return doubling_send(schedule, index);
    case SCHEDULE_DIRECT:
        return direct_send(schedule, index);
    case SCHEDULE_PAIRWISE:
        return pairwise_send(schedule, index);
    case SCHEDULE_SHIFT:
        return shift_send(schedule);
    case SCHEDULE_SITES:
        return sites_send(schedule, index);
    default:
        return broadcast_send(schedule, index);
    }
}

struct schedule_piece schedule_receive(const struct schedule *schedule, uint32_t index)
{
    switch (schedule->algorithm) {
    case SCHEDULE_RING:
        return ring_receive(schedule, index);
    case SCHEDULE_DOUBLING:
        return doubling_receive(schedule, index);
    case SCHEDULE_DIRECT:
        return direct_receive(schedule, index);
    case SCHEDULE_PAIRWISE:
        return pairwise_receive(schedule, index);
    case SCHEDULE_SHIFT:
        return shift_receive(schedule);
    case SCHEDULE_SITES:
        return sites_receive(schedule, index);
    default:
        return broadcast_receive(schedule);
    }
}
