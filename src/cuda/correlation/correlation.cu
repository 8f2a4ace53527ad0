/*
 * cuda_correlation: the gradient of src on CUDA, every dtype and either layout,
 *
 *     diff_src[n, c, i] = sum over o, k of diff_dst[n, o, stride * i + dilation * k - pad] * weights[c, o, k]
 *
 * as a forward layer of stride 1, the derived layer, computed by whichever of the forward's implementations is predicted
 * to be fastest. Space-to-depth makes its src of the gradient of dst (planes.h): the outputs of a phase, or of a tap, are
 * a dense plane, and planes are input channels. They lie in the workspace, in the layer's layout, in chunks of images and
 * rows of at most 32 MiB (rearrange.cu). With stride 1 the gradient of dst is read as it lies. The derived weights, with
 * their taps backwards, are packed as that implementation packs; they lie behind what it packed.
 *
 * Groups stay groups. Zeros stand for outputs that are not there and, in phases of fewer taps, for weights: they are
 * multiplied in every dtype, so that NaN and Inf go where the header has them for tensor cores.
 *
 * Numeric order: that of the implementation, over (plane, output channel) for input channels. It depends on the layer and
 * the device alone.
 */
#include <cstdio>
#include <cuda_runtime_api.h>

#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "../runtime/guard.h"
#include "plan.h"

namespace tconv::correlation
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
    planned->sizes.scratch = (size_t)made->depth_bytes + made->sizes.scratch;
    model::predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

tconv_status pack(const tconv_layer *layer, const void *from, const void *weights, void *packed, void *stream,
                  tconv_issue *issue)
{
    const plan *made = static_cast<const plan *>(from);
    weight_shape shape = made->weights;
    shape.from = weights;
    shape.to = static_cast<char *>(packed) + made->packed_bytes;
    const tconv_status status =
        on_device(layer->target.device, issue, [&] { return derive_weights(&layer->problem, &shape, stream, issue); });
    if (status != TCONV_SUCCESS)
        return status;
    return made->by->pack(&made->derived, made->made, shape.to, packed, stream, issue);
}

/* Makes the planes of a chunk, from an image and a row of the gradient of src on, in the scratch. */
tconv_status make_planes(const tconv_layer *layer, const plan *made, int64_t image, int64_t row,
                         const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    depth_shape shape = made->depth;
    shape.from = static_cast<const char *>(arguments->dst) + image * problem->dst.n * (int64_t)problem->element_size;
    shape.to = arguments->scratch;
    shape.rows.pad -= (int)(row * shape.rows.stride);
    return on_device(layer->target.device, issue,
                     [&] { return split_planes(problem, &shape, arguments->stream, issue); });
}

tconv_status execute_chunk(const tconv_layer *layer, const plan *made, int64_t image, int64_t row,
                           const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t at = image * problem->src.n + row * problem->src.h;
    tconv_arguments derived = {}; /* without weights: pack packed them, also where execute could */
    derived.src = arguments->dst;
    derived.packed = arguments->packed;
    derived.dst = static_cast<char *>(arguments->src) + at * (int64_t)problem->element_size;
    derived.scratch = static_cast<char *>(arguments->scratch) + made->depth_bytes;
    derived.stream = arguments->stream;
    derived.packs = arguments->packs && made->in_place;
    if (!made->in_place) {
        const tconv_status status = make_planes(layer, made, image, row, arguments, issue);
        if (status != TCONV_SUCCESS)
            return status;
        derived.src = arguments->scratch;
    }
    return made->by->execute(&made->derived, made->made, &derived, issue);
}

/* The first of a chunk's: the last chunk ends where all end. */
int64_t begin_of(int64_t number, int64_t chunk, int64_t all)
{
    return tconv_min(number * chunk, all - chunk);
}

tconv_status execute(const tconv_layer *layer, const void *from, const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const plan *made = static_cast<const plan *>(from);
    for (int64_t i = 0; i < chunks_of(made); i++) {
        const int64_t image = begin_of(i / made->row_chunks, made->images, problem->batch);
        const int64_t row = begin_of(i % made->row_chunks, made->chunk_rows, problem->h.in);
        const tconv_status status = execute_chunk(layer, made, image, row, arguments, issue);
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
    char planes[96] = "in_place=1";
    if (!made->in_place)
        snprintf(planes, sizeof planes, "planes=%dx%d taps=%dx%d chunks=%lldx%lld", made->rows.count,
                 made->columns.count, made->rows.taps, made->columns.taps, (long long)made->image_chunks,
                 (long long)made->row_chunks);
    snprintf(text, capacity, "%s by=%s %s", planes, made->by->name, inner);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_correlation = {"cuda_correlation",
                                                                TCONV_BACKEND_CUDA,
                                                                TCONV_DTYPES_TO_F64,
                                                                sizeof(plan),
                                                                plan_layer,
                                                                pack,
                                                                execute,
                                                                describe,
                                                                false};

} // namespace tconv::correlation
