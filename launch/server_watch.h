/* What the launcher knows of parameter servers, for a learner at them. */
#ifndef TRP_LAUNCH_SERVER_WATCH_H
#define TRP_LAUNCH_SERVER_WATCH_H

#include <troupe/parameter_server.h>
#include <troupe/program.h>

/* Of a learner's context, which outlives the learner. Threads of one process end together, and
 * none can be ended for another: they have none. */
trp_server_watch server_watch(trp_context *context);

#endif
