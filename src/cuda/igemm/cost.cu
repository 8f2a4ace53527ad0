/* The estimate by which tiles of the implicit matrix product are chosen. */
#include <algorithm>
#include <cmath>
#include <functional>

#include "../../core/checked.h"
#include "plan.h"

namespace tconv::igemm
{

namespace
{

constexpr int WARP = 32, SECTOR = 32; /* bytes, of the memory and the second-level cache */

/*
 * For the estimate, in cycles and bytes a cycle: of the loading warps that bring src themselves, split it, or turn
 * planes into pixels; what a slot costs a warpgroup beside its products, and what adding up each of its sums does in
 * strict f32, plainly and with compensation; at the end of a tile, until it is stored; of a second launch.
 */
constexpr double GATHER_BYTES = 2.9, CONVERT_BYTES = 12, TURN_BYTES = 11, SLOT_CYCLES = 60, STRICT_SLOT_CYCLES = 850,
                 ADD_CYCLES = 1.5, COMPENSATED_CYCLES = 26, TILE_CYCLES = 3700, FILL_CYCLES = 4000;
/* Of turning src: each multiprocessor's bytes, and what it takes in any case; how much longer where pixels are read
 * one by one. */
constexpr double TURN_CYCLES = 1050, TURN_SRC_BYTES = 5.7, APART_TIMES = 1.5;
/* Where sums are handed over: at the end of a tile, until they are, and for each block; what is stored a cycle, of
 * pixels and of pairs of columns. */
constexpr double HAND_OVER_CYCLES = 2700, BLOCK_CYCLES = 360, STORE_BYTES = 38, PAIR_STORE_BYTES = 8.2;
/* Of NCHW where those that multiply store: each 32 outputs, as instructions; bytes of outputs, sectors at the ends of
 * rows counted whole, where columns are stored together and where a phase is stored by itself, in parts of each
 * sector. */
constexpr double ROW_CYCLES = 2.4, ROW_BYTES = 19, SPLIT_BYTES = 8;
/* Of the memory's writes to each multiprocessor, of NCHW: pieces of rows, not whole pixels. */
constexpr double ROW_WRITE_BYTES = 8.5;
/* The share of their time by which multiprocessors are faster while others have no tile: cache and memory are theirs. */
constexpr double IDLE_SHARE = 0.1;
/* In TF32 the estimates of cuda_wgmma and cuda_cells, that this is set against, are 13 % below what was measured in
 * the mean (35 layers), this one would be level; with this factor the fastest of the three is found most often. */
constexpr double TF32_TIMES = 0.94;

/* From the asking for a box, of the memory, or a slot, of the second-level cache, to its being there; of this cache
 * to each multiprocessor when all load; of shared memory; of the memory's writes to each multiprocessor; the share of
 * its products that a tile's time is longer by, so that of two tiles that wait equally long for something else the
 * one with fewer products is taken; the buffers of slots of which nothing is to be had. */
struct estimate_rates {
    double box_latency, slot_latency, l2_bytes, shared_bytes, write_bytes, product_share, kept_slots;
};
/* Fitted to the times of 45 layers in both layouts and three kinds of arithmetic; where the copy engine brings all,
 * and at the end of a tile, to 9,000 tiles of 42 layers in 16 bits and TF32, so that the tiles that are chosen are
 * those that took the least time. */
constexpr estimate_rates RATES = {560, 560, 31, 128, 10, 0.02, 0}, FED_RATES = {1540, 760, 64, 160, 15, 0.053, 0.26};

/* Cycles in which outputs without a tap are filled, by a launch of its own. */
double fill_cycles(const tconv_layer *layer, int multiprocessors)
{
    const tconv_problem *problem = &layer->problem;
    int64_t outputs[2] = {0, 0};
    for (int64_t i = 0; i < layer->rows.count; i++)
        outputs[0] += layer->rows.phases[i].outputs;
    for (int64_t i = 0; i < layer->columns.count; i++)
        outputs[1] += layer->columns.phases[i].outputs;
    const double pixels = (double)problem->h.out * (double)problem->w.out - (double)outputs[0] * (double)outputs[1];
    const double bytes =
        pixels * (double)problem->batch * (double)problem->out_channels * (double)problem->element_size;
    return bytes > 0 ? FILL_CYCLES + bytes / (RATES.write_bytes * multiprocessors) : 0;
}

/* Cycles in which src is turned, by the launch that packs the weights. */
double turn_cycles(const tconv_layer *layer, int multiprocessors)
{
    const bool apart = !tconv_igemm_turning_of(&layer->problem, NULL, NULL).vectors;
    return TURN_CYCLES + (double)tconv_igemm_turned_bytes(&layer->problem) / (TURN_SRC_BYTES * multiprocessors) *
                             (apart ? APART_TIMES : 1);
}

bool has_split_sectors(const tconv_igemm_parameters *of)
{
    return !of->dst_channels_last && of->column_stride > 1 && !of->paired;
}

/* How many bytes of sectors a tile writes for each byte of its outputs in NCHW: both ends of a piece of a row are in
 * sectors of which others write the rest, but for the share of pieces that begin with a sector. */
double sector_share(const tconv_layer *layer, const tconv_igemm_parameters *of)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t element = (int64_t)problem->element_size, columns = of->paired ? 2 : 1;
    const bool whole = of->flat && of->column_stride == 1; /* rows follow one another */
    const int64_t pixels = whole            ? of->covered
                           : of->flat       ? of->flat_columns
                           : of->across > 0 ? TCONV_IGEMM_ROW
                                            : of->tile_columns;
    const int64_t piece = pixels * columns * element;
    const int64_t alike =
        tconv_gcd(tconv_gcd(SECTOR, piece), (whole ? problem->dst.c : problem->dst.h) * element % SECTOR);
    return 1 + (double)((SECTOR - alike) * columns) / (double)(piece * of->column_stride);
}

/* The mean taps of the tiles of the multiprocessor with most to do: tiles of all phases in turn, and of those that
 * are left of the last turn the longest. */
double mean_taps(const tconv_igemm_parameters *of, int multiprocessors)
{
    if (of->merged)
        return 1;
    int taps[TCONV_IGEMM_PHASES * TCONV_IGEMM_PHASES];
    int64_t sum = 0;
    const int phases = of->row_phases * of->column_phases;
    for (int i = 0; i < phases; i++)
        sum += taps[i] = of->rows[i / of->column_phases].taps * of->columns[i % of->column_phases].taps;
    const int64_t tiles = tconv_ceil_div(of->tiles, multiprocessors), left = tiles % phases;
    sum *= tiles / phases;
    if (left > 0)
        std::partial_sort(taps, taps + left, taps + phases, std::greater<int>());
    for (int64_t i = 0; i < left; i++)
        sum += taps[i];
    return (double)sum / (double)tiles;
}

/* Of a pair's products, the share that there is: a unit may lack a tap that the other has. */
double pair_share(const tconv_igemm_parameters *of)
{
    return of->uneven ? (double)(of->unit_taps[0] + of->unit_taps[1]) / (2.0 * of->column_taps) : 1;
}

/* What takes the longest, and a little more for each that takes nearly as long. */
double together(double a, double b, double c, double d)
{
    const double all[] = {a * a * a, b * b * b, c * c * c, d * d * d};
    return cbrt(sqrt(all[0] * all[0] + all[1] * all[1] + all[2] * all[2] + all[3] * all[3]));
}

} // namespace

bool tconv_igemm_is_fed(const tconv_igemm_plan *plan)
{
    return plan->parameters.by_boxes && plan->parameters.src_channels_last && plan->mode != TCONV_IGEMM_STRICT;
}

/*
 * Cycles of the multiprocessor with most tiles. The roles work side by side: the slowest of them counts, and each needs its
 * buffers for as long as it and its neighbour take with one.
 */
double tconv_igemm_estimate(const tconv_layer *layer, const tconv_igemm_plan *plan, int multiprocessors)
{
    const tconv_igemm_parameters *of = &plan->parameters;
    const bool strict = plan->mode == TCONV_IGEMM_STRICT;
    const int groups = of->unit_pixel[1][0] < of->patch ? 2 : 1; /* that have pixels */
    const double N = plan->shape.N, units = groups * plan->shape.units;
    const double taps = mean_taps(of, multiprocessors);
    const double stage_taps = of->per_tap ? 1 : taps, slot_taps = taps / ceil(taps / of->slot_taps);
    const bool fed = tconv_igemm_is_fed(plan);
    const estimate_rates &rates = fed ? FED_RATES : RATES;
    /* Of a slot: the tensor cores; the shared memory that they and the copies use; one warpgroup by itself, which in strict
     * f32 adds while it does not multiply. */
    const double products = of->steps * units * pair_share(of) * (strict ? 3 : 1),
                 bytes = (double)of->patch * of->row_bytes;
    const double memory =
        (products * (TCONV_IGEMM_M + N) * TCONV_IGEMM_STEP + of->slot_bytes + bytes * (strict ? 4 : 1) / stage_taps) /
        rates.shared_bytes;
    const double add =
        strict ? N * plan->shape.units / 2 * (plan->shape.long_sums ? COMPENSATED_CYCLES : ADD_CYCLES) : 0;
    const double alone = fed ? TCONV_IGEMM_SLOT_PERIOD / slot_taps
                             : products / groups * N / 2 + (strict ? STRICT_SLOT_CYCLES : SLOT_CYCLES) + add;
    const double multiply = fmax(fmax(products * N / 2, memory), alone);
    /* Of a stage: what the loading warps do, and what the copy engine brings. */
    const double own = !of->by_boxes            ? bytes / GATHER_BYTES
                       : !of->src_channels_last ? bytes / TURN_BYTES
                       : strict                 ? bytes / CONVERT_BYTES
                                                : 0;
    const double box = !of->by_boxes ? 0 : of->src_channels_last ? bytes : of->plane_box_bytes * stage_taps / taps;
    const double load = own + box / rates.l2_bytes;
    const double traffic = box / rates.l2_bytes / stage_taps + of->slot_bytes / rates.l2_bytes;
    const double stage_wait = (rates.box_latency + load + stage_taps * (traffic + multiply)) / of->stages / stage_taps;
    const double slot_wait = (rates.slot_latency / slot_taps + traffic + multiply) / (of->slots - rates.kept_slots);
    const double slot = fed ? together(multiply, traffic, stage_wait, slot_wait)
                            : fmax(fmax(multiply, traffic), fmax(fmax(stage_wait, slot_wait), own / stage_taps));
    const double element = (double)layer->problem.element_size;
    const int64_t pixels = of->across > 0 ? of->covered : tconv_min(of->covered, of->patch);
    const double sums = (double)pixels * of->tile_blocks * TCONV_IGEMM_M * element;
    double end = TILE_CYCLES, last = 0, stored = sums, write_bytes = rates.write_bytes;
    if (!of->dst_channels_last) {
        const double rate = has_split_sectors(of) ? SPLIT_BYTES : ROW_BYTES;
        end += fmax(sums / element / WARP * ROW_CYCLES, sums * sector_share(layer, of) / rate);
        write_bytes = ROW_WRITE_BYTES;
    }
    if (of->hands_over) {
        const double store_bytes = of->paired ? PAIR_STORE_BYTES : STORE_BYTES;
        const double handed =
            (double)groups * of->halves * tconv_igemm_half_bytes(plan->shape.N, (int)element, of->paired);
        end = HAND_OVER_CYCLES + of->tile_blocks * BLOCK_CYCLES + fmax(0, sums - handed) / store_bytes;
        last = sums / store_bytes;
        stored = sums * of->group_out / ((double)of->channel_blocks * TCONV_IGEMM_M);
    }
    const double roles = of->chunks * taps * slot + end, writes = stored / write_bytes;
    const double tile = (of->hands_over ? together(roles, writes, 0, 0) : fmax(roles, writes)) +
                        of->chunks * taps * multiply * rates.product_share;
    const double rounds = (1 - IDLE_SHARE) * (double)tconv_ceil_div(of->tiles, multiprocessors) +
                          IDLE_SHARE * of->tiles / multiprocessors;
    const double cycles = tile * rounds + last + rates.box_latency + load + fill_cycles(layer, multiprocessors) +
                          (of->turned ? turn_cycles(layer, multiprocessors) : 0);
    return cycles * (plan->mode == TCONV_IGEMM_TF32 ? TF32_TIMES : 1);
}

} // namespace tconv::igemm
