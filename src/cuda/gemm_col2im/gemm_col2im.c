/*
 * GEMM, then col2im, on CUDA: layers with more taps, or a longer stride, than an implicit GEMM has phases and tiles for
 * (overlap-add, inverse short-time Fourier transforms, upsampling by hundreds). All pixels are multiplied with all
 * weights, which is a layer with a 1 x 1 kernel whose output channels are output channels and taps, and is computed by
 * whichever other implementation is predicted to be fastest; its outputs, the columns, lie in the workspace in f32.
 * Then each output gathers its own (gather.c). Columns come in chunks of at most 32 MiB, of images, output channels or
 * positions.
 *
 * Many weights over few pixels: a kernel of its own reads weights as they lie (direct.c); or, in f32, the operands are
 * exchanged, where that is predicted to be faster. The weights as they lie are the src of that layer, src is its
 * weights, and execute packs those. Nothing of the many is packed.
 *
 * f32, f16 and bf16; any stride, dilation, padding, slice and alignment; groups of at least 16 input channels. Where an
 * implementation multiplies, 16-bit elements are widened to f32 and multiplied in TF32, which holds them exactly.
 *
 * Numeric order: input channels in the order of the implementation that multiplies, then rows of taps, columns of taps,
 * in strict f32 with compensation; then the bias, what dst holds, and the post-ops, of any kind. It depends on the layer and
 * the device alone.
 */
#include <stdio.h>
#include <string.h>

#include "../../core/checked.h"
#include "../cuda_target.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "../pack/copy.h"
#include "../runtime/guard.h"
#include "plan.h"

_Static_assert(sizeof(gemm_col2im_plan) <= TCONV_CUDA_MAX_OUTER_PLAN, "cuda_finish has room for the plan");

static tconv_status plan_layer(const tconv_layer *layer, void *memory, tconv_planned *planned, tconv_issue *issue)
{
    gemm_col2im_plan *plan = memory;
    tconv_cuda_work work;
    const tconv_status steps = tconv_cuda_check_steps(&layer->problem, issue);
    if (steps != TCONV_SUCCESS)
        return steps;
    memset(&work, 0, sizeof work);
    const char *why = tconv_gemm_col2im_make_plan(layer, planned->limit, plan, &work);
    if (why != NULL)
        return tconv_decline(issue, "%s", why);
    const bool straight = plan->mode == STRAIGHT;
    int64_t packed;
    if (!tconv_checked_mul(tconv_inner_packed_bytes(&plan->products), straight ? plan->channel_chunks : 0, &packed) ||
        !tconv_checked_add(packed, plan->weights_bytes, &packed))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "packed", "the size of the packed weights overflows");
    planned->sizes.packed = (size_t)packed;
    planned->sizes.scratch = (size_t)scratch_before(plan) + plan->products.sizes.scratch;
    planned->sizes.execute_packs = planned->sizes.reads_unpacked = !straight;
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

/* Copies the weights densely, widened where the plan widens. */
static tconv_status copy_weights(const tconv_layer *layer, const gemm_col2im_plan *plan, const void *weights,
                                 void *packed, void *stream, tconv_issue *issue)
{
    tconv_device_guard guard;
    if (!plan->widens)
        return tconv_copy_weights(layer, weights, packed, stream, issue);
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status =
        tconv_gemm_col2im_widen(layer->problem.dtype, weights, packed, layer->problem.weight_extent, stream, issue);
    return tconv_device_leave(&guard, status, issue);
}

/* Packs the weights of each chunk of channels, after all widened ones. Those that are read as they lie are copied. */
static tconv_status pack(const tconv_layer *layer, const void *memory, const void *weights, void *packed, void *stream,
                         tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const gemm_col2im_plan *plan = memory;
    if (plan->weights_bytes > 0) {
        const tconv_status status = copy_weights(layer, plan, weights, packed, stream, issue);
        if (status != TCONV_SUCCESS || plan->mode != STRAIGHT)
            return status;
        weights = packed;
    }
    const int64_t chunk_bytes = tconv_inner_packed_bytes(&plan->products);
    for (int64_t i = 0; i < plan->channel_chunks; i++) {
        const int64_t channel = tconv_cuda_chunk_begin(i, plan->chunk.channels, problem->group_out);
        const float *chunk_weights = (const float *)weights + channel * problem->weight.out;
        char *chunk_packed = (char *)packed + plan->weights_bytes + i * chunk_bytes;
        const tconv_status status = tconv_inner_pack(&plan->products, chunk_weights, chunk_packed, stream, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    return TCONV_SUCCESS;
}

/* A chunk: its first image, output channel and position of src, and the padded outputs along the axis that is cut. The
 * last chunk has images, or channels, of the chunk before: their outputs are there already. */
typedef struct chunk_place {
    int64_t image, channel_chunk, channel, position;
    int64_t images_before, channels_before;
    int begin, end;
} chunk_place;

static chunk_place place_chunk(const tconv_problem *problem, const gemm_col2im_plan *plan, int64_t number)
{
    const tconv_axis *cut = plan->cuts_rows ? &problem->h : &problem->w;
    const chunk_shape *chunk = &plan->chunk;
    const int64_t position_chunk = number % plan->position_chunks;
    const int64_t image_chunk = number / plan->position_chunks % plan->image_chunks;
    const int64_t quotient = position_chunk * chunk->quotients;
    chunk_place place = {0};
    place.channel_chunk = number / plan->position_chunks / plan->image_chunks;
    place.channel = tconv_cuda_chunk_begin(place.channel_chunk, chunk->channels, problem->group_out);
    place.image = tconv_cuda_chunk_begin(image_chunk, chunk->images, problem->batch);
    place.images_before = image_chunk * chunk->images - place.image;
    place.channels_before = place.channel_chunk * chunk->channels - place.channel;
    place.begin = (int)tconv_max(cut->pad, quotient * cut->stride);
    place.end = (int)tconv_min(cut->pad + cut->out, (quotient + chunk->quotients) * cut->stride);
    const int64_t back = chunk->positions - chunk->quotients; /* they reach back over fewer */
    if (plan->position_chunks > 1)
        place.position = tconv_max(0, tconv_min(quotient - back, cut->in - chunk->positions));
    return place;
}

/* Finds src of a chunk, which is put densely first where the products want it so. */
static tconv_status prepare_src(const tconv_layer *layer, const gemm_col2im_plan *plan, const chunk_place *place,
                                const tconv_arguments *arguments, void **src, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t positions = plan->chunk.positions;
    const int64_t first =
        place->image * problem->src.n + place->position * (plan->cuts_rows ? problem->src.h : problem->src.w);
    *src = (char *)arguments->src + first * (int64_t)problem->element_size;
    const bool lies_badly = plan->mode == DIRECT && (uintptr_t)*src % VECTOR_BYTES != 0;
    if (!plan->copies && !lies_badly)
        return TCONV_SUCCESS;
    const dense_copy copy = {
        .from = *src,
        .dense = (char *)arguments->scratch + plan->products_bytes,
        .widens = plan->widens,
        .pitch = plan->mode == DIRECT ? plan->direct.src_pitch : problem->in_channels,
        .strides = problem->src,
        .images = plan->chunk.images,
        .channels = problem->in_channels,
        .rows = plan->cuts_rows ? positions : problem->h.in,
        .columns = plan->cuts_rows ? problem->w.in : positions,
        .order = plan->order,
    };
    *src = copy.dense;
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_gemm_col2im_put_densely(problem->dtype, &copy, arguments->stream, issue);
    return tconv_device_leave(&guard, status, issue);
}

/* Returns the weights of a chunk, which are read as they lie: the caller's, or those that the plan holds. */
static const char *chunk_weights(const tconv_problem *problem, const chunk_place *place,
                                 const tconv_arguments *arguments)
{
    const void *weights = arguments->weights != NULL ? arguments->weights : arguments->packed;
    return (const char *)weights + place->channel * problem->weight.out * (int64_t)problem->element_size;
}

/* Makes src the products' weights, packed in the scratch, and the weights of the chunk their src. */
static tconv_status exchange(const tconv_layer *layer, const gemm_col2im_plan *plan, const chunk_place *place,
                             const tconv_arguments *arguments, tconv_arguments *products, tconv_issue *issue)
{
    char *packed = (char *)arguments->scratch + plan->products_bytes + plan->src_bytes;
    void *matrix = products->src;
    products->src = (char *)(uintptr_t)chunk_weights(&layer->problem, place, arguments); /* which is only read */
    products->packed = packed;
    products->packs = true;
    products->weights = plan->products.sizes.execute_packs ? matrix : NULL;
    if (plan->products.sizes.execute_packs)
        return TCONV_SUCCESS;
    return tconv_inner_pack(&plan->products, matrix, packed, arguments->stream, issue);
}

static bool can_overlap(const tconv_layer *layer)
{
    return tconv_cuda_target_of(&layer->target).compute_capability >= DEPENDENT_LAUNCH_CAPABILITY;
}

/* Returns the bytes, 16 or 4 or an element's, that weights can be copied at once: where they begin, and end, at
 * multiples. */
static int weight_access(const tconv_problem *problem, const direct_shape *shape)
{
    static const int accesses[] = {VECTOR_BYTES, 4};
    const int64_t size = (int64_t)problem->element_size;
    for (int i = 0; i < 2; i++)
        if ((uintptr_t)shape->weights % (uintptr_t)accesses[i] == 0 && shape->weight_pitch * size % accesses[i] == 0 &&
            shape->row_length * size % accesses[i] == 0)
            return accesses[i];
    return (int)size;
}

static tconv_status launch_direct(const tconv_layer *layer, const gemm_col2im_plan *plan, const chunk_place *place,
                                  const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    direct_shape shape = plan->direct;
    void *src;
    tconv_status status = prepare_src(layer, plan, place, arguments, &src, issue);
    if (status != TCONV_SUCCESS)
        return status;
    shape.src = src;
    shape.weights = chunk_weights(problem, place, arguments);
    shape.products = arguments->scratch;
    shape.row_length = (int)(problem->weight.in - place->channel * problem->weight.out);
    shape.weight_access = weight_access(problem, &shape);
    const bool copied = src == (char *)arguments->scratch + plan->products_bytes;
    tconv_device_guard guard;
    status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_gemm_col2im_multiply_directly(layer, &shape, copied && can_overlap(layer), arguments->stream, issue);
    return tconv_device_leave(&guard, status, issue);
}

static tconv_status multiply(const tconv_layer *layer, const gemm_col2im_plan *plan, const chunk_place *place,
                             const tconv_arguments *arguments, bool packs, tconv_issue *issue)
{
    if (plan->mode == DIRECT)
        return launch_direct(layer, plan, place, arguments, issue);
    const int64_t packed_at = plan->weights_bytes + place->channel_chunk * tconv_inner_packed_bytes(&plan->products);
    tconv_arguments products = tconv_inner_arguments(arguments, packed_at, scratch_before(plan));
    products.dst = arguments->scratch;
    products.packs = packs && !plan->copies;
    tconv_status status = prepare_src(layer, plan, place, arguments, &products.src, issue);
    if (status == TCONV_SUCCESS && plan->mode == EXCHANGED)
        status = exchange(layer, plan, place, arguments, &products, issue);
    return status == TCONV_SUCCESS ? tconv_inner_execute(&plan->products, &products, issue) : status;
}

/* Gathers the outputs of a chunk, each of the layer's once. */
static tconv_status gather(const tconv_layer *layer, const gemm_col2im_plan *plan, const chunk_place *place,
                           const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t image = place->image + place->images_before;
    gather_shape out = plan->out;
    gather_axis *cut = plan->cuts_rows ? &out.rows : &out.columns;
    cut->first = (int)place->position;
    cut->begin = place->begin;
    cut->end = place->end;
    out.images -= (int)place->images_before;
    out.channels = divisor_of((int)(plan->chunk.channels - place->channels_before));
    out.first_channel = (int)(place->channel + place->channels_before);
    out.products = (const float *)arguments->scratch + place->images_before * out.image_pitch +
                   place->channels_before * out.out_pitch;
    out.bias = arguments->bias;
    out.dst = (char *)arguments->dst + image * problem->dst.n * (int64_t)problem->element_size;
    out.posts = tconv_cuda_layer_posts(problem, arguments);
    if (out.posts.addend != NULL)
        out.posts.addend =
            (const char *)out.posts.addend + image * out.posts.addend_strides.n * (int64_t)problem->element_size;
    if (plan->position_chunks > 1 ||
        place->images_before + place->channels_before > 0) /* else the tiles are the plan's */
        tconv_gemm_col2im_cut_tiles(&out);
    const bool overlaps = plan->mode == DIRECT && can_overlap(layer);
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_gemm_col2im_gather(layer, &out, overlaps, arguments->stream, issue);
    return tconv_device_leave(&guard, status, issue);
}

static tconv_status execute(const tconv_layer *layer, const void *memory, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const gemm_col2im_plan *plan = memory;
    const int64_t chunks = count_chunks(plan);
    for (int64_t i = 0; i < chunks; i++) {
        const chunk_place place = place_chunk(&layer->problem, plan, i);
        if (place.begin >= place.end) /* all of its outputs are cut off by padding */
            continue;
        const bool packs = arguments->packs && i == 0 && plan->channel_chunks == 1;
        tconv_status status = multiply(layer, plan, &place, arguments, packs, issue);
        if (status == TCONV_SUCCESS)
            status = gather(layer, plan, &place, arguments, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    return TCONV_SUCCESS;
}

static void describe(const tconv_layer *layer, const void *memory, char *text, size_t capacity)
{
    (void)layer;
    const gemm_col2im_plan *plan = memory;
    const direct_shape *direct = &plan->direct;
    char products[256];
    if (plan->mode == DIRECT)
        snprintf(products, sizeof products, "kernel=%s block_tile=%dx%d parts=%d part=%d",
                 direct->by_wgmma ? "wgmma" : "mma", direct->tile_rows, direct->tile_pixels, direct->parts,
                 direct->part_channels);
    else
        tconv_inner_describe(&plan->products, products, sizeof products);
    snprintf(text, capacity, "chunks=%lldx%lldx%lld chunk=%lldx%lldx%lld%s multiplier=%s %s",
             (long long)plan->image_chunks, (long long)plan->channel_chunks, (long long)plan->position_chunks,
             (long long)plan->chunk.images, (long long)plan->chunk.channels, (long long)plan->chunk.positions,
             plan->mode == EXCHANGED ? " exchanged=1" : "",
             plan->mode == DIRECT ? "direct" : plan->products.implementation->name, products);
}

const tconv_implementation tconv_cuda_gemm_col2im = {
    .name = "cuda_gemm_col2im",
    .backend = TCONV_BACKEND_CUDA,
    .dtypes = TCONV_DTYPES_TO_F32,
    .plan_bytes = sizeof(gemm_col2im_plan),
    .plan = plan_layer,
    .pack = pack,
    .execute = execute,
    .describe = describe,
    .accumulates = true,
    .applies_posts = true,
};
