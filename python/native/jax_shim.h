/*
 * This header has what the files of libtconv_jax.so share: the functions that tconv/jax/_shim.py calls, and the pieces of a call.
 *
 * XLA calls a handler (jax_handler.c) with a frame of buffers and one attribute, the layer in words. The plan of those
 * words and of the call's place comes from a table (jax_plans.c). On the CPU the plan runs on XLA's own threads
 * (jax_pool.c), on CUDA on XLA's stream. The shim is linked to no CUDA: the library that the package has loaded finds it.
 */
#ifndef TCONV_JAX_SHIM_H
#define TCONV_JAX_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tconv/tconv.h>
#include <xla/ffi/api/c_api.h>

#define TCONV_JAX_API __attribute__((visibility("default")))

#if XLA_FFI_API_MAJOR == 0 && XLA_FFI_API_MINOR >= 4
typedef XLA_FFI_InternalExtension XLA_FFI_Extension_Base; /* its name before */
#endif

/* The functions of the library that the package has loaded. The shim is linked to none, so that there is one. */
typedef struct tconv_jax_library {
    tconv_status (*desc_init_sized)(tconv_desc *, size_t);
    tconv_status (*options_init_sized)(tconv_options *, size_t);
    tconv_status (*output_shape3d)(const tconv_desc *, int64_t[5], tconv_issue *);
    tconv_status (*plan_create)(const tconv_desc *, const tconv_options *, tconv_plan **, tconv_issue *);
    tconv_status (*plan_workspace_size)(const tconv_plan *, size_t *);
    tconv_status (*plan_execute)(const tconv_plan *, const tconv_tensor *, const tconv_tensor *, const tconv_tensor *,
                                 const tconv_tensor *, void *, size_t, void *);
    void (*plan_destroy)(tconv_plan *);
    void (*last_issue)(tconv_issue *);
} tconv_jax_library;

/* The words of a layer, of which a call's attribute is made (tconv/jax/_layer.py). They name the fields of tconv_desc. Programs
 * that were compiled before there was depth have the words of two axes alone. */
enum {
    WORD_OP,
    WORD_DTYPE,
    WORD_LAYOUT,
    WORD_WEIGHT_LAYOUT,
    WORD_BATCH,
    WORD_IN_CHANNELS,
    WORD_IN_H,
    WORD_IN_W,
    WORD_OUT_CHANNELS,
    WORD_KERNEL_H,
    WORD_KERNEL_W,
    WORD_STRIDE_H,
    WORD_STRIDE_W,
    WORD_PAD_TOP,
    WORD_PAD_LEFT,
    WORD_PAD_BOTTOM,
    WORD_PAD_RIGHT,
    WORD_OUTPUT_PADDING_H,
    WORD_OUTPUT_PADDING_W,
    WORD_DILATION_H,
    WORD_DILATION_W,
    WORD_GROUPS,
    WORD_MATH,
    WORDS_OF_TWO_AXES,
    WORD_IN_D = WORDS_OF_TWO_AXES,
    WORD_KERNEL_D,
    WORD_STRIDE_D,
    WORD_DILATION_D,
    WORD_PAD_FRONT,
    WORD_PAD_BACK,
    WORD_OUTPUT_PADDING_D,
    LAYER_WORDS
};

/* This is where a plan runs. XLA numbers its devices itself: where a process does not show XLA all GPUs, or one GPU is several of
 * XLA's devices, its numbers are not CUDA's. But XLA calls a handler with the context of the call's device current, as
 * its own kernels need it. So a call's plan is that of the current device, and is found by XLA's number. */
typedef struct place {
    tconv_backend backend;
    int32_t device;  /* CUDA's number, or -1: the current device; 0 on the CPU */
    int32_t ordinal; /* XLA's number of the current device; 0 where CUDA's number is given, and on the CPU */
} place;

/* ------------------------------------------------------------------------------------------- what the package calls */

/* Says which library there is; before every other function. */
TCONV_JAX_API void tconv_jax_bind(const tconv_jax_library *functions);

/* The version of tconv that the shim was built from. */
TCONV_JAX_API const char *tconv_jax_version(void);

/* The version of XLA's interface that the shim was built with. An XLA with a lower one does not call the handler. */
TCONV_JAX_API void tconv_jax_interface(int32_t *major, int32_t *minor);

/* The bytes of workspace that a call of the layer of so many words takes on this machine: on the CPU, or on a device by
 * CUDA's number. Errors as tconv_plan_create. */
TCONV_JAX_API tconv_status tconv_jax_workspace(const int64_t *words, int64_t count, int32_t backend, int32_t device,
                                               size_t *size, tconv_issue *issue);

/* Forgets all plans, so that layers are planned anew. */
TCONV_JAX_API void tconv_jax_forget(void);

/* The number of calls that the handlers have computed. A call that XLA has recorded in a command buffer counts once,
 * however often the buffer is launched. */
TCONV_JAX_API int64_t tconv_jax_calls(void);

/* The handlers of all operations, on the CPU and on CUDA. Operands and results, the workspace last, which is bytes:
 *     forward: src, weights and, where there is one, bias -> dst, workspace
 *     gradient of src: diff_dst, weights -> diff_src, workspace
 *     gradient of weights: diff_dst, src -> diff_weights, workspace */
TCONV_JAX_API XLA_FFI_Error *tconv_jax_handle(XLA_FFI_CallFrame *frame);
TCONV_JAX_API XLA_FFI_Error *tconv_jax_handle_cuda(XLA_FFI_CallFrame *frame);

/* ------------------------------------------------------------------------------------------------ what the files share */

extern tconv_jax_library tconv_jax;

/* A plan of the table. */
typedef struct planned {
    struct planned *next;
    int64_t layer[LAYER_WORDS];
    place where;
    tconv_plan *plan;
    size_t workspace;
    int64_t elements[3]; /* of src, weights and dst */
    int users;           /* calls that use it, and the table itself */
} planned;

/* Copies the words of a layer, with those of one plane where there are none of depth. Returns false where so many are of no
 * layer. */
bool read_words(const int64_t *words, int64_t count, int64_t layer[LAYER_WORDS]);

/* Finds or makes the plan of a layer, for the caller to release. */
tconv_status acquire_plan(const int64_t layer[LAYER_WORDS], place where, planned **found, tconv_issue *issue);
void release_plan(planned *found);

/* Sets whose threads the plans run on that the calling thread executes; NULL: on none but itself. */
void use_pool(const XLA_FFI_Api *api, XLA_FFI_ExecutionContext *context);

/* A tconv_parallel's parallel_for: on the threads of use_pool. */
void run_on_pool(void *context, int32_t count, void (*task)(void *argument, int32_t index), void *argument);

#endif
