/*
 * Bytes become a layer and options: mostly small numbers, some at the ends of their types. tconv_validate is compared
 * with the rules of tconv.h in 128-bit arithmetic, and planning has a time limit. Results of small layers must be
 * exactly those of the formula: with other threads, with packed weights, and in memory that is just large enough.
 */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "fuzz_plan_input.h"
#include "fuzz_rules.h"
#include "tconv/tconv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Seconds of processor time in a build with sanitizers: PLAN_SECONDS for everything but execute, INPUT_SECONDS for one
 * input as a whole. */
enum { PLAN_SECONDS = 1, INPUT_SECONDS = 20 };

/* Limits of the layers that are executed: bytes of all tensors, multiply-adds of the formula, and kernel elements tried
 * for outputs. */
enum { MOST_BYTES = 256 << 10, MOST_PRODUCTS = 2000000, MOST_TRIED = 8000000 };

/* ------------------------------------------------------------------------------------------------- failures and time */

static char layer_text[1536];

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n%s\n", layer_text);
    abort();
}

static void on_timer(int number)
{
    static const char message[] = "\nthe time limit was exceeded: ";
    (void)number;
    if (write(STDERR_FILENO, message, sizeof message - 1) < 0 ||
        write(STDERR_FILENO, layer_text, strlen(layer_text)) < 0 || write(STDERR_FILENO, "\n", 1) < 0)
        _exit(1);
    abort();
}

static void limit_seconds(int seconds)
{
    const struct itimerval timer = {{0, 0}, {seconds, 0}};
    signal(SIGVTALRM, on_timer);
    setitimer(ITIMER_VIRTUAL, &timer, NULL);
}

/* ------------------------------------------------------------------------------------------------------------ elements */

static size_t element_size(tconv_dtype dtype)
{
    return dtype == TCONV_F64 ? 8 : dtype == TCONV_F32 ? 4 : 2;
}

static double get(tconv_dtype dtype, const char *data, int64_t index)
{
    uint16_t half;
    double d;
    float f;
    memcpy(&half, data + index * (dtype == TCONV_F16 || dtype == TCONV_BF16 ? 2 : 0), 2);
    if (dtype == TCONV_F64)
        return memcpy(&d, data + index * 8, 8), d;
    if (dtype == TCONV_F32)
        return memcpy(&f, data + index * 4, 4), (double)f;
    if (dtype == TCONV_BF16) {
        uint32_t bits = (uint32_t)half << 16;
        return memcpy(&f, &bits, 4), (double)f;
    }
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double value = exponent == 31  ? (fraction != 0 ? (double)NAN : (double)INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(1024 + fraction, exponent - 25);
    return half & 0x8000 ? -value : value;
}

/* Writes an element; for small integers alone. */
static void put_small(tconv_dtype dtype, char *data, int64_t index, int value)
{
    double d = value;
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint16_t half = (uint16_t)(bits >> 16);
    if (dtype == TCONV_F64) {
        memcpy(data + index * 8, &d, 8);
    } else if (dtype == TCONV_F32) {
        memcpy(data + index * 4, &f, 4);
    } else {
        if (dtype == TCONV_F16) /* eight bits of exponent, biased by 127, to five biased by 15; sign and fraction fit */
            half =
                (uint16_t)(value == 0 ? 0
                                      : (bits >> 16 & 0x8000) | ((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 1023));
        memcpy(data + index * 2, &half, 2);
    }
}

/* Returns an integer rounded once to the dtype, ties to even. */
static double rounded(tconv_dtype dtype, int64_t value)
{
    static const int digits[] = {24, 53, 11, 8};
    int exponent;
    frexp((double)value, &exponent);
    double scale = ldexp(1, exponent - digits[dtype]);
    double result = exponent <= digits[dtype] ? (double)value : nearbyint((double)value / scale) * scale;
    return dtype == TCONV_F16 && fabs(result) > 65504 ? copysign((double)INFINITY, result) : result;
}

/* ------------------------------------------------------------------------------------------------------------ executing */

/* What outputs hold that are added to. */
enum { HELD = 1 };

struct tensors {
    char *src, *weights, *bias, *dst;
    char *addend, *channels; /* operands of post-ops: of all that have a number of each channel the same */
    size_t dst_bytes;
    bool is_exact; /* whether no step of the post-ops leaves the integers of f32 */
    int64_t *sums; /* by the formula, [n][c][h][w] */
};

static int small_integer(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)(*state >> 33) % 7 - 3;
}

/* Rows are counted over all planes, of src, dst and the kernel: planes are dense. */
static int64_t rows_of_kernel(const tconv_desc *desc)
{
    return desc->kernel_d * desc->kernel_h;
}

static int64_t rows_of_dst(const struct shape *shape)
{
    return (int64_t)(shape->d.out * shape->h.out);
}

static int64_t weight_index(const tconv_desc *desc, int64_t in, int64_t out, int64_t row, int64_t kw)
{
    const int64_t outs = desc->out_channels / desc->groups;
    if (desc->weight_layout == TCONV_WEIGHT_IOHW)
        return ((in * outs + out) * rows_of_kernel(desc) + row) * desc->kernel_w + kw;
    if (desc->weight_layout == TCONV_WEIGHT_IHWO)
        return ((in * rows_of_kernel(desc) + row) * desc->kernel_w + kw) * outs + out;
    return ((row * desc->kernel_w + kw) * outs + out) * desc->in_channels + in;
}

/* Returns the row that a kernel row of an input row reaches, or -1. */
static int64_t row_reached(const tconv_desc *desc, const struct shape *shape, int64_t input, int64_t kernel)
{
    const int64_t id = input / desc->in_h, ih = input % desc->in_h;
    const int64_t kd = kernel / desc->kernel_h, kh = kernel % desc->kernel_h;
    const wide od = (wide)id * desc->stride_d - desc->pad_front + (wide)kd * desc->dilation_d;
    const wide oh = (wide)ih * desc->stride_h - desc->pad_top + (wide)kh * desc->dilation_h;
    return od < 0 || od >= shape->d.out || oh < 0 || oh >= shape->h.out ? -1 : (int64_t)(od * shape->h.out + oh);
}

/* Adds each product of an input pixel and a kernel element to its output. */
static void scatter(const tconv_desc *desc, const struct shape *shape, const struct tensors *tensors, int64_t n,
                    int64_t i)
{
    const int64_t outs = desc->out_channels / desc->groups, first = i / (desc->in_channels / desc->groups) * outs;
    const int64_t out_rows = rows_of_dst(shape), out_w = (int64_t)shape->w.out;
    for (int64_t ih = 0; ih < desc->in_d * desc->in_h; ih++)
        for (int64_t iw = 0; iw < desc->in_w; iw++) {
            int64_t index = (int64_t)(n * shape->src[0] + i * shape->src[1] + ih * shape->src[2] + iw * shape->src[3]);
            int64_t value = (int64_t)get(desc->dtype, tensors->src, index);
            for (int64_t kh = 0; kh < rows_of_kernel(desc); kh++)
                for (int64_t kw = 0; kw < desc->kernel_w; kw++) {
                    const int64_t oh = row_reached(desc, shape, ih, kh);
                    wide ow = (wide)iw * desc->stride_w - desc->pad_left + (wide)kw * desc->dilation_w;
                    if (oh < 0 || ow < 0 || ow >= out_w)
                        continue;
                    for (int64_t o = 0; o < outs; o++)
                        tensors->sums[((n * desc->out_channels + first + o) * out_rows + oh) * out_w + (int64_t)ow] +=
                            value * (int64_t)get(desc->dtype, tensors->weights, weight_index(desc, i, o, kh, kw));
                }
        }
}

static void *exactly(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == NULL)
        fail("no memory for %zu bytes", bytes);
    return memory;
}

/* Takes one sum through the post-ops, in integers. */
static int64_t posted(const tconv_desc *desc, struct tensors *tensors, int64_t sum, int64_t channel, int64_t addend)
{
    const tconv_dtype of_channels = desc->dtype == TCONV_F64 ? TCONV_F64 : TCONV_F32;
    for (int i = 0; i < desc->post_count; i++) {
        const int64_t a = (int64_t)desc->post[i].alpha, b = (int64_t)desc->post[i].beta;
        const int64_t v = (int64_t)get(of_channels, tensors->channels, channel);
        switch (desc->post[i].kind) {
        case TCONV_POST_ADD_CHANNEL: sum += v; break;
        case TCONV_POST_MUL_CHANNEL: sum *= v; break;
        case TCONV_POST_ADD_TENSOR: sum += a * (int64_t)get(desc->dtype, tensors->addend, addend); break;
        case TCONV_POST_LINEAR: sum = a * sum + b; break;
        case TCONV_POST_CLAMP: sum = sum < a ? a : sum > b ? b : sum; break;
        case TCONV_POST_LEAKY_RELU: sum = sum > 0 ? sum : a * sum; break;
        default: tensors->is_exact = false; break; /* only where `any` drew it */
        }
        if (desc->post[i].alpha != (double)a || desc->post[i].beta != (double)b || sum > 1 << 24 || sum < -(1 << 24)) {
            tensors->is_exact = false;
            return 0;
        }
    }
    return sum;
}

static void make_operands(const tconv_desc *desc, const struct shape *shape, uint64_t *state, struct tensors *tensors)
{
    const tconv_dtype of_channels = desc->dtype == TCONV_F64 ? TCONV_F64 : TCONV_F32;
    const int64_t out_rows = rows_of_dst(shape), out_w = (int64_t)shape->w.out;
    int64_t element = 0;
    tensors->addend = exactly((size_t)shape->addend_extent * element_size(desc->dtype));
    tensors->channels = exactly((size_t)desc->out_channels * 2 * element_size(of_channels)); /* SNAKE takes two */
    for (int64_t i = 0; i < (int64_t)shape->addend_extent; i++)
        put_small(desc->dtype, tensors->addend, i, small_integer(state));
    for (int64_t i = 0; i < desc->out_channels * 2; i++)
        put_small(of_channels, tensors->channels, i, small_integer(state));
    tensors->is_exact = true;
    for (int64_t n = 0; n < desc->batch; n++)
        for (int64_t c = 0; c < desc->out_channels; c++)
            for (int64_t h = 0; h < out_rows; h++)
                for (int64_t w = 0; w < out_w; w++, element++) {
                    const wide *strides = shape->addend;
                    const wide addend = shape->addend_extent == 0 /* there is none, nor its strides */
                                            ? 0
                                            : n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3];
                    tensors->sums[element] = posted(desc, tensors, tensors->sums[element], c, (int64_t)addend);
                }
}

static void make_tensors(const struct input *input, const struct shape *shape, struct tensors *tensors)
{
    const tconv_desc *desc = &input->desc;
    const size_t size = element_size(desc->dtype);
    const int64_t plane = rows_of_dst(shape) * (int64_t)shape->w.out,
                  outputs = desc->batch * desc->out_channels * plane;
    uint64_t state = (uint64_t)input->offset;
    tensors->src = exactly((size_t)shape->src_extent * size);
    tensors->weights = exactly((size_t)shape->weights * size);
    tensors->bias = exactly((size_t)desc->out_channels * size);
    tensors->dst_bytes = (size_t)shape->dst_extent * size;
    tensors->dst = exactly(tensors->dst_bytes);
    tensors->sums = exactly((size_t)outputs * sizeof(int64_t));
    for (int64_t i = 0; i < (int64_t)shape->src_extent; i++)
        put_small(desc->dtype, tensors->src, i, small_integer(&state));
    for (int64_t i = 0; i < (int64_t)shape->weights; i++)
        put_small(desc->dtype, tensors->weights, i, small_integer(&state));
    for (int64_t i = 0; i < desc->out_channels; i++)
        put_small(desc->dtype, tensors->bias, i, small_integer(&state));
    for (int64_t i = 0; i < outputs; i++)
        tensors->sums[i] =
            (input->has_bias ? (int64_t)get(desc->dtype, tensors->bias, i / plane % desc->out_channels) : 0) +
            (desc->accumulate ? HELD : 0);
    for (int64_t n = 0; n < desc->batch; n++)
        for (int64_t i = 0; i < desc->in_channels; i++)
            scatter(desc, shape, tensors, n, i);
    make_operands(desc, shape, &state, tensors);
}

/* Fills dst with a NaN, and its elements with what is added to. */
static void clear_dst(const tconv_desc *desc, const struct shape *shape, const struct tensors *tensors)
{
    memset(tensors->dst, 0xff, tensors->dst_bytes);
    for (int64_t n = 0; desc->accumulate && n < desc->batch; n++)
        for (int64_t c = 0; c < desc->out_channels; c++)
            for (int64_t h = 0; h < rows_of_dst(shape); h++)
                for (int64_t w = 0; w < (int64_t)shape->w.out; w++)
                    put_small(desc->dtype, tensors->dst,
                              (int64_t)(n * shape->dst[0] + c * shape->dst[1] + h * shape->dst[2] + w * shape->dst[3]),
                              HELD);
}

/* Checks that every element is the formula's, rounded once, and every byte between them is as it was. */
static void check_dst(const struct input *input, const struct shape *shape, const struct tensors *tensors)
{
    const tconv_desc *desc = &input->desc;
    const int64_t out_rows = rows_of_dst(shape), out_w = (int64_t)shape->w.out;
    const size_t size = element_size(desc->dtype);
    char *written = calloc(tensors->dst_bytes + 1, 1);
    int64_t element = 0;
    if (written == NULL)
        fail("no memory for %zu bytes", tensors->dst_bytes);
    for (int64_t n = 0; n < desc->batch; n++)
        for (int64_t c = 0; c < desc->out_channels; c++)
            for (int64_t h = 0; h < out_rows; h++)
                for (int64_t w = 0; w < out_w; w++, element++) {
                    int64_t index =
                        (int64_t)(n * shape->dst[0] + c * shape->dst[1] + h * shape->dst[2] + w * shape->dst[3]);
                    double expected = rounded(desc->dtype, tensors->sums[element]);
                    double got = get(desc->dtype, tensors->dst, index);
                    memset(written + index * (int64_t)size, 1, size);
                    if (!(got == expected) && tensors->is_exact)
                        fail("(%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ") is %g, not %g", n, c, h, w, got,
                             expected);
                }
    for (size_t i = 0; i < tensors->dst_bytes; i++)
        if (!written[i] && (unsigned char)tensors->dst[i] != 0xff)
            fail("byte %zu of dst, between its elements, was written", i);
    free(written);
}

/* Plays the caller's threads: runs all tasks on one, last task first. */
static void last_first(void *context, int32_t count, void (*task)(void *argument, int32_t index), void *argument)
{
    (void)context;
    while (count-- > 0)
        task(argument, count);
}

static void execute(const struct input *input, const struct tensors *tensors, const tconv_options *options)
{
    const tconv_desc *desc = &input->desc;
    const tconv_tensor src = {tensors->src, desc->dtype, TCONV_LOCATION_HOST},
                       weights = {tensors->weights, desc->dtype, TCONV_LOCATION_HOST},
                       bias = {tensors->bias, desc->dtype, TCONV_LOCATION_HOST},
                       dst = {tensors->dst, desc->dtype, TCONV_LOCATION_HOST};
    tconv_plan *plan, *packed = NULL;
    tconv_issue issue;
    size_t bytes;
    tconv_status status = tconv_plan_create(desc, options, &plan, &issue);
    if (status != TCONV_SUCCESS)
        fail("tconv_plan_create: %s", issue.message);
    if (input->packs && tconv_plan_pack_weights(plan, &weights, NULL, &packed, &issue) != TCONV_SUCCESS)
        fail("tconv_plan_pack_weights: %s", issue.message);
    tconv_plan *runs = packed != NULL ? packed : plan;
    tconv_plan_workspace_size(runs, &bytes);
    char *workspace = exactly(bytes + (size_t)input->offset);
    memset(workspace, 0xff, bytes + (size_t)input->offset);
    const tconv_tensor addend = {tensors->addend, desc->dtype, TCONV_LOCATION_HOST};
    const tconv_tensor channels = {tensors->channels, desc->dtype == TCONV_F64 ? TCONV_F64 : TCONV_F32,
                                   TCONV_LOCATION_HOST};
    tconv_operands all = {sizeof all, &src,  packed != NULL ? NULL : &weights, input->has_bias ? &bias : NULL,
                          &dst,       {NULL}};
    for (int i = 0; i < desc->post_count; i++)
        all.post[i] = desc->post[i].kind == TCONV_POST_ADD_TENSOR ? &addend : &channels;
    status = tconv_plan_execute_with(runs, &all, workspace + input->offset, bytes, NULL);
    if (status != TCONV_SUCCESS) {
        tconv_last_issue(&issue);
        fail("tconv_plan_execute: %s", issue.message);
    }
    free(workspace);
    tconv_plan_destroy(packed);
    tconv_plan_destroy(plan);
}

static void execute_ways(const struct input *input, const struct shape *shape)
{
    struct tensors tensors;
    tconv_options options = input->options;
    make_tensors(input, shape, &tensors);
    clear_dst(&input->desc, shape, &tensors);
    execute(input, &tensors, &options);
    check_dst(input, shape, &tensors);
    options.threads = 2;
    if (input->by_callback)
        options.parallel.parallel_for = last_first;
    clear_dst(&input->desc, shape, &tensors);
    execute(input, &tensors, &options);
    check_dst(input, shape, &tensors);
    free(tensors.src);
    free(tensors.weights);
    free(tensors.bias);
    free(tensors.dst);
    free(tensors.sums);
    free(tensors.addend);
    free(tensors.channels);
}

static bool is_small(const tconv_desc *desc, const struct shape *shape, size_t workspace)
{
    const wide size = (wide)element_size(desc->dtype);
    wide bytes =
        (shape->src_extent + shape->dst_extent + shape->addend_extent + shape->weights + desc->out_channels) * size;
    if (bytes > MOST_BYTES || workspace > (64 << 20))
        return false;
    const wide kernel = (wide)rows_of_kernel(desc) * desc->kernel_w;
    const wide taps = kernel * (desc->out_channels / desc->groups);
    const wide tried = rows_of_dst(shape) * shape->w.out * kernel * desc->out_channels * desc->batch;
    return (wide)desc->batch * desc->in_channels * desc->in_d * desc->in_h * desc->in_w * taps <= MOST_PRODUCTS &&
           tried * (desc->in_channels / desc->groups) <= MOST_TRIED;
}

/* -------------------------------------------------------------------------------------------------------------- planning */

/* Whether there is a plan; its workspace goes to *bytes. */
static bool plan_once(const struct input *input, size_t *bytes)
{
    tconv_plan *plan;
    tconv_issue issue;
    char text[2048];
    size_t length;
    tconv_status status = tconv_plan_create(&input->desc, &input->options, &plan, &issue);
    if (status == TCONV_SUCCESS) {
        if (tconv_plan_workspace_size(plan, bytes) != TCONV_SUCCESS ||
            tconv_plan_describe(plan, text, sizeof text, &length) != TCONV_SUCCESS || length >= sizeof text)
            fail("the plan does not describe itself");
        tconv_plan_destroy(plan);
        return true;
    }
    if (status != TCONV_ERROR_OVERFLOW && status != TCONV_ERROR_UNAVAILABLE &&
        !(status == TCONV_ERROR_UNSUPPORTED && input->options.implementation != NULL))
        fail("tconv_plan_create: %s \"%s\"", tconv_status_string(status), issue.message);
    if (plan != NULL || issue.field[0] == '\0' || issue.message[0] == '\0')
        fail("a failure of tconv_plan_create leaves a plan, or says nothing");
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct input input = input_read(data, size);
    struct shape shape;
    tconv_issue issue;
    int64_t out[5];
    size_t workspace = 0;
    input_write(&input, layer_text, sizeof layer_text);
    limit_seconds(PLAN_SECONDS);
    enum verdict verdict = rules_check(&input.desc, &shape);
    tconv_status status = tconv_validate(&input.desc, &issue);
    if (verdict != EITHER && (status == TCONV_SUCCESS) != (verdict == TAKEN))
        fail("tconv_validate: %s \"%s\", by the rules it is %s", tconv_status_string(status),
             status != TCONV_SUCCESS ? issue.message : "", verdict == TAKEN ? "valid" : "not");
    if (status != TCONV_SUCCESS) {
        if ((status != TCONV_ERROR_INVALID_ARGUMENT && status != TCONV_ERROR_OVERFLOW) || issue.field[0] == '\0')
            fail("tconv_validate: %s \"%s\"", tconv_status_string(status), issue.message);
        limit_seconds(0);
        return 0;
    }
    if (tconv_output_shape3d(&input.desc, out, &issue) != TCONV_SUCCESS || out[0] != input.desc.batch ||
        out[1] != input.desc.out_channels || out[2] != shape.d.out || out[3] != shape.h.out || out[4] != shape.w.out)
        fail("the shape of the output is not the formula's");
    bool planned = plan_once(&input, &workspace);
    limit_seconds(INPUT_SECONDS);
    if (planned && is_small(&input.desc, &shape, workspace))
        execute_ways(&input, &shape);
    limit_seconds(0);
    return 0;
}
