/* A network as a list of operations for a machine that knows nothing of layers: each reads and
 * writes columns of buffers, row by row, and says which. Made once per plan; the same list serves
 * any device. A buffer of the arena lives from its first operation to its last, forward and
 * backward being one time line, and shares its place with others that live at other times. */
#ifndef TRP_NN_PROGRAM_H
#define TRP_NN_PROGRAM_H

#include "backend.h"
#include "graph.h"

enum { NO_BUFFER = UINT32_MAX };

/* Who owns a buffer's memory: the plan, or the caller of one pass. */
enum place { PLACE_ARENA, PLACE_INPUT, PLACE_OUTPUT, PLACE_INPUT_GRAD, PLACE_OUTPUT_GRAD, PLACES };

struct net_buffer {
    enum place place;
    uint32_t index;         /* of the caller's */
    uint32_t width;         /* columns */
    size_t stride;          /* elements from row to row */
    uint32_t element_bytes; /* of bytes and tokens; 0: the backend's */
    bool constant;          /* no gradient is wanted or possible */
    bool trained;           /* depends on parameters, so its gradient is always wanted */
    uint32_t grad;          /* the buffer of its gradient; NO_BUFFER: none so far */
    uint32_t first, last;   /* operations between which it lives */
    size_t offset;          /* arena: in elements per row of a part */
};

/* Columns of a buffer. */
struct span {
    uint32_t buffer, column, width;
};

/* What each one does with its spans; those that are not mentioned are NO_BUFFER. accesses.h has the
 * same for who schedules them. */
enum op_kind {
    OP_BYTES,       /* to = scale * a, which are bytes */
    OP_COPY,        /* to = a */
    OP_ADD,         /* to = a + b */
    OP_FILL,        /* to = 0 */
    OP_LINEAR,      /* to = activation(a * weights + bias) */
    OP_LINEAR_BACK, /* a: x, b: dy, to: dx */
    OP_NOISY,       /* as OP_LINEAR, with noise on the weights */
    OP_NOISY_BACK,
    OP_ACTIVATION,      /* to = activation(a) */
    OP_ACTIVATION_BACK, /* a: x or y, whichever gives the slope; b: dy, to: dx */
    OP_DUELING,         /* to: values of the streams a */
    OP_DUELING_BACK,    /* b: dy, to: dx */
    OP_CONV,            /* as OP_LINEAR; a may be bytes */
    OP_CONV_BACK,
    OP_POOL,      /* to: of a; kept: which one was the largest */
    OP_POOL_BACK, /* b: dy, to: dx */
    OP_NORM,      /* to: of a; kept: mean and deviation */
    OP_NORM_BACK, /* a: x, b: dy, to: dx */
    OP_EMBEDDING, /* to: of the tokens a */
    OP_EMBEDDING_BACK,
    OP_PARAMETER,      /* to: a learned row, the same in all */
    OP_PARAMETER_BACK, /* b: dy */
    OP_CELL,           /* to: of a, and of the state; kept: what backward needs */
    OP_CELL_BACK,      /* a: x, b: dy, to: dx */
};

struct op {
    enum op_kind kind;
    struct span a, b, to, kept;
    const trp_layer *layer; /* windows, cells, embeddings, atoms */
    uint32_t index;         /* of the layer */
    enum activation activation;
    enum activation gate; /* of backward: the one that made a, whose slope dx is multiplied by */
    float scale;
    bool accumulate;  /* backward: adds to `to`; all but OP_ADD, which says so by itself */
    bool inputs_only; /* `to` is only for the gradients of inputs */
    bool has_params;
    size_t params[LAYER_TENSORS_MAX]; /* offsets in the flat vector */
};

struct program {
    trp_net_spec spec;
    struct graph graph;
    struct net_buffer *buffers;
    struct op *ops; /* forward ones and then backward ones */
    uint32_t buffer_count, op_count, forward_count;
    uint32_t buffer_room, op_room, input_count;
    size_t arena_row; /* elements of all arena buffers per row */
};

/* `spec` is not borrowed. With `forward_only` there is no backward, and outputs are not kept. */
TRP_MUST_USE trp_status program_build(struct program *program, const trp_net_spec *spec,
                                      bool forward_only);
void program_cleanup(struct program *program);

#endif
