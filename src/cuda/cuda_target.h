/* What a plan on a GPU knows of its device. A target (core/impl.h) carries these as bytes that only CUDA reads. */
#ifndef TCONV_CUDA_CUDA_TARGET_H
#define TCONV_CUDA_CUDA_TARGET_H

#include <assert.h>
#include <string.h>

#include "../core/impl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tconv_cuda_target {
    int device;             /* ordinal */
    int compute_capability; /* major * 10 + minor */
    int multiprocessors;    /* of the device, at least 1 */
    int shared_bytes;       /* of dynamic shared memory, that a thread block may ask for */
    bool has_sm90a;         /* whether the device is a Hopper and the build has sm_90a code for it */
} tconv_cuda_target;

static_assert(sizeof(tconv_cuda_target) <= TCONV_MACHINE_BYTES, "a target has room for a GPU");

/* Returns the device of a target whose backend is CUDA. GCC is told the alignment, because it otherwise copies the
 * whole machine before it reads one field; clang 14 crashes over that with its sanitizers. */
static inline tconv_cuda_target tconv_cuda_target_of(const tconv_target *target)
{
    tconv_cuda_target machine;
#ifdef __clang__
    memcpy(&machine, target->machine, sizeof machine);
#else
    memcpy(&machine, __builtin_assume_aligned(target->machine, sizeof target->machine[0]), sizeof machine);
#endif
    return machine;
}

/* Makes machine that of the target. */
static inline void tconv_cuda_target_set(tconv_target *target, tconv_cuda_target machine)
{
    memcpy(target->machine, &machine, sizeof machine);
}

#ifdef __cplusplus
}
#endif

#endif
