/* Attributes of kernels, and launches, which are checked against the limits of the device and recorded. */
#include <cuda.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

#define REGISTERS      65536 /* of a multiprocessor, and so of a block */
#define REGISTER_GROUP 256   /* registers are given to warps in multiples of this */
#define MAX_WARPS      64    /* on a multiprocessor */
#define MAX_BLOCKS     32    /* on a multiprocessor */
#define BLOCK_RESERVED 1024  /* bytes of shared memory that the system takes for each block, from 8.0 on */
#define MAX_CLUSTER    8     /* blocks, without cudaFuncAttributeNonPortableClusterSizeAllowed */
#define MAX_GRID_X     2147483647u
#define MAX_GRID_YZ    65535u
#define MAX_BLOCK_Z    64u

/* What nvcc's stubs call; no header declares them for C. */
unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
                               cudaStream_t stream);

/* ------------------------------------------------------------------------------------------------------- attributes */

/* Finds the kernel that a call names, and checks that the current device has code of it. */
static cudaError_t find_for_call(standin_call *call, const void *host, standin_kernel **kernel)
{
    call->kernel = *kernel = standin_find_kernel(host);
    if (*kernel == NULL)
        return standin_refuse(call, cudaErrorInvalidDeviceFunction, "no kernel is registered under this address");
    if (!standin_has_image(*kernel, standin_describe(call->device)))
        return standin_refuse(call, cudaErrorNoKernelImageForDevice, "the build has no code for the device");
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    standin_call call;
    standin_kernel *kernel;
    cudaError_t error = standin_begin(&call, "cudaFuncGetAttributes");
    if (error == cudaSuccess && (error = find_for_call(&call, function, &kernel)) == cudaSuccess) {
        memset(attributes, 0, sizeof *attributes);
        attributes->sharedSizeBytes = (size_t)kernel->static_shared;
        attributes->maxThreadsPerBlock = kernel->max_threads;
        attributes->numRegs = kernel->registers;
        attributes->maxDynamicSharedSizeBytes = kernel->allowed_shared[call.device] != 0
                                                    ? kernel->allowed_shared[call.device]
                                                    : STANDIN_PLAIN_SHARED - kernel->static_shared;
    }
    return standin_end(&call, error);
}

static cudaError_t tconv_allow_shared(standin_call *call, standin_kernel *kernel, int bytes)
{
    call->bytes = (size_t)bytes;
    if (bytes < 0 || bytes > standin_describe(call->device)->block_shared - kernel->static_shared)
        return standin_refuse(call, cudaErrorInvalidValue, "the device has less shared memory for a block");
    kernel->allowed_shared[call->device] = bytes;
    return cudaSuccess;
}

/* Clears the last error where it succeeds, as the runtime does. */
cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    standin_call call;
    standin_kernel *kernel;
    if (standin_is_quick)
        return cudaSuccess;
    cudaError_t error = standin_begin(&call, "cudaFuncSetAttribute");
    if (error == cudaSuccess)
        error = find_for_call(&call, function, &kernel);
    if (error == cudaSuccess && attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        error = standin_refuse(&call, cudaErrorInvalidValue, "the stand-in does not know this attribute");
    if (error == cudaSuccess && (error = tconv_allow_shared(&call, kernel, value)) == cudaSuccess)
        cudaGetLastError();
    return standin_end(&call, error);
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *symbol)
{
    standin_call call;
    standin_kernel *kernel;
    cudaError_t error = standin_begin(&call, "cudaGetFuncBySymbol");
    if (error == cudaSuccess && (error = find_for_call(&call, symbol, &kernel)) == cudaSuccess)
        *function = (cudaFunction_t)kernel;
    return standin_end(&call, error);
}

static CUresult set_attribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    standin_call call;
    int result = standin_begin_driver(&call, "cuFuncSetAttribute");
    standin_kernel *kernel = (standin_kernel *)function;
    call.kernel = kernel;
    if (result == CUDA_SUCCESS && (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
                                   tconv_allow_shared(&call, kernel, value) != cudaSuccess))
        result = CUDA_ERROR_INVALID_VALUE;
    return (CUresult)standin_end_driver(&call, result);
}

static int round_up(int value, int multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* By threads, blocks, shared memory and registers, with the table's figures. */
static int occupancy(const standin_kernel *kernel, const standin_device *device, int threads, size_t dynamic)
{
    const int warps = (threads + 31) / 32;
    const int64_t shared = kernel->static_shared + (int64_t)dynamic + BLOCK_RESERVED;
    const int by_warps = MAX_WARPS / warps;
    const int by_shared = (int)(device->multiprocessor_shared / shared);
    const int by_registers = REGISTERS / round_up(kernel->registers * 32, REGISTER_GROUP) / warps;
    int blocks = by_warps < MAX_BLOCKS ? by_warps : MAX_BLOCKS;
    blocks = by_shared < blocks ? by_shared : blocks;
    return by_registers < blocks ? by_registers : blocks;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                                   size_t dynamic, unsigned flags)
{
    standin_call call;
    standin_kernel *kernel;
    (void)flags;
    if (standin_is_quick) {
        *blocks = 1;
        return cudaSuccess;
    }
    cudaError_t error = standin_begin(&call, "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    call.bytes = dynamic;
    if (error == cudaSuccess)
        error = find_for_call(&call, function, &kernel);
    if (error == cudaSuccess && threads < 1)
        error = standin_refuse(&call, cudaErrorInvalidValue, "a block has at least one thread");
    if (error == cudaSuccess)
        *blocks = occupancy(kernel, standin_describe(call.device), threads, dynamic);
    return standin_end(&call, error);
}

/* --------------------------------------------------------------------------------------------------------- launches */

static const char *broken_shape(const standin_call *call)
{
    const unsigned *grid = call->grid, *block = call->block;
    if (grid[0] < 1 || grid[1] < 1 || grid[2] < 1)
        return "a grid has at least one block";
    if (grid[0] > MAX_GRID_X || grid[1] > MAX_GRID_YZ || grid[2] > MAX_GRID_YZ)
        return "a grid has at most 2^31 - 1 by 65,535 by 65,535 blocks";
    if (block[0] < 1 || block[1] < 1 || block[2] < 1)
        return "a block has at least one thread";
    if (block[0] > STANDIN_MAX_THREADS || block[1] > STANDIN_MAX_THREADS || block[2] > MAX_BLOCK_Z ||
        block[0] * block[1] * block[2] > STANDIN_MAX_THREADS)
        return "a block has at most 1,024 threads";
    return NULL;
}

static const char *broken_cluster(const standin_call *call, const standin_device *device)
{
    const unsigned blocks = call->cluster[0] * call->cluster[1] * call->cluster[2];
    if (call->kernel->cluster != 0 && call->cluster[0] == 0)
        return call->grid[0] % (unsigned)call->kernel->cluster != 0 ? "the kernel's cluster divides the grid" : NULL;
    if (call->cluster[0] == 0)
        return NULL;
    if (device->major < 9)
        return "clusters need compute capability 9.0";
    if (blocks < 1 || blocks > MAX_CLUSTER)
        return "a cluster has 1 to 8 blocks";
    for (int i = 0; i < 3; i++)
        if (call->grid[i] % call->cluster[i] != 0)
            return "a cluster divides the grid";
    return NULL;
}

/* Threads and registers that the kernel was compiled for, and shared memory that was allowed to it. */
static cudaError_t check_resources(standin_call *call)
{
    const standin_kernel *kernel = call->kernel;
    const int threads = (int)(call->block[0] * call->block[1] * call->block[2]);
    const int allowed = kernel->allowed_shared[call->device] > STANDIN_PLAIN_SHARED - kernel->static_shared
                            ? kernel->allowed_shared[call->device]
                            : STANDIN_PLAIN_SHARED - kernel->static_shared;
    if (call->bytes > (size_t)allowed)
        return standin_refuse(call, cudaErrorInvalidValue,
                              "so much dynamic shared memory was not allowed to the kernel");
    if (threads > kernel->max_threads)
        return standin_refuse(call, cudaErrorInvalidValue, "the kernel was compiled for fewer threads");
    if (kernel->code != 0 && round_up(kernel->registers * 32, REGISTER_GROUP) * ((threads + 31) / 32) > REGISTERS)
        return standin_refuse(call, cudaErrorLaunchOutOfResources, "a block has at most 65,536 registers");
    return cudaSuccess;
}

/* Each begins at a multiple of eight bytes, with zeros between them. */
static void copy_parameters(standin_call *call)
{
    const standin_kernel *kernel = call->kernel;
    if (kernel->parameters < 0)
        return;
    for (int i = 0; i < kernel->parameters; i++)
        call->parameter_bytes += (kernel->sizes[i] + 7) / 8 * 8;
    unsigned char *at = call->parameters = calloc(call->parameter_bytes + 1, 1);
    if (at == NULL)
        abort(); /* a test without its record shows nothing */
    for (int i = 0; i < kernel->parameters; at += (kernel->sizes[i++] + 7) / 8 * 8)
        memcpy(at, call->arguments[i], kernel->sizes[i]);
}

cudaError_t standin_check_launch(standin_call *call, const void *host)
{
    standin_kernel *kernel;
    cudaError_t error = find_for_call(call, host, &kernel);
    if (error != cudaSuccess)
        return error;
    const char *why = broken_shape(call);
    if (why == NULL)
        why = broken_cluster(call, standin_describe(call->device));
    if (why != NULL)
        return standin_refuse(call, cudaErrorInvalidConfiguration, why);
    if (call->arguments == NULL && kernel->parameters != 0)
        return standin_refuse(call, cudaErrorInvalidValue, "the launch has no arguments");
    if ((error = check_resources(call)) == cudaSuccess)
        copy_parameters(call);
    return error;
}

static void describe_launch(standin_call *call, dim3 grid, dim3 block, void **arguments, size_t bytes,
                            cudaStream_t stream)
{
    const unsigned grids[] = {grid.x, grid.y, grid.z}, blocks[] = {block.x, block.y, block.z};
    memcpy(call->grid, grids, sizeof grids);
    memcpy(call->block, blocks, sizeof blocks);
    call->arguments = arguments;
    call->bytes = bytes;
    call->stream = stream;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t bytes,
                             cudaStream_t stream)
{
    standin_call call;
    if (standin_is_quick)
        return cudaSuccess;
    cudaError_t error = standin_begin(&call, "cudaLaunchKernel");
    describe_launch(&call, grid, block, arguments, bytes, stream);
    if (error == cudaSuccess)
        error = standin_check_launch(&call, function);
    return standin_end(&call, error);
}

static cudaError_t read_attributes(standin_call *call, const cudaLaunchConfig_t *configuration)
{
    for (unsigned i = 0; i < configuration->numAttrs; i++) {
        const cudaLaunchAttribute *attribute = &configuration->attrs[i];
        if (attribute->id == cudaLaunchAttributeProgrammaticStreamSerialization) {
            call->overlaps = attribute->val.programmaticStreamSerializationAllowed != 0;
        } else if (attribute->id == cudaLaunchAttributeClusterDimension) {
            call->cluster[0] = attribute->val.clusterDim.x;
            call->cluster[1] = attribute->val.clusterDim.y;
            call->cluster[2] = attribute->val.clusterDim.z;
        } else {
            return standin_refuse(call, cudaErrorInvalidValue, "the stand-in does not know this attribute");
        }
    }
    if (call->overlaps && standin_describe(call->device)->major < 9)
        return standin_refuse(call, cudaErrorNotSupported, "overlapping launches need compute capability 9.0");
    return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *configuration, const void *function, void **arguments)
{
    standin_call call;
    if (standin_is_quick)
        return cudaSuccess;
    cudaError_t error = standin_begin(&call, "cudaLaunchKernelExC");
    describe_launch(&call, configuration->gridDim, configuration->blockDim, arguments, configuration->dynamicSmemBytes,
                    configuration->stream);
    if (error == cudaSuccess)
        error = read_attributes(&call, configuration);
    if (error == cudaSuccess)
        error = standin_check_launch(&call, function);
    return standin_end(&call, error);
}

/* The library launches by address and never by <<< >>>: the stubs that nvcc makes for the latter are not run. */
unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, void *stream)
{
    (void)gridDim, (void)blockDim, (void)sharedMem, (void)stream;
    abort();
}

cudaError_t __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem, void *stream)
{
    (void)gridDim, (void)blockDim, (void)sharedMem, (void)stream;
    abort();
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function)
{
    (void)kernel, (void)function;
    abort();
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
                               cudaStream_t stream)
{
    (void)kernel, (void)gridDim, (void)blockDim, (void)args, (void)sharedMem, (void)stream;
    abort();
}

void *standin_driver_function(const char *name)
{
    return strcmp(name, "cuFuncSetAttribute") == 0 ? (void *)(uintptr_t)set_attribute : NULL;
}
