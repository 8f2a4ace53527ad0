/* Describes the products of a chunk, as a layer or for the kernels that compute few pixels', and how outputs are gathered
 * from them. */
#include "products.h"

#include <string.h>

#include "../../core/checked.h"
#include "../../core/views.h"
#include "../maps/hopper.h"
#include "../model/planned.h"

/* The pixels of a chunk's src, and its strides, which are dense where it is copied. */
typedef struct chunk_src {
    int64_t rows, columns, pixels; /* pixels: of all images */
    tconv_strides strides;
} chunk_src;

/* Sets whether src is copied, and in which order: it is where it is widened, and where it is to be a matrix of input
 * channels and pixels, but its images do not follow one another as pixels do. Returns src as the products have it. */
static chunk_src describe_src(const tconv_problem *problem, gemm_col2im_plan *plan)
{
    const bool nhwc = problem->layout == TCONV_NHWC;
    chunk_src src = {
        .rows = plan->cuts_rows ? plan->chunk.positions : problem->h.in,
        .columns = plan->cuts_rows ? problem->w.in : plan->chunk.positions,
        .strides = problem->src,
    };
    const int64_t image = src.rows * src.columns;
    src.pixels = plan->chunk.images * image;
    const bool is_matrix = plan->chunk.images == 1 || src.strides.n == image * src.strides.w;
    const bool exchanged = plan->mode == EXCHANGED;
    plan->copies = plan->widens || (exchanged && !is_matrix);
    plan->order = nhwc ? CHANNELS_LAST : exchanged ? CHANNELS_FIRST : IMAGES_FIRST;
    if (!plan->copies)
        return src;
    src.strides.w = nhwc ? problem->in_channels : 1;
    src.strides.h = src.strides.w * src.columns;
    src.strides.c = nhwc ? 1 : exchanged ? src.pixels : image;
    src.strides.n = exchanged ? image * src.strides.w : problem->in_channels * image;
    plan->src_bytes = tconv_inner_aligned(problem->in_channels * src.pixels * 4);
    return src;
}

/* Describes the products with pixels as they lie, one row where they lie so. Returns their weights' strides. */
static tconv_weight_strides describe_straight(const tconv_problem *problem, const chunk_src *src,
                                              gemm_col2im_plan *plan, tconv_desc *desc)
{
    const chunk_shape *chunk = &plan->chunk;
    const bool nhwc = problem->layout == TCONV_NHWC;
    const tconv_strides *strides = &src->strides;
    const int64_t rows = src->rows, columns = src->columns;
    const int64_t channels = problem->groups * chunk->channels * count_taps(problem);
    const bool flat = rows == 1 || strides->h == columns * strides->w;
    const int64_t row_pitch = nhwc   ? columns * tconv_round_up(channels, PRODUCT_PITCH)
                              : flat ? columns
                                     : tconv_round_up(columns, PRODUCT_PITCH);
    desc->batch = chunk->images;
    desc->out_channels = channels;
    desc->in_h = flat ? 1 : rows;
    desc->in_w = flat ? rows * columns : columns;
    desc->layout = problem->layout;
    desc->weight_layout = problem->desc.weight_layout;
    const int64_t plane = nhwc ? rows * row_pitch : tconv_round_up(rows * row_pitch, PRODUCT_PITCH);
    const int64_t pixel = tconv_round_up(channels, PRODUCT_PITCH);
    const int64_t src_strides[4] = {strides->n, strides->c, flat ? strides->w * desc->in_w : strides->h, strides->w};
    const int64_t planes[4] = {channels * plane, plane, flat ? plane : row_pitch, 1};
    const int64_t pixels[4] = {plane, 1, flat ? plane : row_pitch, pixel};
    memcpy(desc->src_strides, src_strides, sizeof src_strides);
    memcpy(desc->dst_strides, nhwc ? pixels : planes, sizeof planes);

    gather_shape *out = &plan->out;
    const bool taps_outside = problem->desc.weight_layout != TCONV_WEIGHT_IOHW; /* taps, then channels within */
    const int64_t channel_pitch = nhwc ? 1 : plane;
    out->out_pitch = channel_pitch * (taps_outside ? 1 : count_taps(problem));
    out->tap_pitch = channel_pitch * (taps_outside ? chunk->channels : 1);
    out->group_pitch = channel_pitch * chunk->channels * count_taps(problem);
    out->image_pitch = nhwc ? plane : channels * plane;
    out->column_pitch = nhwc ? pixel : 1;
    out->row_pitch = row_pitch;
    const bool in_inside = problem->desc.weight_layout == TCONV_WEIGHT_HWOI;
    /* A chunk of some output channels has the strides of all. */
    return (tconv_weight_strides){.in = problem->weight.in, .out = in_inside ? problem->in_channels : 1};
}

/* Describes the products with operands exchanged: a row of output channels and taps as they lie, and a channel for each pixel. */
static tconv_weight_strides describe_exchanged(const tconv_problem *problem, const chunk_src *src,
                                               gemm_col2im_plan *plan, tconv_desc *desc)
{
    const int64_t row = plan->chunk.channels * count_taps(problem), pitch = tconv_round_up(row, PRODUCT_PITCH);
    desc->batch = 1;
    desc->out_channels = problem->groups * src->pixels;
    desc->in_h = 1;
    desc->in_w = row;
    desc->layout = TCONV_NCHW;
    desc->weight_layout = problem->layout == TCONV_NHWC ? TCONV_WEIGHT_HWOI : TCONV_WEIGHT_IOHW;
    const int64_t src_strides[4] = {problem->in_channels * problem->weight.in, problem->weight.in, row, 1};
    const int64_t dst_strides[4] = {desc->out_channels * pitch, pitch, pitch, 1};
    memcpy(desc->src_strides, src_strides, sizeof src_strides);
    memcpy(desc->dst_strides, dst_strides, sizeof dst_strides);

    gather_shape *out = &plan->out;
    const bool taps_outside = problem->desc.weight_layout != TCONV_WEIGHT_IOHW;
    out->out_pitch = taps_outside ? 1 : count_taps(problem);
    out->tap_pitch = taps_outside ? plan->chunk.channels : 1;
    out->column_pitch = pitch;
    out->row_pitch = src->columns * pitch;
    out->image_pitch = src->rows * out->row_pitch;
    out->group_pitch = src->pixels * pitch;
    return (tconv_weight_strides){.in = src->strides.c, .out = src->strides.w};
}

/* Returns whether weights can be read by TMA, from each chunk of channels on, and multiplied by wgmma. */
static bool may_wgmma(const tconv_layer *layer, const gemm_col2im_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t vector = VECTOR_BYTES / (int64_t)problem->element_size, taps = count_taps(problem);
    return problem->element_size == 2 && tconv_cuda_why_not_hopper(layer) == NULL && problem->weight.in % vector == 0 &&
           (plan->channel_chunks == 1 ||
            (problem->group_out * taps % vector == 0 && plan->chunk.channels * taps % vector == 0)) &&
           (problem->groups == 1 || problem->group_in % (DIRECT_K_BYTES / 2) == 0);
}

const char *tconv_gemm_col2im_describe_direct(const tconv_layer *layer, gemm_col2im_plan *plan, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_strides *src = &problem->src;
    const bool nhwc = problem->layout == TCONV_NHWC;
    const int64_t vector = VECTOR_BYTES / (int64_t)problem->element_size;
    const int64_t image = problem->h.in * problem->w.in, pixels = plan->chunk.images * image;
    const int64_t rows = plan->chunk.channels * count_taps(problem), all_rows = problem->groups * rows;
    if (plan->position_chunks > 1)
        return "products of an image are too many";
    if (problem->groups > 1 && problem->group_in % vector != 0)
        return "groups of channels that begin within vectors";
    const bool is_matrix = (problem->h.in == 1 || src->h == problem->w.in * src->w) &&
                           (plan->chunk.images == 1 || src->n == image * src->w);
    plan->copies = !nhwc || !is_matrix || src->w % vector != 0 || problem->in_channels % vector != 0;
    plan->order = CHANNELS_LAST;
    direct_shape *shape = &plan->direct;
    shape->src_pitch = plan->copies ? tconv_round_up(problem->in_channels, vector) : src->w;
    plan->src_bytes = tconv_inner_aligned(pixels * shape->src_pitch * (int64_t)problem->element_size);
    shape->weight_pitch = problem->weight.in;
    shape->pixels = (int)pixels;
    shape->rows = (int)rows;
    shape->channels = (int)problem->group_in;
    shape->groups = (int)problem->groups;
    shape->row_pitch = nhwc ? 1 : tconv_round_up(pixels, PRODUCT_PITCH);
    shape->pixel_pitch = nhwc ? tconv_round_up(all_rows, PRODUCT_PITCH) : 1;
    shape->group_pitch = rows * shape->row_pitch;
    shape->part_pitch = nhwc ? pixels * shape->pixel_pitch : all_rows * shape->row_pitch;
    *work = tconv_cuda_begin_work(layer);
    tconv_gemm_col2im_cut_products(layer, most_products(plan), may_wgmma(layer, plan), shape, work);
    plan->products_bytes = tconv_inner_aligned(shape->parts * shape->part_pitch * 4);
    if (scratch_before(plan) > MAX_SCRATCH)
        return "products too many";

    gather_shape *out = &plan->out;
    const bool taps_outside = problem->desc.weight_layout != TCONV_WEIGHT_IOHW;
    out->out_pitch = shape->row_pitch * (taps_outside ? 1 : count_taps(problem));
    out->tap_pitch = shape->row_pitch * (taps_outside ? plan->chunk.channels : 1);
    out->group_pitch = shape->group_pitch;
    out->column_pitch = shape->pixel_pitch;
    out->row_pitch = problem->w.in * shape->pixel_pitch;
    out->image_pitch = image * shape->pixel_pitch;
    out->part_pitch = shape->part_pitch;
    out->parts = shape->parts;
    return NULL;
}

bool tconv_gemm_col2im_describe_products(const tconv_layer *layer, gemm_col2im_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const chunk_src src = describe_src(problem, plan);
    tconv_layer *inner = &plan->products.layer;
    tconv_desc desc;
    if (tconv_desc_init(&desc) != TCONV_SUCCESS)
        return false;
    desc.in_channels = problem->in_channels;
    desc.kernel_h = desc.kernel_w = 1;
    desc.groups = problem->groups;
    desc.math = plan->widens ? TCONV_MATH_TF32 : layer->target.math;
    const tconv_weight_strides weight = plan->mode == EXCHANGED ? describe_exchanged(problem, &src, plan, &desc)
                                                                : describe_straight(problem, &src, plan, &desc);
    if (tconv_problem_derive(&inner->problem, &desc, NULL) != TCONV_SUCCESS)
        return false;
    tconv_problem *products = &inner->problem;
    products->weight.in = weight.in;
    products->weight.out = weight.out;
    products->weight_extent = (problem->in_channels - 1) * weight.in + (products->group_out - 1) * weight.out + 1;
    inner->rows = tconv_one_phase(&products->h, &plan->row_phase);
    inner->columns = tconv_one_phase(&products->w, &plan->column_phase);
    inner->target = layer->target;
    inner->target.math = desc.math;
    inner->packed_before = plan->mode == STRAIGHT && layer->packed_before;
    plan->products_bytes = tconv_inner_aligned(products->dst_extent * 4);
    return true;
}
