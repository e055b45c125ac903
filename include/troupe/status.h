/* Status codes, the last error of a thread, and the attributes public headers use.
 *
 * Every fallible function returns a trp_status. Codes and numbers are gRPC's, so nothing is
 * translated on the wire. The message is written once, by trp_fail(), where the failure is first
 * known; callers pass the code up. Peers, data, disks and users cause statuses; only a wrong
 * program asserts. */
#ifndef TRP_STATUS_H
#define TRP_STATUS_H

#ifdef __cplusplus
#define TRP_BEGIN_DECLS extern "C" {
#define TRP_END_DECLS   }
#else
#define TRP_BEGIN_DECLS
#define TRP_END_DECLS
#endif

#define TRP_API             __attribute__((visibility("default")))
#define TRP_MUST_USE        __attribute__((warn_unused_result))
#define TRP_PRINTF(fmt, va) __attribute__((format(printf, fmt, va)))

/* Library version; the wire and the store have numbers of their own. */
#define TRP_VERSION "0.1.0"

TRP_BEGIN_DECLS

/* name, number, words */
#define TRP_STATUS_MAP(X)                                                                          \
    X(OK, 0, "ok")                                                                                 \
    X(CANCELLED, 1, "cancelled")                                                                   \
    X(UNKNOWN, 2, "unknown error")                                                                 \
    X(INVALID_ARGUMENT, 3, "invalid argument")                                                     \
    X(DEADLINE_EXCEEDED, 4, "deadline exceeded")                                                   \
    X(NOT_FOUND, 5, "not found")                                                                   \
    X(ALREADY_EXISTS, 6, "already exists")                                                         \
    X(PERMISSION_DENIED, 7, "permission denied")                                                   \
    X(RESOURCE_EXHAUSTED, 8, "resource exhausted")                                                 \
    X(FAILED_PRECONDITION, 9, "failed precondition")                                               \
    X(ABORTED, 10, "aborted")                                                                      \
    X(OUT_OF_RANGE, 11, "out of range")                                                            \
    X(UNIMPLEMENTED, 12, "unimplemented")                                                          \
    X(INTERNAL, 13, "internal error")                                                              \
    X(UNAVAILABLE, 14, "unavailable")                                                              \
    X(DATA_LOSS, 15, "data loss")                                                                  \
    X(UNAUTHENTICATED, 16, "unauthenticated")

typedef enum {
#define TRP_STATUS_ENUM(name, number, words) TRP_##name = number,
    TRP_STATUS_MAP(TRP_STATUS_ENUM)
#undef TRP_STATUS_ENUM
} trp_status;

/* Records `code` and the formatted message as this thread's last error and returns `code`.
 * Messages longer than 1023 bytes are cut. What a terminal would obey (of a peer's words, or a
 * file's) becomes \xNN, or \u{N}. `code` is not TRP_OK. */
TRP_API trp_status trp_fail(trp_status code, const char *format, ...) TRP_PRINTF(2, 3);

/* The message of this thread's last trp_fail(); "" before the first. Valid until the next one. */
TRP_API const char *trp_last_error(void);

/* "INVALID_ARGUMENT" and "invalid argument"; static strings, also for numbers that are no code. */
TRP_API const char *trp_status_name(trp_status status);
TRP_API const char *trp_status_words(trp_status status);

/* Library version at run time, e.g. "0.1.0". */
TRP_API const char *trp_version(void);

/* Returns from the enclosing function when `call` fails. Only while nothing is owned. */
#define TRP_TRY(call)                                                                              \
    do {                                                                                           \
        trp_status trp_try_status_ = (call);                                                       \
        if (trp_try_status_ != TRP_OK)                                                             \
            return trp_try_status_;                                                                \
    } while (0)

TRP_END_DECLS
#endif
