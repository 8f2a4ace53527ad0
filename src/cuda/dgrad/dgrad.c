/*
 * cuda_dgrad: the gradient of src on CUDA, every dtype and either layout,
 *
 *     diff_src[n, c, i] = sum over o, k of diff_dst[n, o, stride * i + dilation * k - pad] * weights[c, o, k]
 *
 * as a forward layer of stride 1, the inner layer, computed by whichever of the forward's implementations is predicted
 * to be fastest. The outputs of a phase, or of a tap, are a dense plane of the gradient of dst (planes.h). There are
 * three ways to have planes (dgrad_source):
 *
 *   strided          planes are phases of the inner layer's src (tconv_layer), which cuda_igemm and cuda_cells sum over.
 *                    Their pixels lie a stride apart, and weights are read as they lie, with the roles of their channels
 *                    exchanged. In NCHW cuda_igemm transposes src to NHWC, in chunks of images of at most 32 MiB; images
 *                    that are larger are transposed here, a window of rows and columns after another, with zeros
 *                    around them. All outputs of images of one pixel are seen as the channels of one pixel.
 *   native           with stride 1 there is one plane, the gradient of dst itself.
 *   rearranged       space-to-depth makes planes that are input channels. They lie in the workspace, in the layer's layout,
 *                    in chunks of images, rows or columns of at most 32 MiB (rearrange.cu).
 *
 * Unless planes are strided, the inner layer's weights are derived, with their taps backwards, and packed as that
 * implementation packs; they lie behind what it packed. With one plane cuda_depthwise reads the weights backwards itself, and
 * those of a single tap are read as they lie. Strided, and in channels_last, cuda_igemm may read the weights
 * where they lie: no call packs then, but the workspace has room for packed ones, for weights at addresses that TMA
 * does not take.
 *
 * Groups stay groups. Zeros stand for outputs that are not there and, in phases of fewer taps, for weights: they are
 * multiplied in every dtype, so that NaN and Inf go where the header has them for tensor cores.
 *
 * Where columns a stride apart make pixels, whose channels are those of the columns between (space-to-depth by strides alone,
 * core/space_to_depth.h), a strided layer is seen so: fewer planes of more channels.
 *
 * A layer of few elements has its sums cut into parts of (plane, output channel), or strided of output channels or of planes
 * and their taps, as channel groups, so that there are more tiles; partial sums are f32, and added by a launch behind. In 16 bits it is
 * cuda_igemm with a strided src alone that has such. (Where its tiles are large enough, cuda_igemm has the blocks of clusters share
 * out their sums instead, in one launch.)
 *
 * A layer that accumulates has an inner layer that does, in one part and in chunks that share no output.
 *
 * Numeric order: that of the implementation, over (plane, output channel) for input channels, or strided over planes
 * and output channels as its kernel walks over phases; then parts, in double. It depends on the layer and the device
 * alone.
 */
#include <stdio.h>
#include <string.h>

#include "../../core/status.h"
#include "../cuda_target.h"
#include "../model/planned.h"
#include "../runtime/guard.h"
#include "plan.h"

_Static_assert(sizeof(dgrad_plan) <= TCONV_CUDA_MAX_OUTER_PLAN, "cuda_finish has room for the plan");

static tconv_status plan_layer(const tconv_layer *layer, void *bytes, tconv_planned *planned, tconv_issue *issue)
{
    dgrad_plan *plan = bytes;
    tconv_cuda_work work;
    memset(&work, 0, sizeof work);
    const char *why = tconv_dgrad_make_plan(layer, planned->limit, plan, &work);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    const tconv_memory_sizes *inner = &plan->inner.sizes;
    planned->sizes.packed = (size_t)(tconv_inner_packed_bytes(&plan->inner) + plan->weights_bytes);
    planned->sizes.scratch = (size_t)scratch_before(plan) + inner->scratch;
    planned->sizes.execute_packs = plan->source == REARRANGED || (!derives_weights(plan) && inner->execute_packs);
    tconv_cuda_predict(layer, &work, planned);
    if (!derives_weights(plan) && inner->reads_unpacked)
        planned->prediction.saved = tconv_cuda_packing_seconds(layer);
    return TCONV_SUCCESS;
}

/* Returns where the inner layer's weights begin that are the layer's own. */
static const void *first_weight(const tconv_layer *layer, const dgrad_plan *plan, const void *weights)
{
    return weights == NULL ? NULL : (const char *)weights + plan->last_tap * (int64_t)layer->problem.element_size;
}

/* Derives the inner layer's weights, unless they are the layer's own, and has them packed. overlaps: the derivation may begin
 * before the launch ahead has ended, which makes planes. */
static tconv_status pack_inner(const tconv_layer *layer, const dgrad_plan *plan, const void *weights, void *packed,
                               bool overlaps, void *stream, tconv_issue *issue)
{
    if (!derives_weights(plan))
        return tconv_inner_pack(&plan->inner, first_weight(layer, plan, weights), packed, stream, issue);
    weight_shape shape = plan->weights;
    shape.from = weights;
    shape.to = (char *)packed + tconv_inner_packed_bytes(&plan->inner);
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status == TCONV_SUCCESS) {
        status = tconv_dgrad_derive_weights(&layer->problem, &shape, overlaps, stream, issue);
        status = tconv_device_leave(&guard, status, issue);
    }
    return status == TCONV_SUCCESS ? tconv_inner_pack(&plan->inner, shape.to, packed, stream, issue) : status;
}

static tconv_status pack(const tconv_layer *layer, const void *bytes, const void *weights, void *packed, void *stream,
                         tconv_issue *issue)
{
    return pack_inner(layer, bytes, weights, packed, false, stream, issue);
}

/* The first image, row and column of a chunk of the gradient of src. */
typedef struct chunk_place {
    int64_t image, row, column;
} chunk_place;

static chunk_place place_of(const tconv_problem *problem, const dgrad_plan *plan, int64_t number)
{
    const int64_t row = number / plan->column_chunks, image = row / plan->row_chunks;
    return (chunk_place){.image = tconv_cuda_chunk_begin(image, plan->images, problem->batch),
                         .row = tconv_cuda_chunk_begin(row % plan->row_chunks, plan->chunk_rows, problem->h.in),
                         .column =
                             tconv_cuda_chunk_begin(number % plan->column_chunks, plan->chunk_columns, problem->w.in)};
}

/* Makes the planes of a chunk in the scratch. from: the gradient of dst, from the chunk's first image on. */
static tconv_status make_planes(const tconv_layer *layer, const dgrad_plan *plan, const chunk_place *place,
                                const void *from, const tconv_arguments *arguments, tconv_issue *issue)
{
    depth_shape shape = plan->depth;
    shape.from = from;
    shape.to = arguments->scratch;
    shape.rows.pad -= place->row * shape.rows.stride;
    shape.columns.pad -= place->column * shape.columns.stride;
    tconv_device_guard guard;
    const tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_device_leave(&guard, tconv_dgrad_split_planes(&layer->problem, &shape, arguments->stream, issue),
                              issue);
}

/* Transposes the window of a chunk into the scratch. from: the gradient of dst, from the chunk's first image on. */
static tconv_status transpose_window(const tconv_layer *layer, const dgrad_plan *plan, const chunk_place *place,
                                     const void *from, const tconv_arguments *arguments, tconv_issue *issue)
{
    const size_t element_size = layer->problem.element_size;
    const int64_t vector = vector_of(&layer->problem);
    src_transpose transpose = plan->transpose;
    transpose.src = from;
    transpose.to = arguments->scratch;
    transpose.first_row = (int)(place->row * plan->rows.stride - plan->rows.pad);
    transpose.first_column = (int)(place->column * plan->columns.stride - plan->columns.pad);
    transpose.vectors =
        transpose.vectors && transpose.first_column % vector == 0 && (uintptr_t)from % VECTOR_BYTES == 0;
    tconv_device_guard guard;
    const tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_device_leave(&guard, tconv_igemm_transpose(&transpose, element_size, arguments->stream, issue), issue);
}

/* Adds the partial sums of a chunk, which lie behind its planes. */
static tconv_status add_sums(const tconv_layer *layer, const dgrad_plan *plan, void *dst,
                             const tconv_arguments *arguments, tconv_issue *issue)
{
    const bool overlaps = tconv_cuda_target_of(&layer->target).compute_capability >= DEPENDENT_LAUNCH_CAPABILITY;
    sum_shape shape = plan->sums;
    const void *parts = (const char *)arguments->scratch + plan->depth_bytes;
    shape.from = parts;
    shape.to = dst;
    tconv_device_guard guard;
    const tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_device_leave(
        &guard, tconv_dgrad_add_parts(&layer->problem, &shape, overlaps, arguments->stream, issue), issue);
}

/* Makes the src of the inner layer from inner->src, the gradient of dst from the chunk's first image on, unless it is
 * that one itself. weights: to be packed after the planes are made; NULL: they are packed. */
static tconv_status prepare_src(const tconv_layer *layer, const dgrad_plan *plan, const chunk_place *place,
                                const void *weights, const tconv_arguments *arguments, tconv_arguments *inner,
                                tconv_issue *issue)
{
    if (plan->source == TRANSPOSED) {
        const tconv_status status = transpose_window(layer, plan, place, inner->src, arguments, issue);
        inner->src = arguments->scratch;
        inner->packs = false; /* the launch before is another, and has to end */
        return status;
    }
    if (plan->source == REARRANGED) {
        const bool overlaps = tconv_cuda_target_of(&layer->target).compute_capability >= DEPENDENT_LAUNCH_CAPABILITY;
        const tconv_status status = make_planes(layer, plan, place, inner->src, arguments, issue);
        inner->src = arguments->scratch;
        inner->packs = weights != NULL;
        if (status != TCONV_SUCCESS || weights == NULL)
            return status;
        return pack_inner(layer, plan, weights, (void *)arguments->packed, overlaps, arguments->stream, issue);
    }
    return TCONV_SUCCESS;
}

/* weights: to be packed after the chunk's planes were made; NULL: they are packed. */
static tconv_status execute_chunk(const tconv_layer *layer, const dgrad_plan *plan, const chunk_place *place,
                                  const void *weights, const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_strides *src = &problem->src;
    const int64_t first = place->image * src->n + place->row * src->h + place->column * src->w;
    void *const dst = (char *)arguments->src + first * (int64_t)problem->element_size;
    /* Without weights, unless they are the layer's own: they are packed before, also where execute could. */
    tconv_arguments inner = tconv_inner_arguments(arguments, 0, scratch_before(plan));
    inner.src = (char *)arguments->dst + place->image * problem->dst.n * (int64_t)problem->element_size;
    inner.dst = plan->parts > 1 ? (char *)arguments->scratch + plan->depth_bytes : dst;
    inner.packs = arguments->packs;
    if (!derives_weights(plan))
        inner.weights = (void *)first_weight(layer, plan, weights);
    tconv_status status = prepare_src(layer, plan, place, weights, arguments, &inner, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_inner_execute(&plan->inner, &inner, issue);
    return status == TCONV_SUCCESS && plan->parts > 1 ? add_sums(layer, plan, dst, arguments, issue) : status;
}

static tconv_status execute(const tconv_layer *layer, const void *bytes, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const dgrad_plan *plan = bytes;
    for (int64_t i = 0; i < chunks_of(plan); i++) {
        const chunk_place place = place_of(&layer->problem, plan, i);
        const bool reads =
            !derives_weights(plan) && plan->inner.sizes.reads_unpacked; /* each chunk the weights as they lie */
        const void *weights = i == 0 || reads ? arguments->weights : NULL;
        const tconv_status status = execute_chunk(layer, plan, &place, weights, arguments, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    return TCONV_SUCCESS;
}

static void describe(const tconv_layer *layer, const void *bytes, char *text, size_t capacity)
{
    (void)layer;
    const dgrad_plan *plan = bytes;
    char inner[256], planes[112] = "src=as_it_lies";
    tconv_inner_describe(&plan->inner, inner, sizeof inner);
    if (is_strided(plan))
        snprintf(planes, sizeof planes, "src=%s planes=%lldx%lld taps=%lldx%lld chunks=%lld%s%s",
                 plan->source == TRANSPOSED ? "transposed" : "in_place", (long long)plan->rows.count,
                 (long long)plan->columns.count, (long long)plan->rows.taps, (long long)plan->columns.taps,
                 (long long)chunks_of(plan),
                 plan->one_pixel  ? " one_pixel=1"
                 : plan->to_depth ? " to_depth=1"
                                  : "",
                 plan->of_planes ? " of_planes=1" : "");
    else if (plan->source == REARRANGED)
        snprintf(planes, sizeof planes, "src=planes planes=%lldx%lld taps=%lldx%lld chunks=%lldx%lldx%lld",
                 (long long)plan->rows.count, (long long)plan->columns.count, (long long)plan->rows.taps,
                 (long long)plan->columns.taps, (long long)plan->image_chunks, (long long)plan->row_chunks,
                 (long long)plan->column_chunks);
    snprintf(text, capacity, "%s parts=%lld by=%s %s", planes, (long long)plan->parts, plan->inner.implementation->name,
             inner);
}

const tconv_implementation tconv_cuda_dgrad = {.name = "cuda_dgrad",
                                               .backend = TCONV_BACKEND_CUDA,
                                               .dtypes = TCONV_DTYPES_TO_F64,
                                               .plan_bytes = sizeof(dgrad_plan),
                                               .plan = plan_layer,
                                               .pack = pack,
                                               .execute = execute,
                                               .describe = describe,
                                               .accumulates = true,
                                               .sums_planes = true,
                                               .takes_volumes = true};
