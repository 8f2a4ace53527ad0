/* Plans a layer: the chunks, how the products are computed, the implementation that is predicted to be fastest with
 * them, and the tiles of the gathering. */
#include "plan.h"

#include <string.h>

#include "../../core/checked.h"
#include "../implementations.h"
#include "../model/search.h"
#include "products.h"

enum {
    MAX_CHUNKS = 1024,           /* two launches each */
    MIN_IN = 16,                 /* input channels of a group: fewer are no GEMM */
    MIN_TAPS = 4,                /* with fewer the products are the outputs, or nearly */
    MAX_INTERMEDIATE = 24,       /* products for each output and input, at most */
    MAX_EXTENT = 1 << 30,        /* of 32-bit coordinates */
    MAX_DILATED_STRIDE = 1 << 15 /* whose square has 31 bits */
};

/* The corrections, fitted to 1,434 times of an H200. */
static const double GATHER_PASSES = 4;   /* other passes without work that one of gathering takes as long as */
static const double PRODUCT_TIMES = 2.0; /* as long to gather from a byte as to copy one */
static const double OUTPUT_BYTES = 29;   /* bytes that are copied in the time that finding an output's taps takes */
/* Bytes that are copied in the time of an instruction of post-ops, of 132 multiprocessors' 128 lanes. */
static const double POST_BYTES = 0.16;
/* The share of both that planes of wgmma's direct products take: 6 layers, H100. */
static const double DIRECT_PLANES = 0.5;

/* Products may be computed by these: those for Hopper, else what takes more layers. */
static const tconv_implementation *const multipliers[] = {&tconv_cuda_cells, &tconv_cuda_wgmma,   &tconv_cuda_igemm,
                                                          &tconv_cuda_mma,   &tconv_cuda_general, NULL};

/* Returns the inputs that an output reaches back over, at most. */
static int64_t axis_reach(const tconv_axis *axis)
{
    return (axis->kernel - 1) * axis->dilation / axis->stride;
}

/* Returns the quotients of padded outputs by the stride, up to the last. */
static int64_t axis_quotients(const tconv_axis *axis)
{
    return (axis->pad + axis->out - 1) / axis->stride + 1;
}

/* Says whether the coordinates of an axis, and their products with its stride, fit in 32 bits. */
static bool axis_fits(const tconv_axis *axis)
{
    return (axis->dilation == 1 || axis->stride <= MAX_DILATED_STRIDE) && axis->in < MAX_EXTENT &&
           axis->pad + axis->out < MAX_EXTENT && axis->kernel < MAX_EXTENT &&
           (axis->kernel - 1) * axis->dilation < MAX_EXTENT && axis->stride < MAX_EXTENT && axis->dilation < MAX_EXTENT;
}

/* Returns the reason why a layer is not taken at all, NULL where it may be. */
static const char *refusal(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t taps = count_taps(problem);
    if (problem->group_in < MIN_IN)
        return "fewer than 16 input channels per group";
    if (taps < MIN_TAPS)
        return "fewer than 4 taps";
    if (!axis_fits(&problem->h) || !axis_fits(&problem->w))
        return "an extent, or a stride with dilation, too large for 32-bit coordinates";
    if (problem->batch >= MAX_EXTENT || problem->in_channels >= MAX_EXTENT || problem->out_channels >= MAX_EXTENT ||
        problem->out_channels * taps >= MAX_EXTENT)
        return "too many channels, taps or images for 32-bit numbers";
    if (problem->weight_extent >= MAX_EXTENT)
        return "too many weights for 32-bit numbers";
    const double products = (double)(problem->out_channels * taps) * (double)(problem->h.in * problem->w.in);
    const double least = (double)problem->out_channels * (double)(problem->h.out * problem->w.out) +
                         (double)problem->in_channels * (double)(problem->h.in * problem->w.in);
    return products > MAX_INTERMEDIATE * least ? "products of many times the size of src and dst" : NULL;
}

/* Says whether there are more weights of an input channel than pixels. */
static bool has_more_weights(const tconv_problem *problem)
{
    return (double)problem->group_out * (double)count_taps(problem) >
           (double)tconv_max(problem->batch, 1) * (double)(problem->h.in * problem->w.in);
}

/* Sets the chunks, so that the products of one take at most MAX_PRODUCTS: of output channels where weights are larger
 * than src, of images, of channels, then of positions. Returns false where even those would be too large. */
static bool cut_chunks(const tconv_problem *problem, gemm_col2im_plan *plan)
{
    plan->cuts_rows = problem->h.in > 1;
    const tconv_axis *cut = plan->cuts_rows ? &problem->h : &problem->w;
    const int64_t batch = tconv_max(problem->batch, 1), taps = count_taps(problem), most = most_products(plan);
    const int64_t per_position = problem->groups * taps * (plan->cuts_rows ? problem->w.in : 1);
    const bool cuts_channels = problem->groups == 1 && problem->desc.weight_layout == TCONV_WEIGHT_IOHW;
    const bool weights_first = has_more_weights(problem);
    const double image = (double)per_position * (double)cut->in; /* of a channel */
    chunk_shape *chunk = &plan->chunk;
    *chunk = (chunk_shape){batch, problem->group_out, cut->in, axis_quotients(cut)};
    if (cuts_channels && weights_first)
        chunk->channels = tconv_inner_fit(chunk->channels, image * (double)batch, (double)most);
    chunk->images = tconv_inner_fit(chunk->images, image * (double)chunk->channels, (double)most);
    if (cuts_channels && !weights_first)
        chunk->channels = tconv_inner_fit(chunk->channels, image, (double)most);
    if (image * (double)chunk->channels > (double)most) {
        const int64_t back = tconv_round_up(axis_reach(cut) + PRODUCT_PITCH, PRODUCT_PITCH);
        const int64_t room = most / (per_position * chunk->channels) / PRODUCT_PITCH * PRODUCT_PITCH;
        if (room < 2 * back)
            return false;
        chunk->positions = tconv_min(room, cut->in);
        chunk->quotients = room - back;
    }
    plan->image_chunks = tconv_ceil_div(batch, chunk->images);
    plan->channel_chunks = tconv_ceil_div(problem->group_out, chunk->channels);
    plan->position_chunks = tconv_ceil_div(axis_quotients(cut), chunk->quotients);
    return count_chunks(plan) <= MAX_CHUNKS;
}

/* Returns the inverse of a number modulo another that shares no factor with it. */
static int inverse_modulo(int64_t number, int64_t modulo)
{
    int64_t a = number % modulo, b = modulo, x = 1, y = 0;
    while (b != 0) {
        const int64_t quotient = a / b, rest = a % b, next = x - quotient * y;
        a = b;
        b = rest;
        x = y;
        y = next;
    }
    return (int)((x % modulo + modulo) % modulo);
}

/* Returns an axis as the kernels that gather have it, with all of its outputs. */
static gather_axis make_gather_axis(const tconv_axis *axis, const tconv_phase_table *table)
{
    const int64_t common = tconv_gcd(axis->stride, axis->dilation);
    return (gather_axis){
        .in = (int)axis->in,
        .kernel = (int)axis->kernel,
        .dilation = (int)axis->dilation,
        .pad = (int)axis->pad,
        .stride = divisor_of((int)axis->stride),
        .common = divisor_of((int)common),
        .kernel_step = divisor_of((int)table->kernel_step),
        .shift_step = divisor_of((int)table->shift_step),
        .inverse = inverse_modulo(axis->dilation / common, table->kernel_step),
        .begin = (int)axis->pad,
        .end = (int)(axis->pad + axis->out),
    };
}

/* Admits the last two multipliers only where none before takes the products: planning takes as long as with the
 * others. */
static const tconv_implementation *admit_multiplier(const void *outer, const tconv_inner_plan *inner,
                                                    const tconv_implementation *implementation)
{
    (void)outer;
    const bool last_resort = implementation == &tconv_cuda_mma || implementation == &tconv_cuda_general;
    return last_resort && inner->implementation != NULL ? NULL : implementation;
}

/* Says whether all that a chunk needs takes at most MAX_SCRATCH. */
static bool scratch_fits(const gemm_col2im_plan *plan)
{
    return scratch_before(plan) + (int64_t)plan->products.sizes.scratch <= MAX_SCRATCH;
}

/* Returns the predicted seconds of a multiplier; -1 where it needs too much memory. */
static double compare_multiplier(const void *outer, const tconv_inner_plan *inner,
                                 const tconv_implementation *implementation, const tconv_planned *planned,
                                 const tconv_cuda_work *work)
{
    (void)inner, (void)implementation, (void)work;
    return scratch_fits(outer) ? planned->prediction.seconds : -1;
}

/* Has each multiplier plan the products, and keeps the plan of the fastest with what it needs; false where none takes
 * less than a limit, 0 for none. */
static bool choose_multiplier(double limit, gemm_col2im_plan *plan, tconv_cuda_work *work)
{
    tconv_inner_plan *products = &plan->products;
    const tconv_inner_search search = {
        .list = multipliers,
        .limit = limit,
        .outer = plan,
        .admit = admit_multiplier,
        .seconds = compare_multiplier,
    };
    if (!tconv_inner_choose(products, &search))
        return false;
    tconv_inner_plan_by(products, products->implementation, 0, work); /* once more: it counts the work */
    return true;
}

/* Returns the seconds that a plan is compared less, for reading the weights as they lie. */
static double saved_seconds(const tconv_layer *layer, product_mode mode)
{
    return mode != STRAIGHT ? tconv_cuda_packing_seconds(layer) : 0;
}

/* Turns the work of the products of a chunk into that of all chunks. Gathering, copying src and packing it are
 * passes. */
static void count_gather(const tconv_layer *layer, const gemm_col2im_plan *plan, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const double chunks = (double)count_chunks(plan);
    const double outputs = (double)(problem->batch * problem->out_channels) * (double)(problem->h.out * problem->w.out);
    const bool exchanged = plan->mode == EXCHANGED;
    /* An element of src is read and written in four bytes; a widened one is read in two. */
    const double copied = (plan->widens ? 1.5 : 2) * (double)plan->src_bytes;
    const double packed = exchanged ? 2 * (double)tconv_inner_packed_bytes(&plan->products) : 0;
    const bool direct_planes = plan->mode == DIRECT && plan->direct.by_wgmma && !plan->out.channels_last;
    const double gathering = direct_planes ? DIRECT_PLANES : 1;
    work->rounds *= chunks;
    work->dram_bytes *= chunks;
    /* The first launch is not a pass. */
    work->passes = chunks * (work->passes + 1 + GATHER_PASSES + (plan->copies ? 1 : 0) + (exchanged ? 1 : 0)) - 1;
    work->pass_bytes =
        chunks * (work->pass_bytes + gathering * PRODUCT_TIMES * (double)plan->products_bytes + copied + packed) +
        gathering * outputs * OUTPUT_BYTES;
    if (tconv_cuda_count_steps(problem) > 0)
        work->pass_bytes += outputs * tconv_cuda_step_instructions(problem) * POST_BYTES +
                            (tconv_cuda_has_addend(problem) ? outputs * (double)problem->element_size : 0);
}

/* Returns the seconds that gathering, copying and packing take beside the products. */
static double pass_seconds(const tconv_layer *layer, const gemm_col2im_plan *plan)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    tconv_cuda_work work = {0};
    count_gather(layer, plan, &work);
    return tconv_cuda_least_seconds(&machine, &work) - machine.launch;
}

/* Sets how outputs are gathered; false where they are too many for 32-bit numbers. */
static bool describe_gather(const tconv_layer *layer, gemm_col2im_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const bool nhwc = problem->layout == TCONV_NHWC;
    gather_shape *out = &plan->out;
    out->rows = make_gather_axis(&problem->h, &layer->rows);
    out->columns = make_gather_axis(&problem->w, &layer->columns);
    out->dst_strides = problem->dst;
    out->groups = (int)problem->groups;
    out->group_out = (int)problem->group_out;
    out->channels = divisor_of((int)plan->chunk.channels);
    out->images = (int)plan->chunk.images;
    out->by_output = nhwc || plan->mode == EXCHANGED;
    out->parts = 1;
    out->channels_last = nhwc;
    return tconv_gemm_col2im_cut_tiles(out); /* a chunk that is cut has fewer */
}

/* Plans a layer that is not refused in one mode, to be compared by less than a limit, 0 for none. */
static const char *plan_mode(const tconv_layer *layer, product_mode mode, double limit, gemm_col2im_plan *plan,
                             tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    memset(plan, 0, sizeof *plan);
    tconv_inner_begin(&plan->products, plan->inner_bytes, sizeof plan->inner_bytes);
    plan->mode = mode;
    plan->widens = problem->dtype != TCONV_F32 && mode != DIRECT;
    if (!cut_chunks(problem, plan))
        return "products of one chunk, or chunks, too many";
    if (!describe_gather(layer, plan))
        return "outputs too many for 32-bit numbers";
    if (mode == DIRECT) {
        const char *why = tconv_gemm_col2im_describe_direct(layer, plan, work);
        if (why != NULL)
            return why;
    } else {
        if (!tconv_gemm_col2im_describe_products(layer, plan))
            return "products too many for a layer";
        const double left = limit > 0 ? limit + saved_seconds(layer, mode) - pass_seconds(layer, plan) : 0;
        if ((limit > 0 && left <= 0) || !choose_multiplier(left, plan, work))
            return limit > 0 ? TCONV_NO_FASTER : "no implementation that multiplies in 48 MiB";
    }
    const int64_t held = plan->widens ? (int64_t)sizeof(float) : (int64_t)problem->element_size;
    if (plan->widens || mode != STRAIGHT)
        plan->weights_bytes = tconv_inner_aligned(problem->weight_extent * held);
    count_gather(layer, plan, work);
    return NULL;
}

/* Says whether a layer, which is not refused, may be planned in a mode: weights that are read as they lie are more than
 * src, and follow one another in each input channel. */
static bool may_take(const tconv_problem *problem, product_mode mode)
{
    return mode == STRAIGHT || (has_more_weights(problem) && problem->desc.weight_layout != TCONV_WEIGHT_HWOI &&
                                (mode == DIRECT || problem->dtype == TCONV_F32));
}

const char *tconv_gemm_col2im_make_plan(const tconv_layer *layer, double limit, gemm_col2im_plan *plan,
                                        tconv_cuda_work *work)
{
    static const product_mode modes[] = {DIRECT, EXCHANGED, STRAIGHT};
    product_mode best = STRAIGHT;
    tconv_search search = tconv_search_begin(layer, limit, &best, sizeof best);
    const char *why = refusal(layer);
    if (why != NULL)
        return why;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (!may_take(&layer->problem, modes[i]))
            continue;
        why = plan_mode(layer, modes[i], search.limit, plan, work);
        if (why == NULL)
            tconv_search_keep(&search, &modes[i],
                              tconv_cuda_seconds_of(&search.machine, work) - saved_seconds(layer, modes[i]));
    }
    if (!search.found)
        return why != NULL ? why : TCONV_NO_FASTER;
    return best == STRAIGHT ? NULL : plan_mode(layer, best, 0, plan, work); /* once more: STRAIGHT's lies there */
}
