/*
 * tconv run: one operation of a layer on .npy files. The files that it reads are read and checked, converted to the dtype
 * of the computation, and run through the harness. Results are written as float, and only when everything succeeded.
 *
 * A layer has three axes where its weights have five, or, where none are read, its input has. A gradient is given no extent of the tensor that it does not read: inputs or taps are as many as make the outputs that
 * --diff-output has, which --output-padding settles, and the layer that comes out must have just that output.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "harness.h"
#include "npy.h"
#include "options.h"
#include "output.h"
#include "shapes.h"

#define DTYPE_OF_INPUT (-1)

typedef struct request {
    const char *read[HARNESS_ROLES]; /* files of the tensors that are read; NULL where none was given */
    const char *output, *bias_output;
    cli_sizes stride, padding, output_padding, dilation;
    int64_t groups;
    int dtype; /* DTYPE_OF_INPUT, or a tconv_dtype */
    tconv_desc desc;
    cli_execution execution;
    cli_option *options; /* the table that the command line was read by, for errors */
    size_t option_count;
} request;

/* The options that name the files of request.read. */
static const char *const read_options[HARNESS_ROLES] = {
    [HARNESS_SRC] = "input", [HARNESS_WEIGHTS] = "weight", [HARNESS_BIAS] = "bias", [HARNESS_DST] = "diff-output"};

static int error_of(const request *asked, const char *option, const char *text)
{
    return cli_option_error(asked->options, asked->option_count, option, "%s", text);
}

static bool is_read(const request *asked, int role)
{
    return harness_operation_of(asked->desc.op)->reads[role];
}

/* Checks that the operation was given the files that it reads and writes, and no others. A bias may be left out. */
static int check_files(const request *asked)
{
    const bool writes_bias = harness_operation_of(asked->desc.op)->writes[HARNESS_BIAS];
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        if (is_read(asked, role) && asked->read[role] == NULL && role != HARNESS_BIAS)
            return error_of(asked, read_options[role], "is required");
        if (!is_read(asked, role) && asked->read[role] != NULL)
            return error_of(asked, read_options[role], "is not read by the operation of --op");
    }
    if (asked->output == NULL)
        return error_of(asked, "output", "is required");
    if (!writes_bias && asked->bias_output != NULL)
        return error_of(asked, "bias-output", "is not written by the operation of --op");
    if (asked->bias_output != NULL && cli_output_is_same(asked->output, asked->bias_output))
        return error_of(asked, "bias-output", "must be another file than --output");
    return CLI_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------------------- reading */

static int read_file(const request *asked, const char *option, const char *path, npy_array *array)
{
    char message[256];
    int code = npy_read(path, array, message, sizeof message);
    if (code != CLI_SUCCESS)
        error_of(asked, option, message);
    return code;
}

static int shape_error(const request *asked, const char *option, const npy_array *array, const char *rule)
{
    char shape[128];
    npy_format_shape(array->shape, array->rank, shape, sizeof shape);
    return cli_option_error(asked->options, asked->option_count, option, "has shape %s: must be %s", shape, rule);
}

static bool is_activation(int role)
{
    return role == HARNESS_SRC || role == HARNESS_DST;
}

/* Whether the files are those of a layer of three axes. */
static bool has_depth(const request *asked, const npy_array read[HARNESS_ROLES])
{
    return read[is_read(asked, HARNESS_WEIGHTS) ? HARNESS_WEIGHTS : HARNESS_SRC].rank == 5;
}

/* Reads the files and checks their ranks. */
static int read_files(const request *asked, npy_array read[HARNESS_ROLES])
{
    static const char *const shapes[2][2] = {{"(n, c, h, w) or (c, h, w)", "(n, h, w, c) or (h, w, c)"},
                                             {"(n, c, d, h, w) or (c, d, h, w)", "(n, d, h, w, c) or (d, h, w, c)"}};
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        const int code = asked->read[role] != NULL
                             ? read_file(asked, read_options[role], asked->read[role], &read[role])
                             : CLI_SUCCESS;
        if (code != CLI_SUCCESS)
            return code;
    }
    const bool deep = has_depth(asked, read);
    for (int role = 0; role < HARNESS_ROLES; ++role)
        if (is_activation(role) && is_read(asked, role) && read[role].rank != 4 + deep && read[role].rank != 3 + deep)
            return shape_error(asked, read_options[role], &read[role], shapes[deep][asked->desc.layout]);
    if (is_read(asked, HARNESS_WEIGHTS) && read[HARNESS_WEIGHTS].rank != 4 + deep)
        return shape_error(
            asked, "weight", &read[HARNESS_WEIGHTS],
            "(in_channels, out_channels / groups, kernel_h, kernel_w), with kernel_d before kernel_h for "
            "three axes, in the order that --weight-layout says");
    return CLI_SUCCESS;
}

/* -------------------------------------------------------------------------------------------------------------- shapes */

/* The fields of a desc that one axis has. */
struct axis {
    int64_t *in, *kernel, *stride, *dilation, *before, *after, *output_padding;
};

static struct axis axis_of(tconv_desc *desc, int axis)
{
    switch (axis) {
    case D:
        return (struct axis){&desc->in_d,      &desc->kernel_d, &desc->stride_d,        &desc->dilation_d,
                             &desc->pad_front, &desc->pad_back, &desc->output_padding_d};
    case H:
        return (struct axis){&desc->in_h,    &desc->kernel_h,   &desc->stride_h,        &desc->dilation_h,
                             &desc->pad_top, &desc->pad_bottom, &desc->output_padding_h};
    default:
        return (struct axis){&desc->in_w,     &desc->kernel_w,  &desc->stride_w,        &desc->dilation_w,
                             &desc->pad_left, &desc->pad_right, &desc->output_padding_w};
    }
}

/* Spreads the numbers of an option over the axes that the layer has: one stands for all, and as many as there are axes for
 * both sides. after is NULL where the option has no sides. Fields that get no number keep theirs. */
static int spread(const request *asked, const char *option, const cli_sizes *sizes, bool deep, int64_t *const before[3],
                  int64_t *const after[3])
{
    const int axes = deep ? 3 : 2, all = after != NULL ? 2 * axes : axes, count = sizes->count;
    if (count > 1 && count != axes && count != all)
        return cli_option_error(
            asked->options, asked->option_count, option,
            "must be 1%s or %d numbers for files of %d axes beside images and channels, not %d numbers",
            after == NULL ? ""
            : deep        ? ", 3"
                          : ", 2",
            all, axes, count);
    for (int i = 0; i < all && count > 0; ++i)
        *(i < axes ? before[3 - axes + i] : after[3 - axes + i - axes]) = sizes->values[i % count];
    return CLI_SUCCESS;
}

/* Takes the numbers of stride, padding, output padding and dilation. */
static int take_sizes(const request *asked, bool deep, tconv_desc *desc)
{
    const struct axis d = axis_of(desc, D), h = axis_of(desc, H), w = axis_of(desc, W);
    int64_t *const stride[] = {d.stride, h.stride, w.stride}, *const dilation[] = {d.dilation, h.dilation, w.dilation};
    int64_t *const before[] = {d.before, h.before, w.before}, *const after[] = {d.after, h.after, w.after};
    int64_t *const output_padding[] = {d.output_padding, h.output_padding, w.output_padding};
    int code;
    if ((code = spread(asked, "stride", &asked->stride, deep, stride, NULL)) != CLI_SUCCESS ||
        (code = spread(asked, "padding", &asked->padding, deep, before, after)) != CLI_SUCCESS ||
        (code = spread(asked, "output-padding", &asked->output_padding, deep, output_padding, NULL)) != CLI_SUCCESS)
        return code;
    return spread(asked, "dilation", &asked->dilation, deep, dilation, NULL);
}

/* Returns how many inputs, a stride apart, or taps, a dilation apart, make an axis of so many outputs, where the others are
 * `count`, `step` apart. 1 where no number does: the output of the layer then tells. */
static int64_t count_for(int64_t outputs, int64_t before, int64_t after, int64_t output_padding, int64_t count,
                         int64_t step, int64_t own_step)
{
    int64_t others, rest;
    if (__builtin_mul_overflow(count - 1, step, &others) ||
        __builtin_sub_overflow(outputs - 1, output_padding, &rest) || __builtin_sub_overflow(rest, others, &rest) ||
        __builtin_add_overflow(rest, before, &rest) || __builtin_add_overflow(rest, after, &rest) || rest < 0)
        return 1;
    return rest / own_step + 1;
}

/* Returns the file whose dtype and rank are those of the result. */
static const npy_array *first_activation(const request *asked, const npy_array read[HARNESS_ROLES])
{
    return &read[is_read(asked, HARNESS_SRC) ? HARNESS_SRC : HARNESS_DST];
}

/* Sets the extents that the files have. Returns false where there are more output channels than fit in 63 bits. */
static bool take_extents(const request *asked, const npy_array read[HARNESS_ROLES], tconv_desc *desc)
{
    const int *axes = shapes_of_layout(desc->layout);
    const bool deep = has_depth(asked, read), reads_src = is_read(asked, HARNESS_SRC);
    int64_t src[AXES] = {0}, weight[AXES] = {0}, dst[AXES] = {0};
    if (is_read(asked, HARNESS_DST)) {
        shapes_logical(&read[HARNESS_DST], deep, axes, dst);
        desc->batch = dst[N], desc->out_channels = dst[C];
    }
    if (reads_src) {
        shapes_logical(&read[HARNESS_SRC], deep, axes, src);
        desc->batch = src[N], desc->in_channels = src[C];
    }
    if (is_read(asked, HARNESS_WEIGHTS)) {
        shapes_logical(&read[HARNESS_WEIGHTS], deep, shapes_of_weights(desc->weight_layout), weight);
        if (!reads_src)
            desc->in_channels = weight[0];
    }
    for (int i = D; i <= W; ++i) {
        const struct axis axis = axis_of(desc, i);
        *axis.in = src[i], *axis.kernel = weight[i];
        if (!reads_src)
            *axis.in = count_for(dst[i], *axis.before, *axis.after, *axis.output_padding, weight[i], *axis.dilation,
                                 *axis.stride);
        else if (!is_read(asked, HARNESS_WEIGHTS))
            *axis.kernel = count_for(dst[i], *axis.before, *axis.after, *axis.output_padding, src[i], *axis.stride,
                                     *axis.dilation);
    }
    return !is_read(asked, HARNESS_WEIGHTS) || !__builtin_mul_overflow(weight[1], desc->groups, &desc->out_channels);
}

/* Checks that the outputs that were read are the layer's. */
static int check_outputs(const request *asked, const tconv_desc *desc, bool deep, const npy_array *read)
{
    const harness_view view = harness_dst_view(desc);
    const int *axes = shapes_of_layout(desc->layout);
    int64_t given[AXES], wanted[AXES], shape[NPY_MAX_RANK];
    char rule[160], text[128];
    shapes_logical(read, deep, axes, given);
    shapes_of_view(&view, wanted);
    if (memcmp(given, wanted, sizeof given) == 0)
        return CLI_SUCCESS;
    npy_format_shape(shape, shapes_in_file(wanted, deep, true, axes, shape), text, sizeof text);
    snprintf(rule, sizeof rule, "%s, the output of this layer", text);
    return shape_error(asked, "diff-output", read, rule);
}

static int make_layer(const request *asked, const npy_array read[HARNESS_ROLES], harness_layer *layer)
{
    tconv_desc *desc = &layer->desc;
    const bool deep = has_depth(asked, read);
    *desc = asked->desc;
    const int code = take_sizes(asked, deep, desc);
    if (code != CLI_SUCCESS)
        return code;
    desc->groups = asked->groups;
    desc->dtype = asked->dtype == DTYPE_OF_INPUT ? first_activation(asked, read)->dtype : (tconv_dtype)asked->dtype;
    layer->has_bias = asked->read[HARNESS_BIAS] != NULL || asked->bias_output != NULL;
    const bool fits = take_extents(asked, read, desc);

    const npy_array *bias = &read[HARNESS_BIAS];
    int64_t weight[AXES] = {0};
    if (is_read(asked, HARNESS_WEIGHTS))
        shapes_logical(&read[HARNESS_WEIGHTS], deep, shapes_of_weights(desc->weight_layout), weight);
    if (is_read(asked, HARNESS_SRC) && is_read(asked, HARNESS_WEIGHTS) && weight[0] != desc->in_channels)
        return cli_option_error(asked->options, asked->option_count, "weight",
                                "has %" PRId64 " input channels: must have as many as --input, %" PRId64, weight[0],
                                desc->in_channels);
    if (desc->in_channels % desc->groups != 0)
        return cli_option_error(asked->options, asked->option_count, "groups",
                                "must divide the input channels, %" PRId64, desc->in_channels);
    if (!fits)
        return cli_option_error(asked->options, asked->option_count, "groups",
                                "times %" PRId64 " output channels a group must fit in 63 bits", weight[1]);
    if (asked->read[HARNESS_BIAS] != NULL && (bias->rank != 1 || bias->shape[0] != desc->out_channels)) {
        char rule[64];
        snprintf(rule, sizeof rule, "(%" PRId64 ",), one for each output channel", desc->out_channels);
        return shape_error(asked, "bias", bias, rule);
    }
    tconv_issue issue;
    if (tconv_validate(desc, &issue) != TCONV_SUCCESS)
        return cli_issue_error(asked->options, asked->option_count, &issue);
    return is_read(asked, HARNESS_DST) ? check_outputs(asked, desc, deep, &read[HARNESS_DST]) : CLI_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------------------- running */

static void convert(tconv_dtype to_dtype, void *to, tconv_dtype from_dtype, const void *from, int64_t count)
{
    if (to_dtype == from_dtype) {
        memcpy(to, from, (size_t)count * harness_element_size(to_dtype));
        return;
    }
    for (int64_t i = 0; i < count; ++i)
        harness_element_set(to_dtype, to, i, harness_element_get(from_dtype, from, i));
}

/* Makes a buffer of dtype with the array's numbers, and frees the array's own memory. */
static harness_buffer take_numbers(npy_array *array, tconv_dtype dtype)
{
    harness_buffer buffer = harness_buffer_create(array->elements, harness_element_size(dtype), 0);
    if (buffer.memory != NULL)
        convert(dtype, buffer.data, array->dtype, array->data, array->elements);
    npy_release(array);
    return buffer;
}

static int run_layer(const request *asked, const harness_layer *layer, npy_array read[HARNESS_ROLES],
                     harness_output *result)
{
    harness_case test = {.layer = *layer};
    const tconv_options options = cli_execution_options(&asked->execution);
    tconv_issue issue;
    bool has_memory = true;
    int code = CLI_SUCCESS;
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        test.views[role] = harness_view_of(&layer->desc, (harness_role)role);
        if (asked->read[role] == NULL)
            continue;
        test.tensors[role] = take_numbers(&read[role], layer->desc.dtype);
        has_memory = has_memory && test.tensors[role].memory != NULL;
    }
    if (!has_memory) {
        cli_error("no memory for the tensors");
        code = CLI_FAILURE;
    } else if (harness_run(&test, &options, false, result, &issue) != TCONV_SUCCESS) {
        code = cli_issue_error(asked->options, asked->option_count, &issue);
    }
    harness_case_destroy(&test);
    return code;
}

/* ------------------------------------------------------------------------------------------------------------- writing */

/* A result: which tensor of the layer it is, and where it goes. */
typedef struct target {
    harness_role role;
    const char *option, *path;
    int64_t shape[NPY_MAX_RANK];
    int rank;
} target;

/* Lists the results of the operation. Activations have rank and layout of the one that was read. */
static int find_targets(const request *asked, const harness_layer *layer, bool deep, bool has_images,
                        target targets[HARNESS_ROLES])
{
    const harness_operation *operation = harness_operation_of(layer->desc.op);
    int count = 0;
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        if (!operation->writes[role] || (role == HARNESS_BIAS && asked->bias_output == NULL))
            continue;
        const harness_view view = harness_view_of(&layer->desc, (harness_role)role);
        target *added = &targets[count++];
        *added = (target){.role = (harness_role)role, .option = "output", .path = asked->output};
        int64_t logical[AXES];
        shapes_of_view(&view, logical);
        if (role == HARNESS_BIAS) {
            added->option = "bias-output", added->path = asked->bias_output;
            added->rank = 1, added->shape[0] = view.shape[0];
        } else if (is_activation(role)) {
            added->rank = shapes_in_file(logical, deep, has_images, shapes_of_layout(layer->desc.layout), added->shape);
        } else {
            added->rank =
                shapes_in_file(logical, deep, true, shapes_of_weights(layer->desc.weight_layout), added->shape);
        }
    }
    return count;
}

static int write_result(const request *asked, const harness_layer *layer, const harness_output *result,
                        const target *to)
{
    const int64_t count = harness_view_of(&layer->desc, to->role).extent;
    const void *data = result->tensors[to->role].data;
    tconv_dtype dtype = layer->desc.dtype;
    float *widened = NULL;
    cli_output output;
    int code = CLI_FAILURE;
    if (dtype == TCONV_BF16) { /* .npy has no bfloat16 */
        widened = malloc(count > 0 ? (size_t)count * sizeof *widened : 1);
        if (widened == NULL) {
            cli_error("no memory for the output");
            return CLI_FAILURE;
        }
        convert(TCONV_F32, widened, dtype, data, count);
        data = widened;
        dtype = TCONV_F32;
    }
    if (!cli_output_open(&output, to->path)) {
        code = cli_output_error(asked->options, asked->option_count, to->option);
    } else {
        if (cli_output_commit(&output, npy_write(output.file, dtype, to->shape, to->rank, data)))
            code = CLI_SUCCESS;
        else
            cli_error("--%s %s: cannot be written: %s", to->option, to->path, strerror(errno));
    }
    free(widened);
    return code;
}

/* Says what was written; of the last result, how it was computed too. */
static void report(const harness_layer *layer, const harness_output *result, const target *written, bool is_last)
{
    char text[128];
    FILE *said = cli_output_is_stdout(written->path) ? stderr : stdout;
    npy_format_shape(written->shape, written->rank, text, sizeof text);
    fprintf(said, "%s: shape %s, %s", written->path, text, harness_dtype_name(layer->desc.dtype));
    if (is_last)
        fprintf(said, ", %s, %.3f ms, %.2f GFLOP/s", result->implementation, result->milliseconds,
                result->milliseconds > 0 ? harness_layer_flops(&layer->desc) / result->milliseconds * 1e-6 : 0);
    fputc('\n', said);
}

static int run_request(const request *asked)
{
    npy_array read[HARNESS_ROLES] = {{0}};
    harness_layer layer;
    harness_output result = {0};
    target targets[HARNESS_ROLES];
    int count = 0, code = check_files(asked);
    if (code == CLI_SUCCESS)
        code = read_files(asked, read);
    const bool deep = has_depth(asked, read), has_images = first_activation(asked, read)->rank == 4 + deep;
    if (code == CLI_SUCCESS)
        code = make_layer(asked, read, &layer);
    if (code == CLI_SUCCESS)
        count = find_targets(asked, &layer, deep, has_images, targets);
    for (int i = 0; code == CLI_SUCCESS && i < count; ++i)
        if (!cli_output_possible(targets[i].path))
            code = cli_output_error(asked->options, asked->option_count, targets[i].option);
    if (code == CLI_SUCCESS)
        code = run_layer(asked, &layer, read, &result);
    for (int i = 0; code == CLI_SUCCESS && i < count; ++i) {
        code = write_result(asked, &layer, &result, &targets[i]);
        if (code == CLI_SUCCESS)
            report(&layer, &result, &targets[i], i == count - 1);
    }
    harness_output_release(&result);
    for (int role = 0; role < HARNESS_ROLES; ++role)
        npy_release(&read[role]);
    return code;
}

int cli_run(int argc, char **argv)
{
    request asked = {.groups = 1, .dtype = DTYPE_OF_INPUT, .execution = CLI_EXECUTION_DEFAULTS};
    tconv_desc_init(&asked.desc);
    cli_option options[] = {
        CLI_OP_OPTION(asked.desc.op),
        CLI_TEXT("input", "X.npy", &asked.read[HARNESS_SRC],
                 "(n, c, h, w) or (c, h, w), of three axes with d before h; with --layout nhwc c comes last"),
        CLI_TEXT(
            "weight", "W.npy", &asked.read[HARNESS_WEIGHTS],
            "(in_channels, out_channels / groups, kernel_h, kernel_w), of three axes with kernel_d before kernel_h"),
        CLI_TEXT("bias", "B.npy", &asked.read[HARNESS_BIAS], "(out_channels,)"),
        CLI_TEXT("diff-output", "G.npy", &asked.read[HARNESS_DST], "the gradient of the output, for gradients"),
        CLI_TEXT("output", "Y.npy", &asked.output,
                 "where to write the result: the output, or the gradient of input or weight"),
        CLI_TEXT("bias-output", "B.npy", &asked.bias_output,
                 "where to write the gradient of bias, with that of weight"),
        CLI_SIZES("stride", "A|H,W|D,H,W", 1, 3, &asked.stride, "default 1"),
        CLI_SIZES("padding", "A|H,W|TOP,LEFT,BOTTOM,RIGHT|D,H,W|FRONT,TOP,LEFT,BACK,BOTTOM,RIGHT", 0, 6, &asked.padding,
                  "cut off the output, default 0"),
        CLI_SIZES("output-padding", "A|H,W|D,H,W", 0, 3, &asked.output_padding,
                  "added at back, bottom and right, default 0"),
        CLI_SIZES("dilation", "A|H,W|D,H,W", 1, 3, &asked.dilation, "default 1"),
        CLI_INTEGER("groups", "G", 1, INT64_MAX, &asked.groups, "default 1"),
        CLI_NAME("dtype", harness_dtype_names, &asked.dtype,
                 "compute in f32, f64, f16 or bf16 (default: the input's); bf16 is written as f4"),
        CLI_LAYER_OPTIONS(asked.desc),
        CLI_NAME("backend", harness_backend_names, &asked.execution.backend, "auto (default), cpu or cuda"),
        CLI_EXECUTION_OPTIONS(asked.execution),
    };
    const cli_usage usage = {
        "run",
        "--input X.npy --weight W.npy [--bias B.npy] --output Y.npy [OPTION]...\n"
        "       tconv run --op backward_data --weight W.npy --diff-output G.npy --output X.npy [OPTION]...\n"
        "       tconv run --op backward_weights --input X.npy --diff-output G.npy --output W.npy [OPTION]...",
        "Runs a layer, or a gradient of it, on .npy files (versions 1.0 and 2.0, C order, little-endian f2, f4 or f8) "
        "and "
        "prints the shape, the\nimplementation, the time of one run and its rate."};
    asked.options = options;
    asked.option_count = sizeof options / sizeof options[0];
    int code = cli_options_parse(&usage, options, asked.option_count, argc, argv);
    return code >= 0 ? code : run_request(&asked);
}
