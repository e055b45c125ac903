/* Both clients of a replay server keep a stream that has to survive the server: a learner must not
 * die because the machine under the replay was restarted. Its owner sends again whatever is lost
 * with a stream; this file only knows when to try, and that no wait outlives its deadline. */
#include "link.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "limits.h"

void link_init(struct link *link, trp_channel *channel, const char *path)
{
    *link = (struct link){.channel = channel, .path = path, .stop = trp_stop_create()};
}

void link_cleanup(struct link *link)
{
    trp_stream_destroy(link->stream);
    trp_stop_destroy(link->stop);
    free(link->lost);
    *link = (struct link){0};
}

bool link_is_due(const struct link *link)
{
    return link->stream || deadline_passed(link->retry_at, &clock_monotonic);
}

static trp_status wait_for_retry(struct link *link, struct deadline deadline)
{
    struct deadline until = link->retry_at.at_ns < deadline.at_ns ? link->retry_at : deadline;
    if (!deadline_passed(until, &clock_monotonic))
        trp_stop_wait(link->stop, deadline_left_ms(until, &clock_monotonic));
    if (trp_stop_requested(link->stop))
        return trp_fail(TRP_CANCELLED, "stopped");
    if (until.at_ns == link->retry_at.at_ns)
        return TRP_OK;
    return trp_fail(TRP_DEADLINE_EXCEEDED, "%s cannot be reached: %s",
                    trp_channel_address(link->channel), link->lost ? link->lost : "not tried yet");
}

trp_status link_open(struct link *link, struct deadline deadline)
{
    if (link->stream)
        return TRP_OK;
    TRP_TRY(wait_for_retry(link, deadline));
    trp_call_options options = {.timeout_ms = -1, .cancel = link->stop, .in_parts = link->in_parts};
    trp_status status = trp_stream_open(&link->stream, link->channel, link->path, &options);
    if (status == TRP_OK)
        return TRP_OK;
    link->stream = NULL;
    if (!link_is_transient(status) || trp_stop_requested(link->stop))
        return status;
    link_lose(link);
    return TRP_UNAVAILABLE;
}

static bool is_over(const struct link *link, trp_status status)
{
    return status != TRP_OK && (status != TRP_DEADLINE_EXCEEDED || trp_stream_ended(link->stream));
}

trp_status link_send(struct link *link, trp_message *message, struct deadline deadline, bool *ended)
{
    trp_status status =
        trp_stream_send(link->stream, message, deadline_left_ms(deadline, &clock_monotonic));
    *ended = is_over(link, status);
    return status;
}

trp_status link_receive(struct link *link, trp_message **message, struct deadline deadline,
                        bool *ended)
{
    trp_status status =
        trp_stream_receive(link->stream, message, deadline_left_ms(deadline, &clock_monotonic));
    *ended = is_over(link, status);
    return status;
}

bool link_is_transient(trp_status status)
{
    /* OUT_OF_RANGE is how a receive says that the peer ended the stream with OK. */
    return status == TRP_UNAVAILABLE || status == TRP_CANCELLED || status == TRP_OUT_OF_RANGE;
}

void link_lose(struct link *link)
{
    free(link->lost);
    link->lost = xstrdup(trp_last_error());
    link_close(link);
    link->retry_at = deadline_in_ms(&clock_monotonic, link->pause_ms);
    link->pause_ms = link->pause_ms ? 2 * link->pause_ms : RECONNECT_PAUSE_MS_MIN;
    if (link->pause_ms > RECONNECT_PAUSE_MS_MAX)
        link->pause_ms = RECONNECT_PAUSE_MS_MAX;
}

void link_close(struct link *link)
{
    trp_stream_destroy(link->stream);
    link->stream = NULL;
    link->answered = false;
    link->retry_at = (struct deadline){0};
}

void link_works(struct link *link)
{
    link->pause_ms = 0;
    link->answered = true;
}

void link_stop(struct link *link)
{
    trp_stop_request(link->stop);
}
