/* Problem: a checkpoint is written for as long as the disk takes, and learning should not wait.
 * Design: the state is copied between two steps, and a thread of low priority writes the copy; one
 * at a time, so that memory is that of one copy, which stays for the next one. At the end the state
 * is written where it is. Guarantee: what is on the disk was the state between two steps, and a
 * failure to write it is known at the next step. */
#include "saver.h"

#include <inttypes.h>
#include <stdlib.h>

#include <troupe/log.h>
#include "core/status.h"
#include "limits.h"

int64_t saver_interval_ms(int64_t age_ms)
{
    if (age_ms < LEARNER_CHECKPOINT_FIRST_MS)
        return LEARNER_CHECKPOINT_FIRST_MS;
    return age_ms < LEARNER_CHECKPOINT_EVERY_MS ? age_ms : LEARNER_CHECKPOINT_EVERY_MS;
}

static trp_status put_copy(void *arg)
{
    const struct saver *saver = arg;
    return saved_put(&saver->saved, saver->dir);
}

static trp_status saver_note(struct saver *saver, uint64_t steps, trp_status status)
{
    if (status != TRP_OK)
        return status;
    saver->saved_steps = steps;
    saver->written++;
    return TRP_OK;
}

static trp_status put_now(struct saver *saver, struct trp_update_run *update,
                          trp_publisher *publisher, const struct learner_progress *progress)
{
    trp_status status = save_write(saver->dir, update, publisher, progress);
    return saver_note(saver, progress->steps, status);
}

trp_status saver_wait(struct saver *saver)
{
    uint64_t steps = saver->steps;
    if (steps == 0)
        return TRP_OK;
    saver->steps = 0;
    return saver_note(saver, steps, background_wait(&saver->background));
}

void saver_cleanup(struct saver *saver)
{
    if (saver_wait(saver) != TRP_OK)
        trp_log(TRP_WARN, "checkpoint not written reason=%s", trp_last_error());
    if (saver->started)
        background_stop(&saver->background);
    saver->started = false;
    saved_cleanup(&saver->saved);
    free(saver->dir);
    saver->dir = NULL;
}

trp_status saver_begin(struct saver *saver, struct trp_update_run *update, trp_publisher *publisher,
                       const struct learner_progress *progress)
{
    if (turns_active())
        return put_now(saver, update, publisher, progress);
    TRP_TRY(saver_wait(saver));
    if (!saver->started)
        TRP_TRY(background_start(&saver->background, "checkpoint"));
    saver->started = true;
    saved_gather(&saver->saved, update, publisher, progress);
    TRP_TRY(saved_copy(&saver->saved));
    saver->steps = progress->steps;
    background_begin(&saver->background, put_copy, saver);
    return TRP_OK;
}

bool saver_is_busy(struct saver *saver)
{
    return saver->steps > 0 && !background_is_idle(&saver->background);
}

trp_status saver_check(struct saver *saver)
{
    return saver_is_busy(saver) ? TRP_OK : saver_wait(saver);
}

trp_status saver_finish(struct saver *saver, struct trp_update_run *update,
                        trp_publisher *publisher, const struct learner_progress *progress)
{
    uint64_t begun = saver->steps;
    trp_status status = saver_wait(saver);
    char *words = status == TRP_OK ? NULL : error_keep();
    status = put_now(saver, update, publisher, progress);
    if (status == TRP_OK && words)
        trp_log(TRP_WARN,
                "a checkpoint was not written, a later one was steps=%" PRIu64 " reason=%s", begun,
                words);
    free(words);
    return status;
}
