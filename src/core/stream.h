/* A stream: the layer along desc.stream_axis, chunk by chunk, with the tail of its outputs in a carry (tconv.h, A STREAM OF
 * FRAMES). The one difference to a layer without padding is that the streamed axis has `stride` outputs for each input. */
#ifndef TCONV_CORE_STREAM_H
#define TCONV_CORE_STREAM_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Values of desc.stream_axis. */
enum { TCONV_STREAM_OF_ROWS = 1, TCONV_STREAM_OF_COLUMNS = 2 };

static inline bool tconv_is_stream(const tconv_problem *problem)
{
    return problem->desc.stream_axis != 0;
}

/* Returns the streamed axis, and the other one, of a stream. */
static inline const tconv_axis *tconv_streamed_axis(const tconv_problem *problem)
{
    return problem->desc.stream_axis == TCONV_STREAM_OF_ROWS ? &problem->h : &problem->w;
}

static inline const tconv_axis *tconv_unstreamed_axis(const tconv_problem *problem)
{
    return problem->desc.stream_axis == TCONV_STREAM_OF_ROWS ? &problem->w : &problem->h;
}

/* Returns whether the carry has fewer digits than the sums that it carries. */
static inline bool tconv_carry_is_narrow(const tconv_problem *problem)
{
    return tconv_is_stream(problem) && tconv_dtype_size(problem->carry_dtype) < sizeof(float);
}

/* Checks the rules of stream_axis and carry_dtype, of a desc whose other fields are valid by themselves. */
tconv_status tconv_stream_check(const tconv_desc *desc, tconv_issue *issue);

/* Fills the streamed axis, whose suffix is "h" or "w", and its tail; checks sizes as tconv_axis_init does. */
tconv_status tconv_stream_axis_init(tconv_axis *axis, int64_t *tail, const tconv_desc *desc, tconv_issue *issue);

/* Sets the extent and the dtype of the carry of a stream with so many slots. */
tconv_status tconv_stream_carry_init(tconv_problem *problem, int64_t slots, tconv_issue *issue);

/* One call of a stream's plan: a chunk of each image. */
typedef struct tconv_chunk {
    int64_t batch, length; /* images; inputs of the streamed axis */
    int64_t slots;         /* of the carry */
    bool flushes;          /* gives the tails; there is no length */
} tconv_chunk;

/* Writes the problem of one call: whole's, with the extents and strides of a chunk that is no larger. */
tconv_status tconv_stream_chunk_init(tconv_problem *problem, const tconv_problem *whole, const tconv_chunk *chunk,
                                     tconv_issue *issue);

#ifdef __cplusplus
}
#endif

#endif
