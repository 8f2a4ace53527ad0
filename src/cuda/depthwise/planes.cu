/*
 * Stencils over planes (NCHW): each output plane reads one input plane.
 *
 * The threads of a tile copy that of the input plane, halo included and zeros outside, to shared memory. A thread then has as
 * many output columns as one 16-byte store holds, in 16 bits also half of them, of whatever phases they are, and walks down
 * the rows of one row phase. Output rows are written whole. Residues without a tap take part like all others and are the bias.
 *
 * NaN and Inf in the weights go only where they belong. Where a table finds the columns, a tap outside src is skipped
 * with its row, and along a row it is zero times zero. Where they lie in a window, or are of any number of taps, it is a
 * weight times zero, so that nothing is compared; if a weight of the channel is not finite, taps are summed as those of
 * a kernel of any number of taps, and one outside src is skipped.
 *
 * The numeric order is that of walk.cuh, of any number of taps that of strip.cuh.
 */
#include "../epilogue/finish.cuh"
#include "../ptx/memory.cuh"
#include "kernels.h"
#include "strip.cuh"
#include "tile.cuh"
#include "walk.cuh"

namespace tconv::depthwise::forward
{

namespace
{

/* Blocks on a multiprocessor: as many as registers allow without spills. wide: of windows, with a stride of a vector. */
template <class Element, bool wide>
constexpr int WINDOW_BLOCKS = sizeof(Element) == sizeof(double) ? 5
                              : sizeof(Element) == 2 && wide    ? 6
                                                                : 7;
template <class Element, bool wide> constexpr int WINDOW_POSTS_BLOCKS = sizeof(Element) == 2 ? (wide ? 5 : 6) : 7;
template <class Element, bool compensated>
constexpr int LOOP_BLOCKS = compensated                         ? 4
                            : sizeof(Element) == sizeof(double) ? 6
                                                                : 7;
constexpr int TABLE_BLOCKS = 0; /* as many as there is room for */

/* Stores a thread's outputs of a row that there are, where they lie `lanes` apart. */
template <class Element, int LENGTH>
__device__ __forceinline__ void store_apart(Element *dst, const compute_type<Element> (&sums)[LENGTH], int exist,
                                            int lanes_log2)
{
#pragma unroll
    for (int c = 0; c < LENGTH; c++)
        if (exist > c << lanes_log2)
            dst[c << lanes_log2] = finish_total<Element>(sums[c]);
}

template <class Element> using taps_view = strip_view<Element, compute_type<Element>, int, true>;

/* What the outputs of a part in one column read, of any number of taps. */
template <class Element, bool any_tile>
__device__ __forceinline__ taps_view<Element> view_taps(const parameters &layer, const block_tile &block,
                                                        const part &part,
                                                        const tile_weights<compute_type<Element>> &weights, int output)
{
    const column column = find_column(layer, block, output);
    return {find_x<Element, any_tile>(layer, block, part) + column.src,
            weights.at + layer.rows.first_kernel[part.residue] * layer.columns.kernel +
                layer.columns.first_kernel[column.residue],
            layer.tile.pitch,
            layer.columns.shift_step,
            layer.columns.kernel_step,
            layer.rows.kernel_step * layer.columns.kernel,
            part.first + layer.rows.first_shift[part.residue],
            column.src + block.src_column,
            layer.rows.taps[part.residue],
            layer.columns.taps[column.residue]};
}

/* Sums the taps of a part in one column one by one, and skips those outside src: this is not meant to be fast. */
template <bool compensated, bool may_have_posts, class Element, bool any_tile>
__device__ __forceinline__ void walk_checked(const parameters &layer, const block_tile &block, const part &part,
                                             const tile_weights<compute_type<Element>> &weights, int output,
                                             compute_type<Element> bias)
{
    walk_row_strips<1, true, compensated, may_have_posts>(
        layer, view_taps<Element, any_tile>(layer, block, part, weights, output), part.end - part.first, bias,
        [&] { return find_channel_again<any_tile>(layer); }, find_dst<Element>(layer, block, part, output));
}

/*
 * The columns of a thread, as walk_planes has them:
 *
 *     find(layer, block, weights)                  false where the thread has none
 *     walk_part<has_posts>(layer, block, part, weights)    walks down a part
 *     ROW_ENDS                                     whether a zero follows each row of src in shared memory
 *     ANY_TILE                                     whether a block may have several tiles
 *     BLOCKS, POSTS_BLOCKS                         on a multiprocessor, and where the kernel is for post-ops
 *     bias                                         of each
 */

/* Columns of one phase and any number of taps: strips of rows, one column after another, or of columns where rows are
 * few. */
template <class Element_, bool compensated> struct loop_columns {
    using Element = Element_;
    using Weights = tile_weights<compute_type<Element>>;
    static constexpr int BLOCKS = LOOP_BLOCKS<Element, compensated>, POSTS_BLOCKS = BLOCKS,
                         LENGTH = access_length<Element>;
    static constexpr bool ROW_ENDS = false, ANY_TILE = true;
    compute_type<Element> bias[LENGTH];
    int first; /* column of dst */

    __device__ __forceinline__ bool find(const parameters &layer, const block_tile &block, const Weights &)
    {
        first = find_first_column<false, LENGTH>(layer, block);
        return first - block.first_column < layer.tile.column_step && first < layer.columns.out;
    }

    template <bool has_posts>
    __device__ __forceinline__ void walk_part(const parameters &layer, const block_tile &block, const part &part,
                                              const Weights &weights) const
    {
        const int count = part.end - part.first, end = min(block.first_column + layer.tile.columns, layer.columns.out);
        const int step = layer.tile.column_step, distance = divide(step, layer.column_stride).whole;
        taps_view<Element> view = view_taps<Element, ANY_TILE>(layer, block, part, weights, first);
        Element *dst = find_dst<Element>(layer, block, part, first);
        const auto channel = [&] { return find_channel_again<ANY_TILE>(layer); };
        if (!weights.finite) {
            for (int output = first; output < end; output += step)
                walk_checked<compensated, true, Element, ANY_TILE>(layer, block, part, weights, output, bias[0]);
        } else if (count < LEAST_OF_STRIP) {
#pragma unroll 1
            for (int output = first; output < end; output += LENGTH * step) {
                walk_column_strips<LENGTH, compensated>(layer, view, distance, count, bias[0], channel, end - output,
                                                        step, dst);
                view.x += LENGTH * distance;
                dst += LENGTH * step;
            }
        } else {
#pragma unroll 1
            for (int output = first; output < end; output += step) {
                walk_row_strips<STRIP, false, compensated, true>(layer, view, count, bias[0], channel, dst);
                view.x += distance;
                dst += step;
            }
        }
    }
};

template <class Element> constexpr int columns_of_table = sizeof(Element) == 2 ? HALF_LENGTH : access_length<Element>;

/* Columns of any phases: a table says where each tap of each column lies. */
template <class Element, int TAPS, bool vectors>
struct table_columns : row_columns<Element, TAPS, columns_of_table<Element>> {
    using Compute = compute_type<Element>;
    using Weights = tile_weights<Compute>;
    static constexpr int BLOCKS = TABLE_BLOCKS, POSTS_BLOCKS = BLOCKS, LENGTH = columns_of_table<Element>,
                         VALUES = TAPS * LENGTH;
    static constexpr bool ROW_ENDS = true, ANY_TILE = false;
    static_assert(VALUES <= 32, "a bit for each tap of each column");
    const Compute *weights; /* in shared memory */
    int first;              /* column of dst */
    uint32_t present = 0;   /* bit tap * LENGTH + column */
    int at[VALUES], first_kernel[LENGTH];

    __device__ __forceinline__ bool find(const parameters &layer, const block_tile &block, const Weights &shared)
    {
        column columns[LENGTH];
        find_columns<vectors>(layer, block, columns);
        weights = shared.at;
        first = columns[0].output;
#pragma unroll
        for (int c = 0; c < LENGTH; c++) {
            first_kernel[c] = layer.columns.first_kernel[columns[c].residue];
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++) {
                const bool exists = has_column(layer, block, columns[c], tap);
                present |= (uint32_t)exists << (tap * LENGTH + c);
                at[tap * LENGTH + c] = exists ? columns[c].src - tap * layer.columns.shift_step
                                              : layer.tile.row_vectors * access_length<Element>;
            }
        }
        return first < layer.columns.out;
    }

    __device__ __forceinline__ void load(const Element *x, Compute (&values)[VALUES]) const
    {
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            values[i] = to_compute(x[at[i]]);
    }

    __device__ __forceinline__ void load_weights(const parameters &layer, int kernel_row,
                                                 Compute (&loaded)[VALUES]) const
    {
        const int row = kernel_row * layer.columns.kernel, zero = layer.rows.kernel * layer.columns.kernel;
#pragma unroll
        for (int i = 0; i < VALUES; i++) {
            const int place = row + first_kernel[i % LENGTH] + i / LENGTH * layer.columns.kernel_step;
            loaded[i] = weights[present >> i & 1 ? place : zero];
        }
    }

    static __device__ __forceinline__ int channel(const parameters &layer, int)
    {
        return find_channel_again<false>(layer);
    }

    __device__ __forceinline__ void store(const parameters &layer, Element *dst, const Compute (&sums)[LENGTH]) const
    {
        if (vectors)
            this->store_run(dst, sums);
        else
            store_apart(dst, sums, layer.columns.out - first, layer.tile.lanes_log2);
    }

    template <bool has_posts>
    __device__ __forceinline__ void walk_part(const parameters &layer, const block_tile &block, const part &part,
                                              const Weights &) const
    {
        walk<has_posts>(layer, part, *this, find_x<Element, false>(layer, block, part), layer.tile.pitch,
                        find_dst<Element>(layer, block, part, first));
    }
};

/* Copies COUNT values from shared memory, which lie at a multiple of their size, or of a vector. */
template <int COUNT, class Value> __device__ __forceinline__ void load_run(const Value *from, Value *to)
{
    constexpr int VECTOR = COUNT * sizeof(Value) % ACCESS_BYTES == 0 ? access_length<Value> : 1;
#pragma unroll
    for (int i = 0; i < COUNT; i += VECTOR) {
        const element_vector<Value, VECTOR> vector = *reinterpret_cast<const element_vector<Value, VECTOR> *>(from + i);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            to[i + j] = vector.at[j];
    }
}

/* Columns whose taps lie in a window of src: column c's tap t is its value (c + PAD) / STRIDE - t, and its kernel
 * column is (c + PAD) mod STRIDE + t * STRIDE, where that is below KERNEL. PAD is the padding modulo the stride. wide: the
 * layer's stride is a multiple of STRIDE, which is all columns of a thread, so that they take the same values; the kernel
 * column is first_kernel + c + t * the layer's stride. */
template <class Element, int LENGTH_, int KERNEL, int STRIDE, int PAD, bool any_tile, bool wide = false>
struct window_columns : row_columns<Element, (KERNEL + STRIDE - 1) / STRIDE, LENGTH_> {
    using Compute = compute_type<Element>;
    using Weights = tile_weights<Compute>;
    static constexpr int LENGTH = LENGTH_, TAPS = (KERNEL + STRIDE - 1) / STRIDE,
                         BLOCKS = WINDOW_BLOCKS<Element, STRIDE == LENGTH>,
                         POSTS_BLOCKS = WINDOW_POSTS_BLOCKS<Element, STRIDE == LENGTH>;
    static constexpr int VALUES = (LENGTH - 1 + PAD) / STRIDE + TAPS, WEIGHTS = KERNEL;
    static constexpr bool ROW_ENDS = false, ZERO_ROWS = true, ANY_TILE = any_tile;
    static_assert(LENGTH % STRIDE == 0, "every thread's first column has the same residue");
    static_assert(!wide || (STRIDE == LENGTH && PAD == 0 && KERNEL == 2 * STRIDE),
                  "a thread's columns are within a stride");
    const Compute *weights; /* in shared memory, from the first column's first kernel column on */
    column first;

    __device__ __forceinline__ bool find(const parameters &layer, const block_tile &block, const Weights &shared)
    {
        first = find_column(layer, block, find_first_column<true, LENGTH>(layer, block));
        weights = shared.at + (wide ? layer.columns.first_kernel[first.residue] : 0);
        return first.output < layer.columns.out;
    }

    __device__ __forceinline__ void load(const Element *x, Compute (&values)[VALUES]) const
    {
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            values[i] = to_compute(x[i]);
    }

    __device__ __forceinline__ void load_weights(const parameters &layer, int kernel_row,
                                                 Compute (&loaded)[WEIGHTS]) const
    {
        constexpr int RUN = wide ? STRIDE : WEIGHTS; /* weights that are neighbours */
#pragma unroll
        for (int i = 0; i < WEIGHTS; i += RUN)
            load_run<RUN>(weights + kernel_row * layer.columns.kernel + i / RUN * layer.columns.stride, loaded + i);
    }

    static __device__ __forceinline__ int channel(const parameters &layer, int)
    {
        return find_channel_again<ANY_TILE>(layer);
    }

    static constexpr __device__ bool has(int tap, int column)
    {
        return weight(tap, column) < KERNEL;
    }

    static constexpr __device__ int value(int tap, int column)
    {
        return (column + PAD) / STRIDE - tap + TAPS - 1;
    }

    static constexpr __device__ int weight(int tap, int column)
    {
        return (column + PAD) % STRIDE + tap * STRIDE;
    }

    __device__ __forceinline__ void store(const parameters &layer, Element *dst, const Compute (&sums)[LENGTH]) const
    {
        if (!ANY_TILE || layer.tile.stores_runs)
            this->store_run(dst, sums);
        else
            store_apart(dst, sums, layer.columns.out - first.output, 0);
    }

    template <bool has_posts>
    __device__ __forceinline__ void walk_part(const parameters &layer, const block_tile &block, const part &part,
                                              const Weights &shared) const
    {
        const Element *x = find_x<Element, ANY_TILE>(layer, block, part) + first.src - (TAPS - 1);
        Element *dst = find_dst<Element>(layer, block, part, first.output);
        /* With post-ops the text of a walk is long, and there is one. */
        if (!has_posts && shared.finite && layer.rows.taps[part.residue] == TAPS)
            walk<false, true>(layer, part, *this, x, layer.tile.pitch, dst);
        else if (shared.finite)
            walk<has_posts>(layer, part, *this, x, layer.tile.pitch, dst);
        else
            for (int c = 0; c < min(LENGTH, layer.columns.out - first.output); c++)
                walk_checked<false, has_posts, Element, ANY_TILE>(layer, block, part, shared, first.output + c,
                                                                  this->bias[0]);
    }
};

/* Loops ask themselves whether there are post-ops; of other columns there is a kernel for layers that have such. */
template <class Columns, bool has_posts>
__global__ void __launch_bounds__(THREADS, has_posts ? Columns::POSTS_BLOCKS : Columns::BLOCKS)
    walk_planes(const __grid_constant__ parameters layer)
{
    using Element = typename Columns::Element;
    using Compute = compute_type<Element>;
    const int tile = tile_number<Columns::ANY_TILE>(layer, (int)blockIdx.x);
    if (Columns::ANY_TILE && tile >= layer.tile.count)
        return;
    const block_tile block = find_tile<Element>(layer, tile);
    Columns columns;
    if constexpr (has_posts)
        columns.numbers = read_numbers<1>(layer.posts.rounds[0], [&](int) { return block.channel; });
    const tile_weights<Compute> weights = load_tile<Element, Columns::ROW_ENDS, Columns::ANY_TILE>(layer, block);
    if (!columns.find(layer, block, weights))
        return;
    const Compute bias = channel_bias<Element>(layer.bias, block.channel);
#pragma unroll
    for (int c = 0; c < Columns::LENGTH; c++)
        columns.bias[c] = bias;
    const int numbers = layer.tile.parts * layer.rows.stride;
    for (int number = thread_in_tile<Columns::ANY_TILE>(layer) >> layer.tile.lanes_log2; number < numbers;
         number += threads_of_tile<Columns::ANY_TILE>(layer) >> layer.tile.lanes_log2)
        columns.template walk_part<has_posts>(layer, block, find_part(layer, block, number), weights);
}

typedef void (*kernel_function)(parameters);

/* Returns the kernel by a window that gives a thread LENGTH columns; NULL where `columns` names no such window. */
template <class Element, int LENGTH, bool any_tile, bool has_posts> kernel_function find_window_kernel(int columns)
{
    switch (columns) {
    case COLUMNS_WINDOW_1: return walk_planes<window_columns<Element, LENGTH, 3, 1, 0, any_tile>, has_posts>;
    case COLUMNS_WINDOW_3_EVEN: return walk_planes<window_columns<Element, LENGTH, 3, 2, 0, any_tile>, has_posts>;
    case COLUMNS_WINDOW_3_ODD: return walk_planes<window_columns<Element, LENGTH, 3, 2, 1, any_tile>, has_posts>;
    case COLUMNS_WINDOW_4_EVEN: return walk_planes<window_columns<Element, LENGTH, 4, 2, 0, any_tile>, has_posts>;
    case COLUMNS_WINDOW_4_ODD: return walk_planes<window_columns<Element, LENGTH, 4, 2, 1, any_tile>, has_posts>;
    case COLUMNS_WINDOW_5_EVEN: return walk_planes<window_columns<Element, LENGTH, 5, 2, 0, any_tile>, has_posts>;
    case COLUMNS_WINDOW_5_ODD: return walk_planes<window_columns<Element, LENGTH, 5, 2, 1, any_tile>, has_posts>;
    default: return NULL;
    }
}

template <class Element, bool has_posts> kernel_function find_kernel(int columns, int taps, bool vectors)
{
    constexpr int LENGTH = access_length<Element>;
    static const kernel_function tables[MAX_TAPS][2] = {{walk_planes<table_columns<Element, 1, false>, has_posts>,
                                                         walk_planes<table_columns<Element, 1, true>, has_posts>},
                                                        {walk_planes<table_columns<Element, 2, false>, has_posts>,
                                                         walk_planes<table_columns<Element, 2, true>, has_posts>},
                                                        {walk_planes<table_columns<Element, 3, false>, has_posts>,
                                                         walk_planes<table_columns<Element, 3, true>, has_posts>}};
    constexpr bool IN_F32 = sizeof(compute_type<Element>) == sizeof(float);
    switch (columns) {
    case COLUMNS_TABLE: return tables[taps - 1][vectors];
    case COLUMNS_WINDOW_HALF:
        return walk_planes<window_columns<Element, LENGTH, 2 * LENGTH, LENGTH, LENGTH / 2, false>, has_posts>;
    case COLUMNS_SHARED:
        return walk_planes<window_columns<Element, LENGTH, 2 * LENGTH, LENGTH, 0, false, true>, has_posts>;
    case COLUMNS_LOOP: return walk_planes<loop_columns<Element, false>, false>;
    case COLUMNS_LONG_LOOP: return walk_planes<loop_columns<Element, IN_F32>, false>; /* f64 has no segments */
    default:
        return vectors ? find_window_kernel<Element, LENGTH, false, has_posts>(columns) : find_window_kernel < Element,
               sizeof(Element) == 2 ? HALF_LENGTH : LENGTH, true, has_posts > (columns);
    }
}

} // namespace

} // namespace tconv::depthwise::forward

namespace tconv::depthwise
{

extern "C" const void *tconv_depthwise_planes_kernel(tconv_dtype dtype, int columns, int taps, bool vectors,
                                                     bool has_posts)
{
    return with_element(dtype, [&](auto element) {
        using Element = decltype(element);
        constexpr bool MAY_HAVE = !std::is_same<Element, double>::value;
        return (const void *)(has_posts ? forward::find_kernel<Element, MAY_HAVE>(columns, taps, vectors)
                                        : forward::find_kernel<Element, false>(columns, taps, vectors));
    });
}

} // namespace tconv::depthwise
