/* `troupe replay`: the table of its commands and their options. */
#include "limits.h"
#include "npz.h"
#include "replay_serve.h"
#include "replay_target.h"

#define AT(member)     offsetof(struct replay_args, member)
#define FILTER(member) offsetof(struct replay_args, filter.member)
#define SERVE(member)  offsetof(struct serve_args, member)
#define SIZE           .args_size = sizeof(struct replay_args)

/* ---- options ----------------------------------------------------------------------------- */

#define OUTPUT_ROW                                                                                 \
    {                                                                                              \
        .name = "output", .letter = 'o', .kind = CLI_CHOICE, .value = "FORMAT", .at = AT(json),    \
        .words = "text json", .fallback = "text", .help = "what is printed"                        \
    }

static const struct cli_option output_rows[] = {OUTPUT_ROW, {0}};

/* The same, and how long the server may take. */
static const struct cli_option answer_rows[] = {
    OUTPUT_ROW,
    {.name = "timeout",
     .kind = CLI_TIMEOUT,
     .value = "SECONDS",
     .at = AT(answer_seconds),
     .help = "how long a server may take to answer (otherwise 3 to connect, 30 to answer); -1: for "
             "ever"},
    {0},
};

static const struct cli_option progress_rows[] = {
    {.name = "progress",
     .at = AT(progress),
     .help = "say on standard error how far it is, also where that is no terminal"},
    {0},
};

static const struct cli_option yes_rows[] = {
    {.name = "yes", .letter = 'y', .at = AT(yes), .help = "do not ask; needed without a terminal"},
    {0},
};

static const struct cli_option ls_rows[] = {
    {.name = "names", .at = AT(names), .help = "only the names, one a line (-o json: an array)"},
    {0},
};

static const struct cli_option top_rows[] = {
    {.name = "count",
     .letter = 'n',
     .kind = CLI_U64,
     .value = "N",
     .at = AT(rounds),
     .min = 1,
     .max = UINT64_MAX,
     .help = "end after N looks"},
    {.name = "delay",
     .letter = 'd',
     .kind = CLI_PERIOD,
     .value = "SECONDS",
     .at = AT(seconds),
     .fallback = "1",
     .help = "pause between two looks"},
    {0},
};

static const struct cli_option items_rows[] = {
    {.name = "count",
     .letter = 'n',
     .kind = CLI_U64,
     .value = "N",
     .at = AT(count),
     .min = 1,
     .max = 10000,
     .fallback = "10",
     .help = "how many, at most 10000"},
    {.name = "offset",
     .kind = CLI_U64,
     .value = "N",
     .at = AT(offset),
     .max = UINT32_MAX,
     .fallback = "0",
     .help = "leave out the first N: the next page"},
    {.name = "sort",
     .kind = CLI_CHOICE,
     .value = "ORDER",
     .at = AT(order),
     .fallback = "sampler",
     .words = "sampler oldest newest highest lowest most-sampled least-sampled",
     .help = "which come first; sampler: its favourites"},
    {0},
};

static const struct cli_option filter_rows[] = {
    {.name = "min-priority",
     .kind = CLI_NUMBER,
     .value = "P",
     .at = FILTER(min_priority),
     .given = FILTER(has_min_priority),
     .help = "only items of at least this priority"},
    {.name = "max-priority",
     .kind = CLI_NUMBER,
     .value = "P",
     .at = FILTER(max_priority),
     .given = FILTER(has_max_priority),
     .help = "only items of at most this priority"},
    {.name = "min-sampled",
     .kind = CLI_U64,
     .value = "N",
     .at = FILTER(min_sampled),
     .max = INT32_MAX,
     .given = FILTER(has_min_sampled),
     .help = "only items sampled N times or more"},
    {.name = "max-sampled",
     .kind = CLI_U64,
     .value = "N",
     .at = FILTER(max_sampled),
     .max = INT32_MAX,
     .given = FILTER(has_max_sampled),
     .help = "only items known to be sampled N times or less"},
    {.name = "min-age",
     .kind = CLI_SECONDS,
     .value = "SECONDS",
     .at = FILTER(min_age),
     .given = FILTER(has_min_age),
     .help = "only items inserted that long ago or longer"},
    {.name = "max-age",
     .kind = CLI_SECONDS,
     .value = "SECONDS",
     .at = FILTER(max_age),
     .given = FILTER(has_max_age),
     .help = "only items inserted since then"},
    {.name = "min-version",
     .kind = CLI_U64,
     .value = "N",
     .at = FILTER(min_version),
     .max = UINT64_MAX,
     .given = FILTER(has_min_version),
     .help = "only items of this version of the policy or a later one"},
    {.name = "max-version",
     .kind = CLI_U64,
     .value = "N",
     .at = FILTER(max_version),
     .max = UINT64_MAX,
     .given = FILTER(has_max_version),
     .help = "only items of this version of the policy or an earlier one"},
    {0},
};

static const struct cli_option key_rows[] = {
    {.name = "key",
     .kind = CLI_LIST,
     .value = "KEY",
     .at = FILTER(keys),
     .help = "only the item with this key (repeatable)"},
    {0},
};

static const struct cli_option sample_rows[] = {
    {.name = "count",
     .letter = 'n',
     .kind = CLI_U64,
     .value = "N",
     .at = AT(count),
     .min = 1,
     .max = INT32_MAX,
     .fallback = "1",
     .help = "how many"},
    {.name = "timeout",
     .kind = CLI_TIMEOUT,
     .value = "SECONDS",
     .at = AT(timeout),
     .fallback = "10",
     .help = "how long the limiter may hold back; 0: not at all, -1: for ever. A stopped store's, "
             "into which nobody inserts, never does"},
    {.name = "save",
     .kind = CLI_TEXT,
     .value = "FILE",
     .at = AT(file),
     .help = "into FILE.npz or FILE.jsonl, as dump does, instead of printing them; what came is "
             "written, also when more was wanted or it is interrupted"},
    {0},
};

static const struct cli_option dump_rows[] = {
    {.name = "all", .at = AT(all), .help = "every table, and no TABLE is named"},
    {0},
};

static const struct cli_option load_rows[] = {
    {.name = "table",
     .kind = CLI_TEXT,
     .value = "TABLE",
     .at = AT(table),
     .help = "all items into this table (default: the one each came from)"},
    {.name = "create",
     .at = AT(create),
     .help = "make missing tables as the dump describes them, "
             "under the name that --table says"},
    {.name = "timeout",
     .kind = CLI_TIMEOUT,
     .value = "SECONDS",
     .at = AT(timeout),
     .fallback = "30",
     .help = "how long a limiter may hold back; 0: not at all, -1: for ever"},
    {0},
};

static const struct cli_option drop_rows[] = {
    {.name = "if-empty", .at = AT(if_empty), .help = "fail when it has items"},
    {0},
};

static const struct cli_option shrink_rows[] = {
    {.name = "shrink",
     .at = AT(shrink),
     .help = "allow limits below what is there: the remover's choices and used-up items go"},
    {0},
};

static const struct cli_option alter_rows[] = {
    {.name = "dry-run", .at = AT(dry_run), .help = "only say what would change"},
    {0},
};

static const struct cli_option keep_rows[] = {
    {.name = "keep",
     .kind = CLI_U64,
     .value = "N",
     .at = AT(count),
     .min = 1,
     .max = UINT32_MAX,
     .given = AT(counted),
     .help = "remove all but the newest N of this store"},
    {0},
};

static const struct cli_option remove_rows[] = {
    {.name = "remove",
     .kind = CLI_LIST,
     .value = "NAME",
     .at = AT(names_given),
     .help = "remove the one that is called so, or is there (repeatable)"},
    {0},
};

static const struct cli_option restore_rows[] = {
    {.name = "checkpoint-dir",
     .kind = CLI_TEXT,
     .value = "PATH",
     .at = AT(file),
     .help = "where latest looks (otherwise DIR/checkpoints): what serve was told"},
    {.name = "force",
     .at = AT(force),
     .help = "replace the store that is in DIR: what it has is lost"},
    {.name = "table",
     .kind = CLI_LIST,
     .value = "OPTIONS",
     .at = AT(tables),
     .help = "change a restored table, e.g. 'name=x max_size=100' (repeatable)"},
    {0},
};

static const struct cli_option bench_rows[] = {
    {.name = "item-bytes",
     .kind = CLI_U64,
     .value = "N",
     .at = AT(item_bytes),
     .min = 1,
     .max = 1 << 26,
     .fallback = "52",
     .help = "size of an item"},
    {.name = "writers",
     .kind = CLI_U64,
     .value = "N",
     .at = AT(writers),
     .min = 1,
     .max = 64,
     .fallback = "1",
     .help = "threads that insert"},
    {.name = "samplers",
     .kind = CLI_U64,
     .value = "N",
     .at = AT(samplers),
     .max = 64,
     .fallback = "1",
     .help = "threads that sample"},
    {.name = "batch",
     .kind = CLI_U64,
     .value = "N",
     .at = AT(batch),
     .min = 1,
     .max = 65536,
     .fallback = "256",
     .help = "items in a batch of a sampler"},
    {.name = "seconds",
     .kind = CLI_PERIOD,
     .value = "SECONDS",
     .at = AT(seconds),
     .fallback = "5",
     .help = "how long"},
    {.name = "max-size",
     .kind = CLI_U64,
     .value = "N",
     .at = AT(count),
     .min = 1,
     .max = INT32_MAX,
     .fallback = "100000",
     .help = "items that the table holds"},
    {0},
};

static const struct cli_option serve_rows[] = {
    {.name = "dir",
     .kind = CLI_TEXT,
     .value = "PATH",
     .at = SERVE(dir),
     .needed = true,
     .help = "directory of the store; made when missing"},
    {.name = "listen",
     .kind = CLI_TEXT,
     .value = "ADDR",
     .at = SERVE(listen),
     .fallback = "127.0.0.1:0",
     .help = "HOST:PORT, [V6]:PORT or unix:/PATH; port 0 picks one"},
    {.name = "table",
     .kind = CLI_LIST,
     .value = "OPTIONS",
     .at = SERVE(tables),
     .help = "a table, e.g. 'name=x sampler=prioritized(0.6) remover=fifo max_size=100000 "
             "limiter=min_size(1000)' (repeatable)"},
    {.name = "tables",
     .kind = CLI_TEXT,
     .value = "FILE",
     .at = SERVE(file),
     .help = "tables from a file, one a line; # begins a comment"},
    {.name = "durability",
     .kind = CLI_CHOICE,
     .value = "LEVEL",
     .at = SERVE(durability),
     .words = "process memory system",
     .fallback = "process",
     .help = "what confirmed items survive; process: kill -9, memory: the same, on tmpfs, system: "
             "power loss"},
    {.name = "max-bytes",
     .kind = CLI_BYTES,
     .value = "N",
     .at = SERVE(max_bytes),
     .min = STORE_MAX_BYTES_MIN,
     .help = "bound of the data file, with K, M, G or T (otherwise what the file system has)"},
    {.name = "checkpoint-dir",
     .kind = CLI_TEXT,
     .value = "DIR",
     .at = SERVE(checkpoint_dir),
     .help = "where checkpoints go (otherwise checkpoints/ in the store)"},
    {.name = "keep-checkpoints",
     .kind = CLI_U64,
     .value = "N",
     .at = SERVE(keep_checkpoints),
     .max = UINT32_MAX,
     .fallback = "3",
     .help = "newest ones that stay when another is taken; 0: all"},
    {.name = "shrink",
     .at = SERVE(shrink),
     .help = "let limits below what a table holds remove items"},
    {.name = "restore",
     .kind = CLI_TEXT,
     .value = "CHECKPOINT",
     .at = SERVE(restore),
     .help = "begin with what a checkpoint has; latest: with the newest one"},
    {.name = "force",
     .at = SERVE(force),
     .help = "let --restore replace the store that is there: what it has is lost"},
    {.name = "if-missing",
     .at = SERVE(if_missing),
     .help = "let --restore leave a store that is there alone and serve it, and latest begin a new "
             "one where there is no checkpoint either: a start that can be repeated"},
    {.name = "verify",
     .at = SERVE(verify),
     .help = "check every byte before serving, and drop what is damaged"},
    {.name = "no-share",
     .at = SERVE(no_share),
     .help = "clients on this host, too, send and are sent everything, instead of reading the "
             "store's file and sharing memory with the server"},
    {.name = "insecure",
     .at = SERVE(insecure),
     .help = "allow addresses that are neither loopback nor unix"},
    {.name = "seed",
     .kind = CLI_U64,
     .value = "N",
     .at = SERVE(seed),
     .min = 1,
     .max = UINT64_MAX,
     .help = "seed of the samplers (otherwise random)"},
    {.name = "log-level",
     .kind = CLI_CHOICE,
     .value = "LEVEL",
     .at = SERVE(log_level),
     .words = "debug info warn error",
     .fallback = "info",
     .help = "which lines are logged"},
    {.name = "output",
     .letter = 'o',
     .kind = CLI_CHOICE,
     .value = "FORMAT",
     .at = SERVE(json),
     .words = "text json",
     .fallback = "text",
     .help = "how it says where it listens; json: a line with address, pid and dir"},
    {0},
};

/* ---- commands ---------------------------------------------------------------------------- */

static const char table_words[] =
    "A table's OPTIONS are words: name=x sampler=prioritized(0.6) remover=fifo max_size=100000 "
    "limiter=min_size(1000), and max_times_sampled=N (an item goes after so many), max_bytes=N (of "
    "its items' chunks), replacement=no (a batch has no item twice), insert_on_sample=TABLE (an "
    "item's first sample inserts it there, too), seed=N (of its draws), signature=TEXT or "
    "signature=FILE. A name with blanks stands in quotes: 'name=\"a b\" sampler=fifo'. max_size "
    "and max_bytes may end in K, M or G, times "
    "1024, 1024^2, 1024^3.\n\n"
    "Samplers and removers: fifo lifo uniform prioritized(EXPONENT) max_heap min_heap.\n\n"
    "Limiters: min_size(N) samples_per_insert(SPI,MIN_SIZE,ERROR_BUFFER) queue(N) stack(N) "
    "rate(SPI,MIN_SIZE,MIN_DIFF,MAX_DIFF), where a limit may be inf or -inf.\n\n"
    "A signature's TEXT is {obs: float32[4,?], action: int32}, a dict of tensors by name: ? is any "
    "size, float32[...] any shape. [a, b] is a list, (a, b) a tuple, NAME(x: a, y: b) a named "
    "tuple, "
    "and one may stand within another. Names of other letters than A-Za-z0-9_./- stand in quotes. "
    "info prints it so. FILE has the same text, or a serialized tensorflow.StructuredValue.";

const struct command replay_commands[] = {
    {.name = "serve",
     .summary = "serve tables over Reverb's protocol",
     .details = "Prints 'listening on ADDR' when it is ready; TERM and INT end it. A store that is "
                "there already is served with its tables when none is named; a new one may get its "
                "tables later. `troupe replay create "
                "--help` says what OPTIONS are.",
     .options = {serve_rows},
     .args_size = sizeof(struct serve_args),
     .run = replay_serve},
    {.name = "ls",
     .summary = "list the tables of a server, running or stopped",
     .arguments = "TARGET",
     .details = "SPI is samples per insert so far; BLOCKED says who waits for the limiter.\n\n"
                "With -o json a limit of the limiter that is null is none.",
     .options = {ls_rows, answer_rows},
     SIZE,
     .run = replay_ls},
    {.name = "info",
     .summary = "a table's options, limiter and who is blocked; the store",
     .arguments = "TARGET [TABLE]",
     .options = {answer_rows},
     SIZE,
     .run = replay_info},
    {.name = "top",
     .summary = "what a server does now: rates, limiters, blocked callers",
     .arguments = "TARGET",
     .details = "Redraws in place on a terminal, until q or ^C; otherwise prints one look after "
                "the other. With -o json each look is one line. A server that goes away is waited "
                "for: on a terminal until you leave, otherwise for --timeout (30 s), and not at "
                "all where --count says how many looks. Of a stopped one there is one look, or as "
                "many as --count says.",
     .options = {top_rows, answer_rows},
     SIZE,
     .run = replay_top},
    {.name = "items",
     .summary = "the items of a table, sorted, filtered, page by page",
     .arguments = "TARGET TABLE",
     .details = "Exits with 3 when options choose items and none matches. SAMPLED is kept on disk "
                "where the table has max_times_sampled. Elsewhere each life of the server counts "
                "anew: of an item that is older, 3+ is 3 times in this life, and - none that is "
                "known of.",
     .options = {items_rows, filter_rows, key_rows, answer_rows},
     SIZE,
     .run = replay_items},
    {.name = "peek",
     .summary = "one item's columns, without sampling it",
     .arguments = "TARGET TABLE [KEY]",
     .details = "Without KEY: the sampler's favourite. Small columns are printed whole, of large "
                "ones the minimum, maximum, mean and first values.",
     .options = {answer_rows},
     SIZE,
     .run = replay_peek},
    {.name = "sample",
     .summary = "draw items as a client does",
     .arguments = "TARGET TABLE",
     .details = "This counts as sampling: the limiter's count, times_sampled and, in a table with "
                "max_times_sampled, the item itself go on as for any client. peek and dump do not "
                "sample. With -o json each item is one line.",
     .options = {sample_rows, output_rows},
     SIZE,
     .run = replay_sample},
    {.name = "dump",
     .summary = "write a table's items to a file, without sampling them",
     .arguments = "TARGET [TABLE] FILE",
     .details =
         "FILE.npz is for numpy.load(): one array a column (with the name that the table's "
         "signature gives it, else column_0, ...), and keys, priorities, "
         "times_sampled, inserted_at (nanoseconds since 1970), policy_versions. A column whose "
         "items differ in shape or type becomes one array an item, column_0/INDEX. With --all, "
         "names "
         "begin with TABLE/. " NPZ_TABLES " says what numpy has no words for.\n\n"
         "FILE.jsonl is text: a line a table, then a line an item, with key, "
         "priority and the exact bytes of each column in base64; squeezed: one step without a time "
         "axis.\n\n"
         "`troupe replay load` reads both. The file appears when it is whole. Items with columns "
         "of more than 8 dimensions, and in FILE.npz those with columns of strings, are left out "
         "and counted, and the exit status is 1. Items that overlap (share steps) are written one "
         "by one. Items that are inserted or removed meanwhile may be in it or not.",
     .options = {dump_rows, filter_rows, key_rows, progress_rows, answer_rows},
     SIZE,
     .run = replay_dump},
    {.name = "load",
     .summary = "insert the items of a dump",
     .arguments = "TARGET FILE",
     .details =
         "FILE.jsonl or FILE.npz, as dump writes them. Items keep their keys and priorities, "
         "so a load that was interrupted can be done again: what is there already is given "
         "its priority, and counted apart. times_sampled and the time of insertion begin "
         "anew.\n\n"
         "An .npz that numpy wrote is taken, too, with --table: it has keys (uint64), "
         "priorities (float64), perhaps policy_versions (uint64), and an array a column, each with "
         "one entry an item, whose first dimension is time. Columns are called column_0, column_1, "
         "..., or as the table's signature calls them; other arrays become columns in the order "
         "of their names. It does not describe the table, which therefore is there already: "
         "--create cannot make it.\n\n"
         "A .jsonl written by hand may leave out times_sampled, inserted_at_ns, policy_version and "
         "a table's signature, and a column of strings may have them as values, with "
         "{\"base64\": ...} for one that is no text, as sample -o json prints them.",
     .options = {load_rows, progress_rows, output_rows},
     SIZE,
     .run = replay_load},
    {.name = "verify",
     .summary = "read every item and chunk, and say what is damaged",
     .arguments = "TARGET",
     .details = "Exits with 4 when anything is damaged.",
     .options = {progress_rows, answer_rows},
     SIZE,
     .run = replay_verify},
    {.name = "checkpoint",
     .summary = "make a copy of the store while it goes on, and wait for it",
     .arguments = "TARGET",
     .details =
         "Prints the path of the checkpoint, on the server's host. A server keeps as many as "
         "its --keep-checkpoints says; one that is stopped keeps all.",
     .options = {keep_rows, progress_rows, answer_rows},
     SIZE,
     .run = replay_checkpoint},
    {.name = "checkpoints",
     .summary = "list the checkpoints that there are, or remove some",
     .arguments = "TARGET",
     .details = "With --remove or --keep: asks, removes, and prints which.",
     .options = {remove_rows, keep_rows, yes_rows, answer_rows},
     SIZE,
     .run = replay_checkpoints},
    {.name = "restore",
     .summary = "make a directory what a checkpoint was",
     .arguments = "CHECKPOINT DIR",
     .details = "CHECKPOINT is its directory, or latest: the newest whole one in DIR/checkpoints, "
                "or where --checkpoint-dir says. "
                "No server may run on DIR. Serve it afterwards as any store.",
     .options = {restore_rows, shrink_rows, progress_rows, output_rows},
     SIZE,
     .run = replay_restore},
    {.name = "create",
     .summary = "make a table",
     .arguments = "TARGET OPTIONS...",
     .details = table_words,
     .options = {answer_rows},
     SIZE,
     .run = replay_create},
    {.name = "drop",
     .summary = "remove a table with its items",
     .arguments = "TARGET TABLE",
     .details = "Asks before it drops items.",
     .options = {drop_rows, yes_rows, answer_rows},
     SIZE,
     .run = replay_drop},
    {.name = "alter",
     .summary = "change a table's limiter, sizes, times sampled; its items stay",
     .arguments = "TARGET OPTIONS...",
     .details = table_words,
     .options = {shrink_rows, alter_rows, answer_rows},
     SIZE,
     .run = replay_alter},
    {.name = "reset",
     .summary = "remove all items of a table",
     .arguments = "TARGET TABLE",
     .details = "Asks before it removes items.",
     .options = {yes_rows, answer_rows},
     SIZE,
     .run = replay_reset},
    {.name = "set-priority",
     .summary = "give items new priorities",
     .arguments = "TARGET TABLE KEY=PRIORITY...",
     .details =
         "Either all of the keys are there, or nothing is changed. Of a key that comes twice "
         "the last priority stays.",
     .options = {answer_rows},
     SIZE,
     .run = replay_set_priority},
    {.name = "delete",
     .summary = "remove items by key, or all that match options",
     .arguments = "TARGET TABLE [KEY...]",
     .details = "With keys: all of them are there, or nothing is removed. With options such as "
                "--max-priority: all items that match, after a question.",
     .options = {filter_rows, yes_rows, answer_rows},
     SIZE,
     .run = replay_delete},
    {.name = "bench",
     .summary = "measure a live server under load",
     .arguments = "TARGET",
     .details = "Inserts into and samples from a table of its own, which it makes and drops.",
     .options = {bench_rows, answer_rows},
     SIZE,
     .run = replay_bench},
    {0},
};
