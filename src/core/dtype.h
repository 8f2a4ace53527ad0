/* Sets of dtypes. */
#ifndef TCONV_CORE_DTYPE_H
#define TCONV_CORE_DTYPE_H

#include "tconv/tconv.h"

/* How many there are: what a table of them has. */
enum { TCONV_DTYPES = TCONV_BF16 + 1 };

/* A set is the bits of its members. Those of an implementation are named one by one, so that a dtype which is added to the
 * API is taken by none that does not know it. */
#define TCONV_DTYPE_BIT(dtype) (1u << (dtype))
#define TCONV_DTYPES_HALF      (TCONV_DTYPE_BIT(TCONV_F16) | TCONV_DTYPE_BIT(TCONV_BF16))
#define TCONV_DTYPES_TO_F32    (TCONV_DTYPE_BIT(TCONV_F32) | TCONV_DTYPES_HALF)   /* sums are f32 */
#define TCONV_DTYPES_TO_F64    (TCONV_DTYPES_TO_F32 | TCONV_DTYPE_BIT(TCONV_F64)) /* f64 too */

#endif
