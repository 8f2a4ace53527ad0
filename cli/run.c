/*
 * tconv run: one layer on .npy files. The files are read and checked, converted to the dtype of the computation, and
 * run through the harness. The result is written as float, and only when everything succeeded.
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

#define DTYPE_OF_INPUT (-1)

typedef struct request {
    const char *input, *weight, *bias, *output;
    int64_t stride[2], padding[4], output_padding[2], dilation[2], groups;
    int dtype; /* DTYPE_OF_INPUT, or a tconv_dtype */
    tconv_desc desc;
    cli_execution execution;
    cli_option *options; /* the table that the command line was read by, for errors */
    size_t option_count;
} request;

typedef struct files {
    npy_array input, weight, bias;
} files;

/* ------------------------------------------------------------------------------------------------------------- reading */

static int read_file(const request *asked, const char *option, const char *path, npy_array *array)
{
    char message[256];
    int code = npy_read(path, array, message, sizeof message);
    if (code != CLI_SUCCESS)
        cli_option_error(asked->options, asked->option_count, option, "%s", message);
    return code;
}

static int shape_error(const request *asked, const char *option, const npy_array *array, const char *rule)
{
    char shape[128];
    npy_format_shape(array->shape, array->rank, shape, sizeof shape);
    return cli_option_error(asked->options, asked->option_count, option, "has shape %s: must be %s", shape, rule);
}

/* Reads the files and checks what the layer cannot: ranks, and how the shapes fit together. */
static int read_files(const request *asked, files *read)
{
    int code = read_file(asked, "input", asked->input, &read->input);
    if (code == CLI_SUCCESS)
        code = read_file(asked, "weight", asked->weight, &read->weight);
    if (code == CLI_SUCCESS && asked->bias != NULL)
        code = read_file(asked, "bias", asked->bias, &read->bias);
    if (code != CLI_SUCCESS)
        return code;
    if (read->input.rank != 4 && read->input.rank != 3)
        return shape_error(asked, "input", &read->input,
                           asked->desc.layout == TCONV_NCHW ? "(n, c, h, w) or (c, h, w)"
                                                            : "(n, h, w, c) or (h, w, c)");
    if (read->weight.rank != 4)
        return shape_error(asked, "weight", &read->weight,
                           "(in_channels, out_channels / groups, kernel_h, kernel_w), in "
                           "the order that --weight-layout says");
    return CLI_SUCCESS;
}

/* The axes of a file that hold the logical extents: n, c, h, w of a layout; in, out, kernel_h, kernel_w of weights. */
static const int layout_axes[][4] = {[TCONV_NCHW] = {0, 1, 2, 3}, [TCONV_NHWC] = {0, 3, 1, 2}};
static const int weight_axes[][4] = {
    [TCONV_WEIGHT_IOHW] = {0, 1, 2, 3}, [TCONV_WEIGHT_IHWO] = {0, 3, 1, 2}, [TCONV_WEIGHT_HWOI] = {3, 2, 0, 1}};

static int make_layer(const request *asked, const files *read, harness_layer *layer)
{
    int64_t extents[4] = {1, 0, 0, 0};
    memcpy(extents + (4 - read->input.rank), read->input.shape, (size_t)read->input.rank * sizeof extents[0]);
    const int *axes = layout_axes[asked->desc.layout], *taken = weight_axes[asked->desc.weight_layout];
    const int64_t *weight = read->weight.shape;
    tconv_desc *desc = &layer->desc;
    *desc = asked->desc;
    desc->batch = extents[axes[0]], desc->in_channels = extents[axes[1]];
    desc->in_h = extents[axes[2]], desc->in_w = extents[axes[3]];
    desc->kernel_h = weight[taken[2]], desc->kernel_w = weight[taken[3]];
    desc->stride_h = asked->stride[0], desc->stride_w = asked->stride[1];
    desc->pad_top = asked->padding[0], desc->pad_left = asked->padding[1];
    desc->pad_bottom = asked->padding[2], desc->pad_right = asked->padding[3];
    desc->output_padding_h = asked->output_padding[0], desc->output_padding_w = asked->output_padding[1];
    desc->dilation_h = asked->dilation[0], desc->dilation_w = asked->dilation[1];
    desc->groups = asked->groups;
    desc->dtype = asked->dtype == DTYPE_OF_INPUT ? read->input.dtype : (tconv_dtype)asked->dtype;
    layer->has_bias = asked->bias != NULL;

    if (weight[taken[0]] != desc->in_channels)
        return cli_option_error(asked->options, asked->option_count, "weight",
                                "has %" PRId64 " input channels: must have as many as --input, %" PRId64,
                                weight[taken[0]], desc->in_channels);
    if (desc->in_channels % desc->groups != 0)
        return cli_option_error(asked->options, asked->option_count, "groups",
                                "must divide the input channels, %" PRId64, desc->in_channels);
    if (__builtin_mul_overflow(weight[taken[1]], desc->groups, &desc->out_channels))
        return cli_option_error(asked->options, asked->option_count, "groups",
                                "times %" PRId64 " output channels a group must fit in 63 bits", weight[taken[1]]);
    if (layer->has_bias && (read->bias.rank != 1 || read->bias.shape[0] != desc->out_channels)) {
        char rule[64];
        snprintf(rule, sizeof rule, "(%" PRId64 ",), one for each output channel", desc->out_channels);
        return shape_error(asked, "bias", &read->bias, rule);
    }
    tconv_issue issue;
    if (tconv_validate(desc, &issue) != TCONV_SUCCESS)
        return cli_issue_error(asked->options, asked->option_count, &issue);
    return CLI_SUCCESS;
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

static int run_layer(const request *asked, const harness_layer *layer, files *read, harness_output *result)
{
    const tconv_dtype dtype = layer->desc.dtype;
    harness_case test = {.layer = *layer};
    const tconv_options options = cli_execution_options(&asked->execution);
    tconv_issue issue;
    int code = CLI_SUCCESS;
    for (int role = 0; role < HARNESS_ROLES; ++role)
        test.views[role] = harness_view_of(&layer->desc, (harness_role)role);
    test.src = take_numbers(&read->input, dtype);
    test.weights = take_numbers(&read->weight, dtype);
    if (layer->has_bias)
        test.bias = take_numbers(&read->bias, dtype);
    if (test.src.memory == NULL || test.weights.memory == NULL || (layer->has_bias && test.bias.memory == NULL)) {
        cli_error("no memory for the tensors");
        code = CLI_FAILURE;
    } else if (harness_run(&test, &options, false, result, &issue) != TCONV_SUCCESS) {
        code = cli_issue_error(asked->options, asked->option_count, &issue);
    }
    harness_case_destroy(&test);
    return code;
}

/* ------------------------------------------------------------------------------------------------------------- writing */

/* Finds the shape of the output file: its rank and layout are the input's. */
static int output_shape(const harness_layer *layer, int input_rank, int64_t shape[4])
{
    const harness_view view = harness_dst_view(&layer->desc);
    int64_t full[4];
    for (int i = 0; i < 4; ++i)
        full[layout_axes[layer->desc.layout][i]] = view.shape[i];
    memcpy(shape, full + (4 - input_rank), (size_t)input_rank * sizeof full[0]);
    return input_rank;
}

static int write_result(const request *asked, const harness_layer *layer, const harness_output *result,
                        const int64_t *shape, int rank)
{
    const int64_t count = harness_dst_view(&layer->desc).extent;
    const void *data = result->dst.data;
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
    if (!cli_output_open(&output, asked->output)) {
        code = cli_output_error(asked->options, asked->option_count, "output");
    } else {
        if (cli_output_commit(&output, npy_write(output.file, dtype, shape, rank, data)))
            code = CLI_SUCCESS;
        else
            cli_error("--output %s: cannot be written: %s", asked->output, strerror(errno));
    }
    free(widened);
    return code;
}

static int run_request(const request *asked)
{
    files read = {0};
    harness_layer layer;
    harness_output result = {0};
    int code = read_files(asked, &read);
    const int rank = read.input.rank;
    if (code == CLI_SUCCESS)
        code = make_layer(asked, &read, &layer);
    if (code == CLI_SUCCESS && !cli_output_possible(asked->output))
        code = cli_output_error(asked->options, asked->option_count, "output");
    if (code == CLI_SUCCESS)
        code = run_layer(asked, &layer, &read, &result);
    if (code == CLI_SUCCESS) {
        int64_t shape[4];
        char text[128];
        FILE *said = cli_output_is_stdout(asked->output) ? stderr : stdout;
        npy_format_shape(shape, output_shape(&layer, rank, shape), text, sizeof text);
        code = write_result(asked, &layer, &result, shape, rank);
        if (code == CLI_SUCCESS)
            fprintf(said, "%s: shape %s, %s, %s, %.3f ms, %.2f GFLOP/s\n", asked->output, text,
                    harness_dtype_name(layer.desc.dtype), result.implementation, result.milliseconds,
                    result.milliseconds > 0 ? harness_layer_flops(&layer.desc) / result.milliseconds * 1e-6 : 0);
    }
    harness_output_release(&result);
    npy_release(&read.input);
    npy_release(&read.weight);
    npy_release(&read.bias);
    return code;
}

int cli_run(int argc, char **argv)
{
    request asked = {.stride = {1, 1},
                     .dilation = {1, 1},
                     .groups = 1,
                     .dtype = DTYPE_OF_INPUT,
                     .execution = CLI_EXECUTION_DEFAULTS};
    tconv_desc_init(&asked.desc);
    cli_option options[] = {
        CLI_REQUIRED_TEXT("input", "X.npy", &asked.input, "(n, c, h, w) or (c, h, w); with --layout nhwc c comes last"),
        CLI_REQUIRED_TEXT("weight", "W.npy", &asked.weight, "(in_channels, out_channels / groups, kernel_h, kernel_w)"),
        CLI_TEXT("bias", "B.npy", &asked.bias, "(out_channels,)"),
        CLI_REQUIRED_TEXT("output", "Y.npy", &asked.output, "where to write the result"),
        CLI_SIZES("stride", "A|H,W", 1, 2, asked.stride, "default 1"),
        CLI_SIZES("padding", "A|H,W|TOP,LEFT,BOTTOM,RIGHT", 0, 4, asked.padding, "cut off the output, default 0"),
        CLI_SIZES("output-padding", "A|H,W", 0, 2, asked.output_padding, "added at bottom and right, default 0"),
        CLI_SIZES("dilation", "A|H,W", 1, 2, asked.dilation, "default 1"),
        CLI_INTEGER("groups", "G", 1, INT64_MAX, &asked.groups, "default 1"),
        CLI_NAME("dtype", harness_dtype_names, &asked.dtype,
                 "compute in f32, f64, f16 or bf16 (default: the input's); bf16 is written as f4"),
        CLI_LAYER_OPTIONS(asked.desc),
        CLI_NAME("backend", harness_backend_names, &asked.execution.backend, "auto (default), cpu or cuda"),
        CLI_EXECUTION_OPTIONS(asked.execution),
    };
    const cli_usage usage = {
        "run", "--input X.npy --weight W.npy [--bias B.npy] --output Y.npy [OPTION]...",
        "Runs a layer on .npy files (versions 1.0 and 2.0, C order, little-endian f2, f4 or f8) and "
        "prints the shape, the\nimplementation, the time of one run and its rate."};
    asked.options = options;
    asked.option_count = sizeof options / sizeof options[0];
    int code = cli_options_parse(&usage, options, asked.option_count, argc, argv);
    return code >= 0 ? code : run_request(&asked);
}
