/* Describes the products of a chunk, as a layer or for the kernel that makes them, and how outputs are gathered from them. */
#include "products.h"

#include <cstring>

#include "../../core/checked.h"
#include "../maps/hopper.h"
#include "../model/planned.h"

namespace tconv::gemm_col2im
{

namespace
{

tconv_phase_table table_of(tconv_phase *phase, int64_t outputs)
{
    *phase = {0, outputs, 1, 0, 0};
    tconv_phase_table table = {};
    table.stride = table.kernel_step = table.shift_step = table.count = table.max_taps = 1;
    table.phases = phase;
    return table;
}

/* The pixels of a chunk's src, and its strides, which are dense where it is copied. */
struct chunk_src {
    int64_t rows, columns, pixels; /* pixels: of all images */
    tconv_strides strides;
};

/* Sets whether src is copied, and in which order: where it is widened, and where it is to be a matrix of input channels
 * and pixels, but its images do not follow one another as pixels do. */
chunk_src describe_src(const tconv_problem *problem, plan *made)
{
    const bool nhwc = problem->layout == TCONV_NHWC;
    chunk_src of = {made->cuts_rows ? made->chunk.positions : problem->h.in,
                    made->cuts_rows ? problem->w.in : made->chunk.positions, 0, problem->src};
    const int64_t image = of.rows * of.columns;
    of.pixels = made->chunk.images * image;
    const bool is_matrix = made->chunk.images == 1 || of.strides.n == image * of.strides.w;
    const bool exchanged = made->way == EXCHANGED;
    made->copies = made->widens || (exchanged && !is_matrix);
    made->order = nhwc ? CHANNELS_LAST : exchanged ? CHANNELS_FIRST : IMAGES_FIRST;
    if (!made->copies)
        return of;
    of.strides.w = nhwc ? problem->in_channels : 1;
    of.strides.h = of.strides.w * of.columns;
    of.strides.c = nhwc ? 1 : exchanged ? of.pixels : image;
    of.strides.n = exchanged ? image * of.strides.w : problem->in_channels * image;
    made->src_bytes = tconv_round_up(problem->in_channels * of.pixels * 4, ALIGNMENT);
    return of;
}

/* Describes the products with pixels as they lie, one row where they lie so. Returns their weights' strides. */
tconv_weight_strides describe_straight(const tconv_problem *problem, const chunk_src *src, plan *made, tconv_desc *desc)
{
    const chunk_shape *chunk = &made->chunk;
    const bool nhwc = problem->layout == TCONV_NHWC;
    const tconv_strides *strides = &src->strides;
    const int64_t rows = src->rows, columns = src->columns;
    const int64_t channels = problem->groups * chunk->channels * taps_of(problem);
    const bool flat = rows == 1 || strides->h == columns * strides->w;
    const int64_t row_pitch = nhwc   ? columns * tconv_round_up(channels, PITCH)
                              : flat ? columns
                                     : tconv_round_up(columns, PITCH);
    desc->batch = chunk->images;
    desc->out_channels = channels;
    desc->in_h = flat ? 1 : rows;
    desc->in_w = flat ? rows * columns : columns;
    desc->layout = problem->layout;
    desc->weight_layout = problem->desc.weight_layout;
    const int64_t plane = nhwc ? rows * row_pitch : tconv_round_up(rows * row_pitch, PITCH);
    const int64_t pixel = tconv_round_up(channels, PITCH);
    const int64_t src_strides[4] = {strides->n, strides->c, flat ? strides->w * desc->in_w : strides->h, strides->w};
    const int64_t planes[4] = {channels * plane, plane, flat ? plane : row_pitch, 1};
    const int64_t pixels[4] = {plane, 1, flat ? plane : row_pitch, pixel};
    memcpy(desc->src_strides, src_strides, sizeof src_strides);
    memcpy(desc->dst_strides, nhwc ? pixels : planes, sizeof planes);

    gather_shape *out = &made->out;
    const bool taps_outside = problem->desc.weight_layout != TCONV_WEIGHT_IOHW; /* taps, then channels within */
    const int64_t channel_pitch = nhwc ? 1 : plane;
    out->out_pitch = channel_pitch * (taps_outside ? 1 : taps_of(problem));
    out->tap_pitch = channel_pitch * (taps_outside ? chunk->channels : 1);
    out->group_pitch = channel_pitch * chunk->channels * taps_of(problem);
    out->image_pitch = nhwc ? plane : channels * plane;
    out->column_pitch = nhwc ? pixel : 1;
    out->row_pitch = row_pitch;
    const bool in_inside = problem->desc.weight_layout == TCONV_WEIGHT_HWOI;
    return {problem->weight.in, in_inside ? problem->in_channels : 1, 0, 0}; /* of all channels, for some of them */
}

/* The same with operands exchanged: a row of output channels and taps as they lie, and a channel for each pixel. */
tconv_weight_strides describe_exchanged(const tconv_problem *problem, const chunk_src *src, plan *made,
                                        tconv_desc *desc)
{
    const int64_t row = made->chunk.channels * taps_of(problem), pitch = tconv_round_up(row, PITCH);
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

    gather_shape *out = &made->out;
    const bool taps_outside = problem->desc.weight_layout != TCONV_WEIGHT_IOHW;
    out->out_pitch = taps_outside ? 1 : taps_of(problem);
    out->tap_pitch = taps_outside ? made->chunk.channels : 1;
    out->column_pitch = pitch;
    out->row_pitch = src->columns * pitch;
    out->image_pitch = src->rows * out->row_pitch;
    out->group_pitch = src->pixels * pitch;
    return {src->strides.c, src->strides.w, 0, 0};
}

/* Whether weights can be read by TMA, from each chunk of channels on, and multiplied by wgmma. */
bool may_wgmma(const tconv_layer *layer, const plan *made)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t vector = VECTOR_BYTES / (int64_t)problem->element_size, taps = taps_of(problem);
    return problem->element_size == 2 && tconv_cuda_why_not_hopper(layer) == NULL && problem->weight.in % vector == 0 &&
           (made->channel_chunks == 1 ||
            (problem->group_out * taps % vector == 0 && made->chunk.channels * taps % vector == 0)) &&
           (problem->groups == 1 || problem->group_in % (DIRECT_K_BYTES / 2) == 0);
}

} // namespace

const char *describe_direct(const tconv_layer *layer, plan *made, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_strides *src = &problem->src;
    const bool nhwc = problem->layout == TCONV_NHWC;
    const int64_t vector = VECTOR_BYTES / (int64_t)problem->element_size;
    const int64_t image = problem->h.in * problem->w.in, pixels = made->chunk.images * image;
    const int64_t rows = made->chunk.channels * taps_of(problem), all_rows = problem->groups * rows;
    if (made->position_chunks > 1)
        return "products of an image are too many";
    if (problem->groups > 1 && problem->group_in % vector != 0)
        return "groups of channels that begin within vectors";
    const bool is_matrix = (problem->h.in == 1 || src->h == problem->w.in * src->w) &&
                           (made->chunk.images == 1 || src->n == image * src->w);
    made->copies = !nhwc || !is_matrix || src->w % vector != 0 || problem->in_channels % vector != 0;
    made->order = CHANNELS_LAST;
    direct_shape *shape = &made->direct;
    shape->src_pitch = made->copies ? tconv_round_up(problem->in_channels, vector) : src->w;
    made->src_bytes = tconv_round_up(pixels * shape->src_pitch * (int64_t)problem->element_size, ALIGNMENT);
    shape->weight_pitch = problem->weight.in;
    shape->pixels = (int)pixels;
    shape->rows = (int)rows;
    shape->channels = (int)problem->group_in;
    shape->groups = (int)problem->groups;
    shape->row_pitch = nhwc ? 1 : tconv_round_up(pixels, PITCH);
    shape->pixel_pitch = nhwc ? tconv_round_up(all_rows, PITCH) : 1;
    shape->group_pitch = rows * shape->row_pitch;
    shape->part_pitch = nhwc ? pixels * shape->pixel_pitch : all_rows * shape->row_pitch;
    *work = tconv_cuda_begin_work(layer);
    cut_products(layer, most_products(made), may_wgmma(layer, made), shape, work);
    made->products_bytes = tconv_round_up(shape->parts * shape->part_pitch * 4, ALIGNMENT);
    if (scratch_before(made) > MAX_SCRATCH)
        return "products too many";

    gather_shape *out = &made->out;
    const bool taps_outside = problem->desc.weight_layout != TCONV_WEIGHT_IOHW;
    out->out_pitch = shape->row_pitch * (taps_outside ? 1 : taps_of(problem));
    out->tap_pitch = shape->row_pitch * (taps_outside ? made->chunk.channels : 1);
    out->group_pitch = shape->group_pitch;
    out->column_pitch = shape->pixel_pitch;
    out->row_pitch = problem->w.in * shape->pixel_pitch;
    out->image_pitch = image * shape->pixel_pitch;
    out->part_pitch = shape->part_pitch;
    out->parts = shape->parts;
    return NULL;
}

bool describe_products(const tconv_layer *layer, plan *made)
{
    const tconv_problem *problem = &layer->problem;
    const chunk_src src = describe_src(problem, made);
    tconv_desc desc;
    if (tconv_desc_init(&desc) != TCONV_SUCCESS)
        return false;
    desc.in_channels = problem->in_channels;
    desc.kernel_h = desc.kernel_w = 1;
    desc.groups = problem->groups;
    desc.math = made->widens ? TCONV_MATH_TF32 : layer->target.math;
    const tconv_weight_strides weight = made->way == EXCHANGED ? describe_exchanged(problem, &src, made, &desc)
                                                               : describe_straight(problem, &src, made, &desc);
    if (tconv_problem_init(&made->products.problem, &desc, NULL) != TCONV_SUCCESS)
        return false;
    tconv_problem *products = &made->products.problem;
    products->weight.in = weight.in;
    products->weight.out = weight.out;
    products->weight_extent = (problem->in_channels - 1) * weight.in + (products->group_out - 1) * weight.out + 1;
    made->products.rows = table_of(&made->row_phase, desc.in_h);
    made->products.columns = table_of(&made->column_phase, desc.in_w);
    made->products.target = layer->target;
    made->products.target.math = desc.math;
    made->products.packed_before = made->way == STRAIGHT && layer->packed_before;
    made->products_bytes = tconv_round_up(products->dst_extent * 4, ALIGNMENT);
    return true;
}

} // namespace tconv::gemm_col2im
