/*
 * What tconv/torch/_native.py calls of libtconv_torch.so. Functions may be called from any thread.
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

/* A planned layer whose tensors are computed as they lie. */
typedef struct tconv_torch_layer {
    tconv_plan *plan;
    tconv_torch_execute *execute; /* tconv_plan_execute and tconv_plan_destroy of the library that made the plan */
    tconv_torch_destroy *destroy;
    size_t workspace_size;
    int64_t workspace_elements; /* to be allocated, of src's dtype; 0 where the thread's scratch memory is enough */
    int64_t rank;               /* of the result */
    int64_t sizes[4], strides[4];
    int32_t dtype, location; /* tconv_dtype and tconv_location */
} tconv_torch_layer;

/* Puts the kernel in place, once in a process. Returns 0; -1 where this PyTorch does not have what is needed. */
TCONV_TORCH_API int tconv_torch_install(void);
TCONV_TORCH_API void tconv_torch_uninstall(void);

/* The flags of the calling thread, which live as long as it does; NULL where there is no memory. Not 0: the next convolution
 * with the key is the package's; the bits tell layers apart, for PyTorch's settings. The package clears them after its call. */
TCONV_TORCH_API int64_t *tconv_torch_flags(void);

/* Puts the layer of the call that tconv::unplanned is serving into the table, and takes its plan over. The answer goes to
 * tconv_torch_release in place of the plan to tconv_plan_destroy; NULL where the call's layer is none for the table, and the
 * plan stays the caller's. */
TCONV_TORCH_API void *tconv_torch_remember(const tconv_torch_layer *layer);

/* Puts a layer that fell out of the table back. */
TCONV_TORCH_API void tconv_torch_remember_again(void *remembered);

TCONV_TORCH_API void tconv_torch_release(void *remembered);

/* Empties the table. */
TCONV_TORCH_API void tconv_torch_forget(void);

/* Calls that were computed by a layer of the table. */
TCONV_TORCH_API int64_t tconv_torch_taken(void);

#endif
