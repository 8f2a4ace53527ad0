/* Candidates of a cut, each predicted by what its block takes for a K-tile. */
#include "plan.h"

#include "cost.h"
#include "plan_boxes.h"
#include "plan_lines.h"
#include "plan_splits.h"
#include "strict.h"

#include "../../core/checked.h"
#include "../gemm/shape.h"
#include "../maps/hopper.h"
#include "../model/planned.h"
#include "../numeric/divisor.h"

#include <cstring>

namespace tconv::wgrad
{

namespace
{

constexpr int64_t CHUNKS[] = {64, 128, 256};     /* output channels of a tile, at most */
constexpr int BLOCK_SHARED_MEMORY = 1024;        /* bytes that a block has beside its stages */
constexpr int TABLE_PIXEL = 20, TABLE_SLOT = 16; /* bytes of a block's tables */
constexpr int64_t FLUSH_TERMS = 8192; /* that the tensor cores sum: they lose about 7e-9 of a sum with each */
constexpr int64_t STRICT_TERMS = (int64_t)STRICT_SEGMENT * STRICT_STEPS * 8; /* the same in 3xTF32 by wgmma */
constexpr int64_t COPIES_BYTES = (int64_t)44 << 20;                          /* of a part, beside COPIED_SLICES_BYTES */
constexpr int MOST_SHARERS = 2, SHARERS_STAGES = 4; /* blocks of a cluster, and the stages that it takes */
constexpr int64_t MAX_EXTENT = (int64_t)1 << 28;
constexpr int64_t MAX_OFFSET = 32000; /* outputs from a K-tile's first: they are kept in 16 bits */

/* What copies take beside the products: */
constexpr double COPY_BYTES = 9;     /* a cycle of every multiprocessor, of src and of the gradient of dst */
constexpr double PART_CYCLES = 9000; /* of a part that is copied, beside that: two launches */

/* Fills in an axis for K-tiles of 2^tile_log2 inputs; false where slots are too many. *most: residues of the group of taps
 * with most. */
bool describe_axis(const tconv_axis *axis, const tap_order *order, int tile_log2, tile_axis *made, int *most)
{
    int64_t kernel_at[MAX_TAPS], reach = 0;
    made->in = (int)axis->in;
    made->out = (int)axis->out;
    made->stride = (int)axis->stride;
    made->tile_log2 = tile_log2;
    made->tiles = (int)tconv_ceil_div(axis->in, (int64_t)1 << tile_log2);
    for (int k = 0; k < order->kernel; k++)
        kernel_at[place_of(*order, k)] = k;
    int residues = 0;
    *most = 0;
    for (int group = 0; group < order->groups; group++) {
        int place = group * order->group_taps;
        const int end = place + order->group_taps < order->kernel ? place + order->group_taps : order->kernel;
        const int first = residues;
        made->first[group] = (int16_t)first;
        for (; place < end; residues++) { /* the taps of one residue; their outputs rise */
            const int64_t residue = kernel_at[place] % order->kernel_step;
            const int64_t least = axis->dilation * kernel_at[place] - axis->pad;
            made->least[residues] = (int16_t)least;
            for (; place < end && kernel_at[place] % order->kernel_step == residue; place++) {
                const int64_t slot = (axis->dilation * kernel_at[place] - axis->pad - least) / axis->stride;
                if (slot >= MAX_SLOTS)
                    return false;
                made->tap_residue[place] = (int16_t)(residues - first);
                made->tap_slot[place] = (int16_t)slot;
                reach = tconv_max(reach, slot);
            }
        }
        *most = residues - first > *most ? residues - first : *most;
    }
    made->first[order->groups] = (int16_t)residues;
    made->extent = (int)(reach + ((int64_t)1 << tile_log2));
    return *most * made->extent <= MAX_SLOTS && axis->stride * made->extent <= MAX_OFFSET;
}

tap_order order_of(const tconv_axis *axis, int64_t kernel_step, int64_t group_taps)
{
    return {(int)axis->kernel, (int)kernel_step, (int)group_taps, (int)tconv_ceil_div(axis->kernel, group_taps)};
}

/* Bytes from a pixel to the next, so that neighbours' rows of 16 bytes lie in other banks. */
int pitch_of(int64_t channels, bool half)
{
    if (!half) {
        int64_t words = tconv_round_up(channels, 4);
        while (words % 16 != 8)
            words += 4;
        return (int)words * 4;
    }
    const int64_t rows = tconv_ceil_div(channels, 8);
    return (int)(rows % 2 == 1 ? rows : rows + 1) * 16;
}

/* Outputs from a K-tile's first to that of the furthest slot. */
int64_t furthest_slot(const tile_axis *axis, int residues)
{
    int64_t furthest = 0;
    for (int i = 0; i < residues; i++) {
        const int64_t least = axis->least[i], greatest = least + axis->stride * (axis->extent - 1);
        furthest = tconv_max(furthest, tconv_max(-least, greatest));
    }
    return furthest;
}

/* Whether the last place of a K-tile is fewer bytes from its first than 32 bits hold. */
bool is_near(const tconv_problem *problem, const tconv_strides *strides, int images_log2, int64_t rows, int64_t columns)
{
    const int64_t images = ((int64_t)1 << images_log2) - 1;
    return images * strides->n + rows * strides->h + columns * strides->w <= INT32_MAX / (int64_t)problem->element_size;
}

struct candidate {
    const kernel_choice *kernel;
    int warps_m, k_log2, row_log2, column_log2;
    bool lines; /* reads them */
    int64_t row_taps, column_taps;
    int64_t chunk; /* output channels of a tile, at most; of a kernel by wgmma as many as there are pairs for */
};

/* Neighbouring pixels of a row of so many that can be read at once, from multiples of `begins` on: a power of two of at
 * most a vector. */
int unit_of(const tconv_problem *problem, const tconv_strides *strides, int64_t extent, int64_t begins)
{
    int64_t unit = vector_length(problem);
    while (unit > 1 &&
           (extent % unit != 0 || begins % unit != 0 || !tconv_cuda_begins_at_multiples(problem, strides, unit)))
        unit /= 2;
    return (int)unit;
}

/* Chooses how K-tiles of a candidate are read. */
void choose_reading(const tconv_layer *layer, const candidate *of, planned_layer *plan)
{
    const int column_log2 = of->column_log2;
    const tconv_problem *problem = &layer->problem;
    parameters *p = &plan->parameters;
    const bool src_vectors = has_vectors(problem, &problem->src, problem->group_in);
    plan->reading = ELEMENTS;
    p->src_unit = 1;
    if (src_vectors && has_vectors(problem, &problem->dst, problem->group_out))
        plan->reading = CHANNELS;
    else if (src_vectors && problem->element_size == 2 && plan->kernel.by_warpgroups && !plan->kernel.by_boxes)
        plan->reading = SRC_CHANNELS;
    if (plan->reading == CHANNELS && plan->kernel.by_boxes)
        plan->reading = BOXES;
    if (of->lines)
        plan->reading = LINES;
    if (problem->layout != TCONV_NCHW)
        return;
    p->src_unit = unit_of(problem, &problem->src, problem->w.in, (int64_t)1 << column_log2);
    if (problem->element_size == 4 && p->src_unit > 2)
        p->src_unit = 2;
}

/* Cuts the channels of a layer for a candidate, of which sum tiles are made; false where it has no such tile. */
bool cut_channels(const tconv_layer *layer, const candidate *of, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    sum_tiles *tiles = &plan->parameters.tiles;
    const kernel_choice *kernel = of->kernel;
    const int64_t unit = kernel->by_boxes ? BOX_CHANNELS
                         : of->lines      ? 1
                                          : vector_length(problem),
                  taps = of->row_taps * of->column_taps;
    const int64_t most = kernel->by_warpgroups ? kernel->pairs / taps / unit * unit : of->chunk;
    if (most == 0)
        return false;
    tiles->chunks = tconv_ceil_div(problem->group_out, most);
    tiles->chunk = tconv_round_up(tconv_ceil_div(problem->group_out, tiles->chunks), unit);
    tiles->rows = order_of(&problem->h, layer->rows.kernel_step, of->row_taps);
    tiles->columns = order_of(&problem->w, layer->columns.kernel_step, of->column_taps);
    tiles->block_m = kernel->channels * of->warps_m;
    tiles->block_n = tconv_round_up(taps * tiles->chunk, kernel->pairs);
    tiles->m_tiles = tconv_ceil_div(problem->group_in, tiles->block_m);
    tiles->count = problem->groups * tiles->m_tiles * tiles->chunks * tiles->rows.groups * tiles->columns.groups;
    const int64_t warps = of->warps_m * tiles->block_n / kernel->pairs;
    plan->threads = kernel->by_boxes        ? BOX_BLOCK_THREADS
                    : kernel->by_warpgroups ? WARPGROUP_BLOCK_THREADS
                                            : (int)warps * LANES;
    plan->parameters.warps_m = of->warps_m;
    return warps <= MAX_WARPS && tiles->count < MAX_EXTENT;
}

/* Bytes of src in a stage. */
int64_t src_bytes_of(const tconv_layer *layer, const planned_layer *plan)
{
    const parameters *p = &plan->parameters;
    const int64_t size = (int64_t)layer->problem.element_size, channels = p->tiles.block_m;
    if (!plan->kernel.by_warpgroups)
        return (int64_t)p->k_pixels * p->src_pitch;
    return p->k_pixels * size * channels * (plan->mode == MODE_STRICT ? STRICT_PLANES : 1);
}

/* Bytes of a block's tables; residues: of rows and columns. */
int64_t table_bytes_of(const planned_layer *plan, int64_t slots, int rows, int columns)
{
    const int64_t boxes = !plan->kernel.by_warpgroups || plan->kernel.by_boxes ? 0
                          : plan->reading == LINES                             ? rows + MOST_SRC_BOXES
                          : plan->reading == CHANNELS                          ? (int64_t)rows * columns
                                                                               : 0;
    return plan->parameters.k_pixels * TABLE_PIXEL + PIXELS_BEHIND * (int64_t)sizeof(int) + slots * TABLE_SLOT +
           boxes * BOX_TABLE_BYTES;
}

/* Finds how many stages, and blocks of a multiprocessor, there is memory for; false where there is too little. */
bool choose_stages(const tconv_layer *layer, planned_layer *plan)
{
    parameters *p = &plan->parameters;
    const int by_registers = plan->kernel.resident_warps / (plan->threads / LANES);
    for (p->stages = plan->kernel.by_warpgroups ? MAX_STAGES : 3; p->stages >= 2; p->stages--) {
        const int by_memory =
            (layer->target.shared_bytes + BLOCK_SHARED_MEMORY) / (shared_bytes_of(p) + BLOCK_SHARED_MEMORY);
        plan->resident = by_memory < by_registers ? by_memory : by_registers;
        if (plan->resident >= 1)
            return true;
    }
    return false;
}

/* Whether blocks that are neighbours along the input channels are to share the gradient of dst. They wait for each other: it
 * takes stages to hide that, and where src goes through registers it costs more than it saves. */
bool can_share(const planned_layer *plan)
{
    const parameters *p = &plan->parameters;
    return plan->kernel.by_warpgroups && plan->mode == MODE_TF32 && p->box_bytes > 0 &&
           p->tiles.m_tiles % MOST_SHARERS == 0 && p->stages >= SHARERS_STAGES && plan->reading == LINES &&
           p->lines.src_box_pixels > 0;
}

/* Makes the plan of a candidate, in which layer-wide fields are set; false where it does not fit. */
bool make(const tconv_layer *layer, const candidate *of, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    parameters *p = &plan->parameters;
    const bool half = problem->element_size == 2, by_warpgroups = of->kernel->by_warpgroups;
    const bool by_boxes = of->kernel->by_boxes;
    sum_tiles *tiles = &p->tiles;
    plan->kernel = *of->kernel;
    if (!cut_channels(layer, of, plan))
        return false;
    p->k_pixels = 1 << of->k_log2;
    p->images_log2 = of->k_log2 - of->row_log2 - of->column_log2;
    p->image_tiles = (int)tconv_ceil_div(problem->batch, (int64_t)1 << p->images_log2);
    int row_residues, column_residues;
    if (!describe_axis(&problem->h, &tiles->rows, of->row_log2, &p->rows, &row_residues) ||
        !describe_axis(&problem->w, &tiles->columns, of->column_log2, &p->columns, &column_residues))
        return false;
    p->residue_slots = (int)tconv_round_up(((int64_t)p->rows.extent * p->columns.extent) << p->images_log2, SLOT_BLOCK);
    const int64_t slots = (int64_t)p->residue_slots * row_residues * column_residues;
    const int64_t k_tiles = (int64_t)p->image_tiles * p->rows.tiles * p->columns.tiles;
    if (k_tiles >= MAX_EXTENT || slots > 4096)
        return false;
    p->k_tiles = (int)k_tiles;
    choose_reading(layer, of, plan);
    p->src_pitch = pitch_of(tiles->block_m, half);
    p->dst_pitch = by_boxes ? BOX_CHANNELS * (int)sizeof(uint16_t) : pitch_of(tiles->chunk, half);
    p->row_pitch = p->columns.extent * p->dst_pitch;
    p->column_pitch = p->dst_pitch;
    p->box_bytes = 0;
    p->lines = {};
    if (plan->reading == LINES)
        lay_out_lines(layer, plan);
    p->src_bytes = (int)src_bytes_of(layer, plan);
    const int64_t dst_bytes = plan->reading == LINES
                                  ? (int64_t)row_residues * p->lines.residue_bytes
                                  : slots * p->dst_pitch * (by_boxes ? tiles->chunk / BOX_CHANNELS : 1);
    p->stage_bytes = (int)tconv_round_up(p->src_bytes + dst_bytes, by_warpgroups ? STAGE_ALIGNMENT : 128);
    p->table_bytes = (int)tconv_round_up(table_bytes_of(plan, slots, row_residues, column_residues) +
                                             (by_warpgroups ? BARRIER_BYTES + RAW_BARRIER_BYTES : 0),
                                         128);
    if (!is_near(problem, &p->src_strides, p->images_log2, 1 << of->row_log2, 1 << of->column_log2) ||
        !is_near(problem, &p->dst_strides, p->images_log2, furthest_slot(&p->rows, p->rows.first[tiles->rows.groups]),
                 furthest_slot(&p->columns, p->columns.first[tiles->columns.groups])))
        return false;
    if (!describe_boxes(layer, plan))
        return false;
    p->flush_tiles = (int)((plan->mode == MODE_STRICT ? STRICT_TERMS : FLUSH_TERMS) / p->k_pixels);
    if (!choose_stages(layer, plan))
        return false;
    p->weights = {NULL, problem->weight, problem->weight.out == 1, problem->desc.accumulate != 0,
                  (int)(tiles->block_n + tiles->block_n / LANES) | 1};
    p->sharers = can_share(plan) ? MOST_SHARERS : 1;
    choose_splits(layer, plan,
                  by_boxes        ? box_cycles(plan, slots)
                  : by_warpgroups ? warpgroup_cycles(layer, plan, slots)
                                  : tile_cycles(layer, plan, slots));
    return true;
}

void try_candidate(const tconv_layer *layer, const candidate *of, planned_layer *trial, planned_layer *best)
{
    if (make(layer, of, trial) && (best->cycles <= 0 || trial->cycles < best->cycles))
        *best = *trial;
}

/* Tries all boxes of inputs as K-tiles; of those that are alike the first, with the longest rows. */
void try_boxes(const tconv_layer *layer, candidate *of, planned_layer *trial, planned_layer *best)
{
    const tconv_problem *problem = &layer->problem;
    const int columns = log2_at_least(problem->w.in), rows = log2_at_least(problem->h.in);
    const int images = log2_at_least(tconv_max(1, problem->batch));
    const bool only_most = of->kernel->by_warpgroups && problem->element_size == 2;
    for (of->k_log2 = only_most ? 6 : 5; 1 << of->k_log2 <= of->kernel->most_pixels; of->k_log2++)
        for (of->column_log2 = (int)tconv_min(of->k_log2, columns); of->column_log2 >= 0; of->column_log2--)
            for (of->row_log2 = (int)tconv_min(of->k_log2 - of->column_log2, rows); of->row_log2 >= 0; of->row_log2--)
                if (of->k_log2 - of->column_log2 - of->row_log2 <= images ||
                    (of->column_log2 == columns && of->row_log2 == rows))
                    try_candidate(layer, of, trial, best);
}

/* Calls `what` with each number of taps that a group of an axis may have. */
template <class Do> void for_group_taps(int64_t kernel, Do what)
{
    for (int64_t groups = 1, last = 0; groups <= kernel; groups++) {
        const int64_t taps = tconv_ceil_div(kernel, groups);
        if (taps != last)
            what(taps);
        last = taps;
    }
}

/* Tries all groups of taps: of rows, and of columns where that is one row or the kernel is by boxes, whose tiles have few. */
void try_taps(const tconv_layer *layer, candidate *of, planned_layer *trial, planned_layer *best)
{
    const int64_t rows = layer->problem.h.kernel, columns = layer->problem.w.kernel;
    for_group_taps(rows, [&](int64_t row_taps) {
        for_group_taps(columns, [&](int64_t column_taps) {
            of->row_taps = row_taps;
            of->column_taps = column_taps;
            if (column_taps == columns || row_taps == 1 || of->kernel->by_boxes)
                try_boxes(layer, of, trial, best);
        });
    });
}

bool is_taken(const tconv_axis *axis)
{
    return axis->kernel <= MAX_TAPS && axis->in < MAX_EXTENT && axis->out < MAX_EXTENT && axis->stride < MAX_OFFSET &&
           axis->in * axis->stride < 4 * MAX_EXTENT && axis->dilation * (axis->kernel - 1) < MAX_OFFSET &&
           axis->pad < MAX_OFFSET;
}

/* The kernels of a mode. */
struct kernel_list {
    const kernel_choice *kernels;
    int count;
};

/* Those by mma.sync, and those by wgmma. */
kernel_list kernels_of(mode mode)
{
    const kernel_list lists[MODES] = {{kernels_tf32, KERNELS_F32},
                                      {kernels_strict, KERNELS_STRICT},
                                      {kernels_f16, KERNELS_HALF},
                                      {kernels_bf16, KERNELS_HALF}};
    return lists[mode];
}

kernel_list warpgroup_kernels_of(mode mode)
{
    const kernel_list lists[MODES] = {{warpgroup_kernels_tf32, WARPGROUP_KERNELS},
                                      {warpgroup_kernels_strict, STRICT_WARPGROUP_KERNELS},
                                      {warpgroup_kernels_f16, WARPGROUP_KERNELS},
                                      {warpgroup_kernels_bf16, WARPGROUP_KERNELS}};
    return lists[mode];
}

kernel_list box_kernels_of(mode mode)
{
    const kernel_list lists[MODES] = {
        {NULL, 0}, {NULL, 0}, {box_kernels_f16, BOX_KERNELS}, {box_kernels_bf16, BOX_KERNELS}};
    return lists[mode];
}

/* What is the same of all candidates. */
planned_layer begin(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    planned_layer trial = {};
    parameters *p = &trial.parameters;
    trial.mode = problem->dtype == TCONV_F16    ? MODE_F16
                 : problem->dtype == TCONV_BF16 ? MODE_BF16
                 : tconv_cuda_is_strict(layer)  ? MODE_STRICT
                                                : MODE_TF32;
    p->src_strides = problem->src;
    p->dst_strides = problem->dst;
    p->images = (int)problem->batch;
    p->sharers = 1;
    p->tiles.groups = problem->groups;
    p->tiles.group_in = problem->group_in;
    p->tiles.group_out = problem->group_out;
    return trial;
}

/* Tries all kernels of a list with one tile of a block, by lines or not. */
void try_kernels(const tconv_layer *layer, kernel_list list, bool lines, planned_layer *trial, planned_layer *best)
{
    candidate of = {};
    of.warps_m = 1;
    of.lines = lines;
    for (of.kernel = list.kernels; of.kernel < list.kernels + list.count; of.kernel++)
        try_taps(layer, &of, trial, best);
}

/* Tries copies by channels, where tensors lie by planes or have channels that are no vectors. */
void try_copies(const tconv_layer *layer, planned_layer *best)
{
    const tconv_problem *problem = &layer->problem;
    if ((has_vectors(problem, &problem->src, problem->group_in) &&
         has_vectors(problem, &problem->dst, problem->group_out)) ||
        !can_copy(problem))
        return;
    const int64_t weights =
        problem->in_channels * problem->group_out * problem->h.kernel * problem->w.kernel * (int64_t)sizeof(float);
    const copies copies = cut_copies(problem, weights <= COPIED_SLICES_BYTES ? COPIES_BYTES : weights);
    if (copies.images == 0 || (problem->element_size != 2 && parts_of(copies) > 1)) /* boxes alone add to slices */
        return;
    tconv_layer part = *layer;
    part.problem = problem_of_part(problem, copies);
    planned_layer trial = begin(layer), made = {};
    trial.copies = copies;
    trial.parameters.src_strides = part.problem.src;
    trial.parameters.dst_strides = part.problem.dst;
    try_kernels(&part, problem->element_size == 2 ? box_kernels_of(trial.mode) : warpgroup_kernels_of(trial.mode),
                false, &trial, &made);
    const double bytes = (double)problem->batch * (double)problem->element_size *
                         ((double)(problem->in_channels * problem->h.in * problem->w.in) +
                          (double)(problem->out_channels * problem->h.out * problem->w.out));
    made.cycles =
        (made.cycles + PART_CYCLES) * (double)parts_of(copies) + bytes / (COPY_BYTES * layer->target.multiprocessors);
    if (made.blocks > 0 && (best->cycles <= 0 || made.cycles < best->cycles))
        *best = made;
}

} // namespace

bool choose(const tconv_layer *layer, planned_layer *best)
{
    const tconv_problem *problem = &layer->problem;
    candidate of = {};
    if (layer->target.compute_capability < 80 || problem->batch >= MAX_EXTENT || !is_taken(&problem->h) ||
        !is_taken(&problem->w))
        return false;
    planned_layer trial = begin(layer);
    const kernel_list list = kernels_of(trial.mode);
    for (const int64_t most : CHUNKS) {
        if (most > CHUNKS[0] && 2 * problem->group_out <= most)
            break;
        of.chunk = most;
        for (of.kernel = list.kernels; of.kernel < list.kernels + list.count; of.kernel++)
            for (of.warps_m = 1; of.warps_m <= 4; of.warps_m *= 2)
                if (of.warps_m * of.kernel->channels < 2 * tconv_max(16, problem->group_in))
                    try_taps(layer, &of, &trial, best);
    }
    if (tconv_cuda_why_not_hopper(layer) == NULL) {
        try_kernels(layer, warpgroup_kernels_of(trial.mode), false, &trial, best);
        try_kernels(layer, box_kernels_of(trial.mode), false, &trial, best);
        if (can_be_lines(problem))
            try_kernels(layer, warpgroup_kernels_of(trial.mode), true, &trial, best);
        try_copies(layer, best);
    }
    best->bias_parts = bias_parts_of(layer, best);
    return best->cycles > 0;
}

} // namespace tconv::wgrad
