/* Networks, which are graphs of layers over one flat parameter vector. What their outputs say of
 * actions is in distributions.h, what they learn from in losses.h, policy_losses.h and returns.h,
 * what steps they take in optimizer.h.
 *
 * Parameters, gradients and optimizer state are flat float vectors of trp_net_param_count()
 * elements that the caller owns; every tensor in them starts at a multiple of 64 bytes and what
 * lies between tensors is zero. So publishing, reducing, clipping, stepping and saving are loops
 * over one vector or a range of it. A plan (trp_net) knows the sizes and owns the workspace; after
 * its creation nothing is allocated. The same plan on the same machine gives the same bits.
 *
 *     // The gradient of half the square of what a fresh network says of two rows.
 *     static trp_status differentiate(const float rows[2][4])
 *     {
 *         trp_net_spec spec =
 *             trp_mlp(&(trp_mlp_options){.inputs = 4, .hidden = {64, 64}, .outputs = 1});
 *         trp_net *net;
 *         TRP_TRY(trp_net_create(&net, &(trp_net_options){.spec = &spec, .batch = 2}));
 *         size_t count = trp_net_param_count(&spec);
 *         float *params = trp_floats_create(count), *grads = trp_floats_create(count), out[2];
 *         trp_rng rng;
 *         trp_rng_init(&rng, 1, 0);
 *         trp_net_init(&spec, &rng, params);
 *         trp_net_rows pass = {.rows = 2, .inputs = {rows}, .outputs = {out}};
 *         trp_net_forward(net, params, &pass);
 *         trp_net_backward(net, params, &pass,
 *                          &(trp_net_grads){.outputs = {out}, .params = grads});
 *         trp_floats_destroy(params);
 *         trp_floats_destroy(grads);
 *         trp_net_destroy(net);
 *         return TRP_OK;
 *     }
 */
#ifndef TRP_NN_H
#define TRP_NN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <troupe/device.h>
#include <troupe/rng.h>
#include <troupe/status.h>
#include <troupe/tensor.h>

TRP_BEGIN_DECLS

/* ---- vectors ----------------------------------------------------------------------------- */

/* `count` zeroed floats at a multiple of 64 bytes; aborts when there is no memory. NULL is a fine
 * argument to destroy. */
TRP_API float *trp_floats_create(size_t count);
TRP_API void trp_floats_destroy(float *floats);

/* ---- networks ---------------------------------------------------------------------------- */

/* As PyTorch defines them with its defaults: ELU with alpha 1, softplus with beta 1, GELU by erf,
 * TRP_GELU_TANH by its approximation. */
typedef enum {
    TRP_NO_ACTIVATION,
    TRP_RELU,
    TRP_TANH,
    TRP_SIGMOID,
    TRP_ELU,
    TRP_SOFTPLUS,
    TRP_SILU,
    TRP_GELU,
    TRP_GELU_TANH,
} trp_activation;

typedef enum {
    TRP_INPUT,      /* `dtype` and `shape`; the n-th one in the list is input n of a batch */
    TRP_LINEAR,     /* size outputs; reads everything of a row, whatever its shape */
    TRP_ACTIVATION, /* elementwise; most are better declared in the layer before, which is faster */
    TRP_CONCAT,     /* the columns of all of `from`, one behind the other */
    TRP_SLICE,      /* `size` columns from column `first` on */
    TRP_ADD,        /* the sum of two of the same shape: a residual */
    TRP_DUELING,    /* from a value V and then advantages A, each of `size` columns (0: 1): V + A -
                       mean A (Wang et al. 2016); of more than one, column by column, as for atoms
                       (Hessel et al. 2018, "The Integrated Agent") */
    TRP_CONV2D,     /* `size` filters of kernel x kernel over an image; rows of bytes are read as
                       bytes / 255 */
    TRP_MAX_POOL,   /* of kernel x kernel; padding never wins */
    TRP_MEAN_POOL,  /* the same; padding counts as zeros */
    TRP_LAYER_NORM, /* over all columns of a row, epsilon 1e-5 (Ba et al. 2016) */
    TRP_EMBEDDING,  /* each token of a TRP_INT32 input becomes `size` columns of a table of
                       `vocabulary` rows; one outside of it zeros */
    TRP_LSTM,       /* `size` hidden units, PyTorch's gates; rows are [steps][sequences] */
    TRP_GRU,
    TRP_NOISY_LINEAR, /* TRP_LINEAR with factorised noise on its weights and biases (Fortunato et
                         al. 2018), see trp_net_resample() */
    TRP_PARAMETER,    /* reads nothing: `size` columns that are learned, the same in every row, as a
                         deviation that does not depend on the state. Its tensor is NAME, as that
                         of an nn.Parameter */
} trp_layer_kind;

/* Where the numbers of a layer begin. Every one of them fills the weights in the order in which
 * they lie in memory, and then the biases. */
typedef enum {
    TRP_INIT_DEFAULT,    /* PyTorch's: weights and biases uniform in +-1/sqrt(inputs), of a cell
                            +-1/sqrt(hidden); an embedding's normal; a norm's 1 and 0 */
    TRP_INIT_ORTHOGONAL, /* rows or columns orthonormal, times gain (0: 1); biases 0 (Saxe et al.
                            2014) */
    TRP_INIT_UNIFORM,    /* weights and biases uniform in +-gain (0: 0.003, as DDPG's last layer) */
    TRP_INIT_VARIANCE,   /* normal, cut off at two deviations, with a variance of gain (0: 1) /
                            inputs; biases 0 (TensorFlow's variance scaling by fan in) */
} trp_initializer;

enum {
    TRP_NET_LAYERS_MAX = 64,
    TRP_NET_INPUTS_MAX = 4,
    TRP_NET_OUTPUTS_MAX = 4,
    TRP_LAYER_FROM_MAX = 4,
    TRP_LAYER_NAME_BYTES = 32,
    TRP_LAYER_RANK_MAX = 3,
};

/* One layer: what it reads are layers that come before it in the list, by their index. What its
 * kind does not mention is zero. */
typedef struct {
    trp_layer_kind kind;
    char name[TRP_LAYER_NAME_BYTES]; /* of its tensors: NAME.weight, NAME.bias. May be empty where
                                        there are none */
    uint32_t from[TRP_LAYER_FROM_MAX];
    uint32_t from_count; /* 0: 1 */
    uint32_t size;
    uint32_t first;
    uint32_t kernel, stride, padding; /* of windows; stride 0: 1; padding is less than the kernel */
    uint32_t vocabulary;
    trp_dtype dtype; /* of an input: TRP_FLOAT32, which is what 0 means, TRP_UINT8 or TRP_INT32 */
    uint32_t shape[TRP_LAYER_RANK_MAX]; /* of an input's row: columns, or height, width and
                                           channels; ends at the first 0 */
    float scale;               /* of a TRP_UINT8 input: what bytes are multiplied by; 0: 1/255 */
    float sigma;               /* TRP_NOISY_LINEAR: its deviations begin at this / sqrt(inputs); 0:
                                  0.5, as in the paper. Its means begin as `init` says */
    float value;               /* TRP_PARAMETER: what all of it begins at, whatever `init` is.
                                  TRP_LSTM: added to the forget gate's bias at the beginning; with 1
                                  it remembers for longer (Jozefowicz et al. 2015) */
    trp_activation activation; /* linear layers, TRP_CONV2D: of the result; TRP_ACTIVATION */
    trp_initializer init;
    float gain;
} trp_layer;

/* A network: a list of layers, some of which are its outputs. Plain data: zero it first, and
 * compare and hash it as such. What is wrong with it is said by trp_net_spec_check().
 *
 *     trp_net_spec spec = {0};
 *     uint32_t x = trp_net_add(&spec, (trp_layer){.kind = TRP_INPUT, .shape = {8}});
 *     uint32_t h = trp_net_add(&spec, (trp_layer){.kind = TRP_LINEAR, .name = "body", .from = {x},
 *                                                 .size = 64, .activation = TRP_TANH});
 *     uint32_t y = trp_net_add(&spec, (trp_layer){.kind = TRP_ADD, .from_count = 2,
 *                                                 .from = {h, z}});
 *     trp_net_output(&spec, y);
 *
 * Several networks share one flat vector by lying one behind the other: the second one's parameters
 * begin at params + trp_net_param_count(&first), and a plan is given that pointer. Which of them
 * actors pull is said in a trp_vector_spec (updater.h). */
typedef struct {
    trp_layer layers[TRP_NET_LAYERS_MAX];
    uint32_t layer_count;
    uint32_t outputs[TRP_NET_OUTPUTS_MAX]; /* layers */
    uint32_t output_count;
} trp_net_spec;

/* Appends a layer and returns its index. Beyond TRP_NET_LAYERS_MAX it only counts: the check will
 * say so. The same for outputs. */
TRP_API uint32_t trp_net_add(trp_net_spec *spec, trp_layer layer);
TRP_API void trp_net_output(trp_net_spec *spec, uint32_t layer);

/* OK, or INVALID_ARGUMENT with the layer and what is wrong with it. */
TRP_API TRP_MUST_USE trp_status trp_net_spec_check(const trp_net_spec *spec);

/* Floats in the flat vector, padding included; a multiple of 16. `spec` is valid. */
TRP_API size_t trp_net_param_count(const trp_net_spec *spec);

/* Columns of a row of input or output `index`. `spec` is valid and has it. */
TRP_API uint32_t trp_net_input_width(const trp_net_spec *spec, uint32_t index);
TRP_API uint32_t trp_net_output_width(const trp_net_spec *spec, uint32_t index);

/* Columns of the state that recurrent layers carry from step to step: h, and for an LSTM c behind
 * it, layer by layer. 0: there are none. `spec` is valid. */
TRP_API uint32_t trp_net_state_width(const trp_net_spec *spec);

/* Floating point operations of one forward and backward over `rows`. `spec` is valid. */
TRP_API double trp_net_step_flops(const trp_net_spec *spec, uint32_t rows);

/* Draws all parameters, each layer's as its `init` says. `spec` is valid. */
TRP_API void trp_net_init(const trp_net_spec *spec, trp_rng *rng, float *params);

/* ---- tensors ------------------------------------------------------------------------------- */

enum { TRP_NET_TENSORS_MAX = 4 * TRP_NET_LAYERS_MAX, TRP_NET_AXES_MAX = 4 };

/* One tensor of the flat vector under the name and in the shape that the same layer has in PyTorch
 * ("body.0.weight", [outputs][inputs]). In memory it lies in another order: its elements in
 * PyTorch's order are those that loops over `axes`, the first one outermost, meet at `offset` plus
 * index times stride of each. */
typedef struct {
    char name[TRP_LAYER_NAME_BYTES + 24];
    uint32_t rank;
    uint64_t shape[TRP_NET_AXES_MAX];
    size_t offset, count;
    uint32_t axis_count;
    struct {
        size_t count, stride;
    } axes[TRP_NET_AXES_MAX];
} trp_net_tensor;

/* The tensors of a network in the order of the flat vector; returns how many. `spec` is valid. */
TRP_API size_t trp_net_tensors(const trp_net_spec *spec,
                               trp_net_tensor tensors[TRP_NET_TENSORS_MAX]);

/* The same of a network whose parameters begin at `first` of a vector of several networks. */
TRP_API size_t trp_net_tensors_at(const trp_net_spec *spec, size_t first,
                                  trp_net_tensor tensors[TRP_NET_TENSORS_MAX]);

/* What lies where, a line for each tensor, "body.0.weight [64][4] at 0 (64 by 1, 4 by 64)": name,
 * shape, place counted from `first`, and how it lies there. Vectors with the same text are of the
 * same network. For free(). */
TRP_API char *trp_net_layout(const trp_net_tensor *tensors, size_t count, size_t first);

/* OK where two layouts are the same or one is "", which says nothing. FAILED_PRECONDITION names the
 * first tensor that differs, and whose they are ("the file"). */
TRP_API TRP_MUST_USE trp_status trp_net_layout_compare(const char *layout, const char *whose,
                                                       const char *other, const char *whose_other);

/* One tensor in PyTorch's order, out of the flat vector and into it. */
TRP_API void trp_net_tensor_get(const trp_net_tensor *tensor, const float *params, float *values);
TRP_API void trp_net_tensor_set(const trp_net_tensor *tensor, const float *values, float *params);

/* ---- usual networks ------------------------------------------------------------------------ */

enum { TRP_NET_HIDDEN_MAX = 8 };

/* A recurrent layer, "core", between body and heads. */
typedef enum { TRP_NO_CORE, TRP_CORE_LSTM, TRP_CORE_GRU } trp_core;

/* Linear layers "body.0", "body.1" ... with `activation` after each, and a last one "head" without.
 * `noisy`: all of them are TRP_NOISY_LINEAR.
 * `dueling`: the last hidden layer exists twice, for a value ("value") and an advantage stream
 * ("advantage"); with a core, both read it. Outputs are [outputs / atoms][atoms] then. */
typedef struct {
    uint32_t inputs, outputs;
    uint32_t hidden[TRP_NET_HIDDEN_MAX]; /* ends at the first zero */
    trp_activation activation;           /* 0: ReLU */
    trp_dtype dtype;                     /* of the input; 0: TRP_FLOAT32 */
    bool dueling, noisy;
    uint32_t atoms; /* of each value of a dueling network; divides outputs; 0: 1 */
    trp_core core;
    uint32_t core_size; /* hidden units; 0: 256 */
    float core_value;   /* of an LSTM, see trp_layer.value */
} trp_mlp_options;

TRP_API trp_net_spec trp_mlp(const trp_mlp_options *options);

/* Networks on images of bytes, [height][width][channels]. Output 0 is "head"; `value`: output 1 is
 * a "value" of one column. `dueling` and `noisy` as in trp_mlp(), of the linear layers; a dueling
 * network has no `value`. */
typedef struct {
    uint32_t height, width, channels, outputs;
    bool value, dueling, noisy;
    uint32_t atoms; /* as in trp_mlp_options */
    trp_core core;
    uint32_t core_size; /* 0: 256 */
    float core_value;   /* of an LSTM, see trp_layer.value */
} trp_cnn_options;

/* Three convolutions "body.0" to "body.2" and a linear layer "body.3" of 512 (Mnih et al. 2015). */
TRP_API trp_net_spec trp_nature_cnn(const trp_cnn_options *options);

/* Three sections of a convolution "section.I", a max pool and two residual blocks "section.I.J.K"
 * of two convolutions each, 16, 32 and 32 filters, and a linear layer "body" of 256 (Espeholt et
 * al. 2018, figure 3, the large one). */
TRP_API trp_net_spec trp_impala_resnet(const trp_cnn_options *options);

/* Two more outputs upon layer `from`, which a trp_gaussian (distributions.h) is made of: a linear
 * layer "mean" of `size`, and "log_std", another one, or where it is `shared` by all states
 * a TRP_PARAMETER, which begins at 0. */
TRP_API void trp_net_add_gaussian(trp_net_spec *spec, uint32_t from, uint32_t size, bool shared);

/* ---- plans --------------------------------------------------------------------------------- */

/* What products of linear layers (noisy ones, too) and convolutions are made of. TRP_BF16: both
 * factors of each, in forward and in the gradients of weights and inputs, are rounded to bfloat16
 * (to the nearest, of two the even one; a NaN stays one) and summed up in float32. All else is
 * float32 as ever: parameters, gradients, inputs, outputs, biases and their gradients, activations,
 * recurrent cells, norms, embeddings, losses and optimizers. So a checkpoint does not know of it.
 * Faster where the processor multiplies bfloat16 (AVX512_BF16) and a call has several rows; slower
 * than TRP_F32 elsewhere, where factors are rounded first. Factors, products and sums below 2^-126
 * may count as zeros. TRP_TF32: on a GPU whose products are cuBLASLt's, factors have 10 bits behind
 * the point, and the rest is as with TRP_BF16; everywhere else it is TRP_F32. Such a GPU need not
 * round all: with TRP_BF16 cuBLASLt may keep TF32's bits or all of them, with TRP_TF32 all. */
typedef enum { TRP_F32, TRP_BF16, TRP_TF32 } trp_precision;

typedef struct {
    const trp_net_spec *spec; /* copied */
    uint32_t batch;           /* most rows of one call; 0: 1 */
    trp_device *device;       /* that computes (device.h); NULL: "cpu" */
    uint32_t threads;         /* threads of one call, the calling one included; 0: 1. More than one
                                 pays when trp_net_step_flops() is above about 100 million. They
                                 take shares of the rows, with recurrent layers of the sequences;
                                 of less than two for each the calling one takes all */
    bool forward_only;        /* never a backward: less memory */
    trp_precision precision;
} trp_net_options;

typedef struct trp_net trp_net;

/* A plan: operations, workspace and, with more than one thread, the threads. It belongs to one
 * thread at a time. INVALID_ARGUMENT names what is wrong with `options`; RESOURCE_EXHAUSTED: no
 * memory. */
TRP_API TRP_MUST_USE trp_status trp_net_create(trp_net **out, const trp_net_options *options);
TRP_API void trp_net_destroy(trp_net *net); /* NULL is fine */

/* trp_net_param_count() of its spec. */
TRP_API size_t trp_net_plan_param_count(const trp_net *net);

/* What goes through a network in one call: 1 <= rows <= the plan's batch. All pointers are to
 * memory of the plan's device, and borrowed until the queue has come so far; the struct itself is
 * not. */
typedef struct {
    uint32_t rows;
    trp_queue *queue; /* of the device, where the pass is put; NULL, on a host: it is done when
                         the call returns */
    const void *inputs[TRP_NET_INPUTS_MAX]; /* [rows][width], in the input's element type */
    float *outputs[TRP_NET_OUTPUTS_MAX];    /* [rows][width] */
    /* With recurrent layers, rows are [steps][sequences], rows being steps * sequences. A sequence
     * that is cut anywhere, with its state carried over, gives the same bits. */
    uint32_t steps;        /* 0: 1 */
    const uint8_t *resets; /* [rows]: not 0 where the state is zeroed before the step; NULL: none */
    const float *state;    /* [sequences][trp_net_state_width()]; NULL: zeros */
    float *end_state;      /* the same; may be `state`; NULL: not wanted */
} trp_net_rows;

/* Writes rows->outputs. The plan keeps what trp_net_backward() needs, until the next forward. */
TRP_API void trp_net_forward(trp_net *net, const float *params, const trp_net_rows *rows);

/* Called while gradients become final, `lo` falling to 0: to what is put on the queue from here on
 * [lo, count) of the flat vector is. */
typedef void (*trp_grads_ready)(void *context, size_t lo);

/* The gradients of the sum over all outputs of outputs * their gradient. */
typedef struct {
    const float *outputs[TRP_NET_OUTPUTS_MAX]; /* NULL: zeros */
    float *params;                             /* added to; NULL: not wanted */
    float *inputs[TRP_NET_INPUTS_MAX];         /* written; NULL: not wanted. Of floats only */
    const float *end_state;                    /* of rows->end_state; NULL: zeros */
    float *state;                              /* written; of rows->state; NULL: not wanted */
    trp_grads_ready ready;                     /* may be NULL; needs `params` */
    void *context;
} trp_net_grads;

/* Draws new noise for every TRP_NOISY_LINEAR from `rng`, in their order; the passes from here on
 * have it, all rows of them the same. NULL: no noise, as in a new plan: such a layer is a linear
 * one with its means, for evaluation, and its deviations learn nothing. Not between a forward and
 * its backward. The same random stream gives the same noise; without such layers nothing is drawn.
 * `queue` as in trp_net_rows. */
TRP_API void trp_net_resample(trp_net *net, trp_queue *queue, trp_rng *rng);

/* The gradients of the last forward, whose `params` and rows->inputs are given again; its outputs
 * are not read. Once after each forward. */
TRP_API void trp_net_backward(trp_net *net, const float *params, const trp_net_rows *rows,
                              const trp_net_grads *grads);

TRP_END_DECLS
#endif
