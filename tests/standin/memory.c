/*
 * Device memory, and what takes place on streams. A piece of device memory is mapped at an address that the calls
 * before it decide, the same in every process, so that recorded addresses can be compared; until it is written it costs
 * nothing. Copies take place at once.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "state.h"

#define FIRST_ADDRESS  ((uintptr_t)0x200010000000) /* neither Linux nor AddressSanitizer is there */
#define DEVICE_ROOM    ((uintptr_t)1 << 40)        /* bytes of addresses for each device */
#define PIECE_DISTANCE ((uintptr_t)1 << 21)        /* bytes; pieces begin at multiples of it */
#define ALIGNMENT      ((size_t)512)               /* bytes; the runtime's allocations are multiples of it */

struct piece {
    char *memory;
    size_t bytes;
    int device;
    struct piece *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct piece *pieces;
static uintptr_t next_offset[STANDIN_MAX_DEVICES];

size_t standin_live_bytes(void)
{
    size_t bytes = 0;
    pthread_mutex_lock(&mutex);
    for (const struct piece *piece = pieces; piece != NULL; piece = piece->next)
        bytes += piece->bytes;
    pthread_mutex_unlock(&mutex);
    return bytes;
}

int standin_live_pieces(void)
{
    int count = 0;
    pthread_mutex_lock(&mutex);
    for (const struct piece *piece = pieces; piece != NULL; piece = piece->next)
        count++;
    pthread_mutex_unlock(&mutex);
    return count;
}

static size_t used_bytes(int device)
{
    size_t bytes = 0;
    for (const struct piece *piece = pieces; piece != NULL; piece = piece->next)
        bytes += piece->device == device ? piece->bytes : 0;
    return bytes;
}

static cudaError_t map_piece(int device, size_t size, void **memory)
{
    const size_t bytes = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const size_t most = standin_describe(device)->memory_bytes;
    if (size > most || bytes > most - used_bytes(device))
        return cudaErrorMemoryAllocation;
    struct piece *piece = malloc(sizeof *piece);
    const uintptr_t wanted = FIRST_ADDRESS + (uintptr_t)device * DEVICE_ROOM + next_offset[device];
    void *mapped = piece == NULL ? MAP_FAILED
                                 : mmap((void *)wanted, bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (mapped == MAP_FAILED) {
        free(piece);
        return cudaErrorMemoryAllocation;
    }
    *piece = (struct piece){mapped, bytes, device, pieces};
    pieces = piece;
    next_offset[device] += (bytes + 2 * PIECE_DISTANCE - 1) / PIECE_DISTANCE * PIECE_DISTANCE;
    *memory = mapped;
    return cudaSuccess;
}

static cudaError_t allocate(standin_call *call, cudaError_t error, void **memory, size_t size)
{
    call->bytes = size;
    if (error == cudaSuccess && size == 0) {
        *memory = NULL;
    } else if (error == cudaSuccess) {
        pthread_mutex_lock(&mutex);
        error = map_piece(call->device, size, memory);
        pthread_mutex_unlock(&mutex);
        call->memory = error == cudaSuccess ? *memory : NULL;
    }
    return standin_end(call, error);
}

static cudaError_t unmap_piece(standin_call *call, void *memory)
{
    struct piece **at = &pieces;
    while (*at != NULL && (*at)->memory != memory)
        at = &(*at)->next;
    if (*at == NULL)
        return standin_refuse(call, cudaErrorInvalidValue, "this is no device memory, or was freed before");
    struct piece *gone = *at;
    *at = gone->next;
    munmap(gone->memory, gone->bytes);
    if (used_bytes(gone->device) == 0)
        next_offset[gone->device] = 0;
    free(gone);
    return cudaSuccess;
}

/* Memory is freed where the runtime fails as well: an error that is told here is one of earlier work. */
static cudaError_t release(standin_call *call, cudaError_t error, void *memory)
{
    call->memory = memory;
    if (memory != NULL) {
        pthread_mutex_lock(&mutex);
        const cudaError_t unmapped = unmap_piece(call, memory);
        pthread_mutex_unlock(&mutex);
        if (error == cudaSuccess)
            error = unmapped;
    }
    return standin_end(call, error);
}

cudaError_t cudaMalloc(void **memory, size_t size)
{
    standin_call call;
    const cudaError_t error = standin_begin(&call, "cudaMalloc");
    return allocate(&call, error, memory, size);
}

cudaError_t cudaMallocAsync(void **memory, size_t size, cudaStream_t stream)
{
    standin_call call;
    cudaError_t error = standin_begin(&call, "cudaMallocAsync");
    call.stream = stream;
    if (error == cudaSuccess && !standin_describe(call.device)->memory_pools)
        error = standin_refuse(&call, cudaErrorNotSupported, "the device has no memory pools");
    return allocate(&call, error, memory, size);
}

cudaError_t cudaFree(void *memory)
{
    standin_call call;
    const cudaError_t error = standin_begin(&call, "cudaFree");
    return release(&call, error, memory);
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    standin_call call;
    const cudaError_t error = standin_begin(&call, "cudaFreeAsync");
    call.stream = stream;
    return release(&call, error, memory);
}

/* Whether an address range lies in device memory as a whole, or in none of it. */
static bool is_in_one_place(const void *memory, size_t size)
{
    const char *first = memory;
    bool good = true;
    pthread_mutex_lock(&mutex);
    for (const struct piece *piece = pieces; piece != NULL; piece = piece->next) {
        const bool meets = first < piece->memory + piece->bytes && first + size > piece->memory;
        good = good && (!meets || (first >= piece->memory && first + size <= piece->memory + piece->bytes));
    }
    pthread_mutex_unlock(&mutex);
    return good;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    standin_call call;
    cudaError_t error = standin_begin(&call, "cudaMemcpyAsync");
    call.stream = stream;
    call.memory = to;
    call.source = from;
    call.bytes = size;
    call.value = (int)kind;
    if (error == cudaSuccess && (!is_in_one_place(to, size) || !is_in_one_place(from, size)))
        error = standin_refuse(&call, cudaErrorInvalidValue, "the copy goes over the end of device memory");
    if (error == cudaSuccess)
        memcpy(to, from, size);
    return standin_end(&call, error);
}

/* Fills nothing: the tests' tensors and workspaces are addresses without memory. */
cudaError_t cudaMemsetAsync(void *memory, int value, size_t size, cudaStream_t stream)
{
    standin_call call;
    if (standin_is_quick)
        return cudaSuccess;
    const cudaError_t error = standin_begin(&call, "cudaMemsetAsync");
    call.stream = stream;
    call.memory = memory;
    call.bytes = size;
    call.value = value;
    return standin_end(&call, error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    standin_call call;
    const cudaError_t error = standin_begin(&call, "cudaStreamSynchronize");
    call.stream = stream;
    return standin_end(&call, error);
}
