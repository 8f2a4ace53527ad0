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
#include "touched.h"

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
    double line;          /* with so many beside for a line */
    double turned;        /* bytes of units that are transposed in registers */
    double chain;         /* mma.sync: products of a warp that wait for one another */
    double k_tile, block; /* cycles beside, */
    double copied;        /* and of a K-tile by lines some of which threads copy */
} corrections;

enum { TF32_MATH, HALF_MATH, STRICT_MATH, MATHS };

/* Each kernel's family, load mode and arithmetic has a row; a number is 0 where a kernel has nothing of the kind. */
static const corrections table[][LOAD_MODES][MATHS] = {
    [BY_MMA][ELEMENTS][TF32_MATH] = {2.3, 1.2, 1.2, 0, 0, 0, 0.6, 0.088, 9.6, 0, 0, 0, 0.14, 6982, 415, 0},
    [BY_MMA][ELEMENTS][HALF_MATH] = {1, 1, 0.14, 0, 0, 0, 0.97, 0.34, 0.058, 0, 0, 0, 0.33, 3914, 1214, 0},
    [BY_MMA][ELEMENTS][STRICT_MATH] = {0.82, 1, 1.1, 0, 0, 0, 0.89, 0.53, 7.1, 0, 0, 0, 0.87, 1272, 505, 0},
    [BY_MMA][CHANNELS][TF32_MATH] = {0.51, 3.7, 0.35, 0, 0, 0.36, 0, 0, 0, 0, 0, 0, 0.043, 3984, 7949, 0},
    [BY_MMA][CHANNELS][HALF_MATH] = {0.84, 4.6, 1.6, 0, 0, 1.6, 0, 0, 0, 0, 0, 0, 0.049, 1628, 19378, 0},
    [BY_MMA][CHANNELS][STRICT_MATH] = {1.1, 1, 1.5, 0, 0, 1.6, 0, 0, 0, 0, 0, 0, 0.93, 1832, 4332, 0},
    [BY_WGMMA][ELEMENTS][TF32_MATH] = {0.94, 0.96, 1.3, 0.2, 0, 0, 0, 0.48, 4.8, 0, 0, 0, 0, 3048, 443, 0},
    [BY_WGMMA][ELEMENTS][HALF_MATH] = {0.6, 0.8, 0.15, 0.46, 0, 0, 0, 0.68, 0.11, 0, 0, 0, 0, 299, 3276, 0},
    [BY_WGMMA][ELEMENTS][STRICT_MATH] = {0.82, 1.6, 0.32, 1.2, 0, 0, 0, 0.52, 2.6, 0, 0, 0, 0, 1575, 867, 0},
    [BY_WGMMA][LINES][TF32_MATH] = {0.91, 1.8, 0.93, 0.89, 0.54, 0.083, 0, 0.3, 0, 0.58, 0.49, 0, 0, 34, 8879, 684},
    [BY_WGMMA][LINES][HALF_MATH] = {0.53, 1.7, 0.65, 1.1, 0.37, 1, 0, 1, 0, 1.1, 0.15, 1.2, 0, 13, 6330, 1396},
    [BY_WGMMA][LINES][STRICT_MATH] = {1.1, 1, 1.8, 0.82, 0.47, 0.21, 0, 0.27, 0, 0.88, 0.15, 0, 0, 205, 4736, 476},
    [BY_WGMMA][CHANNELS][TF32_MATH] = {1.5, 1.2, 0.97, 0.16, 0.53, 2.4, 0, 0, 0, 0, 0, 0, 0, 1210, 7439, 0},
    [BY_WGMMA][CHANNELS][HALF_MATH] = {0.48, 1.6, 1.7, 0.3, 0.46, 2, 0, 0, 0, 0, 0, 0, 0, 209, 4011, 0},
    [BY_WGMMA][CHANNELS][STRICT_MATH] = {1.3, 1.2, 0.15, 0.13, 0.05, 2, 0, 0, 0, 0, 0, 0, 0, 1194, 5163, 0},
    [BY_WGMMA][SRC_CHANNELS][HALF_MATH] = {2.7, 1.1, 0.056, 0.12, 0, 0.17, 0, 0.49, 0.038, 0, 0, 0, 0, 1085, 219, 0},
    [BY_BOXES][BOXES][HALF_MATH] = {1.2, 0.46, 0.077, 0, 0.41, 0, 0, 0, 0, 0, 0, 0, 0, 244, 3918, 0},
};

/* A slice is written, read and added in so many times the time of a pass that copies. */
static const double SLICE_TIMES = 2.1;
/* Where a block writes runs of weights shorter than a sector, a byte that the sector has beside takes this part of one of a
 * pass. */
static const double SECTOR_TIMES = 0.73;

/* Sums are added to what a slice holds in so many times the time of writing them. */
static const double ADD_TIMES = 4;
/* The second-level cache of an H200, of 50 MB, is found to hold so many bytes: of lines of which blocks read parts, tensors that are
 * read again, and copies that are read back. COPIED_AGAIN times as much moves of copies that are lost. */
static const double HELD_LINES = 14 << 20;
static const double HELD_TENSORS = 40 << 20;
static const double HELD_COPIES = 25 << 20;
static const double COPIED_AGAIN = 1.2;

enum {
    COPY_LAUNCHES = 2,   /* of a chunk: of src, and of the gradient of dst */
    STRICT_PRODUCTS = 3, /* of a product in strict f32 */
    STRICT_PASSES = 4,   /* of src through shared memory in strict f32, whose planes are written and read */
    TURNED_PASSES = 3,   /* of src through shared memory where it goes through registers, */
    COPIED_PASSES = 2,   /* and of the gradient of dst where lanes copy it by vectors */
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

static double square(double a)
{
    return a * a;
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

/* Returns the bytes of operands that warps load for a K-tile by wgmma, each bank of shared memory once. From lines nothing is read
 * for rows of M without a pair. */
static double fragment_bytes(const planned_layer *plan)
{
    const sum_tiles *tiles = &plan->params.tiles;
    const double pairs = (double)(tiles->rows.group_taps * tiles->columns.group_taps * tiles->chunk);
    const double steps = plan->params.k_pixels * numerics_bytes(plan->math) / (double)MMA_K_BYTES;
    return steps * (plan->load == LINES ? fmin(pairs, plan->kernel->pairs) : plan->kernel->pairs) / MMA_M * MMA_A_BYTES;
}

/* Counts the products of a K-tile by wgmma, and the reading of their operands. */
static void count_wgmma(const planned_layer *plan, const corrections *times, tconv_cuda_work *work)
{
    const double steps = plan->params.k_pixels * numerics_bytes(plan->math) / (double)MMA_K_BYTES;
    const double channels = plan->kernel->channels, mmas = steps * plan->kernel->pairs / MMA_M;
    const double products = mmas * (plan->math == NUMERICS_STRICT ? STRICT_PRODUCTS : 1);
    work->wgmma = products * channels / 8 * times->tensor;
    work->wgmma_chain = work->wgmma / WARPGROUPS;
    work->fragments = plan->kernel->family == BY_WGMMA ? mmas / WARPGROUPS * times->fragment : 0;
    work->shared_bytes = fragment_bytes(plan) + products * channels * MMA_K_BYTES;
}

/* The elements of a K-tile, and how a block brings them: by TMA, or by copies of its threads. */
typedef struct tile_copies {
    double src, dst;     /* elements */
    double rows;         /* of boxes that TMA brings */
    double vector_bytes; /* copied by vectors */
    double turned_bytes; /* copied by units that are transposed in registers */
    double elements;     /* loads of single elements, or of the few that follow one another; */
    double turns;        /* as many loads of a thread, one after another, times the threads; */
    double slots;        /* the slots whose elements they are */
    double units, lines; /* loads of units of lines, and lines, likewise */
} tile_copies;

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
}

/* Counts the loads of units of lines: eight or more lanes copy a line, and others the next channels' (copy_lines in
 * lines.cuh). */
static void count_units(const planned_layer *plan, tile_copies *copies)
{
    const parameters *params = &plan->params;
    const int64_t units = params->lines.length / params->lines.unit, lanes = units > 16 ? 32 : units > 8 ? 16 : 8;
    const int64_t channels = params->lines.channels > 1 ? 1 : params->tiles.chunk;
    const int64_t lines = (int64_t)plan->slots.rows.residues * (params->rows.extent << params->images.tile_log2);
    const int64_t turns = tconv_ceil_div(units, lanes) * lines;
    copies->units = (double)(turns * tconv_ceil_div(channels, WARPGROUP_PRODUCERS / lanes)) * WARPGROUP_PRODUCERS;
    copies->lines = (double)turns * WARPGROUP_PRODUCERS;
}

/* Returns how many single elements each of so many threads loads, one after another, of the channels of so many pixels or slots
 * (copy_pixels in load.cuh), times the threads. */
static double element_turns(const planned_layer *plan, int64_t pixels, int64_t channels, int64_t threads)
{
    enum { PIXELS = 8, CHANNELS_AT_ONCE = 4, VECTORS = 4, VECTOR_TURNS = 16 }; /* of a warp; loads of two vectors */
    const int64_t warps = threads / WARP;
    if (!is_half(plan))
        return (double)(tconv_ceil_div(pixels, warps * PIXELS) * tconv_ceil_div(channels, CHANNELS_AT_ONCE) * threads);
    const int64_t vectors = tconv_ceil_div(channels, VECTOR_BYTES / 2), together = vectors > 2 ? VECTORS : vectors;
    return (double)(tconv_ceil_div(pixels, 2 * warps * WARP / together) * tconv_ceil_div(vectors, together) *
                    VECTOR_TURNS * threads);
}

static tile_copies find_copies(const planned_layer *plan)
{
    const parameters *params = &plan->params;
    const line_layout *lines = &params->lines;
    const bool by_lines = plan->load == LINES;
    const double size = numerics_bytes(plan->math);
    tile_copies copies = {.src = (double)params->k_pixels *
                                 (plan->kernel->family == BY_MMA ? params->tiles.block_m : plan->kernel->channels)};
    copies.dst = by_lines ? (params->stage_bytes - params->src_bytes) / size
                          : (double)plan->slots.count * (double)params->tiles.chunk;
    find_src_copies(plan, &copies);
    if (plan->load == BOXES) {
        copies.rows += copies.dst / BOX_CHANNELS;
    } else if (params->box_bytes > 0) {
        copies.rows += by_lines ? copies.dst / lines->length / params->sharers : (double)plan->slots.count;
    } else if (by_lines) {
        count_units(plan, &copies);
    } else if (plan->load == CHANNELS) {
        copies.vector_bytes += copies.dst * size;
    } else {
        copies.elements += copies.dst;
        if (plan->kernel->family == BY_MMA)
            copies.turns = element_turns(plan, params->k_pixels, params->tiles.block_m, plan->threads) +
                           element_turns(plan, plan->slots.count, params->tiles.chunk, plan->threads);
        copies.slots = (double)plan->slots.count;
    }
    if (plan->kernel->family != BY_MMA)
        copies.turns = copies.elements;
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

/* Returns the bytes of a K-tile that come from the second-level cache: whole sectors, but for vectors of channels, which fill
 * sectors. */
static double read_bytes(const planned_layer *plan, const tile_copies *copies)
{
    if (plan->load == CHANNELS || plan->load == BOXES)
        return (copies->src + copies->dst) * numerics_bytes(plan->math);
    const memory_runs src = tconv_wgrad_src_runs(plan), dst = tconv_wgrad_dst_runs(plan);
    return (tconv_wgrad_touched(&src, SECTOR_BYTES) + tconv_wgrad_touched(&dst, SECTOR_BYTES) / plan->params.sharers) *
           SECTOR_BYTES;
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
    if (plan->load == LINES)
        work->shared_bytes += fragment_bytes(plan) * (bank_reads(plan) - 1);
    work->shared_bytes += (copies.src * src_passes + copies.dst * dst_passes) * size;
    work->box_bytes = read_bytes(plan, &copies) * times->l2;
    work->box_rows = copies.rows * times->row;
    work->convert_bytes = copies.vector_bytes * times->vector;
    work->gather_bytes = copies.elements * times->gathered;
    if (plan->load == LINES && (params->lines.src_box_pixels == 0 || params->box_bytes == 0))
        work->issue_cycles += times->copied;
    work->transpose_bytes = copies.turned_bytes * times->turned;
    work->split_bytes =
        strict && !mma ? copies.src * size / 2 : 0; /* by eight warps, where the machine's rate is of four */
    work->chain_loads = (copies.turns * times->wait + copies.slots * times->slot + copies.units * times->unit +
                         copies.lines * times->line) /
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

/* Counts the memory of what a K-tile reads element by element. */
static void count_scattered(const planned_layer *plan, wgrad_work *work)
{
    const line_layout *lines = &plan->params.lines;
    const bool by_lines = plan->load == LINES;
    const bool src = by_lines ? lines->src_box_pixels == 0 && !lines->src_vectors : plan->load == ELEMENTS;
    const bool dst = by_lines ? plan->params.box_bytes == 0 : plan->load == ELEMENTS || plan->load == SRC_CHANNELS;
    const memory_runs runs[] = {tconv_wgrad_src_runs(plan), tconv_wgrad_dst_runs(plan)};
    for (int i = 0; i < 2; i++)
        if (i == 0 ? src : dst) {
            work->line_bytes += tconv_wgrad_touched(&runs[i], LINE_OF_L2) * LINE_OF_L2;
            work->piece_bytes += tconv_wgrad_touched(&runs[i], PIECE_BYTES) * PIECE_BYTES;
        }
}

wgrad_work tconv_wgrad_tile_work(const tconv_cuda_work *begun, const planned_layer *plan)
{
    const corrections *times = corrections_of(plan);
    wgrad_work work = {.all = count_block(begun, plan, times), .block_cycles = times->block};
    count_loads(plan, times, &work.all);
    count_scattered(plan, &work);
    work.all.shared_bytes *= times->shared;
    work.all.stages = plan->params.stages;
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

/* Returns how many times as long as once a block writes its sums to its slice: sums of neighbouring taps, which are neighbours
 * among the rows of M, are parts of different sectors; and where there are many terms, sums are added to what the slice holds
 * now and then. */
static double times_written(const planned_layer *plan, double k_blocks)
{
    const double adds = ceil(k_blocks / plan->params.flush_tiles) - 1, twins = plan->params.lines.twins;
    const bool strict = plan->math == NUMERICS_STRICT && plan->kernel->family != BY_MMA;
    /* In strict f32 what the last additions lose is written too. */
    const double times = adds < 1 ? 1 : 1 + (adds + (strict ? 1 : 0)) * ADD_TIMES;
    return plan->writes_weights ? 1 : times * fmax(1, twins);
}

/* Returns the share of so many bytes that is not in the second-level cache any more where it is read again. The cache holds some
 * bytes: of half as many nothing is lost, of twice as many all. */
static double share_lost(double bytes, double held)
{
    const double times = square(square(bytes / held));
    return times / (1 + times);
}

void tconv_wgrad_count_slices(const tconv_cuda_machine *machine, const tconv_cuda_work *begun,
                              const planned_layer *plan, wgrad_work *work)
{
    const parameters *params = &plan->params;
    const double blocks = (double)plan->blocks / machine->multiprocessors;
    tconv_cuda_work *all = &work->all;
    all->k_blocks = (double)tconv_ceil_div(params->k_tiles, params->splits);
    all->prologue = fmin(all->k_blocks, params->stages - 1);
    all->rounds = tconv_cuda_rounds(blocks, plan->resident) * begun->rounds;
    all->resident = fmin(plan->resident, fmax(blocks, 1));
    all->pass_bytes = begun->pass_bytes + slice_bytes(plan);
    all->tile_cycles = work->block_cycles + (times_written(plan, all->k_blocks) - 1) * all->sectors * machine->sector;
    /* A K-tile reads parts of lines, whose other parts the next K-tiles read. Where the lines of all blocks are more than the
     * cache holds, memory brings the pieces of each K-tile. */
    const double lines = work->line_bytes * fmin(blocks, plan->resident) * machine->multiprocessors;
    const double lost = share_lost(lines, HELD_LINES) * share_lost(begun->dram_bytes, HELD_TENSORS);
    all->dram_bytes = begun->dram_bytes + lost * work->piece_bytes * params->k_tiles * (double)params->tiles.count;
}

tconv_cuda_work tconv_wgrad_begin_work(const tconv_layer *layer, const copy_cut *copies)
{
    tconv_cuda_work work = tconv_cuda_begin_work(layer);
    if (copies->images > 0) {
        const double chunks = (double)chunks_of(copies), bytes = (double)copied_bytes(copies);
        work.rounds = chunks;
        work.passes = chunks * COPY_LAUNCHES + chunks - 1;
        work.pass_bytes =
            2 * bytes * chunks * (1 + share_lost(bytes, HELD_COPIES) * COPIED_AGAIN); /* read and written */
    }
    return work;
}

tconv_cuda_work tconv_wgrad_work(const tconv_layer *layer, const planned_layer *plan)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    const tconv_cuda_work begun = tconv_wgrad_begin_work(layer, &plan->copies);
    wgrad_work work = tconv_wgrad_tile_work(&begun, plan);
    tconv_wgrad_count_slices(&machine, &begun, plan, &work);
    return work.all;
}
