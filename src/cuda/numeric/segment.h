/* Long sums in f32 consist of segments, on either side (compensated.cuh). */
#ifndef TCONV_CUDA_NUMERIC_SEGMENT_H
#define TCONV_CUDA_NUMERIC_SEGMENT_H

#include "../room.h"

TCONV_ROOM_BEGIN(tconv)

/* Terms of a segment: it is off by at most 12.5 units, which leaves room for the other roundings; a multiple of 8
 * and 16. */
enum { SEGMENT_TERMS = 48 };

TCONV_ROOM_END

#endif
