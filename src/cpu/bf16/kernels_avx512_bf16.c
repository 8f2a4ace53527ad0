/* AVX512_BF16 without AMX (Cooper Lake, Zen 4 and 5): products of pairs of bf16 that are summed in f32. */
#define LEVEL      avx512_bf16
#define HAS_AVX512 1
#define HAS_AMX    0
#include "kernels.inc.h"
