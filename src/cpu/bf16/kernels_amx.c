/* AMX: eight registers of 16 rows of 64 bytes, and products of matrices of bf16 that are summed in f32. */
#define LEVEL      amx
#define HAS_AVX512 1
#define HAS_AMX    1
#include "kernels.inc.h"
