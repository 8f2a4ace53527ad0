/*
 * This header has what the files of libtconv_jax.so share: the functions that tconv/jax/_shim.py calls, and the pieces of a call.
 *
 * XLA calls a handler (jax_handler.c) with a frame of buffers and one attribute, the layer in words. The plan of those
 * words comes from a table (jax_plans.c) and runs on XLA's own threads (jax_pool.c).
 */
#ifndef TCONV_JAX_SHIM_H
#define TCONV_JAX_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tconv/tconv.h>
#include <xla/ffi/api/c_api.h>

#define TCONV_JAX_API __attribute__((visibility("default")))

/* The functions of the library that the package has loaded. The shim is linked to none, so that there is one. */
typedef struct tconv_jax_library {
    tconv_status (*desc_init_sized)(tconv_desc *, size_t);
    tconv_status (*options_init_sized)(tconv_options *, size_t);
    tconv_status (*output_shape)(const tconv_desc *, int64_t[4], tconv_issue *);
    tconv_status (*plan_create)(const tconv_desc *, const tconv_options *, tconv_plan **, tconv_issue *);
    tconv_status (*plan_workspace_size)(const tconv_plan *, size_t *);
    tconv_status (*plan_execute)(const tconv_plan *, const tconv_tensor *, const tconv_tensor *, const tconv_tensor *,
                                 const tconv_tensor *, void *, size_t, void *);
    void (*plan_destroy)(tconv_plan *);
    void (*last_issue)(tconv_issue *);
} tconv_jax_library;

/* The words of a layer, of which a call's attribute is made (tconv/jax/_layer.py). They name the fields of tconv_desc. */
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
    LAYER_WORDS
};

/* ------------------------------------------------------------------------------------------- what the package calls */

/* Says which library there is; before every other function. */
TCONV_JAX_API void tconv_jax_bind(const tconv_jax_library *functions);

/* The version of tconv that the shim was built from. */
TCONV_JAX_API const char *tconv_jax_version(void);

/* The version of XLA's interface that the shim was built with. An XLA with a lower one does not call the handler. */
TCONV_JAX_API void tconv_jax_interface(int32_t *major, int32_t *minor);

/* The bytes of workspace that a call of the layer takes on this machine. Errors as tconv_plan_create. */
TCONV_JAX_API tconv_status tconv_jax_workspace(const int64_t layer[LAYER_WORDS], size_t *size, tconv_issue *issue);

/* Forgets all plans, so that layers are planned anew. */
TCONV_JAX_API void tconv_jax_forget(void);

/* The number of calls that the handler has computed. */
TCONV_JAX_API int64_t tconv_jax_calls(void);

/* The handler of all operations. Operands and results, the workspace last, which is bytes:
 *     forward: src, weights and, where there is one, bias -> dst, workspace
 *     gradient of src: diff_dst, weights -> diff_src, workspace
 *     gradient of weights: diff_dst, src -> diff_weights, workspace */
TCONV_JAX_API XLA_FFI_Error *tconv_jax_handle(XLA_FFI_CallFrame *frame);

/* ------------------------------------------------------------------------------------------------ what the files share */

extern tconv_jax_library tconv_jax;

/* A plan of the table. */
typedef struct planned {
    struct planned *next;
    int64_t layer[LAYER_WORDS];
    tconv_plan *plan;
    size_t workspace;
    int64_t elements[3]; /* of src, weights and dst */
    int users;           /* calls that use it, and the table itself */
} planned;

/* Finds or makes the plan of a layer, for the caller to release. */
tconv_status acquire_plan(const int64_t layer[LAYER_WORDS], planned **found, tconv_issue *issue);
void release_plan(planned *found);

/* Sets whose threads the plans run on that the calling thread executes; NULL: on none but itself. */
void use_pool(const XLA_FFI_Api *api, XLA_FFI_ExecutionContext *context);

/* A tconv_parallel's parallel_for: on the threads of use_pool. */
void run_on_pool(void *context, int32_t count, void (*task)(void *argument, int32_t index), void *argument);

#endif
