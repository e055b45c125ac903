/* Calls in words, compared. */
#include "call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [TRP_COLLECTIVE_F32] = {"f32", 4},
    [TRP_COLLECTIVE_BF16] = {"bf16", 2},
    [TRP_COLLECTIVE_I32] = {"i32", 4},
    [TRP_COLLECTIVE_U64] = {"u64", 8},
};

static const char *const kinds[] = {
    [CALL_ALLREDUCE] = "allreduce",   [CALL_REDUCE_SCATTER] = "reduce-scatter",
    [CALL_ALL_GATHER] = "all-gather", [CALL_BROADCAST] = "broadcast",
    [CALL_BARRIER] = "barrier",       [CALL_ALL_TO_ALL] = "all-to-all",
    [CALL_SHIFT] = "shift",
};

static const char *const ops[] = {[TRP_COLLECTIVE_SUM] = "sum", [TRP_COLLECTIVE_MAX] = "max"};

size_t call_type_bytes(uint8_t type)
{
    return type < sizeof types / sizeof *types ? types[type].bytes : 0;
}

bool call_equal(const struct group_call *a, const struct group_call *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

void call_words(const struct group_call *call, char words[CALL_WORDS_BYTES])
{
    bool known = call->kind < sizeof kinds / sizeof *kinds && call_type_bytes(call->type) > 0 &&
                 call->op < sizeof ops / sizeof *ops;
    if (!known)
        snprintf(words, CALL_WORDS_BYTES, "no operation that there is");
    else if (call->kind == CALL_BARRIER)
        snprintf(words, CALL_WORDS_BYTES, "barrier");
    else if (call->kind == CALL_BROADCAST)
        snprintf(words, CALL_WORDS_BYTES, "broadcast of %" PRIu64 " %s from rank %" PRIu32,
                 call->count, types[call->type].name, call->root);
    else if (call->kind == CALL_SHIFT)
        snprintf(words, CALL_WORDS_BYTES, "shift of %" PRIu64 " %s by %" PRIu32 " ranks",
                 call->count, types[call->type].name, call->root);
    else if (call->kind == CALL_ALL_GATHER)
        snprintf(words, CALL_WORDS_BYTES, "all-gather of %" PRIu64 " %s", call->count,
                 types[call->type].name);
    else if (call->kind == CALL_ALL_TO_ALL)
        snprintf(words, CALL_WORDS_BYTES, "all-to-all of blocks of %" PRIu64 " %s", call->count,
                 types[call->type].name);
    else
        snprintf(words, CALL_WORDS_BYTES, "%s of %" PRIu64 " %s (%s)", kinds[call->kind],
                 call->count, types[call->type].name, ops[call->op]);
}
