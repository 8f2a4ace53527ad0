#include "streams.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/core/post.h"
#include "expect.h"

#define POISON 77 /* what dst holds before a step: no result of a layer that writes all of it */

static tconv_issue issue;

static bool of_rows(const tconv_desc *desc)
{
    return desc->stream_axis == 1;
}

/* -------------------------------------------------------------------------------------------------- numbers of streams */

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    cr_assert_not_null(memory);
    return memory;
}

/* Draws a number that the dtype has, so that every dtype computes with the same ones. */
static double draw(harness_random *random, int most, tconv_dtype dtype)
{
    if (most > 0)
        return (double)harness_random_integer(random, -most, most);
    return harness_element_round(dtype, harness_random_real(random));
}

static double *draw_all(harness_random *random, int64_t count, int most, tconv_dtype dtype)
{
    double *numbers = allocate((size_t)count * sizeof *numbers);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = draw(random, most, dtype);
    return numbers;
}

/* Describes all streams as one call, tails included. */
static tconv_desc describe_whole(const struct streams *streams)
{
    tconv_desc desc = streams->desc;
    const bool rows = of_rows(&desc);
    const int64_t kernel = rows ? desc.kernel_h : desc.kernel_w, stride = rows ? desc.stride_h : desc.stride_w;
    const int64_t span = (rows ? desc.dilation_h : desc.dilation_w) * (kernel - 1) + 1;
    desc.batch = streams->count;
    *(rows ? &desc.in_h : &desc.in_w) = streams->total;
    *(rows ? &desc.output_padding_h : &desc.output_padding_w) = span < stride ? stride - span : 0;
    desc.dtype = TCONV_F64;
    desc.layout = TCONV_NCHW;
    desc.stream_axis = 0;
    desc.carry_dtype = TCONV_F32;
    memset(desc.src_strides, 0, sizeof desc.src_strides);
    memset(desc.dst_strides, 0, sizeof desc.dst_strides);
    memset(desc.addend_strides, 0, sizeof desc.addend_strides);
    return desc;
}

/* Returns what the reference makes of all streams, in double. */
static double *run_whole(const struct streams *streams, const tconv_desc *desc, double *src, double *weights,
                         double *bias)
{
    tconv_options options;
    double *dst = allocate((size_t)streams->whole.dst_extent * sizeof *dst);
    tconv_tensor of[4 + TCONV_MAX_POST_OPS];
    double *const data[4] = {src, weights, bias, dst};
    for (int i = 0; i < 4 + TCONV_MAX_POST_OPS; i++)
        of[i] = (tconv_tensor){i < 4 ? data[i] : streams->post[i - 4], TCONV_F64, TCONV_LOCATION_HOST};
    tconv_operands operands = {sizeof operands, &of[0], &of[1], bias != NULL ? &of[2] : NULL, &of[3], {NULL}};
    for (int i = 0; i < desc->post_count; i++)
        if (streams->post[i] != NULL)
            operands.post[i] = &of[4 + i];
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.implementation = "cpu_reference";
    expect_success(tconv_conv_transpose2d_with(desc, &options, &operands, &issue), issue);
    return dst;
}

static double *absolute(const double *numbers, int64_t count)
{
    double *made = allocate((size_t)count * sizeof *made);
    for (int64_t i = 0; numbers != NULL && i < count; i++)
        made[i] = fabs(numbers[i]);
    return made;
}

struct streams streams_make(const tconv_desc *desc, int64_t count, int64_t total, bool has_bias, int most,
                            uint64_t seed)
{
    struct streams made = {.desc = *desc, .count = count, .total = total};
    harness_random random;
    harness_random_seed(&random, seed);
    tconv_desc whole = describe_whole(&made);
    expect_success(tconv_problem_init(&made.whole, &whole, &issue), issue);
    made.src = draw_all(&random, made.whole.src_extent, most, desc->dtype);
    made.weights = draw_all(&random, made.whole.weight_extent, most, desc->dtype);
    if (has_bias)
        made.bias = draw_all(&random, desc->out_channels, most, desc->dtype);
    for (int i = 0; i < desc->post_count; i++) {
        const int vectors = tconv_post_channel_vectors(desc->post[i].kind);
        if (vectors > 0)
            made.post[i] = draw_all(&random, vectors * desc->out_channels, most, TCONV_F32);
        else if (tconv_post_has_operand(desc->post[i].kind))
            made.post[i] = draw_all(&random, made.whole.dst_extent, most, desc->dtype);
    }
    made.expected = run_whole(&made, &whole, made.src, made.weights, made.bias);
    tconv_remove_posts(&whole);
    double *src = absolute(made.src, made.whole.src_extent),
           *weights = absolute(made.weights, made.whole.weight_extent);
    double *bias = absolute(made.bias, desc->out_channels);
    made.magnitude = run_whole(&made, &whole, src, weights, bias);
    free(src), free(weights), free(bias);
    return made;
}

void streams_release(struct streams *streams)
{
    free(streams->src), free(streams->weights), free(streams->bias), free(streams->expected), free(streams->magnitude);
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        free(streams->post[i]);
}

/* --------------------------------------------------------------------------------------------------------- memory */

/* Memory where the plan runs, with a copy of what the host has. */
static void *place(bool on_device, const void *host, size_t bytes)
{
    if (!on_device) {
        void *memory = allocate(bytes);
        if (host != NULL)
            memcpy(memory, host, bytes);
        return memory;
    }
    void *memory = harness_device_allocate(bytes);
    cr_assert(memory != NULL && (host == NULL || harness_device_copy(memory, host, bytes, NULL)) &&
                  harness_stream_synchronize(NULL),
              "%s", harness_device_error());
    return memory;
}

static void unplace(bool on_device, void *memory)
{
    if (on_device)
        harness_device_release(memory);
    else
        free(memory);
}

/* Places numbers in a dtype; NULL stays NULL. */
static void *place_numbers(bool on_device, const double *numbers, int64_t count, tconv_dtype dtype)
{
    if (numbers == NULL)
        return NULL;
    const size_t bytes = (size_t)count * harness_element_size(dtype);
    void *host = allocate(bytes);
    for (int64_t i = 0; i < count; i++)
        harness_element_set(dtype, host, i, numbers[i]);
    void *placed = place(on_device, host, bytes);
    free(host);
    return placed;
}

/* A tensor of one call: dense or by the desc's strides, and where its elements are among the whole streams'. */
struct chunk {
    int64_t channels, height, width; /* of an image */
    int64_t stride[4], extent;
    void *host, *placed; /* owned */
    size_t bytes;
};

static struct chunk make_chunk(const struct stream_runner *runner, const int64_t given[4], int64_t images,
                               int64_t channels, int64_t height, int64_t width)
{
    struct chunk made = {.channels = channels, .height = height, .width = width};
    int64_t *stride = made.stride;
    if (runner->streams->desc.layout == TCONV_NCHW) {
        stride[3] = 1, stride[2] = width;
        stride[1] = given[1] != 0 ? given[1] : height * width;
        stride[0] = given[0] != 0 ? given[0] : channels * stride[1];
    } else {
        stride[1] = 1;
        stride[3] = given[3] != 0 ? given[3] : channels;
        stride[2] = width * stride[3];
        stride[0] = given[0] != 0 ? given[0] : height * stride[2];
    }
    made.extent =
        (images - 1) * stride[0] + (channels - 1) * stride[1] + (height - 1) * stride[2] + (width - 1) * stride[3] + 1;
    made.bytes = (size_t)made.extent * harness_element_size(runner->streams->desc.dtype);
    made.host = allocate(made.bytes);
    return made;
}

/* What is done with each element of a chunk: `whole` is its number among those of all streams. */
typedef void visit(const struct stream_runner *runner, struct chunk *chunk, double *whole, int64_t at);

static void fill(const struct stream_runner *runner, struct chunk *chunk, double *whole, int64_t at)
{
    harness_element_set(runner->streams->desc.dtype, chunk->host, at, *whole);
}

static void take(const struct stream_runner *runner, struct chunk *chunk, double *whole, int64_t at)
{
    *whole = harness_element_get(runner->streams->desc.dtype, chunk->host, at);
}

/* Visits an image's elements: from `first` of the streamed axis on, of a tensor of height x width planes. */
static void visit_image(const struct stream_runner *runner, struct chunk *chunk, int64_t image, double *whole,
                        int64_t stream, int64_t first, int64_t height, int64_t width, visit *with)
{
    const bool rows = of_rows(&runner->streams->desc);
    for (int64_t c = 0; c < chunk->channels; c++)
        for (int64_t y = 0; y < chunk->height; y++)
            for (int64_t x = 0; x < chunk->width; x++)
                with(runner, chunk,
                     &whole[((stream * chunk->channels + c) * height + y + (rows ? first : 0)) * width + x +
                            (rows ? 0 : first)],
                     image * chunk->stride[0] + c * chunk->stride[1] + y * chunk->stride[2] + x * chunk->stride[3]);
}

/* ---------------------------------------------------------------------------------------------------------- runner */

bool stream_runner_begin(struct stream_runner *runner, const struct streams *streams, const tconv_options *options,
                         int64_t slot_count, bool packed)
{
    const tconv_desc *desc = &streams->desc;
    const tconv_dtype sums = desc->dtype == TCONV_F64 ? TCONV_F64 : TCONV_F32;
    int64_t shape[4];
    *runner = (struct stream_runner){.streams = streams, .packed = packed, .slot_count = slot_count};
    const tconv_status status = tconv_plan_create(desc, options, &runner->plan, &issue);
    if (status == TCONV_ERROR_UNSUPPORTED && options->implementation != NULL)
        return false;
    expect_success(status, issue);
    runner->on_device = strncmp(tconv_plan_implementation(runner->plan), "cuda_", 5) == 0;
    runner->carry_dtype = desc->dtype == TCONV_F64 ? TCONV_F64 : desc->carry_dtype;
    expect_success(tconv_carry_shape(desc, shape, &issue), issue);
    runner->slot_elements = shape[1] * shape[2] * shape[3];
    runner->carry_bytes = (size_t)(slot_count * runner->slot_elements) * harness_element_size(runner->carry_dtype);
    void *zeros = allocate(runner->carry_bytes);
    runner->carry = place(runner->on_device, zeros, runner->carry_bytes);
    free(zeros);
    runner->weights = place_numbers(runner->on_device, streams->weights, streams->whole.weight_extent, desc->dtype);
    runner->bias = place_numbers(runner->on_device, streams->bias, desc->out_channels, desc->dtype);
    for (int i = 0; i < desc->post_count; i++) {
        const int vectors = tconv_post_channel_vectors(desc->post[i].kind);
        if (vectors > 0)
            runner->post[i] = place_numbers(runner->on_device, streams->post[i], vectors * desc->out_channels, sums);
    }
    if (packed) {
        const tconv_tensor weights = {runner->weights, desc->dtype, TCONV_LOCATION_AUTO};
        tconv_plan *other;
        expect_success(tconv_plan_pack_weights(runner->plan, &weights, NULL, &other, &issue), issue);
        tconv_plan_destroy(runner->plan);
        runner->plan = other;
    }
    expect_success(tconv_plan_workspace_size(runner->plan, &runner->workspace_bytes), issue);
    runner->workspace = place(runner->on_device, NULL, runner->workspace_bytes);
    runner->position = allocate((size_t)streams->count * sizeof *runner->position);
    runner->results = allocate((size_t)streams->whole.dst_extent * sizeof *runner->results);
    for (int64_t i = 0; i < streams->whole.dst_extent; i++)
        runner->results[i] = NAN;
    return true;
}

void stream_runner_end(struct stream_runner *runner)
{
    if (runner->plan == NULL)
        return;
    tconv_plan_destroy(runner->plan);
    unplace(runner->on_device, runner->carry);
    unplace(runner->on_device, runner->weights);
    unplace(runner->on_device, runner->bias);
    unplace(runner->on_device, runner->workspace);
    for (int i = 0; i < TCONV_MAX_POST_OPS; i++)
        unplace(runner->on_device, runner->post[i]);
    free(runner->position), free(runner->results);
}

static int64_t stream_of(const struct stream_call *call, int64_t image)
{
    return call->which != NULL ? call->which[image] : image;
}

/* The tensors of a call. */
struct tensors {
    struct chunk src, dst, addend;
    int addend_index; /* -1: there is none */
};

static struct tensors make_tensors(struct stream_runner *runner, const struct stream_call *call, int64_t length,
                                   int64_t outputs, int64_t stride)
{
    const tconv_desc *desc = &runner->streams->desc;
    const tconv_problem *whole = &runner->streams->whole;
    const bool rows = of_rows(desc);
    const int64_t height = rows ? outputs : whole->h.out, width = rows ? whole->w.out : outputs;
    struct tensors made = {.addend_index = tconv_post_addend(desc)};
    if (length > 0)
        made.src = make_chunk(runner, desc->src_strides, call->images, desc->in_channels, rows ? length : desc->in_h,
                              rows ? desc->in_w : length);
    made.dst = make_chunk(runner, desc->dst_strides, call->images, desc->out_channels, height, width);
    for (int64_t i = 0; i < made.dst.extent; i++)
        harness_element_set(desc->dtype, made.dst.host, i, POISON);
    if (made.addend_index >= 0)
        made.addend = make_chunk(runner, desc->addend_strides, call->images, desc->out_channels, height, width);
    for (int64_t image = 0; image < call->images; image++) {
        const int64_t stream = stream_of(call, image), first = runner->position[stream];
        if (length > 0 && first + length <= runner->streams->total)
            visit_image(runner, &made.src, image, runner->streams->src, stream, first, whole->h.in, whole->w.in, fill);
        if (made.addend_index >= 0 && first * stride + outputs <= (rows ? whole->h.out : whole->w.out))
            visit_image(runner, &made.addend, image, runner->streams->post[made.addend_index], stream, first * stride,
                        whole->h.out, whole->w.out, fill);
    }
    if (length > 0)
        made.src.placed = place(runner->on_device, made.src.host, made.src.bytes);
    made.dst.placed = place(runner->on_device, made.dst.host, made.dst.bytes);
    if (made.addend_index >= 0)
        made.addend.placed = place(runner->on_device, made.addend.host, made.addend.bytes);
    return made;
}

static void release_chunk(const struct stream_runner *runner, struct chunk *chunk)
{
    if (chunk->host == NULL)
        return;
    unplace(runner->on_device, chunk->placed);
    free(chunk->host);
}

/* Makes the call, and takes the results. */
static void run_call(struct stream_runner *runner, const struct stream_call *call, bool flushes)
{
    const tconv_desc *desc = &runner->streams->desc;
    const tconv_problem *whole = &runner->streams->whole;
    const bool rows = of_rows(desc), on_device = runner->on_device;
    const int64_t stride = rows ? desc->stride_h : desc->stride_w, length = flushes ? 0 : call->length;
    const int64_t all = rows ? whole->h.out : whole->w.out;
    const int64_t outputs = flushes ? all - runner->streams->total * stride : length * stride;
    if (outputs == 0)
        return;
    struct tensors tensors = make_tensors(runner, call, length, outputs, stride);
    const tconv_dtype sums = desc->dtype == TCONV_F64 ? TCONV_F64 : TCONV_F32;
    const tconv_tensor src = {tensors.src.placed, desc->dtype, TCONV_LOCATION_AUTO},
                       weights = {runner->weights, desc->dtype, TCONV_LOCATION_AUTO},
                       bias = {runner->bias, desc->dtype, TCONV_LOCATION_AUTO},
                       dst = {tensors.dst.placed, desc->dtype, TCONV_LOCATION_AUTO},
                       carry = {runner->carry, runner->carry_dtype, TCONV_LOCATION_AUTO},
                       addend = {tensors.addend.placed, desc->dtype, TCONV_LOCATION_AUTO};
    tconv_tensor operands[TCONV_MAX_POST_OPS];
    tconv_step step;
    tconv_step_init(&step);
    step.src = flushes ? NULL : &src;
    step.weights = runner->packed || flushes ? NULL : &weights;
    step.bias = runner->bias != NULL ? &bias : NULL;
    step.dst = &dst;
    step.carry = runner->slot_elements > 0 ? &carry : NULL;
    for (int i = 0; i < desc->post_count; i++) {
        operands[i] = (tconv_tensor){runner->post[i], sums, TCONV_LOCATION_AUTO};
        step.post[i] = i == tensors.addend_index ? &addend : runner->post[i] != NULL ? &operands[i] : NULL;
    }
    step.batch = call->images;
    step.length = length;
    step.slot_count = runner->slot_count;
    void *arrays[3] = {NULL, NULL, NULL};
    const void *const given[3] = {call->slots, call->reset, call->active};
    for (int i = 0; i < 3; i++)
        if (given[i] != NULL)
            arrays[i] = place(on_device, given[i], (size_t)call->images * (i == 0 ? sizeof *call->slots : 1));
    step.slots = arrays[0], step.reset = arrays[1], step.active = arrays[2];
    step.workspace = runner->workspace;
    step.workspace_size = runner->workspace_bytes;
    const tconv_status status = flushes ? tconv_plan_flush(runner->plan, &step) : tconv_plan_step(runner->plan, &step);
    tconv_last_issue(&issue);
    cr_assert_eq(status, TCONV_SUCCESS, "%s", issue.message);
    if (on_device)
        cr_assert(harness_device_copy(tensors.dst.host, tensors.dst.placed, tensors.dst.bytes, NULL) &&
                      harness_stream_synchronize(NULL),
                  "%s", harness_device_error());
    else
        memcpy(tensors.dst.host, tensors.dst.placed, tensors.dst.bytes);
    for (int64_t image = 0; image < call->images; image++) {
        const int64_t stream = stream_of(call, image);
        if (call->active != NULL && call->active[image] == 0)
            continue;
        visit_image(runner, &tensors.dst, image, runner->results, stream, runner->position[stream] * stride,
                    whole->h.out, whole->w.out, take);
        runner->position[stream] += length;
    }
    for (int i = 0; i < 3; i++)
        unplace(on_device, arrays[i]);
    release_chunk(runner, &tensors.src);
    release_chunk(runner, &tensors.dst);
    release_chunk(runner, &tensors.addend);
}

void stream_step(struct stream_runner *runner, const struct stream_call *call)
{
    run_call(runner, call, false);
}

void stream_flush(struct stream_runner *runner, const struct stream_call *call)
{
    run_call(runner, call, true);
}

void stream_run_all(struct stream_runner *runner, const int64_t *lengths, size_t length_count)
{
    struct stream_call call = {.images = runner->streams->count};
    for (size_t i = 0; runner->position[0] < runner->streams->total; i++) {
        const int64_t left = runner->streams->total - runner->position[0];
        call.length = lengths[i % length_count] < left ? lengths[i % length_count] : left;
        stream_step(runner, &call);
    }
    stream_flush(runner, &call);
}

double *stream_carry(const struct stream_runner *runner)
{
    const int64_t count = runner->slot_count * runner->slot_elements;
    void *host = allocate(runner->carry_bytes);
    double *numbers = allocate((size_t)count * sizeof *numbers);
    if (runner->on_device)
        cr_assert(harness_device_copy(host, runner->carry, runner->carry_bytes, NULL) &&
                  harness_stream_synchronize(NULL));
    else
        memcpy(host, runner->carry, runner->carry_bytes);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = harness_element_get(runner->carry_dtype, host, i);
    free(host);
    return numbers;
}

/* Roundings of a sum that tconv.h grants, of one number of a carry for each frame, and of the output. */
static double tolerance(const struct streams *streams, const struct stream_runner *runner, int64_t index)
{
    const tconv_desc *desc = &streams->desc;
    const double unit = desc->dtype == TCONV_F64 ? 0x1p-53 : 0x1p-24, magnitude = streams->magnitude[index];
    const double carry = runner->carry_dtype == TCONV_BF16 ? 0x1p-9 : runner->carry_dtype == TCONV_F16 ? 0x1p-12 : unit;
    const bool rows = of_rows(desc);
    const int64_t frames = 1 + (rows ? desc->dilation_h * desc->kernel_h / desc->stride_h
                                     : desc->dilation_w * desc->kernel_w / desc->stride_w);
    double numbers = 1; /* Lipschitz constant of the list */
    for (int i = 0; i < desc->post_count; i++)
        numbers *= desc->post[i].kind == TCONV_POST_LINEAR ? fabs(desc->post[i].alpha) : 1;
    return numbers * magnitude * ((runner->on_device ? 160 : 64) * unit + (double)frames * carry) +
           harness_element_half_ulp(desc->dtype, streams->expected[index]) +
           0x1p-24 * (runner->carry_dtype == TCONV_F16);
}

void stream_expect_results(const struct stream_runner *runner, bool exact, const char *what)
{
    const struct streams *streams = runner->streams;
    for (int64_t i = 0; i < streams->whole.dst_extent; i++) {
        const double got = runner->results[i], wanted = streams->expected[i];
        if (exact)
            cr_assert_eq(got, harness_element_round(streams->desc.dtype, wanted), "%s: output %lld is %g, expected %g",
                         what, (long long)i, got, wanted);
        else
            cr_assert(fabs(got - wanted) <= tolerance(streams, runner, i), "%s: output %lld is %.9g, expected %.9g",
                      what, (long long)i, got, wanted);
    }
}
