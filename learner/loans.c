/* A version is lent from its first part on until its last. A reader that dies in between costs one
 * version for PARAMS_LEND_MS. While PARAMS_LENT_MAX are lent nobody begins with another: who has
 * less begins with the newest of those, and the others have to wait. So memory is bounded, and
 * everybody who goes on asking gets a whole version however often one is published. */
#include "loans.h"

static void loan_end(struct loan *loan, struct board *board)
{
    board_release(board, loan->version);
    *loan = (struct loan){0};
}

static struct loan *loan_find(struct loans *loans, uint64_t version)
{
    for (uint32_t i = 0; i < PARAMS_LENT_MAX; i++)
        if (loans->loans[i].version && loans->loans[i].version->version == version)
            return &loans->loans[i];
    return NULL;
}

/* NULL: there is none. */
static struct loan *loan_unused(struct loans *loans)
{
    for (uint32_t i = 0; i < PARAMS_LENT_MAX; i++)
        if (!loans->loans[i].version)
            return &loans->loans[i];
    return NULL;
}

static struct loan *loan_newest(struct loans *loans)
{
    struct loan *newest = &loans->loans[0];
    for (uint32_t i = 1; i < PARAMS_LENT_MAX; i++)
        if (loans->loans[i].version->version > newest->version->version)
            newest = &loans->loans[i];
    return newest;
}

const struct board_version *loans_begin(struct loans *loans, struct board *board)
{
    const struct board_version *version = board_hold(board);
    if (!version || loan_find(loans, version->version) || loan_unused(loans))
        return version;
    board_release(board, version);
    version = loan_newest(loans)->version;
    board_hold_again(board, version);
    return version;
}

const struct board_version *loans_go_on(struct loans *loans, struct board *board, uint64_t rest_of)
{
    const struct loan *loan = loan_find(loans, rest_of);
    if (loan) {
        board_hold_again(board, loan->version);
        return loan->version;
    }
    const struct board_version *version = board_hold(board);
    if (!version || version->version == rest_of)
        return version;
    board_release(board, version);
    return NULL;
}

void loans_lend(struct loans *loans, struct board *board, const struct board_version *version,
                bool first, bool last)
{
    struct loan *loan = loan_find(loans, version->version);
    if (!loan)
        loan = loan_unused(loans);
    if (!loan)
        return; /* who goes on with a version that nobody was lent may find it gone */
    if (!loan->version) {
        board_hold_again(board, version);
        loan->version = version;
    }
    loan->readers += first;
    loan->readers -= last && loan->readers > 0;
    loan->until = deadline_in_ms(&clock_monotonic, PARAMS_LEND_MS);
    if (loan->readers == 0)
        loan_end(loan, board);
}

void loans_expire(struct loans *loans, struct board *board)
{
    for (uint32_t i = 0; i < PARAMS_LENT_MAX; i++)
        if (loans->loans[i].version && deadline_passed(loans->loans[i].until, &clock_monotonic))
            loan_end(&loans->loans[i], board);
}

void loans_cleanup(struct loans *loans, struct board *board)
{
    for (uint32_t i = 0; i < PARAMS_LENT_MAX; i++)
        if (loans->loans[i].version)
            loan_end(&loans->loans[i], board);
}
