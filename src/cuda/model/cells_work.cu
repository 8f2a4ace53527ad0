/* What a plan of cuda_cells does: see work.h. A K-block is a chunk of input channels at all entries of a program, of the mean
 * program; a thread block is one of a cluster of two. */
#include <cmath>

#include "../../core/checked.h"
#include "../cells_plan.h"
#include "planned.h"

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES =
    550; /* of a warpgroup, for an entry: waits, the window's branch, the next entry's record */
constexpr double STRICT_CYCLES = 1300; /* the same in strict f32, with what splits operands and adds partial sums */
constexpr double TILE_CYCLES = 1400;   /* until a tile's sums may be stored */

constexpr double WHOLE_ENTRIES =
    0.5; /* of an entry's instructions, where it is all of its program: no window, no record */
constexpr double CONFLICT_TIMES = 0.6;   /* that a step's loads take longer for each way of a bank conflict */
constexpr int LOAD_BYTES = 128;          /* of a load of the one warp that reads what TMA cannot */
constexpr int WARPS = 8, TURN_WARPS = 4; /* that store; of a pair of warpgroups that store while the others multiply */

struct program_counts {
    double sums, entries, slots, rows; /* of all programs */
    bool whole;
};

program_counts count_programs(const tconv_cells_plan *plan, int all)
{
    const tconv_cells_parameters *of = &plan->parameters;
    program_counts counts = {(double)all, 1, 1, (double)of->program[0].rows, false};
    if (of->resident)
        return counts;
    counts = {0, 0, 0, 0, plan->shape.block == all};
    for (int p = 0; p < of->programs; p++) {
        const tconv_cells_program *program = &of->program[p];
        for (int e = program->first_entry; e < program->end_entry; e++)
            counts.sums += counts.whole ? all : of->entry[e].window % 16 * plan->shape.block;
        counts.entries += program->end_entry - program->first_entry;
        counts.slots += program->end_slot - program->first_slot;
        counts.rows += program->rows;
    }
    return counts;
}

void count_main_loop(const tconv_layer *layer, const tconv_cells_plan *plan, int all, tconv_cuda_work *work)
{
    const tconv_cells_parameters *of = &plan->parameters;
    const program_counts counts = count_programs(plan, all);
    const double programs = (double)tconv_max(of->programs, 1), entries = counts.entries / programs;
    const double weights = counts.rows / programs * of->row_bytes;
    const bool registers = !plan->strict && !of->resident;
    work->k_blocks = of->chunks;
    work->wgmma_chain = (plan->strict ? 3 : 1) * of->steps * counts.sums / 8 / programs;
    work->wgmma = TCONV_CELLS_GROUPS * work->wgmma_chain;
    work->issues = registers ? entries * (counts.whole ? WHOLE_ENTRIES : 1) : 0;
    work->issue_cycles = ISSUE_CYCLES;
    work->slow_issues = plan->strict ? entries : 0;
    work->slow_issue_cycles = STRICT_CYCLES;
    work->tile_cycles = TILE_CYCLES;
    work->fragments = registers ? entries * of->steps * (1 + CONFLICT_TIMES * (plan->bank_cycles - 1)) : 0;
    work->shared_bytes = 2.0 * of->stage_bytes + weights + work->wgmma * 8 * 32;
    work->weight_bytes = of->resident ? 0 : weights / TCONV_CELLS_CLUSTER;
    work->box_bytes = (double)of->stage_bytes / (double)(of->resident ? tconv_max(of->sharing, 1) : 1);
    work->stages = of->stages;
    work->weight_stages = of->resident ? 0 : of->slots;
    work->weight_waits = counts.slots / programs * TCONV_CELLS_CLUSTER; /* both blocks' */
    if (!tconv_cuda_reads_vectors(layer) && (of->in_rows > 1 || layer->problem.src.c % TCONV_CELLS_ALIGNMENT != 0 ||
                                             layer->problem.src.n % TCONV_CELLS_ALIGNMENT != 0))
        work->chain_loads = (double)of->stage_bytes / LOAD_BYTES;
}

void count_stores(const tconv_layer *layer, const tconv_cells_parameters *of, int all, tconv_cuda_work *work)
{
    const double outputs = (double)all * TCONV_CELLS_POSITIONS;
    const int64_t columns = of->cell_columns, run = columns < 4 ? 2 * columns : columns; /* of one or two positions */
    int64_t vector = tconv_min(tconv_cuda_row_vector(layer), run);
    const double row = (double)layer->problem.w.out * sizeof(float);
    work->stores = outputs / TCONV_MODEL_WARP / (double)vector;
    work->store_warps = of->resident ? TURN_WARPS : WARPS;
    work->overlaps = of->resident;
    work->sectors = outputs * sizeof(float) / TCONV_MODEL_SECTOR * fmax(1, (double)columns / (double)vector);
    if ((int64_t)row % TCONV_MODEL_SECTOR != 0)
        work->part_sectors = outputs * sizeof(float) / row;
}

} // namespace

void tconv_cuda_cells_work(const tconv_layer *layer, const tconv_cuda_machine *machine, tconv_cuda_work *work)
{
    const tconv_cells_choice choice = tconv_cells_choice_of(layer->choice);
    tconv_cells_plan plan;
    tconv_cells_describe(layer, &choice, machine->multiprocessors, &plan);
    const tconv_cells_parameters *of = &plan.parameters;
    const int all = of->resident ? TCONV_CELLS_RESIDENT_SUMS : TCONV_CELLS_SUMS(plan.strict);
    *work = tconv_cuda_work_begin(layer);
    count_main_loop(layer, &plan, all, work);
    count_stores(layer, of, all, work);
    /* Where weights stay, a set of them is loaded, which takes about a tile, before the tiles of it. */
    work->rounds = of->resident ? (double)tconv_ceil_div(of->sets, tconv_max(of->team_step, 1)) *
                                      (double)(tconv_ceil_div(of->place_tiles, tconv_max(of->tile_step, 1)) + 1)
                                : tconv_cuda_rounds(of->tiles, machine->multiprocessors / (double)TCONV_CELLS_CLUSTER);
}
