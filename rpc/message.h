/* Messages between byte buffers of gRPC and owners of bytes. */
#ifndef TRP_RPC_MESSAGE_H
#define TRP_RPC_MESSAGE_H

#include <stdatomic.h>

#include <grpc/grpc.h>
#include <troupe/rpc.h>

/* The bytes of a server's received messages together, or of its replies. The messages go before it.
 */
struct rpc_budget {
    _Atomic uint64_t used;
    uint64_t limit;
};

struct trp_message {
    struct trp_message *next; /* in the one list that holds it */
    uint8_t *data;
    size_t size;
    struct rpc_budget *budget; /* charged with `charged`; NULL: none */
    size_t charged;
    bool sliced; /* data is the slice's; otherwise it follows this struct */
    grpc_slice slice;
    grpc_byte_buffer *buffer; /* that the parts lie in; NULL: none */
    const trp_bytes *parts;   /* NULL: it is in one, `whole` */
    size_t part_count;
    trp_bytes whole;
    void (*done)(void *arg); /* nobody needs the parts any more; NULL: they are nobody's */
    void *done_arg;
};

/* First in, first out. A zeroed struct is empty. */
struct rpc_messages {
    trp_message *first, *last;
    size_t count;
    size_t bytes;
};
void rpc_messages_push(struct rpc_messages *list, trp_message *message);
trp_message *rpc_messages_pop(struct rpc_messages *list); /* NULL when empty */
void rpc_messages_clear(struct rpc_messages *list);

/* The memory that they take, empty ones, too. */
static inline uint64_t rpc_messages_memory(const struct rpc_messages *list)
{
    return list->bytes + list->count * sizeof(struct trp_message);
}

/* Takes `buffer`. One slice is referred to, several are joined in one copy or, `in_parts`, referred
 * to as well. NULL: no memory. */
trp_message *rpc_message_from_buffer(grpc_byte_buffer *buffer, bool in_parts);

/* The same bytes in one part; takes `message`. NULL: no memory. */
trp_message *rpc_message_join(trp_message *message);

/* Takes `message`; its memory goes along without a copy. The caller destroys the buffer. */
grpc_byte_buffer *rpc_message_to_buffer(trp_message *message);

/* Charges `budget`. False: it would be over `limit`, and nothing is charged. */
bool rpc_budget_take(struct rpc_budget *budget, uint64_t bytes, uint64_t limit);
void rpc_budget_give(struct rpc_budget *budget, uint64_t bytes);

/* Charges `budget` with the message until it is destroyed or sent. False: it would be over; nothing
 * is charged. */
bool rpc_message_charge(trp_message *message, struct rpc_budget *budget);
void rpc_message_uncharge(trp_message *message);

#endif
