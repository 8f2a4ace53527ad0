/*
 * The functions of libtconv_torch.so that tconv/torch/_native.py calls. They may be called from any thread.
 */
#ifndef TCONV_TORCH_SHIM_H
#define TCONV_TORCH_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include <tconv/tconv.h>

#define TCONV_TORCH_API __attribute__((visibility("default")))

typedef tconv_status tconv_torch_execute(const tconv_plan *, const tconv_tensor *, const tconv_tensor *,
                                         const tconv_tensor *, const tconv_tensor *, void *, size_t, void *);
typedef void tconv_torch_destroy(tconv_plan *);

/* A planned layer whose tensors are computed in place. */
typedef struct tconv_torch_layer {
    tconv_plan *plan;
    tconv_torch_execute *execute; /* tconv_plan_execute and tconv_plan_destroy of the library that made the plan */
    tconv_torch_destroy *destroy;
    size_t workspace_size;
    /* Elements of src's dtype to allocate for the workspace; 0 where the thread's scratch memory is enough. */
    int64_t workspace_elements;
    int64_t rank; /* rank of the result */
    int64_t sizes[4], strides[4];
    int32_t dtype, location; /* tconv_dtype and tconv_location */
} tconv_torch_layer;

/* Registers the kernels, once in a process. Returns 0, or -1 where this PyTorch lacks what the kernels need. */
TCONV_TORCH_API int tconv_torch_install(void);
TCONV_TORCH_API void tconv_torch_uninstall(void);

/* Returns the flags of the calling thread, which live as long as the thread; NULL where there is no memory. Flags that
 * are not 0 mark the next convolution with the dispatch key as the package's; their bits tell layers apart that were
 * planned under different settings of PyTorch. The package clears the flags after its call. */
TCONV_TORCH_API int64_t *tconv_torch_flags(void);

/* Puts the layer of the call that tconv::unplanned is serving into the table, and takes over its plan. The caller
 * passes the result to tconv_torch_release, where it would have passed the plan to tconv_plan_destroy. Returns NULL
 * where the call's layer does not belong in the table; the plan then stays the caller's. */
TCONV_TORCH_API void *tconv_torch_remember(const tconv_torch_layer *layer);

/* Puts a layer that fell out of the table back. */
TCONV_TORCH_API void tconv_torch_remember_again(void *remembered);

TCONV_TORCH_API void tconv_torch_release(void *remembered);

/* Empties the table. */
TCONV_TORCH_API void tconv_torch_forget(void);

/* Returns the number of calls that were computed by a layer of the table. */
TCONV_TORCH_API int64_t tconv_torch_taken(void);

#endif
