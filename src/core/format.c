/* Writes a layer as arguments of `tconv bench`. Verbose lines and descriptions print it, so that they can be
 * replayed. */
#include <inttypes.h>

#include "post.h"
#include "problem.h"
#include "shape.h"
#include "status.h"
#include "text.h"

void tconv_strides_format(const tconv_strides *strides, const int64_t given[4], int64_t given_d, bool deep,
                          const char *key, tconv_text *text)
{
    if (given[0] == 0 && given[1] == 0 && given[2] == 0 && given[3] == 0 && given_d == 0)
        return;
    tconv_text_append(text, " %s=%" PRId64 "x%" PRId64, key, strides->n, strides->c);
    if (deep)
        tconv_text_append(text, "x%" PRId64, strides->d);
    tconv_text_append(text, "x%" PRId64 "x%" PRId64, strides->h, strides->w);
}

/* Appends a list: what depth has, where the layer has depth, and the others. */
static void append_list(tconv_text *text, const char *key, bool deep, int64_t d, int64_t h, int64_t w)
{
    tconv_text_append(text, " %s=", key);
    if (deep)
        tconv_text_append(text, "%" PRId64 "x", d);
    tconv_text_append(text, "%" PRId64 "x%" PRId64, h, w);
}

int tconv_problem_format(const tconv_problem *problem, bool has_bias, char *text, size_t capacity)
{
    const tconv_desc *desc = &problem->desc;
    const bool deep = tconv_has_depth(problem);
    tconv_text out = {text, capacity, 0};
    tconv_text_append(&out, "--problem \"n=%" PRId64 " ci=%" PRId64, desc->batch, desc->in_channels);
    if (deep)
        tconv_text_append(&out, " z=%" PRId64, desc->in_d);
    tconv_text_append(&out, " h=%" PRId64 " w=%" PRId64 " co=%" PRId64, desc->in_h, desc->in_w, desc->out_channels);
    append_list(&out, "k", deep, desc->kernel_d, desc->kernel_h, desc->kernel_w);
    append_list(&out, "s", deep, desc->stride_d, desc->stride_h, desc->stride_w);
    append_list(&out, "p", deep, desc->pad_front, desc->pad_top, desc->pad_left);
    if (deep)
        tconv_text_append(&out, "x%" PRId64, desc->pad_back);
    tconv_text_append(&out, "x%" PRId64 "x%" PRId64, desc->pad_bottom, desc->pad_right);
    append_list(&out, "op", deep, desc->output_padding_d, desc->output_padding_h, desc->output_padding_w);
    append_list(&out, "d", deep, desc->dilation_d, desc->dilation_h, desc->dilation_w);
    tconv_text_append(&out, " g=%" PRId64, desc->groups);
    if (has_bias)
        tconv_text_append(&out, " b=1");
    if (desc->accumulate)
        tconv_text_append(&out, " acc=1");
    if (desc->stream_axis != 0)
        tconv_text_append(&out, " st=%" PRId32, desc->stream_axis);
    if ((int)desc->carry_dtype != TCONV_F32)
        tconv_text_append(&out, " cd=%d", (int)desc->carry_dtype);
    tconv_strides_format(&problem->src, desc->src_strides, desc->src_stride_d, deep, "ss", &out);
    tconv_strides_format(&problem->dst, desc->dst_strides, desc->dst_stride_d, deep, "ds", &out);
    tconv_posts_format(problem, &out);
    tconv_text_append(&out, "\" --dtype %s --layout %s --weight-layout %s --math %s --op %s",
                      tconv_dtype_name(desc->dtype), tconv_layout_name(desc->layout),
                      tconv_weight_layout_name(desc->weight_layout), tconv_math_name(desc->math),
                      tconv_op_name(desc->op));
    return (int)out.length;
}
