/* The functions of NVIDIA's cuDNN that are used, in a libcudnn.so.9 that is opened at run time: its
 * backend API, where everything is a descriptor with attributes. What is used of its header stands
 * here, as of cuDNN 9 (a test holds it beside that header where there is one). */
#ifndef TRP_NN_CUDA_DNN_API_H
#define TRP_NN_CUDA_DNN_API_H

#include <stddef.h>
#include <stdint.h>

struct dnn_handle; /* cudnnContext */
typedef void *dnn_descriptor;

enum { DNN_SUCCESS = 0 }; /* all else is an error, with words */

enum dnn_kind {
    DNN_CONVOLUTION = 1,
    DNN_ENGINE = 2,
    DNN_CONFIG = 3,
    DNN_HEURISTIC = 4,
    DNN_PLAN = 5,
    DNN_FORWARD = 10,
    DNN_BACKWARD_FILTER = 11,
    DNN_BACKWARD_DATA = 12,
    DNN_GRAPH = 15,
    DNN_PACK = 16,
    DNN_TENSOR = 17,
};

enum dnn_type {
    DNN_HANDLE_TYPE = 0,
    DNN_DATA_TYPE = 1,
    DNN_INT64 = 3,
    DNN_FLOAT = 4,
    DNN_POINTER = 6,
    DNN_MODE_TYPE = 7,
    DNN_HEURISTIC_TYPE = 8,
    DNN_NOTE_TYPE = 11,
    DNN_DESCRIPTOR = 15,
};

enum dnn_name {
    DNN_CONVOLUTION_SUMS = 100,
    DNN_CONVOLUTION_MODE = 101,
    DNN_CONVOLUTION_DILATIONS = 102,
    DNN_CONVOLUTION_STRIDES = 103,
    DNN_CONVOLUTION_POST_PADDINGS = 104,
    DNN_CONVOLUTION_PRE_PADDINGS = 105,
    DNN_CONVOLUTION_DIMENSIONS = 106,
    DNN_HEURISTIC_MODE = 200,
    DNN_HEURISTIC_GRAPH = 201,
    DNN_HEURISTIC_RESULTS = 202,
    DNN_CONFIG_ENGINE = 300,
    DNN_PLAN_HANDLE = 400,
    DNN_PLAN_CONFIG = 401,
    DNN_PLAN_WORKSPACE = 402,
    DNN_FORWARD_ALPHA = 700, /* then beta, the convolution, w, x and y */
    DNN_DATA_ALPHA = 706,    /* then beta, the convolution, w, dx and dy */
    DNN_FILTER_ALPHA = 712,  /* then beta, the convolution, dw, x and dy */
    DNN_GRAPH_HANDLE = 800,
    DNN_GRAPH_OPERATIONS = 801,
    DNN_TENSOR_ALIGNMENT = 900,
    DNN_TENSOR_TYPE = 901,
    DNN_TENSOR_DIMENSIONS = 902,
    DNN_TENSOR_STRIDES = 903,
    DNN_TENSOR_ID = 906,
    DNN_PACK_IDS = 1000,
    DNN_PACK_POINTERS = 1001,
    DNN_PACK_WORKSPACE = 1003,
    DNN_ENGINE_NOTES = 1303,
};

enum { DNN_FLOATS = 0 };            /* of a tensor, and of sums */
enum { DNN_CROSS_CORRELATION = 1 }; /* of a convolution */
enum { DNN_HEURISTIC_FALLBACK = 2, DNN_HEURISTIC_A = 3 };

enum dnn_note {
    DNN_NOTE_TENSOR_CORE = 0, /* with floats: TF32 */
    DNN_NOTE_DOWN_CONVERT = 1,
    DNN_NOTE_REDUCED_SUMS = 2,
    DNN_NOTE_FFT = 3,
    DNN_NOTE_NONDETERMINISTIC = 4,
    DNN_NOTE_WINOGRAD = 5, /* the least of four */
    DNN_NOTE_WINOGRAD_LAST = 8,
};

/* X(name without "cudnn", what it takes) of all that return a status. */
#define DNN_FUNCTIONS(X)                                                                           \
    X(Create, (struct dnn_handle * *handle))                                                       \
    X(SetStream, (struct dnn_handle * handle, void *stream))                                       \
    X(BackendCreateDescriptor, (int kind, dnn_descriptor *descriptor))                             \
    X(BackendDestroyDescriptor, (dnn_descriptor descriptor))                                       \
    X(BackendSetAttribute,                                                                         \
      (dnn_descriptor descriptor, int name, int type, int64_t count, const void *values))          \
    X(BackendGetAttribute,                                                                         \
      (dnn_descriptor descriptor, int name, int type, int64_t most, int64_t *count, void *values)) \
    X(BackendFinalize, (dnn_descriptor descriptor))                                                \
    X(BackendExecute, (struct dnn_handle * handle, dnn_descriptor plan, dnn_descriptor pack))

struct dnn_api {
#define DNN_FIELD(NAME, TAKES) int(*NAME) TAKES;
    DNN_FUNCTIONS(DNN_FIELD)
#undef DNN_FIELD
    size_t (*GetVersion)(void); /* 91900: 9.19.0 */
    const char *(*GetErrorString)(int status);
    void (*GetLastErrorString)(char *words,
                               size_t bytes); /* what it was of the thread's last one */
};

#endif
