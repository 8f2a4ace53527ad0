/* The rules of tconv_desc in 128-bit arithmetic, and the sizes that follow from them. The code shares nothing with the
 * library. */
#ifndef TCONV_TESTS_FUZZ_RULES_H
#define TCONV_TESTS_FUZZ_RULES_H

#include <stdint.h>

#include "tconv/tconv.h"

__extension__ typedef __int128 wide;

struct axis {
    int64_t in, kernel, stride, dilation, before, after, output_padding;
    wide out;
};

/* Strides in elements, n, c, h, w, where h counts the rows of all planes; extents in elements from the first to one past the
 * last. */
struct shape {
    struct axis d, h, w;
    wide src[4], dst[4], addend[4], src_extent, dst_extent, addend_extent, weights; /* addend: 0 where there is none */
};

/* EITHER: every element can be addressed, but the dense image that strides are compared with is too large. */
enum verdict { REFUSED, TAKEN, EITHER };

/* Writes *shape where the layer is not refused. */
enum verdict rules_check(const tconv_desc *desc, struct shape *shape);

#endif
