/* The arithmetic of a plan on tensor cores: which products, of which elements. */
#ifndef TCONV_CUDA_NUMERIC_NUMERICS_H
#define TCONV_CUDA_NUMERIC_NUMERICS_H

#include "../../core/impl.h"
#include "../room.h"

TCONV_ROOM_BEGIN(tconv)

typedef enum numerics {
    NUMERICS_TF32,   /* f32 as TF32 */
    NUMERICS_STRICT, /* f32 as three products of TF32, of big and small parts */
    NUMERICS_F16,
    NUMERICS_BF16
} numerics;

/* In strict f32, additions that follow one another in a sum of what tensor cores have accumulated: they may be off by a
 * quarter of their number (for like terms), which is within the bound of 16 for so many. */
enum { STRICT_ADDITIONS = 48 };

/* Returns the arithmetic of a layer of f32, f16 or bf16. */
static inline numerics numerics_of(const tconv_layer *layer)
{
    if (layer->problem.dtype == TCONV_F16)
        return NUMERICS_F16;
    if (layer->problem.dtype == TCONV_BF16)
        return NUMERICS_BF16;
    return layer->target.math == TCONV_MATH_TF32 ? NUMERICS_TF32 : NUMERICS_STRICT;
}

/* Returns "tf32", "strict", "f16" or "bf16". */
static inline const char *numerics_name(numerics mode)
{
    static const char *const names[] = {"tf32", "strict", "f16", "bf16"};
    return names[mode];
}

/* Returns whether f32 is split in big and small parts, and the bytes of an element. */
static inline bool numerics_split(numerics mode)
{
    return mode == NUMERICS_STRICT;
}
static inline int numerics_bytes(numerics mode)
{
    return mode == NUMERICS_F16 || mode == NUMERICS_BF16 ? 2 : 4;
}

TCONV_ROOM_END

#endif
