/* Packs weights for Hopper's kernel of the products algorithm, in the order that products_kernels.h gives. */
#include "../../core/checked.h"
#include "../numeric/element.cuh"
#include "../numeric/tf32.cuh"
#include "../ptx/dependent_launch.cuh"
#include "../runtime/launch.h"
#include "parameters.h"

#include <cuda_runtime_api.h>

namespace tconv::col2im
{

namespace
{

constexpr int THREADS = 256;
constexpr int HALF_BYTES = TCONV_CUDA_PRODUCTS_STEP_BYTES / 2; /* of a product's half of K */

struct packing {
    tconv_weight_strides from;
    int64_t elements; /* packed, of one plane */
    int group_in, group_out, kernel_rows, kernel_columns, stride, steps, group_products, products;
    bool strict;
};

template <class Element>
__device__ __forceinline__ Element find_weight(const packing &packing, const Element *weights, int64_t group,
                                               int channel, int product)
{
    const int row_products = packing.group_out * packing.kernel_columns;
    const int rows = product / packing.group_products, in_rows = product - rows * packing.group_products;
    const int in_row = in_rows % row_products, row = in_rows / row_products, kernel_row = rows * packing.stride + row;
    if (row >= packing.stride || kernel_row >= packing.kernel_rows || channel >= packing.group_in)
        return Element(0.0f);
    return weights[(group * packing.group_in + channel) * packing.from.in +
                   in_row / packing.kernel_columns * packing.from.out + kernel_row * packing.from.h +
                   in_row % packing.kernel_columns * packing.from.w];
}

template <class Element>
__global__ void __launch_bounds__(THREADS)
    pack_rows(const __grid_constant__ packing packing, const Element *weights, Element *packed)
{
    constexpr int HALF = HALF_BYTES / (int)sizeof(Element);
    launch_dependents();
    const int64_t stride = (int64_t)gridDim.x * THREADS;
    const int plane = packing.products * 2 * HALF;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < packing.elements; i += stride) {
        const int64_t block = i / plane; /* group and step */
        int rest = (int)(i - block * plane);
        const int element = rest % HALF;
        rest /= HALF;
        const int product = rest % packing.products, half = rest / packing.products;
        const int64_t group = block / packing.steps;
        const int step_channel = sizeof(Element) == sizeof(float) ? element * 2 + half : half * HALF + element;
        const int channel = (int)(block - group * packing.steps) * 2 * HALF + step_channel;
        const Element value = find_weight(packing, weights, group, channel, product);
        if constexpr (sizeof(Element) == sizeof(float)) {
            uint32_t *to = reinterpret_cast<uint32_t *>(packed) + i + (packing.strict ? block * plane : 0);
            if (packing.strict)
                split_to_tf32(__float_as_uint(value), to, to + plane);
            else
                *to = round_to_tf32(__float_as_uint(value));
        } else {
            packed[i] = value;
        }
    }
}

} // namespace

tconv_status tconv_cuda_pack_product_rows(const tconv_problem *problem, bool tf32, int steps,
                                          const tconv_cuda_product_rows_shape *shape, const void *weights, void *packed,
                                          void *stream, tconv_issue *issue)
{
    packing packing;
    packing.from = problem->weight;
    packing.group_in = (int)problem->group_in;
    packing.group_out = (int)problem->group_out;
    packing.kernel_rows = (int)problem->h.kernel;
    packing.kernel_columns = (int)problem->w.kernel;
    packing.stride = (int)problem->h.stride;
    packing.steps = steps;
    packing.group_products = shape->group_tiles * TCONV_CUDA_PRODUCTS_TILE;
    packing.products = shape->tiles * TCONV_CUDA_PRODUCTS_TILE;
    packing.strict = problem->dtype == TCONV_F32 && !tf32;
    packing.elements =
        problem->groups * steps * packing.products * (TCONV_CUDA_PRODUCTS_STEP_BYTES / (int64_t)problem->element_size);
    void *arguments[] = {&packing, &weights, &packed};
    const void *kernel = problem->dtype == TCONV_F32   ? (const void *)pack_rows<float>
                         : problem->dtype == TCONV_F16 ? (const void *)pack_rows<__half>
                                                       : (const void *)pack_rows<__nv_bfloat16>;
    const launch_grid grid = {kernel, tconv_min(tconv_ceil_div(packing.elements, THREADS), INT32_MAX), THREADS, 0,
                              false};
    return launch_kernel(&grid, arguments, stream, issue);
}

} // namespace tconv::col2im
