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
 * The plan has the inner layer for one or two numbers of pixels, its rungs: a call takes the first rung that has room for
 * its pixels, or the last one several times, frame after frame as steps would. Rows without a pixel are zeros. So no length
 * is planned, and what is queued depends on the length and the batch alone: slots, reset and active are read by the kernel.
 *
 * Numeric order: each product is summed over input channels by the inner implementation; an output begins with its carry, or
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
#include "../../core/views.h"
#include "../cuda_backend.h"
#include "../cuda_target.h"
#include "../finish/pass.h"
#include "../inner/inner.h"
#include "../model/planned.h"
#include "../runtime/guard.h"
#include "fold.h"

enum {
    RUNGS = 2,
    FEW_PIXELS = 16,          /* of the first rung: the tiles of tensor cores have as many or more */
    MANY_PIXELS = 256,        /* of the second: they hide the latency of weights */
    PRODUCT_BYTES = 32 << 20, /* of the second rung, at most, but at least those of a frame: they stay in the L2 */
    PLACES_OF_THREAD = 8      /* of a residue: more are several threads' */
};

/* Rungs may take so many times as long for bits that no cut changes: the model is no more exact than that. */
static const double INVARIANCE_WORTH = 1.25;

/* The inner layer for so many pixels. */
typedef struct rung {
    int64_t pixels;
    tconv_inner_plan inner;
    tconv_phase row_phase, column_phase;
    int64_t packed_at; /* bytes of the packed weights before its own */
    _Alignas(16) unsigned char bytes[TCONV_CUDA_MAX_OUTER_PLAN];
} rung;

typedef struct carry_plan {
    int rungs;
    bool widens;    /* src and weights are of 16 bits */
    bool invariant; /* no cut changes a bit of a sum */
    int64_t real_size;
    int64_t weights_bytes;                /* of widened weights, before what the rungs pack */
    int64_t staged_bytes, products_bytes; /* of the last rung, where the scratch begins; the inner scratch follows */
    rung of[RUNGS];
} carry_plan;

static int64_t taps_of(const tconv_problem *problem)
{
    return problem->h.kernel * problem->w.kernel;
}

/* ------------------------------------------------------------------------------------------------------------ plan */

/* Describes a rung's layer: its images are pixels. False where it is too large. */
static bool describe_rung(const tconv_layer *layer, const carry_plan *plan, rung *of)
{
    const tconv_problem *problem = &layer->problem;
    tconv_layer *inner = &of->inner.layer;
    tconv_desc desc;
    tconv_inner_begin(&of->inner, of->bytes, sizeof of->bytes);
    if (tconv_desc_init(&desc) != TCONV_SUCCESS ||
        !tconv_checked_mul(problem->out_channels, taps_of(problem), &desc.out_channels))
        return false;
    desc.batch = of->pixels;
    desc.in_channels = problem->in_channels;
    desc.in_h = desc.in_w = desc.kernel_h = desc.kernel_w = 1;
    desc.groups = problem->groups;
    desc.dtype = plan->widens ? TCONV_F32 : problem->dtype;
    desc.layout = TCONV_NHWC;
    /* With one tap, taps and channels are channels in either order, and input channels are inside or outside. */
    desc.weight_layout = problem->desc.weight_layout == TCONV_WEIGHT_HWOI ? TCONV_WEIGHT_HWOI : TCONV_WEIGHT_IOHW;
    inner->target = layer->target;
    inner->target.math = desc.math = plan->widens ? TCONV_MATH_TF32 : layer->target.math;
    inner->packed_before = layer->packed_before;
    if (tconv_problem_init(&inner->problem, &desc, NULL) != TCONV_SUCCESS)
        return false;
    inner->rows = tconv_one_phase(&inner->problem.h, &of->row_phase);
    inner->columns = tconv_one_phase(&inner->problem.w, &of->column_phase);
    return true;
}

/* Returns how much a rung's time counts: the last one for a share, because most steps are short. */
static double share_of(int rung_index)
{
    return rung_index == 0 ? 1 : 1.0 / FEW_PIXELS;
}

/* Returns the seconds that an implementation takes for all rungs, where each image of each has the bits that it has alone;
 * 0 where it declines or they may not. */
static double seconds_if_invariant(carry_plan *plan, const tconv_implementation *implementation)
{
    double all = 0;
    for (int i = 0; i < plan->rungs; i++) {
        tconv_inner_plan *inner = &plan->of[i].inner;
        if (implementation->batch_invariant == NULL || !tconv_inner_may_plan(inner, implementation))
            return 0;
        const double seconds = tconv_inner_plan_by(inner, implementation, 0, NULL).prediction.seconds;
        if (seconds <= 0 || !implementation->batch_invariant(&inner->layer, inner->bytes))
            return 0;
        all += share_of(i) * seconds;
    }
    return all;
}

/* Finds the fastest implementation of each rung; returns their seconds, 0 where a rung has none. */
static double find_fastest(carry_plan *plan)
{
    const tconv_inner_search search = {.list = tconv_cuda_implementations};
    double all = 0;
    for (int i = 0; i < plan->rungs; i++) {
        tconv_inner_plan *inner = &plan->of[i].inner;
        if (!tconv_inner_choose(inner, &search))
            return 0;
        all += share_of(i) * tconv_inner_plan_by(inner, inner->implementation, 0, NULL).prediction.seconds;
    }
    return all;
}

/* Plans all rungs: each by its fastest implementation, or all by one that makes the stream's bits those of any cut, where
 * that takes little longer. */
static bool plan_rungs(carry_plan *plan, tconv_cuda_work *work)
{
    const double fastest = find_fastest(plan);
    const tconv_implementation *chosen[RUNGS] = {NULL};
    double least = INVARIANCE_WORTH * fastest;
    if (fastest <= 0)
        return false;
    for (int i = 0; i < plan->rungs; i++)
        chosen[i] = plan->of[i].inner.implementation;
    for (const tconv_implementation *const *entry = tconv_cuda_implementations; *entry != NULL; entry++) {
        const double seconds = seconds_if_invariant(plan, *entry);
        if (seconds <= 0 || seconds > least)
            continue;
        least = seconds;
        plan->invariant = true;
        for (int i = 0; i < plan->rungs; i++)
            chosen[i] = *entry;
    }
    for (int i = 0; i < plan->rungs; i++) {
        tconv_inner_plan *inner = &plan->of[i].inner;
        inner->implementation = chosen[i];
        memset(work, 0, sizeof *work);
        if (tconv_inner_plan_by(inner, chosen[i], 0, work).prediction.seconds <= 0)
            return false;
    }
    return true;
}

/* Sets the pixels of the rungs: at least those of a frame. */
static void size_rungs(const tconv_problem *problem, carry_plan *plan)
{
    const int64_t others = tconv_unstreamed_axis(problem)->in;
    const double all = (double)tconv_max(1, problem->batch) * (double)tconv_streamed_axis(problem)->in * (double)others;
    const double each = (double)problem->out_channels * (double)taps_of(problem) * (double)plan->real_size;
    const double room = (double)PRODUCT_BYTES / each;
    int64_t many = room < MANY_PIXELS ? (int64_t)room : MANY_PIXELS;
    many = tconv_max(others, all < (double)many ? (int64_t)all : many);
    const int64_t few = tconv_max(others, FEW_PIXELS);
    plan->rungs = few < many ? 2 : 1;
    plan->of[0].pixels = few < many ? few : many;
    plan->of[1].pixels = many;
}

/* Lays out the memory of planned rungs. */
static tconv_status count_memory(const tconv_problem *problem, carry_plan *plan, tconv_memory_sizes *sizes,
                                 tconv_issue *issue)
{
    const tconv_problem *last = &plan->of[plan->rungs - 1].inner.layer.problem;
    int64_t packed, scratch, inner_scratch = 0;
    plan->weights_bytes = plan->widens ? tconv_inner_aligned(problem->weight_extent * plan->real_size) : 0;
    plan->staged_bytes = tconv_inner_aligned(last->src_extent * plan->real_size);
    plan->products_bytes = tconv_inner_aligned(last->dst_extent * plan->real_size);
    packed = plan->weights_bytes;
    for (int i = 0; i < plan->rungs; i++) {
        plan->of[i].packed_at = packed;
        inner_scratch = tconv_max(inner_scratch, (int64_t)plan->of[i].inner.sizes.scratch);
        if (!tconv_checked_add(packed, tconv_inner_packed_bytes(&plan->of[i].inner), &packed))
            return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "workspace_size", "the size of the workspace overflows");
    }
    if (!tconv_checked_add(plan->staged_bytes, plan->products_bytes, &scratch) ||
        !tconv_checked_add(scratch, inner_scratch, &scratch))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "workspace_size", "the size of the workspace overflows");
    sizes->packed = (size_t)packed;
    sizes->scratch = (size_t)scratch;
    sizes->execute_packs = true;
    return TCONV_SUCCESS;
}

/* Turns the work of the last rung into that of the longest step. */
static void count_passes(const tconv_problem *problem, const carry_plan *plan, tconv_cuda_work *work)
{
    const double pixels = (double)problem->batch * (double)problem->h.in * (double)problem->w.in;
    const double most = (double)plan->of[plan->rungs - 1].pixels, calls = pixels > most ? pixels / most : 1;
    work->rounds *= calls;
    work->dram_bytes *= calls;
    work->passes = calls * (work->passes + 3) - 1; /* the first launch is no pass */
    work->pass_bytes += 2 * (double)plan->staged_bytes + (double)plan->products_bytes;
    work->pass_bytes = work->pass_bytes * calls + (double)problem->dst_extent * (double)problem->element_size;
}

static tconv_status plan_layer(const tconv_layer *layer, void *bytes, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    carry_plan *plan = bytes;
    tconv_cuda_work work;
    if (!tconv_is_stream(problem))
        return tconv_decline(issue, "for streams");
    memset(&work, 0, sizeof work);
    plan->widens = problem->element_size < sizeof(float);
    plan->real_size = problem->dtype == TCONV_F64 ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    size_rungs(problem, plan);
    for (int i = 0; i < plan->rungs; i++)
        if (!describe_rung(layer, plan, &plan->of[i]))
            return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "workspace_size", "the size of the products overflows");
    if (!plan_rungs(plan, &work))
        return tconv_decline(issue, "no implementation computes the products");
    const tconv_status status = count_memory(problem, plan, &planned->sizes, issue);
    if (status != TCONV_SUCCESS)
        return status;
    count_passes(problem, plan, &work);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
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

/* Describes where products lie: a pixel's are channels of the inner layer. */
static void describe_products(const tconv_problem *problem, fold *outputs)
{
    const bool of_rows = problem->desc.stream_axis == TCONV_STREAM_OF_ROWS;
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
    outputs.products = (const char *)arguments->scratch + plan->staged_bytes;
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
    outputs.part = tconv_max(PLACES_OF_THREAD, tconv_ceil_div(outputs.tail, outputs.step));
    outputs.parts = tconv_ceil_div(outputs.given / outputs.step, outputs.part);
    outputs.stride = axis->stride, outputs.dilation = axis->dilation, outputs.kernel = axis->kernel;
    outputs.other = (fold_axis){other->in, other->out, other->kernel, other->stride, other->dilation, other->pad};
    outputs.group_out = problem->group_out;
    describe_products(problem, &outputs);
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
    outputs.order = problem->layout == TCONV_NHWC ? CHANNELS_INSIDE : of_rows ? OTHERS_INSIDE : RESIDUES_INSIDE;
    outputs.steps = tconv_cuda_post_steps(problem, arguments->post);
    return outputs;
}

/* Runs one of the passes on the layer's device. */
static tconv_status fold_pass(const tconv_layer *layer, const carry_plan *plan, const pass *now,
                              const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = arguments->step->problem;
    const fold outputs = describe_fold(problem, plan, now, arguments);
    return tconv_carry_fold(problem->dtype, layer->target.math != TCONV_MATH_TF32, &outputs, arguments->stream, issue);
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

static tconv_status flush(const tconv_layer *layer, const carry_plan *plan, const tconv_arguments *arguments,
                          tconv_issue *issue)
{
    const pass all = {.images = arguments->step->problem->batch};
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
    if (problem->flushes)
        return flush(layer, plan, arguments, issue);
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
                                               .plan = plan_layer,
                                               .pack = pack,
                                               .execute = execute,
                                               .describe = describe,
                                               .batch_invariant = is_batch_invariant,
                                               .chunk_invariant = is_chunk_invariant};
