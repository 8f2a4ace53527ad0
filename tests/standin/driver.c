/* The driver's functions that the library asks the runtime for. cuTensorMapEncodeTiled checks what cuda.h says of its
 * arguments, and leaves a digest of them in the map. */
#include <cuda.h>
#include <string.h>

#include "state.h"

#define MAP_ALIGNMENT   64
#define MAX_RANK        5
#define ALIGNMENT       16 /* bytes, of the address, of strides and of a box's rows */
#define MAX_EXTENT      ((cuuint64_t)1 << 32)
#define MAX_STRIDE      ((cuuint64_t)1 << 40)
#define MAX_BOX         256
#define MAX_STEP        8
#define FIRST_ENCODE    12000 /* versions of the driver's interface that have the functions first */
#define FIRST_ATTRIBUTE 9000

struct map {
    CUtensorMapDataType type;
    cuuint32_t rank;
    uintptr_t address;
    cuuint64_t extents[MAX_RANK], strides[MAX_RANK];
    cuuint32_t box[MAX_RANK], steps[MAX_RANK];
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
};

static cuuint32_t element_bytes(CUtensorMapDataType type)
{
    switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return 8;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ: return 4;
    default: return 0; /* packed types, which the library does not use */
    }
}

static cuuint32_t swizzle_span(CUtensorMapSwizzle swizzle)
{
    switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE: return MAX_BOX * 8;
    case CU_TENSOR_MAP_SWIZZLE_32B: return 32;
    case CU_TENSOR_MAP_SWIZZLE_64B: return 64;
    default: return 128;
    }
}

static const char *broken_axes(const struct map *map)
{
    for (cuuint32_t i = 0; i < map->rank; i++) {
        if (map->extents[i] < 1 || map->extents[i] > MAX_EXTENT)
            return "an extent is 1 to 2^32";
        if (map->box[i] < 1 || map->box[i] > MAX_BOX)
            return "an extent of a box is 1 to 256";
        if (map->steps[i] < 1 || map->steps[i] > MAX_STEP)
            return "an element stride is 1 to 8";
        if (i + 1 < map->rank && (map->strides[i] % ALIGNMENT != 0 || map->strides[i] >= MAX_STRIDE))
            return "a stride is a multiple of 16 bytes below 2^40";
    }
    return NULL;
}

/* The rule of cuda.h that the arguments break; NULL where they are good. */
static const char *broken_rule(const struct map *map)
{
    const cuuint32_t bytes = element_bytes(map->type);
    if (bytes == 0)
        return "the stand-in does not know this type";
    if (map->rank < 1 || map->rank > MAX_RANK)
        return "a rank is 1 to 5";
    if (map->address % ALIGNMENT != 0)
        return "the address is a multiple of 16";
    if (map->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE)
        return "the stand-in does not know interleaved maps";
    const char *why = broken_axes(map);
    if (why != NULL)
        return why;
    if (map->box[0] * bytes % ALIGNMENT != 0)
        return "a row of a box is a multiple of 16 bytes";
    if (map->box[0] * bytes > swizzle_span(map->swizzle))
        return "a row of a box is not longer than the span of the swizzle";
    return NULL;
}

static CUresult encode_tiled(CUtensorMap *tensor_map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                             const cuuint64_t *extents, const cuuint64_t *strides, const cuuint32_t *box,
                             const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                             CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    standin_call call;
    struct map map;
    if (standin_is_quick)
        return CUDA_SUCCESS;
    int result = standin_begin_driver(&call, "cuTensorMapEncodeTiled");
    memset(&map, 0, sizeof map); /* padding too, for the digest */
    map.type = type;
    map.rank = rank;
    for (cuuint32_t i = 0; i < rank && i < MAX_RANK; i++) {
        map.extents[i] = extents[i];
        map.strides[i] = i + 1 < rank ? strides[i] : 0;
        map.box[i] = box[i];
        map.steps[i] = steps[i];
    }
    map.interleave = interleave;
    map.swizzle = swizzle;
    map.promotion = promotion;
    map.fill = fill;
    call.digest = standin_digest(&map, sizeof map, STANDIN_DIGEST_SEED);
    call.memory = address;
    map.address = (uintptr_t)address;
    const char *why = (uintptr_t)tensor_map % MAP_ALIGNMENT != 0 ? "a map lies at a multiple of 64 bytes"
                      : standin_describe(call.device)->major < 9 ? "tensor maps need compute capability 9.0"
                                                                 : broken_rule(&map);
    if (result == CUDA_SUCCESS && why != NULL)
        result = (int)standin_refuse(&call, (cudaError_t)CUDA_ERROR_INVALID_VALUE, why);
    if (result == CUDA_SUCCESS) {
        uint64_t words[sizeof *tensor_map / sizeof(uint64_t)];
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            words[i] = standin_digest(&map, sizeof map, STANDIN_DIGEST_SEED + i);
        memcpy(tensor_map, words, sizeof words);
    }
    return (CUresult)standin_end_driver(&call, result);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *found)
{
    standin_call call;
    const unsigned driver = (unsigned)standin_driver_version();
    (void)flags;
    cudaError_t error = standin_begin(&call, "cudaGetDriverEntryPointByVersion");
    call.value = (int)version;
    if (error != cudaSuccess)
        return standin_end(&call, error);
    *function = NULL;
    *found = cudaDriverEntryPointSymbolNotFound;
    const bool is_encode = strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
    void *known = is_encode ? (void *)(uintptr_t)encode_tiled : standin_driver_function(symbol);
    const unsigned first = is_encode ? FIRST_ENCODE : FIRST_ATTRIBUTE;
    if (known != NULL && (driver < first || version < first)) {
        *found = cudaDriverEntryPointVersionNotSufficent;
    } else if (known != NULL) {
        *function = known;
        *found = cudaDriverEntryPointSuccess;
    }
    return standin_end(&call, cudaSuccess);
}
