/* cuda_rows' modes, which prepare, load and multiply a step, and the writer of its rows of dst. */
#include "../../src/cuda/mma/row_epilogue.cuh"
#include "../../src/cuda/mma/row_mode.cuh"
#include "families.h"
#include "products.h"

namespace tconv::check
{

namespace
{

/* ------------------------------------------------------------------------------------------------------------ modes */

constexpr int MMAS = 3, COLUMNS = 32, PITCH = 40, FIRST_COLUMN = 3; /* of a test: MMAs along the positions */
constexpr int M = 16;

/* A warp prepares the step's channels, and multiplies N columns by 16 output channels. */
template <mma::mode MODE, mma::row_sums SUMS>
__global__ void multiply_step(const mma::element_of<MODE> *src, const uint4 *weights, int channels, float4 *sums)
{
    using Mode = mma::row_mode<MODE, SUMS>;
    using Element = mma::element_of<MODE>;
    __shared__ __align__(16) Element columns[16 * PITCH];
    const int lane = (int)threadIdx.x;
    constexpr int VECTOR = 16 / (int)sizeof(Element);
    for (int i = lane; i < 16 * PITCH; i += 32)
        columns[i] = i / PITCH < channels ? src[i] : from_compute<Element>(0);
    __syncwarp();
    if constexpr (Mode::PREPARES)
        for (int i = lane; i < 16 / Mode::COPY_CHANNELS * (COLUMNS / VECTOR); i += 32)
            Mode::prepare(columns + i / (COLUMNS / VECTOR) * Mode::COPY_CHANNELS * PITCH +
                              i % (COLUMNS / VECTOR) * VECTOR,
                          PITCH);
    __syncwarp();
    float accumulators[MMAS][4];
    mma::operand_b b[MMAS];
    for (int t = 0; t < MMAS; t++) {
        b[t] = Mode::load(columns + Mode::place(FIRST_COLUMN + t * 8 + lane / 4, lane % 4, PITCH), PITCH);
        for (int i = 0; i < 4; i++)
            accumulators[t][i] = 0.5f;
    }
    Mode::multiply(accumulators, mma::load_weights<MODE>(weights + lane), b);
    for (int t = 0; t < MMAS; t++)
        sums[t * 32 + lane] =
            make_float4(accumulators[t][0], accumulators[t][1], accumulators[t][2], accumulators[t][3]);
}

/* A lane's words of the A fragments: rows lane / 4 and 8 on, of words lane % 4 and 4 on; in strict f32 the small parts
 * follow. */
std::vector<uint32_t> fragments_of(const factors &A, bool strict)
{
    std::vector<uint32_t> words;
    for (int part = 0; part < (strict ? 2 : 1); part++)
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < 4; i++) {
                const int row = lane / 4 + i % 2 * 8, word = lane % 4 + i / 2 * 4;
                uint32_t parts[2];
                if (A.type == FACTOR_TF32) {
                    tf32_parts_of(A.bits(row, word), &parts[0], &parts[1]);
                    words.push_back(parts[part]);
                } else {
                    words.push_back(2 * word < A.K ? A.bits(row, 2 * word) | A.bits(row, 2 * word + 1) << 16 : 0);
                }
            }
    return words;
}

template <mma::mode MODE, mma::row_sums SUMS> void check_mode(factor_type type, bool strict, int channels)
{
    for (factor_kind kind : {FACTOR_INTEGERS, FACTOR_REALS}) {
        factors A = make_factors(M, channels, type, kind), B = make_factors(COLUMNS, channels, type, kind);
        const size_t size = (size_t)factor_bytes(type);
        std::vector<uint8_t> src(16 * PITCH * size, 0);
        for (int column = 0; column < COLUMNS; column++)
            for (int k = 0; k < channels; k++)
                B.put(column, k, &src[((size_t)k * PITCH + column) * size]);
        if (type == FACTOR_TF32) /* what is multiplied: f32 itself, or rounded to TF32 */
            for (factors *of : {&A, &B})
                for (int i = 0; i < of->rows * channels; i++) {
                    const uint32_t bits = of->bits(i / channels, i % channels);
                    of->values[(size_t)i] = float_of(strict ? bits : tf32_of(bits));
                }
        std::vector<double> wanted, bounds;
        for (int t = 0; t < MMAS; t++)
            for (int lane = 0; lane < 32; lane++)
                for (int i = 0; i < 4; i++) {
                    const dot_product right =
                        dot(A, lane / 4 + i / 2 * 8, B, FIRST_COLUMN + t * 8 + lane % 4 * 2 + i % 2, 0, channels);
                    wanted.push_back(right.sum + 0.5);
                    bounds.push_back(strict && kind == FACTOR_REALS
                                         ? (right.magnitudes + 0.5) * 16 * 0x1p-24
                                         : product_bound(kind, {right.sum + 0.5, right.magnitudes + 0.5}, channels));
                }
        begin_case("%s, %d channels", kind == FACTOR_INTEGERS ? "integers" : "reals", channels);
        const device_buffer from = input("src", src), weights = input("weights", fragments_of(A, strict)),
                            sums = output("sums", wanted.size() * sizeof(float));
        multiply_step<MODE, SUMS>
            <<<1, 32>>>(from.as<mma::element_of<MODE>>(), weights.as<uint4>(), channels, sums.as<float4>());
        finish_kernels();
        compare_floats(sums, wanted, bounds);
    }
}

void check_strict()
{
    check_mode<mma::STRICT, mma::ADDED>(FACTOR_TF32, true, 8);
}
void check_tf32()
{
    check_mode<mma::TF32, mma::DIRECT>(FACTOR_TF32, false, 8);
}
template <mma::mode MODE, mma::row_sums SUMS> void check_half()
{
    constexpr factor_type type = MODE == mma::F16_NCHW ? FACTOR_F16 : FACTOR_BF16;
    check_mode<MODE, SUMS>(type, false, 16);
    if constexpr (SUMS == mma::DIRECT)
        check_mode<MODE, mma::NARROW>(type, false, 8);
}

/* ----------------------------------------------------------------------------------------------------------- writer */

constexpr int WRITER_THREADS = 96;

/* Writes rows first_row to last_row of 16 channels or fewer: every third one has no taps. */
template <class Element>
__global__ void __launch_bounds__(WRITER_THREADS)
    write_rows(const __grid_constant__ mma::row_parameters params, Element *dst, const Element *values, int channels,
               int first_output, int outputs, int first_row, int last_row)
{
    extern __shared__ __align__(128) uint4 shared[];
    mma::row_writer<Element> writer(params, reinterpret_cast<Element *>(shared), dst, 0, channels, first_output,
                                    outputs, last_row);
    writer.begin_block(0);
    __syncthreads();
    for (int row = first_row; row <= last_row; row++) {
        if (row % 3 == 2) {
            writer.write_bias(row);
            continue;
        }
        writer.wait_for_staging();
        const int shift = writer.shift_of_row(row);
        for (int i = (int)threadIdx.x; i < mma::BLOCK_M * outputs; i += WRITER_THREADS) {
            const int channel = i / outputs, output = i % outputs, column = first_output + output;
            if (channel < channels && column >= 0 && column < params.out_columns)
                writer.staging[channel * params.staging_pitch + shift + output] =
                    values[((int64_t)channel * params.out_rows + row) * params.out_columns + column];
        }
        writer.template store_staging<false>(row, shift, 0, 0);
    }
    writer.finish();
}

struct writer_case {
    int channels, rows, columns, first_output, outputs, first_row, last_row, gap, offset;
    bool joins, bias, posts; /* posts: every second channel's outputs without taps times -1 */
};

template <class Element> void check_writer()
{
    static const writer_case cases[] = {
        {16, 7, 64, 0, 64, 0, 6, 0, 0, false, true, false},   {16, 9, 75, 0, 75, 0, 8, 3, 1, true, true, false},
        {13, 8, 101, 0, 101, 1, 6, 5, 3, true, false, false}, {5, 6, 90, -3, 48, 0, 5, 0, 2, false, true, false},
        {16, 7, 90, 40, 64, 2, 6, 7, 0, false, false, false}, {16, 12, 40, 0, 40, 3, 11, 16, 0, true, true, false},
        {16, 9, 75, 0, 75, 0, 8, 3, 1, true, true, true},     {13, 8, 101, 0, 101, 1, 6, 5, 3, true, false, true},
    };
    constexpr int SECTOR = 32 / (int)sizeof(Element);
    using Bits = typename std::conditional<sizeof(Element) == 4, uint32_t, uint16_t>::type;
    for (const writer_case &of : cases) {
        mma::row_parameters params = {};
        params.out_rows = of.rows;
        params.out_columns = of.columns;
        params.dst_channel = of.rows * of.columns + of.gap;
        params.joins_rows = of.joins;
        params.zeros = 2 * SECTOR;
        params.staging_pitch = (of.outputs + 2 * SECTOR) / SECTOR * SECTOR + (int)(params.dst_channel % SECTOR);
        std::vector<Bits> values((size_t)(of.channels * of.rows * of.columns)), bias((size_t)of.channels),
            wanted((size_t)(of.channels * params.dst_channel), (Bits)~0u);
        for (std::vector<Bits> *each : {&values, &bias})
            for (Bits &bits : *each)
                bits = (Bits)(sizeof(Element) == 4 ? bits_of(random_real()) : f16_of(random_real()));
        std::vector<float> factors;
        for (int channel = 0; channel < of.channels; channel++) {
            factors.push_back(of.posts && channel % 2 == 1 ? -1.0f : 1.0f);
            const Bits sign = (Bits)((Bits)(factors.back() < 0) << (8 * sizeof(Element) - 1));
            const Bits untapped = (Bits)((of.bias ? bias[(size_t)channel] : 0) ^ sign);
            for (int row = of.first_row; row <= of.last_row; row++)
                for (int i = 0; i < of.outputs; i++) {
                    const int column = of.first_output + i;
                    if (column >= 0 && column < of.columns)
                        wanted[(size_t)(channel * params.dst_channel + row * of.columns + column)] =
                            row % 3 == 2 ? untapped : values[(size_t)((channel * of.rows + row) * of.columns + column)];
                }
        }
        begin_case("%d channels, %d x %d, outputs from %d, rows %d to %d, gap %d, offset %d%s%s%s", of.channels,
                   of.rows, of.columns, of.first_output, of.first_row, of.last_row, of.gap, of.offset,
                   of.joins ? ", joined" : "", of.bias ? ", bias" : "", of.posts ? ", post-ops" : "");
        const device_buffer from = input("values", values), add = input("bias", bias),
                            scale = input("factors", factors),
                            dst = output("dst", wanted.size() * sizeof(Element), (size_t)of.offset * sizeof(Element));
        params.bias = of.bias ? add.data : nullptr;
        params.posts.count = of.posts;
        params.posts.of[0] = {TCONV_POST_MUL_CHANNEL, {}, {}, scale.data, nullptr};
        const size_t shared_elements =
            (size_t)(mma::BLOCK_M * (params.staging_pitch + SECTOR) + params.zeros + 2 * SECTOR);
        write_rows<Element><<<1, WRITER_THREADS, shared_elements * sizeof(Element)>>>(
            params, dst.as<Element>(), from.as<Element>(), of.channels, of.first_output, of.outputs, of.first_row,
            of.last_row);
        finish_kernels();
        compare_bits<Bits>(dst, wanted);
    }
}

const entry entries[] = {
    {"cuda/rows/mode strict", check_strict, nullptr, false},
    {"cuda/rows/mode tf32", check_tf32, nullptr, false},
    {"cuda/rows/mode f16 direct", check_half<mma::F16_NCHW, mma::DIRECT>, nullptr, false},
    {"cuda/rows/mode f16", check_half<mma::F16_NCHW, mma::ADDED>, nullptr, false},
    {"cuda/rows/mode bf16", check_half<mma::BF16_NCHW, mma::ADDED>, nullptr, false},
    {"cuda/rows/row_writer f32", check_writer<float>, nullptr, false},
    {"cuda/rows/row_writer f16", check_writer<__half>, nullptr, false},
};

} // namespace

void check_rows()
{
    check_entries(entries);
}

} // namespace tconv::check
