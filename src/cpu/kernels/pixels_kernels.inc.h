/*
 * All kernels of the pixels algorithm for one instruction set; text that a file kernels_<level>.c includes after
 * kernels.inc.h, whose macros it uses, with
 *
 *     MAX_PIXELS                the most pixels of a micro-tile of 0, 1, ... vectors
 *     PIXEL_MICROTILES(define)  define(vectors, pixels) for each micro-tile that the registers hold
 */
#include <math.h>

#include "../../core/alloc.h"
#include "pixels_kernels.h"

/* Streaming stores, to an address that is a multiple of their size: of a vector, and of a vector or half a vector of
 * bytes in memory. Streaming vectors of 32 bytes, two to a cache line, takes twice as long as plain stores (Zen 4), so
 * those levels do not. */
#if VECTOR_BYTES == 64
#define STREAM_FLOAT(to, values)  _mm512_stream_ps((to), (__m512)(values))
#define STREAM_DOUBLE(to, values) _mm512_stream_pd((to), (__m512d)(values))
#define STREAM_WHOLE(to, from)    _mm512_stream_si512((void *)(to), _mm512_loadu_si512(from))
#define STREAM_HALF(to, from)     _mm256_stream_si256((void *)(to), _mm256_loadu_si256((const void *)(from)))
#else
#define STREAM_FLOAT(to, values)  (*(vector_float *)(to) = (values))
#define STREAM_DOUBLE(to, values) (*(vector_double *)(to) = (values))
#define STREAM_WHOLE(to, from)    memcpy((to), (from), VECTOR_BYTES)
#define STREAM_HALF(to, from)     memcpy((to), (from), VECTOR_BYTES / 2)
#endif

#define REAL       float
#define LANES      (VECTOR_BYTES / 4)
#define STREAM     STREAM_FLOAT
#define NAME(name) JOIN(name, float)
#include "col2im_microkernel.inc.h"
#include "pixels_microkernel.inc.h"
#include "wgrad_microkernel.inc.h"
#undef NAME
#undef STREAM

#define SUMS(name)      JOIN(name, float)
#define ELEMENT         float
#define NAME(name)      JOIN(name, f32)
#define CONVERT_OUT     COPY_VECTOR
#define STREAM_ELEMENTS STREAM_WHOLE
#include "pixels_rows.inc.h"
#include "wgrad_rows.inc.h"
#undef ELEMENT
#undef NAME
#undef CONVERT_OUT
#undef STREAM_ELEMENTS

#define ELEMENT         uint16_t
#define NAME(name)      JOIN(name, f16)
#define CONVERT_OUT     f16_from_floats
#define STREAM_ELEMENTS STREAM_HALF
#include "pixels_rows.inc.h"
#include "wgrad_rows.inc.h"
#undef ELEMENT
#undef NAME
#undef CONVERT_OUT
#undef STREAM_ELEMENTS

#define ELEMENT         uint16_t
#define NAME(name)      JOIN(name, bf16)
#define CONVERT_OUT     bf16_from_floats
#define STREAM_ELEMENTS STREAM_HALF
#include "pixels_rows.inc.h"
#include "wgrad_rows.inc.h"
#undef ELEMENT
#undef NAME
#undef CONVERT_OUT
#undef STREAM_ELEMENTS

#undef SUMS
#undef REAL
#undef LANES

#define REAL       double
#define LANES      (VECTOR_BYTES / 8)
#define STREAM     STREAM_DOUBLE
#define NAME(name) JOIN(name, double)
#include "col2im_microkernel.inc.h"
#include "pixels_microkernel.inc.h"
#include "wgrad_microkernel.inc.h"
#undef NAME
#undef STREAM

#define ELEMENT         double
#define NAME(name)      JOIN(name, f64)
#define CONVERT_OUT     COPY_VECTOR
#define STREAM_ELEMENTS STREAM_WHOLE
#include "pixels_rows.inc.h"
#undef ELEMENT
#undef NAME
#undef CONVERT_OUT
#undef STREAM_ELEMENTS

#undef REAL
#undef LANES

#define DENSE_FLOAT(vectors, pixels)      [vectors][pixels] = dense_##vectors##x##pixels##_float,
#define DENSE_DOUBLE(vectors, pixels)     [vectors][pixels] = dense_##vectors##x##pixels##_double,
#define DEPTHWISE_FLOAT(vectors, pixels)  [vectors][pixels] = depthwise_##vectors##x##pixels##_float,
#define DEPTHWISE_DOUBLE(vectors, pixels) [vectors][pixels] = depthwise_##vectors##x##pixels##_double,
#define PIXEL_ROWS(name, round)                                                                                        \
    {                                                                                                                  \
        load_pixel_rows_##name, store_pixel_rows_##name, round                                                         \
    }

const tconv_cpu_pixel_kernels JOIN(tconv_cpu_pixel_kernels, LEVEL) = {
    .streams = VECTOR_BYTES == 64,
    .real = {{VECTOR_BYTES / 4,
              MAX_PIXELS,
              {PIXEL_MICROTILES(DENSE_FLOAT)},
              {PIXEL_MICROTILES(DEPTHWISE_FLOAT)},
              sweep_float,
              accumulate_float,
              begin_float,
              are_finite_float},
             {VECTOR_BYTES / 8,
              MAX_PIXELS,
              {PIXEL_MICROTILES(DENSE_DOUBLE)},
              {PIXEL_MICROTILES(DEPTHWISE_DOUBLE)},
              sweep_double,
              accumulate_double,
              begin_double,
              are_finite_double}},
    .dtype = {[TCONV_F32] = PIXEL_ROWS(f32, round_columns_f32),
              [TCONV_F64] = PIXEL_ROWS(f64, NULL),
              [TCONV_F16] = PIXEL_ROWS(f16, round_columns_f16),
              [TCONV_BF16] = PIXEL_ROWS(bf16, round_columns_bf16)},
};
