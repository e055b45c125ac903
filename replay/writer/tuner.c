/* Long chunks compress well and have few headers, but an item that takes one row of a chunk sends
 * all of it. Which wins depends on the data and on the items, so it is measured, as Reverb does: a
 * length is scored by the bytes of a step in its chunks plus, weighted, the bytes that were sent
 * for each step of its items. While a step costs less, the length goes on in the same direction: up
 * by two, down by one. */
#include "tuner.h"

enum { ITEMS_TO_SCORE = 10, CHUNKS_TO_SCORE = 5, STEP_UP = 2 };

/* Chunks closed early by a flush, or of the length before, say nothing about this one. */
static const double length_error_max = 0.25;

void tuner_init(struct tuner *tuner, double weight, uint32_t length_max)
{
    *tuner = (struct tuner){.weight = weight, .length_max = length_max, .length = 1};
}

static void tuner_step(struct tuner *tuner, const struct tuner_score *score)
{
    const struct tuner_score *last = &tuner->last;
    bool up = last->length == 0 || (score->cost < last->cost) == (score->length > last->length);
    if (up)
        tuner->length = tuner->length + STEP_UP;
    else if (tuner->length > 1)
        tuner->length--;
    if (tuner->length > tuner->length_max)
        tuner->length = tuner->length_max;
    tuner->last = *score;
}

void tuner_note(struct tuner *tuner, const struct tuner_item *item)
{
    tuner->items++;
    tuner->item_sum += (double)item->chunk_bytes / item->rows;
    if (item->last_key != tuner->seen_key) {
        uint32_t fresh = item->first_key == tuner->seen_key ? item->chunks - 1 : item->chunks;
        tuner->chunks += fresh;
        tuner->length_sum += (double)fresh * item->chunk_rows / item->chunks;
        tuner->chunk_sum += (double)fresh * (double)item->chunk_bytes / item->chunk_rows;
        tuner->seen_key = item->last_key;
    }
    if (tuner->items < ITEMS_TO_SCORE || tuner->chunks < CHUNKS_TO_SCORE)
        return;
    struct tuner_score score = {.length = tuner->length_sum / tuner->chunks,
                                .cost = tuner->chunk_sum / tuner->chunks +
                                        tuner->weight * tuner->item_sum / tuner->items};
    double error = score.length - tuner->length;
    tuner->items = tuner->chunks = 0;
    tuner->length_sum = tuner->chunk_sum = tuner->item_sum = 0;
    if (error <= length_error_max && -error <= length_error_max)
        tuner_step(tuner, &score);
}
