/* The one validator turns a desc into a problem, or fills an issue. Rules are checked in the order of tconv_desc's
 * fields, then those that concern several fields, then sizes, then strides. Both backends and every entry point stand
 * behind it. */
#include <inttypes.h>
#include <string.h>

#include "checked.h"
#include "post.h"
#include "problem.h"
#include "shape.h"
#include "status.h"
#include "stream.h"

/* Checks a field that must be at least its minimum. */
#define FIELD(name, minimum)                                                                                           \
    {                                                                                                                  \
#name, offsetof(tconv_desc, name), minimum                                                                     \
    }

static const struct integer_field {
    const char *name;
    size_t offset;
    int64_t minimum;
} integer_fields[] = {
    FIELD(batch, 0),
    FIELD(in_channels, 1),
    FIELD(in_h, 1),
    FIELD(in_w, 1),
    FIELD(out_channels, 1),
    FIELD(kernel_h, 1),
    FIELD(kernel_w, 1),
    FIELD(stride_h, 1),
    FIELD(stride_w, 1),
    FIELD(pad_top, 0),
    FIELD(pad_left, 0),
    FIELD(pad_bottom, 0),
    FIELD(pad_right, 0),
    FIELD(output_padding_h, 0),
    FIELD(output_padding_w, 0),
    FIELD(dilation_h, 1),
    FIELD(dilation_w, 1),
    FIELD(groups, 1),
    FIELD(in_d, 1),
    FIELD(kernel_d, 1),
    FIELD(stride_d, 1),
    FIELD(dilation_d, 1),
    FIELD(pad_front, 0),
    FIELD(pad_back, 0),
    FIELD(output_padding_d, 0),
};

static tconv_status check_integers(const tconv_desc *desc, tconv_issue *issue)
{
    for (size_t i = 0; i < sizeof integer_fields / sizeof integer_fields[0]; i++) {
        const struct integer_field *field = &integer_fields[i];
        int64_t value;
        memcpy(&value, (const char *)desc + field->offset, sizeof value);
        if (value < field->minimum)
            return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, field->name,
                              "%s = %" PRId64 ": must be at least %" PRId64, field->name, value, field->minimum);
    }
    return TCONV_SUCCESS;
}

static tconv_status check_enumerator(const char *name, long long value, long long most, const char *accepts,
                                     tconv_issue *issue)
{
    if (value < 0 || value > most)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, name, "%s = %lld: must be %s", name, value, accepts);
    return TCONV_SUCCESS;
}

static tconv_status check_enumerators(const tconv_desc *desc, tconv_issue *issue)
{
    tconv_status status;
    if ((status =
             check_enumerator("dtype", (int)desc->dtype, TCONV_BF16, "f32 (0), f64 (1), f16 (2) or bf16 (3)", issue)) ||
        (status = check_enumerator("layout", (int)desc->layout, TCONV_NHWC, "nchw (0) or nhwc (1)", issue)) ||
        (status = check_enumerator("weight_layout", (int)desc->weight_layout, TCONV_WEIGHT_HWOI,
                                   "iohw (0), ihwo (1) or hwoi (2)", issue)))
        return status;
    if ((status =
             check_enumerator("math", (int)desc->math, TCONV_MATH_TF32, "default (0), strict (1) or tf32 (2)", issue)))
        return status;
    if ((status = check_enumerator("op", (int)desc->op, TCONV_BACKWARD_WEIGHTS,
                                   "forward (0), backward_data (1) or backward_weights (2)", issue)))
        return status;
    return check_enumerator("accumulate", desc->accumulate, 1, "0 or 1", issue);
}

static tconv_status check_groups(const char *name, int64_t channels, int64_t groups, tconv_issue *issue)
{
    if (channels % groups != 0)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, name,
                          "%s = %" PRId64 ": must be a multiple of groups = %" PRId64, name, channels, groups);
    return TCONV_SUCCESS;
}

static tconv_status check_output_padding(const char *name, int64_t output_padding, int64_t stride, int64_t dilation,
                                         tconv_issue *issue)
{
    if (output_padding >= tconv_max(stride, dilation))
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, name,
                          "%s = %" PRId64 ": must be smaller than stride or dilation, here %" PRId64 " and %" PRId64,
                          name, output_padding, stride, dilation);
    return TCONV_SUCCESS;
}

static tconv_status check_fields(const tconv_desc *desc, tconv_issue *issue)
{
    tconv_status status;
    if ((status = check_integers(desc, issue)) || (status = check_enumerators(desc, issue)) ||
        (status = check_groups("in_channels", desc->in_channels, desc->groups, issue)) ||
        (status = check_groups("out_channels", desc->out_channels, desc->groups, issue)) ||
        (status =
             check_output_padding("output_padding_h", desc->output_padding_h, desc->stride_h, desc->dilation_h, issue)))
        return status;
    if ((status = check_output_padding("output_padding_w", desc->output_padding_w, desc->stride_w, desc->dilation_w,
                                       issue)) ||
        (status =
             check_output_padding("output_padding_d", desc->output_padding_d, desc->stride_d, desc->dilation_d, issue)))
        return status;
    if ((status = tconv_posts_check(desc, issue)))
        return status;
    return tconv_stream_check(desc, issue);
}

static tconv_status derive_sizes(tconv_problem *problem, bool derived, tconv_issue *issue)
{
    const tconv_desc *desc = &problem->desc;
    tconv_status status;
    if ((status = tconv_axis_init(&problem->h, desc->in_h, desc->kernel_h, desc->stride_h, desc->dilation_h,
                                  desc->pad_top, desc->pad_bottom, desc->output_padding_h, "h", issue)) ||
        (status = tconv_axis_init(&problem->w, desc->in_w, desc->kernel_w, desc->stride_w, desc->dilation_w,
                                  desc->pad_left, desc->pad_right, desc->output_padding_w, "w", issue)) ||
        (status = tconv_axis_init(&problem->d, desc->in_d, desc->kernel_d, desc->stride_d, desc->dilation_d,
                                  desc->pad_front, desc->pad_back, desc->output_padding_d, "d", issue)))
        return status;
    problem->d = tconv_axis_canonical(problem->d);
    problem->h = tconv_axis_canonical(problem->h);
    problem->w = tconv_axis_canonical(problem->w);
    if (tconv_is_stream(problem) &&
        (status = tconv_stream_axis_init(desc->stream_axis == TCONV_STREAM_OF_ROWS ? &problem->h : &problem->w,
                                         &problem->tail, desc, issue)))
        return status;

    const tconv_shape src = {.n = desc->batch,
                             .c = desc->in_channels,
                             .d = desc->in_d,
                             .h = desc->in_h,
                             .w = desc->in_w,
                             .name = "src",
                             .images_anywhere = derived};
    const tconv_shape dst = {.n = desc->batch,
                             .c = desc->out_channels,
                             .d = problem->d.out,
                             .h = problem->h.out,
                             .w = problem->w.out,
                             .name = "dst",
                             .images_anywhere = derived};
    if ((status = tconv_strides_init(&problem->src, &problem->src_extent, desc->src_strides, desc->src_stride_d, &src,
                                     desc->layout, problem->element_size, issue)) ||
        (status = tconv_strides_init(&problem->dst, &problem->dst_extent, desc->dst_strides, desc->dst_stride_d, &dst,
                                     desc->layout, problem->element_size, issue)))
        return status;
    tconv_shape addend = dst;
    addend.name = "addend";
    if (tconv_post_addend(desc) >= 0 &&
        (status = tconv_strides_init(&problem->addend, &problem->addend_extent, desc->addend_strides,
                                     desc->addend_stride_d, &addend, desc->layout, problem->element_size, issue)))
        return status;
    if (tconv_is_stream(problem) && (status = tconv_stream_carry_init(problem, desc->batch, issue)))
        return status;
    return tconv_weight_strides_init(&problem->weight, &problem->weight_extent, problem, desc->weight_layout, issue);
}

static tconv_status init_problem(tconv_problem *problem, const tconv_desc *desc, bool derived, tconv_issue *issue)
{
    tconv_problem made;
    tconv_status status;
    memset(&made, 0, sizeof made);
    if (desc == NULL)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "desc", "desc = NULL: must point to a tconv_desc");
    tconv_desc_init(&made.desc);
    if ((status = tconv_read_versioned(&made.desc, sizeof made.desc, desc, offsetof(tconv_desc, src_strides), "desc",
                                       issue)) ||
        (status = check_fields(&made.desc, issue)))
        return status;

    made.batch = made.desc.batch;
    made.in_channels = made.desc.in_channels;
    made.out_channels = made.desc.out_channels;
    made.groups = made.desc.groups;
    made.group_in = made.in_channels / made.groups;
    made.group_out = made.out_channels / made.groups;
    made.dtype = made.desc.dtype;
    made.element_size = tconv_dtype_size(made.dtype);
    made.layout = made.desc.layout;
    if ((status = derive_sizes(&made, derived, issue)))
        return status;
    *problem = made;
    return TCONV_SUCCESS;
}

tconv_status tconv_problem_init(tconv_problem *problem, const tconv_desc *desc, tconv_issue *issue)
{
    return init_problem(problem, desc, false, issue);
}

tconv_status tconv_problem_derive(tconv_problem *problem, const tconv_desc *desc, tconv_issue *issue)
{
    return init_problem(problem, desc, true, issue);
}

tconv_status tconv_validate(const tconv_desc *desc, tconv_issue *issue)
{
    tconv_problem problem;
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    tconv_problem_init(&problem, desc, &found);
    return tconv_report(&found, issue);
}

tconv_status tconv_output_shape(const tconv_desc *desc, int64_t shape[4], tconv_issue *issue)
{
    tconv_problem problem;
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    if (shape == NULL) {
        tconv_fail(&found, TCONV_ERROR_INVALID_ARGUMENT, "shape", "shape = NULL: must point to 4 numbers");
    } else if (tconv_problem_init(&problem, desc, &found) != TCONV_SUCCESS) {
        return tconv_report(&found, issue);
    } else if (problem.d.out != 1) {
        tconv_fail(&found, TCONV_ERROR_INVALID_ARGUMENT, "shape",
                   "shape: has no place for out_d = %" PRId64 "; use tconv_output_shape3d", problem.d.out);
    } else {
        shape[0] = problem.batch;
        shape[1] = problem.out_channels;
        shape[2] = problem.h.out;
        shape[3] = problem.w.out;
    }
    return tconv_report(&found, issue);
}

tconv_status tconv_output_shape3d(const tconv_desc *desc, int64_t shape[5], tconv_issue *issue)
{
    tconv_problem problem;
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    if (shape == NULL) {
        tconv_fail(&found, TCONV_ERROR_INVALID_ARGUMENT, "shape", "shape = NULL: must point to 5 numbers");
    } else if (tconv_problem_init(&problem, desc, &found) == TCONV_SUCCESS) {
        shape[0] = problem.batch;
        shape[1] = problem.out_channels;
        shape[2] = problem.d.out;
        shape[3] = problem.h.out;
        shape[4] = problem.w.out;
    }
    return tconv_report(&found, issue);
}

/* Fails where the desc describes no stream. */
static tconv_status check_is_stream(const tconv_problem *problem, tconv_issue *issue)
{
    if (tconv_is_stream(problem))
        return TCONV_SUCCESS;
    return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "stream_axis",
                      "stream_axis = 0: must be 1 (rows) or 2 (columns), else there is no carry");
}

tconv_status tconv_carry_shape(const tconv_desc *desc, int64_t shape[4], tconv_issue *issue)
{
    tconv_problem problem;
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    if (shape == NULL) {
        tconv_fail(&found, TCONV_ERROR_INVALID_ARGUMENT, "shape", "shape = NULL: must point to 4 numbers");
    } else if (tconv_problem_init(&problem, desc, &found) == TCONV_SUCCESS &&
               check_is_stream(&problem, &found) == TCONV_SUCCESS) {
        const bool of_rows = problem.desc.stream_axis == TCONV_STREAM_OF_ROWS;
        shape[0] = problem.batch;
        shape[1] = problem.out_channels;
        shape[2] = of_rows ? problem.tail : problem.h.out;
        shape[3] = of_rows ? problem.w.out : problem.tail;
    }
    return tconv_report(&found, issue);
}
