/*
 * Epilogues on accumulators that the host has made up: cuda_cells' stores from registers, and cuda_wgmma's staging and
 * the warps that store what is staged. Whatever is not a tile's output must stay as it is. cuda_rows' writer is in
 * rows.cu, and the epilogues of the other implementations are in their kernels (whole.cu).
 */
#include "../../src/cuda/cells/epilogue.cuh"
#include "../../src/cuda/wgmma/kernel.cuh"
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "families.h"
#include "hopper.cuh"

namespace tconv::check
{

namespace
{

int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* The row of wgmma's M and the column of N of a thread's accumulator, of its warpgroup's. */
int row_of(int thread, int i)
{
    return thread % 128 / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
}
int column_of(int thread, int i)
{
    return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

/* dst in NCHW, and what is wanted of it: all bits set where nothing may be written. */
struct wanted_planes {
    int64_t channel, image; /* strides */
    int rows, columns;
    std::vector<uint32_t> bits;
    wanted_planes(int images, int channels, int rows_, int columns_, int gap)
        : channel((int64_t)rows_ * columns_ + gap), image(channels * channel), rows(rows_), columns(columns_),
          bits((size_t)(images * image), ~0u)
    {
    }
    void set(int64_t n, int64_t c, int row, int column, uint32_t value)
    {
        bits[(size_t)(n * image + c * channel + (int64_t)row * columns + column)] = value;
    }
    void compare(const device_buffer &dst, size_t element) const
    {
        if (element == 4)
            compare_bits<uint32_t>(dst, bits);
        else
            compare_bits<uint16_t>(dst, std::vector<uint16_t>(bits.begin(), bits.end()));
    }
};

/* ------------------------------------------------------------------------------------------------------- cuda_cells */

constexpr int CELLS_N = 128, CELLS_THREADS = cells::CONSUMER_WARPS * 32;

__global__ void __launch_bounds__(CELLS_THREADS)
    store_cells(const __grid_constant__ cells::parameters layer, const float *from)
{
    const cells::tile_coord tile = cells::find_tile(layer, cells::first_tile());
    float accumulators[CELLS_N / 2];
#pragma unroll
    for (int i = 0; i < CELLS_N / 2; i++)
        accumulators[i] = from[((int64_t)blockIdx.x * (CELLS_N / 2) + i) * CELLS_THREADS + threadIdx.x];
    cells::store_tile<float>(layer, accumulators, tile, (int)threadIdx.x / 32, (int)threadIdx.x % 32);
}

struct cells_case {
    int cell_rows, cell_columns, cell_channels;
    int images, rows, columns; /* positions */
    int tile_images, tile_rows, tile_columns;
    int groups, group_out, less_rows, less_columns; /* less: outputs that the last cells lack */
    bool flat, vectors;
};

cells::parameters make_cells(const cells_case &of)
{
    cells::parameters layer = {};
    layer.cell_rows = of.cell_rows;
    layer.cell_columns = of.cell_columns;
    layer.cell_channels = of.cell_channels;
    while (1 << layer.cell_channels_log2 < of.cell_channels)
        layer.cell_channels_log2++;
    layer.neighbours = of.cell_columns < 4;
    layer.groups = of.groups;
    layer.group_out = of.group_out;
    layer.channel_tiles = divide_up(of.group_out, of.cell_channels);
    layer.schedule_count = 1;
    layer.images = of.images;
    layer.out_rows = of.rows * of.cell_rows - of.less_rows;
    layer.out_columns = of.columns * of.cell_columns - of.less_columns;
    layer.out_row_step = of.cell_rows;
    layer.tile_images = of.tile_images;
    layer.tile_rows = of.flat ? 1 : of.tile_rows;
    layer.tile_columns = of.tile_columns;
    layer.flat_columns = of.flat ? of.columns : 0;
    layer.in_columns = of.flat ? of.rows * of.columns : of.columns;
    layer.in_rows = of.flat ? 1 : of.rows;
    layer.image_tiles = divide_up(of.images, of.tile_images);
    layer.row_tiles = of.flat ? 1 : divide_up(of.rows, of.tile_rows);
    layer.column_tiles = divide_up(layer.in_columns, of.tile_columns);
    layer.m_tiles = layer.image_tiles * layer.row_tiles * layer.column_tiles;
    layer.tiles = layer.channel_tiles * of.groups * divide_up(layer.m_tiles, cells::CLUSTER_BLOCKS);
    layer.vector_stores = of.vectors;
    layer.pair_stores = of.vectors && layer.neighbours;
    return layer;
}

/* What channels add, and where there are post-ops multiply with and add then; the post-ops end with a clamp. */
struct cells_channels {
    std::vector<float> bias, factors, terms;
};

/* The value of an output from its sum. */
float finished(const cells_channels &of, int channel, float sum)
{
    const float value = sum + (of.bias.empty() ? 0 : of.bias[(size_t)channel]);
    if (of.factors.empty())
        return value;
    const float scaled = std::fma(value, of.factors[(size_t)channel], of.terms[(size_t)channel]);
    return std::min(std::max(scaled, -0.5f), 0.5f);
}

/* Wants the outputs of one position's cell. value: of each n. */
void want_cell(const cells_case &of, const cells::parameters &layer, int group, int channel, int image, int row,
               int column, const cells_channels &channels, const std::function<float(int)> &value,
               wanted_planes *wanted)
{
    for (int n = 0; n < CELLS_N; n++) { /* [column][row][channel] */
        const int c = channel + n % of.cell_channels,
                  out_row = row * of.cell_rows + n / of.cell_channels % of.cell_rows;
        const int out_column = column * of.cell_columns + n / of.cell_channels / of.cell_rows;
        if (c < of.group_out && out_row < layer.out_rows && out_column < layer.out_columns)
            wanted->set(image, group * of.group_out + c, out_row, out_column,
                        bits_of(finished(channels, group * of.group_out + c, value(n))));
    }
}

void check_cells_case(const cells_case &of, bool has_bias, bool has_posts, size_t offset)
{
    cells::parameters layer = make_cells(of);
    const int blocks = layer.tiles * cells::CLUSTER_BLOCKS;
    std::vector<float> sums((size_t)blocks * CELLS_N / 2 * CELLS_THREADS);
    cells_channels channels;
    for (float &sum : sums)
        sum = random_real();
    for (int i = 0; i < of.groups * of.group_out; i++) {
        if (has_bias)
            channels.bias.push_back(random_real());
        if (has_posts) {
            channels.factors.push_back(random_real());
            channels.terms.push_back(random_real());
        }
    }
    wanted_planes wanted(of.images, of.groups * of.group_out, layer.out_rows, layer.out_columns, 4);
    for (int block = 0; block < blocks; block++) {
        const int number = block / cells::CLUSTER_BLOCKS, channel = number % layer.channel_tiles * of.cell_channels;
        const int group = number / layer.channel_tiles % of.groups;
        const int m_tile =
            number / layer.channel_tiles / of.groups * cells::CLUSTER_BLOCKS + block % cells::CLUSTER_BLOCKS;
        const int first_column = m_tile % layer.column_tiles * layer.tile_columns,
                  first_row = m_tile / layer.column_tiles % layer.row_tiles * layer.tile_rows,
                  first_image = m_tile / layer.column_tiles / layer.row_tiles * of.tile_images;
        for (int position = 0; position < cells::BLOCK_M && m_tile < layer.m_tiles; position++) {
            int column = first_column + position % layer.tile_columns;
            int row = first_row + position / layer.tile_columns % layer.tile_rows;
            const int in_tile = position / layer.tile_columns / layer.tile_rows, image = first_image + in_tile;
            if (in_tile >= of.tile_images || image >= of.images || column >= layer.in_columns || row >= layer.in_rows)
                continue;
            if (of.flat) {
                row = column / of.columns;
                column %= of.columns;
            }
            const int in_warp = position % 16; /* who has it: neighbours in swapped order from row 4 on */
            const int lane_row = layer.neighbours ? in_warp / 2 : in_warp % 8;
            const int half = layer.neighbours ? (in_warp % 2) ^ (lane_row >= 4) : in_warp / 8;
            const auto value = [&](int n) {
                const int thread = position / 16 * 32 + lane_row * 4 + n % 8 / 2, i = n / 8 * 4 + half * 2 + n % 2;
                return sums[((size_t)block * (CELLS_N / 2) + i) * CELLS_THREADS + thread];
            };
            want_cell(of, layer, group, channel, image, row, column, channels, value, &wanted);
        }
    }
    begin_case("cells of %d x %d x %d, %d images of %d x %d, %d groups of %d channels%s%s%s%s", of.cell_rows,
               of.cell_columns, of.cell_channels, of.images, of.rows, of.columns, of.groups, of.group_out,
               of.flat ? ", flat" : "", of.vectors ? ", vectors" : "", has_bias ? ", bias" : "",
               has_posts ? ", post-ops" : "");
    const device_buffer from = input("sums", sums), add = input("bias", channels.bias),
                        factors = input("factors", channels.factors), terms = input("terms", channels.terms),
                        dst = output("dst", wanted.bits.size() * sizeof(float), offset);
    layer.dst = dst.data;
    layer.bias = has_bias ? add.data : nullptr;
    if (has_posts) {
        layer.posts.count = 2;
        layer.posts.rounds[0] = {ROUND_SCALES,     1, -0.0f, 1, -INFINITY, INFINITY, factors.as<float>(),
                                 terms.as<float>()};
        layer.posts.rounds[1] = {ROUND_BOUNDS_BELOW | ROUND_BOUNDS_ABOVE, 1, -0.0f, 1, -0.5f, 0.5f, nullptr, nullptr};
    }
    layer.dst_strides = {wanted.image, wanted.channel, layer.out_columns, 1, 0};
    store_cells<<<blocks, CELLS_THREADS>>>(layer, from.as<float>());
    finish_kernels();
    wanted.compare(dst, 4);
}

void check_cells()
{
    static const cells_case cases[] = {{4, 1, 32, 2, 9, 20, 1, 4, 32, 1, 40, 0, 0, false, false},
                                       {4, 1, 32, 1, 8, 32, 1, 4, 32, 2, 32, 1, 0, false, true},
                                       {2, 2, 32, 3, 8, 16, 1, 8, 16, 1, 50, 1, 1, false, false},
                                       {2, 2, 32, 2, 7, 20, 1, 4, 32, 2, 33, 0, 0, false, true},
                                       {1, 4, 32, 2, 6, 14, 1, 8, 16, 1, 37, 0, 3, false, false},
                                       {2, 4, 16, 2, 6, 14, 2, 4, 16, 1, 37, 1, 0, false, true},
                                       {2, 2, 32, 2, 7, 10, 1, 1, 128, 1, 32, 0, 0, true, true},
                                       {1, 1, 128, 1, 7, 19, 1, 4, 32, 1, 130, 0, 0, false, false}};
    for (const cells_case &of : cases) {
        check_cells_case(of, false, false, of.vectors ? 0 : 4);
        check_cells_case(of, true, false, of.vectors ? 0 : 4);
        check_cells_case(of, false, true, of.vectors ? 0 : 4);
        check_cells_case(of, true, true, of.vectors ? 0 : 4);
    }
}

void bench_cells()
{
    for (int cell_columns : {1, 2, 4}) {
        begin_case("rate");
        const cells_case of = {4 / cell_columns, cell_columns, 32, 16, 64, 64, 1, 4, 32, 1, 128, 0, 0, false, true};
        cells::parameters layer = make_cells(of);
        const int blocks = layer.tiles * cells::CLUSTER_BLOCKS;
        const size_t bytes = (size_t)of.images * of.group_out * layer.out_rows * layer.out_columns * sizeof(float);
        const device_buffer from = output("sums", (size_t)blocks * CELLS_N / 2 * CELLS_THREADS * sizeof(float)),
                            dst = output("dst", bytes);
        layer.dst = dst.data;
        layer.dst_strides = {(int64_t)of.group_out * layer.out_rows * layer.out_columns,
                             (int64_t)layer.out_rows * layer.out_columns, layer.out_columns, 1, 0};
        char variant[32];
        snprintf(variant, sizeof variant, "%d columns", cell_columns);
        rate(
            variant, [&] { store_cells<<<blocks, CELLS_THREADS>>>(layer, from.as<float>()); }, 2.0 * (double)bytes,
            "GB/s", dram_rate());
    }
}

/* ------------------------------------------------------------------------------------------------------- cuda_wgmma */

template <class Mode> constexpr int STORE_THREADS = (wgmma::CONSUMER_WARPS + 2 * Mode::EPILOGUE_WARPS) * 32;

/* Consumers stage accumulators, and epilogue warps store them. */
template <class Mode, int N>
__global__ void __launch_bounds__(STORE_THREADS<Mode>)
    store_wgmma(const __grid_constant__ wgmma::parameters params, const float *from)
{
#ifdef TCONV_CHECK_HOPPER
    extern __shared__ __align__(1024) char buffers[];
    __shared__ __align__(8) uint64_t barriers[wgmma::BARRIERS];
    const wgmma::shared_layout shared = wgmma::lay_out(params, barriers, buffers);
    const int warp = warp_of_block(), lane = lane_of_warp();
    wgmma::init_barriers<Mode>(shared, params, warp);
    __syncthreads();
    if (warp >= wgmma::CONSUMER_WARPS) {
        wgmma::store_tiles<Mode, N>(params, shared, warp - wgmma::CONSUMER_WARPS, lane);
        return;
    }
    uint32_t staged_parity = ~0u;
    for (int number = (int)blockIdx.x; number < params.tiles; number += (int)gridDim.x) {
        const wgmma::tile_place tile = wgmma::find_tile(params, number);
        typename Mode::Element loaded[2];
        wgmma::load_bias(params, tile, warp / 4, warp % 4, lane, loaded);
        float bias[2] = {to_compute(loaded[0]), to_compute(loaded[1])};
        float accumulators[wgmma::MMA_TILES][N / 2];
#pragma unroll
        for (int i = 0; i < N; i++)
            accumulators[i / (N / 2)][i % (N / 2)] = from[((int64_t)number * N + i) * 256 + warp * 32 + lane];
        wgmma::finish_tile<Mode, N>(params, shared, tile, accumulators, bias, warp, lane, staged_parity);
    }
#endif
}

struct store_case {
    int images, groups, group_out, out_rows, out_columns;
    int tile_columns, mma_tile_rows; /* positions */
    int column_phases, stride_h;
    bool split_channels; /* warpgroups have channels of their own, else rows */
    bool bulk;
    int vector, offset; /* elements stored at once; elements by which dst is past a multiple of 16 bytes */
    int first_phase, buffers;
    bool posts;
};

/* Two steps on accumulators, and two, the last with a tail, on what is staged in f32: each is one operation, so that the host has the same
 * bits. */
post_step step_of(int kind, float alpha, float beta, const float *first, const float *second)
{
    post_step step = {kind, {}, {}, first, second};
    step.alpha.f32 = alpha;
    step.beta.f32 = beta;
    return step;
}
void add_store_posts(bool staged, const float *scales, const float *shifts, wgmma::parameters *params)
{
    post_steps *first = &params->posts.of_sums, *rest = &params->posts.of_staged;
    first->of[first->count++] = step_of(POST_MUL_ADD_CHANNEL, 0, 0, scales, shifts);
    first->of[first->count++] = step_of(TCONV_POST_LEAKY_RELU, 0.25f, 0, NULL, NULL);
    if (!staged)
        return;
    rest->of[rest->count++] = step_of(TCONV_POST_ADD_TENSOR, 1.75f, 0, NULL, NULL);
    params->posts.tails[rest->count] = {true, 1, -0.0f, -1.5f, 1.25f, 3, 0.5f};
    rest->of[rest->count++] = step_of(TCONV_POST_MUL_CHANNEL, 0, 0, shifts, NULL);
}
float value_of_store_posts(bool staged, float value, float scale, float shift, float addend)
{
    value = fmaf(value, scale, shift);
    value = value > 0 ? value : 0.25f * value;
    if (!staged)
        return value;
    value = fmaf(1.75f, addend, value);
    value *= shift;
    return fmaf(3, fminf(fmaxf(value, -1.5f), 1.25f), 0.5f);
}

template <class Mode> wgmma::parameters make_store(const store_case &of)
{
    wgmma::parameters params = {};
    const int position_columns = of.column_phases, element = sizeof(typename Mode::Element);
    const int rows_of_group = (of.column_phases == 2 ? 1 : 2) * of.mma_tile_rows;
    const bool own_rows = !of.split_channels && of.stride_h == 1;
    params.group_out = of.group_out;
    params.out_rows = of.out_rows;
    params.out_columns = of.out_columns;
    params.stride_h = of.stride_h;
    params.row_residue[1] = of.stride_h == 2;
    params.column_phases = of.column_phases;
    params.position_columns = position_columns;
    params.first_phase = of.first_phase;
    params.stack = 1;
    params.mma_tile_channels = 64;
    params.warpgroup_channels = of.split_channels ? 64 : 0;
    params.tile_channels = of.split_channels ? 128 : 64;
    params.group_m_blocks = divide_up(of.group_out, params.tile_channels);
    params.m_blocks = params.group_m_blocks * of.groups;
    params.mma_tile_rows = of.mma_tile_rows;
    params.tile_rows = rows_of_group * (own_rows ? 2 : 1);
    params.tile_columns = params.mma_tile_columns = of.tile_columns;
    params.pitch = of.tile_columns + 4;
    for (int warpgroup = 0; warpgroup < 2; warpgroup++)
        for (int mma_tile = 0; mma_tile < 2; mma_tile++)
            params.mma_tile_first_row[warpgroup][mma_tile] =
                (own_rows ? warpgroup * rows_of_group : 0) + (of.column_phases == 2 ? 0 : mma_tile * of.mma_tile_rows);
    const int position_rows = divide_up(of.out_rows, of.stride_h), tile = of.tile_columns * position_columns;
    params.column_tiles = divide_up(of.out_columns, tile);
    params.row_tiles = divide_up(position_rows, params.tile_rows);
    params.tiles = params.m_blocks * params.column_tiles * params.row_tiles * of.images;
    params.by_m_blocks = divisor_of(params.m_blocks);
    params.by_group_m_blocks = divisor_of(params.group_m_blocks);
    params.by_column_tiles = divisor_of(params.column_tiles);
    params.by_row_tiles = divisor_of(params.row_tiles);
    params.by_flat_columns = divisor_of(1);
    params.by_row = divisor_of(tile);
    params.by_last_row = divisor_of(of.out_columns - (params.column_tiles - 1) * tile);
    params.bulk_store = of.bulk;
    params.bulk_period = 1;
    params.staged_misaligned = of.bulk && of.offset * element % 16 != 0;
    params.store_vector = of.vector;
    params.staging_buffers = of.buffers;
    params.release_early = of.buffers == 1;
    return params;
}

/* What the host knows of a case: numbers of each channel, and the addend, which lies as dst does. */
struct store_inputs {
    std::vector<float> bias, scales, shifts, addend;
};

/* Wants the outputs of one tile; sums: of one tile, [accumulator][thread of both warpgroups]. */
template <class Mode, int N>
void want_tile(const store_case &of, const wgmma::parameters &params, int number, const float *sums,
               const store_inputs &inputs, wanted_planes *wanted)
{
    const int m_block = number % params.m_blocks, rest = number / params.m_blocks;
    const int first_column = rest % params.column_tiles * params.tile_columns,
              first_row = rest / params.column_tiles % params.row_tiles * params.tile_rows,
              image = rest / params.column_tiles / params.row_tiles;
    for (int accumulator = 0; accumulator < N; accumulator++)
        for (int thread = 0; thread < 256; thread++) {
            const int mma_tile = accumulator / (N / 2), i = accumulator % (N / 2), warpgroup = thread / 128;
            const int n = column_of(thread, i), row_in_tile = n / params.pitch, column_in_tile = n % params.pitch;
            const int channel = m_block % params.group_m_blocks * params.tile_channels +
                                warpgroup * params.warpgroup_channels + row_of(thread, i);
            int row = first_row + params.mma_tile_first_row[warpgroup][mma_tile] + row_in_tile,
                column = first_column + column_in_tile;
            row = row * of.stride_h + params.row_residue[warpgroup];
            if (of.column_phases == 2)
                column = 2 * column + (mma_tile ^ of.first_phase);
            if (channel >= of.group_out || row_in_tile >= of.mma_tile_rows || column_in_tile >= params.tile_columns ||
                row >= of.out_rows || column >= of.out_columns)
                continue;
            const size_t c = (size_t)(m_block / params.group_m_blocks * of.group_out + channel);
            const int64_t at = image * wanted->image + (int64_t)c * wanted->channel + (int64_t)row * of.out_columns;
            float value = sums[(size_t)accumulator * 256 + thread] + inputs.bias[c];
            if (of.posts)
                value = value_of_store_posts(wgmma::STAGES_F32<Mode>, value, inputs.scales[c], inputs.shifts[c],
                                             inputs.addend[(size_t)(at + column)]);
            wanted->set(image, (int64_t)c, row, column,
                        Mode::TYPE == WGMMA_TF32   ? bits_of(value)
                        : Mode::TYPE == WGMMA_BF16 ? bf16_of(value)
                                                   : f16_of(value));
        }
}

template <class Mode, int N> void check_store(const store_case &of)
{
    wgmma::parameters params = make_store<Mode>(of);
    const size_t element = sizeof(typename Mode::Element), channels = (size_t)(of.groups * of.group_out);
    std::vector<float> sums((size_t)params.tiles * N * 256);
    store_inputs inputs = {
        std::vector<float>(channels), std::vector<float>(channels), std::vector<float>(channels), {}};
    std::vector<uint8_t> bias_bytes(channels * element);
    for (float &sum : sums)
        sum = random_real();
    for (size_t i = 0; i < channels; i++) {
        const float value = random_real();
        const uint32_t bits = element == 4 ? bits_of(value) : Mode::TYPE == WGMMA_BF16 ? bf16_of(value) : f16_of(value);
        memcpy(&bias_bytes[i * element], &bits, element);
        inputs.bias[i] = element == 4               ? value
                         : Mode::TYPE == WGMMA_BF16 ? float_of_bf16((uint16_t)bits)
                                                    : float_of_f16((uint16_t)bits);
        inputs.scales[i] = random_real();
        inputs.shifts[i] = random_real();
    }
    const int gap = of.out_rows * of.out_columns % 8 == 0 ? 8 : 16 - of.out_rows * of.out_columns % 8;
    wanted_planes wanted(of.images, (int)channels, of.out_rows, of.out_columns, gap);
    inputs.addend.resize(wanted.bits.size());
    for (float &element_of : inputs.addend)
        element_of = random_real();
    for (int number = 0; number < params.tiles; number++)
        want_tile<Mode, N>(of, params, number, &sums[(size_t)number * N * 256], inputs, &wanted);
    begin_case("%d x %d, %d groups of %d channels, tiles of %d columns, %d rows to an MMA tile, %d column phases, "
               "row stride %d, %s of %d, %d past 16 bytes%s",
               of.out_rows, of.out_columns, of.groups, of.group_out, of.tile_columns, of.mma_tile_rows,
               of.column_phases, of.stride_h, of.bulk ? "bulk copies" : "vectors", of.vector, of.offset,
               of.posts ? ", post-ops" : "");
    const device_buffer from = input("sums", sums), add = input("bias", bias_bytes),
                        scales = input("scales", inputs.scales), shifts = input("shifts", inputs.shifts),
                        addend = input("addend", inputs.addend),
                        dst = output("dst", wanted.bits.size() * element, (size_t)of.offset * element);
    params.dst = dst.data;
    params.bias = add.data;
    params.dst_channel = wanted.channel;
    params.dst_image = wanted.image;
    if (of.posts) {
        add_store_posts(wgmma::STAGES_F32<Mode>, scales.as<float>(), shifts.as<float>(), &params);
        params.posts.addend = addend.data;
    }
    const size_t shared_bytes = (size_t)(wgmma::CONSUMER_WARPS * of.buffers * wgmma::staged_bytes(N, (int)element));
    allow_shared_bytes(store_wgmma<Mode, N>, 200 * 1024);
    store_wgmma<Mode, N><<<2, STORE_THREADS<Mode>, shared_bytes>>>(params, from.as<float>());
    finish_kernels();
    wanted.compare(dst, element);
}

const store_case store_cases[] = {
    {2, 1, 70, 11, 40, 16, 4, 1, 1, false, false, 4, 0, 0, 1, false},
    {1, 2, 130, 7, 36, 32, 1, 1, 1, true, false, 4, 0, 0, 2, false},
    {1, 1, 64, 9, 35, 24, 2, 1, 1, false, false, 1, 1, 0, 1, false},
    {2, 1, 40, 9, 64, 64, 1, 1, 1, false, true, 4, 0, 0, 2, false},
    {1, 1, 64, 6, 64, 32, 1, 1, 2, false, true, 2, 2, 0, 1, false},
    {2, 1, 50, 10, 72, 32, 1, 2, 2, false, false, 4, 0, 0, 2, false},
    {1, 1, 64, 9, 66, 16, 3, 2, 1, false, false, 2, 2, 1, 1, false},
    {1, 2, 64, 8, 128, 64, 1, 2, 2, false, true, 4, 0, 1, 1, false},
};

template <class Mode, int N> void check_wgmma()
{
    for (store_case of : store_cases)
        for (bool posts : {false, true}) {
            of.posts = posts;
            check_store<Mode, N>(of);
        }
}

template <class Mode, int N> void bench_wgmma()
{
    for (bool bulk : {false, true}) {
        begin_case("rate");
        const store_case of = {
            16, 1, 128, 64, 128, 64, 1, 1, 1, false, bulk, 16 / (int)sizeof(typename Mode::Element), 0, 0, 2, false};
        wgmma::parameters params = make_store<Mode>(of);
        const int element = sizeof(typename Mode::Element);
        const size_t bytes = (size_t)of.images * of.group_out * of.out_rows * of.out_columns * element;
        /* All tiles read the first one's accumulators from the cache, as near as that is to registers. */
        const device_buffer from = output("sums", (size_t)params.tiles * N * 256 * sizeof(float)),
                            dst = output("dst", bytes);
        params.dst = dst.data;
        params.dst_channel = of.out_rows * of.out_columns;
        params.dst_image = params.dst_channel * of.group_out;
        const size_t shared_bytes = (size_t)(wgmma::CONSUMER_WARPS * of.buffers * wgmma::staged_bytes(N, element));
        allow_shared_bytes(store_wgmma<Mode, N>, 200 * 1024);
        rate(
            bulk ? "bulk copies" : "vectors",
            [&] {
                store_wgmma<Mode, N>
                    <<<machine().multiprocessors, STORE_THREADS<Mode>, shared_bytes>>>(params, from.as<float>());
            },
            (double)bytes + (double)params.tiles * N * 256 * sizeof(float), "GB/s", dram_rate());
    }
}

const entry entries[] = {
    {"cuda/cells/store_tile", check_cells, bench_cells, false},
    {"cuda/wgmma/stage_tile, store_tiles tf32", check_wgmma<wgmma::tf32_mode, 128>, bench_wgmma<wgmma::tf32_mode, 64>,
     true},
    {"cuda/wgmma/stage_tile, store_tiles strict", check_wgmma<wgmma::strict_mode, 80>,
     bench_wgmma<wgmma::strict_mode, 80>, true},
    {"cuda/wgmma/stage_tile, store_tiles f16", check_wgmma<wgmma::f16_mode, 104>, bench_wgmma<wgmma::f16_mode, 64>,
     true},
    {"cuda/wgmma/stage_tile, store_tiles bf16", check_wgmma<wgmma::bf16_mode, 128>, nullptr, true},
};

} // namespace

void check_epilogues()
{
    check_entries(entries);
}

} // namespace tconv::check
