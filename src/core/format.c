/* Writes a layer as arguments of `tconv bench`. Verbose lines and descriptions print it, so that they can be
 * replayed. */
#include <inttypes.h>

#include "post.h"
#include "problem.h"
#include "status.h"
#include "text.h"

static void append_strides(tconv_text *text, const char *key, const tconv_strides *strides)
{
    tconv_text_append(text, " %s=%" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64, key, strides->n, strides->c, strides->h,
                      strides->w);
}

static bool any_given(const int64_t strides[4])
{
    return strides[0] != 0 || strides[1] != 0 || strides[2] != 0 || strides[3] != 0;
}

int tconv_problem_format(const tconv_problem *problem, bool has_bias, char *text, size_t capacity)
{
    const tconv_desc *desc = &problem->desc;
    tconv_text out = {text, capacity, 0};
    tconv_text_append(&out,
                      "--problem \"n=%" PRId64 " ci=%" PRId64 " h=%" PRId64 " w=%" PRId64 " co=%" PRId64 " k=%" PRId64
                      "x%" PRId64 " s=%" PRId64 "x%" PRId64 " p=%" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64
                      " op=%" PRId64 "x%" PRId64 " d=%" PRId64 "x%" PRId64 " g=%" PRId64,
                      desc->batch, desc->in_channels, desc->in_h, desc->in_w, desc->out_channels, desc->kernel_h,
                      desc->kernel_w, desc->stride_h, desc->stride_w, desc->pad_top, desc->pad_left, desc->pad_bottom,
                      desc->pad_right, desc->output_padding_h, desc->output_padding_w, desc->dilation_h,
                      desc->dilation_w, desc->groups);
    if (has_bias)
        tconv_text_append(&out, " b=1");
    if (desc->accumulate)
        tconv_text_append(&out, " acc=1");
    if (desc->stream_axis != 0)
        tconv_text_append(&out, " st=%" PRId32, desc->stream_axis);
    if ((int)desc->carry_dtype != TCONV_F32)
        tconv_text_append(&out, " cd=%d", (int)desc->carry_dtype);
    if (any_given(desc->src_strides))
        append_strides(&out, "ss", &problem->src);
    if (any_given(desc->dst_strides))
        append_strides(&out, "ds", &problem->dst);
    tconv_posts_format(problem, &out);
    tconv_text_append(&out, "\" --dtype %s --layout %s --weight-layout %s --math %s --op %s",
                      tconv_dtype_name(desc->dtype), tconv_layout_name(desc->layout),
                      tconv_weight_layout_name(desc->weight_layout), tconv_math_name(desc->math),
                      tconv_op_name(desc->op));
    return (int)out.length;
}
