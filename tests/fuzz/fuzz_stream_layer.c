/* Reads the layer of streams from bytes, and plans it. */
#include "fuzz_stream_layer.h"

#include <string.h>

#include "fuzz.h"

int64_t read_byte(struct reader *reader)
{
    if (reader->size == 0)
        return 0;
    reader->size--;
    return *reader->data++;
}

/* Reads a number from 1 to a small one, or rarely to a larger one. */
static int64_t read_number(struct reader *reader, int64_t small, int64_t large)
{
    const int64_t byte = read_byte(reader);
    return byte < 224 ? byte % small + 1 : byte % large + 1;
}

static size_t element_size(tconv_dtype dtype)
{
    return dtype == TCONV_F64 ? 8 : dtype == TCONV_F32 ? 4 : 2;
}

void *exactly(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    fuzz_require(memory != NULL, "no memory for %zu bytes", bytes);
    return memory;
}

void fill(uint64_t *random, tconv_dtype dtype, char *data, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint64_t drawn = *random >> 33;
        const double real = ((double)(drawn & 0xffff) - 32768) / 8192;
        const float single = (float)real;
        /* sign, exponent from -3 to 0, and fraction */
        const uint16_t half = (uint16_t)((drawn & 0x83ff) | (12 + (drawn >> 10 & 3)) << 10);
        const uint16_t brain = (uint16_t)((drawn & 0x807f) | (124 + (drawn >> 10 & 3)) << 7);
        const void *from = dtype == TCONV_F64   ? (const void *)&real
                           : dtype == TCONV_F32 ? (const void *)&single
                           : dtype == TCONV_F16 ? (const void *)&half
                                                : (const void *)&brain;
        memcpy(data + (size_t)i * element_size(dtype), from, element_size(dtype));
    }
}

static void read_posts(struct reader *reader, tconv_desc *desc)
{
    static const tconv_post_kind kinds[] = {
        TCONV_POST_ADD_CHANNEL, TCONV_POST_MUL_CHANNEL, TCONV_POST_LINEAR, TCONV_POST_CLAMP, TCONV_POST_LEAKY_RELU,
        TCONV_POST_SIGMOID,     TCONV_POST_TANH,        TCONV_POST_SILU,   TCONV_POST_GELU,  TCONV_POST_ELU};
    const int64_t count = read_byte(reader);
    desc->post_count = count % 4 == 0 ? (int32_t)(count / 4 % 3) : 0;
    for (int i = 0; i < desc->post_count; i++) {
        tconv_post_op *post = &desc->post[i];
        post->kind = kinds[(size_t)read_byte(reader) % (sizeof kinds / sizeof kinds[0])];
        if (post->kind >= TCONV_POST_LINEAR && post->kind <= TCONV_POST_LEAKY_RELU)
            post->alpha = -0.25;
        if (post->kind == TCONV_POST_LINEAR || post->kind == TCONV_POST_CLAMP)
            post->beta = 1.5;
        if (post->kind == TCONV_POST_ELU)
            post->alpha = 1;
    }
}

/* Reads strides with room between images, and between channels or pixels, for chunks of up to `most` pixels; mostly none. */
static void read_strides(struct reader *reader, const tconv_desc *desc, int64_t channels, int64_t h, int64_t w,
                         int64_t most, int64_t strides[4])
{
    const int64_t byte = read_byte(reader), image = byte / 32;
    const int64_t more = h * w > 1 ? byte / 4 % 8 : 0; /* how far apart pixels lie, one pixel does not say */
    if (byte % 4 != 0)
        return;
    if (desc->layout == TCONV_NHWC) {
        strides[3] = channels + more;
        strides[2] = w == 1 ? strides[3] : w * strides[3];
        strides[1] = 1;
        strides[0] = most * strides[3] + image;
    } else {
        strides[3] = 1;
        strides[2] = w;
        strides[1] = most + more;
        strides[0] = channels * strides[1] + image;
    }
}

static void read_desc(struct reader *reader, tconv_desc *desc)
{
    tconv_desc_init(desc);
    desc->stream_axis = read_byte(reader) % 3 == 0 ? 1 : 2;
    const bool of_rows = desc->stream_axis == 1;
    const int64_t types = read_byte(reader);
    desc->dtype = (tconv_dtype)(types % 4);
    if (types / 4 % 8 == 0)
        desc->carry_dtype = desc->dtype;
    desc->layout = types / 32 % 2 == 0 ? TCONV_NCHW : TCONV_NHWC;
    desc->weight_layout = (tconv_weight_layout)(types / 64 % 3);
    desc->groups = read_byte(reader) % 3 == 0 ? read_number(reader, 4, 12) : 1;
    desc->in_channels = desc->groups * read_number(reader, 5, 250 / desc->groups + 1);
    desc->out_channels = desc->groups * read_number(reader, 5, 40 / desc->groups + 1);
    desc->batch = read_number(reader, 3, 5);
    int64_t *const streamed[] = {of_rows ? &desc->in_h : &desc->in_w, of_rows ? &desc->kernel_h : &desc->kernel_w,
                                 of_rows ? &desc->stride_h : &desc->stride_w,
                                 of_rows ? &desc->dilation_h : &desc->dilation_w};
    int64_t *const other[] = {of_rows ? &desc->in_w : &desc->in_h, of_rows ? &desc->kernel_w : &desc->kernel_h,
                              of_rows ? &desc->stride_w : &desc->stride_h};
    *streamed[0] = read_number(reader, 9, 40);
    *streamed[1] = read_number(reader, 7, 17);
    *streamed[2] = read_number(reader, 5, 10);
    *streamed[3] = read_byte(reader) % 4 == 0 ? read_number(reader, 3, 5) : 1;
    const bool flat = read_byte(reader) % 2 == 0; /* a layer of one dimension */
    *other[0] = flat ? 1 : read_number(reader, 4, 40);
    *other[1] = flat ? 1 : read_number(reader, 3, 5);
    *other[2] = flat ? 1 : read_number(reader, 2, 4);
    if (!flat && read_byte(reader) % 2 == 0)
        *(of_rows ? &desc->pad_left : &desc->pad_top) = (*other[1] - 1) / 2;
    read_posts(reader, desc);
    read_strides(reader, desc, desc->in_channels, desc->in_h, desc->in_w, desc->in_h * desc->in_w, desc->src_strides);
}

/* Writes the layer for people, as the plan says it. */
static bool promises_bits(const tconv_plan *plan, char *text, size_t capacity)
{
    size_t length;
    fuzz_require(tconv_plan_describe(plan, text, capacity, &length) == TCONV_SUCCESS,
                 "the plan does not say what it is");
    return strstr(text, "chunk_invariant=yes") != NULL;
}

static void plan_one(struct layer *layer, const tconv_desc *desc, tconv_plan **plan)
{
    const tconv_tensor weights = {layer->weights, desc->dtype, TCONV_LOCATION_HOST};
    tconv_issue issue;
    fuzz_require(tconv_plan_create(desc, &layer->options, plan, &issue) == TCONV_SUCCESS, "%s", issue.message);
    if (layer->packs) {
        tconv_plan *packed = NULL;
        fuzz_require(tconv_plan_pack_weights(*plan, &weights, NULL, &packed, &issue) == TCONV_SUCCESS, "%s",
                     issue.message);
        tconv_plan_destroy(*plan);
        *plan = packed;
    }
}

bool layer_make(struct layer *layer, struct reader *reader, uint64_t *random)
{
    tconv_desc *desc = &layer->desc;
    tconv_issue issue;
    int64_t shape[4], out[4];
    char text[1200];
    read_desc(reader, desc);
    const int64_t ways = read_byte(reader);
    if (tconv_output_shape(desc, out, &issue) != TCONV_SUCCESS || out[2] < 1 || out[3] < 1)
        return false;
    if (tconv_carry_shape(desc, shape, &issue) != TCONV_SUCCESS)
        return false;
    const int64_t of_flush = shape[2] * shape[3], of_chunk = out[2] * out[3];
    read_strides(reader, desc, desc->out_channels, out[2], out[3], of_flush > of_chunk ? of_flush : of_chunk,
                 desc->dst_strides);
    layer->tail = desc->stream_axis == 1 ? shape[2] : shape[3];
    layer->carry_elements = shape[1] * shape[2] * shape[3];
    layer->size = element_size(desc->dtype);
    layer->carry_size = desc->dtype == TCONV_F64 ? 8 : element_size(desc->carry_dtype);
    tconv_options_init(&layer->options);
    layer->options.backend = TCONV_BACKEND_CPU;
    layer->options.threads = ways % 3 == 0 ? 2 : 1;
    layer->packs = ways / 4 % 4 == 0;
    layer->offset = ways / 16 % 8;
    const int64_t weights = desc->in_channels * desc->out_channels / desc->groups * desc->kernel_h * desc->kernel_w;
    const tconv_dtype of_channels = desc->dtype == TCONV_F64 ? TCONV_F64 : TCONV_F32;
    layer->weights = exactly((size_t)weights * layer->size);
    fill(random, desc->dtype, layer->weights, weights);
    layer->bias = ways % 2 == 0 ? exactly((size_t)desc->out_channels * layer->size) : NULL;
    if (layer->bias != NULL)
        fill(random, desc->dtype, layer->bias, desc->out_channels);
    layer->channels = exactly((size_t)desc->out_channels * element_size(of_channels));
    fill(random, of_channels, layer->channels, desc->out_channels);
    layer->whole = *desc;
    layer->whole.batch = 1;
    *(desc->stream_axis == 1 ? &layer->whole.in_h : &layer->whole.in_w) = MOST_FRAMES;
    memset(layer->whole.src_strides, 0, sizeof layer->whole.src_strides);
    memset(layer->whole.dst_strides, 0, sizeof layer->whole.dst_strides);
    plan_one(layer, desc, &layer->plan);
    plan_one(layer, &layer->whole, &layer->whole_plan);
    layer->keeps_bits = promises_bits(layer->plan, layer->text, sizeof layer->text);
    layer->keeps_bits = promises_bits(layer->whole_plan, text, sizeof text) && layer->keeps_bits;
    return true;
}

void layer_destroy(struct layer *layer)
{
    free(layer->weights);
    free(layer->bias);
    free(layer->channels);
    tconv_plan_destroy(layer->plan);
    tconv_plan_destroy(layer->whole_plan);
}
