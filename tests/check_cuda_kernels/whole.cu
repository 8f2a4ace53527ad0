/*
 * Whole kernels, for the pieces that cannot be cut out of theirs: the loaders of cuda_igemm, cuda_cells, cuda_mma,
 * cuda_rows, cuda_col2im and cuda_general, the main loops of cuda_mma, cuda_col2im, cuda_general and cuda_depthwise, the
 * epilogues of cuda_igemm and these, and the gathering of cuda_gemm_col2im. Each implementation runs small layers through
 * the public API on guarded buffers, with odd extents and tails on every side, against a sum in double.
 */
#include <cstdio>

#include "check.h"
#include "families.h"
#include "tconv/tconv.h"

namespace tconv::check
{

namespace
{

struct layer_case {
    int batch, in_channels, out_channels, groups;
    int rows, columns, kernel, stride, pad;
};

/* Of many channels, of few output channels, and of one channel to a group. */
const layer_case layers[] = {
    {1, 32, 64, 1, 8, 16, 3, 1, 1},   {2, 40, 72, 1, 9, 20, 4, 2, 1},   {2, 64, 130, 1, 7, 24, 3, 2, 1},
    {1, 48, 20, 1, 13, 33, 2, 2, 0},  {3, 32, 48, 2, 5, 11, 5, 3, 2},   {1, 64, 3, 1, 12, 32, 4, 2, 1},
    {2, 40, 2, 1, 9, 37, 3, 1, 1},    {1, 8, 24, 1, 17, 45, 4, 2, 1},   {2, 4, 16, 1, 30, 66, 2, 2, 0},
    {2, 24, 24, 24, 11, 29, 4, 2, 1}, {1, 33, 33, 33, 14, 18, 3, 1, 1}, {1, 6, 10, 2, 10, 10, 3, 3, 0},
    {2, 128, 128, 1, 6, 8, 4, 2, 1},  {1, 128, 64, 1, 16, 32, 4, 4, 0}, {2, 20, 3, 1, 4, 9, 40, 33, 7},
};

struct arithmetic_case {
    const char *name;
    tconv_dtype dtype;
    tconv_math math;
    double roundings; /* of the sum of magnitudes, in units of 2^-24 */
    double factor;    /* what rounding the factors may take, of the sum of magnitudes */
    double store;     /* rounding of the result, of itself */
};
const arithmetic_case arithmetics[] = {
    {"strict", TCONV_F32, TCONV_MATH_STRICT, 16, 0, 0},
    {"tf32", TCONV_F32, TCONV_MATH_TF32, 16, 0x1p-10, 0},
    {"f16", TCONV_F16, TCONV_MATH_STRICT, 16, 0, 0x1p-11},
    {"bf16", TCONV_BF16, TCONV_MATH_STRICT, 16, 0, 0x1p-8},
};

struct tensors {
    tconv_desc desc;
    int64_t shape[4];                      /* of dst: n, c, h, w */
    std::vector<float> src, weights, bias; /* by logical index: n c h w; ci, co of a group, kh, kw; co */
    int64_t at(const int64_t (&of)[4], int64_t n, int64_t c, int64_t h, int64_t w) const
    {
        return desc.layout == TCONV_NCHW ? ((n * of[1] + c) * of[2] + h) * of[3] + w
                                         : ((n * of[2] + h) * of[3] + w) * of[1] + c;
    }
};

float stored(float value, tconv_dtype dtype)
{
    return dtype == TCONV_F32   ? value
           : dtype == TCONV_F16 ? float_of_f16(f16_of(value))
                                : float_of_bf16(bf16_of(value));
}

tconv_desc desc_of(const layer_case &of, const arithmetic_case &arithmetic, tconv_layout layout)
{
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.batch = of.batch;
    desc.in_channels = of.in_channels;
    desc.out_channels = of.out_channels;
    desc.groups = of.groups;
    desc.in_h = of.rows;
    desc.in_w = of.columns;
    desc.kernel_h = desc.kernel_w = of.kernel;
    desc.stride_h = desc.stride_w = of.stride;
    desc.pad_top = desc.pad_left = desc.pad_bottom = desc.pad_right = of.pad;
    desc.dtype = arithmetic.dtype;
    desc.math = arithmetic.math;
    desc.layout = layout;
    return desc;
}

tensors make_tensors(const layer_case &of, const arithmetic_case &arithmetic, tconv_layout layout, bool integers)
{
    tensors made;
    made.desc = desc_of(of, arithmetic, layout);
    tconv_output_shape(&made.desc, made.shape, nullptr);
    made.src.resize((size_t)of.batch * of.in_channels * of.rows * of.columns);
    made.weights.resize((size_t)of.in_channels * (of.out_channels / of.groups) * of.kernel * of.kernel);
    made.bias.resize((size_t)of.out_channels);
    for (std::vector<float> *values : {&made.src, &made.weights, &made.bias})
        for (float &value : *values)
            value = integers ? (float)random_integer(-2, 2) : stored(random_real(), arithmetic.dtype);
    return made;
}

/* The sum of an output and of its terms' magnitudes, in the tensors' logical order. */
void sum_outputs(const tensors &of, std::vector<double> *sums, std::vector<double> *magnitudes)
{
    const tconv_desc &desc = of.desc;
    const int64_t group_in = desc.in_channels / desc.groups, group_out = desc.out_channels / desc.groups;
    const int64_t plane = of.shape[2] * of.shape[3];
    sums->assign((size_t)(desc.batch * desc.out_channels * plane), 0);
    magnitudes->assign(sums->size(), 0);
    for (int64_t n = 0; n < desc.batch; n++)
        for (int64_t ci = 0; ci < desc.in_channels; ci++)
            for (int64_t pixel = 0; pixel < desc.in_h * desc.in_w; pixel++)
                for (int64_t tap = 0; tap < desc.kernel_h * desc.kernel_w; tap++) {
                    const int64_t h = pixel / desc.in_w * desc.stride_h + tap / desc.kernel_w - desc.pad_top;
                    const int64_t w = pixel % desc.in_w * desc.stride_w + tap % desc.kernel_w - desc.pad_left;
                    if (h < 0 || h >= of.shape[2] || w < 0 || w >= of.shape[3])
                        continue;
                    const double x = of.src[(size_t)((n * desc.in_channels + ci) * desc.in_h * desc.in_w + pixel)];
                    const float *weights = &of.weights[(size_t)(ci * group_out * desc.kernel_h * desc.kernel_w + tap)];
                    size_t to =
                        (size_t)((n * desc.out_channels + ci / group_in * group_out) * plane + h * of.shape[3] + w);
                    for (int64_t co = 0; co < group_out; co++, to += (size_t)plane) {
                        const double term = x * weights[co * desc.kernel_h * desc.kernel_w];
                        (*sums)[to] += term;
                        (*magnitudes)[to] += fabs(term);
                    }
                }
    for (size_t i = 0; i < sums->size(); i++) {
        const double bias = of.bias[i / (size_t)plane % (size_t)desc.out_channels];
        (*sums)[i] += bias;
        (*magnitudes)[i] += fabs(bias);
    }
}

/* Values as they lie in memory: src and dst by their layout. */
std::vector<uint8_t> in_memory(const tensors &of, const std::vector<float> &values, const int64_t (*shape)[4])
{
    const size_t size = of.desc.dtype == TCONV_F32 ? 4 : 2;
    std::vector<uint8_t> bytes(values.size() * size);
    for (size_t i = 0; i < values.size(); i++) {
        const uint32_t bits = of.desc.dtype == TCONV_F32   ? bits_of(values[i])
                              : of.desc.dtype == TCONV_F16 ? f16_of(values[i])
                                                           : bf16_of(values[i]);
        int64_t to = (int64_t)i;
        if (shape != nullptr)
            to =
                of.at(*shape, to / ((*shape)[1] * (*shape)[2] * (*shape)[3]),
                      to / ((*shape)[2] * (*shape)[3]) % (*shape)[1], to / (*shape)[3] % (*shape)[2], to % (*shape)[3]);
        memcpy(&bytes[(size_t)to * size], &bits, size);
    }
    return bytes;
}

/* A plan of one implementation; NULL where it does not take the layer. */
tconv_plan *plan_of(const tconv_desc &desc, const char *implementation)
{
    tconv_options options;
    tconv_plan *plan = nullptr;
    tconv_issue issue = {};
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    options.implementation = implementation;
    const tconv_status status = tconv_plan_create(&desc, &options, &plan, &issue);
    if (status != TCONV_SUCCESS && status != TCONV_ERROR_UNSUPPORTED)
        fail("plan: %s", issue.message);
    return status == TCONV_SUCCESS ? plan : nullptr;
}

void compare_outputs(const tensors &of, const arithmetic_case &arithmetic, const device_buffer &dst, bool integers)
{
    std::vector<double> sums, magnitudes;
    sum_outputs(of, &sums, &magnitudes);
    const std::vector<uint8_t> got = contents<uint8_t>(dst);
    const size_t size = of.desc.dtype == TCONV_F32 ? 4 : 2;
    for (size_t i = 0; i < sums.size(); i++) {
        const int64_t plane = of.shape[2] * of.shape[3], n = (int64_t)i / plane / of.shape[1];
        const int64_t channel = (int64_t)i / plane % of.shape[1], h = (int64_t)i % plane / of.shape[3],
                      w = (int64_t)i % of.shape[3];
        uint32_t bits = 0;
        memcpy(&bits, &got[(size_t)of.at(of.shape, n, channel, h, w) * size], size);
        const double is = size == 4                    ? float_of(bits)
                          : of.desc.dtype == TCONV_F16 ? float_of_f16((uint16_t)bits)
                                                       : float_of_bf16((uint16_t)bits);
        const double exact = integers ? stored((float)sums[i], of.desc.dtype) : sums[i];
        const double bound = integers ? 0
                                      : magnitudes[i] * (arithmetic.roundings * 0x1p-24 + arithmetic.factor) +
                                            fabs(exact) * arithmetic.store * 1.01 + (size == 2 ? 0x1p-24 : 0);
        if (!(fabs(is - exact) <= bound))
            fail("output %lld %lld %lld %lld is %.9g, not %.9g (within %.3g)", (long long)n, (long long)channel,
                 (long long)h, (long long)w, is, exact, bound);
    }
}

/* Returns whether the implementation takes the layer. */
bool check_layer(const char *implementation, const layer_case &of, const arithmetic_case &arithmetic,
                 tconv_layout layout, bool integers, size_t misalignment)
{
    const tensors tensor = make_tensors(of, arithmetic, layout, integers);
    const size_t size = of.batch > 0 && arithmetic.dtype == TCONV_F32 ? 4 : 2;
    begin_case("%s, %s, n=%d ci=%d co=%d g=%d h=%dx%d k=%d s=%d p=%d, %s%s", arithmetic.name,
               layout == TCONV_NCHW ? "NCHW" : "NHWC", of.batch, of.in_channels, of.out_channels, of.groups, of.rows,
               of.columns, of.kernel, of.stride, of.pad, integers ? "integers" : "reals",
               misalignment > 0 ? ", misaligned" : "");
    tconv_plan *plan = plan_of(tensor.desc, implementation);
    if (plan == nullptr)
        return false;
    const int64_t src_shape[4] = {of.batch, of.in_channels, of.rows, of.columns};
    size_t workspace_bytes = 0;
    tconv_plan_workspace_size(plan, &workspace_bytes);
    const device_buffer src = input("src", in_memory(tensor, tensor.src, &src_shape), misalignment * size),
                        weights = input("weights", in_memory(tensor, tensor.weights, nullptr)),
                        bias = input("bias", in_memory(tensor, tensor.bias, nullptr)),
                        dst = output("dst",
                                     (size_t)(tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * tensor.shape[3]) *
                                         size,
                                     misalignment * size),
                        workspace = output("workspace", workspace_bytes);
    const auto tensor_of = [&](const device_buffer &buffer) {
        return tconv_tensor{buffer.data, arithmetic.dtype, TCONV_LOCATION_CUDA};
    };
    const tconv_tensor from = tensor_of(src), by = tensor_of(weights), add = tensor_of(bias), to = tensor_of(dst);
    const tconv_status status =
        tconv_plan_execute(plan, &from, &by, &add, &to, workspace.data, workspace_bytes, nullptr);
    const cudaError_t done = cudaDeviceSynchronize();
    tconv_plan_destroy(plan);
    require_cuda(done, "kernel");
    if (status != TCONV_SUCCESS)
        fail("execute returned %d", (int)status);
    finish_kernels();
    compare_outputs(tensor, arithmetic, dst, integers);
    return true;
}

void check_implementation(const char *implementation)
{
    int taken = 0;
    for (const layer_case &of : layers)
        for (const arithmetic_case &arithmetic : arithmetics)
            for (tconv_layout layout : {TCONV_NCHW, TCONV_NHWC}) {
                const bool takes = check_layer(implementation, of, arithmetic, layout, true, 0);
                taken += takes;
                if (takes)
                    check_layer(implementation, of, arithmetic, layout, false, 1);
            }
    if (taken == 0)
        fail("%s took none of the layers", implementation);
}

/* A layer that fills the machine, of each arithmetic, beside the rate of its products or of the memory that it moves,
 * whichever takes longer. */
void bench_implementation(const char *implementation, const layer_case &of, tconv_layout layout, bool wgmma)
{
    for (const arithmetic_case &arithmetic : arithmetics) {
        const size_t size = arithmetic.dtype == TCONV_F32 ? 4 : 2;
        begin_case("rate");
        tensors tensor = make_tensors({1, of.groups, of.groups, of.groups, 1, 1, 1, 1, 0}, arithmetic, layout, false);
        tensor.desc = desc_of(of, arithmetic, layout);
        tconv_output_shape(&tensor.desc, tensor.shape, nullptr);
        tconv_plan *plan = plan_of(tensor.desc, implementation);
        if (plan == nullptr)
            continue;
        const double group_out = of.out_channels / of.groups, pixels = (double)of.batch * of.rows * of.columns;
        const double flops = 2.0 * pixels * of.in_channels * group_out * of.kernel * of.kernel;
        const size_t src_bytes = (size_t)(pixels * of.in_channels) * size,
                     dst_bytes = (size_t)(tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * tensor.shape[3]) * size,
                     weight_bytes = (size_t)(of.in_channels * group_out * of.kernel * of.kernel) * size;
        size_t workspace_bytes = 0;
        tconv_plan_workspace_size(plan, &workspace_bytes);
        const device_buffer src = output("src", src_bytes), weights = output("weights", weight_bytes),
                            dst = output("dst", dst_bytes), workspace = output("workspace", workspace_bytes);
        cudaMemset(src.data, 0, src.bytes); /* NaN might be slow */
        cudaMemset(weights.data, 0, weights.bytes);
        const tconv_tensor from = {src.data, arithmetic.dtype, TCONV_LOCATION_CUDA},
                           by = {weights.data, arithmetic.dtype, TCONV_LOCATION_CUDA},
                           to = {dst.data, arithmetic.dtype, TCONV_LOCATION_CUDA};
        const double products = arithmetic.math == TCONV_MATH_STRICT && size == 4 ? 3 : 1; /* of TF32 for one of f32 */
        const double most = (wgmma ? wgmma_rate((int)size) : mma_rate((int)size)) / products;
        const double memory = (double)(src_bytes + dst_bytes) / dram_rate();
        const bool bound = flops / most < memory;
        char variant[64];
        snprintf(variant, sizeof variant, "%s %s", arithmetic.name, layout == TCONV_NCHW ? "NCHW" : "NHWC");
        rate(
            variant,
            [&] { tconv_plan_execute(plan, &from, &by, nullptr, &to, workspace.data, workspace_bytes, nullptr); },
            bound ? (double)(src_bytes + dst_bytes) : flops, bound ? "GB/s" : "GFLOP/s", bound ? dram_rate() : most);
        tconv_plan_destroy(plan);
    }
}

const layer_case many = {16, 256, 256, 1, 32, 32, 4, 2, 1}, few_outputs = {16, 128, 3, 1, 128, 128, 4, 2, 1},
                 few_channels = {16, 32, 32, 1, 128, 128, 4, 2, 1}, depthwise = {16, 256, 256, 256, 56, 56, 4, 2, 1};

/* A name, what it is checked by, and the layer that it is timed by. */
#define TCONV_WHOLE(name, layer, layout, wgmma)                                                                        \
    {                                                                                                                  \
        "cuda/whole/" name, [] { check_implementation("cuda_" name); },                                                \
            [] { bench_implementation("cuda_" name, layer, layout, wgmma); }, false                                    \
    }
#define TCONV_WHOLE_HOPPER(name, layer, layout)                                                                        \
    {                                                                                                                  \
        "cuda/whole/" name, [] { check_implementation("cuda_" name); },                                                \
            [] { bench_implementation("cuda_" name, layer, layout, true); }, true                                      \
    }

const entry entries[] = {
    TCONV_WHOLE_HOPPER("wgmma", many, TCONV_NCHW),
    TCONV_WHOLE_HOPPER("igemm", many, TCONV_NHWC),
    TCONV_WHOLE_HOPPER("cells", many, TCONV_NCHW),
    TCONV_WHOLE("mma", many, TCONV_NHWC, false),
    TCONV_WHOLE("rows", few_channels, TCONV_NCHW, false),
    TCONV_WHOLE("col2im", few_outputs, TCONV_NCHW, false),
    TCONV_WHOLE("gemm_col2im", few_outputs, TCONV_NCHW, true),
    TCONV_WHOLE("depthwise", depthwise, TCONV_NCHW, false),
    TCONV_WHOLE("general", few_channels, TCONV_NHWC, false),
};

} // namespace

void check_whole()
{
    check_entries(entries);
}

} // namespace tconv::check
