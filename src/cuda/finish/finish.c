/*
 * cuda_finish: layers whose outputs are more than sums and a bias, in every dtype and either layout: forward and the
 * gradient of src where the layer accumulates (desc.accumulate), forward where it has post-ops (desc.post).
 *
 * The layer without both is computed by whichever other implementation of the operation is predicted
 * to be fastest, into dst itself where that can hold the sums (post-ops alone, f32 and f64), else into the workspace, and a pass makes outputs of these sums: it adds the bias and what the output holds, and takes the value
 * through the post-ops (pass.h). So the other kernels need to know of neither, each layer has the fastest of them, and
 * there is one rounding to the dtype: sums of f32 and f64 are stored as they are; f16 and bf16, whose kernels round what
 * they store, are widened to f32 and multiplied in TF32, which holds them exactly.
 *
 * In the workspace images come in chunks of at most 32 MiB of sums and what is widened, which are then read from the second-level cache;
 * an image that has more is taken all the same. The last chunk has as many images as the others: it computes some once
 * more, and finishes those that were not finished before.
 *
 * Numeric order: that of the implementation; then the bias, then what was held, then the post-ops.
 */
#include <stdio.h>
#include <string.h>

#include "../../core/checked.h"
#include "../../core/operation.h"
#include "../../core/post.h"
#include "../../core/status.h"
#include "../cuda_backend.h"
#include "../cuda_target.h"
#include "../inner/inner.h"
#include "../model/planned.h"
#include "../runtime/guard.h"
#include "pass.h"

/* Bytes of sums and what is widened: they stay in the L2 of an H200. */
static const int64_t MAX_CHUNK = (int64_t)32 << 20;

typedef struct finish_plan {
    int64_t images, chunks; /* of a chunk; of the layer */
    bool widens;            /* src, or the gradient of dst, and the weights are 16-bit */
    bool in_place;          /* the sums of all images are put into dst, and finished there */
    int64_t weights_bytes;  /* of widened weights, before what the inner layer packs */
    int64_t sums_bytes;     /* of a chunk's sums, where the scratch begins; 0 in place */
    int64_t read_bytes; /* of a chunk's tensor that is read, where it is widened; the inner layer's scratch follows */
    /* A chunk, which neither accumulates nor has post-ops, with sums that lie densely unless in place; its tables are the
     * layer's. */
    tconv_inner_plan inner;
    _Alignas(16) unsigned char inner_bytes[TCONV_CUDA_MAX_OUTER_PLAN];
} finish_plan;

static bool writes_dst(const tconv_problem *problem)
{
    return tconv_is_in(tconv_operation_of(problem).writes, TCONV_ROLE_DST);
}

/* Returns a walk over the layer's dst, or src, without addresses and strides. */
static walk walk_over(const tconv_problem *problem, bool dst, int64_t images)
{
    const int64_t channels = dst ? problem->out_channels : problem->in_channels;
    const int64_t pixels = dst ? problem->h.out * problem->w.out : problem->h.in * problem->w.in;
    const bool planes = problem->layout == TCONV_NCHW;
    return (walk){.images = images,
                  .lines_are_channels = planes,
                  .lines = planes ? channels : pixels,
                  .elements = planes ? pixels : channels};
}

static const tconv_strides *strides_of(const tconv_problem *problem, bool dst)
{
    return dst ? &problem->dst : &problem->src;
}

static int64_t line_stride(const tconv_problem *problem, bool dst)
{
    const tconv_strides *strides = strides_of(problem, dst);
    return problem->layout == TCONV_NCHW ? strides->c : strides->w;
}

/* Returns the images of a chunk. */
static int64_t images_of(const tconv_problem *problem, bool widens)
{
    const bool dst = writes_dst(problem);
    const walk sums = walk_over(problem, dst, 1), read = walk_over(problem, !dst, 1);
    const double size = widens ? sizeof(float) : (double)problem->element_size;
    const double elements =
        (double)sums.lines * (double)sums.elements + (widens ? (double)read.lines * (double)read.elements : 0);
    return tconv_inner_fit(tconv_max(problem->batch, 1), elements * size, (double)MAX_CHUNK);
}

/* Describes a chunk as a layer of its own. */
static tconv_status describe_inner(const tconv_layer *layer, finish_plan *plan, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const bool dst = writes_dst(problem);
    tconv_layer *inner = &plan->inner.layer;
    tconv_desc desc = problem->desc;
    *inner = *layer;
    if (plan->widens) {
        desc.dtype = TCONV_F32;
        inner->target.math = TCONV_MATH_TF32;
    }
    desc.math = inner->target.math;
    desc.accumulate = 0;
    tconv_remove_posts(&desc);
    desc.batch = plan->images;
    if ((dst && !plan->in_place) || plan->widens)
        memset(desc.dst_strides, 0, sizeof desc.dst_strides);
    if (!dst || plan->widens)
        memset(desc.src_strides, 0, sizeof desc.src_strides);
    return tconv_problem_derive(&inner->problem, &desc, issue);
}

/* Admits all but cuda_finish itself. */
static const tconv_implementation *admit(const void *outer, const tconv_inner_plan *inner,
                                         const tconv_implementation *implementation)
{
    (void)outer, (void)inner;
    return implementation == &tconv_cuda_finish ? NULL : implementation;
}

/* Plans the chunk by the implementation that is predicted to be fastest; false where none takes it. */
static bool plan_inner(finish_plan *plan, tconv_cuda_work *work)
{
    tconv_inner_plan *inner = &plan->inner;
    const bool dst = writes_dst(&inner->layer.problem);
    const tconv_inner_search search = {.list = dst ? tconv_cuda_implementations : tconv_cuda_backward_data,
                                       .admit = admit};
    return tconv_inner_choose(inner, &search) &&
           tconv_inner_plan_by(inner, inner->implementation, 0, work).prediction.seconds > 0;
}

/* Returns how many tensors of dst's, or src's, shape the pass reads and writes beside the sums. */
static int count_tensors(const tconv_problem *problem)
{
    return 1 + (problem->desc.accumulate ? 1 : 0) + (tconv_post_addend(&problem->desc) >= 0 ? 1 : 0);
}

/* Turns the work of one chunk into that of all. Widening and finishing are passes. */
static void count_passes(const tconv_problem *problem, const finish_plan *plan, tconv_cuda_work *work)
{
    const double chunks = (double)plan->chunks;
    const double share = (double)problem->element_size / (double)plan->inner.layer.problem.element_size;
    work->rounds *= chunks;
    work->dram_bytes *= chunks;
    /* The first launch is not a pass. */
    work->passes = chunks * (work->passes + (plan->widens ? 3 : 2)) - 1;
    const double sums =
        plan->in_place ? (double)problem->dst_extent * (double)problem->element_size : (double)plan->sums_bytes;
    work->pass_bytes += (1 + count_tensors(problem) * share) * sums + (1 + share) * (double)plan->read_bytes;
    work->pass_bytes *= chunks;
}

/* Lays out the memory of a layer whose chunk is planned. */
static tconv_status count_memory(const tconv_problem *problem, finish_plan *plan, tconv_memory_sizes *sizes,
                                 tconv_issue *issue)
{
    const tconv_problem *inner = &plan->inner.layer.problem;
    const bool dst = writes_dst(problem);
    const int64_t size = (int64_t)inner->element_size;
    int64_t packed, scratch;
    plan->sums_bytes = plan->in_place ? 0 : tconv_inner_aligned((dst ? inner->dst_extent : inner->src_extent) * size);
    plan->read_bytes = plan->widens ? tconv_inner_aligned((dst ? inner->src_extent : inner->dst_extent) * size) : 0;
    plan->weights_bytes = plan->widens ? tconv_inner_aligned(inner->weight_extent * size) : 0;
    if (!tconv_checked_add(plan->weights_bytes, (int64_t)plan->inner.sizes.packed, &packed) ||
        !tconv_checked_add(plan->sums_bytes, plan->read_bytes, &scratch) ||
        !tconv_checked_add(scratch, (int64_t)plan->inner.sizes.scratch, &scratch))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "workspace_size", "the size of the workspace overflows");
    sizes->packed = (size_t)packed;
    sizes->scratch = (size_t)scratch;
    return TCONV_SUCCESS;
}

static tconv_status plan_layer(const tconv_layer *layer, void *bytes, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    finish_plan *plan = bytes;
    tconv_cuda_work work;
    memset(&work, 0, sizeof work);
    if (!problem->desc.accumulate && !tconv_has_posts(problem))
        return tconv_decline(issue, "for layers that accumulate or have post-ops");
    tconv_inner_begin(&plan->inner, plan->inner_bytes, sizeof plan->inner_bytes);
    plan->widens = problem->element_size < sizeof(float);
    plan->in_place = !plan->widens && !problem->desc.accumulate;
    plan->images = plan->in_place ? tconv_max(problem->batch, 1) : images_of(problem, plan->widens);
    plan->chunks = tconv_ceil_div(tconv_max(problem->batch, 1), plan->images);
    tconv_status status = describe_inner(layer, plan, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (!plan_inner(plan, &work))
        return tconv_decline(issue, "no implementation computes the sums");
    status = count_memory(problem, plan, &planned->sizes, issue);
    if (status != TCONV_SUCCESS)
        return status;
    count_passes(problem, plan, &work);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

/* Launches the kernel that widens elements on the layer's device. */
static tconv_status widen(const tconv_layer *layer, const walk *elements, void *stream, tconv_issue *issue)
{
    tconv_device_guard guard;
    const tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_device_leave(&guard, tconv_finish_widen(layer->problem.dtype, elements, stream, issue), issue);
}

static tconv_status pack(const tconv_layer *layer, const void *bytes, const void *weights, void *packed, void *stream,
                         tconv_issue *issue)
{
    const finish_plan *plan = bytes;
    if (plan->widens) {
        const walk elements = {
            .from = weights, .to = packed, .images = 1, .lines = 1, .elements = layer->problem.weight_extent};
        const tconv_status status = widen(layer, &elements, stream, issue);
        if (status != TCONV_SUCCESS)
            return status;
        weights = packed;
    }
    return tconv_inner_pack(&plan->inner, weights, (char *)packed + plan->weights_bytes, stream, issue);
}

/* Returns an image of dst, or src, in the caller's memory. */
static char *image_at(const tconv_problem *problem, bool dst, const tconv_arguments *arguments, int64_t image)
{
    return (char *)(dst ? arguments->dst : arguments->src) +
           image * strides_of(problem, dst)->n * (int64_t)problem->element_size;
}

/* Finds the tensor that the chunk reads, which is widened first where it is of 16 bits. */
static tconv_status prepare_read(const tconv_layer *layer, const finish_plan *plan, int64_t image,
                                 const tconv_arguments *arguments, void **read, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem, *inner = &plan->inner.layer.problem;
    const bool dst = !writes_dst(problem);
    *read = image_at(problem, dst, arguments, image);
    if (!plan->widens)
        return TCONV_SUCCESS;
    walk elements = walk_over(problem, dst, plan->images);
    elements.from = *read;
    elements.from_image = strides_of(problem, dst)->n;
    elements.from_line = line_stride(problem, dst);
    elements.to = *read = (char *)arguments->scratch + plan->sums_bytes;
    elements.to_image = strides_of(inner, dst)->n;
    elements.to_line = line_stride(inner, dst);
    return widen(layer, &elements, arguments->stream, issue);
}

/* Returns the walk from a chunk's sums to its outputs, but those of images that were finished before. */
static walk walk_to_outputs(const tconv_problem *problem, const finish_plan *plan, int64_t image, int64_t before,
                            const tconv_arguments *arguments)
{
    const tconv_problem *inner = &plan->inner.layer.problem;
    const bool dst = writes_dst(problem);
    walk sums = walk_over(problem, dst, plan->images - before);
    sums.from_image = strides_of(inner, dst)->n;
    sums.from_line = line_stride(inner, dst);
    sums.to = image_at(problem, dst, arguments, image + before);
    sums.from = plan->in_place
                    ? (const char *)sums.to
                    : (const char *)arguments->scratch + before * sums.from_image * (int64_t)inner->element_size;
    sums.to_image = strides_of(problem, dst)->n;
    sums.to_line = line_stride(problem, dst);
    sums.bias = arguments->bias;
    return sums;
}

/* Returns the same walk with what is held and what post-ops need; its first image is one of the layer. */
static posts_walk walk_with_posts(const tconv_problem *problem, const walk *sums, int64_t image,
                                  const tconv_arguments *arguments)
{
    const int addend = tconv_post_addend(&problem->desc);
    posts_walk outputs;
    memset(&outputs, 0, sizeof outputs);
    outputs.sums = *sums;
    outputs.holds = problem->desc.accumulate != 0;
    outputs.steps = tconv_cuda_post_steps(problem, arguments->post);
    if (addend >= 0) {
        outputs.addend_image = problem->addend.n;
        outputs.addend_line = problem->layout == TCONV_NCHW ? problem->addend.c : problem->addend.w;
        outputs.addend =
            (const char *)arguments->post[addend] + image * outputs.addend_image * (int64_t)problem->element_size;
    }
    return outputs;
}

/* Launches the pass that makes outputs of a chunk's sums. */
static tconv_status make_outputs(const tconv_layer *layer, const finish_plan *plan, int64_t image, int64_t before,
                                 const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const walk sums = walk_to_outputs(problem, plan, image, before, arguments);
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    const posts_walk outputs = walk_with_posts(problem, &sums, image + before, arguments);
    const bool exact = problem->desc.math != TCONV_MATH_TF32;
    status = tconv_finish_outputs(problem->dtype, exact, &outputs, arguments->stream, issue);
    return tconv_device_leave(&guard, status, issue);
}

static tconv_status execute(const tconv_layer *layer, const void *bytes, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const finish_plan *plan = bytes;
    const bool dst = writes_dst(&layer->problem);
    for (int64_t i = 0; i < plan->chunks; i++) {
        const int64_t image = tconv_cuda_chunk_begin(i, plan->images, layer->problem.batch);
        /* Without weights: they are packed before, also where execute could. */
        tconv_arguments inner =
            tconv_inner_arguments(arguments, plan->weights_bytes, plan->sums_bytes + plan->read_bytes);
        void *read;
        tconv_status status = prepare_read(layer, plan, image, arguments, &read, issue);
        inner.src = dst ? read : arguments->scratch;
        inner.dst = plan->in_place ? arguments->dst : dst ? arguments->scratch : read;
        inner.packs = arguments->packs && i == 0 && !plan->widens;
        if (status == TCONV_SUCCESS)
            status = tconv_inner_execute(&plan->inner, &inner, issue);
        if (status == TCONV_SUCCESS)
            status = make_outputs(layer, plan, image, i * plan->images - image, arguments, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    return TCONV_SUCCESS;
}

static void describe(const tconv_layer *layer, const void *bytes, char *text, size_t capacity)
{
    (void)layer;
    const finish_plan *plan = bytes;
    char inner[512];
    tconv_inner_describe(&plan->inner, inner, sizeof inner);
    snprintf(text, capacity, "chunks=%lld widens=%d%s by=%s %s", (long long)plan->chunks, plan->widens,
             plan->in_place ? " in_place=1" : "", plan->inner.implementation->name, inner);
}

const tconv_implementation tconv_cuda_finish = {.name = "cuda_finish",
                                                .backend = TCONV_BACKEND_CUDA,
                                                .dtypes = TCONV_DTYPES_TO_F64,
                                                .plan_bytes = sizeof(finish_plan),
                                                .plan = plan_layer,
                                                .pack = pack,
                                                .execute = execute,
                                                .describe = describe,
                                                .accumulates = true,
                                                .applies_posts = true};
