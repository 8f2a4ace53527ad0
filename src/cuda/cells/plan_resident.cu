/* How the cells algorithm cuts a layer where weights stay in shared memory (cells_resident.cuh), and what it takes then. */
#include <cmath>

#include "../../core/checked.h"
#include "../maps/hopper.h"
#include "plan.h"

namespace tconv::cells
{

namespace
{

/* Where weights stay in shared memory, fitted to six layers: a tile's products beside the stores of the other pair, for each
 * chunk and at all; its stores, and how many bytes more a row costs that ends within a sector. */
constexpr double RESIDENT_CHUNK_CYCLES = 360, RESIDENT_TILE_CYCLES = 960, RESIDENT_STORE_CYCLES = 4000;
constexpr int SECTOR = 32, SECTOR_END_BYTES = 64;

} // namespace

double tconv_cells_memory_cycles(const tconv_problem *problem)
{
    constexpr double MEMORY_BYTES = 2300;
    return (double)problem->element_size * (double)problem->batch *
           ((double)problem->in_channels * (double)problem->h.in * (double)problem->w.in +
            (double)problem->out_channels * (double)problem->h.out * (double)problem->w.out) /
           MEMORY_BYTES;
}

/*
 * How images are cut into units, and the work into that of teams: with as many slices as teams or fewer, each has one, and
 * as many others share it. False where weights do not fit, or less than a unit is left of each image.
 */
bool tconv_cells_describe_resident(int multiprocessors, tconv_cells_plan *plan)
{
    constexpr int LEAST_STAGES = 3;
    tconv_cells_parameters *of = &plan->parameters;
    const int left = of->in_columns % TCONV_CELLS_UNIT;
    of->image_units = of->in_columns / TCONV_CELLS_UNIT;
    of->rest_columns = left;
    /* A box of what is left has as many floats as any other. */
    for (of->rest_pitch = TCONV_CELLS_ALIGNMENT; of->rest_pitch < left || TCONV_CELLS_UNIT_PITCH % of->rest_pitch != 0;
         of->rest_pitch += TCONV_CELLS_ALIGNMENT) {
    }
    if (left > 0)
        of->rest_images = (int)tconv_min(TCONV_CELLS_UNIT / left, TCONV_CELLS_UNIT_PITCH / of->rest_pitch);
    const int64_t units =
        (int64_t)of->images * of->image_units + (left > 0 ? tconv_ceil_div(of->images, of->rest_images) : 0);
    if (of->image_units == 0 || units >= HOPPER_MAX_EXTENT || of->chunks > TCONV_CELLS_RESIDENT_CHUNKS)
        return false;
    of->units = (int)units;
    of->place_tiles = (int)tconv_ceil_div(units, TCONV_CELLS_UNITS);
    const int of_group = of->channel_tiles * of->programs;
    of->slices = of->groups * of_group;
    of->sharing = of_group % TCONV_CELLS_CLUSTER == 0 ? TCONV_CELLS_CLUSTER : 1;
    of->sets = of->slices / of->sharing;
    const int teams = multiprocessors / TCONV_CELLS_CLUSTER * TCONV_CELLS_CLUSTER / of->sharing;
    of->team_step = (int)tconv_max(1, tconv_min(of->sets, teams));
    of->tile_step = (int)tconv_max(1, tconv_min(teams / of->team_step, of->place_tiles));
    of->row_bytes = (uint32_t)(of->chunk_channels * sizeof(float));
    of->slot_bytes = (uint32_t)of->program[0].rows * of->row_bytes;
    of->stage_bytes = TCONV_CELLS_UNITS * TCONV_CELLS_UNIT_PITCH * (uint32_t)(of->chunk_channels * (int)sizeof(float));
    of->stages = (int)tconv_min((TCONV_CELLS_SHARED_MEMORY - (int64_t)of->chunks * of->slot_bytes) / of->stage_bytes,
                                TCONV_CELLS_BUFFERS);
    return of->stages >= LEAST_STAGES;
}

/* Cycles of a team's multiprocessor: stores and products slow each other down by what they take of the way to shared memory. */
double tconv_cells_estimate_resident(const tconv_layer *layer, const tconv_cells_plan *plan)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_cells_parameters *of = &plan->parameters;
    const double row = (double)problem->w.out * sizeof(float);
    const double ends = (int64_t)row % SECTOR != 0 ? 1 + SECTOR_END_BYTES / row : 1;
    const double tile = of->chunks * RESIDENT_CHUNK_CYCLES + RESIDENT_TILE_CYCLES + ends * RESIDENT_STORE_CYCLES;
    const double box = (double)of->chunks * of->stage_bytes / of->sharing / TCONV_CELLS_L2_BYTES;
    const double weights = (double)of->chunks * of->slot_bytes / TCONV_CELLS_L2_BYTES + TCONV_CELLS_LATENCY;
    const double tiles = (double)tconv_ceil_div(of->place_tiles, of->tile_step);
    const double rounds = (double)tconv_ceil_div(of->sets, of->team_step);
    return HOPPER_LAUNCH_CYCLES +
           fmax(rounds * (weights + tiles * fmax(tile, box)), tconv_cells_memory_cycles(problem));
}

} // namespace tconv::cells
