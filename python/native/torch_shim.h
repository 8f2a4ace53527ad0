/*
 * The functions of libtconv_torch.so that tconv/torch/_native.py calls. They may be called from any thread.
 */
#ifndef TCONV_TORCH_SHIM_H
#define TCONV_TORCH_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tconv/tconv.h>

#ifndef TCONV_TORCH_API
#define TCONV_TORCH_API __attribute__((visibility("default")))
#endif

/* Axes of the tensors of a 3-D layer, and the spatial ones of these. */
#define TCONV_TORCH_AXES    5
#define TCONV_TORCH_SPATIAL 3

typedef tconv_status tconv_torch_execute(const tconv_plan *, const tconv_tensor *, const tconv_tensor *,
                                         const tconv_tensor *, const tconv_tensor *, void *, size_t, void *);
typedef tconv_status tconv_torch_execute_with(const tconv_plan *, const tconv_operands *, void *, size_t, void *);
typedef tconv_status tconv_torch_step(const tconv_plan *, const tconv_step *);
typedef void tconv_torch_destroy(tconv_plan *);

/* A plan whose tensors are computed in place. */
typedef struct tconv_torch_layer {
    tconv_plan *plan;
    /* tconv_plan_execute, tconv_plan_execute_with and tconv_plan_destroy of the library that made the plan, and
     * tconv_plan_step where it is a stream's, else NULL */
    tconv_torch_execute *execute;
    tconv_torch_execute_with *execute_with;
    tconv_torch_step *step;
    tconv_torch_destroy *destroy;
    size_t workspace_size;
    /* Elements of the tensors' dtype to allocate for the workspace; 0 where the thread's scratch memory is enough. */
    int64_t workspace_elements;
    int64_t rank; /* rank of the result, of the gradients that of the input or the weight */
    int64_t sizes[TCONV_TORCH_AXES], strides[TCONV_TORCH_AXES];
    /* Of a gradient: the strides in which the gradient of the output, and the input or the weight, are copied; 0 where
     * they are read as they lie. */
    int64_t copies[2][TCONV_TORCH_AXES];
    int32_t dtype, location, op; /* tconv_dtype, tconv_location and tconv_op */
    int32_t carry_dtype;         /* of a stream */
    /* Of the layer's post-ops, how many there are, and of each one that takes an operand which of the call's operands
     * that is, counted from 0, and of which tconv_dtype; -1 for one that takes none. */
    int32_t post_count, post_operands[TCONV_MAX_POST_OPS], post_dtypes[TCONV_MAX_POST_OPS];
} tconv_torch_layer;

typedef struct tconv_torch_plan tconv_torch_plan;

/* Bits of flags. The first one marks calls of layers; the others tell calls apart that were planned under different
 * settings of PyTorch. */
enum {
    TCONV_TORCH_OURS = 1,
    TCONV_TORCH_TF32 = 2, /* of f32 alone */
    TCONV_TORCH_CUDNN = 4,
    TCONV_TORCH_DETERMINISTIC = 8, /* of gradients */
    TCONV_TORCH_SETTINGS = TCONV_TORCH_TF32 | TCONV_TORCH_CUDNN | TCONV_TORCH_DETERMINISTIC,
};

/* Returns the flags of PyTorch's settings now, with TCONV_TORCH_OURS; 0 after an exception. */
typedef int64_t tconv_torch_settings(void);

/* Returns the same, without Python where this PyTorch has what that needs; TCONV_TORCH_TF32 where of_float32 alone. */
TCONV_TORCH_API int64_t tconv_torch_read_settings(bool of_float32);

/* Registers the kernels, once in a process; on CUDA they ask for the settings. Returns 0, or -1 where this PyTorch lacks
 * what the kernels need. */
TCONV_TORCH_API int tconv_torch_install(tconv_torch_settings *settings);
TCONV_TORCH_API void tconv_torch_uninstall(void);

/* The same for the kernels of gradients, and of the package's own operators, after the others. */
TCONV_TORCH_API int tconv_torch_install_gradients(void);
TCONV_TORCH_API void tconv_torch_uninstall_gradients(void);
TCONV_TORCH_API int tconv_torch_install_operators(void);
TCONV_TORCH_API void tconv_torch_uninstall_operators(void);

/* Has the call of an operator that fails on this thread throw an error of this text. */
TCONV_TORCH_API void tconv_torch_say(const char *error);

/* Returns the flags of the calling thread, which live as long as the thread; NULL where there is no memory. Flags that
 * are not 0 mark the next convolution with the dispatch key as the package's. The package clears the flags after its
 * call. */
TCONV_TORCH_API int64_t *tconv_torch_flags(void);

/* Takes over a plan. The caller passes the result to tconv_torch_release, where it would have passed the plan to
 * tconv_plan_destroy. Returns NULL where calls of the plan do not belong in the table; it then stays the caller's. */
TCONV_TORCH_API tconv_torch_plan *tconv_torch_own(const tconv_torch_layer *description);
TCONV_TORCH_API void tconv_torch_release(tconv_torch_plan *given);

/* Puts the call that Python is serving for a kernel into the table, if it belongs there: with the plan of a layer, or
 * those of the gradients of its input and of its weight and bias, NULL where PyTorch computes them or they are not
 * wanted. copy has the strides in which the gradient of the output is copied once for both, NULL where both read it, or
 * copy it, as it lies. settings (flags) and threads are what the plans were made for. The kernel has read both before: where they
 * have changed since then, the plans are those of a later call. Refuses plans of another operation than the call's. */
TCONV_TORCH_API void tconv_torch_remember(tconv_torch_plan *first, tconv_torch_plan *second,
                                          const int64_t copy[TCONV_TORCH_AXES], int64_t settings, int64_t threads);

/* Empties the table. */
TCONV_TORCH_API void tconv_torch_forget(void);

/* Returns the number of calls that were computed by a layer of the table, of these that had post-ops, of gradients that
 * were computed by the table, and of gradients that such calls left to PyTorch. */
TCONV_TORCH_API int64_t tconv_torch_taken(void);
TCONV_TORCH_API int64_t tconv_torch_fused(void);
TCONV_TORCH_API int64_t tconv_torch_gradients(void);
TCONV_TORCH_API int64_t tconv_torch_left(void);

#endif
