/* Replay: tables of items on a durable server that speaks Reverb's wire protocol.
 *
 * The server half: table options, the server, and its text forms. The client half is in writer.h
 * and sampler.h. Semantics are those of Reverb (Cassirer et al. 2021, arXiv 2102.04736). */
#ifndef TRP_REPLAY_H
#define TRP_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/bytes.h>
#include <troupe/rpc.h>
#include <troupe/status.h>
#include <troupe/tensor.h>

TRP_BEGIN_DECLS

/* ---- tables ------------------------------------------------------------------------------ */

typedef enum {
    TRP_UNIFORM,     /* every item alike */
    TRP_FIFO,        /* the oldest insert */
    TRP_LIFO,        /* the newest insert */
    TRP_PRIORITIZED, /* P(i) = p_i^exponent / sum (Schaul et al. 2016, eq. 1); 0 stays 0 */
    TRP_MAX_HEAP,    /* the highest priority; ties: least recently inserted or updated */
    TRP_MIN_HEAP,    /* the lowest priority */
} trp_selector_kind;

typedef struct {
    trp_selector_kind kind;
    double exponent; /* TRP_PRIORITIZED only, >= 0 */
} trp_selector;

/* A sample of k is allowed iff inserts - deletes >= min_size and
 * inserts * samples_per_insert - samples - k >= min_diff; an insert of k iff
 * inserts + k - deletes <= min_size or (inserts + k) * samples_per_insert - samples <= max_diff. */
typedef struct {
    double samples_per_insert;
    int64_t min_size; /* a struct of zeros means min_size(1) */
    double min_diff, max_diff;
} trp_rate_limiter;

/* Numbers that Reverb refuses (a size below 1, samples_per_insert <= 0, error_buffer below
 * max(1, samples_per_insert)) give a limiter that trp_table_options_check() refuses. */
TRP_API trp_rate_limiter trp_limiter_min_size(int64_t min_size);
TRP_API trp_rate_limiter trp_limiter_samples_per_insert(double samples_per_insert, int64_t min_size,
                                                        double error_buffer);
TRP_API trp_rate_limiter trp_limiter_queue(int64_t size); /* a stack has the same numbers */

typedef struct {
    const char *name;
    trp_selector sampler;
    trp_selector remover;      /* the zero value means fifo here, not uniform: see remover_set */
    bool remover_set;          /* false: remover is fifo */
    int64_t max_size;          /* items; 0: 1 000 000 */
    int32_t max_times_sampled; /* 0: no limit */
    uint64_t max_bytes; /* of its items' chunks, one that several share counts once each; 0: no
                           limit. The remover takes items until this and max_size hold; a
                           larger item is INVALID_ARGUMENT */
    const char *insert_on_sample; /* another table of the server, or NULL: an item's first sample
                                     puts a copy with its key, priority and chunks into that one,
                                     where it counts as sampled once (max_times_sampled=2 there
                                     gives it once more, 1 for ever); when its limiter would hold
                                     the copy back, it is dropped and counted */
    bool no_replacement; /* uniform and prioritized: no item comes twice in the answer to one
                            request of a sample stream until each that is there, or 16384 of them,
                            came once; then all over again */
    uint64_t seed;       /* of its draws; 0: from the server's */
    trp_rate_limiter limiter;
    trp_bytes signature; /* a serialized tensorflow.StructuredValue of TensorSpecs, given to clients
                            as it is; empty: none */
    const char *line;    /* what trp_table_options_parse() was given: an option that it does not
                            name is that of a table that the directory has. NULL: all are as here */
} trp_table_options;

/* Parses "name=x sampler=prioritized(0.6) remover=fifo max_size=100000 limiter=min_size(1000)
 * max_times_sampled=1 max_bytes=1000000 insert_on_sample=y replacement=no seed=1 signature=FILE"
 * into a heap copy that trp_table_options_destroy() frees. A value may stand in double quotes, in
 * which a backslash keeps the next character: name="a b". Instead of a FILE (with a serialized
 * tensorflow.StructuredValue, or text) a signature may be text itself; a file that is called like
 * one is ./FILE. INVALID_ARGUMENT names the word that is wrong and what would be right. */
TRP_API TRP_MUST_USE trp_status trp_table_options_parse(const char *line, trp_table_options **out);
TRP_API void trp_table_options_destroy(trp_table_options *options);

/* Deep copy on the heap, with every default filled in; and the options as a line that parses back
 * to them, except for the signature (caller frees with free()). */
TRP_API trp_table_options *trp_table_options_copy(const trp_table_options *options);
TRP_API char *trp_table_options_format(const trp_table_options *options);

/* The next word "key=value" of such a line, `*at` moved behind it; false: there is none. */
TRP_API bool trp_table_options_word(const char **at, const char **word, size_t *size);

/* A value as such a line has it: in quotes where it has to be. Caller frees. */
TRP_API char *trp_table_options_quote(const char *value);

/* INVALID_ARGUMENT for options that no table can have (no name, limits out of order, ...). */
TRP_API TRP_MUST_USE trp_status trp_table_options_check(const trp_table_options *options);

/* A table signature (tensorflow.StructuredValue) for items of these columns; caller frees
 * `out->data` with free(). Python clients flatten a dict by sorted key, so columns sorted by name
 * become a dict of TensorSpecs and others a named tuple, whose fields keep their order.
 * INVALID_ARGUMENT: no columns, one without a name or dtype, two of one name. */
TRP_API TRP_MUST_USE trp_status trp_signature_encode(const trp_tensor_spec *columns, size_t count,
                                                     trp_bytes *out);

/* A signature as text, and the text of one; blanks and newlines may stand between its parts.
 *
 *   value  = { name: value, ... }         a dict
 *          | [ value, ... ]               a list
 *          | ( value, ... )               a tuple
 *          | name( name: value, ... )     a named tuple
 *          | dtype                        a TensorSpec of no dimensions: float32, int64, bool, ...
 *          | dtype[ size or ?, ... ]      a TensorSpec; ?: any size
 *          | dtype[...]                   of any number of dimensions
 *   name   = letters, digits, _ . / -, or anything in double quotes, where a backslash keeps the
 *            next character
 *
 * Names and bounds of TensorSpecs have no text: they are lost on the way. INVALID_ARGUMENT says
 * what belongs where, or that the bytes are no signature. Caller frees `out->data` and `*out`. */
TRP_API TRP_MUST_USE trp_status trp_signature_parse(const char *text, trp_bytes *out);
TRP_API TRP_MUST_USE trp_status trp_signature_format(trp_bytes signature, char **out);

/* ---- server ------------------------------------------------------------------------------ */

typedef enum {
    TRP_DURABLE_PROCESS, /* default: an acknowledged item survives kill -9 */
    TRP_DURABLE_MEMORY,  /* the same on a directory that must be on tmpfs */
    TRP_DURABLE_SYSTEM,  /* survives power loss: every group is synced */
} trp_durability;

typedef struct trp_replay_server trp_replay_server;

typedef struct {
    const char *dir; /* of the store; made when missing. One server per directory */
    trp_durability durability;
    /* Of the data file; 0: what the file system has. One that has more already does not grow. */
    uint64_t max_bytes;
    const trp_table_options *tables; /* copied; none: those that the directory has */
    size_t table_count;
    uint64_t seed;              /* of the samplers; 0: from the operating system */
    const char *checkpoint_dir; /* NULL: checkpoints/ in `dir` */
    uint32_t keep_checkpoints;  /* newest whole ones; a new one removes what is older. 0: 3;
                                   UINT32_MAX: all */
    bool shrink; /* a max_size below what a table holds, or a max_times_sampled that items have come
                    to, removes items; else it is refused */
    bool verify; /* check every byte when opening, and drop what is damaged (a warning each) */
    trp_server_options server; /* address and limits */
    /* A sampler on this host reads the data file itself. One that stands still keeps at most 32 MiB
     * of samples that are out of their table, and keeps them so long; 0: 5000 */
    int64_t lease_ms;
    bool no_share; /* clients on this host send and are sent everything, like those elsewhere */
} trp_replay_server_options;

/* Opens the store and its tables and puts ReverbService and troupe.Replay on a server. When the
 * directory has tables already, the last word wins: options in `tables` that differ from those of
 * the last start do (each difference is logged as a warning; what a parsed line does not name is
 * as it was); when they say what they said then,
 * what AlterTable made of the table since stays. Tables made by CreateTable need not be named. A
 * stored table that is missing from `tables` otherwise is FAILED_PRECONDITION; one that was dropped
 * and is named is made anew. Other failures: as the store's and trp_server_create()'s, with the
 * path or address named. */
TRP_API TRP_MUST_USE trp_status trp_replay_server_create(trp_replay_server **out,
                                                         const trp_replay_server_options *options);

/* Binds, serves, and writes the address to the file ADDRESS in the directory, which is removed when
 * the server stops. */
TRP_API TRP_MUST_USE trp_status trp_replay_server_start(trp_replay_server *server);

/* The rpc server inside: for its address, for trp_channel_create_local(). */
TRP_API trp_server *trp_replay_server_rpc(trp_replay_server *server);

/* Stops serving (running calls get `grace_ms`), then closes the store cleanly. Idempotent. */
TRP_API void trp_replay_server_stop(trp_replay_server *server, int64_t grace_ms);

/* Stops with no grace and frees. NULL is fine. */
TRP_API void trp_replay_server_destroy(trp_replay_server *server);

/* ---- looking at a stopped server --------------------------------------------------------- */

typedef struct trp_replay_files trp_replay_files;

/* Opens the directory of a stopped server to look at; nothing in it changes. FAILED_PRECONDITION: a
 * live server has it open (its pid is named), or it is no store; otherwise as the store's. */
TRP_API TRP_MUST_USE trp_status trp_replay_files_open(trp_replay_files **out, const char *dir);

/* A troupe.Replay service (replay.proto) as a live server has, for trp_call(). Any thread. */
TRP_API ProtobufCService *trp_replay_files_service(trp_replay_files *files);

/* NULL is fine. */
TRP_API void trp_replay_files_close(trp_replay_files *files);

/* ---- checkpoints and damage -------------------------------------------------------------- */

/* Makes the store in `dir` what it was when `checkpoint` (a directory) was taken; no server runs on
 * it. NOT_FOUND: that is no checkpoint; DATA_LOSS: it is damaged; FAILED_PRECONDITION: `dir` holds
 * something else, is in use, or has a store and `force` is false. Whatever it fails of, the
 * directory is what it was; after kill -9, too, once somebody has opened it. */
TRP_API TRP_MUST_USE trp_status trp_replay_restore(const char *checkpoint, const char *dir,
                                                   bool force);

/* The newest whole checkpoint in the directory `root` (see checkpoint_dir); NULL: there is none.
 * Caller frees. */
TRP_API char *trp_replay_newest_checkpoint(const char *root);

typedef struct {
    char *table;  /* its name; "": not known, `key` is the item's sequence number then */
    uint64_t key; /* of the item */
    char *what;
} trp_replay_damage;

typedef struct {
    uint64_t items, chunks, bytes; /* looked at */
    uint64_t damaged;              /* items */
    trp_replay_damage *damage;     /* the first 1000 */
    size_t damage_count;
    double seconds;
} trp_replay_report;

/* Reads every byte of a stopped store, or of a checkpoint, and compares sums; nothing changes.
 * TRP_OK also when items are damaged: opening with `verify` drops them. DATA_LOSS: the structure of
 * the file is, which no server opens. Otherwise as trp_replay_files_open(). */
TRP_API TRP_MUST_USE trp_status trp_replay_verify(const char *dir, trp_replay_report *report);
TRP_API void trp_replay_report_cleanup(trp_replay_report *report);

/* Verification and a restore may take minutes: `moved` is told on the calling thread how many of
 * the bytes are done, often; when it returns false, they end with CANCELLED and leave nothing
 * behind. For all later calls of this thread; NULL: nobody is told. */
TRP_API void trp_replay_watch(bool (*moved)(void *arg, uint64_t done, uint64_t total), void *arg);

TRP_END_DECLS
#endif
