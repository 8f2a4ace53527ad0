/*
 * The headers that the host's C and the kernels' C++ share are C. In C++ what they declare lies in the namespace of their
 * room, so that kernels of two rooms may use the same words, and functions have C's linkage, so that either side may
 * define them. In C the words are a file's own: no C file includes the headers of two rooms that plan.
 *
 *     TCONV_ROOM_BEGIN(tconv::igemm)
 *     typedef struct config { ... } config;
 *     TCONV_ROOM_END
 */
#ifndef TCONV_CUDA_ROOM_H
#define TCONV_CUDA_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define TCONV_ROOM_BEGIN(name)                                                                                         \
    namespace name                                                                                                     \
    {                                                                                                                  \
    extern "C" {
#define TCONV_ROOM_END                                                                                                 \
    }                                                                                                                  \
    }
/* A function that C++ may call in a constant expression. */
#define TCONV_ROOM_CONSTANT static constexpr inline
#else
#define TCONV_ROOM_BEGIN(name)
#define TCONV_ROOM_END
#define TCONV_ROOM_CONSTANT static inline
#endif

/* A function that kernels call too. */
#ifdef __CUDACC__
#define TCONV_ROOM_SHARED static __host__ __device__ __forceinline__
#else
#define TCONV_ROOM_SHARED static inline
#endif

#endif
