/*
 * Stencils over pixels (NHWC): channels lie side by side, and each output channel reads one input channel.
 *
 * A thread has an access of neighbouring channels (or one channel), a row of dst and a run of the columns of one phase.
 * It walks along the run with the weights of its phases in registers; so are the taps of a column, which become those of
 * the next column's next tap. Neighbouring threads have neighbouring channels, then column phases, then rows, so that
 * stores run along memory and the rows that several phases read come from the first-level cache.
 *
 * Taps outside src are skipped, so that NaN and Inf in the weights go only where they belong.
 *
 * Numeric order: from the bias, fused multiply-adds over the columns' taps, then the kernel rows'.
 */
#include "access.cuh"
#include "stencil_kernels.h"

namespace
{

constexpr int THREADS = TCONV_CUDA_STENCIL_THREADS;
constexpr int RUN = TCONV_CUDA_STENCIL_PIXELS_RUN;

/* What one thread computes: columns `first` to `end` (quotients) of a residue, in one row and from one channel on. */
struct run {
    int channel, row, row_residue, residue, first, end;
    int64_t image;
};

template <int LENGTH>
__device__ __forceinline__ run find_run(const tconv_cuda_stencil_parameters &layer, unsigned number)
{
    run found;
    const unsigned row_work = (unsigned)layer.row_work, vectors = row_work / (unsigned)layer.columns.stride;
    const unsigned place = number % row_work;
    number /= row_work;
    found.residue = (int)(place / vectors);
    found.channel = (int)(place - (unsigned)found.residue * vectors) * LENGTH;
    const int output = (int)(number % (unsigned)layer.rows.out);
    number /= (unsigned)layer.rows.out;
    found.row = output / layer.rows.stride;
    found.row_residue = output - found.row * layer.rows.stride;
    found.first = (int)(number % (unsigned)layer.runs) * RUN;
    found.image = number / (unsigned)layer.runs;
    const int outputs = (layer.columns.out - found.residue + layer.columns.stride - 1) / layer.columns.stride;
    found.end = min(found.first + RUN, outputs);
    return found;
}

template <class Element, int LENGTH>
__device__ __forceinline__ void load(const Element *from, Element (&values)[LENGTH])
{
    using Vector = element_vector<Element, LENGTH>;
    const Vector vector = *reinterpret_cast<const Vector *>(from);
#pragma unroll
    for (int i = 0; i < LENGTH; i++)
        values[i] = vector.at[i];
}

template <class Element, int LENGTH>
__device__ __forceinline__ void store(Element *to, const compute_type<Element> (&sums)[LENGTH])
{
    element_vector<Element, LENGTH> rounded;
#pragma unroll
    for (int i = 0; i < LENGTH; i++)
        rounded.at[i] = from_compute<Element>(sums[i]);
    if (sizeof rounded == ACCESS_BYTES)
        store_streaming(to, &rounded);
    else
        *reinterpret_cast<element_vector<Element, LENGTH> *>(to) = rounded;
}

/* The taps and weights of a thread's row and column phases. */
template <class Element, int TAPS, int LENGTH> struct stencil {
    using Compute = compute_type<Element>;
    Compute weights[TAPS][TAPS][LENGTH], bias[LENGTH];
    Element values[TAPS][TAPS][LENGTH]; /* [row tap][slot]: see compute_run */
    const Element *src[TAPS];           /* of the column that the next output's tap 0 reads */
    bool has_row[TAPS];

    __device__ __forceinline__ void find(const tconv_cuda_stencil_parameters &layer, const run &run)
    {
        const Element *all_weights = static_cast<const Element *>(layer.weights) + run.channel;
        const int row_taps = layer.rows.taps[run.row_residue], taps = layer.columns.taps[run.residue];
        const int column = run.first + layer.columns.first_shift[run.residue];
#pragma unroll
        for (int a = 0; a < TAPS; a++) {
            const int row = run.row + layer.rows.first_shift[run.row_residue] - a * layer.rows.shift_step;
            has_row[a] = a < row_taps && (unsigned)row < (unsigned)layer.rows.in;
            src[a] = static_cast<const Element *>(layer.src) + run.image * layer.src_strides.n +
                     (has_row[a] ? row : 0) * layer.src_strides.h + column * layer.src_strides.w +
                     run.channel / layer.multiplier * layer.src_strides.c;
#pragma unroll
            for (int t = 0; t < TAPS; t++) {
                const int kernel_row = layer.rows.first_kernel[run.row_residue] + a * layer.rows.kernel_step;
                const int kernel_column = layer.columns.first_kernel[run.residue] + t * layer.columns.kernel_step;
                const int64_t position = kernel_row * layer.columns.kernel + kernel_column;
                Element loaded[LENGTH] = {};
                if (has_row[a] && t < taps)
                    load(all_weights + position * layer.channels, loaded);
#pragma unroll
                for (int i = 0; i < LENGTH; i++) {
                    weights[a][t][i] = to_compute(loaded[i]);
                    values[a][t][i] = Element(0.0f);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < LENGTH; i++)
            bias[i] =
                layer.bias != NULL ? to_compute(static_cast<const Element *>(layer.bias)[run.channel + i]) : Compute(0);
    }

    /* Loads the column that lies `back` before the next output's tap 0. */
    __device__ __forceinline__ void load_column(const tconv_cuda_stencil_parameters &layer, int column, int back,
                                                int slot)
    {
        if ((unsigned)(column - back) >= (unsigned)layer.columns.in)
            return;
#pragma unroll
        for (int a = 0; a < TAPS; a++)
            if (has_row[a])
                load(src[a] - back * layer.src_strides.w, values[a][slot]);
    }
};

/* Tap t of the column that is j past a multiple of TAPS is in slot (j - t) mod TAPS. */
template <class Element, int TAPS, int LENGTH>
__device__ __forceinline__ void compute_run(const tconv_cuda_stencil_parameters &layer, const run &run)
{
    stencil<Element, TAPS, LENGTH> stencil;
    stencil.find(layer, run);
    int column = run.first + layer.columns.first_shift[run.residue];
    unsigned in[TAPS]; /* columns of src, none for a tap that this phase does not have */
#pragma unroll
    for (int t = 0; t < TAPS; t++)
        in[t] = t < layer.columns.taps[run.residue] ? (unsigned)layer.columns.in : 0;
#pragma unroll
    for (int t = 1; t < TAPS; t++)
        stencil.load_column(layer, column, t, TAPS - t);

    const int64_t dst_row = (int64_t)run.row * layer.rows.stride + run.row_residue;
    const int64_t dst_column = (int64_t)run.first * layer.columns.stride + run.residue;
    Element *dst = static_cast<Element *>(layer.dst) + run.image * layer.dst_strides.n + dst_row * layer.dst_strides.h +
                   dst_column * layer.dst_strides.w + run.channel * layer.dst_strides.c;
    const int64_t dst_step = layer.columns.stride * layer.dst_strides.w;
    for (int q = run.first; q < run.end; q += TAPS) {
#pragma unroll
        for (int j = 0; j < TAPS; j++) {
            if (q + j >= run.end)
                break;
            stencil.load_column(layer, column, 0, j);
            compute_type<Element> sums[LENGTH];
#pragma unroll
            for (int i = 0; i < LENGTH; i++)
                sums[i] = stencil.bias[i];
#pragma unroll
            for (int t = 0; t < TAPS; t++) {
                if ((unsigned)(column - t) >= in[t])
                    continue;
#pragma unroll
                for (int a = 0; a < TAPS; a++)
#pragma unroll
                    for (int i = 0; i < LENGTH; i++)
                        sums[i] = fma(stencil.weights[a][t][i], to_compute(stencil.values[a][(j - t + TAPS) % TAPS][i]),
                                      sums[i]);
            }
            store(dst, sums);
            column++;
            dst += dst_step;
#pragma unroll
            for (int a = 0; a < TAPS; a++)
                stencil.src[a] += layer.src_strides.w;
        }
    }
}

template <class Element, int TAPS, int LENGTH>
__global__ void __launch_bounds__(THREADS) stencil_pixels(const __grid_constant__ tconv_cuda_stencil_parameters layer)
{
    const unsigned number = blockIdx.x * THREADS + threadIdx.x;
    if (number < layer.work)
        compute_run<Element, TAPS, LENGTH>(layer, find_run<LENGTH>(layer, number));
}

template <class Element> tconv_cuda_stencil_kernel find_kernel(int taps, bool vectors)
{
    constexpr int LENGTH = access_length<Element>;
    static const tconv_cuda_stencil_kernel kernels[TCONV_CUDA_STENCIL_MAX_TAPS][2] = {
        {stencil_pixels<Element, 1, 1>, stencil_pixels<Element, 1, LENGTH>},
        {stencil_pixels<Element, 2, 1>, stencil_pixels<Element, 2, LENGTH>},
        {stencil_pixels<Element, 3, 1>, stencil_pixels<Element, 3, LENGTH>}};
    return taps <= TCONV_CUDA_STENCIL_MAX_TAPS ? kernels[taps - 1][vectors] : NULL;
}

} // namespace

tconv_cuda_stencil_kernel tconv_cuda_stencil_pixels(tconv_dtype dtype, int taps, bool vectors)
{
    return dtype == TCONV_F32   ? find_kernel<float>(taps, vectors)
           : dtype == TCONV_F64 ? find_kernel<double>(taps, vectors)
           : dtype == TCONV_F16 ? find_kernel<__half>(taps, vectors)
                                : find_kernel<__nv_bfloat16>(taps, vectors);
}
