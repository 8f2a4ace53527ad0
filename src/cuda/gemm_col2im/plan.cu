/* Plans a layer: the chunks, the way of the products, the implementation that is predicted to be fastest with them, and
 * the tiles of the gathering. */
#include "plan.h"

#include <cfloat>
#include <cstring>

#include "../../core/checked.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "products.h"

namespace tconv::gemm_col2im
{

namespace
{

constexpr int64_t MAX_CHUNKS = 1024;                     /* two launches each */
constexpr int64_t MIN_IN = 16;                           /* input channels of a group: fewer are no GEMM */
constexpr int64_t MIN_TAPS = 4;                          /* with fewer the products are the outputs, or nearly */
constexpr int64_t MAX_INTERMEDIATE = 24;                 /* products for each output and input, at most */
constexpr int64_t MAX_EXTENT = (int64_t)1 << 30;         /* of 32-bit coordinates */
constexpr int64_t MAX_DILATED_STRIDE = (int64_t)1 << 15; /* whose square has 31 bits */

/* The corrections, fitted to 1,434 times of an H200. */
constexpr double GATHER_PASSES = 4;   /* launches of other passes that one of gathering is as long as, without work */
constexpr double PRODUCT_TIMES = 2.0; /* as long to gather from a byte as to copy one */
constexpr double OUTPUT_BYTES = 29;   /* bytes that are copied in the time that finding an output's taps takes */
constexpr double DIRECT_PLANES =
    0.5; /* the share of both that planes of wgmma's direct products take: 6 layers, H100 */

/* What products may be computed by: those for Hopper, else what takes more layers. */
const struct {
    const tconv_implementation *by;
    bool last_resort; /* planned only where none before takes the products: planning takes as long as with the others */
} multipliers[] = {{&tconv_cuda_cells, false},
                   {&tconv_cuda_wgmma, false},
                   {&tconv_cuda_igemm, false},
                   {&tconv_cuda_mma, true},
                   {&tconv_cuda_general, true}};

/* Inputs that an output reaches back over, at most. */
int64_t reach_of(const tconv_axis *axis)
{
    return (axis->kernel - 1) * axis->dilation / axis->stride;
}

/* Quotients of padded outputs by the stride, up to the last. */
int64_t quotients_of(const tconv_axis *axis)
{
    return (axis->pad + axis->out - 1) / axis->stride + 1;
}

const char *refusal(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t taps = taps_of(problem);
    if (problem->group_in < MIN_IN)
        return "fewer than 16 input channels per group";
    if (taps < MIN_TAPS)
        return "fewer than 4 taps";
    for (const tconv_axis *axis : {&problem->h, &problem->w})
        if ((axis->dilation > 1 && axis->stride > MAX_DILATED_STRIDE) || axis->in >= MAX_EXTENT ||
            axis->pad + axis->out >= MAX_EXTENT || axis->kernel >= MAX_EXTENT ||
            (axis->kernel - 1) * axis->dilation >= MAX_EXTENT || axis->stride >= MAX_EXTENT ||
            axis->dilation >= MAX_EXTENT)
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

/* As many of them as leave room for so many products, `each` of one: chunks are as even as they come. */
int64_t fit(int64_t have, double each, int64_t most)
{
    const int64_t room = tconv_max(1, (int64_t)((double)most / each));
    return room >= have ? have : tconv_ceil_div(have, tconv_ceil_div(have, room));
}

/* Whether there are more weights of an input channel than pixels. */
bool has_more_weights(const tconv_problem *problem)
{
    return (double)problem->group_out * (double)taps_of(problem) >
           (double)tconv_max(problem->batch, 1) * (double)(problem->h.in * problem->w.in);
}

/* Sets the chunks, so that the products of one take at most MAX_PRODUCTS: of output channels where weights are larger
 * than src, of images, of channels, then of positions. Returns false where even those would be too large. */
bool cut_chunks(const tconv_problem *problem, plan *made)
{
    const tconv_axis *cut = problem->h.in > 1 ? &problem->h : &problem->w;
    const int64_t batch = tconv_max(problem->batch, 1), taps = taps_of(problem), most = most_products(made);
    const int64_t per_position = problem->groups * taps * (cut == &problem->h ? problem->w.in : 1);
    const bool cuts_channels = problem->groups == 1 && problem->desc.weight_layout == TCONV_WEIGHT_IOHW;
    const bool weights_first = has_more_weights(problem);
    chunk_shape *chunk = &made->chunk;
    *chunk = {batch, problem->group_out, cut->in, quotients_of(cut)};
    made->cuts_rows = cut == &problem->h;
    const double image = (double)per_position * (double)cut->in; /* of a channel */
    if (cuts_channels && weights_first)
        chunk->channels = fit(chunk->channels, image * (double)batch, most);
    chunk->images = fit(chunk->images, image * (double)chunk->channels, most);
    if (cuts_channels && !weights_first)
        chunk->channels = fit(chunk->channels, image, most);
    if (image * (double)chunk->channels > (double)most) {
        const int64_t back = tconv_round_up(reach_of(cut) + PITCH, PITCH);
        const int64_t room = most / (per_position * chunk->channels) / PITCH * PITCH;
        if (room < 2 * back)
            return false;
        chunk->positions = tconv_min(room, cut->in);
        chunk->quotients = room - back;
    }
    made->image_chunks = tconv_ceil_div(batch, chunk->images);
    made->channel_chunks = tconv_ceil_div(problem->group_out, chunk->channels);
    made->position_chunks = tconv_ceil_div(quotients_of(cut), chunk->quotients);
    return chunks_of(made) <= MAX_CHUNKS;
}

/* The inverse of a number modulo another that shares no factor with it. */
int inverse_of(int64_t number, int64_t modulo)
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

gather_axis axis_of(const tconv_axis *axis, const tconv_phase_table *table)
{
    gather_axis made = {};
    made.in = (int)axis->in;
    made.stride = divisor_of((int)axis->stride);
    made.kernel = (int)axis->kernel;
    made.dilation = (int)axis->dilation;
    made.pad = (int)axis->pad;
    const int64_t common = tconv_gcd(axis->stride, axis->dilation);
    made.common = divisor_of((int)common);
    made.kernel_step = divisor_of((int)table->kernel_step);
    made.shift_step = divisor_of((int)table->shift_step);
    made.inverse = inverse_of(axis->dilation / common, table->kernel_step);
    made.begin = (int)axis->pad;
    made.end = (int)(axis->pad + axis->out);
    return made;
}

int64_t packed_bytes_of(const tconv_memory_sizes &sizes)
{
    return tconv_round_up((int64_t)sizes.packed, ALIGNMENT);
}

/* Has each multiplier plan the products, and keeps the plan of the fastest with what it needs; false where none takes
 * less than a limit, 0 for none. */
bool choose_multiplier(double limit, plan *made, tconv_cuda_work *work)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(&made->products);
    const tconv_cuda_work begun = tconv_cuda_begin_work(&made->products);
    if (tconv_cuda_is_beyond(limit, &machine, &begun))
        return false;
    tconv_planned best = {};
    const auto plan_by = [&](const tconv_implementation *by, tconv_cuda_work *counts) {
        tconv_planned planned = {};
        planned.work = counts;
        planned.limit = counts != NULL ? 0 : made->by != NULL ? best.prediction.seconds : limit;
        memset(made->made, 0, sizeof made->made);
        const tconv_status status = by->plan(&made->products, made->made, &planned, NULL);
        made->packed_chunk_bytes = packed_bytes_of(planned.sizes);
        if (status != TCONV_SUCCESS || scratch_before(made) + (int64_t)planned.sizes.scratch > MAX_SCRATCH)
            planned.prediction.seconds = -1;
        return planned;
    };
    for (const auto &[by, last_resort] : multipliers) {
        if (by->plan_bytes > sizeof made->made || (last_resort && made->by != NULL))
            continue;
        const tconv_planned planned = plan_by(by, NULL);
        if (planned.prediction.seconds > 0 &&
            (made->by == NULL || planned.prediction.seconds < best.prediction.seconds)) {
            made->by = by;
            best = planned;
        }
    }
    if (made->by == NULL)
        return false;
    made->sizes = plan_by(made->by, work).sizes; /* once more, for a plan stays where it was made */
    made->packed_chunk_bytes = packed_bytes_of(made->sizes);
    return true;
}

/* The seconds that a plan is compared less, for reading the weights as they lie. */
double saving_of(const tconv_layer *layer, way way)
{
    return way != STRAIGHT ? tconv_cuda_packing_seconds(layer) : 0;
}

/* Makes the work of all chunks of that of the products of one. Gathering, copying src and packing it are passes. */
void count_gather(const tconv_layer *layer, const plan *made, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const double chunks = (double)chunks_of(made);
    const double outputs = (double)(problem->batch * problem->out_channels) * (double)(problem->h.out * problem->w.out);
    /* An element of src is read and written in four bytes; a widened one is read in two. */
    const double copied = (made->widens ? 1.5 : 2) * (double)made->src_bytes;
    const double packed = made->way == EXCHANGED ? 2 * (double)made->packed_chunk_bytes : 0;
    const bool direct_planes = made->way == DIRECT && made->direct.by_wgmma && !made->out.channels_last;
    const double gathering = direct_planes ? DIRECT_PLANES : 1;
    work->rounds *= chunks;
    work->dram_bytes *= chunks;
    /* The first launch is not a pass. */
    work->passes =
        chunks * (work->passes + 1 + GATHER_PASSES + (made->copies ? 1 : 0) + (made->way == EXCHANGED ? 1 : 0)) - 1;
    work->pass_bytes =
        chunks * (work->pass_bytes + gathering * PRODUCT_TIMES * (double)made->products_bytes + copied + packed) +
        gathering * outputs * OUTPUT_BYTES;
}

/* What gathering, copying and packing take beside the products. */
double seconds_of_passes(const tconv_layer *layer, const plan *made)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    tconv_cuda_work work = {};
    count_gather(layer, made, &work);
    return tconv_cuda_least_seconds(&machine, &work) - machine.launch;
}

/* Plans a layer that is not refused one way, to be compared by less than a limit, 0 for none. */
const char *plan_way(const tconv_layer *layer, way way, double limit, plan *made, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const bool nhwc = problem->layout == TCONV_NHWC;
    *made = {};
    made->way = way;
    made->widens = problem->dtype != TCONV_F32 && way != DIRECT;
    if (!cut_chunks(problem, made))
        return "products of one chunk, or chunks, too many";
    made->out.rows = axis_of(&problem->h, &layer->rows);
    made->out.columns = axis_of(&problem->w, &layer->columns);
    made->out.dst_strides = problem->dst;
    made->out.groups = (int)problem->groups;
    made->out.group_out = (int)problem->group_out;
    made->out.channels = divisor_of((int)made->chunk.channels);
    made->out.images = (int)made->chunk.images;
    made->out.by_output = nhwc || way == EXCHANGED;
    made->out.parts = 1;
    made->out.channels_last = nhwc;
    if (!cut_tiles(&made->out)) /* a chunk that is cut has fewer */
        return "outputs too many for 32-bit numbers";
    if (way == DIRECT) {
        const char *why = describe_direct(layer, made, work);
        if (why != NULL)
            return why;
    } else {
        if (!describe_products(layer, made))
            return "products too many for a layer";
        const double left = limit > 0 ? limit + saving_of(layer, way) - seconds_of_passes(layer, made) : 0;
        if ((limit > 0 && left <= 0) || !choose_multiplier(left, made, work))
            return limit > 0 ? TCONV_NO_FASTER : "no implementation that multiplies in 48 MiB";
    }
    const int64_t held = made->widens ? (int64_t)sizeof(float) : (int64_t)problem->element_size;
    if (made->widens || way != STRAIGHT)
        made->weights_bytes = tconv_round_up(problem->weight_extent * held, ALIGNMENT);
    count_gather(layer, made, work);
    return NULL;
}

/* Whether a layer, which is not refused, may be planned that way: weights that are read as they lie are more than
 * src, and follow one another in each input channel. */
bool may_take(const tconv_problem *problem, way way)
{
    return way == STRAIGHT || (has_more_weights(problem) && problem->desc.weight_layout != TCONV_WEIGHT_HWOI &&
                               (way == DIRECT || problem->dtype == TCONV_F32));
}

} // namespace

const char *make_plan(const tconv_layer *layer, double limit, plan *made, tconv_cuda_work *work)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    const char *why = refusal(layer);
    if (why != NULL)
        return why;
    double least = limit > 0 ? limit : DBL_MAX;
    way best = STRAIGHT, last = STRAIGHT;
    for (const way way : {DIRECT, EXCHANGED, STRAIGHT}) {
        if (!may_take(&layer->problem, way))
            continue;
        last = way;
        why = plan_way(layer, way, least < DBL_MAX ? least : 0, made, work);
        const double seconds = why == NULL ? tconv_cuda_seconds_of(&machine, work) - saving_of(layer, way) : DBL_MAX;
        if (seconds < least) {
            least = seconds;
            best = way;
        }
    }
    return best == last ? why
                        : plan_way(layer, best, 0, made, work); /* once more, for a plan stays where it was made */
}

} // namespace tconv::gemm_col2im
