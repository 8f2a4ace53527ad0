/*
 * GEMM, then col2im, on CUDA: layers with more taps, or a longer stride, than an implicit GEMM has phases and tiles for
 * (overlap-add, inverse short-time Fourier transforms, upsampling by hundreds). All pixels are multiplied with all
 * weights, which is a layer with a 1 x 1 kernel whose output channels are output channels and taps, and is computed by
 * whichever other implementation is predicted to be fastest; its outputs, the columns, lie in the workspace in f32.
 * Then each output gathers its own (gather.cu). Columns come in chunks of at most 32 MiB, of images, output channels or
 * positions.
 *
 * Many weights over few pixels: a kernel of its own reads weights as they lie (direct.cu); or, in f32, the operands are
 * exchanged, where that is predicted to be faster. The weights as they lie are the src of that layer, src is its
 * weights, and execute packs those. Nothing of the many is packed.
 *
 * f32, f16 and bf16; any stride, dilation, padding, slice and alignment; groups of at least 16 input channels. Where an
 * implementation multiplies, 16-bit elements are widened to f32 and multiplied in TF32, which holds them exactly.
 *
 * Numeric order: input channels in the order of the implementation that multiplies, then rows of taps, columns of taps,
 * in strict f32 with compensation; the bias last. It depends on the layer and the device alone.
 */
#include <cstdio>
#include <cuda_runtime_api.h>

#include "../../core/checked.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "../runtime/launch.h"
#include "plan.h"

namespace tconv::gemm_col2im
{

namespace
{

tconv_status plan_layer(const tconv_layer *layer, void *to, tconv_planned *planned, tconv_issue *issue)
{
    plan *made = static_cast<plan *>(to);
    tconv_cuda_work work = {};
    const char *why = make_plan(layer, planned->limit, made, &work);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    int64_t packed;
    if (!tconv_checked_mul(made->packed_chunk_bytes, made->way == STRAIGHT ? made->channel_chunks : 0, &packed) ||
        !tconv_checked_add(packed, made->weights_bytes, &packed))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "packed", "the size of the packed weights overflows");
    planned->sizes.packed = (size_t)packed;
    planned->sizes.scratch = (size_t)scratch_before(made) + made->sizes.scratch;
    planned->sizes.execute_packs = planned->sizes.reads_unpacked = made->way != STRAIGHT;
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

/* Packs the weights of each chunk of channels, after all widened ones. Those that are read as they lie are copied. */
tconv_status pack(const tconv_layer *layer, const void *from, const void *weights, void *packed, void *stream,
                  tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const plan *made = static_cast<const plan *>(from);
    if (made->weights_bytes > 0) {
        const tconv_status status = on_device(layer->target.device, issue, [&] {
            return copy_dense(problem->dtype, weights, packed, made->widens, problem->weight_extent, stream, issue);
        });
        if (status != TCONV_SUCCESS || made->way != STRAIGHT)
            return status;
        weights = packed;
    }
    for (int64_t i = 0; i < made->channel_chunks; i++) {
        const int64_t channel = tconv_cuda_chunk_begin(i, made->chunk.channels, problem->group_out);
        const tconv_status status = made->by->pack(
            &made->products, made->made, static_cast<const float *>(weights) + channel * problem->weight.out,
            static_cast<char *>(packed) + made->weights_bytes + i * made->packed_chunk_bytes, stream, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    return TCONV_SUCCESS;
}

/* A chunk: its first image, output channel and position of src, and the padded outputs along the axis that is cut. */
struct chunk_place {
    int64_t image, channel_chunk, channel, position;
    int begin, end;
};

chunk_place place_of(const tconv_problem *problem, const plan *made, int64_t number)
{
    const tconv_axis *cut = made->cuts_rows ? &problem->h : &problem->w;
    const int64_t position_chunk = number % made->position_chunks;
    const int64_t image_chunk = number / made->position_chunks % made->image_chunks;
    const int64_t quotient = position_chunk * made->chunk.quotients;
    chunk_place place = {};
    place.channel_chunk = number / made->position_chunks / made->image_chunks;
    place.channel = tconv_cuda_chunk_begin(place.channel_chunk, made->chunk.channels, problem->group_out);
    place.image = tconv_cuda_chunk_begin(image_chunk, made->chunk.images, problem->batch);
    place.begin = (int)tconv_max(cut->pad, quotient * cut->stride);
    place.end = (int)tconv_min(cut->pad + cut->out, (quotient + made->chunk.quotients) * cut->stride);
    const int64_t back = made->chunk.positions - made->chunk.quotients; /* they reach back over fewer */
    if (made->position_chunks > 1)
        place.position = tconv_max(0, tconv_min(quotient - back, cut->in - made->chunk.positions));
    return place;
}

/* Finds src of a chunk, which is put densely first where the products want it so. */
tconv_status prepare_src(const tconv_layer *layer, const plan *made, const chunk_place *place,
                         const tconv_arguments *arguments, void **src, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t at =
        place->image * problem->src.n + place->position * (made->cuts_rows ? problem->src.h : problem->src.w);
    *src = static_cast<char *>(arguments->src) + at * (int64_t)problem->element_size;
    const bool lies_badly = made->way == DIRECT && (uintptr_t)*src % VECTOR_BYTES != 0;
    if (!made->copies && !lies_badly)
        return TCONV_SUCCESS;
    char *to = static_cast<char *>(arguments->scratch) + made->products_bytes;
    const int64_t positions = made->chunk.positions;
    const dense_src dense = {*src,
                             to,
                             made->widens,
                             made->way == DIRECT ? made->direct.src_pitch : problem->in_channels,
                             problem->src,
                             made->chunk.images,
                             problem->in_channels,
                             made->cuts_rows ? positions : problem->h.in,
                             made->cuts_rows ? problem->w.in : positions,
                             made->order};
    *src = to;
    return on_device(layer->target.device, issue,
                     [&] { return put_densely(problem->dtype, &dense, arguments->stream, issue); });
}

/* The weights of a chunk, which are read as they lie: the caller's, or those that the plan holds. */
const char *weights_of(const tconv_problem *problem, const chunk_place *place, const tconv_arguments *arguments)
{
    const void *weights = arguments->weights != NULL ? arguments->weights : arguments->packed;
    return static_cast<const char *>(weights) + place->channel * problem->weight.out * (int64_t)problem->element_size;
}

/* Makes src the products' weights, packed in the scratch, and the weights of the chunk their src. */
tconv_status exchange(const tconv_layer *layer, const plan *made, const chunk_place *place,
                      const tconv_arguments *arguments, tconv_arguments *products, tconv_issue *issue)
{
    char *packed = static_cast<char *>(arguments->scratch) + made->products_bytes + made->src_bytes;
    void *matrix = products->src;
    products->src = const_cast<char *>(weights_of(&layer->problem, place, arguments));
    products->packed = packed;
    products->packs = true;
    products->weights = made->sizes.execute_packs ? matrix : NULL;
    if (made->sizes.execute_packs)
        return TCONV_SUCCESS;
    return made->by->pack(&made->products, made->made, matrix, packed, arguments->stream, issue);
}

bool can_overlap(const tconv_layer *layer)
{
    return layer->target.compute_capability >= DEPENDENT_LAUNCH_CAPABILITY;
}

/* The bytes, 16 or 4 or an element's, that weights can be copied at once: where they begin, and end, at multiples. */
int weight_access_of(const tconv_problem *problem, const direct_shape *shape)
{
    const int64_t size = (int64_t)problem->element_size;
    for (const int bytes : {VECTOR_BYTES, 4})
        if ((uintptr_t)shape->weights % (uintptr_t)bytes == 0 && shape->weight_pitch * size % bytes == 0 &&
            shape->row_length * size % bytes == 0)
            return bytes;
    return (int)size;
}

tconv_status launch_direct(const tconv_layer *layer, const plan *made, const chunk_place *place,
                           const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    direct_shape shape = made->direct;
    void *src;
    const tconv_status status = prepare_src(layer, made, place, arguments, &src, issue);
    if (status != TCONV_SUCCESS)
        return status;
    shape.src = src;
    shape.weights = weights_of(problem, place, arguments);
    shape.products = static_cast<float *>(arguments->scratch);
    shape.row_length = (int)(problem->weight.in - place->channel * problem->weight.out);
    shape.weight_access = weight_access_of(problem, &shape);
    const bool copied = src == static_cast<char *>(arguments->scratch) + made->products_bytes;
    return on_device(layer->target.device, issue, [&] {
        return multiply_directly(layer, &shape, copied && can_overlap(layer), arguments->stream, issue);
    });
}

tconv_status multiply(const tconv_layer *layer, const plan *made, const chunk_place *place,
                      const tconv_arguments *arguments, bool packs, tconv_issue *issue)
{
    if (made->way == DIRECT)
        return launch_direct(layer, made, place, arguments, issue);
    tconv_arguments products = {};
    products.packed = static_cast<const char *>(arguments->packed) + made->weights_bytes +
                      place->channel_chunk * made->packed_chunk_bytes;
    products.dst = arguments->scratch;
    products.scratch = static_cast<char *>(arguments->scratch) + scratch_before(made);
    products.stream = arguments->stream;
    products.packs = packs && !made->copies;
    tconv_status status = prepare_src(layer, made, place, arguments, &products.src, issue);
    if (status == TCONV_SUCCESS && made->way == EXCHANGED)
        status = exchange(layer, made, place, arguments, &products, issue);
    return status == TCONV_SUCCESS ? made->by->execute(&made->products, made->made, &products, issue) : status;
}

tconv_status execute_chunk(const tconv_layer *layer, const plan *made, const chunk_place *place,
                           const tconv_arguments *arguments, bool packs, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_status status = multiply(layer, made, place, arguments, packs, issue);
    if (status != TCONV_SUCCESS)
        return status;
    gather_shape out = made->out;
    gather_axis *cut = made->cuts_rows ? &out.rows : &out.columns;
    cut->first = (int)place->position;
    cut->begin = place->begin;
    cut->end = place->end;
    out.first_channel = (int)place->channel;
    out.products = static_cast<const float *>(arguments->scratch);
    out.bias = arguments->bias;
    out.dst = static_cast<char *>(arguments->dst) + place->image * problem->dst.n * (int64_t)problem->element_size;
    if (made->position_chunks > 1) /* else the tiles are the plan's */
        cut_tiles(&out);
    const bool overlaps = made->way == DIRECT && can_overlap(layer);
    return on_device(layer->target.device, issue,
                     [&] { return gather(layer, &out, overlaps, arguments->stream, issue); });
}

tconv_status execute(const tconv_layer *layer, const void *from, const tconv_arguments *arguments, tconv_issue *issue)
{
    const plan *made = static_cast<const plan *>(from);
    const int64_t chunks = chunks_of(made);
    for (int64_t i = 0; i < chunks; i++) {
        const chunk_place place = place_of(&layer->problem, made, i);
        if (place.begin >= place.end) /* all of its outputs are cut off by padding */
            continue;
        const bool packs = arguments->packs && i == 0 && made->channel_chunks == 1;
        const tconv_status status = execute_chunk(layer, made, &place, arguments, packs, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    return TCONV_SUCCESS;
}

void describe(const tconv_layer *, const void *from, char *text, size_t capacity)
{
    const plan *made = static_cast<const plan *>(from);
    char products[256] = "";
    if (made->way == DIRECT)
        snprintf(products, sizeof products, "kernel=%s block_tile=%dx%d parts=%d part=%d",
                 made->direct.by_wgmma ? "wgmma" : "mma", made->direct.tile_rows, made->direct.tile_pixels,
                 made->direct.parts, made->direct.part_channels);
    else if (made->by->describe != NULL)
        made->by->describe(&made->products, made->made, products, sizeof products);
    snprintf(text, capacity, "chunks=%lldx%lldx%lld chunk=%lldx%lldx%lld%s multiplier=%s %s",
             (long long)made->image_chunks, (long long)made->channel_chunks, (long long)made->position_chunks,
             (long long)made->chunk.images, (long long)made->chunk.channels, (long long)made->chunk.positions,
             made->way == EXCHANGED ? " exchanged=1" : "", made->way == DIRECT ? "direct" : made->by->name, products);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_gemm_col2im = {"cuda_gemm_col2im",
                                                                TCONV_BACKEND_CUDA,
                                                                TCONV_DTYPES_TO_F32,
                                                                sizeof(plan),
                                                                plan_layer,
                                                                pack,
                                                                execute,
                                                                describe,
                                                                false,
                                                                NULL};

} // namespace tconv::gemm_col2im
