/* The host side that Hopper's kernels share. */
#include "hopper.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

namespace
{

constexpr cuuint64_t MAX_STRIDE = (cuuint64_t)1 << 40, MAX_EXTENT = (cuuint64_t)1 << 32;

typedef CUresult encode_function(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                 const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

encode_function *encode_tiled; /* NULL where the driver has none */
pthread_once_t encode_looked_up = PTHREAD_ONCE_INIT;

void look_up_encode()
{
    constexpr unsigned int FIRST_VERSION = 12000; /* of the driver's that has it */
    encode_tiled = (encode_function *)tconv_cuda_driver_function("cuTensorMapEncodeTiled", FIRST_VERSION);
}

CUtensorMapDataType type_of(const tconv_hopper_tensor *tensor)
{
    return tensor->dtype == TCONV_F16    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
           : tensor->dtype == TCONV_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
           : tensor->rounds              ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
                                         : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

} // namespace

bool tconv_hopper_encode(const tconv_hopper_tensor *tensor, CUtensorMap *map)
{
    const cuuint32_t steps[] = {1, 1, 1, 1};
    if ((uintptr_t)tensor->data % TCONV_HOPPER_BOX_ALIGNMENT != 0)
        return false;
    for (int i = 0; i < 3; i++)
        if (tensor->strides[i] % TCONV_HOPPER_BOX_ALIGNMENT != 0 || tensor->strides[i] >= MAX_STRIDE)
            return false;
    for (int i = 0; i < 4; i++)
        if (tensor->extents[i] > MAX_EXTENT)
            return false;
    pthread_once(&encode_looked_up, look_up_encode);
    return encode_tiled != NULL &&
           encode_tiled(map, type_of(tensor), 4, (void *)tensor->data, tensor->extents, tensor->strides, tensor->box,
                        steps, CU_TENSOR_MAP_INTERLEAVE_NONE, tensor->swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

const char *tconv_hopper_why_not(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t extents[] = {problem->h.in,
                               problem->w.in,
                               problem->h.out,
                               problem->w.out,
                               problem->in_channels,
                               problem->out_channels,
                               problem->h.kernel * problem->h.dilation,
                               problem->w.kernel * problem->w.dilation,
                               problem->batch};
    if (layer->target.compute_capability != 90)
        return "needs compute capability 9.0";
    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++)
        if (extents[i] >= TCONV_HOPPER_MAX_EXTENT)
            return "needs extents below 2^28";
    return NULL;
}

bool tconv_hopper_has_code(const void *kernel, int threads, int device)
{
    cudaFuncAttributes attributes;
    tconv_cuda_guard guard;
    if (tconv_cuda_enter(&guard, device, NULL) != TCONV_SUCCESS)
        return false;
    const bool has =
        cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.maxThreadsPerBlock >= threads;
    tconv_cuda_leave(&guard);
    return has;
}

tconv_status tconv_hopper_launch(const tconv_cuda_grid *grid, void **arguments, int device, void *stream,
                                 tconv_issue *issue)
{
    return tconv_cuda_on_device(device, issue, [&] {
        const tconv_status status = tconv_cuda_allow_shared(grid->kernel, grid->shared_bytes, issue);
        return status == TCONV_SUCCESS ? tconv_cuda_launch_grid(grid, arguments, stream, issue) : status;
    });
}
