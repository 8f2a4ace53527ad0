/*
 * Plays a device without memory pools by replacing functions of the CUDA runtime: the one call then allocates and frees
 * outside of streams, and nothing uses the pools.
 */
#include <criterion/criterion.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "support/expect.h"
#include "support/small_layer.h"
#include "support/ways.h"

static bool without_pools;
static int asked, async_calls;

cudaError_t __real_cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t __wrap_cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t __real_cudaMallocAsync(void **memory, size_t size, cudaStream_t stream);
cudaError_t __wrap_cudaMallocAsync(void **memory, size_t size, cudaStream_t stream);
cudaError_t __real_cudaFreeAsync(void *memory, cudaStream_t stream);
cudaError_t __wrap_cudaFreeAsync(void *memory, cudaStream_t stream);

cudaError_t __wrap_cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    if (attribute != cudaDevAttrMemoryPoolsSupported || !without_pools)
        return __real_cudaDeviceGetAttribute(value, attribute, device);
    asked++;
    *value = 0;
    return cudaSuccess;
}

cudaError_t __wrap_cudaMallocAsync(void **memory, size_t size, cudaStream_t stream)
{
    async_calls++;
    return without_pools ? cudaErrorNotSupported : __real_cudaMallocAsync(memory, size, stream);
}

cudaError_t __wrap_cudaFreeAsync(void *memory, cudaStream_t stream)
{
    async_calls++;
    return without_pools ? cudaErrorNotSupported : __real_cudaFreeAsync(memory, stream);
}

static struct small_layer layer;

static int64_t free_bytes(void)
{
    size_t available = 0, total = 0;
    cudaDeviceSynchronize();
    cudaMemGetInfo(&available, &total);
    return (int64_t)available;
}

static void call_once(void)
{
    tconv_options options;
    tconv_issue issue;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    small_layer_clear(&layer);
    expect_success(
        tconv_conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue),
        issue);
    cr_assert(small_layer_is_right(&layer));
}

Test(memory_pools_cuda, one_call_works_without_pools)
{
    skip_without_cuda();
    small_layer_init(&layer);
    without_pools = true;
    call_once();
    const int64_t before = free_bytes();
    for (int i = 0; i < 2000; i++) /* 8 MB of tensors */
        call_once();
    cr_assert_gt(asked, 0);
    cr_assert_eq(async_calls, 0);
    cr_assert_leq(before - free_bytes(), 4 << 20, "memory is not given back");
}

Test(memory_pools_cuda, one_call_uses_the_pools_where_there_are)
{
    int supported = 0;
    skip_without_cuda();
    cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0);
    small_layer_init(&layer);
    call_once();
    cr_assert(supported == 0 || async_calls > 0, "%d calls", async_calls);
}
