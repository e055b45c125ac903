/* Selectors: who is sampled or removed next. No locks; one thread. Items are known by slot, a small
 * dense integer that their table assigns. */
#ifndef TRP_REPLAY_TABLE_SELECTOR_H
#define TRP_REPLAY_TABLE_SELECTOR_H

#include <stdint.h>

#include <troupe/replay.h>
#include <troupe/rng.h>

struct selector;

struct selector *selector_create(trp_selector kind);
void selector_destroy(struct selector *selector);

/* INVALID_ARGUMENT with Reverb's text for a priority the selector cannot take (NaN, negative;
 * infinite for prioritized); nothing is changed then. */
trp_status selector_check(trp_selector selector, double priority);

/* `slot` is new / known / known; the priority has passed selector_check(). */
void selector_insert(struct selector *selector, uint32_t slot, double priority);
void selector_update(struct selector *selector, uint32_t slot, double priority);
void selector_remove(struct selector *selector, uint32_t slot);

/* A slot and the probability of having picked it. Not empty. */
uint32_t selector_pick(struct selector *selector, trp_rng *rng, double *probability);

/* `count` picks one after the other, nothing removed between them. */
void selector_pick_many(struct selector *selector, trp_rng *rng, uint32_t count, uint32_t *slots,
                        double *probabilities);

/* The `count` slots that are picked first if nothing changes, as far as that is known ahead (fifo,
 * lifo); how many were written. */
uint32_t selector_upcoming(const struct selector *selector, uint32_t count, uint32_t *slots);

#endif
