/* The estimate by which tiles of the implicit matrix product are chosen. */
#include <cmath>

#include "../core/checked.h"
#include "igemm_plan.h"

namespace
{

constexpr int WARP = 32;

/*
 * For the estimate, in cycles and bytes a cycle: from the asking for a box or a slot to its being there; of the loading warps
 * that bring src themselves, split it, or turn planes into pixels; what a slot costs a warpgroup beside its products, and what
 * adding up each of its sums does in strict f32, plainly and with compensation; at the end of a tile, until it is stored, and
 * of NCHW for each 32 outputs more; of a second launch.
 */
constexpr double LATENCY = 560, GATHER_BYTES = 2.5, CONVERT_BYTES = 12, TURN_BYTES = 11, SLOT_CYCLES = 60,
                 STRICT_SLOT_CYCLES = 850, ADD_CYCLES = 1.5, COMPENSATED_CYCLES = 26, TILE_CYCLES = 4000,
                 ROW_CYCLES = 2.4, FILL_CYCLES = 4000;
/* Of turning src: each multiprocessor's bytes, and what it takes in any case. */
constexpr double TURN_CYCLES = 1000, TURN_SRC_BYTES = 6;
/* Where sums are handed over: at the end of a tile, until they are, and for each block; what is stored a cycle. */
constexpr double HAND_OVER_CYCLES = 2100, BLOCK_CYCLES = 100, STORE_BYTES = 29;
/* Of NCHW where a column phase is stored by itself: each sector in parts. */
constexpr double SPLIT_BYTES = 6;

/* Of the second-level cache to each multiprocessor when all load; of shared memory; of the memory's writes to each
 * multiprocessor; the share of its products that a tile's time is longer by, so that of two tiles that wait equally long for
 * something else the one with fewer products is taken; the buffers of slots of which nothing is to be had. */
struct estimate_rates {
    double l2_bytes, shared_bytes, write_bytes, product_share, kept_slots;
};
/* Fitted to the times of 45 layers in both layouts and three kinds of arithmetic; where sums are handed over, to 1,000 tiles
 * of 25 layers, so that the tiles that are chosen are those that took the least time. */
constexpr estimate_rates RATES = {31, 128, 10, 0.02, 0}, FED_RATES = {74, 158, 8.7, 0.1, 0.5};

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
    return TURN_CYCLES + (double)tconv_igemm_turned_bytes(&layer->problem) / (TURN_SRC_BYTES * multiprocessors);
}

bool has_split_sectors(const tconv_igemm_parameters *of)
{
    return !of->dst_channels_last && of->column_stride > 1 && !of->paired;
}

/* What takes the longest, and somewhat more for each that takes nearly as long. */
double together(double a, double b, double c, double d)
{
    return sqrt(sqrt(a * a * a * a + b * b * b * b + c * c * c * c + d * d * d * d));
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
    const double phases = of->merged ? 1 : (double)of->row_phases * of->column_phases;
    const double columns = of->paired ? of->column_taps : (double)layer->problem.w.kernel; /* of all phases */
    const double taps = of->merged ? 1 : (double)layer->problem.h.kernel * columns / phases;
    const double stage_taps = of->per_tap ? 1 : taps, slot_taps = taps / ceil(taps / of->slot_taps);
    const bool fed = tconv_igemm_is_fed(plan);
    const estimate_rates &rates = fed ? FED_RATES : RATES;
    /* Of a slot: the tensor cores; the shared memory that they and the copies use; one warpgroup by itself, which in strict
     * f32 adds while it does not multiply. */
    const double products = of->steps * units * (strict ? 3 : 1), bytes = (double)of->patch * of->row_bytes;
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
    const double stage_wait = (LATENCY + load + stage_taps * (traffic + multiply)) / of->stages / stage_taps;
    const double slot_wait = (LATENCY / slot_taps + traffic + multiply) / (of->slots - rates.kept_slots);
    const double slot = fed ? together(multiply, traffic, stage_wait, slot_wait)
                            : fmax(fmax(multiply, traffic), fmax(fmax(stage_wait, slot_wait), own / stage_taps));
    const double element = (double)layer->problem.element_size;
    const int64_t pixels = of->across > 0 ? of->covered : tconv_min(of->covered, of->patch);
    const double sums = (double)pixels * of->tile_blocks * TCONV_IGEMM_M * element;
    double end = TILE_CYCLES, last = 0, stored = sums;
    if (!of->dst_channels_last)
        end += fmax(sums / element / WARP * ROW_CYCLES, has_split_sectors(of) ? sums / SPLIT_BYTES : 0);
    if (of->hands_over) {
        const double handed =
            (double)groups * of->halves * tconv_igemm_half_bytes(plan->shape.N, (int)element, of->paired);
        end = HAND_OVER_CYCLES + of->tile_blocks * BLOCK_CYCLES + fmax(0, sums - handed) / STORE_BYTES;
        last = sums / STORE_BYTES;
        stored = sums * of->group_out / ((double)of->channel_blocks * TCONV_IGEMM_M);
    }
    const double roles = of->chunks * taps * slot + end, writes = stored / rates.write_bytes;
    const double tile = (of->hands_over ? together(roles, writes, 0, 0) : fmax(roles, writes)) +
                        of->chunks * taps * multiply * rates.product_share;
    return tile * (double)tconv_ceil_div(of->tiles, multiprocessors) + last + LATENCY + load +
           fill_cycles(layer, multiprocessors) + (of->turned ? turn_cycles(layer, multiprocessors) : 0);
}
