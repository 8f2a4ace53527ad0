/* cuda_igemm's layout transform of a small src from NCHW to NHWC. */
/* clang-format off: transpose_src.cuh needs what comes before it. */
#include "../../src/cuda/igemm/parameters.h"
#include "../../src/cuda/igemm/transpose_src.cuh"
/* clang-format on */
#include "check.h"
#include "families.h"

namespace tconv::check
{

namespace
{

/* Element: an unsigned integer of its size. */
template <class Element>
__global__ void __launch_bounds__(PACK_THREADS) transpose_src(const __grid_constant__ igemm::src_transpose transpose)
{
    igemm::transpose_tile<Element>(transpose, (int)blockIdx.x);
}

struct nchw_case {
    int images, channels, rows, columns;
    int channel_gap; /* elements between channels */
    bool vectors;
};

igemm::src_transpose make_transpose(const nchw_case &of, int element)
{
    igemm::src_transpose made = {};
    const int vector = 16 / element, plane = of.rows * of.columns + of.channel_gap;
    made.from = {(int64_t)of.channels * plane, plane, of.columns, 1, 0};
    made.pixels = of.images * of.rows * of.columns;
    made.rows = of.rows;
    made.columns = of.columns;
    made.channels = of.channels;
    made.pixel_vectors = round_up(of.channels, vector) / vector;
    made.channel_tiles = round_up(made.pixel_vectors, TRANSPOSE_VECTORS) / TRANSPOSE_VECTORS;
    made.thread_blocks = round_up(made.pixels, TRANSPOSE_PIXELS) / TRANSPOSE_PIXELS * made.channel_tiles;
    made.vectors = of.vectors;
    made.by_image = divisor_of(of.rows * of.columns);
    made.by_columns = divisor_of(of.columns);
    made.by_channel_tiles = divisor_of(made.channel_tiles);
    return made;
}

template <class Element> void check_transpose_src()
{
    static const nchw_case cases[] = {{1, 3, 5, 7, 0, false},   {3, 70, 9, 11, 5, false}, {2, 33, 8, 16, 0, true},
                                      {2, 130, 4, 14, 8, true}, {1, 64, 8, 8, 0, true},   {5, 65, 1, 1, 3, false}};
    constexpr int SIZE = sizeof(Element);
    for (const nchw_case &of : cases) {
        igemm::src_transpose transpose = make_transpose(of, SIZE);
        const int pixel = transpose.pixel_vectors * 16 / SIZE;
        const std::vector<uint8_t> from = random_elements((size_t)(of.images * transpose.from.n), SIZE);
        std::vector<uint8_t> wanted((size_t)transpose.pixels * pixel * SIZE, 0);
        for (int i = 0; i < transpose.pixels; i++)
            for (int channel = 0; channel < of.channels; channel++) {
                const int image = i / (of.rows * of.columns), rest = i % (of.rows * of.columns);
                const int64_t at = image * transpose.from.n + channel * transpose.from.c + rest;
                memcpy(&wanted[((size_t)i * pixel + channel) * SIZE], &from[(size_t)at * SIZE], SIZE);
            }
        begin_case("%d images of %d channels, %d x %d, gap %d%s", of.images, of.channels, of.rows, of.columns,
                   of.channel_gap, of.vectors ? ", by vectors" : "");
        const device_buffer src = input("src", from, of.vectors ? 0 : SIZE), to = output("to", wanted.size());
        transpose.src = src.data;
        transpose.to = to.data;
        transpose_src<Element><<<transpose.thread_blocks, PACK_THREADS, TRANSPOSE_BYTES>>>(transpose);
        finish_kernels();
        compare_bits<uint8_t>(to, wanted);
    }
}

template <class Element> void bench_transpose_src()
{
    for (bool vectors : {true, false}) {
        begin_case("rate");
        igemm::src_transpose transpose = make_transpose({16, 256, 56, 56, 0, vectors}, sizeof(Element));
        const size_t bytes = (size_t)transpose.pixels * transpose.channels * sizeof(Element);
        const device_buffer src = output("src", bytes), to = output("to", bytes);
        transpose.src = src.data;
        transpose.to = to.data;
        rate(
            vectors ? "vectors" : "elements",
            [&] { transpose_src<Element><<<transpose.thread_blocks, PACK_THREADS, TRANSPOSE_BYTES>>>(transpose); },
            2.0 * (double)bytes, "GB/s", pass_rate());
    }
}

const entry entries[] = {
    {"cuda/igemm/transpose_tile f32", check_transpose_src<uint32_t>, bench_transpose_src<uint32_t>, false},
    {"cuda/igemm/transpose_tile f16", check_transpose_src<uint16_t>, bench_transpose_src<uint16_t>, false},
};

} // namespace

void check_transform_igemm()
{
    check_entries(entries);
}

} // namespace tconv::check
