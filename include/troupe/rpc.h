/* Calls between nodes: services, calls, futures and streams of raw messages.
 *
 * A service is declared in a .proto file and implemented as the ProtobufCService that protobuf-c
 * generates. Whoever calls it holds a `ProtobufCService *` and cannot tell whether it is the peer's
 * own object in this process or a proxy that speaks gRPC: results and statuses are the same.
 *
 * Rules for handlers (they run on the caller's thread for a local object, on a server thread
 * otherwise): be thread-safe, neither keep nor change the request, call the closure exactly once
 * before returning, and hold no lock while calling a service that may call back. To fail, call
 * trp_fail() and then the closure with NULL.
 *
 * Addresses: "host:port" (port 0 picks one), "[v6]:port", or "unix:/path". */
#ifndef TRP_RPC_H
#define TRP_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include <troupe/bytes.h>
#include <troupe/status.h>
#include <troupe/stop.h>

TRP_BEGIN_DECLS

/* ---- calls ------------------------------------------------------------------------------- */

/* Memory for one field of a reply that is `bytes` of 64 KiB or more. Where those come from
 * elsewhere and fit they are put there, and copied once, not twice. */
typedef struct {
    const char *field; /* its name in the .proto, of the reply itself */
    void *bytes;
    size_t size;
    size_t given; /* so many lie there when the call is over; then the reply's field is empty. 0:
                     the field has them, if any came */
} trp_reply_room;

typedef struct {
    int64_t timeout_ms;   /* 0: 30 000; negative: none. One that is over yields DEADLINE_EXCEEDED */
    trp_stop *cancel;     /* NULL: none. Once requested, waiting calls end with CANCELLED */
    bool in_parts;        /* of a stream: messages may come in parts, for trp_message_parts(); then
                             there is no trp_message_data() */
    trp_reply_room *room; /* of a call; NULL: none. Borrowed until it is over */
} trp_call_options;

/* Calls `method` (its name in the .proto, e.g. "Pull") of `service` with `request`.
 * Blocks until the reply, the deadline or the cancel; safe from any thread. `options` may be NULL.
 * On TRP_OK `*reply` is a message of the method's output type that the caller frees with
 * protobuf_c_message_free_unpacked(reply, NULL); otherwise it is NULL and trp_last_error() holds
 * the handler's own message. `reply` may be NULL when only the status matters. The texts in it are
 * as the peer sent them: no terminal should see those of one that is not trusted. A reply that came
 * over a connection may take 8 times its bytes and 64 MiB decoded, more is RESOURCE_EXHAUSTED; a
 * local object's, which no stranger made, is bounded by memory alone.
 * A local object's handler runs on this thread and is not interrupted: one that is late yields
 * DEADLINE_EXCEEDED when it returns. A method that its server marked blocking runs on the pool and
 * returns on time; in deterministic runs it runs on this thread, too, so that nothing depends on
 * other threads' timing, and returns when its handler heeds trp_call_cancelled(). UNIMPLEMENTED: no
 * such method or no handler. UNAVAILABLE: the peer is gone. */
TRP_API TRP_MUST_USE trp_status trp_call(ProtobufCService *service, const char *method,
                                         const ProtobufCMessage *request, ProtobufCMessage **reply,
                                         const trp_call_options *options);

/* Nanoseconds until the deadline of the call that this thread is handling; INT64_MAX when it has
 * none or when no handler runs on this thread. */
TRP_API int64_t trp_call_time_left_ns(void);

/* True when the caller of the handler running on this thread cancelled or went away, or its
 * deadline has passed: nobody waits for the answer. A handler that may block asks this between its
 * waits. */
TRP_API bool trp_call_cancelled(void);

/* Of a handler, before its closure: what it answers with from within `bytes`, in fields of 64 KiB
 * or more, is not copied but sent from there, and does not change before `done(arg)`. That is
 * called once: as soon as the closure has returned, or later, on any thread, when the reply has
 * left or was given up; it must not wait, nor need what the server's owner may have destroyed.
 * False: no handler runs on this thread, or it has lent before; `done` is not called. */
TRP_API bool trp_call_lend(trp_bytes bytes, void (*done)(void *arg), void *arg);

typedef struct trp_future trp_future;

/* The future form of trp_call(): returns at once. A local object's handler runs on the pool of its
 * server, or on a thread of its own when it is in none (destroying such a future waits for it); on
 * a thread with turns it runs before this returns, so that the run repeats. `request` and
 * `options->cancel` are only borrowed until it returns (the request is copied or packed). Never
 * NULL: a call that cannot be started is a future that fails. */
TRP_API trp_future *trp_call_async(ProtobufCService *service, const char *method,
                                   const ProtobufCMessage *request,
                                   const trp_call_options *options);

/* Waits up to `timeout_ms` (negative: until the call's own deadline). DEADLINE_EXCEEDED with the
 * future still running when that passes first; otherwise the call's status, `*reply` as in
 * trp_call() (given once). One thread at a time. */
TRP_API TRP_MUST_USE trp_status trp_future_wait(trp_future *future, int64_t timeout_ms,
                                                ProtobufCMessage **reply);

/* Asks the call to end with CANCELLED; a wait then returns soon. Safe from any thread. */
TRP_API void trp_future_cancel(trp_future *future);

/* Waits for the call's end, which comes soon, with CANCELLED, once `cancel` is requested (NULL: it
 * is not), gives what trp_future_wait() gives, and frees. */
TRP_API TRP_MUST_USE trp_status trp_future_finish(trp_future *future, trp_stop *cancel,
                                                  ProtobufCMessage **reply);

/* True where calls of `service` may leave this process: then several at a time are over sooner than
 * one after the other. */
TRP_API bool trp_service_is_remote(ProtobufCService *service);

/* Cancels if still running and frees; NULL is fine. */
TRP_API void trp_future_destroy(trp_future *future);

/* ---- messages ---------------------------------------------------------------------------- */

/* Owned bytes of one message on its way in or out: contiguous, but see trp_message_parts() and
 * trp_message_set_parts(). */
typedef struct trp_message trp_message;

/* A message of `size` writable bytes; NULL when there is no memory for it (size may be data). */
TRP_API trp_message *trp_message_create(size_t size);
TRP_API uint8_t *trp_message_data(trp_message *message);
TRP_API size_t trp_message_size(const trp_message *message);

/* The bytes as they lie: how many parts they are in, and in *parts, which lives as long as the
 * message, which. One part, unless it is a message to a method, or of a stream, that takes them in
 * parts. */
TRP_API size_t trp_message_parts(trp_message *message, const trp_bytes **parts);

/* From now on the message is `count` parts, some of its own bytes, some elsewhere. Neither they nor
 * `parts` may change before `done(arg)`, which is called once, on any thread, when the message is
 * destroyed or has left. */
TRP_API void trp_message_set_parts(trp_message *message, const trp_bytes *parts, size_t count,
                                   void (*done)(void *arg), void *arg);

/* Shrinks to `size` <= the created size: for encoders that reserve the worst case. */
TRP_API void trp_message_truncate(trp_message *message, size_t size);
TRP_API void trp_message_destroy(trp_message *message); /* NULL is fine */

/* ---- server ------------------------------------------------------------------------------ */

typedef struct trp_server trp_server;
typedef struct trp_server_call trp_server_call;

/* A method whose messages are bytes, unary or streaming alike: what the handler sees is a sequence
 * of messages and a half-close. All functions run on the server's one reactor thread, or on the
 * thread of a caller in the same process; never two at once (the server holds its lock). They must
 * not block. `service` is what trp_server_add_raw() was given. */
typedef struct {
    const char *path; /* "/package.Service/Method" */
    bool any_size;    /* up to the in-flight byte budget instead of max_message_bytes */
    bool in_parts;    /* messages may come in parts, for trp_message_parts(); then there is no
                         trp_message_data() */
    void (*opened)(void *service, trp_server_call *call); /* first; call trp_server_call_read() */
    /* One message, the handler's to destroy. No further one comes before trp_server_call_read().
     */
    void (*received)(void *service, trp_server_call *call, trp_message *message);
    /* The peer sends no more. Comes, like a message, only after trp_server_call_read(). */
    void (*half_closed)(void *service, trp_server_call *call);
    /* Everything sent left, or there is the room that trp_server_call_room() missed; may be NULL.
     */
    void (*drained)(void *service, trp_server_call *call);
    /* Last: the call is finished, cancelled or broken; free trp_server_call_state(). */
    void (*closed)(void *service, trp_server_call *call);
} trp_raw_method;

/* Called on the reactor thread (or the local caller's), with the lock held, after everything that
 * was ready (within about 1000 messages and 256 KiB, so that nobody waits long) has been given to
 * handlers: commit, then send. What handlers sent before goes out after it, too. Returns when it
 * wants to be called again though nothing arrives, in CLOCK_MONOTONIC nanoseconds; INT64_MAX:
 * never. A time that has passed is when nothing is ready; after a group of a local caller, who may
 * come again, that is when it waits, or 10 ms later. */
typedef int64_t (*trp_group_end)(void *service);

typedef struct {
    const char *address;  /* NULL: "127.0.0.1:0". Not loopback or unix: needs `insecure` */
    bool insecure;        /* allow other addresses without TLS; docs/replay.md, "Who may connect" */
    uint32_t threads;     /* handler pool for protobuf-c services; 0: 4 */
    uint32_t max_pending; /* calls waiting for the pool, then UNAVAILABLE; 0: 1024 */
    /* Both directions; 0: 64 MiB. Compressed messages are refused unread, by servers and channels:
     * UNIMPLEMENTED. */
    uint64_t max_message_bytes;
    /* All received messages not yet destroyed, and what requests to services take decoded while
     * they are handled; 0: 1 GiB: beyond it such requests are UNAVAILABLE, and RESOURCE_EXHAUSTED
     * where one takes more than all of it. That is its bytes and as much decoded, at least, which
     * are there at once: give twice max_message_bytes, or more. As much again of services' replies
     * that callers have not read: beyond it they are UNAVAILABLE, too. As much again of what raw
     * calls sent and clients have not read: half of it is shared among those that ask for room. */
    uint64_t in_flight_bytes;
    /* A raw call whose client has read nothing for so long ends (RESOURCE_EXHAUSTED) if another has
     * waited as long for the room; so does a call of a service whose reply has been on its way for
     * so long, when another one's finds no room; 0: 10 s. */
    int64_t unread_timeout_ms;
} trp_server_options;

/* A server that is not listening yet. Also serves callers in this process through
 * trp_channel_create_local(), listening or not. `options` is copied, may be NULL.
 * RESOURCE_EXHAUSTED: `ulimit -v` leaves no room for the threads that it needs. */
TRP_API TRP_MUST_USE trp_status trp_server_create(trp_server **out,
                                                  const trp_server_options *options);

/* Adds a service before the start; it stays the caller's and outlives the server. An object is in
 * one server at a time. `blocking` names
 * methods that may block (NULL-ended, may be NULL): they run on the pool even for local callers.
 * ALREADY_EXISTS: two services with one name. INVALID_ARGUMENT: a descriptor without names. */
TRP_API TRP_MUST_USE trp_status trp_server_add(trp_server *server, ProtobufCService *service,
                                               const char *const *blocking);

/* Adds `count` raw methods of `service` before the start. `group_end` may be NULL. At most one
 * group_end per server. */
TRP_API TRP_MUST_USE trp_status trp_server_add_raw(trp_server *server,
                                                   const trp_raw_method *methods, size_t count,
                                                   void *service, trp_group_end group_end);

/* Binds, starts the threads and answers grpc.health.v1 with SERVING for "" and every service.
 * ALREADY_EXISTS names the address (and the owner where it can be found out) when it is in use; a
 * unix socket left by a dead process is replaced. INVALID_ARGUMENT: an address that is neither
 * loopback nor unix without `insecure`. */
TRP_API TRP_MUST_USE trp_status trp_server_start(trp_server *server);

/* The bound address in the form that clients use, e.g. "127.0.0.1:40123"; valid until destroy. */
TRP_API const char *trp_server_address(const trp_server *server);

/* Runs `work(arg)` soon on the reactor thread, with the lock held, followed by group_end. Any
 * thread; hold no lock that handlers take. A server that was not started has no reactor: the next
 * local caller runs it, at once when one waits in a stream. */
TRP_API void trp_server_post(trp_server *server, void (*work)(void *arg), void *arg);

/* Runs `work(arg)` now on this thread with the lock held, followed by group_end. Not from a
 * handler. */
TRP_API void trp_server_run(trp_server *server, void (*work)(void *arg), void *arg);

/* Runs `work(arg)` on the reactor thread and waits until it is done: for long work in short slices,
 * so that no thread that may be preempted holds the lock. What `work` fails with is the caller's
 * last error. Returns when the slice is done, which is before its group ends. Without a reactor, as
 * trp_server_run(). Not from a handler that runs on the reactor. */
TRP_API void trp_server_visit(trp_server *server, void (*work)(void *arg), void *arg);

/* Refuses new calls, lets running ones finish for `grace_ms`, then cancels them and joins the
 * threads; a handler that blocks has to heed trp_call_cancelled(). After it no handler runs.
 * Idempotent. */
TRP_API void trp_server_stop(trp_server *server, int64_t grace_ms);

/* Stops (grace 0) and frees; local channels to it and received messages must be gone. NULL is fine.
 */
TRP_API void trp_server_destroy(trp_server *server);

/* Raw calls that are open; with the lock held. */
TRP_API size_t trp_server_open_calls(const trp_server *server);

/* ---- one raw call on the server; all only with the lock held (handlers, group_end, work) --- */

TRP_API void trp_server_call_set_state(trp_server_call *call, void *state);
TRP_API void *trp_server_call_state(const trp_server_call *call);

/* "ipv4:127.0.0.1:40000", "unix:/path" or "in-process", and who it says it is if it is one of our
 * channels: "actor/1 (pid 4711) at ipv4:127.0.0.1:40000"; valid while the call is. */
TRP_API const char *trp_server_call_peer(const trp_server_call *call);

/* Asks for one more message; until then flow control holds the peer back. At most one is
 * outstanding; asking again before it came changes nothing. */
TRP_API void trp_server_call_read(trp_server_call *call);

/* Bytes that the message being handled stands for, beside its own: they count towards the 256 KiB
 * that end a group. */
TRP_API void trp_server_call_charge(trp_server_call *call, size_t bytes);

/* Queues `message` (takes it) behind those already queued. Goes out in order; dropped silently when
 * the peer is gone. */
TRP_API void trp_server_call_send(trp_server_call *call, trp_message *message);

/* True when there is room for one more message of any size among what clients have not read. False:
 * drained() comes when there is. For calls that send much: ask before each message. A message that
 * was not asked for ends its call when all bytes are taken (RESOURCE_EXHAUSTED). */
TRP_API bool trp_server_call_room(trp_server_call *call);

/* Messages queued and not yet handed to the transport; their bytes, without one that the transport
 * has begun to take. */
TRP_API size_t trp_server_call_queued(const trp_server_call *call);
TRP_API size_t trp_server_call_queued_bytes(const trp_server_call *call);

/* Ends the call with a status after the queued messages. `text` is copied; NULL is "". Once. */
TRP_API void trp_server_call_finish(trp_server_call *call, trp_status status, const char *text);

/* ---- channel ----------------------------------------------------------------------------- */

typedef struct trp_channel trp_channel;

typedef struct {
    /* 0: 60 000. Bound of the wait for a peer that is not up yet, or away; a call's own deadline
     * may pass first. Both end it with why nobody could be connected to, which takes up to 100 ms
     * more. */
    int64_t connect_timeout_ms;
    bool fail_fast;             /* do not wait for the peer: UNAVAILABLE at once */
    uint64_t max_message_bytes; /* both directions; 0: no limit. A reply may take 8 times its bytes
                                   and 64 MiB decoded (RESOURCE_EXHAUSTED) */
    const char *name; /* who calls, for who looks at the server; NULL: the program's name */
} trp_channel_options;

/* A channel to `address`; connects at the first call. Shared by any threads. RESOURCE_EXHAUSTED: as
 * of trp_server_create(). */
TRP_API TRP_MUST_USE trp_status trp_channel_create(trp_channel **out, const char *address,
                                                   const trp_channel_options *options);

/* A channel to a server in this process: no socket, handlers run on the caller's thread. */
TRP_API trp_channel *trp_channel_create_local(trp_server *server);

/* After every stream, future and service made from it is gone. NULL is fine. */
TRP_API void trp_channel_destroy(trp_channel *channel);

/* The address, or "in-process". */
TRP_API const char *trp_channel_address(const trp_channel *channel);

/* The service that `descriptor` declares, at the other end: the object itself when the channel is
 * local (NOT_FOUND when the server has none), a proxy otherwise. Owned by the channel. A local
 * object whose code was generated elsewhere from the same .proto is called through messages packed
 * and unpacked; INVALID_ARGUMENT names the method or field in which it differs. */
TRP_API TRP_MUST_USE trp_status trp_channel_service(trp_channel *channel,
                                                    const ProtobufCServiceDescriptor *descriptor,
                                                    ProtobufCService **service);

/* ---- a service that moves ---------------------------------------------------------------- */

/* Stands for a service whose server changes while others call it: each call goes to the one that it
 * was given last. */
typedef struct trp_relay trp_relay;

TRP_API trp_relay *trp_relay_create(const ProtobufCServiceDescriptor *descriptor);

/* What to call, from any thread. Before there is a target, and where it was taken away, calls are
 * UNAVAILABLE. */
TRP_API ProtobufCService *trp_relay_service(trp_relay *relay);

/* From here on calls go to `target`, a service of the same descriptor; NULL: to nobody. Waits until
 * no call is inside the target before, if that is an object of this process, which may go then; a
 * proxy has to outlive the relay. */
TRP_API void trp_relay_set(trp_relay *relay, ProtobufCService *target);

/* Nobody calls any more. NULL is fine. */
TRP_API void trp_relay_destroy(trp_relay *relay);

/* ---- streams (client side) --------------------------------------------------------------- */

typedef struct trp_stream trp_stream;

/* Opens a stream of raw messages to `path` ("/package.Service/Method"); a unary method is a stream
 * of one message each way. A stream belongs to one thread at a time; trp_stream_cancel() alone is
 * safe from any. `options->timeout_ms` bounds the whole stream (0 and negative: no bound).
 * UNAVAILABLE when the peer did not come up within the channel's connect timeout. */
TRP_API TRP_MUST_USE trp_status trp_stream_open(trp_stream **out, trp_channel *channel,
                                                const char *path, const trp_call_options *options);

/* Sends `message` (takes it, also on failure), waiting up to `timeout_ms` for room (0: does not
 * wait; negative: no bound). Returns once the transport took it. DEADLINE_EXCEEDED: no room, the
 * message is gone; the peer's status when the stream has ended: what it sent before is received as
 * ever. */
TRP_API TRP_MUST_USE trp_status trp_stream_send(trp_stream *stream, trp_message *message,
                                                int64_t timeout_ms);

/* True when a send would not wait. */
TRP_API bool trp_stream_writable(trp_stream *stream);

/* Next message, the caller's to destroy, waiting up to `timeout_ms` (0: a poll; negative: no
 * bound). OUT_OF_RANGE: the peer ended the stream with OK; its status and message otherwise;
 * DEADLINE_EXCEEDED: none came in time, the stream is fine. */
TRP_API TRP_MUST_USE trp_status trp_stream_receive(trp_stream *stream, trp_message **message,
                                                   int64_t timeout_ms);

/* True once a send or receive has returned how the stream ended: tells a peer that ended it with
 * DEADLINE_EXCEEDED from a wait that took too long. */
TRP_API bool trp_stream_ended(const trp_stream *stream);

/* No more sends from this side. */
TRP_API TRP_MUST_USE trp_status trp_stream_half_close(trp_stream *stream);

/* Ends the stream: waits return CANCELLED. Safe from any thread. */
TRP_API void trp_stream_cancel(trp_stream *stream);

/* Cancels if it has not ended, and frees. NULL is fine. */
TRP_API void trp_stream_destroy(trp_stream *stream);

TRP_END_DECLS
#endif
