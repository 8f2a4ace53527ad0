/* Makes tensor maps by the driver's function. */
#include "tensor_map.h"

#include <pthread.h>

#include "guard.h"

namespace tconv
{

namespace
{

constexpr cuuint64_t MAX_STRIDE = (cuuint64_t)1 << 40; /* bytes, less one, that TMA takes (CUDA driver API) */
constexpr cuuint64_t MAX_EXTENT = (cuuint64_t)1 << 32; /* elements that TMA takes (CUDA driver API) */

typedef CUresult encode_function(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                 const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

typedef CUresult encode_im2col_function(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                        const cuuint64_t *, const int *, const int *, cuuint32_t, cuuint32_t,
                                        const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                        CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

encode_function *encode_tiled; /* NULL where the driver has none */
encode_im2col_function *encode_im2col;
pthread_once_t encode_looked_up = PTHREAD_ONCE_INIT;

void look_up_encode()
{
    constexpr unsigned int FIRST_VERSION = 12000; /* the first of the driver's API that has it */
    encode_tiled = (encode_function *)driver_function("cuTensorMapEncodeTiled", FIRST_VERSION);
    encode_im2col = (encode_im2col_function *)driver_function("cuTensorMapEncodeIm2col", FIRST_VERSION);
}

CUtensorMapDataType type_of(const tensor_map_recipe *tensor)
{
    return tensor->dtype == TCONV_F16    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
           : tensor->dtype == TCONV_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
           : tensor->rounds              ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
                                         : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

} // namespace

bool encode_tensor_map(const tensor_map_recipe *tensor, CUtensorMap *map)
{
    if ((uintptr_t)tensor->data % BOX_ALIGNMENT != 0)
        return false;
    for (int i = 0; i < 3; i++)
        if (tensor->strides[i] % BOX_ALIGNMENT != 0 || tensor->strides[i] >= MAX_STRIDE)
            return false;
    for (int i = 0; i < 4; i++)
        if (tensor->extents[i] > MAX_EXTENT)
            return false;
    pthread_once(&encode_looked_up, look_up_encode);
    if (tensor->im2col_pixels > 0)
        return encode_im2col != NULL &&
               encode_im2col(map, type_of(tensor), 4, (void *)tensor->data, tensor->extents, tensor->strides,
                             tensor->lower, tensor->upper, tensor->box[0], tensor->im2col_pixels, tensor->steps,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, tensor->swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
    return encode_tiled != NULL &&
           encode_tiled(map, type_of(tensor), 4, (void *)tensor->data, tensor->extents, tensor->strides, tensor->box,
                        tensor->steps, CU_TENSOR_MAP_INTERLEAVE_NONE, tensor->swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

} // namespace tconv
