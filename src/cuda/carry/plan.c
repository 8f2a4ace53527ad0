/* Plans a stream: the fold alone where groups have few input channels, else the rungs. */
#include "plan.h"

#include <math.h>
#include <string.h>

#include "../../core/checked.h"
#include "../../core/stream.h"
#include "../../core/views.h"
#include "../cuda_backend.h"
#include "../cuda_target.h"
#include "../epilogue/layer_posts.h"
#include "../model/planned.h"

enum {
    FEW_PIXELS = 16,          /* of the first rung: the tiles of tensor cores have as many or more */
    MANY_PIXELS = 256,        /* of the second: they hide the latency of weights */
    PRODUCT_BYTES = 32 << 20, /* of the second rung, at most, but at least those of a frame: they stay in the L2 */
    FEW_IN = 8                /* input channels of a group: with fewer, products are formed where they are added */
};

static const double PLACE_CYCLES = 1500; /* estimated: of a place that forms its products, loads one after another */

/* Rungs may take so many times as long for bits that no cut changes: the model is no more exact than that. */
static const double INVARIANCE_WORTH = 1.25;

/* A plan whose bits follow from how a stream is cut is compared as if it took so many times as long: where another
 * implementation gives the same bits for any cut, it is taken unless it is that slow. */
static const double CUT_PENALTY = 4;

static int64_t taps_of(const tconv_problem *problem)
{
    return problem->h.kernel * problem->w.kernel;
}

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

/* Plans the one launch of a layer whose groups have few input channels. */
static void plan_forming(const tconv_layer *layer, carry_plan *plan, tconv_planned *planned)
{
    const tconv_problem *problem = &layer->problem;
    const double threads = (double)problem->dst_extent, blocks = ceil(threads / FOLD_THREADS);
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    plan->invariant = true;
    planned->sizes.packed = (size_t)(problem->weight_extent * (int64_t)problem->element_size);
    planned->sizes.execute_packs = planned->sizes.reads_unpacked = true;
    work.resident = 4;
    work.rounds = tconv_cuda_rounds(blocks, work.resident * tconv_cuda_target_of(&layer->target).multiprocessors);
    work.k_blocks = 1;
    work.loads = 2 * tconv_cuda_mean_taps(layer) * (double)problem->group_in * FOLD_THREADS / WARP;
    work.tile_cycles = PLACE_CYCLES + tconv_cuda_post_cycles(problem, FOLD_THREADS);
    tconv_cuda_predict(layer, &work, planned);
}

tconv_status tconv_carry_plan(const tconv_layer *layer, void *bytes, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    carry_plan *plan = bytes;
    tconv_cuda_work work;
    if (!tconv_is_stream(problem))
        return tconv_decline(issue, "for streams");
    if (problem->group_in < FEW_IN) {
        plan_forming(layer, plan, planned);
        return TCONV_SUCCESS;
    }
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
    if (!plan->invariant)
        planned->prediction.saved -= (CUT_PENALTY - 1) * planned->prediction.seconds;
    return TCONV_SUCCESS;
}
