/* Cuts direct products into tiles and parts, by the cost model, and launches them. Few tiles are made more by parts of
 * the input channels, whose products are summed in order by what gathers them. */
#include "direct.h"
#include "../cuda_target.h"

#include <string.h>

#include "../../core/checked.h"
#include "../model/search.h"
#include "../runtime/launch.h"
#include "../runtime/tensor_map.h"

enum {
    STEPS = DIRECT_K_BYTES / MMA_K_BYTES, /* of a K-block, in products of the cost model */
    MAX_PARTS = 16
};

/* A kernel's tile, threads, and bytes of shared memory. */
typedef struct direct_kernel {
    int threads, tile_rows, tile_pixels;
    int64_t shared_bytes;
} direct_kernel;

/* Return the kernel whose tile has room for so many pixels, else the largest. In strict f32 by mma.sync partial sums
 * need registers as well: a tile has fewer pixels. */
static direct_kernel choose_mma(const tconv_layer *layer, int pixels)
{
    const int tile_pixels = pixels > 64 && !tconv_cuda_is_strict(layer) ? 128 : pixels > 32 ? 64 : 32;
    const direct_kernel kernel = {
        .threads = DIRECT_MMA_THREADS,
        .tile_rows = DIRECT_MMA_ROWS,
        .tile_pixels = tile_pixels,
        .shared_bytes = direct_mma_bytes((int)layer->problem.element_size, tile_pixels),
    };
    return kernel;
}
static direct_kernel choose_wgmma(int pixels)
{
    const int tile_pixels = pixels > 2 * MMA_M ? 4 * MMA_M : pixels > MMA_M ? 2 * MMA_M : MMA_M;
    const direct_kernel kernel = {
        .threads = DIRECT_WGMMA_THREADS,
        .tile_rows = direct_wgmma_rows(tile_pixels),
        .tile_pixels = tile_pixels,
        .shared_bytes = direct_wgmma_stages(tile_pixels) * direct_wgmma_stage_bytes(tile_pixels),
    };
    return kernel;
}

/* Returns the kernel of a shape whose tiles are set. */
static direct_kernel shape_kernel(const tconv_layer *layer, const direct_shape *shape)
{
    return shape->by_wgmma ? choose_wgmma(shape->tile_pixels) : choose_mma(layer, shape->tile_pixels);
}

static int64_t count_tiles(const direct_shape *shape)
{
    return (int64_t)shape->groups * shape->row_tiles.divisor * shape->pixel_tiles.divisor * shape->parts;
}

/* Sets the tiles of a shape whose extents are set to the kernel's. */
static void set_tiles(const direct_kernel *kernel, direct_shape *shape)
{
    shape->tile_rows = kernel->tile_rows;
    shape->tile_pixels = kernel->tile_pixels;
    shape->pixel_tiles = divisor_of((int)tconv_ceil_div(shape->pixels, kernel->tile_pixels));
    shape->row_tiles = divisor_of((int)tconv_ceil_div(shape->rows, kernel->tile_rows));
}

/* Counts the work of the tiles, each of which is done once for its part of the channels. */
static void count_work(const tconv_layer *layer, const direct_shape *shape, tconv_cuda_work *work)
{
    const direct_kernel kernel = shape_kernel(layer, shape);
    const double size = (double)layer->problem.element_size,
                 multiprocessors = tconv_cuda_target_of(&layer->target).multiprocessors;
    const double rows = shape->tile_rows, pixels = shape->tile_pixels;
    const int warps = kernel.threads / WARP;
    const double stage = (rows + pixels) * DIRECT_K_BYTES, tiles = (double)count_tiles(shape);
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
        work->loads = work->shared_bytes / (layer->problem.element_size == 4 ? 128 : 512);
    }
    work->stores = rows * pixels / WARP;
    work->store_warps = warps;
    work->sectors = rows * pixels * 4 / SECTOR_BYTES;
}

/* Returns the bytes that products are written in, and that are read by what gathers them. */
static double gathered_bytes(const direct_shape *shape)
{
    return 8 * (double)shape->groups * shape->rows * shape->pixels * shape->parts;
}

/* Offers the tiles of a kernel, with all parts. */
static void offer_parts(const tconv_layer *layer, const direct_kernel *kernel, int64_t most_products,
                        const tconv_cuda_work *begun, direct_shape shape, tconv_search *search)
{
    const int block_k = DIRECT_K_BYTES / (int)layer->problem.element_size;
    const int k_blocks = (int)tconv_ceil_div(shape.channels, block_k);
    const int fewest = tconv_cuda_is_strict(layer) ? (int)tconv_ceil_div(k_blocks, STRICT_ADDITIONS) : 1;
    set_tiles(kernel, &shape);
    for (int parts = fewest; parts <= tconv_max(fewest, MAX_PARTS) && parts <= k_blocks; parts++) {
        const int part_k_blocks = (int)tconv_ceil_div(k_blocks, parts);
        shape.parts = parts;
        shape.parts_of_tile = divisor_of(parts);
        shape.part_channels = part_k_blocks * block_k;
        if (parts > fewest && (gathered_bytes(&shape) > 8 * (double)most_products ||
                               (int)tconv_ceil_div(k_blocks, part_k_blocks) != parts))
            continue;
        tconv_cuda_work work = *begun;
        count_work(layer, &shape, &work);
        work.pass_bytes += gathered_bytes(&shape);
        tconv_search_offer(search, &shape, &work);
    }
}

void tconv_gemm_col2im_cut_products(const tconv_layer *layer, int64_t most_products, bool may_wgmma,
                                    direct_shape *shape, tconv_cuda_work *work)
{
    tconv_search search = tconv_search_begin(layer, 0, shape, sizeof *shape);
    direct_shape begun = *shape;
    begun.by_wgmma = may_wgmma;
    for (int pixels = MMA_M; may_wgmma && pixels <= 4 * MMA_M; pixels *= 2) {
        const direct_kernel kernel = choose_wgmma(pixels);
        offer_parts(layer, &kernel, most_products, work, begun, &search);
    }
    if (!may_wgmma) {
        const direct_kernel kernel = choose_mma(layer, shape->pixels);
        offer_parts(layer, &kernel, most_products, work, begun, &search);
    }
    if (!search.found)
        return;
    *work = search.work;
    /* The plan counts that itself. By mma.sync it stays in: those kernels take so much longer than predicted. */
    work->pass_bytes -= may_wgmma ? gathered_bytes(shape) : 0;
}

/* Makes the tensor maps of src and weights; false where TMA cannot read them at their addresses. */
static bool encode_maps(const tconv_layer *layer, const direct_shape *shape, tensor_map *src, tensor_map *weights)
{
    const tconv_problem *problem = &layer->problem;
    const uint64_t channels = (uint64_t)problem->in_channels, pitch = (uint64_t)shape->src_pitch * 2,
                   weight_pitch = (uint64_t)shape->weight_pitch * 2;
    const tensor_map_recipe src_recipe = {
        .dtype = problem->dtype,
        .swizzle = SWIZZLE_128B,
        .extents = {channels, (uint64_t)shape->pixels, 1, 1},
        .strides = {pitch, pitch, pitch},
        .box = {DIRECT_BOX, (uint32_t)shape->tile_pixels, 1, 1},
    };
    const tensor_map_recipe weight_recipe = {
        .dtype = problem->dtype,
        .swizzle = SWIZZLE_128B,
        .extents = {(uint64_t)shape->row_length, channels, 1, 1},
        .strides = {weight_pitch, weight_pitch, weight_pitch},
        .box = {DIRECT_BOX, DIRECT_BOX, 1, 1},
    };
    return tconv_encode_tensor_map(&src_recipe, shape->src, src) &&
           tconv_encode_tensor_map(&weight_recipe, shape->weights, weights);
}

tconv_status tconv_gemm_col2im_multiply_directly(const tconv_layer *layer, const direct_shape *shape, bool overlaps,
                                                 void *stream, tconv_issue *issue)
{
    direct_shape launched = *shape;
    tensor_map src, weights;
    memset(&src, 0, sizeof src);
    memset(&weights, 0, sizeof weights);
    launched.by_wgmma = shape->by_wgmma && encode_maps(layer, shape, &src, &weights);
    if (shape->by_wgmma && !launched.by_wgmma) {
        const direct_kernel by_mma = choose_mma(layer, shape->pixels);
        set_tiles(&by_mma, &launched);
    }
    const direct_kernel kernel = shape_kernel(layer, &launched);
    const numerics kind = numerics_of(layer);
    const launch_grid grid = {
        .kernel = launched.by_wgmma ? tconv_gemm_col2im_wgmma_kernel(kind, kernel.tile_pixels)
                                    : tconv_gemm_col2im_mma_kernel(kind, kernel.tile_pixels),
        .blocks = count_tiles(&launched),
        .threads = kernel.threads,
        .shared_bytes = kernel.shared_bytes,
        .overlaps = overlaps,
    };
    void *arguments[] = {&launched, &src, &weights};
    const tconv_status status = tconv_allow_shared(grid.kernel, kernel.shared_bytes, issue);
    return status == TCONV_SUCCESS ? tconv_launch_kernel(&grid, arguments, stream, issue) : status;
}
