/* The packing kernels whose order is that of the lanes' fragments (cuda_mma, cuda_rows, cuda_col2im), that of
 * cuda_col2im's row sums, and that of cuda_general: each order is stated in plain C as its parameters.h gives it. */
#include "../../src/cuda/col2im/parameters.h"
#include "../../src/cuda/general/parameters.h"
#include "../../src/cuda/mma/row_parameters.h"
#include "families.h"
#include "packing.h"

namespace tconv::check
{

namespace
{

int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* A layer of which packing kernels read the weights' part. */
tconv_layer layer_of(const weights_tensor &weights, bool tf32)
{
    tconv_layer layer = {};
    tconv_problem &problem = layer.problem;
    problem.dtype = weights.dtype;
    problem.element_size = weights.element_size();
    problem.groups = weights.groups;
    problem.group_in = weights.group_in;
    problem.group_out = weights.group_out;
    problem.in_channels = (int64_t)weights.groups * weights.group_in;
    problem.out_channels = (int64_t)weights.groups * weights.group_out;
    problem.h.kernel = weights.kernel_rows;
    problem.w.kernel = weights.kernel_columns;
    problem.weight = weights.strides;
    layer.target.math = tf32 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT;
    return layer;
}

/* --------------------------------------------------------------------------------------------------------- cuda_mma */

struct mma_case {
    weights_shape weights;
    bool strict;
    int stride_h, stride_w, warp_m, m_warps, phase_warps, block_k_words, channel_run;
};

struct mma_packing {
    weights_tensor weights;
    tconv_layer layer;
    mma::parameters params;
    size_t bytes;
};

/* Without dilation and padding, kernel column k has residue k mod stride and reads k / stride columns back. */
void make_mma_taps(const mma_case &of, mma::parameters *params)
{
    const int rows = of.weights.kernel_rows, columns = of.weights.kernel_columns;
    params->row_phases = of.stride_h;
    params->row_kernel_step = of.stride_h;
    for (int i = 0; i < of.stride_h; i++) {
        params->rows[i].taps = i < rows ? divide_up(rows - i, of.stride_h) : 0;
        params->rows[i].first_kernel = i;
        params->max_row_taps =
            params->rows[i].taps > params->max_row_taps ? params->rows[i].taps : params->max_row_taps;
    }
    params->shifts = divide_up(columns, of.stride_w);
    for (int shift = 0; shift < params->shifts; shift++) { /* from the least shift, which reads furthest back */
        mma::column_shift &column = params->columns[shift];
        column.shift = (short)shift;
        column.before = (short)params->column_taps;
        for (int phase = 0; phase < of.stride_w; phase++) {
            const int kernel = (params->shifts - 1 - shift) * of.stride_w + phase;
            column.kernel[phase] = (short)kernel;
            if (kernel < columns) {
                column.phases = (short)(column.phases | 1 << phase);
                params->column_taps++;
            }
        }
    }
}

mma_packing make_mma(const mma_case &of)
{
    mma_packing made = {};
    mma::parameters &params = made.params;
    made.weights = make_weights(of.weights, false);
    made.layer = layer_of(made.weights, !of.strict);
    make_mma_taps(of, &params);
    params.groups = of.weights.groups;
    params.group_in = of.weights.group_in;
    params.group_out = of.weights.group_out;
    params.warp_m = of.warp_m;
    params.m_warps = of.m_warps;
    params.phase_warps = of.phase_warps;
    params.m_tiles = divide_up(of.weights.group_out, of.warp_m * of.m_warps);
    params.phase_sets = divide_up(of.stride_h, of.phase_warps);
    params.block_k_words = of.block_k_words;
    params.k_blocks = divide_up(of.weights.group_in * (int)made.weights.element_size() / 4, of.block_k_words);
    params.a_fragments = of.strict ? 2 : 1;
    params.channel_run = of.channel_run;
    params.steps = params.column_taps * of.block_k_words / mma::MMA_K_WORDS;
    params.a_tile_words = of.m_warps * of.phase_warps * params.max_row_taps * params.steps *
                          (of.warp_m / mma::MMA_SYNC_M) * params.a_fragments * mma::FRAGMENT_WORDS;
    made.bytes = (size_t)params.groups * params.m_tiles * params.phase_sets * params.k_blocks * params.a_tile_words * 4;
    return made;
}

/* The channel of a warp's that row 8 * half + row of its MMA m has: lanes' rows have `run` neighbours each. */
int channel_of_mma_row(int m, int half, int row, int run)
{
    const int held = 2 * m + half; /* of those that a lane holds */
    return held / run * (8 * run) + row * run + held % run;
}

/* The part of a fragment of one lane: rows lane / 4 and 8 on, of words lane % 4 and 4 on. Here the small part is what
 * rounding leaves, not rounded itself. */
void write_mma_lane(packed_writer &to, const mma::parameters &params, int group, int channel, int m, int first_word,
                    int fragment, int lane, int row, int column)
{
    const int per_word = 4 / (int)to.from.element_size();
    for (int i = 0; i < 4; i++) {
        const int out = channel + channel_of_mma_row(m, i % 2, lane / 4, params.channel_run);
        const int word = first_word + lane % 4 + i / 2 * 4;
        for (int e = 0; e < per_word; e++) {
            const uint32_t bits = to.from.at(group, word * per_word + e, out, row, column);
            const uint32_t big = tf32_of(bits);
            to.bits(per_word == 2 ? bits : fragment == 0 ? big : bits_of(float_of(bits) - float_of(big)));
        }
    }
}

/* The weights of one warp of an A tile. */
void write_mma_warp(packed_writer &to, const mma_packing &of, int group, int channel, int phase, int k_block)
{
    const mma::parameters &params = of.params;
    for (int row_tap = 0; phase < params.row_phases && row_tap < params.rows[phase].taps; row_tap++)
        for (int shift = 0; shift < params.shifts; shift++)
            for (int step = 0; step < params.block_k_words / mma::MMA_K_WORDS; step++)
                for (int column_phase = 0; column_phase < mma::MAX_STRIDE_W; column_phase++)
                    for (int m = 0; m < params.warp_m / mma::MMA_SYNC_M; m++)
                        for (int fragment = 0; fragment < params.a_fragments; fragment++)
                            for (int lane = 0; lane < 32; lane++)
                                if ((params.columns[shift].phases >> column_phase & 1) != 0)
                                    write_mma_lane(to, params, group, channel, m,
                                                   k_block * params.block_k_words + step * mma::MMA_K_WORDS, fragment,
                                                   lane,
                                                   params.rows[phase].first_kernel + row_tap * params.row_kernel_step,
                                                   params.columns[shift].kernel[column_phase]);
}

void write_mma(packed_writer &to, const mma_packing &of)
{
    const mma::parameters &params = of.params;
    for (int block = 0; block < params.groups * params.m_tiles * params.phase_sets; block++)
        for (int k_block = 0; k_block < params.k_blocks; k_block++) {
            const int set = block % params.phase_sets, m_tile = block / params.phase_sets % params.m_tiles;
            const size_t first = to.bytes.size();
            for (int m_warp = 0; m_warp < params.m_warps; m_warp++)
                for (int phase_warp = 0; phase_warp < params.phase_warps; phase_warp++)
                    write_mma_warp(to, of, block / params.phase_sets / params.m_tiles,
                                   (m_tile * params.m_warps + m_warp) * params.warp_m,
                                   set * params.phase_warps + phase_warp, k_block);
            to.fill(first + (size_t)params.a_tile_words * 4 - to.bytes.size(), 0);
        }
}

pack_function launch_of(const mma_packing &of)
{
    return [&of](const void *weights, void *packed, tconv_issue *issue) {
        return mma::tconv_mma_launch_packing(&of.layer, &of.params, weights, packed, nullptr, issue);
    };
}

void check_mma()
{
    static const mma_case cases[] = {
        {{TCONV_F32, 1, 19, 40, 3, 3, true}, false, 1, 1, 16, 2, 1, 8, 1},
        {{TCONV_F32, 2, 21, 50, 4, 5, true}, true, 2, 2, 32, 1, 2, 16, 4},
        {{TCONV_F32, 1, 40, 33, 5, 4, false}, true, 3, 2, 16, 1, 2, 8, 2},
        {{TCONV_F16, 1, 50, 70, 3, 4, true}, false, 1, 3, 32, 2, 1, 16, 4},
        {{TCONV_BF16, 3, 18, 16, 2, 2, false}, false, 4, 2, 16, 1, 1, 8, 1},
    };
    for (const mma_case &of : cases) {
        const mma_packing packing = make_mma(of);
        packed_writer wanted = {packing.weights, {}};
        begin_case("dtype %d%s, %d groups of %d to %d channels, %dx%d by %dx%d, warps of %d channels",
                   (int)of.weights.dtype, of.strict ? " strict" : "", of.weights.groups, of.weights.group_in,
                   of.weights.group_out, of.weights.kernel_rows, of.weights.kernel_columns, of.stride_h, of.stride_w,
                   of.warp_m);
        write_mma(wanted, packing);
        if (wanted.bytes.size() != packing.bytes)
            fail("%zu bytes, and %zu were reckoned with", wanted.bytes.size(), packing.bytes);
        compare_packed(wanted, launch_of(packing));
    }
}

void bench_mma()
{
    for (tconv_dtype dtype : {TCONV_F32, TCONV_F16}) {
        const mma_packing packing = make_mma({{dtype, 1, 512, 512, 4, 4, true}, false, 2, 2, 32, 2, 1, 16, 4});
        rate_packing(dtype == TCONV_F32 ? "tf32" : "f16", packing.weights, packing.bytes, launch_of(packing));
    }
}

/* -------------------------------------------------------------------------------------------------------- cuda_rows */

struct rows_packing {
    weights_tensor weights;
    tconv_layer layer;
    mma::row_parameters params;
    int fragments;
    size_t bytes;
};

rows_packing make_rows(const weights_shape &shape, bool strict, int stride_w, bool any_bits)
{
    rows_packing made = {};
    mma::row_parameters &params = made.params;
    made.weights = make_weights(shape, any_bits);
    made.layer = layer_of(made.weights, !strict);
    made.fragments = strict ? 2 : 1;
    params.groups = shape.groups;
    params.group_in = shape.group_in;
    params.group_out = shape.group_out;
    params.m_tiles = divide_up(shape.group_out, mma::BLOCK_M);
    params.steps = divide_up(shape.group_in * (int)made.weights.element_size(), MMA_K_BYTES);
    params.column_taps = shape.kernel_columns;
    for (int k = 0; k < shape.kernel_columns; k++) {
        params.column_phases[k / stride_w] |= 1 << k % stride_w;
        params.kernel_column[k / stride_w][k % stride_w] = (short)k;
    }
    params.weight_vectors = shape.kernel_rows * shape.kernel_columns * params.steps * made.fragments * 32;
    made.bytes = (size_t)params.groups * params.m_tiles * params.weight_vectors * 16;
    return made;
}

/* [group][M tile][kernel row][column tap][step][fragment][lane][4 words]: kernel columns are in their own order. */
void write_rows(packed_writer &to, const rows_packing &of)
{
    const mma::row_parameters &params = of.params;
    const int per_word = 4 / (int)to.from.element_size(), all = params.groups * params.m_tiles * to.from.kernel_rows;
    for (int outer = 0; outer < all; outer++)
        for (int column = 0; column < params.column_taps; column++)
            for (int step = 0; step < params.steps; step++)
                for (int fragment = 0; fragment < of.fragments; fragment++)
                    for (int lane = 0; lane < 32; lane++)
                        for (int word = 0; word < 4; word++)
                            for (int e = 0; e < per_word; e++)
                                to.element(part_of_plane(of.fragments, fragment),
                                           outer / to.from.kernel_rows / params.m_tiles,
                                           (step * 8 + lane % 4 + word / 2 * 4) * per_word + e,
                                           outer / to.from.kernel_rows % params.m_tiles * mma::BLOCK_M + lane / 4 +
                                               word % 2 * 8,
                                           outer % to.from.kernel_rows, column);
}

pack_function launch_of(const rows_packing &of)
{
    return [&of](const void *weights, void *packed, tconv_issue *issue) {
        return mma::tconv_mma_launch_row_packing(&of.layer, &of.params, weights, packed, nullptr, issue);
    };
}

void check_rows()
{
    static const weights_shape shapes[] = {{TCONV_F32, 1, 9, 20, 3, 5, true},
                                           {TCONV_F32, 2, 8, 16, 4, 4, false},
                                           {TCONV_F16, 2, 33, 17, 2, 3, true},
                                           {TCONV_BF16, 1, 4, 40, 7, 6, true}};
    for (const weights_shape &shape : shapes)
        for (bool strict : {false, true}) {
            if (strict && shape.dtype != TCONV_F32)
                continue;
            const rows_packing packing = make_rows(shape, strict, 2, true);
            packed_writer wanted = {packing.weights, {}};
            begin_case("dtype %d%s, %d to %d channels, %dx%d", (int)shape.dtype, strict ? " strict" : "",
                       shape.group_in, shape.group_out, shape.kernel_rows, shape.kernel_columns);
            write_rows(wanted, packing);
            compare_packed(wanted, launch_of(packing));
        }
}

void bench_rows()
{
    const rows_packing packing = make_rows({TCONV_F32, 1, 256, 256, 4, 4, true}, false, 2, false);
    rate_packing("tf32", packing.weights, packing.bytes, launch_of(packing));
}

/* ------------------------------------------------------------------------------------------------------ cuda_col2im */

/* [group][K step][N tile][lane][8 bytes] behind the header, whose first int says whether any weight is special. */
void write_col2im(packed_writer &to, int steps, int tiles, bool special)
{
    const int per_word = 4 / (int)to.from.element_size(), taps = to.from.kernel_rows * to.from.kernel_columns;
    const int flag = special ? 1 : 0;
    to.fill(col2im::HEADER_BYTES, 0);
    memcpy(to.bytes.data(), &flag, sizeof flag);
    for (int group = 0; group < to.from.groups; group++)
        for (int step = 0; step < steps; step++)
            for (int tile = 0; tile < tiles; tile++)
                for (int lane = 0; lane < 32; lane++)
                    for (int word = 0; word < 2; word++)
                        for (int e = 0; e < per_word; e++) {
                            const int n = tile * col2im::TILE_N + lane / 4, tap = n % taps;
                            to.bits(to.from.at(group, (step * 8 + lane % 4 + 4 * word) * per_word + e, n / taps,
                                               tap / to.from.kernel_columns, tap % to.from.kernel_columns));
                        }
}

pack_function launch_of_col2im(const tconv_layer &layer, int steps, int tiles)
{
    return [&layer, steps, tiles](const void *weights, void *packed, tconv_issue *issue) {
        return col2im::tconv_col2im_pack_fragments(&layer.problem, steps, tiles, weights, packed, nullptr, issue);
    };
}

void check_col2im()
{
    static const weights_shape shapes[] = {{TCONV_F32, 1, 37, 3, 3, 3, true},
                                           {TCONV_F32, 2, 16, 1, 9, 9, false},
                                           {TCONV_F16, 1, 70, 2, 4, 4, true},
                                           {TCONV_BF16, 2, 16, 3, 2, 3, true}};
    for (const weights_shape &shape : shapes)
        for (int special = 0; special < 3; special++) {
            weights_tensor weights = make_weights(shape, false);
            if (shape.dtype != TCONV_F32) /* no infinity and NaN */
                for (uint32_t &bits : weights.bits)
                    bits &= 0xbbff;
            if (special > 0 && shape.dtype == TCONV_F32)
                weights.bits[weights.bits.size() / 2] = special == 1 ? 0x7f800000 : 0xff7ff000;
            else if (special > 0)
                weights.bits[weights.bits.size() - 1] = special == 1               ? 0xffff
                                                        : shape.dtype == TCONV_F16 ? 0x7c00
                                                                                   : 0x7f80;
            const tconv_layer layer = layer_of(weights, true);
            const int steps = divide_up(shape.group_in * (int)weights.element_size(), MMA_K_BYTES);
            const int tiles = divide_up(shape.group_out * shape.kernel_rows * shape.kernel_columns, col2im::TILE_N);
            packed_writer wanted = {weights, {}};
            begin_case("dtype %d, %d to %d channels, %dx%d, special %d", (int)shape.dtype, shape.group_in,
                       shape.group_out, shape.kernel_rows, shape.kernel_columns, special);
            write_col2im(wanted, steps, tiles, special > 0);
            compare_packed(wanted, launch_of_col2im(layer, steps, tiles));
        }
}

/* [group][output block][K step][part][half of K][n][16 bytes]; n are bands of `stride` kernel rows, each [kernel
 * row][output channel][kernel column], padded. The first half of K has the even channels of f32. */
void write_row_sums(packed_writer &to, const col2im::parameters &made, int stride, bool strict,
                    const col2im::kernel_config &config)
{
    const int planes = strict ? 2 : 1, in_half = 16 / (int)to.from.element_size(), columns = to.from.kernel_columns;
    const int row_n = made.block_out * columns, band_n = config.band_tiles * col2im::TILE_N;
    for (int block = 0; block < to.from.groups * made.out_blocks; block++)
        for (int step = 0; step < made.steps; step++)
            for (int plane = 0; plane < planes; plane++)
                for (int half = 0; half < 2; half++)
                    for (int n = 0; n < config.n_tiles * col2im::TILE_N; n++)
                        for (int i = 0; i < in_half; i++) {
                            const int in =
                                step * 2 * in_half + (to.from.dtype == TCONV_F32 ? 2 * i + half : half * in_half + i);
                            const int of_band = n % band_n / row_n, of_row = n % band_n % row_n;
                            const int out = block % made.out_blocks * made.block_out + of_row / columns;
                            to.element(part_of_plane(planes, plane), block / made.out_blocks, in, out,
                                       of_band < stride ? n / band_n * stride + of_band : -1, of_row % columns);
                        }
}

pack_function launch_of_row_sums(const tconv_layer &layer, bool strict, const col2im::parameters &params, int config)
{
    return [&layer, strict, &params, config](const void *weights, void *packed, tconv_issue *issue) {
        const bool split = strict && layer.problem.dtype == TCONV_F32;
        return col2im::tconv_col2im_pack_row_sums(&layer.problem, split, &params, config, weights, packed, nullptr,
                                                  issue);
    };
}

void check_row_sums()
{
    static const struct {
        weights_shape weights;
        int stride, block_out;
        bool strict;
    } cases[] = {{{TCONV_F32, 1, 40, 3, 4, 4, true}, 2, 3, false},   {{TCONV_F32, 2, 19, 1, 9, 9, true}, 4, 1, true},
                 {{TCONV_F16, 1, 64, 4, 3, 3, false}, 1, 4, false},  {{TCONV_BF16, 2, 30, 2, 5, 3, true}, 3, 2, false},
                 {{TCONV_F32, 2, 24, 11, 6, 6, false}, 2, 3, false}, {{TCONV_F32, 1, 20, 16, 5, 5, true}, 2, 4, true},
                 {{TCONV_BF16, 1, 40, 32, 1, 4, true}, 1, 16, false}};
    for (const auto &of : cases) {
        const weights_tensor weights = make_weights(of.weights, true);
        tconv_layer layer = layer_of(weights, !of.strict);
        layer.problem.h.stride = of.stride;
        const int config =
            col2im::find_config(of.weights.kernel_rows, of.stride, of.block_out * of.weights.kernel_columns);
        col2im::parameters made = {};
        made.steps = divide_up(of.weights.group_in * (int)weights.element_size(), MMA_K_BYTES);
        made.block_out = of.block_out;
        made.out_blocks = divide_up(of.weights.group_out, of.block_out);
        packed_writer wanted = {weights, {}};
        begin_case("dtype %d%s, %d to %d channels, %d in a block, %dx%d by %d", (int)of.weights.dtype,
                   of.strict ? " strict" : "", of.weights.group_in, of.weights.group_out, of.block_out,
                   of.weights.kernel_rows, of.weights.kernel_columns, of.stride);
        if (config == col2im::CONFIGS)
            fail("no config takes this");
        write_row_sums(wanted, made, of.stride, of.strict, col2im::configs[config]);
        compare_packed(wanted, launch_of_row_sums(layer, of.strict, made, config));
    }
}

/* ----------------------------------------------------------------------------------------------------- cuda_general */

pack_function launch_of_general(const tconv_layer &layer, int64_t packed_out)
{
    return [&layer, packed_out](const void *weights, void *packed, tconv_issue *issue) {
        return tconv_general_pack_weights(&layer.problem, packed_out, weights, packed, nullptr, issue);
    };
}

void check_general()
{
    static const weights_shape shapes[] = {{TCONV_F32, 1, 35, 40, 3, 5, true},
                                           {TCONV_F32, 3, 5, 33, 2, 2, false},
                                           {TCONV_F16, 2, 33, 70, 6, 6, true},
                                           {TCONV_BF16, 1, 64, 64, 1, 1, false}};
    for (const weights_shape &shape : shapes) {
        const weights_tensor weights = make_weights(shape, true);
        const tconv_layer layer = layer_of(weights, false);
        const int packed_out = divide_up(shape.group_out, 16) * 16;
        packed_writer wanted = {weights, {}};
        begin_case("dtype %d, %d groups of %d to %d channels, %dx%d", (int)shape.dtype, shape.groups, shape.group_in,
                   shape.group_out, shape.kernel_rows, shape.kernel_columns);
        for (int tap = 0; tap < shape.kernel_rows * shape.kernel_columns; tap++)
            for (int in = 0; in < shape.group_in; in++)
                for (int group = 0; group < shape.groups; group++)
                    for (int out = 0; out < packed_out; out++)
                        wanted.bits(weights.at(group, in, out, tap / shape.kernel_columns, tap % shape.kernel_columns));
        compare_packed(wanted, launch_of_general(layer, packed_out));
    }
}

void bench_general()
{
    for (tconv_dtype dtype : {TCONV_F32, TCONV_F16}) {
        const weights_tensor weights = make_weights({dtype, 1, 512, 512, 4, 4, true}, false);
        const tconv_layer layer = layer_of(weights, false);
        rate_packing(dtype == TCONV_F32 ? "f32" : "f16", weights, weights.bits.size() * weights.element_size(),
                     launch_of_general(layer, 512));
    }
}

/* The phase tables, more of them than one launch takes. */
void check_phases()
{
    for (int count : {1, 5, 96, 97, 250}) {
        std::vector<tconv_phase> rows((size_t)count), columns(3);
        for (std::vector<tconv_phase> *phases : {&rows, &columns})
            for (tconv_phase &phase : *phases)
                phase = {random_integer(0, 99), random_integer(1, 99), random_integer(1, 9), random_integer(0, 9),
                         random_integer(-9, 9)};
        tconv_layer layer = {};
        layer.rows.count = count;
        layer.rows.phases = rows.data();
        layer.columns.count = 3;
        layer.columns.phases = columns.data();
        begin_case("%d phases of rows", count);
        const size_t bytes = (rows.size() + 3) * sizeof(tconv_phase);
        const device_buffer to = output("phases", bytes);
        tconv_issue issue = {};
        require_success(tconv_general_pack_phases(&layer, to.as<tconv_phase>(), nullptr, &issue), issue);
        finish_kernels();
        std::vector<int64_t> wanted(bytes / sizeof(int64_t));
        memcpy(wanted.data(), rows.data(), rows.size() * sizeof(tconv_phase));
        memcpy((char *)wanted.data() + rows.size() * sizeof(tconv_phase), columns.data(), 3 * sizeof(tconv_phase));
        compare_bits<int64_t>(to, wanted);
    }
}

const entry entries[] = {
    {"cuda/mma/launch_packing", check_mma, bench_mma, false},
    {"cuda/rows/launch_packing", check_rows, bench_rows, false},
    {"cuda/col2im/pack_fragments", check_col2im, nullptr, false},
    {"cuda/col2im/row_sums pack_weights", check_row_sums, nullptr, false},
    {"cuda/general/pack_weights", check_general, bench_general, false},
    {"cuda/general/pack_phases", check_phases, nullptr, false},
};

} // namespace

void check_pack_fragments()
{
    check_entries(entries);
}

} // namespace tconv::check
