/*
 * cuda_carry: streams (tconv.h, A STREAM OF FRAMES), every layer, in every dtype and either layout, on any device.
 *
 * 1. The pixels of frames become rows of a matrix of channels (stage). f16 and bf16 are widened to f32, and their weights too.
 * 2. A layer of 1 x 1 images, whose output channels are the output channels times the taps, multiplies each pixel by all
 *    weights, as they lie: the inner layer, which another implementation computes. f16 and bf16 are multiplied in TF32, which
 *    holds them exactly.
 * 3. Each output adds its products to what the carry holds of it, oldest frame first, and takes its bias and the post-ops; a
 *    tail goes back to the carry (fold).
 *
 * Where groups have few input channels, depthwise layers above all, the third launch is the only one: it forms each product
 * where it adds it, from src and weights as they lie, and there is neither inner layer nor workspace.
 *
 * The plan has the inner layer for one or two numbers of pixels, its rungs: a call takes the first rung that has room for
 * its pixels, or the last one several times, frame after frame as steps would. Rows without a pixel are zeros. So no length
 * is planned, and what is queued depends on the length and the batch alone: slots, reset and active are read by the kernel.
 *
 * Numeric order: each product is summed over input channels by the inner implementation, or one by one; an output begins with its carry, or
 * zero, and adds its products by rising frames and, of a frame, by rising pixels; then the bias, then post-ops. A pixel is an
 * image of the inner layer. So where one implementation computes all rungs, and gives each image the bits that it has alone
 * (batch_invariant), no cut of a stream changes a bit (chunk_invariant). Such an implementation is taken where it is about
 * as fast as any; others choose their order of summation by the number of images. A carry of 16 bits is rounded after each
 * pass, of which a long step may have several.
 */
#include <stdio.h>
#include <string.h>

#include "../../core/checked.h"
#include "../../core/post.h"
#include "../../core/stream.h"
#include "../cuda_target.h"
#include "../finish/pass.h"
#include "../hardware.h"
#include "../pack/copy.h"
#include "../runtime/guard.h"
#include "plan.h"

enum { PLACES_OF_THREAD = 8 }; /* of a residue: more are several threads' */

static int64_t taps_of(const tconv_problem *problem)
{
    return problem->h.kernel * problem->w.kernel;
}

/* --------------------------------------------------------------------------------------------------------- packing */

/* Packs the weights of one rung, or of all (NULL), after they are widened. */
static tconv_status pack_rungs(const tconv_layer *layer, const carry_plan *plan, const rung *one, const void *weights,
                               void *packed, void *stream, tconv_issue *issue)
{
    tconv_status status = TCONV_SUCCESS;
    if (plan->widens) {
        const walk elements = {
            .from = weights, .to = packed, .images = 1, .lines = 1, .elements = layer->problem.weight_extent};
        tconv_device_guard guard;
        status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
        if (status != TCONV_SUCCESS)
            return status;
        status = tconv_finish_widen(layer->problem.dtype, &elements, stream, issue);
        status = tconv_device_leave(&guard, status, issue);
        weights = packed;
    }
    for (int i = 0; i < plan->rungs && status == TCONV_SUCCESS; i++)
        if (one == NULL || one == &plan->of[i])
            status =
                tconv_inner_pack(&plan->of[i].inner, weights, (char *)packed + plan->of[i].packed_at, stream, issue);
    return status;
}

static tconv_status pack(const tconv_layer *layer, const void *bytes, const void *weights, void *packed, void *stream,
                         tconv_issue *issue)
{
    if (((const carry_plan *)bytes)->rungs == 0)
        return tconv_copy_weights(layer, weights, packed, stream, issue);
    return pack_rungs(layer, bytes, NULL, weights, packed, stream, issue);
}

/* ------------------------------------------------------------------------------------------------------- executing */

/* A pass: frames [frame, frame + frames) of images [image, image + images). */
typedef struct pass {
    int64_t image, images, frame, frames;
} pass;

static frame_strides strides_along(const tconv_problem *problem, const tconv_strides *of)
{
    const bool of_rows = problem->desc.stream_axis == TCONV_STREAM_OF_ROWS;
    return (frame_strides){
        .image = of->n, .channel = of->c, .frame = of_rows ? of->h : of->w, .other = of_rows ? of->w : of->h};
}

/* Returns the address of an element, `place` along the streamed axis, of an image; NULL stays NULL. */
static void *element_at(const void *tensor, const frame_strides *strides, int64_t image, int64_t place, size_t size)
{
    if (tensor == NULL)
        return NULL;
    return (char *)(uintptr_t)tensor + (image * strides->image + place * strides->frame) * (int64_t)size;
}

static tconv_status stage_pixels(const rung *by, const pass *now, const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = arguments->step->problem;
    const frame_strides strides = strides_along(problem, &problem->src);
    const stage pixels = {.src = element_at(arguments->src, &strides, now->image, now->frame, problem->element_size),
                          .pixels = arguments->scratch,
                          .strides = strides,
                          .images = now->images,
                          .frames = now->frames,
                          .others = tconv_unstreamed_axis(problem)->in,
                          .channels = problem->in_channels,
                          .rows = by->pixels};
    return tconv_carry_stage(problem->dtype, &pixels, arguments->stream, issue);
}

/* Describes what products are formed of. */
static void describe_factors(const tconv_problem *problem, const tconv_arguments *arguments, fold *outputs)
{
    const bool of_rows = problem->desc.stream_axis == TCONV_STREAM_OF_ROWS;
    outputs->src = arguments->src;
    outputs->src_strides = strides_along(problem, &problem->src);
    outputs->weights = arguments->weights != NULL ? arguments->weights : arguments->packed;
    outputs->weight_in = problem->weight.in, outputs->channel = problem->weight.out;
    outputs->tap = of_rows ? problem->weight.h : problem->weight.w;
    outputs->other_tap = of_rows ? problem->weight.w : problem->weight.h;
}

/* Describes where products lie: a pixel's are channels of the inner layer. */
static void describe_products(const tconv_problem *problem, const carry_plan *plan, const tconv_arguments *arguments,
                              fold *outputs)
{
    const bool of_rows = problem->desc.stream_axis == TCONV_STREAM_OF_ROWS;
    outputs->products = (const char *)arguments->scratch + plan->staged_bytes;
    const bool taps_inside = problem->desc.weight_layout == TCONV_WEIGHT_IOHW;
    const int64_t column = taps_inside ? 1 : problem->group_out, row = problem->w.kernel * column;
    outputs->pixel = problem->out_channels * taps_of(problem);
    outputs->group = problem->group_out * taps_of(problem);
    outputs->channel = taps_inside ? taps_of(problem) : 1;
    outputs->tap = of_rows ? row : column;
    outputs->other_tap = of_rows ? column : row;
}

/* Describes outputs and carry of a pass, or of a flush. */
static fold describe_fold(const tconv_problem *problem, const carry_plan *plan, const pass *now,
                          const tconv_arguments *arguments)
{
    const tconv_step_arguments *step = arguments->step;
    const tconv_axis *axis = tconv_streamed_axis(problem), *other = tconv_unstreamed_axis(problem);
    const bool of_rows = problem->desc.stream_axis == TCONV_STREAM_OF_ROWS;
    const int addend = tconv_post_addend(&problem->desc);
    const int64_t first = now->frame * axis->stride;
    fold outputs;
    memset(&outputs, 0, sizeof outputs);
    outputs.bias = arguments->bias;
    outputs.carry = step->carry;
    outputs.slots = step->slots != NULL ? step->slots + now->image : NULL;
    outputs.reset = step->reset != NULL && now->frame == 0 ? step->reset + now->image : NULL;
    outputs.active = step->active != NULL ? step->active + now->image : NULL;
    outputs.first_image = now->image;
    outputs.slot_count = step->slot_count;
    outputs.images = now->images, outputs.frames = now->frames, outputs.channels = problem->out_channels;
    outputs.tail = problem->tail;
    outputs.step = problem->flushes ? problem->tail : axis->stride;
    outputs.given = problem->flushes ? problem->tail : now->frames * axis->stride;
    outputs.part = tconv_max(plan->rungs > 0 ? PLACES_OF_THREAD : 1, tconv_ceil_div(outputs.tail, outputs.step));
    outputs.parts = tconv_ceil_div(outputs.given / outputs.step, outputs.part);
    outputs.stride = axis->stride, outputs.dilation = axis->dilation, outputs.kernel = axis->kernel;
    outputs.other = (fold_axis){other->in, other->out, other->kernel, other->stride, other->dilation, other->pad};
    outputs.group_in = problem->group_in, outputs.group_out = problem->group_out;
    if (plan->rungs > 0)
        describe_products(problem, plan, arguments, &outputs);
    else
        describe_factors(problem, arguments, &outputs);
    outputs.dst_strides = strides_along(problem, &problem->dst);
    outputs.dst = element_at(arguments->dst, &outputs.dst_strides, now->image, first, problem->element_size);
    if (addend >= 0) {
        outputs.addend_strides = strides_along(problem, &problem->addend);
        outputs.addend =
            element_at(arguments->post[addend], &outputs.addend_strides, now->image, first, problem->element_size);
    }
    outputs.carry_strides.frame = of_rows ? other->out : 1;
    outputs.carry_strides.other = of_rows ? 1 : outputs.tail;
    outputs.carry_strides.channel = outputs.tail * other->out;
    outputs.carry_strides.image = outputs.channels * outputs.carry_strides.channel;
    outputs.narrow_carry = tconv_carry_is_narrow(problem);
    outputs.order = problem->layout == TCONV_NHWC ? CHANNELS_INSIDE
                    : of_rows                     ? OTHERS_INSIDE
                    : plan->rungs > 0             ? RESIDUES_INSIDE
                                                  : PARTS_INSIDE;
    outputs.steps = tconv_cuda_post_steps(problem, arguments->post);
    return outputs;
}

/* Runs one of the passes on the layer's device. */
static tconv_status fold_pass(const tconv_layer *layer, const carry_plan *plan, const pass *now,
                              const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = arguments->step->problem;
    const fold outputs = describe_fold(problem, plan, now, arguments);
    const bool overlaps =
        plan->rungs == 0 && tconv_cuda_target_of(&layer->target).compute_capability >= DEPENDENT_LAUNCH_CAPABILITY;
    return tconv_carry_fold(problem->dtype, layer->target.math != TCONV_MATH_TF32, overlaps, &outputs,
                            arguments->stream, issue);
}

/* Multiplies the pixels that are staged, with the weights packed: by this call where `packs`, just before. */
static tconv_status multiply(const carry_plan *plan, const rung *by, const tconv_arguments *arguments, bool packs,
                             tconv_issue *issue)
{
    tconv_arguments inner = tconv_inner_arguments(arguments, by->packed_at, plan->staged_bytes + plan->products_bytes);
    inner.src = arguments->scratch;
    inner.dst = (char *)arguments->scratch + plan->staged_bytes;
    inner.packs = packs && !plan->widens;
    return tconv_inner_execute(&by->inner, &inner, issue);
}

/* Runs a pass: what it queues depends on its images and frames alone. */
static tconv_status run_pass(const tconv_layer *layer, const carry_plan *plan, const rung *by, const pass *now,
                             bool packs, const tconv_arguments *arguments, tconv_issue *issue)
{
    tconv_device_guard guard;
    const int device = tconv_cuda_target_of(&layer->target).device;
    tconv_status status = tconv_device_enter(&guard, device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = stage_pixels(by, now, arguments, issue);
    if (status == TCONV_SUCCESS && packs)
        status = pack_rungs(layer, plan, by, arguments->weights, (void *)(uintptr_t)arguments->packed,
                            arguments->stream, issue);
    if (status == TCONV_SUCCESS)
        status = multiply(plan, by, arguments, packs, issue);
    if (status == TCONV_SUCCESS)
        status = fold_pass(layer, plan, now, arguments, issue);
    return tconv_device_leave(&guard, status, issue);
}

/* Runs the one launch of a flush, or of a step that forms its products. */
static tconv_status fold_all(const tconv_layer *layer, const carry_plan *plan, const tconv_arguments *arguments,
                             tconv_issue *issue)
{
    const tconv_problem *problem = arguments->step->problem;
    const pass all = {.images = problem->batch, .frames = tconv_streamed_axis(problem)->in};
    tconv_device_guard guard;
    const tconv_status status = tconv_device_enter(&guard, tconv_cuda_target_of(&layer->target).device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    return tconv_device_leave(&guard, fold_pass(layer, plan, &all, arguments, issue), issue);
}

static tconv_status execute(const tconv_layer *layer, const void *bytes, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const carry_plan *plan = bytes;
    const tconv_problem *problem = arguments->step->problem;
    const int64_t others = tconv_unstreamed_axis(problem)->in, frames = tconv_streamed_axis(problem)->in;
    bool packs = arguments->weights != NULL;
    if (problem->flushes || plan->rungs == 0)
        return fold_all(layer, plan, arguments, issue);
    const rung *by = &plan->of[0];
    if (plan->rungs > 1 && frames > by->pixels / others / problem->batch)
        by = &plan->of[1];
    const int64_t images = tconv_min(problem->batch, by->pixels / others);
    for (int64_t image = 0; image < problem->batch; image += images) {
        pass now = {.image = image, .images = tconv_min(images, problem->batch - image)};
        const int64_t most = by->pixels / others / now.images;
        for (now.frame = 0; now.frame < frames; now.frame += now.frames) {
            now.frames = tconv_min(most, frames - now.frame);
            const tconv_status status = run_pass(layer, plan, by, &now, packs, arguments, issue);
            if (status != TCONV_SUCCESS)
                return status;
            packs = false;
        }
    }
    return TCONV_SUCCESS;
}

static void describe(const tconv_layer *layer, const void *bytes, char *text, size_t capacity)
{
    const carry_plan *plan = bytes;
    if (plan->rungs == 0) {
        snprintf(text, capacity, "tail=%lld pixels=all", (long long)layer->problem.tail);
        return;
    }
    const rung *last = &plan->of[plan->rungs - 1];
    char inner[512];
    tconv_inner_describe(&last->inner, inner, sizeof inner);
    snprintf(text, capacity, "tail=%lld pixels=%lld,%lld widens=%d by=%s,%s %s", (long long)layer->problem.tail,
             (long long)plan->of[0].pixels, (long long)last->pixels, plan->widens,
             plan->of[0].inner.implementation->name, last->inner.implementation->name, inner);
}

static bool is_batch_invariant(const tconv_layer *layer, const void *bytes)
{
    (void)layer;
    return ((const carry_plan *)bytes)->invariant;
}

/* A carry of fewer digits is rounded wherever a chunk ends. */
static bool is_chunk_invariant(const tconv_layer *layer, const void *bytes)
{
    return is_batch_invariant(layer, bytes) && !tconv_carry_is_narrow(&layer->problem);
}

const tconv_implementation tconv_cuda_carry = {.name = "cuda_carry",
                                               .backend = TCONV_BACKEND_CUDA,
                                               .dtypes = TCONV_DTYPES_TO_F64,
                                               .applies_posts = true,
                                               .streams = true,
                                               .plan_bytes = sizeof(carry_plan),
                                               .plan = tconv_carry_plan,
                                               .pack = pack,
                                               .execute = execute,
                                               .describe = describe,
                                               .batch_invariant = is_batch_invariant,
                                               .chunk_invariant = is_chunk_invariant};
