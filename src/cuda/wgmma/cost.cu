/* What a tile of the wgmma kernels is estimated to take. */
#include <cmath>

#include "../../core/checked.h"
#include "../maps/hopper.h"
#include "../runtime/tensor_map.h"
#include "plan.h"

namespace tconv::wgmma
{

namespace
{

constexpr int WARP = 32, MAX_VECTOR = 4; /* elements that a lane stores at once */

/*
 * For the estimate, in cycles and bytes a cycle: from the asking for a box or a slot to its being there; of the second-level
 * cache to each multiprocessor when all load, measured, and of a row of a box, however short; of shared memory; of a warp to
 * convert 32 pixels of a quad; of a stroke that its warpgroup cannot hide, and for each of its sums where they are added in
 * f32; for handing over a chunk; at the end of a tile; of a bulk copy of a row, and of one whose channels lie differently
 * modulo 16 bytes; of a warp to store a vector a lane; of each multiprocessor's share of the memory's writing, by bytes and by
 * sectors that a row of a tile has only a part of. Then the share of its products that a tile's time is longer by, so that of
 * two tiles that wait equally long for something else the one with fewer products is taken; last the share of what these parts
 * of sectors take the memory longer by which they delay a tile.
 */
constexpr double LATENCY = 1500, L2_BYTES = 22, BOX_ROW_CYCLES = 8, SHARED_BYTES = 128, CONVERT_CYCLES = 40,
                 STROKE_CYCLES = 120, ADD_CYCLES = 1.5, CHUNK_CYCLES = 400, TILE_CYCLES = 1500, ROW_CYCLES = 28,
                 APART_ROW_CYCLES = 40, VECTOR_CYCLES = 20, WRITE_BYTES = 17.7, PART_CYCLES = 9.75,
                 PRODUCT_SHARE = 0.02, PARTS_SHARE = 0.6, FOLDED_TIMES = 1.02;
constexpr int SECTOR = 32; /* bytes */
/* The same of a warp, more into a tight patch, which delays the chunk: what kb57, unet_up1 and s2_op in TF32 lost by it. */
constexpr double WALK_CYCLES = 35;

/*
 * For the whole time of a layer in its tile, by which cuda_wgmma is set against cuda_igemm; as above, fitted to the times of 28
 * layers in three kinds of arithmetic (off by 10 %, root mean square). Tiles chosen by these were 2 % slower in the mean than
 * those chosen as above. Weights come faster than boxes, and while rows of boxes are asked for.
 */
constexpr double WHOLE_LATENCY = 2000, WHOLE_BOX_BYTES = 18, WHOLE_WEIGHT_BYTES = 50, WHOLE_BOX_ROW_CYCLES = 8.5,
                 WHOLE_CHUNK_CYCLES = 120, WHOLE_STRICT_CHUNK_CYCLES = 660;

/* The end of a tile, by the warps that store what a warpgroup stages: cycles that it takes beside its chunks; of a row that is
 * stored by one of them, however long it is. Fitted to 104 times in three kinds of arithmetic (off by 13 to 20 %). */
struct tile_end {
    double cycles, row;
};
constexpr tile_end WHOLE_END[] = {{5400, 41}, {5300, 29}};

/* Where boxes are operands as they lie: bytes a cycle of swizzled boxes, measured; for handing over a chunk. */
constexpr double SWIZZLED_L2_BYTES = 29, SWIZZLED_CHUNK_CYCLES = 150;

/* By how much a layer takes longer whose src is read element by element. */
constexpr double APART_TIMES = 1.8;

/* Where they are moved to be operands: of a warp to move a lane's word of each, and of a chunk; assumptions. */
constexpr double SHIFT_CYCLES = 12, SHIFT_CHUNK_CYCLES = 100;

/* Whether boxes are operands as they come, swizzled; others are rows, each of which takes a while to be asked for. */
bool is_direct(const tconv_wgmma_plan *made)
{
    return made->transposed && !made->shifted;
}

double box_rows(const tconv_wgmma_plan *made, double cycles)
{
    const tconv_wgmma_parameters *of = &made->parameters;
    return is_direct(made) ? 0 : cycles * of->chunk_channels * made->patch_rows * of->box_parts;
}

/* Of a chunk: cycles to multiply and to convert it, and those by which converting into a tight patch delays it; bytes of its
 * weights. Of a tile: rows that are stored. */
struct tile_work {
    double multiply, convert, walk, weights, rows;
};

tile_work work_of(const tconv_wgmma_plan *made)
{
    const tconv_wgmma_parameters *of = &made->parameters;
    const bool strict = made->mode == TCONV_WGMMA_STRICT;
    const double N = made->shape.N, times = strict ? 3 : 1;
    const int slot_products = of->order[0].runs * of->order[0].count + of->order[1].runs * of->order[1].count;
    /* The tensor cores; the shared memory that they, boxes and converting read and write; one warpgroup by itself, which in
     * strict f32 adds while it does not multiply. */
    const double products = (of->chunk_slots[0] + of->chunk_slots[1]) * slot_products * times;
    const double weights = of->resident ? 0 : (double)of->slot_bytes * of->max_chunk_slots;
    const double operands = products * (TCONV_WGMMA_M + N) * 2 * TCONV_WGMMA_QUAD;
    const double memory = (operands + 2.0 * of->box_bytes + of->stage_bytes + weights) / SHARED_BYTES;
    const bool together = of->same_order && !strict;
    const double strokes =
        (double)(tconv_wgmma_strokes(of, 0) + (together ? 0 : tconv_wgmma_strokes(of, 1))) / of->chunks;
    const double add = strict ? N / 2 * ADD_CYCLES : 0;
    const double alone = products * N / 4 + strokes * (STROKE_CYCLES + add);
    const double quads = 2.0 * of->steps * of->box_patch / (4 * 32); /* of a warp's lanes */
    /* The same, of 8 bytes, where planes are moved. */
    const double words = of->chunk_channels * fmin(of->tile_columns, of->in_columns) * 2 / 8 / (4 * WARP);
    const double convert = made->shifted      ? words * SHIFT_CYCLES + SHIFT_CHUNK_CYCLES
                           : made->transposed ? 0
                                              : quads * CONVERT_CYCLES * tconv_wgmma_planes(made->mode);
    const double walk = of->tight ? quads * WALK_CYCLES : 0;
    const double rows = TCONV_WGMMA_M * TCONV_WGMMA_GROUPS * (of->row_pixels == 2 ? 1 : TCONV_WGMMA_UNITS);
    return {fmax(fmax(products * N / 2, memory), alone), convert, walk, weights, rows};
}

/*
 * Cycles that the memory takes more for those sectors of a tile that are written in parts. Both ends of a row are, but for the
 * share of rows that begin with a sector; where tiles are as wide as dst, and between rows of a run, the other part is written
 * at the same time.
 */
double part_cycles(const tconv_wgmma_parameters *of, const tile_work &work, int element)
{
    int64_t alike = tconv_gcd(SECTOR, of->out_columns * (int64_t)element);
    alike = tconv_gcd(alike, of->dst_channel * element % SECTOR);
    alike = tconv_gcd(alike, (int64_t)of->row_pixels * of->tile_columns * element);
    const double parts = of->column_tiles == 1 ? 0 : 2 * (1 - (double)alike / SECTOR);
    return work.rows * of->unit_rows * parts * PART_CYCLES;
}

/* Cycles that the memory takes to write a tile. */
double write_cycles(const tconv_wgmma_parameters *of, const tile_work &work, int element)
{
    const int64_t row_bytes = (int64_t)of->row_pixels * of->unit_columns * element;
    return work.rows * of->unit_rows * (double)row_bytes / WRITE_BYTES + part_cycles(of, work, element);
}

} // namespace

int64_t tconv_wgmma_strokes(const tconv_wgmma_parameters *of, int unit)
{
    return (int64_t)of->chunks * of->max_chunk_slots * of->order[unit].runs *
           tconv_ceil_div(of->order[unit].count, TCONV_WGMMA_STROKE);
}

/*
 * Cycles of the multiprocessor with most tiles. The roles work side by side: the slowest of them counts, and each needs
 * its buffers for as long as it and its neighbour take with one. (Of slots not in strict f32, whose tiles are slower if counted so.)
 */
double tconv_wgmma_tile_cycles(const tconv_wgmma_plan *made)
{
    const tconv_wgmma_parameters *of = &made->parameters;
    const tile_work work = work_of(made);
    const double multiply = work.multiply, convert = work.convert, weights = work.weights;
    const bool strict = made->mode == TCONV_WGMMA_STRICT;
    const bool direct = is_direct(made);
    const double bytes = direct ? SWIZZLED_L2_BYTES : L2_BYTES;
    const double box = fmax(of->box_bytes / bytes, box_rows(made, BOX_ROW_CYCLES));
    const double traffic = box + weights / bytes;
    const double load = of->in_place ? 0 : (LATENCY + box + (direct ? multiply : convert)) / of->boxes;
    const double slots = of->max_chunk_slots * (LATENCY + of->slot_bytes / bytes) + (strict ? 0 : multiply);
    const double slot = of->resident ? 0 : slots / of->slots;
    const double filled = of->in_place ? LATENCY + box : 0; /* before a stage is converted */
    const double stage = direct ? 0 : (filled + convert + multiply) / of->stages;
    const double chunk = fmax(fmax(fmax(multiply, convert), fmax(load, slot)), fmax(stage, traffic));
    /* A run is stored by vectors where its rows are short. */
    const int element = made->mode == TCONV_WGMMA_TF32 || made->mode == TCONV_WGMMA_STRICT ? 4 : 2;
    const bool apart = of->dst_channel * element % BOX_ALIGNMENT != 0;
    const double vectors = (double)of->column_phases * of->unit_columns / MAX_VECTOR / WARP;
    const double rows = of->run_columns > 0 ? 1 + (double)of->unit_columns / of->run_columns : of->unit_rows;
    const double bulk = rows * (apart ? APART_ROW_CYCLES : ROW_CYCLES);
    const double row = of->run_columns > 0 ? fmin(bulk, vectors * VECTOR_CYCLES) : bulk;
    const double store = work.rows * row / tconv_wgmma_store_warps(made->mode);
    const double handing = direct ? SWIZZLED_CHUNK_CYCLES : CHUNK_CYCLES;
    const double work_alone = of->chunks * (chunk + work.walk + handing) + TILE_CYCLES;
    /* Writing parts of sectors delays the reading. With one buffer, sums of the second turn wait until those of the first are
     * asked for and written, by a memory that the others' writing keeps busy for this share of the time. */
    const double write = write_cycles(of, work, element);
    const double delay = strict ? 0 : PARTS_SHARE * part_cycles(of, work, element);
    const double wait = delay + (of->staged_turns == 2 ? 0 : store / 4 + fmin(1, write / work_alone) * write / 2);
    const double tile = fmax(work_alone + wait, store) + of->chunks * multiply * PRODUCT_SHARE;
    return tile * (of->fold_log2 > 0 ? FOLDED_TIMES : 1) * (double)tconv_ceil_div(of->tiles, made->thread_blocks);
}

double tconv_wgmma_apart_times(const tconv_wgmma_plan *made)
{
    return made->aligned || made->transposed ? 1 : APART_TIMES;
}

double tconv_wgmma_whole_cycles(const tconv_wgmma_plan *made)
{
    const tconv_wgmma_parameters *of = &made->parameters;
    const tile_work work = work_of(made);
    const bool direct = is_direct(made);
    const double rows = box_rows(made, WHOLE_BOX_ROW_CYCLES);
    const double box = of->box_bytes / (direct ? SWIZZLED_L2_BYTES : WHOLE_BOX_BYTES);
    const double weights = work.weights / WHOLE_WEIGHT_BYTES, freed = direct ? work.multiply : work.convert;
    const double load = of->in_place ? 0 : (WHOLE_LATENCY + fmax(box, rows) + freed) / of->boxes;
    const double slot = of->resident ? 0 : (of->max_chunk_slots * WHOLE_LATENCY + weights) / of->slots;
    const double filled = of->in_place ? WHOLE_LATENCY + fmax(box, rows) : 0;
    const double stage = direct ? 0 : (filled + work.convert + work.multiply) / of->stages;
    const double chunk =
        fmax(fmax(fmax(work.multiply, work.convert), fmax(load, slot)), fmax(stage, fmax(box + weights, rows)));
    const double handing = made->mode == TCONV_WGMMA_STRICT ? WHOLE_STRICT_CHUNK_CYCLES : WHOLE_CHUNK_CYCLES;
    const tile_end *end = &WHOLE_END[tconv_wgmma_store_warps(made->mode) - 1];
    const double store = work.rows * end->row, wait = of->staged_turns == 2 ? 0 : store / 4;
    const double tile = fmax(of->chunks * (chunk + work.walk + handing) + end->cycles + wait, store);
    const double first = WHOLE_LATENCY + fmax(box, rows) + work.convert; /* before anything is multiplied */
    return tconv_wgmma_apart_times(made) *
           (HOPPER_LAUNCH_CYCLES + first + tile * (double)tconv_ceil_div(of->tiles, made->thread_blocks));
}

} // namespace tconv::wgmma
