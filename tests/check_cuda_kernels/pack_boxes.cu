/* The packing kernels that pack by boxes (cuda_igemm, cuda_wgmma): each order is stated in plain C as its pack.cu gives
 * it. */
#include "../../src/cuda/igemm/plan.h"
#include "../../src/cuda/wgmma/packing.h"
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

const char *name_of(tconv_dtype dtype)
{
    return dtype == TCONV_F32 ? "f32" : dtype == TCONV_F16 ? "f16" : "bf16";
}

/* ------------------------------------------------------------------------------------------------------- cuda_igemm */

enum igemm_way { PHASES, PAIRED, MERGED, FUSED, COLUMNS_IN_CHANNELS, CHANNELS_IN_COLUMNS, FILLED_RUNS };

struct igemm_case {
    igemm_way way;
    weights_shape weights;
    bool strict;
    int stride, m_tiles, pixel_bytes;
};

struct igemm_packing {
    weights_tensor weights;
    igemm::planned_layer planned;
    int planes, fused, outputs;         /* groups that are one; columns that are channels */
    int run;                            /* columns that are there; of filled runs one fewer than outputs */
    bool channels_inside;               /* a column has all channels, else a channel all columns */
    int column_taps[igemm::MAX_PHASES]; /* of each column phase, before any two are one pair */
    size_t bytes;
};

/* The phases of an axis without padding and dilation: residue r has kernel elements r, r + stride and so on. */
void make_phases(int stride, int kernel, igemm::axis_phase *phases, int *count, igemm::packed_phase *packed)
{
    int taps = 0;
    for (*count = 0; *count < stride && *count < kernel; ++*count) {
        phases[*count].taps = divide_up(kernel - *count, stride);
        phases[*count].first_tap = taps;
        packed[*count] = {taps, phases[*count].taps, *count};
        taps += phases[*count].taps;
    }
}

igemm_packing make_igemm(const igemm_case &of, bool any_bits)
{
    igemm_packing made = {};
    igemm::parameters &layer = made.planned.plan.params;
    igemm::weight_source &source = made.planned.weights;
    pack_boxes &boxes = source.boxes;
    made.weights = make_weights(of.weights, any_bits);
    made.planes = of.strict ? 2 : 1;
    made.fused = of.way == FUSED ? 3 : 1;
    made.outputs = of.way == COLUMNS_IN_CHANNELS || of.way == CHANNELS_IN_COLUMNS ? 2 : of.way == FILLED_RUNS ? 4 : 1;
    made.run = of.way == FILLED_RUNS ? 3 : made.outputs;
    made.channels_inside = of.way == CHANNELS_IN_COLUMNS;
    made.planned.plan.arithmetic = of.weights.dtype == TCONV_F16    ? NUMERICS_F16
                                   : of.weights.dtype == TCONV_BF16 ? NUMERICS_BF16
                                   : of.strict                      ? NUMERICS_STRICT
                                                                    : NUMERICS_TF32;
    layer.groups = layer.src_groups = of.weights.groups / made.fused;
    layer.group_in = of.weights.group_in * made.fused;
    layer.group_out = of.weights.group_out * made.fused * made.outputs;
    layer.pixel_bytes = of.pixel_bytes;
    layer.k_block_channels = of.pixel_bytes / (int)made.weights.element_size();
    layer.k_blocks = divide_up(layer.group_in, layer.k_block_channels);
    layer.k_steps = of.pixel_bytes / MMA_K_BYTES;
    layer.merged = of.way == MERGED;
    layer.paired = of.way == PAIRED;
    source.kernel_columns = divide_up(of.weights.kernel_columns, made.run);
    boxes.from = made.weights.strides;
    boxes.from.w *= made.run;
    boxes.group_in = layer.group_in;
    boxes.group_step = layer.group_in * boxes.from.in;
    const tconv_plane_taps one_plane = {};
    tconv_cuda_describe_pack_planes(&boxes, &one_plane);
    boxes.group_out = layer.group_out;
    boxes.inner = {made.outputs, made.outputs, 0, made.weights.strides.w};
    boxes.outer_step = made.weights.strides.out;
    if (made.channels_inside) {
        boxes.inner = {of.weights.group_out, 1, made.weights.strides.out, 0};
        boxes.outer_step = made.weights.strides.w;
    }
    if (of.way == FILLED_RUNS)
        boxes.filling = {source.kernel_columns, made.run, of.weights.kernel_columns, made.weights.strides.h};
    boxes.diagonal_in = of.weights.group_in;
    boxes.diagonal_rows = of.weights.group_out * made.outputs;
    boxes.elements = of.weights.kernel_rows * source.kernel_columns;
    make_phases(of.stride, of.weights.kernel_rows, layer.rows, &layer.row_phases, source.rows);
    make_phases(of.stride, source.kernel_columns, layer.columns, &layer.column_phases, source.columns);
    source.kernel_step[0] = source.kernel_step[1] = of.stride;
    int row_taps = 0;
    for (int i = 0; i < layer.row_phases; i++)
        row_taps += layer.rows[i].taps;
    for (int i = 0; i < layer.column_phases; i++) {
        layer.column_taps += layer.columns[i].taps;
        made.column_taps[i] = layer.columns[i].taps;
    }
    layer.channel_m_tiles = layer.phase_m_tiles = divide_up(layer.group_out, MMA_M);
    if (of.way == MERGED)
        layer.phase_m_tiles *= layer.row_phases * layer.column_phases;
    if (of.way == PAIRED) { /* both column phases are one, of the taps of the one that has more */
        layer.phase_m_tiles *= 2;
        layer.column_taps = layer.columns[0].taps;
        layer.column_phases = 1;
    }
    layer.m_tiles = of.m_tiles;
    layer.tiles_along_m = divide_up(layer.phase_m_tiles, of.m_tiles);
    layer.group_a_tiles =
        (int64_t)layer.k_blocks * layer.tiles_along_m * (layer.merged ? 1 : row_taps * layer.column_taps);
    layer.a_tile_bytes = (uint32_t)(of.m_tiles * layer.k_steps * made.planes * MMA_M * MMA_K_BYTES);
    igemm::tconv_igemm_plan_packing(&made.planned);
    made.bytes = (size_t)(layer.group_a_tiles * layer.groups) * layer.a_tile_bytes;
    return made;
}

/* One M tile of an A tile: [wgmma along K][plane][core][64 rows][channels], for one kernel element. */
void write_m_tile(packed_writer &to, const igemm_packing &of, int group, int channel, int k_block, int row, int column)
{
    const igemm::parameters &layer = of.planned.plan.params;
    const int in_core = 16 / (int)to.from.element_size(), all_in = to.from.group_in, all_out = to.from.group_out;
    for (int step = 0; step < layer.k_steps; step++)
        for (int plane = 0; plane < of.planes; plane++)
            for (int core = 0; core < 2; core++)
                for (int m = 0; m < MMA_M; m++)
                    for (int i = 0; i < in_core; i++) {
                        const int in = k_block * layer.k_block_channels + (2 * step + core) * in_core + i;
                        const int out = channel + m, block = out / of.outputs / all_out;
                        const int column_of = of.channels_inside ? out / all_out : out % of.outputs;
                        const int channel_of = of.channels_inside || of.fused > 1 ? out % all_out : out / of.outputs;
                        const bool same = of.fused == 1 || (in / all_in == block && block < of.fused);
                        const int kernel_column = column * of.run + column_of;
                        const bool exists = row >= 0 && same && in < layer.group_in && out < layer.group_out &&
                                            column_of < of.run && kernel_column < to.from.kernel_columns;
                        to.element(part_of_plane(of.planes, plane), group * of.fused + (exists ? in / all_in : 0),
                                   exists ? in % all_in : -1, channel_of, row, kernel_column);
                    }
}

/* The column phases of the weights: of a pair both. */
void write_phases(packed_writer &to, const igemm_packing &of, int group)
{
    const igemm::parameters &layer = of.planned.plan.params;
    const igemm::weight_source &source = of.planned.weights;
    const int alternating = layer.paired ? 2 : 1;
    for (int p = 0; p < layer.row_phases; p++)
        for (int q = 0; q < layer.column_phases; q++)
            for (int tile = 0; tile < layer.tiles_along_m; tile++)
                for (int k_block = 0; k_block < layer.k_blocks; k_block++)
                    for (int a = 0; a < layer.rows[p].taps; a++)
                        for (int b = 0; b < layer.columns[q].taps; b++)
                            for (int m = 0; m < layer.m_tiles; m++) {
                                const int m_tile = tile * layer.m_tiles + m;
                                const int phase = layer.paired ? m_tile % 2 : q;
                                const int row = source.rows[p].first_kernel + a * source.kernel_step[0];
                                const int column = source.columns[phase].first_kernel + b * source.kernel_step[1];
                                if (b < of.column_taps[phase])
                                    write_m_tile(to, of, group, m_tile / alternating * MMA_M, k_block, row, column);
                                else /* nobody reads it */
                                    to.fill(layer.a_tile_bytes / (size_t)layer.m_tiles, 0xff);
                            }
}

void write_merged(packed_writer &to, const igemm_packing &of, int group)
{
    const igemm::parameters &layer = of.planned.plan.params;
    for (int tile = 0; tile < layer.tiles_along_m; tile++)
        for (int k_block = 0; k_block < layer.k_blocks; k_block++)
            for (int m = 0; m < layer.m_tiles; m++) {
                const int m_tile = tile * layer.m_tiles + m, column = m_tile % layer.column_phases;
                const int of_rows = m_tile / layer.column_phases, row = of_rows / layer.channel_m_tiles;
                write_m_tile(to, of, group, of_rows % layer.channel_m_tiles * MMA_M, k_block,
                             m_tile < layer.phase_m_tiles ? row : -1, column);
            }
}

pack_function launch_of(const igemm_packing &of)
{
    return [&of](const void *weights, void *packed, tconv_issue *issue) {
        const igemm::src_transpose none = {};
        return igemm::tconv_igemm_pack(&of.planned, &none, weights, packed, nullptr, issue);
    };
}

const igemm_case igemm_cases[] = {
    {PHASES, {TCONV_F32, 1, 37, 70, 3, 4, true}, false, 1, 2, 128},
    {PHASES, {TCONV_F32, 2, 33, 130, 5, 3, false}, true, 2, 1, 128},
    {PHASES, {TCONV_F16, 1, 72, 40, 4, 4, true}, false, 2, 1, 128},
    {PHASES, {TCONV_BF16, 2, 20, 66, 11, 23, true}, false, 3, 4, 64}, /* too large for shared memory as one box */
    {PAIRED, {TCONV_F16, 1, 64, 64, 3, 5, true}, false, 2, 2, 128},
    {PAIRED, {TCONV_F32, 1, 32, 100, 4, 3, false}, false, 2, 4, 128},
    {MERGED, {TCONV_F32, 1, 40, 72, 2, 2, true}, false, 2, 4, 128},
    {MERGED, {TCONV_F32, 2, 40, 70, 3, 3, true}, true, 3, 2, 128},
    {FUSED, {TCONV_F16, 6, 20, 24, 3, 3, true}, false, 1, 1, 128},
    {FUSED, {TCONV_F32, 3, 8, 30, 2, 3, true}, false, 1, 2, 128},
    {COLUMNS_IN_CHANNELS, {TCONV_F32, 2, 33, 20, 3, 4, true}, false, 1, 1, 128},
    {CHANNELS_IN_COLUMNS, {TCONV_F32, 1, 33, 5, 3, 4, true}, false, 1, 1, 128},
    {CHANNELS_IN_COLUMNS, {TCONV_F16, 1, 40, 70, 4, 6, true}, false, 1, 2, 128},
    {CHANNELS_IN_COLUMNS, {TCONV_F32, 1, 33, 1, 3, 4, false}, true, 1, 1, 128},
    {FILLED_RUNS, {TCONV_F32, 1, 33, 40, 3, 5, true}, false, 1, 2, 128},
    {FILLED_RUNS, {TCONV_BF16, 2, 40, 5, 2, 4, false}, false, 1, 1, 128},
    {FILLED_RUNS, {TCONV_F32, 1, 33, 20, 3, 6, false}, true, 1, 1, 128},
};

void check_igemm()
{
    for (const igemm_case &of : igemm_cases) {
        const igemm_packing packing = make_igemm(of, true);
        packed_writer wanted = {packing.weights, {}};
        begin_case("%s %s, way %d, %d groups of %d to %d channels, %dx%d by %d, %d M tiles", name_of(of.weights.dtype),
                   of.strict ? "strict" : "", (int)of.way, of.weights.groups, of.weights.group_in, of.weights.group_out,
                   of.weights.kernel_rows, of.weights.kernel_columns, of.stride, of.m_tiles);
        for (int group = 0; group < packing.planned.plan.params.groups; group++)
            if (of.way == MERGED)
                write_merged(wanted, packing, group);
            else
                write_phases(wanted, packing, group);
        if (wanted.bytes.size() != packing.bytes)
            fail("%zu bytes, and %zu were reckoned with", wanted.bytes.size(), packing.bytes);
        compare_packed(wanted, launch_of(packing));
    }
}

void bench_igemm()
{
    static const igemm_case cases[] = {
        {PHASES, {TCONV_F32, 1, 512, 512, 4, 4, true}, false, 2, 2, 128},
        {PHASES, {TCONV_F32, 1, 512, 512, 4, 4, true}, true, 2, 2, 128},
        {PHASES, {TCONV_F16, 1, 512, 512, 4, 4, true}, false, 2, 2, 128},
    };
    for (const igemm_case &of : cases) {
        const igemm_packing packing = make_igemm(of, false);
        rate_packing(of.strict ? "strict" : name_of(of.weights.dtype), packing.weights, packing.bytes,
                     launch_of(packing));
    }
}

/* ------------------------------------------------------------------------------------------------------- cuda_wgmma */

struct wgmma_case {
    weights_shape weights;
    bool strict;
    int warpgroups, mma_tiles, stack, depth, warpgroup_channels, k_steps;
    int stride_h, stride_w;
    bool overlaps; /* a stack's weights do */
};

struct wgmma_packing {
    weights_tensor weights;
    wgmma::packing_layout layout;
    wgmma::parameters params;
    numerics arithmetic;
    int planes;
    size_t bytes;
};

wgmma_packing make_wgmma(const wgmma_case &of, bool any_bits)
{
    wgmma_packing made = {};
    wgmma::packing_layout &to = made.layout;
    wgmma::parameters &params = made.params;
    made.weights = make_weights(of.weights, any_bits);
    made.planes = of.strict ? 2 : 1;
    made.arithmetic = of.weights.dtype == TCONV_F16    ? NUMERICS_F16
                      : of.weights.dtype == TCONV_BF16 ? NUMERICS_BF16
                      : of.strict                      ? NUMERICS_STRICT
                                                       : NUMERICS_TF32;
    to.boxes.from = made.weights.strides;
    to.boxes.group_in = to.boxes.diagonal_in = of.weights.group_in;
    to.boxes.group_step = to.boxes.group_in * to.boxes.from.in;
    const tconv_plane_taps one_plane = {};
    tconv_cuda_describe_pack_planes(&to.boxes, &one_plane);
    to.boxes.group_out = to.boxes.diagonal_rows = of.weights.group_out;
    to.boxes.inner = {1, 1, 0, 0};
    to.boxes.outer_step = to.boxes.from.out;
    to.boxes.elements = of.weights.kernel_rows * of.weights.kernel_columns;
    to.boxes.core_step = MMA_M;
    params.stack = of.stack;
    to.depth = of.depth;
    params.mma_tile_channels = MMA_M / of.stack / of.depth;
    params.warpgroup_channels = of.warpgroup_channels;
    params.tile_channels = params.mma_tile_channels + (of.warpgroups - 1) * of.warpgroup_channels;
    params.group_m_blocks = divide_up(of.weights.group_out, params.tile_channels);
    params.m_blocks = params.group_m_blocks * of.weights.groups;
    params.k_steps = of.k_steps;
    params.k_block_channels = of.k_steps * 32 / (int)made.weights.element_size();
    params.k_blocks = divide_up(of.weights.group_in, params.k_block_channels);
    to.warpgroups = of.warpgroups;
    to.mma_tiles = of.mma_tiles;
    to.kernel_columns = of.weights.kernel_columns;
    to.kernel_row_step = of.stride_h;
    to.kernel_column_step = of.stride_w;
    int most_rows = 0, taps = 0;
    for (int i = 0; i < WARPGROUPS; i++) {
        to.first_kernel_row[i] = i % of.stride_h;
        to.row_taps[i] = divide_up(of.weights.kernel_rows - i % of.stride_h, of.stride_h);
        most_rows = i < of.warpgroups && to.row_taps[i] > most_rows ? to.row_taps[i] : most_rows;
    }
    for (int i = 0; i < wgmma::MMA_TILES; i++) {
        to.first_kernel_column[i] = i % of.stride_w;
        params.column_taps[i] = of.depth == 2 ? of.weights.kernel_columns / 2 + 1
                                              : divide_up(of.weights.kernel_columns - i % of.stride_w, of.stride_w);
        taps += i < of.mma_tiles ? params.column_taps[i] : 0;
    }
    params.max_k_block_a_stages = most_rows + of.stack - 1;
    size_t a_stage = (size_t)of.warpgroups * of.k_steps * of.depth * taps * made.planes * 2 * MMA_M * 16;
    if (of.overlaps) {
        to.a_stage_columns = 1;
        params.max_k_block_a_stages = params.column_taps[0];
        to.boxes.core_step = (to.row_taps[0] + 1) * params.mma_tile_channels;
        to.a_stage_rows = 2 * to.boxes.core_step + params.mma_tile_channels;
        a_stage = (size_t)to.a_stage_rows * 16;
    }
    wgmma::tconv_wgmma_choose_boxes(&made.layout, &made.params, made.arithmetic);
    made.bytes = (size_t)params.m_blocks * params.k_blocks * params.max_k_block_a_stages * a_stage;
    return made;
}

/* The product of one tap: [plane][core][64 rows of M][channels]. */
void write_product(packed_writer &to, const wgmma_packing &of, int m_block, int first_in, int warpgroup, int row_tap,
                   int mma_tile, int tap, int from_column)
{
    const wgmma::packing_layout &layout = of.layout;
    const wgmma::parameters &params = of.params;
    const int in_core = 16 / (int)to.from.element_size();
    const int first_out =
        m_block % params.group_m_blocks * params.tile_channels + warpgroup * params.warpgroup_channels;
    for (int plane = 0; plane < of.planes; plane++)
        for (int core = 0; core < 2; core++)
            for (int m = 0; m < MMA_M; m++) {
                int out = first_out + m % params.mma_tile_channels,
                    column = tap * layout.kernel_column_step + layout.first_kernel_column[mma_tile];
                if (layout.depth == 2) { /* 8 output channels of one column of dst, then of the other */
                    out = first_out + m / 16 * 8 + m % 8;
                    column = 2 * tap + m / 8 % 2 - from_column;
                }
                const int stack_row = layout.depth == 2 ? 0 : m / params.mma_tile_channels;
                const int own_tap = row_tap - (params.stack - 1) + stack_row;
                const bool exists = own_tap >= 0 && own_tap < layout.row_taps[warpgroup];
                to.core_row(part_of_plane(of.planes, plane), m_block / params.group_m_blocks, first_in + core * in_core,
                            out, exists ? layout.first_kernel_row[warpgroup] + own_tap * layout.kernel_row_step : -1,
                            column);
            }
}

void write_a_stage(packed_writer &to, const wgmma_packing &of, int m_block, int k_block, int row_tap)
{
    const wgmma::packing_layout &layout = of.layout;
    const wgmma::parameters &params = of.params;
    for (int warpgroup = 0; warpgroup < layout.warpgroups; warpgroup++)
        for (int step = 0; step < params.k_steps; step++)
            for (int from_column = 0; from_column < layout.depth; from_column++)
                for (int mma_tile = 0; mma_tile < layout.mma_tiles; mma_tile++)
                    for (int tap = 0; tap < params.column_taps[mma_tile]; tap++)
                        write_product(to, of, m_block,
                                      k_block * params.k_block_channels + step * 32 / (int)to.from.element_size(),
                                      warpgroup, row_tap, mma_tile, tap, from_column);
}

/* Of a stack whose weights overlap: [core][zeros, then row taps][32 rows of M][channels], zeros; one column of taps. */
void write_overlapping(packed_writer &to, const wgmma_packing &of, int m_block, int k_block, int tap)
{
    const wgmma::packing_layout &layout = of.layout;
    const wgmma::parameters &params = of.params;
    const int in_core = 16 / (int)to.from.element_size();
    for (int core = 0; core < 2; core++)
        for (int row_tap = -1; row_tap < layout.row_taps[0]; row_tap++)
            for (int m = 0; m < params.mma_tile_channels; m++)
                to.core_row(PART_ROUNDED, m_block / params.group_m_blocks,
                            k_block * params.k_block_channels + core * in_core,
                            m_block % params.group_m_blocks * params.tile_channels + m, row_tap, tap);
    to.fill((size_t)params.mma_tile_channels * 16, 0);
}

pack_function launch_of(const wgmma_packing &of)
{
    return [&of](const void *weights, void *packed, tconv_issue *issue) {
        return wgmma::tconv_wgmma_pack_weights(&of.layout, &of.params, of.arithmetic, weights, packed, nullptr, issue);
    };
}

const wgmma_case wgmma_cases[] = {
    {{TCONV_F32, 1, 24, 100, 3, 3, true}, false, 1, 1, 1, 1, 0, 1, 1, 1, false},
    {{TCONV_F32, 2, 20, 140, 4, 4, true}, true, 2, 1, 1, 1, 64, 2, 1, 1, false},
    {{TCONV_F16, 1, 40, 64, 5, 5, true}, false, 2, 2, 1, 1, 0, 2, 2, 2, false},
    {{TCONV_BF16, 2, 32, 70, 4, 3, false}, false, 2, 2, 1, 1, 0, 1, 2, 2, false},
    {{TCONV_F16, 1, 40, 30, 3, 3, true}, false, 1, 1, 2, 1, 0, 2, 1, 1, false},
    {{TCONV_F32, 1, 16, 32, 3, 5, true}, false, 1, 1, 1, 2, 0, 1, 1, 1, false},
    {{TCONV_BF16, 1, 36, 40, 5, 3, true}, false, 1, 1, 1, 2, 0, 2, 1, 1, false},
    {{TCONV_F16, 2, 32, 32, 3, 3, true}, false, 1, 1, 2, 1, 0, 1, 1, 1, true},
};

void check_wgmma()
{
    for (const wgmma_case &of : wgmma_cases) {
        const wgmma_packing packing = make_wgmma(of, true);
        const wgmma::parameters &params = packing.params;
        packed_writer wanted = {packing.weights, {}};
        begin_case("%s %s, %d groups of %d to %d channels, %dx%d, %d warpgroups, %d MMA tiles, stack %d, depth %d%s",
                   name_of(of.weights.dtype), of.strict ? "strict" : "", of.weights.groups, of.weights.group_in,
                   of.weights.group_out, of.weights.kernel_rows, of.weights.kernel_columns, of.warpgroups, of.mma_tiles,
                   of.stack, of.depth, of.overlaps ? ", overlapping" : "");
        for (int m_block = 0; m_block < params.m_blocks; m_block++)
            for (int k_block = 0; k_block < params.k_blocks; k_block++)
                for (int a_stage = 0; a_stage < params.max_k_block_a_stages; a_stage++)
                    if (of.overlaps)
                        write_overlapping(wanted, packing, m_block, k_block, a_stage);
                    else
                        write_a_stage(wanted, packing, m_block, k_block, a_stage);
        if (wanted.bytes.size() != packing.bytes)
            fail("%zu bytes, and %zu were reckoned with", wanted.bytes.size(), packing.bytes);
        compare_packed(wanted, launch_of(packing));
    }
}

void bench_wgmma()
{
    static const wgmma_case cases[] = {
        {{TCONV_F32, 1, 512, 512, 4, 4, true}, false, 2, 2, 1, 1, 0, 2, 2, 2, false},
        {{TCONV_F16, 1, 512, 512, 4, 4, true}, false, 2, 2, 1, 1, 0, 2, 2, 2, false},
    };
    for (const wgmma_case &of : cases) {
        const wgmma_packing packing = make_wgmma(of, false);
        rate_packing(name_of(of.weights.dtype), packing.weights, packing.bytes, launch_of(packing));
    }
}

const entry entries[] = {
    {"cuda/igemm/pack", check_igemm, bench_igemm, false},
    {"cuda/wgmma/pack_weights", check_wgmma, bench_wgmma, false},
};

} // namespace

void check_pack_boxes()
{
    check_entries(entries);
}

} // namespace tconv::check
