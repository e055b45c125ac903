/* Problem: many actors read what a learner writes, megabytes of it, and it must neither wait for
 * them nor copy for each of them; a reader may be stopped or killed at any moment.
 * Design: slots of the vector's size in one piece of memory, sealed and without a name, in which
 * other processes map it to be read. The writer fills one that is not the newest and that nobody in
 * its own process holds: of the few that it keeps the one written longest ago. Who holds one here
 * is counted, and at most SLOTS - 2 are held, so there always is one to fill. A reader in another
 * process leaves no trace: each slot has a word with its version, which is 0 while it is written,
 * and who has read looks at it again (a seqlock).
 * Guarantee: in the writer's process a version that is held does not change; elsewhere
 * board_view_is_whole() tells. Memory: the vector's size BOARD_KEPT times, and once more for each
 * other version that is held here, of which BOARD_LENT at most are for those who may be slow. A
 * header that lies costs a reader wrong numbers, nothing else.
 */
#include "core/board.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <troupe/rng.h>

#include "core/alloc.h"
#include "core/finite.h"
#include "core/limits.h"
#include "core/thread.h"

enum { SLOTS = 64, FLOATS_ALIGN = 1024 };

struct head_slot {
    _Atomic uint64_t version; /* 0: nothing, or it is being written */
    uint64_t learner_steps;
    uint64_t finite;
};

/* At the beginning of the memory; what lies behind is slots. */
struct board_head {
    uint8_t nonce[SEALED_NONCE_BYTES];
    uint64_t magic;
    uint64_t count; /* of floats in a slot */
    _Atomic uint64_t newest;
    struct head_slot slots[SLOTS];
};

static const uint64_t BOARD_MAGIC = UINT64_C(0x3164726f61627274); /* "trboard1" */
enum { HEAD_BYTES = 4096 };
_Static_assert(sizeof(struct board_head) <= HEAD_BYTES, "the first slot begins behind it");

struct slot {
    struct board_version view; /* first: it is what board_hold() returns; version 0: empty */
    uint32_t holders, lent;    /* lent: of them, those that may be slow */
};

struct board {
    struct board *next; /* of this process */
    uint32_t references;
    size_t count, stride; /* floats */
    struct sealed sealed; /* memory NULL: it is in `own` */
    void *own;
    struct board_head *head;
    float *numbers;
    struct mutex mutex; /* all that follows; numbers and head are the writer's */
    struct slot slots[SLOTS];
    uint32_t used; /* slots that ever were written */
    uint32_t held; /* that somebody holds */
    uint32_t lent; /* of them, those that are lent */
    struct slot *newest;
};

struct board_view {
    struct board *board;                      /* its writer is here; NULL: in another process */
    const struct board_version *kept, *taken; /* held there; NULL: none */
    const struct board_head *head;
    const uint8_t *memory; /* mapped; NULL: it is here */
    size_t bytes, count, stride;
    uint32_t slot; /* of the version taken, and the version; 0: none */
    uint64_t version;
};

/* Boards of this process: who is told of a place finds out that it is here. */
static struct once boards_once = ONCE_INIT;
static struct mutex boards_mutex;
static struct board *boards;

static void boards_init(void)
{
    mutex_init(&boards_mutex);
}

static size_t stride_of(size_t count)
{
    return (count + FLOATS_ALIGN - 1) / FLOATS_ALIGN * FLOATS_ALIGN;
}

/* False: it overflows. */
static bool board_bytes(size_t count, size_t *bytes)
{
    size_t slots;
    return count <= SIZE_MAX - FLOATS_ALIGN &&
           size_mul(stride_of(count), SLOTS * sizeof(float), &slots) &&
           size_add(slots, HEAD_BYTES, bytes) && *bytes <= INT64_MAX;
}

/* ---- the writer ------------------------------------------------------------------------------ */

static void boards_add(struct board *board)
{
    once_run(&boards_once, boards_init);
    mutex_lock(&boards_mutex);
    board->next = boards;
    boards = board;
    mutex_unlock(&boards_mutex);
}

/* In memory that no other process finds; those in this one know it by its nonce. */
static void stay_here(struct board *board, size_t bytes)
{
    uint64_t nonce[2] = {trp_rng_entropy(), trp_rng_entropy()};
    board->own = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(board->own != MAP_FAILED); /* address space */
    board->sealed.place = (struct sealed_place){.bytes = 0};
    _Static_assert(sizeof nonce == SEALED_NONCE_BYTES, "");
    memcpy(board->sealed.place.nonce, nonce, sizeof nonce);
}

struct board *board_create(size_t count, bool share)
{
    struct board *board = xcalloc(1, sizeof *board);
    size_t bytes;
    bool fits = board_bytes(count, &bytes);
    assert(fits);
    if (!share || sealed_create(&board->sealed, "troupe parameters", bytes) != TRP_OK)
        stay_here(board, bytes);
    uint8_t *memory = board->own ? board->own : board->sealed.memory;
    board->references = 1;
    board->count = count;
    board->stride = stride_of(count);
    board->head = (struct board_head *)(void *)memory;
    board->numbers = (float *)(void *)(memory + HEAD_BYTES);
    board->head->count = count;
    board->head->magic = BOARD_MAGIC;
    mutex_init(&board->mutex);
    boards_add(board);
    return board;
}

void board_ref(struct board *board)
{
    mutex_lock(&boards_mutex);
    board->references++;
    mutex_unlock(&boards_mutex);
}

static void board_free(struct board *board)
{
    for (uint32_t i = 0; i < board->used; i++)
        free((void *)board->slots[i].view.statistics);
    if (board->own) {
        size_t bytes = 0;
        board_bytes(board->count, &bytes);
        munmap(board->own, bytes);
    }
    sealed_cleanup(&board->sealed);
    mutex_cleanup(&board->mutex);
    free(board);
}

void board_unref(struct board *board)
{
    if (!board)
        return;
    mutex_lock(&boards_mutex);
    bool last = --board->references == 0;
    struct board **place = &boards;
    while (last && *place != board)
        place = &(*place)->next;
    if (last)
        *place = board->next;
    mutex_unlock(&boards_mutex);
    if (last)
        board_free(board);
}

const struct sealed_place *board_place(const struct board *board)
{
    return &board->sealed.place;
}

/* The one written longest ago of those that nobody needs; a fresh one while there are few, or when
 * all are needed. */
static uint32_t free_slot_locked(const struct board *board)
{
    uint32_t oldest = board->used;
    for (uint32_t i = 0; i < board->used && board->used >= BOARD_KEPT; i++) {
        const struct slot *slot = &board->slots[i];
        if (slot->holders > 0 || slot == board->newest)
            continue;
        if (oldest == board->used || slot->view.version < board->slots[oldest].view.version)
            oldest = i;
    }
    assert(oldest < SLOTS);
    return oldest;
}

void board_write(struct board *board, const float *numbers, uint64_t version,
                 uint64_t learner_steps, trp_moments *statistics, size_t statistic_count)
{
    assert(version > board_newest(board));
    mutex_lock(&board->mutex);
    uint32_t index = free_slot_locked(board);
    if (index == board->used)
        board->used++;
    struct slot *slot = &board->slots[index];
    slot->view.version = 0;
    mutex_unlock(&board->mutex);

    struct head_slot *head = &board->head->slots[index];
    float *to = board->numbers + index * board->stride;
    atomic_store_explicit(&head->version, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* whatever is written comes after it */
    bool finite = floats_copy_finite(to, numbers, board->count, 1);
    head->learner_steps = learner_steps;
    head->finite = finite;
    atomic_store_explicit(&head->version, version, memory_order_release);

    mutex_lock(&board->mutex);
    free((void *)slot->view.statistics);
    slot->view = (struct board_version){.numbers = to,
                                        .version = version,
                                        .learner_steps = learner_steps,
                                        .finite = finite,
                                        .statistics = statistics,
                                        .statistic_count = statistic_count};
    board->newest = slot;
    atomic_store_explicit(&board->head->newest, version, memory_order_release);
    mutex_unlock(&board->mutex);
}

uint64_t board_newest(const struct board *board)
{
    return atomic_load_explicit(&board->head->newest, memory_order_acquire);
}

/* The newest that may be held. */
static struct slot *slot_to_hold_locked(struct board *board)
{
    struct slot *newest = board->newest;
    if (!newest || newest->holders > 0 || board->held < SLOTS - 2)
        return newest;
    newest = NULL;
    for (uint32_t i = 0; i < board->used; i++) {
        struct slot *slot = &board->slots[i];
        if (slot->holders > 0 && (!newest || slot->view.version > newest->view.version))
            newest = slot;
    }
    return newest;
}

const struct board_version *board_hold(struct board *board)
{
    mutex_lock(&board->mutex);
    struct slot *slot = slot_to_hold_locked(board);
    if (slot)
        board->held += slot->holders++ == 0;
    mutex_unlock(&board->mutex);
    return slot ? &slot->view : NULL;
}

void board_hold_again(struct board *board, const struct board_version *version)
{
    mutex_lock(&board->mutex);
    ((struct slot *)version)->holders++;
    mutex_unlock(&board->mutex);
}

void board_release(struct board *board, const struct board_version *version)
{
    if (!version)
        return;
    mutex_lock(&board->mutex);
    board->held -= --((struct slot *)version)->holders == 0;
    mutex_unlock(&board->mutex);
}

bool board_lend(struct board *board, const struct board_version *version)
{
    struct slot *slot = (struct slot *)version;
    mutex_lock(&board->mutex);
    bool lends = slot->lent > 0 || board->lent < BOARD_LENT;
    if (lends) {
        board->lent += slot->lent++ == 0;
        slot->holders++;
    }
    mutex_unlock(&board->mutex);
    if (lends)
        board_ref(board);
    return lends;
}

void board_take_back(struct board *board, const struct board_version *version)
{
    mutex_lock(&board->mutex);
    board->lent -= --((struct slot *)version)->lent == 0;
    mutex_unlock(&board->mutex);
    board_release(board, version);
    board_unref(board);
}

/* ---- who reads ------------------------------------------------------------------------------- */

static struct board *find_here(const struct sealed_place *place)
{
    once_run(&boards_once, boards_init);
    mutex_lock(&boards_mutex);
    struct board *board = boards;
    while (board && memcmp(board->sealed.place.nonce, place->nonce, sizeof place->nonce) != 0)
        board = board->next;
    if (board)
        board->references++;
    mutex_unlock(&boards_mutex);
    return board;
}

static trp_status map_there(struct board_view *view, const struct sealed_place *place)
{
    size_t bytes;
    TRP_TRY(sealed_map(&view->memory, place));
    view->bytes = place->bytes;
    if (view->bytes < HEAD_BYTES)
        return trp_fail(TRP_FAILED_PRECONDITION, "shared parameters of %zu bytes are none",
                        view->bytes);
    view->head = (const struct board_head *)(const void *)view->memory;
    view->count = view->head->count; /* once: it may change, and the slots must not */
    view->stride = stride_of(view->count);
    if (view->head->magic != BOARD_MAGIC || view->count == 0 || !board_bytes(view->count, &bytes) ||
        bytes != view->bytes)
        return trp_fail(TRP_FAILED_PRECONDITION,
                        "shared parameters claim to be %zu numbers in %zu bytes", view->count,
                        view->bytes);
    return TRP_OK;
}

trp_status board_view_open(struct board_view **out, const struct sealed_place *place)
{
    struct board_view *view = xcalloc(1, sizeof *view);
    trp_status status = TRP_OK;
    view->board = find_here(place);
    if (view->board) {
        view->head = view->board->head;
        view->count = view->board->count;
    } else {
        status = map_there(view, place);
    }
    *out = view;
    if (status == TRP_OK)
        return TRP_OK;
    board_view_close(view);
    *out = NULL;
    return status;
}

void board_view_close(struct board_view *view)
{
    if (!view)
        return;
    if (view->board) {
        board_release(view->board, view->taken);
        board_release(view->board, view->kept);
    }
    board_unref(view->board);
    if (view->memory)
        munmap((void *)view->memory, view->bytes);
    free(view);
}

bool board_view_is_here(const struct board_view *view)
{
    return view->board != NULL;
}

size_t board_view_count(const struct board_view *view)
{
    return view->count;
}

uint64_t board_view_newest(const struct board_view *view)
{
    return atomic_load_explicit(&view->head->newest, memory_order_acquire);
}

static bool take_here(struct board_view *view, struct board_version *version)
{
    board_release(view->board, view->taken);
    view->taken = board_hold(view->board);
    if (view->taken)
        *version = *view->taken;
    return view->taken != NULL;
}

bool board_view_take(struct board_view *view, struct board_version *version)
{
    if (view->board)
        return take_here(view, version);
    for (uint32_t tries = 0; tries < BOARD_TRIES; tries++) {
        uint64_t newest = board_view_newest(view);
        for (uint32_t i = 0; newest > 0 && i < SLOTS; i++) {
            const struct head_slot *slot = &view->head->slots[i];
            if (atomic_load_explicit(&slot->version, memory_order_acquire) != newest)
                continue;
            size_t at = HEAD_BYTES + i * view->stride * sizeof(float);
            *version =
                (struct board_version){.numbers = (const float *)(const void *)(view->memory + at),
                                       .version = newest,
                                       .learner_steps = slot->learner_steps,
                                       .finite = slot->finite != 0};
            view->slot = i;
            view->version = newest;
            if (board_view_is_whole(view))
                return true;
        }
    }
    return false;
}

void board_view_keep(struct board_view *view)
{
    if (!view->board)
        return;
    board_release(view->board, view->kept);
    view->kept = view->taken;
    view->taken = NULL;
}

bool board_view_is_whole(const struct board_view *view)
{
    if (view->board)
        return true;
    atomic_thread_fence(memory_order_acquire); /* what was read comes first */
    return atomic_load_explicit(&view->head->slots[view->slot].version, memory_order_relaxed) ==
           view->version;
}
