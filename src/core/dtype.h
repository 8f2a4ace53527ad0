/* Sets of dtypes. */
#ifndef TCONV_CORE_DTYPE_H
#define TCONV_CORE_DTYPE_H

#include "tconv/tconv.h"

/* The number of dtypes, for tables with a row for each. */
enum { TCONV_DTYPES = TCONV_BF16 + 1 };

/* A set has the bits of its members. An implementation names its dtypes one by one, so that it never takes a dtype that
 * is added to the API later. */
#define TCONV_DTYPE_BIT(dtype) (1u << (dtype))
#define TCONV_DTYPES_HALF      (TCONV_DTYPE_BIT(TCONV_F16) | TCONV_DTYPE_BIT(TCONV_BF16))
#define TCONV_DTYPES_TO_F32    (TCONV_DTYPE_BIT(TCONV_F32) | TCONV_DTYPES_HALF)   /* dtypes whose sums are f32 */
#define TCONV_DTYPES_TO_F64    (TCONV_DTYPES_TO_F32 | TCONV_DTYPE_BIT(TCONV_F64)) /* these and f64 */

#endif
