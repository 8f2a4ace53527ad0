/* Cuts direct products into tiles and parts, by the cost model, and launches them. Few tiles are made more by parts of
 * the input channels, whose products are summed in order by what gathers them. */
#include "direct.h"

#include <cfloat>

#include "../../core/checked.h"
#include "../gemm/shape.h"
#include "../model/planned.h"
#include "../runtime/launch.h"
#include "../runtime/tensor_map.h"

namespace tconv::gemm_col2im
{

namespace
{

constexpr int STEPS = DIRECT_K_BYTES / MMA_K_BYTES; /* of a K-block, in products of the cost model */
constexpr int MAX_PARTS = 16;

/* In strict f32 sums of K-blocks are added in f32, which may be off by a quarter of their number: within the bound of
 * 16 for so many. */
constexpr int MAX_PLAIN_SUMS = 48;

int64_t tiles_of(const direct_shape *shape)
{
    return (int64_t)shape->groups * shape->row_tiles.divisor * shape->pixel_tiles.divisor * shape->parts;
}

direct_kernel kernel_of(const tconv_layer *layer, const direct_shape *shape)
{
    return shape->by_wgmma ? wgmma_kernel(layer, shape->tile_pixels) : mma_kernel(layer, shape->tile_pixels);
}

/* Sets the tiles of a shape whose extents are set to the kernel's. */
void set_tiles(const direct_kernel &kernel, direct_shape *shape)
{
    shape->tile_rows = kernel.tile_rows;
    shape->tile_pixels = kernel.tile_pixels;
    shape->pixel_tiles = divisor_of((int)tconv_ceil_div(shape->pixels, kernel.tile_pixels));
    shape->row_tiles = divisor_of((int)tconv_ceil_div(shape->rows, kernel.tile_rows));
}

/* What the tiles do, each once for its part of the channels. */
void count_work(const tconv_layer *layer, const direct_shape *shape, tconv_cuda_work *work)
{
    const direct_kernel kernel = kernel_of(layer, shape);
    const double size = (double)layer->problem.element_size, multiprocessors = layer->target.multiprocessors;
    const double rows = shape->tile_rows, pixels = shape->tile_pixels, warps = kernel.threads / WARP;
    const double stage = (rows + pixels) * DIRECT_K_BYTES, tiles = (double)tiles_of(shape);
    const double products = rows * pixels / 128 * STEPS * (tconv_cuda_is_strict(layer) ? 3 : 1);
    work->resident = !shape->by_wgmma && tiles > multiprocessors ? 2 : 1;
    work->rounds = tconv_cuda_rounds(tiles, multiprocessors * work->resident);
    work->k_blocks = (double)tconv_ceil_div(shape->part_channels, (int64_t)(DIRECT_K_BYTES / size));
    work->stages = (double)(int)((double)kernel.shared_bytes / stage);
    work->prologue = work->stages - 1 < work->k_blocks ? work->stages - 1 : work->k_blocks;
    work->box_bytes = stage;
    if (shape->by_wgmma) {
        work->wgmma = products / 4;
        work->wgmma_chain = work->wgmma / WARPGROUPS;
        work->box_rows = stage / DIRECT_K_BYTES;
        work->shared_bytes = 2 * stage;
    } else {
        work->mma_sync = products;
        work->mma_chain = products / warps;
        work->shared_bytes = 4 * stage; /* written once, and read by as many warps as share it */
        work->loads = work->shared_bytes / (size == 4 ? 128 : 512);
    }
    work->stores = rows * pixels / WARP;
    work->store_warps = warps;
    work->sectors = rows * pixels * 4 / SECTOR_BYTES;
}

/* Tries parts, and keeps in best what is predicted to be fastest. */
void try_parts(const tconv_layer *layer, int64_t most_products, const tconv_cuda_work *begun, direct_shape *shape,
               double *least, direct_shape *best, tconv_cuda_work *work)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    const int block_k = DIRECT_K_BYTES / (int)layer->problem.element_size;
    const int k_blocks = (int)tconv_ceil_div(shape->channels, block_k);
    const double products = (double)shape->groups * shape->rows * shape->pixels;
    const int fewest = tconv_cuda_is_strict(layer) ? (int)tconv_ceil_div(k_blocks, MAX_PLAIN_SUMS) : 1;
    for (int parts = fewest; parts <= tconv_max(fewest, MAX_PARTS) && parts <= k_blocks; parts++) {
        const int part_k_blocks = (int)tconv_ceil_div(k_blocks, parts);
        if (parts > fewest &&
            (products * parts > (double)most_products || (int)tconv_ceil_div(k_blocks, part_k_blocks) != parts))
            continue;
        shape->parts = parts;
        shape->parts_of_tile = divisor_of(parts);
        shape->part_channels = part_k_blocks * block_k;
        tconv_cuda_work tried = *begun;
        count_work(layer, shape, &tried);
        const double gathered = 8 * products * parts; /* bytes written, and read by what gathers */
        tried.pass_bytes += gathered;
        const double seconds = tconv_cuda_seconds_of(&machine, &tried);
        if (seconds < *least) {
            *least = seconds;
            *best = *shape;
            *work = tried;
            /* The plan counts that itself. By mma.sync it stays in: those kernels take so much longer than predicted. */
            work->pass_bytes -= shape->by_wgmma ? gathered : 0;
        }
    }
}

/* The tensor maps of src and weights; false where TMA cannot read them at their addresses. */
bool make_maps(const tconv_layer *layer, const direct_shape *shape, CUtensorMap *src, CUtensorMap *weights)
{
    const tconv_problem *problem = &layer->problem;
    constexpr cuuint32_t BOX = DIRECT_K_BYTES / 2;
    const cuuint64_t channels = (cuuint64_t)problem->in_channels, pitch = (cuuint64_t)shape->src_pitch * 2,
                     weight_pitch = (cuuint64_t)shape->weight_pitch * 2;
    const tensor_map_recipe of_src = {problem->dtype,
                                      CU_TENSOR_MAP_SWIZZLE_128B,
                                      shape->src,
                                      {channels, (cuuint64_t)shape->pixels, 1, 1},
                                      {pitch, pitch, pitch},
                                      {BOX, (cuuint32_t)shape->tile_pixels, 1, 1}};
    const tensor_map_recipe of_weights = {problem->dtype,
                                          CU_TENSOR_MAP_SWIZZLE_128B,
                                          shape->weights,
                                          {(cuuint64_t)shape->row_length, channels, 1, 1},
                                          {weight_pitch, weight_pitch, weight_pitch},
                                          {BOX, BOX, 1, 1}};
    return tconv_encode_tensor_map(&of_src, src) && tconv_encode_tensor_map(&of_weights, weights);
}

} // namespace

void cut_products(const tconv_layer *layer, int64_t most_products, bool may_wgmma, direct_shape *shape,
                  tconv_cuda_work *work)
{
    const tconv_cuda_work begun = *work;
    direct_shape best = *shape;
    double least = DBL_MAX;
    shape->by_wgmma = may_wgmma;
    if (!may_wgmma) {
        set_tiles(mma_kernel(layer, shape->pixels), shape);
        try_parts(layer, most_products, &begun, shape, &least, &best, work);
    } else {
        for (const int pixels : {MMA_M, 2 * MMA_M, 4 * MMA_M}) {
            set_tiles(wgmma_kernel(layer, pixels), shape);
            try_parts(layer, most_products, &begun, shape, &least, &best, work);
        }
    }
    *shape = best;
}

tconv_status multiply_directly(const tconv_layer *layer, const direct_shape *shape, bool overlaps, void *stream,
                               tconv_issue *issue)
{
    direct_shape of = *shape;
    CUtensorMap src = {}, weights = {};
    of.by_wgmma = of.by_wgmma && make_maps(layer, &of, &src, &weights);
    if (shape->by_wgmma && !of.by_wgmma)
        set_tiles(mma_kernel(layer, of.pixels), &of);
    const direct_kernel kernel = kernel_of(layer, &of);
    const launch_grid grid = {kernel.function, tiles_of(&of), kernel.threads, kernel.shared_bytes, overlaps};
    void *arguments[] = {&of, &src, &weights};
    const tconv_status status = tconv_allow_shared(kernel.function, kernel.shared_bytes, issue);
    return status == TCONV_SUCCESS ? tconv_launch_kernel(&grid, arguments, stream, issue) : status;
}

} // namespace tconv::gemm_col2im
