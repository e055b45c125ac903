/* The episode adder: sequences that begin with an episode and are as long as the longest one may
 * be, so that an episode ends in its first sequence. */
#include <inttypes.h>

#include "adder.h"
#include "limits.h"
#include "sequence.h"

static trp_sequence_options sequence_of(const trp_episode_options *episode)
{
    return (trp_sequence_options){.length = episode->longest + 1,
                                  .end = episode->pad ? TRP_END_PAD : TRP_END_TRUNCATE};
}

void trp_episode_columns(const trp_env_spec *env, const trp_columns *extras,
                         const trp_episode_options *episode, trp_columns *columns)
{
    trp_sequence_options sequence = sequence_of(episode);
    trp_sequence_columns(env, extras, &sequence, columns);
}

trp_status trp_episode_adder_create(trp_adder **out, const trp_adder_options *options,
                                    const trp_episode_options *episode)
{
    static const char who[] = "episode adder";
    *out = NULL;
    TRP_TRY(adder_check_options(options, who));
    if (episode->longest == 0 || episode->longest >= SEQUENCE_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s: longest %" PRIu32 ", must be in [1, %d]", who,
                        episode->longest, SEQUENCE_MAX - 1);
    trp_sequence_options sequence = sequence_of(episode);
    *out = sequence_adder_make(options, &sequence, episode->longest);
    return TRP_OK;
}
