/* The rules of streams, and the layer of one chunk. */
#include "stream.h"

#include <inttypes.h>
#include <string.h>

#include "checked.h"
#include "post.h"
#include "shape.h"
#include "status.h"

static tconv_status check_zero(const char *name, int64_t value, tconv_issue *issue)
{
    if (value != 0)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, name,
                          "%s = %" PRId64 ": must be 0 along the streamed axis", name, value);
    return TCONV_SUCCESS;
}

/* A frame has one plane. Padding along depth cannot go beyond it (tconv_axis_init). */
static tconv_status check_no_depth(const tconv_desc *desc, tconv_issue *issue)
{
    const char *const name = desc->in_d != 1 ? "in_d" : desc->kernel_d != 1 ? "kernel_d" : "output_padding_d";
    const int64_t value = desc->in_d != 1       ? desc->in_d
                          : desc->kernel_d != 1 ? desc->kernel_d
                                                : desc->output_padding_d + 1;
    if (value != 1)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, name, "%s = %" PRId64 ": must be %d in a stream", name,
                          name[0] == 'o' ? value - 1 : value, name[0] == 'o' ? 0 : 1);
    return TCONV_SUCCESS;
}

tconv_status tconv_stream_check(const tconv_desc *desc, tconv_issue *issue)
{
    const bool of_rows = desc->stream_axis == TCONV_STREAM_OF_ROWS;
    tconv_status status;
    if (desc->stream_axis < 0 || desc->stream_axis > TCONV_STREAM_OF_COLUMNS)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "stream_axis",
                          "stream_axis = %" PRId32 ": must be 0, 1 (rows) or 2 (columns)", desc->stream_axis);
    if ((int)desc->carry_dtype != TCONV_F32 && (desc->stream_axis == 0 || desc->carry_dtype != desc->dtype))
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "carry_dtype", "carry_dtype = %d: must be f32 (0)%s",
                          (int)desc->carry_dtype,
                          desc->stream_axis == 0 ? ", there is no stream_axis" : ", or the dtype");
    if (desc->stream_axis == 0)
        return TCONV_SUCCESS;
    if (desc->op != TCONV_FORWARD || desc->accumulate)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "stream_axis",
                          "stream_axis = %" PRId32 ": must be 0 where op is not forward, or with accumulate",
                          desc->stream_axis);
    if ((status = check_no_depth(desc, issue)))
        return status;
    if ((status = check_zero(of_rows ? "pad_top" : "pad_left", of_rows ? desc->pad_top : desc->pad_left, issue)) ||
        (status =
             check_zero(of_rows ? "pad_bottom" : "pad_right", of_rows ? desc->pad_bottom : desc->pad_right, issue)))
        return status;
    return check_zero(of_rows ? "output_padding_h" : "output_padding_w",
                      of_rows ? desc->output_padding_h : desc->output_padding_w, issue);
}

tconv_status tconv_stream_axis_init(tconv_axis *axis, int64_t *tail, const tconv_desc *desc, tconv_issue *issue)
{
    const bool of_rows = desc->stream_axis == TCONV_STREAM_OF_ROWS;
    const int64_t in = of_rows ? desc->in_h : desc->in_w, stride = of_rows ? desc->stride_h : desc->stride_w;
    /* With one input more, in * stride is checked too, and so are the phases where there is one input. */
    const tconv_status status =
        tconv_axis_init(axis, tconv_min(in, INT64_MAX - 1) + 1, of_rows ? desc->kernel_h : desc->kernel_w, stride,
                        of_rows ? desc->dilation_h : desc->dilation_w, 0, 0, 0, of_rows ? "h" : "w", issue);
    if (status != TCONV_SUCCESS)
        return status;
    *tail = tconv_max(0, axis->dilation * (axis->kernel - 1) + 1 - stride);
    axis->in = in;
    axis->out = in * stride;
    if (axis->kernel == 1)
        axis->dilation = 1;
    return TCONV_SUCCESS;
}

tconv_status tconv_stream_carry_init(tconv_problem *problem, int64_t slots, tconv_issue *issue)
{
    int64_t bytes;
    problem->carry_dtype = problem->dtype == TCONV_F64 ? TCONV_F64 : problem->desc.carry_dtype;
    if (!tconv_checked_mul(problem->tail, tconv_unstreamed_axis(problem)->out, &problem->carry_extent) ||
        !tconv_checked_mul(problem->carry_extent, problem->out_channels, &problem->carry_extent) ||
        !tconv_checked_mul(problem->carry_extent, slots, &problem->carry_extent) ||
        !tconv_checked_mul(problem->carry_extent, (int64_t)tconv_dtype_size(problem->carry_dtype), &bytes))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "carry", "carry: its size in bytes must be at most 2^63 - 1");
    return TCONV_SUCCESS;
}

/* Sets the strides of a tensor of a chunk. Those of images, channels and pixels are as the desc gives them; a row is as
 * long as the chunk. */
static tconv_status chunk_strides(tconv_strides *strides, int64_t *extent, const int64_t given[4],
                                  const tconv_strides *whole, const tconv_shape *shape, const tconv_problem *problem,
                                  tconv_issue *issue)
{
    const bool pixels = problem->layout == TCONV_NHWC, column = shape->w == 1 && shape->h > 1;
    const int64_t pixel = pixels && (given[2] != 0 || given[3] != 0) ? whole->w : 0;
    const int64_t of_chunk[4] = {given[0], pixels ? 0 : given[1], column ? pixel : 0, pixel};
    return tconv_strides_init(strides, extent, of_chunk, 0, shape, problem->layout, problem->element_size, issue);
}

tconv_status tconv_stream_chunk_init(tconv_problem *problem, const tconv_problem *whole, const tconv_chunk *chunk,
                                     tconv_issue *issue)
{
    const tconv_desc *desc = &whole->desc;
    tconv_status status;
    *problem = *whole;
    tconv_axis *axis = desc->stream_axis == TCONV_STREAM_OF_ROWS ? &problem->h : &problem->w;
    problem->batch = problem->desc.batch = chunk->batch;
    problem->flushes = chunk->flushes;
    axis->in = chunk->flushes ? 0 : chunk->length;
    axis->out = chunk->flushes ? whole->tail : chunk->length * axis->stride;
    const tconv_shape src = {chunk->batch, desc->in_channels, 1, problem->h.in, problem->w.in, "src", false};
    const tconv_shape dst = {chunk->batch, desc->out_channels, 1, problem->h.out, problem->w.out, "dst", false};
    const tconv_shape addend = {chunk->batch, desc->out_channels, 1, problem->h.out, problem->w.out, "addend", false};
    problem->src_extent = 0;
    if ((!chunk->flushes && (status = chunk_strides(&problem->src, &problem->src_extent, desc->src_strides, &whole->src,
                                                    &src, problem, issue))) ||
        (status = chunk_strides(&problem->dst, &problem->dst_extent, desc->dst_strides, &whole->dst, &dst, problem,
                                issue)) ||
        (tconv_post_addend(desc) >= 0 &&
         (status = chunk_strides(&problem->addend, &problem->addend_extent, desc->addend_strides, &whole->addend,
                                 &addend, problem, issue))))
        return status;
    return tconv_stream_carry_init(problem, chunk->slots, issue);
}
