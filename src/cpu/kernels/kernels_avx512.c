/* AVX-512 (F, BW, DQ, VL) has 32 registers of 64 bytes; the multiply-add itself broadcasts a weight. */
#define LEVEL        avx512
#define VECTOR_BYTES 64
#include "microtiles_avx512.inc.h"

#include "kernels.inc.h"

#include "pixels_kernels.inc.h"
