/* Servers with a line to each that a test can disturb, and a learner whose parameters are on them,
 * or that learns the same alone. */
#ifndef TRP_TESTS_LEARNER_SERVER_SITES_H
#define TRP_TESTS_LEARNER_SERVER_SITES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <troupe/learner.h>
#include <troupe/log.h>
#include <troupe/params.h>
#include <troupe/rpc.h>
#include "core/alloc.h"
#include "core/thread.h"
#include "learner/server/keys.h"
#include "parameter_server.pb-c.h"

enum { COUNT = 1000, SERVERS = 3 };

/* ---- servers, and a line to each that a test can disturb ---------------------------------------
 */

struct line {
    Troupe__ParameterServer_Service service; /* first */
    trp_parameter_server *server;
    struct mutex mutex;      /* all that follows */
    uint64_t bounds, pushes; /* of lists of ranges that were sent; messages */
    uint32_t lose_every;     /* so many answers to pushes come, then one is lost; 0: all come */
    bool gone, full;
    bool maps; /* the learner joins as one of another process does, and memory is shared */
    uint64_t least_version, most_version; /* pulled since least_version was set to its largest */
};

static inline trp_status not_there(struct line *line)
{
    mutex_lock(&line->mutex);
    bool gone = line->gone, full = line->full;
    mutex_unlock(&line->mutex);
    if (full && trp_call_time_left_ns() < 20000000) /* as over a connection that takes so long */
        return trp_fail(TRP_DEADLINE_EXCEEDED, "there was no time for it");
    if (full)
        return trp_fail(TRP_RESOURCE_EXHAUSTED, "the disk is full");
    return gone ? trp_fail(TRP_UNAVAILABLE, "nobody is there") : TRP_OK;
}

static inline Troupe__ParameterServer_Service *real_of(const struct line *line)
{
    return (Troupe__ParameterServer_Service *)trp_parameter_server_service(line->server);
}

static inline bool line_maps(struct line *line)
{
    mutex_lock(&line->mutex);
    bool maps = line->maps;
    mutex_unlock(&line->mutex);
    return maps;
}

static inline void line_let_map(struct line *line, bool maps)
{
    mutex_lock(&line->mutex);
    line->maps = maps;
    mutex_unlock(&line->mutex);
}

static inline void line_join(Troupe__ParameterServer_Service *service,
                             const Troupe__ServerJoinRequest *request,
                             Troupe__ServerJoinReply_Closure closure, void *data)
{
    struct line *line = (struct line *)service;
    Troupe__ServerJoinRequest other = *request;
    other.pid += line_maps(line);
    if (not_there(line) != TRP_OK)
        closure(NULL, data);
    else
        real_of(line)->join(real_of(line), &other, closure, data);
}

static inline void ignore_reply(const Troupe__ServerPushReply *reply, void *data)
{
    (void)reply;
    (void)data;
}

static inline void line_push(Troupe__ParameterServer_Service *service,
                             const Troupe__ServerPushRequest *request,
                             Troupe__ServerPushReply_Closure closure, void *data)
{
    struct line *line = (struct line *)service;
    if (not_there(line) != TRP_OK) {
        closure(NULL, data);
        return;
    }
    mutex_lock(&line->mutex);
    line->bounds += request->n_ranges;
    bool lost = ++line->pushes % (line->lose_every + 1) == 0 && line->lose_every > 0;
    mutex_unlock(&line->mutex);
    real_of(line)->push(real_of(line), request, lost ? ignore_reply : closure, data);
    if (!lost)
        return;
    assert_int_equal(trp_fail(TRP_UNAVAILABLE, "the answer is lost"), TRP_UNAVAILABLE);
    closure(NULL, data);
}

struct pulling {
    struct line *line;
    Troupe__ServerPullReply_Closure closure;
    void *data;
};

static inline void note_version(const Troupe__ServerPullReply *reply, void *data)
{
    struct pulling *pulling = data;
    struct line *line = pulling->line;
    mutex_lock(&line->mutex);
    if (reply && reply->version < line->least_version)
        line->least_version = reply->version;
    if (reply && reply->version > line->most_version)
        line->most_version = reply->version;
    mutex_unlock(&line->mutex);
    pulling->closure(reply, pulling->data);
}

static inline void line_pull(Troupe__ParameterServer_Service *service,
                             const Troupe__ServerPullRequest *request,
                             Troupe__ServerPullReply_Closure closure, void *data)
{
    struct line *line = (struct line *)service;
    struct pulling pulling = {line, closure, data};
    if (not_there(line) != TRP_OK)
        closure(NULL, data);
    else
        real_of(line)->pull(real_of(line), request, note_version, &pulling);
}

static const Troupe__ParameterServer_Service line_functions = TROUPE__PARAMETER_SERVER__INIT(line_);

struct site {
    char dir[32];
    struct line lines[SERVERS];
    ProtobufCService *services[SERVERS];
    trp_parameter_server_options options;
    trp_server *remote[SERVERS]; /* NULL: lines are called directly */
    trp_channel *channels[SERVERS];
};

static inline void server_begin(struct site *site, size_t index, const char *dir)
{
    char name[16];
    snprintf(name, sizeof name, "server/%zu", index);
    char *own = dir ? xasprintf("%s/server.%zu", dir, index) : NULL;
    assert_int_equal(
        trp_parameter_server_create(&site->lines[index].server, name, &site->options, own), TRP_OK);
    free(own);
}

/* As after its death: nothing is saved. */
static inline void server_begin_again(struct site *site, size_t index)
{
    trp_parameter_server_destroy(site->lines[index].server);
    server_begin(site, index, site->dir);
}

static inline void go_remote(struct site *site, size_t index)
{
    static const char *const blocking[] = {"Pull", NULL};
    char *address = xasprintf("unix:%s/%zu.sock", site->dir, index);
    assert_int_equal(
        trp_server_create(&site->remote[index], &(trp_server_options){.address = address}), TRP_OK);
    assert_int_equal(
        trp_server_add(site->remote[index], &site->lines[index].service.base, blocking), TRP_OK);
    assert_int_equal(trp_server_start(site->remote[index]), TRP_OK);
    assert_int_equal(trp_channel_create(&site->channels[index], address, NULL), TRP_OK);
    assert_int_equal(trp_channel_service(site->channels[index], trp_parameter_server_descriptor(),
                                         &site->services[index]),
                     TRP_OK);
    free(address);
}

static inline void site_begin(struct site *site, trp_parameter_server_options options, bool remote)
{
    *site = (struct site){.options = options};
    memcpy(site->dir, "/tmp/test_server.XXXXXX", sizeof "/tmp/test_server.XXXXXX");
    assert_non_null(mkdtemp(site->dir));
    for (size_t i = 0; i < SERVERS; i++) {
        site->lines[i].service = line_functions;
        mutex_init(&site->lines[i].mutex);
        site->services[i] = &site->lines[i].service.base;
        server_begin(site, i, site->dir);
        if (remote)
            go_remote(site, i);
    }
}

static inline void site_end(struct site *site)
{
    for (size_t i = 0; i < SERVERS; i++) {
        trp_channel_destroy(site->channels[i]);
        trp_server_destroy(site->remote[i]);
        trp_parameter_server_destroy(site->lines[i].server);
        mutex_cleanup(&site->lines[i].mutex);
    }
    char *command = xasprintf("rm -rf %s", site->dir);
    assert_int_equal(system(command), 0);
    free(command);
}

/* ---- an updater ------------------------------------------------------------------------------ */

struct falling {
    trp_updater base;
    void (*happens)(struct falling *falling, uint64_t step); /* in a step; may be NULL */
    void *context;
};

static inline trp_status falling_step(trp_updater *updater, const trp_update *update)
{
    struct falling *falling = (struct falling *)updater;
    for (size_t i = 0; i < COUNT; i++)
        update->grads[0][i] += update->vectors[0][i] - (float)(i % 11) + (float)(update->step % 3);
    if (falling->happens)
        falling->happens(falling, update->step);
    return trp_update_apply(update, 0);
}

static inline struct falling *falling_create(const trp_optimizer *optimizer)
{
    static const trp_updater_impl impl = {.step = falling_step};
    struct falling *falling = xcalloc(1, sizeof *falling);
    falling->base.impl = &impl;
    falling->base.vector_count = 1;
    falling->base.vectors[0] = (trp_vector_spec){
        .name = "params", .count = COUNT, .learned = true, .optimizer = *optimizer};
    return falling;
}

static const trp_optimizer rates[] = {
    {.kind = TRP_SGD, .learning_rate = 0.1, .momentum = 0.9},
    {.kind = TRP_ADAM, .learning_rate = 0.05, .max_norm = 3},
    {.kind = TRP_ADAGRAD, .learning_rate = 0.5},
};
enum { RATES = sizeof rates / sizeof *rates };

struct lesson {
    const trp_optimizer *optimizer;
    struct site *site; /* NULL: alone */
    uint64_t steps;
    const char *checkpoints;
    uint64_t checkpoint_every; /* steps; 0: never */
    bool resume;
    void (*happens)(struct falling *falling, uint64_t step);
    void *context;
    trp_compression_options compression;
};

static inline void pull_all(trp_learner *learner, float params[COUNT])
{
    trp_params_client *client;
    bool newer;
    assert_int_equal(
        trp_params_client_create(
            &client, &(trp_params_client_options){.service = trp_learner_service(learner)}),
        TRP_OK);
    assert_int_equal(trp_params_client_pull(client, 0, 0, &newer), TRP_OK);
    trp_params_state state = trp_params_client_state(client);
    assert_int_equal(state.count, COUNT);
    memcpy(params, state.params, COUNT * sizeof(float));
    trp_params_client_destroy(client);
}

static inline trp_learner_servers servers_of(struct site *site, uint32_t worker, uint32_t workers)
{
    return (trp_learner_servers){.name = "server",
                                 .services = site->services,
                                 .count = SERVERS,
                                 .options = site->options,
                                 .worker = worker,
                                 .workers = workers};
}

static inline void learn(const struct lesson *lesson, float params[COUNT])
{
    struct falling *falling = falling_create(lesson->optimizer);
    falling->happens = lesson->happens;
    falling->context = lesson->context;
    trp_learner_servers servers;
    trp_learner *learner;
    trp_learner_loop_options options = {.updater = &falling->base,
                                        .publish_every = 1,
                                        .checkpoint_dir = lesson->checkpoints,
                                        .checkpoint_every_s = 3600,
                                        .checkpoint_every_steps = lesson->checkpoint_every,
                                        .resume = lesson->resume,
                                        .max_steps = lesson->steps};
    if (lesson->site) {
        servers = servers_of(lesson->site, 0, 1);
        options.group = (trp_learner_group_options){.mode = "server",
                                                    .servers = &servers,
                                                    .timeout_ms = 5000,
                                                    .compression = lesson->compression};
    }
    if (trp_learner_create(&learner, &options) != TRP_OK || trp_learner_run(learner) != TRP_OK)
        fail_msg("%s", trp_last_error());
    assert_int_equal(trp_learner_read(learner).steps, lesson->steps);
    pull_all(learner, params);
    trp_learner_destroy(learner);
}

static inline void learn_alone(const trp_optimizer *optimizer, uint64_t steps, float params[COUNT])
{
    learn(&(struct lesson){.optimizer = optimizer, .steps = steps}, params);
}

static inline void restart_in_turn(struct falling *falling, uint64_t step)
{
    if (step % 3 == 2)
        server_begin_again(falling->context, step % SERVERS);
    if (step == 10)
        for (size_t i = 0; i < SERVERS; i++)
            server_begin_again(falling->context, i);
}

#endif
