/* Makes tensor maps by the driver's function. */
#include "tensor_map.h"

#include <cuda.h>
#include <pthread.h>
#include <string.h>

#include "guard.h"

#define MAX_STRIDE   ((uint64_t)1 << 40) /* bytes, less one, that TMA takes (CUDA driver API) */
#define MAX_EXTENT   ((uint64_t)1 << 32) /* elements that TMA takes (CUDA driver API) */
#define FIRST_ENCODE 12000               /* the first version of the driver's API that has the functions below */

_Static_assert(sizeof(tensor_map) == sizeof(CUtensorMap), "one is the other's bytes");

typedef CUresult encode_function(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                 const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

typedef CUresult encode_im2col_function(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                        const cuuint64_t *, const int *, const int *, cuuint32_t, cuuint32_t,
                                        const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                        CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_function *encode_tiled; /* NULL where the driver has none */
static encode_im2col_function *encode_im2col;
static pthread_once_t encode_looked_up = PTHREAD_ONCE_INIT;

static void look_up_encode(void)
{
    tconv_find_driver_function("cuTensorMapEncodeTiled", FIRST_ENCODE, &encode_tiled);
    tconv_find_driver_function("cuTensorMapEncodeIm2col", FIRST_ENCODE, &encode_im2col);
}

static CUtensorMapDataType type_of(const tensor_map_recipe *tensor)
{
    return tensor->dtype == TCONV_F16    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
           : tensor->dtype == TCONV_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
           : tensor->rounds              ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
                                         : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

static CUtensorMapSwizzle swizzle_of(const tensor_map_recipe *tensor)
{
    return tensor->swizzle == SWIZZLE_128B  ? CU_TENSOR_MAP_SWIZZLE_128B
           : tensor->swizzle == SWIZZLE_64B ? CU_TENSOR_MAP_SWIZZLE_64B
           : tensor->swizzle == SWIZZLE_32B ? CU_TENSOR_MAP_SWIZZLE_32B
                                            : CU_TENSOR_MAP_SWIZZLE_NONE;
}

static int rank_of(const tensor_map_recipe *tensor)
{
    return tensor->extents[4] > 0 ? 5 : 4;
}

static bool takes_stride(uint64_t bytes)
{
    return bytes % BOX_ALIGNMENT == 0 && bytes < MAX_STRIDE;
}

/* Whether TMA can read the tensor as it lies. */
static bool is_readable(const tensor_map_recipe *tensor, const void *data)
{
    if ((uintptr_t)data % BOX_ALIGNMENT != 0)
        return false;
    for (int i = 0; i < rank_of(tensor) - 1; i++)
        if (!takes_stride(tensor->strides[i]))
            return false;
    for (int i = 0; i < rank_of(tensor); i++)
        if (tensor->extents[i] > MAX_EXTENT)
            return false;
    return true;
}

bool tconv_encode_tensor_map(const tensor_map_recipe *tensor, const void *data, tensor_map *map)
{
    const int rank = rank_of(tensor);
    cuuint64_t extents[5], strides[4]; /* the driver's type is another one of 64 bits */
    cuuint32_t steps[5];
    CUtensorMap encoded;
    CUresult result;
    if (!is_readable(tensor, data))
        return false;
    for (int i = 0; i < rank; i++) {
        extents[i] = tensor->extents[i];
        steps[i] = tensor->steps[i] > 0 ? tensor->steps[i] : 1;
        if (i < rank - 1)
            strides[i] = tensor->strides[i];
    }
    pthread_once(&encode_looked_up, look_up_encode);
    if (tensor->im2col_pixels > 0 ? encode_im2col == NULL : encode_tiled == NULL)
        return false;
    if (tensor->im2col_pixels > 0)
        result =
            encode_im2col(&encoded, type_of(tensor), 4, (void *)data, extents, strides, tensor->lower, tensor->upper,
                          tensor->box[0], tensor->im2col_pixels, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                          swizzle_of(tensor), CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    else
        result = encode_tiled(&encoded, type_of(tensor), (cuuint32_t)rank, (void *)data, extents, strides, tensor->box,
                              steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(tensor), CU_TENSOR_MAP_L2_PROMOTION_NONE,
                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return false;
    memcpy(map, &encoded, sizeof *map);
    return true;
}
