/* Any machine: for tests, and where the algorithm is asked for by its name. */
#define LEVEL      generic
#define HAS_AVX512 0
#define HAS_AMX    0
#include "kernels.inc.h"
