/* What a plan of cuda_mma does: see work.h. A K-block is a chunk of input channels at all taps of a block's row residues. */
#include <cmath>

#include "../../core/checked.h"
#include "../mma_kernels.h"
#include "planned.h"

namespace
{

/* The corrections. */
constexpr double ISSUE_CYCLES = 2200; /* of a chunk: barriers, addresses of the copies, the first operands */
constexpr double STRICT_CYCLES =
    20; /* of a product in strict f32, in place of the machine's mma_chain: three are independent */
constexpr double TILE_CYCLES = 4300; /* of a tile: tables of positions, and stores that wait for the last products */

constexpr double HALVES_TIMES = 1.4; /* planes of 16 bits: a word of an operand is put together from two */
constexpr int LOAD_BYTES = 4;        /* the least that cp.async copies */
constexpr int RESERVED = 1024;       /* bytes of shared memory that a block takes beside what it asks for */

/* Row taps of the set of row residues that has most; of the residue that has most. */
void find_taps(const tconv_cuda_mma_parameters *cut, int *set_taps, int *most)
{
    *set_taps = *most = 0;
    for (int set = 0; set < cut->residue_sets; set++) {
        int taps = 0;
        for (int i = set * cut->residue_parts; i < (set + 1) * cut->residue_parts && i < cut->row_residues; i++) {
            taps += cut->rows[i].taps;
            *most = (int)tconv_max(*most, cut->rows[i].taps);
        }
        *set_taps = (int)tconv_max(*set_taps, taps);
    }
}

void count_main_loop(const tconv_layer *layer, const tconv_cuda_mma_parameters *cut,
                     const tconv_cuda_mma_kernel *kernel, tconv_cuda_work *work)
{
    const bool strict = tconv_cuda_is_strict(layer), halves = layer->problem.element_size == 2 && !cut->nhwc;
    const double steps = cut->chunk_words / TCONV_CUDA_MMA_STEP_WORDS;
    int set_taps, most_taps;
    find_taps(cut, &set_taps, &most_taps);
    const double warps = cut->channel_parts * cut->position_warps; /* of a row residue */
    const double all_warps = warps * cut->residue_parts, uneven = ceil(all_warps / 4) * 4 / all_warps;
    const double tap = (double)cut->column_taps * kernel->channel_blocks * kernel->position_blocks * steps *
                       (strict ? 3 : 1); /* products of a warp at a row tap */
    work->k_blocks = cut->chunks;
    work->mma_sync = tap * set_taps * warps * uneven;
    work->mma_chain = strict ? 0 : tap * most_taps * (halves ? HALVES_TIMES : 1);
    work->slow_issues = strict ? tap * most_taps : 0;
    work->slow_issue_cycles = STRICT_CYCLES;
    work->issues = 1;
    work->issue_cycles = ISSUE_CYCLES;
    work->tile_cycles = TILE_CYCLES;
    work->shared_bytes =
        128 * set_taps * warps * steps *
        (cut->shifts * 2.0 * kernel->position_blocks + cut->column_taps * kernel->channel_blocks * cut->planes * 4.0);
    work->box_bytes = 4.0 * cut->weights_at;
    work->weight_bytes = cut->chunks == 1 ? 0 : 4.0 * cut->blob_words;
    work->stages = cut->stages;
    /* Copies of less than 16 bytes are more instructions; those of less than 4 go through registers. */
    const int64_t bytes =
        (cut->nhwc ? cut->src_vector : tconv_cuda_src_row_vector(layer)) * (int64_t)layer->problem.element_size;
    if (bytes < TCONV_MODEL_VECTOR)
        work->loads = work->box_bytes / TCONV_MODEL_WARP / (double)tconv_max(bytes, LOAD_BYTES);
    if (bytes < LOAD_BYTES)
        work->gather_bytes = work->box_bytes;
}

void count_stores(const tconv_layer *layer, const tconv_cuda_mma_parameters *cut, int stride, tconv_cuda_work *work)
{
    const int64_t element = (int64_t)layer->problem.element_size;
    const double outputs = (double)cut->part_channels * cut->channel_parts * cut->tile_images * cut->tile_rows *
                           cut->tile_columns * cut->residue_parts * stride;
    /* A thread has the columns of two neighbouring positions in NCHW, a run of channels in NHWC. */
    const int64_t run = 2 * (int64_t)stride;
    const int64_t vector = cut->staged ? cut->store_vector
                           : cut->nhwc ? tconv_min(cut->store_vector, tconv_max(cut->channel_run, 1))
                                       : tconv_min(tconv_cuda_row_vector(layer), run & -run);
    const double parts = cut->nhwc || cut->staged ? 1 : fmax(1, (double)run / (double)vector);
    work->stores = outputs / TCONV_MODEL_WARP / (double)tconv_max(vector, 1);
    work->store_warps = cut->channel_parts * cut->residue_parts * cut->position_warps;
    work->sectors = outputs * (double)element / TCONV_MODEL_SECTOR * parts;
}

} // namespace

void tconv_cuda_mma_work(const tconv_layer *layer, const tconv_cuda_machine *machine, tconv_cuda_work *work)
{
    tconv_cuda_mma_parameters cut;
    const tconv_cuda_mma_kernel *kernel;
    tconv_cuda_mma_chosen(layer, NULL, &cut, &kernel);
    *work = tconv_cuda_work_begin(layer);
    count_main_loop(layer, &cut, kernel, work);
    count_stores(layer, &cut, kernel->stride, work);
    const int warps = cut.channel_parts * cut.residue_parts * cut.position_warps;
    const int by_registers = kernel->warps / warps;
    const int by_shared = (machine->shared_bytes + RESERVED) / (cut.shared_bytes + RESERVED);
    const double tiles = (double)cut.position_tiles * cut.groups * cut.channel_tiles * cut.residue_sets;
    const double places = (double)machine->multiprocessors, most = (double)tconv_min(by_registers, by_shared);
    work->rounds = tconv_cuda_rounds(tiles / places, most);
    work->resident = fmin(most, fmax(tiles / places, 1));
}
