/* The packing kernel of cuda_cells: its order is stated in plain C as its pack.cu gives it. */
#include "../../src/cuda/cells/parameters.h"
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

/* Two schedules: one of a weight tile with three taps and one with a single tap, one of a weight tile with two. */
constexpr int TILE_TAPS[] = {3, 1, 2}, TILE_SCHEDULE[] = {0, 0, 1}, WEIGHT_TILES = 3, SCHEDULES = 2;

struct cells_packing {
    weights_tensor weights;
    cells::parameters layer;
    cells::packing packing;
    bool strict;
    size_t bytes;
};

cells_packing make_cells(const weights_shape &shape, bool strict, int mma_steps, int cell_channels_log2, bool any_bits)
{
    cells_packing made = {};
    cells::parameters &layer = made.layer;
    made.weights = make_weights(shape, any_bits);
    made.strict = strict;
    layer.groups = shape.groups;
    layer.group_in = shape.group_in;
    layer.group_out = shape.group_out;
    layer.mma_steps = mma_steps;
    layer.block_k = mma_steps * cells::MMA_K;
    layer.k_blocks = divide_up(shape.group_in, layer.block_k);
    layer.cell_channels_log2 = cell_channels_log2;
    layer.cell_channels = 1 << cell_channels_log2;
    layer.channel_tiles = divide_up(shape.group_out, layer.cell_channels);
    layer.schedule_count = SCHEDULES;
    int taps = 0;
    for (int t = 0; t < WEIGHT_TILES; t++) {
        cells::tap_schedule &schedule = layer.schedules[TILE_SCHEDULE[t]];
        if (t == 0 || TILE_SCHEDULE[t] != TILE_SCHEDULE[t - 1]) {
            schedule.first_weight_tile = t;
            schedule.first_b_row = layer.b_rows;
        }
        schedule.end_weight_tile = t + 1;
        layer.weight_tiles[t].first_b_row = (uint16_t)schedule.b_rows;
        layer.weight_tiles[t].b_rows = (uint16_t)(TILE_TAPS[t] * layer.cell_channels);
        schedule.b_rows += layer.weight_tiles[t].b_rows;
        layer.b_rows += layer.weight_tiles[t].b_rows;
        made.packing.first_tap[t] = (uint16_t)taps;
        for (int i = 0; i < TILE_TAPS[t]; i++, taps++)
            made.packing.taps[taps] = {(int16_t)(taps % shape.kernel_rows), (int16_t)(taps * 2 % shape.kernel_columns)};
    }
    made.packing.strides = made.weights.strides;
    made.packing.group_step = shape.group_in * made.weights.strides.in;
    made.packing.core_rows =
        (int64_t)shape.groups * layer.channel_tiles * layer.b_rows * layer.k_blocks * 2 * mma_steps;
    made.bytes = (size_t)made.packing.core_rows * 16 * (strict ? 2 : 1);
    return made;
}

/* One weight tile: [wgmma step][big, small][half of MMA_K][tap][output channel of the cell][4 input channels]. */
void write_weight_tile(packed_writer &to, const cells_packing &of, int cell, int k_block, int tile)
{
    const cells::parameters &layer = of.layer;
    const int planes = of.strict ? 2 : 1, group = cell / layer.channel_tiles;
    for (int step = 0; step < layer.mma_steps; step++)
        for (int plane = 0; plane < planes; plane++)
            for (int half = 0; half < 2; half++)
                for (int tap = 0; tap < TILE_TAPS[tile]; tap++)
                    for (int out = 0; out < layer.cell_channels; out++) {
                        const auto &place = of.packing.taps[of.packing.first_tap[tile] + tap];
                        to.core_row(part_of_plane(planes, plane), group,
                                    k_block * layer.block_k + step * cells::MMA_K + half * 4,
                                    cell % layer.channel_tiles * layer.cell_channels + out, place.row, place.column);
                    }
}

pack_function launch_of(const cells_packing &of)
{
    return [&of](const void *weights, void *packed, tconv_issue *issue) {
        return cells::tconv_cells_pack(&of.layer, &of.packing, of.strict ? NUMERICS_STRICT : NUMERICS_TF32, weights,
                                       packed, nullptr, issue);
    };
}

void check_cells()
{
    for (int variant = 0; variant < 4; variant++) {
        const bool strict = variant % 2 == 1;
        const weights_shape shape = {TCONV_F32, 1 + variant / 2, 19 + variant, 37, 3, 5, variant != 2};
        const cells_packing packing = make_cells(shape, strict, 1 + variant % 3, 4 + variant / 2, true);
        packed_writer wanted = {packing.weights, {}};
        begin_case("%d groups of %d channels%s", shape.groups, shape.group_in, strict ? ", strict" : "");
        for (int cell = 0; cell < shape.groups * packing.layer.channel_tiles; cell++)
            for (int schedule = 0; schedule < SCHEDULES; schedule++)
                for (int k_block = 0; k_block < packing.layer.k_blocks; k_block++)
                    for (int tile = 0; tile < WEIGHT_TILES; tile++)
                        if (TILE_SCHEDULE[tile] == schedule)
                            write_weight_tile(wanted, packing, cell, k_block, tile);
        compare_packed(wanted, launch_of(packing));
    }
}

void bench_cells()
{
    for (bool strict : {false, true}) {
        const cells_packing packing = make_cells({TCONV_F32, 1, 512, 512, 3, 5, true}, strict, 2, 5, false);
        rate_packing(strict ? "strict" : "tf32", packing.weights, packing.bytes, launch_of(packing));
    }
}

const entry entries[] = {
    {"cuda/cells/pack", check_cells, bench_cells, false},
};

} // namespace

void check_pack_cells()
{
    check_entries(entries);
}

} // namespace tconv::check
