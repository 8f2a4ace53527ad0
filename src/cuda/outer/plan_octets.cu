/* Cuts of a layer whose operands are octets of planes (octet_operands.cuh). */
#include "plan_octets.h"

#include "../../core/checked.h"
#include "../gemm/shape.h"
#include "../model/planned.h"
#include "cost.h"
#include "plan_splits.h"

namespace tconv::outer
{

namespace
{

constexpr int OCTET_LOG2 = 3, OCTET = 1 << OCTET_LOG2, OCTET_BYTES = 16; /* eight pixels */
constexpr int BANK_BYTES = 128;                                          /* of all banks of shared memory */
constexpr int MAX_CHUNK = 256;
constexpr int PRODUCER_THREADS = 256;
constexpr int PIXELS_LOG2 = 6;
static_assert(1 << PIXELS_LOG2 == OCTET_PIXELS, "of a K-tile");

struct candidate {
    const kernel_choice *kernel;
    int64_t row_taps, column_taps;
    int row_log2, column_log2;
};

/* Octets of a window that holds the slots of all taps of a row, of the group that needs most; 0: too many. */
int window_octets_of(const tconv_problem *problem, const parameters *p)
{
    int most = 0;
    for (int group = 0; group < p->tiles.columns.groups; group++) {
        const int first = p->columns.least[group] & (OCTET - 1);
        const int last =
            first + (p->tiles.columns.group_taps - 1) * p->octets.tap_step + (OCTET - 1) * p->columns.stride;
        most = last / OCTET + 1 > most ? last / OCTET + 1 : most;
    }
    const int least = problem->w.stride == 4 ? 5 : 2, furthest = problem->w.stride == 4 ? 5 : 3;
    return most > furthest ? 0 : most < least ? least : most;
}

/* The distance of octets of so many rows, of which lanes write so many side by side: no two meet in a bank. */
int octet_pitch(int rows, int octets)
{
    return (int)tconv_round_up((int64_t)rows * OCTET_BYTES, BANK_BYTES) + (octets > 1 ? BANK_BYTES / octets : 0);
}

bool cut(const tconv_layer *layer, const candidate *of, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    parameters *p = &plan->parameters;
    sum_tiles *tiles = &p->tiles;
    const int parts = of->kernel->channels == MMA_M ? WARPGROUPS : 1;
    const int64_t most = of->kernel->pairs / of->column_taps / OCTET * OCTET * parts;
    if (most == 0)
        return false;
    tiles->chunks = tconv_ceil_div(problem->group_out, most < MAX_CHUNK ? most : MAX_CHUNK);
    tiles->chunk = tconv_round_up(tconv_ceil_div(problem->group_out, tiles->chunks), (int64_t)OCTET * parts);
    tiles->rows = order_of(&problem->h, layer->rows.kernel_step, of->row_taps);
    tiles->columns = order_of(&problem->w, 1, of->column_taps);
    tiles->block_m = of->kernel->channels;
    tiles->block_n = of->row_taps * of->column_taps * tiles->chunk;
    tiles->m_tiles = tconv_ceil_div(problem->group_in, tiles->block_m);
    tiles->count = problem->groups * tiles->m_tiles * tiles->chunks * tiles->rows.groups * tiles->columns.groups;
    p->octets.channels = (int)tiles->chunk / parts;
    p->octets.part_rows = of->kernel->pairs;
    p->octets.tap_step = (int)problem->w.dilation;
    return tiles->count < INT32_MAX;
}

bool make(const tconv_layer *layer, const candidate *of, planned_layer *plan)
{
    const tconv_problem *problem = &layer->problem;
    parameters *p = &plan->parameters;
    plan->kernel = *of->kernel;
    plan->threads = WARPGROUP_BLOCK_THREADS;
    plan->reading = OCTETS;
    p->octets = {};
    p->warps_m = 1;
    if (!cut(layer, of, plan))
        return false;
    int row_residues, column_residues;
    p->k_pixels = OCTET_PIXELS;
    p->images_log2 = PIXELS_LOG2 - of->row_log2 - of->column_log2;
    p->image_tiles = (int)tconv_ceil_div(problem->batch, (int64_t)1 << p->images_log2);
    if (!describe_axis(&problem->h, &p->tiles.rows, of->row_log2, &p->rows, &row_residues) ||
        !describe_axis(&problem->w, &p->tiles.columns, of->column_log2, &p->columns, &column_residues))
        return false;
    p->octets.window_octets = window_octets_of(problem, p);
    const int64_t k_tiles = (int64_t)p->image_tiles * p->rows.tiles * p->columns.tiles;
    if (p->octets.window_octets == 0 || k_tiles >= INT32_MAX || row_residues * p->rows.extent > MAX_SLOTS)
        return false;
    p->k_tiles = (int)k_tiles;
    const int octets = 1 << (of->column_log2 - OCTET_LOG2), rows = (row_residues * p->rows.extent) << p->images_log2;
    p->src_unit = unit_of(problem, &problem->src, problem->w.in, OCTET);
    p->dst_unit = unit_of(problem, &problem->dst, problem->w.out, OCTET);
    p->src_pitch = octet_pitch(p->tiles.block_m, octets);
    p->column_pitch = octet_pitch(of->kernel->pairs * (p->octets.channels < p->tiles.chunk ? WARPGROUPS : 1), octets);
    p->row_pitch = octets * p->column_pitch;
    p->dst_pitch = OCTET_BYTES;
    p->residue_slots = p->box_bytes = 0;
    p->lines = {};
    p->src_bytes = OCTET_PIXELS / OCTET * p->src_pitch;
    p->stage_bytes = (int)tconv_round_up(p->src_bytes + (int64_t)rows * p->row_pitch, STAGE_ALIGNMENT);
    p->octets.windows_at = (int)tconv_round_up(
        (int64_t)(OCTET_PIXELS / OCTET + rows) * (int64_t)sizeof(int[4]) + BARRIER_BYTES, BANK_BYTES);
    int64_t lanes = octets * (int64_t)rows;
    for (int64_t channels = 1; channels < p->tiles.chunk; channels *= 2)
        lanes *= 2;
    const int64_t items = tconv_ceil_div(lanes, PRODUCER_THREADS);
    p->table_bytes =
        (int)(p->octets.windows_at + 2 * items * p->octets.window_octets * PRODUCER_THREADS * (int64_t)OCTET_BYTES);
    const int64_t outputs = p->columns.stride * (int64_t)OCTET_PIXELS + OCTET * 5;
    if (!is_near(problem, &p->src_strides, p->images_log2, 1 << of->row_log2, OCTET_PIXELS) ||
        !is_near(problem, &p->dst_strides, p->images_log2, furthest_slot(&p->rows, p->rows.first[p->tiles.rows.groups]),
                 outputs))
        return false;
    p->flush_tiles = flush_tiles_of(p->k_pixels);
    if (!choose_stages(layer, plan))
        return false;
    p->weights = weights_of(problem, &p->tiles);
    choose_splits(layer, plan, octet_cycles(plan, rows * octets));
    return true;
}

} // namespace

void try_octets(const tconv_layer *layer, kernel_list list, planned_layer *trial, planned_layer *best)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t stride = problem->w.stride;
    if (problem->layout != TCONV_NCHW || problem->src.w != 1 || problem->dst.w != 1 ||
        (stride != 1 && stride != 2 && stride != 4))
        return;
    candidate of = {};
    for (of.kernel = list.kernels; of.kernel < list.kernels + list.count; of.kernel++)
        for_group_taps(problem->w.kernel, [&](int64_t column_taps) {
            for_group_taps(problem->h.kernel, [&](int64_t row_taps) {
                if (row_taps > of.kernel->rows)
                    return;
                of.row_taps = row_taps;
                of.column_taps = column_taps;
                for (of.column_log2 = OCTET_LOG2; of.column_log2 <= PIXELS_LOG2; of.column_log2++)
                    for (of.row_log2 = 0; of.row_log2 + of.column_log2 <= PIXELS_LOG2; of.row_log2++)
                        if (make(layer, &of, trial) && (best->cycles <= 0 || trial->cycles < best->cycles))
                            *best = *trial;
            });
        });
}

} // namespace tconv::outer
