/*
 * Bytes become a stream's layer, and steps of many streams: chunks of any length, slots, resets, streams that rest, flushes,
 * and calls that are to be refused. What each stream gave, and its carry, must be in every bit what one step for all of its
 * inputs gives, by another plan, in a batch of one. Refused calls must name a field and change nothing. Tensors are as
 * large as they have to be.
 */
#include <inttypes.h>
#include <string.h>

#include "fuzz.h"
#include "fuzz_stream_layer.h"

enum { MOST_SLOTS = 6, MOST_CALLS = 24 };

/* A stream since it began. */
struct history {
    int64_t frames;
    char *src, *dst; /* [frame][channel][place of the other axis] */
};

struct session {
    struct layer layer;
    int64_t slots;
    char *carry;
    struct history streams[MOST_SLOTS];
    uint64_t random;
};

/* As fuzz_require, with the layer. */
#define require(session, condition, ...)                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s\n", (session)->layer.text);                                                            \
            fuzz_require(false, __VA_ARGS__);                                                                          \
        }                                                                                                              \
    } while (0)

/* ----------------------------------------------------------------------------------------------------------- a tensor */

/* Where the elements of a chunk lie, in elements. */
struct lies {
    int64_t n, c, h, w; /* from one to the next */
    int64_t frame, other, others;
    int64_t extent;
};

/* Of src, or of dst, of a chunk that has so many frames: inputs or outputs. */
static struct lies lies_of(const tconv_desc *desc, bool is_dst, int64_t images, int64_t frames)
{
    const bool of_rows = desc->stream_axis == 1, inside = desc->layout == TCONV_NHWC;
    const int64_t *given = is_dst ? desc->dst_strides : desc->src_strides;
    const int64_t channels = is_dst ? desc->out_channels : desc->in_channels;
    int64_t out[4];
    tconv_output_shape(desc, out, NULL);
    const int64_t others = of_rows ? (is_dst ? out[3] : desc->in_w) : (is_dst ? out[2] : desc->in_h);
    const int64_t h = of_rows ? frames : others, w = of_rows ? others : frames;
    struct lies lies = {.others = others};
    lies.w = !inside ? 1 : given[3] != 0 ? given[3] : channels;
    lies.h = w * lies.w;
    lies.c = inside ? 1 : given[1] != 0 ? given[1] : h * w;
    lies.n = given[0] != 0 ? given[0] : inside ? h * lies.h : channels * lies.c;
    lies.frame = of_rows ? lies.h : lies.w;
    lies.other = of_rows ? lies.w : lies.h;
    lies.extent = (images - 1) * lies.n + (channels - 1) * lies.c + (h - 1) * lies.h + (w - 1) * lies.w + 1;
    return lies;
}

/* Copies an image of a chunk to where a stream's frames lie side by side, or back. */
static void copy_image(char *tensor, const struct lies *lies, int64_t image, char *frames, int64_t count,
                       int64_t channels, size_t size, bool back)
{
    for (int64_t frame = 0; frame < count; frame++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t other = 0; other < lies->others; other++, frames += size) {
                char *at =
                    tensor + (size_t)(image * lies->n + c * lies->c + frame * lies->frame + other * lies->other) * size;
                memcpy(back ? at : frames, back ? frames : at, size);
            }
}

/* ------------------------------------------------------------------------------------------------------------- a call */

/* What a call has beside the layer. */
struct call {
    int64_t images, length, slot_count; /* length 0: a flush */
    const int32_t *slots;
    const uint8_t *reset, *active;
    bool less; /* a byte of the workspace */
};

static tconv_status run(const struct layer *layer, const tconv_plan *plan, const struct call *call, char *src,
                        char *dst, char *carry)
{
    const tconv_dtype dtype = layer->desc.dtype, of_channels = dtype == TCONV_F64 ? TCONV_F64 : TCONV_F32;
    const tconv_tensor tensors[] = {
        {src, dtype, TCONV_LOCATION_HOST},
        {layer->weights, dtype, TCONV_LOCATION_HOST},
        {layer->bias, dtype, TCONV_LOCATION_HOST},
        {dst, dtype, TCONV_LOCATION_HOST},
        {carry, dtype == TCONV_F64 ? TCONV_F64 : layer->desc.carry_dtype, TCONV_LOCATION_HOST},
        {layer->channels, of_channels, TCONV_LOCATION_HOST}};
    tconv_step step;
    size_t bytes = 0;
    tconv_plan_workspace_size(plan, &bytes);
    char *workspace = exactly(bytes + (size_t)layer->offset);
    memset(workspace, 0xff, bytes + (size_t)layer->offset);
    tconv_step_init(&step);
    step.src = &tensors[0];
    step.weights = layer->packs ? NULL : &tensors[1];
    step.bias = layer->bias != NULL ? &tensors[2] : NULL;
    step.dst = &tensors[3];
    step.carry = &tensors[4];
    for (int i = 0; i < layer->desc.post_count; i++)
        step.post[i] = layer->desc.post[i].kind <= TCONV_POST_MUL_CHANNEL ? &tensors[5] : NULL;
    step.batch = call->images;
    step.length = call->length;
    step.slot_count = call->slot_count;
    step.slots = call->slots;
    step.reset = call->reset;
    step.active = call->active;
    step.workspace = workspace + layer->offset;
    step.workspace_size = bytes - (size_t)(call->less ? 1 : 0);
    const tconv_status status = call->length > 0 ? tconv_plan_step(plan, &step) : tconv_plan_flush(plan, &step);
    free(workspace);
    return status;
}

/* Compares what a stream gave, its carry and, of a flush, its last outputs with one step for all of its inputs. */
static void check_stream(const struct session *session, int64_t slot, const char *flushed)
{
    const struct layer *layer = &session->layer;
    const tconv_desc *desc = &layer->whole;
    const struct history *stream = &session->streams[slot];
    const int64_t stride = desc->stream_axis == 1 ? desc->stride_h : desc->stride_w;
    const struct call call = {.images = 1, .length = stream->frames, .slot_count = 1};
    const struct lies src_lies = lies_of(desc, false, 1, stream->frames);
    const struct lies dst_lies = lies_of(desc, true, 1, stream->frames * stride);
    const struct lies tail_lies = lies_of(desc, true, 1, layer->tail);
    const size_t channel_bytes = (size_t)desc->out_channels * (size_t)dst_lies.others * layer->size;
    const size_t bytes = (size_t)(stream->frames * stride) * channel_bytes;
    const size_t carry_bytes = (size_t)layer->carry_elements * layer->carry_size;
    char *src = exactly((size_t)src_lies.extent * layer->size), *dst = exactly(bytes),
         *carry = calloc(1, carry_bytes + 1);
    char *got = exactly(bytes > channel_bytes * (size_t)layer->tail ? bytes : channel_bytes * (size_t)layer->tail);
    fuzz_require(carry != NULL, "no memory for a carry");
    if (stream->frames > 0) {
        copy_image(src, &src_lies, 0, stream->src, stream->frames, desc->in_channels, layer->size, true);
        require(session, run(layer, layer->whole_plan, &call, src, dst, carry) == TCONV_SUCCESS, "the one step fails");
        copy_image(dst, &dst_lies, 0, got, stream->frames * stride, desc->out_channels, layer->size, false);
        require(session, !layer->keeps_bits || memcmp(got, stream->dst, bytes) == 0,
                "slot %" PRId64 ": the outputs of %" PRId64 " frames are others than by one step", slot,
                stream->frames);
    }
    require(session,
            !layer->keeps_bits || memcmp(carry, session->carry + (size_t)slot * carry_bytes, carry_bytes) == 0 ||
                flushed != NULL,
            "slot %" PRId64 ": the carry of %" PRId64 " frames is another than by one step", slot, stream->frames);
    if (flushed != NULL) {
        const struct call flush = {.images = 1, .slot_count = 1};
        char *last = exactly((size_t)tail_lies.extent * layer->size);
        require(session, run(layer, layer->whole_plan, &flush, NULL, last, carry) == TCONV_SUCCESS, "its flush fails");
        copy_image(last, &tail_lies, 0, got, layer->tail, desc->out_channels, layer->size, false);
        require(session, !layer->keeps_bits || memcmp(got, flushed, channel_bytes * (size_t)layer->tail) == 0,
                "slot %" PRId64 ": the flush is another than by one step", slot);
        free(last);
    }
    free(src);
    free(dst);
    free(carry);
    free(got);
}

/* Draws slots, no two alike, and masks; what the call is to do then is valid. */
struct drawn {
    int32_t slots[MOST_SLOTS];
    uint8_t reset[MOST_SLOTS], active[MOST_SLOTS];
    int64_t place[MOST_SLOTS]; /* the slot of each image */
};

static struct call draw_call(struct session *session, struct reader *reader, struct drawn *drawn)
{
    const tconv_desc *desc = &session->layer.desc;
    const int64_t longest = desc->stream_axis == 1 ? desc->in_h : desc->in_w, kinds = read_byte(reader);
    const int64_t most = desc->batch < session->slots ? desc->batch : session->slots;
    const int64_t masks = read_byte(reader), order = read_byte(reader);
    struct call call = {.images = 1 + kinds / 8 % most,
                        .length = session->layer.tail > 0 && kinds % 8 == 0 ? 0 : 1 + read_byte(reader) % longest,
                        .slot_count = session->slots};
    for (int64_t slot = 0; slot < session->slots; slot++)
        drawn->place[slot] = slot;
    if (order % 2 == 1) { /* as many exchanges as the byte has left */
        for (int64_t i = 0, rest = order / 2; i < session->slots && rest > 0; i++, rest /= 3) {
            const int64_t j = (i + rest) % session->slots, slot = drawn->place[i];
            drawn->place[i] = drawn->place[j], drawn->place[j] = slot;
        }
        call.slots = drawn->slots;
    }
    for (int64_t i = 0; i < call.images; i++) {
        drawn->slots[i] = (int32_t)drawn->place[i];
        drawn->reset[i] = (uint8_t)(masks >> i & 1);
        drawn->active[i] = (uint8_t)((masks >> 4 >> i & 1) == 0);
        const bool is_full = session->streams[drawn->place[i]].frames + call.length > MOST_FRAMES;
        drawn->reset[i] = drawn->reset[i] || is_full;
        call.reset = drawn->reset[i] != 0 ? drawn->reset : call.reset;
        call.active = drawn->active[i] == 0 ? drawn->active : call.active;
    }
    if (call.length == 0)
        call.reset = NULL;
    return call;
}

/* Makes a call that has one thing wrong, which must be refused without any effect. */
static void refuse(struct session *session, struct reader *reader, const struct call *good, const struct drawn *drawn,
                   char *src, char *dst, size_t dst_bytes)
{
    const struct layer *layer = &session->layer;
    const tconv_desc *desc = &layer->desc;
    const size_t bytes = (size_t)(session->slots * layer->carry_elements) * layer->carry_size;
    struct call bad = *good;
    int32_t slots[MOST_SLOTS];
    char *carry = exactly(bytes), *before = exactly(dst_bytes);
    tconv_issue issue;
    memcpy(slots, drawn->slots, sizeof slots);
    switch (read_byte(reader) % 6) {
    case 0: bad.length = (desc->stream_axis == 1 ? desc->in_h : desc->in_w) + 1; break;
    case 1: bad.images = desc->batch + 1; break;
    case 2: bad.slot_count = -1; break;
    case 3: slots[0] = (int32_t)session->slots, bad.slots = slots, bad.active = NULL; break;
    case 4: slots[0] = -1, bad.slots = slots, bad.active = NULL; break;
    default:
        slots[0] = slots[bad.images - 1], bad.slots = slots, bad.active = NULL;
        bad.less = bad.images == 1; /* one image has no other's slot */
        break;
    }
    memcpy(carry, session->carry, bytes);
    memcpy(before, dst, dst_bytes);
    const tconv_status status = run(layer, layer->plan, &bad, src, dst, session->carry);
    tconv_last_issue(&issue);
    require(session, status == TCONV_ERROR_INVALID_ARGUMENT && issue.field[0] != '\0',
            "%s \"%s\" in place of a refusal", tconv_status_string(status), issue.message);
    require(session, memcmp(carry, session->carry, bytes) == 0 && memcmp(before, dst, dst_bytes) == 0,
            "a refused call has written: %s", issue.message);
    free(carry);
    free(before);
}

/* Notes what a step took from, and gave to, an image's stream; of a flush, checks it. */
static void note_image(struct session *session, const struct call *call, const struct drawn *drawn, int64_t image,
                       char *src, char *dst)
{
    const struct layer *layer = &session->layer;
    const tconv_desc *desc = &layer->desc;
    const int64_t stride = desc->stream_axis == 1 ? desc->stride_h : desc->stride_w, slot = drawn->place[image];
    const int64_t outputs = call->length > 0 ? call->length * stride : layer->tail;
    const struct lies src_lies = lies_of(desc, false, call->images, call->length > 0 ? call->length : 1);
    const struct lies dst_lies = lies_of(desc, true, call->images, outputs);
    const size_t in_bytes = (size_t)(desc->in_channels * src_lies.others) * layer->size;
    const size_t out_bytes = (size_t)(desc->out_channels * dst_lies.others) * layer->size;
    struct history *stream = &session->streams[slot];
    if (call->length > 0) {
        copy_image(src, &src_lies, image, stream->src + (size_t)stream->frames * in_bytes, call->length,
                   desc->in_channels, layer->size, false);
        copy_image(dst, &dst_lies, image, stream->dst + (size_t)(stream->frames * stride) * out_bytes, outputs,
                   desc->out_channels, layer->size, false);
        stream->frames += call->length;
        return;
    }
    char *flushed = exactly((size_t)outputs * out_bytes);
    copy_image(dst, &dst_lies, image, flushed, outputs, desc->out_channels, layer->size, false);
    check_stream(session, slot, flushed);
    stream->frames = 0;
    free(flushed);
}

static void make_call(struct session *session, struct reader *reader)
{
    const struct layer *layer = &session->layer;
    const tconv_desc *desc = &layer->desc;
    struct drawn drawn;
    memset(&drawn, 0, sizeof drawn);
    const struct call call = draw_call(session, reader, &drawn);
    const int64_t stride = desc->stream_axis == 1 ? desc->stride_h : desc->stride_w;
    const struct lies src_lies = lies_of(desc, false, call.images, call.length > 0 ? call.length : 1);
    const struct lies dst_lies = lies_of(desc, true, call.images, call.length > 0 ? call.length * stride : layer->tail);
    const size_t dst_bytes = (size_t)dst_lies.extent * layer->size;
    char *src = exactly((size_t)src_lies.extent * layer->size), *dst = exactly(dst_bytes);
    fill(&session->random, desc->dtype, src, src_lies.extent);
    memset(dst, 0x55, dst_bytes);
    if (read_byte(reader) % 8 == 7)
        refuse(session, reader, &call, &drawn, src, dst, dst_bytes);
    for (int64_t image = 0; image < call.images; image++)
        if (drawn.active[image] != 0 && call.reset != NULL && drawn.reset[image] != 0) {
            check_stream(session, drawn.place[image], NULL);
            session->streams[drawn.place[image]].frames = 0;
        }
    const tconv_status status = run(layer, layer->plan, &call, src, dst, session->carry);
    tconv_issue issue;
    tconv_last_issue(&issue);
    require(session, status == TCONV_SUCCESS, "a step fails: %s", issue.message);
    for (int64_t image = 0; image < call.images; image++)
        if (drawn.active[image] != 0)
            note_image(session, &call, &drawn, image, src, dst);
    free(src);
    free(dst);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reader reader = {data, size};
    struct session session;
    memset(&session, 0, sizeof session);
    session.random = (uint64_t)read_byte(&reader);
    if (!layer_make(&session.layer, &reader, &session.random))
        return 0;
    const struct layer *layer = &session.layer;
    const tconv_desc *desc = &layer->desc;
    session.slots = 1 + read_byte(&reader) % MOST_SLOTS;
    session.carry = calloc((size_t)(session.slots * layer->carry_elements) + 1, layer->carry_size);
    fuzz_require(session.carry != NULL, "no memory for the carry");
    const struct lies src_lies = lies_of(&layer->whole, false, 1, MOST_FRAMES);
    const int64_t stride = desc->stream_axis == 1 ? desc->stride_h : desc->stride_w;
    const struct lies dst_lies = lies_of(&layer->whole, true, 1, MOST_FRAMES * stride);
    for (int64_t slot = 0; slot < session.slots; slot++) {
        session.streams[slot].src = exactly((size_t)src_lies.extent * layer->size);
        session.streams[slot].dst = exactly((size_t)dst_lies.extent * layer->size);
    }
    for (int call = 0; call < MOST_CALLS && reader.size > 0; call++)
        make_call(&session, &reader);
    for (int64_t slot = 0; slot < session.slots; slot++) {
        check_stream(&session, slot, NULL);
        free(session.streams[slot].src);
        free(session.streams[slot].dst);
    }
    free(session.carry);
    layer_destroy(&session.layer);
    return 0;
}
