/* The work of a plan, see ../model/work.h: what the search for the plan compares, and what the plan is predicted to take. A K-block
 * is a K-tile of a block; a tile is a block's tile of sums, with the K-tiles of the block's slice. */
#include "work.h"

#include <math.h>

#include "../../core/checked.h"
#include "../cuda_target.h"
#include "../gemm/shape.h"
#include "../model/planned.h"
#include "plan_splits.h"
#include "strict.h"

/* How many times as long as by the machine's numbers things take in the kernels of a family and a load mode, and what a K-tile
 * and a block take beside. Fitted to times of plans that searches with changed times have found (bench/sweep_weights.py). */
typedef struct corrections {
    double tensor;        /* products */
    double shared;        /* reads and writes of shared memory */
    double l2;            /* bytes of boxes */
    double fragment;      /* operands of wgmma that warps load to registers */
    double row;           /* rows of boxes */
    double vector;        /* bytes that threads copy by vectors */
    double gathered;      /* mma.sync: bytes of single elements, each of which counts as so many */
    double wait;          /* loads of single elements that a thread waits for, each of which counts as so many; */
    double slot;          /* for each slot that is copied by elements, beside them; */
    double unit;          /* and for each unit of a line, */
    double small;         /* with so many beside for a unit of less than four elements */
    double turned;        /* bytes of units that are transposed in registers */
    double sector;        /* bytes of single elements whose sectors are more than the least (tile_copies) */
    double chain;         /* mma.sync: products of a warp that wait for one another */
    double k_tile, block; /* cycles beside, */
    double copied;        /* and of a K-tile by lines some of which threads copy */
} corrections;

enum { TF32_MATH, HALF_MATH, STRICT_MATH, MATHS };

/* By a kernel's family, load mode and arithmetic; 0 where a kernel has nothing of the kind. */
static const corrections table[][LOAD_MODES][MATHS] = {
    [BY_MMA][ELEMENTS][TF32_MATH] = {2.4, 1.2, 1.3, 0, 0, 0, 0.52, 0.083, 8.9, 0, 0, 0, 0.3, 0.15, 7109, 389, 0},
    [BY_MMA][ELEMENTS][HALF_MATH] = {1, 1, 0.14, 0, 0, 0, 1.6, 0.23, 0.062, 0, 0, 0, 0.3, 0.37, 3795, 1567, 0},
    [BY_MMA][ELEMENTS][STRICT_MATH] = {1.2, 1, 1.9, 0, 0, 0, 1.8, 0.52, 6.2, 0, 0, 0, 0.3, 0.2, 337, 488, 0},
    [BY_MMA][CHANNELS][TF32_MATH] = {0.53, 3.1, 0.37, 0, 0, 0.38, 0, 0, 0, 0, 0, 0, 0, 0.045, 3341, 8627, 0},
    [BY_MMA][CHANNELS][HALF_MATH] = {0.87, 3.5, 1.6, 0, 0, 1.6, 0, 0, 0, 0, 0, 0, 0, 0.054, 1949, 7842, 0},
    [BY_MMA][CHANNELS][STRICT_MATH] = {1.8, 1, 1.3, 0, 0, 1.4, 0, 0, 0, 0, 0, 0, 0, 0.82, 1886, 8100, 0},
    [BY_WGMMA][ELEMENTS][TF32_MATH] = {1.4, 0.97, 3.5, 0.22, 0, 0, 0, 0.51, 0.23, 0, 0, 0, 0.3, 0, 2299, 328, 0},
    [BY_WGMMA][ELEMENTS][HALF_MATH] = {0.58, 0.81, 0.15, 0.39, 0, 0, 0, 0.64, 0.11, 0, 0, 0, 0.3, 0, 272, 575, 0},
    [BY_WGMMA][ELEMENTS][STRICT_MATH] = {0.84, 2, 0.21, 0.87, 0, 0, 0, 0.47, 6.6, 0, 0, 0, 0.3, 0, 841, 490, 0},
    [BY_WGMMA][LINES][TF32_MATH] = {1.2, 1.9, 1.6, 0.68, 0.38, 0.084, 0, 0.47, 0, 0.84, 0.094, 0, 0, 0, 32, 8240, 1429},
    [BY_WGMMA][LINES][HALF_MATH] = {0.55, 1.4, 2, 1.5, 0.31, 1, 0, 1, 0, 2.2, 0.25, 2.4, 0, 0, 13, 554, 1554},
    [BY_WGMMA][LINES][STRICT_MATH] = {1.4, 0.62, 1.9, 1.4, 0.47, 0.21, 0, 1, 0, 1.5, 0.28, 0, 0, 0, 187, 483, 954},
    [BY_WGMMA][CHANNELS][TF32_MATH] = {1.6, 1.2, 0.89, 0.16, 0.37, 2.4, 0, 0, 0, 0, 0, 0, 0, 0, 1109, 7387, 0},
    [BY_WGMMA][CHANNELS][HALF_MATH] = {0.48, 1.7, 1.3, 0.3, 0.3, 2.4, 0, 0, 0, 0, 0, 0, 0, 0, 206, 2970, 0},
    [BY_WGMMA][CHANNELS][STRICT_MATH] = {1.4, 1.5, 0.15, 0.13, 0.05, 2.1, 0, 0, 0, 0, 0, 0, 0, 0, 1156, 3974, 0},
    [BY_WGMMA][SRC_CHANNELS][HALF_MATH] = {2.5, 1.1, 0.059, 0.12, 0, 0.19, 0, 0.54, 0.038, 0, 0, 0, 0, 0, 1130, 208, 0},
    [BY_BOXES][BOXES][HALF_MATH] = {1.3, 0.48, 0.077, 0, 0.49, 0, 0, 0, 0, 0, 0, 0, 0, 0, 172, 3746, 0},
};

/* A slice is written, read and added in so many times the time of a pass that copies. */
static const double SLICE_TIMES = 2.1;
/* Where a block writes runs of weights shorter than a sector, a byte that the sector has beside takes this part of one of a
 * pass. */
static const double SECTOR_TIMES = 0.40;

enum {
    COPY_LAUNCHES = 2,   /* of a chunk: of src, and of the gradient of dst */
    STRICT_PRODUCTS = 3, /* of a product in strict f32 */
    STRICT_PASSES = 4,   /* of src through shared memory in strict f32, whose planes are written and read */
    TURNED_PASSES = 3,   /* of src through shared memory where it goes through registers, */
    COPIED_PASSES = 2,   /* and of the gradient of dst where lanes copy it by vectors */
    SMALL_UNIT = 4,      /* elements: see corrections */
    STEP_LANES = 4       /* neighbouring pixels that lanes read at once from lines */
};

static bool is_half(const planned_layer *plan)
{
    return numerics_bytes(plan->math) == 2;
}

static const corrections *corrections_of(const planned_layer *plan)
{
    const int math = is_half(plan) ? HALF_MATH : plan->math == NUMERICS_STRICT ? STRICT_MATH : TF32_MATH;
    return &table[plan->kernel->family][plan->load][math];
}

/* Counts the products of a K-tile by mma.sync, and the reading of their operands. */
static void count_mma(const planned_layer *plan, const corrections *times, tconv_cuda_work *work)
{
    const bool half = is_half(plan);
    const double warps = plan->threads / (double)WARP, uneven = ceil(warps / 4) * 4 / warps;
    const double height = plan->kernel->channels / 16.0, width = plan->kernel->pairs / 8.0;
    const double steps = plan->params.k_pixels / (half ? 16.0 : 8.0);
    const double mmas = steps * height * width * (plan->math == NUMERICS_STRICT ? STRICT_PRODUCTS : 1);
    work->mma_sync = mmas * warps * uneven * times->tensor;
    work->mma_chain = mmas * times->chain;
    work->shared_bytes = steps * warps * (height * 16 + width * 8) * MMA_K_BYTES;
    work->loads = work->shared_bytes / (WARP * (half ? VECTOR_BYTES : 4.0));
}

/* Returns the MMAs of a K-tile by wgmma, for each 8 of its columns. */
static double mma_steps(const planned_layer *plan)
{
    const double steps = plan->params.k_pixels * numerics_bytes(plan->math) / (double)MMA_K_BYTES;
    return steps * plan->kernel->pairs / MMA_M;
}

/* Counts the same by wgmma. */
static void count_wgmma(const planned_layer *plan, const corrections *times, tconv_cuda_work *work)
{
    const double channels = plan->kernel->channels, mmas = mma_steps(plan);
    const double products = mmas * (plan->math == NUMERICS_STRICT ? STRICT_PRODUCTS : 1);
    work->wgmma = products * channels / 8 * times->tensor;
    work->wgmma_chain = work->wgmma / WARPGROUPS;
    work->fragments = plan->kernel->family == BY_WGMMA ? mmas / WARPGROUPS * times->fragment : 0;
    work->shared_bytes = mmas * MMA_A_BYTES + products * channels * MMA_K_BYTES;
}

/* The elements of a K-tile, and how a block brings them: by TMA, or by copies of its threads. */
typedef struct tile_copies {
    double src, dst;     /* elements */
    double rows;         /* of boxes that TMA brings */
    double vector_bytes; /* copied by vectors */
    double turned_bytes; /* copied by units that are transposed in registers */
    double elements;     /* loads of single elements, or of the few that follow one another, */
    double sectors;      /* the same by the square of how many times the least their sectors are, less one, */
    double slots;        /* and the slots whose elements they are */
    double units, small; /* loads of units of lines; those of less than four elements once more */
} tile_copies;

/* Returns how many times as many bytes move as are used: memory moves whole sectors, and single elements that are `apart`
 * elements apart may use a part of a sector. */
static double sector_part(const planned_layer *plan, int apart)
{
    const double run = (double)apart * (double)(1 << plan->params.columns.tile_log2);
    const double sector = SECTOR_BYTES / (double)numerics_bytes(plan->math);
    const bool channels = plan->load == CHANNELS || plan->load == SRC_CHANNELS || plan->params.lines.src_vectors;
    return channels || run >= sector ? 1 : sector / run;
}

static double square(double a)
{
    return a * a;
}

/* Counts how src is brought. */
static void find_src_copies(const planned_layer *plan, tile_copies *copies)
{
    const parameters *params = &plan->params;
    const line_layout *lines = &params->lines;
    const bool by_lines = plan->load == LINES, half = is_half(plan);
    const double size = numerics_bytes(plan->math);
    if (plan->load == BOXES)
        copies->rows = copies->src / BOX_CHANNELS;
    else if (by_lines && lines->src_box_pixels > 0)
        copies->rows = copies->src / lines->src_box_pixels;
    else if (plan->load == CHANNELS || plan->load == SRC_CHANNELS || (by_lines && lines->src_vectors))
        copies->vector_bytes = copies->src * size;
    else if (by_lines && half && params->src_unit > 1)
        copies->turned_bytes = copies->src * size;
    else
        copies->elements = copies->src / (half && !by_lines ? 1 : params->src_unit);
    copies->sectors = copies->elements * square(sector_part(plan, 1) - 1);
}

static tile_copies find_copies(const planned_layer *plan)
{
    const parameters *params = &plan->params;
    const line_layout *lines = &params->lines;
    const bool by_lines = plan->load == LINES;
    const double size = numerics_bytes(plan->math);
    tile_copies copies = {.src = (double)params->k_pixels *
                                 (plan->kernel->family == BY_MMA ? params->tiles.block_m : plan->kernel->channels)};
    copies.dst =
        by_lines ? (params->stage_bytes - params->src_bytes) / size : (double)plan->slots * (double)params->tiles.chunk;
    find_src_copies(plan, &copies);
    if (plan->load == BOXES) {
        copies.rows += copies.dst / BOX_CHANNELS;
    } else if (params->box_bytes > 0) {
        copies.rows += by_lines ? copies.dst / lines->length / params->sharers : (double)plan->slots;
    } else if (by_lines) {
        copies.units = copies.dst / lines->unit;
        copies.small = lines->unit < SMALL_UNIT ? copies.units : 0;
    } else if (plan->load == CHANNELS) {
        copies.vector_bytes += copies.dst * size;
    } else {
        copies.elements += copies.dst;
        copies.sectors += copies.dst * square(sector_part(plan, params->columns.stride) - 1);
        copies.slots = (double)plan->slots;
    }
    return copies;
}

/* Returns how often a shared-memory bank is read for one pixel of lines: with a stride, lanes meet in banks, unless they have
 * taps of neighbouring columns; and they do where the pixels that they read at once are of several rows. */
static double bank_reads(const planned_layer *plan)
{
    const parameters *params = &plan->params;
    const int power = params->columns.stride & -params->columns.stride, columns = 1 << params->columns.tile_log2;
    const double rows = columns < STEP_LANES ? (double)STEP_LANES / columns : 1;
    return (double)(power < 8 ? power : 8) / params->lines.twins * (is_half(plan) ? 2 : 1) * rows * rows;
}

/* Counts how a block loads a K-tile. */
static void count_loads(const planned_layer *plan, const corrections *times, tconv_cuda_work *work)
{
    const tile_copies copies = find_copies(plan);
    const parameters *params = &plan->params;
    const bool mma = plan->kernel->family == BY_MMA, strict = plan->math == NUMERICS_STRICT;
    const bool turned = plan->kernel->family == BY_WGMMA && plan->math == NUMERICS_TF32 && plan->load == CHANNELS;
    const double size = numerics_bytes(plan->math), copiers = mma ? plan->threads : WARPGROUP_PRODUCERS;
    const double src_passes = turned ? TURNED_PASSES : strict && !mma ? STRICT_PASSES : 1;
    const double dst_passes = turned && params->box_bytes == 0 ? COPIED_PASSES : 1;
    const double dst_part = plan->load == LINES ? 1.0 / params->sharers : sector_part(plan, params->columns.stride);
    if (plan->load == LINES)
        work->shared_bytes += mma_steps(plan) * MMA_A_BYTES * (bank_reads(plan) - 1);
    work->shared_bytes += (copies.src * src_passes + copies.dst * dst_passes) * size;
    work->box_bytes = (copies.src * sector_part(plan, 1) + copies.dst * dst_part) * size * times->l2;
    work->box_rows = copies.rows * times->row;
    work->convert_bytes = copies.vector_bytes * times->vector;
    work->gather_bytes = copies.elements * times->gathered + copies.sectors * times->sector;
    work->issue_cycles += plan->load == LINES && copies.units + copies.vector_bytes > 0 ? times->copied : 0;
    work->transpose_bytes = copies.turned_bytes * times->turned;
    work->split_bytes =
        strict && !mma ? copies.src * size / 2 : 0; /* by eight warps, where the machine's rate is of four */
    work->chain_loads = (copies.elements * times->wait + copies.slots * times->slot + copies.units * times->unit +
                         copies.small * times->small) /
                        copiers;
}

/* Returns by how many bytes the sectors are more that a block's weights lie in. */
static double sector_bytes(const planned_layer *plan)
{
    const sum_tiles *tiles = &plan->params.tiles;
    const int size = numerics_bytes(plan->math);
    const double weights = (double)tiles->block_m * (double)tiles->block_n * (double)tiles->count * size;
    return (tconv_wgrad_written_part(plan) - 1) * weights;
}

/* Begins to count a block: what is the same however its K-tiles are loaded. */
static tconv_cuda_work count_block(const tconv_cuda_work *begun, const planned_layer *plan, const corrections *times)
{
    const double sums = plan->params.tiles.block_m * (double)plan->params.tiles.block_n;
    tconv_cuda_work work = *begun;
    if (plan->kernel->family == BY_MMA)
        count_mma(plan, times, &work);
    else
        count_wgmma(plan, times, &work);
    work.issues = 1;
    work.issue_cycles = times->k_tile;
    work.tile_cycles = times->block;
    work.stores = sums / WARP;
    work.store_warps = plan->threads / (double)WARP;
    work.sectors = sums * sizeof(float) / SECTOR_BYTES;
    return work;
}

tconv_cuda_work tconv_wgrad_least_work(const tconv_cuda_work *begun, const planned_layer *plan)
{
    const corrections *times = corrections_of(plan);
    tconv_cuda_work work = count_block(begun, plan, times);
    work.shared_bytes *= times->shared;
    return work;
}

tconv_cuda_work tconv_wgrad_tile_work(const tconv_cuda_work *begun, const planned_layer *plan)
{
    const corrections *times = corrections_of(plan);
    tconv_cuda_work work = count_block(begun, plan, times);
    count_loads(plan, times, &work);
    work.shared_bytes *= times->shared;
    work.stages = plan->params.stages;
    return work;
}

/* Counts what the launch that adds slices reads and writes, or what blocks that write weights write more than these. */
static double slice_bytes(const planned_layer *plan)
{
    const int splits = plan->params.splits;
    if (plan->writes_weights)
        return sector_bytes(plan) * SECTOR_TIMES;
    return splits * (double)tconv_wgrad_slice_sums(&plan->params.tiles) * sizeof(float) *
           (keeps_lost(plan, splits) ? 2 : 1) * SLICE_TIMES;
}

void tconv_wgrad_count_slices(const tconv_cuda_machine *machine, const tconv_cuda_work *begun,
                              const planned_layer *plan, tconv_cuda_work *work)
{
    const parameters *params = &plan->params;
    const double blocks = (double)plan->blocks / machine->multiprocessors;
    work->k_blocks = (double)tconv_ceil_div(params->k_tiles, params->splits);
    work->prologue = fmin(work->k_blocks, params->stages - 1);
    work->rounds = tconv_cuda_rounds(blocks, plan->resident) * begun->rounds;
    work->resident = fmin(plan->resident, fmax(blocks, 1));
    work->pass_bytes = begun->pass_bytes + slice_bytes(plan);
}

tconv_cuda_work tconv_wgrad_begin_work(const tconv_layer *layer, const copy_cut *copies)
{
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    if (copies->images > 0) {
        const double chunks = (double)chunks_of(copies);
        work.rounds = chunks;
        work.passes = chunks * COPY_LAUNCHES + chunks - 1;
        work.pass_bytes = 2 * (double)copied_bytes(copies) * chunks; /* read and written */
    }
    return work;
}

tconv_cuda_work tconv_wgrad_work(const tconv_layer *layer, const planned_layer *plan)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    const tconv_cuda_work begun = tconv_wgrad_begin_work(layer, &plan->copies);
    tconv_cuda_work work = tconv_wgrad_tile_work(&begun, plan);
    tconv_wgrad_count_slices(&machine, &begun, plan, &work);
    return work;
}
