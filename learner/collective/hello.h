/* What ranks say when they connect: first who they are, to whoever listens; then, when all are
 * connected, what has to be the same on all. */
#ifndef TRP_LEARNER_HELLO_H
#define TRP_LEARNER_HELLO_H

#include <troupe/collective.h>

#include "core/boot.h"
#include "core/sealed.h"
#include "limits.h"
#include "nccl_api.h"
#include "notice.h"
#include "schedule.h"

enum hello_purpose { HELLO_LINE, HELLO_LANE, HELLO_PURPOSES };

/* On the wire; nothing else is read of who says something different. It is as long, and has its
 * numbers where they are here, on each wire: so a rank is known that speaks another one. */
struct hello {
    char magic[8];
    uint32_t wire; /* also tells byte orders apart */
    uint32_t purpose;
    uint32_t rank, size;
    uint64_t generation, nonce;
    char group[COLLECTIVE_GROUP_BYTES_MAX + 1];
};
_Static_assert(sizeof(struct hello) == 104, "on the wire: change COLLECTIVE_WIRE with it");

enum hello_verdict { HELLO_WELCOME = 1, HELLO_OTHER_GENERATION, HELLO_OTHER_WIRE };

struct hello_answer {
    char magic[8];
    uint32_t verdict, wire;
    uint64_t generation; /* of who answers */
};
_Static_assert(sizeof(struct hello_answer) == 24, "on the wire: change COLLECTIVE_WIRE with it");

void hello_init(struct hello *hello, const trp_collective_options *options,
                enum hello_purpose purpose);

/* A rank of this generation that has to connect to this one, whichever wire it speaks. */
bool hello_is_ours(const struct hello *hello, const trp_collective_options *options);

/* True: an answer is due; false: a stranger, whom nobody answers. */
bool hello_judge(const struct hello *hello, const trp_collective_options *options,
                 struct hello_answer *answer);

/* The wire of rank 0, and that of another rank. */
struct hello_wires {
    uint32_t of_first;
    uint32_t rank, of_rank;
};

/* FAILED_PRECONDITION names both: they differ. */
TRP_MUST_USE trp_status hello_other_wire(const struct hello_wires *wires);

bool hello_is_answer(const struct hello_answer *answer);

/* What has to be the same on all ranks. */
struct hello_profile {
    char version[32]; /* of the library */
    uint32_t float_bytes, size_bytes, call_bytes, notice_bytes;
    uint64_t fingerprint;
    uint32_t timeout_ms, deterministic;
    uint32_t nccl;  /* its version, where vectors are a device's; 0: there is none. Ranks may differ
                       in it */
    uint32_t sites; /* how they are divided, as sites_hash() says */
    uint64_t home;  /* as virtual_home(). Ranks may differ in it */
};
_Static_assert(sizeof(struct hello_profile) == 80, "on the wire: change COLLECTIVE_WIRE with it");

void hello_profile_init(struct hello_profile *profile, const trp_collective_options *options);

/* FAILED_PRECONDITION names the first thing in which two ranks differ. */
TRP_MUST_USE trp_status hello_compare(uint32_t rank_a, const struct hello_profile *a,
                                      uint32_t rank_b, const struct hello_profile *b);

/* Rank 0's word, to all. */
struct hello_agreement {
    uint32_t status, nccl; /* 0: it is not used; else all have this one */
    uint64_t meeting;      /* of ranks with one home, which go before NCCL; 0: they have not */
    struct schedule_table table;
    struct nccl_id id;
    char words[NOTICE_TEXT_BYTES_MAX + 1];
};
_Static_assert(sizeof(struct hello_agreement) == 1192, "on the wire: change COLLECTIVE_WIRE");

/* Where a rank lets others read what it sends them: to each, who answers in a word. */
struct hello_place {
    char boot[BOOT_ID_BYTES];   /* which host it is; zeros: nobody can tell */
    struct sealed_place memory; /* of no bytes: there is none */
    uint64_t address;           /* of that in its own process */
};
_Static_assert(sizeof(struct hello_place) == 96, "on the wire: change COLLECTIVE_WIRE with it");

enum hello_found {
    HELLO_FOUND_NOTHING,
    HELLO_FOUND_MEMORY,
    HELLO_FOUND_PROCESS, /* and what else it has can be copied, too */
};

/* How a rank fared with NCCL, to rank 0; then what holds for all, to all. UNAVAILABLE: they do
 * without. */
struct hello_report {
    uint32_t status;
    char words[508];
};
_Static_assert(sizeof(struct hello_report) == 512, "on the wire: change COLLECTIVE_WIRE with it");

#endif
