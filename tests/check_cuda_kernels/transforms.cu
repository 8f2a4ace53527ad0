/*
 * cuda_wgmma's warps that bring src and weights to the stages which wgmma reads: its loaders, layout transforms and
 * realignment. They run as in the kernel, but a warp that writes the stages out takes the consumers' place.
 */
#include "../../src/cuda/wgmma/kernel.cuh"
#include "families.h"
#include "hopper.cuh"

#include <climits>

namespace tconv::check
{

namespace
{

uint32_t load_bits(const std::vector<uint8_t> &from, int64_t element, size_t size)
{
    uint32_t bits = 0;
    memcpy(&bits, &from[(size_t)element * size], size);
    return bits;
}

constexpr int STAGE_WARPS = wgmma::TRANSPOSE_WARPS + 4; /* two producers, and two warps that write stages out */

enum stage_way { RAW, TIGHT, IN_PLACE, SPACE_TO_DEPTH, GATHERED, REALIGNED };

/* Writes out each stage that fills, or only releases it. */
[[maybe_unused]] __device__ void write_stages(const stage_ring &ring, int number, int of_all, char *to, int lane)
{
    const uint32_t bytes = ring.bytes;
    stage_walk stage(ring, 0);
    for (int i = 0; i < number; i++) {
        const int tile = (int)(blockIdx.x + i / of_all * gridDim.x);
        const int64_t first = ((int64_t)tile * of_all + i % of_all) * bytes;
        stage.wait_full();
        if (to != nullptr)
            for (uint32_t at = lane * 4; at < bytes; at += 32 * 4)
                *reinterpret_cast<uint32_t *>(to + first + at) = load_shared<uint32_t>(stage.buffer() + at);
        __syncwarp();
        if (lane == 0)
            for (int k = 0; k < WARPGROUPS; k++)
                mbarrier_arrive(stage.empty());
        stage.next();
    }
}

template <class Mode, stage_way way>
__device__ __forceinline__ void run_transpose_warp(const wgmma::parameters &params, const wgmma::shared_layout &shared,
                                                   int warp, int lane)
{
    if constexpr (way == REALIGNED) {
        if (params.channel_alignment == 8)
            wgmma::realign_raw_stages<8>(params, shared, warp, lane);
        else if (params.channel_alignment == 4)
            wgmma::realign_raw_stages<4>(params, shared, warp, lane);
        else
            wgmma::realign_raw_stages<2>(params, shared, warp, lane);
    } else if constexpr (way == RAW)
        wgmma::transpose_raw_stages<Mode, false>(params, shared, warp, lane);
    else if constexpr (way == TIGHT)
        wgmma::transpose_raw_stages<Mode, true>(params, shared, warp, lane);
    else if constexpr (way == IN_PLACE)
        wgmma::transpose_in_place<Mode, false>(params, shared, warp, lane);
    else if constexpr (way == SPACE_TO_DEPTH)
        wgmma::transpose_in_place<Mode, true>(params, shared, warp, lane);
    else
        wgmma::gather_src<Mode>(params, shared, warp, lane);
}

template <class Mode, stage_way way>
__global__ void __launch_bounds__(STAGE_WARPS * 32)
    fill_stages(const __grid_constant__ wgmma::parameters params, const __grid_constant__ CUtensorMap map, char *b_to,
                char *a_to)
{
#ifdef TCONV_CHECK_HOPPER
    extern __shared__ __align__(1024) char buffers[];
    __shared__ __align__(8) uint64_t barriers[wgmma::BARRIERS];
    const wgmma::shared_layout shared = wgmma::lay_out(params, barriers, buffers);
    const int warp = warp_of_block(), lane = lane_of_warp();
    wgmma::init_barriers<Mode>(shared, params, warp);
    __syncthreads();
    const int own = (params.tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
    const int a_stages = params.k_blocks * params.max_k_block_a_stages;
    if (warp < wgmma::TRANSPOSE_WARPS) {
        run_transpose_warp<Mode, way>(params, shared, warp, lane);
    } else if (warp == wgmma::TRANSPOSE_WARPS) {
        if (lane == 0 && way == REALIGNED)
            wgmma::load_misaligned_raw_stages(params, &map, shared);
        else if (lane == 0 && (way == IN_PLACE || way == SPACE_TO_DEPTH))
            wgmma::load_b_stages_in_place<Mode>(params, &map, shared);
        else if (lane == 0 && way != GATHERED)
            wgmma::load_raw_stages(params, &map, shared);
    } else if (warp == wgmma::TRANSPOSE_WARPS + 1) {
        if (lane == 0)
            wgmma::load_a_stages(params, shared);
    } else if (warp == wgmma::TRANSPOSE_WARPS + 2) {
        write_stages(shared.b, own * params.k_blocks, params.k_blocks, b_to, lane);
    } else {
        write_stages(shared.a, own * a_stages, a_stages, a_to, lane);
    }
#endif
}

struct stages_case {
    int images, channels, rows, columns; /* of src */
    int k_steps, tile_rows, tile_columns;
    int halo;         /* rows and columns that the patch has more than the tile, half of them before it */
    int channel_gap;  /* elements between channels */
    int misalignment; /* elements by which src begins past a multiple of 16 bytes */
};

struct made_stages {
    wgmma::parameters params;
    tensor_map_recipe recipe;
    size_t element;
    int patch_rows;
    stages_case of;
    stage_way way;
    size_t shared_bytes() const
    {
        return (size_t)(params.raw_stages * params.raw_stage_bytes + params.a_stages * params.a_stage_bytes +
                        params.b_stages * params.b_stage_bytes);
    }
};

/* The K-major ways. */
void make_patch(made_stages *made, int planes, int alignment, bool rounds)
{
    wgmma::parameters &params = made->params;
    const stages_case &of = made->of;
    const int element = (int)made->element, depth = made->way == SPACE_TO_DEPTH ? 2 : 1;
    const bool in_place = made->way == IN_PLACE || made->way == SPACE_TO_DEPTH;
    params.first_row = params.first_column = -of.halo / 2;
    params.column_alignment = alignment;
    params.stage_alignment = made->way == TIGHT ? 1 : alignment;
    params.tight = made->way == TIGHT;
    params.space_to_depth_log2 = depth - 1;
    params.box_pitch = round_up(depth * of.tile_columns + of.halo + alignment - 1, alignment);
    params.pitch = made->way == TIGHT ? of.tile_columns + of.halo : params.box_pitch;
    made->patch_rows = of.tile_rows + of.halo;
    params.patch = made->patch_rows * params.pitch;
    params.box_patch = made->patch_rows * params.box_pitch;
    params.k_block_channels = of.k_steps * 32 / element;
    params.raw_stage_bytes = in_place ? 0 : (uint32_t)(params.k_block_channels * params.box_patch * element);
    params.b_stage_bytes = (uint32_t)(planes * 2 * of.k_steps * params.patch * 16);
    params.pixels_leading_bytes = (uint32_t)params.patch * 16;
    params.raw_stages = in_place || made->way == GATHERED ? 0 : 2;
    params.transpose_step = (of.k_steps == 1 ? 2 : 1) * 32 * (4 / element);
    params.transpose_columns = params.transpose_step % params.box_pitch;
    params.transpose_pixels = params.transpose_step / params.box_pitch * params.pitch + params.transpose_columns;
    tensor_map_recipe &recipe = made->recipe;
    const cuuint64_t row = (cuuint64_t)(of.columns * element), channel = (cuuint64_t)(params.src_channel * element);
    recipe.extents[0] = (cuuint64_t)of.columns;
    recipe.extents[in_place ? 2 : 1] = (cuuint64_t)of.rows;
    recipe.extents[in_place ? 1 : 2] = (cuuint64_t)of.channels;
    recipe.strides[in_place ? 1 : 0] = row;
    recipe.strides[in_place ? 0 : 1] = channel;
    recipe.box[0] = (cuuint32_t)params.box_pitch;
    recipe.box[in_place ? 2 : 1] = (cuuint32_t)made->patch_rows;
    recipe.box[in_place ? 1 : 2] = (cuuint32_t)(in_place ? 16 / element : params.k_block_channels);
    recipe.rounds = rounds;
}

/* MN-major planes of one row, whose channels begin anywhere. */
void make_realigned(made_stages *made)
{
    wgmma::parameters &params = made->params;
    const stages_case &of = made->of;
    const int boxes = round_up(of.tile_columns, 64) / 64,
              pixels = of.tile_columns < of.columns ? of.tile_columns : of.columns;
    params.column_alignment = params.stage_alignment = 8;
    params.k_block_channels = of.k_steps * 16;
    params.map_row_channels = params.src_channel % 8 == 0   ? 1
                              : params.src_channel % 4 == 0 ? 2
                              : params.src_channel % 2 == 0 ? 4
                                                            : 8;
    params.channel_alignment = 16 / params.map_row_channels;
    while (of.misalignment * 2 % params.channel_alignment != 0)
        params.channel_alignment /= 2;
    if (params.channel_alignment == 16)
        params.channel_alignment = 8;
    params.src_misalignment = of.misalignment;
    params.box_parts = 1;
    params.part_pixels = boxes * 64;
    params.part_pitch = round_up(pixels + 7, 8);
    params.expected_bytes = (uint32_t)(params.k_block_channels * params.part_pitch * 2);
    params.box_step_bytes =
        (uint32_t)round_up(params.k_block_channels / params.map_row_channels * params.part_pitch * 2, 128);
    params.raw_stage_bytes = (uint32_t)round_up(params.map_row_channels * (int)params.box_step_bytes, 1024);
    params.pixels_leading_bytes = (uint32_t)(params.k_block_channels * 128);
    params.b_stage_bytes = boxes * params.pixels_leading_bytes;
    params.raw_stages = 2;
    tensor_map_recipe &recipe = made->recipe;
    const cuuint64_t row = (cuuint64_t)(params.map_row_channels * params.src_channel);
    recipe.extents[0] = row - (cuuint64_t)params.src_channel + (cuuint64_t)(of.columns + of.misalignment);
    recipe.extents[1] = 1;
    recipe.extents[2] = (cuuint64_t)(of.channels / params.map_row_channels);
    recipe.strides[0] = recipe.strides[1] = 2 * row;
    recipe.box[0] = (cuuint32_t)params.part_pitch;
    recipe.box[1] = 1;
    recipe.box[2] = (cuuint32_t)(params.k_block_channels / params.map_row_channels);
}

template <class Mode> made_stages make_stages(const stages_case &of, stage_way way)
{
    made_stages made = {};
    wgmma::parameters &params = made.params;
    made.of = of;
    made.way = way;
    made.element = sizeof(typename Mode::Element);
    params.in_rows = of.rows;
    params.in_columns = of.columns;
    params.src_channel = of.rows * of.columns + of.channel_gap;
    params.src_image = params.src_channel * of.channels;
    params.src_images = of.images;
    params.by_plane_channels = divisor_of(INT_MAX); /* one plane holds all channels */
    params.held_channels = INT_MAX;
    params.group_in = of.channels;
    params.k_steps = of.k_steps;
    params.tile_rows = of.tile_rows;
    params.tile_columns = of.tile_columns;
    made.recipe.dtype = Mode::TYPE == WGMMA_TF32 ? TCONV_F32 : TCONV_F16;
    made.recipe.extents[3] = (cuuint64_t)of.images;
    made.recipe.box[3] = 1;
    made.recipe.strides[2] = (cuuint64_t)params.src_image * made.element;
    if (way == REALIGNED)
        make_realigned(&made);
    else
        make_patch(&made, Mode::PLANES, 16 / (int)made.element,
                   Mode::TYPE == WGMMA_TF32 && (way == IN_PLACE || way == SPACE_TO_DEPTH));
    params.k_blocks = round_up(of.channels, params.k_block_channels) / params.k_block_channels;
    params.m_blocks = params.group_m_blocks = 1;
    params.by_m_blocks = params.by_group_m_blocks = divisor_of(1);
    const int depth = way == SPACE_TO_DEPTH ? 2 : 1;
    params.column_tiles = round_up(of.columns, depth * of.tile_columns) / (depth * of.tile_columns);
    params.row_tiles = round_up(of.rows, of.tile_rows) / of.tile_rows;
    params.by_column_tiles = divisor_of(params.column_tiles);
    params.by_row_tiles = divisor_of(params.row_tiles);
    params.tiles = params.column_tiles * params.row_tiles * of.images;
    params.stage_boxes = 1;
    params.b_stages = 3;
    params.a_stages = 2;
    params.a_stage_bytes = 1024;
    params.max_k_block_a_stages = 2;
    return made;
}

/* What a stage has at a pixel of the patch, as bits of src. */
uint32_t source_bits(const made_stages &made, const std::vector<uint8_t> &src, int image, int channel, int row,
                     int column)
{
    const stages_case &of = made.of;
    if (channel >= of.channels || row < 0 || row >= of.rows || column < 0 || column >= of.columns)
        return 0;
    return load_bits(src, image * made.params.src_image + channel * made.params.src_channel + row * of.columns + column,
                     made.element);
}

/* Fails where a K-major stage is not [plane][core][pixel][16 bytes of channels]. */
template <class Mode>
void compare_patch(const made_stages &made, const std::vector<uint8_t> &src, const std::vector<uint8_t> &got, int tile,
                   int k_block)
{
    const wgmma::parameters &params = made.params;
    const int depth = made.way == SPACE_TO_DEPTH ? 2 : 1, in_core = 16 / (int)made.element;
    const int column_tile = tile % params.column_tiles, row_tile = tile / params.column_tiles % params.row_tiles;
    const int first_row = row_tile * params.tile_rows + params.first_row;
    const int first_column =
        (column_tile * params.tile_columns * depth + params.first_column) & -params.stage_alignment;
    const size_t first = ((size_t)tile * params.k_blocks + k_block) * params.b_stage_bytes;
    for (int pixel = 0; pixel < params.patch; pixel++)
        for (int channel = 0; channel < params.k_block_channels; channel++) {
            const int row = pixel / params.pitch, column = pixel % params.pitch;
            const uint32_t bits =
                source_bits(made, src, tile / params.column_tiles / params.row_tiles,
                            k_block * params.k_block_channels + channel, first_row + row, first_column + column);
            uint32_t planes[2] = {bits, 0};
            if (made.element == 4 && made.recipe.rounds)
                planes[0] = std::isnan(float_of(bits)) || std::isinf(float_of(bits))
                                ? bits
                                : (bits + 0xfff + (bits >> 13 & 1)) & 0xffffe000u;
            else if (made.element == 4 && Mode::PLANES == 2)
                tf32_parts_of(bits, &planes[0], &planes[1]);
            else if (made.element == 4)
                planes[0] = tf32_of(bits);
            const int place = depth == 1 ? pixel : row * params.pitch + column % 2 * (params.pitch / 2) + column / 2;
            for (int plane = 0; plane < Mode::PLANES; plane++) {
                const size_t at =
                    ((size_t)(plane * 2 * params.k_steps + channel / in_core) * params.patch + place) * 16 +
                    channel % in_core * made.element;
                uint32_t is = 0;
                memcpy(&is, &got[first + at], made.element);
                const bool both_nan =
                    made.element == 4 && std::isnan(float_of(is)) && std::isnan(float_of(planes[plane]));
                if (is != planes[plane] && !both_nan)
                    fail("tile %d, K-block %d, plane %d, row %d, column %d, channel %d is %#x, not %#x (src %#x)", tile,
                         k_block, plane, row, column, channel, is, planes[plane], bits);
            }
        }
}

/* Fails where a stage of boxes is not [64 pixels][channel][pixel], swizzled; what is beyond the tile is not looked
 * at. */
void compare_boxes(const made_stages &made, const std::vector<uint8_t> &src, const std::vector<uint8_t> &got, int tile,
                   int k_block)
{
    const wgmma::parameters &params = made.params;
    const int first_column = tile % params.column_tiles * params.tile_columns;
    const size_t first = ((size_t)tile * params.k_blocks + k_block) * params.b_stage_bytes;
    for (int channel = 0; channel < params.k_block_channels; channel++)
        for (int pixel = 0; pixel < params.tile_columns && first_column + pixel < params.in_columns; pixel++) {
            const uint32_t wanted = source_bits(made, src, tile / params.column_tiles,
                                                k_block * params.k_block_channels + channel, 0, first_column + pixel);
            const uint32_t at = (uint32_t)(pixel / 64) * params.pixels_leading_bytes +
                                swizzled((uint32_t)(channel * 128 + pixel % 64 * 2), 128);
            uint32_t is = 0;
            memcpy(&is, &got[first + at], 2);
            if (is != wanted)
                fail("tile %d, K-block %d, pixel %d, channel %d is %#x, not %#x", tile, k_block, pixel, channel, is,
                     wanted);
        }
}

template <class Mode, stage_way way> void check_stages_of(const stages_case &of)
{
    made_stages made = make_stages<Mode>(of, way);
    wgmma::parameters &params = made.params;
    const size_t elements = (size_t)params.src_image * of.images;
    std::vector<uint8_t> src = random_elements(elements, made.element);
    if (made.recipe.rounds) /* how TMA rounds NaN and infinity is not stated */
        for (size_t i = 0; i < elements; i++) {
            const uint32_t bits = bits_of(random_real());
            memcpy(&src[i * 4], &bits, 4);
        }
    const size_t a_bytes = (size_t)params.k_blocks * params.max_k_block_a_stages * params.a_stage_bytes;
    const std::vector<uint8_t> weights = random_elements(a_bytes / 4, 4);
    std::vector<uint8_t> wanted_a;
    for (int i = 0; i < params.tiles; i++)
        wanted_a.insert(wanted_a.end(), weights.begin(), weights.end());
    begin_case("%d images of %d channels, %d x %d, tiles of %d x %d and %d more, K-blocks of %d channels, gap %d",
               of.images, of.channels, of.rows, of.columns, of.tile_rows, of.tile_columns, of.halo,
               params.k_block_channels, of.channel_gap);
    const device_buffer from = input("src", src, (size_t)of.misalignment * made.element),
                        from_weights = input("weights", weights),
                        b_to = output("B stages", (size_t)params.tiles * params.k_blocks * params.b_stage_bytes),
                        a_to = output("A stages", wanted_a.size());
    CUtensorMap map = {};
    params.src = from.data;
    params.weights = from_weights.data;
    if (way != GATHERED)
        map = tensor_map_of(made.recipe, from.as<char>() - (size_t)of.misalignment * made.element);
    allow_shared_bytes(fill_stages<Mode, way>, 200 * 1024);
    fill_stages<Mode, way>
        <<<2, STAGE_WARPS * 32, made.shared_bytes() + 4096>>>(params, map, b_to.as<char>(), a_to.as<char>());
    finish_kernels();
    compare_bits<uint8_t>(a_to, wanted_a);
    const std::vector<uint8_t> got = contents<uint8_t>(b_to);
    for (int tile = 0; tile < params.tiles; tile++)
        for (int k_block = 0; k_block < params.k_blocks; k_block++)
            if (way == REALIGNED)
                compare_boxes(made, src, got, tile, k_block);
            else
                compare_patch<Mode>(made, src, got, tile, k_block);
}

template <class Mode, stage_way way> void check_stages()
{
    if (way == REALIGNED) {
        for (int gap : {4, 2, 1})
            for (int misalignment : {0, 1, 4})
                check_stages_of<Mode, way>({2, 64, 1, 200, gap == 2 ? 2 : 4, 1, 128, 0, gap, misalignment});
        return;
    }
    const int gap = way == GATHERED ? 3 : 0;
    check_stages_of<Mode, way>({1, 16, 8, 32, 1, 4, 32, 2, gap, 0});
    check_stages_of<Mode, way>({2, 40, 9, 48, 2, 4, 32, 4, gap, way == GATHERED ? 1 : 0});
    check_stages_of<Mode, way>({1, 19, 5, 88, 1, 2, 24, 0, gap, 0});
}

constexpr int BENCH_M_BLOCKS = 32;

/* Times the stages that are filled, by the bytes of src in them. */
template <class Mode, stage_way way> void bench_stages()
{
    begin_case("rate");
    const stages_case of = way == REALIGNED ? stages_case{132, 64, 1, 516, 4, 1, 128, 0, 0, 0}
                                            : stages_case{33, 64, 32, 64, 2, 4, 32, 2, 0, 0};
    made_stages made = make_stages<Mode>(of, way);
    wgmma::parameters &params = made.params;
    /* Many M blocks read the same src, which the second-level cache holds: enough work for one launch. */
    params.raw_stages = params.raw_stages > 0 ? 4 : 0;
    params.m_blocks = params.group_m_blocks = BENCH_M_BLOCKS;
    params.by_m_blocks = params.by_group_m_blocks = divisor_of(BENCH_M_BLOCKS);
    params.tiles *= BENCH_M_BLOCKS;
    const device_buffer from = output("src", (size_t)params.src_image * of.images * made.element),
                        weights =
                            output("weights", (size_t)BENCH_M_BLOCKS * params.k_blocks * 2 * params.a_stage_bytes);
    CUtensorMap map = {};
    params.src = from.data;
    params.weights = weights.data;
    if (way != GATHERED)
        map = tensor_map_of(made.recipe, from.data);
    allow_shared_bytes(fill_stages<Mode, way>, 200 * 1024);
    const size_t one_block = 116 * 1024; /* bytes: more than half of a multiprocessor's, so that it has but one */
    const size_t shared_bytes = made.shared_bytes() + 4096 > one_block ? made.shared_bytes() + 4096 : one_block;
    const double bytes = (double)params.tiles * params.k_blocks * params.b_stage_bytes / Mode::PLANES;
    const tconv_cuda_machine &rates = machine();
    const double cycle = way == GATHERED ? rates.gather : rates.convert;
    const int blocks = rates.multiprocessors;
    rate(
        "", [&] { fill_stages<Mode, way><<<blocks, STAGE_WARPS * 32, shared_bytes>>>(params, map, nullptr, nullptr); },
        bytes, "GB/s", cycle * rates.hz * rates.multiprocessors);
}

using namespace wgmma;

const entry entries[] = {
    {"cuda/wgmma/transpose_raw_stages tf32", check_stages<tf32_mode, RAW>, bench_stages<tf32_mode, RAW>, true},
    {"cuda/wgmma/transpose_raw_stages strict", check_stages<strict_mode, RAW>, bench_stages<strict_mode, RAW>, true},
    {"cuda/wgmma/transpose_raw_stages f16", check_stages<f16_mode, RAW>, bench_stages<f16_mode, RAW>, true},
    {"cuda/wgmma/transpose_raw_stages tight tf32", check_stages<tf32_mode, TIGHT>, nullptr, true},
    {"cuda/wgmma/transpose_raw_stages tight strict", check_stages<strict_mode, TIGHT>, nullptr, true},
    {"cuda/wgmma/transpose_raw_stages tight f16", check_stages<f16_mode, TIGHT>, nullptr, true},
    {"cuda/wgmma/transpose_in_place tf32", check_stages<tf32_mode, IN_PLACE>, bench_stages<tf32_mode, IN_PLACE>, true},
    {"cuda/wgmma/transpose_in_place f16", check_stages<f16_mode, IN_PLACE>, bench_stages<f16_mode, IN_PLACE>, true},
    {"cuda/wgmma/transpose_in_place tf32 space-to-depth", check_stages<tf32_mode, SPACE_TO_DEPTH>, nullptr, true},
    {"cuda/wgmma/transpose_in_place f16 space-to-depth", check_stages<f16_mode, SPACE_TO_DEPTH>, nullptr, true},
    {"cuda/wgmma/gather_src tf32", check_stages<tf32_mode, GATHERED>, nullptr, true},
    {"cuda/wgmma/gather_src strict", check_stages<strict_mode, GATHERED>, bench_stages<strict_mode, GATHERED>, true},
    {"cuda/wgmma/gather_src f16", check_stages<f16_mode, GATHERED>, bench_stages<f16_mode, GATHERED>, true},
    {"cuda/wgmma/realign_raw_stages f16", check_stages<f16_mn_major_mode, REALIGNED>,
     bench_stages<f16_mn_major_mode, REALIGNED>, true},
};

} // namespace

void check_transforms()
{
    check_entries(entries);
}

} // namespace tconv::check
