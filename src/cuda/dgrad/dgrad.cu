/*
 * cuda_dgrad: the gradient of src on CUDA, every dtype and either layout,
 *
 *     diff_src[n, c, i] = sum over o, k of diff_dst[n, o, stride * i + dilation * k - pad] * weights[c, o, k]
 *
 * as a forward layer of stride 1, the derived layer, computed by whichever of the forward's implementations is predicted
 * to be fastest. The outputs of a phase, or of a tap, are a dense plane of the gradient of dst (planes.h). There are
 * three ways to have planes:
 *
 *   in place         planes are phases of the derived layer's src (tconv_layer), which cuda_igemm and cuda_cells sum over.
 *                    Their pixels lie a stride apart, and weights are read as they lie, with the roles of their channels
 *                    exchanged. In NCHW cuda_igemm transposes src to NHWC, in chunks of images of at most 32 MiB; images
 *                    that are larger are transposed here, a window of rows and columns after another, with zeros
 *                    around them. All outputs of images of one pixel are seen as the channels of one pixel.
 *   as it lies       with stride 1 there is one plane.
 *   space-to-depth   makes planes that are input channels. They lie in the workspace, in the layer's layout, in chunks of
 *                    images, rows or columns of at most 32 MiB (rearrange.cu).
 *
 * But in place the weights are derived, with their taps backwards, and packed as that implementation packs; they lie
 * behind what it packed. In place, and in channels_last, cuda_igemm may read them where they lie: no call packs then, but
 * the workspace has room for packed ones, for weights at addresses that TMA does not take.
 *
 * Groups stay groups. Zeros stand for outputs that are not there and, in phases of fewer taps, for weights: they are
 * multiplied in every dtype, so that NaN and Inf go where the header has them for tensor cores.
 *
 * A layer of few elements has its sums cut into parts of (plane, output channel), or in place of output channels, as
 * channel groups, so that there are more tiles; partial sums are f32, and added by a launch behind. In 16 bits it is
 * cuda_igemm in place alone that has such.
 *
 * Numeric order: that of the implementation, over (plane, output channel) for input channels, or in place over planes and
 * output channels as its kernel walks over phases; then parts, in double. It depends on the layer and the device alone.
 */
#include <cstdio>
#include <cuda_runtime_api.h>

#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "../runtime/launch.h"
#include "plan.h"

namespace tconv::dgrad
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
    planned->sizes.packed = (size_t)(made->packed_bytes + made->weights_bytes);
    planned->sizes.scratch = (size_t)scratch_before(made) + made->sizes.scratch;
    planned->sizes.execute_packs = made->source == SPLIT || (is_in_place(made) && made->sizes.execute_packs);
    tconv_cuda_predict(layer, &work, planned);
    if (is_in_place(made) && made->sizes.reads_unpacked)
        planned->prediction.saved = tconv_cuda_packing_seconds(layer);
    return TCONV_SUCCESS;
}

/* Derives the weights, but for planes in place, and has them packed; overlaps: after the planes were made. */
tconv_status pack_derived(const tconv_layer *layer, const plan *made, const void *weights, void *packed, bool overlaps,
                          void *stream, tconv_issue *issue)
{
    if (is_in_place(made))
        return made->by->pack(&made->derived, made->made, weights, packed, stream, issue);
    weight_shape shape = made->weights;
    shape.from = weights;
    shape.to = static_cast<char *>(packed) + made->packed_bytes;
    const tconv_status status = on_device(
        layer->target.device, issue, [&] { return derive_weights(&layer->problem, &shape, overlaps, stream, issue); });
    return status == TCONV_SUCCESS ? made->by->pack(&made->derived, made->made, shape.to, packed, stream, issue)
                                   : status;
}

tconv_status pack(const tconv_layer *layer, const void *made, const void *weights, void *packed, void *stream,
                  tconv_issue *issue)
{
    return pack_derived(layer, static_cast<const plan *>(made), weights, packed, false, stream, issue);
}

/* The first image, row and column of a chunk of the gradient of src. */
struct chunk_place {
    int64_t image, row, column;
};

chunk_place place_of(const tconv_problem *problem, const plan *made, int64_t number)
{
    const int64_t row = number / made->column_chunks, image = row / made->row_chunks;
    return {tconv_cuda_chunk_begin(image, made->images, problem->batch),
            tconv_cuda_chunk_begin(row % made->row_chunks, made->chunk_rows, problem->h.in),
            tconv_cuda_chunk_begin(number % made->column_chunks, made->chunk_columns, problem->w.in)};
}

/* Makes the planes of a chunk of the gradient of dst, from its first image on, in the scratch. */
tconv_status make_planes(const tconv_layer *layer, const plan *made, const chunk_place *place, const void *from,
                         const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    depth_shape shape = made->depth;
    shape.from = from;
    shape.to = arguments->scratch;
    shape.rows.pad -= place->row * shape.rows.stride;
    shape.columns.pad -= place->column * shape.columns.stride;
    return on_device(layer->target.device, issue,
                     [&] { return split_planes(problem, &shape, arguments->stream, issue); });
}

/* Transposes the window of a chunk of the gradient of dst, from its first image on, in the scratch. */
tconv_status transpose_window(const tconv_layer *layer, const plan *made, const chunk_place *place, const void *from,
                              const tconv_arguments *arguments, tconv_issue *issue)
{
    const size_t element_size = layer->problem.element_size;
    const int64_t vector = vector_of(&layer->problem);
    igemm::src_transpose transpose = made->transpose;
    transpose.src = from;
    transpose.to = arguments->scratch;
    transpose.first_row = (int)(place->row * made->rows.stride - made->rows.pad);
    transpose.first_column = (int)(place->column * made->columns.stride - made->columns.pad);
    transpose.vectors = transpose.vectors && transpose.first_column % vector == 0 && (uintptr_t)from % 16 == 0;
    return on_device(layer->target.device, issue,
                     [&] { return igemm::transpose(&transpose, element_size, arguments->stream, issue); });
}

/* Adds the partial sums of a chunk, which lie behind its planes. */
tconv_status add_sums(const tconv_layer *layer, const plan *made, void *dst, const tconv_arguments *arguments,
                      tconv_issue *issue)
{
    sum_shape shape = made->sums;
    shape.from = reinterpret_cast<float *>(static_cast<char *>(arguments->scratch) + made->depth_bytes);
    shape.to = dst;
    const bool overlaps = layer->target.compute_capability >= DEPENDENT_LAUNCH_CAPABILITY;
    return on_device(layer->target.device, issue,
                     [&] { return add_parts(&layer->problem, &shape, overlaps, arguments->stream, issue); });
}

/* weights: to be packed after the chunk's planes were made; NULL where they are packed. */
tconv_status execute_chunk(const tconv_layer *layer, const plan *made, const chunk_place *place, const void *weights,
                           const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_strides *src = &problem->src;
    const int64_t at = place->image * src->n + place->row * src->h + place->column * src->w;
    tconv_arguments derived = {}; /* without weights but IN_PLACE: they are packed before, also where execute could */
    derived.src = static_cast<char *>(arguments->dst) + place->image * problem->dst.n * (int64_t)problem->element_size;
    derived.packed = arguments->packed;
    void *const dst = static_cast<char *>(arguments->src) + at * (int64_t)problem->element_size;
    derived.dst = made->parts > 1 ? static_cast<char *>(arguments->scratch) + made->depth_bytes : dst;
    derived.scratch = static_cast<char *>(arguments->scratch) + scratch_before(made);
    derived.stream = arguments->stream;
    derived.packs = arguments->packs;
    if (is_in_place(made))
        derived.weights = const_cast<void *>(weights);
    if (made->source == TRANSPOSED) {
        const tconv_status status = transpose_window(layer, made, place, derived.src, arguments, issue);
        if (status != TCONV_SUCCESS)
            return status;
        derived.src = arguments->scratch;
        derived.packs = false; /* the launch before is another, and has to end */
    }
    if (made->source == SPLIT) {
        tconv_status status = make_planes(layer, made, place, derived.src, arguments, issue);
        derived.src = arguments->scratch;
        derived.packs = weights != NULL;
        if (status == TCONV_SUCCESS && weights != NULL)
            status =
                pack_derived(layer, made, weights, const_cast<void *>(arguments->packed),
                             layer->target.compute_capability >= DEPENDENT_LAUNCH_CAPABILITY, arguments->stream, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    const tconv_status status = made->by->execute(&made->derived, made->made, &derived, issue);
    return status == TCONV_SUCCESS && made->parts > 1 ? add_sums(layer, made, dst, arguments, issue) : status;
}

tconv_status execute(const tconv_layer *layer, const void *from, const tconv_arguments *arguments, tconv_issue *issue)
{
    const plan *made = static_cast<const plan *>(from);
    for (int64_t i = 0; i < chunks_of(made); i++) {
        const chunk_place place = place_of(&layer->problem, made, i);
        const bool reads = is_in_place(made) && made->sizes.reads_unpacked; /* each chunk the weights as they lie */
        const void *weights = i == 0 || reads ? arguments->weights : NULL;
        const tconv_status status = execute_chunk(layer, made, &place, weights, arguments, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    return TCONV_SUCCESS;
}

void describe(const tconv_layer *, const void *from, char *text, size_t capacity)
{
    const plan *made = static_cast<const plan *>(from);
    char inner[256] = "";
    if (made->by->describe != NULL)
        made->by->describe(&made->derived, made->made, inner, sizeof inner);
    char planes[112] = "src=as_it_lies";
    if (is_in_place(made))
        snprintf(planes, sizeof planes, "src=%s planes=%lldx%lld taps=%lldx%lld chunks=%lld%s",
                 made->source == TRANSPOSED ? "transposed" : "in_place", (long long)made->rows.count,
                 (long long)made->columns.count, (long long)made->rows.taps, (long long)made->columns.taps,
                 (long long)chunks_of(made), made->one_pixel ? " one_pixel=1" : "");
    else if (made->source == SPLIT)
        snprintf(planes, sizeof planes, "src=planes planes=%lldx%lld taps=%lldx%lld chunks=%lldx%lldx%lld",
                 (long long)made->rows.count, (long long)made->columns.count, (long long)made->rows.taps,
                 (long long)made->columns.taps, (long long)made->image_chunks, (long long)made->row_chunks,
                 (long long)made->column_chunks);
    snprintf(text, capacity, "%s parts=%lld by=%s %s", planes, (long long)made->parts, made->by->name, inner);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_dgrad = {
    "cuda_dgrad", TCONV_BACKEND_CUDA, TCONV_DTYPES_TO_F64, sizeof(plan), plan_layer, pack, execute, describe, false,
    NULL};

} // namespace tconv::dgrad
